//! The flags of `mmap(2)`.

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
        /// Lock the pages; accepted, and means to populate.
        const LOCKED = 0x2000;
        /// Do not reserve swap; nothing is reserved anyway.
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
