//! Planted bugs in the kernel, each of which a program must detect, or the oracle at power-off.
//!
//! They run on four CPUs of x86-64, where a shootdown can be missed. The bugs of waits, of counts
//! and of the kernel's stacks run on both instruction sets, because those parts differ.
//!
//! Not guaranteed: that the first boot detects a bug. A bug that needs a race gets several boots.

use super::cases::{CASES, Machine};
use super::{Bench, Run};
use crate::error::Error;
use pagewright_types::IsaKind;
use std::path::Path;
use std::process::Output;
use std::time::Duration;

/// The bugs that corrupt or stop a program, and the program.
const CORRUPTING: [(&str, &str); 5] = [
    ("no-flush", "threads"),
    ("local-only", "threads"),
    ("protect-no-flush", "threads"),
    ("cow-no-flush", "cow"),
    ("lazy-no-catch-up", "cow"),
];
/// The bugs that change what a call does, and the program that shows it.
const MISBEHAVING: [(&str, &str); 26] = [
    ("file-lock-kept", "names"),
    ("reused-by-mapcount", "splices"),
    ("timer-not-rearmed", "timers"),
    ("oom-score-ignored", "proc"),
    ("capabilities-kept", "users"),
    ("robust-list-forgotten", "users"),
    ("socket-cycle-kept", "sockets"),
    ("edge-reported-again", "sockets"),
    ("descriptor-limit-ignored", "descriptors"),
    ("messages-sent-again", "descriptors"),
    ("uncopied-bytes-taken", "descriptors"),
    ("unknown-request-invalid", "descriptors"),
    ("stranger-may-look", "looks"),
    ("refused-record-lost", "looks"),
    ("word-index-lost", "seldom"),
    ("segment-limit-ignored", "seldom"),
    ("unevictable-paged-out", "seldom"),
    ("entry-of-loader", "dynamic"),
    ("mount-flags-ignored", "names"),
    ("node-of-cpu-ignored", "two-nodes"),
    ("thread-limit-ignored", "users"),
    ("program-written", "hostile"),
    ("kill-not-seen", "hostile"),
    ("fatal-signal-waits", "hostile"),
    ("init-killed", "hostile"),
    ("oom-init-killed", "hostile"),
];
/// The bugs by which a thread waits too long or for ever, and the program that hangs then.
const WAITING: [(&str, &str); 3] =
    [("end-not-seen-at-sleep", "exec"), ("signal-not-seen-at-sleep", "signals"), ("stop-not-counted", "signals")];
/// The bugs that only the oracle detects, and the program to run.
const MISCOUNTING: [(&str, &str); 2] = [("rss-drift", "cow"), ("map-count-lost", "cow")];
/// The bugs that overflow a kernel stack, on the boot CPU and on another; no program runs.
const OVERFLOWING: [(&str, &str); 2] = [("stack-overflow", "moves"), ("other-stack-overflow", "moves")];
/// The kernel's message.
const OVERFLOWED: &str = "kernel stack overflow";
/// The exit status of a machine with wrong counts (`EX_SOFTWARE`).
const WRONG_COUNTS: i32 = 70;
/// The time that a boot may spend, because a bug may stop a program for ever.
pub(super) const ALLOWED: Duration = Duration::from_secs(30);
/// The largest number of boots per bug.
const BOOTS: usize = 5;

/// Adds the boots of `kernel`, which has the planted bugs.
pub(super) fn runs<'a>(bench: &Bench, machine: &'a Machine, kernel: &Path, runs: &mut Vec<Run<'a>>) {
    let on_one = CORRUPTING.iter().chain(&MISBEHAVING).filter(|_| machine.isa == IsaKind::X86_64);
    for (plant, name) in on_one.chain(&WAITING).chain(&MISCOUNTING).chain(&OVERFLOWING) {
        let Some(case) = CASES.iter().find(|case| case.name == *name) else { continue };
        let Some(program) = bench.program(machine, case) else { continue };
        runs.push(Run { machine, case, program, kernel: kernel.to_owned(), cpus: "4", plant: Some(plant) });
    }
}

impl Bench {
    /// Whether this boot or a repetition detects the bug.
    ///
    /// `right` tells whether the program ran in this boot as if there were no bug.
    pub(super) fn judge_planted(
        &self,
        run: &Run<'_>,
        mut right: bool,
        mut output: Output,
    ) -> Result<(bool, Output), Error> {
        for _ in 1..BOOTS {
            if !right {
                break;
            }
            output = self.boot(run)?;
            right = run.is_right(&self.workspace.workspace_root, &output)?;
        }
        let is_one = |plants: &[(&str, &str)]| plants.iter().any(|(plant, _)| Some(*plant) == run.plant);
        let detected = if is_one(&OVERFLOWING) {
            String::from_utf8_lossy(&output.stdout).contains(OVERFLOWED)
        } else if is_one(&MISCOUNTING) {
            output.status.code() == Some(WRONG_COUNTS)
        } else {
            !right
        };
        Ok((detected, output))
    }
}
