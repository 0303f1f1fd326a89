//! Which pairs of mechanisms have met in random programs, and what shows that they have.
//!
//! Random programs run with shared page tables, nodes between which pages move, translations that
//! linger, batched flushes and reclaim at once, and some of them with huge pages. A pair that has
//! not met was not tested together.
//!
//! Not guaranteed: more than that the two met. The rules of the oracle have counts of their own.

use super::survey::Survey;
use pagewright_check::Antecedent;
use pagewright_types::Counter;
use std::fmt;

/// What a meeting is counted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ShownBy {
    /// What the oracle saw, in all programs.
    Antecedent(Antecedent),
    /// A counter of the memory manager, in the programs that run one operation at a time.
    Counter(Counter),
}

/// Two mechanisms, and an event that needs both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meeting {
    /// The mechanisms.
    pub pair: &'static str,
    shown: ShownBy,
    /// Whether it takes two nodes.
    pub needs_nodes: bool,
}

impl Meeting {
    const fn new(pair: &'static str, shown: ShownBy) -> Self {
        Self { pair, shown, needs_nodes: false }
    }

    const fn on_nodes(self) -> Self {
        Self { needs_nodes: true, ..self }
    }
}

/// The event, in the words of its counter.
impl fmt::Display for Meeting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.shown {
            ShownBy::Antecedent(antecedent) => f.write_str(antecedent.name()),
            ShownBy::Counter(counter) => f.write_str(counter.name()),
        }
    }
}

use ShownBy::{Antecedent as Seen, Counter as Counted};

/// The pairs of shared tables, moves of pages, lingering translations, batches and reclaim.
///
/// Those of huge pages come last.
pub const MEETINGS: [Meeting; 22] = [
    Meeting::new("shared tables, moves", Seen(Antecedent::SharedMoved)).on_nodes(),
    Meeting::new("shared tables, lingering", Counted(Counter::PwLingerShared)),
    Meeting::new("shared tables, batches and reclaim", Seen(Antecedent::UnequalSwapSharers)),
    Meeting::new("fork, lingering", Seen(Antecedent::KeyTableShared)),
    Meeting::new("moves, lingering", Seen(Antecedent::StaleHit)).on_nodes(),
    Meeting::new("moves, reclaim", Counted(Counter::PgDemoteProactive)).on_nodes(),
    Meeting::new("hint faults, lingering", Counted(Counter::PwLingerNothingOwed)).on_nodes(),
    Meeting::new("lingering, batches", Counted(Counter::PwLingerUnflushed)),
    Meeting::new("lingering, allocation", Seen(Antecedent::DeferralTaken)),
    Meeting::new("lingering, munmap", Seen(Antecedent::KeyTableFreed)),
    Meeting::new("batches, reclaim", Counted(Counter::PwTlbBatchFlushed)),
    Meeting::new("batches, other flushes", Counted(Counter::PwTlbSettledAlready)),
    Meeting::new("huge pages, fork", Seen(Antecedent::LargeShared)),
    Meeting::new("huge pages, shared tables", Counted(Counter::PwTableCopiedHuge)),
    Meeting::new("huge pages, hint scans", Counted(Counter::PwNumaLargeSkipped)).on_nodes(),
    Meeting::new("huge pages, migration entries", Seen(Antecedent::HugeHidden)),
    Meeting::new("huge pages, unmaps of parts", Counted(Counter::ThpDeferredSplitPage)),
    Meeting::new("huge pages, reclaim", Counted(Counter::ThpSwpOutFallback)),
    Meeting::new("huge pages, pins", Seen(Antecedent::LargePinned)),
    Meeting::new("splits, pins", Counted(Counter::ThpSplitPageFailed)),
    Meeting::new("huge pages, mremap", Seen(Antecedent::LargeApart)),
    Meeting::new("huge pages, lingering", Seen(Antecedent::LargeTaken)).on_nodes(),
];

/// What the memory manager of one program has counted of each of [`MEETINGS`].
pub(super) fn counted(count: impl Fn(Counter) -> u64) -> [u64; MEETINGS.len()] {
    MEETINGS.map(|meeting| match meeting.shown {
        Seen(_) => 0,
        Counted(counter) => count(counter),
    })
}

impl Survey {
    /// How often the pairs of [`MEETINGS`] met, in their order.
    pub fn met(&self) -> [u64; MEETINGS.len()] {
        core::array::from_fn(|index| match MEETINGS[index].shown {
            Seen(antecedent) => self.tally.of(antecedent),
            Counted(_) => self.fast.met[index] + self.calls.met[index],
        })
    }
}
