//! Programs that need more memory than there is: what they stored is there again, whoever reclaims,
//! and what is in use stays.
//!
//! Each machine is judged: no frame is reached by what it was before, and counts are right in the
//! end.
//!
//! Not covered: how good the choice is, but for the plainest cases.

mod explored;
mod lost_faults;
mod zram;

use pagewright_arch::{Effects, Invalidate, InvalidateScope, InvalidateTarget, Isa, LeafFlags};
use pagewright_lab::harness::files::{DiskFile, TestDisk};
use pagewright_lab::harness::{CPU, GupCall, OTHER, TestProcess, TestWorld, at};
use pagewright_lab::on_both;
use pagewright_mm::counters::Gauge;
use pagewright_mm::file::FileKind;
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_mm::{FaultError, MapFlags, MmSetting};
use pagewright_sim::AllocationFailure;
use pagewright_types::{Access, Counter, CpuId, IsaKind, Level, LruList, NodeId, Order, PAGE_SIZE, Rights, VirtAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const NODE: NodeId = NodeId::new(0);
/// Frames of a machine.
const FRAMES: u64 = 1024;
const TWICE: u64 = 2 * FRAMES;

fn fill<I: Isa>(process: &TestProcess<I>, base: VirtAddr, pages: u64, salt: u64) {
    (0..pages).for_each(|page| process.write(CPU, at(base, page), page + salt));
}

fn check<I: Isa>(process: &TestProcess<I>, base: VirtAddr, pages: u64, salt: u64) {
    for page in 0..pages {
        assert_eq!(process.read(CPU, at(base, page)), page + salt, "page {page}");
    }
}

/// Makes a CPU forget its translations, as those of other programs would: its TLB has room for all
/// of so small a memory, and walkers mark only what they walk for.
fn forget<I: Isa>(world: &TestWorld<I>) {
    let all = Invalidate { scope: InvalidateScope::Local, target: InvalidateTarget::AllTags };
    world.on(CPU, |mm| {
        mm.tlb().fx().invalidate(all);
        mm.tlb().fx().complete();
    });
}

fn machine<I: Isa>(cpus: u16) -> Rc<TestWorld<I>> {
    machine_of(cpus, FRAMES)
}

fn machine_of<I: Isa>(cpus: u16, frames: u64) -> Rc<TestWorld<I>> {
    let world = TestWorld::sized(cpus, frames * PAGE_SIZE);
    // More may be promised than there is.
    world.on(CPU, |mm| mm.settings().set(MmSetting::OvercommitMemory, 1)).expect("a possible value");
    world
}

/// Lets the background thread do what it would have done meanwhile.
fn background<I: Isa>(world: &TestWorld<I>, cpu: CpuId) {
    if world.on(cpu, |mm| mm.needs_balance(NODE)) {
        world.on(cpu, |mm| mm.balance(NODE));
    }
}

/// INV-LRU-PLACE, INV-LRU-SIZE: every page that is mapped or cached is on the list that its flags
/// name.
fn lists_agree<I: Isa>(world: &TestWorld<I>) {
    world.on(CPU, |mm| {
        let frames = mm.tlb().frames();
        let mut listed = 0;
        for list in LruList::ALL {
            let mut pages = 0;
            frames.for_each_listed(NODE, list, |pfn| {
                pages += 1;
                assert_eq!(frames.folio(pfn).flags().list(), list);
            });
            assert_eq!(frames.lru_pages(NODE, list), pages, "{}", list.name());
            listed += u64::from(pages);
        }
        assert!(listed >= mm.gauge(Gauge::AnonPages) + mm.gauge(Gauge::FilePages), "a page is on no list");
    });
}

/// However short the lists are, batches are full.
fn one_wait_is_for_32_pages<I: Isa>(world: &TestWorld<I>, stolen: Counter) {
    let (waits, pages) = (world.count(Counter::PwReclaimWaits), world.count(stolen));
    assert!(waits * 32 <= pages, "{waits} waits for {pages} pages");
    assert!(waits > 0 || I::KIND == IsaKind::X86_64, "nobody else has run the space only there");
}

fn twice_the_memory<I: Isa>() {
    let world = machine::<I>(2);
    let device = world.swap_to(4096);
    let process = TestProcess::new(&world);
    let base = process.anon(TWICE);
    fill(&process, base, TWICE, 5);
    check(&process, base, TWICE, 5);
    assert!(world.count(Counter::PgStealDirect) >= TWICE - FRAMES);
    assert!(world.count(Counter::PswpOut) >= TWICE - FRAMES && device.used() > 0);
    assert_eq!(world.count(Counter::OomKill), 0);
    one_wait_is_for_32_pages(&world, Counter::PgStealDirect);
    lists_agree(&world);
    process.end();
    world.at_rest(&[]);
    assert_eq!(device.used(), 0, "INV-SWAP-COUNT");
    lists_agree(&world);
}

fn the_background_keeps_memory_free<I: Isa>() {
    let world = machine::<I>(2);
    let _device = world.swap_to(4096);
    let process = TestProcess::new(&world);
    let base = process.anon(TWICE);
    for page in 0..TWICE {
        process.write(CPU, at(base, page), page);
        background(&world, OTHER);
    }
    for page in 0..TWICE {
        assert_eq!(process.read(CPU, at(base, page)), page);
        background(&world, OTHER);
    }
    assert!(world.count(Counter::PgStealKswapd) >= TWICE - FRAMES && world.count(Counter::PageOutRun) > 0);
    assert_eq!(world.count(Counter::PgStealDirect), 0, "nobody had to wait");
    one_wait_is_for_32_pages(&world, Counter::PgStealKswapd);
    world.at_rest(&[]);
}

/// What is used again and again stays, and what is used once goes.
///
/// The looks are so rare that each page would be gone at most of them, were the oldest page taken
/// each time.
fn what_is_in_use_stays<I: Isa>() {
    const HOT: u64 = 150;
    const COLD: u64 = 8 * FRAMES;
    const BETWEEN: u64 = 600;
    let world = machine::<I>(2);
    let _device = world.swap_to(16384);
    let process = TestProcess::new(&world);
    let (hot, cold) = (process.anon(HOT), process.anon(COLD));
    fill(&process, hot, HOT, 1);
    let (mut missed, mut looked) = (0, 0);
    for page in 0..COLD {
        process.write(CPU, at(cold, page), page);
        background(&world, OTHER);
        if page % BETWEEN == BETWEEN - 1 {
            let before = world.count(Counter::PswpIn);
            forget(&world);
            check(&process, hot, HOT, 1);
            // The first looks are those by which they become active.
            if page > 3 * FRAMES {
                missed += world.count(Counter::PswpIn) - before;
                looked += HOT;
            }
        }
    }
    assert!(missed * 100 < looked, "{missed} of {looked} looks at pages in use had to read them");
    assert!(world.count(Counter::PgActivate) > 0 && world.count(Counter::PgScanKswapd) > 0);
    check(&process, cold, COLD, 0);
    world.at_rest(&[]);
}

fn locked_and_pinned_pages_stay<I: Isa>() {
    let world = machine::<I>(2);
    let _device = world.swap_to(4096);
    let process = TestProcess::new(&world);
    let (locked, pinned, rest) = (process.anon(16), process.anon(16), process.anon(TWICE));
    fill(&process, locked, 16, 100);
    fill(&process, pinned, 16, 200);
    let len = 16 * PAGE_SIZE;
    world.on(CPU, |mm| mm.mlock(&process.space, locked, len)).expect("within the limit");
    let held = process.take(CPU, pinned, 16, GupCall::Pin(GupFlags::WRITE)).expect("they can be had");
    fill(&process, rest, TWICE, 0);
    let swapped_in = world.count(Counter::PswpIn);
    check(&process, locked, 16, 100);
    check(&process, pinned, 16, 200);
    assert_eq!(world.count(Counter::PswpIn), swapped_in, "they were never away");
    (0..16).for_each(|page| assert_eq!(held.read(page as usize), page + 200));
    assert_eq!(world.gauge(Gauge::Unevictable), 16);
    assert!(world.count(Counter::UnevictableCulled) >= 16);
    held.release(MakeDirty::No);
    world.on(CPU, |mm| mm.munlock(&process.space, locked, len)).expect("mapped");
    assert_eq!((world.gauge(Gauge::Unevictable), world.count(Counter::UnevictableRescued)), (0, 16));
    fill(&process, rest, TWICE, 0);
    assert!(process.space.rss().swapped() > 0);
    check(&process, locked, 16, 100);
    assert!(world.count(Counter::PswpIn) > swapped_in, "they can go now");
    lists_agree(&world);
    world.at_rest(&[]);
}

/// A mapping has a reference, and a pin counts for 1024: many mappings are no pin.
fn what_very_many_map_can_go<I: Isa>() {
    let world = machine::<I>(2);
    let _device = world.swap_to(16);
    let process = TestProcess::new(&world);
    let files = [world.file(1), world.shmem(1)];
    let map = |file| process.map(1, Rights::RW, MapFlags::SHARED, Some(file));
    let maps: Vec<VirtAddr> = (0..1100).flat_map(|_| files.each_ref().map(map)).collect();
    for va in &maps {
        process.read(CPU, *va);
    }
    let cached = || world.gauge(Gauge::FilePages);
    assert_eq!((cached(), process.space.rss().pages()), (2, 2200));
    let pinned = process.take(CPU, maps[0], 1, GupCall::Pin(GupFlags::empty())).expect("it can be had");
    world.on(CPU, |mm| mm.reclaim(NODE, 2));
    assert_eq!(cached(), 1, "the one that is pinned stays");
    pinned.release(MakeDirty::No);
    world.on(CPU, |mm| mm.reclaim(NODE, 2));
    assert_eq!((cached(), process.space.rss().pages()), (0, 0));
    process.end();
    world.at_rest(&[]);
}

/// Nobody is asked in vain: where one of a page's spaces is being changed the page stays, and what
/// the others have used is left as it is.
fn who_cannot_be_asked_spares_the_others<I: Isa>() {
    let world = machine::<I>(2);
    let _device = world.swap_to(16);
    let processes = [TestProcess::new(&world), TestProcess::new(&world)];
    let file = world.shmem(1);
    let maps = processes.each_ref().map(|process| process.map(1, Rights::RW, MapFlags::SHARED, Some(&file)));
    let used = |at: usize| {
        let space = &processes[at].space;
        world
            .on(CPU, |mm| space.table().lock(mm.tlb(), maps[at], Level::PTE)?.leaf(maps[at]))
            .is_some_and(|leaf| leaf.flags.contains(LeafFlags::ACCESSED))
    };
    processes.iter().zip(maps).for_each(|(process, va)| process.write(CPU, va, 1));
    assert!(used(0) && used(1));
    world.on(CPU, |mm| {
        let _changing = processes[0].space.map().write();
        mm.reclaim(NODE, 1);
    });
    assert!(used(0) && used(1), "nobody was asked");
    world.on(CPU, |mm| mm.reclaim(NODE, 1));
    assert_eq!(world.gauge(Gauge::Shmem), 0, "both were, in time");
    processes.into_iter().for_each(|process| process.end());
}

/// Shared memory that two have locked: reclaim does not look at it until both have let go.
fn what_two_have_locked_one_lets_go_in_vain<I: Isa>() {
    const PAGES: u64 = 16;
    const LEN: u64 = PAGES * PAGE_SIZE;
    let world = machine::<I>(2);
    let _device = world.swap_to(4096);
    let parent = TestProcess::new(&world);
    let (rest, shared) =
        (parent.anon(TWICE), parent.map(PAGES, Rights::RW, MapFlags::SHARED | MapFlags::ANONYMOUS, None));
    fill(&parent, shared, PAGES, 100);
    let child = parent.fork();
    let lock = |process: &TestProcess<I>| world.on(CPU, |mm| mm.mlock(&process.space, shared, LEN)).expect("allowed");
    let unlock =
        |process: &TestProcess<I>| world.on(CPU, |mm| mm.munlock(&process.space, shared, LEN)).expect("mapped");
    let kept = || (world.gauge(Gauge::Unevictable), world.count(Counter::UnevictableRescued));
    // Once more is not twice.
    [&parent, &child, &parent].into_iter().for_each(lock);
    assert_eq!((kept(), world.count(Counter::UnevictableCulled)), ((PAGES, 0), PAGES));
    unlock(&parent);
    unlock(&parent);
    assert_eq!(kept(), (PAGES, 0), "the child has them locked");
    fill(&parent, rest, TWICE, 0);
    assert_eq!((kept(), world.count(Counter::UnevictableCulled)), ((PAGES, 0), PAGES), "nobody has looked");
    lock(&parent);
    child.unmap(shared, PAGES / 2);
    child.end();
    assert_eq!(kept(), (PAGES, 0), "the parent has them locked");
    unlock(&parent);
    assert_eq!(kept(), (0, PAGES));
    lists_agree(&world);
    world.at_rest(&[]);
}

/// Without swap nothing can go: whoever wants more is refused, and everything that was stored is
/// there.
fn without_swap_somebody_is_refused<I: Isa>() {
    let world = machine::<I>(1);
    let process = TestProcess::new(&world);
    let base = process.anon(TWICE);
    let refused = (0..TWICE).find(|page| match process.touch(CPU, at(base, *page), Access::Write) {
        Ok(()) => {
            process.write(CPU, at(base, *page), page + 9);
            false
        }
        Err(error) => {
            assert!(matches!(error, FaultError::OutOfMemory(_)), "{error:?}");
            true
        }
    });
    let full = refused.expect("there is not that much");
    assert!(full > FRAMES / 2, "refused at page {full}");
    check(&process, base, full, 9);
    assert_eq!(world.count(Counter::PgStealDirect), 0);
    process.unmap(base, 100);
    process.write(CPU, at(base, full), 1);
    world.at_rest(&[]);
}

/// Everything is dirty and the device has less room than there is to write: no deadlock, no lost
/// page.
fn a_full_device_loses_nothing<I: Isa>() {
    const SLOTS: u64 = 100;
    let world = machine::<I>(1);
    let device = world.swap_to(SLOTS as u32);
    let process = TestProcess::new(&world);
    let base = process.anon(TWICE);
    let mut stored = 0;
    while process.touch(CPU, at(base, stored), Access::Write).is_ok() {
        process.write(CPU, at(base, stored), stored + 3);
        stored += 1;
    }
    assert_eq!(device.used() as u64, SLOTS);
    // One that is in swap comes back only for another that goes.
    let there = (0..stored).filter(|page| process.touch(CPU, at(base, *page), Access::Read).is_ok());
    for page in there.collect::<Vec<_>>() {
        assert_eq!(process.read(CPU, at(base, page)), page + 3);
    }
    process.unmap(base, 200);
    (200..stored).for_each(|page| assert_eq!(process.read(CPU, at(base, page)), page + 3, "page {page}"));
    world.at_rest(&[]);
    // A device that fails keeps what it has and takes nothing.
    device.broken.store(true, Ordering::Relaxed);
    while process.touch(CPU, at(base, stored + 1), Access::Write).is_ok() && stored + 2 < TWICE {
        stored += 1;
    }
    device.broken.store(false, Ordering::Relaxed);
    process.end();
    world.at_rest(&[]);
    assert_eq!(device.used(), 0);
}

/// A process that maps all of a file of twice the memory's size, where, and the file's device.
fn maps_a_large_file<I: Isa>(world: &Rc<TestWorld<I>>) -> (TestProcess<I>, VirtAddr, Arc<TestDisk>) {
    let disk = Arc::new(TestDisk::default());
    let kind = FileKind::File(Box::new(DiskFile(disk.clone())));
    let file = world.on(CPU, |mm| mm.add_file("/large", kind, TWICE * PAGE_SIZE)).expect("memory");
    let process = TestProcess::new(world);
    let base = process.map(TWICE, Rights::RW, MapFlags::SHARED, Some(&file));
    (process, base, disk)
}

/// Pages of files are dropped and read again; what was stored to them is written first, by the
/// background alone.
fn files_make_room<I: Isa>() {
    let world = machine::<I>(2);
    let (process, base, disk) = maps_a_large_file(&world);
    let check = || {
        for page in 0..TWICE {
            assert_eq!(process.read(CPU, at(base, page)), page, "page {page}");
        }
    };
    check();
    check();
    assert!(world.count(Counter::PgStealDirect) > 0);
    assert!(world.count(Counter::WorkingsetRefaultFile) >= TWICE - FRAMES, "the second round reads most again");
    // What says what the file says already is stored, so that the device need not remember.
    for page in 0..TWICE {
        process.write(CPU, at(base, page), page);
        background(&world, OTHER);
    }
    check();
    assert!(disk.written.lock().expect("unpoisoned").len() as u64 >= TWICE - FRAMES, "what was stored is written");
    lists_agree(&world);
    process.end();
    world.at_rest(&[]);
}

/// Dirty pages of a file that nobody writes back: who allocates passes them over, the background
/// does not.
fn dirty_files_wait_for_the_background<I: Isa>() {
    let world = machine::<I>(2);
    let (process, base, disk) = maps_a_large_file(&world);
    let mut page = 0;
    while process.touch(CPU, at(base, page), Access::Write).is_ok() {
        process.write(CPU, at(base, page), page);
        page += 1;
    }
    assert!(page < TWICE && disk.written.lock().expect("unpoisoned").is_empty(), "nobody wrote at page {page}");
    background(&world, OTHER);
    (page..TWICE).for_each(|page| {
        process.write(CPU, at(base, page), page);
        background(&world, OTHER);
    });
    (0..TWICE).for_each(|page| assert_eq!(process.read(CPU, at(base, page)), page));
    world.at_rest(&[]);
}

/// A page that comes back so soon that it would have stayed, had fewer been active, is active at
/// once.
fn a_page_that_comes_back_soon_is_active<I: Isa>() {
    const HOT: u64 = 400;
    const ROUND: u64 = 700;
    let world = machine::<I>(2);
    let _device = world.swap_to(4096);
    let process = TestProcess::new(&world);
    let (hot, round) = (process.anon(HOT), process.anon(ROUND));
    fill(&process, hot, HOT, 1);
    for step in 0..8 * ROUND {
        let page = step % ROUND;
        process.write(CPU, at(round, page), page + 2);
        if step < 3 * ROUND && step % 100 == 0 {
            forget(&world);
            check(&process, hot, HOT, 1);
        }
    }
    let of = |counter| world.count(counter);
    let (back, active) = (of(Counter::WorkingsetRefaultAnon), of(Counter::WorkingsetActivateAnon));
    assert!(active > 0 && active <= back, "{active} of {back} were active at once");
    assert!(of(Counter::WorkingsetRestoreAnon) <= active && of(Counter::PgDeactivate) > 0);
    // What was hot once and is no more has made room: the last rounds read nothing.
    let before = of(Counter::PswpIn);
    check(&process, round, ROUND, 2);
    check(&process, round, ROUND, 2);
    assert!(of(Counter::PswpIn) - before < ROUND, "{} of {} were read", of(Counter::PswpIn) - before, 2 * ROUND);
    world.at_rest(&[]);
}

/// `vm.swappiness` decides between files and anonymous memory where both could go.
fn swappiness_divides<I: Isa>() {
    let written = [0, 200].map(|swappiness| {
        let world = machine::<I>(2);
        world.on(CPU, |mm| mm.settings().set(MmSetting::Swappiness, swappiness)).expect("a possible value");
        let _device = world.swap_to(4096);
        let process = TestProcess::new(&world);
        let anon = process.anon(FRAMES / 2);
        fill(&process, anon, FRAMES / 2, 4);
        let file = world.file(TWICE);
        let base = process.map(TWICE, Rights::READ, MapFlags::SHARED, Some(&file));
        for page in 0..TWICE {
            assert_eq!(process.read(CPU, at(base, page)), page + 7);
            background(&world, OTHER);
        }
        check(&process, anon, FRAMES / 2, 4);
        world.at_rest(&[]);
        world.count(Counter::PswpOut)
    });
    assert!(written[0] == 0 && written[1] > FRAMES / 16, "{written:?}");
}

/// Shared memory and the pages of a child go and come back like any other.
fn shared_pages_survive<I: Isa>() {
    let world = machine::<I>(2);
    let _device = world.swap_to(8192);
    let parent = TestProcess::new(&world);
    let (private, rest) = (parent.anon(200), parent.anon(TWICE));
    let shared = parent.map(200, Rights::RW, MapFlags::SHARED | MapFlags::ANONYMOUS, None);
    fill(&parent, private, 200, 1000);
    fill(&parent, shared, 200, 2000);
    let child = parent.fork();
    fill(&parent, rest, TWICE, 0);
    check(&child, private, 200, 1000);
    check(&child, shared, 200, 2000);
    fill(&child, private, 200, 3000);
    fill(&child, shared, 200, 4000);
    fill(&parent, rest, TWICE, 1);
    check(&parent, private, 200, 1000);
    check(&parent, shared, 200, 4000);
    check(&child, private, 200, 3000);
    world.at_rest(&[]);
    child.end();
    check(&parent, rest, TWICE, 1);
    world.at_rest(&[]);
}

/// A batch that one refusal makes short is made up for, and not taken for all.
fn a_pool_is_filled_though_a_batch_is_short<I: Isa>() {
    let world = TestWorld::<I>::sized(1, FRAMES * PAGE_SIZE);
    for refused in 0..8 {
        world.on(CPU, |mm| {
            let pool = mm.huge_pool(Order::new(3), NODE, 8).expect("memory");
            world.lab.sim().fail_allocation_after(refused, AllocationFailure::One);
            let filled = pool.fill(0..8, || {});
            world.lab.sim().permit_allocations();
            // What nobody has is no batch at all, and what the machine refuses is no want of
            // frames.
            assert_eq!((filled.is_ok(), pool.filled()), if refused == 0 { (false, 0) } else { (true, 8) }, "{refused}");
        });
    }
    world.at_rest(&[]);
}

on_both!(
    a_pool_is_filled_though_a_batch_is_short,
    twice_the_memory,
    the_background_keeps_memory_free,
    what_is_in_use_stays,
    locked_and_pinned_pages_stay,
    who_cannot_be_asked_spares_the_others,
    what_very_many_map_can_go,
    what_two_have_locked_one_lets_go_in_vain,
    without_swap_somebody_is_refused,
    a_full_device_loses_nothing,
    files_make_room,
    dirty_files_wait_for_the_background,
    a_page_that_comes_back_soon_is_active,
    swappiness_divides,
    shared_pages_survive,
);
