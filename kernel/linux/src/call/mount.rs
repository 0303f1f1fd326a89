//! `mount` and `umount2`.
//!
//! A mount with a flag that [`mount::flags`] does not know fails with `EINVAL`: binds, moves,
//! changes of a mount, and mounts that are read-only or keep no times.

use super::path::{find, path_at};
use super::{Arguments, address};
use crate::errno::Errno;
use crate::inode::FileSystem;
use crate::mount::{self, NewMount, TmpfsOptions};
use crate::ramfs;
use crate::task::{SyscallResult, Thread};
use alloc::string::String;
use linux_raw_sys::general as linux;
use pagewright_types::{PAGE_SIZE, VirtAddr};

/// `mount` (`do_mount`).
pub(super) fn mount(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let text = |at: u64| (at != 0).then(|| thread.space.read_name(address(at), PAGE_SIZE as usize)).transpose();
    let (kind, source, options) = (text(a[2])?, text(a[0])?, text(a[4])?.unwrap_or_default());
    let directory = find(thread, &path_at(thread, linux::AT_FDCWD as u64, address(a[1]))?, true)?;
    thread.credentials.need(linux::CAP_SYS_ADMIN)?;
    let given = a[3] as u32;
    // Old programs mark the flags as such.
    let is_marked = given & linux::MS_MGC_MSK == linux::MS_MGC_VAL;
    let flags = mount::flags(if is_marked { given & !linux::MS_MGC_MSK } else { given })?;
    let no_options = |file_system| {
        if options.is_empty() { Ok(NewMount::Existing(file_system)) } else { Err(Errno::EINVAL) }
    };
    let new = match kind.ok_or(Errno::EINVAL)?.as_str() {
        "tmpfs" => NewMount::Tmpfs(TmpfsOptions::parse(&options)?),
        "proc" => no_options(FileSystem::Proc)?,
        "sysfs" => no_options(FileSystem::Sysfs)?,
        _ => return Err(Errno::ENODEV.into()),
    };
    mount::add(&directory.path(), source.unwrap_or_else(|| String::from("none")), flags, new)?;
    Ok(0)
}

/// `umount2` (`ksys_umount`).
///
/// `MNT_FORCE` changes nothing, as for these file systems of Linux. `MNT_EXPIRE` is refused
/// (`EINVAL`).
pub(super) fn umount2(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let flags = a[1] as u32;
    if flags & !(linux::MNT_FORCE | linux::MNT_DETACH | linux::UMOUNT_NOFOLLOW) != 0 {
        return Err(Errno::EINVAL.into());
    }
    let at: VirtAddr = address(a[0]);
    let (path, follow) = (path_at(thread, linux::AT_FDCWD as u64, at)?, flags & linux::UMOUNT_NOFOLLOW == 0);
    find(thread, &path, follow)?;
    thread.credentials.need(linux::CAP_SYS_ADMIN)?;
    let mount_point = ramfs::resolve_mount_point(&path, follow, &thread.credentials)?;
    mount::remove(&mount_point, flags & linux::MNT_DETACH != 0)?;
    Ok(0)
}
