//! What a program does to memory on the kernel, recorded, and replayed in the lab: both must count
//! the same.
//!
//! On one CPU every count that is compared is equal, and on four where one thread runs; else it may
//! differ by five parts of a hundred. `docs/kernel.md` says what is not compared, and why.
//!
//! Not guaranteed: anything about calls that captures don't have (`pagewright boot --record` says
//! which it has).

use super::Bench;
use super::cases::{CASES, Machine};
use crate::error::Error;
use crate::toolchain::BareTarget;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// A program that is recorded.
struct Recorded {
    case: &'static str,
    arguments: &'static [&'static str],
    cpus: &'static str,
    /// Counts that must be equal, or nearly.
    compared: &'static [&'static str],
    /// Parts of a hundred by which they may differ.
    tolerance: u64,
}

/// All that one thread at a time decides.
const ALL: &[&str] = &[
    "pgfault",
    "pgreuse",
    "pw_cow_copy",
    "pw_pages_zeroed",
    "pw_fault_around",
    "pw_fork",
    "pw_fork_entries",
    "pw_entry_stores",
    "pw_page_flushes",
];
/// Without those that depend on who is first: whether a page is copied or taken over, and refused
/// accesses, which no capture has.
const OVERLAPPING: &[&str] = &["pw_pages_zeroed", "pw_fault_around", "pw_fork", "pw_fork_entries", "pw_entry_stores"];
/// Without that for threads that use one page: if one reads before another writes, the entry is
/// stored twice.
const SHARING: &[&str] = &["pw_pages_zeroed", "pw_fault_around", "pw_fork", "pw_fork_entries"];

/// What comes and goes by swap.
const SWAPPED: &[&str] = &[
    "pgfault",
    "pgmajfault",
    "pw_pages_zeroed",
    "pswpin",
    "pswpout",
    "pw_entry_stores",
    "pw_tlb_batch_entries",
    "pw_tlb_batch_flushed",
    "pw_tlb_batch_at_once",
];

const RECORDED: [Recorded; 9] = [
    Recorded { case: "fork", arguments: &["4", "2"], cpus: "1", compared: ALL, tolerance: 0 },
    Recorded { case: "cow", arguments: &[], cpus: "1", compared: ALL, tolerance: 0 },
    Recorded { case: "moves", arguments: &[], cpus: "1", compared: ALL, tolerance: 0 },
    Recorded { case: "moves", arguments: &[], cpus: "4", compared: ALL, tolerance: 0 },
    Recorded { case: "pageout", arguments: &["4"], cpus: "1", compared: SWAPPED, tolerance: 0 },
    Recorded { case: "pageout", arguments: &["4"], cpus: "4", compared: SWAPPED, tolerance: 0 },
    Recorded { case: "fork", arguments: &["8", "4"], cpus: "4", compared: OVERLAPPING, tolerance: 5 },
    Recorded { case: "threads", arguments: &["1"], cpus: "4", compared: SHARING, tolerance: 5 },
    Recorded { case: "cow", arguments: &[], cpus: "4", compared: SHARING, tolerance: 5 },
];

/// Seconds for one boot.
const LIMIT: &str = "60";

/// Records and replays each on a machine with this kernel; prints a line each and returns how many
/// failed.
pub(super) fn judge(bench: &Bench, machine: &Machine, kernel: &Path) -> Result<usize, Error> {
    let mut failed = 0;
    for recorded in &RECORDED {
        let different = recorded.differences(bench, machine, kernel)?;
        let verdict = if different.is_empty() { "ok" } else { "FAILED" };
        println!("test boot {} {} cpus {} recorded ... {verdict}", machine.isa, recorded.cpus, recorded.case);
        different.iter().for_each(|line| println!("{line}"));
        failed += usize::from(!different.is_empty());
    }
    Ok(failed)
}

impl Recorded {
    fn differences(&self, bench: &Bench, machine: &Machine, kernel: &Path) -> Result<Vec<String>, Error> {
        let case = CASES.iter().find(|case| case.name == self.case);
        let program = match case {
            Some(case) => case.program(machine, &bench.workspace, &bench.folder)?,
            None => None,
        };
        let Some(program) = program else { return Ok(vec![format!("no program {}", self.case)]) };
        let swap = case.and_then(|case| case.swap.option());
        let file = |end: &str| bench.folder.join(format!("{}-{}-{}.{end}", self.case, machine.isa, self.cpus));
        let (capture, json) = (file("pwt"), file("json"));
        let mut boot = Command::new(&bench.pagewright);
        boot.args(["boot", "--arch", machine.isa, "--cpus", self.cpus, "--mem", "256M", "--limit", LIMIT]);
        boot.args(&swap)
            .arg("--kernel")
            .arg(kernel)
            .arg("--record")
            .arg(&capture)
            .arg("--")
            .arg(&program)
            .args(self.arguments);
        let here = output(&mut boot)?;
        let mut replay = Command::new(&bench.pagewright);
        replay
            .args(["replay", "--arch", machine.isa, "--cpus", self.cpus])
            .args(&swap)
            .arg("--json")
            .arg(&json)
            .arg(&capture);
        if machine.target == BareTarget::X86_64 {
            // QEMU emulates no PCIDs.
            replay.args(["--set", "nopcid=1"]);
        }
        let told = output(&mut replay)?;
        let Ok(text) = fs::read(&json) else { return Ok(vec![here, told]) };
        let replayed: Value = serde_json::from_slice(&text).map_err(Error::Replay)?;
        let run = &replayed["runs"][0];
        let mut different: Vec<String> = Vec::new();
        for list in ["diverged", "not_replayed"] {
            let lines = run[list].as_array().into_iter().flatten();
            different.extend(lines.map(|line| format!("{list}: {line}")));
        }
        for name in self.compared {
            let (ours, lab) = (counted(&here, name), run["counters"][*name].as_u64().unwrap_or(0));
            if ours.abs_diff(lab) * 100 > self.tolerance * ours {
                different.push(format!("{name}: {ours} here, {lab} in the lab"));
            }
        }
        // A program that did nothing proves nothing.
        if counted(&here, "pgfault") == 0 {
            different.push(here);
        }
        Ok(different)
    }
}

/// What a command said on standard error.
pub(super) fn output(command: &mut Command) -> Result<String, Error> {
    let program = command.get_program().display().to_string();
    let output = command.stdin(Stdio::null()).output().map_err(|source| Error::Spawn { program, source })?;
    Ok(String::from_utf8_lossy(&output.stderr).into_owned())
}

/// A counter among what `boot` said, which leaves out those that are 0.
fn counted(said: &str, name: &str) -> u64 {
    let mut lines = said.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    lines.next_back().and_then(|value| value.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_found_by_its_whole_name() {
        let said = "pagewright: text\npw_fork 3\npw_fork_entries 40\n";
        assert_eq!((counted(said, "pw_fork"), counted(said, "pw_fork_entries"), counted(said, "pgfault")), (3, 40, 0));
    }
}
