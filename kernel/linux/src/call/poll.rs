//! `poll` and `ppoll`: waiting for descriptors.

use super::time::read_time;
use super::{Arguments, address};
use crate::errno::Errno;
use crate::file::{LIMIT, OpenTarget};
use crate::signal::SignalSet;
use crate::task::{CallStop, Scheduler, SyscallResult, Thread, WaitReason, scheduler};
use linux_raw_sys::general as linux;
use pagewright_types::VirtAddr;

/// `ppoll`, which can block another set of signals while it waits.
pub(super) fn ppoll(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let deadline = match a[2] {
        0 => None,
        at => Some(read_time(thread, address(at))?),
    };
    if a[3] != 0 {
        if a[4] != 8 {
            return Err(Errno::EINVAL.into());
        }
        let set = SignalSet(thread.space.read_u64(address(a[3]))?);
        thread.set_temporary_mask(set);
    }
    let answer = poll(thread, address(a[0]), a[1], deadline);
    if !matches!(answer, Err(CallStop::Sleep { .. })) {
        thread.restore_mask();
    }
    answer
}

/// Waits for at most `timeout` ns, or without a limit.
pub(super) fn poll(thread: &mut Thread, descriptors: VirtAddr, count: u64, timeout: Option<u64>) -> SyscallResult {
    if count as usize > LIMIT {
        return Err(Errno::EINVAL.into());
    }
    let mut bytes = thread.space.read_vec(descriptors, count as usize * 8)?;
    let scheduler = scheduler();
    let ready = bytes.chunks_exact_mut(8).filter_map(|entry| poll_one(&scheduler, thread, entry)).count();
    let now = pagewright_hal::time::now_ns();
    let deadline = thread.deadline.or(timeout.map(|timeout| now.saturating_add(timeout)));
    if ready == 0 && deadline.is_none_or(|deadline| deadline > now) {
        thread.deadline = deadline;
        return Err(CallStop::Sleep { scheduler, wait: WaitReason::Poll, deadline, at_deadline: 0 });
    }
    drop(scheduler);
    thread.space.write(descriptors, &bytes)?;
    Ok(ready as u64)
}

/// Stores the events of one descriptor, and returns `Some` if there are any.
fn poll_one(scheduler: &Scheduler, thread: &Thread, entry: &mut [u8]) -> Option<()> {
    let number = i32::from_le_bytes(entry[..4].try_into().ok()?);
    let wanted = u32::from(u16::from_le_bytes(entry[4..6].try_into().ok()?));
    let answer = if number < 0 {
        0
    } else {
        match thread.files.lock().get(number as u64) {
            Err(_) => linux::POLLNVAL,
            Ok(descriptor) => match &descriptor.open.target {
                OpenTarget::Inode(_) => (linux::POLLIN | linux::POLLOUT) & wanted,
                // Readable when the process has ended.
                OpenTarget::Process(handle) => {
                    let runs = scheduler.process_of(handle).is_some_and(|process| process.exit_status.is_none());
                    if runs { 0 } else { linux::POLLIN & wanted }
                }
                OpenTarget::Pipe(end) => {
                    let (ready, alone) = end.poll();
                    let event = if end.writes() { linux::POLLOUT } else { linux::POLLIN };
                    let hang_up = if end.writes() { linux::POLLERR } else { linux::POLLHUP };
                    (if ready { event & wanted } else { 0 }) | (if alone { hang_up } else { 0 })
                }
            },
        }
    };
    entry[6..8].copy_from_slice(&(answer as u16).to_le_bytes());
    (answer != 0).then_some(())
}
