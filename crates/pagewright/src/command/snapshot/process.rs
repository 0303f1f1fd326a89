//! What `/proc` says of a process's memory: mappings, present and swapped pages, page tables.
//!
//! Key types: [`ProcessMemory`]; [`Mapping`], a line of `smaps`; [`Block`], the pages of a mapping
//! in 2 MiB of addresses, as `pagemap` has them.
//!
//! Not guaranteed: one moment. The process runs while it is read.

use super::SnapshotError;
use procfs::ProcError;
use procfs::process::{MMPermissions, MMapPath, MemoryMap, MemoryPageFlags, PageInfo, Process, SwapPageFlags, VmFlags};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes of a base page.
pub(super) const PAGE: u64 = 4096;
/// Bytes that a last-level table maps, and that a huge leaf maps.
pub(super) const BLOCK: u64 = 2 << 20;
/// Base pages in a block.
pub(super) const BLOCK_PAGES: u64 = BLOCK / PAGE;
/// Bytes of an entry of `pagemap`.
const ENTRY: u64 = 8;
/// Entries of `pagemap` that one call reads: those of 1 GiB.
const READ_ENTRIES: u64 = 1 << 18;
/// The first address that no process has; `[vsyscall]` is above it.
const USER_END: u64 = 1 << 56;
/// A mapping without resident or swapped pages that is larger is not read by page.
const LARGEST_EMPTY: u64 = 16 << 30;

/// The memory of a process.
pub(super) struct ProcessMemory {
    pub(super) pid: i32,
    /// The name, as `ps` prints it.
    pub(super) command: String,
    pub(super) threads: u64,
    /// By address.
    pub(super) mappings: Vec<Mapping>,
    /// Bytes of page tables, as Linux counts them (`VmPTE`).
    pub(super) vm_pte: u64,
    pub(super) vm_rss: u64,
}

/// What a mapping maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MappingKind {
    PrivateAnonymous,
    PrivateFile,
    Shared,
}

impl MappingKind {
    pub(super) const ALL: [Self; 3] = [Self::PrivateAnonymous, Self::PrivateFile, Self::Shared];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::PrivateAnonymous => "private anonymous",
            Self::PrivateFile => "private file",
            Self::Shared => "shared",
        }
    }
}

/// A mapping and its pages.
#[derive(Clone, Debug)]
pub(super) struct Mapping {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) kind: MappingKind,
    pub(super) is_writable: bool,
    /// What fork and huge pages heed, of the flags that `smaps` shows.
    pub(super) flags: VmFlags,
    /// Resident bytes that are the process's own and no file's (`Anonymous`).
    pub(super) anonymous: u64,
    pub(super) swapped: u64,
    /// Resident bytes, in which Linux does not count pages of zeroes (`Rss`).
    pub(super) resident: u64,
    /// Leaves of 2 MiB of anonymous memory (`AnonHugePages`).
    pub(super) huge_leaves: u64,
    /// Leaves of 2 MiB of files and shared memory (`FilePmdMapped`, `ShmemPmdMapped`).
    pub(super) file_huge_leaves: u64,
    /// By address; those without a page are left out.
    pub(super) blocks: Vec<Block>,
}

/// The pages of a mapping in 2 MiB of addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Block {
    /// The address in units of 2 MiB.
    pub(super) index: u64,
    pub(super) present: u64,
    /// Those of them that are of no file and no shared memory.
    pub(super) anonymous: u64,
    /// Those of `anonymous` that no other process maps; pages of zeroes are not among them.
    pub(super) exclusive: u64,
    pub(super) swapped: u64,
}

impl ProcessMemory {
    /// Reads the memory of a process; `show` is told each step.
    ///
    /// # Errors
    /// [`SnapshotError`], if the process does not exist, may not be read, has no memory or ends.
    pub(super) fn read(pid: i32, show: impl Fn(&str)) -> Result<Self, SnapshotError> {
        let of_proc = |error| SnapshotError::of_proc(pid, error);
        let process = Process::new(pid).map_err(of_proc)?;
        let status = process.status().map_err(of_proc)?;
        // Kernel threads and zombies have no such line.
        let Some(vm_pte) = status.vmpte else { return Err(SnapshotError::NoMemory { pid }) };
        let pagemap = File::open(format!("/proc/{pid}/pagemap")).map_err(|error| SnapshotError::of_io(pid, error))?;
        let maps = process.smaps().map_err(of_proc)?;
        let mut mappings = Vec::new();
        for map in maps.iter().filter(|map| map.address.0 < USER_END) {
            let mut mapping = Mapping::of(map);
            if mapping.resident + mapping.swapped > 0 || mapping.bytes() <= LARGEST_EMPTY {
                show(&format!("reading /proc/{pid}/pagemap at {:#x}", mapping.start));
                mapping.blocks =
                    blocks(&pagemap, mapping.start, mapping.end).map_err(|error| of_pagemap(pid, error))?;
            }
            mappings.push(mapping);
        }
        Ok(Self {
            pid,
            command: status.name,
            threads: status.threads,
            mappings,
            vm_pte: vm_pte << 10,
            vm_rss: status.vmrss.unwrap_or(0) << 10,
        })
    }

    /// The mappings whose entries Linux's fork copies.
    pub(super) fn copied(&self) -> impl Iterator<Item = &Mapping> {
        self.mappings.iter().filter(|mapping| mapping.is_copied())
    }
}

/// The error of a read of `pagemap`: it is empty once the memory is gone.
fn of_pagemap(pid: i32, error: io::Error) -> SnapshotError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => SnapshotError::Ended { pid },
        _ => SnapshotError::of_io(pid, error),
    }
}

impl Mapping {
    /// A mapping without its blocks.
    fn of(map: &MemoryMap) -> Self {
        let size = |name: &str| map.extension.map.get(name).copied().unwrap_or(0);
        let is_file = map.inode != 0 || matches!(map.pathname, MMapPath::Vdso | MMapPath::Vvar);
        let kind = match map.perms.contains(MMPermissions::SHARED) {
            true => MappingKind::Shared,
            false if is_file => MappingKind::PrivateFile,
            false => MappingKind::PrivateAnonymous,
        };
        Self {
            start: map.address.0,
            end: map.address.1,
            kind,
            is_writable: map.perms.contains(MMPermissions::WRITE),
            flags: map.extension.vm_flags,
            anonymous: size("Anonymous"),
            swapped: size("Swap"),
            resident: size("Rss"),
            huge_leaves: size("AnonHugePages") / BLOCK,
            file_huge_leaves: (size("FilePmdMapped") + size("ShmemPmdMapped")) / BLOCK,
            blocks: Vec::new(),
        }
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.end - self.start
    }

    pub(super) fn is_private(&self) -> bool {
        self.kind != MappingKind::Shared
    }

    /// Whether the child gets the mapping.
    pub(super) fn is_inherited(&self) -> bool {
        !self.flags.contains(VmFlags::DC)
    }

    /// Whether Linux's fork copies the entries (`vma_needs_copy`).
    ///
    /// It does if the mapping has an `anon_vma`, which it gets with its first anonymous page, or if
    /// its pages are no ordinary ones.
    pub(super) fn is_copied(&self) -> bool {
        let has_anon_vma = self.is_private() && self.anonymous + self.swapped > 0;
        let is_special = self.flags.intersects(VmFlags::PF | VmFlags::MM | VmFlags::UW);
        self.is_inherited() && !self.flags.contains(VmFlags::WF) && (has_anon_vma || is_special)
    }

    /// The sum of a figure over all blocks.
    pub(super) fn sum(&self, of: impl Fn(&Block) -> u64) -> u64 {
        self.blocks.iter().map(of).sum()
    }

    /// Entries of last-level tables that map a page.
    pub(super) fn base_entries(&self) -> u64 {
        let huge = (self.huge_leaves + self.file_huge_leaves) * BLOCK_PAGES;
        self.sum(|block| block.present).saturating_sub(huge)
    }
}

/// Reads the pages of a range.
fn blocks(pagemap: &File, start: u64, end: u64) -> io::Result<Vec<Block>> {
    let mut blocks: Vec<Block> = Vec::new();
    let (mut page, last) = (start / PAGE, end / PAGE);
    let mut bytes = vec![0; (READ_ENTRIES.min(last - page) * ENTRY) as usize];
    while page < last {
        let entries = READ_ENTRIES.min(last - page);
        let read = &mut bytes[..(entries * ENTRY) as usize];
        pagemap.read_exact_at(read, page * ENTRY)?;
        let (words, _) = read.as_chunks();
        for (page, word) in (page..).zip(words) {
            match u64::from_ne_bytes(*word) {
                // Nothing is there. Most entries of sparse mappings are so.
                0 => {}
                word => note(&mut blocks, page / BLOCK_PAGES, PageInfo::parse_info(word)),
            }
        }
        page += entries;
    }
    Ok(blocks)
}

/// Adds a page to its block, which is the last one or new.
fn note(blocks: &mut Vec<Block>, index: u64, page: PageInfo) {
    let mut added = Block { index, ..Block::default() };
    match page {
        PageInfo::SwapPage(flags) => added.swapped = u64::from(flags.contains(SwapPageFlags::SWAP)),
        PageInfo::MemoryPage(flags) => {
            added.present = u64::from(flags.contains(MemoryPageFlags::PRESENT));
            added.anonymous = added.present * u64::from(!flags.contains(MemoryPageFlags::FILE));
            added.exclusive = added.anonymous * u64::from(flags.contains(MemoryPageFlags::MMAP_EXCLUSIVE));
        }
    }
    // An entry may be of neither, and have only a bit such as soft-dirty.
    if added.present + added.swapped == 0 {
        return;
    }
    match blocks.last_mut() {
        Some(block) if block.index == index => {
            block.present += added.present;
            block.anonymous += added.anonymous;
            block.exclusive += added.exclusive;
            block.swapped += added.swapped;
        }
        Some(_) | None => blocks.push(added),
    }
}

impl SnapshotError {
    fn of_proc(pid: i32, error: ProcError) -> Self {
        match error {
            ProcError::PermissionDenied(_) => Self::NotPermitted { pid },
            ProcError::NotFound(_) => Self::NoProcess { pid },
            ProcError::Incomplete(_) => Self::Ended { pid },
            ProcError::Io(error, _) => Self::of_io(pid, error),
            ProcError::Other(reason) => Self::Proc { pid, reason },
            ProcError::InternalError(error) => Self::Proc { pid, reason: error.to_string() },
        }
    }

    fn of_io(pid: i32, error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::PermissionDenied => Self::NotPermitted { pid },
            io::ErrorKind::NotFound => Self::NoProcess { pid },
            _ if error.raw_os_error() == Some(nix::errno::Errno::ESRCH as i32) => Self::Ended { pid },
            _ => Self::Proc { pid, reason: error.to_string() },
        }
    }
}
