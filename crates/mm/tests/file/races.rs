//! Races of faults and stores with holes and writeback, each under many schedules.
//!
//! Each planted bug of that code must be found by one of them (feature `planted`).
//!
//! Not covered: other races, which random programs under random schedules may find.

use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::files::{DiskFile, TestDisk};
use pagewright_lab::harness::race::{assert_holds, assert_short_race_holds, device_step, race, race_in_two_turns};
use pagewright_lab::harness::{CPU, FileHandle, OTHER, THIRD, TestProcess, TestWorld};
use pagewright_lab::planted_bugs_are_found;
use pagewright_mm::file::{FallocateFlags, FileKind, FileOps, MemfdFlags};
use pagewright_mm::{Advice, MapFlags};
use pagewright_sim::explore::CoroutineBody;
use pagewright_types::{Access, Errno, PAGE_SIZE, Rights, VirtAddr};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const SCHEDULES: u64 = 150;
/// For races whose window is one step wide.
const NARROW_SCHEDULES: u64 = 1500;

/// One CPU loads from shared memory, another punches a hole there.
///
/// Returns whether the mapping shows zeroes in the end, as the file does.
fn load_during_a_punch<I: Isa>(seed: u64) -> bool {
    let (world, process) = TestProcess::<I>::unjudged();
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
    race(&world, seed, programs);
    let mut word = [9; 8];
    world.on(CPU, |mm| mm.read_at(&file, 0, &mut word)).expect("memory");
    assert_eq!(word, [0; 8], "seed {seed}");
    process.read(CPU, base) == 0
}

/// One CPU stores to a page that it has mapped privately, another punches a hole there.
///
/// Returns whether the mapping has what was stored (`unmap_mapping_range` with `even_cows` 0).
fn private_store_during_a_punch<I: Isa>(seed: u64) -> bool {
    let (world, process) = TestProcess::<I>::unjudged();
    let file = world.on(CPU, |mm| mm.memfd_create("it", MemfdFlags::empty())).expect("memory");
    world.on(CPU, |mm| mm.write_at(&file, 0, &7_u64.to_le_bytes())).expect("memory");
    let base = process.map_file(&file, Rights::RW, MapFlags::PRIVATE);
    assert_eq!(process.read(CPU, base), 7);
    let (stores, punches, space, holed) = (world.clone(), world.clone(), process.space.clone(), file.clone());
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || stores.store(CPU, &space, base, 9)),
        Box::new(move || {
            punches.lab.on(OTHER, |mm| mm.fallocate(&holed, hole, 0, PAGE_SIZE)).expect("not sealed");
        }),
    ];
    race(&world, seed, programs);
    process.read(CPU, base) == 9
}

/// One CPU removes the last mapping of shared memory, another forgets the file.
///
/// Returns whether its pages are uncharged exactly once.
fn forget_during_an_unmap<I: Isa>(seed: u64) -> bool {
    let (world, process) = TestProcess::<I>::unjudged();
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
    race(&world, seed, programs);
    let mut known = 0;
    world.on(CPU, |mm| mm.for_each_file(|_| known += 1));
    (world.on(CPU, |mm| mm.committed()), file.charged(), known) == (before, 0, 0)
}

/// One CPU stores to a file page, another writes it back; then it is written back once more.
///
/// Returns whether the device has the last value stored.
fn store_during_writeback<I: Isa>(seed: u64) -> bool {
    let (world, process) = TestProcess::<I>::unjudged();
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
            writes.lab.on(OTHER, |mm| mm.write_back(&written, 0, PAGE_SIZE)).expect("a working device");
        }),
    ];
    race(&world, seed, programs);
    world.on(CPU, |mm| mm.write_back(&file, 0, PAGE_SIZE)).expect("a working device");
    let last = device.written.lock().expect("unpoisoned").last().copied();
    last == Some((0, process.read(CPU, base)))
}

/// One CPU stores, one writes the page back, and one removes the right to write by mprotect.
///
/// Returns whether no store succeeds after mprotect has returned.
fn store_after_mprotect_during_writeback<I: Isa>(seed: u64) -> bool {
    let (world, process) = TestProcess::<I>::unjudged();
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
            writes.lab.on(OTHER, |mm| mm.write_back(&file, 0, PAGE_SIZE)).expect("a working device");
        }),
        Box::new(move || {
            protects.lab.on(THIRD, |mm| mm.mprotect(&space, base, PAGE_SIZE, Rights::READ)).expect("mapped");
            protected.set(true);
        }),
    ];
    race(&world, seed, programs);
    !broken.get()
}

/// A file of one page, of which the device keeps the first word.
#[derive(Clone, Default)]
pub(crate) struct OneWordDisk(Arc<AtomicU64>);

impl FileOps for OneWordDisk {
    fn is_resident(&self, _index: u64) -> bool {
        true
    }

    fn read_page(&self, _index: u64, put: &mut dyn FnMut(u64, &[u8])) -> Result<(), Errno> {
        device_step();
        put(0, &self.0.load(Ordering::Relaxed).to_le_bytes());
        device_step();
        Ok(())
    }

    fn write_page(&self, _index: u64, get: &mut dyn FnMut(u64, &mut [u8])) -> Result<(), Errno> {
        let mut word = [0; 8];
        device_step();
        get(0, &mut word);
        device_step();
        self.0.store(u64::from_le_bytes(word), Ordering::Relaxed);
        Ok(())
    }

    fn punch_hole(&self, _from: u64, _to: u64) -> Result<(), Errno> {
        self.0.store(0, Ordering::Relaxed);
        Ok(())
    }
}

impl OneWordDisk {
    /// The word on the disk.
    pub(crate) fn word(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// The file, whose word is 1.
    pub(crate) fn file<I: Isa>(&self, world: &TestWorld<I>) -> FileHandle<I> {
        self.0.store(1, Ordering::Relaxed);
        world.on(CPU, |mm| mm.add_file("/data", FileKind::File(Box::new(self.clone())), PAGE_SIZE)).expect("memory")
    }
}

/// One CPU reads a file, another truncates it; returns whether the read saw either state.
fn read_during_a_truncation<I: Isa>(seed: u64) -> bool {
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
    race(&world, seed, programs);
    matches!(read.get(), Some((Ok(8), 1) | (Ok(0), _)))
}

/// A process that maps a file of one word.
fn one_word_mapped<I: Isa>() -> (Rc<TestWorld<I>>, TestProcess<I>, FileHandle<I>, VirtAddr) {
    let (world, process) = TestProcess::<I>::unjudged();
    let file = OneWordDisk::default().file(&world);
    let base = process.map_file(&file, Rights::RW, MapFlags::SHARED);
    (world, process, file, base)
}

/// One CPU reads a page from its device, another stores to it, writes it back and evicts it.
///
/// Returns whether the store is found in the end.
fn load_during_an_eviction<I: Isa>(seed: u64) -> bool {
    let (world, process, file, base) = one_word_mapped::<I>();
    world.lab.run(CPU, &process.space);
    world.lab.run(OTHER, &process.space);
    let (loads, stores) = (world.clone(), world.clone());
    let [loaded, stored] = [process.space.clone(), process.space.clone()];
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || loads.lab.touch(CPU, &loaded, base, Access::Read, 1).expect("readable")),
        Box::new(move || {
            stores.store(OTHER, &stored, base, 2);
            stores.lab.on(OTHER, |mm| mm.write_back(&file, 0, PAGE_SIZE)).expect("a working device");
            stores.lab.on(OTHER, |mm| mm.madvise(&stored, base, PAGE_SIZE, Advice::PageOut)).expect("mapped");
        }),
    ];
    race_in_two_turns(&world, seed, programs);
    process.read(CPU, base) == 2
}

/// One CPU reads a page from its device, another punches a hole there; returns whether it is zero.
fn device_read_during_a_punch<I: Isa>(seed: u64) -> bool {
    let (world, process, file, base) = one_word_mapped::<I>();
    world.lab.run(CPU, &process.space);
    let (loads, punches, space) = (world.clone(), world.clone(), process.space.clone());
    let (hole, len) = (FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, [8, PAGE_SIZE][seed as usize % 2]);
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || loads.lab.touch(CPU, &space, base, Access::Read, 1).expect("readable")),
        Box::new(move || {
            punches.lab.on(OTHER, |mm| mm.fallocate(&file, hole, 0, len)).expect("not sealed");
        }),
    ];
    race_in_two_turns(&world, seed, programs);
    process.read(CPU, base) == 0
}

/// One CPU writes a page back, another punches a hole there; returns whether it is zero.
fn writeback_during_a_punch<I: Isa>(seed: u64) -> bool {
    let (world, process, file, base) = one_word_mapped::<I>();
    process.write(CPU, base, 2);
    let (writes, punches, written) = (world.clone(), world.clone(), file.clone());
    let (hole, len) = (FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, [8, PAGE_SIZE][seed as usize % 2]);
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || writes.lab.on(CPU, |mm| mm.write_back(&written, 0, PAGE_SIZE)).expect("a working device")),
        Box::new(move || {
            punches.lab.on(OTHER, |mm| mm.fallocate(&file, hole, 0, len)).expect("not sealed");
        }),
    ];
    race_in_two_turns(&world, seed, programs);
    process.read(CPU, base) == 0
}

on_both! {
    /// INV-FILE-REMOVED.
    a_hole_leaves_no_page_mapped: assert_holds(SCHEDULES, load_during_a_punch::<I>, "a removed page is mapped"),
    /// INV-COW-REUSE.
    no_store_to_a_private_page_is_lost_in_a_hole:
        assert_holds(NARROW_SCHEDULES, private_store_during_a_punch::<I>, "the store is lost"),
    /// INV-MM-COMMITTED.
    an_unmap_and_a_forget_uncharge_once:
        assert_holds(SCHEDULES, forget_during_an_unmap::<I>, "the pages are not uncharged exactly once"),
    /// INV-TLB-DEFERRED: mprotect may find the entry write-protected, and its flush deferred.
    no_store_succeeds_after_mprotect_returns:
        assert_holds(SCHEDULES, store_after_mprotect_during_writeback::<I>, "a store after mprotect had returned"),
    /// INV-FILE-CLEAN.
    no_store_is_lost_during_writeback:
        assert_holds(SCHEDULES, store_during_writeback::<I>, "the device does not get the last store"),
    no_read_fails_during_a_truncation:
        assert_holds(SCHEDULES, read_during_a_truncation::<I>, "a read saw neither the contents nor the end of the file"),
    /// INV-FILE-CLEAN.
    no_page_is_older_than_its_file:
        assert_short_race_holds(NARROW_SCHEDULES, load_during_an_eviction::<I>, "a store that was written back is lost"),
    /// INV-FILE-REMOVED.
    no_writeback_fills_a_hole:
        assert_short_race_holds(NARROW_SCHEDULES, writeback_during_a_punch::<I>,
            "the device has the contents of the hole again"),
    /// INV-FILE-REMOVED.
    no_read_in_flight_fills_a_hole:
        assert_short_race_holds(NARROW_SCHEDULES, device_read_during_a_punch::<I>,
            "a page has the old contents of the hole"),
}

planted_bugs_are_found! {
    20 * SCHEDULES;
    HoleNotSeen => load_during_a_punch,
    WriteBackNoProtect => store_during_writeback,
    WrittenBeforeSettle => store_during_writeback,
    DeferredNotSeen => store_after_mprotect_during_writeback,
}
