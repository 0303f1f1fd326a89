//! Page-table entries as values: the meaning of a raw word, on any instruction set.
//!
//! An entry has three forms in Pagewright. The *plain* form is [`Entry`], a copyable description
//! that owns nothing. The *owning* and *borrowed* forms are in `table`, where an entry can hold a
//! reference to its frame.

use pagewright_types::{Pfn, Rights};

/// One raw page-table word.
///
/// Only a codec ([`crate::Isa`]) interprets its bits. Zero is the empty entry on both instruction
/// sets.
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

    /// Whether the entry is empty (`pte_none`).
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
    /// The properties of a leaf beside its rights.
    ///
    /// The codecs shift several bits at once, so their order is that of the hardware's bits.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct LeafFlags: u8 {
        /// Set by the walker at the first access through the leaf (x86 A, arm64 AF).
        const ACCESSED = 1;
        /// Set by the walker at the first store through the leaf.
        ///
        /// x86 D; arm64 the dirty state of FEAT_HAFDBS.
        const DIRTY = 1 << 1;
        /// Accessible from user mode (x86 U/S, arm64 AP[1]).
        const USER = 1 << 2;
        /// Valid under every tag: kernel mappings only (x86 G, arm64 nG clear).
        const GLOBAL = 1 << 3;
        /// Software: the frame has no folio, so no reference count and no mapcount (`pte_special`).
        const SPECIAL = 1 << 4;
        /// Software: the anonymous page belongs to this address space alone.
        ///
        /// Linux's `PageAnonExclusive`, but per mapping, because the entry holds it.
        const EXCLUSIVE = 1 << 5;
        /// Software: stored to since the soft-dirty bits were last cleared (`pte_soft_dirty`).
        const SOFT_DIRTY = 1 << 6;
    }
}

impl LeafFlags {
    /// The flags of a private page's leaf after a store through it.
    pub const STORED: Self = Self::ACCESSED.union(Self::DIRTY).union(Self::EXCLUSIVE).union(Self::SOFT_DIRTY);

    /// The flags of software, which both codecs keep in adjacent bits.
    pub(crate) const SOFTWARE: Self = Self::SPECIAL.union(Self::EXCLUSIVE).union(Self::SOFT_DIRTY);

    /// The flags of `among` as bits of an entry, `shift` positions higher.
    #[inline]
    pub(crate) const fn to_raw(self, among: Self, shift: u32) -> u64 {
        ((self.bits() & among.bits()) as u64) << shift
    }

    /// The flags of `among` that an entry has, `shift` positions higher.
    #[inline]
    pub(crate) const fn from_raw(raw: u64, among: Self, shift: u32) -> Self {
        Self::from_bits_retain((raw >> shift) as u8 & among.bits())
    }
}

/// An entry that maps a page, or a huge page.
///
/// A leaf without rights is a `PROT_NONE` mapping: it keeps its frame, and hardware treats it as
/// not present.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Leaf {
    /// First frame, aligned to the size of the page.
    pub pfn: Pfn,
    /// The accesses that hardware allows.
    pub rights: Rights,
    /// Accessed, dirty and the software bits.
    pub flags: LeafFlags,
}

impl Leaf {
    /// Whether a page-table walker may still set a bit of the leaf.
    ///
    /// A walker sets only bits that are not set yet (Intel SDM vol. 3A §4.8, Arm ARM D8.5.1). Where
    /// it sets none, a plain store replaces the leaf and loses nothing.
    #[inline]
    pub fn may_be_touched(&self) -> bool {
        !self.rights.is_empty() && (self.may_be_dirtied() || !self.flags.contains(LeafFlags::ACCESSED))
    }

    /// Whether a page-table walker may still set the dirty bit, as it does for a store.
    #[inline]
    pub fn may_be_dirtied(&self) -> bool {
        self.rights.contains(Rights::WRITE) && !self.flags.contains(LeafFlags::DIRTY)
    }
}

/// An entry that points to a table of the level below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TableEntry {
    /// The table's frame.
    pub pfn: Pfn,
    /// Whether this entry refuses stores through every leaf below it.
    ///
    /// x86: R/W clear. arm64: `APTable[1]` set.
    pub write_protected: bool,
    /// Whether the space of this entry had the table to itself when others began to share it.
    ///
    /// A software bit, which hardware ignores.
    pub origin: bool,
}

impl TableEntry {
    /// The pointer to a table that no other space uses.
    #[inline]
    pub const fn own(pfn: Pfn) -> Self {
        Self { pfn, write_protected: false, origin: false }
    }
}

/// What a soft entry stands for.
///
/// The number 3 is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SoftKind {
    /// The page is in swap; the payload names device and slot.
    Swap = 1,
    /// The page is being moved; the payload is the leaf ([`SoftEntry::migrating`]).
    Migration = 2,
    /// No page may be faulted in; the payload says why (`PTE_MARKER`).
    ///
    /// So far it is always a guard.
    Marker = 4,
    /// The entry is between break and make: a fault waits, a lockless walker falls back.
    InTransition = 5,
}

impl SoftKind {
    /// The kind with number `raw`, if there is one; a number is below 16.
    pub const fn from_raw(raw: u8) -> Option<Self> {
        match raw {
            1 => Some(Self::Swap),
            2 => Some(Self::Migration),
            4 => Some(Self::Marker),
            5 => Some(Self::InTransition),
            _ => None,
        }
    }

    /// Whether the entry counts as a swap entry (`MM_SWAPENTS`).
    #[inline]
    pub const fn is_swap(self) -> bool {
        match self {
            Self::Swap => true,
            Self::Migration | Self::Marker | Self::InTransition => false,
        }
    }

    /// Whether an operation is replacing the entry, so that a descent waits.
    #[inline]
    pub const fn is_in_transition(self) -> bool {
        match self {
            Self::InTransition => true,
            Self::Swap | Self::Migration | Self::Marker => false,
        }
    }
}

/// A non-present entry that carries information (Linux's `swp_entry_t` in a `pte_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SoftEntry {
    /// What the entry stands for.
    pub kind: SoftKind,
    /// Whether the page was exclusive to this address space when it was unmapped.
    pub exclusive: bool,
    /// Data whose meaning depends on the kind, below 2^[`SoftEntry::PAYLOAD_BITS`].
    pub payload: u64,
}

impl SoftEntry {
    /// Width of [`SoftEntry::payload`], in bits.
    pub const PAYLOAD_BITS: u32 = 48;
    /// Width of the frame number of a leaf in the payload; its rights and flags are above.
    const FRAME_BITS: u32 = 32;
    const RIGHTS_SHIFT: u32 = Self::FRAME_BITS;
    const FLAGS_SHIFT: u32 = Self::RIGHTS_SHIFT + 8;
    const KIND_SHIFT: u32 = 1;
    const EXCLUSIVE: u64 = 1 << 5;
    const PAYLOAD_SHIFT: u32 = 11;

    /// The migration entry that stands for `leaf` while its page is moved (`make_migration_entry`).
    #[inline]
    pub fn migration(leaf: Leaf) -> Self {
        let flags = (leaf.flags - LeafFlags::EXCLUSIVE).bits();
        let payload = u64::from(leaf.pfn.raw())
            | u64::from(leaf.rights.bits()) << Self::RIGHTS_SHIFT
            | u64::from(flags) << Self::FLAGS_SHIFT;
        Self { kind: SoftKind::Migration, exclusive: leaf.flags.contains(LeafFlags::EXCLUSIVE), payload }
    }

    /// The leaf for which a migration entry stands; `None` for an entry of another kind.
    #[inline]
    pub fn migrating(self) -> Option<Leaf> {
        if self.kind != SoftKind::Migration {
            return None;
        }
        let mut flags = LeafFlags::from_bits_truncate((self.payload >> Self::FLAGS_SHIFT) as u8);
        flags.set(LeafFlags::EXCLUSIVE, self.exclusive);
        let rights = Rights::from_bits_truncate((self.payload >> Self::RIGHTS_SHIFT) as u8);
        Some(Leaf { pfn: Pfn::new(self.payload as u32), rights, flags })
    }

    /// The entry as one of several spaces may have it: not exclusive, and without a right to store.
    #[inline]
    #[must_use]
    pub fn shared(self) -> Self {
        match self.migrating() {
            Some(leaf) => Self::migration(Leaf {
                rights: leaf.rights - Rights::WRITE,
                flags: leaf.flags - LeafFlags::EXCLUSIVE,
                ..leaf
            }),
            None => Self { exclusive: false, ..self },
        }
    }

    /// The word without the codec's mark.
    ///
    /// Kind in bits 1–4, exclusive in bit 5, payload in bits 11–58. Bit 0, which means present on
    /// both instruction sets, is clear. Bits 6–8 and 61 are for [`Pending`], bits 9, 10, 59, 60, 62
    /// and 63 for the codec's mark.
    #[inline]
    pub(crate) const fn pack(self) -> u64 {
        debug_assert!(self.payload < 1 << Self::PAYLOAD_BITS);
        let exclusive = if self.exclusive { Self::EXCLUSIVE } else { 0 };
        exclusive | (self.kind as u64) << Self::KIND_SHIFT | self.payload << Self::PAYLOAD_SHIFT
    }

    /// The inverse of [`Self::pack`], or `None` if the word has no known kind.
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

/// The mark of a pending entry: which flush of its table it waits for.
///
/// An entry that is not present can be *pending*: its flush was not complete when the lock of its
/// table was released. It decodes as it does without that mark. It counts as pending only while its
/// number is that of its table, which moves on when the flushes of the table are settled. So no
/// pending entry has to be looked for and cleared. A number that comes around again costs a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pending {
    /// The number of its table when it was marked.
    pub sequence: PendingSequence,
    /// Whether its translations may linger; if not, they must be flushed.
    pub lingers: bool,
}

/// The number of a table's pending entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct PendingSequence(u8);

impl PendingSequence {
    const BITS: u32 = 2;
    const MASK: u64 = (1 << Self::BITS) - 1;

    /// The number in the low bits of `raw`.
    #[inline]
    pub const fn new(raw: u32) -> Self {
        Self((raw as u64 & Self::MASK) as u8)
    }

    /// The number.
    #[inline]
    pub const fn raw(self) -> u32 {
        self.0 as u32
    }

    /// The number after this one.
    #[inline]
    pub const fn next(self) -> Self {
        Self::new(self.raw() + 1)
    }
}

impl Pending {
    const MARK: u64 = 1 << 6;
    /// Of the sequence number, in bits 7 and 8.
    const SHIFT: u32 = 7;
    const LINGERS: u64 = 1 << 61;

    /// Marks a word that is not present; `soft` is what a codec sets in every soft entry.
    #[inline]
    pub(crate) const fn mark(self, raw: u64, soft: u64) -> u64 {
        let lingers = if self.lingers { Self::LINGERS } else { 0 };
        let rest = raw & !(PendingSequence::MASK << Self::SHIFT | Self::LINGERS);
        rest | soft | Self::MARK | lingers | (self.sequence.raw() as u64) << Self::SHIFT
    }

    /// The mark of a word that has the bit `soft`, if it is marked.
    #[inline]
    pub(crate) const fn of(raw: u64, soft: u64) -> Option<Self> {
        if raw & soft == 0 || raw & Self::MARK == 0 {
            return None;
        }
        Some(Self { sequence: PendingSequence::new((raw >> Self::SHIFT) as u32), lingers: raw & Self::LINGERS != 0 })
    }
}

/// The meaning of a word in a table of a given level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Entry {
    /// Nothing is mapped.
    Empty,
    /// A table of the level below.
    Table(TableEntry),
    /// A page, or a huge page at PMD and PUD level.
    Leaf(Leaf),
    /// Nothing is mapped, but the entry carries information.
    Soft(SoftEntry),
}
