//! Clearing on arm64.
//!
//! `DC ZVA` clears a block of lines without reading them, and is ordered as ordinary stores are
//! (Arm ARM C5.3.8, B2.7): the `DSB ISHST` by which an entry is published anyway orders it. It
//! faults on device memory and before the MMU maps memory as Normal, and may be prohibited. `STNP`
//! is a hint only, so there are no weakly ordered stores here.
//!
//! Not guaranteed: that the cache is left alone.

use super::backend::ClearBackend;
use super::caps::ClearCaps;
use core::arch::asm;
use core::ptr::NonNull;

/// Clears with `backend`.
///
/// # Safety
/// As of `backend::store`, and the CPU has the instructions.
pub(super) unsafe fn store(backend: ClearBackend, caps: &ClearCaps, at: NonNull<u8>, bytes: usize) {
    match caps.zva_bytes() {
        // SAFETY: as the caller's; DCZID_EL0 allows it, and the block size divides a page.
        Some(line) if backend == ClearBackend::DcZva => unsafe { dc_zva(at, bytes, line) },
        // SAFETY: as the caller's.
        Some(_) | None => unsafe { at.write_bytes(0, bytes) },
    }
}

unsafe fn dc_zva(at: NonNull<u8>, bytes: usize, line: usize) {
    // SAFETY: the caller owns the bytes: whole pages, so whole blocks and not none, of Normal
    // memory.
    unsafe {
        asm!(
            "2:",
            "dc zva, {at}",
            "add {at}, {at}, {line}",
            "subs {left}, {left}, {line}",
            "b.ne 2b",
            at = inout(reg) at.as_ptr() => _,
            left = inout(reg) bytes => _,
            line = in(reg) line,
            options(nostack),
        );
    }
}

/// What DCZID_EL0 says.
pub(super) fn dczid() -> u64 {
    let dczid: u64;
    // SAFETY: reading it changes nothing and is allowed at EL0 (Arm ARM D24.2.32).
    unsafe { asm!("mrs {}, dczid_el0", out(reg) dczid, options(nomem, nostack, preserves_flags)) }
    dczid
}

/// Into all levels of the cache.
pub(super) fn prefetch(at: NonNull<u8>) {
    // SAFETY: a prefetch of any address changes nothing and faults never.
    unsafe { asm!("prfm pldl1keep, [{}]", in(reg) at.as_ptr(), options(nostack, preserves_flags, readonly)) }
}
