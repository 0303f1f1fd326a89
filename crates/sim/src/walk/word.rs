//! Decodes raw table words by the rules of the architecture manuals.
//!
//! It does not use `arch`'s codecs, so that the walker cannot inherit their bugs. A right here is
//! one of user mode, or of the kernel at the addresses that it accesses. The kernel runs without
//! SMAP and PAN, and with CR0.WP.

use pagewright_types::{Granule, IsaKind, Level, Pfn, Rights};

/// The mode of the access for which rights are decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Privilege {
    User,
    Kernel,
}

/// A decoded table word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// The entry is not present.
    Absent,
    /// The word breaks a rule of the architecture, such as a reserved bit.
    Malformed,
    /// The entry points to a table of the level below.
    Table(Next),
    /// The entry is a leaf.
    Leaf(Leaf),
}

/// The table that an entry points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Next {
    /// The table.
    pub(crate) table: Pfn,
    /// The most rights that a leaf below can have.
    pub(crate) allows: Rights,
    /// The word after a walk has used it.
    pub(crate) used: u64,
}

/// A leaf entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leaf {
    /// The first frame.
    pub(crate) pfn: Pfn,
    /// The rights that this word alone allows.
    pub(crate) allows: Rights,
    /// Whether the translation is valid under every tag.
    pub(crate) global: bool,
    /// Whether the dirty bit is set, so that a store need not set it.
    pub(crate) dirty: bool,
    /// The word after a load has used it.
    pub(crate) used: u64,
    /// The word after a store has used it.
    pub(crate) used_by_store: u64,
}

const FRAME_BITS: u64 = 0x0000_ffff_ffff_f000;

/// Decodes `raw`, an entry of a table of `level`.
#[inline]
pub(crate) fn decode(isa: IsaKind, level: Level, raw: u64, privilege: Privilege) -> Word {
    match isa {
        IsaKind::X86_64 => x86_64(level, raw, privilege),
        IsaKind::Aarch64 => aarch64(level, raw, privilege),
    }
}

/// The frame in `raw`, or `None` if it is misaligned for `level` or has reserved address bits.
///
/// Frames are 32-bit numbers in this machine; all higher address bits are reserved.
fn frame(raw: u64, frame_bits: u64, level: Level) -> Option<Pfn> {
    let number = (raw & frame_bits) >> 12;
    let aligned = number & (level.pages() - 1) == 0;
    (number <= u64::from(u32::MAX) && aligned).then(|| Pfn::new(number as u32))
}

/// Decodes an x86-64 entry.
///
/// Intel SDM vol. 3A, tables 4-15 to 4-20; §4.6 for rights, §4.8 for accessed and dirty.
#[inline]
fn x86_64(level: Level, raw: u64, privilege: Privilege) -> Word {
    const P: u64 = 1;
    const RW: u64 = 1 << 1;
    const US: u64 = 1 << 2;
    const A: u64 = 1 << 5;
    const D: u64 = 1 << 6;
    const PS: u64 = 1 << 7;
    const G: u64 = 1 << 8;
    /// Selects a memory type in a large leaf (bit 12), and is not part of the frame.
    const PAT_LARGE: u64 = 1 << 12;
    const XD: u64 = 1 << 63;
    const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

    if raw & P == 0 {
        return Word::Absent;
    }
    let mut allows = Rights::empty();
    if raw & US != 0 || privilege == Privilege::Kernel {
        allows |= Rights::READ;
        allows.set(Rights::WRITE, raw & RW != 0);
        allows.set(Rights::EXEC, raw & XD == 0);
    }
    let is_leaf = level == Level::PTE || raw & PS != 0;
    if !is_leaf {
        return match frame(raw, ADDRESS, Level::PTE) {
            Some(table) => Word::Table(Next { table, allows, used: raw | A }),
            None => Word::Malformed,
        };
    }
    let address = if level == Level::PTE { ADDRESS } else { ADDRESS & !PAT_LARGE };
    match frame(raw, address, level) {
        Some(pfn) if level < Level::PGD => Word::Leaf(Leaf {
            pfn,
            allows,
            global: raw & G != 0,
            dirty: raw & D != 0,
            used: raw | A,
            used_by_store: raw | A | D,
        }),
        Some(_) | None => Word::Malformed,
    }
}

/// Decodes an arm64 entry, with FEAT_HAFDBS on and `TCR_EL1.HPD0` 0.
///
/// Arm ARM (DDI 0487) D8.3.1 for the descriptor formats, D8.4 for rights, D8.4.5 for hierarchical
/// rights, D8.5 for the access flag and the dirty state.
#[inline]
fn aarch64(level: Level, raw: u64, privilege: Privilege) -> Word {
    const VALID: u64 = 1;
    const TABLE_OR_PAGE: u64 = 1 << 1;
    const AP1_USER: u64 = 1 << 6;
    const AP2_READ_ONLY: u64 = 1 << 7;
    const AF: u64 = 1 << 10;
    const NG: u64 = 1 << 11;
    const DBM: u64 = 1 << 51;
    const PXN: u64 = 1 << 53;
    const UXN: u64 = 1 << 54;
    const PXN_TABLE: u64 = 1 << 59;
    const UXN_TABLE: u64 = 1 << 60;
    const AP_TABLE_NO_USER: u64 = 1 << 61;
    const AP_TABLE_READ_ONLY: u64 = 1 << 62;

    let page = raw & TABLE_OR_PAGE != 0;
    // Without 52-bit addresses, a block of 1 GiB has the 4 KiB granule, and those of PMD level have
    // all three; other "blocks" are invalid descriptors (D8.3.1).
    let has_blocks = match level.raw() {
        1 => true,
        2 => level.granule() == Granule::Size4K,
        _ => false,
    };
    if raw & VALID == 0 || (!page && !has_blocks) {
        return Word::Absent;
    }
    // With larger granules the address begins at a higher bit.
    let address = FRAME_BITS & !(level.granule().bytes() - 1);
    if page && !level.is_last() {
        let mut allows = Rights::all();
        let no_exec = match privilege {
            Privilege::User => UXN_TABLE,
            Privilege::Kernel => PXN_TABLE,
        };
        if raw & AP_TABLE_NO_USER != 0 && privilege == Privilege::User {
            allows -= Rights::RW;
        }
        allows.set(Rights::WRITE, allows.contains(Rights::WRITE) && raw & AP_TABLE_READ_ONLY == 0);
        allows.set(Rights::EXEC, raw & no_exec == 0);
        return match frame(raw, address, level.of_same_tree(Level::PTE.raw())) {
            Some(table) => Word::Table(Next { table, allows, used: raw }),
            None => Word::Malformed,
        };
    }
    let writable = raw & AP2_READ_ONLY == 0 || raw & DBM != 0;
    let mut allows = Rights::empty();
    if raw & AP1_USER != 0 || privilege == Privilege::Kernel {
        allows |= Rights::READ;
        allows.set(Rights::WRITE, writable);
    }
    // The kernel cannot execute what user mode can store to (Arm ARM D8.4.1).
    let executable = match privilege {
        Privilege::User => raw & UXN == 0,
        Privilege::Kernel => raw & PXN == 0 && (raw & AP1_USER == 0 || !writable),
    };
    allows.set(Rights::EXEC, executable);
    match frame(raw, address, level) {
        Some(pfn) => Word::Leaf(Leaf {
            pfn,
            allows,
            global: raw & NG == 0,
            dirty: raw & AP2_READ_ONLY == 0,
            used: raw | AF,
            used_by_store: (raw | AF) & !AP2_READ_ONLY,
        }),
        None => Word::Malformed,
    }
}
