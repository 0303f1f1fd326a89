//! Swap-out and swap-in of shared memory.
//!
//! Through mappings, file reads and writes, truncation and holes; and in races of all these, each
//! under many schedules.
//!
//! Not covered: which pages reclaim selects.

use super::anon::reads_of_three_pages;
use pagewright_arch::{Effects, Isa, on_both};
use pagewright_lab::harness::race::{assert_holds, race, race_in_long_turns};
use pagewright_lab::harness::{CPU, FileHandle, MemorySwap, OTHER, THIRD, TestProcess, TestWorld, at};
use pagewright_mm::counters::Gauge;
use pagewright_mm::file::{FallocateFlags, MemfdFlags, Seals};
use pagewright_mm::swap::{self, SwapOps};
use pagewright_mm::{Advice, MapFlags, Mm, MmError, Space};
use pagewright_sim::explore::CoroutineBody;
use pagewright_sim::{AllocationFailure, Sim, SimLocks};
use pagewright_sync::Backend;
use pagewright_types::{Access, Counter, Errno, NodeId, PAGE_SIZE, Rights, VirtAddr};
use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const SCHEDULES: u64 = 300;
const SLOTS: u32 = 1000;

/// A machine with swap, and a file of shared memory ([`memfd`]).
fn swapped_memfd<I: Isa>(pages: u64) -> (Rc<TestWorld<I>>, FileHandle<I>) {
    let world = TestWorld::<I>::unjudged();
    world.swap_to(SLOTS);
    let file = memfd(&world, pages);
    (world, file)
}

fn memfd<I: Isa>(world: &TestWorld<I>, pages: u64) -> FileHandle<I> {
    world.on(CPU, |mm| {
        let file = mm.memfd_create("swapped", MemfdFlags::ALLOW_SEALING).expect("memory");
        mm.truncate(&file, pages * PAGE_SIZE).expect("not sealed");
        file
    })
}

fn gauge<I: Isa>(world: &TestWorld<I>, gauge: Gauge) -> u64 {
    world.on(CPU, |mm| mm.gauge(gauge))
}

fn all_is_free<I: Isa>(world: &TestWorld<I>) -> bool {
    world.on(CPU, |mm| mm.swap_slots()) == (u64::from(SLOTS), u64::from(SLOTS))
}

/// The test program of the series that batches shootdowns.
///
/// It fills 1 MiB of shared memory, then pages it out and reads it repeatedly.
fn shared_memory_is_paged_out_and_read_repeatedly<I: Isa>() {
    const PAGES: u64 = 256;
    let (world, process) = TestProcess::<I>::unjudged();
    let device = world.swap_to(SLOTS);
    let base = process.map_shared(PAGES);
    (0..PAGES).for_each(|page| process.write(CPU, at(base, page), page << 8 | 0x88));
    let count = |counter| world.on(CPU, |mm| mm.counter(counter));
    let (free, shmem) = (gauge(&world, Gauge::FreePages), gauge(&world, Gauge::Shmem));
    for round in 1..4 {
        process.advise(base, PAGES, Advice::PageOut);
        assert_eq!(gauge(&world, Gauge::FreePages), free + PAGES);
        assert_eq!(gauge(&world, Gauge::Shmem), shmem - PAGES);
        assert_eq!((device.used() as u64, count(Counter::PswpOut)), (PAGES, round * PAGES));
        assert_eq!((process.space.rss().pages(), process.space.rss().swapped()), (0, 0), "INV-MM-RSS");
        assert!((0..PAGES).all(|page| process.read(CPU, at(base, page)) == page << 8 | 0x88));
        assert_eq!((device.used(), count(Counter::PswpIn)), (0, round * PAGES));
        assert_eq!((gauge(&world, Gauge::FreePages), gauge(&world, Gauge::Shmem)), (free, shmem));
    }
    assert_eq!(process.space.major_faults(), 3 * PAGES);
    process.advise(base, PAGES, Advice::PageOut);
    process.end();
    assert!(device.used() == 0 && all_is_free(&world), "INV-SWAP-COUNT");
    assert_eq!(gauge(&world, Gauge::Shmem), shmem - PAGES);
}

fn sharers_find_the_same_swapped_page<I: Isa>() {
    let (world, parent) = TestProcess::<I>::unjudged();
    world.swap_to(SLOTS);
    let base = parent.map_shared(2);
    parent.write(CPU, base, 1);
    let child = parent.fork();
    assert_eq!(child.read(CPU, base), 1);
    parent.advise(base, 2, Advice::PageOut);
    assert_eq!(world.on(CPU, |mm| mm.swap_slots()).1, u64::from(SLOTS), "another space maps the page");
    child.advise(base, 1, Advice::DontNeed);
    parent.advise(base, 2, Advice::PageOut);
    assert_eq!(world.on(CPU, |mm| mm.swap_slots()).1, u64::from(SLOTS) - 1);
    child.write(CPU, base, 2);
    assert_eq!(parent.read(CPU, base), 2);
    parent.write(CPU, base, 3);
    assert_eq!(child.read(CPU, base), 3);
    parent.end();
    child.end();
    assert!(all_is_free(&world), "INV-SWAP-COUNT");
}

/// A memfd of which every second page is swapped out.
fn half_in_swap<I: Isa>(world: &Rc<TestWorld<I>>, pages: u64) -> FileHandle<I> {
    let file = memfd(world, pages);
    let process = TestProcess::new(world);
    let base = process.map_file(&file, Rights::RW, MapFlags::SHARED);
    (0..pages).for_each(|page| {
        process.write(CPU, at(base, page), page + 1);
        process.write(CPU, at(base, page).add(PAGE_SIZE - 8), page + 1);
    });
    (0..pages).step_by(2).for_each(|page| process.advise(at(base, page), 1, Advice::PageOut));
    process.end();
    assert_eq!(used(world), pages.div_ceil(2));
    file
}

fn used<I: Isa>(world: &TestWorld<I>) -> u64 {
    let (slots, free) = world.on(CPU, |mm| mm.swap_slots());
    slots - free
}

fn word_of<I: Isa>(mm: &Mm<Sim<I>>, file: &FileHandle<I>, offset: u64) -> Result<u64, MmError> {
    let mut bytes = [0; 8];
    mm.read_at(file, offset, &mut bytes).map(|_| u64::from_le_bytes(bytes))
}

fn swapped_files_are_read_written_and_truncated<I: Isa>() {
    let world = TestWorld::<I>::unjudged();
    let device = world.swap_to(SLOTS);
    let file = half_in_swap(&world, 10);
    let word = |offset| world.on(CPU, |mm| word_of(mm, &file, offset)).expect("read");
    let (charged, committed) = (file.charged(), world.on(CPU, |mm| mm.committed()));
    assert_eq!((0..10).map(|page| word(page * PAGE_SIZE)).collect::<Vec<_>>(), (1..11).collect::<Vec<_>>());
    assert_eq!(used(&world), 0);
    assert_eq!((file.charged(), world.on(CPU, |mm| mm.committed())), (charged, committed), "INV-MM-COMMITTED");

    let file = half_in_swap(&world, 10);
    let word = |offset| world.on(CPU, |mm| word_of(mm, &file, offset)).expect("read");
    // Writes to a part of a swapped-out page, then punches a hole with partial pages at both ends.
    world.on(CPU, |mm| mm.write_at(&file, 0, &[9; 8])).expect("room");
    assert_eq!((word(0), word(PAGE_SIZE - 8)), (u64::from_ne_bytes([9; 8]), 1));
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let hole = (2 * PAGE_SIZE + 8, 4 * PAGE_SIZE - 16);
    world.on(CPU, |mm| mm.fallocate(&file, punch, hole.0, hole.1)).expect("not sealed");
    assert_eq!((word(2 * PAGE_SIZE), word(3 * PAGE_SIZE - 8)), (3, 0), "the partial page at the start");
    assert_eq!((word(6 * PAGE_SIZE), word(6 * PAGE_SIZE - 8)), (7, 6), "bytes past the hole");
    assert_eq!((word(4 * PAGE_SIZE), word(5 * PAGE_SIZE)), (0, 0), "the hole, and the partial page at the end");
    // Page 8 is still swapped out. A truncation within it leaves zeroes when the file grows again.
    assert_eq!(device.used() as u64, 1);
    world.on(CPU, |mm| mm.truncate(&file, 8 * PAGE_SIZE + 8)).expect("not sealed");
    assert_eq!(used(&world), 0);
    world.on(CPU, |mm| mm.truncate(&file, 10 * PAGE_SIZE)).expect("not sealed");
    assert_eq!((word(8 * PAGE_SIZE), word(9 * PAGE_SIZE - 8), word(9 * PAGE_SIZE)), (9, 0, 0));

    let file = half_in_swap(&world, 10);
    world
        .on(CPU, |mm| mm.add_seals(&file, Rights::RW, Seals::WRITE))
        .expect("no writable mapping and no extra reference");
    assert_eq!(world.on(CPU, |mm| word_of(mm, &file, 4 * PAGE_SIZE)), Ok(5));
    world.on(CPU, |mm| mm.close_file(&file));
    assert!(device.used() == 0 && all_is_free(&world), "INV-SWAP-COUNT");
}

fn a_failed_swap_in_leaves_the_file_unchanged<I: Isa>() {
    let world = TestWorld::<I>::unjudged();
    let device = world.swap_to(SLOTS);
    let file = half_in_swap(&world, 10);
    let sim = world.lab.sim();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let all = |refused: Result<(), MmError>| assert_eq!(refused.map_err(|error| error.errno()), Err(Errno::ENOMEM));
    for seen in [
        (|mm, file| mm.truncate(file, 2 * PAGE_SIZE + 8)) as fn(&Mm<Sim<I>>, &FileHandle<I>) -> Result<(), MmError>,
        |mm, file| mm.fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 8, 3 * PAGE_SIZE),
        |mm, file| word_of(mm, file, 0).map(drop),
    ] {
        sim.fail_allocation_after(0, AllocationFailure::All);
        all(world.on(CPU, |mm| seen(mm, &file)));
        sim.permit_allocations();
        assert_eq!((device.used(), file.size()), (5, 10 * PAGE_SIZE));
    }
    // The page at the start of the hole can be swapped in, the one at its end cannot.
    sim.fail_allocation_after(1, AllocationFailure::One);
    all(world.on(CPU, |mm| mm.fallocate(&file, punch, 8, 4 * PAGE_SIZE)));
    sim.permit_allocations();
    assert_eq!(device.used(), 4);
    assert!((0..10).all(|page| world.on(CPU, |mm| word_of(mm, &file, page * PAGE_SIZE)) == Ok(page + 1)));
    // If the device fails, the access fails; the page can be read once the device works again.
    let file = half_in_swap(&world, 2);
    device.broken.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(world.on(CPU, |mm| word_of(mm, &file, 0)), Err(MmError::Device { index: 0, errno: Errno::EIO }));
    device.broken.store(false, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(world.on(CPU, |mm| word_of(mm, &file, 0)), Ok(1));
}

fn madv_willneed_swaps_in<I: Isa>() {
    let world = TestWorld::<I>::unjudged();
    world.swap_to(SLOTS);
    let file = half_in_swap(&world, 10);
    let process = TestProcess::new(&world);
    let base = process.map_file(&file, Rights::RW, MapFlags::SHARED);
    let resident = || {
        let mut bytes = [0; 10];
        world.on(CPU, |mm| mm.mincore(&process.space, base, 10 * PAGE_SIZE, &mut bytes)).expect("mapped");
        bytes
    };
    assert_eq!(resident(), [0, 1, 0, 1, 0, 1, 0, 1, 0, 1]);
    process.advise(at(base, 2), 3, Advice::WillNeed);
    assert_eq!(resident(), [0, 1, 1, 1, 1, 1, 0, 1, 0, 1]);
    assert_eq!(process.space.rss().pages(), 0);
    assert_eq!((process.read(CPU, at(base, 4)), process.space.major_faults()), (5, 0));
}

/// Stores values to a page of shared memory, and gives up the mapping after each.
fn stores_and_discards<I: Isa>(
    world: &TestWorld<I>,
    space: &pagewright_sync::Arc<Space<Sim<I>>>,
    page: VirtAddr,
    values: Range<u64>,
) {
    for value in values {
        world.store(CPU, space, page, value);
        world.advise(CPU, space, page, 1, Advice::DontNeed);
    }
}

/// Two processes share two pages: each stores to one of them, and both page them out.
///
/// Returns whether both find the last values stored, and no slot is leaked.
fn stores_of_two_sharers<I: Isa>(seed: u64) -> bool {
    let (world, one) = TestProcess::<I>::unjudged();
    let device = world.swap_to(SLOTS);
    let base = one.map_shared(2);
    one.write(CPU, base, 1);
    let two = one.fork();
    world.lab.run(CPU, &one.space);
    world.lab.run(OTHER, &two.space);
    let (first, second, third) = (world.clone(), world.clone(), world.clone());
    let [stored, paged, again] = [one.space.clone(), two.space.clone(), one.space.clone()];
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || stores_and_discards(&first, &stored, base, 2..6)),
        Box::new(move || {
            for value in 2..4 {
                second.store(OTHER, &paged, at(base, 1), value);
                second.advise(OTHER, &paged, base, 2, Advice::PageOut);
            }
        }),
        Box::new(move || {
            for _ in 0..3 {
                third.advise(THIRD, &again, base, 2, Advice::PageOut);
            }
        }),
    ];
    race(&world, seed, programs);
    let intact = [&one, &two].iter().all(|process| (process.read(CPU, base), process.read(CPU, at(base, 1))) == (5, 3));
    one.end();
    two.end();
    intact && device.used() == 0 && all_is_free(&world)
}

/// One CPU truncates a file, while others read it and page it out.
///
/// Returns whether the rest of the file is intact, and no slot is leaked.
fn truncation_during_a_page_out<I: Isa>(seed: u64) -> bool {
    let (world, file) = swapped_memfd::<I>(3);
    let process = TestProcess::new(&world);
    let base = process.map_file(&file, Rights::RW, MapFlags::SHARED);
    (0..3).for_each(|page| process.write(CPU, at(base, page), page + 1));
    world.lab.run(CPU, &process.space);
    let (touches, pages_out, cuts) = (world.clone(), world.clone(), world.clone());
    let [touched, paged] = [process.space.clone(), process.space.clone()];
    let cut = file.clone();
    let programs: Vec<CoroutineBody> = vec![
        reads_of_three_pages(touches, touched, base),
        Box::new(move || {
            for _ in 0..2 {
                pages_out.advise(OTHER, &paged, base, 3, Advice::PageOut);
            }
        }),
        Box::new(move || {
            cuts.lab.on(THIRD, |mm| mm.truncate(&cut, PAGE_SIZE + 8)).expect("not sealed");
            cuts.lab.on(THIRD, |mm| mm.truncate(&cut, 3 * PAGE_SIZE)).expect("not sealed");
        }),
    ];
    race(&world, seed, programs);
    let words: Vec<u64> = (0..3).map(|page| process.read(CPU, at(base, page))).collect();
    process.advise(base, 3, Advice::PageOut);
    process.end();
    let pages = used(&world);
    world.on(CPU, |mm| mm.close_file(&file));
    words == [1, 2, 0] && pages == 3 && all_is_free(&world)
}

/// One CPU stores to a shared page as long as its TLB lets it, another unmaps the page there.
///
/// A third pages the page out through another space. Returns whether the last store is kept.
pub(crate) fn stores_during_an_unmap_and_a_page_out<I: Isa>(seed: u64) -> bool {
    let (world, file) = swapped_memfd::<I>(1);
    let (first, second) = (TestProcess::new(&world), TestProcess::new(&world));
    let ours = first.map_file(&file, Rights::RW, MapFlags::SHARED);
    let theirs = second.map_file(&file, Rights::RW, MapFlags::SHARED);
    first.write(CPU, ours, 1);
    second.read(CPU, theirs);
    world.lab.run(CPU, &first.space);
    let (stores, pages_out, unmaps) = (world.clone(), world.clone(), world.clone());
    let [unmapped, paged] = [first.space.clone(), second.space.clone()];
    let last = Rc::new(Cell::new(1));
    let stored = last.clone();
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || {
            for value in 2..40 {
                let sim = stores.lab.sim();
                let Ok(at) = sim.access(CPU, ours, Access::Write, 1) else { break };
                sim.ram()[at.pfn.base().raw() as usize / 8].store(value, Ordering::Relaxed);
                stored.set(value);
            }
        }),
        Box::new(move || {
            for _ in 0..2 {
                pages_out.advise(OTHER, &paged, theirs, 1, Advice::PageOut);
            }
        }),
        Box::new(move || {
            unmaps.lab.on(THIRD, |mm| {
                if seed.is_multiple_of(2) {
                    mm.madvise(&unmapped, ours, PAGE_SIZE, Advice::DontNeed).expect("mapped");
                } else {
                    mm.munmap(&unmapped, ours, PAGE_SIZE).expect("mapped");
                }
            });
        }),
    ];
    race(&world, seed, programs);
    second.advise(theirs, 1, Advice::PageOut);
    second.read(CPU, theirs) == last.get()
}

/// One CPU seals shared memory against writes, while another pages out or reclaims its page.
///
/// Returns whether the seal was added.
fn seal_during_a_page_out<I: Isa>(seed: u64) -> bool {
    let (world, file) = swapped_memfd::<I>(1);
    world.on(CPU, |mm| mm.write_at(&file, 0, &1u64.to_ne_bytes())).expect("not sealed");
    let process = TestProcess::new(&world);
    let base = process.map_file(&file, Rights::READ, MapFlags::PRIVATE);
    process.read(CPU, base);
    world.lab.run(CPU, &process.space);
    let (pages_out, seals) = (world.clone(), world.clone());
    let space = process.space.clone();
    let sealed = Rc::new(Cell::new(None));
    let answer = sealed.clone();
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || {
            if seed.is_multiple_of(2) {
                pages_out.advise(CPU, &space, base, 1, Advice::PageOut);
            } else {
                // Reclaim isolates the page and puts it back.
                pages_out.lab.on(CPU, |mm| mm.reclaim(NodeId::new(0), 1));
            }
        }),
        Box::new(move || answer.set(Some(seals.lab.on(OTHER, |mm| mm.add_seals(&file, Rights::RW, Seals::WRITE))))),
    ];
    race(&world, seed, programs);
    sealed.get() == Some(Ok(())) && process.read(CPU, base) == 1
}

/// A device whose writes wait until other CPUs have come to a given point.
struct SlowSwap {
    slots: MemorySwap,
    /// The number of pages written, and the progress of the other CPUs.
    arrived: Arc<AtomicU64>,
    others: Arc<AtomicU64>,
}

impl SlowSwap {
    /// Waits until the other CPUs' progress is `far`, but not for ever.
    fn await_others(&self, far: u64) {
        let mut attempts = 3000;
        while self.others.load(Ordering::Relaxed) < far && attempts > 0 {
            <SimLocks as Backend>::pause();
            attempts -= 1;
        }
    }
}

impl SwapOps for SlowSwap {
    fn write_page(&self, slot: u32, get: &mut dyn FnMut(u64, &mut [u8])) -> Result<(), Errno> {
        let written = self.slots.write_page(slot, get);
        match self.arrived.fetch_add(1, Ordering::Relaxed) {
            0 => self.await_others(1),
            _ => self.await_others(3),
        }
        written
    }

    fn read_page(&self, slot: u32, put: &mut dyn FnMut(u64, &[u8])) -> Result<(), Errno> {
        self.slots.read_page(slot, put)
    }

    fn discard(&self, slot: u32) {
        self.slots.discard(slot);
    }
}

/// Two pages of shared memory are paged out together.
///
/// While the first is written, one CPU maps the second again and stores to it as long as its TLB
/// lets it, and another unmaps it there with many others. Returns whether the last store is kept.
fn stores_between_unmap_and_write<I: Isa>(seed: u64) -> bool {
    const PAGES: u64 = 60;
    let world = TestWorld::<I>::unjudged();
    let (arrived, others) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let slow = SlowSwap { slots: MemorySwap::default(), arrived: arrived.clone(), others: others.clone() };
    world.on(CPU, |mm| mm.swap_on(swap::SwapBacking::Device(Box::new(slow)), SLOTS)).expect("memory for the slots");
    let file = memfd(&world, PAGES);
    let (first, second) = (TestProcess::new(&world), TestProcess::new(&world));
    let ours = first.map_file(&file, Rights::RW, MapFlags::SHARED);
    let theirs = second.map_file(&file, Rights::RW, MapFlags::SHARED);
    (0..2).for_each(|page| second.write(CPU, at(theirs, page), 1));
    (2..PAGES).for_each(|page| first.write(CPU, at(ours, page), 1));
    world.lab.run(CPU, &first.space);
    let (stores, pages_out, unmaps) = (world.clone(), world.clone(), world.clone());
    let [stored, unmapped, paged] = [first.space.clone(), first.space.clone(), second.space.clone()];
    let last = Rc::new(Cell::new(1));
    let (value, has_stored, target) = (last.clone(), Rc::new(Cell::new(false)), at(ours, 1));
    let (may_unmap, over, ends) = (has_stored.clone(), others.clone(), others.clone());
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || {
            let sim = stores.lab.sim();
            while arrived.load(Ordering::Relaxed) == 0 {
                sim.relax();
            }
            stores.store(CPU, &stored, target, 2);
            value.set(2);
            has_stored.set(true);
            for next in 3..2000 {
                let Ok(at) = sim.access(CPU, target, Access::Write, 1) else { break };
                sim.ram()[at.pfn.base().raw() as usize / 8].store(next, Ordering::Relaxed);
                value.set(next);
            }
            over.fetch_add(1, Ordering::Relaxed);
        }),
        Box::new(move || {
            pages_out.advise(OTHER, &paged, theirs, 2, Advice::PageOut);
        }),
        Box::new(move || {
            while !may_unmap.get() {
                unmaps.lab.sim().relax();
            }
            ends.fetch_add(1, Ordering::Relaxed);
            let discard = |mm: &Mm<_>| mm.madvise(&unmapped, target, (PAGES - 1) * PAGE_SIZE, Advice::DontNeed);
            unmaps.lab.on(THIRD, discard).expect("mapped");
            ends.fetch_add(1, Ordering::Relaxed);
        }),
    ];
    race(&world, seed, programs);
    second.read(CPU, at(theirs, 1)) == last.get()
}

/// One CPU stores to a page and discards its mapping, another pages the page out.
///
/// The first maps the page again while it is written. Returns whether the last store is kept.
pub(crate) fn stores_and_discards_during_a_write<I: Isa>(seed: u64) -> bool {
    let world = TestWorld::<I>::unjudged();
    world.swap_to(SLOTS);
    let file = memfd(&world, 1);
    let (first, second) = (TestProcess::new(&world), TestProcess::new(&world));
    let ours = first.map_file(&file, Rights::RW, MapFlags::SHARED);
    let theirs = second.map_file(&file, Rights::RW, MapFlags::SHARED);
    second.write(CPU, theirs, 1);
    world.lab.run(CPU, &first.space);
    world.lab.run(OTHER, &second.space);
    let (stores, pages_out) = (world.clone(), world.clone());
    let [stored, paged] = [first.space.clone(), second.space.clone()];
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || stores_and_discards(&stores, &stored, ours, 2..4)),
        Box::new(move || {
            pages_out.advise(OTHER, &paged, theirs, 1, Advice::PageOut);
            pages_out.lab.touch(OTHER, &paged, theirs, Access::Read, 1).expect("readable");
            pages_out.advise(OTHER, &paged, theirs, 1, Advice::PageOut);
        }),
    ];
    if seed.is_multiple_of(2) {
        race(&world, seed, programs)
    } else {
        race_in_long_turns(&world, seed, programs)
    }
    second.read(CPU, theirs) == 3
}

on_both! {
    shared_memory_is_paged_out_and_read_repeatedly,
    sharers_find_the_same_swapped_page,
    swapped_files_are_read_written_and_truncated,
    a_failed_swap_in_leaves_the_file_unchanged,
    madv_willneed_swaps_in,
    /// INV-RECLAIM-SETTLED, INV-SWAP-CACHE.
    no_store_is_lost_during_a_page_out:
        assert_holds(SCHEDULES, stores_of_two_sharers::<I>, "a store is lost or a slot leaked"),
    /// INV-SWAP-COUNT, INV-FILE-REMOVED.
    no_slot_is_leaked_by_a_truncation_during_a_page_out:
        assert_holds(SCHEDULES, truncation_during_a_page_out::<I>, "a page is lost or a slot leaked"),
    /// INV-RECLAIM-SETTLED, also for entries that another CPU has cleared and not flushed yet.
    no_store_through_a_stale_translation_is_lost:
        assert_holds(SCHEDULES, stores_during_an_unmap_and_a_page_out::<I>, "a store is lost"),
    /// Reclaim holds a reference to an isolated page only briefly.
    a_seal_waits_for_an_isolated_page:
        assert_holds(SCHEDULES, seal_during_a_page_out::<I>, "the seal is refused with EBUSY"),
    /// INV-RECLAIM-SETTLED, for a page that is mapped and unmapped again after reclaim unmapped it.
    no_store_is_lost_between_unmap_and_write:
        assert_holds(SCHEDULES, stores_between_unmap_and_write::<I>, "a store is lost"),
    /// INV-SWAP-CACHE: a slot without a folio was written after the last store.
    no_store_is_lost_while_its_page_is_written:
        assert_holds(4 * SCHEDULES, stores_and_discards_during_a_write::<I>, "a store is lost"),
}
