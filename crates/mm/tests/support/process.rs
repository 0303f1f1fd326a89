//! What processes do, call by call, and how races of that are hunted.

use super::{CPU, OTHER, Process, World, store};
use pagewright_arch::{Isa, TableEntry};
use pagewright_mm::{Advice, MapFlags, MapRequest, Space};
use pagewright_sim::Sim;
use pagewright_sim::explore::{self, CoroutineBody, ExploreSettings, Rates, RunEnd, ScheduleStrategy};
use pagewright_sync::Arc;
use pagewright_types::{CpuId, Level, PAGE_SIZE, Pfn, Rights, VirtAddr};
use std::cell::RefCell;
use std::collections::HashSet;

/// The address of a page behind `base`.
pub(crate) fn at(base: VirtAddr, page: u64) -> VirtAddr {
    base.add(page * PAGE_SIZE)
}

/// Advice by a CPU about a space, for a race.
///
/// # Panics
/// When it is refused.
pub(crate) fn advise<I: Isa>(
    world: &World<I>,
    cpu: CpuId,
    space: &Space<Sim<I>>,
    va: VirtAddr,
    pages: u64,
    advice: Advice,
) {
    world.lab.on(cpu, |mm| mm.madvise(space, va, pages * PAGE_SIZE, advice)).expect("good advice");
}

/// Stores what looks like tables to eight pages of a space: whoever still walks tables whose frames
/// it has got goes in a circle. `root` was the root of those, and a walk for the address beside it
/// is what is to go astray.
pub(crate) fn store_tables<I: Isa>(
    world: &World<I>,
    cpu: CpuId,
    space: &Arc<Space<Sim<I>>>,
    pages: VirtAddr,
    (root, walked): (Pfn, VirtAddr),
) {
    world.lab.run(cpu, space);
    let itself = I::table(TableEntry { pfn: root, write_protected: false }).raw();
    for page in 1..8 {
        let levels = [Level::PMD, Level::PUD, Level::PGD];
        let slots = levels.map(|level| at(pages, page).add(8 * level.index_of(walked) as u64));
        slots.iter().for_each(|slot| store(world, cpu, space, *slot, itself));
    }
}

impl<I: Isa> Process<'_, I> {
    /// Anonymous memory at an address.
    pub(crate) fn map_at(&self, addr: VirtAddr, pages: u64, rights: Rights, flags: MapFlags) -> VirtAddr {
        let flags = flags | MapFlags::ANONYMOUS;
        let request = MapRequest { addr, len: pages * PAGE_SIZE, rights, flags, file: None };
        self.world.on(|mm| mm.mmap(&self.space, &request)).expect("room for a mapping")
    }

    /// The same wherever there is room.
    pub(crate) fn map(&self, pages: u64, rights: Rights, flags: MapFlags) -> VirtAddr {
        self.map_at(VirtAddr::ZERO, pages, rights, flags)
    }

    /// Private anonymous memory.
    pub(crate) fn map_anon(&self, pages: u64) -> VirtAddr {
        self.map(pages, Rights::RW, MapFlags::PRIVATE)
    }

    /// Shared anonymous memory.
    pub(crate) fn map_shared(&self, pages: u64) -> VirtAddr {
        self.map(pages, Rights::RW, MapFlags::SHARED)
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
            self.world.lab.on(cpu, |mm| mm.tlb().leave_space());
        }
        self.world.on(|mm| mm.end_space(&self.space));
    }
}

thread_local! {
    /// Fingerprints of the schedules that ran.
    static TRACES: RefCell<HashSet<u64>> = RefCell::default();
}

/// Runs programs under the schedule that `seed` chooses.
pub(crate) fn race<I: Isa>(world: &World<I>, seed: u64, programs: Vec<CoroutineBody>) {
    race_by(world, &ScheduleStrategy::Random { seed, rates: Rates::default() }, programs);
}

/// The same where one CPU does much while another stands still.
pub(crate) fn race_in_long_turns<I: Isa>(world: &World<I>, seed: u64, programs: Vec<CoroutineBody>) {
    race_by(world, &ScheduleStrategy::Pct { seed, depth: 6, length: 1000, rates: Rates::default() }, programs);
}

fn race_by<I: Isa>(world: &World<I>, strategy: &ScheduleStrategy, programs: Vec<CoroutineBody>) {
    let report = explore::run(world.lab.sim(), &ExploreSettings::default(), programs, &mut *strategy.chooser());
    assert_eq!(report.end, RunEnd::Completed, "{strategy:?}");
    TRACES.with_borrow_mut(|traces| traces.insert(report.trace));
}

/// The first of `schedules` seeds whose race ends badly; with `PAGEWRIGHT_SOAK`, of a hundred times
/// as many, which a short race has not.
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
