//! Measures demand faults of 4 KiB through the whole fault path, uncached and by the auto policy.
//!
//! Key type: [`Faults`]. Private memory is faulted in page by page, and each page is read at once,
//! as a program would do. The memory is then unmapped, so that the next round allocates the same
//! frames. They are cold if the mapping is larger than any cache, and hot if it is small.
//!
//! Not guaranteed: the cost of the exception, which is missing here and the same for both policies.

use super::super::parent::failed;
use super::super::plot::size;
use super::super::rounds::in_turns;
use super::super::{Context, EvaluateError, Figures, Grid, Run, Scale, Stats};
use super::bench::Bench;
use pagewright_host::{HostMachine, ThreadClock};
use pagewright_mm::Space;
use pagewright_tlb::frames::ClearPolicy;
use pagewright_types::{Access, Order, PAGE_SIZE};
use std::sync::atomic::Ordering;

/// Nanoseconds per fault, for frames in one state.
pub(super) struct Row {
    /// State of the frames: cold or hot.
    pub(super) state: &'static str,
    /// Bytes mapped at a time.
    pub(super) bytes: u64,
    /// With streaming stores, whatever the memory manager would choose.
    pub(super) uncached: Vec<f64>,
    /// With the stores that the memory manager chooses.
    pub(super) auto: Vec<f64>,
}

/// Results for cold and for hot frames.
pub(super) struct Faults {
    pub(super) rows: Vec<Row>,
}

const POLICIES: [ClearPolicy; 2] = [ClearPolicy::Uncached, ClearPolicy::Auto];

/// Measures demand faults on cold and on hot frames.
pub(super) fn measure(context: &Context<'_>, bench: &Bench) -> Result<Faults, EvaluateError> {
    context.show_step("taking demand faults");
    let most = if bench.scale == Scale::Full { 6 } else { 2 };
    let space = bench.mm().new_space().map_err(failed)?;
    let mut rows = Vec::new();
    for (state, bytes, times) in [("cold", most * Order::PUD.bytes(), 1), ("hot", 64 << 10, 4000)] {
        let [uncached, auto] = in_turns(bench.repetitions(), |policy| {
            bench.set_policy(POLICIES[policy]);
            let took = (0..times).map(|_| fault_in(bench, &space, bytes)).sum::<Result<f64, _>>()?;
            Ok(took / f64::from(times))
        })?;
        rows.push(Row { state, bytes, uncached, auto });
    }
    bench.mm().end_space(&space);
    bench.set_policy(ClearPolicy::Auto);
    Ok(Faults { rows })
}

/// Maps memory, faults in and reads each page, and unmaps it.
///
/// Returns nanoseconds per page, without `mmap` and `munmap`.
fn fault_in(bench: &Bench, space: &Space<HostMachine>, bytes: u64) -> Result<f64, EvaluateError> {
    let mm = bench.mm();
    let base = bench.map(space, bytes)?;
    let mut left = 0;
    let clock = ThreadClock::start_cpu_time();
    for offset in (0..bytes).step_by(PAGE_SIZE as usize) {
        let va = base.add(offset);
        mm.fault(space, va, Access::Write).map_err(failed)?;
        if let Some(leaf) = space.map().read().tables(mm.tlb()).peek(va).leaf() {
            let words = bench.memory().block(leaf.pfn(), Order::ZERO);
            left |= words.iter().step_by(8).fold(0, |all, word| all | word.load(Ordering::Relaxed));
        }
    }
    let took = clock.elapsed();
    mm.munmap(space, base, bytes).map_err(failed)?;
    if left != 0 {
        return Err(failed("a page that was faulted in was not zero"));
    }
    Ok(took.as_nanos() as f64 / (bytes / PAGE_SIZE) as f64)
}

impl Row {
    /// How many times as fast the auto policy is, round by round.
    pub(super) fn gain(&self) -> Stats {
        Stats::of_ratios(&self.uncached, &self.auto)
    }

    fn stats(&self) -> [Stats; 2] {
        [&self.uncached, &self.auto].map(|samples| Stats::of(samples.clone()))
    }
}

impl Faults {
    pub(super) fn figures(&self) -> Figures {
        let policies = |row: &Row| {
            let [uncached, auto] = row.stats();
            [("uncached", uncached), ("auto", auto)].map(|(policy, stats)| (row.state, row.bytes, policy, stats))
        };
        let run = |(state, bytes, policy, stats)| {
            let input = format!("{bytes} bytes mapped, {state} frames");
            Run::measured(format!("fault: {policy}"), input, "ns_per_fault", stats)
        };
        Grid::of("Demand faults of 4 KiB, each page read at once, ns per fault", &self.rows)
            .text("frames", |row| row.state)
            .text("mapped", |row| size(row.bytes))
            .texts(["uncached", "auto"], |row| row.stats())
            .text("uncached/auto", |row| row.gain())
            .with_runs(self.rows.iter().flat_map(policies).map(run))
    }
}
