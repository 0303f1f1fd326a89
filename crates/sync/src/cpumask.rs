//! A set of CPUs that CPUs modify concurrently (Linux's `mm_cpumask`).

use crate::atomic::{AtomicU64, Ordering};
use pagewright_types::{CpuId, CpuMask};

/// A [`CpuMask`] of atomic words.
///
/// Every operation except [`store`](Self::store) is sequentially consistent, because protocols
/// order a bit of the set against a generation in another word: a sender increments the generation
/// and then reads the set, while a CPU joins the set and then reads the generation.
#[derive(Default)]
pub struct AtomicCpuMask([AtomicU64; CpuMask::WORDS]);

impl AtomicCpuMask {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a CPU, and returns whether it was in the set; a full barrier.
    #[inline]
    pub fn insert(&self, cpu: CpuId) -> bool {
        let bit = 1 << (cpu.index() % 64);
        self.0[cpu.index() / 64].fetch_or(bit, Ordering::SeqCst) & bit != 0
    }

    /// Removes a CPU, and returns whether it was in the set; a full barrier.
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

    /// Reads the set word by word; concurrent changes may or may not be included.
    #[inline]
    pub fn load(&self) -> CpuMask {
        CpuMask::from_words(core::array::from_fn(|word| self.0[word].load(Ordering::SeqCst)))
    }

    /// Reads the set word by word, by read-modify-write operations.
    ///
    /// Each word is ordered against every other change of it. The caller sees earlier changes and
    /// the stores that precede them; a CPU that changes the word later sees the caller's stores.
    pub fn load_by_rmw(&self) -> CpuMask {
        CpuMask::from_words(core::array::from_fn(|word| self.0[word].fetch_or(0, Ordering::SeqCst)))
    }

    /// Overwrites the set with `mask`, word by word, with release ordering.
    ///
    /// A CPU that sees one of the bits also sees the stores that precede this call. Only for a set
    /// to which no other CPU adds.
    #[inline]
    pub fn store(&self, mask: &CpuMask) {
        for (word, bits) in self.0.iter().zip(mask.words()) {
            word.store(bits, Ordering::Release);
        }
    }

    /// Empties the set and returns its CPUs.
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
