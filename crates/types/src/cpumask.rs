//! Sets of CPUs.

use crate::CpuId;
use core::fmt;

/// A set of CPUs, up to [`CpuMask::MAX`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct CpuMask([u64; CpuMask::WORDS]);

impl CpuMask {
    /// The largest number of CPUs in a machine.
    pub const MAX: usize = 256;
    /// The number of 64-bit words in a mask.
    pub const WORDS: usize = Self::MAX / 64;
    /// The empty set.
    pub const EMPTY: Self = Self([0; Self::WORDS]);

    /// The mask with these words; bit n of word w is CPU 64·w + n.
    #[inline]
    pub const fn from_words(words: [u64; Self::WORDS]) -> Self {
        Self(words)
    }

    /// The mask's words, as [`Self::from_words`] takes them.
    #[inline]
    pub const fn words(self) -> [u64; Self::WORDS] {
        self.0
    }

    /// The set with one CPU.
    #[inline]
    pub fn of(cpu: CpuId) -> Self {
        let mut mask = Self::EMPTY;
        mask.insert(cpu);
        mask
    }

    /// CPUs 0 to `count` - 1.
    ///
    /// # Panics
    /// If `count` is above [`Self::MAX`].
    pub fn first(count: usize) -> Self {
        assert!(count <= Self::MAX, "{count} CPUs do not fit a mask");
        let mut mask = Self::EMPTY;
        for cpu in 0..count {
            mask.insert(CpuId::new(cpu as u16));
        }
        mask
    }

    /// Adds a CPU.
    #[inline]
    pub fn insert(&mut self, cpu: CpuId) {
        self.0[cpu.index() / 64] |= 1 << (cpu.index() % 64);
    }

    /// Removes a CPU.
    #[inline]
    pub fn remove(&mut self, cpu: CpuId) {
        self.0[cpu.index() / 64] &= !(1 << (cpu.index() % 64));
    }

    /// Whether the CPU is in the set.
    #[inline]
    pub fn contains(&self, cpu: CpuId) -> bool {
        self.0[cpu.index() / 64] >> (cpu.index() % 64) & 1 == 1
    }

    /// Whether the set contains all CPUs of `other`.
    #[inline]
    pub fn contains_all(&self, other: &Self) -> bool {
        self.0.iter().zip(other.0).all(|(word, wanted)| word & wanted == wanted)
    }

    /// Whether the set is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        // A comparison of arrays is a call of `memcmp`. Word by word, because a load of two words
        // waits for the store of one that was changed just before.
        self.0.iter().all(|word| *word == 0)
    }

    /// The number of CPUs in the set.
    #[inline]
    pub fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Adds all CPUs of `other`.
    #[inline]
    pub fn insert_all(&mut self, other: &Self) {
        for (word, more) in self.0.iter_mut().zip(other.0) {
            *word |= more;
        }
    }

    /// The CPUs in both sets.
    #[inline]
    pub fn and(&self, other: &Self) -> Self {
        Self(core::array::from_fn(|word| self.0[word] & other.0[word]))
    }

    /// The CPUs of this set that are not in `other`.
    #[inline]
    pub fn without(&self, other: &Self) -> Self {
        Self(core::array::from_fn(|word| self.0[word] & !other.0[word]))
    }

    /// Removes the CPUs for which `keep` is false.
    #[inline]
    pub fn retain(&mut self, mut keep: impl FnMut(CpuId) -> bool) {
        for (index, word) in self.0.iter_mut().enumerate() {
            let mut rest = *word;
            while rest != 0 {
                if !keep(CpuId::new((index * 64) as u16 + rest.trailing_zeros() as u16)) {
                    *word &= !(rest & rest.wrapping_neg());
                }
                rest &= rest - 1;
            }
        }
    }

    /// The CPUs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = CpuId> {
        self.0.into_iter().enumerate().flat_map(|(index, word)| {
            core::iter::successors((word != 0).then_some(word), |rest| {
                let rest = rest & (rest - 1);
                (rest != 0).then_some(rest)
            })
            .map(move |rest| CpuId::new((index * 64) as u16 + rest.trailing_zeros() as u16))
        })
    }
}

impl FromIterator<CpuId> for CpuMask {
    fn from_iter<I: IntoIterator<Item = CpuId>>(cpus: I) -> Self {
        let mut mask = Self::EMPTY;
        for cpu in cpus {
            mask.insert(cpu);
        }
        mask
    }
}

impl fmt::Debug for CpuMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(CpuId::raw)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iteration_yields_the_inserted_cpus_in_order() {
        let cpus = [0, 1, 63, 64, 130, 255].map(CpuId::new);
        let mask: CpuMask = cpus.into_iter().rev().collect();
        assert!(mask.iter().eq(cpus));
        assert_eq!(mask.count(), 6);
        let mut odd = mask;
        odd.retain(|cpu| cpu.index() % 2 == 1);
        assert!(odd.iter().eq([1, 63, 255].map(CpuId::new)));
        let mut rest = mask;
        for cpu in cpus {
            assert!(rest.contains(cpu));
            rest.remove(cpu);
        }
        assert!(rest.is_empty());
        assert!(CpuMask::first(65).contains_all(&CpuMask::of(CpuId::new(64))));
        assert!(!CpuMask::first(65).contains_all(&CpuMask::first(66)));
        assert_eq!(CpuMask::first(65).count(), 65);
        assert_eq!(mask.and(&CpuMask::first(64)).count(), 3);
        assert!(mask.without(&CpuMask::first(64)).iter().eq(cpus[3..].iter().copied()));
    }
}
