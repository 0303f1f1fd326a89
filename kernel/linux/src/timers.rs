//! The timers of processes.
//!
//! - [`ProcessTimers`] – the interval timers of a process (`setitimer`) and its POSIX timers
//!   (`timer_create`).
//! - [`TimerClock`] – what a timer measures; CPU time comes from [`Usage`](crate::usage::Usage).
//!
//! A timer that expires makes a signal pending, and stops. When the signal is taken, a timer with
//! an interval is armed again (`posixtimer_rearm`), and the expirations that it missed are counted
//! as overruns. So a process that blocks the signal costs nothing.
//!
//! All is guarded by the lock of the scheduler. Timers of real time are checked at each tick of any
//! CPU, timers of CPU time at each tick of a CPU that runs the process.
//!
//! **INV-KERNEL-TIMER** A periodic timer sends a signal for each of its periods or counts the
//! period as an overrun, however late a signal is taken.
//!
//! Not guaranteed: a resolution below the tick.

use crate::signal::{SIGALRM, SIGPROF, SIGVTALRM, SigCause, SigInfo};
use crate::task::{Scheduler, TaskId, Thread};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use pagewright_hal::time;
use pagewright_plant::plant;

/// What a timer measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimerClock {
    /// Time since boot, in ns.
    Monotonic,
    /// Time since 1970, in ns.
    Realtime,
    /// CPU time of the process in user mode (`ITIMER_VIRTUAL`).
    User,
    /// CPU time of the process.
    Process,
    /// CPU time of a thread.
    Thread(TaskId),
}

impl TimerClock {
    /// Whether its timers expire without any thread of the process running.
    const fn is_of_machine(self) -> bool {
        matches!(self, Self::Monotonic | Self::Realtime)
    }
}

/// A time and an interval, in ns; 0 is a timer that is not armed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TimerSetting {
    pub(crate) value: u64,
    pub(crate) interval: u64,
}

/// A timer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timer {
    pub(crate) clock: TimerClock,
    /// The time of its clock at which it expires, while it is armed.
    deadline: Option<u64>,
    interval: u64,
    /// When it expired, while its signal is pending.
    expired: Option<u64>,
    /// Overruns when its signal was last taken.
    pub(crate) overruns: u32,
    /// The signal, if any, and the thread that gets it instead of the process.
    signal: Option<u8>,
    thread: Option<TaskId>,
    /// The value for the handler.
    pub(crate) value: u64,
}

/// The most overruns that are reported (`DELAYTIMER_MAX`).
const OVERRUNS_MAX: u64 = i32::MAX as u64;

impl Timer {
    /// A timer that is not armed.
    pub(crate) fn new(clock: TimerClock, signal: Option<u8>, thread: Option<TaskId>, value: u64) -> Self {
        Self { clock, deadline: None, interval: 0, expired: None, overruns: 0, signal, thread, value }
    }

    /// Arms it for a time of its clock, or disarms it.
    fn set(&mut self, deadline: Option<u64>, interval: u64) {
        (self.deadline, self.interval) = (deadline, interval);
        (self.expired, self.overruns) = (None, 0);
    }

    /// Its time left, at time `now` of its clock, and its interval.
    fn left(&self, now: u64) -> TimerSetting {
        // A timer that has expired and not stopped yet has the smallest time left that is not 0.
        let left = |deadline: u64| deadline.saturating_sub(now).max(1);
        let next = match (self.deadline, self.expired) {
            (Some(deadline), _) => Some(deadline),
            // A timer without a signal goes on by itself.
            (None, Some(expired)) if self.signal.is_none() && self.interval > 0 => {
                Some(expired + (now.saturating_sub(expired) / self.interval + 1) * self.interval)
            }
            (None, _) => None,
        };
        TimerSetting { value: next.map_or(0, left), interval: self.interval }
    }

    /// Arms it again after its signal was taken, and counts overruns (`hrtimer_forward`).
    fn rearm(&mut self, now: u64) {
        let Some(expired) = self.expired.take() else { return };
        if self.interval > 0 {
            let missed = now.saturating_sub(expired) / self.interval;
            self.deadline = Some(expired + (missed + 1) * self.interval);
            self.overruns = missed.min(OVERRUNS_MAX) as u32;
        }
    }
}

/// The interval timers, by their number (`ITIMER_REAL`, `ITIMER_VIRTUAL`, `ITIMER_PROF`).
pub(crate) const INTERVAL_TIMERS: usize = 3;

/// The name of a timer of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimerId {
    Interval(usize),
    Posix(u32),
}

/// The timers of a process.
pub(crate) struct ProcessTimers {
    interval: [Timer; INTERVAL_TIMERS],
    posix: BTreeMap<u32, Timer>,
    next: u32,
}

/// The most POSIX timers of a process.
///
/// Linux limits them by `RLIMIT_SIGPENDING`.
const POSIX_TIMERS_MAX: usize = 1024;

impl ProcessTimers {
    pub(crate) fn new() -> Self {
        let timer = |clock, signal| Timer::new(clock, Some(signal), None, 0);
        let interval = [
            timer(TimerClock::Monotonic, SIGALRM),
            timer(TimerClock::User, SIGVTALRM),
            timer(TimerClock::Process, SIGPROF),
        ];
        Self { interval, posix: BTreeMap::new(), next: 0 }
    }

    /// Adds a POSIX timer; `None` if there are too many.
    pub(crate) fn add(&mut self, timer: Timer) -> Option<u32> {
        if self.posix.len() >= POSIX_TIMERS_MAX {
            return None;
        }
        while self.posix.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1) & i32::MAX as u32;
        }
        let id = self.next;
        self.next = id.wrapping_add(1) & i32::MAX as u32;
        self.posix.insert(id, timer);
        Some(id)
    }

    /// Removes a POSIX timer; `false` if there is none.
    pub(crate) fn remove(&mut self, id: u32) -> bool {
        self.posix.remove(&id).is_some()
    }

    /// Removes the POSIX timers, as `execve` does (`exit_itimers`).
    pub(crate) fn remove_posix(&mut self) {
        self.posix.clear();
    }

    pub(crate) fn get(&mut self, id: TimerId) -> Option<&mut Timer> {
        match id {
            TimerId::Interval(index) => self.interval.get_mut(index),
            TimerId::Posix(id) => self.posix.get_mut(&id),
        }
    }

    fn all(&mut self) -> impl Iterator<Item = (TimerId, &mut Timer)> {
        let interval = self.interval.iter_mut().enumerate().map(|(index, timer)| (TimerId::Interval(index), timer));
        interval.chain(self.posix.iter_mut().map(|(id, timer)| (TimerId::Posix(*id), timer)))
    }
}

/// Time since 1970, in ns.
pub(crate) fn realtime_ns() -> u64 {
    time::boot_seconds() * 1_000_000_000 + time::now_ns()
}

impl Scheduler {
    /// The time of a clock that a timer of `process` measures; 0 for the clock of another thread.
    pub(crate) fn timer_time(&mut self, process: TaskId, clock: TimerClock, thread: Option<&Thread>) -> u64 {
        match clock {
            TimerClock::Monotonic => time::now_ns(),
            TimerClock::Realtime => realtime_ns(),
            TimerClock::User => self.process(process).usage.user_and_kernel_ns().0,
            TimerClock::Process => self.process(process).usage.cpu_ns,
            TimerClock::Thread(id) => thread.filter(|thread| thread.id == id).map_or(0, |thread| thread.usage.cpu_ns),
        }
    }

    /// Sets a timer of the process of `thread`, and returns its previous setting.
    ///
    /// `None` if there is no such timer. A value of 0 disarms the timer.
    pub(crate) fn set_timer(
        &mut self,
        thread: &mut Thread,
        id: TimerId,
        setting: TimerSetting,
        absolute: bool,
    ) -> Option<TimerSetting> {
        self.account(thread);
        let clock = self.process(thread.process).timers.get(id)?.clock;
        let now = self.timer_time(thread.process, clock, Some(thread));
        let timer = self.process(thread.process).timers.get(id)?;
        let old = timer.left(now);
        let deadline = if absolute { setting.value } else { now.saturating_add(setting.value) };
        timer.set((setting.value > 0).then_some(deadline), setting.interval);
        self.look_at_timers();
        Some(old)
    }

    /// The present setting of a timer of the process of `thread`.
    pub(crate) fn timer_setting(&mut self, thread: &mut Thread, id: TimerId) -> Option<TimerSetting> {
        self.account(thread);
        let clock = self.process(thread.process).timers.get(id)?.clock;
        let now = self.timer_time(thread.process, clock, Some(thread));
        Some(self.process(thread.process).timers.get(id)?.left(now))
    }

    /// Has the next tick look at all timers of real time.
    fn look_at_timers(&mut self) {
        self.next_timer = 0;
    }

    /// Expires the timers of real time whose time has come.
    pub(crate) fn expire_timers(&mut self, now: u64) {
        if now < self.next_timer {
            return;
        }
        let processes: Vec<TaskId> = self.processes.keys().copied().collect();
        for process in processes {
            self.expire(process, TimerClock::is_of_machine, None);
        }
        let (now, realtime) = (time::now_ns(), realtime_ns());
        let timers = self.processes.values_mut().flat_map(|process| process.timers.all());
        let next = timers.filter_map(|(_, timer)| match timer.clock {
            TimerClock::Monotonic => timer.deadline,
            TimerClock::Realtime => Some(now + timer.deadline?.saturating_sub(realtime)),
            TimerClock::User | TimerClock::Process | TimerClock::Thread(_) => None,
        });
        self.next_timer = next.min().unwrap_or(u64::MAX);
    }

    /// Expires the timers of CPU time of the process of `thread`, which was just accounted for.
    pub(crate) fn expire_cpu_timers(&mut self, thread: &Thread) {
        self.expire(thread.process, |clock| !clock.is_of_machine(), Some(thread));
    }

    /// Expires the timers of a process that measure one of `clocks`.
    fn expire(&mut self, process: TaskId, clocks: impl Fn(TimerClock) -> bool, thread: Option<&Thread>) {
        let known = self.process(process);
        let due = |timer: &Timer| clocks(timer.clock) && timer.deadline.is_some();
        if known.exit_status.is_some() || !known.timers.all().any(|(_, timer)| due(timer)) {
            return;
        }
        let armed: Vec<(TimerId, TimerClock)> =
            known.timers.all().filter(|(_, timer)| due(timer)).map(|(id, timer)| (id, timer.clock)).collect();
        for (id, clock) in armed {
            let now = self.timer_time(process, clock, thread);
            let Some(timer) = self.process(process).timers.get(id) else { continue };
            if timer.deadline.is_none_or(|deadline| deadline > now) {
                continue;
            }
            timer.expired = timer.deadline.take();
            // The interval timers of CPU time do not stop (`check_cpu_itimer`).
            if matches!(id, TimerId::Interval(_)) && !clock.is_of_machine() {
                timer.rearm(now);
            }
            let timer = *timer;
            self.send(process, id, &timer);
        }
    }

    /// Makes the signal of a timer pending, which has expired.
    fn send(&mut self, process: TaskId, id: TimerId, timer: &Timer) {
        let Some(signal) = timer.signal else { return };
        let cause = match id {
            TimerId::Interval(_) => SigCause::Kernel,
            TimerId::Posix(id) => SigCause::Timer { id, overruns: 0, value: timer.value },
        };
        let info = SigInfo::of_timer(signal, cause);
        match timer.thread {
            Some(thread) => self.post_to_thread(thread, info),
            None => self.post(process, info),
        }
    }

    /// Arms the timer again whose signal a thread of `process` takes, and completes the signal.
    pub(crate) fn timer_taken(&mut self, process: TaskId, info: &mut SigInfo) {
        let id = match info.cause {
            SigCause::Timer { id, .. } => TimerId::Posix(id),
            SigCause::Kernel if info.signal == SIGALRM => TimerId::Interval(0),
            _ => return,
        };
        let Some(clock) = self.process(process).timers.get(id).map(|timer| timer.clock) else { return };
        let now = self.timer_time(process, clock, None);
        let Some(timer) = self.process(process).timers.get(id) else { return };
        // INV-KERNEL-TIMER: a periodic timer goes on, whatever time its signal took.
        plant!(TimerNotRearmed; {}, timer.rearm(now));
        if let SigCause::Timer { overruns, .. } = &mut info.cause {
            *overruns = timer.overruns;
        }
        self.look_at_timers();
    }
}
