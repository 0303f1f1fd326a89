//! What a process asks about itself and the machine: numbers, limits, names.
//!
//! Everybody is root, in one session.

use super::{Arguments, address};
use crate::errno::Errno;
use crate::limits::Rlimit;
use crate::memory::mm;
use crate::task::{Answer, Id, Stop, Thread, state};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use linux_raw_sys::prctl;
use pagewright_arch::Effects;
use pagewright_types::PAGE_SIZE;
use syscalls::Sysno;

/// Serves the calls of this file; `None` if it is none of them.
pub(super) fn serve(thread: &mut Thread, call: Sysno, a: Arguments) -> Option<Answer> {
    Some(match call {
        Sysno::getpid => Ok(u64::from(thread.process.0)),
        Sysno::gettid => Ok(u64::from(thread.id.0)),
        Sysno::getppid => {
            let parent = state().process(thread.process).parent;
            Ok(if parent == thread.process { 0 } else { u64::from(parent.0) })
        }
        Sysno::getuid | Sysno::geteuid | Sysno::getgid | Sysno::getegid => Ok(0),
        Sysno::setuid | Sysno::setgid => Ok(0),
        Sysno::getpgid => group(thread, a[0]),
        Sysno::setpgid => set_group(thread, a),
        Sysno::setsid => {
            state().process(thread.process).group = thread.process;
            Ok(u64::from(thread.process.0))
        }
        Sysno::getsid => Ok(1),
        Sysno::set_tid_address => {
            thread.clear_at_exit = address(a[0]);
            Ok(u64::from(thread.id.0))
        }
        // Robust lists are walked when a thread ends without unlocking; nobody does here.
        Sysno::set_robust_list => Ok(0),
        Sysno::prlimit64 => limits(thread, chosen(thread, a[0]), [a[1], a[2], a[3]]),
        Sysno::getrlimit => limits(thread, thread.process, [a[0], 0, a[1]]),
        Sysno::setrlimit => limits(thread, thread.process, [a[0], a[1], 0]),
        Sysno::getrandom => {
            let bytes = random((a[1] as usize).min(256));
            thread.space.write(address(a[0]), &bytes).map(|()| bytes.len() as u64).map_err(Stop::from)
        }
        Sysno::uname => name(thread, a),
        Sysno::sysinfo => machine(thread, a),
        Sysno::getrusage => thread.space.write(address(a[1]), &[0; 144]).map(|()| 0).map_err(Stop::from),
        Sysno::prctl => control(thread, a),
        Sysno::sched_getaffinity => affinity(thread, a),
        Sysno::sched_setaffinity => Ok(0),
        _ => return None,
    })
}

/// Bytes that differ from call to call, and not from run to run.
pub(super) fn random(count: usize) -> Vec<u8> {
    static STATE: AtomicU64 = AtomicU64::new(0x9e37_79b9_7f4a_7c15);
    // SplitMix64 (Steele, Lea, Flood 2014).
    let next = || {
        let mut z = STATE.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    };
    let mut bytes: Vec<u8> = (0..count.div_ceil(8)).flat_map(|_| next().to_le_bytes()).collect();
    bytes.truncate(count);
    bytes
}

fn chosen(thread: &Thread, id: u64) -> Id {
    if id == 0 { thread.process } else { Id(id as u32) }
}

fn group(thread: &Thread, id: u64) -> Answer {
    let state = state();
    let process = state.processes.get(&chosen(thread, id)).ok_or(Errno::ESRCH)?;
    Ok(u64::from(process.group.0))
}

fn set_group(thread: &Thread, a: Arguments) -> Answer {
    let id = chosen(thread, a[0]);
    let group = if a[1] == 0 { id } else { Id(a[1] as u32) };
    state().processes.get_mut(&id).ok_or(Errno::ESRCH)?.group = group;
    Ok(0)
}

/// `prlimit64` and its older forms: the limit's number, where the new one stands and where the old
/// one goes, or 0 for either.
fn limits(thread: &Thread, id: Id, [number, new, old]: [u64; 3]) -> Answer {
    let new = match new {
        0 => None,
        at => Some(Rlimit { soft: thread.space.read_u64(address(at))?, hard: thread.space.read_u64(address(at + 8))? }),
    };
    let (before, changed) = {
        let mut state = state();
        let process = state.processes.get_mut(&id).ok_or(Errno::ESRCH)?;
        let before = process.limits.get(number)?;
        if let Some(new) = new {
            process.limits.set(number, new)?;
        }
        (before, new.and_then(|_| Some((process.space.upgrade()?, process.limits.of_space()))))
    };
    if let Some((space, limits)) = changed {
        mm().set_limits(&space.0, limits);
    }
    if old != 0 {
        thread.space.write_u64(address(old), before.soft)?;
        thread.space.write_u64(address(old + 8), before.hard)?;
    }
    Ok(0)
}

fn name(thread: &Thread, a: Arguments) -> Answer {
    const FIELD: usize = 65;
    let machine = if cfg!(target_arch = "x86_64") { "x86_64" } else { "aarch64" };
    let mut bytes = [0; 6 * FIELD];
    for (index, text) in ["Linux", "pagewright", "6.1.0-pagewright", "#1", machine, "(none)"].into_iter().enumerate() {
        bytes[index * FIELD..index * FIELD + text.len()].copy_from_slice(text.as_bytes());
    }
    thread.space.write(address(a[0]), &bytes)?;
    Ok(0)
}

fn machine(thread: &Thread, a: Arguments) -> Answer {
    let frames = mm().tlb().frames();
    let mut bytes = [0; 112];
    let mut put = |at: usize, value: u64| bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    put(0, pagewright_hal::time::now_ns() / 1_000_000_000);
    put(32, frames.managed() * PAGE_SIZE);
    put(40, frames.available() * PAGE_SIZE);
    let (swap, free_swap) = mm().swap_slots();
    put(64, swap * PAGE_SIZE);
    put(72, free_swap * PAGE_SIZE);
    put(80, state().processes.len() as u64 & 0xffff);
    // Bytes a unit of memory.
    bytes[104..108].copy_from_slice(&1_u32.to_le_bytes());
    thread.space.write(address(a[0]), &bytes)?;
    Ok(0)
}

fn control(thread: &Thread, a: Arguments) -> Answer {
    match a[0] as u32 {
        prctl::PR_SET_NAME => {
            thread.space.read_array::<1>(address(a[1]))?;
            Ok(0)
        }
        prctl::PR_GET_NAME => {
            let mut bytes = [0; 16];
            let mut state = state();
            let name = state.process(thread.process).name();
            let len = name.len().min(15);
            bytes[..len].copy_from_slice(&name.as_bytes()[..len]);
            drop(state);
            thread.space.write(address(a[1]), &bytes)?;
            Ok(0)
        }
        prctl::PR_SET_PDEATHSIG | prctl::PR_SET_DUMPABLE | prctl::PR_SET_NO_NEW_PRIVS => Ok(0),
        prctl::PR_GET_DUMPABLE => Ok(1),
        // Names of mappings are for views.
        prctl::PR_SET_VMA => Ok(0),
        _ => Err(Errno::EINVAL.into()),
    }
}

fn affinity(thread: &Thread, a: Arguments) -> Answer {
    let online = pagewright_hal::Machine.online();
    let word = online.words()[0];
    if a[1] < 8 {
        return Err(Errno::EINVAL.into());
    }
    thread.space.write_u64(address(a[2]), word)?;
    Ok(8)
}
