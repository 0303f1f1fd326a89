//! What a signal carries, and the signals that are pending.

use super::{
    CLD_CONTINUED, CLD_EXITED, CLD_KILLED, CLD_STOPPED, SI_KERNEL, SI_TIMER, SI_USER, SIGCHLD, SIGCONT, SignalSet,
    count_stop,
};
use crate::job_control::JobEvent;
use crate::process::ExitStatus;
use crate::task::{TaskId, Thread};
use alloc::vec::Vec;
use linux_raw_sys::general as linux;
use pagewright_types::VirtAddr;

/// The cause of a signal.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SigCause {
    /// A fault at this address.
    Address(VirtAddr),
    /// A process that sent it, and its user.
    Sender(TaskId, u32),
    /// The end or the stop of a child, with its user and its status.
    Child(TaskId, u32, u8),
    /// A process that chose the words from offset 16 and 24 on (`rt_sigqueueinfo`).
    Queued(u64, u64),
    /// The kernel, such as for an interval timer.
    Kernel,
    /// A POSIX timer, with its overruns and its value.
    Timer { id: u32, overruns: u32, value: u64 },
}

/// The information that a handler gets (`siginfo_t`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct SigInfo {
    pub(crate) signal: u8,
    pub(crate) code: i32,
    pub(crate) cause: SigCause,
}

impl SigInfo {
    /// The information of a signal that the process of a thread sends.
    pub(crate) fn sent(signal: u8, code: i32, by: &Thread) -> Self {
        Self { signal, code, cause: SigCause::Sender(by.process, by.credentials.user.real) }
    }

    /// The information of the signal for the end of a child.
    pub(crate) fn of_end(signal: u8, child: TaskId, user: u32, end: ExitStatus) -> Self {
        let (code, status) = match end {
            ExitStatus::Exit(status) => (CLD_EXITED, status),
            ExitStatus::Signal(by) => (CLD_KILLED, by),
        };
        Self { signal, code, cause: SigCause::Child(child, user, status) }
    }

    /// The information of the signal for a child that stopped or continued.
    pub(crate) fn of_job(child: TaskId, user: u32, event: JobEvent) -> Self {
        let (code, status) = match event {
            JobEvent::Stopped(by) => (CLD_STOPPED, by),
            JobEvent::Continued => (CLD_CONTINUED, SIGCONT),
        };
        Self { signal: SIGCHLD, code, cause: SigCause::Child(child, user, status) }
    }

    /// The information of the signal of a timer.
    pub(crate) fn of_timer(signal: u8, cause: SigCause) -> Self {
        let code = if matches!(cause, SigCause::Timer { .. }) { SI_TIMER } else { SI_KERNEL };
        Self { signal, code, cause }
    }

    /// Whether it is queued even if another one with its number is pending.
    ///
    /// A timer stops until its signal is taken, so it has at most one pending (`send_sigqueue`).
    fn is_queued(self) -> bool {
        matches!(self.cause, SigCause::Timer { .. }) || u32::from(self.signal) >= linux::SIGRTMIN
    }

    /// The layout in memory.
    pub(crate) fn bytes(self) -> [u8; 128] {
        let mut bytes = [0; 128];
        bytes[..4].copy_from_slice(&i32::from(self.signal).to_le_bytes());
        bytes[8..12].copy_from_slice(&self.code.to_le_bytes());
        match self.cause {
            SigCause::Address(address) => bytes[16..24].copy_from_slice(&address.raw().to_le_bytes()),
            SigCause::Sender(id, user) => {
                bytes[16..20].copy_from_slice(&id.0.to_le_bytes());
                bytes[20..24].copy_from_slice(&user.to_le_bytes());
            }
            SigCause::Child(id, user, status) => {
                bytes[16..20].copy_from_slice(&id.0.to_le_bytes());
                bytes[20..24].copy_from_slice(&user.to_le_bytes());
                bytes[24] = status;
            }
            SigCause::Queued(sender, value) => {
                bytes[16..24].copy_from_slice(&sender.to_le_bytes());
                bytes[24..32].copy_from_slice(&value.to_le_bytes());
            }
            SigCause::Kernel => {}
            SigCause::Timer { id, overruns, value } => {
                bytes[16..20].copy_from_slice(&id.to_le_bytes());
                bytes[20..24].copy_from_slice(&overruns.to_le_bytes());
                bytes[24..32].copy_from_slice(&value.to_le_bytes());
            }
        }
        bytes
    }
}

/// The most signals that are queued for a process or a thread.
///
/// Linux limits them by `RLIMIT_SIGPENDING`.
const QUEUED_MAX: usize = 4096;

/// Pending signals, in their order.
///
/// Real-time signals and those of timers are queued. Of two others that are equal, the first is
/// kept.
#[derive(Default)]
pub(crate) struct PendingSignals {
    pub(super) set: SignalSet,
    /// The information for their handlers.
    ///
    /// A signal for which there was no memory has none, and is delivered nevertheless.
    infos: Vec<SigInfo>,
}

impl PendingSignals {
    pub(super) fn insert(&mut self, info: SigInfo) {
        let wanted = !self.set.contains(info.signal) || info.is_queued() && self.infos.len() < QUEUED_MAX;
        if wanted && self.infos.try_reserve(1).is_ok() {
            self.infos.push(info);
        }
        self.set.insert(info.signal);
        count_stop();
    }

    /// Whether a signal is pending.
    pub(crate) fn contains(&self, signal: u8) -> bool {
        self.set.contains(signal)
    }

    /// Removes all signals with this number.
    pub(super) fn drop_all(&mut self, signal: u8) {
        self.set.remove(signal);
        self.infos.retain(|info| info.signal != signal);
    }

    pub(super) fn take(&mut self, signal: u8) -> Option<SigInfo> {
        if !self.set.contains(signal) {
            return None;
        }
        let mut of_signal = self.infos.iter().enumerate().filter(|(_, info)| info.signal == signal);
        let (first, more) = (of_signal.next().map(|(index, _)| index), of_signal.next().is_some());
        if !more {
            self.set.remove(signal);
        }
        let info = first.map(|index| self.infos.remove(index));
        Some(info.unwrap_or(SigInfo { signal, code: SI_USER, cause: SigCause::Sender(TaskId(0), 0) }))
    }
}
