//! What a process does when it gets a signal, and the default actions.
//!
//! Not guaranteed: `SA_NOCLDSTOP` and `SA_RESETHAND` here. Senders and delivery look at flags.

use super::{NSIG, SignalSet};
use linux_raw_sys::general as linux;
use pagewright_types::VirtAddr;

/// The action of a process for a signal (`struct sigaction`).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SigAction {
    /// `SIG_DFL`, `SIG_IGN`, or the address of a handler.
    pub(crate) handler: u64,
    pub(crate) flags: u64,
    pub(crate) restorer: u64,
    pub(crate) mask: SignalSet,
}

/// The default action.
pub(super) const SIG_DFL: u64 = 0;
/// The signal is ignored.
pub(crate) const SIG_IGN: u64 = 1;

/// The actions of a process for all signals.
#[derive(Clone)]
pub(crate) struct SigActions {
    /// The action for signal `n` is at `n - 1`.
    pub(crate) of: [SigAction; NSIG],
    /// The code that returns from a handler, for programs without `SA_RESTORER`.
    pub(crate) trampoline: VirtAddr,
}

impl SigActions {
    pub(crate) fn new() -> Self {
        Self { of: [SigAction::default(); NSIG], trampoline: VirtAddr::ZERO }
    }

    /// The actions after `execve`: handlers are reset, ignored signals stay ignored.
    pub(crate) fn for_new_program(&self, trampoline: VirtAddr) -> Self {
        let of = self.of.map(|action| if action.handler == SIG_IGN { action } else { SigAction::default() });
        Self { of, trampoline }
    }

    /// Whether a signal is ignored.
    pub(crate) fn ignores(&self, signal: u8) -> bool {
        let handler = self.get(signal).handler;
        handler == SIG_IGN || handler == SIG_DFL && ignored_by_default(signal)
    }

    pub(crate) fn get(&self, signal: u8) -> SigAction {
        self.of[usize::from(signal) - 1]
    }
}

/// Whether the default action ignores the signal (`SIG_KERNEL_IGNORE_MASK`).
pub(super) fn ignored_by_default(signal: u8) -> bool {
    [linux::SIGCHLD, linux::SIGURG, linux::SIGWINCH, linux::SIGCONT].contains(&u32::from(signal))
}

/// Whether the default action dumps core, which the thread itself does.
///
/// Linux: `SIG_KERNEL_COREDUMP_MASK`.
pub(super) fn dumps_core(signal: u8) -> bool {
    let of_errors = [linux::SIGILL, linux::SIGTRAP, linux::SIGABRT, linux::SIGBUS, linux::SIGFPE, linux::SIGSEGV];
    let others = [linux::SIGQUIT, linux::SIGSYS, linux::SIGXCPU, linux::SIGXFSZ];
    of_errors.iter().chain(&others).any(|known| *known == u32::from(signal))
}
