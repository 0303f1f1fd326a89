//! Page-table entries of x86-64.
//!
//! Four levels, leaves of 4 KiB, 2 MiB and 1 GiB, NX, A and D bits (Intel SDM vol. 3A §4.5, AMD APM
//! vol. 2 §5.3).
//!
//! ```text
//!  63   62..58     57   56     55     54..52   51..12      11..9    8  7  6  5  4  3  2   1   0
//!  NX   -          SD   EXCL   SPEC   -        frame       -        G  PS D  A  -  -  U/S R/W P
//! ```
//!
//! The walker ignores bits 52–58; three of them hold the software flags. A leaf without rights
//! (`PROT_NONE`) has P clear and bit 9 set, and keeps frame and flags in place. A soft entry has P
//! and bit 9 clear and bit 10 set. Hardware can read every present leaf, so `decode` adds READ.
//!
//! Neighbours: [`crate::isa`] (the trait), [`crate::entry`] (the values).
//!
//! Not guaranteed: protection from L1 Terminal Fault (CVE-2018-3620), because a `PROT_NONE` leaf
//! keeps its frame number, where Linux inverts it. Nor shadow stacks (CET), which take D set with
//! R/W clear for a shadow-stack page: an embedder leaves CR4.CET clear.

use crate::entry::{Entry, Leaf, LeafFlags, Pte, TableEntry};
use crate::isa::{Isa, Replacement, decode_soft, replaced, walkable};
use pagewright_types::{IsaKind, Level, PageRange, Pfn, Rights, VirtAddr};

const PRESENT: u64 = 1;
const WRITABLE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
const ACCESSED: u64 = 1 << 5;
const DIRTY: u64 = 1 << 6;
const PAGE_SIZE_BIT: u64 = 1 << 7;
const GLOBAL: u64 = 1 << 8;
const PROT_NONE: u64 = 1 << 9;
/// PAT, a bit of a huge leaf's memory type (Intel SDM vol. 3A table 4-18).
///
/// These codecs leave it clear; other kernels may set it.
const PAT_HUGE: u64 = 1 << 12;
const SOFT: u64 = 1 << 10;
/// In a pointer to a table; ignored by hardware (Intel SDM vol. 3A table 4-15).
const TABLE_ORIGIN: u64 = 1 << 52;
const NO_EXEC: u64 = 1 << 63;
const FRAME: u64 = 0x000f_ffff_ffff_f000;

/// Flags at bits 5, 6 and 8.
const HARDWARE: LeafFlags = LeafFlags::ACCESSED.union(LeafFlags::DIRTY).union(LeafFlags::GLOBAL);
const HARDWARE_SHIFT: u32 = 5;
/// Flags at bits 55 to 57.
const SOFTWARE_SHIFT: u32 = 51;

const _: () = {
    assert!(LeafFlags::all().to_raw(HARDWARE, HARDWARE_SHIFT) == ACCESSED | DIRTY | GLOBAL);
    assert!(LeafFlags::all().to_raw(LeafFlags::USER, 0) == USER);
    assert!(LeafFlags::all().to_raw(LeafFlags::SOFTWARE, SOFTWARE_SHIFT) == 0b111 << 55);
};

/// The bits of a present entry that a replacement may change and forbid no access.
///
/// Of `WRITABLE` and `DIRTY`, only if the entry gains them.
const GAINABLE: u64 = WRITABLE | ACCESSED | DIRTY | LeafFlags::SOFTWARE.to_raw(LeafFlags::SOFTWARE, SOFTWARE_SHIFT);

/// Intel 64 and AMD64.
#[derive(Clone, Copy, Debug)]
pub struct X86_64;

impl Isa for X86_64 {
    const KIND: IsaKind = IsaKind::X86_64;
    // Linux leaves the last page of the lower half unmapped because of a SYSRET erratum.
    const USER_END: VirtAddr = VirtAddr::new(0x7fff_ffff_f000);
    // `find_start_end`.
    const HUGE_PAGES: &'static [u32] = &[21, 30];

    const LOW_MAPPINGS: Option<PageRange> = Some(PageRange::new(VirtAddr::new(1 << 30), VirtAddr::new(1 << 31)));
    const PREFAULTS_OLD: bool = false;
    const TAG_BITS: u32 = 12;
    const FRAME: u64 = FRAME;
    const KEEPS_FRAME: u64 = PRESENT | PROT_NONE;
    const SOFT: u64 = SOFT;

    #[inline]
    fn leaf(level: Level, leaf: Leaf) -> Pte {
        debug_assert!(level < Level::PGD, "no leaves at PGD");
        debug_assert!(level.order().is_some_and(|order| leaf.pfn.is_aligned(order)), "misaligned leaf {:?}", leaf.pfn);
        let mut raw = leaf.pfn.base().raw();
        raw |= if walkable(leaf.rights) { PRESENT } else { PROT_NONE };
        if leaf.rights.contains(Rights::WRITE) {
            raw |= WRITABLE;
        }
        if !leaf.rights.contains(Rights::EXEC) {
            raw |= NO_EXEC;
        }
        if level > Level::PTE {
            raw |= PAGE_SIZE_BIT;
        }
        raw |= leaf.flags.to_raw(HARDWARE, HARDWARE_SHIFT);
        raw |= leaf.flags.to_raw(LeafFlags::USER, 0);
        raw |= leaf.flags.to_raw(LeafFlags::SOFTWARE, SOFTWARE_SHIFT);
        Pte::from_raw(raw)
    }

    #[inline]
    fn table(table: TableEntry) -> Pte {
        let writable = if table.write_protected { 0 } else { WRITABLE };
        let origin = if table.origin { TABLE_ORIGIN } else { 0 };
        Pte::from_raw(table.pfn.base().raw() | PRESENT | writable | USER | ACCESSED | origin)
    }

    #[inline]
    fn decode(level: Level, pte: Pte) -> Entry {
        let raw = pte.raw();
        if raw & Self::KEEPS_FRAME == 0 {
            return if raw & SOFT == 0 { Entry::Empty } else { decode_soft(raw) };
        }
        let frame = |bits: u64| Pfn::new(((raw & bits) >> 12) as u32);
        if raw & PRESENT != 0 && level > Level::PTE && raw & PAGE_SIZE_BIT == 0 {
            let (write_protected, origin) = (raw & WRITABLE == 0, raw & TABLE_ORIGIN != 0);
            return Entry::Table(TableEntry { pfn: frame(FRAME), write_protected, origin });
        }
        let pfn = frame(if level == Level::PTE { FRAME } else { FRAME & !PAT_HUGE });
        let mut rights = Rights::empty();
        if raw & PRESENT != 0 {
            rights |= Rights::READ;
            rights.set(Rights::WRITE, raw & WRITABLE != 0);
            rights.set(Rights::EXEC, raw & NO_EXEC == 0);
        }
        let flags = LeafFlags::from_raw(raw, HARDWARE, HARDWARE_SHIFT)
            | LeafFlags::from_raw(raw, LeafFlags::USER, 0)
            | LeafFlags::from_raw(raw, LeafFlags::SOFTWARE, SOFTWARE_SHIFT);
        Entry::Leaf(Leaf { pfn, rights, flags })
    }

    #[inline]
    fn own_table(pte: Pte) -> Option<Pfn> {
        let is_own = pte.raw() & (PRESENT | WRITABLE | PAGE_SIZE_BIT) == PRESENT | WRITABLE;
        is_own.then(|| Self::frame(pte))
    }

    #[inline]
    fn touched(pte: Pte, store: bool) -> Pte {
        debug_assert!(!store || pte.raw() & WRITABLE != 0, "store through {pte:?}");
        Pte::from_raw(pte.raw() | ACCESSED | if store { DIRTY } else { 0 })
    }

    #[inline]
    fn shared(pte: Pte) -> Pte {
        Pte::from_raw(pte.raw() & !(WRITABLE | LeafFlags::EXCLUSIVE.to_raw(LeafFlags::SOFTWARE, SOFTWARE_SHIFT)))
    }

    #[inline]
    fn reused(pte: Pte) -> Pte {
        let software = LeafFlags::STORED.to_raw(LeafFlags::SOFTWARE, SOFTWARE_SHIFT);
        Pte::from_raw(pte.raw() | WRITABLE | ACCESSED | DIRTY | software)
    }

    #[inline]
    fn old(pte: Pte) -> Pte {
        Pte::from_raw(pte.raw() & !ACCESSED)
    }

    #[inline]
    fn same_but_touched(one: Pte, other: Pte) -> bool {
        (one.raw() ^ other.raw()) & !(ACCESSED | DIRTY) == 0
    }

    #[inline]
    fn replacement(level: Level, old: Pte, new: Pte) -> Replacement {
        if new.is_empty() && old.raw() & PRESENT != 0 {
            return Replacement::Flush;
        }
        let (old_bits, new_bits) = (old.raw(), new.raw());
        let gains = (old_bits ^ new_bits) & !GAINABLE == 0 && old_bits & !new_bits & (WRITABLE | DIRTY) == 0;
        if old_bits & PRESENT != 0 && gains {
            return Replacement::Harmless;
        }
        replaced::<Self>(level, (old, new), Replacement::Flush)
    }
}
