//! Folios of which some pages are unmapped: they wait on a queue, and reclaim splits them.

use super::{BASE, PAGES, end};
use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::race::{assert_holds, race};
use pagewright_lab::harness::{ANON, CPU, GupCall, OTHER, TestProcess, TestWorld, at};
use pagewright_lab::planted_bugs_are_found;
use pagewright_mm::counters::Gauge;
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_mm::{Advice, MapFlags, MmSetting};
use pagewright_sim::explore::CoroutineBody;
use pagewright_types::{Counter, NodeId, PAGE_SIZE, Rights};
use std::rc::Rc;

on_both! {
    /// INV-DEFERRED-QUEUE.
    a_folio_is_queued_when_its_first_page_is_unmapped_and_leaves_with_its_last,
    a_folio_that_is_unmapped_at_once_is_never_queued,
    a_store_and_an_exit_that_leave_a_page_unmapped_queue_the_folio,
    /// INV-DEFERRED-SPLIT.
    reclaim_frees_what_is_unmapped_although_nothing_can_be_swapped,
    an_allocation_gets_pages_that_are_unmapped_and_in_a_large_folio,
    /// INV-DEFERRED-QUEUE.
    a_folio_that_stays_whole_is_queued_again,
    a_folio_in_two_spaces_waits_until_both_have_unmapped_a_page,
    /// INV-DEFERRED-QUEUE.
    unmaps_and_splits_of_the_queue_do_not_disturb_each_other: assert_holds(SCHEDULES, unmaps_beside_reclaim::<I>, "a value was lost"),
}

const SCHEDULES: u64 = 60;
const NODE: NodeId = NodeId::new(0);
const SIZES: [(MmSetting, u64); 2] = [(MmSetting::ThpEnabled64k, 16), (MmSetting::ThpEnabled2048k, PAGES)];

/// A process with `folios` folios of a size from `BASE` on, in a machine of `mib` MiB.
fn mapped<I: Isa>(size: (MmSetting, u64), folios: u64, mib: u64) -> (Rc<TestWorld<I>>, TestProcess<I>) {
    let world = TestWorld::sized(4, mib << 20);
    let process = TestProcess::new(&world);
    process.map_at(BASE, (folios * size.1).max(PAGES), Rights::RW, ANON | MapFlags::FIXED | MapFlags::NORESERVE);
    world.set(size.0, "always");
    (0..folios).for_each(|folio| process.write(CPU, at(BASE, folio * size.1 + 3), folio));
    world.set(size.0, "never");
    (world, process)
}

/// Base pages of the folios that wait to be split.
fn queued<I: Isa>(world: &TestWorld<I>) -> u64 {
    u64::from(world.on(CPU, |mm| mm.tlb().frames().deferred_pages(NODE)))
}

/// Reclaims a batch of pages, and returns how many were freed.
fn reclaim<I: Isa>(world: &TestWorld<I>) -> u64 {
    world.on(CPU, |mm| mm.reclaim(NODE, 32))
}

fn a_folio_is_queued_when_its_first_page_is_unmapped_and_leaves_with_its_last<I: Isa>() {
    for size in SIZES {
        let (world, process) = mapped::<I>(size, 2, 16);
        assert_eq!(queued(&world), 0);
        process.unmap(BASE, 1);
        process.unmap(at(BASE, 5), 2);
        process.advise(at(BASE, 9), 1, Advice::DontNeed);
        assert_eq!((queued(&world), world.count(Counter::ThpDeferredSplitPage)), (size.1, 1));
        process.unmap(at(BASE, size.1 + 2), 3);
        assert_eq!((queued(&world), world.count(Counter::ThpDeferredSplitPage)), (2 * size.1, 2));
        world.at_rest(&[]);
        process.unmap(BASE, size.1);
        assert_eq!(queued(&world), size.1);
        end(&world, &[&process]);
        assert_eq!((queued(&world), world.count(Counter::ThpSplitPage)), (0, 0));
    }
}

fn a_folio_that_is_unmapped_at_once_is_never_queued<I: Isa>() {
    for size in SIZES {
        let (world, process) = mapped::<I>(size, 2, 16);
        // The second is split into pieces in one table, which `mprotect` of a part does.
        [Rights::READ, Rights::RW].iter().for_each(|rights| process.protect(at(BASE, size.1 + 1), 1, *rights));
        process.unmap(BASE, size.1);
        process.unmap(at(BASE, size.1), size.1);
        assert_eq!(world.count(Counter::ThpDeferredSplitPage), 0);
        end(&world, &[&process]);
    }
}

fn a_store_and_an_exit_that_leave_a_page_unmapped_queue_the_folio<I: Isa>() {
    for size in SIZES {
        let (world, process) = mapped::<I>(size, 1, 16);
        let child = process.fork();
        process.write(CPU, at(BASE, 3), 30);
        assert_eq!(queued(&world), 0, "the child has the page");
        assert_eq!(child.read(OTHER, at(BASE, 3)), 0);
        child.end();
        assert_eq!(queued(&world), size.1);
        world.at_rest(&[]);
        assert_eq!(process.read(CPU, at(BASE, 3)), 30);
        end(&world, &[&process]);
    }
}

fn reclaim_frees_what_is_unmapped_although_nothing_can_be_swapped<I: Isa>() {
    for size in SIZES {
        let (world, process) = mapped::<I>(size, 2, 16);
        [0, size.1].iter().for_each(|page| process.unmap(at(BASE, page + 4), size.1 - 4));
        let free = world.gauge(Gauge::FreePages);
        let freed: u64 = (0..4).map(|_| reclaim(&world)).sum();
        assert_eq!((freed, world.gauge(Gauge::FreePages) - free), (2 * (size.1 - 4), 2 * (size.1 - 4)));
        assert_eq!((queued(&world), world.count(Counter::ThpSplitPage)), (0, 2));
        world.at_rest(&[]);
        assert_eq!([3, size.1 + 3].map(|page| process.read(OTHER, at(BASE, page))), [0, 1]);
        end(&world, &[&process]);
    }
}

fn an_allocation_gets_pages_that_are_unmapped_and_in_a_large_folio<I: Isa>() {
    let (world, process) = mapped::<I>(SIZES[1], 4, 16);
    (0..4).for_each(|folio| process.unmap(at(BASE, folio * PAGES + 4), PAGES - 4));
    let others = at(BASE, 8 * PAGES);
    let pages = world.gauge(Gauge::FreePages) + PAGES;
    process.map_at(others, pages, Rights::RW, ANON | MapFlags::FIXED | MapFlags::NORESERVE);
    (0..pages).for_each(|page| process.write(CPU, at(others, page), page));
    assert!(world.count(Counter::ThpSplitPage) >= 1);
    (0..4).for_each(|folio| assert_eq!(process.read(OTHER, at(BASE, folio * PAGES + 3)), folio));
    assert!((0..pages).all(|page| process.read(CPU, at(others, page)) == page));
    end(&world, &[&process]);
}

fn a_folio_that_stays_whole_is_queued_again<I: Isa>() {
    assert!((0..2).all(refused_split::<I>));
}

fn refused_split<I: Isa>(seed: u64) -> bool {
    let size = SIZES[usize::from(seed.is_multiple_of(2))];
    let (world, process) = mapped::<I>(size, 1, 16);
    let device = process.take(CPU, at(BASE, 3), 1, GupCall::Pin(GupFlags::WRITE)).expect("mapped");
    process.unmap(at(BASE, 8), 2);
    let refused = (reclaim(&world), queued(&world));
    world.at_rest(&[&device]);
    device.release(MakeDirty::No);
    let split = (reclaim(&world), queued(&world));
    end(&world, &[&process]);
    (refused, split) == ((0, size.1), (2, 0))
}

fn a_folio_in_two_spaces_waits_until_both_have_unmapped_a_page<I: Isa>() {
    for size in SIZES {
        let (world, process) = mapped::<I>(size, 1, 16);
        let child = process.fork();
        process.unmap(at(BASE, 4), 2);
        assert_eq!(queued(&world), 0);
        child.unmap(at(BASE, 5), 3);
        assert_eq!((queued(&world), reclaim(&world)), (size.1, 1), "one page is mapped by neither");
        world.at_rest(&[]);
        assert_eq!((process.read(CPU, at(BASE, 3)), child.read(OTHER, at(BASE, 3))), (0, 0));
        end(&world, &[&process, &child]);
    }
}

fn unmaps_beside_reclaim<I: Isa>(seed: u64) -> bool {
    let size = SIZES[usize::from(seed.is_multiple_of(2))];
    let (world, process) = mapped::<I>(size, 1, 16);
    let child = process.fork();
    process.unmap(at(BASE, 1), 1);
    world.lab.run(CPU, &process.space);
    world.lab.run(OTHER, &child.space);
    let (unmaps, splits, stores) = (Rc::clone(&world), Rc::clone(&world), Rc::clone(&world));
    let [unmapped, stored] = [child.space.clone(), process.space.clone()];
    let third = pagewright_types::CpuId::new(2);
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || stores.store(CPU, &stored, at(BASE, 4), 40)),
        Box::new(move || unmaps.on(OTHER, |mm| mm.munmap(&unmapped, BASE, 3 * PAGE_SIZE)).expect("mapped")),
        Box::new(move || (0..2).for_each(|_| _ = splits.on(third, |mm| mm.reclaim(NODE, 32)))),
    ];
    race(&world, seed, programs);
    let sound = [(3, 0), (4, 40)].iter().all(|(page, value)| process.read(CPU, at(BASE, *page)) == *value)
        && child.read(OTHER, at(BASE, 4)) == 0;
    world.at_rest(&[]);
    end(&world, &[&process, &child]);
    sound
}

planted_bugs_are_found! {
    20 * SCHEDULES;
    DeferredNever => unmaps_beside_reclaim,
    DeferredDropped => refused_split,
    DeferredKept => unmaps_beside_reclaim,
}
