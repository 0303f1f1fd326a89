//! The flags of `mmap(2)`, `mremap(2)`, `mlock2(2)` and `mlockall(2)`.

bitflags::bitflags! {
    /// `MAP_*` with Linux's values (`include/uapi/asm-generic/mman-common.h`), the same on both instruction sets.
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
        /// With POPULATE: do not wait. Linux then does nothing.
        const NONBLOCK = 0x1_0000;
        /// A stack; no effect, as in Linux.
        const STACK = 0x2_0000;
        /// Exactly at the address, or not at all.
        const FIXED_NOREPLACE = 0x10_0000;
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
