//! Time: clocks, sleeping, giving way.

use super::{Arguments, address};
use crate::cpu::sleep_until;
use crate::errno::Errno;
use crate::task::{Answer, Stop, Thread};
use linux_raw_sys::general as linux;
use pagewright_hal::time;
use pagewright_types::VirtAddr;
use syscalls::Sysno;

const NS: u64 = 1_000_000_000;

/// Serves the calls of this file.
pub(super) fn serve(thread: &mut Thread, call: Sysno, a: Arguments) -> Answer {
    match call {
        Sysno::clock_gettime => {
            let now = clock(a[0] as u32)?;
            write_time(thread, address(a[1]), now)
        }
        Sysno::clock_getres => {
            clock(a[0] as u32)?;
            if a[1] == 0 { Ok(0) } else { write_time(thread, address(a[1]), 1) }
        }
        Sysno::gettimeofday => {
            let now = clock(linux::CLOCK_REALTIME)?;
            thread.space.write_u64(address(a[0]), now / NS)?;
            thread.space.write_u64(address(a[0] + 8), now % NS / 1000)?;
            Ok(0)
        }
        Sysno::nanosleep => {
            let length = read_time(thread, address(a[0]))?;
            Err(sleep_until(time::now_ns().saturating_add(length)))
        }
        Sysno::clock_nanosleep => {
            let start = clock(a[0] as u32)?;
            let length = read_time(thread, address(a[2]))?;
            let absolute = a[1] & u64::from(linux::TIMER_ABSTIME) != 0;
            let length = if absolute { length.saturating_sub(start) } else { length };
            Err(sleep_until(time::now_ns().saturating_add(length)))
        }
        Sysno::sched_yield => Err(Stop::Yield(0)),
        other => unreachable!("{other} is not about time"),
    }
}

/// What a clock shows, in ns. CPU time is counted by nobody: those clocks show the time since boot.
fn clock(which: u32) -> Result<u64, Errno> {
    match which {
        linux::CLOCK_REALTIME | linux::CLOCK_REALTIME_COARSE | linux::CLOCK_TAI => {
            Ok(time::boot_seconds() * NS + time::now_ns())
        }
        linux::CLOCK_MONOTONIC
        | linux::CLOCK_MONOTONIC_RAW
        | linux::CLOCK_MONOTONIC_COARSE
        | linux::CLOCK_BOOTTIME
        | linux::CLOCK_PROCESS_CPUTIME_ID
        | linux::CLOCK_THREAD_CPUTIME_ID => Ok(time::now_ns()),
        _ => Err(Errno::EINVAL),
    }
}

fn write_time(thread: &Thread, to: VirtAddr, ns: u64) -> Answer {
    thread.space.write_u64(to, ns / NS)?;
    thread.space.write_u64(to.checked_add(8).ok_or(Errno::EFAULT)?, ns % NS)?;
    Ok(0)
}

fn read_time(thread: &Thread, from: VirtAddr) -> Result<u64, Errno> {
    let seconds = thread.space.read_u64(from)?;
    let ns = thread.space.read_u64(from.checked_add(8).ok_or(Errno::EFAULT)?)?;
    if ns >= NS {
        return Err(Errno::EINVAL);
    }
    Ok(seconds.saturating_mul(NS).saturating_add(ns))
}
