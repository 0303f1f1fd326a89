//! What is left of a hot set of 1 MiB after somebody has cleared memory on the same CPU.
//!
//! Key type: [`Pollution`]. The set is a chain through all its lines in random order, followed
//! once: warm, then after a clear.
//!
//! Not guaranteed: anything about other CPUs' caches.

use super::super::plot::size;
use super::super::{Context, EvaluateError, Run, Stats, Table};
use super::bed::Bed;
use pagewright_host::ThreadClock;
use pagewright_tlb::frames::{ClearBackend, ClearExtent, ClearPolicy, Residency};
use pagewright_types::Order;

/// Lines of 64 bytes in the hot set.
const LINES: usize = (1 << 20) / 64;

/// A line that leads to another.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line {
    next: usize,
}

/// Nanoseconds a line by what was cleared, and how.
pub(super) struct Row {
    /// Bytes cleared; none where it was left undisturbed.
    pub(super) cleared: u64,
    pub(super) how: &'static str,
    pub(super) per_line: Stats,
}

/// All of them.
pub(super) struct Pollution {
    pub(super) rows: Vec<Row>,
}

/// Ordinary stores, for comparison.
pub(super) const CACHED: &str = "cached";
/// The choice, for a cold target.
pub(super) const AUTO: &str = "auto";
const NOTHING: &str = "nothing";

/// A chain through all lines, in an order that no prefetcher guesses (Sattolo's algorithm over a
/// linear congruential generator).
fn chain() -> Vec<Line> {
    let mut order: Vec<usize> = (0..LINES).collect();
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    for last in (1..LINES).rev() {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        order.swap(last, (random >> 33) as usize % last);
    }
    let mut chain = vec![Line { next: 0 }; LINES];
    for (at, next) in order.iter().zip(order.iter().cycle().skip(1)) {
        chain[*at].next = *next;
    }
    chain
}

/// Follows the chain once; nanoseconds a line.
fn follow(chain: &[Line]) -> f64 {
    let clock = ThreadClock::start();
    let mut at = 0;
    for _ in 0..LINES {
        at = chain[at].next;
    }
    std::hint::black_box(at);
    clock.elapsed().as_nanos() as f64 / LINES as f64
}

/// Measures.
///
/// # Errors
/// [`EvaluateError`].
pub(super) fn measure(context: &Context<'_>, bed: &Bed) -> Result<Pollution, EvaluateError> {
    context.doing("disturbing a hot set");
    let chain = chain();
    let ways = [(CACHED, ClearPolicy::Only(ClearBackend::Cached)), (AUTO, ClearPolicy::Auto)];
    let mut rows = Vec::new();
    let mut undisturbed = Vec::new();
    for order in [Order::PMD, Order::new(16)] {
        let mut samples = [const { Vec::new() }; 2];
        for _ in 0..2 * bed.repetitions() {
            for ((_, policy), samples) in ways.iter().zip(&mut samples) {
                bed.set(*policy);
                // From the middle of free memory, where nothing was touched for long.
                let block = bed.take(order)?.with_residency(Residency::Cold);
                for _ in 0..3 {
                    follow(&chain);
                }
                undisturbed.push(follow(&chain));
                let block = bed.frames().pin_cpu().clear(block, ClearExtent::of_order(order)).fence().into_block();
                samples.push(follow(&chain));
                bed.mm().tlb().free(block);
            }
        }
        rows.extend(ways.iter().zip(samples).map(|((how, _), samples)| Row {
            cleared: order.bytes(),
            how,
            per_line: Stats::of(samples),
        }));
    }
    rows.insert(0, Row { cleared: 0, how: NOTHING, per_line: Stats::of(undisturbed) });
    bed.set(ClearPolicy::Auto);
    Ok(Pollution { rows })
}

impl Pollution {
    pub(super) fn undisturbed(&self) -> Option<&Stats> {
        self.rows.iter().find(|row| row.how == NOTHING).map(|row| &row.per_line)
    }

    pub(super) fn of(&self, cleared: u64, how: &str) -> Option<&Stats> {
        self.rows.iter().find(|row| row.cleared == cleared && row.how == how).map(|row| &row.per_line)
    }

    pub(super) fn table(&self) -> Table {
        let row = |row: &Row| {
            let cleared = if row.cleared == 0 { String::new() } else { size(row.cleared) };
            let times = self.undisturbed().map_or(0.0, |nothing| super::ratio(&row.per_line, nothing));
            vec![row.how.to_owned(), cleared, row.per_line.text(), format!("{times:.2}")]
        };
        Table {
            title: "A hot set of 1 MiB, read again after a clear".to_owned(),
            head: ["cleared by", "cleared", "ns a line", "× undisturbed"].map(str::to_owned).to_vec(),
            rows: self.rows.iter().map(row).collect(),
        }
    }

    pub(super) fn runs(&self) -> Vec<Run> {
        let run = |row: &Row| {
            let input = format!("{} bytes cleared, hot set of 1 MiB", row.cleared);
            Run::measured(format!("pollution: {}", row.how), input, "ns_per_line", row.per_line)
        };
        self.rows.iter().map(run).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_visits_every_line_once() {
        let chain = chain();
        let mut seen = vec![false; LINES];
        let mut at = 0;
        for _ in 0..LINES {
            assert!(!std::mem::replace(&mut seen[at], true));
            at = chain[at].next;
        }
        assert_eq!(at, 0);
    }
}
