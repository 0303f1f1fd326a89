//! Following a program and everything it forks, with ptrace(2).
//!
//! The tracer must be the thread that started the program, and waits only for that thread's
//! children (`__WNOTHREAD`), so a process that uses this library keeps its other children. The
//! program is started stopped, by way of a shell that stops itself before it execs: attaching
//! before the first instruction needs no `unsafe` that way.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::process::{Command, Stdio};

use nix::errno::Errno;
use nix::sys::ptrace::{self, Event, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::error::RecordError;

/// `PTRACE_EVENT_STOP`, which nix doesn't name.
const EVENT_STOP: i32 = 128;

/// Who wants to know what becomes of the processes.
///
/// All pids are those of thread groups.
pub(super) trait Watcher {
    /// A process exists and has not run yet; the root has no parent.
    fn born(&mut self, pid: Pid, parent: Option<Pid>) -> Result<(), RecordError>;
    /// It has replaced its image, and has not run yet.
    fn execed(&mut self, pid: Pid);
    /// One of its threads ends; its memory is still there if it is the last.
    fn exiting(&mut self, pid: Pid);
    /// It has ended.
    fn gone(&mut self, pid: Pid);
}

/// Run `command` and follow it to its end; returns the root's exit status, or 128 + signal.
pub(super) fn follow(
    command: &Command,
    input: Stdio,
    output: Stdio,
    watcher: &mut impl Watcher,
) -> Result<i32, RecordError> {
    let root = start_stopped(command, input, output)?;
    let failed = |errno| RecordError::Ptrace { pid: root.as_raw(), errno };
    let options = Options::PTRACE_O_TRACEFORK
        | Options::PTRACE_O_TRACEVFORK
        | Options::PTRACE_O_TRACECLONE
        | Options::PTRACE_O_TRACEEXEC
        | Options::PTRACE_O_TRACEEXIT
        | Options::PTRACE_O_EXITKILL;
    ptrace::seize(root, options).map_err(failed)?;
    watcher.born(root, None)?;
    kill(root, Signal::SIGCONT).map_err(failed)?;
    let mut known = HashSet::from([root]);
    let mut status = 0;
    loop {
        match waitpid(None, Some(WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD)) {
            Ok(WaitStatus::Exited(pid, code)) => {
                watcher.gone(pid);
                status = if pid == root { code } else { status };
            }
            Ok(WaitStatus::Signaled(pid, signal, _)) => {
                watcher.gone(pid);
                status = if pid == root { 128 + signal as i32 } else { status };
            }
            Ok(WaitStatus::PtraceEvent(pid, _, event)) => {
                notify(pid, event, &mut known, watcher)?;
                resume(pid, None)?;
            }
            Ok(WaitStatus::Stopped(pid, signal)) => resume(pid, Some(signal))?,
            Ok(WaitStatus::PtraceSyscall(pid) | WaitStatus::Continued(pid)) => resume(pid, None)?,
            Ok(WaitStatus::StillAlive) | Err(Errno::EINTR) => {}
            Err(Errno::ECHILD) => return Ok(status),
            Err(errno) => return Err(failed(errno)),
        }
    }
}

fn notify(pid: Pid, event: i32, known: &mut HashSet<Pid>, watcher: &mut impl Watcher) -> Result<(), RecordError> {
    if event == EVENT_STOP {
        // A child's first stop may be seen before its parent's report of it.
        return meet(pid, known, watcher);
    }
    if event == Event::PTRACE_EVENT_EXEC as i32 {
        watcher.execed(pid);
    } else if event == Event::PTRACE_EVENT_EXIT as i32 {
        watcher.exiting(group(pid));
    } else if let Ok(child) = ptrace::getevent(pid) {
        return meet(Pid::from_raw(child as i32), known, watcher);
    }
    Ok(())
}

/// Report a process at its first sight; threads are none.
fn meet(pid: Pid, known: &mut HashSet<Pid>, watcher: &mut impl Watcher) -> Result<(), RecordError> {
    if known.insert(pid) && group(pid) == pid {
        let parent = status_field(pid, "PPid:").map(Pid::from_raw);
        watcher.born(pid, parent)?;
    }
    Ok(())
}

/// The thread group of a thread.
fn group(tid: Pid) -> Pid {
    status_field(tid, "Tgid:").map_or(tid, Pid::from_raw)
}

fn status_field(pid: Pid, name: &str) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok()
}

fn resume(pid: Pid, signal: Option<Signal>) -> Result<(), RecordError> {
    match ptrace::cont(pid, signal) {
        // It was killed while it was stopped; its end will be reported.
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(errno) => Err(RecordError::Ptrace { pid: pid.as_raw(), errno }),
    }
}

/// Start a shell that stops itself and then becomes the command.
fn start_stopped(command: &Command, input: Stdio, output: Stdio) -> Result<Pid, RecordError> {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "kill -STOP $$; exec \"$@\"", "sh"]).arg(command.get_program()).args(command.get_args());
    let child = shell.stdin(input).stdout(output).spawn();
    let child = child.map_err(|source: io::Error| RecordError::Io { path: "/bin/sh".into(), source })?;
    let pid = Pid::from_raw(child.id() as i32);
    let failed = |errno| RecordError::Ptrace { pid: pid.as_raw(), errno };
    loop {
        match waitpid(pid, Some(WaitPidFlag::WUNTRACED)) {
            Ok(WaitStatus::Stopped(..)) => return Ok(pid),
            Ok(_) => return Err(failed(Errno::ECHILD)),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(failed(errno)),
        }
    }
}
