//! `alarm`, `setitimer`, `getitimer`, `timer_*`: timers that send signals.

use super::{Arguments, address};
use crate::errno::Errno;
use crate::signal::{NSIG, SIGALRM};
use crate::task::{SyscallResult, TaskId, Thread, scheduler};
use crate::timers::{Timer, TimerClock, TimerId, TimerSetting};
use linux_raw_sys::general as linux;
use pagewright_types::VirtAddr;

const NS: u64 = 1_000_000_000;
const US: u64 = 1_000_000;
/// The parts of a second in `struct timeval` and `struct timespec`.
const TIMEVAL: u64 = US;
const TIMESPEC: u64 = NS;

/// `alarm`, whose result is the time that the previous one had left, in seconds.
///
/// It is rounded, and not to 0.
#[cfg(target_arch = "x86_64")]
pub(super) fn alarm(thread: &mut Thread, a: Arguments) -> SyscallResult {
    // `alarm_setitimer`.
    let setting = TimerSetting { value: (a[0] & 0xffff_ffff).min(i32::MAX as u64) * NS, interval: 0 };
    let old = scheduler().set_timer(thread, TimerId::Interval(0), setting, false).ok_or(Errno::EINVAL)?;
    let (seconds, ns) = (old.value / NS, old.value % NS);
    Ok(seconds + u64::from(seconds == 0 && ns > 0 || ns >= NS / 2))
}

/// `setitimer`; without a new value, as in Linux, it disarms the timer.
pub(super) fn setitimer(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let new = match a[1] {
        0 => TimerSetting::default(),
        at => read_setting(thread, address(at), TIMEVAL)?,
    };
    let id = interval_timer(a[0])?;
    let old = scheduler().set_timer(thread, id, new, false).ok_or(Errno::EINVAL)?;
    if a[2] != 0 {
        write_setting(thread, address(a[2]), old, TIMEVAL)?;
    }
    Ok(0)
}

/// `getitimer`.
pub(super) fn getitimer(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let id = interval_timer(a[0])?;
    let setting = scheduler().timer_setting(thread, id).ok_or(Errno::EINVAL)?;
    write_setting(thread, address(a[1]), setting, TIMEVAL)?;
    Ok(0)
}

fn interval_timer(which: u64) -> Result<TimerId, Errno> {
    match which as u32 {
        linux::ITIMER_REAL | linux::ITIMER_VIRTUAL | linux::ITIMER_PROF => Ok(TimerId::Interval(which as u32 as usize)),
        _ => Err(Errno::EINVAL),
    }
}

/// Reads an interval and a value.
fn read_setting(thread: &Thread, from: VirtAddr, parts: u64) -> Result<TimerSetting, Errno> {
    let bytes: [u8; 32] = thread.space.read_array(from)?;
    let word = |index: usize| bytes[index * 8..index * 8 + 8].try_into().map_or(0, u64::from_le_bytes);
    let time = |index: usize| {
        let (seconds, part) = (word(index), word(index + 1));
        if seconds.cast_signed() < 0 || part >= parts {
            return Err(Errno::EINVAL);
        }
        Ok(seconds.saturating_mul(NS).saturating_add(part * (NS / parts)))
    };
    let (interval, value) = (time(0)?, time(2)?);
    Ok(TimerSetting { value, interval })
}

fn write_setting(thread: &Thread, to: VirtAddr, setting: TimerSetting, parts: u64) -> Result<(), Errno> {
    let mut bytes = [0; 32];
    // A timer that is armed never reports 0.
    let value = if parts == TIMEVAL && setting.value > 0 { setting.value.max(NS / parts) } else { setting.value };
    for (index, ns) in [setting.interval, value].into_iter().enumerate() {
        bytes[index * 16..index * 16 + 8].copy_from_slice(&(ns / NS).to_le_bytes());
        bytes[index * 16 + 8..index * 16 + 16].copy_from_slice(&(ns % NS / (NS / parts)).to_le_bytes());
    }
    thread.space.write(to, &bytes)
}

/// `timer_create`.
pub(super) fn timer_create(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let clock = match a[0] as u32 {
        linux::CLOCK_REALTIME | linux::CLOCK_TAI => TimerClock::Realtime,
        linux::CLOCK_MONOTONIC | linux::CLOCK_BOOTTIME => TimerClock::Monotonic,
        linux::CLOCK_PROCESS_CPUTIME_ID => TimerClock::Process,
        linux::CLOCK_THREAD_CPUTIME_ID => TimerClock::Thread(thread.id),
        linux::CLOCK_MONOTONIC_RAW | linux::CLOCK_REALTIME_COARSE | linux::CLOCK_MONOTONIC_COARSE => {
            return Err(Errno::EOPNOTSUPP.into());
        }
        _ => return Err(Errno::EINVAL.into()),
    };
    let event = match a[1] {
        0 => None,
        at => Some(TimerEvent::read(thread, address(at))?),
    };
    let mut scheduler = scheduler();
    let timer = match event {
        // By default, the value is the number of the timer.
        None => Timer::new(clock, Some(SIGALRM), None, 0),
        Some(event) => {
            event.timer(clock, |id| scheduler.threads.get(&id).is_some_and(|entry| entry.process == thread.process))?
        }
    };
    let timers = &mut scheduler.process(thread.process).timers;
    let id = timers.add(timer).ok_or(Errno::EAGAIN)?;
    if let (None, Some(timer)) = (event, timers.get(TimerId::Posix(id))) {
        timer.value = id.into();
    }
    drop(scheduler);
    if let Err(error) = thread.space.write_u32(address(a[2]), id) {
        self::scheduler().process(thread.process).timers.remove(id);
        return Err(error.into());
    }
    Ok(0)
}

/// What a timer does when it expires (`struct sigevent`).
#[derive(Clone, Copy)]
struct TimerEvent {
    value: u64,
    signal: i32,
    notify: u32,
    thread: u32,
}

impl TimerEvent {
    fn read(thread: &Thread, from: VirtAddr) -> Result<Self, Errno> {
        let bytes: [u8; 64] = thread.space.read_array(from)?;
        let word = |at: usize| bytes[at..at + 4].try_into().map_or(0, u32::from_le_bytes);
        let value = u64::from(word(4)) << 32 | u64::from(word(0));
        Ok(Self { value, signal: word(8).cast_signed(), notify: word(12), thread: word(16) })
    }

    /// The timer with this event (`good_sigevent`).
    fn timer(self, clock: TimerClock, is_own: impl FnOnce(TaskId) -> bool) -> Result<Timer, Errno> {
        const TO_THREAD: u32 = linux::SIGEV_SIGNAL | linux::SIGEV_THREAD_ID;
        let thread = (self.notify == TO_THREAD).then_some(TaskId(self.thread));
        match self.notify {
            linux::SIGEV_NONE => return Ok(Timer::new(clock, None, None, self.value)),
            linux::SIGEV_SIGNAL | linux::SIGEV_THREAD | TO_THREAD => {}
            _ => return Err(Errno::EINVAL),
        }
        let signal = u8::try_from(self.signal).ok().filter(|signal| (1..=NSIG).contains(&usize::from(*signal)));
        if thread.is_some_and(|thread| !is_own(thread)) || signal.is_none() {
            return Err(Errno::EINVAL);
        }
        Ok(Timer::new(clock, signal, thread, self.value))
    }
}

/// `timer_settime`.
pub(super) fn timer_settime(thread: &mut Thread, a: Arguments) -> SyscallResult {
    if a[2] == 0 {
        return Err(Errno::EINVAL.into());
    }
    let new = read_setting(thread, address(a[2]), TIMESPEC)?;
    let absolute = a[1] & u64::from(linux::TIMER_ABSTIME) != 0;
    let old = scheduler().set_timer(thread, posix(a[0]), new, absolute).ok_or(Errno::EINVAL)?;
    if a[3] != 0 {
        write_setting(thread, address(a[3]), old, TIMESPEC)?;
    }
    Ok(0)
}

fn posix(id: u64) -> TimerId {
    TimerId::Posix(id as u32)
}

/// `timer_gettime`.
pub(super) fn timer_gettime(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let setting = scheduler().timer_setting(thread, posix(a[0])).ok_or(Errno::EINVAL)?;
    write_setting(thread, address(a[1]), setting, TIMESPEC)?;
    Ok(0)
}

/// `timer_getoverrun`.
pub(super) fn timer_getoverrun(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let mut scheduler = scheduler();
    let timer = scheduler.process(thread.process).timers.get(posix(a[0])).ok_or(Errno::EINVAL)?;
    Ok(timer.overruns.into())
}

/// `timer_delete`.
pub(super) fn timer_delete(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let removed = scheduler().process(thread.process).timers.remove(a[0] as u32);
    if removed { Ok(0) } else { Err(Errno::EINVAL.into()) }
}
