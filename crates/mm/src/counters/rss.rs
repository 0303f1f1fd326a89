//! The resident set of one space, by kind of page, and its peak (`mm->rss_stat`, `hiwater_rss`).

use core::sync::atomic::{AtomicU64, Ordering};
use pagewright_types::PAGE_SIZE;

/// The kind of a resident page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RssKind {
    /// A page of a file (`MM_FILEPAGES`).
    File,
    /// An anonymous page (`MM_ANONPAGES`).
    Anon,
    /// A page of shared memory (`MM_SHMEMPAGES`).
    Shmem,
}

impl RssKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::File, Self::Anon, Self::Shmem];
}

/// The counts of resident pages of one space; the zero page does not count.
#[derive(Default)]
pub struct Rss {
    pages: [AtomicU64; RssKind::ALL.len()],
    peak: AtomicU64,
    swapped: AtomicU64,
}

impl Rss {
    pub(crate) fn add(&self, kind: RssKind, pages: u64) {
        self.pages[kind as usize].fetch_add(pages, Ordering::Relaxed);
    }

    /// Subtracts pages; the caller calls [`Rss::note_peak`] before the first of several calls.
    pub(crate) fn sub(&self, kind: RssKind, pages: u64) {
        let before = self.pages[kind as usize].fetch_sub(pages, Ordering::Relaxed);
        debug_assert!(before >= pages, "INV-MM-RSS: {kind:?} fell below zero");
    }

    pub(crate) fn add_swapped(&self, entries: u64) {
        self.swapped.fetch_add(entries, Ordering::Relaxed);
    }

    pub(crate) fn sub_swapped(&self, entries: u64) {
        let before = self.swapped.fetch_sub(entries, Ordering::Relaxed);
        debug_assert!(before >= entries, "INV-MM-RSS: pages in swap fell below zero");
    }

    /// Returns the number of swap entries (`MM_SWAPENTS`, `VmSwap`).
    pub fn swapped(&self) -> u64 {
        self.swapped.load(Ordering::Relaxed)
    }

    /// Updates the peak with the present size (`update_hiwater_rss`).
    ///
    /// It is called before the size falls, so the peak is exact without a write for each page.
    pub(crate) fn note_peak(&self) {
        self.peak.fetch_max(self.pages(), Ordering::Relaxed);
    }

    /// Resets the peak to the present size (`reset_mm_hiwater_rss`).
    pub(crate) fn reset_peak(&self) {
        self.peak.store(self.pages(), Ordering::Relaxed);
    }

    /// Returns the resident pages of one kind.
    pub fn of(&self, kind: RssKind) -> u64 {
        self.pages[kind as usize].load(Ordering::Relaxed)
    }

    /// Returns the resident pages of all kinds.
    pub fn pages(&self) -> u64 {
        self.pages.iter().map(|pages| pages.load(Ordering::Relaxed)).sum()
    }

    /// Returns the resident bytes of all kinds (`VmRSS`).
    pub fn bytes(&self) -> u64 {
        self.pages() * PAGE_SIZE
    }

    /// Returns the peak in bytes (`VmHWM`).
    pub fn peak_bytes(&self) -> u64 {
        self.peak.load(Ordering::Relaxed).max(self.pages()) * PAGE_SIZE
    }
}
