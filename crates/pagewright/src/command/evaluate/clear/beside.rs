//! A compiler beside somebody who clears memory all the time.
//!
//! Key type: [`Beside`]. The compiler is `rustc`, if there is one, on a program made here; the
//! clearing runs on all CPUs but one, at the lowest priority that a thread can give itself: it
//! yields after each 8 MiB.
//!
//! Not guaranteed: a difference. On another core than the clearing, none was found before.

use super::super::{Context, EvaluateError, Run, Stats, Table};
use super::bed::{Bed, NODE};
use pagewright_capture::undo::Scratch;
use pagewright_tlb::frames::ClearPolicy;
use pagewright_types::Order;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

/// Seconds of a compilation.
pub(super) struct Beside {
    pub(super) alone: Stats,
    pub(super) cached: Stats,
    pub(super) auto: Stats,
}

/// A program that takes a while to compile, in a directory of its own.
struct Job(Scratch);

impl Job {
    fn create() -> Option<Self> {
        let job = Self(Scratch::new("compile").ok()?);
        let mut text = String::from("#![allow(dead_code)]\n");
        for n in 0..120 {
            // Writing to a String does not fail.
            let _ = writeln!(
                text,
                "#[derive(Clone, Debug, Default, PartialEq)] pub struct T{n} {{ a: u64, b: String, c: Vec<Option<(u32, String)>> }}\n\
                 pub fn f{n}(t: &T{n}) -> usize {{ t.c.iter().flatten().map(|(n, s)| s.len() + *n as usize).filter(|n| n % 3 == {}).sum() }}",
                n % 3
            );
        }
        fs::write(job.source(), text).ok()?;
        job.compile().map(|_| job)
    }

    fn source(&self) -> PathBuf {
        self.0.file("job.rs")
    }

    /// Compiles, and returns seconds.
    fn compile(&self) -> Option<f64> {
        let out = self.0.path();
        let began = Instant::now();
        let mut command = Command::new("rustc");
        command.args([
            "--crate-type",
            "lib",
            "--edition",
            "2021",
            "--emit",
            "obj",
            "-C",
            "codegen-units=1",
            "--out-dir",
        ]);
        let status = command.arg(out).arg(self.source()).stdout(Stdio::null()).stderr(Stdio::null()).status().ok()?;
        status.success().then(|| began.elapsed().as_secs_f64())
    }
}

/// Measures; nothing where there is no compiler.
///
/// # Errors
/// [`EvaluateError`].
pub(super) fn measure(context: &Context<'_>, bed: &Bed) -> Result<Option<Beside>, EvaluateError> {
    context.doing("compiling beside background clearing");
    let Some(job) = Job::create() else { return Ok(None) };
    let ways = [None, Some(ClearPolicy::Cached), Some(ClearPolicy::Auto)];
    let mut samples = [const { Vec::new() }; 3];
    for _ in 0..bed.repetitions() / 3 {
        for (policy, samples) in ways.iter().zip(&mut samples) {
            let stop = AtomicBool::new(policy.is_none());
            bed.set(policy.unwrap_or_default());
            let took = thread::scope(|scope| {
                let clearing = (1..bed.cpus().max(2)).map(|cpu| {
                    let stop = &stop;
                    scope.spawn(move || clear_until(bed, cpu, stop))
                });
                let clearing: Vec<_> = clearing.collect();
                let took = job.compile();
                stop.store(true, Ordering::Relaxed);
                clearing.into_iter().try_for_each(|thread| thread.join().unwrap_or(Ok(()))).map(|()| took)
            })?;
            samples.extend(took);
        }
    }
    bed.set(ClearPolicy::Auto);
    let [alone, cached, auto] = samples.map(Stats::of);
    Ok((auto.samples > 0).then_some(Beside { alone, cached, auto }))
}

/// Fills and empties a pool of 256 MiB.
fn clear_until(bed: &Bed, cpu: usize, stop: &AtomicBool) -> Result<(), EvaluateError> {
    let failed = |error: pagewright_mm::MmError| EvaluateError::Machine(error.to_string());
    bed.become_cpu(cpu.min(bed.cpus() - 1));
    let pool = bed.mm().huge_pool(Order::PMD, NODE, 128).map_err(failed)?;
    while !stop.load(Ordering::Relaxed) {
        pool.fill(0..128, thread::yield_now).map_err(failed)?;
        pool.punch(0..128);
    }
    Ok(())
}

impl Beside {
    pub(super) fn table(&self) -> Table {
        let row = |name: &str, stats: &Stats| {
            vec![name.to_owned(), stats.text(), format!("{:.2}", super::ratio(stats, &self.alone))]
        };
        Table {
            title: "rustc on a small crate, seconds".to_owned(),
            head: ["beside", "s", "× alone"].map(str::to_owned).to_vec(),
            rows: vec![
                row("nothing", &self.alone),
                row("clearing through the cache", &self.cached),
                row("clearing as we choose", &self.auto),
            ],
        }
    }

    pub(super) fn runs(&self) -> Vec<Run> {
        let run = |how: &str, stats: Stats| {
            Run::measured(format!("compile: {how}"), "rustc on a small crate".to_owned(), "seconds", stats)
        };
        vec![
            run("alone", self.alone),
            run("beside cached clearing", self.cached),
            run("beside auto clearing", self.auto),
        ]
    }
}
