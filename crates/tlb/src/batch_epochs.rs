//! Up to which epoch all batches have settled.
//!
//! Key type: [`BatchEpochs`]. A batch defers a flush in the epoch after the current one, reads that
//! epoch while it is open, and closes when all that it deferred is complete.
//!
//! **INV-TLB-BATCH-SETTLED** Each flush that a batch deferred up to the settled epoch is complete.
//! A batch is open from before its first deferral until it has settled, and then it ends its epoch:
//! a batch that opens later defers in a later one. The batch that leaves none open raises the
//! settled epoch to the latest of those that had closed when it began to. A batch that is dropped
//! stays open.
//!
//! The loom tests of `sync` include this file, so that they test it under every memory order.
//!
//! Not guaranteed: that a settled epoch is recognised at once. It stays while some batch is open,
//! and of two that close at the same moment the later epoch may wait for the next batch. After a
//! batch was dropped, which debug builds refuse, it stays for good.

use pagewright_plant::plant;
use pagewright_sync::atomic::{AtomicU64, Ordering};

/// The batches that are open, and the epochs of those that have closed.
pub(crate) struct BatchEpochs {
    /// Batches that have deferred a flush and have not settled.
    open: AtomicU64,
    /// The latest epoch of the batches that have settled.
    latest_closed: AtomicU64,
    /// Each flush that a batch deferred up to this epoch is complete.
    settled: AtomicU64,
}

impl BatchEpochs {
    pub(crate) fn new() -> Self {
        Self { open: AtomicU64::new(0), latest_closed: AtomicU64::new(0), settled: AtomicU64::new(0) }
    }

    /// Counts a batch as open, before it defers its first flush.
    pub(crate) fn open(&self) {
        self.open.fetch_add(1, Ordering::SeqCst);
    }

    /// Closes a batch that has deferred flushes up to `epoch`, all of which are complete.
    ///
    /// `current` is the ledger's epoch.
    pub(crate) fn close(&self, epoch: u64, current: &AtomicU64) {
        // A batch that opens from here on defers in a later epoch.
        if plant!(BatchEpochGoesOn; false, current.load(Ordering::SeqCst) < epoch) {
            current.fetch_add(1, Ordering::SeqCst);
        }
        // Read before this batch is closed: one that opens after it may close in between.
        let closed = self.latest_closed.fetch_max(epoch, Ordering::SeqCst).max(epoch);
        let open = self.open.fetch_sub(1, Ordering::SeqCst);
        if plant!(OpenBatchSettled; true, open == 1) {
            self.settled.fetch_max(closed, Ordering::SeqCst);
        }
    }

    /// Whether each flush that a batch deferred up to `epoch` is known to be complete.
    pub(crate) fn have_settled(&self, epoch: u64) -> bool {
        epoch <= self.settled.load(Ordering::SeqCst)
    }
}
