//! References and pins on pages of large folios, and of the huge page of zeroes.

use super::{ALL, BASE, Mapped, PAGES, end, frame, holds};
use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::{ANON, CPU, GupCall, TestProcess, TestWorld, at};
use pagewright_lab::planted_bugs_are_found;
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_mm::{MapFlags, MmSetting};
use pagewright_types::{Counter, Errno, Level, Rights};
use std::rc::Rc;

on_both! {
    a_request_takes_the_page_and_leaves_the_leaf_whole,
    a_fork_copies_a_pinned_page_and_shares_the_others,
    a_request_that_splits_makes_pieces: assert!(splits::<I>(0)),
    a_lockless_request_does_not_split,
    a_page_of_the_huge_page_of_zeroes_is_taken,
    a_longterm_pin_replaces_the_huge_page_of_zeroes,
}

fn a_request_takes_the_page_and_leaves_the_leaf_whole<I: Isa>() {
    for mapped in ALL {
        for call in [GupCall::Get, GupCall::GetFast, GupCall::Pin, GupCall::PinFast] {
            for flags in [GupFlags::empty(), GupFlags::WRITE] {
                let (world, process) = mapped.process::<I>();
                world.lab.run(CPU, &process.space);
                let device = process.take(CPU, at(BASE, 7), 2, call(flags)).expect("mapped");
                assert_eq!([device.pfn(0), device.pfn(1)], [frame(&process, 7), frame(&process, 8)], "{mapped:?}");
                device.agrees(&process, CPU, at(BASE, 7), 70);
                assert_eq!(process.leaf_level(BASE), Some(mapped.level()));
                device.release(MakeDirty::No);
                let (acquired, released) =
                    (world.count(Counter::NrFollPinAcquired), world.count(Counter::NrFollPinReleased));
                assert_eq!(acquired, released);
                end(&world, &[&process]);
            }
        }
    }
}

/// INV-GUP-EXCLUSIVE.
fn a_fork_copies_a_pinned_page_and_shares_the_others<I: Isa>() {
    for mapped in ALL {
        let (world, process) = mapped.process::<I>();
        let device = process.take(CPU, at(BASE, 7), 1, GupCall::Pin(GupFlags::WRITE)).expect("mapped");
        let splits = world.count(Counter::ThpSplitPmd);
        let child = process.fork();
        assert_eq!(world.count(Counter::ThpSplitPmd) - splits, u64::from(mapped == Mapped::Whole));
        let shared = |page| frame(&process, page) == frame(&child, page);
        assert!(!shared(7), "{mapped:?}");
        // The kernel counts pins of a folio, not of its pages, so it may copy more than one page.
        device.agrees(&process, CPU, at(BASE, 7), 70);
        assert_eq!(child.read(CPU, at(BASE, 7)), 8, "{mapped:?}");
        device.release(MakeDirty::No);
        end(&world, &[&process, &child]);
    }
}

/// For a load, and where the page of zeroes is mapped.
fn splits<I: Isa>(_seed: u64) -> bool {
    let (world, process) = Mapped::Whole.process::<I>();
    let device = process.take(CPU, at(BASE, 7), 1, GupCall::Get(GupFlags::SPLIT_PMD)).expect("mapped");
    let sound = process.leaf_level(BASE) == Some(Level::PTE)
        && device.pfn(0) == frame(&process, 7)
        && (world.count(Counter::ThpSplitPmd), world.count(Counter::ThpSplitPage)) == (1, 0);
    device.release(MakeDirty::No);
    assert!(holds(&process, 0..0));
    end(&world, &[&process]);
    sound
}

fn a_lockless_request_does_not_split<I: Isa>() {
    let (world, process) = Mapped::Whole.process::<I>();
    for call in [GupCall::GetFast(GupFlags::SPLIT_PMD), GupCall::PinFast(GupFlags::SPLIT_PMD)] {
        let refused = process.take(CPU, at(BASE, 7), 1, call).map(drop);
        assert_eq!(refused.map_err(|error| error.errno()), Err(Errno::EINVAL), "{call:?}");
    }
    assert_eq!(process.leaf_level(BASE), Some(Level::PMD));
    end(&world, &[&process]);
}

/// A process that has loaded from an empty range of 2 MiB.
fn zeroes<I: Isa>() -> (Rc<TestWorld<I>>, TestProcess<I>) {
    let world = TestWorld::sized(2, 16 << 20);
    let process = TestProcess::new(&world);
    process.map_at(BASE, PAGES, Rights::RW, ANON | MapFlags::FIXED | MapFlags::NORESERVE);
    world.set(MmSetting::ThpEnabled, "always");
    assert_eq!((process.read(CPU, at(BASE, 9)), process.leaf_level(BASE)), (0, Some(Level::PMD)));
    (world, process)
}

/// Without a reference: the page of zeroes is never freed.
fn a_page_of_the_huge_page_of_zeroes_is_taken<I: Isa>() {
    let calls = [GupCall::Get(GupFlags::empty()), GupCall::GetFast(GupFlags::empty()), GupCall::Pin(GupFlags::empty())];
    for (call, splits) in calls.into_iter().map(|call| (call, false)).chain([(GupCall::Get(GupFlags::SPLIT_PMD), true)])
    {
        let (world, process) = zeroes::<I>();
        world.lab.run(CPU, &process.space);
        let device = process.take(CPU, at(BASE, 7), 1, call).expect("mapped");
        let level = if splits { Level::PTE } else { Level::PMD };
        assert_eq!((device.read(0), process.leaf_level(BASE)), (0, Some(level)), "{call:?}");
        device.release(MakeDirty::No);
        world.recount(&[&process]);
        TestProcess::end_all_at_rest(&[&process]);
    }
}

fn a_longterm_pin_replaces_the_huge_page_of_zeroes<I: Isa>() {
    for flags in [GupFlags::LONGTERM, GupFlags::LONGTERM | GupFlags::WRITE] {
        let (world, process) = zeroes::<I>();
        let device = process.take(CPU, at(BASE, 7), 1, GupCall::Pin(flags)).expect("memory");
        device.agrees(&process, CPU, at(BASE, 7), 70);
        device.release(MakeDirty::No);
        world.recount(&[&process]);
        TestProcess::end_all_at_rest(&[&process]);
    }
}

planted_bugs_are_found! {
    1;
    FollowIgnoresSplit => splits,
}
