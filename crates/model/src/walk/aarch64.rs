//! Descriptors of AArch64 stage 1.
//!
//! Source: Arm ARM DDI 0487, D8.3.1 (descriptors), D8.4.1 to D8.4.3 (permissions), D8.5 (hardware
//! updates of the access flag and dirty state).
//!
//! The manual counts levels from the root: its level 3 is [`Level::PTE`], its level 0
//! [`Level::PGD`]. Assumed of the CPU: TCR_EL1.HA and HD set, HPD0 clear (hierarchical permissions
//! in force), SCTLR_EL1.WXN clear, no FEAT_LPA2, no FEAT_S1PIE, and PSTATE.PAN
//! clear for the accesses of the kernel.

use super::{DecodedEntry, PathRights, frame};
use pagewright_types::{Granule, Level, Pfn, Rights};

/// Descriptor valid.
const VALID: u64 = 1 << 0;
/// Set in a table descriptor and in a page descriptor, clear in a block descriptor.
const TABLE_OR_PAGE: u64 = 1 << 1;
/// AP\[1\]: EL0 may read, and write unless AP\[2\].
const AP1: u64 = 1 << 6;
/// AP\[2\]: read-only.
const AP2: u64 = 1 << 7;
/// Access flag.
const AF: u64 = 1 << 10;
/// Not global.
const NG: u64 = 1 << 11;
/// Dirty bit modifier: hardware may clear AP\[2\] at a store.
const DBM: u64 = 1 << 51;
/// EL1 may not execute.
const PXN: u64 = 1 << 53;
/// EL0 may not execute.
const UXN: u64 = 1 << 54;
/// In a table descriptor: EL1 may not execute anything below.
const PXN_TABLE: u64 = 1 << 59;
/// In a table descriptor: EL0 may not execute anything below.
const UXN_TABLE: u64 = 1 << 60;
/// In a table descriptor: AP\[1\] below counts as clear.
const AP_TABLE0: u64 = 1 << 61;
/// In a table descriptor: AP\[2\] below counts as set, and hardware cannot clear it.
const AP_TABLE1: u64 = 1 << 62;
/// Bits 47..12; with larger granules the lowest are none of the address.
const ADDRESS: u64 = (1 << 48) - (1 << 12);

/// Decodes the entry `raw` of a table at `level`, reached with the rights `path`.
pub fn decode(level: Level, raw: u64, path: PathRights) -> DecodedEntry {
    if raw & VALID == 0 {
        return DecodedEntry::NotPresent;
    }
    let second = raw & TABLE_OR_PAGE != 0;
    // The address field begins at the size of the granule (D8.3.1).
    let table = ADDRESS & !(level.granule().bytes() - 1);
    if !level.is_last() && second {
        let path = PathRights {
            write: path.write && raw & AP_TABLE1 == 0,
            user: path.user && (raw & AP_TABLE0 == 0 || path.kernel),
            exec: path.exec && raw & if path.kernel { PXN_TABLE } else { UXN_TABLE } == 0,
            kernel: path.kernel,
        };
        return frame(raw & table).map_or(DecodedEntry::Malformed, |pfn| DecodedEntry::Table { pfn, path });
    }
    // 0b01 is reserved at level 3 of the manual, and without FEAT_LPA2 and FEAT_LPA at level 0, and
    // with 16K and 64K at level 1. Hardware treats it as invalid.
    let largest_block = match level.granule() {
        Granule::Size4K => Level::PUD.raw(),
        Granule::Size16K | Granule::Size64K => Level::PMD.raw(),
    };
    if level.raw() > largest_block || level.is_last() && !second {
        return DecodedEntry::Malformed;
    }
    let data = path.user && raw & AP1 != 0 || path.kernel;
    let writable = path.write && (raw & AP2 == 0 || raw & DBM != 0);
    let mut rights = Rights::empty();
    rights.set(Rights::READ, data);
    rights.set(Rights::WRITE, data && writable);
    // D8.4.1: what EL0 may store to, EL1 may not execute.
    let no_exec = match path.kernel {
        true => raw & PXN != 0 || raw & AP1 != 0 && (raw & AP2 == 0 || raw & DBM != 0),
        false => raw & UXN != 0,
    };
    rights.set(Rights::EXEC, path.exec && !no_exec);
    let (accessed, dirty, global) = (raw & AF != 0, raw & AP2 == 0, raw & NG == 0);
    frame_field(level, raw).map_or(DecodedEntry::Malformed, |pfn| DecodedEntry::Leaf {
        pfn,
        rights,
        accessed,
        dirty,
        global,
    })
}

/// The frame in the address field of a leaf at `level`, whatever its other bits are.
pub fn frame_field(level: Level, raw: u64) -> Option<Pfn> {
    frame(raw & ADDRESS & !(level.span() - 1))
}
