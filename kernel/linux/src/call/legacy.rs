//! Legacy calls, which only x86-64 has, in terms of the calls that replaced them.

use super::path::{self, path_at};
use super::table::Handler;
use super::{Arguments, address, attribute, descriptor, epoll, link, poll, session, signal, stat, timer};
use crate::errno::Errno;
use crate::task::{SyscallResult, Thread};
use crate::timers;
use linux_raw_sys::general as linux;
use syscalls::Sysno;

/// The legacy calls.
pub(super) const HANDLERS: &[(Sysno, Handler)] = &[
    (Sysno::open, open),
    (Sysno::creat, creat),
    (Sysno::stat, |thread, a| stat::fstatat(thread, [CWD, a[0], a[1], 0, 0, 0])),
    (Sysno::lstat, |thread, a| stat::fstatat(thread, [CWD, a[0], a[1], NOFOLLOW, 0, 0])),
    (Sysno::access, |thread, a| path::faccessat2(thread, [CWD, a[0], a[1], 0, 0, 0])),
    (Sysno::readlink, |thread, a| path::readlinkat(thread, [CWD, a[0], a[1], a[2], 0, 0])),
    (Sysno::unlink, |thread, a| link::unlinkat(thread, [CWD, a[0], 0, 0, 0, 0])),
    (Sysno::rmdir, |thread, a| link::unlinkat(thread, [CWD, a[0], REMOVEDIR, 0, 0, 0])),
    (Sysno::mkdir, |thread, a| link::mkdirat(thread, [CWD, a[0], a[1], 0, 0, 0])),
    (Sysno::symlink, |thread, a| link::symlinkat(thread, [a[0], CWD, a[1], 0, 0, 0])),
    (Sysno::chmod, |thread, a| attribute::fchmodat(thread, [CWD, a[0], a[1], 0, 0, 0])),
    (Sysno::chown, |thread, a| attribute::fchownat(thread, [CWD, a[0], a[1], a[2], 0, 0])),
    (Sysno::lchown, |thread, a| attribute::fchownat(thread, [CWD, a[0], a[1], a[2], NOFOLLOW, 0])),
    (Sysno::link, |thread, a| link::linkat(thread, [CWD, a[0], CWD, a[1], 0, 0])),
    (Sysno::rename, |thread, a| link::renameat2(thread, [CWD, a[0], CWD, a[1], 0, 0])),
    (Sysno::utimes, utimes),
    (Sysno::utime, utime),
    (Sysno::pipe, |thread, a| descriptor::pipe2(thread, [a[0], 0, 0, 0, 0, 0])),
    (Sysno::dup2, dup2),
    (Sysno::pause, signal::pause),
    (Sysno::getpgrp, session::getpgrp),
    (Sysno::poll, |thread, a| {
        let timeout = u64::try_from(a[2] as i32).ok().map(|ms| ms * 1_000_000);
        poll::poll(thread, address(a[0]), a[1], timeout)
    }),
    (Sysno::mknod, |thread, a| link::mknodat(thread, [CWD, a[0], a[1], a[2], 0, 0])),
    (Sysno::epoll_create, epoll_create),
    (Sysno::epoll_wait, epoll::epoll_wait),
    (Sysno::select, poll::select_with_timeval),
    (Sysno::eventfd, |thread, a| poll::eventfd2(thread, [a[0], 0, 0, 0, 0, 0])),
    (Sysno::time, time),
    (Sysno::alarm, timer::alarm),
    (Sysno::arch_prctl, arch_prctl),
];

/// The legacy calls that make a process, a file or a descriptor.
pub(super) const CREATING: &[Sysno] = &[
    Sysno::fork,
    Sysno::vfork,
    Sysno::open,
    Sysno::creat,
    Sysno::mkdir,
    Sysno::symlink,
    Sysno::link,
    Sysno::rename,
    Sysno::pipe,
    Sysno::eventfd,
    Sysno::mknod,
    Sysno::epoll_create,
];

const CWD: u64 = linux::AT_FDCWD as u64;
const NOFOLLOW: u64 = linux::AT_SYMLINK_NOFOLLOW as u64;
const REMOVEDIR: u64 = linux::AT_REMOVEDIR as u64;

fn open(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let path = path_at(thread, CWD, address(a[0]))?;
    path::open(thread, &path, a[1] as u32, a[2] as u32)
}

fn creat(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let path = path_at(thread, CWD, address(a[0]))?;
    path::open(thread, &path, linux::O_CREAT | linux::O_WRONLY | linux::O_TRUNC, a[1] as u32)
}

/// `utimes`, with `struct timeval`.
fn utimes(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let times = match a[1] {
        0 => [Some(timers::realtime_ns()); 2],
        at => {
            let mut times = [None; 2];
            for (time, at) in times.iter_mut().zip([at, at.wrapping_add(16)]) {
                let seconds = thread.space.read_u64(address(at))?;
                let us = thread.space.read_u64(address(at.wrapping_add(8)))?;
                if us >= 1_000_000 {
                    return Err(Errno::EINVAL.into());
                }
                *time = Some(seconds.saturating_mul(1_000_000_000).saturating_add(us * 1000));
            }
            times
        }
    };
    attribute::set_times(thread, [CWD, a[0], 0, 0, 0, 0], times, a[1] != 0)
}

/// `utime`, in seconds.
fn utime(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let times = match a[1] {
        0 => [Some(timers::realtime_ns()); 2],
        at => {
            let time = |at| -> Result<_, Errno> {
                Ok(Some(thread.space.read_u64(address(at))?.saturating_mul(1_000_000_000)))
            };
            [time(at)?, time(at.wrapping_add(8))?]
        }
    };
    attribute::set_times(thread, [CWD, a[0], 0, 0, 0, 0], times, a[1] != 0)
}

fn dup2(thread: &mut Thread, a: Arguments) -> SyscallResult {
    if a[0] == a[1] {
        thread.named_file(a[0])?;
        return Ok(a[0]);
    }
    descriptor::duplicate_to(thread, a[0], a[1], 0)
}

/// `epoll_create`, whose size says nothing.
fn epoll_create(thread: &mut Thread, a: Arguments) -> SyscallResult {
    if a[0].cast_signed() as i32 <= 0 {
        return Err(Errno::EINVAL.into());
    }
    epoll::epoll_create1(thread, [0; 6])
}

fn time(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let now = pagewright_hal::time::boot_seconds() + pagewright_hal::time::now_ns() / 1_000_000_000;
    if a[0] != 0 {
        thread.space.write_u64(address(a[0]), now)?;
    }
    Ok(now)
}

fn arch_prctl(thread: &mut Thread, a: Arguments) -> SyscallResult {
    match a[0] as u32 {
        linux::ARCH_SET_FS => {
            thread.context.set_thread_pointer(a[1]);
            Ok(0)
        }
        _ => Err(Errno::EINVAL.into()),
    }
}
