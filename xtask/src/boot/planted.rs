//! Mistakes of the real code that are made on the kernel, each of which a program must notice, or
//! the oracle at power-off.
//!
//! They are made on four CPUs of x86-64, where a shootdown can be missed; those that are about
//! counts and the kernel's stacks on both instruction sets.
//!
//! Not guaranteed: that a mistake is noticed at the first boot. One that needs two CPUs to meet
//! gets some tries.

use super::cases::{CASES, Machine};
use super::{Bench, Run};
use crate::error::Error;
use crate::kernel;
use crate::toolchain::BareTarget;
use std::process::Output;

/// The mistakes, and the program that each of them corrupts or stops.
const CORRUPTING: [(&str, &str); 5] = [
    ("no-flush", "threads"),
    ("local-only", "threads"),
    ("protect-no-flush", "threads"),
    ("cow-no-flush", "cow"),
    ("lazy-no-catch-up", "cow"),
];
/// Those that no program can see, and the oracle does.
const MISCOUNTING: [(&str, &str); 2] = [("rss-drift", "cow"), ("map-count-lost", "cow")];
/// Those that end the kernel itself, on the CPU that boots and on another, and what it says then;
/// no program gets to run.
const OVERFLOWING: [(&str, &str); 2] = [("stack-overflow", "moves"), ("other-stack-overflow", "moves")];
const OVERFLOWED: &str = "the kernel's stack has overflowed";
/// The status of a machine whose counts are wrong (`EX_SOFTWARE`).
const WRONG_COUNTS: i32 = 70;
/// Seconds for a program that a mistake may stop for good.
pub(super) const LIMIT: &str = "30";
/// Boots until one shows it.
const TRIES: usize = 5;

/// Adds the boots with mistakes.
pub(super) fn runs<'a>(bench: &Bench, machine: &'a Machine, runs: &mut Vec<Run<'a>>) -> Result<(), Error> {
    let kernel = kernel::build(machine.target, &["planted", "oracle"])?;
    let corrupting = CORRUPTING.iter().filter(|_| machine.target == BareTarget::X86_64);
    for (plant, name) in corrupting.chain(&MISCOUNTING).chain(&OVERFLOWING) {
        let Some(case) = CASES.iter().find(|case| case.name == *name) else { continue };
        let Some(program) = case.program(machine, &bench.workspace, &bench.folder)? else { continue };
        runs.push(Run { machine, case, program, kernel: kernel.clone(), cpus: "4", plant: Some(plant) });
    }
    Ok(())
}

impl Bench {
    /// Whether a mistake was noticed, in this boot or another; `right` if the program saw nothing.
    pub(super) fn judge_planted(
        &self,
        run: &Run<'_>,
        mut right: bool,
        mut output: Output,
    ) -> Result<(bool, Output), Error> {
        for _ in 1..TRIES {
            if !right {
                break;
            }
            output = self.boot(run)?;
            right = run.is_right(&self.workspace.workspace_root, &output)?;
        }
        let is_one = |plants: &[(&str, &str)]| plants.iter().any(|(plant, _)| Some(*plant) == run.plant);
        let noticed = if is_one(&OVERFLOWING) {
            String::from_utf8_lossy(&output.stdout).contains(OVERFLOWED)
        } else if is_one(&MISCOUNTING) {
            output.status.code() == Some(WRONG_COUNTS)
        } else {
            !right
        };
        Ok((noticed, output))
    }
}
