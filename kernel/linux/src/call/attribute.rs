//! Calls that change the attributes of files: modes, owners, times; and `statfs`.

use super::path::{self, path_at};
use super::{Arguments, address};
use crate::credentials::{Credentials, FileAccess};
use crate::errno::Errno;
use crate::file::OpenTarget;
use crate::inode::{FileSystem, GROUP_EXECUTES, Inode, SET_GID, SET_UID};
use crate::memory::mm;
use crate::mount;
use crate::ramfs;
use crate::task::{SyscallResult, Thread};
use crate::timers::realtime_ns;
use alloc::string::String;
use alloc::sync::Arc;
use linux_raw_sys::general as linux;
use pagewright_types::{PAGE_SIZE, VirtAddr};

const NS: u64 = 1_000_000_000;

pub(super) fn fchmodat(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let node = path::find(thread, &path_at(thread, a[0], address(a[1]))?, true)?;
    change_mode(&node, a[2] as u32, &thread.credentials)
}

pub(super) fn fchmod(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let open = thread.open_file(a[0])?;
    change_mode(open.inode().ok_or(Errno::EINVAL)?, a[1] as u32, &thread.credentials)
}

/// Changes the permissions (`chmod_common`, `setattr_prepare`).
fn change_mode(node: &Inode, mode: u32, caller: &Credentials) -> SyscallResult {
    let attributes = node.attributes();
    if !caller.owns(&attributes) {
        return Err(Errno::EPERM.into());
    }
    let keeps_group = caller.is_in_group(attributes.gid) || caller.has(linux::CAP_FSETID);
    node.set_mode(if keeps_group { mode } else { mode & !SET_GID });
    Ok(0)
}

/// The inode that a descriptor and a path name, with `AT_EMPTY_PATH` and `AT_SYMLINK_NOFOLLOW`.
fn named(thread: &Thread, directory: u64, name: VirtAddr, flags: u32) -> Result<Arc<Inode>, Errno> {
    if flags & !(linux::AT_EMPTY_PATH | linux::AT_SYMLINK_NOFOLLOW) != 0 {
        return Err(Errno::EINVAL);
    }
    if flags & linux::AT_EMPTY_PATH != 0 && thread.space.read_path(name)?.is_empty() {
        if directory as i32 == linux::AT_FDCWD {
            return Ok(thread.fs.lock().directory.clone());
        }
        return thread.named_file(directory)?.inode().cloned().ok_or(Errno::EINVAL);
    }
    let follow = flags & linux::AT_SYMLINK_NOFOLLOW == 0;
    path::find(thread, &path_at(thread, directory, name)?, follow)
}

/// `fchownat`.
pub(super) fn fchownat(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let node = named(thread, a[0], address(a[1]), a[4] as u32)?;
    change_owner(&node, a[2] as u32, a[3] as u32, &thread.credentials)
}

/// `fchown`.
pub(super) fn fchown(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let open = thread.open_file(a[0])?;
    change_owner(open.inode().ok_or(Errno::EINVAL)?, a[1] as u32, a[2] as u32, &thread.credentials)
}

/// Changes the owner and the group, each unless it is -1 (`chown_common`, `setattr_prepare`).
fn change_owner(node: &Inode, uid: u32, gid: u32, caller: &Credentials) -> SyscallResult {
    let old = node.attributes();
    let owns = old.uid == caller.user.files;
    let user_allowed = uid == u32::MAX || owns && uid == old.uid;
    let group_allowed = gid == u32::MAX || owns && (gid == old.gid || caller.is_in_group(gid));
    if !(user_allowed && group_allowed) {
        caller.need(linux::CAP_CHOWN)?;
    }
    let is_directory = node.is_directory();
    node.change(|attributes| {
        if uid != u32::MAX {
            attributes.uid = uid;
        }
        if gid != u32::MAX {
            attributes.gid = gid;
        }
        if !is_directory {
            attributes.mode &= !SET_UID;
            if attributes.mode & GROUP_EXECUTES != 0 {
                attributes.mode &= !SET_GID;
            }
        }
    });
    Ok(0)
}

/// `utimensat`; without a path, the times of the file behind the descriptor.
pub(super) fn utimensat(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let now = realtime_ns();
    let times = match a[2] {
        0 => [Some(now); 2],
        at => {
            let bytes: [u8; 32] = thread.space.read_array(address(at))?;
            let word = |index: usize| bytes[index * 8..index * 8 + 8].try_into().map_or(0, u64::from_le_bytes);
            const UTIME_NOW: u64 = linux::UTIME_NOW as u64;
            const UTIME_OMIT: u64 = linux::UTIME_OMIT as u64;
            let time = |index: usize| match (word(index), word(index + 1)) {
                (_, UTIME_NOW) => Ok(Some(now)),
                (_, UTIME_OMIT) => Ok(None),
                (_, NS..) => Err(Errno::EINVAL),
                (seconds, ns) => Ok(Some(seconds.saturating_mul(NS).saturating_add(ns))),
            };
            [time(0)?, time(2)?]
        }
    };
    let given = times.iter().any(|time| *time != Some(now));
    set_times(thread, a, times, given)
}

/// Sets the times of the file that the arguments of `utimensat` name (`vfs_utimes`).
///
/// Only its owner may choose the times; a caller that may write may set them to now.
pub(super) fn set_times(
    thread: &Thread,
    a: Arguments,
    [accessed, modified]: [Option<u64>; 2],
    given: bool,
) -> SyscallResult {
    if accessed.is_none() && modified.is_none() {
        return Ok(0);
    }
    let node = if a[1] == 0 {
        if a[3] as u32 != 0 {
            return Err(Errno::EINVAL.into());
        }
        thread.open_file(a[0])?.inode().cloned().ok_or(Errno::EINVAL)?
    } else {
        named(thread, a[0], address(a[1]), a[3] as u32)?
    };
    let attributes = node.attributes();
    if !thread.credentials.owns(&attributes) {
        if given {
            return Err(Errno::EPERM.into());
        }
        thread.credentials.access(&attributes, FileAccess::WRITE)?;
    }
    node.change(|attributes| {
        attributes.accessed = accessed.unwrap_or(attributes.accessed);
        attributes.modified = modified.unwrap_or(attributes.modified);
    });
    Ok(0)
}

/// `statfs`.
pub(super) fn statfs(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let node = path::find(thread, &path_at(thread, linux::AT_FDCWD as u64, address(a[0]))?, true)?;
    write_statfs(thread, &node.path(), magic(&node), address(a[1]))
}

/// The number of the file system that an inode is in.
fn magic(node: &Inode) -> u32 {
    match node.file_system() {
        FileSystem::Tmpfs => linux::TMPFS_MAGIC,
        FileSystem::Proc => linux::PROC_SUPER_MAGIC,
        FileSystem::Sysfs => linux::SYSFS_MAGIC,
    }
}

/// `fstatfs`.
pub(super) fn fstatfs(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let open = thread.named_file(a[0])?;
    let magic = match &open.target {
        OpenTarget::Inode(node) => magic(node),
        OpenTarget::Pipe(end) => end.fifo().map_or(linux::PIPEFS_MAGIC, |node| magic(node)),
        OpenTarget::Socket(_) => linux::SOCKFS_MAGIC,
        OpenTarget::Process(_) | OpenTarget::Event(_) | OpenTarget::Epoll(_) => linux::ANON_INODE_FS_MAGIC,
    };
    let path = open.inode().map_or_else(String::new, |node| node.path());
    write_statfs(thread, &path, magic, address(a[1]))
}

/// Writes `struct statfs` of the file system of a path; only a tmpfs has a size.
fn write_statfs(thread: &Thread, path: &str, magic: u32, to: VirtAddr) -> SyscallResult {
    const NAME_MAX: u64 = 255;
    let tmpfs = mount::tmpfs(path)?;
    let is_tree = magic == linux::TMPFS_MAGIC;
    // A tmpfs without a limit has no size.
    let limit = Some(tmpfs.limit()).filter(|limit| is_tree && *limit < u64::MAX);
    let (blocks, used) = limit.map_or((0, 0), |limit| (limit, tmpfs.used()));
    let free = blocks.saturating_sub(used);
    // As tmpfs, a file system without a limit of inodes but that of memory.
    let (files, free_files) = if is_tree { (mm().tlb().frames().managed() / 2, ramfs::free_inodes()) } else { (0, 0) };
    let words = [magic.into(), PAGE_SIZE, blocks, free, free, files, free_files, 0, NAME_MAX, PAGE_SIZE];
    let mut bytes = [0; 120];
    for (index, word) in words.iter().enumerate() {
        bytes[index * 8..index * 8 + 8].copy_from_slice(&u64::to_le_bytes(*word));
    }
    thread.space.write(to, &bytes)?;
    Ok(0)
}
