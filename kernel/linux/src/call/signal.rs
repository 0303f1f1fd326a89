//! Calls for signals.

use super::time::read_timeout;
use super::{Arguments, address};
use crate::credentials::Credentials;
use crate::errno::Errno;
use crate::file::OpenTarget;
use crate::procfs;
use crate::signal::{self, NSIG, SIGCONT, SigAction, SigCause, SigInfo, SignalSet};
use crate::task::{CallStop, INIT, Scheduler, SyscallResult, TaskId, Thread, WaitReason, scheduler};
use alloc::vec::Vec;
use core::ops::Bound;
use linux_raw_sys::general as linux;

/// The size of a signal set in bytes, which programs pass.
const SET_BYTES: u64 = 8;

fn number(argument: u64) -> Result<u8, Errno> {
    u8::try_from(argument).ok().filter(|signal| usize::from(*signal) <= NSIG).ok_or(Errno::EINVAL)
}

/// `rt_sigaction`, whose structure is the kernel's: handler, flags, restorer, mask.
pub(super) fn rt_sigaction(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let signal = number(a[0])?;
    if signal == 0 || a[3] != SET_BYTES || a[1] != 0 && SignalSet(1 << (signal - 1)).blockable() == SignalSet::default()
    {
        return Err(Errno::EINVAL.into());
    }
    let new = match a[1] {
        0 => None,
        at => Some(thread.space.read_array::<32>(address(at))?),
    };
    let (old, ignored) = {
        let mut actions = thread.actions.lock();
        let slot = &mut actions.of[usize::from(signal) - 1];
        let old = *slot;
        if let Some(bytes) = new {
            let word = |index: usize| bytes[index * 8..index * 8 + 8].try_into().map_or(0, u64::from_le_bytes);
            *slot =
                SigAction { handler: word(0), flags: word(1), restorer: word(2), mask: SignalSet(word(3)).blockable() };
        }
        (old, new.is_some() && actions.ignores(signal))
    };
    if ignored {
        scheduler().drop_pending(thread.process, signal);
    }
    if a[2] != 0 {
        let words = [old.handler, old.flags, old.restorer, old.mask.0];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        thread.space.write(address(a[2]), &bytes)?;
    }
    Ok(0)
}

pub(super) fn rt_sigprocmask(thread: &mut Thread, a: Arguments) -> SyscallResult {
    if a[3] != SET_BYTES {
        return Err(Errno::EINVAL.into());
    }
    let old = thread.blocked;
    if a[1] != 0 {
        let set = SignalSet(thread.space.read_u64(address(a[1]))?);
        thread.blocked = match a[0] as u32 {
            linux::SIG_BLOCK => SignalSet(old.0 | set.0),
            linux::SIG_UNBLOCK => SignalSet(old.0 & !set.0),
            linux::SIG_SETMASK => set,
            _ => return Err(Errno::EINVAL.into()),
        }
        .blockable();
    }
    if a[2] != 0 {
        thread.space.write_u64(address(a[2]), old.0)?;
    }
    Ok(0)
}

pub(super) fn rt_sigreturn(thread: &mut Thread, _: Arguments) -> SyscallResult {
    if signal::pop_frame(thread).is_err() {
        return Err(CallStop::ExitProcess(crate::process::ExitStatus::Signal(signal::SIGSEGV)));
    }
    Err(CallStop::Done)
}

/// `rt_sigpending`: the signals that are pending and blocked.
pub(super) fn rt_sigpending(thread: &mut Thread, a: Arguments) -> SyscallResult {
    if a[1] > SET_BYTES {
        return Err(Errno::EINVAL.into());
    }
    let set = scheduler().pending(thread).0 & thread.blocked.0;
    thread.space.write(address(a[0]), &set.to_le_bytes()[..a[1] as usize])?;
    Ok(0)
}

/// `rt_sigtimedwait`: takes a signal of a set, and waits until there is one.
pub(super) fn rt_sigtimedwait(thread: &mut Thread, a: Arguments) -> SyscallResult {
    if a[3] != SET_BYTES {
        return Err(Errno::EINVAL.into());
    }
    let set = SignalSet(thread.space.read_u64(address(a[0]))?).blockable();
    let timeout = read_timeout(thread, a[2])?;
    let mut scheduler = scheduler();
    if let Some(info) = scheduler.take_signal_of(thread, set) {
        drop(scheduler);
        if a[1] != 0 {
            thread.space.write(address(a[1]), &info.bytes())?;
        }
        return Ok(info.signal.into());
    }
    let now = pagewright_hal::time::now_ns();
    let deadline = thread.deadline.or(timeout.map(|timeout| now.saturating_add(timeout)));
    if deadline.is_some_and(|deadline| deadline <= now) {
        return Err(Errno::EAGAIN.into());
    }
    thread.deadline = deadline;
    Err(CallStop::Sleep { scheduler, wait: WaitReason::SignalOf(set), deadline, at_deadline: Errno::EAGAIN.result() })
}

/// `rt_sigqueueinfo`.
pub(super) fn rt_sigqueueinfo(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let target = TaskId(a[0] as u32);
    let info = given_info(thread, a[1], a[2], target)?;
    let mut scheduler = scheduler();
    let alive = scheduler.processes.get(&target).ok_or(Errno::ESRCH)?.exit_status.is_none();
    if !may_signal(&scheduler, thread, target, info.map_or(0, |info| info.signal)) {
        return Err(Errno::EPERM.into());
    }
    if alive && let Some(info) = info {
        scheduler.post(target, info);
    }
    Ok(0)
}

/// `rt_tgsigqueueinfo`.
pub(super) fn rt_tgsigqueueinfo(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let (of, target) = (TaskId(a[0] as u32), TaskId(a[1] as u32));
    let info = given_info(thread, a[2], a[3], of)?;
    if (a[0] as i32) <= 0 || (a[1] as i32) <= 0 {
        return Err(Errno::EINVAL.into());
    }
    let mut scheduler = scheduler();
    scheduler.threads.get(&target).filter(|known| known.process == of).ok_or(Errno::ESRCH)?;
    if !may_signal(&scheduler, thread, target, info.map_or(0, |info| info.signal)) {
        return Err(Errno::EPERM.into());
    }
    if let Some(info) = info {
        scheduler.post_to_thread(target, info);
    }
    Ok(0)
}

/// `pidfd_send_signal`, to the process of a descriptor or of a directory below `/proc`.
pub(super) fn pidfd_send_signal(thread: &mut Thread, a: Arguments) -> SyscallResult {
    if a[3] as u32 != 0 {
        return Err(Errno::EINVAL.into());
    }
    let open = thread.open_file(a[0])?;
    let handle = &match &open.target {
        OpenTarget::Process(handle) => handle.clone(),
        OpenTarget::Inode(node) => procfs::process_of(thread, node)?,
        _ => return Err(Errno::EBADF.into()),
    };
    let info = match a[2] {
        0 => {
            let signal = number(a[1])?;
            (signal > 0).then_some(SigInfo::sent(signal, signal::SI_USER, thread))
        }
        at if thread.space.read_array::<4>(address(at))? != (a[1] as u32).to_le_bytes() => {
            return Err(Errno::EINVAL.into());
        }
        at => given_info(thread, a[1], at, **handle)?,
    };
    let mut scheduler = scheduler();
    let alive = scheduler.process_of(handle).ok_or(Errno::ESRCH)?.exit_status.is_none();
    if !may_signal(&scheduler, thread, **handle, info.map_or(0, |info| info.signal)) {
        return Err(Errno::EPERM.into());
    }
    if let Some(info) = info.filter(|_| alive) {
        scheduler.post(**handle, info);
    }
    Ok(0)
}

/// The information that a process sends with a signal; `None` for signal 0.
///
/// A process cannot pretend to another one that the kernel or `kill` sent it
/// (`do_rt_sigqueueinfo`).
fn given_info(thread: &Thread, signal: u64, at: u64, target: TaskId) -> Result<Option<SigInfo>, Errno> {
    let bytes: [u8; 32] = thread.space.read_array(address(at))?;
    let word = |at: usize| bytes[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
    let code = (word(8) as u32).cast_signed();
    if (code >= 0 || code == signal::SI_TKILL) && target != thread.process {
        return Err(Errno::EPERM);
    }
    let signal = number(signal)?;
    Ok((signal > 0).then_some(SigInfo { signal, code, cause: SigCause::Queued(word(16), word(24)) }))
}

/// Waits for a signal that is not in a set, which is blocked meanwhile.
///
/// The previous set is restored when the handler returns.
pub(super) fn rt_sigsuspend(thread: &mut Thread, a: Arguments) -> SyscallResult {
    if a[1] != SET_BYTES {
        return Err(Errno::EINVAL.into());
    }
    let set = SignalSet(thread.space.read_u64(address(a[0]))?);
    thread.set_temporary_mask(set);
    Err(wait_for_signal())
}

/// Waits for a signal.
#[cfg(target_arch = "x86_64")]
pub(super) fn pause(_thread: &mut Thread, _: Arguments) -> SyscallResult {
    Err(wait_for_signal())
}

fn wait_for_signal() -> CallStop {
    CallStop::Sleep { scheduler: scheduler(), wait: WaitReason::Signal, deadline: None, at_deadline: 0 }
}

pub(super) fn sigaltstack(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let (start, len) = thread.signal_stack;
    let in_use = thread.is_on_signal_stack();
    if a[0] != 0 {
        let bytes: [u8; 24] = thread.space.read_array(address(a[0]))?;
        let word = |index: usize| bytes[index * 8..index * 8 + 8].try_into().map_or(0, u64::from_le_bytes);
        if in_use {
            return Err(Errno::EPERM.into());
        }
        thread.signal_stack = match word(1) as u32 {
            linux::SS_DISABLE => (0, 0),
            0 | linux::SS_ONSTACK if word(2) < u64::from(linux::MINSIGSTKSZ) => return Err(Errno::ENOMEM.into()),
            0 | linux::SS_ONSTACK => (word(0), word(2)),
            _ => return Err(Errno::EINVAL.into()),
        };
    }
    if a[1] != 0 {
        let flags = match (len, in_use) {
            (0, _) => linux::SS_DISABLE,
            (_, true) => linux::SS_ONSTACK,
            (_, false) => 0,
        };
        let bytes: Vec<u8> = [start, u64::from(flags), len].iter().flat_map(|word| word.to_le_bytes()).collect();
        thread.space.write(address(a[1]), &bytes)?;
    }
    Ok(0)
}

/// `kill`.
///
/// A process that has ended and was not reaped can be named, without an effect.
pub(super) fn kill(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let (to, signal) = (a[0] as i32, number(a[1])?);
    let mut scheduler = scheduler();
    let group = scheduler.process(thread.process).group;
    let chosen = |id: TaskId, of: TaskId| match to {
        1.. => id.0 == to as u32,
        0 => of == group,
        -1 => id != thread.process && id != INIT,
        _ => of.0 == to.unsigned_abs(),
    };
    let info = SigInfo::sent(signal, signal::SI_USER, thread);
    let (mut after, mut found, mut allowed) = (Bound::Unbounded, false, false);
    // One by one, without a list: the call must work when there is no free memory.
    while let Some((target, alive)) = {
        let mut later = scheduler.processes.range((after, Bound::Unbounded));
        later
            .find(|(id, process)| chosen(**id, process.group))
            .map(|(id, process)| (*id, process.exit_status.is_none()))
    } {
        (after, found) = (Bound::Excluded(target), true);
        if !may_signal(&scheduler, thread, target, signal) {
            continue;
        }
        allowed = true;
        if alive && signal != 0 {
            scheduler.post(target, info);
        }
    }
    match (found, allowed) {
        (false, _) => Err(Errno::ESRCH.into()),
        // As in Linux, signals to all processes never fail for lack of permission.
        (true, false) if to != -1 => Err(Errno::EPERM.into()),
        (true, _) => Ok(0),
    }
}

/// Whether a thread may send a signal to another thread or process (`check_kill_permission`).
///
/// Within a session, `SIGCONT` needs no permission.
fn may_signal(scheduler: &Scheduler, thread: &Thread, target: TaskId, signal: u8) -> bool {
    let process = scheduler.threads.get(&target).map_or(target, |entry| entry.process);
    let credentials = scheduler.credentials_of(target);
    let session_of = |id: TaskId| scheduler.processes.get(&id).map(|process| process.session);
    let continues = signal == SIGCONT && session_of(process) == session_of(thread.process);
    let is_allowed = |target: &Credentials| continues || thread.credentials.may_signal(target);
    process == thread.process || credentials.is_none_or(|target| is_allowed(&target))
}

pub(super) fn tkill(thread: &mut Thread, a: Arguments) -> SyscallResult {
    to_thread(thread, None, a[0] as i32, a[1])
}

pub(super) fn tgkill(thread: &mut Thread, a: Arguments) -> SyscallResult {
    to_thread(thread, Some(a[0] as i32), a[1] as i32, a[2])
}

/// Sends a signal to a thread, of process `of` if it is given.
fn to_thread(thread: &Thread, of: Option<i32>, id: i32, signal: u64) -> SyscallResult {
    let signal = number(signal)?;
    if id <= 0 || of.is_some_and(|of| of <= 0) {
        return Err(Errno::EINVAL.into());
    }
    let mut scheduler = scheduler();
    let known = scheduler.threads.get(&TaskId(id as u32));
    if known.is_none_or(|known| of.is_some_and(|of| known.process.0 != of as u32)) {
        return Err(Errno::ESRCH.into());
    }
    if !may_signal(&scheduler, thread, TaskId(id as u32), signal) {
        return Err(Errno::EPERM.into());
    }
    if signal != 0 {
        scheduler.post_to_thread(TaskId(id as u32), SigInfo::sent(signal, signal::SI_TKILL, thread));
    }
    Ok(0)
}
