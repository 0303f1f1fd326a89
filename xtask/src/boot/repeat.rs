//! `cargo xtask boot repeat BOOTS`: the same boots again and again, beside each other.
//!
//! At least four machines run at once, on however few CPUs the host has, so that their emulated
//! CPUs are interrupted at any instruction. The boots take turns: each program on each machine is
//! booted about as often as every other.
//!
//! Not guaranteed: that a rare failure shows up.

use super::{Bench, Run, Task, concurrently};
use crate::error::Error;
use std::collections::BTreeMap;
use std::fs;
use std::sync::Mutex;
use std::thread;

/// The fewest machines at once.
const AT_ONCE: usize = 4;

/// Makes `boots` boots, and prints each failure and how often each boot failed.
///
/// What a failed boot printed is kept in the folder `failed-boots` of the target directory.
pub(super) fn run(bench: &Bench, runs: &[Run<'_>], boots: usize) -> Result<usize, Error> {
    let kept = bench.workspace.target_directory.join("failed-boots");
    let _ = fs::remove_dir_all(&kept);
    fs::create_dir_all(&kept).map_err(Error::file(&kept))?;
    let failures = Mutex::new(BTreeMap::<String, usize>::new());
    let judge = |number: usize, run: &Run<'_>| {
        let output = bench.boot(run)?;
        if run.is_right(&bench.workspace.workspace_root, &output)? {
            return Ok(0);
        }
        let text = run.verdict(false, &output);
        let file = kept.join(format!("{number}"));
        fs::write(&file, &text).map_err(Error::file(&file))?;
        println!("{text}");
        if let Ok(mut failures) = failures.lock() {
            *failures.entry(run.name()).or_default() += 1;
        }
        Ok(1)
    };
    let judge = &judge;
    let numbered = (1..=boots).zip(runs.iter().cycle());
    let tasks: Vec<Task<'_>> =
        numbered.map(|(number, run)| -> Task<'_> { Box::new(move || judge(number, run)) }).collect();
    let boots = tasks.len();
    let here = thread::available_parallelism().map_or(1, usize::from);
    let failed = concurrently(tasks, here.max(AT_ONCE))?;
    println!("{boots} boots, {failed} failed");
    for (name, count) in failures.into_inner().unwrap_or_default() {
        println!("{count} of {name}");
    }
    Ok(failed)
}
