//! Signals: what is pending, what becomes of it, and handlers.
//!
//! A signal is delivered on the way to user mode ([`deliver`]). Its default is to end the process or nothing; a handler gets a frame on its
//! stack as Linux lays it out (`arch/*/kernel/signal*.c`), because programs look into it.
//!
//! Not guaranteed: stopping and continuing, queues of real-time signals (each is pending once), `SIGEV_*`.

#[cfg(target_arch = "aarch64")]
#[path = "aarch64.rs"]
mod frame;
#[cfg(target_arch = "x86_64")]
#[path = "x86_64.rs"]
mod frame;

use crate::errno::Errno;
use crate::finish;
use crate::task::{End, Id, Resume, State, Stop, Thread, state};
use linux_raw_sys::general as linux;
use pagewright_types::VirtAddr;

pub(crate) use frame::{TRAMPOLINE, pop};

pub(crate) const SIGILL: u8 = linux::SIGILL as u8;
pub(crate) const SIGTRAP: u8 = linux::SIGTRAP as u8;
pub(crate) const SIGBUS: u8 = linux::SIGBUS as u8;
pub(crate) const SIGFPE: u8 = linux::SIGFPE as u8;
pub(crate) const SIGKILL: u8 = linux::SIGKILL as u8;
pub(crate) const SIGSEGV: u8 = linux::SIGSEGV as u8;
pub(crate) const SIGPIPE: u8 = linux::SIGPIPE as u8;
pub(crate) const SIGCHLD: u8 = linux::SIGCHLD as u8;

/// `SEGV_MAPERR`.
pub(crate) const MAPPING_ERROR: i32 = linux::SEGV_MAPERR as i32;
/// `SEGV_ACCERR`.
pub(crate) const ACCESS_ERROR: i32 = linux::SEGV_ACCERR as i32;
/// `BUS_ADRERR`.
pub(crate) const NO_SUCH_ADDRESS: i32 = linux::BUS_ADRERR as i32;

/// Signals there are.
pub(crate) const SIGNALS: usize = 64;

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
pub(crate) struct Action {
    /// 0 for the default, 1 to ignore it, else the handler.
    pub(crate) handler: u64,
    pub(crate) flags: u64,
    pub(crate) restorer: u64,
    pub(crate) mask: SignalSet,
}

const DEFAULT: u64 = 0;
const IGNORE: u64 = 1;

/// All actions of a process.
#[derive(Clone)]
pub(crate) struct Actions {
    pub(crate) of: [Action; SIGNALS],
    /// Where the code lies that ends a handler, for programs that bring none.
    pub(crate) trampoline: VirtAddr,
}

impl Actions {
    pub(crate) fn new() -> Self {
        Self { of: [Action::default(); SIGNALS], trampoline: VirtAddr::ZERO }
    }

    /// What is left of them when a program starts: handlers are gone, what is ignored stays ignored.
    pub(crate) fn for_new_program(&self, trampoline: VirtAddr) -> Self {
        let of = self.of.map(|action| if action.handler == IGNORE { action } else { Action::default() });
        Self { of, trampoline }
    }

    pub(crate) fn get(&self, signal: u8) -> Action {
        self.of[usize::from(signal) - 1]
    }
}

/// What a handler is told (`siginfo_t`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Info {
    pub(crate) signal: u8,
    pub(crate) code: i32,
    /// The address that faulted.
    pub(crate) address: VirtAddr,
}

impl Info {
    /// As it lies in memory.
    fn bytes(self) -> [u8; 128] {
        let mut bytes = [0; 128];
        bytes[..4].copy_from_slice(&i32::from(self.signal).to_le_bytes());
        bytes[8..12].copy_from_slice(&self.code.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.address.raw().to_le_bytes());
        bytes
    }
}

/// Whether the default is to do nothing. Stopping is not implemented, so it is nothing too.
fn ignored_by_default(signal: u8) -> bool {
    let ignored = [linux::SIGCHLD, linux::SIGURG, linux::SIGWINCH, linux::SIGCONT];
    let stops = [linux::SIGSTOP, linux::SIGTSTP, linux::SIGTTIN, linux::SIGTTOU];
    ignored.iter().chain(&stops).any(|known| *known == u32::from(signal))
}

impl Thread {
    /// Whether its process does nothing about a signal.
    fn ignores(&self, signal: u8) -> bool {
        let handler = self.actions.lock().get(signal).handler;
        handler == IGNORE || handler == DEFAULT && ignored_by_default(signal)
    }
}

/// Delivers what is pending.
///
/// # Errors
/// [`Stop`] when the thread ends.
pub(crate) fn deliver(thread: &mut Thread) -> Result<(), Stop> {
    loop {
        let signal = {
            let mut state = state();
            if let Some(end) = state.must_end(thread) {
                return Err(Stop::Exit(end));
            }
            state.take_signal(thread)
        };
        let Some(signal) = signal else {
            if let Some(before) = thread.blocked_before.take() {
                thread.blocked = before;
            }
            return Ok(());
        };
        act(thread, Info { signal, code: 0, address: VirtAddr::ZERO })?;
    }
}

/// Does what the process wants about a signal.
fn act(thread: &mut Thread, info: Info) -> Result<(), Stop> {
    let action = {
        let mut actions = thread.actions.lock();
        let action = actions.get(info.signal);
        if action.flags & u64::from(linux::SA_RESETHAND) != 0 && action.handler > IGNORE {
            actions.of[usize::from(info.signal) - 1] = Action::default();
        }
        action
    };
    match action.handler {
        IGNORE => Ok(()),
        DEFAULT if ignored_by_default(info.signal) => Ok(()),
        DEFAULT => Err(Stop::ExitProcess(End::Signal(info.signal))),
        _ => {
            let before = thread.blocked_before.take().unwrap_or(thread.blocked);
            if frame::push(thread, info, &action, before).is_err() {
                return Err(Stop::ExitProcess(End::Signal(SIGSEGV)));
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

/// Gives a thread a signal that its own instruction caused; a process that does not handle it is killed, with a line that says why.
///
/// # Errors
/// [`Stop`] when the process is killed.
pub(crate) fn force(thread: &mut Thread, signal: u8, code: i32, address: VirtAddr) -> Result<(), Stop> {
    let handled = thread.actions.lock().get(signal).handler > IGNORE && !thread.blocked.contains(signal);
    if handled {
        return act(thread, Info { signal, code, address });
    }
    let name = alloc::string::String::from(state().process(thread.process).name());
    let (pc, sp) = (thread.context.pc(), thread.context.sp());
    finish::say(format_args!(
        "{name} ({}) is killed by signal {signal} at {address}: pc {pc} sp {sp}",
        thread.process.0
    ));
    Err(Stop::ExitProcess(End::Signal(signal)))
}

/// A sleeping call was ended by a signal: it fails, or is made again after the handler if that asks for it.
pub(crate) fn interrupt(thread: &mut Thread) {
    let pending = state().deliverable(thread).first();
    let restart = pending.is_none_or(|signal| {
        let action = thread.actions.lock().get(signal);
        action.handler <= IGNORE || action.flags & u64::from(linux::SA_RESTART) != 0
    });
    let waits_for_signal = thread.blocked_before.is_some();
    if restart && !waits_for_signal {
        let (number, first) = thread.call;
        thread.context.repeat(number, first);
    } else {
        thread.context.set_result(Errno::EINTR.result());
    }
}

impl State {
    /// How a thread ends that may not go on: with its process, or because another is to be the only one.
    pub(crate) fn must_end(&mut self, thread: &Thread) -> Option<End> {
        let process = self.process(thread.process);
        let replaced = process.sole.is_some_and(|sole| sole != thread.id);
        process.ending.or(replaced.then_some(End::Signal(SIGKILL)))
    }

    /// Whether a signal waits for a thread that does not ignore it.
    pub(crate) fn is_interrupted(&mut self, thread: &Thread) -> bool {
        let mut pending = self.deliverable(thread);
        while let Some(signal) = pending.first() {
            if !thread.ignores(signal) {
                return true;
            }
            pending.remove(signal);
        }
        false
    }

    /// What is pending for a thread and not blocked.
    fn deliverable(&mut self, thread: &Thread) -> SignalSet {
        let own = self.pending.get(&thread.id).copied().unwrap_or_default();
        SignalSet((own.0 | self.process(thread.process).pending.0) & !thread.blocked.0)
    }

    fn take_signal(&mut self, thread: &Thread) -> Option<u8> {
        let signal = self.deliverable(thread).first()?;
        if let Some(own) = self.pending.get_mut(&thread.id) {
            own.remove(signal);
        }
        self.process(thread.process).pending.remove(signal);
        Some(signal)
    }

    /// Makes a signal pending for a process, and interrupts a thread of it that sleeps and wants it.
    pub(crate) fn post(&mut self, process: Id, signal: u8) {
        self.process(process).pending.insert(signal);
        self.wake(1, Resume::Interrupted, |thread, wait| {
            thread.process == process
                && wait.is_interruptible()
                && !thread.blocked.contains(signal)
                && !thread.ignores(signal)
        });
    }

    /// The same for one thread.
    pub(crate) fn post_to_thread(&mut self, id: Id, signal: u8) {
        let mut set = self.pending.get(&id).copied().unwrap_or_default();
        set.insert(signal);
        self.pending.insert(id, set);
        self.wake(1, Resume::Interrupted, |thread, wait| {
            thread.id == id && wait.is_interruptible() && !thread.blocked.contains(signal) && !thread.ignores(signal)
        });
    }
}
