//! Forced writes (`FOLL_FORCE`): when the entry permits one, and when a fault comes first.
//!
//! `can_follow_write_pte`: the page is the space's own copy, and its entry is marked as stored to
//! if the mapping is watched for stores.

use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::{ANON, CPU, GupCall, TestProcess, TestWorld, at};
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_mm::space::{ClearRefs, VmFlags};
use pagewright_mm::view::PagemapFlags;
use pagewright_mm::{MapFlags, MmSetting};
use pagewright_types::{Counter, PageRange, Rights, VirtAddr};

on_both! {
    a_forced_write_faults_unless_the_page_is_marked_as_stored_to,
    a_forced_write_copies_a_page_that_others_have,
}

fn force<I: Isa>(process: &TestProcess<I>, va: VirtAddr, value: u64) -> u64 {
    let before = process.world.count(Counter::PgFault);
    let call = GupCall::Get(GupFlags::WRITE | GupFlags::FORCE);
    let debugger = process.take(CPU, va, 1, call).expect("a private mapping");
    debugger.write(0, value);
    debugger.release(MakeDirty::Yes);
    process.world.count(Counter::PgFault) - before
}

fn is_told<I: Isa>(process: &TestProcess<I>, va: VirtAddr) -> bool {
    let mut told = None;
    process.world.on(CPU, |mm| mm.pagemap(&process.space, PageRange::page(va), |_, word| told = Some(word.flags())));
    told.expect("a word").contains(PagemapFlags::SOFT_DIRTY)
}

fn a_forced_write_faults_unless_the_page_is_marked_as_stored_to<I: Isa>() {
    for (watched, marked) in [(false, false), (false, true), (true, false), (true, true)] {
        for rights in [Rights::READ, Rights::empty(), Rights::RX] {
            let process = TestProcess::new(&TestWorld::<I>::new(1));
            let base = process.map_at(VirtAddr::new(1 << 30), 1, Rights::RW, ANON | MapFlags::FIXED);
            process.write(CPU, base, 1);
            process.world.on(CPU, |mm| mm.clear_refs(&process.space, ClearRefs::SoftDirty).expect("memory"));
            if marked {
                process.write(CPU, base, 2);
            }
            if !watched {
                // A new neighbour, with which the mapping merges.
                process.map_at(at(base, 1), 1, Rights::RW, ANON | MapFlags::FIXED);
            }
            process.protect(base, 2 - u64::from(watched), rights);
            assert_eq!(process.flags(base).contains(VmFlags::SOFTDIRTY), !watched);
            let faults = u64::from(watched && !marked);
            assert_eq!(force(&process, base, 7), faults, "watched: {watched}, marked: {marked}, {rights:?}");
            assert!(is_told(&process, base), "a store is not told: watched: {watched}, marked: {marked}, {rights:?}");
            assert_eq!(force(&process, base, 8), 0, "the second needs no fault");
            process.protect(base, 1, Rights::READ);
            assert_eq!(process.read(CPU, base), 8);
            TestProcess::end_all_at_rest(&[&process]);
        }
    }
}

fn a_forced_write_copies_a_page_that_others_have<I: Isa>() {
    for shares in ["never", "always"] {
        let process = TestProcess::new(&TestWorld::<I>::new(1));
        process.world.set(MmSetting::CowPageTables, shares);
        let base = process.anon(1);
        process.write(CPU, base, 1);
        process.protect(base, 1, Rights::READ);
        let child = process.fork();
        assert_eq!((force(&child, base, 7), force(&child, base, 8)), (1, 0), "{shares}");
        assert_eq!((process.read(CPU, base), child.read(CPU, base)), (1, 8), "{shares}");
        child.end();
        assert_eq!((force(&process, base, 9), process.read(CPU, base)), (1, 9), "{shares}");
        TestProcess::end_all_at_rest(&[&process]);
    }
    let process = TestProcess::new(&TestWorld::<I>::new(1));
    let zero = process.anon(1);
    process.read(CPU, zero);
    process.protect(zero, 1, Rights::READ);
    assert_eq!(force(&process, zero, 5), 1, "the zero page is never stored to");
    let other = process.anon(1);
    assert_eq!((process.read(CPU, zero), process.read(CPU, other)), (5, 0));
    TestProcess::end_all_at_rest(&[&process]);
}
