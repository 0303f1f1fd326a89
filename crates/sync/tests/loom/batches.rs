//! Batches that defer flushes and settle at the same time: INV-TLB-BATCH-SETTLED.
//!
//! The epochs are those of the crate `tlb`, whose other atomics loom does not replace.

use crate::batch_epochs::BatchEpochs;
use loom::sync::Arc;
use loom::thread;
use pagewright_sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Batches at a time.
const BATCHES: usize = 2;

struct Machine {
    current: AtomicU64,
    batches: BatchEpochs,
    /// By batch: the epoch in which it deferred, 0 before.
    deferred: [AtomicU64; BATCHES],
    /// By batch: whether its flush is complete.
    flushed: [AtomicBool; BATCHES],
}

impl Machine {
    fn new() -> Self {
        let deferred = [(); BATCHES].map(|()| AtomicU64::new(0));
        let flushed = [(); BATCHES].map(|()| AtomicBool::new(false));
        Self { current: AtomicU64::new(0), batches: BatchEpochs::new(), deferred, flushed }
    }

    /// Reads the epoch in which a deferral is.
    fn epoch(&self) -> u64 {
        self.current.load(Ordering::SeqCst) + 1
    }

    /// As `Batch`: opens, defers, flushes, closes.
    fn batch(&self, number: usize) {
        self.batches.open();
        self.defer_and_close(number, self.epoch());
    }

    fn defer_and_close(&self, number: usize, epoch: u64) {
        self.deferred[number].store(epoch, Ordering::Release);
        self.flushed[number].store(true, Ordering::Release);
        self.batches.close(epoch, &self.current);
    }

    /// Asserts that what a batch has deferred is complete if its epoch counts as settled.
    fn check(&self) {
        for (deferred, flushed) in self.deferred.iter().zip(&self.flushed) {
            let epoch = deferred.load(Ordering::Acquire);
            if epoch > 0 && self.batches.have_settled(epoch) {
                assert!(flushed.load(Ordering::Acquire), "a flush of epoch {epoch} counts as complete");
            }
        }
    }
}

/// Runs two batches at the same time as a CPU that asks what they have settled.
///
/// At most two preemptions a run; without a bound this takes a minute.
fn explore(batch: impl Fn(&Machine, usize) + Copy + Send + Sync + 'static) {
    let mut bounded = loom::model::Builder::new();
    bounded.preemption_bound = Some(2);
    bounded.check(move || {
        let machine = Arc::new(Machine::new());
        let threads: Vec<_> = (0..BATCHES)
            .map(|number| {
                let machine = Arc::clone(&machine);
                thread::spawn(move || batch(&machine, number))
            })
            .collect();
        machine.check();
        threads.into_iter().for_each(|batch| batch.join().expect("a batch"));
        let latest = machine.deferred.iter().map(|epoch| epoch.load(Ordering::Acquire)).max().expect("batches");
        machine.batch(0);
        assert!(machine.batches.have_settled(latest), "a batch that is alone settles for all before it");
    });
}

#[test]
fn a_settled_epoch_has_no_flush_to_come() {
    explore(Machine::batch);
}

/// Checks the test: loom must catch a batch that reads its epoch before it is open.
#[test]
#[should_panic(expected = "counts as complete")]
fn a_batch_that_is_open_too_late_is_caught() {
    explore(|machine, number| {
        let epoch = machine.epoch();
        machine.batches.open();
        machine.defer_and_close(number, epoch);
    });
}
