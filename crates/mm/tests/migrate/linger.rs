//! Translations that stay in TLBs after their page has moved (`tlb_linger`).
//!
//! INV-LINGER-MAY, INV-LINGER-WHOLE, INV-LINGER-CONTENTS.
//!
//! CPU 1 has read the page where it was. CPU 0 moves it, and then does what must end that, or what
//! need not.

use super::{FAR, NEAR, move_to, nodes};
use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::{ANON, CPU, OTHER, TestProcess, TestWorld, at};
use pagewright_mm::MmSetting;
use pagewright_types::{Counter, PAGE_SIZE, Rights, VirtAddr};
use std::rc::Rc;

on_both! {
    a_page_that_is_read_moves_without_a_wait,
    a_store_to_the_copy_ends_what_lingers,
    a_page_that_may_be_stored_to_is_flushed,
    mprotect_and_munmap_flush_before_they_return,
    a_frame_that_lingers_is_parked_until_a_flush,
    a_page_that_moves_twice_is_read_at_both_frames_until_a_store,
}

/// A process that two CPUs run, with pages that CPU 1 has read and whose leaves allow no store.
fn read_by_another<I: Isa>(pages: u64) -> (Rc<TestWorld<I>>, TestProcess<I>, VirtAddr) {
    let world = TestWorld::<I>::two_nodes(3, 4 << 20);
    world.set(MmSetting::CowPageTables, "never");
    world.set(MmSetting::TlbLinger, "migration");
    let process = TestProcess::new(&world);
    let base = process.map(pages, Rights::RW, ANON, None);
    (0..pages).for_each(|page| process.write(CPU, at(base, page), 10 + page));
    // The child makes them read-only.
    process.fork().end();
    world.lab.run(CPU, &process.space);
    world.lab.run(OTHER, &process.space);
    (0..pages).for_each(|page| assert_eq!(process.read(OTHER, at(base, page)), 10 + page));
    (world, process, base)
}

fn waits<I: Isa>(world: &TestWorld<I>) -> u64 {
    world.count(Counter::NrTlbRemoteFlush)
}

fn parked<I: Isa>(world: &TestWorld<I>) -> u64 {
    world.on(CPU, |mm| mm.tlb().frames().parked())
}

fn a_page_that_is_read_moves_without_a_wait<I: Isa>() {
    let (world, process, base) = read_by_another::<I>(1);
    let before = waits(&world);
    assert_eq!(move_to(&process, &[base], FAR, false).0, 0);
    assert_eq!(nodes(&process, &[base]), [Ok(FAR)]);
    assert_eq!(waits(&world), before);
    assert_eq!((world.count(Counter::PwLingerPages), parked(&world)), (1, 1));
    assert_eq!((process.read(OTHER, base), process.read(CPU, base)), (10, 10));
    assert_eq!(waits(&world), before, "loads end nothing");
    world.at_rest(&[]);
    process.end();
    world.at_rest(&[]);
}

fn a_store_to_the_copy_ends_what_lingers<I: Isa>() {
    let (world, process, base) = read_by_another::<I>(1);
    move_to(&process, &[base], FAR, false);
    let before = waits(&world);
    process.write(CPU, base, 20);
    assert!(waits(&world) > before);
    assert_eq!([Counter::PwLingerSettledForStore, Counter::PwLingerStoreWaits].map(|of| world.count(of)), [1, 1]);
    assert_eq!((process.read(OTHER, base), process.read(CPU, base)), (20, 20));
    process.write(OTHER, base, 21);
    assert_eq!(world.count(Counter::PwLingerSettledForStore), 1, "once");
    process.end();
    world.at_rest(&[]);
}

fn a_page_that_may_be_stored_to_is_flushed<I: Isa>() {
    let (world, process, base) = read_by_another::<I>(2);
    process.write(CPU, at(base, 1), 11);
    let before = waits(&world);
    assert_eq!(move_to(&process, &[at(base, 1)], FAR, false).0, 0);
    assert_eq!(waits(&world) - before, 1);
    assert_eq!((world.count(Counter::PwLingerPages), world.count(Counter::PwLingerWritable)), (0, 1));
    // Together with one that lingers.
    assert_eq!(move_to(&process, &[at(base, 1)], NEAR, false).0, 0);
    assert_eq!(move_to(&process, &[base, at(base, 1)], FAR, false).0, 0);
    assert_eq!((world.count(Counter::PwLingerPages), world.count(Counter::PwLingerWritable)), (1, 3));
    process.end();
    world.at_rest(&[]);
}

/// Also where the rights do not change: the program may rely on the frame behind the address.
fn mprotect_and_munmap_flush_before_they_return<I: Isa>() {
    for call in 0..3 {
        let (world, process, base) = read_by_another::<I>(1);
        move_to(&process, &[base], FAR, false);
        let before = waits(&world);
        world.on(CPU, |mm| match call {
            0 => mm.mprotect(&process.space, base, PAGE_SIZE, Rights::READ).expect("mapped"),
            1 => mm.munmap(&process.space, base, PAGE_SIZE).expect("mapped"),
            _ => drop(mm.fork(&process.space).map(|child| mm.end_space(&child))),
        });
        assert!(waits(&world) > before, "call {call}");
        process.end();
        world.at_rest(&[]);
    }
}

fn a_frame_that_lingers_is_parked_until_a_flush<I: Isa>() {
    let (world, process, base) = read_by_another::<I>(1);
    move_to(&process, &[base], FAR, false);
    world.set(MmSetting::OvercommitMemory, "1");
    let free = world.on(CPU, |mm| mm.tlb().frames().available());
    // As many as there are take the parked one, too.
    let more = process.map(2 * free, Rights::RW, ANON, None);
    let settled = world.count(Counter::PwTlbSettleOnAlloc);
    let mut page = 0;
    while parked(&world) > 0 && process.touch(CPU, at(more, page), pagewright_types::Access::Write).is_ok() {
        page += 1;
    }
    assert_eq!((parked(&world), world.count(Counter::PwTlbSettleOnAlloc) - settled), (0, 1));
    assert_eq!(process.read(OTHER, base), 10);
    process.end();
    world.at_rest(&[]);
}

fn a_page_that_moves_twice_is_read_at_both_frames_until_a_store<I: Isa>() {
    let (world, process, base) = read_by_another::<I>(1);
    move_to(&process, &[base], FAR, false);
    assert_eq!(process.read(CPU, base), 10, "CPU 0 reads the copy, CPU 1 the frame before");
    move_to(&process, &[base], NEAR, false);
    assert_eq!(world.count(Counter::PwLingerPages), 2);
    assert_eq!((process.read(OTHER, base), process.read(CPU, base)), (10, 10));
    process.write(CPU, base, 20);
    assert_eq!((process.read(OTHER, base), process.read(CPU, base)), (20, 20));
    process.end();
    world.at_rest(&[]);
}
