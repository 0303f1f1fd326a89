//! A tree on a machine, and shorthand for what tests do to it.

use crate::support::{Delivery, Host, engine};
use pagewright_arch::{Caps, Isa, Leaf, LeafFlags};
use pagewright_table::{OwnedLeaf, PageTable, TableReserve};
use pagewright_tlb::Tlb;
use pagewright_types::{Level, Pfn, Rights, VirtAddr};
use std::sync::Arc;

/// Frames of the machines here: room for a few blocks of 2 MiB.
pub(crate) const FRAMES: u32 = 4096;

/// A machine, its engine and a tree.
pub(crate) struct Space<I: Isa> {
    pub(crate) host: Host<I>,
    pub(crate) tlb: Arc<Tlb<Host<I>>>,
    pub(crate) table: PageTable,
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
        let table = PageTable::try_new(&tlb).expect("memory is left");
        Self { host, tlb, table, free }
    }

    /// Makes the tables for `va` down to `level`, with exactly what they take.
    pub(crate) fn ensure_tables(&self, va: VirtAddr, level: Level) -> usize {
        let mut reserve = TableReserve::new(&self.tlb);
        let missing = self.table.missing_tables(&self.tlb, va, level);
        reserve.fill(missing).expect("memory is left");
        self.table.ensure_tables(&self.tlb, va, level, &mut reserve);
        assert!(reserve.is_empty(), "INV-TABLE-RESERVE: {missing} tables were missing for {va}, and one was not");
        missing
    }

    /// Maps a frame that has no folio.
    pub(crate) fn map_special(&self, va: VirtAddr, level: Level, pfn: Pfn) {
        self.ensure_tables(va, level);
        let locked = self.table.lock(&self.tlb, va, level).expect("just made");
        locked.install(va, special(pfn));
    }
}

/// A readable and writable leaf without a folio.
pub(crate) fn special(pfn: Pfn) -> OwnedLeaf {
    OwnedLeaf::special(Leaf { pfn, rights: Rights::RW, flags: LeafFlags::USER | LeafFlags::ACCESSED })
}
