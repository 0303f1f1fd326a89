//! Follows a program and all its descendants with ptrace(2).
//!
//! The tracer is the thread that starts the program. It waits only for its own children
//! (`__WNOTHREAD`), so it does not reap other children of the process that uses this library. A
//! shell stops itself and then executes the program, so the tracer attaches before the program's
//! first instruction, without unsafe code.

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

/// `PTRACE_EVENT_STOP`, which `nix` does not define.
const EVENT_STOP: i32 = 128;

/// Callbacks for the events of the traced processes.
///
/// All pids are those of thread groups.
pub(super) trait Watcher {
    /// The process was created and has not run yet; the root has no parent.
    fn created(&mut self, pid: Pid, parent: Option<Pid>) -> Result<(), RecordError>;
    /// The process has executed a new image, which has not run yet.
    fn execed(&mut self, pid: Pid);
    /// A thread of the process is about to exit; the last one still has the memory.
    fn thread_exits(&mut self, pid: Pid);
    /// The process has exited.
    fn exited(&mut self, pid: Pid);
}

/// Runs `command` to the exit of its last process; returns the root's exit status, or 128 + signal.
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
    watcher.created(root, None)?;
    kill(root, Signal::SIGCONT).map_err(failed)?;
    let mut known = HashSet::from([root]);
    let mut status = 0;
    loop {
        match waitpid(None, Some(WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD)) {
            Ok(WaitStatus::Exited(pid, code)) => {
                watcher.exited(pid);
                status = if pid == root { code } else { status };
            }
            Ok(WaitStatus::Signaled(pid, signal, _)) => {
                watcher.exited(pid);
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
        // The first stop of a child may precede the event of its parent.
        return report_new(pid, known, watcher);
    }
    if event == Event::PTRACE_EVENT_EXEC as i32 {
        watcher.execed(pid);
    } else if event == Event::PTRACE_EVENT_EXIT as i32 {
        watcher.thread_exits(group(pid));
    } else if let Ok(child) = ptrace::getevent(pid) {
        return report_new(Pid::from_raw(child as i32), known, watcher);
    }
    Ok(())
}

/// Reports a task that is not known yet, if it is a process and not a thread.
fn report_new(pid: Pid, known: &mut HashSet<Pid>, watcher: &mut impl Watcher) -> Result<(), RecordError> {
    if known.insert(pid) && group(pid) == pid {
        let parent = status_field(pid, "PPid:").map(Pid::from_raw);
        watcher.created(pid, parent)?;
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
        // It was killed while it was stopped; `waitpid` will report its exit.
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(errno) => Err(RecordError::Ptrace { pid: pid.as_raw(), errno }),
    }
}

/// Starts a shell that stops itself and then executes the command.
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
