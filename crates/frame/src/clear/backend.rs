//! The stores that clear frames, and the one function that issues them.
//!
//! Key type: [`ClearBackend`]. `store` runs one of them over a block that the caller owns; `fence`
//! orders them.
//!
//! Neighbours: `x86_64` and `aarch64` contain the instructions; `caps` detects them.
//!
//! Not guaranteed: that weakly ordered stores are visible to another CPU before `fence`.

use super::caps::ClearCaps;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};
use pagewright_types::Counter;

pagewright_types::named_table! {
    /// The stores that clear frames.
    pub enum ClearBackend {
        Machine = "machine", "The machine's own clearing, used if it has no linear map.";
        Cached = "cached", "Ordinary stores: `rep stosb`, or one store for each word.";
        Movnti = "movnti", "Non-temporal stores of a general register, which every x86-64 CPU has.";
        Movdir64b = "movdir64b", "Direct stores of a whole line, without a vector register.";
        Clzero = "clzero", "Stores of whole lines that are not read first (AMD).";
        Avx2 = "avx2", "Non-temporal stores of 32 bytes, in hosted builds.";
        Avx512 = "avx512", "Non-temporal stores of a whole line, in hosted builds.";
        DcZva = "dc-zva", "`DC ZVA` on whole blocks of lines, ordered as ordinary stores (arm64).";
    }
}

impl ClearBackend {
    /// Whether the stores are weakly ordered, so that a fence must follow.
    pub const fn is_weak(self) -> bool {
        match self {
            Self::Machine | Self::Cached | Self::DcZva => false,
            Self::Movnti | Self::Movdir64b | Self::Clzero | Self::Avx2 | Self::Avx512 => true,
        }
    }

    /// The counter of the pages cleared by these stores.
    pub const fn counter(self) -> Counter {
        match self {
            Self::Machine => Counter::PwClearMachine,
            Self::Cached => Counter::PwClearCached,
            Self::Movnti => Counter::PwClearMovnti,
            Self::Movdir64b => Counter::PwClearMovdir64b,
            Self::Clzero => Counter::PwClearClzero,
            Self::Avx2 => Counter::PwClearAvx2,
            Self::Avx512 => Counter::PwClearAvx512,
            Self::DcZva => Counter::PwClearDcZva,
        }
    }
}

/// Clears `bytes` bytes at `at`.
///
/// # Panics
/// When the CPU does not have the stores.
///
/// # Safety
/// The bytes are whole pages of Normal or write-back memory, mapped for writing, and belong to the
/// caller alone.
pub(super) unsafe fn store(backend: ClearBackend, caps: &ClearCaps, at: NonNull<u8>, bytes: usize) {
    // INV-CLEAR-CAPS
    assert!(caps.has(backend), "INV-CLEAR-CAPS: this CPU has no {}", backend.name());
    // SAFETY: the caller's contract; INV-CLEAR-CAPS was just checked.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    unsafe {
        super::x86_64::store(backend, caps, at, bytes);
    }
    // SAFETY: as above.
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    unsafe {
        super::aarch64::store(backend, caps, at, bytes);
    }
    // SAFETY: the caller's contract.
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    unsafe {
        store_words(at, bytes);
    }
}

/// Clears by one atomic store for each word.
///
/// The machine loads the words of its frames atomically, and may do so while the owner of a frame
/// clears it. Plain stores would race with that. The compiler does not see those of assembly.
///
/// # Safety
/// The contract of [`store`].
pub(super) unsafe fn store_words(at: NonNull<u8>, bytes: usize) {
    let words = core::ptr::slice_from_raw_parts(at.as_ptr().cast::<AtomicU64>(), bytes / size_of::<AtomicU64>());
    // SAFETY: INV-LINEAR-MAP – whole pages that are mapped, and accessed as atomic words only.
    for word in unsafe { &*words } {
        word.store(0, Ordering::Relaxed);
    }
}

/// Orders the weakly ordered stores of this CPU before all its later stores.
pub(super) fn fence() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    super::x86_64::fence();
}

/// Prefetches the line at `at`.
pub(super) fn prefetch(at: NonNull<u8>) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    super::x86_64::prefetch(at);
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    super::aarch64::prefetch(at);
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = at;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a CPU without a faster way does.
    #[test]
    #[allow(unsafe_code)]
    fn words_are_cleared_up_to_the_last_and_no_further() {
        const WORDS: usize = 40;
        let memory: [AtomicU64; WORDS] = core::array::from_fn(|_| AtomicU64::new(u64::MAX));
        let bytes = (WORDS - 2) * size_of::<AtomicU64>();
        // SAFETY: these words are inside the array, and accessed as atomic words only.
        unsafe { store_words(NonNull::from(&memory[1]).cast(), bytes) };
        for (index, word) in memory.iter().enumerate() {
            let outside = index == 0 || index == WORDS - 1;
            assert_eq!(word.load(Ordering::Relaxed), if outside { u64::MAX } else { 0 }, "word {index}");
        }
    }

    #[test]
    fn each_backend_has_its_own_counter() {
        for (index, backend) in ClearBackend::ALL.iter().enumerate() {
            for other in &ClearBackend::ALL[..index] {
                assert_ne!(backend.counter(), other.counter());
            }
        }
    }
}
