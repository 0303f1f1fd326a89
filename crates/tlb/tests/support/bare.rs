//! A space of one last-level table on an explored machine, for programs that use `tlb` alone.
//!
//! There is no memory manager.

// Each test file uses its own part of this.
#![allow(dead_code, unused_imports)]

use pagewright_arch::{Effects, Entry, Isa, Leaf, LeafFlags, Pte, PteSlot, TableEntry};
use pagewright_check::{Attempt, Chooser, HarnessLock, RunDetail, Search, SearchPlan, Testbench, search};
use pagewright_sim::explore::{CoroutineBody, ExploreSettings, RunEnd};
use pagewright_sim::{MachineConfig, Profile, Sim};
use pagewright_sync::Arc;
use pagewright_tlb::frames::{Block, FolioRef, FrameAllocator, MemoryLayout, NodeSpec};
use pagewright_tlb::{BatchPolicy, Debt, Gather, OwedFlush, Tlb, TlbConfig, TlbContext};
use pagewright_types::judge::Fact;
use pagewright_types::{Access, Counter, CpuId, Level, Order, PAGE_SIZE, PageRange, Pfn, Rights, SpaceId, VirtAddr};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

pub(crate) fn page(index: u16) -> VirtAddr {
    VirtAddr::new(0x4000_0000 + u64::from(index) * PAGE_SIZE)
}

/// What is asked for when a machine is made.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) cpus: u16,
    pub(crate) pages: u16,
    /// Whether user mode has a tag of its own.
    pub(crate) isolated: bool,
    pub(crate) batch: BatchPolicy,
}

/// A space of a few pages that all CPUs run and have read, and no frame left but those pages'.
pub(crate) struct Bare<I: Isa> {
    pub(crate) bench: Testbench<I>,
    pub(crate) tlb: Rc<Tlb<Sim<I>>>,
    pub(crate) context: Arc<TlbContext>,
    /// The lock of the last-level table: a program that edits an entry holds it.
    pub(crate) table: HarnessLock<()>,
    pub(crate) pages: u16,
    last: Pfn,
    /// The entry that points to the last-level table.
    above: PteSlot,
    taken: RefCell<Vec<Block>>,
}

impl<I: Isa> Bare<I> {
    pub(crate) fn new(shape: Shape) -> Rc<Self> {
        Self::on(Profile::named(Profile::default_for(I::KIND)).expect("a shipped profile"), shape)
    }

    /// The same with the costs and the abilities of a machine.
    pub(crate) fn on(profile: Profile, shape: Shape) -> Rc<Self> {
        let mut config = MachineConfig::new(profile);
        config.cpus = shape.cpus;
        config.isolated = shape.isolated;
        config.nodes.truncate(1);
        config.nodes[0].bytes = 1 << 20;
        let bench = Testbench::<I>::new(config).expect("a possible machine");
        let sim = bench.sim().clone();
        let (tlb, context, above, last) = sim.run_on(CpuId::new(0), || start(&sim, shape.batch));
        let handler = Rc::downgrade(&tlb);
        sim.bind_ipi_handler(Rc::new(move |_| {
            if let Some(tlb) = handler.upgrade() {
                tlb.handle_ipi();
            }
        }));
        let (table, pages) = (HarnessLock::new(()), shape.pages);
        let bare = Self { bench, tlb, context, table, pages, last, above, taken: RefCell::default() };
        for cpu in (0..shape.cpus).map(CpuId::new) {
            sim.run_on(cpu, || bare.tlb.switch_to(&bare.context));
        }
        sim.run_on(CpuId::new(0), || {
            (0..shape.pages).for_each(|index| bare.map(index));
            while bare.take_frame() {}
        });
        for cpu in (0..shape.cpus).map(CpuId::new) {
            assert!((0..shape.pages).all(|index| bare.reads(cpu, index)), "all pages are mapped");
        }
        Rc::new(bare)
    }

    pub(crate) fn sim(&self) -> &Sim<I> {
        self.bench.sim()
    }

    pub(crate) fn slot(&self, index: u16) -> PteSlot {
        PteSlot { table: self.last, index }
    }

    /// Maps a frame of its own.
    ///
    /// The caller holds the table.
    ///
    /// # Panics
    /// When none is left.
    pub(crate) fn map(&self, index: u16) {
        let block = self.tlb.alloc(self.tlb.request(Order::ZERO)).expect("memory is left");
        self.map_folio(index, self.tlb.frames().new_folio(block));
    }

    pub(crate) fn map_folio(&self, index: u16, folio: FolioRef) {
        let flags = LeafFlags::USER | LeafFlags::ACCESSED | LeafFlags::DIRTY;
        let leaf = Leaf { pfn: folio.into_raw(), rights: Rights::RW, flags };
        self.tlb.fx().store(self.slot(index), I::leaf(Level::PTE, leaf));
        self.tlb.fx().publish();
    }

    /// The frame of a mapped page.
    pub(crate) fn frame(&self, index: u16) -> Pfn {
        match I::decode(Level::PTE, self.tlb.fx().load(self.slot(index))) {
            Entry::Leaf(leaf) => leaf.pfn,
            Entry::Empty | Entry::Soft(_) | Entry::Table(_) => panic!("page {index} is not mapped"),
        }
    }

    pub(crate) fn is_mapped(&self, index: u16) -> bool {
        I::decode(Level::PTE, self.tlb.fx().load(self.slot(index))) != Entry::Empty
    }

    /// Clears the entry; the debt has its reference.
    ///
    /// The caller holds the table.
    pub(crate) fn unmap(&self, index: u16) -> Debt<'_, Sim<I>, FolioRef> {
        self.unmap_by(&self.tlb, index)
    }

    /// As [`Self::unmap`], for a debt that lives as long as another handle to the engine.
    pub(crate) fn unmap_by<'t>(&'t self, tlb: &'t Tlb<Sim<I>>, index: u16) -> Debt<'t, Sim<I>, FolioRef> {
        let old = tlb.fx().swap(self.slot(index), Pte::EMPTY);
        let Entry::Leaf(leaf) = I::decode(Level::PTE, old) else { unreachable!("it was mapped") };
        // SAFETY: INV-FRAME-REFS – the entry held a reference, and is empty now.
        let folio = unsafe { tlb.frames().folio_ref_from_raw(leaf.pfn) };
        Debt::new(tlb, &self.context, page(index), OwedFlush::Leaf(Level::PTE), folio).at(self.slot(index))
    }

    /// Clears the pointer to the last-level table; the debt has the table.
    ///
    /// The caller has unmapped all pages.
    pub(crate) fn unhook(&self) -> Debt<'_, Sim<I>, Block> {
        self.tlb.fx().store(self.above, Pte::EMPTY);
        // SAFETY: INV-FRAME-TABLE – the only pointer to the table was just cleared.
        let table = unsafe { self.tlb.frames().retire(self.last) };
        Debt::new(&self.tlb, &self.context, page(0), OwedFlush::Table(Level::PMD), table)
    }

    /// Whether the entry above points to the last-level table, for a lockless walker.
    pub(crate) fn has_table(&self) -> bool {
        matches!(I::decode(Level::PMD, self.tlb.fx().load(self.above)), Entry::Table(_))
    }

    /// Takes a frame, if one is left.
    pub(crate) fn take_frame(&self) -> bool {
        let block = self.tlb.alloc(self.tlb.request(Order::ZERO)).ok();
        let taken = block.is_some();
        self.taken.borrow_mut().extend(block);
        taken
    }

    /// Gives one of the frames taken back, so that it can be mapped.
    pub(crate) fn give_frame(&self) {
        let block = self.taken.borrow_mut().pop();
        self.tlb.free(block.expect("one was taken"));
    }

    pub(crate) fn reads(&self, cpu: CpuId, index: u16) -> bool {
        self.sim().access(cpu, page(index), Access::Read, 1).is_ok()
    }

    /// This CPU's call takes all rights to a page, or gives it to another frame.
    pub(crate) fn takes_away(&self, index: u16) {
        let (root, range) = (self.context.root(), PageRange::page(page(index)));
        self.tlb.fx().declare(Fact::RightReduced { root, range, left: Rights::empty() });
    }

    /// An operation that depends on entries of the table, as it finds them.
    pub(crate) fn depends(&self) {
        let mut gather = Gather::new(&self.tlb, &self.context);
        {
            let _table = self.table.lock();
            gather.meet(self.slot(0).table);
        }
        gather.settle();
    }

    /// This CPU's call returns.
    pub(crate) fn returns(&self) {
        self.tlb.fx().declare(Fact::CallReturned);
    }

    pub(crate) fn count(&self, counter: Counter) -> u64 {
        self.tlb.frames().counters().sum(counter)
    }

    /// Runs programs under a chooser; `seen` is asked before the machine goes.
    pub(crate) fn run(
        self: Rc<Self>,
        programs: Vec<CoroutineBody>,
        seen: &mut dyn FnMut(&Self),
        chooser: &mut dyn Chooser,
        detail: RunDetail,
    ) -> Attempt {
        let settings = ExploreSettings::default();
        let report = self.bench.run(&settings, programs, detail, chooser);
        seen(&self);
        let completed = report.end == RunEnd::Completed;
        let attempt = self.bench.attempt(&settings, report);
        if !completed {
            // What stands half-done would complain when it is dropped.
            std::mem::forget(self);
        }
        attempt
    }
}

impl<I: Isa> Drop for Bare<I> {
    fn drop(&mut self) {
        self.taken.take().into_iter().for_each(|block| self.tlb.free(block));
    }
}

/// The engine, a space of one last-level table, and that table.
fn start<I: Isa>(sim: &Sim<I>, batch: BatchPolicy) -> (Rc<Tlb<Sim<I>>>, Arc<TlbContext>, PteSlot, Pfn) {
    let node = sim.nodes()[0];
    let ranges = [node.frames];
    let nodes = [NodeSpec { id: node.id, ranges: &ranges, cpus: node.cpus }];
    let layout = MemoryLayout { min_free_kbytes: Some(0), watermark_scale_factor: 0, ..MemoryLayout::new(&nodes) };
    let frames = FrameAllocator::try_new(sim.clone(), &layout).expect("a possible machine");
    let tlb =
        Tlb::try_new(sim.clone(), frames, TlbConfig { batch, ..TlbConfig::default() }).expect("a possible machine");
    let tables = [Level::PGD, Level::PUD, Level::PMD, Level::PTE].map(|level| {
        let block = tlb.alloc(tlb.request(Order::ZERO)).expect("memory is left");
        sim.zero(block.pfn(), Order::ZERO);
        tlb.frames().new_table(block, level, SpaceId::new(1))
    });
    for (depth, pair) in tables.windows(2).enumerate() {
        let level = Level::new(3 - depth as u8);
        let slot = PteSlot { table: pair[0], index: level.index_of(page(0)) as u16 };
        sim.store(slot, I::table(TableEntry::own(pair[1])));
    }
    let context = tlb.open_context(tables[0]).expect("memory is left");
    let above = PteSlot { table: tables[2], index: Level::PMD.index_of(page(0)) as u16 };
    (Rc::new(tlb), context, above, tables[3])
}

/// The number of schedules: a hundred times as many with `PAGEWRIGHT_SOAK`.
pub(crate) fn soaked(schedules: u32) -> u32 {
    if std::env::var_os("PAGEWRIGHT_SOAK").is_some() { 100 * schedules } else { schedules }
}

/// Tries schedules of what `run` runs.
pub(crate) fn explore(
    seed: u64,
    schedules: u32,
    mut run: impl FnMut(&mut dyn Chooser, RunDetail) -> Attempt,
) -> Search {
    search(&SearchPlan { seed, schedules, max_shrink_runs: 0 }, &mut |chooser, detail| run(chooser, detail))
}

/// Says what was found, if anything was.
pub(crate) fn nothing_was_found(search: &Search) {
    if let Some(found) = &search.failing {
        panic!("{} in schedule {}, {}", found.attempt.findings[0], search.schedules, found.token);
    }
}

/// A planted bug, and what must find it.
#[cfg(feature = "planted")]
pub(crate) struct Wanted {
    pub(crate) plant: pagewright_plant::PlantedBug,
    /// By one of these.
    pub(crate) rules: &'static [pagewright_check::Rule],
    /// Schedules that each seed may take.
    pub(crate) budget: u32,
    /// Whether the default schedule must not find it.
    pub(crate) race: bool,
}

/// The seeds from which a planted bug must be found: five with `PAGEWRIGHT_SOAK`.
#[cfg(feature = "planted")]
fn seeds() -> std::ops::RangeInclusive<u64> {
    if std::env::var_os("PAGEWRIGHT_SOAK").is_some() { 1..=5 } else { 1..=1 }
}

/// Found by its rule from each of [`seeds`], and again from its token.
///
/// Prints the median.
#[cfg(feature = "planted")]
pub(crate) fn is_found<I: Isa>(wanted: &Wanted, run: impl Fn(&mut dyn Chooser, RunDetail) -> Attempt) {
    let Wanted { plant, rules, budget, race } = *wanted;
    pagewright_plant::choose(Some(plant));
    let mut tried: Vec<u32> = seeds()
        .map(|seed| {
            let search = explore(seed, budget, &run);
            let found = search.failing.unwrap_or_else(|| panic!("{} is not found from seed {seed}", plant.name()));
            let finding = &found.attempt.findings[0];
            assert!(finding.rule().is_some_and(|rule| rules.contains(&rule)), "{finding}");
            let again = pagewright_check::replay(&found.token, &mut |chooser, detail| run(chooser, detail));
            let again = again.expect("its own token");
            assert!(again.findings[0].is_like(finding), "{finding} became {}", again.findings[0]);
            assert!(!race || search.schedules > 1, "the default schedule finds it");
            search.schedules
        })
        .collect();
    pagewright_plant::choose(None);
    tried.sort_unstable();
    let (name, isa, median) = (plant.name(), I::KIND.name(), tried[tried.len() / 2]);
    println!("{name:28} {isa:7} {median:6}  {tried:?} schedules{}", if race { ", a race" } else { "" });
}

/// Drops a debt; debug builds report the mistake once its frames are parked.
pub(crate) fn is_dropped<T>(debt: T) {
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(debt)));
    assert_eq!(dropped.is_err(), cfg!(debug_assertions));
}
