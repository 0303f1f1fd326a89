//! Programs that need more memory than there is.
//!
//! Their contents survive background and direct reclaim, and pages in use stay. The oracle judges
//! each machine: no stale frame is reached, and the counts are right at the end.
//!
//! Not covered: the quality of reclaim's choices, except in the plainest cases.

mod attempts;
mod choices;
mod explored;
mod interrupted;
mod lost_faults;
mod pending;
mod referenced;
mod unevictable;
mod zram;

use pagewright_arch::on_both;
use pagewright_arch::{Isa, LeafFlags};
use pagewright_lab::harness::files::{DiskFile, TestDisk};
use pagewright_lab::harness::{CPU, GupCall, OTHER, TestProcess, TestWorld, at, recount};
use pagewright_mm::counters::Gauge;
use pagewright_mm::file::FileKind;
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_mm::{FaultError, MapFlags, MmSetting};
use pagewright_sim::AllocationFailure;
use pagewright_tlb::frames::FolioFlags;
use pagewright_types::{Access, Counter, CpuId, IsaKind, LruList, NodeId, Order, PAGE_SIZE, Rights, VirtAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const NODE: NodeId = NodeId::new(0);
/// The frames of a machine.
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

fn machine<I: Isa>(cpus: u16) -> Rc<TestWorld<I>> {
    machine_of(cpus, FRAMES)
}

fn machine_of<I: Isa>(cpus: u16, frames: u64) -> Rc<TestWorld<I>> {
    let world = TestWorld::sized(cpus, frames * PAGE_SIZE);
    // Overcommit is allowed.
    world.on(CPU, |mm| mm.settings().set(MmSetting::OvercommitMemory, 1)).expect("a possible value");
    world
}

/// Runs background reclaim if it is needed.
fn background<I: Isa>(world: &TestWorld<I>, cpu: CpuId) {
    if world.on(cpu, |mm| mm.needs_balance(NODE)) {
        world.on(cpu, |mm| mm.balance(NODE));
    }
}

/// Checks INV-LRU-PLACE and INV-LRU-SIZE.
///
/// Each mapped or cached page is on the list that its flags name.
fn assert_lists_consistent<I: Isa>(world: &TestWorld<I>) {
    world.on(CPU, |mm| {
        let frames = mm.tlb().frames();
        let mut listed = 0;
        for &list in LruList::ALL {
            let mut pages = 0;
            frames.for_each_listed(NODE, list, |pfn| {
                pages += 1;
                assert_eq!(frames.folio(pfn).flags().list(), list);
            });
            assert_eq!(frames.lru_pages(NODE, list), pages, "{}", list.name());
            listed += u64::from(pages);
        }
        assert!(
            listed >= mm.gauge(Gauge::AnonPages) + mm.gauge(Gauge::FilePages),
            "{listed} pages are listed, fewer than are mapped or cached"
        );
    });
}

/// Checks that batches are full, however short the lists are.
fn assert_full_batches<I: Isa>(world: &TestWorld<I>, stolen: Counter) {
    let (waits, pages) = (world.count(Counter::PwReclaimWaits), world.count(stolen));
    assert!(waits * 32 <= pages, "{waits} waits for {pages} pages");
    assert!(waits > 0 || I::KIND == IsaKind::X86_64, "the CPUs that had run the space were not flushed");
}

fn a_program_with_twice_the_memory_runs<I: Isa>() {
    let world = machine::<I>(2);
    let device = world.swap_to(4096);
    let process = TestProcess::new(&world);
    let base = process.anon(TWICE);
    fill(&process, base, TWICE, 5);
    check(&process, base, TWICE, 5);
    assert!(world.count(Counter::PgStealDirect) >= TWICE - FRAMES);
    assert!(world.count(Counter::PswpOut) >= TWICE - FRAMES && device.used() > 0);
    assert_eq!(world.count(Counter::OomKill), 0);
    assert_full_batches(&world, Counter::PgStealDirect);
    assert_lists_consistent(&world);
    process.end();
    world.at_rest(&[]);
    assert_eq!(device.used(), 0, "INV-SWAP-COUNT");
    assert_lists_consistent(&world);
}

fn background_reclaim_prevents_direct_reclaim<I: Isa>() {
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
    assert_eq!(world.count(Counter::PgStealDirect), 0, "an allocation reclaimed directly");
    assert_full_batches(&world, Counter::PgStealKswapd);
    world.at_rest(&[]);
}

/// A process with hot pages, which are filled, and other memory, on a machine with swap.
fn hot_and_other<I: Isa>(slots: u32, pages: [u64; 2]) -> (Rc<TestWorld<I>>, TestProcess<I>, [VirtAddr; 2]) {
    let world = machine::<I>(2);
    world.swap_to(slots);
    let process = TestProcess::new(&world);
    let memories = pages.map(|pages| process.anon(pages));
    fill(&process, memories[0], pages[0], 1);
    (world, process, memories)
}

/// Pages that are used again and again stay, and pages that are used once are evicted.
///
/// The hot pages are read so rarely that plain FIFO order would evict them between most reads.
fn hot_pages_survive_a_stream_of_cold_pages<I: Isa>() {
    const HOT: u64 = 150;
    const COLD: u64 = 8 * FRAMES;
    const BETWEEN: u64 = 600;
    let (world, process, [hot, cold]) = hot_and_other::<I>(16384, [HOT, COLD]);
    let (mut missed, mut looked) = (0, 0);
    for page in 0..COLD {
        process.write(CPU, at(cold, page), page);
        background(&world, OTHER);
        if page % BETWEEN == BETWEEN - 1 {
            let before = world.count(Counter::PswpIn);
            world.lab.evict_translations(CPU);
            check(&process, hot, HOT, 1);
            // The first reads activate the pages.
            if page > 3 * FRAMES {
                missed += world.count(Counter::PswpIn) - before;
                looked += HOT;
            }
        }
    }
    assert!(missed * 100 < looked, "{missed} of {looked} reads of hot pages swapped in");
    assert!(world.count(Counter::PgActivate) > 0 && world.count(Counter::PgScanKswapd) > 0);
    check(&process, cold, COLD, 0);
    world.at_rest(&[]);
}

fn mlocked_and_pinned_pages_stay<I: Isa>() {
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
    assert_eq!(world.count(Counter::PswpIn), swapped_in, "mlocked or pinned pages were swapped in");
    (0..16).for_each(|page| assert_eq!(held.read(page as usize), page + 200));
    assert_eq!(world.gauge(Gauge::Unevictable), 16);
    assert!(world.count(Counter::UnevictableCulled) >= 16);
    held.release(MakeDirty::No);
    world.on(CPU, |mm| mm.munlock(&process.space, locked, len)).expect("mapped");
    assert_eq!((world.gauge(Gauge::Unevictable), world.count(Counter::UnevictableRescued)), (0, 16));
    fill(&process, rest, TWICE, 0);
    assert!(process.space.rss().swapped() > 0);
    check(&process, locked, 16, 100);
    assert!(world.count(Counter::PswpIn) > swapped_in, "munlocked pages were never swapped out");
    assert_lists_consistent(&world);
    world.at_rest(&[]);
}

/// A mapping counts as one reference, and a pin as 1024: many mappings are not taken for a pin.
fn many_mappings_are_not_taken_for_a_pin<I: Isa>() {
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
    assert_eq!(cached(), 1, "the pinned page stays");
    pinned.release(MakeDirty::No);
    world.on(CPU, |mm| mm.reclaim(NODE, 2));
    assert_eq!((cached(), process.space.rss().pages()), (0, 0));
    process.end();
    world.at_rest(&[]);
}

/// If the lock of one of a page's spaces is contended, no accessed bit of the page is cleared.
///
/// Nor does the page count as used once more.
fn a_contended_space_keeps_the_accessed_bits_of_all<I: Isa>() {
    let world = machine::<I>(2);
    let _device = world.swap_to(16);
    let processes = [TestProcess::new(&world), TestProcess::new(&world)];
    let file = world.shmem(1);
    let maps = processes.each_ref().map(|process| process.map(1, Rights::RW, MapFlags::SHARED, Some(&file)));
    let used = |at: usize| {
        let space = &processes[at].space;
        world.on(CPU, |mm| recount::leaf(mm, space, maps[at])).is_some_and(|leaf| leaf.has(LeafFlags::ACCESSED))
    };
    processes.iter().zip(maps).for_each(|(process, va)| process.write(CPU, va, 1));
    assert!(used(0) && used(1));
    let leaf = world.on(CPU, |mm| recount::leaf(mm, &processes[0].space, maps[0])).expect("mapped");
    for referenced in [FolioFlags::empty(), FolioFlags::REFERENCED] {
        world.on(CPU, |mm| {
            let folio = mm.tlb().frames().folio(leaf.page_at(maps[0]));
            folio.clear_flags(FolioFlags::REFERENCED);
            folio.set_flags(referenced);
            let _changing = processes[0].space.map().write();
            mm.reclaim(NODE, 1);
            assert_eq!(folio.flags() & FolioFlags::REFERENCED, referenced);
        });
        assert!(used(0) && used(1), "an accessed bit was cleared");
    }
    world.on(CPU, |mm| mm.reclaim(NODE, 1));
    assert_eq!(world.gauge(Gauge::Shmem), 0, "the page was not reclaimed once both locks were free");
    processes.into_iter().for_each(|process| process.end());
}

/// Shared memory that two processes have mlocked is not scanned until both have munlocked it.
fn a_page_is_unevictable_until_its_last_munlock<I: Isa>() {
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
    // A second mlock by the parent does not count.
    [&parent, &child, &parent].into_iter().for_each(lock);
    assert_eq!((kept(), world.count(Counter::UnevictableCulled)), ((PAGES, 0), PAGES));
    unlock(&parent);
    unlock(&parent);
    assert_eq!(kept(), (PAGES, 0), "the child has the pages mlocked");
    fill(&parent, rest, TWICE, 0);
    assert_eq!((kept(), world.count(Counter::UnevictableCulled)), ((PAGES, 0), PAGES), "mlocked pages are not scanned");
    lock(&parent);
    child.unmap(shared, PAGES / 2);
    child.end();
    assert_eq!(kept(), (PAGES, 0), "the parent has the pages mlocked");
    unlock(&parent);
    assert_eq!(kept(), (0, PAGES));
    assert_lists_consistent(&world);
    world.at_rest(&[]);
}

/// Without swap nothing can be reclaimed: an allocation fails in the end, and no page is lost.
fn without_swap_the_last_allocation_fails<I: Isa>() {
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
    let full = refused.expect("there is not that much memory");
    assert!(full > FRAMES / 2, "refused at page {full}");
    check(&process, base, full, 9);
    assert_eq!(world.count(Counter::PgStealDirect), 0);
    process.unmap(base, 100);
    process.write(CPU, at(base, full), 1);
    world.at_rest(&[]);
}

/// All pages are dirty, and the device has fewer slots than there are pages to write.
///
/// There is no deadlock, and no page is lost.
fn a_full_or_failing_device_loses_no_page<I: Isa>() {
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
    // A page can be swapped in only if another is swapped out.
    let there = (0..stored).filter(|page| process.touch(CPU, at(base, *page), Access::Read).is_ok());
    for page in there.collect::<Vec<_>>() {
        assert_eq!(process.read(CPU, at(base, page)), page + 3);
    }
    process.unmap(base, 200);
    (200..stored).for_each(|page| assert_eq!(process.read(CPU, at(base, page)), page + 3, "page {page}"));
    world.at_rest(&[]);
    // A failing device keeps its pages and takes no more.
    device.broken.store(true, Ordering::Relaxed);
    while process.touch(CPU, at(base, stored + 1), Access::Write).is_ok() && stored + 2 < TWICE {
        stored += 1;
    }
    device.broken.store(false, Ordering::Relaxed);
    process.end();
    world.at_rest(&[]);
    assert_eq!(device.used(), 0);
}

/// The pages that a failing device refuses stay on the list that reclaim scans.
fn a_page_that_a_device_refuses_stays_inactive<I: Isa>() {
    let world = machine::<I>(1);
    let device = world.swap_to(16);
    let process = TestProcess::new(&world);
    let base = process.anon(4);
    (0..4).for_each(|page| process.write(CPU, at(base, page), page + 3));
    device.broken.store(true, Ordering::Relaxed);
    let activated = world.count(Counter::PgActivate);
    world.on(CPU, |mm| mm.reclaim(NODE, 4));
    world.on(CPU, |mm| mm.reclaim(NODE, 4));
    assert_eq!((device.used(), world.count(Counter::PgActivate)), (0, activated));
    // A use after a scan that found none is the first one again.
    world.lab.evict_translations(CPU);
    (0..4).for_each(|page| assert_eq!(process.read(CPU, at(base, page)), page + 3));
    world.on(CPU, |mm| mm.reclaim(NODE, 4));
    assert_eq!((device.used(), world.count(Counter::PgActivate)), (0, activated));
    device.broken.store(false, Ordering::Relaxed);
    (0..4).for_each(|page| assert_eq!(process.read(CPU, at(base, page)), page + 3));
    TestProcess::end_all_at_rest(&[&process]);
}

/// A process that maps a file of twice the memory's size, the address, and the file's device.
fn map_large_file<I: Isa>(world: &Rc<TestWorld<I>>) -> (TestProcess<I>, VirtAddr, Arc<TestDisk>) {
    let disk = Arc::new(TestDisk::default());
    let kind = FileKind::File(Box::new(DiskFile(disk.clone())));
    let file = world.on(CPU, |mm| mm.add_file("/large", kind, TWICE * PAGE_SIZE)).expect("memory");
    let process = TestProcess::new(world);
    let base = process.map(TWICE, Rights::RW, MapFlags::SHARED, Some(&file));
    (process, base, disk)
}

/// Clean file pages are evicted and read again; dirty ones are first written by background reclaim.
fn file_pages_are_evicted_and_read_again<I: Isa>() {
    let world = machine::<I>(2);
    let (process, base, disk) = map_large_file(&world);
    let check = || {
        for page in 0..TWICE {
            assert_eq!(process.read(CPU, at(base, page)), page, "page {page}");
        }
    };
    check();
    check();
    assert!(world.count(Counter::PgStealDirect) > 0);
    assert!(world.count(Counter::WorkingsetRefaultFile) >= TWICE - FRAMES, "the second pass refaults most pages");
    // Stores the values that the file already has, because the device does not keep what is
    // written.
    for page in 0..TWICE {
        process.write(CPU, at(base, page), page);
        background(&world, OTHER);
    }
    check();
    assert!(
        disk.written.lock().expect("unpoisoned").len() as u64 >= TWICE - FRAMES,
        "dirty pages were evicted without a write"
    );
    assert_lists_consistent(&world);
    process.end();
    world.at_rest(&[]);
}

/// Direct reclaim skips dirty file pages; background reclaim writes them.
fn direct_reclaim_does_not_write_dirty_files<I: Isa>() {
    let world = machine::<I>(2);
    let (process, base, disk) = map_large_file(&world);
    let mut page = 0;
    while process.touch(CPU, at(base, page), Access::Write).is_ok() {
        process.write(CPU, at(base, page), page);
        page += 1;
    }
    assert!(
        page < TWICE && disk.written.lock().expect("unpoisoned").is_empty(),
        "direct reclaim wrote pages, or page {page} is past the memory"
    );
    background(&world, OTHER);
    (page..TWICE).for_each(|page| {
        process.write(CPU, at(base, page), page);
        background(&world, OTHER);
    });
    (0..TWICE).for_each(|page| assert_eq!(process.read(CPU, at(base, page)), page));
    world.at_rest(&[]);
}

/// A page that refaults within the workingset's size is activated at once.
fn a_refault_within_the_workingset_is_activated<I: Isa>() {
    const HOT: u64 = 400;
    const ROUND: u64 = 700;
    let (world, process, [hot, round]) = hot_and_other::<I>(4096, [HOT, ROUND]);
    for step in 0..8 * ROUND {
        let page = step % ROUND;
        process.write(CPU, at(round, page), page + 2);
        if step < 3 * ROUND && step % 100 == 0 {
            world.lab.evict_translations(CPU);
            check(&process, hot, HOT, 1);
        }
    }
    let of = |counter| world.count(counter);
    let (back, active) = (of(Counter::WorkingsetRefaultAnon), of(Counter::WorkingsetActivateAnon));
    assert!(active > 0 && active <= back, "{active} of {back} refaults were activated");
    assert!(of(Counter::WorkingsetRestoreAnon) <= active && of(Counter::PgDeactivate) > 0);
    // Pages that are no longer hot are evicted by now, so the last rounds mostly hit.
    let before = of(Counter::PswpIn);
    check(&process, round, ROUND, 2);
    check(&process, round, ROUND, 2);
    assert!(
        of(Counter::PswpIn) - before < ROUND,
        "{} of {} pages were swapped in",
        of(Counter::PswpIn) - before,
        2 * ROUND
    );
    world.at_rest(&[]);
}

/// `vm.swappiness` decides between file and anonymous pages when both can be reclaimed.
///
/// The program returns to the pages of the file, so many are active. While most are inactive, they
/// are reclaimed first, whatever the setting (`cache_trim_mode`).
fn swappiness_divides_files_and_anonymous_memory<I: Isa>() {
    const HOT: u64 = FRAMES / 2;
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
            if page % 16 == 15 {
                world.lab.evict_translations(CPU);
                (page.saturating_sub(HOT)..page).for_each(|again| _ = process.read(CPU, at(base, again)));
            }
            background(&world, OTHER);
        }
        check(&process, anon, FRAMES / 2, 4);
        world.at_rest(&[]);
        world.count(Counter::PswpOut)
    });
    assert!(written[0] == 0 && written[1] > FRAMES / 16, "{written:?}");
}

/// Shared memory, and pages shared with a child, are swapped out and in.
fn shared_pages_are_swapped_for_all_sharers<I: Isa>() {
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

/// A request to reclaim frees what it asks for, however many batches that takes, and no more.
fn a_request_frees_as_many_pages_as_it_asks_for<I: Isa>() {
    for wanted in [1, 31, 32, 33, 70, 100] {
        let world = machine::<I>(1);
        let _device = world.swap_to(1024);
        let process = TestProcess::new(&world);
        let base = process.anon(300);
        fill(&process, base, 300, 1);
        let freed = world.on(CPU, |mm| mm.reclaim(NODE, wanted));
        assert_eq!(freed, u64::from(wanted));
        assert_eq!(world.count(Counter::PgStealProactive), freed);
        assert_eq!(process.space.rss().pages(), 300 - freed, "{wanted}");
        check(&process, base, 300, 1);
        process.end();
        world.at_rest(&[]);
    }
}

/// A pool fill goes on after a batch that a failed allocation made short.
fn a_pool_fill_retries_a_short_batch<I: Isa>() {
    let world = TestWorld::<I>::sized(1, FRAMES * PAGE_SIZE);
    for refused in 0..8 {
        world.on(CPU, |mm| {
            let pool = mm.huge_pool(Order::new(3), NODE, 8).expect("memory");
            world.lab.sim().fail_allocation_after(refused, AllocationFailure::One);
            let filled = pool.fill(0..8, || {});
            world.lab.sim().permit_allocations();
            // A fill fails only if the first allocation of a batch fails, because the injected
            // failure is not a lack of frames.
            assert_eq!((filled.is_ok(), pool.filled()), if refused == 0 { (false, 0) } else { (true, 8) }, "{refused}");
        });
    }
    world.at_rest(&[]);
}

on_both!(
    a_pool_fill_retries_a_short_batch,
    a_request_frees_as_many_pages_as_it_asks_for,
    a_program_with_twice_the_memory_runs,
    background_reclaim_prevents_direct_reclaim,
    hot_pages_survive_a_stream_of_cold_pages,
    mlocked_and_pinned_pages_stay,
    a_contended_space_keeps_the_accessed_bits_of_all,
    many_mappings_are_not_taken_for_a_pin,
    a_page_is_unevictable_until_its_last_munlock,
    without_swap_the_last_allocation_fails,
    a_full_or_failing_device_loses_no_page,
    a_page_that_a_device_refuses_stays_inactive,
    file_pages_are_evicted_and_read_again,
    direct_reclaim_does_not_write_dirty_files,
    a_refault_within_the_workingset_is_activated,
    swappiness_divides_files_and_anonymous_memory,
    shared_pages_are_swapped_for_all_sharers,
);
