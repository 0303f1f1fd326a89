//! The size budget of the kernel: bytes of its image, and instructions until the first program.
//!
//! QEMU counts the instructions from power-on. Measured on one CPU, because a CPU that waits for
//! another to start executes instructions, and with the oracle in the image, which adds to both
//! figures.
//!
//! Not guaranteed: the same count with another version of QEMU, because it includes firmware.

use super::Bench;
use super::cases::{CASES, Machine};
use super::recorded::output;
use crate::error::Error;
use std::fs;
use std::path::Path;
use std::process::Command;

const MAX_INSTRUCTIONS: u64 = 30_000_000;
const MAX_BYTES: u64 = 4 << 20;
/// The program that runs.
const PROGRAM: &str = "moves";

/// Measures both figures, prints a line for each, and returns the number over budget.
pub(super) fn judge(bench: &Bench, machine: &Machine, kernel: &Path) -> Result<usize, Error> {
    let mut failed = 0;
    let mut check = |what: &str, measured: Option<u64>, max: u64| {
        let good = measured.is_some_and(|measured| measured <= max);
        println!(
            "test boot {} {what} {} of {max} ... {}",
            machine.isa,
            measured.unwrap_or(0),
            if good { "ok" } else { "FAILED" }
        );
        failed += usize::from(!good);
    };
    let bytes = fs::metadata(kernel).map_err(Error::file(kernel))?.len();
    check("bytes of image", Some(bytes), MAX_BYTES);
    let Some(case) = CASES.iter().find(|case| case.name == PROGRAM) else { return Ok(failed) };
    let Some(program) = bench.program(machine, case) else { return Ok(failed) };
    let mut boot = Command::new(&bench.pagewright);
    boot.args(["boot", "--arch", machine.isa.name(), "--mem", case.memory, "--count", "--kernel"]);
    let stderr = output(boot.arg(kernel).arg("--").arg(&program))?;
    let mut counts = stderr.lines().filter_map(|line| line.strip_prefix("pagewright: ")?.split_once(" instructions"));
    let count = counts.next_back().and_then(|(count, _)| count.parse().ok());
    check("instructions before the first program", count, MAX_INSTRUCTIONS);
    Ok(failed)
}
