//! Page-table entries as values: what a raw word means, on any instruction set.
//!
//! A word has three forms in Pagewright. The *plain* form is [`Entry`], a copyable description that
//! owns nothing. The *owning* and *borrowed* forms are built on it in `table`, where an entry can
//! hold a reference on its frame.

use pagewright_types::{Pfn, Rights};

/// One raw page-table word.
///
/// Only a codec ([`crate::Isa`]) knows what its bits mean; zero is the empty entry on both
/// instruction sets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(transparent)]
pub struct Pte(u64);

impl Pte {
    /// The entry that maps nothing.
    pub const EMPTY: Self = Self(0);

    /// The entry with the bits of `raw`.
    #[inline]
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// The bits.
    #[inline]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// Whether the entry maps nothing and remembers nothing.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl core::fmt::Debug for Pte {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Pte({:#018x})", self.0)
    }
}

bitflags::bitflags! {
    /// What a leaf says beside its rights.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct LeafFlags: u8 {
        /// Set by the walker when the leaf is first used (x86 A, arm64 AF).
        const ACCESSED = 1;
        /// Set by the walker at the first store through the leaf (x86 D, arm64 dirty state under
        /// FEAT_HAFDBS).
        const DIRTY = 1 << 1;
        /// Survives a flush of one tag: kernel mappings only (x86 G, arm64 nG clear).
        const GLOBAL = 1 << 2;
        /// Reachable from user mode (x86 U/S, arm64 AP[1]).
        const USER = 1 << 3;
        /// Software: the anonymous page under this leaf belongs to this address space alone
        /// (Linux's `PageAnonExclusive`, kept in the entry so that a page's exclusivity is per
        /// mapping).
        const EXCLUSIVE = 1 << 4;
        /// Software: the frame has no folio behind it, so neither references nor mapcounts are kept
        /// (`pte_special`).
        const SPECIAL = 1 << 5;
        /// Software: written to since soft-dirty bits were last cleared (`pte_soft_dirty`).
        const SOFT_DIRTY = 1 << 6;
    }
}

/// An entry that maps a frame or a block of frames.
///
/// A leaf without any right is a `PROT_NONE` mapping: it keeps its frame, and the hardware does not
/// see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Leaf {
    /// First frame; a multiple of the block's order.
    pub pfn: Pfn,
    /// What the hardware will allow.
    pub rights: Rights,
    /// Accessed, dirty and the software bits.
    pub flags: LeafFlags,
}

/// An entry that points to a table of the level below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TableEntry {
    /// The table's frame.
    pub pfn: Pfn,
    /// Whether stores through any leaf below are refused here (x86: R/W clear; arm64: `APTable[1]`
    /// set).
    pub write_protected: bool,
}

/// What an entry that hardware ignores stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SoftKind {
    /// Contents are in a swap slot; the payload names device and slot.
    Swap = 1,
    /// Contents are moving; the old mapping was not writable.
    ///
    /// The payload is a frame number.
    MigrationRead = 2,
    /// Contents are moving; the old mapping was writable.
    ///
    /// The payload is a frame number.
    MigrationWrite = 3,
    /// Nothing is there and an access must not fill it; the payload says why (guard, poison).
    Marker = 4,
    /// Between break and make: a fault waits, a lockless walk gives up.
    InTransition = 5,
}

impl SoftKind {
    /// The kind with number `raw`, if there is one.
    pub const fn from_raw(raw: u8) -> Option<Self> {
        match raw {
            1 => Some(Self::Swap),
            2 => Some(Self::MigrationRead),
            3 => Some(Self::MigrationWrite),
            4 => Some(Self::Marker),
            5 => Some(Self::InTransition),
            _ => None,
        }
    }
}

/// A non-present entry that remembers something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SoftEntry {
    /// What it stands for.
    pub kind: SoftKind,
    /// Whether the page was exclusive to this address space when it left.
    pub exclusive: bool,
    /// The kind's own data, below 2^[`SoftEntry::PAYLOAD_BITS`].
    pub payload: u64,
}

impl SoftEntry {
    /// Width of [`SoftEntry::payload`].
    pub const PAYLOAD_BITS: u32 = 48;
    const KIND_SHIFT: u32 = 1;
    const EXCLUSIVE: u64 = 1 << 5;
    const PAYLOAD_SHIFT: u32 = 11;

    /// The entry without the codec's mark: kind in bits 1–4, exclusive in bit 5, payload in bits
    /// 11–58. Bit 0 (present on both instruction sets) stays clear; bits 6–10 and 59–63 are left
    /// for marks.
    #[inline]
    pub(crate) const fn pack(self) -> u64 {
        debug_assert!(self.payload < 1 << Self::PAYLOAD_BITS);
        let exclusive = if self.exclusive { Self::EXCLUSIVE } else { 0 };
        exclusive | (self.kind as u64) << Self::KIND_SHIFT | self.payload << Self::PAYLOAD_SHIFT
    }

    /// What [`Self::pack`] packed, or `None` when the kind has no meaning.
    #[inline]
    pub(crate) fn unpack(raw: u64) -> Option<Self> {
        let kind = SoftKind::from_raw((raw >> Self::KIND_SHIFT) as u8 & 0xf)?;
        Some(Self {
            kind,
            exclusive: raw & Self::EXCLUSIVE != 0,
            payload: raw >> Self::PAYLOAD_SHIFT & ((1 << Self::PAYLOAD_BITS) - 1),
        })
    }
}

/// What a word means at a given level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Entry {
    /// Nothing is mapped and nothing is remembered.
    Empty,
    /// A table of the level below.
    Table(TableEntry),
    /// A frame, or a block at PMD and PUD level.
    Leaf(Leaf),
    /// Nothing is mapped, but something is remembered.
    Soft(SoftEntry),
}
