//! Measures faults of 2 MiB through the whole fault path, by the stores that clear the page.
//!
//! Key type: [`HugeFaults`]. A store maps a huge page, the program loads from each line of it, and
//! then walks a hot set that was warm before. Which stores a fault should use is decided by the
//! time of all three together: stores past the cache spare the hot set, and make the first use of
//! the page miss.
//!
//! Not guaranteed: the cost of the exception, which is missing here and the same for all stores.

use super::super::parent::failed;
use super::super::rounds::{by_figure, in_turns};
use super::super::{Context, EvaluateError, Figures, Grid, Stats};
use super::bench::Bench;
use super::pollution::{CACHED, HOT_LINES, Line, METHODS, chain, walk};
use pagewright_host::{HostMachine, ThreadClock};
use pagewright_mm::{MmSetting, Space};
use pagewright_tlb::frames::ClearPolicy;
use pagewright_types::{Access, Order};
use std::sync::atomic::Ordering;

/// The parts of a sample, in microseconds, in tables and in JSON.
const PARTS: [(&str, &str); 4] = [
    ("µs of the fault", "fault_us"),
    ("of the first use", "first_use_us"),
    ("of a hot set of 1 MiB", "hot_set_us"),
    ("all", "all_us"),
];
/// Huge pages in a sample, by state of the frames: one again and again, or more than any cache.
const FRAMES: [(&str, u64, u32); 2] = [("hot", 1, 32), ("cold", 512, 1)];
/// Pages of a cold mapping that are timed.
const TIMED: u64 = 32;

/// The samples of one state of the frames and one kind of stores.
pub(super) struct Row {
    state: &'static str,
    method: &'static str,
    /// By [`PARTS`] and round.
    samples: [Vec<f64>; PARTS.len()],
}

/// Results for all states and stores.
pub(super) struct HugeFaults {
    rows: Vec<Row>,
}

/// Measures faults on hot and on cold frames.
pub(super) fn measure(context: &Context<'_>, bench: &Bench) -> Result<HugeFaults, EvaluateError> {
    context.show_step("taking faults of 2 MiB");
    let chain = chain();
    let enabled = bench.mm().settings().get(MmSetting::ThpEnabled);
    bench.enable_huge("always")?;
    let space = bench.mm().new_space().map_err(failed)?;
    let mut rows = Vec::new();
    for (state, pages, times) in FRAMES {
        let samples: [_; METHODS.len()] = in_turns(bench.repetitions(), |method| {
            bench.set_policy(METHODS[method].1);
            (0..times).map(|_| sample(bench, &space, &chain, pages)).collect::<Result<Vec<_>, _>>()
        })?;
        let of_method = |((method, _), samples): (_, Vec<Vec<_>>)| {
            let samples = by_figure(&samples.concat());
            Row { state, method, samples }
        };
        rows.extend(METHODS.into_iter().zip(samples).map(of_method));
    }
    bench.mm().end_space(&space);
    bench.set_policy(ClearPolicy::Auto);
    bench.mm().settings().set(MmSetting::ThpEnabled, enabled).map_err(failed)?;
    Ok(HugeFaults { rows })
}

/// Microseconds of a fault, of the first use of its page, of the hot set after it, and of all.
///
/// Of a mapping of many pages the first are timed; the others make their frames cold.
fn sample(bench: &Bench, space: &Space<HostMachine>, chain: &[Line], pages: u64) -> Result<[f64; 4], EvaluateError> {
    let (mm, huge) = (bench.mm(), Order::PMD.bytes());
    let base = bench.map(space, pages * huge)?;
    let timed = pages.min(TIMED);
    let mut parts = [0.0; 4];
    for page in 0..pages {
        let va = base.add(page * huge);
        if page >= timed {
            mm.fault(space, va, Access::Write).map_err(failed)?;
            continue;
        }
        for _ in 0..3 {
            walk(chain);
        }
        let clock = ThreadClock::start_cpu_time();
        mm.fault(space, va, Access::Write).map_err(failed)?;
        parts[0] += clock.elapsed().as_nanos() as f64 / 1e3;
        let words = bench.memory().block(bench.huge_page(space, va)?, Order::PMD);
        let clock = ThreadClock::start_cpu_time();
        let left = words.iter().step_by(8).fold(0, |all, word| all | word.load(Ordering::Relaxed));
        parts[1] += clock.elapsed().as_nanos() as f64 / 1e3;
        if left != 0 {
            return Err(failed("a huge page that was faulted in was not zero"));
        }
        parts[2] += walk(chain) * HOT_LINES as f64 / 1e3;
    }
    mm.munmap(space, base, pages * huge).map_err(failed)?;
    parts[3] = parts[0] + parts[1] + parts[2];
    Ok(parts.map(|part| part / timed as f64))
}

impl HugeFaults {
    pub(super) fn figures(&self) -> Figures {
        let over = |row: &Row| {
            let cached = self.rows.iter().find(|other| other.state == row.state && other.method == CACHED);
            cached.map(|cached| Stats::of_ratios(&row.samples[3], &cached.samples[3]))
        };
        let fixed = Grid::of("Faults of 2 MiB, the first use of the page, and a hot set after them", &self.rows)
            .texts(["frames", "by"], |row| [row.state, row.method]);
        let parts = PARTS.into_iter().enumerate().fold(fixed, |grid, (at, (head, name))| {
            grid.measured(head, name, |row| Stats::of(row.samples[at].clone()))
        });
        parts
            .text("× cached", |row| over(row))
            .figures(|row| [format!("huge fault: {}", row.method), format!("{} frames", row.state)])
    }
}
