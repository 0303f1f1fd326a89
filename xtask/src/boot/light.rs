//! How light the kernel is: bytes of its image, and instructions from power-on to the first
//! program's first, by QEMU's count.
//!
//! Measured on one CPU – others wait while they are started, and waiting counts – with the oracle
//! in the image; without it there is less of both.
//!
//! Not guaranteed: that firmware executes as many on another version of QEMU; its instructions
//! count, too.

use super::Bench;
use super::cases::{CASES, Machine};
use super::recorded::output;
use crate::error::Error;
use std::fs;
use std::path::Path;
use std::process::Command;

const MOST_INSTRUCTIONS: u64 = 30_000_000;
const MOST_BYTES: u64 = 4 << 20;
/// The program that is started.
const PROGRAM: &str = "moves";

/// Measures a machine; prints a line each and returns how many failed.
pub(super) fn judge(bench: &Bench, machine: &Machine, kernel: &Path) -> Result<usize, Error> {
    let mut failed = 0;
    let mut tell = |what: &str, measured: Option<u64>, most: u64| {
        let good = measured.is_some_and(|measured| measured <= most);
        println!(
            "test boot {} {what} {} of {most} ... {}",
            machine.isa,
            measured.unwrap_or(0),
            if good { "ok" } else { "FAILED" }
        );
        failed += usize::from(!good);
    };
    let bytes = fs::metadata(kernel).map_err(Error::file(kernel))?.len();
    tell("bytes of image", Some(bytes), MOST_BYTES);
    let Some(case) = CASES.iter().find(|case| case.name == PROGRAM) else { return Ok(failed) };
    let Some(program) = case.program(machine, &bench.workspace, &bench.folder)? else { return Ok(failed) };
    let mut boot = Command::new(&bench.pagewright);
    boot.args(["boot", "--arch", machine.isa, "--mem", case.memory, "--limit", case.limit, "--count", "--kernel"]);
    let said = output(boot.arg(kernel).arg("--").arg(&program))?;
    let mut counts = said.lines().filter_map(|line| line.strip_prefix("pagewright: ")?.split_once(" instructions"));
    let count = counts.next_back().and_then(|(count, _)| count.parse().ok());
    tell("instructions before the program's first", count, MOST_INSTRUCTIONS);
    Ok(failed)
}
