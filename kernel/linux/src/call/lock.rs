//! Locks on files: `flock`, and `fcntl` with `F_SETLK` and its relatives.
//!
//! **INV-KERNEL-LOCK** A lock on a file ends with its owner: a POSIX lock with the first closing of
//! the file by its table of descriptors, the others with their open file. Then every thread that
//! waits for a lock of the file looks again.

use super::{Arguments, address};
use crate::errno::Errno;
use crate::file::OpenFile;
use crate::file_lock::{LockOwner, RangeLock, TO_END};
use crate::inode::Inode;
use crate::task::{CallStop, Scheduler, SyscallResult, Thread, WaitReason, scheduler};
use alloc::sync::Arc;
use linux_raw_sys::general as linux;
use pagewright_plant::plant;
use pagewright_types::VirtAddr;

/// `flock`.
pub(super) fn flock(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let open = thread.open_file(a[0])?;
    let command = a[1] as u32;
    let exclusive = match command & !linux::LOCK_NB {
        linux::LOCK_SH => false,
        linux::LOCK_EX => true,
        linux::LOCK_UN => {
            let node = open.inode().ok_or(Errno::EBADF)?;
            let mut scheduler = scheduler();
            if node.locks.lock().unlock_whole(open.number) {
                scheduler.wake_for_lock(node.number);
            }
            return Ok(0);
        }
        _ => return Err(Errno::EINVAL.into()),
    };
    let node = open.inode().ok_or(Errno::EBADF)?;
    let mut scheduler = scheduler();
    let (locked, released) = node.locks.lock().lock_whole(open.number, exclusive);
    if released {
        scheduler.wake_for_lock(node.number);
    }
    if locked {
        Ok(0)
    } else if command & linux::LOCK_NB != 0 {
        Err(Errno::EAGAIN.into())
    } else {
        let wait = WaitReason::FileLock { node: node.number, waiter: LockOwner::File(open.number), holder: None };
        Err(CallStop::Sleep { scheduler, wait, deadline: None, at_deadline: 0 })
    }
}

/// The lock that a program describes (`struct flock`).
struct DescribedLock {
    kind: u32,
    start: u64,
    last: u64,
}

const UNLOCK: u32 = linux::F_UNLCK;

impl DescribedLock {
    /// Reads `struct flock` (`flock_to_posix_lock`).
    fn read(thread: &Thread, open: &OpenFile, node: &Inode, from: VirtAddr, of_file: bool) -> Result<Self, Errno> {
        let bytes: [u8; 32] = thread.space.read_array(from)?;
        let word = |at: usize| bytes[at..at + 8].try_into().map_or(0, i64::from_le_bytes);
        let half = |at: usize| u32::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
        let (kind, whence, start, len) = (half(0), half(2), word(8), word(16));
        let pid = i32::from_le_bytes([bytes[24], bytes[25], bytes[26], bytes[27]]);
        if of_file && pid != 0 {
            return Err(Errno::EINVAL);
        }
        let base = match whence {
            linux::SEEK_SET => 0,
            linux::SEEK_CUR => *open.offset.lock() as i64,
            linux::SEEK_END => node.size() as i64,
            _ => return Err(Errno::EINVAL),
        };
        let start = base.checked_add(start).ok_or(Errno::EOVERFLOW)?;
        let (start, last) = match len {
            1.. => (start, start.checked_add(len - 1).ok_or(if start < 0 { Errno::EINVAL } else { Errno::EOVERFLOW })?),
            0 => (start, TO_END as i64),
            _ => (start.checked_add(len).ok_or(Errno::EINVAL)?, start - 1),
        };
        if start < 0 || kind > UNLOCK {
            return Err(Errno::EINVAL);
        }
        Ok(Self { kind, start: start as u64, last: last as u64 })
    }
}

/// `fcntl` with a command for locks on ranges; `None` if the command is another one.
pub(super) fn fcntl(thread: &Thread, open: &Arc<OpenFile>, a: Arguments) -> Option<SyscallResult> {
    let (of_file, waits) = match a[1] as u32 {
        linux::F_GETLK => return Some(get_lock(thread, open, address(a[2]), false)),
        linux::F_OFD_GETLK => return Some(get_lock(thread, open, address(a[2]), true)),
        linux::F_SETLK => (false, false),
        linux::F_SETLKW => (false, true),
        linux::F_OFD_SETLK => (true, false),
        linux::F_OFD_SETLKW => (true, true),
        _ => return None,
    };
    Some(set_lock(thread, open, address(a[2]), of_file, waits))
}

fn owner(thread: &Thread, open: &OpenFile, of_file: bool) -> LockOwner {
    if of_file { LockOwner::File(open.number) } else { LockOwner::Table(thread.files.lock().owner()) }
}

fn set_lock(thread: &Thread, open: &OpenFile, from: VirtAddr, of_file: bool, waits: bool) -> SyscallResult {
    let node = open.inode().ok_or(Errno::EBADF)?;
    let described = DescribedLock::read(thread, open, node, from, of_file)?;
    let owner = owner(thread, open, of_file);
    match described.kind {
        linux::F_RDLCK if !open.can_read() => return Err(Errno::EBADF.into()),
        linux::F_WRLCK if !open.can_write() => return Err(Errno::EBADF.into()),
        _ => {}
    }
    let mut scheduler = scheduler();
    let mut locks = node.locks.lock();
    if described.kind == UNLOCK {
        let released = locks.unlock(owner, described.start, described.last);
        drop(locks);
        if released {
            scheduler.wake_for_lock(node.number);
        }
        return Ok(0);
    }
    let DescribedLock { kind, start, last } = described;
    let pid = if of_file { u32::MAX } else { thread.process.0 };
    let lock = RangeLock { start, last, exclusive: kind == linux::F_WRLCK, owner, pid };
    let Some(held) = locks.conflict(&lock) else {
        locks.set(lock);
        drop(locks);
        // What was exclusive may be shared now.
        scheduler.wake_for_lock(node.number);
        return Ok(0);
    };
    drop(locks);
    if !waits {
        return Err(Errno::EAGAIN.into());
    }
    if !of_file && scheduler.would_deadlock(owner, held.owner) {
        return Err(Errno::EDEADLK.into());
    }
    let wait = WaitReason::FileLock { node: node.number, waiter: owner, holder: Some(held.owner) };
    Err(CallStop::Sleep { scheduler, wait, deadline: None, at_deadline: 0 })
}

/// `F_GETLK`, `F_OFD_GETLK`: describes a lock that stands in the way, if there is one.
fn get_lock(thread: &Thread, open: &OpenFile, at: VirtAddr, of_file: bool) -> SyscallResult {
    let node = open.inode().ok_or(Errno::EBADF)?;
    let DescribedLock { kind, start, last } = DescribedLock::read(thread, open, node, at, of_file)?;
    if kind == UNLOCK {
        return Err(Errno::EINVAL.into());
    }
    let owner = owner(thread, open, of_file);
    let wanted = RangeLock { start, last, exclusive: kind == linux::F_WRLCK, owner, pid: 0 };
    let Some(held) = node.locks.lock().conflict(&wanted) else {
        thread.space.write(at, &(UNLOCK as u16).to_le_bytes())?;
        return Ok(0);
    };
    let mut bytes = [0; 32];
    let kind = if held.exclusive { linux::F_WRLCK } else { linux::F_RDLCK };
    bytes[..2].copy_from_slice(&(kind as u16).to_le_bytes());
    bytes[8..16].copy_from_slice(&held.start.to_le_bytes());
    let len = if held.last == TO_END { 0 } else { held.last - held.start + 1 };
    bytes[16..24].copy_from_slice(&len.to_le_bytes());
    bytes[24..28].copy_from_slice(&held.pid.to_le_bytes());
    thread.space.write(at, &bytes)?;
    Ok(0)
}

/// Releases the POSIX locks of a table of descriptors on a file (`locks_remove_posix`).
pub(crate) fn release_of_table(table: u64, node: &Inode) {
    if node.locks.lock().is_empty() {
        return;
    }
    let mut scheduler = scheduler();
    if node.locks.lock().unlock(LockOwner::Table(table), 0, TO_END) {
        scheduler.wake_for_lock(node.number);
    }
}

/// Releases the locks of an open file, which is closed (`locks_remove_file`, INV-KERNEL-LOCK).
pub(crate) fn release_of_file(file: u64, node: &Inode) {
    if node.locks.lock().is_empty() {
        return;
    }
    plant!(FileLockKept => return);
    let mut scheduler = scheduler();
    let mut locks = node.locks.lock();
    let released = locks.unlock(LockOwner::File(file), 0, TO_END) | locks.unlock_whole(file);
    drop(locks);
    if released {
        scheduler.wake_for_lock(node.number);
    }
}

/// The longest chain of waiters that is followed (`MAX_DEADLK_ITERATIONS`).
const CHAIN_MAX: usize = 10;

impl Scheduler {
    /// Wakes the threads that wait for a lock of an inode.
    fn wake_for_lock(&mut self, node: u64) {
        let is_waiter = |wait| matches!(wait, WaitReason::FileLock { node: of, .. } if of == node);
        self.wake(usize::MAX, crate::task::Resume::Again, |_, wait| is_waiter(wait));
    }

    /// Whether `holder` waits, directly or not, for a lock of `owner` (`posix_locks_deadlock`).
    fn would_deadlock(&self, owner: LockOwner, mut holder: LockOwner) -> bool {
        for _ in 0..CHAIN_MAX {
            let next = self.waits().find_map(|wait| match wait {
                WaitReason::FileLock { waiter, holder: Some(next), .. } if waiter == holder => Some(next),
                _ => None,
            });
            match next {
                Some(next) if next == owner => return true,
                Some(next) => holder = next,
                None => return false,
            }
        }
        false
    }
}
