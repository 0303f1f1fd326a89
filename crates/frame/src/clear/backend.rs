//! The stores by which frames are cleared, and the one place that makes them.
//!
//! Key type: [`ClearBackend`]. `store` runs one of them over a block that its caller owns; `fence`
//! orders them.
//!
//! Neighbours: the instructions are in `x86_64` and `aarch64`; `caps` says which of them there are.
//!
//! Not guaranteed: that weakly ordered stores are seen by anybody before `fence`.

use super::caps::ClearCaps;
use core::ptr::NonNull;
use pagewright_types::Counter;

pagewright_types::named_table! {
    /// Stores by which frames are cleared.
    pub enum ClearBackend {
        Machine = "machine", "Whatever the machine does, where it gave no map of its memory.";
        Cached = "cached", "Ordinary stores: `rep stosb`, or what the compiler makes of `memset`.";
        Movnti = "movnti", "Non-temporal stores of a general register, which every x86-64 CPU has.";
        Movdir64b = "movdir64b", "Direct stores of a whole line, without a vector register.";
        Clzero = "clzero", "Whole lines without reading them (AMD).";
        Avx2 = "avx2", "Non-temporal stores of 32 bytes, in hosted builds.";
        Avx512 = "avx512", "Non-temporal stores of a whole line, in hosted builds.";
        DcZva = "dc-zva", "Whole blocks of lines by `DC ZVA`, ordered as ordinary stores (arm64).";
    }
}

impl ClearBackend {
    /// Whether the stores may be seen late, so that a fence must follow.
    pub const fn is_weak(self) -> bool {
        match self {
            Self::Machine | Self::Cached | Self::DcZva => false,
            Self::Movnti | Self::Movdir64b | Self::Clzero | Self::Avx2 | Self::Avx512 => true,
        }
    }

    /// The counter of the pages that were cleared so.
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
/// When `backend` is none of `caps`.
///
/// # Safety
/// The bytes are memory of the ordinary sort, mapped for writing, whole pages, and the caller's
/// alone.
pub(super) unsafe fn store(backend: ClearBackend, caps: &ClearCaps, at: NonNull<u8>, bytes: usize) {
    // INV-CLEAR-CAPS
    assert!(caps.has(backend), "INV-CLEAR-CAPS: this CPU has no {}", backend.name());
    // SAFETY: as the caller's; INV-CLEAR-CAPS was just checked.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        super::x86_64::store(backend, caps, at, bytes);
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        super::aarch64::store(backend, caps, at, bytes);
    }
    // SAFETY: as the caller's.
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    unsafe {
        at.write_bytes(0, bytes);
    }
}

/// Orders the weakly ordered stores of this CPU before all its later ones.
pub(super) fn fence() {
    #[cfg(target_arch = "x86_64")]
    super::x86_64::fence();
}

/// Asks for the line at `at` in the cache.
pub(super) fn prefetch(at: NonNull<u8>) {
    #[cfg(target_arch = "x86_64")]
    super::x86_64::prefetch(at);
    #[cfg(target_arch = "aarch64")]
    super::aarch64::prefetch(at);
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = at;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_has_a_counter_of_its_own() {
        for (index, backend) in ClearBackend::ALL.iter().enumerate() {
            for other in &ClearBackend::ALL[..index] {
                assert_ne!(backend.counter(), other.counter());
            }
        }
    }
}
