//! Contents that were given up by `MADV_FREE` (INV-LAZYFREE-KEPT): they may go, and what is stored
//! afterwards may not.

use crate::anon::{PAGES, SCHEDULES, fill, free_pages};
use pagewright_arch::Isa;
use pagewright_lab::harness::race::{first_failing_seed, race_in_long_turns};
use pagewright_lab::harness::{CPU, OTHER, TestProcess, TestWorld, at};
use pagewright_lab::on_both;
use pagewright_mm::Advice;
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_sim::explore::CoroutineBody;
use pagewright_types::{Counter, NodeId, PageRange};
use std::sync::atomic::Ordering;

on_both! {
    pages_given_up_are_freed_unless_stored_to_again,
    pages_given_up_never_say_what_their_slot_says,
    no_older_contents_are_found_after_a_page_was_given_up,
    what_one_process_gives_up_another_keeps,
}

/// The page is stored to by a CPU that had stored to it before, and need not walk the tables to do
/// so again.
pub(crate) fn is_kept_if_stored_to<I: Isa>() -> bool {
    let world = TestWorld::<I>::unjudged();
    let process = TestProcess::new(&world);
    let base = process.anon(2);
    (0..2).for_each(|page| process.write(CPU, at(base, page), 1));
    world.advise(OTHER, &process.space, base, 2, Advice::Free);
    process.write(CPU, base, 5);
    world.advise(OTHER, &process.space, base, 2, Advice::PageOut);
    process.read(CPU, base) == 5 && process.read(CPU, at(base, 1)) == 0
}

fn pages_given_up_are_freed_unless_stored_to_again<I: Isa>() {
    assert!(is_kept_if_stored_to::<I>());
    let world = TestWorld::<I>::unjudged();
    let process = TestProcess::new(&world);
    let base = process.anon(PAGES);
    fill(&process, base, 1);
    let before = free_pages(&world);
    process.advise(base, PAGES, Advice::Free);
    process.advise(base, PAGES, Advice::PageOut);
    assert_eq!(free_pages(&world), before + PAGES, "they need no swap");
    assert_eq!(world.on(CPU, |mm| (mm.counter(Counter::PgLazyFreed), mm.counter(Counter::PswpOut))), (PAGES, 0));
    process.end();
}

/// Pages that have a slot, with older contents or none that were ever written.
fn pages_given_up_never_say_what_their_slot_says<I: Isa>() {
    let world = TestWorld::<I>::unjudged();
    let device = world.swap_to(8);
    let process = TestProcess::new(&world);
    let base = process.anon(2);
    process.write(CPU, base, 1);
    process.advise(base, 1, Advice::PageOut);
    assert_eq!(process.read(CPU, base), 1, "it is back, and its slot is kept");
    process.write(CPU, base, 2);
    process.write(CPU, at(base, 1), 2);
    device.broken.store(true, Ordering::Relaxed);
    process.advise(at(base, 1), 1, Advice::PageOut);
    device.broken.store(false, Ordering::Relaxed);
    assert_eq!(process.read(CPU, at(base, 1)), 2, "it is back, and its slot was never written");
    process.advise(base, 2, Advice::Free);
    for _ in 0..3 {
        process.advise(base, 2, Advice::PageOut);
        let words = [process.read(CPU, base), process.read(CPU, at(base, 1))];
        assert!(words.iter().all(|word| [0, 2].contains(word)), "{words:?}");
    }
    process.end();
    assert_eq!((device.used(), world.on(CPU, |mm| mm.swap_slots())), (0, (8, 8)), "INV-SWAP-COUNT");
}

/// A page that comes from swap, is stored to and given up while it is paged out; whether it says
/// what was stored, or nothing, and its slot is free in the end.
fn given_up_beside_a_page_out<I: Isa>(seed: u64) -> bool {
    let world = TestWorld::<I>::unjudged();
    let device = world.swap_to(8);
    let process = TestProcess::new(&world);
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
    let right = [0, 2].contains(&process.read(CPU, base));
    process.end();
    right && device.used() == 0 && world.on(CPU, |mm| mm.swap_slots()) == (8, 8)
}

/// INV-SWAP-COUNT.
fn no_older_contents_are_found_after_a_page_was_given_up<I: Isa>() {
    let lost = first_failing_seed(SCHEDULES, given_up_beside_a_page_out::<I>);
    assert_eq!(lost, None, "what the slot had is back, or the slot is lost");
}

/// A page that was copied for a pin, and that a child has, too.
fn what_one_process_gives_up_another_keeps<I: Isa>() {
    let world = TestWorld::<I>::unjudged();
    world.swap_to(8);
    let process = TestProcess::new(&world);
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
