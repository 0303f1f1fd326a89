//! The debt that a page-table edit returns.
//!
//! **INV-TLB-DEBT** A debt or a gather is ended by the call that settles it, and never dropped.
//! Debug builds panic on a drop. Release builds park what it holds, and no caller gets parked
//! frames before the debt is settled; and the space remembers that rights may be left in TLBs, so
//! that the next operation on it flushes them.

use crate::context::TlbContext;
use crate::detached::IntoDetachedPieces;
use crate::engine::{FlushInfo, Tlb};
use core::iter;
use pagewright_arch::PteSlot;
use pagewright_plant::plant;
use pagewright_sync::{Platform, bomb};
use pagewright_types::{Level, PageRange, Rights, VirtAddr};

/// The flush that an edit of a page-table entry owes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwedFlush {
    /// No flush: no TLB can hold more than the new entry allows.
    Nothing,
    /// A leaf at this level was cleared or weakened.
    Leaf(Level),
    /// An empty table was unhooked from an entry at this level: walk caches must be flushed, too.
    Table(Level),
    /// A table with live entries was unhooked from an entry at this level.
    ///
    /// Walk caches must be flushed, and the leaf of every page below the entry: one invalidation of
    /// a page does not remove its neighbours (Intel SDM vol. 3A §4.10.4.1, Arm ARM D8.14.5).
    LiveTable(Level),
}

/// A flush that is owed, with what the edit detached, which must not be reused before the flush.
///
/// Pass it to [`crate::Gather::absorb`] or [`crate::Batch::absorb`], or settle it at once with
/// [`Debt::settle`].
///
/// # Panics
/// INV-TLB-DEBT: a debug build panics when a debt is dropped. In every build the next operation on
/// the space flushes it. The detached frames are parked under a key of the [`crate::Ledger`], and
/// the next allocation that takes them settles it.
#[must_use = "a page-table edit owes a TLB flush: absorb the debt into a Gather or settle it"]
pub struct Debt<'t, P: Platform, T: IntoDetachedPieces> {
    tlb: &'t Tlb<P>,
    context: &'t TlbContext,
    owed: OwedFlush,
    va: VirtAddr,
    slot: Option<PteSlot>,
    /// Whether a leaf without a right to store was cleared.
    cleared_read_only: bool,
    detached: Option<T>,
}

impl<'t, P: Platform, T: IntoDetachedPieces> Debt<'t, P, T> {
    /// Creates the debt of an edit of the entry for `va`, which owns what the edit detached.
    #[inline]
    pub fn new(tlb: &'t Tlb<P>, context: &'t TlbContext, va: VirtAddr, owed: OwedFlush, detached: T) -> Self {
        Self { tlb, context, owed, va, slot: None, cleared_read_only: false, detached: Some(detached) }
    }

    /// Names the entry that was edited.
    ///
    /// If the flush is deferred, the record of the table says so, and only an install in this entry
    /// waits for it. The flush of an edit without a place holds up every install in the space.
    #[inline]
    pub fn at(mut self, slot: PteSlot) -> Self {
        self.slot = Some(slot);
        self
    }

    /// Says that a leaf was cleared, and what its word allowed just before.
    ///
    /// Only a leaf that allowed no store may linger ([`LazyBatch`](crate::LazyBatch)).
    #[inline]
    pub fn cleared(mut self, rights: Rights) -> Self {
        self.cleared_read_only = !rights.contains(Rights::WRITE);
        self
    }

    /// Whether a leaf was cleared that allowed no store.
    #[inline]
    pub(crate) fn is_cleared_read_only(&self) -> bool {
        self.cleared_read_only
    }

    /// The entry that was edited, if it is known.
    #[inline]
    pub(crate) fn slot(&self) -> Option<PteSlot> {
        self.slot
    }

    /// The value that the edit detached.
    #[inline]
    pub fn detached(&self) -> &T {
        // `detached` is taken only by the consuming methods below.
        self.detached.as_ref().expect("a live debt holds what its edit detached")
    }

    /// The context whose translations must be flushed.
    pub(crate) fn context(&self) -> &'t TlbContext {
        self.context
    }

    /// The same flush in another space, which reaches the same entry.
    ///
    /// It has no place, because it is settled at once.
    pub(crate) fn also_of<'o>(&self, other: &'o TlbContext) -> Debt<'o, P, ()>
    where
        't: 'o,
    {
        Debt::new(self.tlb, other, self.va, self.owed, ())
    }

    /// The level of the leaf that was edited, if that owes a flush.
    pub(crate) fn level(&self) -> Option<Level> {
        match self.owed {
            OwedFlush::Leaf(level) => Some(level),
            OwedFlush::Nothing | OwedFlush::Table(_) | OwedFlush::LiveTable(_) => None,
        }
    }

    /// The flush that is owed, if any is.
    #[inline]
    fn flush_info(&self) -> Option<FlushInfo> {
        let range = Some(self.range());
        match self.owed {
            OwedFlush::Nothing => None,
            OwedFlush::Leaf(level) => Some(FlushInfo { range, level, freed_tables: false }),
            OwedFlush::Table(level) => Some(FlushInfo { range, level, freed_tables: plant!(TableAsLeaf; false, true) }),
            OwedFlush::LiveTable(_) => {
                Some(FlushInfo { range, level: Level::PTE, freed_tables: plant!(TableAsLeaf; false, true) })
            }
        }
    }

    /// Takes the debt apart for a batch, which now owes the flush, if any is owed.
    ///
    /// # Panics
    /// INV-TLB-WALKERS: when it is a table's.
    #[inline]
    pub(crate) fn into_deferrable(self) -> (Option<FlushInfo>, T) {
        let flush = self.flush_info();
        assert!(
            matches!(self.owed, OwedFlush::Nothing | OwedFlush::Leaf(_)),
            "INV-TLB-WALKERS: the flush of a table is deferred"
        );
        (flush, self.dissolve().2)
    }

    /// Takes the debt apart; the caller now owes the flush.
    #[inline]
    pub(crate) fn dissolve(mut self) -> (OwedFlush, VirtAddr, T) {
        let detached = self.detached.take().expect("a live debt holds what its edit detached");
        (self.owed, self.va, detached)
    }

    /// Flushes now, then frees what was detached.
    ///
    /// For a caller that depends only on the entry it edited. If the edit owes nothing, flushes
    /// deferred by other operations are not checked; if it owes a flush, that covers whatever
    /// another operation has deferred of the entry (INV-TLB-DEFERRED).
    #[inline]
    pub fn settle(self) {
        let (tlb, context, flush) = (self.tlb, self.context, self.flush_info());
        let (_, _, detached) = self.dissolve();
        if let Some(flush) = flush {
            tlb.flush(context, flush);
        }
        detached.for_each_piece(&mut |piece| tlb.free_piece(piece));
    }

    /// The pages whose translations must be flushed.
    #[inline]
    pub fn range(&self) -> PageRange {
        let span = match self.owed {
            OwedFlush::Nothing => Level::PTE.span(),
            OwedFlush::Leaf(level) | OwedFlush::Table(level) | OwedFlush::LiveTable(level) => level.span(),
        };
        let start = self.va.align_down(span);
        PageRange::new(start, start.add(span))
    }
}

impl<P: Platform, T: IntoDetachedPieces> Debt<'_, P, T> {
    /// Drops a debt that `others` owe, too.
    ///
    /// # Panics
    /// In debug builds, if it was not settled.
    #[inline]
    pub(crate) fn abandon<'a>(&mut self, others: impl Iterator<Item = &'a TlbContext> + Clone) {
        let Some(detached) = self.detached.take() else { return };
        self.tlb.abandon(self.context, others, |sink| detached.for_each_piece(sink));
        bomb::dropped(format_args!("INV-TLB-DEBT: debt of {:?} at {} dropped unsettled", self.owed, self.va));
    }
}

impl<P: Platform, T: IntoDetachedPieces> Drop for Debt<'_, P, T> {
    #[inline]
    fn drop(&mut self) {
        self.abandon(iter::empty());
    }
}
