//! What a store costs after a fork: each page of a buffer, in order and at random.
//!
//! Key type: [`FaultCosts`]. The child stores to each page once while the parent has them all, so
//! each store copies its page. With shared tables, the first store under a table also copies the
//! table. The pages have contents, and a copy copies them.
//!
//! Not guaranteed: the exception itself, which is missing in both ways.

use super::super::plot::size;
use super::super::rounds::in_turns;
use super::super::{EvaluateError, Figures, Grid, Run, Stats};
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
pub(super) fn measure(memory: HostMemory, bytes: u64, rounds: usize) -> Result<Vec<FaultCosts>, EvaluateError> {
    StoreOrder::ALL.into_iter().map(|order| FaultCosts::measure(memory, bytes, order, rounds)).collect()
}

impl FaultCosts {
    fn measure(memory: HostMemory, bytes: u64, order: StoreOrder, rounds: usize) -> Result<Self, EvaluateError> {
        let parent = Parent::with_contents(memory)?;
        let range = parent.populate(VirtAddr::ZERO, bytes)?;
        let stores = order.stores(range);
        let each = 1e9 / stores.len() as f64;
        let rounds: [Vec<_>; 2] = in_turns(rounds, |way| {
            parent.set(ForkMode::BOTH[way])?;
            let count = |counter| parent.mm.counter(counter);
            let before = [Counter::PwCowCopy, Counter::PwTableBroken].map(count);
            let (child, fork) = parent.fork()?;
            parent.mm.tlb().switch_to(child.table().context());
            let clock = SpanClock::Cpu.start();
            stores.iter().try_for_each(|va| parent.store(&child, *va))?;
            let took = clock.elapsed();
            parent.mm.tlb().switch_to(parent.space.table().context());
            parent.mm.end_space(&child);
            parent.store_to_all(range)?;
            let copied = [count(Counter::PwCowCopy) - before[0], count(Counter::PwTableBroken) - before[1]];
            Ok((took.as_secs_f64() * each, (took + fork).as_secs_f64() * each, copied))
        })?;
        // Each round copies as much.
        let copied = |at: usize| rounds.each_ref().map(|rounds| rounds.last().map_or(0, |(.., copied)| copied[at]));
        Ok(Self {
            bytes,
            order,
            nanos: rounds.each_ref().map(|rounds| rounds.iter().map(|(nanos, ..)| *nanos).collect()),
            with_fork: rounds.each_ref().map(|rounds| rounds.iter().map(|(_, nanos, _)| *nanos).collect()),
            pages_copied: copied(0),
            tables_copied: copied(1),
        })
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

pub(super) fn figures(all: &[FaultCosts]) -> Figures {
    let runs = all.iter().flat_map(|costs| {
        ForkMode::BOTH.map(|mode| {
            let label = format!("{} stores after a fork, {}", costs.order.name(), mode.name());
            let input = format!("a buffer of {}", size(costs.bytes));
            Run::measured(label, input, "ns_per_store", costs.stats(mode)).with_counters([
                (Counter::PwCowCopy.name(), costs.pages_copied[mode as usize]),
                (Counter::PwTableBroken.name(), costs.tables_copied[mode as usize]),
            ])
        })
    });
    Grid::of("A store by the child to each page after a fork, ns per store", all)
        .text("buffer", |costs| size(costs.bytes))
        .text("stores", |costs| costs.order.name())
        .texts(["classic ns", "shared ns"], |costs| ForkMode::BOTH.map(|mode| costs.stats(mode)))
        .text("shared/classic", |costs| costs.ratio())
        .text("with the fork", |costs| costs.ratio_with_fork())
        .text("pages copied", |costs| costs.pages_copied[ForkMode::Shared as usize])
        .text("tables copied", |costs| costs.tables_copied[ForkMode::Shared as usize])
        .with_runs(runs)
}
