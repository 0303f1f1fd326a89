//! Calls that make, move and remove paths: links, names, special files.

use super::path::{self, path_at, resolved};
use super::{Arguments, address};
use crate::errno::Errno;
use crate::inode::InodeKind;
use crate::ramfs::{self, Replace};
use crate::task::{SyscallResult, Thread};
use alloc::sync::{Arc, Weak};
use linux_raw_sys::general as linux;

pub(super) fn unlinkat(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let flags = a[2] as u32;
    if flags & !linux::AT_REMOVEDIR != 0 {
        return Err(Errno::EINVAL.into());
    }
    ramfs::remove(&resolved(thread, a[0], address(a[1]), false)?, flags != 0, &thread.credentials)?;
    Ok(0)
}

pub(super) fn mkdirat(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let path = resolved(thread, a[0], address(a[1]), false)?;
    let mode = a[2] as u32 & !thread.fs.lock().umask;
    ramfs::add(&path, mode, InodeKind::Directory, &thread.credentials)?;
    Ok(0)
}

pub(super) fn symlinkat(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let target = thread.space.read_path(address(a[0]))?;
    if target.is_empty() {
        return Err(Errno::ENOENT.into());
    }
    let path = resolved(thread, a[1], address(a[2]), false)?;
    ramfs::add(&path, 0o777, InodeKind::Link(target), &thread.credentials)?;
    Ok(0)
}

/// `mknodat`: a file, a FIFO or a socket.
///
/// A device needs `CAP_MKNOD`, and a tree with devices, which this one is not (`EPERM` as if it
/// were mounted with `nodev` and refused new ones).
pub(super) fn mknodat(thread: &mut Thread, a: Arguments) -> SyscallResult {
    const FILE: u32 = 0o100_000;
    const FIFO: u32 = 0o010_000;
    const SOCKET: u32 = 0o140_000;
    const DEVICES: [u32; 2] = [0o020_000, 0o060_000];
    const DIRECTORY: u32 = 0o040_000;
    let mode = a[2] as u32 & !thread.fs.lock().umask;
    let kind = match mode & ramfs::TYPE {
        0 | FILE => None,
        FIFO => Some(InodeKind::Fifo(Arc::default())),
        SOCKET => Some(InodeKind::Socket(Weak::new())),
        kind if DEVICES.contains(&kind) || kind == DIRECTORY => return Err(Errno::EPERM.into()),
        _ => return Err(Errno::EINVAL.into()),
    };
    let path = resolved(thread, a[0], address(a[1]), false)?;
    match kind {
        Some(kind) => drop(ramfs::add(&path, mode, kind, &thread.credentials)?),
        None => drop(ramfs::add_file(&path, mode, &thread.credentials)?),
    }
    Ok(0)
}

/// `linkat`.
pub(super) fn linkat(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let flags = a[4] as u32;
    if flags & !(linux::AT_SYMLINK_FOLLOW | linux::AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL.into());
    }
    let node = if flags & linux::AT_EMPTY_PATH != 0 && thread.space.read_path(address(a[1]))?.is_empty() {
        thread.named_file(a[0])?.inode().cloned().ok_or(Errno::EXDEV)?
    } else {
        let follow = flags & linux::AT_SYMLINK_FOLLOW != 0;
        path::find(thread, &path_at(thread, a[0], address(a[1]))?, follow)?
    };
    ramfs::link(&node, &resolved(thread, a[2], address(a[3]), false)?, &thread.credentials)?;
    Ok(0)
}

/// `renameat2`; `renameat` has no flags.
pub(super) fn renameat2(thread: &mut Thread, a: Arguments) -> SyscallResult {
    const EXCHANGE_OR_WHITEOUT: u32 = linux::RENAME_EXCHANGE | linux::RENAME_WHITEOUT;
    let replace = match a[4] as u32 {
        0 => Replace::Target,
        linux::RENAME_NOREPLACE => Replace::Nothing,
        linux::RENAME_EXCHANGE => Replace::Exchange,
        // A file that hides one of a lower file system; there is none.
        flags if flags & EXCHANGE_OR_WHITEOUT == linux::RENAME_WHITEOUT => return Err(Errno::EINVAL.into()),
        _ => return Err(Errno::EINVAL.into()),
    };
    // `.` and `..` cannot be renamed.
    for at in [a[1], a[3]] {
        let name = thread.space.read_path(address(at))?;
        if matches!(name.trim_end_matches('/').rsplit('/').next(), Some("." | "..")) {
            return Err(Errno::EBUSY.into());
        }
    }
    let from = resolved(thread, a[0], address(a[1]), false)?;
    let to = resolved(thread, a[2], address(a[3]), false)?;
    ramfs::rename(&from, &to, replace, &thread.credentials)?;
    Ok(0)
}
