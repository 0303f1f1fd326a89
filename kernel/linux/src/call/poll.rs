//! `poll`, `ppoll`, `select`, `pselect6`: waiting for descriptors; and `eventfd2`.

use super::time::{read_timeout, write_time};
use super::{Arguments, address};
use crate::errno::Errno;
use crate::event::EventCounter;
use crate::file::{OpenFile, OpenTarget};
use crate::ready;
use crate::signal::SignalSet;
use crate::task::{CallStop, Scheduler, SyscallResult, Thread, WaitReason, scheduler};
use alloc::vec::Vec;
use linux_raw_sys::general as linux;
use pagewright_types::VirtAddr;

/// The events that cannot be left out.
const ALWAYS: u32 = linux::POLLERR | linux::POLLHUP;
/// What `select` calls readable and writable (`POLLIN_SET`, `POLLOUT_SET`).
const READABLE: u32 = linux::POLLIN | linux::POLLRDNORM | linux::POLLRDBAND | linux::POLLHUP | linux::POLLERR;
const WRITABLE: u32 = linux::POLLOUT | linux::POLLWRNORM | linux::POLLWRBAND | linux::POLLERR;

/// `ppoll`, which can block another set of signals while it waits.
pub(super) fn ppoll(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let timeout = read_timeout(thread, a[2])?;
    with_mask(thread, a[3], a[4], |thread| poll(thread, address(a[0]), a[1], timeout))
}

/// Waits with the set of signals at `at` blocked instead, unless `at` is 0, until the call ends.
pub(super) fn with_mask(
    thread: &mut Thread,
    at: u64,
    size: u64,
    wait: impl FnOnce(&mut Thread) -> SyscallResult,
) -> SyscallResult {
    if at != 0 {
        if size != 8 {
            return Err(Errno::EINVAL.into());
        }
        let set = SignalSet(thread.space.read_u64(address(at))?);
        thread.set_temporary_mask(set);
    }
    let answer = wait(thread);
    if !sleeps(&answer) {
        thread.restore_mask();
    }
    answer
}

/// Whether a call goes on after a sleep.
fn sleeps(answer: &SyscallResult) -> bool {
    matches!(answer, Err(CallStop::Sleep { .. }))
}

/// Waits for at most `timeout` ns, or without a limit.
pub(super) fn poll(thread: &mut Thread, descriptors: VirtAddr, count: u64, timeout: Option<u64>) -> SyscallResult {
    if count > thread.descriptor_limit() {
        return Err(Errno::EINVAL.into());
    }
    let mut bytes = thread.space.read_vec(descriptors, count as usize * 8)?;
    let ready = until_ready(thread, timeout, |scheduler, thread| {
        bytes.chunks_exact_mut(8).filter_map(|entry| poll_one(scheduler, thread, entry)).count() as u64
    })?;
    thread.space.write(descriptors, &bytes)?;
    Ok(ready)
}

/// Counts what is ready, and sleeps for at most `timeout` ns if nothing is.
///
/// All calls that wait for descriptors wait here. `count` runs with the scheduler locked.
pub(super) fn until_ready(
    thread: &mut Thread,
    timeout: Option<u64>,
    mut count: impl FnMut(&Scheduler, &mut Thread) -> u64,
) -> SyscallResult {
    let scheduler = scheduler();
    let ready = count(&scheduler, thread);
    let now = pagewright_hal::time::now_ns();
    let deadline = thread.deadline_within(timeout, now);
    if ready == 0 && deadline.is_none_or(|deadline| deadline > now) {
        thread.deadline = deadline;
        return Err(CallStop::Sleep { scheduler, wait: WaitReason::Poll, deadline, at_deadline: 0 });
    }
    Ok(ready)
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
            Ok(descriptor) if descriptor.open.is_path() => linux::POLLNVAL,
            Ok(descriptor) => ready::events(scheduler, &descriptor.open) & (wanted | ALWAYS),
        }
    };
    entry[6..8].copy_from_slice(&(answer as u16).to_le_bytes());
    (answer != 0).then_some(())
}

/// `pselect6`, with a `struct timespec` and another set of signals.
pub(super) fn pselect6(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let timeout = read_timeout(thread, a[4])?;
    let (mask, size) = match a[5] {
        0 => (0, 0),
        at => (thread.space.read_u64(address(at))?, thread.space.read_u64(address(at.wrapping_add(8)))?),
    };
    with_mask(thread, mask, size, |thread| {
        let answer = select(thread, a, timeout);
        if let (Some(left), Some(deadline), false) = (timeout, thread.deadline, sleeps(&answer)) {
            // As in Linux, the result stands if the time cannot be stored.
            let _ = write_time(thread, address(a[4]), remaining(left, deadline));
        }
        answer
    })
}

/// The time left until `deadline`, of at most `timeout`.
fn remaining(timeout: u64, deadline: u64) -> u64 {
    deadline.saturating_sub(pagewright_hal::time::now_ns()).min(timeout)
}

/// `select`, with a `struct timeval`, which gets the remaining time.
#[cfg(target_arch = "x86_64")]
pub(super) fn select_with_timeval(thread: &mut Thread, a: Arguments) -> SyscallResult {
    const US: u64 = 1_000_000;
    let timeout = match a[4] {
        0 => None,
        at => {
            let (seconds, us) =
                (thread.space.read_u64(address(at))?, thread.space.read_u64(address(at.wrapping_add(8)))?);
            if seconds.cast_signed() < 0 || us.cast_signed() < 0 {
                return Err(Errno::EINVAL.into());
            }
            Some(seconds.saturating_mul(1000 * US).saturating_add(us.saturating_mul(1000)))
        }
    };
    let answer = select(thread, a, timeout);
    if let (Some(timeout), Some(deadline), false) = (timeout, thread.deadline, sleeps(&answer)) {
        let left = remaining(timeout, deadline) / 1000;
        let _ = thread.space.write_u64(address(a[4]), left / US);
        let _ = thread.space.write_u64(address(a[4].wrapping_add(8)), left % US);
    }
    answer
}

/// Waits until a descriptor of three sets is ready (`do_select`).
fn select(thread: &mut Thread, a: Arguments, timeout: Option<u64>) -> SyscallResult {
    let count = usize::try_from(a[0] as i32).map_err(|_| Errno::EINVAL)?.min(thread.files.lock().room());
    let len = count.div_ceil(64) * 8;
    let mut sets: [Vec<u8>; 3] = Default::default();
    for (set, at) in sets.iter_mut().zip(&a[1..4]) {
        if *at != 0 {
            *set = thread.space.read_vec(address(*at), len)?;
        }
    }
    let has = |set: &[u8], number: usize| set.get(number / 8).is_some_and(|byte| byte & 1 << (number % 8) != 0);
    let wanted: Vec<usize> = (0..count).filter(|number| sets.iter().any(|set| has(set, *number))).collect();
    if wanted.iter().any(|number| thread.files.lock().get(*number as u64).is_err()) {
        return Err(Errno::EBADF.into());
    }
    let mut found: [Vec<u8>; 3] = Default::default();
    // Set before the wait, so that the remaining time is known if something is ready at once.
    thread.deadline = thread.deadline_within(timeout, pagewright_hal::time::now_ns());
    let ready = until_ready(thread, timeout, |scheduler, thread| {
        found = sets.each_ref().map(|set| Vec::from_iter(set.iter().map(|_| 0)));
        let mut ready = 0;
        for number in &wanted {
            let events =
                thread.files.lock().get(*number as u64).map_or(0, |known| ready::events(scheduler, &known.open));
            for (index, of_set) in [READABLE, WRITABLE, linux::POLLPRI].into_iter().enumerate() {
                if events & of_set != 0 && has(&sets[index], *number) {
                    found[index][number / 8] |= 1 << (number % 8);
                    ready += 1;
                }
            }
        }
        ready
    })?;
    for (set, at) in found.iter().zip(&a[1..4]) {
        if *at != 0 {
            thread.space.write(address(*at), set)?;
        }
    }
    Ok(ready)
}

/// `eventfd2`; `eventfd` has no flags.
pub(super) fn eventfd2(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let flags = a[1] as u32;
    if flags & !(linux::EFD_SEMAPHORE | linux::EFD_CLOEXEC | linux::EFD_NONBLOCK) != 0 {
        return Err(Errno::EINVAL.into());
    }
    let counter = EventCounter::new(u64::from(a[0] as u32), flags & linux::EFD_SEMAPHORE != 0);
    let open = OpenFile::new(OpenTarget::Event(counter), linux::O_RDWR | flags & linux::EFD_NONBLOCK);
    Ok(thread.add_descriptor(&open, flags & linux::EFD_CLOEXEC != 0)?)
}
