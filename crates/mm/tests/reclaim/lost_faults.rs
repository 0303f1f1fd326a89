//! Faults that swap a page in and then lose their race, or whose device fails meanwhile.
//!
//! The folio stays in the swap cache without an owner, and can be reclaimed like any other.

use super::interrupted::{InterruptedSwap, Transfer};
use super::{NODE, assert_lists_consistent, check, fill, machine_of};
use pagewright_arch::Isa;
use pagewright_arch::on_both;
use pagewright_lab::harness::{CPU, MemorySwap, OTHER, TestProcess, TestWorld, at};
use pagewright_mm::counters::Gauge;
use pagewright_mm::{Advice, FaultError, Mm};
use pagewright_types::{Access, Counter, LruList, VirtAddr};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering;

/// The frames of the machine.
const FRAMES: u64 = 512;
/// The pages whose faults lose their race, or nearly so many.
///
/// They are more than the machine's frames, and fewer than the waits after which it reports
/// livelock.
const PAGES: u64 = 900;

/// Another thread of a process discards a page during the next read of the device.
fn discard_during_read<I: Isa>(process: &Rc<TestProcess<I>>, page: VirtAddr) {
    let other = Rc::clone(process);
    InterruptedSwap::act_once(move || other.world.advise(OTHER, &other.space, page, 1, Advice::DontNeed));
}

/// A child takes more faults than there are frames, and loses each race.
///
/// In each, another of its threads discards the page. The parent's entries still name the slots.
fn folios_of_lost_faults_are_reclaimed<I: Isa>() {
    let world = machine_of::<I>(2, FRAMES);
    let device = InterruptedSwap::add(&world, Transfer::Read);
    let parent = TestProcess::new(&world);
    let base = parent.anon(PAGES);
    fill(&parent, base, PAGES, 5);
    let child = Rc::new(parent.fork());
    let read = world.count(Counter::PswpIn);
    for page in 0..PAGES {
        discard_during_read(&child, at(base, page));
        child.touch(CPU, at(base, page), Access::Read).expect("unmapped folios can be reclaimed");
        if InterruptedSwap::has_acted() {
            assert_eq!(child.read(CPU, at(base, page)), 0, "the page was discarded");
        }
    }
    let lost = world.count(Counter::PswpIn) - read;
    assert!(lost > FRAMES, "only {lost} faults have lost");
    assert_lists_consistent(&world);
    world.on(CPU, |mm| mm.reclaim(NODE, FRAMES as u32));
    assert_eq!(world.gauge(Gauge::SwapCached), 0, "folios without an owner stay in the swap cache");
    check(&parent, base, PAGES, 5);
    child.end();
    parent.end();
    world.at_rest(&[]);
    assert_eq!(device.used(), 0, "INV-SWAP-COUNT");
}

/// A process whose only page is in swap, its address, and the memory of the device.
fn one_page_in_swap<I: Isa>() -> (Rc<TestWorld<I>>, MemorySwap, Rc<TestProcess<I>>, VirtAddr) {
    let world = machine_of::<I>(2, FRAMES);
    let device = InterruptedSwap::add(&world, Transfer::Read);
    let process = Rc::new(TestProcess::new(&world));
    let base = process.anon(1);
    process.write(CPU, base, 5);
    process.advise(base, 1, Advice::PageOut);
    (world, device, process, base)
}

/// No entry names its slot any more, so the fault frees both.
fn a_lost_fault_leaves_no_folio_that_nothing_names<I: Isa>() {
    let (world, device, process, base) = one_page_in_swap::<I>();
    assert_eq!(device.used(), 1);
    discard_during_read(&process, base);
    assert_eq!(process.read(CPU, base), 0, "the page was discarded");
    assert!(InterruptedSwap::has_acted());
    assert_eq!((device.used(), world.gauge(Gauge::SwapCached)), (0, 0));
    process.end();
}

/// Another CPU has a reference to the folio until later, as reclaim has to one that it scans.
fn a_failed_fault_leaves_no_folio_that_nothing_names<I: Isa>() {
    let (world, device, process, base) = one_page_in_swap::<I>();
    let isolated = Rc::new(Cell::new(None));
    let (other, isolates, fails) = (Rc::clone(&process), Rc::clone(&isolated), device.clone());
    InterruptedSwap::act_once(move || {
        other.world.advise(OTHER, &other.space, base, 1, Advice::DontNeed);
        let take = |mm: &Mm<_>| {
            mm.tlb().frames().isolate_tail(NODE, LruList::InactiveAnon, 1, |folio| {
                isolates.set(Some(folio));
                false
            })
        };
        assert_eq!(other.world.on(OTHER, take).taken, 1);
        fails.broken.store(true, Ordering::Relaxed);
    });
    let refused = process.touch(CPU, base, Access::Read);
    assert!(matches!(refused, Err(FaultError::Device { .. })), "{refused:?}");
    assert!(InterruptedSwap::has_acted());
    device.broken.store(false, Ordering::Relaxed);
    world.on(OTHER, |mm| {
        let folio = isolated.take().expect("the other CPU has a reference");
        mm.tlb().frames().putback(folio).into_iter().for_each(|block| mm.tlb().free(block));
    });
    assert_eq!((device.used(), world.gauge(Gauge::SwapCached)), (0, 0), "INV-SWAP-COUNT");
    assert_eq!(process.read(CPU, base), 0, "the page was discarded");
    process.end();
    world.at_rest(&[]);
}

on_both! {
    folios_of_lost_faults_are_reclaimed,
    a_lost_fault_leaves_no_folio_that_nothing_names,
    a_failed_fault_leaves_no_folio_that_nothing_names,
}
