//! Fewer reclaimable pages than a batch has: reclaim frees them at its end.

use super::interrupted::{InterruptedSwap, Transfer};
use super::{FRAMES, NODE, TWICE, fill, machine};
use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::{CPU, GupCall, OTHER, TestProcess, TestWorld, at};
use pagewright_mm::Advice;
use pagewright_mm::counters::Gauge;
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_types::{Access, Counter, PAGE_SIZE};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering;

on_both! {
    a_batch_that_is_not_full_is_freed_at_the_end,
    an_idle_cpu_balances_a_node_only_if_it_needs_that,
    one_cpu_at_a_time_balances_a_node,
    pages_beyond_the_last_full_batch_are_freed,
    reclaim_gives_up_on_pages_that_no_device_takes,
    a_full_device_takes_no_more_anonymous_pages,
}

/// Fewer than a batch.
const FEW: u64 = 5;

/// A machine without swap and with `FEW` pages of a file, whose other memory a process fills.
fn full_machine<I: Isa>() -> (Rc<TestWorld<I>>, TestProcess<I>, impl FnMut() -> bool) {
    let world = machine::<I>(1);
    let file = world.file(FEW);
    for page in 0..FEW {
        world.on(CPU, |mm| mm.read_at(&file, page * PAGE_SIZE, &mut [0; 8])).expect("a good device");
    }
    let process = TestProcess::new(&world);
    let base = process.anon(TWICE);
    let (there, space) = (world.clone(), process.space.clone());
    let mut page = 0;
    let store = move || {
        page += 1;
        there.lab.run(CPU, &space);
        there.lab.touch(CPU, &space, at(base, page), Access::Write, 1).is_ok()
    };
    (world, process, store)
}

/// `balance_all`, which an idle CPU calls.
fn an_idle_cpu_balances_a_node_only_if_it_needs_that<I: Isa>() {
    let (world, process, mut store) = full_machine::<I>();
    world.on(CPU, |mm| mm.balance_all());
    assert_eq!((world.gauge(Gauge::FilePages), world.count(Counter::PageOutRun)), (FEW, 0));
    while !world.on(CPU, |mm| mm.needs_balance(NODE)) {
        assert!(store(), "there is memory until background reclaim is needed");
    }
    world.on(CPU, |mm| mm.balance_all());
    assert_eq!((world.gauge(Gauge::FilePages), world.count(Counter::PgStealKswapd)), (0, FEW));
    assert_eq!(world.count(Counter::PageOutRun), 1);
    process.end();
}

/// Another CPU is told to while the first one writes a page to swap.
fn one_cpu_at_a_time_balances_a_node<I: Isa>() {
    let world = machine::<I>(2);
    InterruptedSwap::add(&world, Transfer::Write);
    let process = TestProcess::new(&world);
    let base = process.anon(FRAMES);
    let needed = |_: &u64| !world.on(CPU, |mm| mm.needs_balance(NODE));
    (0..FRAMES).take_while(needed).for_each(|page| process.write(CPU, at(base, page), page));
    let (there, freed_by_other) = (Rc::clone(&world), Rc::new(Cell::new(None)));
    let freed = Rc::clone(&freed_by_other);
    InterruptedSwap::act_once(move || freed.set(Some(there.on(OTHER, |mm| mm.balance(NODE)))));
    assert!(world.on(CPU, |mm| mm.balance(NODE)) > 0);
    assert_eq!((freed_by_other.get(), world.count(Counter::PageOutRun)), (Some(0), 1));
    process.end();
}

/// Background reclaim, on request, and for an allocation.
fn a_batch_that_is_not_full_is_freed_at_the_end<I: Isa>() {
    for by in [Counter::PgStealKswapd, Counter::PgStealProactive, Counter::PgStealDirect] {
        let (world, process, mut store) = full_machine::<I>();
        while !world.on(CPU, |mm| mm.needs_balance(NODE)) {
            assert!(store(), "there is memory until background reclaim is needed");
        }
        (0..FEW).for_each(|_| assert!(store()));
        assert_eq!(world.gauge(Gauge::FilePages), FEW);
        match by {
            Counter::PgStealKswapd => assert_eq!(world.on(CPU, |mm| mm.balance(NODE)), FEW),
            Counter::PgStealProactive => assert_eq!(world.on(CPU, |mm| mm.reclaim(NODE, 32)), FEW),
            _ => while store() {},
        }
        assert_eq!((world.gauge(Gauge::FilePages), world.count(by)), (0, FEW), "{by:?}");
        assert!(store() || by == Counter::PgStealDirect, "their frames are free");
        super::assert_lists_consistent(&world);
        process.end();
    }
}

fn pages_beyond_the_last_full_batch_are_freed<I: Isa>() {
    for pages in [1, 31, 32, 33, 64 + FEW] {
        let world = machine::<I>(1);
        world.swap_to(4096);
        let process = TestProcess::new(&world);
        let base = process.anon(pages);
        fill(&process, base, pages, 0);
        process.advise(base, pages, Advice::Cold);
        assert_eq!(world.on(CPU, |mm| mm.reclaim(NODE, 2 * pages as u32)), pages);
        assert_eq!(process.space.rss().swapped(), pages);
    }
}

/// INV-RECLAIM-ENDS, however many of them are pending after each pass.
fn reclaim_gives_up_on_pages_that_no_device_takes<I: Isa>() {
    for pages in [1, 4, 31, 32, 33, 40, 100] {
        for wanted in [1, 2, 3, 31, 32, 33, 64, 300] {
            let world = machine::<I>(1);
            let device = world.swap_to(4096);
            let process = TestProcess::new(&world);
            let base = process.anon(pages);
            fill(&process, base, pages, 7);
            device.broken.store(true, Ordering::Relaxed);
            assert_eq!(world.on(CPU, |mm| mm.reclaim(NODE, wanted)), 0, "{wanted} of {pages}");
            device.broken.store(false, Ordering::Relaxed);
            let freed = world.on(CPU, |mm| mm.reclaim(NODE, wanted));
            assert!(freed >= pages.min(u64::from(wanted)), "{wanted} of {pages}: {freed} freed");
            super::check(&process, base, pages, 7);
            process.end();
        }
    }
}

/// Neither is scanned: the pages of a process that are in memory stay as they are.
fn a_full_device_takes_no_more_anonymous_pages<I: Isa>() {
    const SLOTS: u64 = 16;
    for free in [0, 1] {
        let world = machine::<I>(1);
        world.swap_to((SLOTS + free) as u32);
        let process = TestProcess::new(&world);
        let base = process.anon(SLOTS + 40);
        fill(&process, base, SLOTS + 40, 0);
        process.advise(base, SLOTS, Advice::PageOut);
        process.advise(at(base, SLOTS), 40, Advice::Cold);
        assert_eq!(world.on(CPU, |mm| mm.swap_slots()), (SLOTS + free, free));
        assert_eq!(world.on(CPU, |mm| mm.reclaim(NODE, 8)), free);
        let scanned = world.count(Counter::PgScanProactive);
        assert_eq!(scanned > 0, free > 0, "{scanned} pages are scanned, {free} slots are free");
        process.end();
    }
    // A page that cannot be reclaimed at all is scanned as long as a slot is free.
    let world = machine::<I>(1);
    world.swap_to(1);
    let process = TestProcess::new(&world);
    let base = process.anon(1);
    process.write(CPU, base, 1);
    let device = process.take(CPU, base, 1, GupCall::Pin(GupFlags::WRITE)).expect("there");
    process.advise(base, 1, Advice::Cold);
    assert_eq!(world.on(CPU, |mm| mm.reclaim(NODE, 1)), 0);
    assert!(world.count(Counter::PgScanProactive) > 0 && world.gauge(Gauge::AnonPages) < FRAMES);
    device.release(MakeDirty::No);
}
