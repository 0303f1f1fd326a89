//! Scenarios, measured by criterion and then as a table of ratios to an atomic increment.

use criterion::Criterion;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The number of runs, of which the table shows the least, the median and the median ratio.
const RUNS: usize = 45;
/// The approximate duration of a run.
const RUN: Duration = Duration::from_millis(5);

/// A step whose cost per unit is measured.
pub(crate) struct Scenario<'a> {
    /// The step and its unit.
    pub(crate) name: String,
    /// Does the given number of units, and returns the time they took.
    pub(crate) run: Box<dyn FnMut(u64) -> Duration + 'a>,
}

impl<'a> Scenario<'a> {
    pub(crate) fn new(name: impl Into<String>, run: impl FnMut(u64) -> Duration + 'a) -> Self {
        Self { name: name.into(), run: Box::new(run) }
    }

    /// A scenario whose step can be repeated at once.
    pub(crate) fn plain(name: impl Into<String>, mut once: impl FnMut() + 'a) -> Self {
        Self::new(name, move |times| {
            let start = Instant::now();
            for _ in 0..times {
                once();
            }
            start.elapsed()
        })
    }

    /// The scenario that all others are compared with.
    fn baseline() -> Scenario<'static> {
        let counter = AtomicU64::new(0);
        Scenario::plain("atomic increment", move || {
            black_box(&counter).fetch_add(1, Ordering::SeqCst);
        })
    }

    /// The number of units in a run of about [`RUN`].
    fn calibrate(&mut self) -> u64 {
        let mut times = 1;
        while (self.run)(times) < RUN {
            times *= 2;
        }
        times
    }

    /// The nanoseconds per unit, averaged over a run.
    fn sample(&mut self, times: u64) -> f64 {
        (self.run)(times).as_secs_f64() * 1e9 / times as f64
    }
}

/// Calls `part` for `times` units, at most `most` at a time, and adds up the durations.
pub(crate) fn in_parts(times: u64, most: u64, mut part: impl FnMut(u64) -> Duration) -> Duration {
    let parts = times.div_ceil(most);
    (0..parts).map(|index| part(most.min(times - index * most))).sum()
}

/// The time that `work` takes.
pub(crate) fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

/// Measures all scenarios with criterion; then prints the table, if this is a whole bench run.
pub(crate) fn measure(mut scenarios: Vec<Scenario<'_>>) {
    scenarios.insert(0, Scenario::baseline());
    let mut criterion = Criterion::default().configure_from_args();
    for scenario in &mut scenarios {
        criterion.bench_function(&scenario.name, |bencher| bencher.iter_custom(|times| (scenario.run)(times)));
    }
    criterion.final_summary();
    // `cargo test` does not pass --bench. With a filter of scenarios, the table is left out.
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.iter().any(|arg| arg == "--bench") && args.iter().all(|arg| arg == "--bench" || arg == "--quick") {
        print(&mut scenarios);
    }
}

/// Prints the table.
///
/// Each run of a scenario is compared with a run of the increment just before it, because the speed
/// of a machine changes from one second to the next.
fn print(scenarios: &mut [Scenario<'_>]) {
    let mut baseline = Scenario::baseline();
    let increments = baseline.calibrate();
    println!("{:<48} {:>10} {:>10} {:>8}", "ns a unit, of 45 runs", "least", "median", "ratio");
    for scenario in scenarios {
        let times = scenario.calibrate();
        let (runs, ratios): (Vec<f64>, Vec<f64>) = (0..RUNS)
            .map(|_| {
                let unit = baseline.sample(increments);
                let run = scenario.sample(times);
                (run, run / unit)
            })
            .unzip();
        let (runs, ratios) = (sorted(runs), sorted(ratios));
        println!("{:<48} {:>10.1} {:>10.1} {:>8.1}", scenario.name, runs[0], runs[RUNS / 2], ratios[RUNS / 2]);
    }
}
