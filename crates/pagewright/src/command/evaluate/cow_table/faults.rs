//! What a store costs after a fork: each page of a buffer, in order and at random.
//!
//! Key type: [`FaultCosts`]. The child stores to each page once while the parent has them all, so
//! each store copies its page. With shared tables, the first store under a table also copies the
//! table. The pages have contents, and a copy copies them.
//!
//! Not guaranteed: the exception itself, which is missing in both ways.

use super::super::plot::size;
use super::super::{EvaluateError, Grid, Run, Stats, Table};
use super::parent::{ForkMode, Parent, SpanClock};
use super::random::Random;
use pagewright_host::HostMemory;
use pagewright_types::{Counter, PageRange, VirtAddr};

/// The order of the stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoreOrder {
    Sequential,
    Random,
}

impl StoreOrder {
    pub(super) const ALL: [Self; 2] = [Self::Sequential, Self::Random];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Sequential => "sequential",
            Self::Random => "random",
        }
    }

    /// The addresses of the stores.
    fn stores(self, range: PageRange) -> Vec<VirtAddr> {
        let mut all: Vec<VirtAddr> = range.iter().collect();
        if self == Self::Random {
            Random::new().shuffle(&mut all);
        }
        all
    }
}

/// The cost of the stores to a buffer.
pub(super) struct FaultCosts {
    pub(super) bytes: u64,
    pub(super) order: StoreOrder,
    /// Nanoseconds of a store by round, by [`ForkMode`].
    pub(super) nanos: [Vec<f64>; 2],
    /// The same with the fork.
    pub(super) with_fork: [Vec<f64>; 2],
    /// Pages and tables that the stores copied, by [`ForkMode`].
    pub(super) pages_copied: [u64; 2],
    pub(super) tables_copied: [u64; 2],
}

/// Measures both orders on a machine with this memory.
///
/// # Errors
/// [`EvaluateError::Machine`].
pub(super) fn measure(memory: HostMemory, bytes: u64, rounds: usize) -> Result<Vec<FaultCosts>, EvaluateError> {
    StoreOrder::ALL.into_iter().map(|order| FaultCosts::measure(memory, bytes, order, rounds)).collect()
}

impl FaultCosts {
    fn measure(memory: HostMemory, bytes: u64, order: StoreOrder, rounds: usize) -> Result<Self, EvaluateError> {
        let parent = Parent::with_contents(memory)?;
        let range = parent.populate(VirtAddr::ZERO, bytes)?;
        let stores = order.stores(range);
        let [nanos, with_fork] = [const { [const { Vec::new() }; 2] }; 2];
        let mut costs = Self { bytes, order, nanos, with_fork, pages_copied: [0; 2], tables_copied: [0; 2] };
        // The first round warms up, and counts.
        for round in 0..=rounds {
            for mode in in_turns(ForkMode::BOTH, round) {
                parent.set(mode)?;
                let before = [Counter::PwCowCopy, Counter::PwTableBroken].map(|counter| parent.mm.counter(counter));
                let (child, fork) = parent.fork()?;
                parent.mm.tlb().switch_to(child.table().context());
                let clock = SpanClock::Cpu.start();
                stores.iter().try_for_each(|va| parent.store(&child, *va))?;
                let took = clock.elapsed();
                parent.mm.tlb().switch_to(parent.space.table().context());
                parent.mm.end_space(&child);
                parent.store_to_all(range)?;
                let of = mode as usize;
                if round == 0 {
                    costs.pages_copied[of] = parent.mm.counter(Counter::PwCowCopy) - before[0];
                    costs.tables_copied[of] = parent.mm.counter(Counter::PwTableBroken) - before[1];
                } else {
                    let each = 1e9 / stores.len() as f64;
                    costs.nanos[of].push(took.as_secs_f64() * each);
                    costs.with_fork[of].push((took + fork).as_secs_f64() * each);
                }
            }
        }
        Ok(costs)
    }

    /// Shared in multiples of classic, round by round.
    pub(super) fn ratio(&self) -> Stats {
        Stats::of_ratios(&self.nanos[ForkMode::Shared as usize], &self.nanos[ForkMode::Classic as usize])
    }

    /// The same with the fork.
    pub(super) fn ratio_with_fork(&self) -> Stats {
        Stats::of_ratios(&self.with_fork[ForkMode::Shared as usize], &self.with_fork[ForkMode::Classic as usize])
    }

    pub(super) fn stats(&self, mode: ForkMode) -> Stats {
        Stats::of(self.nanos[mode as usize].clone())
    }
}

/// The ways of a round; they take turns at going first.
pub(super) fn in_turns<const N: usize>(mut ways: [ForkMode; N], round: usize) -> [ForkMode; N] {
    ways.rotate_left(round % N);
    ways
}

pub(super) fn table(all: &[FaultCosts]) -> Table {
    Grid::of("A store by the child to each page after a fork, ns per store", all)
        .text("buffer", |costs| size(costs.bytes))
        .text("stores", |costs| costs.order.name())
        .texts(["classic ns", "shared ns"], |costs| ForkMode::BOTH.map(|mode| costs.stats(mode)))
        .text("shared/classic", |costs| costs.ratio())
        .text("with the fork", |costs| costs.ratio_with_fork())
        .text("pages copied", |costs| costs.pages_copied[ForkMode::Shared as usize])
        .text("tables copied", |costs| costs.tables_copied[ForkMode::Shared as usize])
        .table()
}

pub(super) fn runs(all: &[FaultCosts]) -> impl Iterator<Item = Run> {
    all.iter().flat_map(|costs| {
        ForkMode::BOTH.map(|mode| {
            let label = format!("{} stores after a fork, {}", costs.order.name(), mode.name());
            let input = format!("a buffer of {}", size(costs.bytes));
            Run::measured(label, input, "ns_per_store", costs.stats(mode)).with_counters([
                (Counter::PwCowCopy.name(), costs.pages_copied[mode as usize]),
                (Counter::PwTableBroken.name(), costs.tables_copied[mode as usize]),
            ])
        })
    })
}
