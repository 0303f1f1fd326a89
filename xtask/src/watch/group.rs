//! Process groups: what their processes have used, and their end.
//!
//! Each command runs in a group of its own, so that its end is the end of every process that it has
//! started. Ctrl-C reaches none of these groups, so [`end_all_at_interrupt`] ends them. A nested
//! `xtask` gets SIGTERM then, and ends its own groups.
//!
//! Not guaranteed: the end of a process that leaves its group. Without `/proc` nothing is known of
//! a group.

use super::own_time::Usage;
use crate::error::Error;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// The exit status of a shell after SIGINT.
const INTERRUPTED: i32 = 130;
/// The number of times at which an interrupted group is looked at, and the time between them.
const GRACE: (u32, Duration) = (40, Duration::from_millis(50));

/// The groups that run.
static RUNNING: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

fn running() -> MutexGuard<'static, BTreeSet<i32>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A process group; dropping it kills what is left of it.
#[derive(Debug)]
pub(crate) struct Group(i32);

impl Group {
    /// Starts `command` as the leader of a group.
    pub(crate) fn start(command: &mut Command) -> Result<(Self, Child), Error> {
        let program = command.get_program().display().to_string();
        // An interrupt waits for the lock, and then finds the group.
        let mut running = running();
        let child = command.process_group(0).spawn().map_err(|source| Error::Spawn { program, source })?;
        let group = child.id().cast_signed();
        running.insert(group);
        Ok((Self(group), child))
    }

    /// Ends every process of the group.
    pub(crate) fn kill(&self) {
        // It fails only if all have ended.
        let _ = killpg(Pid::from_raw(self.0), Signal::SIGKILL);
    }

    /// What the processes of the group have used.
    pub(super) fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            // A process may end at any time; then it has no more files.
            let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            let Some((group, ran)) = group_and_time(&stat) else { continue };
            if group == self.0 {
                usage.ran += ran;
                usage.waited += waited(&entry.path().join("task"));
            }
        }
        usage
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
        running().remove(&self.0);
    }
}

/// Has Ctrl-C and SIGTERM end the groups, and then this program.
///
/// # Errors
/// [`Error::Interrupt`], if a handler is there already.
pub(crate) fn end_all_at_interrupt() -> Result<(), Error> {
    ctrlc::set_handler(|| {
        let groups = running();
        let signal = |signal| groups.iter().any(|group| killpg(Pid::from_raw(*group), signal).is_ok());
        let (times, pause) = GRACE;
        signal(Signal::SIGTERM);
        let is_left = (0..times).all(|_| {
            thread::sleep(pause);
            signal(Signal::SIGTERM)
        });
        if is_left {
            groups.iter().for_each(|group| _ = killpg(Pid::from_raw(*group), Signal::SIGKILL));
        }
        std::process::exit(INTERRUPTED);
    })?;
    Ok(())
}

/// The processor time of this program, and of its children that have ended.
pub(crate) fn processor_time() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    group_and_time(&stat).map_or(Duration::ZERO, |(_, time)| time)
}

/// The group of a process, and the time that it and its ended children ran (proc_pid_stat(5)).
fn group_and_time(stat: &str) -> Option<(i32, Duration)> {
    const TICK: Duration = Duration::from_millis(10);
    // The name may contain blanks and ends with the last parenthesis.
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks: Option<u32> = fields.get(11..15)?.iter().map(|field| field.parse::<u32>().ok()).sum();
    Some((fields[2].parse().ok()?, TICK * ticks?))
}

/// The time that the threads of a process waited for a CPU.
///
/// It is the second number of `schedstat` (Documentation/scheduler/sched-stats.rst).
fn waited(threads: &Path) -> Duration {
    let threads = fs::read_dir(threads).into_iter().flatten().flatten();
    let waited = threads.filter_map(|thread| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
    });
    waited.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_that_of_the_process_and_of_its_ended_children() {
        let stat = "7 (a (b) c) R 1 6 7 0 -1 4194304 90 80 70 60 5 4 3 2 20 0 1 0 99";
        assert_eq!(group_and_time(stat), Some((6, Duration::from_millis(140))));
        assert_eq!(group_and_time("7 (a) R 1"), None);
    }
}
