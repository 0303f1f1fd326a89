//! The flags of `mmap(2)`, `mprotect(2)`, `mremap(2)`, `mlock2(2)`, `mlockall(2)` and `msync(2)`.

use pagewright_arch::Isa;
use pagewright_types::Rights;

bitflags::bitflags! {
    /// The flags `MAP_*` of `mmap`, with Linux's values.
    ///
    /// The values (`include/uapi/asm-generic/mman-common.h`) are the same on both instruction sets.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct MapFlags: u32 {
        /// Stores go to the file and are visible in other mappings of it.
        const SHARED = 0x1;
        /// Stores go to private copies of the pages.
        const PRIVATE = 0x2;
        /// Map exactly at the address, and replace existing mappings.
        const FIXED = 0x10;
        /// Map zeroes instead of a file.
        const ANONYMOUS = 0x20;
        /// Map below 2 GiB (`MAP_32BIT`), if the instruction set has that flag.
        const LOW = 0x40;
        /// Map at or above 4 GiB, if the instruction set has that flag.
        const ABOVE4G = 0x80;
        /// A stack: an access below the mapping grows it.
        const GROWSDOWN = 0x100;
        /// Ignored, as in Linux.
        const DENYWRITE = 0x800;
        /// Ignored, as in Linux.
        const EXECUTABLE = 0x1000;
        /// Lock the pages, as `mlock` does.
        const LOCKED = 0x2000;
        /// Do not charge the pages; ignored under overcommit policy 2.
        const NORESERVE = 0x4000;
        /// Fault all pages in.
        const POPULATE = 0x8000;
        /// With `POPULATE`: do not wait for a device.
        ///
        /// As in Linux, `POPULATE` then has no effect.
        const NONBLOCK = 0x1_0000;
        /// A stack, which gets no huge pages.
        const STACK = 0x2_0000;
        /// Stores are durable at once.
        ///
        /// No memory here is durable. The flag only prevents merges with mappings without it.
        const SYNC = 0x8_0000;
        /// Map exactly at the address, or fail if a page there is mapped.
        const FIXED_NOREPLACE = 0x10_0000;
    }
}

impl MapFlags {
    /// The bits of the mapping type (`MAP_TYPE`).
    pub(in crate::space) const TYPE: u32 = 0xf;
    /// Huge pages (`MAP_HUGETLB`), of which there are none.
    const HUGETLB: u32 = 0x4_0000;
    /// The position of the logarithm of their size, and its bits (`MAP_HUGE_SHIFT`).
    const HUGE_SHIFT: u32 = 26;
    const HUGE_MASK: u32 = 0x3f;
    /// The mapping type `MAP_SHARED`.
    pub(in crate::space) const SHARED_ONLY: u32 = Self::SHARED.bits();
    /// The mapping type `MAP_PRIVATE`.
    pub(in crate::space) const PRIVATE_ONLY: u32 = Self::PRIVATE.bits();
    /// The mapping type `MAP_SHARED_VALIDATE`, which refuses unknown flags.
    pub(in crate::space) const SHARED_VALIDATE: u32 = 0x3;

    /// Whether huge pages are asked for.
    pub(in crate::space) fn is_huge(self) -> bool {
        self.bits() & Self::HUGETLB != 0
    }

    /// The size of the huge pages in bytes, unless the instruction set has none of that size.
    ///
    /// Linux: `hstate_sizelog`. Without a size, that of a huge leaf of the last level but one.
    pub(in crate::space) fn huge_page_size<I: Isa>(self) -> Option<u64> {
        const DEFAULT: u32 = 21;
        let log = match self.bits() >> Self::HUGE_SHIFT & Self::HUGE_MASK {
            0 => DEFAULT,
            log => log,
        };
        I::HUGE_PAGES.contains(&log).then_some(1 << log)
    }

    /// The flags that `MAP_SHARED_VALIDATE` accepts (`LEGACY_MAP_MASK`).
    ///
    /// As in Linux, `MAP_FIXED_NOREPLACE` is not among them. `MAP_SYNC` is not, because no file
    /// here supports it.
    pub(in crate::space) const fn valid<I: Isa>() -> Self {
        let unknown = if I::LOW_MAPPINGS.is_some() { 0 } else { Self::LOW.bits() | Self::ABOVE4G.bits() };
        let unknown = unknown | Self::FIXED_NOREPLACE.bits() | Self::SYNC.bits();
        Self::from_bits_retain(Self::all().bits() & !unknown | UNINITIALIZED | HUGE)
    }
}

/// The flag `MAP_UNINITIALIZED`.
const UNINITIALIZED: u32 = 0x400_0000;
/// The flags `MAP_HUGE_2MB` and `MAP_HUGE_1GB`.
const HUGE: u32 = 21 << 26 | 30 << 26;

bitflags::bitflags! {
    /// The flags `PROT_*` of `mprotect`, with Linux's values.
    ///
    /// The values are those of `include/uapi/asm-generic/mman-common.h`. `mmap` takes only the
    /// rights.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Protection: u32 {
        /// [`Rights::READ`].
        const READ = 0x1;
        /// [`Rights::WRITE`].
        const WRITE = 0x2;
        /// [`Rights::EXEC`].
        const EXEC = 0x4;
        /// The memory is used for atomic operations; ignored, as in Linux.
        const SEM = 0x8;
        /// Extend the range down to the start of the stack that contains the first page.
        const GROWSDOWN = 0x100_0000;
        /// Extend the range up to the end of the stack, where stacks grow up.
        const GROWSUP = 0x200_0000;
    }
}

impl Protection {
    /// The flags that extend the range.
    pub(in crate::space) const GROWS: Self = Self::GROWSDOWN.union(Self::GROWSUP);

    /// Returns the rights among the flags.
    pub const fn rights(self) -> Rights {
        Rights::from_bits_truncate(self.bits() as u8)
    }
}

impl From<Rights> for Protection {
    fn from(rights: Rights) -> Self {
        Self::from_bits_retain(rights.bits().into())
    }
}

bitflags::bitflags! {
    /// The flags `MREMAP_*` of `mremap`, with Linux's values (`include/uapi/linux/mman.h`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct RemapFlags: u32 {
        /// Move the mapping if it cannot grow in place.
        const MAYMOVE = 1;
        /// Move the mapping to the given address, and replace existing mappings.
        const FIXED = 2;
        /// Move the pages, and leave the old mapping empty.
        const DONTUNMAP = 4;
    }
}

bitflags::bitflags! {
    /// The flags `MLOCK_*` of `mlock2`, with Linux's values.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct LockFlags: u32 {
        /// Lock a page when it is first accessed, instead of populating the mapping.
        const ONFAULT = 1;
    }
}

bitflags::bitflags! {
    /// The flags `MCL_*` of `mlockall`, with Linux's values.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct LockAllFlags: u32 {
        /// Lock the present mappings.
        const CURRENT = 1;
        /// Lock future mappings.
        const FUTURE = 2;
        /// Lock a page when it is first accessed, instead of populating the mappings.
        const ONFAULT = 4;
    }
}

bitflags::bitflags! {
    /// The flags `MS_*` of `msync`, with Linux's values.
    ///
    /// The values are those of `include/uapi/asm-generic/mman-common.h`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct SyncFlags: u32 {
        /// Schedule writeback and do not wait.
        const ASYNC = 0x1;
        /// Invalidate other mappings; they see the same pages, so it only fails on locked memory.
        const INVALIDATE = 0x2;
        /// Write and wait.
        const SYNC = 0x4;
    }
}
