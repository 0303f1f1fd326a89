//! Pages taken from user memory, one call after the other: rules, errors, and the device double
//! whose pages and the mapping go on showing the same.
//!
//! Not covered: races (`gup_races.rs`).

mod cow;
mod races;
mod random;

use pagewright_arch::Isa;
use pagewright_lab::harness::{ANON, CPU, GupCall, OTHER, TestProcess, TestWorld};
use pagewright_lab::on_both;
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_mm::{FaultError, MapFlags, MmError};
use pagewright_sim::AllocationFailure;
use pagewright_types::{Access, Counter, Errno, PAGE_SIZE, PageRange, Rights, VirtAddr};

on_both! {
    a_device_and_the_mapping_show_the_same_whatever_happens,
    bad_requests_say_why_and_take_nothing,
    a_force_writes_a_copy_and_gives_nobody_the_right,
    the_fast_walk_takes_what_needs_no_fault_and_only_here,
    a_call_that_fails_has_taken_nothing,
    what_is_dropped_is_noticed,
    zero_pages_are_had_and_count_nothing,
    a_file_is_dirty_after_a_device_wrote_it,
    a_page_that_is_held_too_often_is_refused,
    a_page_that_is_mapped_too_often_is_refused,
}

const NONE: GupFlags = GupFlags::empty();

fn a_device_and_the_mapping_show_the_same_whatever_happens<I: Isa>() {
    for how in
        [GupCall::Pin(GupFlags::WRITE), GupCall::PinFast(GupFlags::WRITE), GupCall::Pin(NONE), GupCall::PinFast(NONE)]
    {
        let world = TestWorld::<I>::new(2);
        let process = TestProcess::new(&world);
        let base = process.anon(4);
        process.write(CPU, base, 1);
        process.write(CPU, base.add(PAGE_SIZE), 2);
        // One page is shared with a child, one is no longer, and two were never touched.
        let child = process.fork();
        process.write(OTHER, base.add(PAGE_SIZE), 3);
        let device = process.take(CPU, base, 2, how).expect("it can be had");
        assert_eq!(device.pages.len(), 2);
        device.agrees(&process, OTHER, base, 10);
        assert_eq!((child.read(CPU, base), child.read(CPU, base.add(PAGE_SIZE))), (1, 2), "{how:?}");
        // INV-GUP-EXCLUSIVE: what is pinned is copied at once.
        let late = process.fork();
        device.agrees(&process, OTHER, base, 20);
        assert_eq!((late.read(CPU, base), late.read(OTHER, base.add(PAGE_SIZE))), (11, 13), "{how:?}");
        late.write(CPU, base, 77);
        device.agrees(&process, CPU, base, 30);
        process.protect(base, 4, Rights::READ);
        process.protect(base, 4, Rights::RW);
        device.agrees(&process, OTHER, base, 40);
        world.at_rest(&[&device]);
        // The mapping goes; the device keeps its pages until it gives them back.
        let frames = [device.pfn(0), device.pfn(1)];
        process.unmap(base, 4);
        let again = process.anon(8);
        (0..8).for_each(|page| process.write(CPU, again.add(page * PAGE_SIZE), 1000 + page));
        assert!(frames.iter().all(|pfn| (0..8).all(|page| {
            process.frame(CPU, again.add(page * PAGE_SIZE), Access::Read) != *pfn
        })));
        assert_eq!((device.read(0), device.read(1)), (41, 43));
        device.release(MakeDirty::Yes);
        [&child, &late, &process].iter().for_each(|process| process.end());
        world.at_rest(&[]);
        let count = |counter| world.lab.mm().counter(counter);
        assert_eq!(count(Counter::NrFollPinAcquired), 2);
        assert_eq!(count(Counter::NrFollPinAcquired), count(Counter::NrFollPinReleased));
    }
}

fn bad_requests_say_why_and_take_nothing<I: Isa>() {
    let world = TestWorld::<I>::new(1);
    let process = TestProcess::new(&world);
    let base = process.anon(2);
    let errno = |va: VirtAddr, pages: u64, how: GupCall| match process.take(CPU, va, pages, how) {
        Ok(device) => panic!("{} pages were had of {va}, {how:?}", device.pages.len()),
        Err(error) => error.errno(),
    };
    let hole = base.add(2 * PAGE_SIZE);
    assert_eq!(errno(hole, 1, GupCall::Get(NONE)), Errno::EFAULT);
    assert_eq!(errno(hole, 1, GupCall::PinFast(GupFlags::WRITE)), Errno::EFAULT);
    assert_eq!(errno(I::USER_END, 1, GupCall::Get(NONE)), Errno::EFAULT);
    assert_eq!(errno(base, 1, GupCall::Get(GupFlags::LONGTERM)), Errno::EINVAL, "only pins are held for long");
    assert_eq!(errno(base, 1, GupCall::Pin(GupFlags::from_bits_retain(1 << 20))), Errno::EINVAL);
    assert_eq!(errno(base, 1, GupCall::Get(GupFlags::NOFAULT)), Errno::EFAULT, "never touched");
    process.write(CPU, base, 1);
    process.take(CPU, base, 1, GupCall::Get(GupFlags::NOFAULT)).expect("it is there").release(MakeDirty::No);
    // Of pages before a hole as many as there are.
    let some = process.take(CPU, base, 4, GupCall::Pin(GupFlags::WRITE)).expect("two pages");
    assert_eq!(some.pages.len(), 2);
    some.release(MakeDirty::No);
    let none = process.map(1, Rights::empty(), ANON, None);
    let read_only = process.map(1, Rights::READ, ANON, None);
    assert_eq!(errno(none, 1, GupCall::Get(NONE)), Errno::EFAULT);
    assert_eq!(errno(read_only, 1, GupCall::GetFast(GupFlags::WRITE)), Errno::EFAULT);
    // Write-back would not know of a device's stores.
    let file = world.file(1);
    let shared = process.map(1, Rights::RW, MapFlags::SHARED, Some(&file));
    assert_eq!(errno(shared, 1, GupCall::Pin(GupFlags::WRITE | GupFlags::LONGTERM)), Errno::EFAULT);
    assert_eq!(errno(shared, 1, GupCall::PinFast(GupFlags::WRITE | GupFlags::LONGTERM)), Errno::EFAULT);
    process.take(CPU, shared, 1, GupCall::Pin(GupFlags::WRITE)).expect("a short pin").release(MakeDirty::No);
    let shmem = process.map(1, Rights::RW, MapFlags::SHARED | MapFlags::ANONYMOUS, None);
    let long =
        process.take(CPU, shmem, 1, GupCall::Pin(GupFlags::WRITE | GupFlags::LONGTERM)).expect("no device behind it");
    long.agrees(&process, CPU, shmem, 5);
    long.release(MakeDirty::Yes);
    let past = process.map(2, Rights::RW, MapFlags::SHARED, Some(&file));
    assert_eq!(errno(past.add(PAGE_SIZE), 1, GupCall::Get(NONE)), Errno::EFAULT, "past the end of the file");
    // An empty range is had at once, and an ended space has nothing.
    assert!(process.take(CPU, base, 0, GupCall::Get(NONE)).expect("nothing").pages.is_empty());
    process.end();
    let range = PageRange::page(base);
    let ended = world.on(CPU, |mm| mm.pin_user_pages(&process.space, range, NONE).map(drop));
    assert_eq!(ended, Err(MmError::Inaccessible { va: base }));
    world.on(CPU, |mm| mm.forget_file(&file));
    world.at_rest(&[]);
}

fn a_force_writes_a_copy_and_gives_nobody_the_right<I: Isa>() {
    let world = TestWorld::<I>::new(1);
    let process = TestProcess::new(&world);
    let file = world.file(1);
    let text = process.map(1, Rights::RX, MapFlags::PRIVATE, Some(&file));
    let none = process.map(1, Rights::empty(), ANON, None);
    let shared = process.map(1, Rights::READ, MapFlags::SHARED, Some(&file));
    assert_eq!(process.read(CPU, text), 7);
    let write = GupCall::Get(GupFlags::WRITE | GupFlags::FORCE);
    let breakpoint = process.take(CPU, text, 1, write).expect("a debugger may");
    breakpoint.write(0, 0xcc);
    breakpoint.release(MakeDirty::Yes);
    assert_eq!((process.read(CPU, text), process.read(CPU, shared)), (0xcc, 7), "a copy");
    assert!(process.touch(CPU, text, Access::Write).is_err(), "the program still may not");
    assert!(process.take(CPU, shared, 1, write).is_err(), "nothing of others is forced");
    for how in [GupCall::Get(GupFlags::FORCE), write, GupCall::Pin(GupFlags::FORCE)] {
        process.take(CPU, none, 1, how).expect("a debugger may").release(MakeDirty::No);
        assert!(process.touch(CPU, none, Access::Read).is_err(), "nobody got a right by {how:?}");
    }
    process.end();
    world.on(CPU, |mm| mm.forget_file(&file));
    world.at_rest(&[]);
}

fn the_fast_walk_takes_what_needs_no_fault_and_only_here<I: Isa>() {
    let world = TestWorld::<I>::new(2);
    let process = TestProcess::new(&world);
    let base = process.anon(3);
    let fast = || world.lab.mm().counter(Counter::PwGupFast);
    process.write(CPU, base, 1);
    process.write(CPU, base.add(PAGE_SIZE), 2);
    let device = process.take(CPU, base, 3, GupCall::PinFast(GupFlags::WRITE)).expect("memory");
    assert_eq!((device.pages.len(), fast()), (3, 2), "the third needed a fault");
    device.release(MakeDirty::No);
    // A CPU that runs something else can't walk these tables without locks.
    world.on(OTHER, |mm| mm.tlb().leave_space());
    let range = PageRange::page(base);
    let taken = world.on(OTHER, |mm| mm.pin_user_pages_fast(&process.space, range, NONE)).expect("the slow way");
    assert_eq!(fast(), 2);
    world.on(OTHER, |mm| mm.release_user_pages(taken, MakeDirty::No));
    // What is shared is taken for reading, and not pinned before it is exclusive.
    let child = process.fork();
    let got = process.take(CPU, base, 1, GupCall::GetFast(NONE)).expect("there");
    assert_eq!(fast(), 3);
    let dropped = world.lab.mm().counter(Counter::PwGupFastDropped);
    let pinned = process.take(CPU, base, 1, GupCall::PinFast(NONE)).expect("unshared first");
    assert_eq!((fast(), world.lab.mm().counter(Counter::PwGupFastDropped)), (3, dropped + 1));
    assert_ne!(got.pfn(0), pinned.pfn(0));
    pinned.agrees(&process, CPU, base, 5);
    assert_eq!(got.read(0), 1, "the child's");
    got.release(MakeDirty::No);
    pinned.release(MakeDirty::No);
    child.end();
    process.end();
    world.at_rest(&[]);
}

/// INV-MM-COMMIT: each allocation of a pin that must unshare, and of a fork that must copy what is
/// pinned, is refused in turn.
fn a_call_that_fails_has_taken_nothing<I: Isa>() {
    let world = TestWorld::<I>::new(1);
    let process = TestProcess::new(&world);
    let base = process.anon(2);
    process.write(CPU, base, 1);
    let child = process.fork();
    let refs = || {
        let pfn = process.frame(CPU, base, Access::Read);
        world.on(CPU, |mm| mm.tlb().frames().folio(pfn).refs())
    };
    let before = refs();
    let mut refusals = 0;
    let device = loop {
        world.lab.sim().fail_allocation_after(refusals, AllocationFailure::One);
        let taken = process.take(CPU, base, 1, GupCall::Pin(GupFlags::LONGTERM));
        world.lab.sim().permit_allocations();
        match taken {
            Ok(device) => break device,
            Err(error) => assert_eq!((error.errno(), refs()), (Errno::ENOMEM, before), "refusal {refusals}"),
        }
        refusals += 1;
    };
    assert_eq!(refusals, 2, "the list and the copy");
    world.at_rest(&[&device]);
    let mut refusals = 0;
    let late = loop {
        world.lab.sim().fail_allocation_after(refusals, AllocationFailure::One);
        let late = world.on(CPU, |mm| mm.fork(&process.space));
        world.lab.sim().permit_allocations();
        match late {
            Ok(space) => break TestProcess { world: world.clone(), space },
            Err(error) => assert_eq!(error.errno(), Errno::ENOMEM),
        }
        device.agrees(&process, CPU, base, refusals * 4 + 2);
        world.at_rest(&[&device]);
        refusals += 1;
    };
    assert!(refusals > 4, "a space, tables, and the copy of what is pinned");
    let was = process.read(CPU, base);
    device.agrees(&process, CPU, base, 900);
    assert_eq!(late.read(CPU, base), was);
    device.release(MakeDirty::No);
    [&late, &child, &process].iter().for_each(|process| process.end());
    world.at_rest(&[]);
}

/// INV-GUP-LINEAR.
fn what_is_dropped_is_noticed<I: Isa>() {
    for how in [GupCall::Get(NONE), GupCall::Pin(GupFlags::WRITE)] {
        let world = TestWorld::<I>::new(1);
        let process = TestProcess::new(&world);
        let base = process.anon(1);
        process.write(CPU, base, 1);
        let device = process.take(CPU, base, 1, how).expect("there");
        let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(device)));
        assert_eq!(dropped.is_err(), cfg!(debug_assertions), "{how:?}");
    }
}

fn zero_pages_are_had_and_count_nothing<I: Isa>() {
    let world = TestWorld::<I>::new(1);
    let process = TestProcess::new(&world);
    let base = process.anon(3);
    let got = process.take(CPU, base, 3, GupCall::Get(NONE)).expect("zeroes");
    let pinned = process.take(CPU, base, 3, GupCall::PinFast(NONE)).expect("zeroes");
    assert!((0..3).all(|page| got.read(page) == 0 && got.pfn(page) == pinned.pfn(0)));
    assert!(!pinned.pages.iter().any(|page| page.is_pinned()));
    assert_eq!(process.space.rss().pages(), 0);
    got.release(MakeDirty::No);
    pinned.release(MakeDirty::No);
    assert_eq!(world.lab.mm().counter(Counter::NrFollPinAcquired), 0);
    process.end();
    world.at_rest(&[]);
}

fn a_file_is_dirty_after_a_device_wrote_it<I: Isa>() {
    use pagewright_tlb::frames::FolioFlags;
    let world = TestWorld::<I>::new(1);
    let process = TestProcess::new(&world);
    let file = world.file(2);
    let base = process.map(2, Rights::RW, MapFlags::SHARED, Some(&file));
    let dirty = |pfn| world.on(CPU, |mm| mm.tlb().frames().folio(pfn).flags().contains(FolioFlags::DIRTY));
    let reader = process.take(CPU, base, 1, GupCall::Pin(NONE)).expect("there");
    let frame = reader.pfn(0);
    assert!(!dirty(frame));
    reader.release(MakeDirty::No);
    assert!(!dirty(frame), "only read");
    let writer = process.take(CPU, base, 1, GupCall::PinFast(GupFlags::WRITE)).expect("there");
    writer.agrees(&process, CPU, base, 3);
    // Write-back has seen what was stored so far, and nothing of what the device stores now.
    world.on(CPU, |mm| mm.tlb().frames().folio(frame).clear_flags(FolioFlags::DIRTY));
    writer.write(0, 9);
    writer.release(MakeDirty::Yes);
    assert!(dirty(frame));
    process.end();
    world.on(CPU, |mm| mm.forget_file(&file));
    world.at_rest(&[]);
}

/// INV-FRAME-REFS: nor do mappings.
///
/// Whoever is refused has changed nothing.
fn a_page_that_is_mapped_too_often_is_refused<I: Isa>() {
    const MOST: u32 = 3 << 30;
    let world = TestWorld::<I>::new(1);
    let process = TestProcess::new(&world);
    let file = world.file(2);
    let base = process.map(2, Rights::RW, MapFlags::PRIVATE, Some(&file));
    // With a page of its own, fork copies the mapping's entries.
    process.write(CPU, base.add(PAGE_SIZE), 1);
    let pfn = process.frame(CPU, base, Access::Read);
    let other = process.map(2, Rights::READ, MapFlags::SHARED, Some(&file));
    let counts = || {
        world.on(CPU, |mm| {
            let folio = mm.tlb().frames().folio(pfn);
            (folio.refs(), folio.mapcount())
        })
    };
    let (known, mappings) = counts();
    world.on(CPU, |mm| mm.tlb().frames().folio(pfn).get_raw(MOST - known));
    let refused = |va| Err(MmError::TooManyHolders { va });
    assert_eq!(world.on(CPU, |mm| mm.fork(&process.space)).map(drop), refused(base));
    assert_eq!(process.touch(CPU, other, Access::Read), refused(other).map_err(FaultError::OutOfMemory));
    assert_eq!(
        process.touch(CPU, other.add(PAGE_SIZE), Access::Read),
        Ok(()),
        "that one is mapped, and nothing around it"
    );
    assert_eq!(counts(), (MOST, mappings));
    assert_eq!((process.read(CPU, base), process.read(CPU, base.add(PAGE_SIZE))), (7, 1));
    world
        .on(CPU, |mm| mm.tlb().frames().folio(pfn).freeze(MOST).map(|frozen| frozen.thaw(known)))
        .expect("all are known");
    assert_eq!(process.touch(CPU, other, Access::Read), Ok(()), "there is room again");
    process.fork().end();
    process.end();
    world.on(CPU, |mm| mm.forget_file(&file));
    world.at_rest(&[]);
}

/// INV-FRAME-REFS: pins don't drive a count past its end.
///
/// What is refused is refused, and not tried for ever.
fn a_page_that_is_held_too_often_is_refused<I: Isa>() {
    const MOST: u32 = 1 << 31;
    let world = TestWorld::<I>::new(1);
    let process = TestProcess::new(&world);
    let base = process.anon(1);
    process.write(CPU, base, 1);
    let pfn = process.frame(CPU, base, Access::Read);
    world.on(CPU, |mm| mm.tlb().frames().folio(pfn).get_raw(MOST - 1));
    for how in
        [GupCall::Get(NONE), GupCall::GetFast(NONE), GupCall::Pin(GupFlags::WRITE), GupCall::PinFast(GupFlags::WRITE)]
    {
        let refused = process.take(CPU, base, 1, how).map(drop);
        assert_eq!(refused, Err(MmError::TooManyHolders { va: base }), "{how:?}");
        assert_eq!(MmError::TooManyHolders { va: base }.errno(), Errno::ENOMEM);
    }
    world.on(CPU, |mm| mm.tlb().frames().folio(pfn).freeze(MOST).map(|frozen| frozen.thaw(1))).expect("all are known");
    process.take(CPU, base, 1, GupCall::Pin(GupFlags::WRITE)).expect("there is room again").release(MakeDirty::No);
    process.end();
    world.at_rest(&[]);
}
