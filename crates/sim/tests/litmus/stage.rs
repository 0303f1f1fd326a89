//! The machine that a shape runs on, the instructions that all shapes are written in, and the
//! schedules under which they run.

use super::common::{Bench, page};
use pagewright_arch::{Effects, Invalidate, InvalidateScope, InvalidateTarget, Isa, Leaf, LeafFlags, Pte, PteSlot};
use pagewright_sim::explore::{self, CoroutineBody, ExploreSettings, Rates, RunEnd, ScheduleStrategy};
use pagewright_sim::{MachineEvent, Sim};
use pagewright_types::{Access, CpuId, Level, Pfn, Rights, Tag};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

pub(crate) const CPU1: CpuId = CpuId::new(1);
pub(crate) const SEEDS: u64 = 1000;
/// The tag under which all CPUs run.
pub(crate) const TAG: Tag = Tag::new(1);

/// What an access found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Seen {
    /// The frame mapped at first.
    Old,
    /// The frame mapped later.
    New,
    Fault,
}
pub(crate) use Seen::{Fault, New, Old};

/// One CPU's part of a shape.
pub(crate) type Line<I> = fn(&Stage<I>);

/// What was found, run by run.
pub(crate) type Outcomes = BTreeSet<Vec<Seen>>;

/// One run's machine: page 0 mapped to `old` by `slot`, under one tag on all CPUs, and nothing at
/// page 1.
pub(crate) struct Stage<I: Isa> {
    pub(crate) sim: Sim<I>,
    pub(crate) root: Pfn,
    pub(crate) slot: PteSlot,
    pub(crate) table_slot: PteSlot,
    pub(crate) old: Pfn,
    pub(crate) new: Pfn,
    /// How far the programs have come, as they tell each other; coherent at once.
    pub(crate) step: Cell<u32>,
    found: RefCell<Vec<Seen>>,
    /// What a shape does that exists in several variants.
    pub(crate) variant: Cell<Option<Line<I>>>,
}

impl<I: Isa> Stage<I> {
    pub(crate) fn new(cpus: u16) -> Rc<Self> {
        let bench = Bench::<I>::with(|config| {
            config.cpus = cpus;
            config.nodes[0].bytes = 1 << 20;
        });
        let root = bench.frame(Level::PTE);
        let old = bench.map(root, Level::PTE, page(0), Rights::RW, LeafFlags::empty());
        let new = bench.frame(Level::PTE);
        let slot = bench.slot(root, Level::PTE, page(0));
        let table_slot = bench.slot(root, Level::PMD, page(0));
        (0..cpus).for_each(|cpu| bench.switch(CpuId::new(cpu), root, TAG.raw()));
        let (step, found, variant) = (Cell::new(0), RefCell::default(), Cell::new(None));
        Rc::new(Self { sim: bench.sim, root, slot, table_slot, old, new, step, found, variant })
    }

    /// Runs a shape; returns what was found, in order.
    pub(crate) fn run(
        self: &Rc<Self>,
        lines: &[Line<I>],
        strategy: &ScheduleStrategy,
        settings: &ExploreSettings,
    ) -> Vec<Seen> {
        let program = |line: &Line<I>| -> CoroutineBody {
            let (stage, line) = (Rc::clone(self), *line);
            Box::new(move || line(&stage))
        };
        let programs = lines.iter().map(program).collect();
        let report = explore::run(&self.sim, settings, programs, &mut *strategy.chooser());
        assert_eq!(report.end, RunEnd::Completed, "{strategy:?}");
        self.found.borrow().clone()
    }

    /// Says that the programs have come as far as `step`.
    pub(crate) fn reaches(&self, step: u32) {
        self.step.set(step);
    }

    /// Waits until somebody has said so.
    pub(crate) fn awaits(&self, step: u32) {
        while self.step.get() < step {
            self.sim.relax();
        }
    }

    /// Makes an access that is not among what was found.
    pub(crate) fn look(&self, cpu: CpuId, access: Access) -> Seen {
        match self.sim.access(cpu, page(0), access, 1) {
            Ok(found) if found.pfn == self.old => Old,
            Ok(found) if found.pfn == self.new => New,
            Ok(found) => panic!("a frame that nobody mapped: {}", found.pfn),
            Err(_) => Fault,
        }
    }

    pub(crate) fn finds(&self, seen: Seen) {
        self.found.borrow_mut().push(seen);
    }

    pub(crate) fn read(&self, cpu: CpuId) {
        self.finds(self.look(cpu, Access::Read));
    }

    pub(crate) fn write(&self, cpu: CpuId) {
        self.finds(self.look(cpu, Access::Write));
    }

    /// Reads page 1.
    pub(crate) fn read_next(&self, cpu: CpuId) {
        let seen = self.sim.access(cpu, page(1), Access::Read, 1);
        self.finds(if seen.is_ok() { New } else { Fault });
    }

    /// Entries that walks of a CPU have read.
    pub(crate) fn walk_reads(&self, cpu: CpuId) -> u64 {
        self.sim.count(cpu, MachineEvent::WalkReads)
    }

    pub(crate) fn leaf(pfn: Pfn, rights: Rights) -> Pte {
        I::leaf(Level::PTE, Leaf { pfn, rights, flags: LeafFlags::USER })
    }

    /// Page 0 becomes `new` by a plain store.
    pub(crate) fn map(&self) {
        self.sim.store(self.slot, Self::leaf(self.new, Rights::RW));
    }

    /// The same with page 1.
    pub(crate) fn map_next(&self) {
        let next = PteSlot { index: self.slot.index + 1, ..self.slot };
        self.sim.store(next, Self::leaf(self.new, Rights::RW));
    }

    /// Nothing is mapped at page 0, by a plain store.
    pub(crate) fn unmap(&self) {
        self.sim.store(self.slot, Pte::EMPTY);
    }

    /// The same by a locked or atomic exchange.
    pub(crate) fn exchange(&self) {
        self.sim.swap(self.slot, Pte::EMPTY);
    }

    /// Page 0 stays where it is, with other rights.
    pub(crate) fn protect(&self, rights: Rights) {
        self.sim.store(self.slot, Self::leaf(self.old, rights));
    }

    pub(crate) fn flush(&self, scope: InvalidateScope, target: InvalidateTarget) {
        self.sim.invalidate(Invalidate { scope, target });
    }

    pub(crate) fn flush_page(&self, scope: InvalidateScope, last_level: bool) {
        self.flush(scope, InvalidateTarget::Page { tag: TAG, va: page(0), level: Level::PTE, last_level });
    }
}

/// Half of the seeds random, half PCT.
fn strategy(seed: u64) -> ScheduleStrategy {
    let rates = Rates { speculate: 150, walk: 400, evict: 300, ..Rates::default() };
    match seed % 2 {
        0 => ScheduleStrategy::Random { seed, rates },
        _ => ScheduleStrategy::Pct { seed, depth: 3, length: 40, rates },
    }
}

/// All outcomes of a shape over many schedules.
pub(crate) fn outcomes<I: Isa>(lines: &[Line<I>]) -> Outcomes {
    all_outcomes(lines, None)
}

/// The same of one variant of it.
pub(crate) fn outcomes_of_variant<I: Isa>(lines: &[Line<I>], variant: Line<I>) -> Outcomes {
    all_outcomes(lines, Some(variant))
}

fn all_outcomes<I: Isa>(lines: &[Line<I>], variant: Option<Line<I>>) -> Outcomes {
    let settings = ExploreSettings { max_wait: 1000, ..ExploreSettings::default() };
    let outcome = |seed| {
        let stage = Stage::<I>::new(lines.len().max(2) as u16);
        stage.variant.set(variant);
        stage.run(lines, &strategy(seed), &settings)
    };
    (0..SEEDS).map(outcome).collect()
}

pub(crate) fn set(outcomes: &[&[Seen]]) -> Outcomes {
    outcomes.iter().map(|outcome| outcome.to_vec()).collect()
}

/// All that may be found is found, and nothing else.
pub(crate) fn exactly<I: Isa>(lines: &[Line<I>], wanted: &[&[Seen]]) {
    assert_eq!(outcomes(lines), set(wanted));
}

/// CPU 0 takes the entry away while CPU 1 stores through it.
///
/// Either the store faults or the entry that was taken says dirty.
pub(crate) fn dirty_bits_survive_an_exchange<I: Isa>() {
    let shape: [Line<I>; 2] = [
        |on| {
            let taken = on.sim.swap(on.slot, Pte::EMPTY);
            let dirty = I::touched(taken, true) == taken;
            on.finds(if dirty { New } else { Fault });
        },
        |on| on.write(CPU1),
    ];
    // New: taken dirty; Old: the store was made. A fault of CPU 1 and a clean entry are both Fault.
    let seen = outcomes(&shape);
    let lost = |run: &Vec<Seen>| run.contains(&Old) && !run.contains(&New);
    assert!(!seen.iter().any(lost), "stored, and clean: {seen:?}");
    assert!(seen.contains(&vec![Fault, Fault]) && seen.len() >= 2, "both orders happen: {seen:?}");
}
