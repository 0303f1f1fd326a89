//! Leaves that lose their rights on one CPU and are edited on another before the flush.
//!
//! Under many schedules (INV-TABLE-WEAKENED, INV-ORACLE-O1, INV-ORACLE-O2).
//!
//! One CPU takes the rights of pages away, by a batch or by a concurrent gather. One waits until a
//! leaf has none, and takes, replaces or changes it. One goes on using the pages. The frames that
//! are freed are handed out at once, so the oracle reports a page that a CPU can still use.
//!
//! Not covered: leaves above the last level.

use pagewright_arch::{Effects, Isa, Leaf, LeafFlags, SoftEntry, SoftKind, on_both};
use pagewright_check::{Antecedent, Attempt, Chooser, RunDetail, Search, SearchPlan, Testbench, search};
use pagewright_sim::explore::{CoroutineBody, ExploreSettings, RunEnd};
use pagewright_sim::{MachineConfig, Sim};
use pagewright_table::{EntryRun, LeafView, Mlocked, MmapLock, OwnedLeaf, PageTable, TableReserve};
use pagewright_tlb::frames::{Block, FrameAllocator, MemoryLayout, NodeSpec};
use pagewright_tlb::{Batch, BatchPolicy, Gather, Tlb, TlbConfig};
use pagewright_types::judge::Fact;
use pagewright_types::{Access, CpuId, Level, Order, PAGE_SIZE, PageRange, Rights, VirtAddr};
use proptest::prelude::*;
use std::cell::RefCell;
use std::rc::Rc;

const CPUS: u16 = 3;
const PAGES: u16 = 4;
const SCHEDULES: u32 = 8;

/// How one CPU takes rights away and defers the flush.
#[derive(Clone, Copy, Debug)]
enum Weakening {
    Batch,
    Gather,
}

/// What another CPU does to a leaf that it finds without rights.
#[derive(Clone, Copy, Debug)]
enum Edit {
    /// Takes the leaf and settles.
    Settle,
    /// Takes the leaf into a batch.
    Batch,
    /// Replaces the leaf by a swap entry, into a batch.
    Soft,
    /// Gives the leaf the right to read, in a call that promises no more than that.
    Update,
}

/// What each CPU does.
#[derive(Clone, Debug)]
struct Plan {
    /// The pages that lose their rights together, and how.
    weakened: Vec<(Weakening, Vec<u16>)>,
    edited: Vec<(u16, Edit)>,
}

fn plans() -> impl Strategy<Value = Plan> {
    let weakening = prop_oneof![Just(Weakening::Batch), Just(Weakening::Gather)];
    let pages = || proptest::sample::subsequence((0..PAGES).collect::<Vec<_>>(), 1..=PAGES as usize);
    let edit = prop_oneof![Just(Edit::Settle), Just(Edit::Batch), Just(Edit::Soft), Just(Edit::Update)];
    let weakened = proptest::collection::vec((weakening, pages()), 1..3);
    let edited = proptest::collection::vec((0..PAGES, edit), 1..5);
    (weakened, edited).prop_map(|(weakened, edited)| Plan { weakened, edited })
}

fn page(index: u16) -> VirtAddr {
    VirtAddr::new(0x4000_0000 + u64::from(index) * PAGE_SIZE)
}

/// A space whose pages all CPUs have read, on a machine with no frame left.
struct World<I: Isa> {
    bench: Testbench<I>,
    tlb: Tlb<Sim<I>>,
    mmap: MmapLock<Sim<I>, ()>,
    taken: RefCell<Vec<Block>>,
}

impl<I: Isa> World<I> {
    fn new() -> Rc<Self> {
        let mut config = MachineConfig::default_for(I::KIND).expect("a shipped profile");
        config.cpus = CPUS;
        config.nodes.truncate(1);
        config.nodes[0].bytes = 1 << 20;
        let bench = Testbench::<I>::new(config).expect("a possible machine");
        let sim = bench.sim().clone();
        let (tlb, mmap) = sim.run_on(CpuId::new(0), || {
            let node = sim.nodes()[0];
            let ranges = [node.frames];
            let nodes = [NodeSpec { id: node.id, ranges: &ranges, cpus: node.cpus }];
            let layout =
                MemoryLayout { min_free_kbytes: Some(0), watermark_scale_factor: 0, ..MemoryLayout::new(&nodes) };
            let frames = FrameAllocator::try_new(sim.clone(), &layout).expect("a possible machine");
            let config = TlbConfig { batch: BatchPolicy::Auto, ..TlbConfig::default() };
            let tlb = Tlb::try_new(sim.clone(), frames, config).expect("a possible machine");
            let mut reserve = TableReserve::new(&tlb);
            reserve.fill(1).expect("memory is left");
            let mmap = MmapLock::try_new(&mut reserve, |_id| ()).expect("memory is left");
            drop(reserve);
            (tlb, mmap)
        });
        let world = Rc::new(Self { bench, tlb, mmap, taken: RefCell::default() });
        let handler = Rc::downgrade(&world);
        sim.bind_ipi_handler(Rc::new(move |_| {
            if let Some(world) = handler.upgrade() {
                world.tlb.handle_ipi();
            }
        }));
        for cpu in (0..CPUS).map(CpuId::new) {
            sim.run_on(cpu, || world.tlb.switch_to(world.table().context()));
        }
        sim.run_on(CpuId::new(0), || world.map_pages());
        for cpu in (0..CPUS).map(CpuId::new) {
            assert!((0..PAGES).all(|index| world.uses(cpu, index)), "all pages are mapped");
        }
        world
    }

    fn map_pages(&self) {
        let mut reserve = TableReserve::new(&self.tlb);
        {
            let held = self.mmap.read();
            let tables = held.tables(&self.tlb).owned(PageRange::page(page(0)));
            reserve.fill(tables.missing(page(0), Level::PTE)).expect("memory is left");
            tables.ensure(page(0), Level::PTE, &mut reserve);
        }
        for index in 0..PAGES {
            let block = self.tlb.alloc(self.tlb.request(Order::ZERO)).expect("memory is left");
            let folio = self.tlb.frames().new_folio(block);
            let flags = LeafFlags::USER | LeafFlags::ACCESSED | LeafFlags::DIRTY;
            let leaf = Leaf { pfn: folio.pfn(), rights: Rights::RW, flags };
            self.edit_entry(index, |run| run.map(page(index), OwnedLeaf::new(leaf, folio)));
        }
        self.tlb.fx().publish();
        self.take_frames();
    }

    fn table(&self) -> &PageTable {
        self.mmap.table()
    }

    fn edit_entry<R>(&self, index: u16, body: impl FnOnce(&mut EntryRun<'_, '_, Sim<I>>) -> R) -> R {
        let held = self.mmap.read();
        let table =
            held.tables(&self.tlb).owned(PageRange::page(page(index))).lock(page(index)).expect("its table is hooked");
        body(&mut table.run(Mlocked(false)))
    }

    /// Hands out all frames that are free.
    fn take_frames(&self) {
        while let Ok(block) = self.tlb.alloc(self.tlb.request(Order::ZERO)) {
            self.taken.borrow_mut().push(block);
        }
    }

    fn uses(&self, cpu: CpuId, index: u16) -> bool {
        self.bench.sim().access(cpu, page(index), Access::Write, 1).is_ok()
    }

    /// Takes the rights of `pages` away, and flushes after the last.
    fn weaken(&self, weakening: Weakening, pages: &[u16]) {
        let context = self.table().context();
        let hide = |leaf: LeafView| leaf.with_rights(Rights::empty());
        match weakening {
            Weakening::Batch => {
                let mut batch = Batch::new(&self.tlb);
                for index in pages {
                    self.edit_entry(*index, |run| {
                        if let Some(debt) = run.protect(page(*index), hide) {
                            batch.absorb(context, debt);
                        }
                    });
                }
                batch.settle();
            }
            Weakening::Gather => {
                let mut gather = Gather::concurrent(&self.tlb, context);
                for index in pages {
                    self.edit_entry(*index, |run| {
                        if let Some(debt) = run.protect(page(*index), hide) {
                            gather.absorb(debt);
                        }
                        gather.publish(run.table().table());
                    });
                }
                gather.settle();
            }
        }
    }

    /// Edits a page once its leaf has no rights; gives up if that does not happen soon.
    fn edit(&self, index: u16, edit: Edit) {
        for _ in 0..64 {
            match self.try_edit(index, edit) {
                Some(true) => return self.take_frames(),
                Some(false) => self.tlb.fx().relax(),
                None => return,
            }
        }
    }

    /// Edits a page if its leaf has no rights, and returns whether; `None` if there is no leaf.
    fn try_edit(&self, index: u16, edit: Edit) -> Option<bool> {
        let (va, root) = (page(index), self.table().root());
        let mut batch = Batch::new(&self.tlb);
        let edited = self.edit_entry(index, |run| {
            if !run.table().leaf(va)?.rights().is_empty() {
                return Some(false);
            }
            match edit {
                Edit::Settle => run.unmap(va).expect("a leaf").settle(),
                Edit::Batch => batch.absorb(self.table().context(), run.unmap(va).expect("a leaf")),
                Edit::Soft => {
                    let swap = SoftEntry { kind: SoftKind::Swap, exclusive: false, payload: 7 };
                    let debt = run.unmap_to_soft(va, |_| swap, |_| false);
                    batch.absorb(self.table().context(), debt.expect("a leaf"));
                }
                Edit::Update => {
                    let range = PageRange::page(va);
                    self.tlb.fx().declare(Fact::RightReduced { root, range, left: Rights::READ });
                    let debt = run.protect(va, |leaf| leaf.with_rights(Rights::READ));
                    debt.expect("changed").settle();
                    self.tlb.fx().declare(Fact::CallReturned);
                }
            }
            Some(true)
        });
        batch.settle();
        edited
    }
}

impl<I: Isa> Drop for World<I> {
    fn drop(&mut self) {
        self.taken.take().into_iter().for_each(|block| self.tlb.free(block));
    }
}

fn run<I: Isa>(plan: &Plan, chooser: &mut dyn Chooser, detail: RunDetail) -> Attempt {
    let world = World::<I>::new();
    let [weakens, edits, uses] = [(); 3].map(|()| Rc::clone(&world));
    let Plan { weakened, edited } = plan.clone();
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || weakened.iter().for_each(|(by, pages)| weakens.weaken(*by, pages))),
        Box::new(move || edited.iter().for_each(|(index, edit)| edits.edit(*index, *edit))),
        Box::new(move || {
            for index in (0..PAGES).cycle().take(6 * usize::from(PAGES)) {
                uses.uses(CpuId::new(2), index);
            }
        }),
    ];
    let settings = ExploreSettings::default();
    let report = world.bench.run(&settings, programs, detail, chooser);
    let completed = report.end == RunEnd::Completed;
    let attempt = world.bench.attempt(&settings, report);
    if !completed {
        // What stands half-done would complain when it is dropped.
        std::mem::forget(world);
    }
    attempt
}

fn explore<I: Isa>(plan: &Plan, seed: u64, schedules: u32) -> Search {
    let search_plan = SearchPlan { seed, schedules, max_shrink_runs: 0 };
    search(&search_plan, &mut |chooser, detail| run::<I>(plan, chooser, detail))
}

fn no_cpu_uses_a_page_whose_weakened_leaf_was_edited<I: Isa>() {
    let swept = std::cell::Cell::new((0, 0));
    proptest!(|(plan in plans(), seed in any::<u64>())| {
        let search = explore::<I>(&plan, seed, SCHEDULES);
        if let Some(found) = &search.failing {
            prop_assert!(false, "{}: {}", found.attempt.findings[0], found.token);
        }
        let (frames, rights) = swept.get();
        let tally = |antecedent| search.tally.of(antecedent);
        swept.set((frames + tally(Antecedent::FrameSwept), rights + tally(Antecedent::RightHeld)));
    });
    let (frames, rights) = swept.get();
    assert!(frames > 0 && rights > 0, "vacuous: {frames} frames handed out, {rights} rights held");
}

on_both! { no_cpu_uses_a_page_whose_weakened_leaf_was_edited }

#[cfg(feature = "planted")]
mod planted {
    use super::*;
    use pagewright_arch::{Aarch64, X86_64};
    use pagewright_check::Rule;
    use pagewright_plant::{PlantedBug, choose};

    /// Each way to weaken a leaf and to edit it, from three seeds.
    fn is_found<I: Isa>() {
        choose(Some(PlantedBug::WeakenedTakenUnflushed));
        for (edit, rule) in [
            (Edit::Settle, Rule::Reuse),
            (Edit::Batch, Rule::Reuse),
            (Edit::Soft, Rule::Reuse),
            (Edit::Update, Rule::Rights),
        ] {
            for weakening in [Weakening::Batch, Weakening::Gather] {
                // A debt that settles by a gather of its own flushes what a batch deferred.
                if matches!((edit, weakening), (Edit::Settle, Weakening::Batch)) {
                    continue;
                }
                let plan = Plan { weakened: vec![(weakening, vec![0, 1])], edited: vec![(0, edit)] };
                let tried = [1, 2, 3].map(|seed| {
                    let search = explore::<I>(&plan, seed, 4000);
                    let found = search.failing.unwrap_or_else(|| panic!("{weakening:?}, {edit:?}: not found"));
                    assert_eq!(found.attempt.findings[0].rule(), Some(rule), "{}", found.attempt.findings[0]);
                    search.schedules
                });
                println!("{} {weakening:?} {edit:?}: {tried:?} schedules", I::KIND);
            }
        }
        choose(None);
    }

    #[test]
    fn an_edit_of_a_weakened_leaf_without_a_flush_is_found() {
        is_found::<X86_64>();
        is_found::<Aarch64>();
    }
}
