//! Calls about signals.

use super::{Arguments, address};
use crate::errno::Errno;
use crate::signal::{self, Action, SIGNALS, SignalSet};
use crate::task::{Answer, Id, Stop, Thread, Wait, state};
use alloc::vec::Vec;
use linux_raw_sys::general as linux;
use syscalls::Sysno;

/// Serves the calls of this file.
pub(super) fn serve(thread: &mut Thread, call: Sysno, a: Arguments) -> Answer {
    match call {
        Sysno::rt_sigaction => action(thread, a),
        Sysno::rt_sigprocmask => mask(thread, a),
        Sysno::rt_sigreturn => {
            if signal::pop(thread).is_err() {
                return Err(Stop::ExitProcess(crate::task::End::Signal(signal::SIGSEGV)));
            }
            Err(Stop::Done)
        }
        Sysno::rt_sigsuspend => suspend(thread, a),
        Sysno::sigaltstack => stack(thread, a),
        Sysno::kill => kill(thread, a[0] as i32, a[1]),
        Sysno::tkill => to_thread(a[0] as u32, a[1]),
        Sysno::tgkill => to_thread(a[1] as u32, a[2]),
        other => unreachable!("{other} is not about signals"),
    }
}

fn number(argument: u64) -> Result<u8, Errno> {
    u8::try_from(argument).ok().filter(|signal| usize::from(*signal) <= SIGNALS).ok_or(Errno::EINVAL)
}

/// `struct sigaction` as the kernel has it: handler, flags, restorer, mask.
fn action(thread: &mut Thread, a: Arguments) -> Answer {
    let signal = number(a[0])?;
    if signal == 0 || a[2] != 0 && SignalSet(1 << (signal - 1)).blockable() == SignalSet::default() {
        return Err(Errno::EINVAL.into());
    }
    let new = match a[1] {
        0 => None,
        at => Some(thread.space.read_array::<32>(address(at))?),
    };
    let old = {
        let mut actions = thread.actions.lock();
        let slot = &mut actions.of[usize::from(signal) - 1];
        let old = *slot;
        if let Some(bytes) = new {
            let word = |index: usize| bytes[index * 8..index * 8 + 8].try_into().map_or(0, u64::from_le_bytes);
            *slot =
                Action { handler: word(0), flags: word(1), restorer: word(2), mask: SignalSet(word(3)).blockable() };
        }
        old
    };
    if a[2] != 0 {
        let words = [old.handler, old.flags, old.restorer, old.mask.0];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        thread.space.write(address(a[2]), &bytes)?;
    }
    Ok(0)
}

fn mask(thread: &mut Thread, a: Arguments) -> Answer {
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

/// Waits for a signal outside of a set; the old set comes back when its handler has been called.
fn suspend(thread: &mut Thread, a: Arguments) -> Answer {
    let set = SignalSet(thread.space.read_u64(address(a[0]))?).blockable();
    wait_blocking(thread, set)
}

/// Waits for a signal.
#[cfg(target_arch = "x86_64")]
pub(super) fn pause(thread: &mut Thread) -> Answer {
    wait_blocking(thread, thread.blocked)
}

fn wait_blocking(thread: &mut Thread, set: SignalSet) -> Answer {
    thread.blocked_before = Some(thread.blocked_before.unwrap_or(thread.blocked));
    thread.blocked = set;
    Err(Stop::Sleep { state: state(), wait: Wait::Signal, deadline: None, late: 0 })
}

fn stack(thread: &mut Thread, a: Arguments) -> Answer {
    let (start, len) = thread.signal_stack;
    if a[1] != 0 {
        let flags = if len == 0 { linux::SS_DISABLE } else { 0 };
        let bytes: Vec<u8> = [start, u64::from(flags), len].iter().flat_map(|word| word.to_le_bytes()).collect();
        thread.space.write(address(a[1]), &bytes)?;
    }
    if a[0] != 0 {
        let bytes: [u8; 24] = thread.space.read_array(address(a[0]))?;
        let word = |index: usize| bytes[index * 8..index * 8 + 8].try_into().map_or(0, u64::from_le_bytes);
        let disabled = word(1) & u64::from(linux::SS_DISABLE) != 0;
        thread.signal_stack = if disabled { (0, 0) } else { (word(0), word(2)) };
    }
    Ok(0)
}

fn kill(thread: &Thread, to: i32, signal: u64) -> Answer {
    let signal = number(signal)?;
    let mut state = state();
    let group = state.process(thread.process).group;
    let chosen = |id: Id, of: Id| match to {
        1.. => id.0 == to as u32,
        0 => of == group,
        -1 => id != thread.process,
        _ => of.0 == to.unsigned_abs(),
    };
    let alive = state.processes.iter().filter(|(_, process)| process.ended.is_none());
    let targets: Vec<Id> = alive.filter(|(id, process)| chosen(**id, process.group)).map(|(id, _)| *id).collect();
    if targets.is_empty() {
        return Err(Errno::ESRCH.into());
    }
    for target in targets.into_iter().filter(|_| signal != 0) {
        state.post(target, signal);
    }
    Ok(0)
}

fn to_thread(id: u32, signal: u64) -> Answer {
    let signal = number(signal)?;
    if signal != 0 {
        state().post_to_thread(Id(id), signal);
    }
    Ok(0)
}
