//! The codec trait, and the rules for replacing one entry by another.
//!
//! **INV-CODEC-EXACT** An encoded entry means to the walker what the codec says. For every leaf,
//! table and soft entry, decoding the encoded word gives the entry back, and each architectural bit
//! is where Intel SDM vol. 3A §4.5 or Arm ARM D8.3 puts it.
//!
//! **INV-SOFT-UNSEEN** A soft entry, and a leaf without rights, has the present (valid) bit clear
//! whatever its payload, and is never the empty word. Otherwise a walker could use a swap slot as a
//! frame, or the slot could be lost.
//!
//! **INV-REPLACE** If `Isa::replacement` says `Harmless`, storing the new entry leaves no TLB with
//! more than the new entry allows. Where the architecture requires break-before-make, it says
//! `BreakFirst` (Arm ARM D8.16.1, Intel SDM vol. 3A §4.10.4.2).

use crate::entry::{Entry, Leaf, LeafFlags, Pending, Pte, SoftEntry, TableEntry};
use core::fmt;
use pagewright_types::{IsaKind, Level, PAGE_SHIFT, PageRange, Pfn, Rights, VirtAddr};

/// The TLB maintenance that replacing one entry by another requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Replacement {
    /// No flush: no TLB can hold a translation that the new entry forbids.
    ///
    /// If a flush of the old entry is pending, it stays so, and whatever depends on the rights that
    /// the old entry lacks waits for it.
    Harmless,
    /// Store; then flush if an earlier change of the entry may not be flushed yet.
    ///
    /// The old entry has no rights, but a TLB may hold those that it had before. The codec does not
    /// see them; the caller knows whether a flush is pending. Before it stores a translation that
    /// leads elsewhere, it flushes first, as for [`Replacement::BreakFirst`].
    FlushIfPending,
    /// Store, then flush: a TLB may hold a translation that the new entry forbids.
    Flush,
    /// Break before make: the old entry must leave every TLB before the new one is stored.
    ///
    /// Arm ARM D8.16.1; on x86-64 for a change of page size, Intel SDM vol. 3A §4.10.4.2.
    BreakFirst,
}

/// The page-table format of an instruction set.
///
/// Four levels of 512 entries of 8 bytes, 48-bit addresses, leaves of 4 KiB, 2 MiB and 1 GiB. Pure:
/// no function accesses memory.
pub trait Isa: Copy + fmt::Debug + 'static {
    /// The instruction set as a value.
    const KIND: IsaKind;

    /// First address past user memory (Linux's `TASK_SIZE`).
    const USER_END: VirtAddr;

    /// All of user memory.
    const USER: PageRange = PageRange::new(VirtAddr::ZERO, Self::USER_END);

    /// The range for mappings with `MAP_32BIT`.
    ///
    /// `None` if the instruction set ignores that flag and `MAP_ABOVE4G`.
    const LOW_MAPPINGS: Option<PageRange>;

    /// The sizes of huge pages that a program may ask for (`MAP_HUGETLB`), as powers of two.
    const HUGE_PAGES: &'static [u32];

    /// Whether a page that a fault maps beside the one that was touched starts as not accessed.
    ///
    /// Linux's `arch_wants_old_prefaulted_pte`: on arm64, where the walker sets the access flag
    /// without a fault (FEAT_HAFDBS). On x86-64 such a page starts as accessed.
    const PREFAULTS_OLD: bool;

    /// Width in bits of a [`pagewright_types::Tag`]: 12 for a PCID, 16 for an ASID.
    const TAG_BITS: u32;

    /// The bits of a leaf that name its frame, at any level.
    ///
    /// All other bits of a leaf follow from its level, rights and flags.
    const FRAME: u64;

    /// The bits of which a leaf or a pointer to a table has at least one, and no other entry any.
    const KEEPS_FRAME: u64;

    /// The bit that marks a soft entry.
    const SOFT: u64;

    /// The first frame of a leaf.
    #[inline]
    fn frame(pte: Pte) -> Pfn {
        Pfn::new(((pte.raw() & Self::FRAME) >> PAGE_SHIFT) as u32)
    }

    /// Encodes a leaf for a table of `level`.
    ///
    /// # Panics
    /// In debug builds when `level` is PGD or `leaf.pfn` is not aligned to the size of the page.
    fn leaf(level: Level, leaf: Leaf) -> Pte;

    /// Encodes a pointer to a table of the level below.
    fn table(table: TableEntry) -> Pte;

    /// Encodes a soft entry; the word is never empty.
    #[inline]
    fn soft(soft: SoftEntry) -> Pte {
        Pte::from_raw(Self::SOFT | soft.pack())
    }

    /// Marks an entry that is not present as pending; `None` if it is present or keeps a frame.
    #[inline]
    fn mark_pending(pte: Pte, pending: Pending) -> Option<Pte> {
        (pte.raw() & Self::KEEPS_FRAME == 0).then(|| Pte::from_raw(pending.mark(pte.raw(), Self::SOFT)))
    }

    /// The mark of a pending entry; `None` for any other.
    #[inline]
    fn pending(pte: Pte) -> Option<Pending> {
        if pte.raw() & Self::KEEPS_FRAME == 0 { Pending::of(pte.raw(), Self::SOFT) } else { None }
    }

    /// Decodes an entry of a table of `level`.
    ///
    /// A word that no function of this trait encoded decodes as the hardware walker reads it if it
    /// is present, and as empty otherwise.
    fn decode(level: Level, pte: Pte) -> Entry;

    /// The table to which an entry above the last level points, unless the pointer is protected.
    ///
    /// [`decode`](Self::decode) says the same in more instructions.
    fn own_table(pte: Pte) -> Option<Pfn>;

    /// The entry after an access: accessed, and after a store also dirty.
    ///
    /// `pte` must be a leaf with rights.
    ///
    /// # Panics
    /// In debug builds, if `store` is set and the leaf lacks WRITE.
    fn touched(pte: Pte, store: bool) -> Pte;

    /// The leaf `pte` without the right to store and without [`LeafFlags::EXCLUSIVE`].
    ///
    /// Fork leaves both spaces with this form of an entry (`pte_wrprotect`). What the walker has
    /// noted stays.
    fn shared(pte: Pte) -> Pte;

    /// The leaf `pte` after a store by the only space that has its page.
    ///
    /// It allows stores, and has all of [`LeafFlags::STORED`] (`wp_page_reuse`). `pte` must be a
    /// leaf with rights.
    fn reused(pte: Pte) -> Pte;

    /// The leaf `pte` without [`LeafFlags::ACCESSED`] (`pte_mkold`).
    fn old(pte: Pte) -> Pte;

    /// Whether two leaves differ at most in what a walker notes: access, and the dirty state.
    fn same_but_touched(one: Pte, other: Pte) -> bool;

    /// The TLB maintenance for replacing `old` by `new` in a table of `level`.
    fn replacement(level: Level, old: Pte, new: Pte) -> Replacement;
}

/// The part of [`Isa::replacement`] that both instruction sets share: what the decoded entries say.
///
/// `moved` is what a live entry needs that leads to another frame afterwards, or becomes global.
#[inline]
pub(crate) fn replaced<I: Isa>(level: Level, (old, new): (Pte, Pte), moved: Replacement) -> Replacement {
    match (I::decode(level, old), I::decode(level, new)) {
        (Entry::Empty | Entry::Soft(_), _) => Replacement::Harmless,
        (Entry::Leaf(leaf), _) if !walkable(leaf.rights) => {
            if old == new {
                Replacement::Harmless
            } else {
                Replacement::FlushIfPending
            }
        }
        (Entry::Leaf(old), Entry::Leaf(new)) => {
            let became_global = !old.flags.contains(LeafFlags::GLOBAL) && new.flags.contains(LeafFlags::GLOBAL);
            if walkable(new.rights) && (old.pfn != new.pfn || became_global) {
                moved
            } else if leaf_weakened(old, new) {
                Replacement::Flush
            } else {
                Replacement::Harmless
            }
        }
        (Entry::Table(old), Entry::Table(new)) if old.pfn == new.pfn => {
            if new.write_protected && !old.write_protected {
                Replacement::Flush
            } else {
                Replacement::Harmless
            }
        }
        (Entry::Table(_), Entry::Table(_)) => moved,
        // The page size changes, so a CPU may use either translation until both have left its TLB
        // (Intel SDM vol. 3A §4.10.4.2). The entries of the table are not known here. Linux's
        // __split_huge_pmd_locked also breaks first.
        (Entry::Leaf(_), Entry::Table(_)) => Replacement::BreakFirst,
        (Entry::Table(_), Entry::Leaf(leaf)) if walkable(leaf.rights) => Replacement::BreakFirst,
        (Entry::Leaf(_), Entry::Empty | Entry::Soft(_))
        | (Entry::Table(_), Entry::Empty | Entry::Soft(_) | Entry::Leaf(_)) => Replacement::Flush,
    }
}

/// Whether a TLB that holds `old` allows an access that `new` forbids, or leads to another frame.
///
/// For two leaves of one level.
fn leaf_weakened(old: Leaf, new: Leaf) -> bool {
    // A TLB that holds a dirty leaf lets stores pass without setting the bit again. So clearing
    // DIRTY of a writable leaf needs a flush. Clearing ACCESSED without one costs only accuracy
    // (Linux's ptep_test_and_clear_young).
    let lost_dirty = old.rights.contains(Rights::WRITE)
        && old.flags.contains(LeafFlags::DIRTY)
        && !new.flags.contains(LeafFlags::DIRTY);
    old.pfn != new.pfn
        || !new.rights.contains(old.rights)
        || lost_dirty
        // Supervisor to user also takes rights away: SMEP, SMAP and PXN keep the kernel from
        // accessing user pages.
        || (old.flags ^ new.flags).intersects(LeafFlags::GLOBAL | LeafFlags::USER)
}

/// Decodes a word that has the mark of a soft entry.
///
/// Not inlined, because descents and edits of runs rarely meet a soft entry.
#[inline(never)]
pub(crate) fn decode_soft(raw: u64) -> Entry {
    SoftEntry::unpack(raw).map_or(Entry::Empty, Entry::Soft)
}

/// Whether hardware can hold a translation of a leaf with these rights.
pub(crate) fn walkable(rights: Rights) -> bool {
    !rights.is_empty()
}
