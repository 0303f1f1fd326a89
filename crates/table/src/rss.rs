//! The resident set of one space, by kind of page, and its peak (`mm->rss_stat`, `hiwater_rss`).

use core::sync::atomic::{AtomicU64, Ordering};
use pagewright_tlb::frames::{EntryCounts, RssKind, SWAP_ENTRIES};
use pagewright_types::PAGE_SIZE;

/// The counts of pages of one space; the zero page does not count.
///
/// Only the entry layer changes them, once for each run of edits under a table's lock.
#[derive(Default)]
pub struct Rss {
    pages: EntryCounts<AtomicU64>,
    peak: AtomicU64,
}

impl Rss {
    /// Changes the number of entries of each kind, of `pages` pages each.
    ///
    /// If a number falls, notes the peak first (`update_hiwater_rss`), so that the peak is exact
    /// without a store for each page.
    #[inline]
    pub(crate) fn adjust(&self, change: EntryCounts<i32>, pages: i64) {
        if change[..SWAP_ENTRIES].iter().any(|entries| *entries < 0) {
            self.note_peak();
        }
        for (kind, entries) in change.into_iter().enumerate() {
            if entries != 0 {
                let more = i64::from(entries) * pages;
                let before = self.pages[kind].fetch_add(more as u64, Ordering::Relaxed);
                debug_assert!(before as i64 + more >= 0, "INV-MM-RSS: the pages of kind {kind} fell below zero");
            }
        }
    }

    fn note_peak(&self) {
        let pages = self.pages();
        // Most falls are below the peak, and a load costs less than an atomic maximum.
        if pages > self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(pages, Ordering::Relaxed);
        }
    }

    /// Resets the peak to the present size (`reset_mm_hiwater_rss`).
    pub fn reset_peak(&self) {
        self.peak.store(self.pages(), Ordering::Relaxed);
    }

    /// The number of pages of one kind.
    pub fn of(&self, kind: RssKind) -> u64 {
        self.pages[kind as usize].load(Ordering::Relaxed)
    }

    /// The number of swap entries (`MM_SWAPENTS`, `VmSwap`).
    pub fn swapped(&self) -> u64 {
        self.pages[SWAP_ENTRIES].load(Ordering::Relaxed)
    }

    /// The resident pages of all kinds.
    pub fn pages(&self) -> u64 {
        RssKind::ALL.iter().map(|kind| self.of(*kind)).sum()
    }

    /// The resident bytes of all kinds (`VmRSS`).
    pub fn bytes(&self) -> u64 {
        self.pages() * PAGE_SIZE
    }

    /// The peak in bytes (`VmHWM`).
    pub fn peak_bytes(&self) -> u64 {
        self.peak.load(Ordering::Relaxed).max(self.pages()) * PAGE_SIZE
    }
}
