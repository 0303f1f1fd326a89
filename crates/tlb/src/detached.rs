//! What page-table edits detach: folio references and frames that must survive until the flush.
//!
//! A [`DetachedList`] needs no memory of its own. Frames whose last reference went are chained
//! through their own memmap records; folios leave their LRU lists many at a time when they are
//! freed. References that other owners share wait in a fixed array, and an overflow makes the owner
//! settle early. Linux allocates batches and falls back when it cannot; here there is nothing to
//! fall back from.
//!
//! **INV-TLB-SHARED** The reference that a cleared entry held on a folio with other users is
//! released only after the flush, or leaves its key with the folio. Otherwise the last user, which
//! flushes only its own CPUs, would free a folio that this space's CPUs can still reach.

use arrayvec::ArrayVec;
use pagewright_frame::{Block, BlockList, FolioRef, FolioRefs, Frames, ReleaseList};
use pagewright_plant::{plant, planted};
use pagewright_sync::Platform;

/// A piece that an edit detached from a page table, on its way back to the allocator.
#[derive(Debug)]
pub enum DetachedPiece {
    /// References to a folio that leaves held.
    Folio(FolioRefs),
    /// Frames without a reference, such as a table page.
    Block(Block),
}

/// A detached value that can be given up piece by piece once its debt is settled.
pub trait IntoDetachedPieces: Sized {
    /// Hands every piece to `sink`.
    fn for_each_piece(self, sink: &mut dyn FnMut(DetachedPiece));
}

impl IntoDetachedPieces for () {
    fn for_each_piece(self, _sink: &mut dyn FnMut(DetachedPiece)) {}
}

impl IntoDetachedPieces for FolioRef {
    fn for_each_piece(self, sink: &mut dyn FnMut(DetachedPiece)) {
        sink(DetachedPiece::Folio(self.into()));
    }
}

impl IntoDetachedPieces for Block {
    fn for_each_piece(self, sink: &mut dyn FnMut(DetachedPiece)) {
        sink(DetachedPiece::Block(self));
    }
}

impl<T: IntoDetachedPieces> IntoDetachedPieces for Option<T> {
    fn for_each_piece(self, sink: &mut dyn FnMut(DetachedPiece)) {
        if let Some(detached) = self {
            detached.for_each_piece(sink);
        }
    }
}

/// Folios to which shared references are held before the owner settles early.
const SHARED: usize = 64;

planted! {
    /// Drops references before the flush.
    fn put_unflushed<P: Platform>(frames: &Frames<P>, refs: FolioRefs) {
        let last = frames.put_refs(refs);
        debug_assert!(last.is_none(), "INV-FRAME-REFS: another reference is held elsewhere");
    }
}

/// References and frames that a [`crate::Gather`] or a [`crate::Batch`] frees once it has flushed.
pub(crate) struct DetachedList {
    shared: ArrayVec<FolioRefs, SHARED>,
    dead: ReleaseList,
    free: BlockList,
}

impl DetachedList {
    pub(crate) const fn new() -> Self {
        Self { shared: ArrayVec::new_const(), dead: ReleaseList::new(), free: BlockList::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.shared.is_empty() && self.dead.is_empty() && self.free.is_empty()
    }

    /// Adds a piece that one edit detached.
    ///
    /// # Errors
    /// The reference, when there is no room for it: flush, [release](Self::release), and try again.
    #[inline]
    pub(crate) fn push<P: Platform>(&mut self, frames: &Frames<P>, piece: DetachedPiece) -> Result<(), DetachedPiece> {
        match piece {
            DetachedPiece::Block(block) => {
                plant!(FreedInGather => { frames.free(block); return Ok(()) });
                self.free.push(frames, block);
            }
            // The only reference: no other path leads to the folio, so its own record can hold it.
            DetachedPiece::Folio(refs) => match self.dead.put_last(frames, refs) {
                Ok(()) => {
                    plant!(FreedInGather => self.dead.free(frames));
                }
                Err(shared) => {
                    plant!(PageOutFreedEarly => { put_unflushed(frames, shared); return Ok(()) });
                    return self.push_shared(shared).map_err(DetachedPiece::Folio);
                }
            },
        }
        Ok(())
    }

    /// Adds references to a folio that has others, as far as the caller knows.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    #[inline(always)]
    pub(crate) fn push_shared(&mut self, refs: FolioRefs) -> Result<(), FolioRefs> {
        // INV-TLB-SHARED: another space may drop its reference after a flush of *its* CPUs only;
        // ours stay until our CPUs have been told. Those of one folio are given up together, so the
        // many entries of a page that all spaces share need no room.
        if let Some(last) = self.shared.last_mut().filter(|last| last.pfn() == refs.pfn()) {
            last.add(refs);
            return Ok(());
        }
        self.shared.try_push(refs).map_err(|full| full.element())
    }

    /// Adds the reference of a cleared entry with its mapping, if the folio has no others.
    ///
    /// # Errors
    /// The reference; nothing has changed.
    #[inline]
    pub(crate) fn push_last_entry<P: Platform>(&mut self, frames: &Frames<P>, folio: FolioRef) -> Result<(), FolioRef> {
        self.dead.put_last_entry(frames, folio)?;
        plant!(FreedInGather => self.dead.free(frames));
        Ok(())
    }

    /// Frees every piece.
    ///
    /// The caller has flushed every TLB that could still reach one.
    pub(crate) fn release<P: Platform>(&mut self, frames: &Frames<P>) {
        for refs in self.shared.drain(..) {
            if let Some(block) = frames.put_refs(refs) {
                frames.free(block);
            }
        }
        self.dead.free(frames);
        while let Some(block) = self.free.pop(frames) {
            frames.free(block);
        }
    }

    /// Hands every piece to `sink`, which parks them under a key of the ledger.
    pub(crate) fn drain<P: Platform>(&mut self, frames: &Frames<P>, sink: &mut dyn FnMut(DetachedPiece)) {
        self.shared.drain(..).for_each(|refs| sink(DetachedPiece::Folio(refs)));
        while let Some(block) = self.dead.pop(frames) {
            sink(DetachedPiece::Block(block));
        }
        while let Some(block) = self.free.pop(frames) {
            sink(DetachedPiece::Block(block));
        }
    }
}

/// A holder of detached pieces, which flushes before it frees them: a gather or a batch.
pub(crate) trait DetachedHolder<P: Platform> {
    /// The pieces, and the frames to which they return.
    fn detached(&mut self) -> (&mut DetachedList, &Frames<P>);

    /// Waits until no CPU can use an old entry, then frees the pieces.
    fn flush_and_free(&mut self);

    /// Keeps a piece; flushes and frees early if there is no room for it.
    #[inline]
    fn keep(&mut self, mut piece: DetachedPiece) {
        loop {
            let (list, frames) = self.detached();
            let Err(refused) = list.push(frames, piece) else { return };
            piece = refused;
            plant!(
                OverflowUnflushed;
                { let (list, frames) = self.detached(); list.release(frames) },
                self.flush_and_free()
            );
        }
    }
}
