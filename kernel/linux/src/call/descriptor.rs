//! Calls on descriptors: reading, writing, duplicating, closing, pipes.

use super::{Arguments, address, memory};
use crate::errno::Errno;
use crate::file::{OpenFile, OpenTarget};
use crate::memory::{FileObject, mm};
use crate::pipe::{self, PipeTransfer};
use crate::ramfs::InodeKind;
use crate::signal::{self, SIGPIPE, SigInfo};
use crate::task::{CallStop, SyscallResult, Thread, WaitReason, scheduler};
use crate::zram;
use alloc::vec::Vec;
use linux_raw_sys::general as linux;
use linux_raw_sys::ioctl;
use pagewright_hal::console;
use pagewright_syscall::LinuxCall;

/// The limit of bytes that one call transfers.
///
/// A call for more returns how many it transferred.
const TRANSFER_MAX: u64 = 1 << 20;

pub(super) fn read(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let open = thread.open_file(a[0])?;
    read_parts(thread, &open, &[(a[1], a[2].min(TRANSFER_MAX))], None)
}

pub(super) fn write(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let open = thread.open_file(a[0])?;
    write_parts(thread, &open, &[(a[1], a[2].min(TRANSFER_MAX))], None)
}

pub(super) fn pread64(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let open = thread.open_file(a[0])?;
    read_parts(thread, &open, &[(a[1], a[2].min(TRANSFER_MAX))], Some(offset_at(&open, a[3])?))
}

pub(super) fn pwrite64(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let open = thread.open_file(a[0])?;
    write_parts(thread, &open, &[(a[1], a[2].min(TRANSFER_MAX))], Some(offset_at(&open, a[3])?))
}

pub(super) fn readv(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let open = thread.open_file(a[0])?;
    read_parts(thread, &open, &vectors(thread, a)?, None)
}

pub(super) fn writev(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let open = thread.open_file(a[0])?;
    write_parts(thread, &open, &vectors(thread, a)?, None)
}

/// Checks the file offset of `pread64` and `pwrite64`.
fn offset_at(open: &OpenFile, at: u64) -> Result<u64, Errno> {
    if at > i64::MAX as u64 {
        return Err(Errno::EINVAL);
    }
    open.inode().map(|_| at).ok_or(Errno::ESPIPE)
}

fn vectors(thread: &Thread, a: Arguments) -> Result<Vec<(u64, u64)>, Errno> {
    if a[2] > u64::from(linux::UIO_MAXIOV) {
        return Err(Errno::EINVAL);
    }
    let mut left = TRANSFER_MAX;
    let each = |index: u64| {
        let bytes: [u8; 16] = thread.space.read_array(address(a[1]).checked_add(index * 16).ok_or(Errno::EFAULT)?)?;
        let (base, len) = bytes.split_at(8);
        let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
        let len = number(len).min(left);
        left -= len;
        Ok((number(base), len))
    };
    (0..a[2]).map(each).collect()
}

fn read_parts(thread: &mut Thread, open: &OpenFile, parts: &[(u64, u64)], at: Option<u64>) -> SyscallResult {
    if !open.can_read() {
        return Err(Errno::EBADF.into());
    }
    let wanted: u64 = parts.iter().map(|(_, len)| len).sum();
    let bytes = match &open.target {
        OpenTarget::Pipe(end) => read_pipe(open, end, wanted)?,
        OpenTarget::Process(_) => return Err(Errno::EINVAL.into()),
        OpenTarget::Inode(node) => {
            let cache = node.cache();
            let mut offset = open.offset.lock();
            let from = at.unwrap_or(*offset);
            let bytes = match &*node.kind.lock() {
                InodeKind::File(content) if cache.is_none() => content.look(|bytes| piece(bytes, from, wanted))?,
                InodeKind::Shmem(_) | InodeKind::File(_) => Vec::new(),
                InodeKind::Directory => return Err(Errno::EISDIR.into()),
                InodeKind::Null | InodeKind::Console | InodeKind::Link(_) => Vec::new(),
                InodeKind::Zero => zeroes(wanted as usize)?,
                InodeKind::Random => super::information::random(wanted as usize),
                InodeKind::Zram => zram::read(from, wanted as usize)?,
                InodeKind::Attribute(attribute) => piece(attribute.show()?.as_bytes(), from, wanted)?,
            };
            let bytes = match cache {
                Some(object) => read_object(&object, from, wanted)?,
                None => bytes,
            };
            if at.is_none() {
                *offset += bytes.len() as u64;
            }
            bytes
        }
    };
    let mut rest = &bytes[..];
    for (base, len) in parts {
        let (now, later) = rest.split_at(rest.len().min(*len as usize));
        thread.space.write(address(*base), now)?;
        rest = later;
    }
    Ok(bytes.len() as u64)
}

/// Reads at most `wanted` bytes of an object of the memory manager.
fn read_object(object: &FileObject, from: u64, wanted: u64) -> Result<Vec<u8>, Errno> {
    let there = object.size().saturating_sub(from).min(wanted) as usize;
    let mut bytes = zeroes(there)?;
    let read = mm().read_at(object, from, &mut bytes)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// Copies at most `wanted` bytes from `from` on.
fn piece(bytes: &[u8], from: u64, wanted: u64) -> Result<Vec<u8>, Errno> {
    let rest = bytes.get(from as usize..).unwrap_or_default();
    let there = &rest[..rest.len().min(wanted as usize)];
    let mut piece = Vec::new();
    piece.try_reserve_exact(there.len())?;
    piece.extend_from_slice(there);
    Ok(piece)
}

fn zeroes(count: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(count)?;
    bytes.resize(count, 0);
    Ok(bytes)
}

fn read_pipe(open: &OpenFile, end: &pipe::PipeEnd, wanted: u64) -> Result<Vec<u8>, CallStop> {
    if end.writes() {
        return Err(Errno::EBADF.into());
    }
    let mut bytes = Vec::new();
    let mut scheduler = scheduler();
    match end.read(wanted as usize, &mut bytes) {
        PipeTransfer::Moved(_) => {
            scheduler.wake_pipes();
            Ok(bytes)
        }
        PipeTransfer::Wait if open.has(linux::O_NONBLOCK) => Err(Errno::EAGAIN.into()),
        PipeTransfer::Wait | PipeTransfer::Broken => {
            Err(CallStop::Sleep { scheduler, wait: WaitReason::Pipe, deadline: None, at_deadline: 0 })
        }
    }
}

fn write_parts(thread: &mut Thread, open: &OpenFile, parts: &[(u64, u64)], at: Option<u64>) -> SyscallResult {
    if !open.can_write() {
        return Err(Errno::EBADF.into());
    }
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(parts.iter().map(|(_, len)| *len as usize).sum())?;
    for (base, len) in parts {
        let start = bytes.len();
        bytes.resize(start + *len as usize, 0);
        thread.space.read(address(*base), &mut bytes[start..])?;
    }
    match &open.target {
        OpenTarget::Pipe(end) => write_pipe(thread, open, end, &bytes),
        OpenTarget::Process(_) => Err(Errno::EINVAL.into()),
        OpenTarget::Inode(node) => {
            // The offset is locked before the file, as in `read_parts`.
            if matches!(*node.kind.lock(), InodeKind::Zram) {
                return write_from(open, at, zram::size, |start| Ok(zram::write(start, &bytes)?));
            }
            if let Some(shmem) = node.shmem() {
                return write_from(open, at, || shmem.size(), |start| Ok(mm().write_at(&shmem, start, &bytes)?));
            }
            // Decided first, because the type is not locked while the file is written.
            let is_file = match &*node.kind.lock() {
                InodeKind::File(_) => true,
                InodeKind::Console => {
                    console::write(&bytes);
                    false
                }
                InodeKind::Directory => return Err(Errno::EISDIR.into()),
                InodeKind::Attribute(attribute) => {
                    attribute.store(&bytes)?;
                    false
                }
                InodeKind::Null
                | InodeKind::Zero
                | InodeKind::Random
                | InodeKind::Link(_)
                | InodeKind::Shmem(_)
                | InodeKind::Zram => false,
            };
            if !is_file {
                return Ok(bytes.len() as u64);
            }
            write_from(open, at, || node.size(), |start| Ok(node.write(start, &bytes)?))
        }
    }
}

/// Writes at `at`, or at the offset of the open file, which then advances.
///
/// With `O_APPEND` it writes at the end, which `end` reads while the offset is locked.
fn write_from(
    open: &OpenFile,
    at: Option<u64>,
    end: impl FnOnce() -> u64,
    write: impl FnOnce(u64) -> Result<usize, CallStop>,
) -> SyscallResult {
    let mut offset = open.offset.lock();
    let start = if open.has(linux::O_APPEND) { end() } else { at.unwrap_or(*offset) };
    let written = write(start)? as u64;
    if at.is_none() {
        *offset = start + written;
    }
    Ok(written)
}

fn write_pipe(thread: &mut Thread, open: &OpenFile, end: &pipe::PipeEnd, bytes: &[u8]) -> SyscallResult {
    if !end.writes() {
        return Err(Errno::EBADF.into());
    }
    let mut scheduler = scheduler();
    // Another thread can have shortened the vectors since the call slept.
    let Some(rest) = bytes.get(thread.bytes_moved..) else { return Ok(thread.bytes_moved as u64) };
    match end.write(rest) {
        PipeTransfer::Moved(count) => {
            scheduler.wake_pipes();
            thread.bytes_moved += count;
            let all = thread.bytes_moved == bytes.len();
            if all || open.has(linux::O_NONBLOCK) {
                return Ok(thread.bytes_moved as u64);
            }
            Err(CallStop::Sleep { scheduler, wait: WaitReason::Pipe, deadline: None, at_deadline: 0 })
        }
        PipeTransfer::Wait if open.has(linux::O_NONBLOCK) => Err(Errno::EAGAIN.into()),
        PipeTransfer::Wait => {
            Err(CallStop::Sleep { scheduler, wait: WaitReason::Pipe, deadline: None, at_deadline: 0 })
        }
        PipeTransfer::Broken if thread.bytes_moved > 0 => Ok(thread.bytes_moved as u64),
        PipeTransfer::Broken => {
            scheduler.post_to_thread(thread.id, SigInfo::sent(SIGPIPE, signal::SI_USER, thread.process));
            Err(Errno::EPIPE.into())
        }
    }
}

pub(super) fn lseek(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let (offset, whence) = (a[1].cast_signed(), a[2] as u32);
    let open = thread.open_file(a[0])?;
    let node = open.inode().ok_or(Errno::ESPIPE)?;
    let mut at = open.offset.lock();
    let base = match whence {
        linux::SEEK_SET => 0,
        linux::SEEK_CUR => *at,
        linux::SEEK_END => node.size(),
        _ => return Err(Errno::EINVAL.into()),
    };
    *at = base.checked_add_signed(offset).filter(|at| *at <= i64::MAX as u64).ok_or(Errno::EINVAL)?;
    Ok(*at)
}

pub(super) fn close(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let closed = thread.files.lock().take(a[0])?;
    drop(closed);
    Ok(0)
}

pub(super) fn dup(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let open = thread.open_file(a[0])?;
    let added = thread.files.lock().add(&open, false, 0);
    Ok(added?)
}

pub(super) fn dup3(thread: &mut Thread, a: Arguments) -> SyscallResult {
    if a[0] == a[1] {
        return Err(Errno::EINVAL.into());
    }
    duplicate_to(thread, a[0], a[1], a[2] as u32)
}

pub(super) fn ioctl(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let open = thread.open_file(a[0])?;
    let is_disk = open.inode().is_some_and(|node| matches!(*node.kind.lock(), InodeKind::Zram));
    if is_disk && a[1] as u32 == ioctl::BLKGETSIZE64 {
        thread.space.write_u64(address(a[2]), zram::size())?;
        return Ok(0);
    }
    // No file is a terminal.
    drop(open);
    let terminal = [ioctl::TCGETS, ioctl::TIOCGWINSZ, ioctl::TIOCGPGRP, ioctl::TIOCSPGRP];
    let known = terminal.contains(&(a[1] as u32));
    Err(if known { Errno::ENOTTY } else { Errno::EINVAL }.into())
}

/// `fsync`, `fdatasync`: there is no durable storage.
pub(super) fn fsync(thread: &mut Thread, a: Arguments) -> SyscallResult {
    thread.open_file(a[0])?;
    Ok(0)
}

/// `dup2` and `dup3` with two different numbers.
pub(super) fn duplicate_to(thread: &Thread, from: u64, to: u64, flags: u32) -> SyscallResult {
    let open = thread.open_file(from)?;
    let close_on_exec = flags & linux::O_CLOEXEC != 0;
    let replaced = thread.files.lock().set(to, &open, close_on_exec);
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
    let mut numbers = Vec::new();
    let mut made = Ok(());
    for open in [&reader, &writer] {
        match thread.files.lock().add(open, close_on_exec, 0) {
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
    let open = thread.open_file(a[0])?;
    let mut files = thread.files.lock();
    let descriptor = files.get_mut(a[0])?;
    match a[1] as u32 {
        command @ (linux::F_DUPFD | linux::F_DUPFD_CLOEXEC) => {
            if a[2] as usize >= crate::file::LIMIT {
                return Err(Errno::EINVAL.into());
            }
            Ok(files.add(&open, command == linux::F_DUPFD_CLOEXEC, a[2])?)
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
