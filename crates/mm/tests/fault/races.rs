//! Races that need two CPUs in the middle of what they do, each under many schedules.
//!
//! Not covered: what no test here names. Random programs under random schedules are the net below.

use pagewright_arch::Isa;
use pagewright_arch::on_both;
use pagewright_lab::Lab;
use pagewright_lab::harness::files::ZeroFile;
use pagewright_lab::harness::one_node_machine;
use pagewright_lab::harness::race::schedules;
use pagewright_mm::file::{FileKind, FileObject};
use pagewright_mm::space::FileMapping;
use pagewright_mm::{FaultError, MapFlags, MapRequest, MmSettings, Space};
use pagewright_sim::Sim;
use pagewright_sim::explore::{self, CoroutineBody, ExploreSettings, Rates, RunEnd, ScheduleStrategy};
use pagewright_sync::Arc;
use pagewright_types::{Access, CpuId, PAGE_SIZE, Rights, VirtAddr};
use std::cell::Cell;
use std::rc::Rc;

const CPU: CpuId = CpuId::new(0);
const OTHER: CpuId = CpuId::new(1);
const SCHEDULES: u64 = 100;

fn map<I: Isa>(lab: &Lab<I>, file: &Arc<FileObject<Sim<I>>>, flags: MapFlags) -> (Arc<Space<Sim<I>>>, VirtAddr) {
    let space = lab.on(CPU, |mm| mm.new_space()).expect("memory");
    let file = Some(FileMapping { file, offset: 0, opened: Rights::RW });
    let request = MapRequest { addr: VirtAddr::ZERO, len: PAGE_SIZE, rights: Rights::RW, flags, file };
    let base = lab.on(CPU, |mm| mm.mmap(&space, &request)).expect("room");
    lab.run(CPU, &space);
    (space, base)
}

/// A store to a private page of a file, while the file is truncated.
///
/// Returns whether the store was served.
fn copy_while_truncating<I: Isa>(seed: u64) -> bool {
    let config = one_node_machine::<I>(2, 4 << 20);
    let lab = Rc::new(Lab::<I>::new(config, MmSettings::default()).expect("a possible machine"));
    let kind = FileKind::File(Box::new(ZeroFile));
    let file = lab.on(CPU, |mm| mm.add_file("/zeroes", kind, PAGE_SIZE)).expect("memory");
    // In the cache, so that nothing is between the first look at the size and the last but the
    // copy.
    let (reader, base) = map(&lab, &file, MapFlags::SHARED);
    lab.touch(CPU, &reader, base, Access::Read, 1).expect("a page of the file");
    let (space, base) = map(&lab, &file, MapFlags::PRIVATE);
    let served = Rc::new(Cell::new(None));
    let (faults, truncates, faulting, answer) = (lab.clone(), lab.clone(), space.clone(), served.clone());
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || answer.set(Some(faults.on(CPU, |mm| mm.fault(&faulting, base, Access::Write)).is_ok()))),
        Box::new(move || truncates.on(OTHER, |mm| mm.truncate(&file, 0)).expect("not sealed")),
    ];
    let strategy = ScheduleStrategy::Random { seed, rates: Rates::default() };
    let report = explore::run(lab.sim(), &ExploreSettings::default(), programs, &mut *strategy.chooser());
    assert_eq!(report.end, RunEnd::Completed, "seed {seed}");
    assert_eq!(space.rss().pages(), 0, "seed {seed}: a page past the end is mapped");
    assert_eq!(lab.touch(CPU, &space, base, Access::Read, 1), Err(FaultError::PastEnd { va: base }), "seed {seed}");
    served.get().expect("it has run")
}

/// INV-FILE-REMOVED.
fn a_copy_is_not_mapped_past_an_end_that_came_meanwhile<I: Isa>() {
    let seeds = schedules(SCHEDULES);
    let served = (0..seeds).filter(|seed| copy_while_truncating::<I>(*seed)).count() as u64;
    assert!((1..seeds).contains(&served), "of {seeds} stores {served} came first");
}

on_both! { a_copy_is_not_mapped_past_an_end_that_came_meanwhile }
