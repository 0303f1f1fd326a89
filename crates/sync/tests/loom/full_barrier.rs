//! The protocol of fork and a lockless pin (INV-FULL-BARRIER, INV-GUP-EXCLUSIVE).
//!
//! The counts are those of the crate `frame`. Fork that shares a table, page-out and `clear_refs`
//! have the same protocol; the first loads the marks of the table instead of the pins.

use crate::counts::FrameCounts;
use loom::sync::Arc;
use loom::thread;
use pagewright_sync::FullBarrier;
use pagewright_sync::atomic::{AtomicU64, Ordering};

/// The references of a pin, as in `frame::pin`.
const PIN_BIAS: u32 = 1024;
const EXCLUSIVE: u64 = 1;
const SHARED: u64 = 2;

/// A page that one entry maps.
struct Page {
    counts: FrameCounts,
    entry: AtomicU64,
}

impl Page {
    fn new() -> Self {
        let counts = FrameCounts::zero();
        counts.set(1, 1);
        Self { counts, entry: AtomicU64::new(EXCLUSIVE) }
    }

    /// Whether fork shares the page, as `LockedTable::copy_run` decides.
    fn share(&self, barrier: impl Fn()) -> bool {
        self.entry.store(SHARED, Ordering::Release);
        barrier();
        self.counts.refs() < PIN_BIAS
    }

    /// Whether a lockless walk keeps its pin, as `Mm::gup_fast` decides.
    fn pin(&self, barrier: impl Fn()) -> bool {
        if self.entry.load(Ordering::Acquire) != EXCLUSIVE || !self.counts.try_add_ref(u32::MAX / 2) {
            return false;
        }
        self.counts.add_refs(PIN_BIAS - 1);
        barrier();
        self.entry.load(Ordering::Acquire) == EXCLUSIVE
    }
}

fn execute() {
    let _ordered = FullBarrier::execute();
}

fn explore(of_fork: impl Fn() + Copy + Sync + Send + 'static, of_pin: impl Fn() + Copy + Sync + Send + 'static) {
    loom::model(move || {
        let page = Arc::new(Page::new());
        let pinned = Arc::clone(&page);
        let pins = thread::spawn(move || pinned.pin(of_pin));
        let is_shared = page.share(of_fork);
        let is_pinned = pins.join().expect("the walk");
        assert!(!(is_shared && is_pinned), "a page is shared and pinned");
    });
}

#[test]
fn no_page_is_both_shared_by_fork_and_pinned() {
    explore(execute, execute);
}

/// Checks the test: loom must catch a fork without the barrier.
#[test]
#[should_panic(expected = "a page is shared and pinned")]
fn a_fork_without_its_barrier_is_caught() {
    explore(|| (), execute);
}

/// Checks the test: loom must catch a walk without the barrier.
#[test]
#[should_panic(expected = "a page is shared and pinned")]
fn a_pin_without_its_barrier_is_caught() {
    explore(execute, || ());
}
