//! What a table has from its origin, for the space that gets it later.
//!
//! INV-COW-REUSE: a page that two spaces map, or have in swap, is exclusive to neither. A space
//! that takes back a table which was not its own at first may not use what is exclusive in it,
//! because another space may have copied the entries meanwhile (CVE-2020-29374).

use super::{PLACES, parent};
use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::{CPU, GupCall, TestProcess, TestWorld, at, recount};
use pagewright_mm::Advice;
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_types::{Counter, NodeId, VirtAddr};

on_both! {
    a_table_that_another_space_takes_back_has_nothing_exclusive,
    a_reference_from_before_the_fork_sees_no_store_of_the_child_that_is_left,
    the_origin_finds_what_it_had_exclusive,
    a_child_that_forked_may_not_store_to_what_was_lent,
}

/// The state of a page when the space that made it forks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LentPage {
    Present,
    InSwap,
    /// In memory again, with its slot.
    SwappedIn,
}

const STATES: [LentPage; 3] = [LentPage::Present, LentPage::InSwap, LentPage::SwappedIn];

fn enter<I: Isa>(state: LentPage, process: &TestProcess<I>, page: VirtAddr) {
    if state != LentPage::Present {
        process.advise(page, 1, Advice::PageOut);
    }
    if state == LentPage::SwappedIn {
        process.read(CPU, page);
    }
}

/// Pages all out, also below shared pointers.
fn page_out<I: Isa>(world: &TestWorld<I>) {
    for _ in 0..4 {
        world.on(CPU, |mm| mm.reclaim(NodeId::new(0), 3));
    }
}

/// One child copies the table, the parent ends, and the other child has the table alone.
///
/// The pages are paged out before the fork, after it, or not at all.
fn a_table_that_another_space_takes_back_has_nothing_exclusive<I: Isa>() {
    for state in STATES {
        for (late, copier_stores) in [(false, false), (false, true), (true, false), (true, true)] {
            let (world, process, base) = parent::<I>(1);
            let device = world.swap_to(16);
            let page = at(base, PLACES[0]);
            enter(state, &process, page);
            let [copies, stays] = [process.fork(), process.fork()];
            copies.write(CPU, at(base, PLACES[0] + 1), 9);
            process.end();
            if late {
                page_out(&world);
            }
            let taken_back = world.count(Counter::PwTableTakenBack);
            let (stores, reads) = if copier_stores { (&copies, &stays) } else { (&stays, &copies) };
            // A store beside the page takes the table back, and the page is then in it.
            stays.write(CPU, at(base, PLACES[0] + 2), 9);
            assert!(world.count(Counter::PwTableTakenBack) > taken_back, "{state:?}");
            stores.write(CPU, page, 50);
            let case = format!("{state:?}, paged out late: {late}, the copier stores: {copier_stores}");
            assert_eq!((reads.read(CPU, page), stores.read(CPU, page)), (1, 50), "{case}");
            page_out(&world);
            assert_eq!((reads.read(CPU, page), stores.read(CPU, page)), (1, 50), "{case}");
            world.recount(&[&copies, &stays]);
            TestProcess::end_all_at_rest(&[&copies, &stays]);
            assert_eq!(device.used(), 0, "{case}");
        }
    }
}

/// The reference is on the page, also while every entry for it says that it is in swap.
fn a_reference_from_before_the_fork_sees_no_store_of_the_child_that_is_left<I: Isa>() {
    for state in STATES {
        for late in [false, true] {
            let (world, process, base) = parent::<I>(1);
            let device = world.swap_to(16);
            let page = at(base, PLACES[0]);
            let lent = process.take(CPU, page, 1, GupCall::Get(GupFlags::empty())).expect("a page");
            enter(state, &process, page);
            let child = process.fork();
            if late {
                page_out(&world);
            }
            let is_swapped = world.on(CPU, |mm| recount::leaf(mm, &child.space, page)).is_none();
            assert_eq!(is_swapped, late || state == LentPage::InSwap, "{state:?}");
            process.end();
            child.write(CPU, page, 50);
            assert_eq!((lent.read(0), child.read(CPU, page)), (1, 50), "{state:?}, paged out late: {late}");
            lent.release(MakeDirty::No);
            world.recount(&[&child]);
            TestProcess::end_all_at_rest(&[&child]);
            assert_eq!(device.used(), 0, "{state:?}");
        }
    }
}

/// The origin stores without a copy, once it is the last.
fn the_origin_finds_what_it_had_exclusive<I: Isa>() {
    for state in STATES {
        let (world, process, base) = parent::<I>(1);
        let device = world.swap_to(16);
        let page = at(base, PLACES[0]);
        enter(state, &process, page);
        process.fork().end();
        process.read(CPU, at(base, PLACES[0] + 1));
        let faults = world.count(Counter::PgFault);
        process.write(CPU, page, 50);
        // The pointer that this CPU has cached refuses the store once, not twice.
        assert_eq!(world.count(Counter::PgFault) - faults, 1, "{state:?}");
        assert_eq!((process.read(CPU, page), world.count(Counter::PwCowCopy)), (50, 0), "{state:?}");
        world.recount(&[&process]);
        TestProcess::end_all_at_rest(&[&process]);
        assert_eq!(device.used(), 0, "{state:?}");
    }
}

/// INV-SHARE-ORIGIN: a child that shares its tables again does not become their origin.
fn a_child_that_forked_may_not_store_to_what_was_lent<I: Isa>() {
    let (_, process, base) = parent::<I>(1);
    let page = at(base, PLACES[0]);
    let lent = process.take(CPU, page, 1, GupCall::Get(GupFlags::empty())).expect("a page");
    let child = process.fork();
    child.fork().end();
    process.end();
    child.write(CPU, page, 50);
    assert_eq!((lent.read(0), child.read(CPU, page)), (1, 50));
    lent.release(MakeDirty::No);
    TestProcess::end_all_at_rest(&[&child]);
}
