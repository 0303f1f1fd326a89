//! Compares the figures with what the design of large folios promises.

use super::super::{Claim, FigureKind, Promise};
use super::ThpResults;
use super::first_store::FirstStores;
use super::forks::{self, ForkRow};
use super::operations::OperationKind::{MapRun, Reference, SplitPmd, UnmapLastOfRun, UnmapRun};
use super::operations::{OperationKind, OperationUse};
use super::programs::ProgramRun;
use super::story::StoryEvent;
use pagewright_types::Order;

pub(super) fn claims(results: &ThpResults) -> Vec<Claim> {
    let mut claims = operations(&results.operations);
    claims.extend(story(&results.story));
    claims.extend(AIMS.map(|(order, limit)| first_store(&results.first_stores, order, limit)));
    claims.extend(results.forks.iter().filter(|row| row.word == "always").filter_map(fork));
    claims.extend(memory(&results.programs));
    claims
}

/// The orders of which a first store is to take a part of a base page's time, for each page.
const AIMS: [(Order, f64); 2] = [(Order::new(4), 0.30), (Order::PMD, 0.15)];

/// Promises about the story: a split is that of one process, and unmapped pages are freed later.
fn story(events: &[StoryEvent]) -> Option<Claim> {
    let event = |name: &str| events.iter().find(|event| event.name == name);
    let [child, parent] = ["the child unmaps a half", "the parent unmaps the same half"].map(event);
    let (reclaim, exit) = (event("reclaim")?, event("the child exits")?);
    let (child, parent) = (child?, parent?);
    let half = u64::from(Order::PMD.frames()) / 2;
    let kept = child.huge == [true, false]
        && child.splits == [1, 0]
        && parent.splits == [2, 0]
        && parent.frames == 2 * half
        && (reclaim.frames, reclaim.splits[1], reclaim.queued) == (half, 1, 0)
        && exit.frames == 0;
    let ours = format!(
        "parent's PMD kept: {}; {} PMDs split; frames in use {} after both unmap, {} after reclaim, {} after both exit",
        if child.huge[0] { "yes" } else { "no" },
        parent.splits[0],
        parent.frames,
        reclaim.frames,
        exit.frames
    );
    let what = "A huge page in two processes, of which one and then the other unmaps a half";
    let limit = "the other's PMD is kept; 256 frames are freed when memory is short, the others at the last exit";
    Some(Claim::promised(what, limit, ours, FigureKind::Counted, Promise::kept(kept)))
}

fn first_store(stores: &FirstStores, order: Order, limit: f64) -> Claim {
    let ratio = stores.ratio(order);
    let what = format!("First store without clearing, pages of {} KiB, for each 4 KiB", order.bytes() >> 10);
    let promise = format!("at most {limit:.2} × of a 4 KiB page");
    let ours = format!("{} ×", ratio.text());
    Claim::promised(what, &promise, ours, FigureKind::Measured, Promise::at_most(&ratio, limit))
        .leaving_out("clearing, the exception and TLB misses")
}

/// A promise that a fork copies an entry for each huge leaf and shares none of their tables.
fn fork(row: &ForkRow) -> Option<Claim> {
    (row.bytes == forks::HUGE_LEAVES * Order::PMD.bytes()).then(|| {
        let kept = row.entries == forks::HUGE_LEAVES && row.shared == 0;
        let ours = format!("{} entries, {} tables shared", row.entries, row.shared);
        let what = format!("A fork of 512 MiB in huge pages, {} page tables", row.mode.name());
        let limit = format!("copies {} entries and shares no table", forks::HUGE_LEAVES);
        Claim::promised(what, &limit, ours, FigureKind::Counted, Promise::kept(kept))
            .leaving_out("tables of other memory, of which the parent has none")
    })
}

/// A promise for each program: no more faults with huge pages than without.
fn memory(runs: &[ProgramRun]) -> Vec<Claim> {
    let of = |run: &ProgramRun, word| runs.iter().find(|other| other.program == run.program && other.word == word);
    let claim = |run: &ProgramRun| {
        let (never, madvise) = (of(run, "never")?, of(run, "madvise")?);
        let faults = format!("{} → {} → {} faults", never.faults, madvise.faults, run.faults);
        let kept = run.faults <= madvise.faults && madvise.faults <= never.faults;
        let times = |of: fn(&ProgramRun) -> u64| of(run) as f64 / of(never).max(1) as f64;
        let left = format!(
            "memory, {:.2} × with always; TLB misses, modelled, {:.2} ×; {} PMDs split",
            times(|run| run.peak_bytes),
            times(|run| run.tlb_misses),
            run.split_pmd
        );
        let what = format!("Faults of {} under never → madvise → always", run.program);
        let row = Claim::promised(what, "each no more than before", faults, FigureKind::Counted, Promise::kept(kept));
        Some(row.leaving_out(left))
    };
    runs.iter().filter(|run| run.word == "always").filter_map(claim).collect()
}

/// A promise about the operations of some kinds.
struct OperationPromise {
    what: &'static str,
    limit: &'static str,
    kind: OperationKind,
    figure: fn(&OperationUse) -> u64,
    promised: u64,
    leaves_out: &'static str,
}

/// The counts of the pages of a run, which are no part of the head's.
const OWN_COUNTS: &str = "the pages' own counts: one more for each page, unless the table is the space's own; that of the \
     head page is in the head's record";

const PROMISES: [OperationPromise; 5] = [
    OperationPromise {
        what: "Locked instructions of get and put, of a small folio, head and tail",
        limit: "one",
        kind: Reference,
        figure: OperationUse::locked,
        promised: 1,
        leaves_out: "the last put, which takes the folio off its list and frees it",
    },
    OperationPromise {
        what: "Locked instructions on the head, to map a run of a folio",
        limit: "two",
        kind: MapRun,
        figure: |used| used.locked_head,
        promised: 2,
        leaves_out: OWN_COUNTS,
    },
    OperationPromise {
        what: "Locked instructions on the head, to unmap a run and put it, no page count reaches zero",
        limit: "two",
        kind: UnmapRun,
        figure: |used| used.locked_head,
        promised: 2,
        leaves_out: OWN_COUNTS,
    },
    OperationPromise {
        what: "Locked instructions on the head, to unmap a run and put it, page counts reach zero",
        limit: "three",
        kind: UnmapLastOfRun,
        figure: |used| used.locked_head,
        promised: 3,
        leaves_out: OWN_COUNTS,
    },
    OperationPromise {
        what: "Records that the split of a PMD stores to",
        limit: "512",
        kind: SplitPmd,
        figure: |used| used.records_stored,
        promised: Order::PMD.frames() as u64,
        leaves_out: "the page table that it fills, of 64 lines",
    },
];

fn operations(counted: &Result<Vec<OperationUse>, String>) -> Vec<Claim> {
    PROMISES.iter().filter_map(|promise| promise.claim(counted)).collect()
}

impl OperationPromise {
    /// The row; none if no operation of the kind was counted in this run.
    fn claim(&self, counted: &Result<Vec<OperationUse>, String>) -> Option<Claim> {
        let row = |ours: String, verdict| {
            let row = Claim::promised(self.what, self.limit, ours, FigureKind::Counted, verdict);
            row.leaving_out(self.leaves_out)
        };
        let of_kind: Vec<_> = counted.as_ref().ok()?.iter().filter(|used| used.kind == self.kind).collect();
        let figures = of_kind.iter().map(|used| (self.figure)(used));
        let kept = figures.clone().all(|figure| figure == self.promised);
        let (least, most) = (figures.clone().min()?, figures.max()?);
        let each = if least == most { most.to_string() } else { format!("{least} to {most}") };
        let other = of_kind.iter().filter(|used| (self.figure)(used) != self.promised).map(|used| used.name);
        let reason = other.collect::<Vec<_>>().join("; ");
        Some(row(format!("{each}, in {} operations", of_kind.len()), Promise::kept(kept)).because(reason))
    }
}

#[cfg(test)]
mod tests;
