//! Clearing on arm64.
//!
//! `DC ZVA` clears a block of lines without reading them, and is ordered as ordinary stores are
//! (Arm ARM C5.3.8, B2.7). The `DSB ISHST` that publishes an entry therefore orders it. `DC ZVA`
//! faults on Device memory and while the MMU does not map memory as Normal, and may be prohibited.
//! `STNP` is only a hint, so arm64 has no weakly ordered stores here.
//!
//! Not guaranteed: that the lines stay out of the cache.

use super::backend::{ClearBackend, store_words};
use super::caps::ClearCaps;
use core::arch::asm;
use core::ptr::NonNull;

/// Clears with `backend`.
///
/// # Safety
/// The contract of `backend::store`; the CPU has the instructions.
pub(super) unsafe fn store(backend: ClearBackend, caps: &ClearCaps, at: NonNull<u8>, bytes: usize) {
    match caps.zva_bytes() {
        // SAFETY: the caller's contract; DCZID_EL0 allows it, and the block size divides a page.
        Some(line) if backend == ClearBackend::DcZva => unsafe { dc_zva(at, bytes, line) },
        // SAFETY: the caller's contract.
        Some(_) | None => unsafe { store_words(at, bytes) },
    }
}

unsafe fn dc_zva(at: NonNull<u8>, bytes: usize, line: usize) {
    // SAFETY: the caller owns the bytes, which are whole pages of Normal memory, so at least one
    // whole block.
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

/// The value of DCZID_EL0.
pub(super) fn dczid() -> u64 {
    let dczid: u64;
    // SAFETY: the read changes nothing and is allowed at EL0 (Arm ARM D24.2.32).
    unsafe { asm!("mrs {}, dczid_el0", out(reg) dczid, options(nomem, nostack, preserves_flags)) }
    dczid
}

/// Prefetches a line into all levels of the cache.
pub(super) fn prefetch(at: NonNull<u8>) {
    // SAFETY: a prefetch of any address changes nothing and never faults.
    unsafe { asm!("prfm pldl1keep, [{}]", in(reg) at.as_ptr(), options(nostack, preserves_flags, readonly)) }
}
