//! Signals: pending sets, delivery, and the frames of handlers.
//!
//! Signals are delivered on the return to user mode ([`deliver`]). The default action is to end the
//! process, to stop it ([`crate::job_control`]), or to ignore the signal. A handler gets a frame on
//! its stack with Linux's layout (`arch/*/kernel/signal*.c`), because programs read it.
//!
//! **INV-KERNEL-KILL** `SIGKILL` ends a process whatever its threads wait for.
//!
//! **INV-KERNEL-FATAL** A signal whose action is to end the process without a core dump, and which
//! a waiting thread of it does not block, ends the process at once, whatever its threads wait for.
//!
//! **INV-KERNEL-INIT** No signal that a process sends, or a timer, ends the first process, to which
//! orphans go.
//!
//! Not guaranteed: core dumps. The wait status never says that there is one.

#[cfg(target_arch = "aarch64")]
#[path = "aarch64.rs"]
mod frame;
#[cfg(target_arch = "x86_64")]
#[path = "x86_64.rs"]
mod frame;

mod action;
mod exception;
mod pending;

use crate::call;
use crate::errno::Errno;
use crate::job_control::{is_stop_signal, wait_for_continue};
use crate::process::ExitStatus;
use crate::report;
use crate::task::{CallRestart, CallStop, INIT, Resume, Scheduler, TaskId, Thread, WaitReason, scheduler};
use core::sync::atomic::{AtomicU64, Ordering};
use linux_raw_sys::general as linux;
use pagewright_plant::plant;

use action::{SIG_DFL, dumps_core, ignored_by_default};
pub(crate) use action::{SIG_IGN, SigAction, SigActions};
pub(crate) use exception::of_exception;
pub(crate) use frame::{TRAMPOLINE, pop_frame};
pub(crate) use pending::{PendingSignals, SigCause, SigInfo};

/// Defines signals with Linux's numbers, in the type of a signal here.
macro_rules! signals {
    ($($name:ident),*) => { $(pub(crate) const $name: u8 = linux::$name as u8;)* };
}
signals!(
    SIGHUP, SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGKILL, SIGSEGV, SIGPIPE, SIGALRM, SIGCHLD, SIGCONT, SIGVTALRM, SIGPROF
);

/// `SEGV_MAPERR`.
pub(crate) const SEGV_MAPERR: i32 = linux::SEGV_MAPERR as i32;
/// `SEGV_ACCERR`.
pub(crate) const SEGV_ACCERR: i32 = linux::SEGV_ACCERR as i32;
/// `BUS_ADRERR`.
pub(crate) const BUS_ADRERR: i32 = linux::BUS_ADRERR as i32;

/// `SI_USER` and `SI_TKILL`: sent by `kill`, and by `tkill` or `tgkill`.
pub(crate) const SI_USER: i32 = linux::SI_USER as i32;
pub(crate) const SI_TKILL: i32 = linux::SI_TKILL;
/// `SI_KERNEL`: sent by the kernel.
pub(crate) const SI_KERNEL: i32 = linux::SI_KERNEL as i32;
/// `SI_TIMER`: sent by a POSIX timer.
const SI_TIMER: i32 = linux::SI_TIMER;
const CLD_EXITED: i32 = linux::CLD_EXITED as i32;
const CLD_KILLED: i32 = linux::CLD_KILLED as i32;
const CLD_STOPPED: i32 = linux::CLD_STOPPED as i32;
const CLD_CONTINUED: i32 = linux::CLD_CONTINUED as i32;

/// The number of signals (`_NSIG`).
pub(crate) const NSIG: usize = 64;

/// The top of the alternate signal stack, if the handler runs there (`sigsp`).
fn alternate_stack_top(thread: &Thread, action: &SigAction) -> Option<u64> {
    let (start, len) = thread.signal_stack;
    let wanted = action.flags & u64::from(linux::SA_ONSTACK) != 0;
    (wanted && len > 0 && !thread.is_on_signal_stack()).then_some(start.wrapping_add(len))
}

/// Writes a word of a handler's frame.
fn put(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

/// Reads a word of a handler's frame.
fn get(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].try_into().map_or(0, u64::from_le_bytes)
}

/// A set of signals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SignalSet(pub(crate) u64);

impl SignalSet {
    fn bit(signal: u8) -> u64 {
        1 << (signal - 1)
    }

    pub(crate) fn insert(&mut self, signal: u8) {
        self.0 |= Self::bit(signal);
    }

    pub(crate) fn remove(&mut self, signal: u8) {
        self.0 &= !Self::bit(signal);
    }

    pub(crate) fn contains(self, signal: u8) -> bool {
        self.0 & Self::bit(signal) != 0
    }

    /// The lowest signal of the set.
    fn first(self) -> Option<u8> {
        (self.0 != 0).then(|| self.0.trailing_zeros() as u8 + 1)
    }

    /// The set without `SIGKILL` and `SIGSTOP`, which cannot be blocked.
    pub(crate) fn blockable(self) -> Self {
        Self(self.0 & !(Self::bit(SIGKILL) | Self::bit(linux::SIGSTOP as u8)))
    }
}

/// The signals made pending, and the orders to end, since boot; counted under the scheduler's lock.
static STOPS: AtomicU64 = AtomicU64::new(1);

/// Has every thread look for signals, and for the end of its process, before its next user mode.
///
/// Linux sets `TIF_SIGPENDING` in the threads concerned (`signal_wake_up`).
pub(crate) fn count_stop() {
    plant!(StopNotCounted; {}, {
        STOPS.fetch_add(1, Ordering::Release);
    });
}

/// The count of stops, and the blocked signals, at which a thread last found nothing to deliver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SignalCheck {
    /// 0 if the thread has never looked.
    stops: u64,
    blocked: SignalSet,
}

/// Whether signals end a process only if an instruction of it caused them (`SIGNAL_UNKILLABLE`).
///
/// INV-KERNEL-INIT: the process to which orphans go does not end by accident.
fn is_unkillable(process: TaskId) -> bool {
    plant!(InitKilled; false, process == INIT)
}

impl Thread {
    /// Whether its process ignores a signal (`sig_task_ignored`).
    fn ignores(&self, signal: u8) -> bool {
        let actions = self.actions.lock();
        actions.ignores(signal) || is_unkillable(self.process) && actions.get(signal).handler == SIG_DFL
    }

    /// Whether it runs on its alternate signal stack (`on_sig_stack`).
    pub(crate) fn is_on_signal_stack(&self) -> bool {
        let (start, len) = self.signal_stack;
        let used = start.wrapping_add(len).wrapping_sub(self.context.sp().raw());
        used < len
    }

    /// Whether it neither blocks nor ignores a signal.
    fn accepts(&self, signal: u8) -> bool {
        !self.blocked.contains(signal) && !self.ignores(signal)
    }

    /// Whether a signal other than `SIGKILL` ends its process at once.
    ///
    /// It is not blocked, and its action is to end the process without a core dump (`sig_fatal`,
    /// `sig_kernel_coredump`).
    fn is_ended_by(&self, signal: u8) -> bool {
        let by_default = || !self.ignores(signal) && self.actions.lock().get(signal).handler == SIG_DFL;
        let ends = signal != SIGKILL && !dumps_core(signal) && !is_stop_signal(signal);
        let ends = ends && !self.blocked.contains(signal);
        // INV-KERNEL-FATAL.
        plant!(FatalSignalWaits; false, ends && by_default())
    }

    /// Whether a signal stops its process.
    fn is_stopped_by(&self, signal: u8) -> bool {
        is_stop_signal(signal) && !self.ignores(signal) && self.actions.lock().get(signal).handler == SIG_DFL
    }

    /// Blocks another set of signals during a call, until [`Thread::restore_mask`].
    ///
    /// The frame of a handler holds the previous set.
    pub(crate) fn set_temporary_mask(&mut self, set: SignalSet) {
        self.saved_blocked.get_or_insert(self.blocked);
        self.blocked = set.blockable();
    }

    /// Restores the set of blocked signals that a call replaced.
    pub(crate) fn restore_mask(&mut self) {
        if let Some(before) = self.saved_blocked.take() {
            self.blocked = before;
        }
    }
}

/// Delivers pending signals.
///
/// A thread that found none takes no lock until a stop is counted or its mask changes.
///
/// # Errors
/// [`CallStop`] when the thread ends.
#[inline]
pub(crate) fn deliver(thread: &mut Thread) -> Result<(), CallStop> {
    // Read before the look, which a later stop may miss.
    let now = SignalCheck { stops: STOPS.load(Ordering::Acquire), blocked: thread.blocked };
    if thread.signal_check == now && thread.saved_blocked.is_none() {
        return Ok(());
    }
    deliver_pending(thread, now.stops)
}

fn deliver_pending(thread: &mut Thread, stops: u64) -> Result<(), CallStop> {
    loop {
        let info = {
            let mut scheduler = scheduler();
            if let Some(end) = scheduler.must_exit(thread) {
                return Err(CallStop::Exit(end));
            }
            if scheduler.process(thread.process).job.is_stopped() {
                return Err(wait_for_continue(scheduler));
            }
            let info = scheduler.take_signal(thread);
            if let Some(info) = info.filter(|info| thread.is_stopped_by(info.signal)) {
                // Under the same lock: a `SIGCONT` that is sent now ends the stop.
                if scheduler.begin_stop(thread, info.signal) {
                    return Err(wait_for_continue(scheduler));
                }
                continue;
            }
            info
        };
        let Some(info) = info else {
            thread.signal_check = SignalCheck { stops, blocked: thread.blocked };
            thread.restore_mask();
            return Ok(());
        };
        handle_signal(thread, info)?;
    }
}

/// Takes the action of the process for a signal.
fn handle_signal(thread: &mut Thread, info: SigInfo) -> Result<(), CallStop> {
    let action = {
        let mut actions = thread.actions.lock();
        let action = actions.get(info.signal);
        if action.flags & u64::from(linux::SA_RESETHAND) != 0 && action.handler > SIG_IGN {
            actions.of[usize::from(info.signal) - 1] = SigAction::default();
        }
        action
    };
    match action.handler {
        SIG_IGN => Ok(()),
        SIG_DFL if ignored_by_default(info.signal) || is_unkillable(thread.process) => Ok(()),
        SIG_DFL => Err(CallStop::ExitProcess(ExitStatus::Signal(info.signal))),
        _ => {
            let before = thread.saved_blocked.unwrap_or(thread.blocked);
            if frame::push_frame(thread, info, &action, before).is_err() {
                return refuse_frame(thread, info.signal);
            }
            thread.saved_blocked = None;
            let mut blocked = SignalSet(thread.blocked.0 | action.mask.0);
            if action.flags & u64::from(linux::SA_NODEFER) == 0 {
                blocked.insert(info.signal);
            }
            thread.blocked = blocked.blockable();
            Ok(())
        }
    }
}

/// Sends `SIGSEGV` to a thread that has no stack for the handler of `signal` (`force_sigsegv`).
///
/// A thread that has none for the handler of `SIGSEGV` either is killed.
fn refuse_frame(thread: &mut Thread, signal: u8) -> Result<(), CallStop> {
    if signal == SIGSEGV {
        return Err(CallStop::ExitProcess(ExitStatus::Signal(SIGSEGV)));
    }
    force_signal(thread, SIGSEGV, SI_KERNEL, SigCause::Kernel)
}

/// Delivers a signal that an instruction of the thread caused (`force_sig`).
///
/// A process without a handler is killed, and the cause is reported.
///
/// # Errors
/// [`CallStop`] when the process is killed.
pub(crate) fn force_signal(thread: &mut Thread, signal: u8, code: i32, cause: SigCause) -> Result<(), CallStop> {
    let handled = thread.actions.lock().get(signal).handler > SIG_IGN && !thread.blocked.contains(signal);
    if handled {
        return handle_signal(thread, SigInfo { signal, code, cause });
    }
    let name = alloc::string::String::from(scheduler().process(thread.process).name());
    let (pc, sp) = (thread.context.pc(), thread.context.sp());
    let at = if let SigCause::Address(address) = cause { address } else { pc };
    report::say(format_args!("{name} ({}) is killed by signal {signal} at {at}: pc {pc} sp {sp}", thread.process.0));
    Err(CallStop::ExitProcess(ExitStatus::Signal(signal)))
}

/// Ends the wait of a call because of a signal.
///
/// The call fails with `EINTR`, or restarts after the handler if `restart` allows it. Returns
/// `false` if no signal is pending any more, because another thread took it.
///
/// # Errors
/// [`CallStop`] if the signal stops the process, which makes the call again when it continues.
pub(crate) fn interrupt_call(thread: &mut Thread, restart: CallRestart) -> Result<bool, CallStop> {
    let mut scheduler = scheduler();
    let signal = loop {
        let Some(signal) = scheduler.next_deliverable(thread) else { return Ok(false) };
        if !thread.is_stopped_by(signal) {
            break signal;
        }
        scheduler.take_signal_of(thread, SignalSet(SignalSet::bit(signal)));
        if scheduler.begin_stop(thread, signal) {
            thread.resume = Some(Resume::Again);
            return Err(wait_for_continue(scheduler));
        }
    };
    drop(scheduler);
    let action = thread.actions.lock().get(signal);
    let (number, first) = thread.call;
    let restarts = match restart {
        CallRestart::Never => false,
        CallRestart::WithFlag => action.flags & u64::from(linux::SA_RESTART) != 0,
        CallRestart::Always => true,
    };
    if restarts {
        thread.context.restart_syscall(number, first);
    } else {
        call::store_remaining_time(thread);
        thread.context.set_syscall_result(Errno::EINTR.result());
    }
    thread.deadline = None;
    Ok(true)
}

impl Scheduler {
    /// The status with which a thread must end, if it must.
    ///
    /// It is that of the process, or `SIGKILL` if another thread is in `execve`.
    pub(crate) fn must_exit(&mut self, thread: &Thread) -> Option<ExitStatus> {
        let process = self.process(thread.process);
        let replaced = process.exec_thread.is_some_and(|exec_thread| exec_thread != thread.id);
        process.group_exit.or(replaced.then_some(ExitStatus::Signal(SIGKILL)))
    }

    /// Whether a signal is pending that a thread neither blocks nor ignores.
    pub(crate) fn is_interrupted(&mut self, thread: &Thread) -> bool {
        self.next_deliverable(thread).is_some()
    }

    /// The first pending signal that a thread neither blocks nor ignores.
    fn next_deliverable(&mut self, thread: &Thread) -> Option<u8> {
        self.first_pending(thread, |signal| !thread.ignores(signal))
    }

    /// The first pending signal that ends the process of a thread at once.
    pub(crate) fn pending_end(&mut self, thread: &Thread) -> Option<u8> {
        self.first_pending(thread, |signal| thread.is_ended_by(signal))
    }

    /// The first pending signal that a thread does not block and `which` picks.
    fn first_pending(&mut self, thread: &Thread, which: impl Fn(u8) -> bool) -> Option<u8> {
        let mut pending = SignalSet(self.pending(thread).0 & !thread.blocked.0);
        while let Some(signal) = pending.first() {
            if which(signal) {
                return Some(signal);
            }
            pending.remove(signal);
        }
        None
    }

    fn take_signal(&mut self, thread: &Thread) -> Option<SigInfo> {
        self.take_signal_of(thread, SignalSet(!thread.blocked.0))
    }

    /// The pending signals of a thread, blocked or not.
    pub(crate) fn pending(&mut self, thread: &Thread) -> SignalSet {
        let own = self.threads.get(&thread.id).map_or(SignalSet::default(), |entry| entry.pending.set);
        SignalSet(own.0 | self.process(thread.process).pending.set.0)
    }

    /// Takes the first pending signal of a thread that is in `set`.
    pub(crate) fn take_signal_of(&mut self, thread: &Thread, set: SignalSet) -> Option<SigInfo> {
        let signal = SignalSet(self.pending(thread).0 & set.0).first()?;
        let own = self.threads.get_mut(&thread.id).and_then(|entry| entry.pending.take(signal));
        let mut info = own.or_else(|| self.process(thread.process).pending.take(signal))?;
        self.timer_taken(thread.process, &mut info);
        Some(info)
    }

    /// Makes a signal pending for a process that has not ended.
    ///
    /// Wakes one of its sleepers that accepts the signal. `SIGKILL` ends every thread at once, also
    /// one in a wait that no signal with a handler ends, and so does a signal that a sleeper does
    /// not survive (`complete_signal`).
    pub(crate) fn post(&mut self, process: TaskId, info: SigInfo) {
        self.prepare_signal(process, info.signal);
        if self.end_at_once(process, info.signal, |thread| thread.process == process) {
            return;
        }
        self.process(process).pending.insert(info);
        if self.wake_for(info.signal, |thread| thread.process == process) {
            return;
        }
        self.interrupt(|thread| thread.process == process && thread.accepts(info.signal));
    }

    /// Ends a process by `SIGKILL`, or by a signal that a sleeper picked by `of` does not survive.
    ///
    /// A stopped process ends by `SIGKILL` only. Returns whether the signal is dealt with.
    /// `SIGKILL` is, even for a process that survives it.
    fn end_at_once(&mut self, process: TaskId, signal: u8, of: impl Fn(&Thread) -> bool) -> bool {
        // INV-KERNEL-KILL.
        let kills = plant!(KillNotSeen; false, signal == SIGKILL);
        let is_stopped = self.process(process).job.is_stopped();
        let ends = |thread: &Thread| of(thread) && thread.is_ended_by(signal);
        let is_dealt_with = kills || !is_stopped && self.any_sleeper(ends);
        if is_dealt_with && !(kills && is_unkillable(process)) {
            self.end_process(process, ExitStatus::Signal(signal));
        }
        is_dealt_with
    }

    /// Makes a signal pending for a thread, if it exists, and wakes it if it accepts the signal.
    pub(crate) fn post_to_thread(&mut self, id: TaskId, info: SigInfo) {
        let Some(process) = self.threads.get(&id).map(|entry| entry.process) else { return };
        self.prepare_signal(process, info.signal);
        if self.end_at_once(process, info.signal, |thread| thread.id == id) {
            return;
        }
        if let Some(entry) = self.threads.get_mut(&id) {
            entry.pending.insert(info);
        }
        if !self.wake_for(info.signal, |thread| thread.id == id) {
            self.interrupt(|thread| thread.id == id && thread.accepts(info.signal));
        }
    }

    /// Makes `SIGPIPE` pending for the running thread: what it writes to has no reader any more.
    pub(crate) fn post_broken_pipe(&mut self, thread: &Thread) {
        self.post_to_thread(thread.id, SigInfo::sent(SIGPIPE, SI_USER, thread));
    }

    /// Drops the pending signals with a number that a process begins to ignore (`do_sigaction`).
    pub(crate) fn drop_pending(&mut self, process: TaskId, signal: u8) {
        self.process(process).pending.drop_all(signal);
        for entry in self.threads.values_mut().filter(|entry| entry.process == process) {
            entry.pending.drop_all(signal);
        }
    }

    /// Wakes a thread that waits to take a signal; `false` if none does.
    fn wake_for(&mut self, signal: u8, which: impl Fn(&Thread) -> bool) -> bool {
        let waits = |wait| matches!(wait, WaitReason::SignalOf(set) if set.contains(signal));
        self.wake(1, Resume::Again, |thread, wait| waits(wait) && which(thread)) > 0
    }

    /// Whether ended children of a process disappear without `wait4` (`do_notify_parent`).
    ///
    /// `Some(true)` if the process gets no `SIGCHLD` either, `None` if it must wait for them.
    pub(crate) fn discards_children(&mut self, process: TaskId) -> Option<bool> {
        let actions = self.processes.get(&process)?.actions.upgrade()?;
        let action = actions.lock().get(SIGCHLD);
        let ignores = action.handler == SIG_IGN;
        (ignores || action.flags & u64::from(linux::SA_NOCLDWAIT) != 0).then_some(ignores)
    }
}
