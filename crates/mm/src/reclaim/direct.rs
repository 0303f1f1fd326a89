//! Direct reclaim: an allocation that failed reclaims and tries again (`try_to_free_pages`).
//!
//! The allocating caller may hold address-space locks, but no lock of a table or a cache: frames
//! are allocated before those are taken. So reclaim waits for no address-space lock, and skips
//! pages of spaces whose lock is contended. Fork holds its parent's lock exclusively, so the
//! parent's pages could not be reclaimed. It fails without effect, releases the lock, reclaims and
//! starts over.
//!
//! It reclaims only nodes that may serve the request (`ac->nodemask`).
//!
//! Protocol: the allocations of reclaim itself do not reclaim; they may use the frames below the
//! watermarks ([`Urgency::Reserve`](pagewright_tlb::frames::Urgency)).
//!
//! Not guaranteed: that the CPU that freed frames also gets them. It tries again while its attempts
//! free anything, and 16 times if they free nothing (`__alloc_pages_slowpath`). `mremap` may fail
//! to allocate a table while all memory belongs to the space whose lock it holds.

use super::SWAP_CLUSTER_MAX;
use super::background;
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
    /// Allocates frames with undefined contents.
    ///
    /// The caller holds no locks other than those of spaces and files.
    ///
    /// # Errors
    /// [`NoFrames`] if reclaim could not free enough either.
    pub(crate) fn alloc(&self, request: FrameRequest) -> Result<Block, NoFrames> {
        self.with_reclaim(|| self.tlb.alloc(request))
    }

    /// As [`Self::alloc`], cleared, for an operation that clears `whole` in total.
    ///
    /// # Errors
    /// As [`Self::alloc`].
    pub(crate) fn alloc_zeroed(&self, request: FrameRequest, whole: ClearExtent) -> Result<ZeroedBlock, NoFrames> {
        self.with_reclaim(|| self.tlb.alloc_zeroed(request, whole))
    }

    /// Fills a reserve with `count` tables.
    ///
    /// # Errors
    /// As [`Self::alloc`].
    pub(crate) fn fill(&self, reserve: &mut TableReserve<'_, P>, count: usize) -> Result<(), NoFrames> {
        self.with_reclaim(|| reserve.fill(count))
    }

    /// Fills a reserve with the deposits of `count` huge leaves.
    ///
    /// # Errors
    /// As [`Self::alloc`].
    pub(crate) fn fill_deposits(&self, reserve: &mut TableReserve<'_, P>, count: usize) -> Result<(), NoFrames> {
        self.with_reclaim(|| reserve.fill_deposits(count))
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
        let order = refused.request.order;
        if refused.cause != NoFramesCause::Exhausted || gives_up(*fruitless, order) || !self.fx().may_wait() {
            return false;
        }
        // `None` if nothing is reclaimable, or if reclaim itself made the allocation.
        let Some(freed) = self.reclaiming(|| self.reclaim_for(refused.request)).flatten() else { return false };
        *fruitless = fruitless_after(*fruitless, order, freed);
        if freed == 0 {
            // Other CPUs may free pages here, but this does not wait for them.
            <P::Locks as Backend>::point();
        }
        true
    }

    /// Frees a cluster of pages for a request; `None` if nothing is reclaimable.
    fn reclaim_for(&self, request: FrameRequest) -> Option<u32> {
        let wanted = |node: &NodeId| request.permitted.contains(*node);
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

/// Whether a request of this order fails after so many fruitless runs of reclaim.
fn gives_up(fruitless: u32, order: Order) -> bool {
    background::gives_up(fruitless) || fruitless > 0 && order > COSTLY
}

/// The number of fruitless runs in a row after one that freed `freed` pages.
///
/// A costly request counts every run: the pages that it freed need not be one block.
fn fruitless_after(before: u32, order: Order, freed: u32) -> u32 {
    if freed > 0 && order <= COSTLY { 0 } else { before + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `__alloc_pages_slowpath`: 16 runs in a row that free nothing, or one for a costly order.
    #[test]
    fn an_allocation_gives_up_after_its_fruitless_runs() {
        let runs = |order: u8, freed: &[u32]| {
            let (mut fruitless, order) = (0, Order::new(order));
            let mut freed = freed.iter().chain(core::iter::repeat(&0));
            (0..).find(|_| {
                let end = gives_up(fruitless, order);
                fruitless = fruitless_after(fruitless, order, *freed.next().expect("no end"));
                end
            })
        };
        for (order, freed, expected) in [
            (0, &[][..], 16),
            (3, &[], 16),
            (0, &[1; 40], 56),
            (3, &[0, 0, 1], 19),
            (4, &[], 1),
            (4, &[32, 32], 1),
            (9, &[1], 1),
        ] {
            assert_eq!(runs(order, freed), Some(expected), "order {order}, {freed:?}");
        }
    }
}
