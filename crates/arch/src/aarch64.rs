//! Page-table entries of AArch64 with the 4K granule.
//!
//! Four levels, pages, blocks of 2 MiB and 1 GiB, hierarchical write protection, access flag and
//! dirty state managed by hardware (Arm ARM D8.3, D8.4.3, D8.5.1, D8.16.1).
//!
//! ```text
//!  63   62       61..59  58   57    56    55   54   53   52  51   50..48  47..12  11  10  9..8  7      6      5   4..2  1     0
//!  -    APTab[1] -       SD   EXCL  SPEC  DIRT UXN  PXN  -   DBM  -       frame   nG  AF  SH    AP[2]  AP[1]  -   Attr  table valid
//! ```
//!
//! Writable and dirty share two bits, as FEAT_HAFDBS defines them: a leaf with WRITE has DBM set,
//! and `AP[2]` (read-only) stays set until the walker clears it at the first store. A dirty leaf
//! without WRITE has bit 55 set. In an invalid descriptor the walker ignores every bit but bit 0:
//! bit 59 marks a leaf without rights (`PROT_NONE`), bit 60 a soft entry. Every leaf with a right
//! is readable, so `decode` adds READ (execute-only memory is not used).
//!
//! Neighbours: [`crate::isa`] (the trait), [`crate::entry`] (the values).
//!
//! Not guaranteed: that the CPU has FEAT_HAFDBS. Without it the first access and the first store
//! through a leaf fault, and the fault handler applies [`Isa::touched`].

use crate::entry::{Entry, Leaf, LeafFlags, Pte, TableEntry};
use crate::isa::{Isa, Replacement, decode_soft, replaced, walkable};
use pagewright_types::{IsaKind, Level, PageRange, Pfn, Rights, VirtAddr};

const VALID: u64 = 1;
const TABLE_OR_PAGE: u64 = 1 << 1;
/// MAIR index 0, which every embedder sets to Normal, Inner and Outer Write-Back.
///
/// These codecs do not map device memory.
const ATTR_NORMAL: u64 = 0 << 2;
const USER: u64 = 1 << 6;
const READ_ONLY: u64 = 1 << 7;
const INNER_SHAREABLE: u64 = 0b11 << 8;
const ACCESSED: u64 = 1 << 10;
const NOT_GLOBAL: u64 = 1 << 11;
const DIRTY_MODIFIER: u64 = 1 << 51;
const PRIVILEGED_NO_EXEC: u64 = 1 << 53;
const USER_NO_EXEC: u64 = 1 << 54;
const SOFT_KEPT_DIRTY: u64 = 1 << 55;
const PROT_NONE: u64 = 1 << 59;
const SOFT: u64 = 1 << 60;
const TABLE_READ_ONLY: u64 = 1 << 62;
/// In a table descriptor, whose bits 58–51 hardware ignores (Arm ARM D8.3.1).
const TABLE_ORIGIN: u64 = 1 << 52;
const FRAME: u64 = 0x0000_ffff_ffff_f000;

const ACCESSED_SHIFT: u32 = 10;
const USER_SHIFT: u32 = 4;
/// Flags at bits 56 to 58.
const SOFTWARE_SHIFT: u32 = 52;

const _: () = {
    assert!(LeafFlags::all().to_raw(LeafFlags::ACCESSED, ACCESSED_SHIFT) == ACCESSED);
    assert!(LeafFlags::all().to_raw(LeafFlags::USER, USER_SHIFT) == USER);
    assert!(LeafFlags::all().to_raw(LeafFlags::SOFTWARE, SOFTWARE_SHIFT) == 0b111 << 56);
};

/// The bits of a valid descriptor that a replacement may change and forbid no access.
///
/// Only if the new descriptor is writable and dirty.
const GAINABLE: u64 = READ_ONLY
    | DIRTY_MODIFIER
    | ACCESSED
    | SOFT_KEPT_DIRTY
    | LeafFlags::SOFTWARE.to_raw(LeafFlags::SOFTWARE, SOFTWARE_SHIFT);

/// Armv8-A and later, stage 1, EL1&0, 4K granule.
#[derive(Clone, Copy, Debug)]
pub struct Aarch64;

impl Isa for Aarch64 {
    const KIND: IsaKind = IsaKind::Aarch64;
    const USER_END: VirtAddr = VirtAddr::new(1 << 48);
    /// Blocks, and runs of 16 entries with the contiguous bit (Arm ARM D8.6.1).
    const HUGE_PAGES: &'static [u32] = &[16, 21, 25, 30];

    const LOW_MAPPINGS: Option<PageRange> = None;
    const PREFAULTS_OLD: bool = true;
    const TAG_BITS: u32 = 16;
    const FRAME: u64 = FRAME;
    const KEEPS_FRAME: u64 = VALID | PROT_NONE;
    const SOFT: u64 = SOFT;

    #[inline]
    fn leaf(level: Level, leaf: Leaf) -> Pte {
        debug_assert!(level < Level::PGD, "no leaves at PGD");
        debug_assert!(level.order().is_some_and(|order| leaf.pfn.is_aligned(order)), "misaligned leaf {:?}", leaf.pfn);
        let mut raw = leaf.pfn.base().raw() | ATTR_NORMAL | INNER_SHAREABLE;
        raw |= if walkable(leaf.rights) { VALID } else { PROT_NONE };
        if level == Level::PTE {
            raw |= TABLE_OR_PAGE;
        }
        let dirty = leaf.flags.contains(LeafFlags::DIRTY);
        raw |= match (leaf.rights.contains(Rights::WRITE), dirty) {
            (true, true) => DIRTY_MODIFIER,
            (true, false) => DIRTY_MODIFIER | READ_ONLY,
            (false, true) => READ_ONLY | SOFT_KEPT_DIRTY,
            (false, false) => READ_ONLY,
        };
        // The kernel never executes user pages, and user mode never executes kernel pages.
        let user = leaf.flags.contains(LeafFlags::USER);
        raw |= match (user, leaf.rights.contains(Rights::EXEC)) {
            (true, true) => PRIVILEGED_NO_EXEC,
            (false, true) => USER_NO_EXEC,
            (_, false) => PRIVILEGED_NO_EXEC | USER_NO_EXEC,
        };
        if !leaf.flags.contains(LeafFlags::GLOBAL) {
            raw |= NOT_GLOBAL;
        }
        raw |= leaf.flags.to_raw(LeafFlags::ACCESSED, ACCESSED_SHIFT);
        raw |= leaf.flags.to_raw(LeafFlags::USER, USER_SHIFT);
        raw |= leaf.flags.to_raw(LeafFlags::SOFTWARE, SOFTWARE_SHIFT);
        Pte::from_raw(raw)
    }

    #[inline]
    fn table(table: TableEntry) -> Pte {
        let protect = if table.write_protected { TABLE_READ_ONLY } else { 0 };
        let origin = if table.origin { TABLE_ORIGIN } else { 0 };
        Pte::from_raw(table.pfn.base().raw() | VALID | TABLE_OR_PAGE | protect | origin)
    }

    #[inline]
    fn decode(level: Level, pte: Pte) -> Entry {
        let raw = pte.raw();
        if raw & Self::KEEPS_FRAME == 0 {
            return if raw & SOFT == 0 { Entry::Empty } else { decode_soft(raw) };
        }
        let pfn = Self::frame(pte);
        if raw & VALID != 0 && level > Level::PTE && raw & TABLE_OR_PAGE != 0 {
            let (write_protected, origin) = (raw & TABLE_READ_ONLY != 0, raw & TABLE_ORIGIN != 0);
            return Entry::Table(TableEntry { pfn, write_protected, origin });
        }
        let mut flags = LeafFlags::from_raw(raw, LeafFlags::ACCESSED, ACCESSED_SHIFT)
            | LeafFlags::from_raw(raw, LeafFlags::USER, USER_SHIFT)
            | LeafFlags::from_raw(raw, LeafFlags::SOFTWARE, SOFTWARE_SHIFT);
        flags.set(LeafFlags::GLOBAL, raw & NOT_GLOBAL == 0);
        flags.set(LeafFlags::DIRTY, raw & READ_ONLY == 0 || raw & SOFT_KEPT_DIRTY != 0);
        let mut rights = Rights::empty();
        if raw & VALID != 0 {
            let no_exec = if flags.contains(LeafFlags::USER) { USER_NO_EXEC } else { PRIVILEGED_NO_EXEC };
            rights |= Rights::READ;
            rights.set(Rights::WRITE, raw & (DIRTY_MODIFIER | READ_ONLY) != READ_ONLY);
            rights.set(Rights::EXEC, raw & no_exec == 0);
        }
        Entry::Leaf(Leaf { pfn, rights, flags })
    }

    #[inline]
    fn own_table(pte: Pte) -> Option<Pfn> {
        let is_own = pte.raw() & (VALID | TABLE_OR_PAGE | TABLE_READ_ONLY) == VALID | TABLE_OR_PAGE;
        is_own.then(|| Self::frame(pte))
    }

    #[inline]
    fn touched(pte: Pte, store: bool) -> Pte {
        debug_assert!(!store || pte.raw() & (DIRTY_MODIFIER | READ_ONLY) != READ_ONLY, "store through {pte:?}");
        let raw = pte.raw() | ACCESSED;
        Pte::from_raw(if store { raw & !READ_ONLY } else { raw })
    }

    #[inline]
    fn shared(pte: Pte) -> Pte {
        let raw = pte.raw();
        // A dirty leaf that is not writable keeps that in a bit of software.
        let dirty = if raw & READ_ONLY == 0 { SOFT_KEPT_DIRTY } else { 0 };
        let cleared = DIRTY_MODIFIER | LeafFlags::EXCLUSIVE.to_raw(LeafFlags::SOFTWARE, SOFTWARE_SHIFT);
        Pte::from_raw(raw & !cleared | READ_ONLY | dirty)
    }

    #[inline]
    fn reused(pte: Pte) -> Pte {
        let software = LeafFlags::STORED.to_raw(LeafFlags::SOFTWARE, SOFTWARE_SHIFT);
        Pte::from_raw((pte.raw() | DIRTY_MODIFIER | ACCESSED | software) & !(READ_ONLY | SOFT_KEPT_DIRTY))
    }

    #[inline]
    fn old(pte: Pte) -> Pte {
        Pte::from_raw(pte.raw() & !ACCESSED)
    }

    #[inline]
    fn same_but_touched(one: Pte, other: Pte) -> bool {
        // A store clears the read-only bit of a leaf that may become dirty.
        let differ = one.raw() ^ other.raw();
        let noted = if one.raw() & DIRTY_MODIFIER != 0 { ACCESSED | READ_ONLY } else { ACCESSED };
        differ & !noted == 0
    }

    #[inline]
    fn replacement(level: Level, old: Pte, new: Pte) -> Replacement {
        if new.is_empty() && old.raw() & VALID != 0 {
            return Replacement::Flush;
        }
        let (old_bits, new_bits) = (old.raw(), new.raw());
        let gains = (old_bits ^ new_bits) & !GAINABLE == 0 && new_bits & READ_ONLY == 0;
        if old_bits & VALID != 0 && gains {
            return Replacement::Harmless;
        }
        // The architecture exempts a change of frame if both entries are read-only and the frames
        // have the same contents (a read-only migration). The codec cannot see the contents; a
        // caller that knows them may flush instead.
        replaced::<Self>(level, (old, new), Replacement::BreakFirst)
    }
}
