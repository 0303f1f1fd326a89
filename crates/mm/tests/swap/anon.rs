//! Swap-out and swap-in of anonymous pages.
//!
//! First call by call, then in races of page-outs with stores, forks and unmaps, each under many
//! schedules.
//!
//! Not covered: which pages reclaim selects.

use pagewright_arch::{Isa, LeafFlags, on_both};
use pagewright_lab::harness::race::{assert_holds, race, race_in_long_turns, race_with_the_end_of_a_process};
use pagewright_lab::harness::{CPU, MemorySwap, OTHER, THIRD, TestProcess, TestWorld, at, recount};
use pagewright_lab::planted_bugs_are_found;
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_mm::space::AdviceTarget;
use pagewright_mm::swap::SwapBacking;
use pagewright_mm::{Advice, MmError, Space};
use pagewright_sim::explore::CoroutineBody;
use pagewright_sim::{Sim, SimLocks};
use pagewright_sync::{Arc, Backend};
use pagewright_tlb::frames::FolioFlags;
use pagewright_types::{Access, Counter, Errno, NodeId, PAGE_SIZE, PageRange, VirtAddr};
use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::Ordering;

pub(crate) const SCHEDULES: u64 = 150;
pub(crate) const PAGES: u64 = 100;

pub(crate) fn fill<I: Isa>(process: &TestProcess<I>, base: VirtAddr, salt: u64) {
    (0..PAGES).for_each(|page| process.write(CPU, at(base, page), page + salt));
}

/// A process whose [`PAGES`] pages at the returned address are filled, with `slots` slots of swap.
fn filled<I: Isa>(slots: u32, salt: u64) -> (Rc<TestWorld<I>>, MemorySwap, TestProcess<I>, VirtAddr) {
    let (world, process) = TestProcess::<I>::unjudged();
    let device = world.swap_to(slots);
    let base = process.anon(PAGES);
    fill(&process, base, salt);
    (world, device, process, base)
}

/// Ends a process; then no slot of its swap device is in use.
fn end_without_slots<I: Isa>(process: &TestProcess<I>, device: &MemorySwap, slots: u64) {
    process.end();
    assert_eq!(device.used(), 0, "INV-SWAP-COUNT: slots without entries are in use");
    assert_eq!(process.world.on(CPU, |mm| mm.swap_slots()), (slots, slots), "INV-SWAP-COUNT");
}

fn holds<I: Isa>(process: &TestProcess<I>, base: VirtAddr, salt: u64) -> bool {
    (0..PAGES).all(|page| process.read(CPU, at(base, page)) == page + salt)
}

pub(crate) fn free_pages<I: Isa>(world: &TestWorld<I>) -> u64 {
    world.on(CPU, |mm| mm.gauge(pagewright_mm::counters::Gauge::FreePages))
}

fn pages_are_swapped_out_and_in<I: Isa>() {
    let (world, device, process, base) = filled::<I>(1000, 7);
    let before = free_pages(&world);
    let count = |counter| world.on(CPU, |mm| mm.counter(counter));
    process.advise(base, PAGES, Advice::PageOut);
    assert_eq!(free_pages(&world), before + PAGES);
    assert_eq!((device.used() as u64, count(Counter::PswpOut)), (PAGES, PAGES));
    assert_eq!((process.space.rss().pages(), process.space.rss().swapped()), (0, PAGES), "INV-MM-RSS");
    assert!(holds(&process, base, 7));
    assert_eq!((process.space.rss().pages(), process.space.rss().swapped()), (PAGES, 0), "INV-MM-RSS");
    assert_eq!((count(Counter::PswpIn), process.space.major_faults()), (PAGES, PAGES));
    // The pages were only read, so their slots are still valid and are not written again.
    process.advise(base, PAGES, Advice::PageOut);
    assert_eq!(count(Counter::PswpOut), PAGES);
    fill(&process, base, 9);
    process.advise(base, PAGES, Advice::PageOut);
    assert_eq!(count(Counter::PswpOut), 2 * PAGES);
    assert!(holds(&process, base, 9));
    end_without_slots(&process, &device, 1000);
}

fn a_cluster_is_flushed_by_one_wait<I: Isa>() {
    let (world, process) = TestProcess::<I>::unjudged();
    world.swap_to(1000);
    let base = process.anon(PAGES);
    world.lab.run(OTHER, &process.space);
    fill(&process, base, 1);
    let waits = || world.on(CPU, |mm| mm.counter(Counter::NrTlbRemoteFlush));
    let before = waits();
    process.advise(base, PAGES, Advice::PageOut);
    assert_eq!(waits() - before, PAGES.div_ceil(32));
    assert!(holds(&process, base, 1));
}

fn forked_processes_share_swap_slots<I: Isa>() {
    let (_, device, parent, base) = filled::<I>(1000, 3);
    parent.advise(base, PAGES, Advice::PageOut);
    let child = parent.fork();
    assert_eq!(child.space.rss().swapped(), PAGES);
    // The parent does not see the child's stores. Half of the pages are swapped in by the child
    // first, half by the parent.
    for page in 0..PAGES {
        if page % 2 == 0 {
            child.write(CPU, at(base, page), page);
            assert_eq!(parent.read(CPU, at(base, page)), page + 3);
        } else {
            assert_eq!(parent.read(CPU, at(base, page)), page + 3);
            child.write(CPU, at(base, page), page);
        }
    }
    assert!(holds(&parent, base, 3) && holds(&child, base, 0));
    // INV-SWAP-OWNER: a page that the child swapped in for both is found in both spaces again.
    let second = child.fork();
    child.advise(base, PAGES, Advice::PageOut);
    assert_eq!(child.space.rss().swapped(), 0, "the pages are shared");
    second.end();
    child.advise(base, PAGES, Advice::PageOut);
    assert_eq!(child.space.rss().swapped(), PAGES);
    child.end();
    assert!(holds(&parent, base, 3));
    end_without_slots(&parent, &device, 1000);
}

/// The fault that reads the page in also copies it (`do_wp_page` in `do_swap_page`).
fn a_store_to_a_swapped_page_that_others_share_is_one_fault<I: Isa>() {
    let (world, device, parent, base) = filled::<I>(1000, 3);
    parent.advise(base, PAGES, Advice::PageOut);
    let child = parent.fork();
    let before = [Counter::PgFault, Counter::PgMajFault].map(|counter| world.count(counter));
    child.write(CPU, base, 9);
    let after = [Counter::PgFault, Counter::PgMajFault].map(|counter| world.count(counter));
    assert_eq!([after[0] - before[0], after[1] - before[1]], [1, 1]);
    child.end();
    end_without_slots(&parent, &device, 1000);
}

fn a_full_or_failing_device_loses_no_page<I: Isa>() {
    let (world, device, process, base) = filled::<I>(10, 5);
    process.advise(base, PAGES, Advice::PageOut);
    assert_eq!((device.used(), process.space.rss().swapped()), (10, 10));
    assert!(holds(&process, base, 5));
    fill(&process, base, 6);
    device.broken.store(true, Ordering::Relaxed);
    let before = world.on(CPU, |mm| mm.counter(Counter::PswpOut));
    process.advise(base, PAGES, Advice::PageOut);
    assert_eq!(world.on(CPU, |mm| mm.counter(Counter::PswpOut)), before);
    assert!(holds(&process, base, 6));
    process.end();
    assert_eq!(world.on(CPU, |mm| mm.swap_slots()), (10, 10), "INV-SWAP-COUNT");
}

fn no_more_than_32_devices_are_swapped_to<I: Isa>() {
    let world = TestWorld::<I>::unjudged();
    for _ in 0..32 {
        world.swap_to(1);
    }
    let refused = world.on(CPU, |mm| mm.swap_on(SwapBacking::Device(Box::new(MemorySwap::default())), 1));
    assert_eq!(refused, Err(MmError::TooManySwapDevices));
    assert_eq!(MmError::TooManySwapDevices.errno(), Errno::EPERM);
}

/// The leaf that maps a page.
fn leaf<I: Isa>(process: &TestProcess<I>, va: VirtAddr) -> Option<pagewright_table::LeafView> {
    process.world.on(CPU, |mm| recount::leaf(mm, &process.space, va))
}

fn madv_cold_deactivates_pages_of_one_mapping<I: Isa>() {
    let (world, process) = TestProcess::<I>::unjudged();
    let base = process.anon(2);
    (0..2).for_each(|page| process.write(CPU, at(base, page), page));
    let used = |page| leaf(&process, at(base, page)).is_some_and(|leaf| leaf.has(LeafFlags::ACCESSED));
    let flags = |page| {
        leaf(&process, at(base, page)).map(|leaf| world.on(CPU, |mm| mm.tlb().frames().folio(leaf.pfn()).flags()))
    };
    for page in 0..2 {
        let pfn = leaf(&process, at(base, page)).expect("mapped").pfn();
        world.on(CPU, |mm| {
            let frames = mm.tlb().frames();
            frames.lru_move(frames.folio(pfn), FolioFlags::ACTIVE | FolioFlags::REFERENCED, FolioFlags::empty());
        });
    }
    process.advise(base, 1, Advice::Cold);
    let hot = FolioFlags::ACTIVE | FolioFlags::REFERENCED;
    assert!(!used(0) && flags(0).is_some_and(|flags| !flags.intersects(hot)));
    assert!(used(1) && flags(1).is_some_and(|flags| flags.contains(hot)));
    assert_eq!(world.on(CPU, |mm| mm.counter(Counter::PgDeactivate)), 1);
    assert_eq!((process.read(CPU, base), process.read(CPU, at(base, 1))), (0, 1));
    // A page that another space maps too stays active.
    let child = process.fork();
    process.advise(at(base, 1), 1, Advice::Cold);
    assert!(used(1));
    child.end();
}

/// Stores each value to two pages.
fn stores_to_two_pages<I: Isa>(
    world: Rc<TestWorld<I>>,
    space: Arc<Space<Sim<I>>>,
    base: VirtAddr,
    values: Range<u64>,
) -> CoroutineBody {
    Box::new(move || {
        values.for_each(|value| [0, 1].into_iter().for_each(|page| world.store(CPU, &space, at(base, page), value)));
    })
}

/// Reads three pages that another CPU may remove.
pub(crate) fn reads_of_three_pages<I: Isa>(
    world: Rc<TestWorld<I>>,
    space: Arc<Space<Sim<I>>>,
    base: VirtAddr,
) -> CoroutineBody {
    Box::new(move || {
        for page in [0, 2, 1] {
            // The page may be removed already.
            let _ = world.lab.touch(CPU, &space, at(base, page), Access::Read, 1);
        }
    })
}

/// One CPU stores to two pages, one pages them out, one forks and ends the child.
///
/// Returns whether both pages have the last values stored, and no slot is leaked.
fn stores_during_a_page_out<I: Isa>(seed: u64) -> bool {
    let (world, process) = TestProcess::<I>::unjudged();
    let device = world.swap_to(8);
    let base = process.anon(2);
    process.write(CPU, base, 1);
    process.write(CPU, at(base, 1), 1);
    world.lab.run(CPU, &process.space);
    let (stores, pages_out, forks) = (world.clone(), world.clone(), world.clone());
    let spaces = [process.space.clone(), process.space.clone(), process.space.clone()];
    let [stored, paged, forked] = spaces;
    let programs: Vec<CoroutineBody> = vec![
        stores_to_two_pages(stores, stored, base, 2..6),
        Box::new(move || {
            for _ in 0..2 {
                pages_out.advise(OTHER, &paged, base, 2, Advice::PageOut);
            }
        }),
        Box::new(move || {
            let child = forks.lab.on(THIRD, |mm| mm.fork(&forked)).expect("memory");
            forks.lab.on(THIRD, |mm| mm.end_space(&child));
        }),
    ];
    race(&world, seed, programs);
    let intact = process.read(CPU, base) == 5 && process.read(CPU, at(base, 1)) == 5;
    process.advise(base, 2, Advice::PageOut);
    let intact = intact && process.read(CPU, base) == 5 && process.read(CPU, at(base, 1)) == 5;
    process.end();
    intact && device.used() == 0 && world.on(CPU, |mm| mm.swap_slots()) == (8, 8)
}

/// One CPU stores to pages, while another pages them out and then allocates memory elsewhere.
///
/// Returns whether both memories have the last values stored.
fn allocation_after_a_page_out<I: Isa>(seed: u64) -> bool {
    let world = TestWorld::<I>::unjudged();
    world.swap_to(8);
    let (first, second) = (TestProcess::new(&world), TestProcess::new(&world));
    let (ours, theirs) = (first.anon(2), second.anon(2));
    (0..2).for_each(|page| first.write(CPU, at(ours, page), 1));
    second.write(CPU, theirs, 7);
    world.lab.run(CPU, &first.space);
    let (stores, pages_out) = (world.clone(), world.clone());
    let [stored, paged, taken] = [first.space.clone(), first.space.clone(), second.space.clone()];
    let programs: Vec<CoroutineBody> = vec![
        stores_to_two_pages(stores, stored, ours, 2..8),
        Box::new(move || {
            pages_out.advise(OTHER, &paged, ours, 2, Advice::PageOut);
            // This CPU has freed the frames, and so allocates them again.
            pages_out.lab.run(OTHER, &taken);
            pages_out.store(OTHER, &taken, at(theirs, 1), 9);
        }),
    ];
    race(&world, seed, programs);
    second.read(CPU, at(theirs, 1)) == 9 && first.read(CPU, ours) == 7
}

/// One CPU unmaps memory while another touches it and a third pages it out.
///
/// Returns whether the rest is intact, and no slot is leaked.
fn unmap_during_a_page_out<I: Isa>(seed: u64) -> bool {
    let (world, process) = TestProcess::<I>::unjudged();
    let device = world.swap_to(8);
    let base = process.anon(3);
    (0..3).for_each(|page| process.write(CPU, at(base, page), page));
    world.lab.run(CPU, &process.space);
    let (touches, pages_out, unmaps) = (world.clone(), world.clone(), world.clone());
    let [touched, paged, unmapped] = [process.space.clone(), process.space.clone(), process.space.clone()];
    let programs: Vec<CoroutineBody> = vec![
        reads_of_three_pages(touches, touched, base),
        Box::new(move || {
            for _ in 0..2 {
                // As above.
                let _ = pages_out.lab.on(OTHER, |mm| mm.madvise(&paged, base, 3 * PAGE_SIZE, Advice::PageOut));
            }
        }),
        Box::new(move || {
            unmaps.lab.on(THIRD, |mm| mm.munmap(&unmapped, at(base, 1), 2 * PAGE_SIZE)).expect("mapped");
        }),
    ];
    race(&world, seed, programs);
    let intact = process.read(CPU, base) == 0;
    process.end();
    intact && device.used() == 0 && world.on(CPU, |mm| mm.swap_slots()) == (8, 8)
}

/// One CPU takes a page by GUP, stores to its frame and releases it, while others page it out.
///
/// The page is private or shared, pinned or only referenced; and it is in use, lazily freed, or
/// just swapped in. A process with a pinned page is also forked. Returns whether the page has the
/// value stored.
fn gup_during_a_page_out<I: Isa>(seed: u64) -> bool {
    let (world, process) = TestProcess::<I>::unjudged();
    let device = world.swap_to(8);
    let (shared, pins, comes) = (seed % 2 == 1, seed / 2 % 2 == 1, seed / 4 % 3);
    let base = if shared { process.map_shared(1) } else { process.anon(1) };
    process.write(CPU, base, 1);
    match comes {
        0 => {}
        1 if !shared => process.advise(base, 1, Advice::Free),
        _ => {
            process.advise(base, 1, Advice::PageOut);
            process.read(CPU, base);
        }
    }
    world.lab.run(CPU, &process.space);
    let (takes, pages_out, others) = (world.clone(), world.clone(), world.clone());
    let [taken, paged, forked] = [process.space.clone(), process.space.clone(), process.space.clone()];
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || {
            takes.lab.on(CPU, |mm| {
                let range = PageRange::page(base);
                let pages = if pins {
                    mm.pin_user_pages_fast(&taken, range, GupFlags::WRITE)
                } else {
                    mm.get_user_pages_fast(&taken, range, GupFlags::WRITE)
                };
                let pages = pages.expect("writable");
                let pfn = pages.iter().next().expect("a page was taken").pfn();
                SimLocks::point();
                takes.lab.sim().ram()[pfn.base().raw() as usize / 8].store(7, Ordering::Relaxed);
                SimLocks::point();
                mm.release_user_pages(pages, MakeDirty::Yes);
            });
        }),
        Box::new(move || {
            for _ in 0..3 {
                pages_out.advise(OTHER, &paged, base, 1, Advice::PageOut);
            }
        }),
        Box::new(move || {
            if pins {
                let child = others.lab.on(THIRD, |mm| mm.fork(&forked)).expect("memory");
                others.lab.on(THIRD, |mm| mm.end_space(&child));
            }
            others.lab.on(THIRD, |mm| mm.reclaim(NodeId::new(0), 1));
        }),
    ];
    race(&world, seed, programs);
    let mut intact = process.read(CPU, base) == 7;
    process.advise(base, 1, Advice::PageOut);
    intact &= process.read(CPU, base) == 7;
    process.end();
    intact && device.used() == 0 && world.on(CPU, |mm| mm.swap_slots()) == (8, 8)
}

/// One CPU advises about memory of a process that ends.
fn advice_during_the_end_of_a_space<I: Isa>(seed: u64) -> bool {
    let advice = if seed.is_multiple_of(2) { Advice::PageOut } else { Advice::Cold };
    race_with_the_end_of_a_process::<I>(seed, race_in_long_turns, move |mm, space, base| {
        // The process may have ended before.
        let _ = mm.process_madvise(space, AdviceTarget::Other, &[(base, PAGE_SIZE)], advice);
    });
    true
}

on_both! {
    pages_are_swapped_out_and_in,
    a_cluster_is_flushed_by_one_wait,
    forked_processes_share_swap_slots,
    a_store_to_a_swapped_page_that_others_share_is_one_fault,
    a_full_or_failing_device_loses_no_page,
    no_more_than_32_devices_are_swapped_to,
    madv_cold_deactivates_pages_of_one_mapping,
    /// INV-RECLAIM-SETTLED, INV-SWAP-CACHE.
    no_store_is_lost_during_a_page_out:
        assert_holds(SCHEDULES, stores_during_a_page_out::<I>, "a store is lost or a slot leaked"),
    /// INV-RECLAIM-SETTLED.
    no_store_reaches_a_frame_that_a_page_out_freed:
        assert_holds(SCHEDULES, allocation_after_a_page_out::<I>, "a store reached a page of another process"),
    /// INV-SWAP-COUNT.
    no_slot_is_leaked_by_an_unmap_during_a_page_out:
        assert_holds(SCHEDULES, unmap_during_a_page_out::<I>, "a slot is leaked"),
    /// INV-GUP-EXCLUSIVE, INV-LAZYFREE-KEPT, INV-RECLAIM-SETTLED.
    no_store_through_gup_is_lost_during_a_page_out:
        assert_holds(12 * SCHEDULES, gup_during_a_page_out::<I>, "a store is lost or a slot leaked"),
    /// INV-TABLE-STABLE: the tables of an ended space are not walked.
    advice_does_not_walk_tables_of_an_ended_space:
        assert_holds(10 * SCHEDULES, advice_during_the_end_of_a_space::<I>, "the tables of an ended space were walked"),
}

planted_bugs_are_found! {
    20 * SCHEDULES;
    PageOutReferenced => super::shared::stores_during_an_unmap_and_a_page_out,
    PageOutCleansLate => super::shared::stores_and_discards_during_a_write,
    PageOutFreedEarly => allocation_after_a_page_out,
    DirtyBitLost => super::lazy_free::store_beside_an_mprotect,
    LazyFreeNoFlush => super::lazy_free::lazily_freed_page_keeps_a_store,
    PageOutWrittenEarly => stores_during_a_page_out,
}
