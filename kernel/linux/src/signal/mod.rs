//! Signals: what is pending, what becomes of it, and handlers.
//!
//! A signal is delivered on the way to user mode ([`deliver`]). Its default is to end the process
//! or nothing; a handler gets a frame on its stack as Linux lays it out
//! (`arch/*/kernel/signal*.c`), because programs look into it.
//!
//! Not guaranteed: stopping and continuing, queues of real-time signals (each is pending once),
//! `SIGEV_*`.

#[cfg(target_arch = "aarch64")]
#[path = "aarch64.rs"]
mod frame;
#[cfg(target_arch = "x86_64")]
#[path = "x86_64.rs"]
mod frame;

use crate::call;
use crate::errno::Errno;
use crate::report;
use crate::task::{CallStop, ExitStatus, Scheduler, TaskId, Thread, scheduler};
use alloc::vec::Vec;
use linux_raw_sys::general as linux;
use pagewright_types::VirtAddr;

pub(crate) use frame::{TRAMPOLINE, pop_frame};

pub(crate) const SIGILL: u8 = linux::SIGILL as u8;
pub(crate) const SIGTRAP: u8 = linux::SIGTRAP as u8;
pub(crate) const SIGBUS: u8 = linux::SIGBUS as u8;
pub(crate) const SIGFPE: u8 = linux::SIGFPE as u8;
pub(crate) const SIGKILL: u8 = linux::SIGKILL as u8;
pub(crate) const SIGSEGV: u8 = linux::SIGSEGV as u8;
pub(crate) const SIGPIPE: u8 = linux::SIGPIPE as u8;
pub(crate) const SIGCHLD: u8 = linux::SIGCHLD as u8;

/// `SEGV_MAPERR`.
pub(crate) const SEGV_MAPERR: i32 = linux::SEGV_MAPERR as i32;
/// `SEGV_ACCERR`.
pub(crate) const SEGV_ACCERR: i32 = linux::SEGV_ACCERR as i32;
/// `BUS_ADRERR`.
pub(crate) const BUS_ADRERR: i32 = linux::BUS_ADRERR as i32;

/// `SI_USER`, `SI_TKILL`: who sent a signal did so by `kill`, or to this thread.
pub(crate) const SI_USER: i32 = linux::SI_USER as i32;
pub(crate) const SI_TKILL: i32 = linux::SI_TKILL;
const CLD_EXITED: i32 = linux::CLD_EXITED as i32;
const CLD_KILLED: i32 = linux::CLD_KILLED as i32;

/// Signals there are.
pub(crate) const NSIG: usize = 64;

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

    /// The lowest.
    fn first(self) -> Option<u8> {
        (self.0 != 0).then(|| self.0.trailing_zeros() as u8 + 1)
    }

    /// Without those that nobody can block.
    pub(crate) fn blockable(self) -> Self {
        Self(self.0 & !(Self::bit(SIGKILL) | Self::bit(linux::SIGSTOP as u8)))
    }
}

/// What a process wants to be done about a signal (`struct sigaction`).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SigAction {
    /// 0 for the default, 1 to ignore it, else the handler.
    pub(crate) handler: u64,
    pub(crate) flags: u64,
    pub(crate) restorer: u64,
    pub(crate) mask: SignalSet,
}

const SIG_DFL: u64 = 0;
const SIG_IGN: u64 = 1;

/// All actions of a process.
#[derive(Clone)]
pub(crate) struct SigActions {
    pub(crate) of: [SigAction; NSIG],
    /// Where the code lies that ends a handler, for programs that bring none.
    pub(crate) trampoline: VirtAddr,
}

impl SigActions {
    pub(crate) fn new() -> Self {
        Self { of: [SigAction::default(); NSIG], trampoline: VirtAddr::ZERO }
    }

    /// What is left of them when a program starts: handlers are gone, what is ignored stays
    /// ignored.
    pub(crate) fn for_new_program(&self, trampoline: VirtAddr) -> Self {
        let of = self.of.map(|action| if action.handler == SIG_IGN { action } else { SigAction::default() });
        Self { of, trampoline }
    }

    pub(crate) fn get(&self, signal: u8) -> SigAction {
        self.of[usize::from(signal) - 1]
    }
}

/// What a signal is about.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SigInfoOrigin {
    /// The address that faulted.
    Address(VirtAddr),
    /// Who sent it.
    Sender(TaskId),
    /// A child, and the status of its end.
    Child(TaskId, u8),
}

/// What a handler is told (`siginfo_t`).
///
/// Everybody's user is 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SigInfo {
    pub(crate) signal: u8,
    pub(crate) code: i32,
    pub(crate) about: SigInfoOrigin,
}

impl SigInfo {
    /// A signal that a process sends.
    pub(crate) fn sent(signal: u8, code: i32, by: TaskId) -> Self {
        Self { signal, code, about: SigInfoOrigin::Sender(by) }
    }

    /// The signal of a child's end.
    pub(crate) fn of_end(signal: u8, child: TaskId, end: ExitStatus) -> Self {
        let (code, status) = match end {
            ExitStatus::Exit(status) => (CLD_EXITED, status),
            ExitStatus::Signal(by) => (CLD_KILLED, by),
        };
        Self { signal, code, about: SigInfoOrigin::Child(child, status) }
    }

    /// The address that faulted, or none.
    fn address(self) -> VirtAddr {
        match self.about {
            SigInfoOrigin::Address(address) => address,
            SigInfoOrigin::Sender(_) | SigInfoOrigin::Child(..) => VirtAddr::ZERO,
        }
    }

    /// As it lies in memory.
    fn bytes(self) -> [u8; 128] {
        let mut bytes = [0; 128];
        bytes[..4].copy_from_slice(&i32::from(self.signal).to_le_bytes());
        bytes[8..12].copy_from_slice(&self.code.to_le_bytes());
        match self.about {
            SigInfoOrigin::Address(address) => bytes[16..24].copy_from_slice(&address.raw().to_le_bytes()),
            SigInfoOrigin::Sender(id) => bytes[16..20].copy_from_slice(&id.0.to_le_bytes()),
            SigInfoOrigin::Child(id, status) => {
                bytes[16..20].copy_from_slice(&id.0.to_le_bytes());
                bytes[24] = status;
            }
        }
        bytes
    }
}

/// Signals that wait to be looked at, each once: of two, the handler is told of the first.
#[derive(Default)]
pub(crate) struct PendingSignals {
    set: SignalSet,
    /// What their handlers are told.
    ///
    /// Without memory for that they come all the same.
    told: Vec<SigInfo>,
}

impl PendingSignals {
    fn insert(&mut self, info: SigInfo) {
        if !self.set.contains(info.signal) && self.told.try_reserve(1).is_ok() {
            self.told.push(info);
        }
        self.set.insert(info.signal);
    }

    fn take(&mut self, signal: u8) -> Option<SigInfo> {
        if !self.set.contains(signal) {
            return None;
        }
        self.set.remove(signal);
        let told = self.told.iter().position(|info| info.signal == signal).map(|index| self.told.swap_remove(index));
        Some(told.unwrap_or(SigInfo::sent(signal, SI_USER, TaskId(0))))
    }
}

/// Whether the default is to do nothing.
///
/// Stopping is not implemented, so it is nothing too.
fn ignored_by_default(signal: u8) -> bool {
    let ignored = [linux::SIGCHLD, linux::SIGURG, linux::SIGWINCH, linux::SIGCONT];
    let stops = [linux::SIGSTOP, linux::SIGTSTP, linux::SIGTTIN, linux::SIGTTOU];
    ignored.iter().chain(&stops).any(|known| *known == u32::from(signal))
}

impl Thread {
    /// Whether its process does nothing about a signal.
    fn ignores(&self, signal: u8) -> bool {
        let handler = self.actions.lock().get(signal).handler;
        handler == SIG_IGN || handler == SIG_DFL && ignored_by_default(signal)
    }

    /// Whether it runs on the stack for handlers (`on_sig_stack`).
    pub(crate) fn is_on_signal_stack(&self) -> bool {
        let (start, len) = self.signal_stack;
        let used = start.wrapping_add(len).wrapping_sub(self.context.sp().raw());
        used < len
    }

    /// Whether a signal would be looked at now.
    fn wants(&self, signal: u8) -> bool {
        !self.blocked.contains(signal) && !self.ignores(signal)
    }

    /// Lets a call wait with another set of blocked signals, until [`Thread::restore_mask`]; the
    /// set that a handler puts back is the old one.
    pub(crate) fn set_temporary_mask(&mut self, set: SignalSet) {
        self.saved_blocked.get_or_insert(self.blocked);
        self.blocked = set.blockable();
    }

    /// Puts back the set of blocked signals that a call has changed for itself.
    pub(crate) fn restore_mask(&mut self) {
        if let Some(before) = self.saved_blocked.take() {
            self.blocked = before;
        }
    }
}

/// Delivers what is pending.
///
/// # Errors
/// [`CallStop`] when the thread ends.
pub(crate) fn deliver(thread: &mut Thread) -> Result<(), CallStop> {
    loop {
        let info = {
            let mut scheduler = scheduler();
            if let Some(end) = scheduler.must_exit(thread) {
                return Err(CallStop::Exit(end));
            }
            scheduler.take_signal(thread)
        };
        let Some(info) = info else {
            thread.restore_mask();
            return Ok(());
        };
        handle_signal(thread, info)?;
    }
}

/// Does what the process wants about a signal.
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
        SIG_DFL if ignored_by_default(info.signal) => Ok(()),
        SIG_DFL => Err(CallStop::ExitProcess(ExitStatus::Signal(info.signal))),
        _ => {
            let before = thread.saved_blocked.take().unwrap_or(thread.blocked);
            if frame::push_frame(thread, info, &action, before).is_err() {
                return Err(CallStop::ExitProcess(ExitStatus::Signal(SIGSEGV)));
            }
            let mut blocked = SignalSet(thread.blocked.0 | action.mask.0);
            if action.flags & u64::from(linux::SA_NODEFER) == 0 {
                blocked.insert(info.signal);
            }
            thread.blocked = blocked.blockable();
            Ok(())
        }
    }
}

/// Gives a thread a signal that its own instruction caused; a process that does not handle it is
/// killed, with a line that says why.
///
/// # Errors
/// [`CallStop`] when the process is killed.
pub(crate) fn force_signal(thread: &mut Thread, signal: u8, code: i32, address: VirtAddr) -> Result<(), CallStop> {
    let handled = thread.actions.lock().get(signal).handler > SIG_IGN && !thread.blocked.contains(signal);
    if handled {
        return handle_signal(thread, SigInfo { signal, code, about: SigInfoOrigin::Address(address) });
    }
    let name = alloc::string::String::from(scheduler().process(thread.process).name());
    let (pc, sp) = (thread.context.pc(), thread.context.sp());
    report::say(format_args!(
        "{name} ({}) is killed by signal {signal} at {address}: pc {pc} sp {sp}",
        thread.process.0
    ));
    Err(CallStop::ExitProcess(ExitStatus::Signal(signal)))
}

/// A call that would go on waiting is ended by a signal: it fails, or is made again behind the
/// handler if both ask for it. Returns whether there is still such a signal; another thread may
/// have taken it.
pub(crate) fn interrupt_call(thread: &mut Thread, restarts: bool) -> bool {
    let Some(signal) = scheduler().next_deliverable(thread) else { return false };
    let action = thread.actions.lock().get(signal);
    let (number, first) = thread.call;
    if restarts && action.flags & u64::from(linux::SA_RESTART) != 0 {
        thread.context.restart_syscall(number, first);
    } else {
        call::store_remaining_time(thread);
        thread.context.set_syscall_result(Errno::EINTR.result());
    }
    thread.deadline = None;
    true
}

impl Scheduler {
    /// How a thread ends that may not go on: with its process, or because another is to be the only
    /// one.
    pub(crate) fn must_exit(&mut self, thread: &Thread) -> Option<ExitStatus> {
        let process = self.process(thread.process);
        let replaced = process.exec_thread.is_some_and(|exec_thread| exec_thread != thread.id);
        process.group_exit.or(replaced.then_some(ExitStatus::Signal(SIGKILL)))
    }

    /// Whether a signal waits for a thread that does not ignore it.
    pub(crate) fn is_interrupted(&mut self, thread: &Thread) -> bool {
        self.next_deliverable(thread).is_some()
    }

    /// The first signal that waits for a thread that does not ignore it.
    fn next_deliverable(&mut self, thread: &Thread) -> Option<u8> {
        let mut pending = self.deliverable(thread);
        while let Some(signal) = pending.first() {
            if !thread.ignores(signal) {
                return Some(signal);
            }
            pending.remove(signal);
        }
        None
    }

    /// What is pending for a thread and not blocked.
    fn deliverable(&mut self, thread: &Thread) -> SignalSet {
        let own = self.threads.get(&thread.id).map_or(SignalSet::default(), |known| known.pending.set);
        SignalSet((own.0 | self.process(thread.process).pending.set.0) & !thread.blocked.0)
    }

    fn take_signal(&mut self, thread: &Thread) -> Option<SigInfo> {
        let signal = self.deliverable(thread).first()?;
        let own = self.threads.get_mut(&thread.id).and_then(|known| known.pending.take(signal));
        own.or_else(|| self.process(thread.process).pending.take(signal))
    }

    /// Makes a signal pending for a process that has not ended, and interrupts a thread of it that
    /// sleeps and wants it.
    pub(crate) fn post(&mut self, process: TaskId, info: SigInfo) {
        self.process(process).pending.insert(info);
        self.interrupt(|thread| thread.process == process && thread.wants(info.signal));
    }

    /// The same for one thread, if there is such a one.
    pub(crate) fn post_to_thread(&mut self, id: TaskId, info: SigInfo) {
        if let Some(known) = self.threads.get_mut(&id) {
            known.pending.insert(info);
            self.interrupt(|thread| thread.id == id && thread.wants(info.signal));
        }
    }

    /// Whether a process does not want to hear of its children's ends, which then leave nothing to
    /// wait for (`do_notify_parent`): true if it gets no signal either.
    pub(crate) fn discards_children(&mut self, process: TaskId) -> Option<bool> {
        let actions = self.processes.get(&process)?.actions.upgrade()?;
        let action = actions.lock().get(SIGCHLD);
        let ignores = action.handler == SIG_IGN;
        (ignores || action.flags & u64::from(linux::SA_NOCLDWAIT) != 0).then_some(ignores)
    }
}
