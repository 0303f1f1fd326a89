//! Pins and shared tables (INV-SHARE-PIN).

use super::{PLACES, parent, values};
use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::{CPU, GupCall, OTHER, TestProcess, at};
use pagewright_mm::counters::Gauge;
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_mm::{Advice, Mm, MmError, RemapFlags, RemapRequest, Space};
use pagewright_sim::Sim;
use pagewright_types::{Access, Counter, PAGE_SIZE, Rights, VirtAddr};

on_both! {
    a_table_with_a_pinned_page_is_not_shared_until_it_is_unpinned,
    a_table_to_which_a_pinned_page_moved_is_not_shared,
    a_page_below_a_shared_pointer_is_pinned_by_an_own_path,
    a_zero_page_below_a_shared_pointer_is_taken,
    a_page_that_is_not_pinned_keeps_no_table_from_being_shared,
    a_page_with_as_many_references_as_a_pin_breaks_like_any_other,
    a_pinned_page_behind_a_pending_entry_keeps_its_table_from_being_shared,
}

pub(super) fn a_table_with_a_pinned_page_is_not_shared_until_it_is_unpinned<I: Isa>() {
    for call in [GupCall::Pin(GupFlags::WRITE), GupCall::PinFast(GupFlags::WRITE)] {
        let (world, process, base) = parent::<I>(2);
        let device = process.take(CPU, at(base, PLACES[1]), 1, call).expect("a page");
        let child = process.fork();
        assert_eq!(world.count(Counter::PwTableShared), 2, "the tables before and after");
        device.write(0, 77);
        assert_eq!((process.read(CPU, at(base, PLACES[1])), child.read(CPU, at(base, PLACES[1]))), (77, 2));
        child.end();
        device.release(MakeDirty::Yes);
        // The first fork after the pin looks at each page of the table, and later ones need not.
        let shared = world.count(Counter::PwTableShared);
        process.fork().end();
        assert_eq!(world.count(Counter::PwTableShared), shared + 3);
        process.fork().end();
        assert_eq!(world.count(Counter::PwTableShared), shared + 4, "one pointer at the root");
        assert_eq!(values(&process, base), [1, 77, 3]);
        world.recount(&[&process]);
        TestProcess::end_all_at_rest(&[&process]);
    }
}

/// Moves the page alone, and with the whole of its table.
pub(super) fn a_table_to_which_a_pinned_page_moved_is_not_shared<I: Isa>() {
    let to = VirtAddr::new(600 << 30);
    for (page, pages) in [(PLACES[1], 1), (512, 512)] {
        let (world, process, base) = parent::<I>(2);
        let device = process.take(CPU, at(base, PLACES[1]), 1, GupCall::Pin(GupFlags::WRITE)).expect("a page");
        let flags = RemapFlags::MAYMOVE | RemapFlags::FIXED;
        let len = pages * PAGE_SIZE;
        let request = RemapRequest { addr: at(base, page), old_len: len, new_len: len, flags, new_addr: to };
        world.on(CPU, |mm| mm.mremap(&process.space, &request)).expect("room");
        let child = process.fork();
        assert_eq!(world.count(Counter::PwTableCopiedPinned), 1, "{pages} pages moved");
        let moved = at(to, PLACES[1] - page);
        process.write(CPU, moved, 77);
        assert_eq!((device.read(0), child.read(CPU, moved)), (77, 2));
        child.write(CPU, moved, 78);
        assert_eq!(device.read(0), 77);
        device.release(MakeDirty::Yes);
        world.recount(&[&process, &child]);
        TestProcess::end_all_at_rest(&[&process, &child]);
    }
}

fn a_page_below_a_shared_pointer_is_pinned_by_an_own_path<I: Isa>() {
    for call in [GupCall::Pin(GupFlags::empty()), GupCall::PinFast(GupFlags::WRITE), GupCall::Get(GupFlags::WRITE)] {
        let (world, process, base) = parent::<I>(2);
        let child = process.fork();
        let device = child.take(CPU, at(base, PLACES[0]), 1, call).expect("a page");
        assert!(world.count(Counter::PwTableBroken) > 0);
        process.write(CPU, at(base, PLACES[0]), 11);
        assert_eq!(device.read(0), 1, "the parent stores to a page of its own");
        child.write(CPU, at(base, PLACES[0]), 12);
        assert_eq!(device.read(0), 12, "the child stores to the page that is pinned");
        device.release(MakeDirty::Yes);
        world.recount(&[&process, &child]);
        TestProcess::end_all_at_rest(&[&process, &child]);
    }
}

/// A special entry has no folio to count; a walk that waited for one would not end.
fn a_zero_page_below_a_shared_pointer_is_taken<I: Isa>() {
    let (world, process, base) = parent::<I>(2);
    assert_eq!(process.read(CPU, at(base, 5)), 0);
    let child = process.fork();
    let none = GupFlags::empty();
    for call in [GupCall::Get(none), GupCall::Pin(none), GupCall::PinFast(none)] {
        for one in [&process, &child] {
            let taken = one.take(CPU, at(base, 5), 1, call).expect("the zero page");
            assert_eq!(taken.read(0), 0);
            taken.release(MakeDirty::No);
        }
    }
    world.recount(&[&process, &child]);
    TestProcess::end_all_at_rest(&[&process, &child]);
}

/// Above the table of the last level, a fork shares where no page was ever pinned.
fn a_page_that_is_not_pinned_keeps_no_table_from_being_shared<I: Isa>() {
    for moves in [false, true] {
        let (world, process, base) = parent::<I>(2);
        let to = VirtAddr::new(600 << 30);
        let device = if moves {
            let flags = RemapFlags::MAYMOVE | RemapFlags::FIXED;
            let (addr, old_len, new_len) = (at(base, PLACES[1]), PAGE_SIZE, PAGE_SIZE);
            let request = RemapRequest { addr, old_len, new_len, flags, new_addr: to };
            world.on(CPU, |mm| mm.mremap(&process.space, &request)).expect("room");
            None
        } else {
            Some(process.take(CPU, at(base, PLACES[1]), 1, GupCall::Get(GupFlags::empty())).expect("a page"))
        };
        let tables = || world.gauge(Gauge::PageTablePages);
        let before = tables();
        let child = process.fork();
        assert_eq!(tables(), before + 1, "the child has a root, whether a page has moved ({moves}) or was taken");
        if let Some(device) = device {
            device.release(MakeDirty::No);
        }
        TestProcess::end_all_at_rest(&[&process, &child]);
    }
}

fn on<I: Isa, T>(process: &TestProcess<I>, call: impl FnOnce(&Mm<Sim<I>>, &Space<Sim<I>>) -> T) -> T {
    process.world.on(CPU, |mm| call(mm, &process.space))
}

/// Plain references, as `vmsplice` takes them, mark no table; then a fork shares it.
///
/// Each call or access breaks the table for one space, in a scene of its own.
pub(super) fn a_page_with_as_many_references_as_a_pin_breaks_like_any_other<I: Isa>() {
    const REFS: usize = 1100;
    type Breaks<I> = fn(&TestProcess<I>, VirtAddr) -> Result<(), MmError>;
    let breaks: [Breaks<I>; 7] = [
        |process, base| Ok(process.touch(CPU, base, Access::Write)?),
        |process, base| Ok(process.touch(CPU, at(base, 1), Access::Write)?),
        |process, base| on(process, |mm, space| mm.mprotect(space, at(base, 1), PAGE_SIZE, Rights::READ)),
        |process, base| on(process, |mm, space| mm.munmap(space, at(base, 1), PAGE_SIZE)),
        |process, base| on(process, |mm, space| mm.madvise(space, at(base, 1), PAGE_SIZE, Advice::DontNeed)),
        |process, base| on(process, |mm, space| mm.mlock(space, at(base, 1), PAGE_SIZE)),
        |process, base| {
            let to = VirtAddr::new(600 << 30);
            let flags = RemapFlags::MAYMOVE | RemapFlags::FIXED;
            let (old_len, new_len) = (PAGE_SIZE, PAGE_SIZE);
            let request = RemapRequest { addr: at(base, 1), old_len, new_len, flags, new_addr: to };
            on(process, |mm, space| mm.mremap(space, &request).map(drop))
        },
    ];
    for (index, breaks) in breaks.iter().enumerate() {
        let (world, process, base) = parent::<I>(2);
        process.write(CPU, at(base, 1), 5);
        let take = || process.take(CPU, base, 1, GupCall::Get(GupFlags::empty())).expect("a page");
        let taken: Vec<_> = (0..REFS).map(|_| take()).collect();
        let child = process.fork();
        assert_eq!(world.count(Counter::PwTableShared), 1, "no table is marked");
        for one in [&child, &process] {
            assert_eq!(breaks(one, base), Ok(()), "operation {index}");
        }
        assert!(world.count(Counter::PwTableBroken) > 0, "operation {index} breaks");
        child.write(CPU, base, 11);
        process.write(CPU, base, 12);
        assert_eq!((child.read(CPU, base), process.read(CPU, base), taken[0].read(0)), (11, 12, 1));
        taken.into_iter().for_each(|page| page.release(MakeDirty::No));
        world.recount(&[&process, &child]);
        TestProcess::end_all_at_rest(&[&process, &child]);
    }
}

/// The entry before the pinned page's is empty, and its flush is still marked as deferred.
pub(super) fn a_pinned_page_behind_a_pending_entry_keeps_its_table_from_being_shared<I: Isa>() {
    let (world, process, base) = parent::<I>(2);
    let swap = world.swap_to(8);
    process.write(CPU, at(base, 1), 5);
    // Another CPU has the space, so the flush of the page-out is deferred on x86-64, too.
    assert_eq!(process.read(OTHER, base), 1);
    process.advise(base, 1, Advice::PageOut);
    assert_eq!(swap.used(), 1);
    process.advise(base, 1, Advice::DontNeed);
    let device = process.take(CPU, at(base, 1), 1, GupCall::Pin(GupFlags::WRITE)).expect("a page");
    let child = process.fork();
    process.write(CPU, at(base, 1), 77);
    assert_eq!((device.read(0), child.read(CPU, at(base, 1))), (77, 5));
    device.release(MakeDirty::Yes);
    world.recount(&[&process, &child]);
    TestProcess::end_all_at_rest(&[&process, &child]);
}
