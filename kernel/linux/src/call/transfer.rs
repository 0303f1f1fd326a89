//! `read`, `write` and their relatives: bytes between user memory and an open file.
//!
//! Bytes of files move in pieces of [`PIECE`], so that a large transfer needs little kernel memory.
//! What is taken out of a queue is copied first ([`UserBuffer`]). A call that meets a bad address
//! or an error after its first bytes returns how many it moved.
//!
//! Not guaranteed: atomicity between two calls, except that the offset of an open file is locked
//! for a whole call.

use super::{Arguments, address, message};
use crate::console_input;
use crate::errno::Errno;
use crate::event::EventCounter;
use crate::exec::user_end;
use crate::file::{OpenFile, OpenTarget};
use crate::inode::{Inode, InodeKind, zeroes};
use crate::memory_files::MemoryFile;
use crate::pipe::{self, PipeEnd, PipeTransfer, PipeWrite};
use crate::task::{CallStop, SyscallResult, Thread, WaitReason, scheduler};
use crate::user_buffer::{Parts, UserBuffer};
use alloc::vec::Vec;
use linux_raw_sys::general as linux;
use pagewright_types::VirtAddr;

/// The limit of bytes that one call transfers (`MAX_RW_COUNT`).
pub(super) const TRANSFER_MAX: u64 = 0x7fff_f000;
/// The bytes that are copied at once.
const PIECE: u64 = 128 << 10;

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

/// `preadv`, whose offset is in one register.
pub(super) fn preadv(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let open = thread.open_file(a[0])?;
    let at = offset_at(&open, a[3])?;
    read_parts(thread, &open, &vectors(thread, a)?, Some(at))
}

/// `pwritev`, whose offset is in one register.
pub(super) fn pwritev(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let open = thread.open_file(a[0])?;
    let at = offset_at(&open, a[3])?;
    write_parts(thread, &open, &vectors(thread, a)?, Some(at))
}

/// `preadv2`.
pub(super) fn preadv2(thread: &mut Thread, a: Arguments) -> SyscallResult {
    check_flags(a)?;
    if a[3] == AT_OFFSET { readv(thread, a) } else { preadv(thread, a) }
}

/// `pwritev2`.
pub(super) fn pwritev2(thread: &mut Thread, a: Arguments) -> SyscallResult {
    check_flags(a)?;
    if a[3] == AT_OFFSET { writev(thread, a) } else { pwritev(thread, a) }
}

/// The position that stands for the offset of the open file.
const AT_OFFSET: u64 = u64::MAX;

/// Checks the flags of `preadv2` and `pwritev2`, of which none is supported (`kiocb_set_rw_flags`).
fn check_flags(a: Arguments) -> Result<(), Errno> {
    if a[5] as u32 == 0 { Ok(()) } else { Err(Errno::EOPNOTSUPP) }
}

/// Checks the file offset of `pread64` and its relatives.
fn offset_at(open: &OpenFile, at: u64) -> Result<u64, Errno> {
    if at > i64::MAX as u64 {
        return Err(Errno::EINVAL);
    }
    open.seekable().map(|_| at).ok_or(Errno::ESPIPE)
}

pub(super) fn vectors(thread: &Thread, a: Arguments) -> Result<Vec<(u64, u64)>, Errno> {
    if a[2] > u64::from(linux::UIO_MAXIOV) {
        return Err(Errno::EINVAL);
    }
    let mut left = TRANSFER_MAX;
    let each = |index: u64| {
        let bytes: [u8; 16] = thread.space.read_array(address(a[1]).checked_add(index * 16).ok_or(Errno::EFAULT)?)?;
        let (base, len) = bytes.split_at(8);
        let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
        if number(len) > i64::MAX as u64 {
            return Err(Errno::EINVAL);
        }
        let len = number(len).min(left);
        left -= len;
        Ok((number(base), len))
    };
    (0..a[2]).map(each).collect()
}

/// Whether every part is in user space, which `access_ok` checks before a transfer waits.
fn are_in_user_space(parts: &Parts) -> bool {
    let end = user_end().raw();
    parts.iter().all(|(base, len)| base.checked_add(*len).is_some_and(|last| last <= end))
}

pub(super) fn read_parts(thread: &mut Thread, open: &OpenFile, parts: &Parts, at: Option<u64>) -> SyscallResult {
    if !open.can_read() {
        return Err(Errno::EBADF.into());
    }
    match &open.target {
        OpenTarget::Process(_) | OpenTarget::Epoll(_) => Err(Errno::EINVAL.into()),
        _ if !are_in_user_space(parts) => Err(Errno::EFAULT.into()),
        OpenTarget::Pipe(end) => read_pipe(thread, open, end, parts),
        OpenTarget::Socket(socket) => message::read(thread, open, socket.get(), parts),
        OpenTarget::Event(counter) => read_event(thread, open, counter, parts),
        OpenTarget::Inode(node) if node.is_directory() => Err(Errno::EISDIR.into()),
        OpenTarget::Inode(node) if node.has_input() => read_console(thread, open, parts),
        OpenTarget::Inode(node) => Ok(read_inode(thread, open, node, parts, at)?),
    }
}

/// Whether a read fails if it cannot store all of its bytes.
///
/// Linux: `mem_rw`, `pagemap_read`, `proc_sys_call_handler`. Reads of other files are short.
fn stores_all_or_none(node: &Inode) -> bool {
    match &node.kind {
        InodeKind::Memory(memory) => !memory.is_text(),
        _ => node.path().starts_with("/proc/sys/"),
    }
}

/// Reads at `at`, or at the offset of the open file, which then advances.
fn read_inode(thread: &Thread, open: &OpenFile, node: &Inode, parts: &Parts, at: Option<u64>) -> Result<u64, Errno> {
    let mut offset = open.offset.lock();
    let start = at.unwrap_or(*offset);
    let moved = in_pieces(parts, |done, to, len| {
        let bytes = node.read(start + done, len)?;
        let copied = thread.space.write_some(to, &bytes);
        let is_refused = copied < bytes.len() && (copied == 0 || stores_all_or_none(node));
        if is_refused { Err(Errno::EFAULT) } else { Ok(copied) }
    });
    if let (Ok(moved), None) = (moved, at) {
        *offset = start + moved;
    }
    node.note_accessed();
    moved
}

/// Moves the bytes of `parts` in pieces, until `transfer` moves fewer than it is asked for.
///
/// `transfer` gets how many bytes were moved before, the address, and the length of the piece.
fn in_pieces(
    parts: &Parts,
    mut transfer: impl FnMut(u64, VirtAddr, usize) -> Result<usize, Errno>,
) -> Result<u64, Errno> {
    let mut moved = 0;
    for (base, len) in parts {
        let mut of_part = 0;
        while of_part < *len {
            let wanted = (len - of_part).min(PIECE) as usize;
            let Some(at) = base.checked_add(of_part) else { return after(moved, Errno::EFAULT) };
            match transfer(moved, address(at), wanted) {
                Ok(count) => {
                    (moved, of_part) = (moved + count as u64, of_part + count as u64);
                    if count < wanted {
                        return Ok(moved);
                    }
                }
                Err(error) => return after(moved, error),
            }
        }
    }
    Ok(moved)
}

/// The result of a call that met an error after it moved some bytes.
pub(super) fn after(moved: u64, error: Errno) -> Result<u64, Errno> {
    if moved > 0 { Ok(moved) } else { Err(error) }
}

/// Copies at most `most` bytes of user memory after the first `skipped` ones.
///
/// # Errors
/// `EFAULT` if one of them cannot be read.
pub(super) fn gather(thread: &Thread, parts: &Parts, skipped: u64, most: u64) -> Result<Vec<u8>, Errno> {
    let total: u64 = parts.iter().map(|(_, len)| len).sum();
    let bytes = gather_some(thread, parts, skipped, most)?;
    if bytes.len() as u64 == total.saturating_sub(skipped).min(most) { Ok(bytes) } else { Err(Errno::EFAULT) }
}

/// Copies as [`gather`], up to the first byte that cannot be read.
fn gather_some(thread: &Thread, parts: &Parts, mut skipped: u64, most: u64) -> Result<Vec<u8>, Errno> {
    let total: u64 = parts.iter().map(|(_, len)| len).sum();
    let mut bytes = zeroes(total.saturating_sub(skipped).min(most) as usize)?;
    let mut done = 0;
    for (base, len) in parts {
        let passed = skipped.min(*len);
        skipped -= passed;
        let count = (bytes.len() - done).min((len - passed) as usize);
        let copied = thread.space.read_some(address(base.wrapping_add(passed)), &mut bytes[done..done + count]);
        done += copied;
        if copied < count {
            break;
        }
    }
    bytes.truncate(done);
    Ok(bytes)
}

/// The size of the value of an event counter.
const EVENT: u64 = 8;

/// Reads an event counter (`eventfd_read`).
fn read_event(thread: &Thread, open: &OpenFile, counter: &EventCounter, parts: &Parts) -> SyscallResult {
    if parts.iter().map(|(_, len)| len).sum::<u64>() < EVENT {
        return Err(Errno::EINVAL.into());
    }
    let mut scheduler = scheduler();
    let Some(value) = counter.take() else {
        if open.has(linux::O_NONBLOCK) {
            return Err(Errno::EAGAIN.into());
        }
        return Err(CallStop::Sleep { scheduler, wait: WaitReason::Transfer, deadline: None, at_deadline: 0 });
    };
    scheduler.wake_transfers();
    drop(scheduler);
    // As in Linux, the value is lost if it cannot be stored.
    let stored = UserBuffer::new(&thread.space, parts, 0).put(&value.to_le_bytes());
    if stored as u64 == EVENT { Ok(EVENT) } else { Err(Errno::EFAULT.into()) }
}

/// Adds to an event counter (`eventfd_write`).
fn write_event(thread: &Thread, open: &OpenFile, counter: &EventCounter, parts: &Parts) -> SyscallResult {
    let bytes = gather(thread, parts, 0, EVENT)?;
    let value = bytes.as_slice().try_into().map(u64::from_le_bytes).map_err(|_| Errno::EINVAL)?;
    let mut scheduler = scheduler();
    if counter.add(value)? {
        scheduler.wake_transfers();
        Ok(EVENT)
    } else if open.has(linux::O_NONBLOCK) {
        Err(Errno::EAGAIN.into())
    } else {
        Err(CallStop::Sleep { scheduler, wait: WaitReason::Transfer, deadline: None, at_deadline: 0 })
    }
}

fn read_pipe(thread: &Thread, open: &OpenFile, end: &PipeEnd, parts: &Parts) -> SyscallResult {
    if !end.reads() {
        return Err(Errno::EBADF.into());
    }
    let (mut scheduler, transfer) = UserBuffer::new(&thread.space, parts, 0).fill(|_, buffer| end.read(buffer));
    match transfer {
        PipeTransfer::Moved(count) => {
            scheduler.wake_transfers();
            Ok(count as u64)
        }
        PipeTransfer::Refused(error) => Err(error.into()),
        PipeTransfer::Wait if open.has(linux::O_NONBLOCK) => Err(Errno::EAGAIN.into()),
        PipeTransfer::Wait | PipeTransfer::Broken => {
            Err(CallStop::Sleep { scheduler, wait: WaitReason::Transfer, deadline: None, at_deadline: 0 })
        }
    }
}

/// The bytes that are taken from a terminal at once (`iterate_tty_read`).
const TERMINAL_PIECE: u64 = 64;

/// Reads a line of the console (`iterate_tty_read`).
///
/// As in Linux, a piece of which a byte cannot be stored is lost.
fn read_console(thread: &Thread, open: &OpenFile, parts: &Parts) -> SyscallResult {
    let mut buffer = UserBuffer::new(&thread.space, parts, 0);
    let mut moved = 0;
    loop {
        let scheduler = scheduler();
        let Some(bytes) = console_input::take(buffer.room().min(TERMINAL_PIECE) as usize) else {
            if moved > 0 || open.has(linux::O_NONBLOCK) {
                return Ok(after(moved, Errno::EAGAIN)?);
            }
            return Err(CallStop::Sleep { scheduler, wait: WaitReason::Transfer, deadline: None, at_deadline: 0 });
        };
        drop(scheduler);
        let stored = buffer.put(&bytes);
        moved += stored as u64;
        if stored < bytes.len() {
            return Ok(after(moved, Errno::EFAULT)?);
        }
        if matches!(bytes.last(), None | Some(b'\n')) || buffer.room() == 0 {
            return Ok(moved);
        }
    }
}

/// `sendfile`: from a file to another file or to a pipe, without user memory.
pub(super) fn sendfile(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let (to, from, count) = (thread.open_file(a[0])?, thread.open_file(a[1])?, a[3].min(TRANSFER_MAX));
    if !from.can_read() || !to.can_write() {
        return Err(Errno::EBADF.into());
    }
    let node = from.inode().filter(|node| node.is_file()).ok_or(Errno::EINVAL)?;
    if to.has(linux::O_APPEND) {
        return Err(Errno::EINVAL.into());
    }
    let start = match a[2] {
        0 => *from.offset.lock(),
        at => thread.space.read_u64(address(at))?,
    };
    if start > i64::MAX as u64 {
        return Err(Errno::EINVAL.into());
    }
    let moved = match &to.target {
        OpenTarget::Process(_) | OpenTarget::Event(_) | OpenTarget::Epoll(_) => return Err(Errno::EINVAL.into()),
        OpenTarget::Socket(socket) => {
            let bytes = node.read(start, count.min(PIECE) as usize)?;
            message::send_bytes(thread, &to, socket.get(), bytes)?
        }
        OpenTarget::Inode(target) => {
            let mut offset = to.offset.lock();
            let mut moved = 0;
            while moved < count {
                let bytes = node.read(start + moved, (count - moved).min(PIECE) as usize)?;
                if bytes.is_empty() {
                    break;
                }
                match target.write(*offset, &bytes) {
                    Ok(written) => (moved, *offset) = (moved + written as u64, *offset + written as u64),
                    Err(error) if moved == 0 => return Err(error.into()),
                    Err(_) => break,
                }
            }
            target.note_modified();
            moved
        }
        OpenTarget::Pipe(end) => {
            let bytes = node.read(start, count.min(pipe::CAPACITY as u64) as usize)?;
            send_to_pipe(thread, &to, end, &bytes)?
        }
    };
    match a[2] {
        0 => *from.offset.lock() = start + moved,
        at => thread.space.write_u64(address(at), start + moved)?,
    }
    Ok(moved)
}

/// Writes bytes of the kernel to a pipe, and returns how many.
fn send_to_pipe(thread: &Thread, open: &OpenFile, end: &PipeEnd, bytes: &[u8]) -> SyscallResult {
    let mut scheduler = scheduler();
    match end.write(&PipeWrite { bytes, wanted: bytes.len() as u64, merges: false }) {
        PipeTransfer::Moved(count) => {
            scheduler.wake_transfers();
            Ok(count as u64)
        }
        PipeTransfer::Refused(error) => Err(error.into()),
        PipeTransfer::Wait if open.has(linux::O_NONBLOCK) => Err(Errno::EAGAIN.into()),
        PipeTransfer::Wait => {
            Err(CallStop::Sleep { scheduler, wait: WaitReason::Transfer, deadline: None, at_deadline: 0 })
        }
        PipeTransfer::Broken => {
            scheduler.post_broken_pipe(thread);
            Err(Errno::EPIPE.into())
        }
    }
}

fn write_parts(thread: &mut Thread, open: &OpenFile, parts: &Parts, at: Option<u64>) -> SyscallResult {
    if !open.can_write() {
        return Err(Errno::EBADF.into());
    }
    match &open.target {
        OpenTarget::Process(_) | OpenTarget::Epoll(_) => Err(Errno::EINVAL.into()),
        _ if !are_in_user_space(parts) => Err(Errno::EFAULT.into()),
        OpenTarget::Pipe(end) => write_pipe(thread, open, end, parts),
        OpenTarget::Socket(socket) => message::write(thread, open, socket.get(), parts),
        OpenTarget::Event(counter) => write_event(thread, open, counter, parts),
        OpenTarget::Inode(node) => Ok(write_inode(thread, open, node, parts, at)?),
    }
}

/// Whether a write has no effect if a byte of it cannot be read.
///
/// Linux: `proc_sys_call_handler`, `kernfs_fop_write_iter`, `oom_score_adj_write`, `mem_rw`,
/// `clear_refs_write`.
fn takes_all_or_none(node: &Inode) -> bool {
    matches!(
        node.kind,
        InodeKind::Attribute(_)
            | InodeKind::Setting(_)
            | InodeKind::OfMemory(_)
            | InodeKind::OomScoreAdj(_)
            | InodeKind::Sysctl(_)
            | InodeKind::Memory(_)
    )
}

/// Writes at `at`, or at the offset of the open file, which then advances.
///
/// With `O_APPEND` it writes at the end, which is read while the offset is locked.
fn write_inode(thread: &Thread, open: &OpenFile, node: &Inode, parts: &Parts, at: Option<u64>) -> Result<u64, Errno> {
    if matches!(node.kind, InodeKind::Full) {
        // `write_full`, whatever the bytes are.
        return Err(Errno::ENOSPC);
    }
    let mut offset = open.offset.lock();
    let start = if open.has(linux::O_APPEND) { node.size() } else { at.unwrap_or(*offset) };
    // Linux's `vfs_write` passes a write of no bytes on, in which this file finds no request.
    if matches!(node.kind, InodeKind::OfMemory(MemoryFile::SplitHugePages)) && parts.iter().all(|(_, len)| *len == 0) {
        node.write(start, &[])?;
    }
    let moved = in_pieces(parts, |done, from, len| {
        let mut bytes = zeroes(len)?;
        let there = thread.space.read_some(from, &mut bytes);
        let is_refused = there < len && (there == 0 || takes_all_or_none(node));
        if is_refused { Err(Errno::EFAULT) } else { node.write(start + done, &bytes[..there]) }
    });
    if let (Ok(moved), None) = (moved, at) {
        *offset = start + moved;
    }
    if moved.is_ok_and(|moved| moved > 0) {
        node.drop_set_ids(&thread.credentials);
        node.note_modified();
    }
    moved
}

/// Writes to a pipe; a call that has slept continues after the bytes that it moved.
fn write_pipe(thread: &mut Thread, open: &OpenFile, end: &PipeEnd, parts: &Parts) -> SyscallResult {
    if !end.writes() {
        return Err(Errno::EBADF.into());
    }
    let total: u64 = parts.iter().map(|(_, len)| len).sum();
    loop {
        let moved = thread.bytes_moved as u64;
        // Another thread can have shortened the vectors since the call slept.
        if moved >= total {
            return Ok(moved);
        }
        let bytes = match gather_some(thread, parts, moved, pipe::CAPACITY as u64) {
            Ok(bytes) => bytes,
            Err(error) => return Ok(after(moved, error)?),
        };
        let written = PipeWrite { bytes: &bytes, wanted: total - moved, merges: moved == 0 };
        let mut scheduler = scheduler();
        match end.write(&written) {
            PipeTransfer::Moved(count) => {
                scheduler.wake_transfers();
                thread.bytes_moved += count;
            }
            PipeTransfer::Refused(error) => return Ok(after(moved, error)?),
            PipeTransfer::Wait if open.has(linux::O_NONBLOCK) => {
                return Ok(after(moved, Errno::EAGAIN)?);
            }
            PipeTransfer::Wait => {
                return Err(CallStop::Sleep { scheduler, wait: WaitReason::Transfer, deadline: None, at_deadline: 0 });
            }
            PipeTransfer::Broken if moved > 0 => return Ok(moved),
            PipeTransfer::Broken => {
                scheduler.post_broken_pipe(thread);
                return Err(Errno::EPIPE.into());
            }
        }
    }
}
