//! Calls that make, move and remove paths: links, names, special files.

use super::path::{path_at, resolved};
use super::{Arguments, address};
use crate::errno::Errno;
use crate::inode::InodeKind;
use crate::ramfs::{self, Replace};
use crate::task::{SyscallResult, Thread};
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
    ramfs::add(&path, a[2] as u32 & !thread.fs.lock().umask, InodeKind::Directory, &thread.credentials)?;
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

/// `linkat`.
pub(super) fn linkat(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let flags = a[4] as u32;
    if flags & !(linux::AT_SYMLINK_FOLLOW | linux::AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL.into());
    }
    let node = if flags & linux::AT_EMPTY_PATH != 0 && thread.space.read_path(address(a[1]))?.is_empty() {
        thread.open_file(a[0])?.inode().cloned().ok_or(Errno::EXDEV)?
    } else {
        let follow = flags & linux::AT_SYMLINK_FOLLOW != 0;
        ramfs::find(&path_at(thread, a[0], address(a[1]))?, follow, &thread.credentials)?
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
