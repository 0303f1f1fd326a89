//! What was detached from page tables and waits for the flush after which it may be freed.
//!
//! No memory is needed for that: frames whose last reference went are chained through their own
//! memmap records – folios leave their LRU lists many at a time when they are freed – and
//! references that others share wait in a fixed array, whose overflow makes its owner settle early.
//! Linux allocates batches and falls back; here there is nothing to fall back from.

use crate::debt::Parked;
use arrayvec::ArrayVec;
use pagewright_frame::{BlockList, FolioRef, Frames, ReleaseList};
use pagewright_plant::plant;
use pagewright_sync::Platform;

/// Shared references held before the owner settles early.
const SHARED: usize = 64;

/// References and frames that a [`crate::Gather`] or a [`crate::Batch`] frees once it has flushed.
pub(crate) struct Held {
    shared: ArrayVec<FolioRef, SHARED>,
    dead: ReleaseList,
    free: BlockList,
}

impl Held {
    pub(crate) const fn new() -> Self {
        Self { shared: ArrayVec::new_const(), dead: ReleaseList::new(), free: BlockList::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.shared.is_empty() && self.dead.is_empty() && self.free.is_empty()
    }

    /// Takes in what one edit detached.
    ///
    /// # Errors
    /// A reference for which there is no room: flush, [release](Self::release), and try again.
    #[inline]
    pub(crate) fn keep<P: Platform>(&mut self, frames: &Frames<P>, piece: Parked) -> Result<(), Parked> {
        match piece {
            Parked::Block(block) => {
                plant!(FreedInGather => { frames.free(block); return Ok(()) });
                self.free.push(frames, block);
            }
            // Alone on the folio: nobody can find it any more, so its own record can hold it.
            Parked::Folio(folio) => match self.dead.put_last(frames, folio) {
                Ok(()) => {
                    plant!(FreedInGather => self.dead.free(frames));
                }
                // INV-TLB-SHARED: another space may drop its reference after a flush of *its* CPUs
                // only; ours stays until our CPUs have been told. One of ours is enough, so the
                // many entries of a page that all spaces share need no room.
                Err(shared) if plant!(PageOutFreedEarly; true, false) => {
                    let last = frames.put(shared);
                    debug_assert!(last.is_none(), "INV-FRAME-REFS: another reference to the folio is held elsewhere");
                }
                Err(shared) if self.shared.last().is_some_and(|last| last.pfn() == shared.pfn()) => {
                    let last = frames.put(shared);
                    debug_assert!(last.is_none(), "INV-FRAME-REFS: another reference to the folio is held here");
                }
                Err(shared) if self.shared.is_full() => return Err(Parked::Folio(shared)),
                Err(shared) => self.shared.push(shared),
            },
        }
        Ok(())
    }

    /// Frees all of it.
    ///
    /// Every TLB has been told.
    pub(crate) fn release<P: Platform>(&mut self, frames: &Frames<P>) {
        for folio in self.shared.drain(..) {
            if let Some(block) = frames.put(folio) {
                frames.free(block);
            }
        }
        self.dead.free(frames);
        while let Some(block) = self.free.pop(frames) {
            frames.free(block);
        }
    }

    /// Hands all of it to `keep`, for a ledger that will know what it owes.
    pub(crate) fn give_up<P: Platform>(&mut self, frames: &Frames<P>, keep: &mut dyn FnMut(Parked)) {
        self.shared.drain(..).for_each(|folio| keep(Parked::Folio(folio)));
        while let Some(block) = self.dead.pop(frames) {
            keep(Parked::Block(block));
        }
        while let Some(block) = self.free.pop(frames) {
            keep(Parked::Block(block));
        }
    }
}
