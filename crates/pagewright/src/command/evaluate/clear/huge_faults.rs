//! Measures faults of 2 MiB through the whole fault path, by the stores that clear the page.
//!
//! Key type: [`HugeFaults`]. A store maps a huge page, the program loads from each line of it, and
//! then walks a hot set that was warm before. Which stores a fault should use is decided by the
//! time of all three together: stores past the cache spare the hot set, and make the first use of
//! the page miss.
//!
//! Not guaranteed: the cost of the exception, which is missing here and the same for all stores.

use super::super::{Context, EvaluateError, Grid, Run, Stats};
use super::bench::Bench;
use super::pollution::{AUTO, CACHED, HOT_LINES, Line, UNCACHED, chain, walk};
use pagewright_host::{HostMachine, ThreadClock};
use pagewright_mm::{MapFlags, MapRequest, MmSetting, Space};
use pagewright_tlb::frames::{ClearBackend, ClearPolicy};
use pagewright_types::{Access, Level, Order, Rights, VirtAddr};
use std::sync::atomic::Ordering;

/// The parts of a sample, in microseconds.
const PARTS: [&str; 4] = ["fault_us", "first_use_us", "hot_set_us", "all_us"];
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

fn failed(error: impl std::fmt::Display) -> EvaluateError {
    EvaluateError::Machine(error.to_string())
}

/// Measures faults on hot and on cold frames.
///
/// # Errors
/// [`EvaluateError::Machine`].
pub(super) fn measure(context: &Context<'_>, bench: &Bench) -> Result<HugeFaults, EvaluateError> {
    context.show_step("taking faults of 2 MiB");
    let methods = [
        (CACHED, ClearPolicy::Only(ClearBackend::Cached)),
        (UNCACHED, ClearPolicy::Uncached),
        (AUTO, ClearPolicy::Auto),
    ];
    let chain = chain();
    let settings = bench.mm().settings();
    let enabled = settings.get(MmSetting::ThpEnabled);
    let always = MmSetting::ThpEnabled.parse("always").ok_or_else(|| failed("no such word"))?;
    settings.set(MmSetting::ThpEnabled, always).map_err(failed)?;
    let space = bench.mm().new_space().map_err(failed)?;
    let mut rows = Vec::new();
    for (state, pages, times) in FRAMES {
        let row = |(method, _): &(&'static str, ClearPolicy)| Row { state, method, samples: [const { Vec::new() }; 4] };
        let mut of_methods: Vec<Row> = methods.iter().map(row).collect();
        // The first round warms up; the methods take turns at going first.
        for round in 0..=bench.repetitions() {
            for at in 0..methods.len() {
                let at = (at + round) % methods.len();
                bench.set_policy(methods[at].1);
                for _ in 0..times {
                    let parts = sample(bench, &space, &chain, pages)?;
                    if round > 0 {
                        parts.into_iter().zip(&mut of_methods[at].samples).for_each(|(part, all)| all.push(part));
                    }
                }
            }
        }
        rows.extend(of_methods);
    }
    bench.mm().end_space(&space);
    bench.set_policy(ClearPolicy::Auto);
    settings.set(MmSetting::ThpEnabled, enabled).map_err(failed)?;
    Ok(HugeFaults { rows })
}

/// Microseconds of a fault, of the first use of its page, of the hot set after it, and of all.
///
/// Of a mapping of many pages the first are timed; the others make their frames cold.
fn sample(bench: &Bench, space: &Space<HostMachine>, chain: &[Line], pages: u64) -> Result<[f64; 4], EvaluateError> {
    let (mm, huge) = (bench.mm(), Order::PMD.bytes());
    let flags = MapFlags::PRIVATE | MapFlags::ANONYMOUS;
    let request = MapRequest { addr: VirtAddr::ZERO, len: pages * huge, rights: Rights::RW, flags, file: None };
    let base = mm.mmap(space, &request).map_err(failed)?;
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
        let leaf = space.map().read().tables(mm.tlb()).peek(va).leaf().ok_or_else(|| failed("nothing is mapped"))?;
        if leaf.level() != Level::PMD {
            return Err(failed("a fault got no huge page"));
        }
        let words = bench.memory().block(leaf.pfn(), Order::PMD);
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
    pub(super) fn grid(&self) -> Grid<&Row> {
        let over = |row: &Row| {
            let cached = self.rows.iter().find(|other| other.state == row.state && other.method == CACHED);
            cached.map(|cached| Stats::of_ratios(&row.samples[3], &cached.samples[3]))
        };
        let head = ["µs of the fault", "of the first use", "of a hot set of 1 MiB", "all"];
        let fixed = Grid::of("Faults of 2 MiB, the first use of the page, and a hot set after them", &self.rows)
            .texts(["frames", "by"], |row| [row.state, row.method]);
        let parts = head.into_iter().zip(PARTS).enumerate().fold(fixed, |grid, (at, (head, name))| {
            grid.measured(head, name, |row| Stats::of(row.samples[at].clone()))
        });
        parts.text("× cached", |row| over(row))
    }

    pub(super) fn runs(&self) -> Vec<Run> {
        self.grid().runs(|row| [format!("huge fault: {}", row.method), format!("{} frames", row.state)])
    }
}
