//! Shared memory that is locked itself (`SHM_LOCK`), unlike memory that a process has locked.
//!
//! Not covered: pages that reclaim had selected before.

use super::{FRAMES, NODE, TWICE, assert_lists_consistent, check, fill, machine};
use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::race::{assert_holds, race};
use pagewright_lab::harness::{CPU, FileHandle, MemorySwap, OTHER, TestProcess, TestWorld, at};
use pagewright_lab::planted_bugs_are_found;
use pagewright_mm::counters::Gauge;
use pagewright_mm::{Advice, LockFlags, MapFlags};
use pagewright_sim::explore::CoroutineBody;
use pagewright_types::{Access, Counter, LruList, PAGE_SIZE, Rights, VirtAddr};
use std::rc::Rc;

on_both! {
    both_ways_of_paging_out_leave_unevictable_pages,
    unevictable_pages_that_two_spaces_map_stay,
    unevictable_pages_without_mappings_stay,
    pages_in_swap_stay_there_until_they_are_used,
    other_pages_are_reclaimed_beside_unevictable_ones,
    memory_that_is_unevictable_throughout_ends_reclaim,
    a_locked_mapping_without_the_page_hides_no_other,
    /// INV-RECLAIM-UNEVICTABLE.
    no_race_pages_out_unevictable_pages:
        assert_holds(300, page_outs_beside_stores::<I>, "a page was written to swap"),
}

planted_bugs_are_found! {
    10;
    UnevictablePagedOut => page_outs_beside_stores,
}

const PAGES: u64 = 16;

/// A machine with swap, and a process that has stored to each page of shared memory.
struct Scene<I: Isa> {
    world: Rc<TestWorld<I>>,
    device: MemorySwap,
    process: TestProcess<I>,
    file: FileHandle<I>,
    base: VirtAddr,
}

impl<I: Isa> Scene<I> {
    fn new() -> Self {
        let world = machine::<I>(2);
        let device = world.swap_to(4096);
        let process = TestProcess::new(&world);
        let file = world.shmem(PAGES);
        let base = process.map(PAGES, Rights::RW, MapFlags::SHARED, Some(&file));
        fill(&process, base, PAGES, 1);
        Self { world, device, process, file, base }
    }

    fn reclaim(&self, pages: u64) -> u64 {
        self.world.on(CPU, |mm| mm.reclaim(NODE, pages as u32))
    }

    /// The pages of the object in memory.
    fn resident(&self) -> u64 {
        self.world.gauge(Gauge::Shmem)
    }

    /// Checks the contents, and that the machine keeps nothing of the object afterwards.
    fn end(self) {
        check(&self.process, self.base, PAGES, 1);
        assert_lists_consistent(&self.world);
        self.process.end();
        self.world.on(CPU, |mm| mm.close_file(&self.file));
        assert_eq!((self.resident(), self.device.used()), (0, 0), "INV-SWAP-COUNT");
        self.world.at_rest(&[]);
    }
}

fn both_ways_of_paging_out_leave_unevictable_pages<I: Isa>() {
    for by_advice in [true, false] {
        let scene = Scene::<I>::new();
        let page_out = || match by_advice {
            true => scene.process.advise(scene.base, PAGES, Advice::PageOut),
            false => _ = scene.reclaim(PAGES),
        };
        let active = || scene.world.on(CPU, |mm| mm.tlb().frames().lru_pages(NODE, LruList::ActiveAnon));
        scene.process.advise(scene.base, PAGES, Advice::Cold);
        scene.file.set_unevictable(true);
        for _ in 0..3 {
            page_out();
            assert_eq!((scene.resident(), scene.device.used()), (PAGES, 0), "INV-RECLAIM-UNEVICTABLE");
            assert_eq!(scene.process.space.rss().pages(), PAGES, "a page was unmapped");
        }
        assert!(u64::from(active()) >= PAGES || !by_advice, "pages that stay are not active");
        assert!(scene.world.count(Counter::PgActivate) >= PAGES);
        scene.file.set_unevictable(false);
        page_out();
        assert_eq!((scene.resident(), scene.device.used() as u64), (0, PAGES));
        scene.end();
    }
}

fn unevictable_pages_that_two_spaces_map_stay<I: Isa>() {
    let scene = Scene::<I>::new();
    let second = TestProcess::new(&scene.world);
    let theirs = second.map(PAGES, Rights::RW, MapFlags::SHARED, Some(&scene.file));
    check(&second, theirs, PAGES, 1);
    scene.file.set_unevictable(true);
    for _ in 0..3 {
        assert_eq!(scene.reclaim(PAGES), 0, "INV-RECLAIM-UNEVICTABLE");
        assert_eq!([&scene.process, &second].map(|process| process.space.rss().pages()), [PAGES; 2]);
    }
    // The lock is that of the object, and so it outlasts a mapping of it.
    second.unmap(theirs, PAGES);
    assert_eq!((scene.reclaim(PAGES), scene.resident()), (0, PAGES));
    let theirs = second.map(PAGES, Rights::RW, MapFlags::SHARED, Some(&scene.file));
    check(&second, theirs, PAGES, 1);
    scene.file.set_unevictable(false);
    assert_eq!((scene.reclaim(PAGES), scene.resident()), (PAGES, 0));
    check(&second, theirs, PAGES, 1);
    second.end();
    scene.end();
}

fn unevictable_pages_without_mappings_stay<I: Isa>() {
    let mut scene = Scene::<I>::new();
    scene.file.set_unevictable(true);
    scene.process.unmap(scene.base, PAGES);
    assert_eq!((scene.reclaim(PAGES), scene.resident()), (0, PAGES), "INV-RECLAIM-UNEVICTABLE");
    scene.file.set_unevictable(false);
    assert_eq!((scene.reclaim(PAGES), scene.resident()), (PAGES, 0));
    scene.base = scene.process.map(PAGES, Rights::RW, MapFlags::SHARED, Some(&scene.file));
    scene.end();
}

/// As in Linux, where `SHM_LOCK` reads no page.
fn pages_in_swap_stay_there_until_they_are_used<I: Isa>() {
    let scene = Scene::<I>::new();
    scene.process.advise(scene.base, PAGES, Advice::PageOut);
    scene.file.set_unevictable(true);
    assert_eq!((scene.resident(), scene.device.used() as u64), (0, PAGES));
    check(&scene.process, scene.base, PAGES / 2, 1);
    scene.process.advise(scene.base, PAGES, Advice::PageOut);
    assert_eq!((scene.resident(), scene.device.used() as u64), (PAGES / 2, PAGES / 2), "INV-RECLAIM-UNEVICTABLE");
    scene.end();
}

/// A program that needs twice the memory runs, as without the locked segment.
fn other_pages_are_reclaimed_beside_unevictable_ones<I: Isa>() {
    let scene = Scene::<I>::new();
    scene.file.set_unevictable(true);
    let rest = scene.process.anon(TWICE);
    fill(&scene.process, rest, TWICE, 5);
    check(&scene.process, rest, TWICE, 5);
    assert_eq!((scene.resident(), scene.world.count(Counter::OomKill)), (PAGES, 0), "INV-RECLAIM-UNEVICTABLE");
    scene.process.unmap(rest, TWICE);
    scene.end();
}

/// If nothing else is left to reclaim, the allocation fails.
fn memory_that_is_unevictable_throughout_ends_reclaim<I: Isa>() {
    let scene = Scene::<I>::new();
    let large = scene.world.shmem(TWICE);
    large.set_unevictable(true);
    let base = scene.process.map(TWICE, Rights::RW, MapFlags::SHARED, Some(&large));
    let store = |page| scene.world.lab.touch(CPU, &scene.process.space, at(base, page), Access::Write, 1).is_ok();
    let stored = (0..TWICE).take_while(|page| store(*page)).count() as u64;
    assert!(stored > FRAMES / 2 && stored < FRAMES, "{stored} of {FRAMES} frames");
    assert_eq!(scene.resident(), stored, "INV-RECLAIM-UNEVICTABLE");
    assert_eq!(scene.device.used() as u64, PAGES, "the pages that are not locked are in swap");
    large.set_unevictable(false);
    assert!(store(stored), "the pages are not reclaimed after the unlock");
    scene.process.unmap(base, TWICE);
    scene.world.on(CPU, |mm| mm.close_file(&large));
    scene.end();
}

/// One CPU pages out by advice, one reclaims, and the first also stores to the pages.
fn page_outs_beside_stores<I: Isa>(seed: u64) -> bool {
    const FEW: u64 = 2;
    let world = TestWorld::<I>::unjudged();
    let device = world.swap_to(8);
    let process = TestProcess::new(&world);
    let file = world.shmem(FEW);
    let base = process.map(FEW, Rights::RW, MapFlags::SHARED, Some(&file));
    fill(&process, base, FEW, 1);
    file.set_unevictable(true);
    let (stores, reclaims) = (world.clone(), world.clone());
    let space = process.space.clone();
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || {
            for value in 2..4 {
                stores.store(CPU, &space, base, value);
                stores.advise(CPU, &space, base, FEW, Advice::PageOut);
            }
        }),
        Box::new(move || (0..3).for_each(|_| _ = reclaims.on(OTHER, |mm| mm.reclaim(NODE, FEW as u32)))),
    ];
    race(&world, seed, programs);
    let stayed = device.used() == 0 && world.gauge(Gauge::Shmem) == FEW;
    stayed && process.read(CPU, base) == 3 && process.read(CPU, at(base, 1)) == 2
}

/// Two mappings of one file in a space: the locked one has no entry (`MLOCK_ONFAULT`).
fn a_locked_mapping_without_the_page_hides_no_other<I: Isa>() {
    for locked in [0, 1] {
        let world = machine::<I>(2);
        let process = TestProcess::new(&world);
        let file = world.file(1);
        let maps = [(); 2].map(|()| process.map_file(&file, Rights::READ, MapFlags::SHARED));
        world.on(CPU, |mm| mm.mlock2(&process.space, maps[locked], PAGE_SIZE, LockFlags::ONFAULT)).expect("allowed");
        process.read(CPU, maps[1 - locked]);
        (0..4).for_each(|_| _ = world.on(CPU, |mm| mm.reclaim(NODE, 1)));
        assert_eq!((world.gauge(Gauge::FilePages), process.space.rss().pages()), (0, 0), "mapping {locked} is locked");
        process.end();
    }
}
