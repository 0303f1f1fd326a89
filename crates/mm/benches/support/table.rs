//! Scenarios, measured twice: by criterion, and by a median over runs of equal length that ends as one table.

use criterion::Criterion;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Runs whose median is shown.
const RUNS: usize = 15;
/// How long a run lasts, about.
const RUN: Duration = Duration::from_millis(20);

/// Something whose cost for one unit is asked.
pub(crate) struct Scenario<'a> {
    /// What, and per what.
    pub(crate) name: String,
    /// Does it as often as told, and says how long that took.
    pub(crate) run: Box<dyn FnMut(u64) -> Duration + 'a>,
}

impl<'a> Scenario<'a> {
    pub(crate) fn new(name: impl Into<String>, run: impl FnMut(u64) -> Duration + 'a) -> Self {
        Self { name: name.into(), run: Box::new(run) }
    }

    /// Of something that needs nothing to be undone outside the timing.
    pub(crate) fn plain(name: impl Into<String>, mut once: impl FnMut() + 'a) -> Self {
        Self::new(name, move |times| {
            let start = Instant::now();
            for _ in 0..times {
                once();
            }
            start.elapsed()
        })
    }

    /// What everything is compared with.
    pub(crate) fn baseline() -> Scenario<'static> {
        let counter = AtomicU64::new(0);
        Scenario::plain("atomic increment", move || {
            black_box(&counter).fetch_add(1, Ordering::SeqCst);
        })
    }

    /// Nanoseconds for one unit: the median of [`RUNS`].
    fn median(&mut self) -> f64 {
        let mut times = 1;
        while (self.run)(times) < RUN {
            times *= 2;
        }
        let mut runs: Vec<f64> = (0..RUNS).map(|_| (self.run)(times).as_secs_f64() * 1e9 / times as f64).collect();
        runs.sort_by(f64::total_cmp);
        runs[RUNS / 2]
    }
}

/// Measures everything with criterion; then, if this is a whole run and no test, prints the table.
pub(crate) fn measure(mut scenarios: Vec<Scenario<'_>>) {
    let mut criterion = Criterion::default().configure_from_args();
    for scenario in &mut scenarios {
        criterion.bench_function(&scenario.name, |bencher| bencher.iter_custom(|times| (scenario.run)(times)));
    }
    criterion.final_summary();
    // `cargo test` does not pass --bench, and a name that selects some scenarios leaves the table without its unit.
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.iter().any(|arg| arg == "--bench") && args.iter().all(|arg| arg == "--bench" || arg == "--quick") {
        print(&mut scenarios);
    }
}

fn print(scenarios: &mut [Scenario<'_>]) {
    println!("{:<56} {:>10} {:>8}", "median of 15 runs", "ns", "ratio");
    let mut unit = None;
    for scenario in scenarios {
        let median = scenario.median();
        let unit = *unit.get_or_insert(median);
        println!("{:<56} {median:>10.1} {:>8.1}", scenario.name, median / unit);
    }
}
