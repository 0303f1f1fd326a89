//! Clearing on x86-64.
//!
//! The contract on addresses, lengths and contents is that of `backend::store`. The loops and the
//! fence are assembly, because the compiler's memory model has no weakly ordered stores: it treats
//! them as stores of another thread until the fence (rust-lang/rust#114582).
//!
//! Not guaranteed: vector stores outside hosted builds. A kernel would have to save the vector
//! registers of the interrupted task.

use super::backend::{ClearBackend, store_words};
use super::caps::ClearCaps;
use core::arch::asm;
use core::ptr::NonNull;

/// Clears with `backend`.
///
/// # Safety
/// The contract of `backend::store`; the CPU has the instructions.
pub(super) unsafe fn store(backend: ClearBackend, caps: &ClearCaps, at: NonNull<u8>, bytes: usize) {
    match backend {
        // SAFETY: the caller's contract.
        ClearBackend::Cached if caps.has_erms() => unsafe { rep_stosb(at, bytes) },
        // SAFETY: the caller's contract.
        ClearBackend::Cached => unsafe { store_words(at, bytes) },
        // SAFETY: the caller's contract; SSE2 is part of x86-64.
        ClearBackend::Movnti => unsafe { movnti(at, bytes) },
        // SAFETY: the caller's contract.
        ClearBackend::Movdir64b => unsafe { movdir64b(at, bytes) },
        // SAFETY: the caller's contract.
        ClearBackend::Clzero => unsafe { clzero(at, bytes) },
        #[cfg(feature = "std")]
        // SAFETY: the caller's contract.
        ClearBackend::Avx2 => unsafe { avx2(at, bytes) },
        #[cfg(feature = "std")]
        // SAFETY: the caller's contract.
        ClearBackend::Avx512 => unsafe { avx512(at, bytes) },
        #[cfg(not(feature = "std"))]
        ClearBackend::Avx2 | ClearBackend::Avx512 => unreachable!("INV-CLEAR-CAPS: hosted builds only"),
        ClearBackend::Machine | ClearBackend::DcZva => unreachable!("INV-CLEAR-CAPS: not on x86-64"),
    }
}

/// Clears with one string instruction for the whole extent.
///
/// Linux's `clear_page_erms` goes page by page before 7.0.
unsafe fn rep_stosb(at: NonNull<u8>, bytes: usize) {
    // SAFETY: the caller owns the bytes; the direction flag is clear on entry to any function.
    unsafe {
        asm!("rep stosb", inout("rdi") at.as_ptr() => _, inout("rcx") bytes => _, in("al") 0u8, options(nostack, preserves_flags));
    }
}

/// Clears lines of 64 bytes in a loop, each by stores to the line at RAX.
///
/// There is at least one line. The flags change.
macro_rules! clear_lines {
    ($at:expr, $bytes:expr, $($store:literal),+ $(; $($operand:tt)+)?) => {
        asm!(
            "2:",
            $($store,)+
            "add rax, 64",
            "sub {left}, 64",
            "jnz 2b",
            inout("rax") $at.as_ptr() => _,
            left = inout(reg) $bytes => _,
            $($($operand)+,)?
            options(nostack),
        )
    };
}

/// Clears each line of 64 bytes with eight stores.
///
/// The loop is that of `clear_page_movnt` in Linux's uncached series and of Xen's
/// `clear_page_sse2`.
///
/// On some CPUs (seen on an Emerald Rapids) the eight stores are not combined for a while after a
/// locked instruction: 0.5 GB/s instead of 24 GB/s, until the loop has run for milliseconds. The
/// lock of the allocator is such an instruction, so MOVNTI is used only if a calibration found it
/// fast.
unsafe fn movnti(at: NonNull<u8>, bytes: usize) {
    // SAFETY: the caller owns the bytes, which are whole pages, so at least one whole line.
    unsafe {
        clear_lines!(
            at,
            bytes,
            "movnti qword ptr [rax], {zero}",
            "movnti qword ptr [rax + 8], {zero}",
            "movnti qword ptr [rax + 16], {zero}",
            "movnti qword ptr [rax + 24], {zero}",
            "movnti qword ptr [rax + 32], {zero}",
            "movnti qword ptr [rax + 40], {zero}",
            "movnti qword ptr [rax + 48], {zero}",
            "movnti qword ptr [rax + 56], {zero}";
            zero = in(reg) 0u64
        );
    }
}

/// The source of MOVDIR64B.
#[repr(align(64))]
struct Line([u64; 8]);
static ZEROES: Line = Line([0; 8]);

/// Clears a line with one store that is neither combined nor split (Intel SDM vol. 2B, MOVDIR64B).
unsafe fn movdir64b(at: NonNull<u8>, bytes: usize) {
    // SAFETY: as for `movnti`; the source is a line of its own.
    unsafe {
        clear_lines!(at, bytes, "movdir64b rax, [{zeroes}]"; zeroes = in(reg) ZEROES.0.as_ptr());
    }
}

/// Clears a line, named by any address in it (AMD APM vol. 3, CLZERO).
unsafe fn clzero(at: NonNull<u8>, bytes: usize) {
    // SAFETY: as for `movnti`; lines have 64 bytes wherever CLZERO exists.
    unsafe {
        // clzero
        clear_lines!(at, bytes, ".byte 0x0f, 0x01, 0xfc");
    }
}

/// Defines a loop of streaming stores, one vector at a time.
#[cfg(feature = "std")]
macro_rules! stream_vectors {
    ($name:ident, $feature:literal, $vector:ident, $zero:ident, $stream:ident) => {
        #[target_feature(enable = $feature)]
        unsafe fn $name(at: NonNull<u8>, bytes: usize) {
            use core::arch::x86_64::{$stream, $vector, $zero};
            let first = at.as_ptr().cast::<$vector>();
            for index in 0..bytes / size_of::<$vector>() {
                // SAFETY: the caller owns the bytes, which are aligned to pages.
                let at = unsafe { first.add(index) };
                // SAFETY: as above.
                unsafe { $stream(at, $zero()) };
            }
        }
    };
}
#[cfg(feature = "std")]
stream_vectors!(avx2, "avx", __m256i, _mm256_setzero_si256, _mm256_stream_si256);
#[cfg(feature = "std")]
stream_vectors!(avx512, "avx512f", __m512i, _mm512_setzero_si512, _mm512_stream_si512);

/// Orders stores of every kind (Intel SDM vol. 2B, SFENCE).
pub(super) fn fence() {
    // SAFETY: it accesses no memory. Without `nomem`, the compiler moves no access across it
    // either.
    unsafe { asm!("sfence", options(nostack, preserves_flags)) }
}

/// Prefetches a line into all levels of the cache.
pub(super) fn prefetch(at: NonNull<u8>) {
    // SAFETY: a prefetch of any address changes nothing and never faults.
    unsafe { asm!("prefetcht0 [{}]", in(reg) at.as_ptr(), options(nostack, preserves_flags, readonly)) }
}
