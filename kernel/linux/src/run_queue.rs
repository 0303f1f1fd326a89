//! The run queue: the threads that are ready, those that run, and the idle CPUs.
//!
//! - [`Scheduling`] – the policy, the priority and the CPUs of a thread. The value in
//!   [`ThreadEntry`](crate::task::ThreadEntry) is the current one. A thread in the queue, asleep or
//!   on a CPU has a copy, which [`Scheduler::set_scheduling`] changes too.
//!
//! A thread is queued behind all others of its rank. A CPU takes the first thread that may run on
//! it. A thread that becomes ready wakes an idle CPU, or interrupts one that runs a lower rank. A
//! thread whose CPU is taken from its set leaves at the next interrupt, which is sent at once.
//!
//! Real-time threads may have [`REAL_TIME_RUNTIME_NS`] of each [`REAL_TIME_PERIOD_NS`] of a CPU.
//! After that the CPU prefers the others until the period ends (`sched_rt_runtime_exceeded`).
//!
//! Not guaranteed: fairness between processes, effects of nice values, `SCHED_DEADLINE`. A
//! preempted thread of `SCHED_FIFO` goes behind its equals. A CPU with real-time threads alone runs
//! them further, where it is idle in Linux.

use crate::task::{Resume, Scheduler, TaskId, Thread, WaitReason};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use linux_raw_sys::general as linux;
use pagewright_arch::Effects;
use pagewright_hal::Machine;
use pagewright_types::{CpuId, CpuMask};

/// The slice of a thread of `SCHED_RR` (`RR_TIMESLICE`); those of others are a tick.
pub(crate) const ROUND_ROBIN_NS: u64 = 100_000_000;

/// The time in which real-time threads of a CPU are limited (`sched_rt_period_us`).
pub(crate) const REAL_TIME_PERIOD_NS: u64 = 1_000_000_000;
/// The part of it that they may run (`sched_rt_runtime_us`).
pub(crate) const REAL_TIME_RUNTIME_NS: u64 = 950_000_000;

/// How a thread is scheduled (`sched(7)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scheduling {
    /// The CPUs that it may run on.
    pub(crate) cpus: CpuMask,
    /// `SCHED_OTHER` and its relatives.
    pub(crate) policy: u32,
    /// From 1 to 99 for `SCHED_FIFO` and `SCHED_RR`, else 0.
    pub(crate) priority: u8,
    /// From -20 to 19; kept and shown, without effect.
    pub(crate) nice: i8,
    /// Whether children begin with `SCHED_OTHER`.
    pub(crate) resets_on_fork: bool,
}

impl Scheduling {
    /// That of the first thread.
    pub(crate) fn of_init() -> Self {
        Self { cpus: Machine.online(), policy: linux::SCHED_NORMAL, priority: 0, nice: 0, resets_on_fork: false }
    }

    /// That of a child (`sched_fork`).
    pub(crate) fn for_child(self) -> Self {
        if self.resets_on_fork { Self { cpus: self.cpus, nice: self.nice.max(0), ..Self::of_init() } } else { self }
    }

    pub(crate) fn is_real_time(self) -> bool {
        self.priority > 0
    }

    /// The priority that `/proc/PID/stat` shows (`task_prio`).
    pub(crate) fn shown_priority(self) -> i32 {
        if self.is_real_time() { -1 - i32::from(self.priority) } else { 20 + i32::from(self.nice) }
    }

    /// The order between threads: real-time priorities, the others, `SCHED_IDLE`.
    fn rank(self) -> i16 {
        if self.policy == linux::SCHED_IDLE { -1 } else { self.priority.into() }
    }
}

/// A thread that runs on a CPU.
#[derive(Clone, Copy)]
struct RunningThread {
    id: TaskId,
    scheduling: Scheduling,
    /// Whether a thread waits until it has left the CPU.
    is_awaited: bool,
    /// In ns since boot.
    since: u64,
}

/// The time that real-time threads ran on a CPU in the present period.
#[derive(Clone, Copy)]
struct RealTimeUsage {
    /// When the period began, in ns since boot.
    period: u64,
    /// In ns, without the thread that runs.
    used: u64,
}

impl RealTimeUsage {
    const NONE: Self = Self { period: 0, used: 0 };

    /// The usage at `now`, with a thread that runs since `since`.
    fn at(self, now: u64, since: Option<u64>) -> Self {
        let elapsed = now.saturating_sub(self.period);
        let period = now - elapsed % REAL_TIME_PERIOD_NS;
        let used = if elapsed < REAL_TIME_PERIOD_NS { self.used } else { 0 };
        let running = since.map_or(0, |since| now.saturating_sub(since.max(period)));
        Self { period, used: used + running }
    }

    fn is_exceeded(self) -> bool {
        self.used >= REAL_TIME_RUNTIME_NS
    }
}

/// The threads that are ready, those that run, and the idle CPUs.
pub(crate) struct RunQueue {
    /// By falling rank.
    ready: VecDeque<Box<Thread>>,
    running: [Option<RunningThread>; CpuMask::MAX],
    real_time: [RealTimeUsage; CpuMask::MAX],
    /// When the last thread left each CPU, until the CPU takes the next one or finds none.
    left: [Option<u64>; CpuMask::MAX],
    idle: CpuMask,
}

impl RunQueue {
    pub(crate) const fn new() -> Self {
        Self {
            ready: VecDeque::new(),
            running: [None; CpuMask::MAX],
            real_time: [RealTimeUsage::NONE; CpuMask::MAX],
            left: [None; CpuMask::MAX],
            idle: CpuMask::EMPTY,
        }
    }

    /// The usage of a CPU by real-time threads, with the one that runs on it.
    fn real_time_usage(&self, cpu: CpuId, now: u64) -> RealTimeUsage {
        let running = self.running[cpu.index()].filter(|running| running.scheduling.is_real_time());
        self.real_time[cpu.index()].at(now, running.map(|running| running.since))
    }

    /// The index of the thread that a CPU takes next.
    fn next(&self, cpu: CpuId, now: u64) -> Option<usize> {
        let may_run = |thread: &Thread| thread.scheduling.cpus.contains(cpu);
        let first = self.ready.iter().position(|thread| may_run(thread))?;
        if !self.ready[first].scheduling.is_real_time() || !self.real_time_usage(cpu, now).is_exceeded() {
            return Some(first);
        }
        let other = self.ready.iter().position(|thread| may_run(thread) && !thread.scheduling.is_real_time());
        other.or(Some(first))
    }

    fn put(&mut self, thread: Box<Thread>) {
        let rank = thread.scheduling.rank();
        // Most threads have the lowest rank in the queue.
        let behind = self.ready.iter().rev().take_while(|other| other.scheduling.rank() < rank).count();
        self.ready.insert(self.ready.len() - behind, thread);
    }

    /// The CPU to interrupt for a thread: an idle one, or the one that runs the lowest rank below.
    fn cpu_for(&self, scheduling: Scheduling) -> Option<CpuId> {
        if let Some(idle) = self.idle.and(&scheduling.cpus).iter().next() {
            return Some(idle);
        }
        if scheduling.rank() <= 0 {
            return None;
        }
        let rank = |cpu: &CpuId| self.running[cpu.index()].map(|running| running.scheduling.rank());
        let lower = scheduling.cpus.iter().filter_map(|cpu| Some((rank(&cpu)?, cpu)));
        lower.filter(|(rank, _)| *rank < scheduling.rank()).min_by_key(|(rank, _)| *rank).map(|(_, cpu)| cpu)
    }
}

impl Scheduler {
    /// Adds a thread to the run queue, and interrupts a CPU that can run it at once.
    pub(crate) fn make_ready(&mut self, thread: Box<Thread>) {
        let cpu = self.queue.cpu_for(thread.scheduling);
        self.queue.put(thread);
        if let Some(cpu) = cpu {
            self.queue.idle.remove(cpu);
            pagewright_hal::kick(cpu);
        }
    }

    /// Adds a thread that runs on this CPU to the run queue.
    pub(crate) fn make_ready_again(&mut self, mut thread: Box<Thread>) {
        self.account(&mut thread);
        self.leave_cpu(&mut thread);
        self.make_ready(thread);
    }

    /// Takes the first thread that may run on this CPU, which runs it now.
    ///
    /// The time since the last thread left counts as the next one's: changing threads takes longer
    /// than a thread may run that a timer wakes again and again.
    pub(crate) fn next_ready(&mut self, now: u64) -> Option<Box<Thread>> {
        let me = pagewright_hal::this_cpu();
        let since = self.queue.left[me.index()].take().unwrap_or(now);
        let next = self.queue.next(me, now)?;
        let thread = self.queue.ready.remove(next)?;
        let (id, scheduling) = (thread.id, thread.scheduling);
        self.queue.running[me.index()] = Some(RunningThread { id, scheduling, is_awaited: false, since });
        Some(thread)
    }

    /// Notes that a thread leaves this CPU.
    pub(crate) fn leave_cpu(&mut self, thread: &mut Thread) {
        let (me, now) = (pagewright_hal::this_cpu(), pagewright_hal::time::now_ns());
        self.queue.real_time[me.index()] = self.queue.real_time_usage(me, now);
        self.queue.left[me.index()] = Some(now);
        let left = self.queue.running[me.index()].take();
        if let Some(RunningThread { id, scheduling, is_awaited, .. }) = left {
            thread.scheduling = scheduling;
            if is_awaited {
                self.wake(usize::MAX, Resume::Return(0), |_, wait| wait == WaitReason::Migration(id));
            }
        }
    }

    /// Notes that the thread of this CPU gets another number.
    pub(crate) fn renumber_running(&mut self, id: TaskId) {
        if let Some(running) = &mut self.queue.running[pagewright_hal::this_cpu().index()] {
            running.id = id;
        }
    }

    /// Whether a thread is in the run queue that may run on this CPU.
    pub(crate) fn has_ready(&self) -> bool {
        let me = pagewright_hal::this_cpu();
        self.queue.ready.iter().any(|thread| thread.scheduling.cpus.contains(me))
    }

    /// Whether the thread of this CPU must leave it now: for another one, or for another CPU.
    pub(crate) fn must_leave(&self) -> bool {
        let me = pagewright_hal::this_cpu();
        let Some(RunningThread { scheduling, since, .. }) = self.queue.running[me.index()] else { return true };
        if !scheduling.cpus.contains(me) {
            return true;
        }
        let now = pagewright_hal::time::now_ns();
        let Some(next) = self.queue.next(me, now).map(|next| self.queue.ready[next].scheduling) else { return false };
        if self.queue.real_time_usage(me, now).is_exceeded() && next.is_real_time() != scheduling.is_real_time() {
            return scheduling.is_real_time();
        }
        let keeps_rank = match scheduling.policy {
            linux::SCHED_FIFO => true,
            linux::SCHED_RR => now.saturating_sub(since) < ROUND_ROBIN_NS,
            _ => false,
        };
        next.rank() > scheduling.rank() || next.rank() == scheduling.rank() && !keeps_rank
    }

    /// Marks this CPU idle or busy.
    pub(crate) fn set_idle(&mut self, idle: bool) {
        let me = pagewright_hal::this_cpu();
        if idle {
            self.queue.idle.insert(me);
        } else {
            self.queue.idle.remove(me);
        }
    }

    /// Changes how a thread is scheduled; `true` if it runs on another CPU that it must leave.
    ///
    /// The caller then waits for [`WaitReason::Migration`].
    pub(crate) fn set_scheduling(&mut self, id: TaskId, new: Scheduling) -> bool {
        let Some(entry) = self.threads.get_mut(&id) else { return false };
        entry.scheduling = new;
        let me = pagewright_hal::this_cpu();
        let running = self.queue.running.iter_mut().enumerate();
        let on_cpu = running
            .filter_map(|(index, running)| Some((CpuId::new(index as u16), running.as_mut()?)))
            .find(|(_, running)| running.id == id);
        if let Some((cpu, running)) = on_cpu {
            running.scheduling = new;
            let moves = !new.cpus.contains(cpu) && cpu != me;
            running.is_awaited |= moves;
            if cpu != me {
                pagewright_hal::kick(cpu);
            }
            return moves;
        }
        if let Some(at) = self.queue.ready.iter().position(|thread| thread.id == id) {
            if let Some(mut thread) = self.queue.ready.remove(at) {
                thread.scheduling = new;
                self.make_ready(thread);
            }
        } else {
            self.set_scheduling_of_sleeper(id, new);
        }
        false
    }
}
