//! Large folios for anonymous memory that is stored to for the first time.
//!
//! ```text
//!   2 MiB     deposit, tables ─▶ cleared folio ─▶ lock the table of the PMD level ─▶ one leaf
//!   smaller   tables          ─▶ cleared folio ─▶ lock the last-level table ─▶ a leaf a page
//! ```
//!
//! The largest size is tried first that the mapping may get, whose range it covers, and whose
//! entries are empty (`alloc_anon_folio`, `do_huge_pmd_anonymous_page`). If no folio of a size is
//! to be had, the next smaller one is tried, and at last a page. A deposit comes before its folio:
//! a folio is 2 MiB to clear, and a table one page. A table that cannot be had fails the fault, as
//! for a page.
//!
//! Not guaranteed: a large folio, if no block of its size is free. Whether the fault reclaims for
//! one is a setting (`defrag`).

use super::{Fault, FaultKind, FaultProgress};
use crate::error::FaultError;
use crate::settings::MmSetting;
use crate::space::VmFlags;
use crate::thp::ThpOrders;
use pagewright_arch::{Leaf, LeafFlags};
use pagewright_plant::{plant, planted};
use pagewright_sync::Platform;
use pagewright_table::{LockedTable, OwnedLeaf, TableReserve};
use pagewright_tlb::frames::{ClearExtent, NoFrames, ZeroedBlock};
use pagewright_types::{Counter, Level, Order, PAGE_SIZE, PageRange, Rights};

/// What a leaf of a new folio has.
const NEW_LEAF: LeafFlags = LeafFlags::USER
    .union(LeafFlags::ACCESSED)
    .union(LeafFlags::EXCLUSIVE)
    .union(LeafFlags::DIRTY)
    .union(LeafFlags::SOFT_DIRTY);

impl<'a, P: Platform> Fault<'a, P> {
    /// Maps a cleared large folio of one of `orders`; `None` if the fault gets a page instead.
    ///
    /// # Errors
    /// As for a page, if there is no frame for a table.
    #[cold]
    pub(super) fn map_large(&self, orders: ThpOrders) -> Result<Option<FaultProgress>, FaultError> {
        let mut reserve = TableReserve::new(&self.mm.tlb);
        for order in orders.largest_first() {
            let Some(around) = self.empty_range(order) else { continue };
            self.reserve_for(order, &mut reserve)?;
            let Ok(cleared) = self.cleared_large(order) else {
                if order == Order::PMD {
                    self.mm.tlb.count(Counter::ThpFaultFallback, 1);
                }
                continue;
            };
            let Some(locked) = self.lock_to_map_large(around, lowest_level(order), &mut reserve) else {
                self.mm.tlb.free(cleared.into_block());
                return Ok(Some(FaultProgress::RaceLost));
            };
            self.map_in(&locked, around, cleared, &mut reserve);
            return Ok(Some(FaultProgress::Done(FaultKind::Minor)));
        }
        Ok(None)
    }

    /// Maps the huge page of zeroes, for a load; `None` if the fault gets the small one instead.
    ///
    /// If that page is turned off, maps a huge page of the space's own, as Linux does.
    ///
    /// # Errors
    /// If there is no frame for a table.
    #[cold]
    pub(super) fn map_huge_zero_page(&self, orders: ThpOrders) -> Result<Option<FaultProgress>, FaultError> {
        if !orders.contains(Order::PMD) {
            return Ok(None);
        }
        if self.mm.settings.get(MmSetting::ThpUseZeroPage) == 0 {
            return self.map_large(ThpOrders::PMD);
        }
        let Some(around) = self.empty_range(Order::PMD) else { return Ok(None) };
        // As `do_huge_pmd_anonymous_page`, which does so before it looks at the kind of fault.
        self.vma.note_anon();
        let mut reserve = TableReserve::new(&self.mm.tlb);
        self.reserve_for(Order::PMD, &mut reserve)?;
        let Some(pfn) = self.mm.huge_zero_page() else {
            self.mm.tlb.count(Counter::ThpFaultFallback, 1);
            return Ok(None);
        };
        let Some(locked) = self.lock_to_map_large(around, Level::PMD, &mut reserve) else {
            return Ok(Some(FaultProgress::RaceLost));
        };
        let leaf =
            Leaf { pfn, rights: self.mapping_rights() - Rights::WRITE, flags: LeafFlags::USER | LeafFlags::ACCESSED };
        locked.run(self.vma.mlocked()).map_huge(around.start(), OwnedLeaf::special(leaf), &mut reserve);
        Ok(Some(FaultProgress::Done(FaultKind::Minor)))
    }

    /// Replaces a leaf of the huge page of zeroes by a folio of 2 MiB, for a store.
    ///
    /// Splits it if none can be had. Linux: `do_huge_zero_wp_pmd`.
    ///
    /// # Errors
    /// If there is no frame for a table.
    #[cold]
    pub(super) fn replace_huge_zero_page(&self) -> Result<FaultProgress, FaultError> {
        let mut reserve = TableReserve::new(&self.mm.tlb);
        self.mm.fill_deposits(&mut reserve, 1)?;
        let Ok(cleared) = self.cleared_large(Order::PMD) else {
            self.mm.tlb.count(Counter::ThpFaultFallback, 1);
            return Ok(self.split_huge());
        };
        let Some(locked) = self.lock_if_same_leaf() else {
            self.mm.tlb.free(cleared.into_block());
            return Ok(FaultProgress::RaceLost);
        };
        // INV-COW-ORDER, as for a page.
        let start = self.va.align_down(Level::PMD.span());
        let around = PageRange::new(start, start.add(Level::PMD.span()));
        self.mm.declare_reduced(self.space, around, Rights::empty());
        if let Some(debt) = locked.run(self.vma.mlocked()).unmap(start) {
            plant!(HugeZeroFlushLate => return Ok(self.map_in_unflushed(&locked, around, cleared, &mut reserve, debt)));
            debt.settle();
        }
        self.map_in(&locked, around, cleared, &mut reserve);
        Ok(FaultProgress::Done(FaultKind::Minor))
    }

    planted! {
        /// Maps a folio before the flush of the huge page of zeroes.
        fn map_in_unflushed(
            &self,
            locked: &LockedTable<'_, P>,
            around: PageRange,
            cleared: ZeroedBlock,
            reserve: &mut TableReserve<'a, P>,
            debt: pagewright_tlb::Debt<'_, P, OwnedLeaf>,
        ) -> FaultProgress {
            self.map_in(locked, around, cleared, reserve);
            debt.settle();
            FaultProgress::Done(FaultKind::Minor)
        }
    }

    /// Allocates the tables that a folio of `order` takes: those that are missing, and a deposit.
    fn reserve_for(&self, order: Order, reserve: &mut TableReserve<'a, P>) -> Result<(), NoFrames> {
        let missing = if self.is_table_missing() { self.found.level.raw() - lowest_level(order).raw() } else { 0 };
        self.mm.fill(reserve, usize::from(missing))?;
        self.mm.fill_deposits(reserve, usize::from(order == Order::PMD))
    }

    /// The aligned range of `order` around the fault, if a folio may be mapped there.
    ///
    /// The mapping covers it, all its entries are empty, and no other space shares their table
    /// (INV-HUGE-OWN).
    fn empty_range(&self, order: Order) -> Option<PageRange> {
        let bytes = u64::from(order.frames()) * PAGE_SIZE;
        let around = PageRange::from_len(self.va.align_down(bytes), bytes).ok()?;
        if self.is_shared() || !self.vma.range(self.start).covers(around) {
            return None;
        }
        let is_empty = self.found.level > Level::PTE || order < Order::PMD && self.found.is_empty_now(around);
        is_empty.then_some(around)
    }

    /// Maps a cleared folio in `around`, whose entries in a locked table are empty.
    fn map_in(
        &self,
        locked: &LockedTable<'_, P>,
        around: PageRange,
        cleared: ZeroedBlock,
        reserve: &mut TableReserve<'a, P>,
    ) {
        self.vma.note_anon();
        let (start, rights) = (around.start(), self.mapping_rights());
        let index = self.linear_index() - (self.va.page_index() - start.page_index());
        let new = self.mm.new_anon(self.space, cleared.into_block(), index);
        let mut run = locked.run(self.vma.mlocked());
        if locked.level() == Level::PMD {
            run.map_new_huge(start, new, rights, NEW_LEAF, reserve);
            self.mm.tlb.count(Counter::ThpFaultAlloc, 1);
        } else {
            run.map_new_pages(start, new, rights, NEW_LEAF);
            self.mm.tlb.count(Counter::PwMthpFaultAlloc, 1);
        }
    }

    /// Allocates and clears a folio.
    fn cleared_large(&self, order: Order) -> Result<ZeroedBlock, NoFrames> {
        let (request, extent) = (self.mm.request(order, self.policy()), ClearExtent::of_order(order));
        let cleared = if self.may_reclaim_for_large() {
            self.mm.alloc_zeroed(request, extent)?
        } else {
            self.mm.tlb.alloc_zeroed(request, extent)?
        };
        self.mm.tlb.count(Counter::PwZeroed, u64::from(order.frames()));
        Ok(cleared)
    }

    /// Whether the fault reclaims memory for a large folio (`vma_thp_gfp_mask`).
    fn may_reclaim_for_large(&self) -> bool {
        let advised = self.vma.flags().contains(VmFlags::HUGEPAGE);
        match self.mm.settings.get(MmSetting::ThpDefrag) {
            0 => true,
            2 | 3 => advised,
            _ => false,
        }
    }

    /// Locks the table of the level `lowest`, which it makes if it was missing.
    ///
    /// `None` if an entry of `around` is not empty now.
    fn lock_to_map_large(
        &self,
        around: PageRange,
        lowest: Level,
        reserve: &mut TableReserve<'a, P>,
    ) -> Option<LockedTable<'a, P>> {
        let own = self.tables.try_own(PageRange::page(self.va))?;
        if self.is_table_missing() {
            own.ensure(around.start(), lowest, reserve);
        }
        let locked = own.lock_level(around.start(), lowest)?;
        let is_empty = || locked.entries(around).all(|va| locked.is_empty(va));
        (locked.level() == lowest && plant!(HugeOverTable; true, is_empty())).then_some(locked)
    }
}

/// The level of the leaves that map a folio.
fn lowest_level(order: Order) -> Level {
    if order == Order::PMD { Level::PMD } else { Level::PTE }
}
