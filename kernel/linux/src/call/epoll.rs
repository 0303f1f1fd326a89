//! `epoll_create1`, `epoll_ctl`, `epoll_wait` and its relatives.

use super::poll::{until_ready, with_mask};
use super::time::read_timeout;
use super::{Arguments, address};
use crate::epoll::{Epoll, EpollEvent, TakenEvent, check_loop};
use crate::errno::Errno;
use crate::file::{OpenFile, OpenTarget};
use crate::ready;
use crate::task::{SyscallResult, Thread, scheduler};
use alloc::vec::Vec;
use linux_raw_sys::general as linux;

/// The size of `struct epoll_event`, which is packed on x86-64, and the offset of its data.
const EVENT: usize = if cfg!(target_arch = "x86_64") { 12 } else { 16 };
const DATA: usize = EVENT - 8;
/// The bits that may stand beside `EPOLLEXCLUSIVE` (`EPOLLEXCLUSIVE_OK_BITS`).
const BESIDE_EXCLUSIVE: u32 = linux::EPOLLIN
    | linux::EPOLLOUT
    | linux::EPOLLERR
    | linux::EPOLLHUP
    | linux::EPOLLWAKEUP
    | linux::EPOLLET
    | linux::EPOLLEXCLUSIVE;
/// The limit of events that one wait returns (`EP_MAX_EVENTS`).
const EVENTS_MAX: u64 = i32::MAX as u64 / EVENT as u64;
const NS_PER_MS: u64 = 1_000_000;

/// `epoll_create1`.
pub(super) fn epoll_create1(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let flags = a[0] as u32;
    if flags & !linux::EPOLL_CLOEXEC != 0 {
        return Err(Errno::EINVAL.into());
    }
    let target = OpenTarget::Epoll(Epoll::new(thread.credentials.user.effective));
    let open = OpenFile::new(target, linux::O_RDWR);
    Epoll::register(&open);
    Ok(thread.add_descriptor(&open, flags & linux::EPOLL_CLOEXEC != 0)?)
}

/// `epoll_ctl` (`do_epoll_ctl`).
pub(super) fn epoll_ctl(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let operation = a[1] as u32;
    let event = if operation == linux::EPOLL_CTL_DEL {
        EpollEvent { events: 0, data: 0 }
    } else {
        let bytes: [u8; EVENT] = thread.space.read_array(address(a[3]))?;
        let (events, data) = (bytes[..4].try_into(), bytes[DATA..].try_into());
        EpollEvent { events: events.map_or(0, u32::from_le_bytes), data: data.map_or(0, u64::from_le_bytes) }
    };
    let (instance, watched) = (thread.open_file(a[0])?, thread.open_file(a[2])?);
    if !ready::can_poll(&watched) {
        return Err(Errno::EPERM.into());
    }
    let OpenTarget::Epoll(epoll) = &instance.target else { return Err(Errno::EINVAL.into()) };
    if instance.number == watched.number {
        return Err(Errno::EINVAL.into());
    }
    let watches_epoll = matches!(watched.target, OpenTarget::Epoll(_));
    if event.events & linux::EPOLLEXCLUSIVE != 0 {
        let known = event.events & !BESIDE_EXCLUSIVE == 0;
        if operation == linux::EPOLL_CTL_MOD || operation == linux::EPOLL_CTL_ADD && (watches_epoll || !known) {
            return Err(Errno::EINVAL.into());
        }
    }
    let descriptor = a[2] as u32;
    let mut scheduler = scheduler();
    match operation {
        linux::EPOLL_CTL_ADD => {
            if watches_epoll {
                check_loop(&instance, &watched)?;
            }
            epoll.add(&mut scheduler, descriptor, &watched, event)?;
        }
        linux::EPOLL_CTL_MOD => epoll.modify(&mut scheduler, descriptor, &watched, event)?,
        linux::EPOLL_CTL_DEL => epoll.remove(descriptor, &watched)?,
        _ => return Err(Errno::EINVAL.into()),
    }
    Ok(0)
}

/// `epoll_wait`, with a time in ms.
#[cfg(target_arch = "x86_64")]
pub(super) fn epoll_wait(thread: &mut Thread, a: Arguments) -> SyscallResult {
    wait(thread, a, milliseconds(a[3]))
}

/// `epoll_pwait`, which can block another set of signals while it waits.
pub(super) fn epoll_pwait(thread: &mut Thread, a: Arguments) -> SyscallResult {
    wait_with_mask(thread, a, milliseconds(a[3]))
}

/// `epoll_pwait2`, with a `struct timespec`.
pub(super) fn epoll_pwait2(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let timeout = read_timeout(thread, a[3])?;
    wait_with_mask(thread, a, timeout)
}

/// A time in ms, which is unlimited if it is negative.
fn milliseconds(time: u64) -> Option<u64> {
    u64::try_from(time as i32).ok().map(|ms| ms * NS_PER_MS)
}

fn wait_with_mask(thread: &mut Thread, a: Arguments, timeout: Option<u64>) -> SyscallResult {
    with_mask(thread, a[4], a[5], |thread| wait(thread, a, timeout))
}

/// Waits for events, and stores them (`do_epoll_wait`).
fn wait(thread: &mut Thread, a: Arguments, timeout: Option<u64>) -> SyscallResult {
    let most = u64::from(a[2] as u32);
    if most == 0 || most > EVENTS_MAX {
        return Err(Errno::EINVAL.into());
    }
    let open = thread.open_file(a[0])?;
    let OpenTarget::Epoll(epoll) = &open.target else { return Err(Errno::EINVAL.into()) };
    let mut taken = Ok(Vec::new());
    until_ready(thread, timeout, |scheduler, _| {
        taken = epoll.take(scheduler, most as usize);
        // An error ends the wait.
        taken.as_ref().map_or(1, |events| events.len() as u64)
    })?;
    store(thread, epoll, taken?, a[1])
}

/// Stores events; those for which there is no memory stay ready.
fn store(thread: &Thread, epoll: &Epoll, mut events: Vec<TakenEvent>, to: u64) -> SyscallResult {
    for index in 0..events.len() {
        let EpollEvent { events: ready, data } = events[index].event;
        let mut bytes = [0; EVENT];
        bytes[..4].copy_from_slice(&ready.to_le_bytes());
        bytes[DATA..].copy_from_slice(&data.to_le_bytes());
        let at = to.checked_add((index * EVENT) as u64).ok_or(Errno::EFAULT);
        if let Err(error) = at.and_then(|at| thread.space.write(address(at), &bytes)) {
            let mut scheduler = scheduler();
            epoll.untake(events.split_off(index));
            scheduler.wake_transfers();
            return if index > 0 { Ok(index as u64) } else { Err(error.into()) };
        }
    }
    Ok(events.len() as u64)
}
