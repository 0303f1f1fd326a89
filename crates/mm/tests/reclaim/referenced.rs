//! Unmapped pages that stay because of a reference which is no mapping's (`get_user_pages`).

use super::{NODE, assert_lists_consistent, machine};
use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::{CPU, GupCall, TestProcess, at};
use pagewright_mm::Advice;
use pagewright_mm::counters::Gauge;
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_types::{Counter, LruList, PAGE_SIZE};

on_both! {
    a_lazily_freed_page_with_a_reference_stays_on_its_list,
    an_eviction_that_fails_ages_no_page,
}

/// `folio_ref_freeze` of lazily freed pages in `shrink_folio_list`.
fn a_lazily_freed_page_with_a_reference_stays_on_its_list<I: Isa>() {
    let world = machine::<I>(2);
    let process = TestProcess::new(&world);
    let base = process.anon(1);
    process.write(CPU, base, 7);
    let device = process.take(CPU, base, 1, GupCall::Get(GupFlags::empty())).expect("a mapped page");
    process.advise(base, 1, Advice::Free);
    process.unmap(base, 1);
    let is_listed = || {
        world.on(CPU, |mm| {
            let mut found = false;
            mm.tlb().frames().for_each_listed(NODE, LruList::InactiveFile, |pfn| found |= pfn == device.pfn(0));
            found
        })
    };
    assert!(is_listed(), "it is not lazily freed");
    assert_eq!(world.on(CPU, |mm| mm.reclaim(NODE, 1)), 0, "its frame is in use");
    assert_eq!((world.count(Counter::PgLazyFreed), is_listed()), (0, true));
    assert_eq!(device.read(0), 7);
    device.release(MakeDirty::No);
    assert!(!world.on(CPU, |mm| mm.tlb().frames().lru_pages(NODE, LruList::InactiveFile) > 0), "it is not freed");
    assert_lists_consistent(&world);
    process.end();
    world.at_rest(&[]);
}

/// A page that no page was evicted after refaults at the distance 1.
fn an_eviction_that_fails_ages_no_page<I: Isa>() {
    const WORKINGSET: u64 = 8;
    let world = machine::<I>(2);
    world.swap_to(16);
    let process = TestProcess::new(&world);
    let active = world.file(WORKINGSET);
    for page in (0..2).flat_map(|_| 0..WORKINGSET) {
        world.on(CPU, |mm| mm.read_at(&active, page * PAGE_SIZE, &mut [0; 8])).expect("a good device");
    }
    assert_eq!(world.gauge(Gauge::ActiveFile), WORKINGSET);
    let base = process.anon(2);
    let (evicted, kept) = (base, at(base, 1));
    [evicted, kept].iter().for_each(|va| process.write(CPU, *va, va.raw()));
    let device = process.take(CPU, kept, 1, GupCall::Get(GupFlags::empty())).expect("a mapped page");
    process.advise(evicted, 1, Advice::PageOut);
    for _ in 0..4 * WORKINGSET {
        process.advise(kept, 1, Advice::PageOut);
        assert_eq!(process.space.rss().swapped(), 2, "it was not unmapped");
        assert_eq!(process.read(CPU, kept), kept.raw());
    }
    assert_eq!(world.count(Counter::PswpIn), 0, "it has stayed in memory");
    assert_eq!(process.read(CPU, evicted), evicted.raw());
    let counts = [Counter::WorkingsetRefaultAnon, Counter::WorkingsetActivateAnon];
    assert_eq!(counts.map(|counter| world.count(counter)), [1, 1]);
    device.release(MakeDirty::No);
    process.end();
    world.at_rest(&[]);
}

#[cfg(feature = "planted")]
#[test]
fn a_lazily_freed_page_that_is_freed_with_a_reference_is_found() {
    use pagewright_arch::{Aarch64, X86_64};
    use pagewright_plant::{PlantedBug, assert_found_by};
    for test in [
        a_lazily_freed_page_with_a_reference_stays_on_its_list::<X86_64> as fn(),
        a_lazily_freed_page_with_a_reference_stays_on_its_list::<Aarch64>,
    ] {
        assert_found_by(PlantedBug::LazyFreeReferenced, test);
    }
}
