//! The debt that a page-table edit returns.

use crate::context::Context;
use crate::engine::Tlb;
use pagewright_frame::{Block, FolioRef};
use pagewright_sync::{Platform, bomb};
use pagewright_types::{Level, PageRange, VirtAddr};

/// What an edit took away from whoever still holds the old entry in a TLB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owed {
    /// Nothing: no TLB can hold more than the new entry allows.
    Nothing,
    /// A leaf went, or allows less.
    Leaf(Level),
    /// A table was unhooked: walk caches, too, must forget it.
    Table(Level),
}

/// Something detached from a page table, on its way back to the allocator.
#[derive(Debug)]
pub enum Parked {
    /// A reference that a leaf held.
    Folio(FolioRef),
    /// Frames that nobody refers to any more, such as a table page.
    Block(Block),
}

/// A detached thing that can be given up piece by piece once the debt is settled.
pub trait Park: Sized {
    /// Hands every piece to `keep`.
    fn park(self, keep: &mut dyn FnMut(Parked));
}

impl Park for () {
    fn park(self, _keep: &mut dyn FnMut(Parked)) {}
}

impl Park for FolioRef {
    fn park(self, keep: &mut dyn FnMut(Parked)) {
        keep(Parked::Folio(self));
    }
}

impl Park for Block {
    fn park(self, keep: &mut dyn FnMut(Parked)) {
        keep(Parked::Block(self));
    }
}

impl<T: Park> Park for Option<T> {
    fn park(self, keep: &mut dyn FnMut(Parked)) {
        if let Some(parked) = self {
            parked.park(keep);
        }
    }
}

/// An unpaid flush, and what the edit detached, which must not be reused before it is paid.
///
/// Give it to a [`crate::Gather`] ([`crate::Gather::absorb`]) or pay it at once ([`Debt::settle`]).
///
/// # Panics
/// INV-TLB-DEBT: dropped in a debug build. In a release build what it parks goes to the ledger, and
/// is settled when it is next allocated.
#[must_use = "a page-table edit owes a TLB flush: absorb the debt into a Gather or settle it"]
pub struct Debt<'t, P: Platform, T: Park> {
    tlb: &'t Tlb<P>,
    context: &'t Context,
    owed: Owed,
    va: VirtAddr,
    parked: Option<T>,
}

impl<'t, P: Platform, T: Park> Debt<'t, P, T> {
    /// The debt left by an edit of the entry for `va`, holding what the edit detached.
    #[inline]
    pub fn new(tlb: &'t Tlb<P>, context: &'t Context, va: VirtAddr, owed: Owed, parked: T) -> Self {
        Self { tlb, context, owed, va, parked: Some(parked) }
    }

    /// What is owed.
    pub fn owed(&self) -> Owed {
        self.owed
    }

    /// What the edit detached.
    #[inline]
    pub fn parked(&self) -> &T {
        // `parked` is taken only by the consuming methods below.
        self.parked.as_ref().expect("a live debt holds what it parks")
    }

    /// The context whose translations are owed.
    pub(crate) fn context(&self) -> &'t Context {
        self.context
    }

    /// Takes the debt apart; the caller now owes.
    #[inline]
    pub(crate) fn dissolve(mut self) -> (Owed, VirtAddr, T) {
        let parked = self.parked.take().expect("a live debt holds what it parks");
        (self.owed, self.va, parked)
    }

    /// Flushes now, frees what was parked.
    pub fn settle(self) {
        let mut gather = crate::Gather::new(self.tlb, self.context);
        gather.absorb(self);
        gather.settle();
    }

    /// The pages whose translations are owed.
    #[inline]
    pub fn range(&self) -> PageRange {
        let span = match self.owed {
            Owed::Nothing => Level::PTE.span(),
            Owed::Leaf(level) | Owed::Table(level) => level.span(),
        };
        let start = self.va.align_down(span);
        PageRange::new(start, start.add(span))
    }
}

impl<P: Platform> Debt<'_, P, ()> {
    /// Flushes now, for who relies on no entry but the one that he edited: where that owes nothing,
    /// it is not asked what others have put off (INV-TLB-DEFERRED).
    #[inline]
    pub fn settle_alone(self) {
        if self.owed == Owed::Nothing {
            self.dissolve();
        } else {
            self.settle();
        }
    }
}

impl<P: Platform, T: Park> Drop for Debt<'_, P, T> {
    #[inline]
    fn drop(&mut self) {
        let Some(parked) = self.parked.take() else { return };
        self.tlb.abandon(self.context, |keep| parked.park(keep));
        bomb::dropped(format_args!("INV-TLB-DEBT: debt of {:?} at {} dropped unpaid", self.owed, self.va));
    }
}
