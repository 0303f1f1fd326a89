//! Information about the process and the machine: ids, names, memory, CPUs.

use super::transfer::{TRANSFER_MAX, after};
use super::{Arguments, address, credential};
use crate::credentials::Credentials;
use crate::errno::Errno;
use crate::memory::mm;
use crate::node_files;
use crate::signal::NSIG;
use crate::system_name::{LEN_MAX, SystemName};
use crate::task::{NAME_MAX, SyscallResult, Thread, scheduler};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use linux_raw_sys::general as linux;
use linux_raw_sys::prctl;
use pagewright_mm::ThpDisabled;
use pagewright_plant::plant;
use pagewright_types::PAGE_SIZE;

pub(super) fn getpid(thread: &mut Thread, _: Arguments) -> SyscallResult {
    Ok(thread.process.0.into())
}

pub(super) fn gettid(thread: &mut Thread, _: Arguments) -> SyscallResult {
    Ok(thread.id.0.into())
}

pub(super) fn getppid(thread: &mut Thread, _: Arguments) -> SyscallResult {
    let parent = scheduler().process(thread.process).parent;
    Ok(if parent == thread.process { 0 } else { parent.0.into() })
}

pub(super) fn set_tid_address(thread: &mut Thread, a: Arguments) -> SyscallResult {
    thread.clear_child_tid = address(a[0]);
    Ok(thread.id.0.into())
}

/// `getrandom`, whose bytes up to the first bad address count (`get_random_bytes_user`).
pub(super) fn getrandom(thread: &mut Thread, a: Arguments) -> SyscallResult {
    const SOURCES: u32 = linux::GRND_RANDOM | linux::GRND_INSECURE;
    let flags = a[2] as u32;
    if flags & !(linux::GRND_NONBLOCK | SOURCES) != 0 || flags & SOURCES == SOURCES {
        return Err(Errno::EINVAL.into());
    }
    let len = a[1].min(TRANSFER_MAX);
    let mut stored = 0;
    while stored < len {
        let bytes = random((len - stored).min(PAGE_SIZE) as usize);
        let at = a[0].checked_add(stored).ok_or(Errno::EFAULT);
        let copied = at.map_or(0, |at| thread.space.write_some(address(at), &bytes));
        stored += copied as u64;
        if copied < bytes.len() {
            return Ok(after(stored, Errno::EFAULT)?);
        }
    }
    Ok(stored)
}

/// `getrusage`.
pub(super) fn getrusage(thread: &mut Thread, a: Arguments) -> SyscallResult {
    const SELF: i32 = linux::RUSAGE_SELF as i32;
    const THREAD: i32 = linux::RUSAGE_THREAD as i32;
    let usage = {
        let mut scheduler = scheduler();
        scheduler.account(thread);
        match a[0] as i32 {
            SELF => scheduler.usage_of(thread.process),
            THREAD => {
                let mut usage = thread.usage;
                usage.note_peak(thread.space.0.rss().peak_bytes());
                usage
            }
            linux::RUSAGE_CHILDREN => scheduler.process(thread.process).children_usage,
            _ => return Err(Errno::EINVAL.into()),
        }
    };
    thread.space.write(address(a[1]), &usage.bytes())?;
    Ok(0)
}

/// Pseudorandom bytes, which are the same in every run.
pub(crate) fn random(count: usize) -> Vec<u8> {
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

/// The release of the kernel, as `uname` and `/proc` show it.
pub(crate) const RELEASE: &str = "6.1.0-pagewright";

/// Its version.
pub(crate) const VERSION: &str = "#1";

pub(super) fn uname(thread: &mut Thread, a: Arguments) -> SyscallResult {
    const FIELD: usize = 65;
    let machine = if cfg!(target_arch = "x86_64") { "x86_64" } else { "aarch64" };
    let mut bytes = [0; 6 * FIELD];
    let (host, domain) = (SystemName::Host.get(), SystemName::Domain.get());
    let fields = [b"Linux", &*host, RELEASE.as_bytes(), VERSION.as_bytes(), machine.as_bytes(), &*domain];
    for (index, text) in fields.into_iter().enumerate() {
        bytes[index * FIELD..index * FIELD + text.len()].copy_from_slice(text);
    }
    thread.space.write(address(a[0]), &bytes)?;
    Ok(0)
}

/// `sethostname`.
pub(super) fn sethostname(thread: &mut Thread, a: Arguments) -> SyscallResult {
    set_name(thread, a, SystemName::Host)
}

/// `setdomainname`.
pub(super) fn setdomainname(thread: &mut Thread, a: Arguments) -> SyscallResult {
    set_name(thread, a, SystemName::Domain)
}

fn set_name(thread: &Thread, a: Arguments, name: SystemName) -> SyscallResult {
    thread.credentials.need(linux::CAP_SYS_ADMIN)?;
    let len = usize::try_from(a[1] as i32).ok().filter(|len| *len <= LEN_MAX).ok_or(Errno::EINVAL)?;
    name.set(&thread.space.read_vec(address(a[0]), len)?)?;
    Ok(0)
}

pub(super) fn sysinfo(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let frames = mm().tlb().frames();
    let mut bytes = [0; 112];
    let mut put = |at: usize, value: u64| bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    put(0, pagewright_hal::time::now_ns() / 1_000_000_000);
    put(32, frames.managed() * PAGE_SIZE);
    put(40, frames.available() * PAGE_SIZE);
    let (swap, free_swap) = mm().swap_slots();
    put(64, swap * PAGE_SIZE);
    put(72, free_swap * PAGE_SIZE);
    put(80, scheduler().processes.len() as u64 & 0xffff);
    // Memory is in units of one byte.
    bytes[104..108].copy_from_slice(&1_u32.to_le_bytes());
    thread.space.write(address(a[0]), &bytes)?;
    Ok(0)
}

/// `PR_SET_COW_PTE` of the series *Copy-On-Write Page Table*, which Linux never merged.
const PR_SET_COW_PTE: u32 = 65;

pub(super) fn prctl(thread: &mut Thread, a: Arguments) -> SyscallResult {
    match a[0] as u32 {
        prctl::PR_SET_NAME => {
            let name = thread.space.read_name(address(a[1]), NAME_MAX)?;
            if let Some(entry) = scheduler().threads.get_mut(&thread.id) {
                entry.name = Some(name);
            }
            Ok(0)
        }
        prctl::PR_GET_NAME => {
            let mut bytes = [0; 16];
            let name = scheduler().name_of(thread.id);
            let len = name.len().min(NAME_MAX);
            bytes[..len].copy_from_slice(&name.as_bytes()[..len]);
            thread.space.write(address(a[1]), &bytes)?;
            Ok(0)
        }
        PR_SET_COW_PTE => {
            mm().set_cow_page_tables(&thread.space.0)?;
            Ok(0)
        }
        prctl::PR_SET_PDEATHSIG => {
            let signal = u8::try_from(a[1]).ok().filter(|signal| usize::from(*signal) <= NSIG).ok_or(Errno::EINVAL)?;
            scheduler().process(thread.process).parent_death_signal = signal;
            Ok(0)
        }
        prctl::PR_GET_PDEATHSIG => {
            let signal = scheduler().process(thread.process).parent_death_signal;
            thread.space.write_u32(address(a[1]), signal.into())?;
            Ok(0)
        }
        prctl::PR_SET_DUMPABLE if a[1] > 1 => Err(Errno::EINVAL.into()),
        prctl::PR_SET_DUMPABLE => {
            scheduler().process(thread.process).is_dumpable = a[1] == 1;
            Ok(0)
        }
        prctl::PR_GET_DUMPABLE => Ok(scheduler().process(thread.process).is_dumpable.into()),
        prctl::PR_SET_NO_NEW_PRIVS if a[1..5] != [1, 0, 0, 0] => Err(Errno::EINVAL.into()),
        prctl::PR_SET_NO_NEW_PRIVS => {
            let new = Credentials { no_new_privileges: true, ..(*thread.credentials).clone() };
            scheduler().set_credentials(thread, new);
            Ok(0)
        }
        prctl::PR_GET_NO_NEW_PRIVS if a[1..5] != [0; 4] => Err(Errno::EINVAL.into()),
        prctl::PR_GET_NO_NEW_PRIVS => Ok(thread.credentials.no_new_privileges.into()),
        prctl::PR_CAPBSET_READ => credential::bounding_set(thread, a[1], false),
        prctl::PR_CAPBSET_DROP => credential::bounding_set(thread, a[1], true),
        prctl::PR_SET_KEEPCAPS => credential::keep_capabilities(thread, a[1]),
        prctl::PR_GET_KEEPCAPS => Ok(thread.credentials.keeps_capabilities.into()),
        prctl::PR_SET_THP_DISABLE => set_thp_disable(thread, [a[1], a[2], a[3], a[4]]),
        prctl::PR_GET_THP_DISABLE if a[1..5] != [0; 4] => Err(Errno::EINVAL.into()),
        prctl::PR_GET_THP_DISABLE => Ok(thread.space.0.thp_disabled() as u64),
        _ => Err(Errno::EINVAL.into()),
    }
}

/// `PR_THP_DISABLE_EXCEPT_ADVISED` of Linux 6.18.
const EXCEPT_ADVISED: u64 = 1 << 1;

/// `prctl(PR_SET_THP_DISABLE)` (`prctl_set_thp_disable`).
fn set_thp_disable(thread: &Thread, [disable, flags, zeroes @ ..]: [u64; 4]) -> SyscallResult {
    let disabled = match (disable, flags, zeroes) {
        (0, 0, [0, 0]) => ThpDisabled::No,
        (1.., 0, [0, 0]) => ThpDisabled::Yes,
        (1.., EXCEPT_ADVISED, [0, 0]) => ThpDisabled::ExceptAdvised,
        _ => return Err(Errno::EINVAL.into()),
    };
    thread.space.0.set_thp_disabled(disabled);
    Ok(0)
}

/// `getcpu`: the CPU of the thread, and its node.
pub(super) fn getcpu(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let cpu = pagewright_hal::this_cpu();
    let node = node_files::node_of_cpu(cpu.index()).map_or(0, |node| node.id.index());
    let node = plant!(NodeOfCpuIgnored; 0, node);
    for (at, value) in [(a[0], cpu.index()), (a[1], node)] {
        if at != 0 {
            thread.space.write_u32(address(at), value as u32)?;
        }
    }
    Ok(0)
}
