//! A small page-table writer, so that tests need no memory manager.
//!
//! Frames are allocated in order and never freed.

use pagewright_arch::{Effects, Entry, Isa, Leaf, LeafFlags, Pte, PteSlot, TableEntry};
use pagewright_sim::{MachineConfig, Sim};
use pagewright_types::{CpuId, Level, Pfn, Rights, Tag, VirtAddr};
use std::cell::Cell;

/// A machine with a bump allocator of frames.
pub(crate) struct Bench<I: Isa> {
    pub(crate) sim: Sim<I>,
    next: Cell<u32>,
}

pub(crate) const CPU0: CpuId = CpuId::new(0);

#[allow(dead_code, reason = "each test binary uses a part of it")]
impl<I: Isa> Bench<I> {
    /// Makes the default machine of `I`, with its configuration changed by `change`.
    pub(crate) fn with(change: impl FnOnce(&mut MachineConfig)) -> Self {
        let mut config = MachineConfig::default_for(I::KIND).expect("the default profile");
        change(&mut config);
        Self { sim: Sim::new(config).expect("a possible machine"), next: Cell::new(1) }
    }

    /// Makes the default machine of `I`.
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    /// Makes a small machine whose CPUs all run a space with one writable page, under tag 1.
    ///
    /// Also returns the slot of the entry of that page.
    pub(crate) fn with_one_page(cpus: u16) -> (Self, PteSlot) {
        let bench = Self::with(|config| {
            config.cpus = cpus;
            config.nodes[0].bytes = 1 << 20;
        });
        let root = bench.frame(Level::PTE);
        bench.map(root, Level::PTE, page(0), Rights::RW, LeafFlags::empty());
        let slot = bench.slot(root, Level::PTE, page(0));
        (0..cpus).for_each(|cpu| bench.switch(CpuId::new(cpu), root, 1));
        (bench, slot)
    }

    /// Allocates a frame that is aligned for a leaf of `level`.
    pub(crate) fn frame(&self, level: Level) -> Pfn {
        let frames = level.pages() as u32;
        let pfn = self.next.get().next_multiple_of(frames);
        self.next.set(pfn + frames);
        Pfn::new(pfn)
    }

    /// The slot of the entry of `level` for `va`; missing tables are allocated.
    pub(crate) fn slot(&self, root: Pfn, level: Level, va: VirtAddr) -> PteSlot {
        let mut slot = PteSlot { table: root, index: Level::PGD.index_of(va) as u16 };
        let mut at = Level::PGD;
        while at > level {
            let below = at.down().expect("above a leaf");
            let table = match I::decode(at, self.sim.load(slot)) {
                Entry::Table(table) => table.pfn,
                Entry::Empty | Entry::Soft(_) | Entry::Leaf(_) => {
                    let pfn = self.frame(Level::PTE);
                    self.sim.store(slot, I::table(TableEntry::own(pfn)));
                    pfn
                }
            };
            slot = PteSlot { table, index: below.index_of(va) as u16 };
            at = below;
        }
        slot
    }

    /// Maps a new frame at `va` and returns it.
    pub(crate) fn map(&self, root: Pfn, level: Level, va: VirtAddr, rights: Rights, flags: LeafFlags) -> Pfn {
        let pfn = self.frame(level);
        self.put(root, level, va, I::leaf(level, Leaf { pfn, rights, flags: flags | LeafFlags::USER }));
        pfn
    }

    /// Stores an entry without a flush.
    pub(crate) fn put(&self, root: Pfn, level: Level, va: VirtAddr, pte: Pte) {
        self.sim.store(self.slot(root, level, va), pte);
        self.sim.publish();
    }

    /// Loads `root` on `cpu` under `tag`.
    pub(crate) fn switch(&self, cpu: CpuId, root: Pfn, tag: u16) {
        self.sim.run_on(cpu, || self.sim.install_root(root, Tag::new(tag), true));
    }
}

/// The address of page `page` in the user memory of the tests.
pub(crate) fn page(page: u64) -> VirtAddr {
    VirtAddr::new((1 << 30) + (page << 12))
}
