//! Calls that only x86-64 has: the forms that newer ones replaced.

use super::path::{self, path_at};
use super::process::{self, Begin};
use super::{Arguments, address, descriptor, poll};
use crate::errno::Errno;
use crate::task::{Answer, Thread};
use linux_raw_sys::general as linux;
use syscalls::Sysno;

const HERE: u64 = linux::AT_FDCWD as u64;

/// Whether a call makes a process, a file or a descriptor.
pub(super) fn makes(call: Sysno) -> bool {
    matches!(
        call,
        Sysno::fork | Sysno::vfork | Sysno::open | Sysno::creat | Sysno::mkdir | Sysno::symlink | Sysno::pipe
    )
}

/// Serves the calls of this file; `None` if it is none of them.
pub(super) fn serve(thread: &mut Thread, call: Sysno, a: Arguments) -> Option<Answer> {
    Some(match call {
        Sysno::open => path_at(thread, HERE, address(a[0]))
            .map_err(Into::into)
            .and_then(|path| path::open(thread, &path, a[1] as u32, a[2] as u32)),
        Sysno::creat => path_at(thread, HERE, address(a[0]))
            .map_err(Into::into)
            .and_then(|path| path::open(thread, &path, linux::O_CREAT | linux::O_WRONLY | linux::O_TRUNC, a[1] as u32)),
        Sysno::stat => super::stat::serve(thread, Sysno::newfstatat, [HERE, a[0], a[1], 0, 0, 0]),
        Sysno::lstat => {
            let flags = u64::from(linux::AT_SYMLINK_NOFOLLOW);
            super::stat::serve(thread, Sysno::newfstatat, [HERE, a[0], a[1], flags, 0, 0])
        }
        Sysno::access => path::serve(thread, Sysno::faccessat, [HERE, a[0], a[1], 0, 0, 0]),
        Sysno::readlink => path::serve(thread, Sysno::readlinkat, [HERE, a[0], a[1], a[2], 0, 0]),
        Sysno::unlink => path::serve(thread, Sysno::unlinkat, [HERE, a[0], 0, 0, 0, 0]),
        Sysno::rmdir => path::serve(thread, Sysno::unlinkat, [HERE, a[0], u64::from(linux::AT_REMOVEDIR), 0, 0, 0]),
        Sysno::mkdir => path::serve(thread, Sysno::mkdirat, [HERE, a[0], a[1], 0, 0, 0]),
        Sysno::symlink => path::serve(thread, Sysno::symlinkat, [a[0], HERE, a[1], 0, 0, 0]),
        Sysno::chmod => path::serve(thread, Sysno::fchmodat, [HERE, a[0], a[1], 0, 0, 0]),
        Sysno::pipe => descriptor::serve(thread, Sysno::pipe2, [a[0], 0, 0, 0, 0, 0]),
        Sysno::dup2 => {
            if a[0] == a[1] {
                return Some(thread.files.lock().get(a[0]).map(|_| a[0]).map_err(Into::into));
            }
            descriptor::duplicate_to(thread, a[0], a[1], 0)
        }
        Sysno::fork => process::begin(thread, &Begin::fork(0)),
        Sysno::vfork => process::begin(thread, &Begin::fork(linux::CLONE_VM | linux::CLONE_VFORK)),
        Sysno::pause => super::signal::pause(),
        Sysno::getpgrp => super::information::serve(thread, Sysno::getpgid, [0; 6])?,
        Sysno::poll => {
            let timeout = u64::try_from(a[2] as i32).ok().map(|ms| ms * 1_000_000);
            poll::poll(thread, address(a[0]), a[1], timeout)
        }
        Sysno::time => {
            let now = pagewright_hal::time::boot_seconds() + pagewright_hal::time::now_ns() / 1_000_000_000;
            match a[0] {
                0 => Ok(now),
                at => thread.space.write_u64(address(at), now).map(|()| now).map_err(Into::into),
            }
        }
        Sysno::arch_prctl => match a[0] as u32 {
            linux_raw_sys::general::ARCH_SET_FS => {
                thread.context.set_thread_pointer(a[1]);
                Ok(0)
            }
            _ => Err(Errno::EINVAL.into()),
        },
        _ => return None,
    })
}
