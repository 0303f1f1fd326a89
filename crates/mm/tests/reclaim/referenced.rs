//! Unmapped pages that stay because of a reference which is no mapping's (`get_user_pages`).

use super::{NODE, assert_lists_consistent, machine};
use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::{CPU, GupCall, TestProcess};
use pagewright_mm::Advice;
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_types::{Counter, LruList};

on_both! {
    a_lazily_freed_page_with_a_reference_stays_on_its_list,
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
