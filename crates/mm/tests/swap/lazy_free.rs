//! Lazily freed pages, `MADV_FREE` (INV-LAZYFREE-KEPT).
//!
//! Their contents may be freed, but not what is stored afterwards.

use super::anon::{PAGES, SCHEDULES, fill, free_pages};
use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::race::{assert_holds, assert_short_race_holds, race, race_in_long_turns, race_in_turns};
use pagewright_lab::harness::{CPU, GupCall, OTHER, TestProcess, TestWorld, at};
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_mm::{Advice, Mm, MmSetting, Space};
use pagewright_sim::Sim;
use pagewright_sim::explore::CoroutineBody;
use pagewright_types::{Access, Counter, NodeId, PAGE_SIZE, PageRange, Rights, VirtAddr};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering;

/// More than a fork of one page takes.
const FORK_STEPS: u64 = 600;

on_both! {
    lazily_freed_pages_are_freed_unless_stored_to,
    lazily_freed_pages_never_get_the_contents_of_their_slot,
    lazy_free_in_one_process_keeps_the_page_of_another,
    a_lazily_freed_page_that_is_taken_for_writing_is_kept,
    a_lazily_freed_page_of_two_processes_is_freed,
    a_lazily_freed_page_that_was_stored_to_is_swapped_out_again,
    /// INV-SWAP-COUNT.
    no_stale_slot_is_read_after_lazy_free:
        assert_holds(SCHEDULES, lazy_free_during_a_page_out::<I>,
            "stale contents of the slot are read, or the slot is leaked"),
    /// INV-TABLE-TOUCHED, INV-LAZYFREE-KEPT.
    no_store_beside_an_mprotect_is_lost:
        assert_holds(SCHEDULES, store_beside_an_mprotect::<I>, "the dirty bit of a store was lost"),
    /// INV-TABLE-TOUCHED, INV-LAZYFREE-KEPT.
    no_store_beside_a_fork_is_lost:
        assert_short_race_holds(FORK_STEPS, store_beside_a_fork::<I>, "the dirty bit of a store was lost"),
}

/// Stores to a lazily freed page on a CPU whose TLB has the page writable and dirty.
///
/// That CPU need not walk the tables. Returns whether the store is kept, and an untouched page is
/// freed. There is one schedule, whatever the seed.
pub(crate) fn lazily_freed_page_keeps_a_store<I: Isa>(_seed: u64) -> bool {
    let (world, process) = TestProcess::<I>::unjudged();
    let base = process.anon(2);
    (0..2).for_each(|page| process.write(CPU, at(base, page), 1));
    world.advise(OTHER, &process.space, base, 2, Advice::Free);
    process.write(CPU, base, 5);
    world.advise(OTHER, &process.space, base, 2, Advice::PageOut);
    process.read(CPU, base) == 5 && process.read(CPU, at(base, 1)) == 0
}

/// What takes the right to store from the page at an address.
type Takes<I> = fn(&Mm<Sim<I>>, &Space<Sim<I>>, VirtAddr);

/// Stores to a lazily freed page while another CPU takes the right to do so.
///
/// The leaf is clean, so the walk of the store sets its dirty bit. Returns whether reclaim keeps
/// what was stored.
fn store_beside<I: Isa>(run: impl FnOnce(&TestWorld<I>, Vec<CoroutineBody>), takes: Takes<I>) -> bool {
    let (world, process) = TestProcess::<I>::unjudged();
    world.set(MmSetting::CowPageTables, "never");
    let base = process.anon(1);
    process.write(CPU, base, 1);
    process.advise(base, 1, Advice::Free);
    world.lab.run(CPU, &process.space);
    let (stores, other, space) = (world.clone(), world.clone(), process.space.clone());
    let stored = Rc::new(Cell::new(false));
    let does_store = stored.clone();
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || {
            if let Some(word) = stores.word_now(CPU, base, Access::Write) {
                word.store(5, Ordering::Relaxed);
                does_store.set(true);
            }
        }),
        Box::new(move || other.on(OTHER, |mm| takes(mm, &space, base))),
    ];
    run(&world, programs);
    process.advise(base, 1, Advice::PageOut);
    !stored.get() || process.read(CPU, base) == 5
}

pub(crate) fn store_beside_an_mprotect<I: Isa>(seed: u64) -> bool {
    let protect =
        |mm: &Mm<_>, space: &Space<_>, base| mm.mprotect(space, base, PAGE_SIZE, Rights::READ).expect("mapped");
    store_beside::<I>(|world, programs| race(world, seed, programs), protect)
}

/// The store happens at each step of the fork in turn.
fn store_beside_a_fork<I: Isa>(seed: u64) -> bool {
    let turns = [(OTHER, seed as u32), (CPU, 100)];
    let run = |world: &TestWorld<I>, programs| race_in_turns(world, seed, &turns, programs);
    store_beside::<I>(run, |mm, space, _| {
        let child = mm.fork(space).expect("memory for a child");
        mm.end_space(&child);
    })
}

fn lazily_freed_pages_are_freed_unless_stored_to<I: Isa>() {
    assert!(lazily_freed_page_keeps_a_store::<I>(0));
    let (world, process) = TestProcess::<I>::unjudged();
    let base = process.anon(PAGES);
    fill(&process, base, 1);
    let before = free_pages(&world);
    process.advise(base, PAGES, Advice::Free);
    process.advise(base, PAGES, Advice::PageOut);
    assert_eq!(free_pages(&world), before + PAGES, "lazily freed pages need no slot");
    assert_eq!(world.on(CPU, |mm| (mm.counter(Counter::PgLazyFreed), mm.counter(Counter::PswpOut))), (PAGES, 0));
    process.end();
}

/// The pages have slots: one with older contents, one that was never written.
fn lazily_freed_pages_never_get_the_contents_of_their_slot<I: Isa>() {
    let (world, process) = TestProcess::<I>::unjudged();
    let device = world.swap_to(8);
    let base = process.anon(2);
    process.write(CPU, base, 1);
    process.advise(base, 1, Advice::PageOut);
    assert_eq!(process.read(CPU, base), 1, "swapped in, and the slot is kept");
    process.write(CPU, base, 2);
    process.write(CPU, at(base, 1), 2);
    device.broken.store(true, Ordering::Relaxed);
    process.advise(at(base, 1), 1, Advice::PageOut);
    device.broken.store(false, Ordering::Relaxed);
    assert_eq!(process.read(CPU, at(base, 1)), 2, "found in the swap cache, and the slot was never written");
    process.advise(base, 2, Advice::Free);
    for _ in 0..3 {
        process.advise(base, 2, Advice::PageOut);
        let words = [process.read(CPU, base), process.read(CPU, at(base, 1))];
        assert!(words.iter().all(|word| [0, 2].contains(word)), "{words:?}");
    }
    process.end();
    assert_eq!((device.used(), world.on(CPU, |mm| mm.swap_slots())), (0, (8, 8)), "INV-SWAP-COUNT");
}

/// Lazily frees a page that was swapped in and stored to, while it is paged out.
///
/// Returns whether it reads as the value stored or as zero, and its slot is free.
fn lazy_free_during_a_page_out<I: Isa>(seed: u64) -> bool {
    let (world, process) = TestProcess::<I>::unjudged();
    let device = world.swap_to(8);
    let base = process.anon(1);
    process.write(CPU, base, 1);
    process.advise(base, 1, Advice::PageOut);
    process.read(CPU, base);
    process.write(CPU, base, 2);
    world.lab.run(CPU, &process.space);
    let (gives_up, pages_out) = (world.clone(), world.clone());
    let [given, paged] = [process.space.clone(), process.space.clone()];
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || {
            gives_up.advise(CPU, &given, base, 1, Advice::Free);
            if seed.is_multiple_of(2) {
                gives_up.advise(CPU, &given, base, 1, Advice::DontNeed);
            }
        }),
        Box::new(move || {
            for _ in 0..3 {
                pages_out.advise(OTHER, &paged, base, 1, Advice::PageOut);
            }
        }),
    ];
    race_in_long_turns(&world, seed, programs);
    for _ in 0..3 {
        process.advise(base, 1, Advice::PageOut);
    }
    let intact = [0, 2].contains(&process.read(CPU, base));
    process.end();
    intact && device.used() == 0 && world.on(CPU, |mm| mm.swap_slots()) == (8, 8)
}

/// The entry is clean, and stays clean while the device writes (`FOLL_TOUCH` of `follow_page_pte`).
///
/// The lockless walk leaves that to its caller, as Linux's does.
fn a_lazily_freed_page_that_is_taken_for_writing_is_kept<I: Isa>() {
    let (world, process) = TestProcess::<I>::unjudged();
    world.swap_to(8);
    let base = process.anon(1);
    process.write(CPU, base, 1);
    process.advise(base, 1, Advice::Free);
    let device = process.take(CPU, base, 1, GupCall::Get(GupFlags::WRITE)).expect("mapped");
    device.write(0, 5);
    device.release(MakeDirty::No);
    process.advise(base, 1, Advice::PageOut);
    assert_eq!(process.read(CPU, base), 5);
    process.end();
}

/// The page was unshared for a pin, and a child shares it again.
fn lazy_free_in_one_process_keeps_the_page_of_another<I: Isa>() {
    let (world, process) = TestProcess::<I>::unjudged();
    world.swap_to(8);
    let base = process.anon(1);
    process.write(CPU, base, 1);
    let first = process.fork();
    world.on(CPU, |mm| {
        let range = PageRange::page(base);
        let pages = mm.pin_user_pages(&process.space, range, GupFlags::empty()).expect("readable");
        mm.release_user_pages(pages, MakeDirty::No);
    });
    let second = process.fork();
    second.advise(base, 1, Advice::Free);
    world.on(CPU, |mm| {
        (0..4).for_each(|_| {
            mm.reclaim(NodeId::new(0), 16);
        })
    });
    assert_eq!((first.read(CPU, base), process.read(CPU, base)), (1, 1));
    assert!([0, 1].contains(&second.read(CPU, base)));
}

/// Its entries are cleared one after the other, and their references wait for one flush.
pub(super) fn a_lazily_freed_page_of_two_processes_is_freed<I: Isa>() {
    let (world, process) = TestProcess::<I>::unjudged();
    world.swap_to(8);
    world.set(MmSetting::CowPageTables, "never");
    let base = process.anon(1);
    process.write(CPU, base, 1);
    process.advise(base, 1, Advice::Free);
    let child = process.fork();
    for _ in 0..4 {
        world.on(CPU, |mm| mm.reclaim(NodeId::new(0), 16));
    }
    assert_eq!((world.count(Counter::PgLazyFreed), world.count(Counter::PswpOut)), (1, 0));
    assert_eq!((process.read(CPU, base), child.read(CPU, base)), (0, 0));
}

#[cfg(feature = "planted")]
#[test]
fn a_cleared_mapping_that_counts_as_a_user_is_found() {
    use pagewright_arch::{Aarch64, X86_64};
    use pagewright_plant::{PlantedBug, assert_found_by};
    let bug = PlantedBug::DetachedCountsAsUser;
    assert_found_by(bug, a_lazily_freed_page_of_two_processes_is_freed::<X86_64>);
    assert_found_by(bug, a_lazily_freed_page_of_two_processes_is_freed::<Aarch64>);
}

/// The first attempt finds the store, and the page is an ordinary one from then on.
fn a_lazily_freed_page_that_was_stored_to_is_swapped_out_again<I: Isa>() {
    let (world, process) = TestProcess::<I>::unjudged();
    let device = world.swap_to(8);
    let base = process.anon(1);
    process.write(CPU, base, 1);
    process.advise(base, 1, Advice::Free);
    process.write(CPU, base, 5);
    process.advise(base, 1, Advice::PageOut);
    assert_eq!(device.used(), 0);
    process.advise(base, 1, Advice::PageOut);
    assert_eq!((device.used(), process.read(CPU, base)), (1, 5));
    process.end();
}

#[cfg(feature = "planted")]
#[test]
fn planted_bugs_are_found() {
    use pagewright_arch::{Aarch64, X86_64};
    use pagewright_plant::{PlantedBug, assert_found_by};
    assert_found_by(PlantedBug::FreeIgnoresSharers, lazy_free_in_one_process_keeps_the_page_of_another::<X86_64>);
    assert_found_by(PlantedBug::FreeIgnoresSharers, lazy_free_in_one_process_keeps_the_page_of_another::<Aarch64>);
}
