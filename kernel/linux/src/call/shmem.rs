//! Shared memory with a descriptor: `memfd_create`, its size, its seals; and the size of files,
//! which are asked for by the same calls.
//!
//! Not guaranteed: `fallocate` on other files, huge pages.

use super::{Arguments, address};
use crate::errno::Errno;
use crate::file::{Open, Target};
use crate::memory::{FileObject, mm};
use crate::task::{Answer, Thread};
use crate::tree::{Held, Kind, Node};
use alloc::string::String;
use alloc::vec::Vec;
use linux_raw_sys::general as linux;
use pagewright_mm::file::{FallocateFlags, MemfdFlags, Seals};
use pagewright_types::Rights;

/// `F_ADD_SEALS` and `F_GET_SEALS` of `fcntl`.
pub(super) const F_ADD_SEALS: u32 = linux::F_ADD_SEALS;
pub(super) const F_GET_SEALS: u32 = linux::F_GET_SEALS;

/// `memfd_create`.
pub(super) fn create(thread: &mut Thread, a: Arguments) -> Answer {
    let name = thread
        .space
        .read_string(address(a[0]))
        .map_err(|error| if error == Errno::E2BIG { Errno::EINVAL } else { error })?;
    let flags = MemfdFlags::from_bits_retain(a[1] as u32);
    let object = mm().memfd_create(&String::from_utf8_lossy(&name), flags)?;
    let rights = if flags.contains(MemfdFlags::NOEXEC_SEAL) { 0o666 } else { 0o777 };
    let node = Node::new(object.name(), 0o100_000 | rights, Kind::Shmem(Held(object.clone())));
    let open = Open::new(Target::Node(node), linux::O_RDWR);
    let close_on_exec = flags.contains(MemfdFlags::CLOEXEC);
    let added = thread.files.lock().add(&open, close_on_exec, 0);
    Ok(added?)
}

/// Bytes of it, up to its end.
pub(super) fn read(object: &FileObject, from: u64, wanted: u64) -> Result<Vec<u8>, Errno> {
    let there = object.size().saturating_sub(from).min(wanted) as usize;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(there)?;
    bytes.resize(there, 0);
    let read = mm().read_at(object, from, &mut bytes)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// `ftruncate`.
pub(super) fn truncate(open: &Open, size: u64) -> Answer {
    if size > i64::MAX as u64 || !open.can_write() {
        return Err(Errno::EINVAL.into());
    }
    let node = open.node().ok_or(Errno::EINVAL)?;
    match node.shmem() {
        Some(object) => mm().truncate(&object, size)?,
        None => node.resize(size)?,
    }
    Ok(0)
}

/// `fallocate`.
pub(super) fn allocate(open: &Open, a: Arguments) -> Answer {
    let [_, mode, offset, len, ..] = a;
    if !open.can_write() {
        return Err(Errno::EBADF.into());
    }
    let node = open.node().ok_or(Errno::ESPIPE)?;
    let object = node.shmem().ok_or(Errno::EOPNOTSUPP)?;
    mm().fallocate(&object, FallocateFlags::from_bits_retain(mode as u32), offset, len)?;
    Ok(0)
}

/// `fcntl` about seals.
pub(super) fn seals(open: &Open, command: u32, seals: u32) -> Answer {
    let object = open.node().and_then(|node| node.shmem()).ok_or(Errno::EINVAL)?;
    if command == F_GET_SEALS {
        return Ok(u64::from(object.seals()?.bits()));
    }
    let mut opened = Rights::empty();
    opened.set(Rights::READ, open.can_read());
    opened.set(Rights::WRITE, open.can_write());
    mm().add_seals(&object, opened, Seals::from_bits_retain(seals))?;
    Ok(0)
}
