//! Calls on descriptors: duplicating, closing, offsets, flags, pipes.

use super::{Arguments, address, lock, memory};
use crate::errno::Errno;
use crate::file::{OpenFile, OpenTarget};
use crate::inode::{FileSystem, Inode, InodeKind};
use crate::pipe;
use crate::task::{CallStop, SyscallResult, Thread, scheduler};
use alloc::sync::Arc;
use alloc::vec::Vec;
use linux_raw_sys::general as linux;
use pagewright_syscall::LinuxCall;
use pagewright_types::{PAGE_SIZE, VirtAddr};
use spin::Mutex;

pub(super) fn lseek(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let (offset, whence) = (a[1].cast_signed(), a[2] as u32);
    let open = thread.open_file(a[0])?;
    // A counter has no offset, and nothing to refuse (`noop_llseek`).
    if matches!(open.target, OpenTarget::Event(_) | OpenTarget::Epoll(_)) {
        return Ok(0);
    }
    let node = open.seekable().ok_or(Errno::ESPIPE)?;
    let mut at = open.offset.lock();
    if matches!(node.kind, InodeKind::Null | InodeKind::Zero | InodeKind::Full) {
        // `null_lseek`
        *at = 0;
        return Ok(0);
    }
    let base = match whence {
        linux::SEEK_SET => 0,
        linux::SEEK_CUR => *at,
        // `mem_lseek`, `seq_lseek`
        linux::SEEK_END if matches!(node.kind, InodeKind::Memory(_)) => return Err(Errno::EINVAL.into()),
        linux::SEEK_END => node.size(),
        linux::SEEK_DATA | linux::SEEK_HOLE if node.is_file() => {
            *at = seek_data_or_hole(node, a[1], whence == linux::SEEK_HOLE).ok_or(Errno::ENXIO)?;
            return Ok(*at);
        }
        _ => return Err(Errno::EINVAL.into()),
    };
    *at = base.checked_add_signed(offset).filter(|at| *at <= i64::MAX as u64).ok_or(Errno::EINVAL)?;
    Ok(*at)
}

/// The first byte of a file from an offset on that is data, or that is in a hole.
///
/// Linux: `shmem_file_llseek`. A file ends with a hole, and one of the initramfs has no other.
/// `None` from the end of the file on, and if no data follows.
fn seek_data_or_hole(node: &Inode, from: u64, to_hole: bool) -> Option<u64> {
    let (size, index) = (node.size(), from / PAGE_SIZE);
    if from >= size {
        return None;
    }
    let Some(object) = node.shmem() else { return Some(if to_hole { size } else { from }) };
    let start = |index: u64| from.max(index.saturating_mul(PAGE_SIZE));
    if to_hole {
        return Some(start(object.next_hole(index)).min(size));
    }
    object.next_data(index).map(start).filter(|at| *at < size)
}

pub(super) fn close(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let closed = thread.files.lock().take(a[0])?;
    drop(closed);
    Ok(0)
}

/// The flags of `close_range` (`include/uapi/linux/close_range.h`).
const CLOSE_RANGE_UNSHARE: u32 = 1 << 1;
const CLOSE_RANGE_CLOEXEC: u32 = 1 << 2;

/// `close_range`.
///
/// With `CLOSE_RANGE_UNSHARE`, a table that others share is copied first (`unshare_fd`).
pub(super) fn close_range(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let (first, last, flags) = (a[0] as u32, a[1] as u32, a[2] as u32);
    if flags & !(CLOSE_RANGE_UNSHARE | CLOSE_RANGE_CLOEXEC) != 0 || first > last {
        return Err(Errno::EINVAL.into());
    }
    if flags & CLOSE_RANGE_UNSHARE != 0 && Arc::strong_count(&thread.files) > 1 {
        let own = Arc::new(Mutex::new(thread.files.lock().try_clone()?));
        if thread.id == thread.process {
            scheduler().process(thread.process).files = Arc::downgrade(&own);
        }
        thread.files = own;
    }
    let mut from = first;
    loop {
        // Dropped after the table is unlocked.
        let (number, _closed) = {
            let mut files = thread.files.lock();
            let Some(number) = files.next_used(from).filter(|number| *number <= last) else { return Ok(0) };
            if flags & CLOSE_RANGE_CLOEXEC != 0 {
                files.get_mut(number.into())?.close_on_exec = true;
                (number, None)
            } else {
                (number, Some(files.take(number.into())?))
            }
        };
        let Some(next) = number.checked_add(1) else { return Ok(0) };
        from = next;
    }
}

pub(super) fn dup(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let open = thread.named_file(a[0])?;
    Ok(thread.add_descriptor(&open, false)?)
}

pub(super) fn dup3(thread: &mut Thread, a: Arguments) -> SyscallResult {
    if a[2] as u32 & !linux::O_CLOEXEC != 0 || a[0] as u32 == a[1] as u32 {
        return Err(Errno::EINVAL.into());
    }
    duplicate_to(thread, a[0], a[1], a[2] as u32)
}

/// `fadvise64`: files are in memory, so no advice has an effect (`shmem` has no `readahead`).
pub(super) fn fadvise(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let open = thread.open_file(a[0])?;
    open.seekable().ok_or(Errno::ESPIPE)?;
    let known = a[3] as u32 <= linux::POSIX_FADV_NOREUSE;
    if known && a[2].cast_signed() >= 0 { Ok(0) } else { Err(Errno::EINVAL.into()) }
}

/// `readahead`: a file that can be read is in memory.
pub(super) fn readahead(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let open = thread.open_file(a[0])?;
    if !open.can_read() {
        return Err(Errno::EBADF.into());
    }
    let is_file = open.inode().is_some_and(|node| node.is_file());
    if is_file { Ok(0) } else { Err(Errno::EINVAL.into()) }
}

/// `fsync`, `fdatasync`: there is no durable storage (`noop_fsync`).
///
/// `EINVAL` if the file system has no such operation (`vfs_fsync_range`).
pub(super) fn fsync(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let open = thread.open_file(a[0])?;
    let syncs = |node: &Arc<Inode>| match node.file_system() {
        FileSystem::Tmpfs => node.is_file() || node.is_directory() || matches!(node.kind, InodeKind::Zram),
        FileSystem::Sysfs => !node.is_directory(),
        FileSystem::Proc => false,
    };
    if open.seekable().is_some_and(syncs) { Ok(0) } else { Err(Errno::EINVAL.into()) }
}

/// `dup2` and `dup3` with two different numbers.
pub(super) fn duplicate_to(thread: &Thread, from: u64, to: u64, flags: u32) -> SyscallResult {
    let open = thread.named_file(from)?;
    let close_on_exec = flags & linux::O_CLOEXEC != 0;
    let limit = thread.descriptor_limit();
    let replaced = thread.files.lock().set(to, &open, close_on_exec, limit);
    drop(replaced?);
    Ok(to)
}

pub(super) fn pipe2(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let (to, flags) = (address(a[0]), a[1] as u32);
    if flags & !(linux::O_CLOEXEC | linux::O_NONBLOCK) != 0 {
        return Err(Errno::EINVAL.into());
    }
    let close_on_exec = flags & linux::O_CLOEXEC != 0;
    let flags = flags & linux::O_NONBLOCK;
    let (reader, writer) = pipe::new();
    let reader = OpenFile::new(OpenTarget::Pipe(reader), linux::O_RDONLY | flags);
    let writer = OpenFile::new(OpenTarget::Pipe(writer), linux::O_WRONLY | flags);
    add_two(thread, &[reader, writer], close_on_exec, to)
}

/// Adds two descriptors, and stores their numbers.
pub(super) fn add_two(thread: &Thread, opens: &[Arc<OpenFile>; 2], close_on_exec: bool, to: VirtAddr) -> SyscallResult {
    let mut numbers = Vec::new();
    let mut made = Ok(());
    for open in opens {
        match thread.add_descriptor(open, close_on_exec) {
            Ok(number) => numbers.push(number),
            Err(error) => made = Err(error),
        }
    }
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| (*number as u32).to_le_bytes()).collect();
    let stored = made.and_then(|()| thread.space.write(to, &bytes));
    if stored.is_err() {
        // The program does not know the numbers.
        for number in numbers {
            let taken = thread.files.lock().take(number);
            drop(taken);
        }
    }
    stored.map(|()| 0).map_err(CallStop::from)
}

pub(super) fn fcntl(thread: &mut Thread, a: Arguments) -> SyscallResult {
    // Dropped after the table is unlocked.
    let open = thread.named_file(a[0])?;
    // `check_fcntl_cmd`
    const OF_DESCRIPTOR: [u32; 5] =
        [linux::F_DUPFD, linux::F_DUPFD_CLOEXEC, linux::F_GETFD, linux::F_SETFD, linux::F_GETFL];
    if open.is_path() && !OF_DESCRIPTOR.contains(&(a[1] as u32)) {
        return Err(Errno::EBADF.into());
    }
    if let Some(result) = lock::fcntl(thread, &open, a) {
        return result;
    }
    let limit = thread.descriptor_limit();
    let mut files = thread.files.lock();
    let descriptor = files.get_mut(a[0])?;
    match a[1] as u32 {
        command @ (linux::F_DUPFD | linux::F_DUPFD_CLOEXEC) => {
            if a[2] >= limit {
                return Err(Errno::EINVAL.into());
            }
            Ok(files.add(&open, command == linux::F_DUPFD_CLOEXEC, a[2], limit)?)
        }
        linux::F_GETFD => Ok(u64::from(descriptor.close_on_exec)),
        linux::F_SETFD => {
            descriptor.close_on_exec = a[2] & u64::from(linux::FD_CLOEXEC) != 0;
            Ok(0)
        }
        linux::F_GETFL => Ok(u64::from(*open.flags.lock())),
        linux::F_SETFL => {
            let settable = linux::O_APPEND | linux::O_NONBLOCK;
            let mut flags = open.flags.lock();
            *flags = *flags & !settable | a[2] as u32 & settable;
            Ok(0)
        }
        // The decoder has the commands for seals.
        _ => {
            drop(files);
            memory::serve(thread, LinuxCall::Fcntl, a)
        }
    }
}
