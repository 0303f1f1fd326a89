//! The attributes of files: `fstat`, `newfstatat`.

use super::path::{self, resolved};
use super::{Arguments, address};
use crate::errno::Errno;
use crate::file::{OpenFile, OpenTarget};
use crate::inode::{Inode, InodeAttributes};
use crate::mount;
use crate::procfs;
use crate::ramfs;
use crate::task::{SyscallResult, Thread};
use linux_raw_sys::general as linux;
use pagewright_types::PAGE_SIZE;

/// The attributes of a file, whose layout depends on the instruction set.
struct FileAttributes {
    number: u64,
    size: u64,
    /// Of 512 bytes.
    blocks: u64,
    /// The device that a device file names.
    device: u64,
    of_inode: InodeAttributes,
    /// The device that the file is on.
    on: u64,
}

const NS: u64 = 1_000_000_000;
const PIPE_MODE: u32 = 0o010_600;
const PROCESS_MODE: u32 = 0o600;
const SOCKET_MODE: u32 = 0o140_777;

impl FileAttributes {
    fn of(node: &Inode) -> Self {
        let of_inode = InodeAttributes { links: ramfs::links(node), ..node.attributes() };
        Self {
            number: node.number,
            size: node.size(),
            blocks: node.blocks(),
            device: node.device(),
            of_inode,
            on: mount::device(&node.path()),
        }
    }

    /// The attributes of what has no inode.
    fn anonymous(number: u64, mode: u32) -> Self {
        let of_inode = InodeAttributes { mode, uid: 0, gid: 0, links: 1, accessed: 0, modified: 0, changed: 0 };
        Self { number, size: 0, blocks: 0, device: 0, of_inode, on: 1 }
    }

    /// `struct stat` of x86-64.
    #[cfg(target_arch = "x86_64")]
    fn bytes(&self) -> [u8; 144] {
        let mut bytes = [0; 144];
        put(&mut bytes, 16, &u64::from(self.of_inode.links).to_le_bytes());
        put(&mut bytes, 24, &self.of_inode.mode.to_le_bytes());
        put(&mut bytes, 28, &self.of_inode.uid.to_le_bytes());
        put(&mut bytes, 32, &self.of_inode.gid.to_le_bytes());
        put(&mut bytes, 40, &self.device.to_le_bytes());
        self.put_common(&mut bytes);
        bytes
    }

    /// `struct stat` of arm64.
    #[cfg(target_arch = "aarch64")]
    fn bytes(&self) -> [u8; 128] {
        let mut bytes = [0; 128];
        put(&mut bytes, 16, &self.of_inode.mode.to_le_bytes());
        put(&mut bytes, 20, &self.of_inode.links.to_le_bytes());
        put(&mut bytes, 24, &self.of_inode.uid.to_le_bytes());
        put(&mut bytes, 28, &self.of_inode.gid.to_le_bytes());
        put(&mut bytes, 32, &self.device.to_le_bytes());
        self.put_common(&mut bytes);
        bytes
    }

    /// The fields that both have at the same offset.
    fn put_common(&self, bytes: &mut [u8]) {
        let InodeAttributes { accessed, modified, changed, .. } = self.of_inode;
        put(bytes, 0, &self.on.to_le_bytes());
        put(bytes, 8, &self.number.to_le_bytes());
        put(bytes, 48, &self.size.to_le_bytes());
        put(bytes, 56, &(PAGE_SIZE as u32).to_le_bytes());
        put(bytes, 64, &self.blocks.to_le_bytes());
        for (index, ns) in [accessed, modified, changed].into_iter().enumerate() {
            put(bytes, 72 + index * 16, &(ns / NS).to_le_bytes());
            put(bytes, 80 + index * 16, &(ns % NS).to_le_bytes());
        }
    }
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

fn of_descriptor(thread: &Thread, number: u64) -> Result<FileAttributes, Errno> {
    Ok(of_open(&*thread.named_file(number)?))
}

fn of_open(open: &OpenFile) -> FileAttributes {
    match &open.target {
        OpenTarget::Inode(node) => FileAttributes::of(node),
        OpenTarget::Pipe(end) => match end.fifo() {
            Some(node) => FileAttributes::of(node),
            None => FileAttributes::anonymous(end.number(), PIPE_MODE),
        },
        OpenTarget::Socket(_) => FileAttributes::anonymous(open.number, SOCKET_MODE),
        OpenTarget::Process(handle) => FileAttributes::anonymous(handle.0.into(), PROCESS_MODE),
        OpenTarget::Event(_) | OpenTarget::Epoll(_) => FileAttributes::anonymous(0, PROCESS_MODE),
    }
}

fn write_stat(thread: &Thread, attributes: &FileAttributes, to: u64) -> SyscallResult {
    thread.space.write(address(to), &attributes.bytes())?;
    Ok(0)
}

pub(super) fn fstat(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let attributes = of_descriptor(thread, a[0])?;
    write_stat(thread, &attributes, a[1])
}

/// `newfstatat` on x86-64, `fstatat` on arm64.
pub(super) fn fstatat(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let of_this = a[3] & u64::from(linux::AT_EMPTY_PATH) != 0 && thread.space.read_path(address(a[1]))?.is_empty();
    let attributes = if of_this {
        of_descriptor(thread, a[0])?
    } else {
        let follow = a[3] & u64::from(linux::AT_SYMLINK_NOFOLLOW) == 0;
        let path = resolved(thread, a[0], address(a[1]), follow)?;
        match procfs::descriptor(thread, &path).filter(|_| follow) {
            Some(open) => of_open(&*open?),
            None => FileAttributes::of(&*path::at(thread, &path, follow)?),
        }
    };
    write_stat(thread, &attributes, a[2])
}

/// `statx`, which C libraries replace by the other two.
pub(super) fn statx(_thread: &mut Thread, _: Arguments) -> SyscallResult {
    Err(Errno::ENOSYS.into())
}
