//! Compares the figures with what the design of large folios promises.

use super::super::{Claim, FigureKind, Verdict};
use super::ThpResults;
use super::operations::OperationKind::{MapRun, Reference, SplitPmd, UnmapLastOfRun, UnmapRun};
use super::operations::{OperationKind, OperationUse};
use pagewright_types::Order;

pub(super) fn claims(results: &ThpResults) -> Vec<Claim> {
    operations(&results.operations)
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
        let operations = match counted {
            Ok(operations) => operations,
            Err(reason) => {
                return Some(row("not counted here".to_owned(), Verdict::Undecided).because(reason.as_str()));
            }
        };
        let of_kind: Vec<_> = operations.iter().filter(|used| used.kind == self.kind).collect();
        let figures = of_kind.iter().map(|used| (self.figure)(used));
        let kept = figures.clone().all(|figure| figure == self.promised);
        let (least, most) = (figures.clone().min()?, figures.max()?);
        let each = if least == most { most.to_string() } else { format!("{least} to {most}") };
        let other = of_kind.iter().filter(|used| (self.figure)(used) != self.promised).map(|used| used.name);
        let reason = other.collect::<Vec<_>>().join("; ");
        Some(row(format!("{each}, in {} operations", of_kind.len()), Verdict::kept(kept)).because(reason))
    }
}

#[cfg(test)]
mod tests;
