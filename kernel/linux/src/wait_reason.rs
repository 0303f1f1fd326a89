//! What a sleeping thread waits for, and what may end the wait.
//!
//! Not guaranteed: that the event has happened when the thread runs again. Most calls look again.

use crate::call::PiWait;
use crate::file_lock::LockOwner;
use crate::signal::SignalSet;
use crate::task::TaskId;
use pagewright_mm::user::FutexKey;

/// What a sleeper waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitReason {
    /// A wake-up of this word whose bit set intersects this one (`FUTEX_WAIT_BITSET`).
    Futex(FutexKey, u32),
    /// A wake-up of one of the words of the thread (`futex_waitv`).
    FutexAny,
    /// The end of a child.
    Child,
    /// A change of any pipe, counter or socket, or the deadline.
    Transfer,
    /// A change of any descriptor, or the deadline.
    Poll,
    /// The `execve` or the end of a child that `vfork` made.
    Vfork(TaskId),
    /// The deadline.
    Time,
    /// A signal.
    Signal,
    /// A signal of this set, which the call takes (`rt_sigtimedwait`).
    SignalOf(SignalSet),
    /// The end of the other threads of the process, for `execve`.
    DeThread,
    /// A lock on a file, for an owner; POSIX locks note the owner that stands in the way.
    FileLock { node: u64, waiter: LockOwner, holder: Option<LockOwner> },
    /// The departure of a thread from a CPU that it may no longer run on (`sched_setaffinity`).
    Migration(TaskId),
    /// A lock of a word whose owner has it (`FUTEX_LOCK_PI`).
    FutexPi(PiWait),
    /// The end of the stop of its process ([`crate::job_control`]).
    Stopped,
}

impl WaitReason {
    /// Whether any signal ends the wait (`TASK_INTERRUPTIBLE`).
    ///
    /// The end of the process ends every wait (`TASK_KILLABLE`).
    pub(crate) fn is_interruptible(self) -> bool {
        match self {
            Self::Futex(..)
            | Self::FutexPi(_)
            | Self::FutexAny
            | Self::Child
            | Self::Transfer
            | Self::Poll
            | Self::Time
            | Self::Signal
            | Self::SignalOf(_)
            | Self::FileLock { .. } => true,
            Self::Vfork(_) | Self::DeThread | Self::Migration(_) | Self::Stopped => false,
        }
    }

    /// Whether an interrupted call restarts after a handler.
    ///
    /// A call that waits for a time or a signal does not (`ERESTART_RESTARTBLOCK`,
    /// `ERESTARTNOHAND`).
    pub(crate) fn restart(self, deadline: Option<u64>) -> CallRestart {
        match self {
            Self::FutexPi(_) => CallRestart::Always,
            Self::Futex(..) | Self::Transfer if deadline.is_some() => CallRestart::Never,
            Self::Futex(..)
            | Self::Transfer
            | Self::FutexAny
            | Self::Child
            | Self::Vfork(_)
            | Self::DeThread
            | Self::Migration(_)
            | Self::Stopped
            | Self::FileLock { .. } => CallRestart::WithFlag,
            Self::Poll | Self::Time | Self::Signal | Self::SignalOf(_) => CallRestart::Never,
        }
    }
}

/// Whether a call that a signal interrupted restarts after the handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallRestart {
    /// It fails with `EINTR`.
    Never,
    /// It restarts if the handler was installed with `SA_RESTART` (`ERESTARTSYS`).
    WithFlag,
    /// It restarts (`ERESTARTNOINTR`).
    Always,
}
