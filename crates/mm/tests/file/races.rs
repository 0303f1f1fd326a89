//! Races of faults and stores with holes and write-back, each under many schedules, and of each a
//! bug that is found.
//!
//! Not covered: what no test here names. Random programs under random schedules are the net below.

use pagewright_arch::Isa;
use pagewright_lab::harness::files::{DiskFile, TestDisk};
use pagewright_lab::harness::{CPU, FileHandle, OTHER, TestProcess, TestWorld};
use pagewright_lab::on_both;
use pagewright_mm::file::{FallocateFlags, FileKind, FileOps, MemfdFlags};
use pagewright_mm::{Advice, MapFlags};
use pagewright_sim::explore::{self, CoroutineBody, ExploreSettings, Rates, RunEnd, ScheduleStrategy};
use pagewright_types::{Access, CpuId, Errno, PAGE_SIZE, Rights};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const THIRD: CpuId = CpuId::new(2);
const SCHEDULES: u64 = 150;
/// Where a window is one step wide.
const MORE_SCHEDULES: u64 = 1500;

fn run<I: Isa>(world: &TestWorld<I>, seed: u64, programs: Vec<CoroutineBody>) {
    run_by(world, ScheduleStrategy::Random { seed, rates: Rates::default() }, programs);
}

/// The same where one CPU does much while another stands still.
fn run_in_long_turns<I: Isa>(world: &TestWorld<I>, seed: u64, programs: Vec<CoroutineBody>) {
    run_by(world, ScheduleStrategy::Pct { seed, depth: 2, length: 100, rates: Rates::default() }, programs);
}

fn run_by<I: Isa>(world: &TestWorld<I>, strategy: ScheduleStrategy, programs: Vec<CoroutineBody>) {
    let report = explore::run(world.lab.sim(), &ExploreSettings::default(), programs, &mut *strategy.chooser());
    assert_eq!(report.end, RunEnd::Completed, "{strategy:?}");
}

/// A load of shared memory while a hole is made where it loads; whether it shows what the memory
/// has afterwards.
fn load_beside_a_hole<I: Isa>(seed: u64) -> bool {
    let world = TestWorld::<I>::unjudged();
    let process = TestProcess::new(&world);
    let file = world.on(CPU, |mm| mm.memfd_create("it", MemfdFlags::empty())).expect("memory");
    world.on(CPU, |mm| mm.write_at(&file, 0, &7_u64.to_le_bytes())).expect("memory");
    let base = process.map_file(&file, Rights::RW, MapFlags::SHARED);
    world.lab.run(CPU, &process.space);
    let (loads, punches, space, holed) = (world.clone(), world.clone(), process.space.clone(), file.clone());
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || loads.lab.touch(CPU, &space, base, Access::Read, 1).expect("readable")),
        Box::new(move || {
            punches.lab.on(OTHER, |mm| mm.fallocate(&holed, hole, 0, PAGE_SIZE)).expect("not sealed");
        }),
    ];
    run(&world, seed, programs);
    let mut word = [9; 8];
    world.on(CPU, |mm| mm.read_at(&file, 0, &mut word)).expect("memory");
    assert_eq!(word, [0; 8], "seed {seed}");
    process.read(CPU, base) == 0
}

/// INV-FILE-REMOVED.
fn a_page_is_not_mapped_after_its_hole<I: Isa>() {
    let stale = (0..SCHEDULES).find(|seed| !load_beside_a_hole::<I>(*seed));
    assert_eq!(stale, None, "a page is mapped that the file has no more");
}

/// Shared memory is forgotten while its last mapping goes; whether what was promised for its pages
/// is taken back once.
fn forget_beside_an_unmap<I: Isa>(seed: u64) -> bool {
    let world = TestWorld::<I>::unjudged();
    let process = TestProcess::new(&world);
    let before = world.on(CPU, |mm| mm.committed());
    let file = world.on(CPU, |mm| mm.memfd_create("it", MemfdFlags::empty())).expect("memory");
    world.on(CPU, |mm| mm.write_at(&file, 0, &[7; 3 * PAGE_SIZE as usize])).expect("memory");
    let base = process.map_file(&file, Rights::RW, MapFlags::SHARED);
    world.lab.run(CPU, &process.space);
    let (unmaps, forgets, space, forgotten) = (world.clone(), world.clone(), process.space.clone(), file.clone());
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || unmaps.lab.on(CPU, |mm| mm.munmap(&space, base, 3 * PAGE_SIZE)).expect("mapped")),
        Box::new(move || forgets.lab.on(OTHER, |mm| mm.forget_file(&forgotten))),
    ];
    run(&world, seed, programs);
    let mut known = 0;
    world.on(CPU, |mm| mm.for_each_file(|_| known += 1));
    (world.on(CPU, |mm| mm.committed()), file.charged(), known) == (before, 0, 0)
}

/// INV-MM-COMMITTED.
fn a_promise_is_taken_back_once_by_an_unmap_and_an_end<I: Isa>() {
    let wrong = (0..SCHEDULES).find(|seed| !forget_beside_an_unmap::<I>(*seed));
    assert_eq!(wrong, None, "more or less is taken back than was promised");
}

/// Stores to a page of a file while it is written back, and once more afterwards; whether the
/// device has the last store in the end.
fn store_beside_a_write_back<I: Isa>(seed: u64) -> bool {
    let world = TestWorld::<I>::unjudged();
    let process = TestProcess::new(&world);
    let device = Arc::new(TestDisk::default());
    let file = world.file_of(DiskFile(device.clone()), 1);
    let base = process.map_file(&file, Rights::RW, MapFlags::SHARED);
    process.write(CPU, base, 1);
    world.lab.run(CPU, &process.space);
    let (stores, writes, space, written) = (world.clone(), world.clone(), process.space.clone(), file.clone());
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || {
            for value in 2..6 {
                stores.store(CPU, &space, base, value);
            }
        }),
        Box::new(move || {
            writes.lab.on(OTHER, |mm| mm.write_back(&written, 0, PAGE_SIZE)).expect("a good device");
        }),
    ];
    run(&world, seed, programs);
    world.on(CPU, |mm| mm.write_back(&file, 0, PAGE_SIZE)).expect("a good device");
    let last = device.written.lock().expect("unpoisoned").last().copied();
    last == Some((0, process.read(CPU, base)))
}

/// A page whose right to store is taken for a write-back while somebody takes it for good; whether
/// a store comes through after that.
fn store_after_mprotect_beside_a_write_back<I: Isa>(seed: u64) -> bool {
    let world = TestWorld::<I>::unjudged();
    let process = TestProcess::new(&world);
    let file = world.file_of(DiskFile(Arc::default()), 1);
    let base = process.map_file(&file, Rights::RW, MapFlags::SHARED);
    process.write(CPU, base, 1);
    world.lab.run(CPU, &process.space);
    let (protected, broken) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
    let (stores, writes, protects) = (world.clone(), world.clone(), world.clone());
    let (space, returned, late) = (process.space.clone(), protected.clone(), broken.clone());
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || {
            for _ in 0..40 {
                let over = returned.get();
                if stores.lab.sim().access(CPU, base, Access::Write, 1).is_ok() && over {
                    late.set(true);
                }
            }
        }),
        Box::new(move || {
            writes.lab.on(OTHER, |mm| mm.write_back(&file, 0, PAGE_SIZE)).expect("a good device");
        }),
        Box::new(move || {
            protects.lab.on(THIRD, |mm| mm.mprotect(&space, base, PAGE_SIZE, Rights::READ)).expect("mapped");
            protected.set(true);
        }),
    ];
    run(&world, seed, programs);
    !broken.get()
}

/// INV-TLB-DEFERRED: mprotect finds the right gone, and the flush put off.
fn no_store_follows_an_mprotect_that_found_nothing_to_do<I: Isa>() {
    let late = (0..SCHEDULES).find(|seed| !store_after_mprotect_beside_a_write_back::<I>(*seed));
    assert_eq!(late, None, "a store after mprotect had returned");
}

/// INV-FILE-CLEAN.
fn no_store_is_lost_by_a_write_back<I: Isa>() {
    let lost = (0..SCHEDULES).find(|seed| !store_beside_a_write_back::<I>(*seed));
    assert_eq!(lost, None, "the device never gets the last store");
}

/// A device of one page that keeps its first word.
#[derive(Clone, Default)]
struct OneWordDisk(Arc<AtomicU64>);

impl FileOps for OneWordDisk {
    fn is_resident(&self, _index: u64) -> bool {
        true
    }

    fn read_page(&self, _index: u64, put: &mut dyn FnMut(u64, &[u8])) -> Result<(), Errno> {
        put(0, &self.0.load(Ordering::Relaxed).to_le_bytes());
        Ok(())
    }

    fn write_page(&self, _index: u64, get: &mut dyn FnMut(u64, &mut [u8])) -> Result<(), Errno> {
        let mut word = [0; 8];
        get(0, &mut word);
        self.0.store(u64::from_le_bytes(word), Ordering::Relaxed);
        Ok(())
    }

    fn punch_hole(&self, _from: u64, _to: u64) -> Result<(), Errno> {
        self.0.store(0, Ordering::Relaxed);
        Ok(())
    }
}

impl OneWordDisk {
    fn file<I: Isa>(&self, world: &TestWorld<I>) -> FileHandle<I> {
        self.0.store(1, Ordering::Relaxed);
        world.on(CPU, |mm| mm.add_file("/data", FileKind::File(Box::new(self.clone())), PAGE_SIZE)).expect("memory")
    }
}

/// A read of a file while it is cut; whether it is answered as if it came before or after.
fn read_beside_an_end<I: Isa>(seed: u64) -> bool {
    let world = TestWorld::<I>::unjudged();
    let file = OneWordDisk::default().file(&world);
    let (reads, cuts, cut) = (world.clone(), world.clone(), file.clone());
    let read = Rc::new(Cell::new(None));
    let answer = read.clone();
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || {
            let mut word = [9; 8];
            let bytes = reads.lab.on(CPU, |mm| mm.read_at(&file, 0, &mut word));
            answer.set(Some((bytes, u64::from_le_bytes(word))));
        }),
        Box::new(move || cuts.lab.on(OTHER, |mm| mm.truncate(&cut, 0)).expect("not sealed")),
    ];
    run(&world, seed, programs);
    matches!(read.get(), Some((Ok(8), 1) | (Ok(0), _)))
}

fn no_read_fails_at_an_end_that_comes_meanwhile<I: Isa>() {
    assert_eq!((0..SCHEDULES).find(|seed| !read_beside_an_end::<I>(*seed)), None, "neither what was there nor the end");
}

/// A load that reads a page from its device while another CPU does so, stores to it, writes it back
/// and drops it; whether the store is found.
fn load_beside_a_page_that_comes_and_goes<I: Isa>(seed: u64) -> bool {
    let world = TestWorld::<I>::unjudged();
    let process = TestProcess::new(&world);
    let file = OneWordDisk::default().file(&world);
    let base = process.map_file(&file, Rights::RW, MapFlags::SHARED);
    world.lab.run(CPU, &process.space);
    world.lab.run(OTHER, &process.space);
    let (loads, stores) = (world.clone(), world.clone());
    let [loaded, stored] = [process.space.clone(), process.space.clone()];
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || loads.lab.touch(CPU, &loaded, base, Access::Read, 1).expect("readable")),
        Box::new(move || {
            stores.store(OTHER, &stored, base, 2);
            stores.lab.on(OTHER, |mm| mm.write_back(&file, 0, PAGE_SIZE)).expect("a good device");
            stores.lab.on(OTHER, |mm| mm.madvise(&stored, base, PAGE_SIZE, Advice::PageOut)).expect("mapped");
        }),
    ];
    run_in_long_turns(&world, seed, programs);
    process.read(CPU, base) == 2
}

/// INV-FILE-CLEAN.
fn no_page_is_older_than_its_device<I: Isa>() {
    let old = (0..MORE_SCHEDULES).find(|seed| !load_beside_a_page_that_comes_and_goes::<I>(*seed));
    assert_eq!(old, None, "a store is lost that was written back");
}

/// A load that reads a page from its device while all or a part of it is forgotten; whether it is.
fn load_beside_a_hole_on_a_device<I: Isa>(seed: u64) -> bool {
    let world = TestWorld::<I>::unjudged();
    let process = TestProcess::new(&world);
    let file = OneWordDisk::default().file(&world);
    let base = process.map_file(&file, Rights::RW, MapFlags::SHARED);
    world.lab.run(CPU, &process.space);
    let (loads, punches, space) = (world.clone(), world.clone(), process.space.clone());
    let (hole, len) = (FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, [8, PAGE_SIZE][seed as usize % 2]);
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || loads.lab.touch(CPU, &space, base, Access::Read, 1).expect("readable")),
        Box::new(move || {
            punches.lab.on(OTHER, |mm| mm.fallocate(&file, hole, 0, len)).expect("not sealed");
        }),
    ];
    run_in_long_turns(&world, seed, programs);
    process.read(CPU, base) == 0
}

/// A page that is written back while all or a part of it is forgotten; whether it is.
fn write_back_beside_a_hole<I: Isa>(seed: u64) -> bool {
    let world = TestWorld::<I>::unjudged();
    let process = TestProcess::new(&world);
    let file = OneWordDisk::default().file(&world);
    let base = process.map_file(&file, Rights::RW, MapFlags::SHARED);
    process.write(CPU, base, 2);
    let (writes, punches, written) = (world.clone(), world.clone(), file.clone());
    let (hole, len) = (FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, [8, PAGE_SIZE][seed as usize % 2]);
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || writes.lab.on(CPU, |mm| mm.write_back(&written, 0, PAGE_SIZE)).expect("a good device")),
        Box::new(move || {
            punches.lab.on(OTHER, |mm| mm.fallocate(&file, hole, 0, len)).expect("not sealed");
        }),
    ];
    run_in_long_turns(&world, seed, programs);
    process.read(CPU, base) == 0
}

/// INV-FILE-REMOVED.
fn no_hole_is_filled_by_a_write_back<I: Isa>() {
    let filled = (0..MORE_SCHEDULES).find(|seed| !write_back_beside_a_hole::<I>(*seed));
    assert_eq!(filled, None, "the device has again what it had forgotten");
}

/// INV-FILE-REMOVED.
fn no_hole_is_filled_from_the_device<I: Isa>() {
    let filled = (0..MORE_SCHEDULES).find(|seed| !load_beside_a_hole_on_a_device::<I>(*seed));
    assert_eq!(filled, None, "a page says what the file has forgotten");
}

on_both! {
    no_page_is_older_than_its_device,
    no_hole_is_filled_from_the_device,
    no_hole_is_filled_by_a_write_back,
    no_read_fails_at_an_end_that_comes_meanwhile,
    a_page_is_not_mapped_after_its_hole,
    a_promise_is_taken_back_once_by_an_unmap_and_an_end,
    no_store_is_lost_by_a_write_back,
    no_store_follows_an_mprotect_that_found_nothing_to_do,
}

#[cfg(feature = "planted")]
#[test]
fn planted_bugs_are_found() {
    use pagewright_arch::{Aarch64, X86_64};
    use pagewright_plant::{PlantedBug, choose};
    type Case = (PlantedBug, fn(u64) -> bool);
    let cases: [Case; 8] = [
        (PlantedBug::HoleNotSeen, load_beside_a_hole::<X86_64>),
        (PlantedBug::HoleNotSeen, load_beside_a_hole::<Aarch64>),
        (PlantedBug::WriteBackNoProtect, store_beside_a_write_back::<X86_64>),
        (PlantedBug::WriteBackNoProtect, store_beside_a_write_back::<Aarch64>),
        (PlantedBug::WrittenBeforeSettle, store_beside_a_write_back::<X86_64>),
        (PlantedBug::WrittenBeforeSettle, store_beside_a_write_back::<Aarch64>),
        (PlantedBug::DeferredNotSeen, store_after_mprotect_beside_a_write_back::<X86_64>),
        (PlantedBug::DeferredNotSeen, store_after_mprotect_beside_a_write_back::<Aarch64>),
    ];
    for (plant, holds) in cases {
        choose(Some(plant));
        let found = (0..20 * SCHEDULES).find(|seed| !holds(*seed));
        choose(None);
        assert!(found.is_some(), "{} is not found", plant.name());
    }
}
