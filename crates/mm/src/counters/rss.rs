//! The resident set of one space, by kind of page, and its peak (Linux's `mm->rss_stat`,
//! `hiwater_rss`).

use core::sync::atomic::{AtomicU64, Ordering};
use pagewright_types::PAGE_SIZE;

/// Kinds of resident page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RssKind {
    /// Of a file (`MM_FILEPAGES`).
    File,
    /// Anonymous (`MM_ANONPAGES`).
    Anon,
    /// Of shared memory (`MM_SHMEMPAGES`).
    Shmem,
}

impl RssKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::File, Self::Anon, Self::Shmem];
}

/// Counts of resident pages.
///
/// The zero page is not resident.
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

    /// Takes pages away; call [`Rss::note_peak`] before a run of these.
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

    /// Entries of pages in swap, which are not resident (`MM_SWAPENTS`, `VmSwap`).
    pub fn swapped(&self) -> u64 {
        self.swapped.load(Ordering::Relaxed)
    }

    /// Remembers the present size if it is the largest so far.
    ///
    /// The size falls only after this was called, so the peak is exact without a write for every
    /// page (`update_hiwater_rss`).
    pub(crate) fn note_peak(&self) {
        self.peak.fetch_max(self.pages(), Ordering::Relaxed);
    }

    /// Forgets the peak: the present size is the largest so far (`reset_mm_hiwater_rss`).
    pub(crate) fn reset_peak(&self) {
        self.peak.store(self.pages(), Ordering::Relaxed);
    }

    /// Pages of one kind.
    pub fn of(&self, kind: RssKind) -> u64 {
        self.pages[kind as usize].load(Ordering::Relaxed)
    }

    /// Pages of all kinds.
    pub fn pages(&self) -> u64 {
        self.pages.iter().map(|pages| pages.load(Ordering::Relaxed)).sum()
    }

    /// Bytes of all kinds (`VmRSS`).
    pub fn bytes(&self) -> u64 {
        self.pages() * PAGE_SIZE
    }

    /// The most bytes that there ever were (`VmHWM`).
    pub fn peak_bytes(&self) -> u64 {
        self.peak.load(Ordering::Relaxed).max(self.pages()) * PAGE_SIZE
    }
}
