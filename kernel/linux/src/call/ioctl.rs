//! `ioctl`: the requests that every file knows, and those of each kind (`fs/ioctl.c`).
//!
//! Libraries try a request and fall back on another call if the file does not know it, which they
//! see by `ENOTTY`. So every other request fails with it (INV-KERNEL-REQUESTS).
//!
//! **INV-KERNEL-REQUESTS** `ioctl` answers `ENOTTY` to a request that a file does not know, except
//! where Linux has another error for its kind. Libraries fall back on that error alone.
//!
//! Not guaranteed: signals for input (`FIOASYNC`), the requests of terminals.

use super::{Arguments, address};
use crate::console_input;
use crate::errno::Errno;
use crate::file::{OpenFile, OpenTarget};
use crate::inode::{FileSystem, Inode, InodeKind};
use crate::ramfs;
use crate::task::{SyscallResult, Thread};
use crate::zram;
use linux_raw_sys::general as linux;
use linux_raw_sys::ioctl;
use pagewright_plant::plant;
use pagewright_types::{PAGE_SIZE, VirtAddr};

/// The block size of Linux's procfs, which differs from that of all other file systems here.
const PROC_BLOCK: u32 = 1024;

/// The unit of `st_blocks`.
const BLOCK: u64 = 512;

/// `ioctl` (`do_vfs_ioctl`).
pub(super) fn ioctl(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let open = thread.open_file(a[0])?;
    let (request, to) = (a[1] as u32, address(a[2]));
    let node = open.seekable();
    match request {
        ioctl::FIOCLEX | ioctl::FIONCLEX => {
            thread.files.lock().get_mut(a[0])?.close_on_exec = request == ioctl::FIOCLEX;
        }
        ioctl::FIONBIO => {
            let is_on = read_word(thread, to)? != 0;
            let mut flags = open.flags.lock();
            *flags = if is_on { *flags | linux::O_NONBLOCK } else { *flags & !linux::O_NONBLOCK };
        }
        // No file sends signals, so none can be told to (`fasync`).
        ioctl::FIOASYNC if read_word(thread, to)? == 0 => {}
        ioctl::FIOASYNC => return Err(Errno::ENOTTY.into()),
        ioctl::FIGETBSZ => {
            let is_proc = node.is_some_and(|node| node.file_system() == FileSystem::Proc);
            thread.space.write_u32(to, if is_proc { PROC_BLOCK } else { PAGE_SIZE as u32 })?;
        }
        ioctl::FIOQSIZE => {
            let node = node.filter(|node| is_regular(node) || node.is_directory()).ok_or(Errno::ENOTTY)?;
            thread.space.write_u64(to, node.blocks() * BLOCK)?;
        }
        ioctl::FIONREAD if let Some(node) = node.filter(|node| is_regular(node)) => {
            let left = node.size().wrapping_sub(*open.offset.lock());
            thread.space.write_u32(to, left as u32)?;
        }
        request => of_kind(thread, &open, request, to)?,
    }
    Ok(0)
}

/// The `int` that a request is about.
fn read_word(thread: &Thread, from: VirtAddr) -> Result<u32, Errno> {
    thread.space.read_array(from).map(u32::from_le_bytes)
}

fn is_regular(node: &Inode) -> bool {
    const REGULAR: u32 = 0o100_000;
    node.mode() & ramfs::TYPE == REGULAR
}

/// Serves a request of one kind of file (`vfs_ioctl`).
fn of_kind(thread: &Thread, open: &OpenFile, request: u32, to: VirtAddr) -> Result<(), Errno> {
    let count = match (&open.target, request) {
        (OpenTarget::Pipe(end), ioctl::FIONREAD) => end.available(),
        (OpenTarget::Socket(socket), ioctl::FIONREAD) => socket.get().available()?,
        (OpenTarget::Socket(socket), ioctl::TIOCOUTQ) => socket.get().unsent()?,
        (OpenTarget::Inode(node), request) => return of_device(thread, node, request, to),
        _ => return Err(unknown()),
    };
    thread.space.write_u32(to, count as u32)
}

/// Serves a request of a device.
fn of_device(thread: &Thread, node: &Inode, request: u32, to: VirtAddr) -> Result<(), Errno> {
    match (&node.kind, request) {
        (InodeKind::Zram, ioctl::BLKGETSIZE64) => thread.space.write_u64(to, zram::size()),
        (InodeKind::Console, ioctl::FIONREAD) => thread.space.write_u32(to, console_input::available() as u32),
        // `random_ioctl`
        (InodeKind::Random, _) => Err(Errno::EINVAL),
        _ => Err(unknown()),
    }
}

/// The error of a request that a file does not know.
fn unknown() -> Errno {
    // INV-KERNEL-REQUESTS.
    plant!(UnknownRequestInvalid; Errno::EINVAL, Errno::ENOTTY)
}
