//! What the design of large folios promises, by the part of the results.

use super::super::{Claim, ClaimRow, Limit, OurFigure, Stats, Unit, claims_of, promised};
use super::ThpResults;
use super::first_store::FirstStores;
use super::forks::{self, ForkRow};
use super::operations::OperationKind::{MapRun, Reference, SplitPmd, UnmapLastOfRun, UnmapRun};
use super::operations::{OperationKind, OperationUse};
use super::programs::{ProgramRun, WORDS};
use super::story::StoryEvent;
use pagewright_types::Order;

pub(super) fn claims(results: &ThpResults) -> Vec<Claim> {
    let mut claims = claims_of(&OPERATIONS, results.operations.as_deref().unwrap_or_default());
    claims.extend(claims_of(&STORY, &results.story[..]));
    claims.extend(claims_of(&FIRST_STORES, &results.first_stores));
    claims.extend(results.forks.iter().flat_map(|row| claims_of(&FORKS, row)));
    claims.extend(results.programs.chunks(WORDS.len()).flat_map(|runs| claims_of(&PROGRAMS, runs)));
    claims
}

const TWO: Limit = Limit::exactly(2.0, Unit::Count);
/// The counts of the pages of a run, which are no part of the head's.
const OWN_COUNTS: &str = "the pages' own counts: one more for each page, unless the table is the space's own; that of the \
     head page is in the head's record";

const OPERATIONS: [ClaimRow<[OperationUse]>; 5] = [
    promised("Locked instructions of get and put, of a small folio, head and tail", Limit::exactly(1.0, Unit::Count))
        .leaving_out("the last put, which takes the folio off its list and frees it")
        .counted(|all| operation(all, Reference, OperationUse::locked)),
    promised("Locked instructions on the head, to map a run of a folio", TWO)
        .leaving_out(OWN_COUNTS)
        .counted(|all| operation(all, MapRun, |used| used.locked_head)),
    promised("Locked instructions on the head, to unmap a run and put it, no page count reaches zero", TWO)
        .leaving_out(OWN_COUNTS)
        .counted(|all| operation(all, UnmapRun, |used| used.locked_head)),
    promised(
        "Locked instructions on the head, to unmap a run and put it, page counts reach zero",
        Limit::exactly(3.0, Unit::Count),
    )
    .leaving_out(OWN_COUNTS)
    .counted(|all| operation(all, UnmapLastOfRun, |used| used.locked_head)),
    promised("Records that the split of a PMD stores to", Limit::exactly(Order::PMD.frames() as f64, Unit::Count))
        .leaving_out("the page table that it fills, of 64 lines")
        .counted(|all| operation(all, SplitPmd, |used| used.records_stored)),
];

/// What the operations of a kind use; none if no operation of the kind was counted in this run.
fn operation(all: &[OperationUse], kind: OperationKind, figure: fn(&OperationUse) -> u64) -> Option<OurFigure> {
    let of_kind: Vec<_> = all.iter().filter(|used| used.kind == kind).map(|used| (used.name, figure(used))).collect();
    let figures = of_kind.iter().map(|(_, figure)| *figure as f64);
    let (least, most) = (figures.clone().reduce(f64::min)?, figures.reduce(f64::max)?);
    let each = of_kind.iter().map(|(name, figure)| format!("{name}: {figure}"));
    let reason = if least < most { each.collect::<Vec<_>>().join("; ") } else { String::new() };
    let details = format!("in {} operations", of_kind.len());
    let range = Stats { median: least, p10: least, p90: most, samples: of_kind.len() };
    Some(OurFigure { details, reason, ..range.into() })
}

/// A split is that of one process, and unmapped pages are freed later.
const STORY: [ClaimRow<[StoryEvent]>; 1] = [promised(
    "A huge page in two processes, of which one and then the other unmaps a half",
    Limit::holds("the other's PMD is kept; that half is freed when memory is short, the other one at the last exit"),
)
.counted(story)];

fn story(events: &[StoryEvent]) -> Option<OurFigure> {
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
    Some(OurFigure::holds(kept, ours))
}

/// The orders of which a first store is to take a part of a base page's time, for each page.
const FIRST_STORES: [ClaimRow<FirstStores>; 2] = [
    first_store(0.30, |stores| store_of(stores, Order::new(4))),
    first_store(0.15, |stores| store_of(stores, Order::PMD)),
];

const fn first_store(limit: f64, find: fn(&FirstStores) -> Option<OurFigure>) -> ClaimRow<FirstStores> {
    let limit = Limit::at_most(limit, Unit::Times).noting("of a 4 KiB page");
    promised("First store without clearing, for each 4 KiB", limit)
        .leaving_out("clearing, the exception and TLB misses")
        .measured(find)
}

fn store_of(stores: &FirstStores, order: Order) -> Option<OurFigure> {
    Some(OurFigure { of: format!("pages of {} KiB", order.bytes() >> 10), ..stores.ratio(order).into() })
}

/// A fork copies an entry for each huge leaf and shares none of their tables.
const FORKS: [ClaimRow<ForkRow>; 2] = [
    promised(
        "Entries that a fork of 512 MiB in huge pages copies",
        Limit::exactly(forks::HUGE_LEAVES as f64, Unit::Count),
    )
    .counted(|row| of_fork(row, row.entries)),
    promised("Page tables that a fork of 512 MiB in huge pages shares", Limit::exactly(0.0, Unit::Count))
        .leaving_out("tables of other memory, of which the parent has none")
        .counted(|row| of_fork(row, row.shared)),
];

fn of_fork(row: &ForkRow, count: u64) -> Option<OurFigure> {
    let is_huge = row.word == "always" && row.bytes == forks::HUGE_LEAVES * Order::PMD.bytes();
    is_huge.then(|| OurFigure { of: row.mode.name().to_owned(), ..OurFigure::exact(count as f64) })
}

/// No more faults of a program with huge pages than without.
const PROGRAMS: [ClaimRow<[ProgramRun]>; 1] =
    [promised("Faults under never → madvise → always", Limit::holds("each no more than before")).counted(faults)];

/// The faults of a program under each of [`WORDS`].
fn faults(runs: &[ProgramRun]) -> Option<OurFigure> {
    let [never, madvise, always] = runs else { return None };
    let times = |of: fn(&ProgramRun) -> u64| of(always) as f64 / of(never).max(1) as f64;
    let leaves_out = format!(
        "memory, {:.2} × with always; TLB misses, modelled, {:.2} ×; {} PMDs split",
        times(|run| run.peak_bytes),
        times(|run| run.tlb_misses),
        always.split_pmd
    );
    let kept = always.faults <= madvise.faults && madvise.faults <= never.faults;
    let ours = format!("{} → {} → {} faults", never.faults, madvise.faults, always.faults);
    Some(OurFigure { of: always.program.to_owned(), leaves_out, ..OurFigure::holds(kept, ours) })
}

#[cfg(test)]
mod tests;
