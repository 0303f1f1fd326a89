//! Measures a compiler while other CPUs clear memory all the time.
//!
//! Key type: [`CompileTimes`]. The compiler is `rustc`, if it is installed, on a generated program.
//! The clearing runs on all CPUs but one. Its threads yield after each 8 MiB, in place of a lower
//! priority.
//!
//! Not guaranteed: a difference. Earlier runs show none for a compiler on another core than the
//! clearing.

use super::super::parent::failed;
use super::super::{Context, EvaluateError, Figures, Grid, Stats};
use super::bench::{Bench, NODE};
use pagewright_capture::cleanup::ScratchDir;
use pagewright_tlb::frames::ClearPolicy;
use pagewright_types::Order;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

/// Times of a compilation, in seconds, by round.
pub(super) struct CompileTimes {
    /// With no clearing.
    pub(super) alone: Vec<f64>,
    /// While other CPUs clear by cached stores.
    pub(super) cached: Vec<f64>,
    /// While other CPUs clear by the stores that the memory manager chooses.
    pub(super) auto: Vec<f64>,
}

/// A generated program to compile, in a directory of its own.
struct CompileJob(ScratchDir);

impl CompileJob {
    fn create() -> Option<Self> {
        let job = Self(ScratchDir::new("compile").ok()?);
        let mut text = String::from("#![allow(dead_code)]\n");
        for n in 0..120 {
            // Writing to a String never fails.
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

    /// Compiles the program, and returns the time in seconds.
    fn compile(&self) -> Option<f64> {
        let out = self.0.path();
        let began = Instant::now();
        let mut command = Command::new("rustc");
        command.args("--crate-type lib --edition 2021 --emit obj -C codegen-units=1 --out-dir".split(' '));
        let status = command.arg(out).arg(self.source()).stdout(Stdio::null()).stderr(Stdio::null()).status().ok()?;
        status.success().then(|| began.elapsed().as_secs_f64())
    }
}

/// Measures the compiler; returns `None` if there is no `rustc`.
///
/// # Errors
/// [`EvaluateError::Machine`] if clearing fails.
pub(super) fn measure(context: &Context<'_>, bench: &Bench) -> Result<Option<CompileTimes>, EvaluateError> {
    context.show_step("compiling beside background clearing");
    let Some(job) = CompileJob::create() else { return Ok(None) };
    let policies = [None, Some(ClearPolicy::Cached), Some(ClearPolicy::Auto)];
    let mut samples = [const { Vec::new() }; 3];
    for _ in 0..bench.repetitions() / 3 {
        for (policy, samples) in policies.iter().zip(&mut samples) {
            let stop = AtomicBool::new(policy.is_none());
            bench.set_policy(policy.unwrap_or_default());
            let took = thread::scope(|scope| {
                let clearing = (1..bench.cpus().max(2)).map(|cpu| {
                    let stop = &stop;
                    scope.spawn(move || clear_until(bench, cpu, stop))
                });
                let clearing: Vec<_> = clearing.collect();
                let took = job.compile();
                stop.store(true, Ordering::Relaxed);
                clearing.into_iter().try_for_each(|thread| thread.join().unwrap_or(Ok(()))).map(|()| took)
            })?;
            samples.extend(took);
        }
    }
    bench.set_policy(ClearPolicy::Auto);
    let [alone, cached, auto] = samples;
    let is_whole = !auto.is_empty() && alone.len() == auto.len() && cached.len() == auto.len();
    Ok(is_whole.then_some(CompileTimes { alone, cached, auto }))
}

/// Fills and empties a pool of 256 MiB until `stop` is set.
fn clear_until(bench: &Bench, cpu: usize, stop: &AtomicBool) -> Result<(), EvaluateError> {
    bench.become_cpu(cpu.min(bench.cpus() - 1));
    let pool = bench.mm().huge_pool(Order::PMD, NODE, 128).map_err(failed)?;
    while !stop.load(Ordering::Relaxed) {
        pool.fill(0..128, thread::yield_now).map_err(failed)?;
        pool.punch(0..128);
    }
    Ok(())
}

impl CompileTimes {
    /// Time beside cached clearing divided by that beside the memory manager's, round by round.
    pub(super) fn gain(&self) -> Stats {
        Stats::of_ratios(&self.cached, &self.auto)
    }

    /// Time beside cached clearing divided by that without clearing, round by round.
    pub(super) fn slowdown(&self) -> Stats {
        Stats::of_ratios(&self.cached, &self.alone)
    }

    pub(super) fn figures(&self) -> Figures {
        let label = |name| if name == "nothing" { "alone".to_owned() } else { format!("beside {name}") };
        let rows = [("nothing", &self.alone), ("cached clearing", &self.cached), ("auto clearing", &self.auto)];
        Grid::of("rustc on a small crate, seconds", rows)
            .text("beside", |(name, _)| *name)
            .measured("s", "seconds", |(_, times)| Stats::of(times.to_vec()))
            .text("× alone", |(_, times)| Stats::of_ratios(times, &self.alone))
            .figures(|(name, _)| [format!("compile: {}", label(*name)), "rustc on a small crate".to_owned()])
    }
}
