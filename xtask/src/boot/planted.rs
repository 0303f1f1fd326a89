//! Planted bugs in the kernel, each of which a program must detect, or the oracle at power-off.
//!
//! They run on four CPUs of x86-64, where a shootdown can be missed. The bugs of waits, of counts
//! and of the kernel's stacks run on both instruction sets, because those parts differ.
//!
//! Not guaranteed: that the first boot detects a bug. A bug that needs a race gets several boots.

use super::cases::{CASES, Machine};
use super::{Bench, Run};
use crate::error::Error;
use pagewright_plant::PlantedBug;
use pagewright_types::IsaKind;
use std::path::Path;
use std::process::Output;
use std::time::Duration;

/// A bug, and the case of [`CASES`] that detects it.
type PlantedBoot = (PlantedBug, &'static str);

/// The bugs that corrupt or stop a program, and the program.
const CORRUPTING: [PlantedBoot; 5] = [
    (PlantedBug::NoFlush, "threads"),
    (PlantedBug::LocalOnly, "threads"),
    (PlantedBug::ProtectNoFlush, "threads"),
    (PlantedBug::CowNoFlush, "cow"),
    (PlantedBug::LazyNoCatchUp, "cow"),
];
/// The bugs that change what a call does, and the program that shows it.
const MISBEHAVING: [PlantedBoot; 26] = [
    (PlantedBug::FileLockKept, "names"),
    (PlantedBug::ReusedByMapcount, "splices"),
    (PlantedBug::TimerNotRearmed, "timers"),
    (PlantedBug::OomScoreIgnored, "proc"),
    (PlantedBug::CapabilitiesKept, "users"),
    (PlantedBug::RobustListForgotten, "users"),
    (PlantedBug::SocketCycleKept, "sockets"),
    (PlantedBug::EdgeReportedAgain, "sockets"),
    (PlantedBug::DescriptorLimitIgnored, "descriptors"),
    (PlantedBug::MessagesSentAgain, "descriptors"),
    (PlantedBug::UncopiedBytesTaken, "descriptors"),
    (PlantedBug::UnknownRequestInvalid, "descriptors"),
    (PlantedBug::StrangerMayLook, "looks"),
    (PlantedBug::RefusedRecordLost, "looks"),
    (PlantedBug::WordIndexLost, "seldom"),
    (PlantedBug::SegmentLimitIgnored, "seldom"),
    (PlantedBug::UnevictablePagedOut, "seldom"),
    (PlantedBug::EntryOfLoader, "dynamic"),
    (PlantedBug::MountFlagsIgnored, "names"),
    (PlantedBug::NodeOfCpuIgnored, "two-nodes"),
    (PlantedBug::ThreadLimitIgnored, "users"),
    (PlantedBug::ProgramWritten, "hostile"),
    (PlantedBug::KillNotSeen, "hostile"),
    (PlantedBug::FatalSignalWaits, "hostile"),
    (PlantedBug::InitKilled, "hostile"),
    (PlantedBug::OomInitKilled, "hostile"),
];
/// The bugs by which a thread waits too long or for ever, and the program that hangs then.
const WAITING: [PlantedBoot; 3] = [
    (PlantedBug::EndNotSeenAtSleep, "exec"),
    (PlantedBug::SignalNotSeenAtSleep, "signals"),
    (PlantedBug::StopNotCounted, "signals"),
];
/// The bugs that only the oracle detects, and the program to run.
const MISCOUNTING: [PlantedBoot; 2] = [(PlantedBug::RssDrift, "cow"), (PlantedBug::MapcountLost, "cow")];
/// The bugs that overflow a kernel stack, on the boot CPU and on another; no program runs.
const OVERFLOWING: [PlantedBoot; 2] = [(PlantedBug::StackOverflow, "moves"), (PlantedBug::OtherStackOverflow, "moves")];
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
        runs.push(Run { machine, case, program, kernel: kernel.to_owned(), cpus: "4", plant: Some(*plant) });
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
        let is_one = |plants: &[PlantedBoot]| plants.iter().any(|(plant, _)| Some(*plant) == run.plant);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bug_boots_a_case_that_exists() {
        let boots = CORRUPTING.iter().chain(&MISBEHAVING).chain(&WAITING).chain(&MISCOUNTING).chain(&OVERFLOWING);
        for (plant, name) in boots {
            assert!(CASES.iter().any(|case| case.name == *name), "{plant}: {name}");
        }
    }
}
