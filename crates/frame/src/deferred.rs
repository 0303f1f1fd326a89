//! Folios that wait to be split, because some of their pages are no longer mapped.
//!
//! Linux's `deferred_split_folio` and `deferred_split_scan`.
//!
//! Key type: [`DeferredSplits`], one queue for each node. A large folio is freed when its last page
//! is unmapped, so the pages that were unmapped before occupy memory for nothing. A split frees
//! them. `mm` splits the folios of the queue when memory is short.
//!
//! ```text
//! an unmap leaves the folio partly mapped ─ defer_split ─▶ queued ─ take_deferred ─▶ split, or queued again
//!                                                            │ last reference, or frozen: undefer
//!                                                            ▼
//!                                                          not queued
//! ```
//!
//! Protocol: each queue has one lock (`DeferredRank`), which protects the links of the first tails
//! and the flag `DEFERRED`. The caller of `defer_split` holds a reference that it gives up later:
//! usually that of the entry that it has cleared, under the lock of its table. So a folio is never
//! queued after its last reference went.
//!
//! Invariants:
//! - **INV-DEFERRED-QUEUE** A large folio is on the queue of its node exactly if it has the flag
//!   `DEFERRED`, and at rest if some of its pages have entries and others have none. It leaves the
//!   queue before it is a block or split, and comes back if the split fails. A block that is no
//!   folio, and a folio that was split, are on no queue.
//!
//! Not guaranteed: that a folio on the queue is partly mapped. Its last page may be unmapped since.

use crate::folio::Folio;
use crate::folio_flags::FolioFlags;
use crate::folio_ref::FolioRef;
use crate::frames::Frames;
use crate::list::FrameList;
use crate::memmap::Memmap;
use alloc::boxed::Box;
use core::sync::atomic::{AtomicU32, Ordering};
use pagewright_plant::plant;
use pagewright_sync::{AllocError, Backend, LineRef, LineUse, Platform, SpinLock, rank, try_boxed};
use pagewright_types::{NodeId, Pfn};

/// The queue of a node, on cache lines of its own.
#[repr(align(128))]
pub(crate) struct DeferredSplits<L: Backend> {
    /// The first tails of the folios, which have the links.
    queue: SpinLock<FrameList, rank::DeferredRank, L>,
    /// Base pages of the folios on the queue; written under the lock, read without it.
    pages: AtomicU32,
}

impl<L: Backend> DeferredSplits<L> {
    /// Allocates an empty queue for each of `nodes` nodes.
    pub(crate) fn try_new(nodes: usize) -> Result<Box<[Self]>, AllocError> {
        let empty = || Self { queue: SpinLock::new(FrameList::EMPTY), pages: AtomicU32::new(0) };
        try_boxed(nodes, core::iter::repeat_with(empty))
    }

    /// Takes a folio off the locked queue.
    fn unlink(&self, queue: &mut FrameList, folio: Folio<'_>) {
        let [before, after] = queue.remove(folio.memmap, folio.first_tail());
        [Some(folio.first_tail()), before, after].into_iter().flatten().for_each(use_link::<L>);
        folio.clear_flags(FolioFlags::DEFERRED);
        self.pages.store(self.pages.load(Ordering::Relaxed) - folio.pages(), Ordering::Relaxed);
    }
}

fn use_link<L: Backend>(tail: Pfn) {
    L::line(LineRef::Record(tail), "deferred splits", LineUse::Store);
}

/// The folio whose first tail is on a queue.
fn folio_at(memmap: &Memmap, tail: Pfn) -> Folio<'_> {
    Folio::at(memmap, Pfn::new(tail.raw() - 1))
}

impl Folio<'_> {
    /// The tail whose record has the links of the queue.
    fn first_tail(self) -> Pfn {
        self.head.add(1)
    }
}

impl<P: Platform> Frames<P> {
    fn deferred_of(&self, folio: Folio<'_>) -> &DeferredSplits<P::Locks> {
        &self.deferred[self.node_of_folio(folio).index()]
    }

    /// Queues a large folio to be split; returns whether it was on no queue.
    ///
    /// The caller has a reference. Takes the `DeferredRank` lock.
    ///
    /// # Panics
    /// In debug builds when the folio is small or has no references.
    #[cold]
    pub fn defer_split(&self, folio: Folio<'_>) -> bool {
        debug_assert!(
            folio.is_large() && folio.refs() > 0,
            "INV-DEFERRED-QUEUE: {folio:?} is queued without a reference, or is small"
        );
        // A folio that loses page after page is queued once.
        if folio.flags().contains(FolioFlags::DEFERRED) {
            return false;
        }
        let deferred = self.deferred_of(folio);
        let mut queue = deferred.queue.lock();
        if folio.set_flags(FolioFlags::DEFERRED).contains(FolioFlags::DEFERRED) {
            return false;
        }
        [Some(folio.first_tail()), queue.last()].into_iter().flatten().for_each(use_link::<P::Locks>);
        queue.push_back(&self.memmap, folio.first_tail());
        deferred.pages.store(deferred.pages.load(Ordering::Relaxed) + folio.pages(), Ordering::Relaxed);
        true
    }

    /// Takes a folio that is about to be split or freed off its queue, if it is on one.
    ///
    /// The folio has no references, so nothing can queue it meanwhile. Takes the `DeferredRank`
    /// lock.
    #[inline]
    pub fn undefer(&self, folio: Folio<'_>) {
        if folio.flags().contains(FolioFlags::DEFERRED) {
            self.undefer_queued(folio);
        }
    }

    #[cold]
    fn undefer_queued(&self, folio: Folio<'_>) {
        plant!(DeferredKept => { folio.clear_flags(FolioFlags::DEFERRED); return });
        let deferred = self.deferred_of(folio);
        let mut queue = deferred.queue.lock();
        // A scan of the queue may have taken it off since.
        if folio.flags().contains(FolioFlags::DEFERRED) {
            deferred.unlink(&mut queue, folio);
        }
    }

    /// Takes the folio that was queued first off the queue of a node, with a reference.
    ///
    /// Folios without references leave the queue, too: they are about to be freed, or split. Takes
    /// the `DeferredRank` lock.
    ///
    /// # Panics
    /// When there is no such node.
    pub fn take_deferred(&self, node: NodeId) -> Option<FolioRef> {
        let deferred = &self.deferred[node.index()];
        let mut queue = deferred.queue.lock();
        loop {
            let folio = folio_at(&self.memmap, queue.first()?);
            let reference = folio.try_get();
            deferred.unlink(&mut queue, folio);
            if reference.is_some() {
                return reference;
            }
        }
    }

    /// The base pages of the folios on the queue of a node.
    ///
    /// # Panics
    /// When there is no such node.
    pub fn deferred_pages(&self, node: NodeId) -> u32 {
        self.deferred[node.index()].pages.load(Ordering::Relaxed)
    }

    /// Calls `visit` with the first frame of each folio on the queue of a node, for checks.
    ///
    /// Holds the `DeferredRank` lock meanwhile.
    ///
    /// # Panics
    /// When there is no such node.
    pub fn for_each_deferred(&self, node: NodeId, mut visit: impl FnMut(Pfn)) {
        let queue = self.deferred[node.index()].queue.lock();
        let mut at = queue.first();
        while let Some(tail) = at {
            visit(folio_at(&self.memmap, tail).head);
            at = queue.after(&self.memmap, tail);
        }
    }
}
