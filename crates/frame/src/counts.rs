//! The words that count references and entries.
//!
//! Key types: [`FrameCounts`], references and entries; [`MappedPages`], the pages of a large folio
//! that entries map, and the entries that map it whole.
//!
//! An entry that maps a folio, whole or a page of it, takes one reference and one mapping. Both are
//! in one word of its head, so that one atomic addition takes them together, also for a run of
//! entries. Which pages are mapped is in a second word, so that its two counts are of one moment.
//!
//! The loom tests of `sync` include this file, so that they test these operations under every
//! memory order.
//!
//! Protocol: as in `record`; each half changes by atomic read-modify-write, except in a record that
//! the caller owns.

#[cfg(not(loom))]
use bytemuck::Zeroable;
use pagewright_sync::atomic::{AtomicU64, Ordering, fence};

/// One mapping, as the word counts it.
const MAPPING: u64 = 1 << 32;

/// The references of a folio in the low half, its mappings or those of a page in the high half.
#[cfg_attr(not(loom), derive(Zeroable))]
#[repr(transparent)]
pub(crate) struct FrameCounts(AtomicU64);

impl FrameCounts {
    /// Counts of zero; elsewhere they are zeroed memory.
    #[cfg(loom)]
    pub(crate) fn zero() -> Self {
        Self(AtomicU64::new(0))
    }

    #[inline]
    pub(crate) fn refs(&self) -> u32 {
        self.0.load(Ordering::Acquire) as u32
    }

    /// References and mappings, of one moment.
    #[inline]
    pub(crate) fn both(&self) -> (u32, u32) {
        let both = self.0.load(Ordering::Acquire);
        (both as u32, (both >> 32) as u32)
    }

    #[inline]
    pub(crate) fn mappings(&self) -> u32 {
        (self.0.load(Ordering::Acquire) >> 32) as u32
    }

    /// Sets both counts of a record that the caller owns.
    #[inline]
    pub(crate) fn set(&self, refs: u32, mappings: u32) {
        self.0.store(u64::from(refs) | u64::from(mappings) << 32, Ordering::Release);
    }

    /// Adds references, and returns the number before.
    #[inline]
    pub(crate) fn add_refs(&self, n: u32) -> u32 {
        self.0.fetch_add(u64::from(n), Ordering::AcqRel) as u32
    }

    /// Subtracts references, and returns the number before.
    ///
    /// If none is left, all uses of the folio by their former holders happen before the return.
    #[inline]
    pub(crate) fn sub_refs(&self, n: u32) -> u32 {
        let before = self.0.fetch_sub(u64::from(n), Ordering::Release) as u32;
        if before == n {
            // Pairs with the Release of every other subtraction.
            fence(Ordering::Acquire);
        }
        before
    }

    /// Replaces `expected` references by `refs`, whatever the mapcount.
    ///
    /// # Errors
    /// The number of references found instead; nothing changed.
    #[inline]
    pub(crate) fn exchange_refs(&self, expected: u32, refs: u32) -> Result<(), u32> {
        let mut now = self.0.load(Ordering::Relaxed);
        loop {
            if now as u32 != expected {
                return Err(now as u32);
            }
            let new = now & !u64::from(u32::MAX) | u64::from(refs);
            match self.0.compare_exchange_weak(now, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(other) => now = other,
            }
        }
    }

    /// Gives up a reference and a mapping if there are no others; returns whether it did.
    #[inline]
    pub(crate) fn take_last_entry(&self) -> bool {
        // A failure is common where pages are shared, and the load is cheaper than the exchange.
        self.0.load(Ordering::Relaxed) == MAPPING + 1
            && self.0.compare_exchange(MAPPING + 1, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Adds a reference if there are at least one and fewer than `limit`.
    #[inline]
    pub(crate) fn try_add_ref(&self, limit: u32) -> bool {
        let mut now = self.0.load(Ordering::Relaxed);
        while (1..limit).contains(&(now as u32)) {
            // Acquire: the state of the folio is read after the reference is taken.
            match self.0.compare_exchange_weak(now, now + 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(other) => now = other,
            }
        }
        false
    }

    /// Adds a mapping, and returns the number before.
    #[inline]
    pub(crate) fn add_mapping(&self) -> u32 {
        (self.0.fetch_add(MAPPING, Ordering::AcqRel) >> 32) as u32
    }

    /// Adds `n` references and as many mappings, and returns the numbers before.
    #[inline]
    pub(crate) fn add_refs_and_mappings(&self, n: u32) -> (u32, u32) {
        let before = self.0.fetch_add((MAPPING + 1) * u64::from(n), Ordering::AcqRel);
        (before as u32, (before >> 32) as u32)
    }

    /// Subtracts `n` mappings, and returns the number before.
    #[inline]
    pub(crate) fn sub_mappings(&self, n: u32) -> u32 {
        (self.0.fetch_sub(MAPPING * u64::from(n), Ordering::AcqRel) >> 32) as u32
    }

    /// Changes the mapcount of a record without references, and returns the one before.
    ///
    /// No other CPU changes the word meanwhile.
    #[inline]
    pub(crate) fn change_sole_mappings(&self, change: i32) -> u32 {
        let before = self.mappings();
        self.set_mappings(before.wrapping_add(change as u32));
        before
    }

    /// Sets the mapcount of a record without references.
    ///
    /// No other CPU changes the word meanwhile.
    #[inline]
    pub(crate) fn set_mappings(&self, mappings: u32) {
        self.0.store(u64::from(mappings) << 32, Ordering::Relaxed);
    }
}

/// One entry that maps the whole folio, as the second word counts it.
const WHOLE: u64 = 1 << 32;

/// How the pages of a large folio are mapped.
///
/// The low half of the word counts the pages that have entries of their own, the high half the
/// entries that map the folio whole.
#[derive(Clone, Copy)]
pub(crate) struct MappedPages<'a>(pub(crate) &'a AtomicU64);

impl MappedPages<'_> {
    fn halves(word: u64) -> (u32, u32) {
        (word as u32, (word >> 32) as u32)
    }

    /// The pages with entries of their own, and the entries for the whole.
    #[inline]
    pub(crate) fn both(self) -> (u32, u32) {
        Self::halves(self.0.load(Ordering::Acquire))
    }

    /// Sets both counts of a record that the caller owns.
    #[inline]
    pub(crate) fn set(self, pages: u32, entire: u32) {
        self.0.store(u64::from(pages) | u64::from(entire) << 32, Ordering::Relaxed);
    }

    /// Adds pages that got a first entry of their own, and returns both counts before.
    #[inline]
    pub(crate) fn add_pages(self, n: u32) -> (u32, u32) {
        Self::halves(self.0.fetch_add(u64::from(n), Ordering::AcqRel))
    }

    /// Subtracts pages that lost their last entry, and returns both counts before.
    #[inline]
    pub(crate) fn sub_pages(self, n: u32) -> (u32, u32) {
        Self::halves(self.0.fetch_sub(u64::from(n), Ordering::AcqRel))
    }

    /// Adds an entry for the whole, and returns both counts before.
    #[inline]
    pub(crate) fn add_entire(self) -> (u32, u32) {
        Self::halves(self.0.fetch_add(WHOLE, Ordering::AcqRel))
    }

    /// Subtracts an entry for the whole, and returns both counts before.
    #[inline]
    pub(crate) fn sub_entire(self) -> (u32, u32) {
        Self::halves(self.0.fetch_sub(WHOLE, Ordering::AcqRel))
    }

    /// Subtracts an entry for the whole and adds pages, and returns both counts before.
    #[inline]
    pub(crate) fn split_entire(self, pages: u32) -> (u32, u32) {
        Self::halves(self.0.fetch_sub(WHOLE - u64::from(pages), Ordering::AcqRel))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn neither_half_changes_the_other() {
        let counts = FrameCounts::zeroed();
        counts.set(1, 0);
        assert_eq!(counts.add_refs_and_mappings(1), (1, 0));
        assert_eq!(counts.add_refs(u32::MAX - 2), 2);
        assert_eq!((counts.refs(), counts.mappings()), (u32::MAX, 1));
        assert_eq!(counts.add_mapping(), 1);
        assert_eq!(counts.sub_refs(u32::MAX - 1), u32::MAX);
        assert_eq!((counts.refs(), counts.mappings()), (1, 2));
        assert_eq!(counts.sub_mappings(1), 2);
        assert_eq!(counts.exchange_refs(2, 0), Err(1));
        assert_eq!(counts.exchange_refs(1, 0), Ok(()));
        assert_eq!((counts.refs(), counts.mappings()), (0, 1));
        assert!(!counts.try_add_ref(8), "no reference is taken from zero");
        for (refs, mappings) in [(0, 1), (2, 1), (1, 0), (1, 2)] {
            counts.set(refs, mappings);
            assert!(!counts.take_last_entry(), "{refs} references and {mappings} mappings are not one entry's");
            assert_eq!((counts.refs(), counts.mappings()), (refs, mappings));
        }
        counts.set(1, 1);
        assert!(counts.take_last_entry());
        assert_eq!((counts.refs(), counts.mappings()), (0, 0));
        for mappings in [1, 2, 1 << 20] {
            counts.set(5, mappings);
            assert_eq!(counts.add_refs_and_mappings(1), (5, mappings));
            assert_eq!((counts.refs(), counts.mappings()), (6, mappings + 1));
        }
        assert_eq!(counts.sub_mappings(5), (1 << 20) + 1);
        assert_eq!((counts.refs(), counts.mappings()), (6, (1 << 20) - 4));
        counts.set(8, 3);
        assert!(!counts.try_add_ref(8) && counts.try_add_ref(9));
        assert_eq!((counts.refs(), counts.mappings()), (9, 3));
    }

    #[test]
    fn pages_and_entries_for_the_whole_are_counted_apart() {
        let word = AtomicU64::new(0);
        let mapped = MappedPages(&word);
        assert_eq!(mapped.add_pages(3), (0, 0));
        assert_eq!(mapped.add_entire(), (3, 0));
        assert_eq!(mapped.add_entire(), (3, 1));
        assert_eq!(mapped.sub_pages(3), (3, 2));
        assert_eq!(mapped.split_entire(512), (0, 2));
        assert_eq!(mapped.sub_entire(), (512, 1));
        assert_eq!(mapped.both(), (512, 0));
        mapped.set(1, 2);
        assert_eq!(mapped.both(), (1, 2));
    }
}
