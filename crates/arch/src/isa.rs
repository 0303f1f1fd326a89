//! The codec trait and the rules by which one entry may replace another.

use crate::entry::{Entry, Leaf, LeafFlags, Pte, SoftEntry, TableEntry};
use core::fmt;
use pagewright_types::{IsaKind, Level, PageRange, Rights, VirtAddr};

/// What putting a new entry in the place of an old one asks of the TLBs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Replacement {
    /// No TLB can hold anything that the new entry does not allow: nothing to flush.
    Harmless,
    /// A TLB may hold more than the new entry allows: store, then flush.
    Flush,
    /// The architecture wants the old entry gone from every TLB before the new one is stored
    /// (break-before-make, Arm ARM D8.16.1; on x86-64 a change of page size, Intel SDM vol. 3A
    /// §4.10.4.2).
    BreakFirst,
}

/// An instruction set's page tables: four levels of 512 entries of 8 bytes, 48-bit addresses, 4
/// KiB, 2 MiB and 1 GiB leaves. Pure: no function here touches memory.
///
/// Promises: INV-CODEC-EXACT (what is encoded is what is decoded and what hardware does),
/// INV-SOFT-UNSEEN (hardware sees no soft entry), INV-REPLACE (no flush is asked for too late).
pub trait Isa: Copy + fmt::Debug + 'static {
    /// Which one it is.
    const KIND: IsaKind;

    /// First address past the user half (Linux's `TASK_SIZE`).
    const USER_END: VirtAddr;

    /// Where a mapping goes that is to have an address of 31 bits (`MAP_32BIT`).
    ///
    /// Where nothing is said, that flag and `MAP_ABOVE4G` mean nothing.
    const LOW_MAPPINGS: Option<PageRange>;

    /// Width in bits of a [`pagewright_types::Tag`]: 12 for a PCID, 16 for an ASID.
    const TAG_BITS: u32;

    /// The word for a leaf in a table of `level`.
    ///
    /// # Panics
    /// In debug builds when `level` is PGD or `leaf.pfn` is not aligned to the block.
    fn leaf(level: Level, leaf: Leaf) -> Pte;

    /// The word for a pointer to a table of the level below.
    fn table(table: TableEntry) -> Pte;

    /// The word for a non-present entry that remembers something.
    ///
    /// Never empty.
    fn soft(soft: SoftEntry) -> Pte;

    /// What `pte` means in a table of `level`.
    ///
    /// A word that no function of this trait made is read as the walker would read it where it is
    /// present, and as empty where it is not.
    fn decode(level: Level, pte: Pte) -> Entry;

    /// `pte` as the walker leaves it after an access: accessed, and dirty for a store.
    ///
    /// `pte` must be a leaf with rights.
    ///
    /// # Panics
    /// In debug builds at a store through a leaf without WRITE.
    fn touched(pte: Pte, store: bool) -> Pte;

    /// What replacing `old` by `new` in a table of `level` asks of the TLBs.
    fn replacement(level: Level, old: Pte, new: Pte) -> Replacement;
}

/// The part of [`Isa::replacement`] on which the instruction sets agree, for two leaves of one
/// level: whether a TLB that holds `old` could do something that `new` forbids, or reach another
/// frame.
pub(crate) fn leaf_weakened(old: Leaf, new: Leaf) -> bool {
    // A TLB that holds the leaf as dirty lets stores pass without setting the bit again, so losing
    // DIRTY needs a flush wherever a store can pass. Losing ACCESSED costs only accuracy (Linux's
    // ptep_test_and_clear_young).
    let lost_dirty = old.rights.contains(Rights::WRITE)
        && old.flags.contains(LeafFlags::DIRTY)
        && !new.flags.contains(LeafFlags::DIRTY);
    old.pfn != new.pfn
        || !new.rights.contains(old.rights)
        || lost_dirty
        // Supervisor to user weakens too: SMEP, SMAP and PXN keep the kernel off user pages.
        || (old.flags ^ new.flags).intersects(LeafFlags::GLOBAL | LeafFlags::USER)
}

/// Whether hardware can hold a translation of a leaf with these rights at all.
pub(crate) fn walkable(rights: Rights) -> bool {
    !rights.is_empty()
}
