//! An allocation that failed reclaims for itself, and tries again (`__alloc_pages_slowpath`,
//! `try_to_free_pages`).
//!
//! Whoever allocates may hold spaces for reading or writing, and has no table or cache locked:
//! frames are had before anything is locked. So reclaim waits for no space, and passes over those
//! that are being changed. Fork has its parent alone, so that nothing of the parent could go: it
//! fails, lets go, reclaims, and begins again.
//!
//! Protocol: what reclaim itself allocates does not reclaim again; it may go below the marks
//! ([`Urgency::Reserve`](pagewright_tlb::frames::Urgency)).
//!
//! Not guaranteed: that what was freed is still there for who freed it. He tries as long as
//! anybody's attempts free anything at all, and 16 times if they don't. Nor that `mremap` gets a
//! table while all memory is the space's that it holds.

use super::SWAP_CLUSTER_MAX;
use super::background::MAX_RECLAIM_RETRIES;
use super::scan::{Reclaimer, Scan};
use crate::error::MmError;
use crate::mm::Mm;
use core::sync::atomic::Ordering;
use pagewright_sync::{Backend, Platform};
use pagewright_table::TableReserve;
use pagewright_tlb::frames::{Block, ClearExtent, FrameRequest, NoFrames, NoFramesCause, ZeroedBlock};
use pagewright_types::{Counter, NodeId, Order};

/// Largest order for which it is tried again and again (`PAGE_ALLOC_COSTLY_ORDER`).
const COSTLY: Order = Order::new(3);

impl<P: Platform> Mm<P> {
    /// Allocates 2^`order` frames near the CPU that calls; contents are whatever was there.
    ///
    /// The caller has nothing locked but spaces and files.
    ///
    /// # Errors
    /// [`NoFrames`]; nothing could be reclaimed either.
    pub(crate) fn alloc(&self, order: Order) -> Result<Block, NoFrames> {
        self.with_reclaim(|| self.tlb.alloc(self.tlb.request(order)))
    }

    /// The same, cleared, for an operation that clears `whole` in all.
    ///
    /// # Errors
    /// As [`Self::alloc`].
    pub(crate) fn alloc_zeroed(&self, order: Order, whole: ClearExtent) -> Result<ZeroedBlock, NoFrames> {
        self.with_reclaim(|| self.tlb.alloc_zeroed(self.tlb.request(order), whole))
    }

    /// Fills a reserve of tables.
    ///
    /// # Errors
    /// As [`Self::alloc`].
    pub(crate) fn fill(&self, reserve: &mut TableReserve<'_, P>, count: usize) -> Result<(), NoFrames> {
        self.with_reclaim(|| reserve.fill(count))
    }

    /// Makes an allocation, and reclaims as long as it fails for want of free frames and that is
    /// any use.
    ///
    /// # Errors
    /// [`NoFrames`], of the last attempt.
    pub(crate) fn with_reclaim<T>(&self, mut attempt: impl FnMut() -> Result<T, NoFrames>) -> Result<T, NoFrames> {
        let mut fruitless = 0;
        loop {
            match attempt() {
                Err(refused) if self.reclaim_once(refused, &mut fruitless) => {}
                done => return done,
            }
        }
    }

    /// Makes a call that has a space for itself, and makes it again when it failed for want of free
    /// frames and has let go: while it held the space nobody could reclaim the space's own pages,
    /// and what failed has changed nothing (INV-MM-COMMIT).
    ///
    /// # Errors
    /// The call's, of the last attempt.
    pub(crate) fn again_with_reclaim<T>(&self, mut call: impl FnMut() -> Result<T, MmError>) -> Result<T, MmError> {
        let mut fruitless = 0;
        loop {
            match call() {
                Err(MmError::NoFrames(refused)) if self.reclaim_once(refused, &mut fruitless) => {}
                done => return done,
            }
        }
    }

    /// Reclaims for an allocation that was refused; whether to try again.
    fn reclaim_once(&self, refused: NoFrames, fruitless: &mut u32) -> bool {
        let tries = if refused.request.order > COSTLY { 1 } else { MAX_RECLAIM_RETRIES };
        if refused.cause != NoFramesCause::Exhausted || *fruitless >= tries || !self.fx().may_wait() {
            return false;
        }
        match self.reclaiming(|| self.reclaim_for(refused.request)).flatten() {
            // Nothing is left that could go, or this is what reclaim itself asked for.
            None => return false,
            Some(freed) if freed > 0 && tries > 1 => *fruitless = 0,
            Some(_) => {
                *fruitless += 1;
                // Others may free something meanwhile; that they do is not waited for.
                <P::Locks as Backend>::point();
            }
        }
        true
    }

    /// Frees a cluster of pages for a request; `None` if there is nothing that could go.
    fn reclaim_for(&self, request: FrameRequest) -> Option<u32> {
        let wanted = |node: &NodeId| !request.strict || *node == request.node;
        if self.nodes().filter(wanted).map(|node| self.reclaimable(node)).sum::<u64>() == 0 {
            return None;
        }
        let mut scan = Scan::new(Reclaimer::Direct, SWAP_CLUSTER_MAX as u32);
        while !self.attempt(self.nodes().filter(wanted), &mut scan) {
            self.send_out(&mut scan);
            if scan.freed > 0 || !scan.look_harder() {
                break;
            }
        }
        for node in self.nodes().filter(wanted) {
            self.reclaim.node(node).snapshot_refaults();
            if scan.freed > 0 {
                self.note_outcome(node, u64::from(scan.freed));
            }
        }
        Some(scan.freed)
    }

    /// Reclaims, unless this CPU is at it already.
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
