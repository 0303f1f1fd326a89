//! The debts of one operation on one address space (Linux's `mmu_gather`, `mm/mmu_gather.c`).
//!
//! Edits are absorbed; then one flush pays for all of them, and only then is anything freed. No memory is needed for that:
//! frames whose last reference went are chained through their own memmap records, and references that others share wait in
//! a fixed array, whose overflow settles early.

use crate::context::Context;
use crate::debt::{Debt, Owed, Park, Parked};
use crate::engine::{Flush, Tlb};
use arrayvec::ArrayVec;
use pagewright_frame::{BlockList, FolioRef};
use pagewright_sync::{Platform, bomb};
use pagewright_types::{Level, PageRange, VirtAddr, plant};

/// Shared references held before a gather settles early.
const SHARED: usize = 64;

/// Debts of one context, waiting to be paid together.
///
/// # Panics
/// INV-TLB-DEBT: dropped unsettled in a debug build; see [`Debt`].
#[must_use = "a gather owes a TLB flush: settle it"]
pub struct Gather<'t, P: Platform> {
    tlb: &'t Tlb<P>,
    context: &'t Context,
    range: Option<PageRange>,
    /// The smallest level at which an entry was edited: the stride of the flush.
    level: Level,
    /// Whether entries of several levels were edited. An invalidation that names a level need not remove translations of another.
    mixed: bool,
    tables: bool,
    whole: bool,
    /// Whether others may clear entries of the space, and fault, meanwhile.
    among_others: bool,
    shared: ArrayVec<FolioRef, SHARED>,
    free: BlockList,
}

impl<'t, P: Platform> Gather<'t, P> {
    /// An empty gather for `context`.
    pub fn new(tlb: &'t Tlb<P>, context: &'t Context) -> Self {
        Self {
            tlb,
            context,
            range: None,
            level: Level::PGD,
            mixed: false,
            tables: false,
            whole: false,
            among_others: false,
            shared: ArrayVec::new_const(),
            free: BlockList::new(),
        }
    }

    /// A gather whose flush will be of the whole space, for its end (`tlb_gather_mmu_fullmm`).
    pub fn whole(tlb: &'t Tlb<P>, context: &'t Context) -> Self {
        let mut gather = Self::new(tlb, context);
        gather.whole = true;
        gather
    }

    /// An empty gather for a caller who does not have the space alone: others may fault, and clear entries, until it is settled.
    ///
    /// INV-TLB-CLEARED: whoever finds an entry cleared that is not flushed yet flushes it: another such gather, when it is settled, takes the
    /// whole space along (`mm_tlb_flush_nested`), and whoever installs a leaf there asks [`Context::may_be_unflushed`].
    pub fn among_others(tlb: &'t Tlb<P>, context: &'t Context) -> Self {
        context.begin_clearing();
        let mut gather = Self::new(tlb, context);
        gather.among_others = true;
        gather
    }

    /// Takes over a debt. May settle what was gathered so far.
    ///
    /// # Panics
    /// In debug builds when the debt is another context's.
    #[inline]
    pub fn absorb<T: Park>(&mut self, debt: Debt<'t, P, T>) {
        debug_assert!(core::ptr::eq(debt.context(), self.context), "INV-TLB-DEBT: debt of another space");
        let range = debt.range();
        let (owed, _, parked) = debt.dissolve();
        match owed {
            Owed::Nothing => {}
            Owed::Leaf(level) => self.extend(range, level),
            Owed::Table(level) => {
                self.extend(range, level);
                self.tables = true;
            }
        }
        parked.park(&mut |piece| self.keep(piece));
    }

    /// Extends what the flush will cover without detaching anything, for a caller that edits in bulk.
    #[inline]
    pub fn extend(&mut self, range: PageRange, level: Level) {
        self.mixed |= self.range.is_some() && self.level != level;
        self.range = Some(match self.range {
            None => range,
            Some(old) => PageRange::new(old.start().min(range.start()), old.end().max(range.end())),
        });
        self.level = self.level.min(level);
    }

    #[inline]
    fn keep(&mut self, piece: Parked) {
        let frames = self.tlb.frames();
        match piece {
            Parked::Block(block) => {
                plant!(FreedInGather => return frames.free(block));
                self.free.push(frames, block);
            }
            // Alone on the folio: nobody can find it any more, so its own record can hold it.
            Parked::Folio(folio) => match frames.put_last(folio) {
                Ok(block) => {
                    plant!(FreedInGather => return frames.free(block));
                    self.free.push(frames, block);
                }
                Err(shared) => {
                    // INV-TLB-SHARED: another space may drop its reference after a flush of *its* CPUs only; ours stays until
                    // our CPUs have been told.
                    if self.shared.is_full() {
                        self.pay();
                    }
                    self.shared.push(shared);
                }
            },
        }
    }

    /// Whether a flush is owed or anything is held.
    pub fn is_empty(&self) -> bool {
        self.range.is_none() && self.shared.is_empty() && self.free.is_empty()
    }

    /// Pays what was gathered until now and goes on gathering: for a caller whose locks may not be let go before.
    pub fn settle_so_far(&mut self) {
        self.pay();
    }

    /// Flushes what is owed, then frees what was detached.
    pub fn settle(mut self) {
        if self.among_others && self.context.others_may_be_unflushed() {
            self.whole = true;
            self.extend(PageRange::new(VirtAddr::ZERO, VirtAddr::ZERO), Level::PTE);
        }
        self.pay();
    }

    fn pay(&mut self) {
        if let Some(range) = self.range.take() {
            let tables = plant!(TableAsLeaf; false, core::mem::take(&mut self.tables));
            // No level is named once tables went. For leaves of several levels Linux leaves the hint out (`tlb_get_level`); they span
            // 512 pages at least, for which the whole tag is the usual choice anyway.
            let mixed = core::mem::take(&mut self.mixed) && !tables;
            let flush = Flush { range: (!self.whole && !mixed).then_some(range), level: self.level, tables };
            self.level = Level::PGD;
            self.tlb.flush(self.context, flush);
        }
        let frames = self.tlb.frames();
        for folio in self.shared.drain(..) {
            if let Some(block) = frames.put(folio) {
                frames.free(block);
            }
        }
        while let Some(block) = self.free.pop(frames) {
            frames.free(block);
        }
    }
}

impl<P: Platform> Drop for Gather<'_, P> {
    fn drop(&mut self) {
        if self.among_others {
            self.context.end_clearing();
        }
        if self.is_empty() {
            return;
        }
        let frames = self.tlb.frames();
        let (shared, free) = (&mut self.shared, &mut self.free);
        self.tlb.abandon(self.context, |keep| {
            shared.drain(..).for_each(|folio| keep(Parked::Folio(folio)));
            while let Some(block) = free.pop(frames) {
                keep(Parked::Block(block));
            }
        });
        bomb::dropped(format_args!("INV-TLB-DEBT: gather dropped unsettled"));
    }
}
