//! `sendmmsg` and `recvmmsg`: several messages by one call.
//!
//! A call that sleeps is made again and continues after the messages that it has moved
//! ([`MessageProgress`]).
//!
//! **INV-KERNEL-MESSAGES** `sendmmsg` and `recvmmsg` move each message once, however often they
//! sleep, and return how many they moved if a signal or an error ends them.
//!
//! Not guaranteed: that an error after the first message is reported by the next call on the socket
//! (`sk_err`).

use super::message::{HEADER, recvmsg, sendmsg};
use super::time::{read_time, write_time};
use super::{Arguments, address};
use crate::task::{CallStop, SyscallResult, Thread};
use linux_raw_sys::general as linux;
use linux_raw_sys::net;
use pagewright_plant::plant;

/// Waits for the first message only.
const MSG_WAITFORONE: u32 = 0x10000;
/// The size of `struct mmsghdr`: a header, and the length of its message.
const ENTRY: u64 = HEADER as u64 + 8;

/// What a call that moves several messages has done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MessageProgress {
    /// The messages that were moved.
    pub(crate) moved: u64,
    /// When a call with a timeout moves its last message, in ns since boot.
    pub(crate) last: Option<u64>,
    /// A signal is pending, so the call waits no more.
    pub(crate) is_interrupted: bool,
}

/// `sendmmsg` (`__sys_sendmmsg`).
pub(super) fn sendmmsg(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let count = u64::from(a[2] as u32).min(linux::UIO_MAXIOV.into());
    thread.open_file(a[0])?.socket()?;
    each(thread, a[1], count, |thread, entry, _| sendmsg(thread, [a[0], entry, a[3], 0, 0, 0]))
}

/// `recvmmsg` (`do_recvmmsg`).
///
/// The timeout ends the call after a message; no message is waited for less.
pub(super) fn recvmmsg(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let (count, flags, timeout) = (u64::from(a[2] as u32), a[3] as u32, a[4]);
    if timeout != 0 && thread.messages.is_none() {
        let last = pagewright_hal::time::now_ns().saturating_add(read_time(thread, address(timeout))?);
        thread.messages = Some(MessageProgress { last: Some(last), ..MessageProgress::default() });
    }
    thread.open_file(a[0])?.socket()?;
    let last = thread.messages.and_then(|messages| messages.last);
    let answer = each(thread, a[1], count, |thread, entry, moved| {
        let later = moved > 0 && flags & MSG_WAITFORONE != 0;
        let flags = flags & !MSG_WAITFORONE | if later { net::MSG_DONTWAIT } else { 0 };
        recvmsg(thread, [a[0], entry, flags.into(), 0, 0, 0])
    });
    if let (Ok(1..), Some(last)) = (&answer, last) {
        write_time(thread, address(timeout), last.saturating_sub(pagewright_hal::time::now_ns()))?;
    }
    answer
}

/// Moves messages by `one`, which gets the address of an entry and how many were moved before.
///
/// Returns how many were moved, also if an error ends the call after the first.
fn each(
    thread: &mut Thread,
    entries: u64,
    count: u64,
    one: impl Fn(&mut Thread, u64, u64) -> SyscallResult,
) -> SyscallResult {
    loop {
        let MessageProgress { moved, last, .. } = *thread.messages.get_or_insert_default();
        let is_late = moved > 0 && last.is_some_and(|last| last <= pagewright_hal::time::now_ns());
        if moved == count || is_late {
            return Ok(moved);
        }
        let entry = entries.wrapping_add(moved * ENTRY);
        let stored = match one(thread, entry, moved) {
            Ok(len) => thread.space.write_u32(address(entry.wrapping_add(HEADER as u64)), len as u32),
            Err(CallStop::Error(error)) => Err(error),
            Err(stop) => {
                // INV-KERNEL-MESSAGES: the call continues after these when it is made again.
                plant!(MessagesSentAgain => thread.messages = None);
                return Err(stop);
            }
        };
        match stored {
            Ok(()) => {}
            Err(_) if moved > 0 => return Ok(moved),
            Err(error) => return Err(error.into()),
        }
        (thread.deadline, thread.bytes_moved) = (None, 0);
        if let Some(messages) = &mut thread.messages {
            messages.moved += 1;
        }
    }
}
