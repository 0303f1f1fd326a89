//! `wait4` and `waitid`: children that end, stop and continue (`kernel/exit.c`).
//!
//! Not guaranteed: children of a tracer, because there is no `ptrace`.

use super::{Arguments, address};
use crate::errno::Errno;
use crate::file::OpenTarget;
use crate::job_control::JobEvent;
use crate::process::{ExitStatus, Process};
use crate::record;
use crate::signal::{SIGCHLD, SigInfo};
use crate::task::{CallStop, Scheduler, SyscallResult, TaskId, Thread, WaitReason, scheduler};
use crate::usage::Usage;
use linux_raw_sys::general as linux;

/// The children that a call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitedChildren {
    All,
    One(TaskId),
    Group(TaskId),
}

/// What a child did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChildEvent {
    Ended(ExitStatus),
    Job(JobEvent),
}

impl ChildEvent {
    /// What a child did that these options ask for (`wait_consider_task`).
    fn of(child: &Process, options: u32) -> Option<Self> {
        if let Some(end) = child.exit_status {
            return Some(Self::Ended(end));
        }
        let asked = match child.job.event? {
            JobEvent::Stopped(_) => linux::WUNTRACED,
            JobEvent::Continued => linux::WCONTINUED,
        };
        child.job.event.filter(|_| options & asked != 0).map(Self::Job)
    }

    /// The word that `wait4` stores.
    fn wait_status(self) -> u32 {
        match self {
            Self::Ended(end) => end.wait_status(),
            Self::Job(JobEvent::Stopped(signal)) => u32::from(signal) << 8 | 0x7f,
            Self::Job(JobEvent::Continued) => 0xffff,
        }
    }
}

/// A child that did something.
struct WaitedChild {
    id: TaskId,
    event: ChildEvent,
    user: u32,
    /// What it and its reaped children used.
    usage: Usage,
}

/// What a wait found.
enum WaitOutcome {
    Found(WaitedChild),
    /// No child did anything, and the call does not wait.
    Nothing,
}

/// Options of both calls about which children count (`__WCLONE` and its relatives).
const ANY_CHILD: u32 = linux::__WNOTHREAD | linux::__WCLONE | linux::__WALL;

/// Whether a child counts by the signal that it sends at its end (`eligible_child`).
fn is_eligible(child: &Process, options: u32) -> bool {
    options & linux::__WALL != 0 || (child.exit_signal != SIGCHLD) == (options & linux::__WCLONE != 0)
}

/// Finds a child that did something, and notes that it was waited for unless `WNOWAIT` is given.
///
/// A child that has ended is reaped.
fn wait(thread: &Thread, children: WaitedChildren, options: u32) -> Result<WaitOutcome, CallStop> {
    let mut scheduler = scheduler();
    let me = thread.process;
    let matches = |id: TaskId, child: &Process| {
        let wanted = match children {
            WaitedChildren::All => true,
            WaitedChildren::One(wanted) => id == wanted,
            WaitedChildren::Group(group) => child.group == group,
        };
        // A child that has ended does nothing any more that `WSTOPPED` or `WCONTINUED` wait for.
        let can_act = child.exit_status.is_none() || options & linux::WEXITED != 0;
        wanted && can_act && id != me && child.parent == me && is_eligible(child, options)
    };
    let mut known = scheduler.processes.iter().filter(|(id, child)| matches(**id, child)).peekable();
    if known.peek().is_none() {
        return Err(Errno::ECHILD.into());
    }
    // The lowest number first, so that the order does not depend on when children ended.
    let Some((id, event)) = known.find_map(|(id, child)| Some((*id, ChildEvent::of(child, options)?))) else {
        if options & linux::WNOHANG != 0 {
            return Ok(WaitOutcome::Nothing);
        }
        return Err(CallStop::Sleep { scheduler, wait: WaitReason::Child, deadline: None, at_deadline: 0 });
    };
    let child = scheduler.process(id);
    let (mut usage, user) = (child.usage, child.credentials.user.real);
    usage.add(&child.children_usage);
    let found = WaitOutcome::Found(WaitedChild { id, event, user, usage });
    match event {
        _ if options & linux::WNOWAIT != 0 => {}
        ChildEvent::Job(_) => child.job.event = None,
        ChildEvent::Ended(_) => {
            reap(&mut scheduler, me, id, &usage);
            drop(scheduler);
            record::event(format_args!("reaped {:x}", id.0));
        }
    }
    Ok(found)
}

/// Removes an ended child, whose use of the machine its parent's children get.
fn reap(scheduler: &mut Scheduler, parent: TaskId, child: TaskId, usage: &Usage) {
    scheduler.processes.remove(&child);
    scheduler.process(parent).children_usage.add(usage);
}

/// `wait4`.
pub(super) fn wait4(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let (wanted, options) = (a[0] as i32, a[2] as u32);
    if options & !(linux::WNOHANG | linux::WUNTRACED | linux::WCONTINUED | ANY_CHILD) != 0 {
        return Err(Errno::EINVAL.into());
    }
    let children = match wanted {
        i32::MIN => return Err(Errno::ESRCH.into()),
        -1 => WaitedChildren::All,
        0 => WaitedChildren::Group(scheduler().process(thread.process).group),
        1.. => WaitedChildren::One(TaskId(wanted.unsigned_abs())),
        _ => WaitedChildren::Group(TaskId(wanted.unsigned_abs())),
    };
    let WaitOutcome::Found(child) = wait(thread, children, options | linux::WEXITED)? else { return Ok(0) };
    if a[1] != 0 {
        thread.space.write_u32(address(a[1]), child.event.wait_status())?;
    }
    if a[3] != 0 {
        thread.space.write(address(a[3]), &child.usage.bytes())?;
    }
    Ok(u64::from(child.id.0))
}

/// `waitid`.
pub(super) fn waitid(thread: &mut Thread, a: Arguments) -> SyscallResult {
    const EVENTS: u32 = linux::WEXITED | linux::WSTOPPED | linux::WCONTINUED;
    let (id, options) = (a[1] as i32, a[3] as u32);
    let unknown = options & !(linux::WNOHANG | linux::WNOWAIT | EVENTS | ANY_CHILD) != 0;
    if unknown || options & EVENTS == 0 {
        return Err(Errno::EINVAL.into());
    }
    let children = match (a[0] as u32, u32::try_from(id)) {
        (linux::P_ALL, _) => WaitedChildren::All,
        (linux::P_PID, Ok(id @ 1..)) => WaitedChildren::One(TaskId(id)),
        (linux::P_PGID, Ok(0)) => WaitedChildren::Group(scheduler().process(thread.process).group),
        (linux::P_PGID, Ok(id)) => WaitedChildren::Group(TaskId(id)),
        (linux::P_PIDFD, Ok(fd)) => {
            let open = thread.open_file(fd.into())?;
            let OpenTarget::Process(handle) = &open.target else { return Err(Errno::EBADF.into()) };
            WaitedChildren::One(**handle)
        }
        _ => return Err(Errno::EINVAL.into()),
    };
    let outcome = wait(thread, children, options)?;
    let (mut bytes, mut usage) = ([0; 128], None);
    if let WaitOutcome::Found(child) = outcome {
        let info = match child.event {
            ChildEvent::Ended(end) => SigInfo::of_end(SIGCHLD, child.id, child.user, end),
            ChildEvent::Job(event) => SigInfo::of_job(child.id, child.user, event),
        };
        bytes = info.bytes();
        usage = Some(child.usage);
    }
    if let Some(usage) = usage.filter(|_| a[4] != 0) {
        thread.space.write(address(a[4]), &usage.bytes())?;
    }
    if a[2] != 0 {
        // The fields that describe a child; the others stay as they are.
        thread.space.write(address(a[2]), &bytes[..12])?;
        thread.space.write(address(a[2]).checked_add(16).ok_or(Errno::EFAULT)?, &bytes[16..28])?;
    }
    Ok(0)
}
