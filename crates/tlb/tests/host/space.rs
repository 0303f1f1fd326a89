//! A space of one last-level table, made by hand, for tests that stand below the crate of tables.

use crate::support::Delivery;
use crate::support::{Host, engine_with};
use pagewright_arch::{Caps, Effects, Isa, Leaf, LeafFlags, Pte, PteSlot, TableEntry};
use pagewright_sync::Arc as SyncArc;
use pagewright_tlb::frames::{FolioRef, FrameState};
use pagewright_tlb::{
    Batch, BatchPolicy, Debt, Family, FamilyDebt, FlushInfo, Gather, LazyBatch, OwedFlush, Tlb, TlbConfig, TlbContext,
};
use pagewright_types::{DebtKey, Level, Order, PAGE_SIZE, PageRange, Pfn, Rights, VirtAddr};
use std::sync::Arc;

/// Frames of the machines here.
pub(crate) const FRAMES: u32 = 1024;

/// First address of the span that a [`Space`] can map.
const BASE: u64 = 0x4000_0000;

/// A machine of `cpus` CPUs with an engine.
pub(crate) fn machine<I: Isa>(cpus: usize) -> (Host<I>, Arc<Tlb<Host<I>>>) {
    machine_with(cpus, Caps::baseline(I::KIND), BatchPolicy::Auto)
}

/// As [`machine`], with what it can do and when it puts flushes off.
pub(crate) fn machine_with<I: Isa>(cpus: usize, caps: Caps, batch: BatchPolicy) -> (Host<I>, Arc<Tlb<Host<I>>>) {
    let host = Host::new(cpus, FRAMES, caps, Delivery::AtOnce);
    let tlb = engine_with(&host, FRAMES, TlbConfig { batch, ..TlbConfig::default() });
    (host, tlb)
}

/// Whether the allocator has a frame.
pub(crate) fn is_free<I: Isa>(tlb: &Tlb<Host<I>>, pfn: Pfn) -> bool {
    matches!(tlb.frames().state(pfn), FrameState::Free | FrameState::Pcp | FrameState::Interior)
}

/// A family of these spaces.
pub(crate) fn family_of<I: Isa>(members: &[&SyncArc<TlbContext>]) -> SyncArc<Family<Host<I>>> {
    let family = Family::try_new().expect("memory is left");
    members.iter().for_each(|member| family.join(member).expect("memory is left"));
    family
}

/// The page of a space with this number.
pub(crate) fn page(index: u16) -> VirtAddr {
    VirtAddr::new(BASE + u64::from(index) * PAGE_SIZE)
}

/// The flush of the first `count` pages.
pub(crate) fn flush_of(count: u64) -> FlushInfo {
    let range = PageRange::new(page(0), page(0).add(count * PAGE_SIZE));
    FlushInfo { range: Some(range), level: Level::PTE, freed_tables: false }
}

/// A root, the tables down to one last-level table, and the context.
pub(crate) struct Space<I: Isa> {
    pub(crate) tlb: Arc<Tlb<Host<I>>>,
    pub(crate) context: SyncArc<TlbContext>,
    pub(crate) pmd: Pfn,
    last: Pfn,
}

impl<I: Isa> Space<I> {
    pub(crate) fn new(tlb: &Arc<Tlb<Host<I>>>) -> Self {
        Self::over(tlb, None)
    }

    /// A space that shares the last-level table of `other`.
    pub(crate) fn sharing(other: &Self) -> Self {
        other.tlb.frames().table(other.last).share();
        Self::over(&other.tlb, Some(other.last))
    }

    fn over(tlb: &Arc<Tlb<Host<I>>>, last: Option<Pfn>) -> Self {
        let table = |level| {
            let block = tlb.alloc(tlb.request(Order::ZERO)).expect("memory is left");
            tlb.fx().zero(block.pfn(), Order::ZERO);
            tlb.frames().new_table(block, level, pagewright_types::SpaceId::new(1))
        };
        let [pgd, pud, pmd] = [Level::PGD, Level::PUD, Level::PMD].map(table);
        let tables = [pgd, pud, pmd, last.unwrap_or_else(|| table(Level::PTE))];
        for (depth, pair) in tables.windows(2).enumerate() {
            let level = Level::new(3 - depth as u8);
            let slot = PteSlot { table: pair[0], index: level.index_of(page(0)) as u16 };
            let write_protected = level == Level::PMD && last.is_some();
            tlb.fx().store(slot, I::table(TableEntry { pfn: pair[1], write_protected, origin: false }));
        }
        let context = tlb.open_context(tables[0]).expect("memory is left");
        Self { tlb: tlb.clone(), context, pmd: tables[2], last: tables[3] }
    }

    pub(crate) fn slot(&self, index: u16) -> PteSlot {
        PteSlot { table: self.last, index }
    }

    /// Where the pointer to the last-level table stands.
    pub(crate) fn above(&self) -> PteSlot {
        PteSlot { table: self.pmd, index: Level::PMD.index_of(page(0)) as u16 }
    }

    pub(crate) fn last(&self) -> Pfn {
        self.last
    }

    /// Maps a frame and says nothing to anybody.
    pub(crate) fn map(&self, index: u16, pfn: Pfn) {
        let leaf = Leaf { pfn, rights: Rights::RW, flags: LeafFlags::USER | LeafFlags::ACCESSED | LeafFlags::DIRTY };
        self.tlb.fx().store(self.slot(index), I::leaf(Level::PTE, leaf));
    }

    /// Maps a page of a folio of its own, whose only reference stands in the entry from now on.
    pub(crate) fn map_new(&self, index: u16) -> Pfn {
        let block = self.tlb.alloc(self.tlb.request(Order::ZERO)).expect("memory is left");
        let pfn = self.tlb.frames().new_folio(block).into_raw();
        self.map(index, pfn);
        pfn
    }

    /// Clears an entry; the debt has its reference.
    pub(crate) fn unmap(&self, index: u16, pfn: Pfn) -> Debt<'_, Host<I>, FolioRef> {
        self.tlb.fx().swap(self.slot(index), Pte::EMPTY);
        let folio = take_back(&self.tlb, pfn);
        Debt::new(&self.tlb, &self.context, page(index), OwedFlush::Leaf(Level::PTE), folio).at(self.slot(index))
    }

    /// Clears an entry that holds no reference.
    pub(crate) fn clear(&self, index: u16) -> Debt<'_, Host<I>, ()> {
        self.tlb.fx().swap(self.slot(index), Pte::EMPTY);
        Debt::new(&self.tlb, &self.context, page(index), OwedFlush::Leaf(Level::PTE), ()).at(self.slot(index))
    }

    /// Clears an entry for all of `members`, whose flushes a batch defers.
    pub(crate) fn clear_for_all<'t>(
        &'t self,
        members: &[&SyncArc<TlbContext>],
        batch: &mut Batch<'t, Host<I>>,
        index: u16,
    ) {
        let family = family_of::<I>(members);
        FamilyDebt::new(Some(&family.token()), self.clear(index)).absorb_into(batch, &self.context);
    }

    /// Clears an entry that holds no reference, and lets its translations linger; their key.
    ///
    /// The entry allowed no store, and another CPU runs the space.
    pub(crate) fn linger(&self, index: u16) -> DebtKey {
        let mut lazy = LazyBatch::new(&self.tlb, true);
        lazy.begin_folio(true);
        let debt = FamilyDebt::new(None, self.clear(index).cleared(Rights::READ));
        assert!(debt.absorb_lazily(&mut lazy, &self.context) && lazy.end_folio(), "entry {index} may not linger");
        lazy.settle()
    }

    /// An operation that depends on the entries of the last-level table.
    pub(crate) fn depend(&self) {
        let mut gather = Gather::new(&self.tlb, &self.context);
        gather.meet(self.last);
        gather.settle();
    }

    /// Makes this CPU run the space.
    pub(crate) fn run(&self) {
        self.tlb.switch_to(&self.context);
    }
}

/// Takes back the reference that an entry held.
pub(crate) fn take_back<I: Isa>(tlb: &Tlb<Host<I>>, pfn: Pfn) -> FolioRef {
    // SAFETY: INV-FRAME-REFS – the test put it in the entry, and ends the entry.
    unsafe { tlb.frames().folio_ref_from_raw(pfn) }
}
