//! The leaf that a swap-in maps, and whether the slot is freed at once (`do_swap_page`).
//!
//! Every access, of a page that is exclusive or shared with a child, in locked memory and with a
//! device that is full or not.

use pagewright_arch::{Isa, LeafFlags, on_both};
use pagewright_lab::harness::recount;
use pagewright_lab::harness::{CPU, TestProcess, TestWorld, at};
use pagewright_mm::fault::FaultKind;
use pagewright_mm::{Advice, LockFlags, MmSetting};
use pagewright_types::{Access, Counter, PAGE_SIZE, Rights};

on_both! {
    a_swap_in_maps_what_the_access_needs_and_frees_a_slot_without_use,
    a_swap_in_is_major_if_it_reads_the_device,
    a_slot_is_kept_until_more_than_half_of_all_are_in_use,
}

fn a_swap_in_maps_what_the_access_needs_and_frees_a_slot_without_use<I: Isa>() {
    for write in [false, true] {
        for shared in [false, true] {
            for locked in [false, true] {
                // Exactly half of two slots are free, which is not full yet.
                for (slots, full) in [(2, false), (1, true)] {
                    swap_in::<I>(write, shared, locked, (slots, full));
                }
            }
        }
    }
}

fn swap_in<I: Isa>(write: bool, shared: bool, locked: bool, (slots, full): (u32, bool)) {
    let case = format!("write: {write}, shared: {shared}, locked: {locked}, full: {full}");
    let world = TestWorld::<I>::new(1);
    world.set(MmSetting::CowPageTables, "never");
    let device = world.swap_to(slots);
    let process = TestProcess::new(&world);
    let base = process.anon(1);
    process.write(CPU, base, 11);
    process.advise(base, 1, Advice::PageOut);
    assert_eq!(device.used(), 1, "{case}");
    let child = shared.then(|| process.fork());
    if locked {
        world.on(CPU, |mm| mm.mlock2(&process.space, base, PAGE_SIZE, LockFlags::ONFAULT)).expect("below the limit");
    }
    let faults = world.count(Counter::PgFault);
    let access = if write { Access::Write } else { Access::Read };
    // Directly, since an access would note itself in the leaf.
    let served = world.on(CPU, |mm| mm.fault(&process.space, base, access));
    assert_eq!(served, Ok(FaultKind::Major), "{case}");
    let counts = (world.count(Counter::PgFault) - faults, world.count(Counter::PgMajFault));
    assert_eq!((counts, process.space.major_faults()), ((1, 1), 1), "{case}");
    let leaf = world.on(CPU, |mm| recount::leaf(mm, &process.space, base)).expect("a leaf");
    let own = write || !shared;
    let rights = if write { Rights::RW } else { Rights::READ };
    assert_eq!((leaf.rights(), leaf.is_exclusive()), (rights, own), "{case}");
    assert_eq!((leaf.has(LeafFlags::ACCESSED), leaf.has(LeafFlags::DIRTY)), (true, write), "{case}");
    // A slot that the child's entry names, too, is in use.
    let freed = !shared && (write || locked || full);
    assert_eq!(device.used(), usize::from(!freed), "{case}");
    if locked {
        world.on(CPU, |mm| mm.munlockall(&process.space));
    }
    process.advise(base, 1, Advice::PageOut);
    assert_eq!(process.read(CPU, base), 11, "{case}");
    let all: Vec<_> = [&process].into_iter().chain(&child).collect();
    world.recount(&all);
    assert!(all.iter().all(|process| process.read(CPU, base) == 11), "{case}");
    TestProcess::end_all_at_rest(&all);
    assert_eq!(device.used(), 0, "{case}");
}

/// The second process finds the page in the swap cache.
fn a_swap_in_is_major_if_it_reads_the_device<I: Isa>() {
    for access in [Access::Read, Access::Write] {
        let world = TestWorld::<I>::new(1);
        world.set(MmSetting::CowPageTables, "never");
        world.swap_to(2);
        let process = TestProcess::new(&world);
        let base = process.anon(1);
        process.write(CPU, base, 11);
        process.advise(base, 1, Advice::PageOut);
        let child = process.fork();
        for (of, expected) in [(&process, FaultKind::Major), (&child, FaultKind::Minor)] {
            assert_eq!(world.on(CPU, |mm| mm.fault(&of.space, base, access)), Ok(expected), "{access}");
        }
        let counts = [Counter::PgMajFault, Counter::PswpIn].map(|counter| world.count(counter));
        assert_eq!((counts, process.space.major_faults(), child.space.major_faults()), ([1, 1], 1, 0), "{access}");
        TestProcess::end_all_at_rest(&[&process, &child]);
    }
}

/// `vm_swap_full`.
fn a_slot_is_kept_until_more_than_half_of_all_are_in_use<I: Isa>() {
    const SLOTS: u32 = 8;
    for pages in 1..=u64::from(SLOTS) {
        let world = TestWorld::<I>::new(1);
        let device = world.swap_to(SLOTS);
        let process = TestProcess::new(&world);
        let base = process.anon(pages);
        (0..pages).for_each(|page| process.write(CPU, at(base, page), 11));
        process.advise(base, pages, Advice::PageOut);
        assert_eq!(device.used() as u64, pages);
        assert_eq!(process.read(CPU, base), 11);
        let kept = pages <= u64::from(SLOTS / 2);
        assert_eq!(device.used() as u64, pages - u64::from(!kept), "{pages} of {SLOTS}");
        TestProcess::end_all_at_rest(&[&process]);
    }
}
