//! The flags of `mmap(2)`, `mprotect(2)`, `mremap(2)`, `mlock2(2)` and `mlockall(2)`.

use pagewright_arch::Isa;
use pagewright_types::Rights;

bitflags::bitflags! {
    /// `MAP_*` with Linux's values (`include/uapi/asm-generic/mman-common.h`), the same on both
    /// instruction sets.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct MapFlags: u32 {
        /// Changes are seen by everyone who maps the same.
        const SHARED = 0x1;
        /// Changes are this space's own.
        const PRIVATE = 0x2;
        /// Exactly at the address, in the place of whatever is there.
        const FIXED = 0x10;
        /// No file: zeroes.
        const ANONYMOUS = 0x20;
        /// Where addresses have 31 bits, if the instruction set knows of that (`MAP_32BIT`).
        const LOW = 0x40;
        /// Not below 4 GiB, with the same reservation.
        const ABOVE4G = 0x80;
        /// A stack: grows down when touched below.
        const GROWSDOWN = 0x100;
        /// Ignored, as Linux does.
        const DENYWRITE = 0x800;
        /// Ignored, as Linux does.
        const EXECUTABLE = 0x1000;
        /// Lock the pages, as `mlock` does.
        const LOCKED = 0x2000;
        /// Don't promise memory; without effect under overcommit policy 2.
        const NORESERVE = 0x4000;
        /// Fault everything in.
        const POPULATE = 0x8000;
        /// With POPULATE: do not wait.
        ///
        /// Linux then does nothing.
        const NONBLOCK = 0x1_0000;
        /// A stack; no effect, as in Linux.
        const STACK = 0x2_0000;
        /// Stores are to be durable at once.
        ///
        /// There is no memory that could be, and it only keeps mappings apart.
        const SYNC = 0x8_0000;
        /// Exactly at the address, or not at all.
        const FIXED_NOREPLACE = 0x10_0000;
    }
}

impl MapFlags {
    /// The bits that say what kind of mapping it is to be (`MAP_TYPE`).
    pub(in crate::space) const TYPE: u32 = 0xf;
    /// Of huge pages (`MAP_HUGETLB`), of which there are none.
    pub(in crate::space) const HUGETLB: u32 = 0x4_0000;
    /// [`MapFlags::SHARED`], as a kind.
    pub(in crate::space) const SHARED_ONLY: u32 = Self::SHARED.bits();
    /// [`MapFlags::PRIVATE`], as a kind.
    pub(in crate::space) const PRIVATE_ONLY: u32 = Self::PRIVATE.bits();
    /// `MAP_SHARED` of a file, and every flag must be known (`MAP_SHARED_VALIDATE`).
    pub(in crate::space) const SHARED_VALIDATE: u32 = 0x3;

    /// The flags that count as known then (`LEGACY_MAP_MASK`), of which Linux leaves out
    /// `MAP_FIXED_NOREPLACE`; no file here knows `MAP_SYNC`.
    pub(in crate::space) const fn valid<I: Isa>() -> Self {
        let unknown = if I::LOW_MAPPINGS.is_some() { 0 } else { Self::LOW.bits() | Self::ABOVE4G.bits() };
        let unknown = unknown | Self::FIXED_NOREPLACE.bits() | Self::SYNC.bits();
        Self::from_bits_retain(Self::all().bits() & !unknown | UNINITIALIZED | HUGE)
    }
}

/// `MAP_UNINITIALIZED`.
const UNINITIALIZED: u32 = 0x400_0000;
/// `MAP_HUGE_2MB`, `MAP_HUGE_1GB`.
const HUGE: u32 = 21 << 26 | 30 << 26;

bitflags::bitflags! {
    /// `PROT_*` with Linux's values (`include/uapi/asm-generic/mman-common.h`), as `mprotect` takes
    /// them. `mmap` looks at the rights alone.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Protection: u32 {
        /// [`Rights::READ`].
        const READ = 0x1;
        /// [`Rights::WRITE`].
        const WRITE = 0x2;
        /// [`Rights::EXEC`].
        const EXEC = 0x4;
        /// For atomic operations; no effect, as in Linux.
        const SEM = 0x8;
        /// From where the stack begins that has the first page.
        const GROWSDOWN = 0x100_0000;
        /// To where the stack ends, where stacks grow up.
        const GROWSUP = 0x200_0000;
    }
}

impl Protection {
    /// What says how far it goes, and not what is allowed.
    pub(in crate::space) const GROWS: Self = Self::GROWSDOWN.union(Self::GROWSUP);

    /// What it allows.
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
    /// `MREMAP_*` with Linux's values (`include/uapi/linux/mman.h`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct RemapFlags: u32 {
        /// Elsewhere if it can't stay.
        const MAYMOVE = 1;
        /// To the address given, in the place of whatever is there.
        const FIXED = 2;
        /// The old mapping stays, empty.
        const DONTUNMAP = 4;
    }
}

bitflags::bitflags! {
    /// `MLOCK_*` with Linux's values.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct LockFlags: u32 {
        /// Lock pages as they are touched.
        const ONFAULT = 1;
    }
}

bitflags::bitflags! {
    /// `MCL_*` with Linux's values on both instruction sets.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct LockAllFlags: u32 {
        /// What is mapped now.
        const CURRENT = 1;
        /// What will be mapped.
        const FUTURE = 2;
        /// Lock pages as they are touched.
        const ONFAULT = 4;
    }
}
