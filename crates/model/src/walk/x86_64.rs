//! Entries of x86-64 paging with four and with five levels.
//!
//! Source: Intel SDM vol. 3A §4.5, tables 4-14 to 4-20; AMD APM vol. 2 §5.3.
//!
//! Assumed of the CPU: EFER.NXE and CR0.WP set; CR4.PKE and CR4.CET off, and SMAP
//! and SMEP for the accesses of the kernel (SDM vol. 3A §4.6.1).

use super::{DecodedEntry, PathRights, frame};
use pagewright_types::{Level, Pfn, Rights, VirtAddr};

/// Present.
const P: u64 = 1 << 0;
/// Read/write.
const R_W: u64 = 1 << 1;
/// User/supervisor.
const U_S: u64 = 1 << 2;
/// Accessed.
const A: u64 = 1 << 5;
/// Dirty.
const D: u64 = 1 << 6;
/// Page size; PAT in an entry of the last level.
const PS: u64 = 1 << 7;
/// Global.
const G: u64 = 1 << 8;
/// Execute-disable.
const XD: u64 = 1 << 63;
/// Bits 51..12.
const ADDRESS: u64 = (1 << 52) - (1 << 12);

/// Decodes the entry `raw` of a table at `level`, reached with the rights `path`.
pub fn decode(level: Level, raw: u64, path: PathRights) -> DecodedEntry {
    if raw & P == 0 {
        return DecodedEntry::NotPresent;
    }
    let path = PathRights {
        write: path.write && raw & R_W != 0,
        user: path.user && (raw & U_S != 0 || path.kernel),
        exec: path.exec && raw & XD == 0,
        kernel: path.kernel,
    };
    let is_leaf = level == Level::PTE || raw & PS != 0;
    if !is_leaf {
        return frame(raw & ADDRESS).map_or(DecodedEntry::Malformed, |pfn| DecodedEntry::Table { pfn, path });
    }
    // Bit 7 of a PML5E and of a PML4E is reserved, and so are the address bits below the size of a
    // large page, except bit 12, which is PAT.
    let below_block = (level.span() - 1) & ADDRESS & !(1 << 12);
    if level >= Level::PGD || level > Level::PTE && raw & below_block != 0 {
        return DecodedEntry::Malformed;
    }
    let mut rights = Rights::empty();
    if path.user {
        rights |= Rights::READ;
        rights.set(Rights::WRITE, path.write);
        rights.set(Rights::EXEC, path.exec);
    }
    let (accessed, dirty, global) = (raw & A != 0, raw & D != 0, raw & G != 0);
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

/// The address with its upper bits equal to bit 47, or with five levels to bit 56.
///
/// Intel SDM vol. 1 §3.3.7.1, vol. 3A §4.5.1.
pub(super) fn canonical(top: Level, va: u64) -> VirtAddr {
    let above = if top == Level::PML5 { 7 } else { 16 };
    VirtAddr::new(((va << above) as i64 >> above) as u64)
}

pub(super) fn is_canonical(top: Level, va: VirtAddr) -> bool {
    canonical(top, va.raw()) == va
}
