//! Splits of folios: what they keep, when they are refused, and what runs beside them.

use super::{BASE, PAGES, end};
use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::race::{assert_holds, race, race_in_two_turns};
use pagewright_lab::harness::{ANON, CPU, GupCall, OTHER, TestProcess, TestWorld, at};
use pagewright_lab::planted_bugs_are_found;
use pagewright_mm::counters::Gauge;
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_mm::{Advice, MapFlags, MmSetting, RemapFlags, RemapRequest, Space, SplitCounts};
use pagewright_sim::explore::CoroutineBody;
use pagewright_sim::{AllocationFailure, Sim};
use pagewright_sync::Arc;
use pagewright_types::{Access, Counter, NodeId, PAGE_SIZE, PageRange, Rights};
use std::rc::Rc;

on_both! {
    a_split_keeps_contents_rights_and_counts,
    pages_that_nothing_maps_are_freed,
    a_folio_that_is_referenced_or_pinned_stays_whole,
    fork_copies_a_pinned_huge_page_in_few_turns,
    a_pass_of_reclaim_scans_a_large_folio_once,
    a_split_that_finds_no_memory_changes_nothing,
    pages_that_are_locked_stay_locked,
    every_space_that_maps_a_folio_keeps_it,
    reclaim_splits_a_huge_page_and_pages_it_out,
    a_page_out_of_a_part_splits_and_takes_that_part,
    a_page_of_a_huge_page_moves_after_a_split,
    /// INV-SPLIT-ALL.
    a_pin_beside_a_split_sees_what_the_process_stores: assert_holds(SCHEDULES, pin_beside_split::<I>, "a store was lost"),
    /// INV-SPLIT-ALL.
    a_split_loses_no_store: assert_holds(SCHEDULES, store_beside_split::<I>, "a store was lost"),
    /// INV-SPLIT-ALL, INV-MIGRATE-WAIT.
    a_fork_an_unmap_and_a_split_do_not_disturb_each_other: assert_holds(SCHEDULES, calls_beside_split::<I>, "a value was lost"),
}

const SCHEDULES: u64 = 60;
/// Pages with contents.
const WRITTEN: [u64; 5] = [0, 1, 7, 15, 14];

/// A process with one folio of `sizes`, at `BASE`.
fn mapped<I: Isa>(size: MmSetting) -> (Rc<TestWorld<I>>, TestProcess<I>) {
    let world = TestWorld::sized(4, 16 << 20);
    world.set(MmSetting::CowPageTables, "never");
    let process = TestProcess::new(&world);
    process.map_at(BASE, 2 * PAGES, Rights::RW, ANON | MapFlags::FIXED | MapFlags::NORESERVE);
    world.set(size, "always");
    WRITTEN.iter().for_each(|page| process.write(CPU, at(BASE, *page), page + 1));
    world.set(size, "never");
    (world, process)
}

const SIZES: [MmSetting; 2] = [MmSetting::ThpEnabled64k, MmSetting::ThpEnabled2048k];

fn split<I: Isa>(process: &TestProcess<I>) -> SplitCounts {
    let range = PageRange::new(BASE, at(BASE, PAGES));
    process.world.on(CPU, |mm| mm.split_huge_pages(&process.space, range))
}

fn holds<I: Isa>(process: &TestProcess<I>) -> bool {
    WRITTEN.iter().all(|page| process.read(OTHER, at(BASE, *page)) == page + 1)
}

/// Whether the page at `va` is a folio of its own.
fn is_small<I: Isa>(process: &TestProcess<I>, page: u64) -> bool {
    let pfn = process.frame(CPU, at(BASE, page), Access::Read);
    process.world.on(CPU, |mm| !mm.tlb().frames().folio(pfn).is_large())
}

fn a_split_keeps_contents_rights_and_counts<I: Isa>() {
    for size in SIZES {
        let (world, process) = mapped::<I>(size);
        process.protect(at(BASE, 4), 2, Rights::READ);
        let (resident, reused) = (process.space.rss().pages(), world.count(Counter::PgReuse));
        assert_eq!(split(&process), SplitCounts { found: 1, split: 1 });
        assert_eq!(split(&process), SplitCounts::default(), "it is split");
        world.recount(&[&process]);
        assert!(is_small(&process, 0) && is_small(&process, 15) && holds(&process));
        assert_eq!((process.space.rss().pages(), world.gauge(Gauge::AnonThps)), (resident, 0));
        assert_eq!((world.count(Counter::ThpSplitPage), world.count(Counter::ThpSplitPageFailed)), (1, 0));
        assert!(process.touch(CPU, at(BASE, 5), Access::Write).is_err());
        process.write(CPU, at(BASE, 9), 90);
        assert_eq!(world.count(Counter::PgReuse), reused, "the entries are writable still");
        end(&world, &[&process]);
    }
}

fn pages_that_nothing_maps_are_freed<I: Isa>() {
    for size in SIZES {
        for first in [0, 3] {
            let (world, process) = mapped::<I>(size);
            process.unmap(at(BASE, first), 1);
            process.unmap(at(BASE, 8), 4);
            let free = world.gauge(Gauge::FreePages);
            assert_eq!(split(&process).split, 1);
            assert_eq!(world.gauge(Gauge::FreePages) - free, 5);
            world.recount(&[&process]);
            assert_eq!(process.read(OTHER, at(BASE, 7)), 8);
            end(&world, &[&process]);
        }
    }
}

fn a_folio_that_is_referenced_or_pinned_stays_whole<I: Isa>() {
    for size in SIZES {
        for call in [GupCall::Get(GupFlags::empty()), GupCall::Pin(GupFlags::WRITE), GupCall::PinFast(GupFlags::WRITE)]
        {
            let (world, process) = mapped::<I>(size);
            let level = process.leaf_level(BASE);
            let device = process.take(CPU, at(BASE, 7), 1, call).expect("mapped");
            assert_eq!(split(&process), SplitCounts { found: 1, split: 0 }, "{call:?}");
            if !matches!(call, GupCall::Get(_)) {
                world.at_rest(&[&device]);
            }
            assert!(holds(&process) && !is_small(&process, 7) && process.leaf_level(BASE) == level);
            process.write(CPU, at(BASE, 7), 8);
            assert_eq!(device.read(0), 8);
            device.release(MakeDirty::No);
            assert_eq!(split(&process), SplitCounts { found: 1, split: 1 }, "{call:?}");
            assert!(holds(&process));
            end(&world, &[&process]);
        }
    }
}

/// Limit of the modelled time of a fork that copies 512 pages, in ps; it takes 300 us.
const MOST_OF_FORK: u64 = 400_000_000;

/// INV-FORK-HUGE.
///
/// A turn for each page would weaken and restore the entries behind it each time, for 1600 us.
fn fork_copies_a_pinned_huge_page_in_few_turns<I: Isa>() {
    let (world, process) = mapped::<I>(MmSetting::ThpEnabled2048k);
    let device = process.take(CPU, at(BASE, 7), 1, GupCall::Pin(GupFlags::WRITE)).expect("mapped");
    let before = world.lab.sim().elapsed();
    let child = process.fork();
    let taken = world.lab.sim().elapsed().raw() - before.raw();
    assert!(taken < MOST_OF_FORK, "{taken} ps");
    assert!(holds(&process) && holds(&child));
    device.release(MakeDirty::No);
    end(&world, &[&process, &child]);
}

fn a_split_that_finds_no_memory_changes_nothing<I: Isa>() {
    for size in SIZES {
        let (world, process) = mapped::<I>(size);
        world.lab.sim().fail_allocation_after(0, AllocationFailure::All);
        let refused = split(&process);
        world.lab.sim().permit_allocations();
        assert_eq!((refused, is_small(&process, 7)), (SplitCounts { found: 1, split: 0 }, false));
        assert!(holds(&process));
        end(&world, &[&process]);
    }
}

/// INV-LRU-LOCKS.
fn pages_that_are_locked_stay_locked<I: Isa>() {
    for size in SIZES {
        let (world, process) = mapped::<I>(size);
        world.on(CPU, |mm| mm.mlock(&process.space, at(BASE, 4), 4 * PAGE_SIZE)).expect("mapped");
        assert_eq!(split(&process).split, 1);
        world.recount(&[&process]);
        assert_eq!(world.gauge(Gauge::Unevictable), 4);
        world.on(CPU, |mm| mm.munlock(&process.space, at(BASE, 4), 4 * PAGE_SIZE)).expect("mapped");
        assert_eq!(world.gauge(Gauge::Unevictable), 0);
        assert!(holds(&process));
        end(&world, &[&process]);
    }
}

/// One maps it whole, one by page, and in one some pages have moved.
fn every_space_that_maps_a_folio_keeps_it<I: Isa>() {
    for size in SIZES {
        let (world, process) = mapped::<I>(size);
        let [whole, by_page, moved] = core::array::from_fn(|_| process.fork());
        by_page.protect(at(BASE, 5), 1, Rights::READ);
        let flags = RemapFlags::MAYMOVE | RemapFlags::FIXED;
        let to = at(BASE, PAGES + 40);
        let request = RemapRequest { addr: at(BASE, 7), old_len: PAGE_SIZE, new_len: PAGE_SIZE, flags, new_addr: to };
        world.on(CPU, |mm| mm.mremap(&moved.space, &request)).expect("nothing is in the way");
        let all = [&process, &whole, &by_page, &moved];
        world.recount(&all);
        assert_eq!(split(&process), SplitCounts { found: 1, split: 1 });
        world.recount(&all);
        assert!([&process, &whole, &by_page].iter().all(|process| holds(process)));
        assert_eq!([at(BASE, 1), to].map(|va| moved.read(OTHER, va)), [2, 8]);
        whole.write(CPU, at(BASE, 7), 70);
        assert!(holds(&process) && moved.read(CPU, to) == 8);
        end(&world, &all);
    }
}

/// INV-RECLAIM-SMALL.
fn reclaim_splits_a_huge_page_and_pages_it_out<I: Isa>() {
    let (world, process) = mapped::<I>(MmSetting::ThpEnabled2048k);
    let _device = world.swap_to(2 * PAGES as u32);
    let mut freed = 0;
    for _ in 0..200 {
        freed += world.on(CPU, |mm| mm.reclaim(NodeId::new(0), 32));
        if freed >= PAGES {
            break;
        }
    }
    assert_eq!((world.count(Counter::ThpSplitPage), world.count(Counter::PswpOut)), (1, PAGES));
    world.recount(&[&process]);
    assert!(holds(&process));
    world.recount(&[&process]);
    TestProcess::end_all_at_rest(&[&process]);
}

/// The passes of a reclaim that frees nothing: 17 rounds, each at ten priorities.
const FRUITLESS_PASSES: u64 = 17 * 10;

/// A pinned folio cannot be split, and is scanned again only by the next pass.
fn a_pass_of_reclaim_scans_a_large_folio_once<I: Isa>() {
    let (world, process) = mapped::<I>(MmSetting::ThpEnabled2048k);
    let _swap = world.swap_to(2 * PAGES as u32);
    let device = process.take(CPU, at(BASE, 7), 1, GupCall::Pin(GupFlags::WRITE)).expect("mapped");
    assert_eq!(world.on(CPU, |mm| mm.reclaim(NodeId::new(0), 1)), 0);
    let scanned = world.count(Counter::PgScanProactive);
    assert!((PAGES..=FRUITLESS_PASSES * PAGES).contains(&scanned), "{scanned} pages");
    device.release(MakeDirty::No);
    end(&world, &[&process]);
}

fn a_page_out_of_a_part_splits_and_takes_that_part<I: Isa>() {
    for size in SIZES {
        let (world, process) = mapped::<I>(size);
        let _device = world.swap_to(2 * PAGES as u32);
        process.advise(at(BASE, 4), 8, Advice::PageOut);
        assert_eq!((world.count(Counter::ThpSplitPage), world.count(Counter::PswpOut)), (1, 8));
        assert!(holds(&process));
        world.recount(&[&process]);
        TestProcess::end_all_at_rest(&[&process]);
    }
}

/// INV-MIGRATE-SMALL.
fn a_page_of_a_huge_page_moves_after_a_split<I: Isa>() {
    let world = TestWorld::<I>::two_nodes(2, 8 << 20);
    let process = TestProcess::new(&world);
    process.map_at(BASE, PAGES, Rights::RW, ANON | MapFlags::FIXED | MapFlags::NORESERVE);
    process.map_huge(BASE);
    WRITTEN.iter().for_each(|page| process.write(CPU, at(BASE, *page), page + 1));
    let far = NodeId::new(1);
    let mut moved = Vec::new();
    let pages = [(at(BASE, 7), far)];
    let left = world.on(CPU, |mm| mm.move_pages(&process.space, &pages, false, |_, status| moved.push(status)));
    assert_eq!((left, moved), (Ok(0), vec![Ok(far)]));
    assert!(holds(&process));
    world.recount(&[&process]);
    process.end();
}

/// Splits what is mapped from `BASE` on.
pub(super) fn splitter<I: Isa>(world: Rc<TestWorld<I>>, space: Arc<Space<Sim<I>>>) -> CoroutineBody {
    let range = PageRange::new(BASE, at(BASE, PAGES));
    Box::new(move || {
        world.on(CPU, |mm| mm.split_huge_pages(&space, range));
    })
}

/// The pin is refused, or the folio stays whole; a page of it never has two copies.
fn pin_beside_split<I: Isa>(seed: u64) -> bool {
    let (world, process) = mapped::<I>(SIZES[usize::from(seed.is_multiple_of(2))]);
    world.lab.run(CPU, &process.space);
    world.lab.run(OTHER, &process.space);
    let device = Rc::new(std::cell::RefCell::new(None));
    let (taken, splits) = (Rc::clone(&device), Rc::clone(&world));
    let [pinned, space] = [(); 2].map(|()| process.space.clone());
    let pins = TestProcess { world: Rc::clone(&world), space: pinned };
    let call = if seed.is_multiple_of(3) { GupCall::Pin(GupFlags::WRITE) } else { GupCall::PinFast(GupFlags::WRITE) };
    let programs: Vec<CoroutineBody> = vec![
        splitter(splits, space),
        Box::new(move || *taken.borrow_mut() = pins.take(OTHER, at(BASE, 7), 1, call).ok()),
    ];
    race(&world, seed, programs);
    process.write(CPU, at(BASE, 7), 70);
    let device = device.borrow_mut().take();
    let sound = device.as_ref().is_none_or(|device| device.read(0) == 70) && process.read(OTHER, at(BASE, 1)) == 2;
    device.into_iter().for_each(|device| device.release(MakeDirty::No));
    end(&world, &[&process]);
    sound
}

fn store_beside_split<I: Isa>(seed: u64) -> bool {
    let (world, process) = mapped::<I>(SIZES[usize::from(seed.is_multiple_of(2))]);
    world.lab.run(CPU, &process.space);
    world.lab.run(OTHER, &process.space);
    process.read(OTHER, at(BASE, 3));
    let (stores, splits) = (Rc::clone(&world), Rc::clone(&world));
    let [stored, space] = [(); 2].map(|()| process.space.clone());
    let programs: Vec<CoroutineBody> = vec![
        splitter(splits, space),
        Box::new(move || (2..6).for_each(|page| stores.store(OTHER, &stored, at(BASE, page), page * 10))),
    ];
    race(&world, seed, programs);
    let sound = (2..6).all(|page| process.read(CPU, at(BASE, page)) == page * 10) && holds(&process);
    // A flush of a page reaches no TLB entry of 2 MiB on arm64.
    process.protect(at(BASE, 3), 1, Rights::READ);
    world.at_rest(&[]);
    end(&world, &[&process]);
    sound
}

fn calls_beside_split<I: Isa>(seed: u64) -> bool {
    let (world, process) = mapped::<I>(SIZES[usize::from(seed.is_multiple_of(2))]);
    let child = process.fork();
    world.lab.run(CPU, &process.space);
    world.lab.run(OTHER, &child.space);
    let (splits, forks, unmaps) = (Rc::clone(&world), Rc::clone(&world), Rc::clone(&world));
    let (space, forked, unmapped) = (process.space.clone(), process.space.clone(), child.space.clone());
    let forks_made = Rc::new(std::cell::RefCell::new(Vec::new()));
    let made = Rc::clone(&forks_made);
    let third = pagewright_types::CpuId::new(2);
    let programs: Vec<CoroutineBody> = vec![
        splitter(splits, space),
        Box::new(move || unmaps.on(OTHER, |mm| mm.munmap(&unmapped, at(BASE, 2), 3 * PAGE_SIZE)).expect("mapped")),
        Box::new(move || made.borrow_mut().extend(forks.on(third, |mm| mm.fork(&forked)).ok())),
    ];
    if seed.is_multiple_of(3) {
        race_in_two_turns(&world, seed, programs)
    } else {
        race(&world, seed, programs)
    }
    let grandchild = forks_made.borrow_mut().pop().map(|space| TestProcess { world: Rc::clone(&world), space });
    let mut all = vec![&process, &child];
    all.extend(grandchild.iter());
    let sound = all.iter().all(|process| holds(process));
    process.write(CPU, at(BASE, 7), 70);
    let sound = sound && child.read(CPU, at(BASE, 7)) == 8;
    end(&world, &all);
    sound
}

planted_bugs_are_found! {
    20 * SCHEDULES;
    SplitIgnoresRef => pin_beside_split,
    SplitLosesWhole => calls_beside_split,
}
