//! Measures how much of a hot set of 1 MiB stays in the cache after a clear on the same CPU.
//!
//! Key type: [`Pollution`]. The set is a linked list through all its cache lines in random order.
//! It is walked while it is warm, then once after the clear.
//!
//! Not guaranteed: anything about the caches of other CPUs.

use super::super::plot::size;
use super::super::{Context, EvaluateError, Run, Stats, Table};
use super::bench::Bench;
use pagewright_host::ThreadClock;
use pagewright_tlb::frames::{ClearBackend, ClearExtent, ClearPolicy, Residency};
use pagewright_types::Order;

/// Cache lines of 64 bytes in the hot set.
const LINES: usize = (1 << 20) / 64;

/// A cache line that holds the index of the next line.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line {
    next: usize,
}

/// Time to walk the hot set after one clear.
pub(super) struct Row {
    /// Bytes cleared; 0 if there was no clear.
    pub(super) cleared: u64,
    /// Method of clearing.
    pub(super) method: &'static str,
    /// Nanoseconds per line.
    pub(super) per_line: Stats,
}

/// The results for all methods and sizes.
pub(super) struct Pollution {
    pub(super) rows: Vec<Row>,
}

/// Method: cached stores.
pub(super) const CACHED: &str = "cached";
/// Method: the stores that the memory manager chooses for a cold target.
pub(super) const AUTO: &str = "auto";
const NOTHING: &str = "nothing";

/// Builds a list through all lines in an order that prefetchers cannot predict.
///
/// It uses Sattolo's algorithm with a linear congruential generator.
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

/// Walks the list once and returns nanoseconds per line.
fn walk(chain: &[Line]) -> f64 {
    let clock = ThreadClock::start();
    let mut at = 0;
    for _ in 0..LINES {
        at = chain[at].next;
    }
    std::hint::black_box(at);
    clock.elapsed().as_nanos() as f64 / LINES as f64
}

/// Measures all methods and sizes.
///
/// # Errors
/// [`EvaluateError::Machine`].
pub(super) fn measure(context: &Context<'_>, bench: &Bench) -> Result<Pollution, EvaluateError> {
    context.show_step("reading a hot set after a clear");
    let chain = chain();
    let methods = [(CACHED, ClearPolicy::Only(ClearBackend::Cached)), (AUTO, ClearPolicy::Auto)];
    let mut rows = Vec::new();
    let mut undisturbed = Vec::new();
    for order in [Order::PMD, Order::new(16)] {
        let mut samples = [const { Vec::new() }; 2];
        for _ in 0..2 * bench.repetitions() {
            for ((_, policy), samples) in methods.iter().zip(&mut samples) {
                bench.set_policy(*policy);
                let block = bench.alloc(order)?.with_residency(Residency::Cold);
                for _ in 0..3 {
                    walk(&chain);
                }
                undisturbed.push(walk(&chain));
                let block = bench.frames().pin_cpu().clear(block, ClearExtent::of_order(order)).fence().into_block();
                samples.push(walk(&chain));
                bench.mm().tlb().free(block);
            }
        }
        rows.extend(methods.iter().zip(samples).map(|((method, _), samples)| Row {
            cleared: order.bytes(),
            method,
            per_line: Stats::of(samples),
        }));
    }
    rows.insert(0, Row { cleared: 0, method: NOTHING, per_line: Stats::of(undisturbed) });
    bench.set_policy(ClearPolicy::Auto);
    Ok(Pollution { rows })
}

impl Pollution {
    pub(super) fn undisturbed(&self) -> Option<&Stats> {
        self.rows.iter().find(|row| row.method == NOTHING).map(|row| &row.per_line)
    }

    pub(super) fn of(&self, cleared: u64, method: &str) -> Option<&Stats> {
        self.rows.iter().find(|row| row.cleared == cleared && row.method == method).map(|row| &row.per_line)
    }

    pub(super) fn table(&self) -> Table {
        let row = |row: &Row| {
            let cleared = if row.cleared == 0 { String::new() } else { size(row.cleared) };
            let times = self.undisturbed().map_or(0.0, |nothing| super::ratio(&row.per_line, nothing));
            vec![row.method.to_owned(), cleared, row.per_line.text(), format!("{times:.2}")]
        };
        Table {
            title: "A hot set of 1 MiB, read again after a clear".to_owned(),
            head: ["cleared by", "cleared", "ns per line", "× undisturbed"].map(str::to_owned).to_vec(),
            rows: self.rows.iter().map(row).collect(),
        }
    }

    pub(super) fn runs(&self) -> Vec<Run> {
        let run = |row: &Row| {
            let input = format!("{} bytes cleared, hot set of 1 MiB", row.cleared);
            Run::measured(format!("pollution: {}", row.method), input, "ns_per_line", row.per_line)
        };
        self.rows.iter().map(run).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_visits_every_line_once() {
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
