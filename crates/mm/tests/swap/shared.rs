//! Shared memory that goes to swap and comes back: through mappings, reads and writes of files,
//! truncations and holes; and races of all those under many schedules.
//!
//! Not covered: which pages reclaim picks by itself.

use pagewright_arch::{Effects, Isa};
use pagewright_lab::harness::race::{first_failing_seed, race};
use pagewright_lab::harness::{CPU, FileHandle, MemorySwap, OTHER, TestProcess, TestWorld, at};
use pagewright_lab::on_both;
use pagewright_mm::counters::Gauge;
use pagewright_mm::file::{FallocateFlags, MemfdFlags, Seals};
use pagewright_mm::swap::{self, SwapOps};
use pagewright_mm::{Advice, MapFlags, Mm, MmError};
use pagewright_sim::explore::CoroutineBody;
use pagewright_sim::{AllocationFailure, Sim, SimLocks};
use pagewright_sync::Backend;
use pagewright_types::{Access, Counter, CpuId, Errno, NodeId, PAGE_SIZE, Rights};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const THIRD: CpuId = CpuId::new(2);
const SCHEDULES: u64 = 300;
const SLOTS: u32 = 1000;

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

/// The program of the series that this is about: 1 MiB of shared memory, filled, then read and
/// paged out in turn.
fn a_program_reads_and_pages_out_in_turn<I: Isa>() {
    const PAGES: u64 = 256;
    let world = TestWorld::<I>::unjudged();
    let device = world.swap_to(SLOTS);
    let process = TestProcess::new(&world);
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

fn who_shares_finds_one_page<I: Isa>() {
    let world = TestWorld::<I>::unjudged();
    world.swap_to(SLOTS);
    let parent = TestProcess::new(&world);
    let base = parent.map_shared(2);
    parent.write(CPU, base, 1);
    let child = parent.fork();
    assert_eq!(child.read(CPU, base), 1);
    parent.advise(base, 2, Advice::PageOut);
    assert_eq!(world.on(CPU, |mm| mm.swap_slots()).1, u64::from(SLOTS), "others map the page, too");
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

/// Pages of a file of which every second is in swap.
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

fn files_are_read_written_and_cut_where_they_are_in_swap<I: Isa>() {
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
    // A part of a page that is in swap is written, parts are punched out, and all that is in a hole
    // goes.
    world.on(CPU, |mm| mm.write_at(&file, 0, &[9; 8])).expect("room");
    assert_eq!((word(0), word(PAGE_SIZE - 8)), (u64::from_ne_bytes([9; 8]), 1));
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let hole = (2 * PAGE_SIZE + 8, 4 * PAGE_SIZE - 16);
    world.on(CPU, |mm| mm.fallocate(&file, punch, hole.0, hole.1)).expect("not sealed");
    assert_eq!((word(2 * PAGE_SIZE), word(3 * PAGE_SIZE - 8)), (3, 0), "the first part");
    assert_eq!((word(6 * PAGE_SIZE), word(6 * PAGE_SIZE - 8)), (7, 6), "beyond");
    assert_eq!((word(4 * PAGE_SIZE), word(5 * PAGE_SIZE)), (0, 0), "the hole, and the last part");
    // Page 8 is still there; it is cut in the middle, and the rest of it is gone when the file
    // grows again.
    assert_eq!(device.used() as u64, 1);
    world.on(CPU, |mm| mm.truncate(&file, 8 * PAGE_SIZE + 8)).expect("not sealed");
    assert_eq!(used(&world), 0);
    world.on(CPU, |mm| mm.truncate(&file, 10 * PAGE_SIZE)).expect("not sealed");
    assert_eq!((word(8 * PAGE_SIZE), word(9 * PAGE_SIZE - 8), word(9 * PAGE_SIZE)), (9, 0, 0));

    let file = half_in_swap(&world, 10);
    world.on(CPU, |mm| mm.add_seals(&file, Rights::RW, Seals::WRITE)).expect("nobody has it");
    assert_eq!(world.on(CPU, |mm| word_of(mm, &file, 4 * PAGE_SIZE)), Ok(5));
    world.on(CPU, |mm| mm.close_file(&file));
    assert!(device.used() == 0 && all_is_free(&world), "INV-SWAP-COUNT");
}

fn without_memory_nothing_is_cut<I: Isa>() {
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
    // The first part is had, the last is not.
    sim.fail_allocation_after(1, AllocationFailure::One);
    all(world.on(CPU, |mm| mm.fallocate(&file, punch, 8, 4 * PAGE_SIZE)));
    sim.permit_allocations();
    assert_eq!(device.used(), 4);
    assert!((0..10).all(|page| world.on(CPU, |mm| word_of(mm, &file, page * PAGE_SIZE)) == Ok(page + 1)));
    // The device fails: the access gets its signal, and the page is there once it works again.
    let file = half_in_swap(&world, 2);
    device.broken.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(world.on(CPU, |mm| word_of(mm, &file, 0)), Err(MmError::Device { index: 0, errno: Errno::EIO }));
    device.broken.store(false, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(world.on(CPU, |mm| word_of(mm, &file, 0)), Ok(1));
}

fn advice_brings_it_back<I: Isa>() {
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

/// Two processes store to a page each that both map, while one of them pages it out; whether each
/// finds what was stored last.
fn stores_of_two<I: Isa>(seed: u64) -> bool {
    let world = TestWorld::<I>::unjudged();
    let device = world.swap_to(SLOTS);
    let one = TestProcess::new(&world);
    let base = one.map_shared(2);
    one.write(CPU, base, 1);
    let two = one.fork();
    world.lab.run(CPU, &one.space);
    world.lab.run(OTHER, &two.space);
    let (first, second, third) = (world.clone(), world.clone(), world.clone());
    let [stored, paged, again] = [one.space.clone(), two.space.clone(), one.space.clone()];
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || {
            for value in 2..6 {
                first.store(CPU, &stored, base, value);
                first.advise(CPU, &stored, base, 1, Advice::DontNeed);
            }
        }),
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
    let right = [&one, &two].iter().all(|process| (process.read(CPU, base), process.read(CPU, at(base, 1))) == (5, 3));
    one.end();
    two.end();
    right && device.used() == 0 && all_is_free(&world)
}

/// INV-RECLAIM-SETTLED, INV-SWAP-CACHE.
fn no_store_is_lost_by_a_page_out<I: Isa>() {
    let lost = first_failing_seed(SCHEDULES, stores_of_two::<I>);
    assert_eq!(lost, None, "a store is lost, or a slot");
}

/// A file is cut while it is read and paged out; whether what is left is right, and all else is
/// free.
fn cut_beside_a_page_out<I: Isa>(seed: u64) -> bool {
    let world = TestWorld::<I>::unjudged();
    world.swap_to(SLOTS);
    let file = memfd(&world, 3);
    let process = TestProcess::new(&world);
    let base = process.map_file(&file, Rights::RW, MapFlags::SHARED);
    (0..3).for_each(|page| process.write(CPU, at(base, page), page + 1));
    world.lab.run(CPU, &process.space);
    let (touches, pages_out, cuts) = (world.clone(), world.clone(), world.clone());
    let [touched, paged] = [process.space.clone(), process.space.clone()];
    let cut = file.clone();
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || {
            for page in [0, 2, 1] {
                // It may be past the end.
                let _ = touches.lab.touch(CPU, &touched, at(base, page), Access::Read, 1);
            }
        }),
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

/// INV-SWAP-COUNT, INV-FILE-REMOVED.
fn no_slot_is_lost_by_a_cut_beside_a_page_out<I: Isa>() {
    let lost = first_failing_seed(SCHEDULES, cut_beside_a_page_out::<I>);
    assert_eq!(lost, None, "a slot is lost, or a page");
}

/// A CPU stores to a page of shared memory for as long as it can, while another takes the page from
/// its space and a third pages it out of another one; whether the page says what was stored last.
fn stores_while_it_is_taken_away<I: Isa>(seed: u64) -> bool {
    let world = TestWorld::<I>::unjudged();
    world.swap_to(SLOTS);
    let file = memfd(&world, 1);
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

/// INV-RECLAIM-SETTLED: what others have cleared and not flushed counts, too.
fn no_late_store_is_lost_by_a_page_out<I: Isa>() {
    let lost = first_failing_seed(SCHEDULES, stores_while_it_is_taken_away::<I>);
    assert_eq!(lost, None, "a store is lost");
}

/// Shared memory that is written and then only read is sealed while its page is paged out; whether
/// it is.
fn seal_beside_a_page_out<I: Isa>(seed: u64) -> bool {
    let world = TestWorld::<I>::unjudged();
    world.swap_to(SLOTS);
    let file = memfd(&world, 1);
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
                // It looks at the page and puts it back.
                pages_out.lab.on(CPU, |mm| mm.reclaim(NodeId::new(0), 1));
            }
        }),
        Box::new(move || answer.set(Some(seals.lab.on(OTHER, |mm| mm.add_seals(&file, Rights::RW, Seals::WRITE))))),
    ];
    race(&world, seed, programs);
    sealed.get() == Some(Ok(())) && process.read(CPU, base) == 1
}

/// Reclaim has the page for a moment only.
fn no_seal_is_refused_for_a_moment<I: Isa>() {
    let refused = first_failing_seed(SCHEDULES, seal_beside_a_page_out::<I>);
    assert_eq!(refused, None, "EBUSY");
}

/// A device on which everything has come to a point when a page arrives there.
struct Slow {
    slots: MemorySwap,
    /// Pages that have arrived, and how far the others are.
    arrived: Arc<AtomicU64>,
    others: Arc<AtomicU64>,
}

impl Slow {
    /// Waits until the others are so far, though not for ever.
    fn await_others(&self, far: u64) {
        let mut patience = 3000;
        while self.others.load(Ordering::Relaxed) < far && patience > 0 {
            <SimLocks as Backend>::pause();
            patience -= 1;
        }
    }
}

impl SwapOps for Slow {
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

/// Two pages of shared memory are on their way out.
///
/// When the first is written a CPU finds the second, stores to it for as long as it can, and
/// another takes it from its space with many more; whether the page says what was stored last.
fn stores_while_it_is_on_its_way<I: Isa>(seed: u64) -> bool {
    const PAGES: u64 = 60;
    let world = TestWorld::<I>::unjudged();
    let (arrived, others) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let slow = Slow { slots: MemorySwap::default(), arrived: arrived.clone(), others: others.clone() };
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
    let (value, begun, target) = (last.clone(), Rc::new(Cell::new(false)), at(ours, 1));
    let (is_there, over, ends) = (begun.clone(), others.clone(), others.clone());
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || {
            let sim = stores.lab.sim();
            while arrived.load(Ordering::Relaxed) == 0 {
                sim.relax();
            }
            stores.store(CPU, &stored, target, 2);
            value.set(2);
            begun.set(true);
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
            while !is_there.get() {
                unmaps.lab.sim().relax();
            }
            ends.fetch_add(1, Ordering::Relaxed);
            let lose = |mm: &Mm<_>| mm.madvise(&unmapped, target, (PAGES - 1) * PAGE_SIZE, Advice::DontNeed);
            unmaps.lab.on(THIRD, lose).expect("mapped");
            ends.fetch_add(1, Ordering::Relaxed);
        }),
    ];
    race(&world, seed, programs);
    second.read(CPU, at(theirs, 1)) == last.get()
}

/// INV-RECLAIM-SETTLED: a page that was found and lost again while it was on its way out.
fn no_store_is_lost_on_the_way_out<I: Isa>() {
    let lost = first_failing_seed(SCHEDULES, stores_while_it_is_on_its_way::<I>);
    assert_eq!(lost, None, "a store is lost");
}

on_both! {
    no_store_is_lost_on_the_way_out,
    a_program_reads_and_pages_out_in_turn,
    who_shares_finds_one_page,
    files_are_read_written_and_cut_where_they_are_in_swap,
    without_memory_nothing_is_cut,
    advice_brings_it_back,
    no_store_is_lost_by_a_page_out,
    no_slot_is_lost_by_a_cut_beside_a_page_out,
    no_seal_is_refused_for_a_moment,
    no_late_store_is_lost_by_a_page_out,
}

#[cfg(feature = "planted")]
#[test]
fn planted_bugs_are_found() {
    use pagewright_arch::{Aarch64, X86_64};
    use pagewright_plant::{PlantedBug, choose};
    let races: [fn(u64) -> bool; 2] =
        [stores_while_it_is_taken_away::<X86_64>, stores_while_it_is_taken_away::<Aarch64>];
    for holds in races {
        choose(Some(PlantedBug::PageOutReferenced));
        let found = (0..20 * SCHEDULES).find(|seed| !holds(*seed));
        choose(None);
        assert!(found.is_some(), "page-out-referenced is not found");
    }
}
