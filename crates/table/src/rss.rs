//! The resident set of one space, by kind of page, and its peak (`mm->rss_stat`, `hiwater_rss`).
//!
//! As in Linux's `percpu_counter`, each CPU counts its own changes, and adds them to the total of
//! the space when they reach [`BATCH`]. So CPUs that fault in one space share no cache line for its
//! resident set. A read adds up the total and what the CPUs have not added yet.
//!
//! **INV-MM-RSS** The resident pages of a space, of each kind, are the leaves in its tables whose
//! folio is of that kind. That is exact at rest.
//!
//! **INV-MM-PEAK** `VmHWM` is at least every `VmRSS` that a reader has seen, but for the pages that
//! CPUs have not added to the total yet (at most 31 each), also if pages are mapped while others
//! are unmapped, or other spaces edit a shared part.
//!
//! Of the edits for all sharers of its tables, the peak misses those that came and went between two
//! reads of the resident set.
//!
//! Not guaranteed: a consistent view while CPUs edit the space.

use crate::share::SharedSum;
use core::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use pagewright_plant::plant;
use pagewright_sync::{AllocError, Backend, LineUse, PerCpu};
use pagewright_tlb::frames::{EntryCounts, RssKind, SWAP_ENTRIES};
use pagewright_types::{CpuId, PAGE_SIZE};

/// The change at which a CPU adds it to the total, in pages (`percpu_counter_batch`).
const BATCH: u64 = 32;

/// The counts of pages of one space; the zero page does not count.
///
/// Only the entry layer changes them, once for each run of edits under a table's lock.
pub struct Rss {
    total: EntryCounts<AtomicI64>,
    /// What each CPU has not added to the total; only that CPU changes it.
    parts: PerCpu<EntryCounts<AtomicI64>>,
    /// What edits for all sharers of its tables have changed.
    pub(crate) shared: SharedSum,
    peak: AtomicU64,
}

impl Rss {
    /// Counts for a machine of `cpus` CPUs, all zero.
    ///
    /// # Errors
    /// [`AllocError`], if the kernel heap is exhausted.
    pub(crate) fn try_new(cpus: usize) -> Result<Self, AllocError> {
        let zero = || core::array::from_fn(|_| AtomicI64::new(0));
        Ok(Self {
            total: zero(),
            parts: PerCpu::try_new(cpus, |_| zero())?,
            shared: SharedSum::new(),
            peak: AtomicU64::new(0),
        })
    }

    /// Changes the number of entries of each kind, of `pages` pages each, on `cpu`, the caller's.
    ///
    /// If a number falls, notes the peak first (`update_hiwater_rss`), so that no store for each
    /// page is needed. The caller holds a lock, so that no other task runs on the CPU meanwhile.
    /// `report` is called before each use of the line of the totals.
    #[inline]
    pub(crate) fn adjust<L: Backend>(
        &self,
        cpu: CpuId,
        change: EntryCounts<i32>,
        pages: i64,
        report: impl Fn(LineUse),
    ) {
        let parts = self.parts.get(cpu);
        if change[..SWAP_ENTRIES].iter().any(|entries| *entries < 0) {
            report(LineUse::Load);
            self.note_peak(self.seen_by(parts));
            // Another CPU may add pages here.
            L::point();
        }
        for (kind, entries) in change.into_iter().enumerate() {
            if entries != 0 {
                let old = parts[kind].load(Ordering::Relaxed);
                let part = old + i64::from(entries) * pages;
                let full = part.unsigned_abs() >= BATCH;
                parts[kind].store(if full { 0 } else { part }, Ordering::Relaxed);
                if full {
                    report(LineUse::Store);
                    let before = self.total[kind].fetch_add(part, Ordering::Relaxed);
                    // What other CPUs added since the peak was noted counts, too.
                    if plant!(PeakReadEarly; false, part < 0 && kind != SWAP_ENTRIES) {
                        let now = self.total[kind].load(Ordering::Relaxed);
                        self.note_peak(self.seen_by(parts) - now + before + old);
                    }
                }
            }
        }
    }

    /// The resident pages without what other CPUs have not added yet.
    fn seen_by(&self, parts: &EntryCounts<AtomicI64>) -> i64 {
        let counts = self.total.iter().zip(parts).take(SWAP_ENTRIES);
        counts.map(|(total, part)| total.load(Ordering::Relaxed) + part.load(Ordering::Relaxed)).sum()
    }

    fn note_peak(&self, pages: i64) {
        let pages = pages.max(0) as u64;
        // Most falls are below the peak, and a load costs less than an atomic maximum.
        if pages > self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(pages, Ordering::Relaxed);
        }
    }

    /// Notes the present size as a peak.
    pub(crate) fn note_size(&self) {
        self.note_peak(self.pages() as i64);
    }

    /// Resets the peak to the present size (`reset_mm_hiwater_rss`).
    pub fn reset_peak(&self) {
        self.peak.store(self.pages(), Ordering::Relaxed);
    }

    fn sum(&self, kind: usize) -> u64 {
        // While CPUs edit, a part may be read after it was added and the total before.
        (self.own_of(kind) + self.shared.of(kind)).max(0) as u64
    }

    /// Those of one kind without what edits for all sharers have changed.
    fn own_of(&self, kind: usize) -> i64 {
        let parts: i64 = self.parts.iter().map(|parts| parts[kind].load(Ordering::Relaxed)).sum();
        self.total[kind].load(Ordering::Relaxed) + parts
    }

    /// Adds entries that the space has shared or left; notes the peak before the pages get fewer.
    ///
    /// The caller holds the space.
    pub(crate) fn add(&self, entries: EntryCounts<i64>) {
        if entries.iter().take(SWAP_ENTRIES).sum::<i64>() < 0 {
            self.note_peak(self.own().iter().take(SWAP_ENTRIES).sum());
        }
        for (total, entries) in self.total.iter().zip(entries) {
            total.fetch_add(entries, Ordering::Relaxed);
        }
    }

    /// The pages and swap entries without what edits for all sharers have changed.
    pub(crate) fn own(&self) -> EntryCounts<i64> {
        core::array::from_fn(|kind| self.own_of(kind))
    }

    /// Forgets the counts of a space that has ended, and keeps the peak.
    ///
    /// The caller holds the space for writing.
    pub(crate) fn clear(&self) {
        self.add(self.own().map(|entries| -entries));
        plant!(EndedSumKept; (), self.shared.clear());
    }

    /// The number of pages of one kind.
    pub fn of(&self, kind: RssKind) -> u64 {
        self.sum(kind as usize)
    }

    /// The number of swap entries (`MM_SWAPENTS`, `VmSwap`).
    pub fn swapped(&self) -> u64 {
        self.sum(SWAP_ENTRIES)
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

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::boxed::Box;
    use std::cell::RefCell;

    const ANON: usize = RssKind::Anon as usize;

    std::thread_local! {
        /// What another CPU does at the next point.
        static MEANWHILE: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
    }

    /// A backend at whose points another CPU acts.
    struct Interrupted;

    impl Backend for Interrupted {
        type Line = ();

        fn pause() {}

        fn point() {
            if let Some(act) = MEANWHILE.take() {
                act();
            }
        }

        pagewright_sync::locks_of_threads!();
    }

    fn adjust(rss: &Rss, cpu: u16, pages: i32) {
        let mut change = EntryCounts::default();
        change[ANON] = pages;
        rss.adjust::<Interrupted>(CpuId::new(cpu), change, 1, |_| {});
    }

    /// INV-MM-PEAK: a CPU has not added yet what it has removed, and another one adds pages.
    #[test]
    fn the_peak_has_no_pages_that_have_gone() {
        let batch = BATCH as i32;
        for last in [1, 2] {
            let rss = Rss::try_new(2).expect("memory");
            for (cpu, pages) in [(0, 2 * batch), (1, 1 - batch), (0, batch - last), (0, last)] {
                adjust(&rss, cpu, pages);
            }
            assert_eq!((rss.pages(), rss.peak_bytes()), (2 * BATCH + 1, (2 * BATCH + 1) * PAGE_SIZE));
        }
    }

    /// INV-MM-PEAK: pages of every kind go at once.
    #[test]
    fn the_peak_has_each_kind_of_pages() {
        let rss = Rss::try_new(1).expect("memory");
        for pages in [10, -10] {
            let mut change = EntryCounts::default();
            change[..SWAP_ENTRIES].fill(pages);
            rss.adjust::<Interrupted>(CpuId::new(0), change, 1, |_| {});
        }
        assert_eq!((rss.pages(), rss.peak_bytes()), (0, 10 * SWAP_ENTRIES as u64 * PAGE_SIZE));
    }

    /// INV-MM-PEAK: entries of swapped-out pages are no resident pages, also when many go at once.
    #[test]
    fn the_peak_has_no_swapped_out_pages() {
        let rss = Rss::try_new(1).expect("memory");
        for entries in [2 * BATCH as i32, -2 * (BATCH as i32)] {
            let mut change = EntryCounts::default();
            change[SWAP_ENTRIES] = entries;
            rss.adjust::<Interrupted>(CpuId::new(0), change, 1, |_| {});
        }
        assert_eq!((rss.peak_bytes(), rss.swapped()), (0, 0));
    }

    /// INV-MM-PEAK: a CPU adds pages between the two looks of one that removes some.
    #[test]
    fn the_peak_has_pages_that_come_while_others_go() {
        let batch = BATCH as i32;
        for removed in [batch, 2 * batch] {
            let rss: &Rss = Box::leak(Box::new(Rss::try_new(2).expect("memory")));
            adjust(rss, 0, 3 * batch);
            MEANWHILE.set(Some(Box::new(move || adjust(rss, 1, batch))));
            adjust(rss, 0, -removed);
            assert_eq!(rss.peak_bytes(), 4 * BATCH * PAGE_SIZE);
            assert_eq!(rss.pages(), 4 * BATCH - removed as u64);
        }
    }
}
