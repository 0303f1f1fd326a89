//! Debts that are left to the ledger, while other CPUs flush, use the page and allocate its frame: under many schedules; and the bugs that can be
//! planted there (feature `planted`), which must be found.
//!
//! Nothing in the memory manager leaves a debt yet, so the programs here stand on `tlb` alone: one CPU clears an entry and drops the debt, one
//! goes on reading the page, one flushes another page of the space and takes every frame that is free.
//! Cites INV-ORACLE-O1, INV-TLB-DEBT, INV-LEDGER-FULL, INV-LEDGER-SAMPLE.

use pagewright_arch::{Aarch64, Effects, Isa, Leaf, LeafFlags, Pte, Slot, Table, X86_64};
use pagewright_check::{Antecedent, Attempt, Bench, Chooser, Detail, Hunt, Plan, hunt};
use pagewright_sim::explore::{Outcome, Program, Settings};
use pagewright_sim::{MachineConfig, Sim};
use pagewright_sync::Arc;
use pagewright_tlb::frames::{Block, FolioRef, Frames, Layout, NodeSpec};
use pagewright_tlb::{Context, Debt, Owed, Tlb, TlbConfig};
use pagewright_types::{Access, Counter, CpuId, Level, Order, PAGE_SIZE, Pfn, Rights, SpaceId, VirtAddr};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::{Mutex, MutexGuard, PoisonError};

const LEAVES: CpuId = CpuId::new(0);
const USES: CpuId = CpuId::new(1);
const CPUS: u16 = 3;
/// The page whose debt is left to the ledger.
const LEFT: u16 = 0;
/// The page that is flushed at once.
const FLUSHED: u16 = 1;

/// A planted bug is the whole process's.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn page(index: u16) -> VirtAddr {
    VirtAddr::new(0x4000_0000 + u64::from(index) * PAGE_SIZE)
}

/// A space of two pages that all CPUs run, and no frame left but those two.
struct World<I: Isa> {
    bench: Bench<I>,
    tlb: Rc<Tlb<Sim<I>>>,
    context: Arc<Context>,
    last: Pfn,
    taken: RefCell<Vec<Block>>,
}

impl<I: Isa> World<I> {
    fn new() -> Rc<Self> {
        let mut config = MachineConfig::default_for(I::KIND).expect("a shipped profile");
        config.cpus = CPUS;
        config.nodes.truncate(1);
        config.nodes[0].bytes = 1 << 20;
        let bench = Bench::<I>::new(config).expect("a possible machine");
        let sim = bench.sim().clone();
        let (tlb, context, last) = sim.run_on(LEAVES, || start(&sim));
        let handler = Rc::downgrade(&tlb);
        sim.bind_ipi_handler(Rc::new(move |_| {
            if let Some(tlb) = handler.upgrade() {
                tlb.on_kick();
            }
        }));
        let world = Self { bench, tlb, context, last, taken: RefCell::default() };
        for cpu in (0..CPUS).map(CpuId::new) {
            sim.run_on(cpu, || world.tlb.switch_to(&world.context));
        }
        sim.run_on(LEAVES, || {
            [LEFT, FLUSHED].into_iter().for_each(|index| world.map(index));
            while world.take_frame() {}
        });
        for cpu in (0..CPUS).map(CpuId::new) {
            assert!([LEFT, FLUSHED].into_iter().all(|index| world.reads(cpu, index)), "both pages are mapped");
        }
        Rc::new(world)
    }

    fn slot(&self, index: u16) -> Slot {
        Slot { table: self.last, index }
    }

    fn map(&self, index: u16) {
        let block = self.tlb.alloc(self.tlb.request(Order::ZERO)).expect("memory is left");
        let pfn = self.tlb.frames().new_folio(block).into_raw();
        let leaf = Leaf { pfn, rights: Rights::RW, flags: LeafFlags::USER | LeafFlags::ACCESSED | LeafFlags::DIRTY };
        self.tlb.fx().store(self.slot(index), I::leaf(Level::PTE, leaf));
        self.tlb.fx().publish();
    }

    /// Clears the entry; the debt has its reference.
    fn unmap(&self, index: u16) -> Debt<'_, Sim<I>, FolioRef> {
        let old = self.tlb.fx().swap(self.slot(index), Pte::EMPTY);
        let pagewright_arch::Entry::Leaf(leaf) = I::decode(Level::PTE, old) else { unreachable!("it was mapped") };
        let folio = self.tlb.frames().folio_ref_from_raw(leaf.pfn);
        Debt::new(&self.tlb, &self.context, page(index), Owed::Leaf(Level::PTE), folio)
    }

    /// Takes a frame, if one is left.
    fn take_frame(&self) -> bool {
        let block = self.tlb.alloc(self.tlb.request(Order::ZERO)).ok();
        let taken = block.is_some();
        self.taken.borrow_mut().extend(block);
        taken
    }

    fn reads(&self, cpu: CpuId, index: u16) -> bool {
        self.bench.sim().access(cpu, page(index), Access::Read, 1).is_ok()
    }

    fn count(&self, counter: Counter) -> u64 {
        self.tlb.frames().counters().sum(counter)
    }

    /// What each CPU does, in their order: [`LEAVES`], [`USES`], and one that flushes and allocates.
    fn programs(self: &Rc<Self>) -> [Program; CPUS as usize] {
        let [leaves, uses, flushes] = [(); 3].map(|()| Rc::clone(self));
        [
            Box::new(move || {
                let debt = leaves.unmap(LEFT);
                // Debug builds say that this is a mistake, when the frame is parked.
                let dropped = catch_unwind(AssertUnwindSafe(|| drop(debt)));
                assert_eq!(dropped.is_err(), cfg!(debug_assertions));
            }),
            Box::new(move || {
                for _ in 0..4 {
                    uses.reads(USES, LEFT);
                }
            }),
            Box::new(move || {
                flushes.unmap(FLUSHED).settle();
                for _ in 0..4 {
                    flushes.take_frame();
                }
            }),
        ]
    }
}

/// The engine, a space of one last-level table, and that table.
fn start<I: Isa>(sim: &Sim<I>) -> (Rc<Tlb<Sim<I>>>, Arc<Context>, Pfn) {
    let node = sim.nodes()[0];
    let ranges = [node.frames];
    let nodes = [NodeSpec { id: node.id, ranges: &ranges, cpus: node.cpus }];
    let layout = Layout { min_free_kbytes: Some(0), watermark_scale_factor: 0, ..Layout::new(&nodes) };
    let frames = Frames::try_new(sim.clone(), &layout).expect("a possible machine");
    let tlb = Tlb::try_new(sim.clone(), frames, TlbConfig::default()).expect("a possible machine");
    let tables = [Level::PGD, Level::PUD, Level::PMD, Level::PTE].map(|level| {
        let block = tlb.alloc(tlb.request(Order::ZERO)).expect("memory is left");
        sim.zero(block.pfn(), Order::ZERO);
        tlb.frames().new_table(block, level, SpaceId::new(1))
    });
    for (depth, pair) in tables.windows(2).enumerate() {
        let level = Level::new(3 - depth as u8);
        let slot = Slot { table: pair[0], index: level.index_of(page(0)) as u16 };
        sim.store(slot, I::table(Table { pfn: pair[1], write_protected: false }));
    }
    let context = tlb.open_context(tables[0]).expect("memory is left");
    (Rc::new(tlb), context, tables[3])
}

/// What the debts of all schedules came to.
#[derive(Default)]
struct Seen {
    parked: u64,
    settled: u64,
}

fn run<I: Isa>(seen: &mut Seen, chooser: &mut dyn Chooser, detail: Detail) -> Attempt {
    let world = World::<I>::new();
    let settings = Settings::default();
    let programs = world.programs();
    let report = world.bench.run(&settings, programs.into(), detail, chooser);
    seen.parked += world.count(Counter::PwTlbDebtParked);
    seen.settled += world.count(Counter::PwTlbSettleOnAlloc);
    let completed = report.outcome == Outcome::Completed;
    let attempt = world.bench.attempt(&settings, report);
    world.taken.take().into_iter().for_each(|block| world.tlb.free(block));
    if !completed {
        // What stands half-done would complain when it is dropped.
        std::mem::forget(world);
    }
    attempt
}

fn explore<I: Isa>(seed: u64, schedules: u32, seen: &mut Seen) -> Hunt {
    let plan = Plan { seed, schedules, shrink: 0 };
    hunt(&plan, &mut |chooser, detail| run::<I>(seen, chooser, detail))
}

/// INV-TLB-DEBT: nobody gets the frame while somebody can reach it.
fn a_debt_that_is_left_is_paid_before_its_frame_is_reused<I: Isa>() {
    let _alone = alone();
    let mut seen = Seen::default();
    let hunt = explore::<I>(1, 400, &mut seen);
    if let Some(found) = &hunt.found {
        panic!("{} in schedule {}, {}", found.attempt.findings[0], hunt.schedules, found.token);
    }
    assert!(seen.parked == u64::from(hunt.schedules) && seen.settled > 0, "debts are left, and somebody pays");
    assert!(hunt.tally.of(Antecedent::FrameSwept) > 0, "no frame was handed out that somebody remembers");
}

#[test]
fn a_debt_that_is_left_is_paid_before_its_frame_is_reused_on_x86_64() {
    a_debt_that_is_left_is_paid_before_its_frame_is_reused::<X86_64>();
}

#[test]
fn a_debt_that_is_left_is_paid_before_its_frame_is_reused_on_aarch64() {
    a_debt_that_is_left_is_paid_before_its_frame_is_reused::<Aarch64>();
}

#[cfg(feature = "planted")]
mod planted {
    use super::*;
    use pagewright_check::{Rule, replay};
    use pagewright_types::plant::{Plant, choose};

    /// Found by O1 from each of these seeds within so many schedules, and again from its token; with `race`, not by the calm one. Prints the
    /// median.
    fn is_found<I: Isa>(plant: Plant, budget: u32, race: bool) {
        let _alone = alone();
        choose(Some(plant));
        let mut tried: Vec<u32> = (1..=5)
            .map(|seed| {
                let hunt = explore::<I>(seed, budget, &mut Seen::default());
                let found = hunt.found.unwrap_or_else(|| panic!("{} is not found from seed {seed}", plant.name()));
                let finding = &found.attempt.findings[0];
                assert_eq!(finding.rule(), Some(Rule::Reuse), "{finding}");
                let again =
                    replay(&found.token, &mut |chooser, detail| run::<I>(&mut Seen::default(), chooser, detail));
                let again = again.expect("its own token");
                assert!(again.findings[0].is_like(finding), "{finding} became {}", again.findings[0]);
                assert!(!race || hunt.schedules > 1, "the calm schedule finds it");
                hunt.schedules
            })
            .collect();
        choose(None);
        tried.sort_unstable();
        let (name, isa, median) = (plant.name(), I::KIND.name(), tried[tried.len() / 2]);
        println!("{name:22} {isa:7} {median:6}  {tried:?} schedules{}", if race { ", a race" } else { "" });
    }

    /// INV-LEDGER-FULL.
    #[test]
    fn a_clock_that_a_partial_flush_advances_is_found() {
        is_found::<X86_64>(Plant::PartialClock, 2000, true);
    }

    /// The calm machine keeps a broadcast on its way for as long as nobody waits for it, so this needs no race.
    #[test]
    fn a_barrier_on_another_cpu_is_found() {
        is_found::<Aarch64>(Plant::CompleteElsewhere, 100, false);
    }
}
