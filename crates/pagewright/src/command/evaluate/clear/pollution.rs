//! Measures how much of a hot set of 1 MiB stays in the cache after a clear on the same CPU.
//!
//! Key type: [`Pollution`]. The set is a linked list through all its cache lines in random order.
//! It is walked while it is warm, then once after the clear. The block comes from the allocator in
//! the state that it names, and `auto` acts on the allocator's own answer about its lines. The time
//! of the clear is shown too, because stores that spare the hot set may take longer themselves.
//!
//! Not guaranteed: anything about the caches of other CPUs.

use super::super::plot::size;
use super::super::{Context, EvaluateError, Figures, Grid, Stats};
use super::bench::{Bench, POISON};
use super::grid::shuffled;
use pagewright_host::ThreadClock;
use pagewright_tlb::frames::{ClearBackend, ClearExtent, ClearPolicy};
use pagewright_types::Order;
use std::collections::BTreeMap;

/// Cache lines of 64 bytes in the hot set.
pub(super) const HOT_LINES: usize = (1 << 20) / 64;

/// A cache line that holds the index of the next line.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(super) struct Line {
    next: usize,
}

/// What happened to a block before it was freed on this CPU and allocated again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockHistory {
    /// A program wrote all of it.
    Written,
    /// It was cleared, by the stores of the row, and not touched since.
    Untouched,
}

impl BlockHistory {
    const ALL: [Self; 2] = [Self::Written, Self::Untouched];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Written => "written, freed, allocated again",
            Self::Untouched => "cleared before, not touched since",
        }
    }
}

/// The samples of one history, size and method.
pub(super) struct Row {
    pub(super) history: BlockHistory,
    /// Bytes cleared.
    pub(super) cleared: u64,
    /// Method of clearing.
    pub(super) method: &'static str,
    /// How often the allocator gave each answer about the lines of the block.
    pub(super) answers: BTreeMap<String, usize>,
    /// Microseconds of the clear.
    pub(super) clear: Vec<f64>,
    /// Nanoseconds per line of the walk before the clear and after it.
    pub(super) walks: [Vec<f64>; 2],
}

impl Row {
    /// Time of the walk after the clear, divided by that of the walk before it.
    pub(super) fn slowdown(&self) -> Stats {
        let [before, after] = &self.walks;
        Stats::of_ratios(after, before)
    }

    /// Microseconds of the clear and of the walk after it.
    fn cost(&self) -> Vec<f64> {
        let [_, after] = &self.walks;
        self.clear.iter().zip(after).map(|(clear, after)| clear + after * HOT_LINES as f64 / 1e3).collect()
    }

    /// The cost of this row divided by that of another, round by round.
    pub(super) fn cost_over(&self, other: &Self) -> Stats {
        Stats::of_ratios(&self.cost(), &other.cost())
    }

    pub(super) fn answers(&self) -> String {
        let answers = self.answers.iter().map(|(answer, times)| format!("{answer} {times}"));
        answers.collect::<Vec<_>>().join(", ")
    }
}

/// The results for all methods, sizes and histories.
pub(super) struct Pollution {
    pub(super) rows: Vec<Row>,
}

/// Method: cached stores.
pub(super) const CACHED: &str = "cached";
/// Method: the streaming stores in use.
const UNCACHED: &str = "uncached";
/// Method: the stores that the memory manager chooses.
pub(super) const AUTO: &str = "auto";

/// The methods, with the stores of each.
pub(super) const METHODS: [(&str, ClearPolicy); 3] =
    [(CACHED, ClearPolicy::Only(ClearBackend::Cached)), (UNCACHED, ClearPolicy::Uncached), (AUTO, ClearPolicy::Auto)];

/// Builds a list through all lines in an order that prefetchers cannot predict.
///
/// It uses Sattolo's algorithm with a linear congruential generator.
pub(super) fn chain() -> Vec<Line> {
    let mut order: Vec<usize> = (0..HOT_LINES).collect();
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    for last in (1..HOT_LINES).rev() {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        order.swap(last, (random >> 33) as usize % last);
    }
    let mut chain = vec![Line { next: 0 }; HOT_LINES];
    for (at, next) in order.iter().zip(order.iter().cycle().skip(1)) {
        chain[*at].next = *next;
    }
    chain
}

/// Walks the list once and returns nanoseconds per line.
pub(super) fn walk(chain: &[Line]) -> f64 {
    let clock = ThreadClock::start_cpu_time();
    let mut at = 0;
    for _ in 0..HOT_LINES {
        at = chain[at].next;
    }
    std::hint::black_box(at);
    clock.elapsed().as_nanos() as f64 / HOT_LINES as f64
}

/// Measures all methods, sizes and histories.
pub(super) fn measure(context: &Context<'_>, bench: &Bench) -> Result<Pollution, EvaluateError> {
    context.show_step("reading a hot set after a clear");
    let chain = chain();
    let mut rows = Vec::new();
    for (order, history) in
        [Order::PMD, Order::new(16)].into_iter().flat_map(|order| BlockHistory::ALL.map(|h| (order, h)))
    {
        let cleared = order.bytes();
        let row = |(method, _): &(&'static str, ClearPolicy)| Row {
            history,
            cleared,
            method,
            answers: BTreeMap::new(),
            clear: Vec::new(),
            walks: [const { Vec::new() }; 2],
        };
        let mut of_methods: Vec<Row> = METHODS.iter().map(row).collect();
        for round in 0..2 * bench.repetitions() {
            for at in shuffled(METHODS.len(), round) {
                bench.set_policy(METHODS[at].1);
                sample(bench, &chain, order, &mut of_methods[at])?;
            }
        }
        rows.extend(of_methods);
    }
    bench.set_policy(ClearPolicy::Auto);
    Ok(Pollution { rows })
}

/// Takes one sample of a row.
fn sample(bench: &Bench, chain: &[Line], order: Order, row: &mut Row) -> Result<(), EvaluateError> {
    let clear = |block| bench.frames().pin_cpu().clear(block, ClearExtent::of_order(order)).fence().into_block();
    // Whatever the row before left, this CPU frees a block with the history of this row.
    let block = bench.alloc(order)?;
    let block = match row.history {
        BlockHistory::Written => {
            bench.memory().fill(block.pfn(), order, POISON);
            block
        }
        BlockHistory::Untouched => clear(block),
    };
    bench.mm().tlb().free(block);
    let block = bench.alloc(order)?;
    *row.answers.entry(format!("{:?}", block.residency()).to_lowercase()).or_default() += 1;
    for _ in 0..3 {
        walk(chain);
    }
    row.walks[0].push(walk(chain));
    let clock = ThreadClock::start_cpu_time();
    let block = clear(block);
    row.clear.push(clock.elapsed().as_nanos() as f64 / 1e3);
    row.walks[1].push(walk(chain));
    bench.mm().tlb().free(block);
    Ok(())
}

impl Pollution {
    pub(super) fn of(&self, history: BlockHistory, cleared: u64, method: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.history == history && row.cleared == cleared && row.method == method)
    }

    pub(super) fn figures(&self) -> Figures {
        let input = |row: &Row| format!("{} bytes cleared, {}, hot set of 1 MiB", row.cleared, row.history.name());
        let cached = |row: &Row| self.of(row.history, row.cleared, CACHED);
        let mut figures = Grid::of("A hot set of 1 MiB, read again after a clear", &self.rows)
            .text("block", |row| row.history.name())
            .text("cleared", |row| size(row.cleared))
            .text("by", |row| row.method)
            .text("allocator's answers", |row| row.answers())
            .measured("µs to clear", "clear_us", |row| Stats::of(row.clear.clone()))
            .text("walk, × before", |row| row.slowdown())
            .text("clear and walk, × cached", |row| cached(row).map(|cached| row.cost_over(cached)))
            .figures(|row| [format!("pollution: {}", row.method), input(row)]);
        for (run, row) in figures.runs.iter_mut().zip(&self.rows) {
            let names = ["ns_per_line_before", "ns_per_line_after"].map(str::to_owned);
            run.measured.extend(names.into_iter().zip(row.walks.clone().map(Stats::of)));
            run.counters
                .extend(row.answers.iter().map(|(answer, times)| (format!("residency_{answer}"), *times as u64)));
        }
        figures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_visits_every_line_once() {
        let chain = chain();
        let mut seen = vec![false; HOT_LINES];
        let mut at = 0;
        for _ in 0..HOT_LINES {
            assert!(!std::mem::replace(&mut seen[at], true));
            at = chain[at].next;
        }
        assert_eq!(at, 0);
    }
}
