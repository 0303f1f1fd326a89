//! What processes do whose memory goes to swap, and how races of that are hunted.

use crate::support::{CPU, OTHER, Process, World};
use pagewright_arch::Isa;
use pagewright_mm::{Advice, MapFlags, MapRequest};
use pagewright_sim::explore::{self, Outcome, Program, Rates, Settings, Strategy};
use pagewright_types::{CpuId, PAGE_SIZE, Rights, VirtAddr};
use std::cell::RefCell;
use std::collections::HashSet;

/// The address of a page behind `base`.
pub(crate) fn at(base: VirtAddr, page: u64) -> VirtAddr {
    base.add(page * PAGE_SIZE)
}

impl<I: Isa> Process<'_, I> {
    /// Private anonymous memory.
    pub(crate) fn map_anon(&self, pages: u64) -> VirtAddr {
        let (len, flags) = (pages * PAGE_SIZE, MapFlags::PRIVATE | MapFlags::ANONYMOUS);
        let request = MapRequest { addr: VirtAddr::ZERO, len, rights: Rights::RW, flags, file: None };
        self.world.on(|mm| mm.mmap(&self.space, &request)).expect("room for a mapping")
    }

    /// Shared anonymous memory.
    pub(crate) fn map_shared(&self, pages: u64) -> VirtAddr {
        let (len, flags) = (pages * PAGE_SIZE, MapFlags::SHARED | MapFlags::ANONYMOUS);
        let request = MapRequest { addr: VirtAddr::ZERO, len, rights: Rights::RW, flags, file: None };
        self.world.on(|mm| mm.mmap(&self.space, &request)).expect("room for a mapping")
    }

    pub(crate) fn advise(&self, va: VirtAddr, pages: u64, advice: Advice) {
        self.world.on(|mm| mm.madvise(&self.space, va, pages * PAGE_SIZE, advice)).expect("good advice");
    }

    pub(crate) fn fork(&self) -> Self {
        let space = self.world.on(|mm| mm.fork(&self.space)).expect("memory for a child");
        Self { world: self.world, space }
    }

    pub(crate) fn end(self) {
        for cpu in [CPU, OTHER, CpuId::new(2)] {
            self.world.lab.on(cpu, |mm| mm.tlb().leave());
        }
        self.world.on(|mm| mm.end_space(&self.space));
    }
}

thread_local! {
    /// Fingerprints of the schedules that ran.
    static TRACES: RefCell<HashSet<u64>> = RefCell::default();
}

/// Runs programs under the schedule that `seed` chooses.
pub(crate) fn race<I: Isa>(world: &World<I>, seed: u64, programs: Vec<Program>) {
    race_by(world, &Strategy::Random { seed, rates: Rates::default() }, programs);
}

/// The same where one CPU does much while another stands still.
pub(crate) fn race_in_long_turns<I: Isa>(world: &World<I>, seed: u64, programs: Vec<Program>) {
    race_by(world, &Strategy::Pct { seed, depth: 6, length: 1000, rates: Rates::default() }, programs);
}

fn race_by<I: Isa>(world: &World<I>, strategy: &Strategy, programs: Vec<Program>) {
    let report = explore::run(world.lab.sim(), &Settings::default(), programs, &mut *strategy.chooser());
    assert_eq!(report.outcome, Outcome::Completed, "{strategy:?}");
    TRACES.with_borrow_mut(|traces| traces.insert(report.trace));
}

/// The first of `schedules` seeds whose race ends badly; with `PAGEWRIGHT_SOAK`, of a hundred times as many, which a short race has not.
///
/// # Panics
/// When the different ones among them are fewer than half of `schedules`.
pub(crate) fn first_lost(schedules: u64, holds: fn(u64) -> bool) -> Option<u64> {
    let seeds = if std::env::var_os("PAGEWRIGHT_SOAK").is_some() { 100 * schedules } else { schedules };
    TRACES.take();
    let lost = (0..seeds).find(|seed| !holds(*seed));
    let different = TRACES.take().len() as u64;
    println!("{different} different schedules of {seeds}");
    assert!(lost.is_some() || different * 2 > schedules, "{different} of {seeds} schedules are different");
    lost
}
