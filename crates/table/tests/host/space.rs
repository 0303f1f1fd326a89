//! A tree on a machine, and shorthand for what tests do to it.

use crate::support::{Delivery, Host, engine};
use pagewright_arch::{Caps, Effects, Isa, Leaf, LeafFlags, PteSlot};
use pagewright_table::{EntryRun, LockedTable, Mlocked, MmapLock, OwnedLeaf, PageTable, TableReserve};
use pagewright_tlb::frames::Block;
use pagewright_tlb::{Gather, Tlb, TlbContext};
use pagewright_types::{Level, Order, PageRange, Pfn, Rights, VirtAddr};
use std::sync::Arc;

/// Frames of the machines here: room for a few blocks of 2 MiB.
pub(crate) const FRAMES: u32 = 4096;

/// Another tree on the same machine.
pub(crate) type Child<I> = MmapLock<Host<I>, ()>;

/// A space without tables below its root, and without mappings.
pub(crate) fn new_lock<I: Isa>(tlb: &Tlb<Host<I>>) -> MmapLock<Host<I>, ()> {
    let mut reserve = TableReserve::new(tlb);
    reserve.fill(1).expect("memory is left");
    MmapLock::try_new(&mut reserve, |_| ()).expect("memory is left")
}

/// Whether a range has one table of the last level, so that a child has all others for itself.
pub(crate) fn is_of_last_table(range: PageRange) -> bool {
    range.len() <= Level::PMD.span()
}

/// A machine, its engine and a tree.
pub(crate) struct Space<I: Isa> {
    pub(crate) host: Host<I>,
    pub(crate) tlb: Arc<Tlb<Host<I>>>,
    pub(crate) mmap: MmapLock<Host<I>, ()>,
    /// Frames free before the tree was made.
    pub(crate) free: u64,
}

impl<I: Isa> Space<I> {
    pub(crate) fn new(cpus: usize, delivery: Delivery) -> Self {
        Self::on(cpus, delivery, Caps::baseline(I::KIND))
    }

    /// The same on a machine with these capabilities.
    pub(crate) fn on(cpus: usize, delivery: Delivery, caps: Caps) -> Self {
        let host = Host::new(cpus, FRAMES, caps, delivery);
        let tlb = engine(&host, FRAMES);
        let free = tlb.frames().available();
        let mmap = new_lock(&tlb);
        Self { host, tlb, mmap, free }
    }

    /// Makes the tables for `va` down to `level`, with exactly what they take.
    pub(crate) fn ensure_tables(&self, va: VirtAddr, level: Level) -> usize {
        let mut reserve = TableReserve::new(&self.tlb);
        let missing = self.mmap.read().tables(&self.tlb).missing(va, level);
        reserve.fill(missing).expect("memory is left");
        let hooked = self.ensure_from(va, level, &mut reserve);
        assert_eq!(hooked, missing);
        assert!(reserve.is_empty(), "INV-TABLE-RESERVE: {missing} tables were missing for {va}, and one was not");
        missing
    }

    /// Maps a frame that has no folio.
    pub(crate) fn map_special(&self, va: VirtAddr, level: Level, pfn: Pfn) {
        self.ensure_tables(va, level);
        self.map_owned(va, level, special(pfn));
    }

    /// Maps a leaf of any level in a table that exists.
    pub(crate) fn map_owned(&self, va: VirtAddr, level: Level, leaf: OwnedLeaf) {
        let mut reserve = TableReserve::new(&self.tlb);
        reserve.fill_deposits(usize::from(level == Level::PMD)).expect("memory is left");
        self.edit(va, level, |run| map_at(run, va, leaf, &mut reserve)).expect("a table");
    }

    pub(crate) fn ensure_from(&self, va: VirtAddr, level: Level, reserve: &mut TableReserve<'_, Host<I>>) -> usize {
        self.mmap.read().tables(&self.tlb).owned(PageRange::page(va)).ensure(va, level, reserve)
    }

    /// Forks a child that shares what `may_share` allows; returns whether that is every table.
    pub(crate) fn fork(&self, may_share: impl Fn(PageRange) -> bool) -> (Child<I>, bool) {
        let child = new_lock(&self.tlb);
        let complete = {
            let (mut from, mut to) = (self.mmap.write(), child.write());
            from.add_to_family(&mut to).expect("memory is left");
            let mut gather = Gather::new(&self.tlb, self.context());
            let complete = from.share_tables(&to, &self.tlb, may_share, |reserve| reserve.fill(1), &mut gather);
            gather.settle();
            complete.expect("memory is left")
        };
        (child, complete)
    }

    pub(crate) fn table(&self) -> &PageTable {
        self.mmap.table()
    }

    pub(crate) fn context(&self) -> &pagewright_sync::Arc<TlbContext> {
        self.mmap.table().context()
    }

    /// Locks the table of `level` for `va`, or that of a leaf above; `None` without either.
    pub(crate) fn locked<R>(
        &self,
        va: VirtAddr,
        level: Level,
        body: impl FnOnce(&LockedTable<'_, Host<I>>) -> R,
    ) -> Option<R> {
        let held = self.mmap.read();
        let locked = held.tables(&self.tlb).owned(PageRange::page(va)).lock_level(va, level)?;
        Some(body(&locked))
    }

    /// The same, for edits.
    pub(crate) fn edit<R>(
        &self,
        va: VirtAddr,
        level: Level,
        body: impl FnOnce(&mut EntryRun<'_, '_, Host<I>>) -> R,
    ) -> Option<R> {
        self.locked(va, level, |table| body(&mut table.run(Mlocked(false))))
    }

    /// The frame of the table of `level` for `va`.
    pub(crate) fn table_at(&self, va: VirtAddr, level: Level) -> Option<Pfn> {
        self.locked(va, level, |table| (table.level() == level).then(|| table.table())).flatten()
    }

    pub(crate) fn split(&self, va: VirtAddr) -> bool {
        self.mmap.read().tables(&self.tlb).owned(PageRange::page(va)).split_leaf(va, Mlocked(false))
    }

    /// Takes the frame of a root that was closed, and fills it with what reads as entries.
    pub(crate) fn reuse_root(&self, root: Pfn) -> Block {
        let block = self.tlb.alloc(self.tlb.request(Order::ZERO)).expect("memory is left");
        assert_eq!(block.pfn(), root);
        let junk = I::leaf(Level::PTE, special(Pfn::new(77)).leaf());
        (0..512).for_each(|index| self.host.store(PteSlot { table: root, index }, junk));
        block
    }

    pub(crate) fn free_tables(&self, range: PageRange, limits: PageRange, gather: &mut Gather<'_, Host<I>>) {
        let held = self.mmap.write();
        held.free_tables(held.tables(&self.tlb).owned(limits), range, limits, gather);
    }
}

/// Maps a leaf of the level of the table.
pub(crate) fn map_at<I: Isa>(
    run: &mut EntryRun<'_, '_, Host<I>>,
    va: VirtAddr,
    leaf: OwnedLeaf,
    reserve: &mut TableReserve<'_, Host<I>>,
) {
    match run.table().level() {
        Level::PTE => run.map(va, leaf),
        _ => run.map_huge(va, leaf, reserve),
    }
}

/// A readable and writable leaf without a folio.
pub(crate) fn special(pfn: Pfn) -> OwnedLeaf {
    OwnedLeaf::special(Leaf { pfn, rights: Rights::RW, flags: LeafFlags::USER | LeafFlags::ACCESSED })
}
