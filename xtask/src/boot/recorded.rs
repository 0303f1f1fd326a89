//! Programs recorded on the kernel and replayed in the lab, where the counts must be the same.
//!
//! The counts are equal on one CPU, and on four CPUs if one thread runs, except for those that the
//! timer decides. Those, and the counts of concurrent programs, may differ by 5 %.
//! `docs/kernel.md` says which counts are not compared, and why.
//!
//! Not guaranteed: anything about calls that a capture does not have (`pagewright boot --record`
//! names those that it has).

use super::cases::{CASES, Machine};
use super::{Bench, Task};
use crate::error::Error;
use crate::watch;
use pagewright_types::IsaKind;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// A program that is recorded.
struct Recorded {
    case: &'static str,
    arguments: &'static [&'static str],
    cpus: &'static str,
    /// The counts that must be equal; none of a program that runs concurrently.
    equal: &'static [&'static str],
    /// The counts that may differ by [`TOLERANCE`].
    near: &'static [&'static str],
}

/// Percent.
const TOLERANCE: u64 = 5;

/// The counts of programs in which one thread runs at a time.
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
/// The counts of programs whose processes take turns on one CPU.
///
/// Without [`BY_TIMER`].
const TAKING_TURNS: &[&str] = &["pgfault", "pw_pages_zeroed", "pw_fault_around", "pw_fork", "pw_fork_entries"];
/// The counts that depend on whether a child has ended when its parent writes a page.
///
/// The timer decides that here, and a capture does not have it.
const BY_TIMER: &[&str] = &["pgreuse", "pw_cow_copy", "pw_entry_stores", "pw_page_flushes"];
/// The counts of programs in which threads or processes run concurrently.
///
/// Without those that depend on their order, such as whether a page is copied or reused, and
/// without those of failed faults, which a capture does not have.
const OVERLAPPING: &[&str] = &["pw_pages_zeroed", "pw_fault_around", "pw_fork", "pw_fork_entries", "pw_entry_stores"];
/// The counts of programs whose threads share pages.
///
/// Without `pw_entry_stores`: if one thread reads a page before another writes it, the entry is
/// stored twice.
const SHARING: &[&str] = &["pw_pages_zeroed", "pw_fault_around", "pw_fork", "pw_fork_entries"];

/// The counts of programs that swap.
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

const RECORDED: [Recorded; 10] = [
    Recorded { case: "fork", arguments: &["4", "2"], cpus: "1", equal: TAKING_TURNS, near: &[] },
    Recorded { case: "cow", arguments: &[], cpus: "1", equal: TAKING_TURNS, near: BY_TIMER },
    Recorded { case: "moves", arguments: &[], cpus: "1", equal: ALL, near: &[] },
    Recorded { case: "moves", arguments: &[], cpus: "4", equal: ALL, near: &[] },
    Recorded { case: "pageout", arguments: &["4"], cpus: "1", equal: SWAPPED, near: &[] },
    Recorded { case: "pageout", arguments: &["4"], cpus: "4", equal: SWAPPED, near: &[] },
    Recorded { case: "fork", arguments: &["8", "4"], cpus: "4", equal: &[], near: OVERLAPPING },
    Recorded { case: "threads", arguments: &["50"], cpus: "4", equal: &[], near: SHARING },
    Recorded { case: "cow", arguments: &[], cpus: "4", equal: &[], near: SHARING },
    Recorded { case: "futex", arguments: &["400"], cpus: "4", equal: &[], near: SHARING },
];

/// The tasks that record and replay each program on a machine with this kernel.
pub(super) fn tasks<'a>(bench: &'a Bench, machine: &'a Machine, kernel: &'a Path) -> impl Iterator<Item = Task<'a>> {
    RECORDED.iter().map(move |recorded| -> Task<'a> { Box::new(move || recorded.judge(bench, machine, kernel)) })
}

impl Recorded {
    /// Records and replays the program, prints its line, and returns the number of failures.
    fn judge(&self, bench: &Bench, machine: &Machine, kernel: &Path) -> Result<usize, Error> {
        let different = self.differences(bench, machine, kernel)?;
        let verdict = if different.is_empty() { "ok" } else { "FAILED" };
        let mut line = format!("test boot {} {} cpus {} recorded ... {verdict}", machine.isa, self.cpus, self.case);
        different.iter().for_each(|difference| line.push_str(&format!("\n{difference}")));
        // One call, so that the output of several machines does not mix.
        println!("{line}");
        Ok(usize::from(!different.is_empty()))
    }

    fn differences(&self, bench: &Bench, machine: &Machine, kernel: &Path) -> Result<Vec<String>, Error> {
        let case = CASES.iter().find(|case| case.name == self.case);
        let Some(program) = case.and_then(|case| bench.program(machine, case)) else {
            return Ok(vec![format!("no program {}", self.case)]);
        };
        let swap = case.and_then(|case| case.swap.option());
        // A capture does not say which of two sharers was the last, on which the copies of shared
        // tables depend.
        let takes_turns = !self.equal.is_empty();
        let tables = ["--set", if takes_turns { "cow_page_tables=never" } else { "cow_page_tables=always" }];
        let file = |end: &str| bench.folder.join(format!("{}-{}-{}.{end}", self.case, machine.isa, self.cpus));
        let (capture, json) = (file("pwt"), file("json"));
        let mut boot = Command::new(&bench.pagewright);
        boot.args(["boot", "--arch", machine.isa.name(), "--cpus", self.cpus, "--mem", "256M"]);
        boot.args(&swap)
            .args(tables)
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
            .args(["replay", "--arch", machine.isa.name(), "--cpus", self.cpus])
            .args(&swap)
            .args(tables)
            .arg("--json")
            .arg(&json)
            .arg(&capture);
        if machine.isa == IsaKind::X86_64 {
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
        let equal = self.equal.iter().map(|name| (*name, 0));
        for (name, tolerance) in equal.chain(self.near.iter().map(|name| (*name, TOLERANCE))) {
            let (ours, lab) = (counted(&here, name), run["counters"][name].as_u64().unwrap_or(0));
            if ours.abs_diff(lab) * 100 > tolerance * ours {
                different.push(format!("{name}: {ours} here, {lab} in the lab"));
            }
        }
        // Equal counts mean nothing if the program did not run.
        if counted(&here, "pgfault") == 0 {
            different.push(here);
        }
        Ok(different)
    }
}

/// The standard error of a command, which runs under the watchdog.
pub(super) fn output(command: &mut Command) -> Result<String, Error> {
    let output = watch::output(command.stdin(Stdio::null()), watch::SHORT)?;
    Ok(String::from_utf8_lossy(&output.stderr).into_owned())
}

/// The value of a counter in the output of `boot`, which omits counters that are 0.
pub(super) fn counted(printed: &str, name: &str) -> u64 {
    let mut lines = printed.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    lines.next_back().and_then(|value| value.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_matched_by_its_whole_name() {
        let said = "pagewright: text\npw_fork 3\npw_fork_entries 40\n";
        assert_eq!((counted(said, "pw_fork"), counted(said, "pw_fork_entries"), counted(said, "pgfault")), (3, 40, 0));
    }
}
