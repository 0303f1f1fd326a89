//! The machine that a shape runs on, its instructions, and its schedules.

use crate::common::{Bench, page};
use pagewright_arch::{
    Effects, Invalidate, InvalidateScope, InvalidateTarget, Isa, Leaf, LeafFlags, Pte, PteSlot, TableEntry,
};
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

/// The outcome of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Seen {
    /// It reached the frame mapped at first.
    Old,
    /// It reached the frame mapped later.
    New,
    Fault,
}
pub(crate) use Seen::{Fault, New, Old};

/// One CPU's part of a shape.
pub(crate) type Line<I> = fn(&Stage<I>);

/// The outcomes of all runs.
pub(crate) type Outcomes = BTreeSet<Vec<Seen>>;

/// The machine of one run.
///
/// The entry in `slot` maps page 0 to `old`, under one tag on all CPUs. Page 1 is not mapped.
pub(crate) struct Stage<I: Isa> {
    pub(crate) sim: Sim<I>,
    pub(crate) root: Pfn,
    pub(crate) slot: PteSlot,
    pub(crate) table_slot: PteSlot,
    pub(crate) old: Pfn,
    pub(crate) new: Pfn,
    /// The step that programs signal to each other; all CPUs see it at once.
    pub(crate) step: Cell<u32>,
    found: RefCell<Vec<Seen>>,
    /// The steps of a shape that differ between its variants.
    variant: Cell<&'static [Line<I>]>,
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
        let (step, found, variant) = (Cell::new(0), RefCell::default(), Cell::new([].as_slice()));
        Rc::new(Self { sim: bench.sim, root, slot, table_slot, old, new, step, found, variant })
    }

    /// Runs a shape; returns the recorded outcomes, in order.
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

    /// Executes the steps of the variant.
    pub(crate) fn execute_variant(&self) {
        self.variant.get().iter().for_each(|step| step(self));
    }

    /// Signals that `step` is reached.
    pub(crate) fn signal(&self, step: u32) {
        self.step.set(step);
    }

    /// Waits until `step` is signalled.
    pub(crate) fn wait_for(&self, step: u32) {
        while self.step.get() < step {
            self.sim.relax();
        }
    }

    /// Accesses page 0 without recording the outcome.
    pub(crate) fn look(&self, cpu: CpuId, access: Access) -> Seen {
        match self.sim.access(cpu, page(0), access, 1) {
            Ok(found) if found.pfn == self.old => Old,
            Ok(found) if found.pfn == self.new => New,
            Ok(found) => panic!("an access reached frame {}, which is not mapped", found.pfn),
            Err(_) => Fault,
        }
    }

    pub(crate) fn record(&self, seen: Seen) {
        self.found.borrow_mut().push(seen);
    }

    pub(crate) fn read(&self, cpu: CpuId) {
        self.record(self.look(cpu, Access::Read));
    }

    pub(crate) fn write(&self, cpu: CpuId) {
        self.record(self.look(cpu, Access::Write));
    }

    /// Reads page 1.
    pub(crate) fn read_next(&self, cpu: CpuId) {
        let seen = self.sim.access(cpu, page(1), Access::Read, 1);
        self.record(if seen.is_ok() { New } else { Fault });
    }

    /// The number of entries that walks of `cpu` have read.
    pub(crate) fn walk_reads(&self, cpu: CpuId) -> u64 {
        self.sim.count(cpu, MachineEvent::WalkReads)
    }

    pub(crate) fn leaf(pfn: Pfn, rights: Rights) -> Pte {
        I::leaf(Level::PTE, Leaf { pfn, rights, flags: LeafFlags::USER })
    }

    /// Maps page 0 to `new` by a plain store.
    pub(crate) fn map(&self) {
        self.sim.store(self.slot, Self::leaf(self.new, Rights::RW));
    }

    /// Maps page 1 to `new` by a plain store.
    pub(crate) fn map_next(&self) {
        let next = PteSlot { index: self.slot.index + 1, ..self.slot };
        self.sim.store(next, Self::leaf(self.new, Rights::RW));
    }

    /// Maps page 0 to `new`, read-only, by a plain store.
    pub(crate) fn map_read_only(&self) {
        self.sim.store(self.slot, Self::leaf(self.new, Rights::READ));
    }

    /// Unmaps page 0 by a plain store.
    pub(crate) fn unmap(&self) {
        self.sim.store(self.slot, Pte::EMPTY);
    }

    /// Unmaps page 0 by a locked or atomic exchange.
    pub(crate) fn exchange(&self) {
        self.sim.swap(self.slot, Pte::EMPTY);
    }

    /// Changes the rights of page 0 by a plain store.
    pub(crate) fn protect(&self, rights: Rights) {
        self.sim.store(self.slot, Self::leaf(self.old, rights));
    }

    /// Write-protects the pointer to the table of page 0 by a plain store.
    ///
    /// The leaf stays writable.
    pub(crate) fn protect_table(&self) {
        let table = TableEntry { pfn: self.slot.table, write_protected: true, origin: false };
        self.sim.store(self.table_slot, I::table(table));
    }

    pub(crate) fn flush(&self, scope: InvalidateScope, target: InvalidateTarget) {
        self.sim.invalidate(Invalidate { scope, target });
    }

    pub(crate) fn flush_page(&self, scope: InvalidateScope, last_level: bool) {
        self.flush(scope, InvalidateTarget::Page { tag: TAG, va: page(0), level: Level::PTE, last_level });
    }
}

/// The strategy of a seed: half of the seeds are random, half are PCT.
fn strategy(seed: u64) -> ScheduleStrategy {
    let rates = Rates { speculate: 150, walk: 400, evict: 300, ..Rates::default() };
    match seed % 2 {
        0 => ScheduleStrategy::Random { seed, rates },
        _ => ScheduleStrategy::Pct { seed, depth: 3, length: 40, rates },
    }
}

/// The outcomes of a shape over many schedules.
pub(crate) fn outcomes<I: Isa>(lines: &[Line<I>]) -> Outcomes {
    outcomes_of_variant(lines, &[])
}

/// The outcomes of one variant of a shape.
pub(crate) fn outcomes_of_variant<I: Isa>(lines: &[Line<I>], variant: &'static [Line<I>]) -> Outcomes {
    let settings = ExploreSettings { max_wait: 1000, ..ExploreSettings::default() };
    let outcome = |seed| {
        let stage = Stage::<I>::new(lines.len().max(2) as u16);
        stage.variant.set(variant);
        stage.run(lines, &strategy(seed), &settings)
    };
    (0..SEEDS).map(outcome).collect()
}

/// CPU 1 caches the translation; CPU 0 executes `steps`; then CPU 1 reads.
pub(crate) fn read_after<I: Isa>(steps: &'static [Line<I>]) -> Outcomes {
    access_after::<I, false>(steps)
}

/// CPU 1 caches the translation; CPU 0 executes `steps`; then CPU 1 stores.
pub(crate) fn write_after<I: Isa>(steps: &'static [Line<I>]) -> Outcomes {
    access_after::<I, true>(steps)
}

fn access_after<I: Isa, const WRITE: bool>(steps: &'static [Line<I>]) -> Outcomes {
    let shape: [Line<I>; 2] = [
        |on| {
            on.wait_for(1);
            on.execute_variant();
            on.signal(2);
        },
        |on| {
            on.look(CPU1, Access::Read);
            on.signal(1);
            on.wait_for(2);
            if WRITE {
                on.write(CPU1)
            } else {
                on.read(CPU1)
            };
        },
    ];
    outcomes_of_variant(&shape, steps)
}

pub(crate) fn set(outcomes: &[&[Seen]]) -> Outcomes {
    outcomes.iter().map(|outcome| outcome.to_vec()).collect()
}

/// Asserts that the outcomes of a shape are exactly those of `wanted`.
pub(crate) fn exactly<I: Isa>(lines: &[Line<I>], wanted: &[&[Seen]]) {
    assert_eq!(outcomes(lines), set(wanted));
}

/// CPU 0 clears the entry while CPU 1 stores through it.
///
/// Either the store faults, or the old entry is dirty.
pub(crate) fn dirty_bits_survive_an_exchange<I: Isa>() {
    let shape: [Line<I>; 2] = [
        |on| {
            let taken = on.sim.swap(on.slot, Pte::EMPTY);
            let dirty = I::touched(taken, true) == taken;
            on.record(if dirty { New } else { Fault });
        },
        |on| on.write(CPU1),
    ];
    // New: the old entry was dirty. Old: the store was made. Fault: CPU 1 faulted, or the old entry
    // was clean.
    let seen = outcomes(&shape);
    let lost = |run: &Vec<Seen>| run.contains(&Old) && !run.contains(&New);
    assert!(!seen.iter().any(lost), "stored, and the old entry is clean: {seen:?}");
    assert!(seen.contains(&vec![Fault, Fault]) && seen.len() >= 2, "both orders happen: {seen:?}");
}
