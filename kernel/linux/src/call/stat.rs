//! The attributes of files: `fstat`, `newfstatat`.

use super::path::path_at;
use super::{Arguments, address};
use crate::errno::Errno;
use crate::file::OpenTarget;
use crate::inode::Inode;
use crate::ramfs;
use crate::task::{SyscallResult, Thread};
use linux_raw_sys::general as linux;
use pagewright_types::PAGE_SIZE;

/// The attributes of a file, whose layout depends on the instruction set.
struct FileAttributes {
    number: u64,
    mode: u32,
    size: u64,
    /// Of 512 bytes.
    blocks: u64,
}

const PIPE_MODE: u32 = 0o010_600;
const PROCESS_MODE: u32 = 0o600;

impl FileAttributes {
    fn of(node: &Inode) -> Self {
        Self { number: node.number, mode: node.mode(), size: node.size(), blocks: node.blocks() }
    }

    /// `struct stat` of x86-64.
    #[cfg(target_arch = "x86_64")]
    fn bytes(&self) -> [u8; 144] {
        let mut bytes = [0; 144];
        put(&mut bytes, 0, &1_u64.to_le_bytes());
        put(&mut bytes, 8, &self.number.to_le_bytes());
        put(&mut bytes, 16, &1_u64.to_le_bytes());
        put(&mut bytes, 24, &self.mode.to_le_bytes());
        put(&mut bytes, 48, &self.size.to_le_bytes());
        put(&mut bytes, 56, &PAGE_SIZE.to_le_bytes());
        put(&mut bytes, 64, &self.blocks.to_le_bytes());
        bytes
    }

    /// `struct stat` of arm64.
    #[cfg(target_arch = "aarch64")]
    fn bytes(&self) -> [u8; 128] {
        let mut bytes = [0; 128];
        put(&mut bytes, 0, &1_u64.to_le_bytes());
        put(&mut bytes, 8, &self.number.to_le_bytes());
        put(&mut bytes, 16, &self.mode.to_le_bytes());
        put(&mut bytes, 20, &1_u32.to_le_bytes());
        put(&mut bytes, 48, &self.size.to_le_bytes());
        put(&mut bytes, 56, &(PAGE_SIZE as u32).to_le_bytes());
        put(&mut bytes, 64, &self.blocks.to_le_bytes());
        bytes
    }
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

fn of_descriptor(thread: &Thread, number: u64) -> Result<FileAttributes, Errno> {
    let open = thread.open_file(number)?;
    Ok(match &open.target {
        OpenTarget::Inode(node) => FileAttributes::of(node),
        OpenTarget::Pipe(_) => FileAttributes { number: 0, mode: PIPE_MODE, size: 0, blocks: 0 },
        OpenTarget::Process(handle) => {
            FileAttributes { number: u64::from(handle.0), mode: PROCESS_MODE, size: 0, blocks: 0 }
        }
    })
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
        FileAttributes::of(&*ramfs::find(&path_at(thread, a[0], address(a[1]))?, follow)?)
    };
    write_stat(thread, &attributes, a[2])
}

/// `statx`, which C libraries replace by the other two.
pub(super) fn statx(_thread: &mut Thread, _: Arguments) -> SyscallResult {
    Err(Errno::ENOSYS.into())
}
