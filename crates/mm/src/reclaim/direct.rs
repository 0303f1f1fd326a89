//! Direct reclaim: an allocation that failed reclaims and tries again (`try_to_free_pages`).
//!
//! The allocating caller may hold address-space locks, but no lock of a table or a cache: frames
//! are allocated before those are taken. So reclaim waits for no address-space lock, and skips
//! pages of spaces whose lock is contended. Fork holds its parent's lock exclusively, so the
//! parent's pages could not be reclaimed. It fails without effect, releases the lock, reclaims and
//! starts over.
//!
//! Protocol: the allocations of reclaim itself do not reclaim; they may use the frames below the
//! watermarks ([`Urgency::Reserve`](pagewright_tlb::frames::Urgency)).
//!
//! Not guaranteed: that the CPU that freed frames also gets them. It tries again while its attempts
//! free anything, and 16 times if they free nothing (`__alloc_pages_slowpath`). `mremap` may fail
//! to allocate a table while all memory belongs to the space whose lock it holds.

use super::SWAP_CLUSTER_MAX;
use super::background::MAX_RECLAIM_RETRIES;
use super::scan::{Reclaimer, ScanControl};
use crate::error::MmError;
use crate::mm::Mm;
use core::sync::atomic::Ordering;
use pagewright_sync::{Backend, Platform, rank};
use pagewright_table::TableReserve;
use pagewright_tlb::frames::{Block, ClearExtent, FrameRequest, NoFrames, NoFramesCause, ZeroedBlock};
use pagewright_types::{Counter, NodeId, Order};

/// The largest order whose allocation is retried (`PAGE_ALLOC_COSTLY_ORDER`).
const COSTLY: Order = Order::new(3);

impl<P: Platform> Mm<P> {
    /// Allocates 2^`order` frames on the calling CPU's node, with undefined contents.
    ///
    /// The caller holds no locks other than those of spaces and files.
    ///
    /// # Errors
    /// [`NoFrames`] if reclaim could not free enough either.
    pub(crate) fn alloc(&self, order: Order) -> Result<Block, NoFrames> {
        self.with_reclaim(|| self.tlb.alloc(self.tlb.request(order)))
    }

    /// As [`Self::alloc`], cleared, for an operation that clears `whole` in total.
    ///
    /// # Errors
    /// As [`Self::alloc`].
    pub(crate) fn alloc_zeroed(&self, order: Order, whole: ClearExtent) -> Result<ZeroedBlock, NoFrames> {
        self.with_reclaim(|| self.tlb.alloc_zeroed(self.tlb.request(order), whole))
    }

    /// Fills a reserve with `count` tables.
    ///
    /// # Errors
    /// As [`Self::alloc`].
    pub(crate) fn fill(&self, reserve: &mut TableReserve<'_, P>, count: usize) -> Result<(), NoFrames> {
        self.with_reclaim(|| reserve.fill(count))
    }

    /// Calls `attempt`, and reclaims and retries while it finds no free frames.
    ///
    /// # Errors
    /// [`NoFrames`] of the last attempt, once reclaim gives up.
    ///
    /// # Panics
    /// In debug builds when the caller holds a lock of rank `ForkTreeRank` or inside it, for which
    /// reclaim may wait.
    pub(crate) fn with_reclaim<T>(&self, mut attempt: impl FnMut() -> Result<T, NoFrames>) -> Result<T, NoFrames> {
        debug_assert!(
            P::Locks::held().with::<rank::ForkTreeRank>().is_ok(),
            "INV-LOCK-ORDER: memory is reclaimed under {:?}",
            P::Locks::held()
        );
        let mut fruitless = 0;
        loop {
            match attempt() {
                Err(refused) if self.reclaim_once(refused, &mut fruitless) => {}
                done => return done,
            }
        }
    }

    /// As [`Self::with_reclaim`], for a call that holds a space's lock exclusively and releases it.
    ///
    /// The space's own pages can be reclaimed only between attempts. A failed attempt has changed
    /// nothing (INV-MM-COMMIT).
    ///
    /// # Errors
    /// The error of the last attempt.
    pub(crate) fn retry_with_reclaim<T>(&self, mut call: impl FnMut() -> Result<T, MmError>) -> Result<T, MmError> {
        let mut fruitless = 0;
        loop {
            match call() {
                Err(MmError::NoFrames(refused)) if self.reclaim_once(refused, &mut fruitless) => {}
                done => return done,
            }
        }
    }

    /// Reclaims for an allocation that was refused; returns whether to try again.
    fn reclaim_once(&self, refused: NoFrames, fruitless: &mut u32) -> bool {
        let tries = if refused.request.order > COSTLY { 1 } else { MAX_RECLAIM_RETRIES };
        if refused.cause != NoFramesCause::Exhausted || *fruitless >= tries || !self.fx().may_wait() {
            return false;
        }
        match self.reclaiming(|| self.reclaim_for(refused.request)).flatten() {
            // Nothing is reclaimable, or reclaim itself made the allocation.
            None => return false,
            Some(freed) if freed > 0 && tries > 1 => *fruitless = 0,
            Some(_) => {
                *fruitless += 1;
                // Other CPUs may free pages here, but this does not wait for them.
                <P::Locks as Backend>::point();
            }
        }
        true
    }

    /// Frees a cluster of pages for a request; `None` if nothing is reclaimable.
    fn reclaim_for(&self, request: FrameRequest) -> Option<u32> {
        let wanted = |node: &NodeId| !request.strict || *node == request.node;
        if self.nodes().filter(wanted).map(|node| self.reclaimable(node)).sum::<u64>() == 0 {
            return None;
        }
        let mut scan = ScanControl::new(Reclaimer::Direct, SWAP_CLUSTER_MAX as u32);
        while !self.shrink_nodes(self.nodes().filter(wanted), &mut scan) {
            self.page_out_pending(&mut scan);
            if scan.freed > 0 || !scan.lower_priority() {
                break;
            }
        }
        for node in self.nodes().filter(wanted) {
            self.reclaim.node(node).snapshot_refaults();
            if scan.freed > 0 {
                self.note_progress(node, u64::from(scan.freed));
            }
        }
        Some(scan.freed)
    }

    /// Runs reclaim, unless this CPU is reclaiming already.
    pub(super) fn reclaiming<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        let cpu = self.fx().cpu();
        let busy = self.reclaim.busy.get(cpu);
        if busy.swap(true, Ordering::Relaxed) {
            return None;
        }
        let waits = || self.frames().counters().of(cpu, Counter::NrTlbRemoteFlush);
        let before = waits();
        let done = work();
        self.tlb.count(Counter::PwReclaimWaits, waits() - before);
        busy.store(false, Ordering::Relaxed);
        Some(done)
    }
}
