//! A set of CPUs that several CPUs change at once (Linux's `mm_cpumask`).

use crate::atomic::{AtomicU64, Ordering};
use pagewright_types::{CpuId, CpuMask};

/// A [`CpuMask`] of atomic words.
///
/// Every operation but [`store`](Self::store) is sequentially consistent: the protocols that use it
/// order a bit against a generation on another word (hazard: a CPU that joins between the bump and
/// the read of the mask).
#[derive(Default)]
pub struct AtomicCpuMask([AtomicU64; CpuMask::WORDS]);

impl AtomicCpuMask {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a CPU; a full barrier.
    ///
    /// Returns whether it was in the set.
    #[inline]
    pub fn insert(&self, cpu: CpuId) -> bool {
        let bit = 1 << (cpu.index() % 64);
        self.0[cpu.index() / 64].fetch_or(bit, Ordering::SeqCst) & bit != 0
    }

    /// Takes a CPU out; a full barrier.
    ///
    /// Returns whether it was in the set.
    #[inline]
    pub fn remove(&self, cpu: CpuId) -> bool {
        let bit = 1 << (cpu.index() % 64);
        self.0[cpu.index() / 64].fetch_and(!bit, Ordering::SeqCst) & bit != 0
    }

    /// Whether a CPU is in the set.
    #[inline]
    pub fn contains(&self, cpu: CpuId) -> bool {
        self.0[cpu.index() / 64].load(Ordering::SeqCst) >> (cpu.index() % 64) & 1 != 0
    }

    /// The set word by word; a CPU that joins or leaves meanwhile may or may not be seen.
    #[inline]
    pub fn load(&self) -> CpuMask {
        CpuMask::from_words(core::array::from_fn(|word| self.0[word].load(Ordering::SeqCst)))
    }

    /// As [`load`](Self::load), by read-modify-writes: who has changed a word before is seen, with
    /// all that he stored before that, and who changes it afterwards sees all that the caller has
    /// stored before.
    pub fn latest(&self) -> CpuMask {
        CpuMask::from_words(core::array::from_fn(|word| self.0[word].fetch_or(0, Ordering::SeqCst)))
    }

    /// Makes the set `mask`, word by word, and what was stored before visible to who sees one of
    /// its CPUs (Release). For a set to which nobody else adds.
    #[inline]
    pub fn store(&self, mask: &CpuMask) {
        for (word, bits) in self.0.iter().zip(mask.words()) {
            word.store(bits, Ordering::Release);
        }
    }

    /// Empties the set and returns what was in it.
    #[inline]
    pub fn take(&self) -> CpuMask {
        CpuMask::from_words(core::array::from_fn(|word| match self.0[word].load(Ordering::SeqCst) {
            0 => 0,
            _ => self.0[word].swap(0, Ordering::SeqCst),
        }))
    }

    /// Adds every CPU of `mask`.
    #[inline]
    pub fn insert_all(&self, mask: &CpuMask) {
        for (word, bits) in self.0.iter().zip(mask.words()) {
            if bits != 0 {
                word.fetch_or(bits, Ordering::SeqCst);
            }
        }
    }
}
