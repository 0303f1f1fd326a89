//! The references of a folio that is made, and of one that is freed.
//!
//! INV-FRAME-SPEC: plain stores fill a record, while another CPU takes a reference.
//!
//! The counts are those of the crate `frame`, whose other atomics loom does not replace.

use crate::counts::FrameCounts;
use crate::tracked::Tracked;
use loom::sync::Arc;
use loom::thread;
use pagewright_sync::atomic::{AtomicU32, AtomicU64, Ordering};

const FILLED: u32 = 7;
const PFN: u64 = 42;

/// The words of a record that `Frames::new_mapped_folio` fills, and the entry for the page.
struct Page {
    flags: AtomicU32,
    counts: FrameCounts,
    entry: AtomicU64,
}

impl Page {
    /// As `new_mapped_folio`, then the entry.
    fn publish(&self, order: impl Fn(&FrameCounts)) {
        self.flags.store(FILLED, Ordering::Relaxed);
        order(&self.counts);
        self.entry.store(PFN, Ordering::Release);
    }

    /// What a CPU that has a reference reads.
    fn check(&self) {
        assert_eq!(self.flags.load(Ordering::Relaxed), FILLED, "the record is not filled");
    }
}

fn explore(publish: impl Fn(&Page) + Copy + Send + Sync + 'static) {
    loom::model(move || {
        let page = Arc::new(Page { flags: AtomicU32::new(0), counts: FrameCounts::zero(), entry: AtomicU64::new(0) });
        let other = Arc::clone(&page);
        let maker = thread::spawn(move || publish(&other));
        // A CPU that read the frame number before, in an entry that is gone.
        if page.counts.try_add_ref(8) {
            page.check();
        }
        // A CPU that walks the table now (`gup_fast`).
        if page.entry.load(Ordering::Acquire) == PFN {
            assert!(page.counts.try_add_ref(8), "the page of an entry has a reference");
            page.check();
        }
        maker.join().expect("the maker");
    });
}

#[test]
fn a_reference_is_taken_only_to_a_record_that_is_filled() {
    explore(|page| page.publish(|counts| counts.set(1, 1)));
}

/// Checks the test: loom must catch counts that are stored before the rest of the record.
#[test]
#[should_panic(expected = "the record is not filled")]
fn counts_that_are_stored_first_are_caught() {
    explore(|page| {
        page.counts.set(1, 1);
        page.publish(|_| ());
    });
}

/// The last user of a folio frees it, after every use by the others.
#[test]
fn a_folio_is_freed_after_every_use_of_it() {
    loom::model(|| {
        let counts = FrameCounts::zero();
        counts.set(2, 0);
        let page = Arc::new((counts, Tracked::new(0)));
        let other = Arc::clone(&page);
        let use_and_put = |page: &(FrameCounts, Tracked)| {
            page.1.get();
            if page.0.sub_refs(1) == 1 {
                page.1.add_one();
            }
        };
        let user = thread::spawn(move || use_and_put(&other));
        use_and_put(&page);
        user.join().expect("the other user");
    });
}
