//! Clocks, sleeping, yielding.

use super::{Arguments, address};
use crate::cpu::sleep_until;
use crate::errno::Errno;
use crate::task::{SyscallResult, Thread, scheduler};
use crate::timers;
use alloc::vec::Vec;
use linux_raw_sys::general as linux;
use pagewright_hal::time;
use pagewright_types::VirtAddr;

const NS: u64 = 1_000_000_000;

pub(super) fn clock_gettime(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let now = clock(thread, a[0] as u32)?;
    write_time(thread, address(a[1]), now)
}

pub(super) fn clock_getres(thread: &mut Thread, a: Arguments) -> SyscallResult {
    clock(thread, a[0] as u32)?;
    if a[1] == 0 { Ok(0) } else { write_time(thread, address(a[1]), 1) }
}

/// `gettimeofday`; the time zone is that of Greenwich.
pub(super) fn gettimeofday(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let now = timers::realtime_ns();
    if a[0] != 0 {
        thread.space.write_u64(address(a[0]), now / NS)?;
        thread.space.write_u64(address(a[0].wrapping_add(8)), now % NS / 1000)?;
    }
    if a[1] != 0 {
        thread.space.write_u64(address(a[1]), 0)?;
    }
    Ok(0)
}

pub(super) fn nanosleep(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let length = read_time(thread, address(a[0]))?;
    sleep(thread, length)
}

pub(super) fn clock_nanosleep(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let start = match a[0] as u32 {
        linux::CLOCK_REALTIME | linux::CLOCK_TAI | linux::CLOCK_MONOTONIC | linux::CLOCK_BOOTTIME => {
            clock(thread, a[0] as u32)?
        }
        which => {
            clock(thread, which)?;
            // Sleeping for CPU time is not supported.
            return Err(Errno::EOPNOTSUPP.into());
        }
    };
    let length = read_time(thread, address(a[2]))?;
    let length = if is_absolute(a) { length.saturating_sub(start) } else { length };
    sleep(thread, length)
}

/// Whether `clock_nanosleep` got an absolute time.
pub(super) fn is_absolute(a: Arguments) -> bool {
    a[1] & u64::from(linux::TIMER_ABSTIME) != 0
}

/// Sleeps for `length` ns from the first call on, also if ignored signals interrupt it.
fn sleep(thread: &mut Thread, length: u64) -> SyscallResult {
    let now = time::now_ns();
    let deadline = *thread.deadline.get_or_insert(now.saturating_add(length));
    if deadline <= now { Ok(0) } else { Err(sleep_until(deadline)) }
}

/// Stores the remaining time of a thread that slept.
pub(super) fn store_remaining(thread: &Thread, to: VirtAddr) {
    let left = thread.deadline.unwrap_or(0).saturating_sub(time::now_ns());
    if to > VirtAddr::ZERO {
        // The call fails with `EINTR` even if the address is bad.
        let _ = write_time(thread, to, left);
    }
}

/// `times`, in ticks of 1/100 s (`USER_HZ`).
pub(super) fn times(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let (own, children) = {
        let mut scheduler = scheduler();
        scheduler.account(thread);
        let process = scheduler.process(thread.process);
        (process.usage.user_and_kernel_ns(), process.children_usage.user_and_kernel_ns())
    };
    if a[0] != 0 {
        let ticks = [own.0, own.1, children.0, children.1].map(|ns| ns / (NS / 100));
        let bytes: Vec<u8> = ticks.iter().flat_map(|ticks| ticks.to_le_bytes()).collect();
        thread.space.write(address(a[0]), &bytes)?;
    }
    Ok(time::now_ns() / (NS / 100))
}

/// The time of a clock, in ns.
fn clock(thread: &mut Thread, which: u32) -> Result<u64, Errno> {
    match which {
        linux::CLOCK_REALTIME | linux::CLOCK_REALTIME_COARSE | linux::CLOCK_TAI => Ok(timers::realtime_ns()),
        linux::CLOCK_MONOTONIC | linux::CLOCK_MONOTONIC_RAW | linux::CLOCK_MONOTONIC_COARSE | linux::CLOCK_BOOTTIME => {
            Ok(time::now_ns())
        }
        linux::CLOCK_PROCESS_CPUTIME_ID => {
            let mut scheduler = scheduler();
            scheduler.account(thread);
            Ok(scheduler.process(thread.process).usage.cpu_ns)
        }
        linux::CLOCK_THREAD_CPUTIME_ID => {
            scheduler().account(thread);
            Ok(thread.usage.cpu_ns)
        }
        _ => Err(Errno::EINVAL),
    }
}

pub(super) fn write_time(thread: &Thread, to: VirtAddr, ns: u64) -> SyscallResult {
    thread.space.write_u64(to, ns / NS)?;
    thread.space.write_u64(to.checked_add(8).ok_or(Errno::EFAULT)?, ns % NS)?;
    Ok(0)
}

/// Reads a `struct timespec`, in ns (`timespec64_valid`).
pub(super) fn read_time(thread: &Thread, from: VirtAddr) -> Result<u64, Errno> {
    let seconds = thread.space.read_u64(from)?;
    let ns = thread.space.read_u64(from.checked_add(8).ok_or(Errno::EFAULT)?)?;
    if seconds.cast_signed() < 0 || ns >= NS {
        return Err(Errno::EINVAL);
    }
    Ok(seconds.saturating_mul(NS).saturating_add(ns))
}

/// Reads the time at `at` that limits a wait; there is no limit at 0.
pub(super) fn read_timeout(thread: &Thread, at: u64) -> Result<Option<u64>, Errno> {
    if at == 0 { Ok(None) } else { read_time(thread, address(at)).map(Some) }
}
