//! References and pins on user memory (GUP), call by call.
//!
//! The rules, the errors, and a test device whose view of the pinned pages agrees with the
//! mapping's.
//!
//! Not covered here: races (`races.rs`).

mod beside_reclaim;
mod cow;
pub(crate) mod cow_cases;
mod forced;
mod forked;
mod races;
mod requests;

use pagewright_arch::Isa;
use pagewright_arch::on_both;
use pagewright_lab::harness::{ANON, CPU, FileHandle, GupCall, OTHER, TestProcess, TestWorld};
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_mm::{FaultError, MapFlags, MmError, MmSetting};
use pagewright_sim::AllocationFailure;
use pagewright_types::{Access, Counter, Errno, PAGE_SIZE, PageRange, Rights, VirtAddr};

on_both! {
    a_pin_and_its_mapping_stay_coherent,
    invalid_requests_fail_and_take_nothing,
    a_forced_write_copies_and_grants_no_right,
    the_lockless_walk_needs_no_fault_and_the_current_space,
    a_failed_call_takes_nothing,
    dropped_pages_are_detected,
    zero_pages_are_taken_without_counting,
    a_released_page_is_dirty_only_if_written,
    references_do_not_exceed_the_limit,
    mappings_do_not_exceed_the_reference_limit,
}

const NONE: GupFlags = GupFlags::empty();

fn a_pin_and_its_mapping_stay_coherent<I: Isa>() {
    for call in
        [GupCall::Pin(GupFlags::WRITE), GupCall::PinFast(GupFlags::WRITE), GupCall::Pin(NONE), GupCall::PinFast(NONE)]
    {
        let world = TestWorld::<I>::new(2);
        let process = TestProcess::new(&world);
        let base = process.anon(4);
        process.write(CPU, base, 1);
        process.write(CPU, base.add(PAGE_SIZE), 2);
        // One page is shared with the child, one is shared no longer, and two were never touched.
        let child = process.fork();
        process.write(OTHER, base.add(PAGE_SIZE), 3);
        let device = process.take(CPU, base, 2, call).expect("writable memory");
        assert_eq!(device.pages.len(), 2);
        device.agrees(&process, OTHER, base, 10);
        assert_eq!((child.read(CPU, base), child.read(CPU, base.add(PAGE_SIZE))), (1, 2), "{call:?}");
        // INV-GUP-EXCLUSIVE: fork copies pinned pages at once.
        let late = process.fork();
        device.agrees(&process, OTHER, base, 20);
        assert_eq!((late.read(CPU, base), late.read(OTHER, base.add(PAGE_SIZE))), (11, 13), "{call:?}");
        late.write(CPU, base, 77);
        device.agrees(&process, CPU, base, 30);
        process.protect(base, 4, Rights::READ);
        process.protect(base, 4, Rights::RW);
        device.agrees(&process, OTHER, base, 40);
        world.at_rest(&[&device]);
        // The mapping is removed, and the device keeps its pages until it releases them.
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

fn invalid_requests_fail_and_take_nothing<I: Isa>() {
    let (world, process) = TestProcess::<I>::judged(1);
    let base = process.anon(2);
    let errno = |va: VirtAddr, pages: u64, call: GupCall| match process.take(CPU, va, pages, call) {
        Ok(device) => panic!("{} pages were taken at {va} by {call:?}", device.pages.len()),
        Err(error) => error.errno(),
    };
    let hole = base.add(2 * PAGE_SIZE);
    assert_eq!(errno(hole, 1, GupCall::Get(NONE)), Errno::EFAULT);
    assert_eq!(errno(hole, 1, GupCall::PinFast(GupFlags::WRITE)), Errno::EFAULT);
    assert_eq!(errno(I::USER_END, 1, GupCall::Get(NONE)), Errno::EFAULT);
    assert_eq!(errno(base, 1, GupCall::Get(GupFlags::LONGTERM)), Errno::EINVAL, "only pins may be longterm");
    assert_eq!(errno(base, 1, GupCall::Pin(GupFlags::from_bits_retain(1 << 20))), Errno::EINVAL);
    assert_eq!(errno(base, 1, GupCall::Get(GupFlags::NOFAULT)), Errno::EFAULT, "never touched");
    process.write(CPU, base, 1);
    process.take(CPU, base, 1, GupCall::Get(GupFlags::NOFAULT)).expect("the page is present").release(MakeDirty::No);
    // Up to a hole, as many pages are taken as there are.
    let some = process.take(CPU, base, 4, GupCall::Pin(GupFlags::WRITE)).expect("two pages");
    assert_eq!(some.pages.len(), 2);
    some.release(MakeDirty::No);
    let none = process.map(1, Rights::empty(), ANON, None);
    let read_only = process.map(1, Rights::READ, ANON, None);
    assert_eq!(errno(none, 1, GupCall::Get(NONE)), Errno::EFAULT);
    assert_eq!(errno(read_only, 1, GupCall::GetFast(GupFlags::WRITE)), Errno::EFAULT);
    // Writeback would not see the stores of a device.
    let file = world.file(1);
    let shared = process.map(1, Rights::RW, MapFlags::SHARED, Some(&file));
    assert_eq!(errno(shared, 1, GupCall::Pin(GupFlags::WRITE | GupFlags::LONGTERM)), Errno::EFAULT);
    assert_eq!(errno(shared, 1, GupCall::PinFast(GupFlags::WRITE | GupFlags::LONGTERM)), Errno::EFAULT);
    process.take(CPU, shared, 1, GupCall::Pin(GupFlags::WRITE)).expect("a short pin").release(MakeDirty::No);
    // A lockless walk finds it writable now.
    process.write(CPU, shared, 1);
    assert_eq!(errno(shared, 1, GupCall::PinFast(GupFlags::WRITE | GupFlags::LONGTERM)), Errno::EFAULT);
    let shmem = process.map(1, Rights::RW, MapFlags::SHARED | MapFlags::ANONYMOUS, None);
    let long = process
        .take(CPU, shmem, 1, GupCall::Pin(GupFlags::WRITE | GupFlags::LONGTERM))
        .expect("shared memory has no writeback");
    long.agrees(&process, CPU, shmem, 5);
    long.release(MakeDirty::Yes);
    let past = process.map(2, Rights::RW, MapFlags::SHARED, Some(&file));
    assert_eq!(errno(past.add(PAGE_SIZE), 1, GupCall::Get(NONE)), Errno::EFAULT, "past the end of the file");
    // An empty range succeeds with no pages; an ended space has none to take.
    assert!(process.take(CPU, base, 0, GupCall::Get(NONE)).expect("an empty range").pages.is_empty());
    process.end();
    let range = PageRange::page(base);
    let ended = world.on(CPU, |mm| mm.pin_user_pages(&process.space, range, NONE).map(drop));
    assert_eq!(ended, Err(MmError::Inaccessible { va: base }));
    world.on(CPU, |mm| mm.forget_file(&file));
    world.at_rest(&[]);
}

fn a_forced_write_copies_and_grants_no_right<I: Isa>() {
    let (world, process) = TestProcess::<I>::judged(1);
    let file = world.file(1);
    let text = process.map(1, Rights::RX, MapFlags::PRIVATE, Some(&file));
    let none = process.map(1, Rights::empty(), ANON, None);
    let shared = process.map(1, Rights::READ, MapFlags::SHARED, Some(&file));
    assert_eq!(process.read(CPU, text), 7);
    let write = GupCall::Get(GupFlags::WRITE | GupFlags::FORCE);
    let breakpoint = process.take(CPU, text, 1, write).expect("FOLL_FORCE");
    breakpoint.write(0, 0xcc);
    breakpoint.release(MakeDirty::Yes);
    assert_eq!((process.read(CPU, text), process.read(CPU, shared)), (0xcc, 7), "the write went to a copy");
    assert!(process.touch(CPU, text, Access::Write).is_err(), "the program got the right to write");
    assert!(process.take(CPU, shared, 1, write).is_err(), "a shared mapping was written by force");
    for call in [GupCall::Get(GupFlags::FORCE), write, GupCall::Pin(GupFlags::FORCE)] {
        process.take(CPU, none, 1, call).expect("FOLL_FORCE").release(MakeDirty::No);
        assert!(process.touch(CPU, none, Access::Read).is_err(), "the program got a right by {call:?}");
    }
    end_and_forget(&process, &file);
}

fn the_lockless_walk_needs_no_fault_and_the_current_space<I: Isa>() {
    let (world, process) = TestProcess::<I>::judged(2);
    let base = process.anon(3);
    let fast = || world.lab.mm().counter(Counter::PwGupFast);
    process.write(CPU, base, 1);
    process.write(CPU, base.add(PAGE_SIZE), 2);
    let device = process.take(CPU, base, 3, GupCall::PinFast(GupFlags::WRITE)).expect("memory");
    assert_eq!((device.pages.len(), fast()), (3, 2), "the third page needs a fault");
    device.release(MakeDirty::No);
    // A CPU that does not run the space cannot walk its tables without locks.
    world.on(OTHER, |mm| mm.tlb().leave_space());
    let range = PageRange::page(base);
    let taken = world.on(OTHER, |mm| mm.pin_user_pages_fast(&process.space, range, NONE)).expect("the locked walk");
    assert_eq!(fast(), 2);
    world.on(OTHER, |mm| mm.release_user_pages(taken, MakeDirty::No));
    // A shared page can be referenced for reading, but is pinned only after it is exclusive.
    world.set(MmSetting::CowPageTables, "never");
    let child = process.fork();
    let got = process.take(CPU, base, 1, GupCall::GetFast(NONE)).expect("a present page");
    assert_eq!(fast(), 3);
    let dropped = world.lab.mm().counter(Counter::PwGupFastDropped);
    let pinned = process.take(CPU, base, 1, GupCall::PinFast(NONE)).expect("an unshare fault, then a pin");
    assert_eq!((fast(), world.lab.mm().counter(Counter::PwGupFastDropped)), (3, dropped + 1));
    assert_ne!(got.pfn(0), pinned.pfn(0));
    pinned.agrees(&process, CPU, base, 5);
    assert_eq!(got.read(0), 1, "the reference stays with the child's page");
    got.release(MakeDirty::No);
    pinned.release(MakeDirty::No);
    child.end();
    process.end();
    world.at_rest(&[]);
}

/// INV-MM-COMMIT: each allocation fails in turn.
///
/// First those of a pin that must unshare, then those of a fork that must copy pinned pages.
fn a_failed_call_takes_nothing<I: Isa>() {
    let (world, process) = TestProcess::<I>::judged(1);
    world.set(MmSetting::CowPageTables, "never");
    // A fork has copied the first page when it finds that the second one is pinned.
    let first = process.anon(2);
    let base = first.add(PAGE_SIZE);
    [first, base].iter().for_each(|va| process.write(CPU, *va, 1));
    let child = process.fork();
    let refs = || {
        let pfn = process.frame(CPU, base, Access::Read);
        world.on(CPU, |mm| mm.tlb().frames().folio(pfn).refs())
    };
    let before = refs();
    let mut failures = 0;
    let device = loop {
        world.lab.sim().fail_allocation_after(failures, AllocationFailure::One);
        let taken = process.take(CPU, base, 1, GupCall::Pin(GupFlags::LONGTERM));
        world.lab.sim().permit_allocations();
        match taken {
            Ok(device) => break device,
            Err(error) => assert_eq!((error.errno(), refs()), (Errno::ENOMEM, before), "after {failures} allocations"),
        }
        failures += 1;
    };
    assert_eq!(failures, 2, "the list of pages and the copy are allocated");
    world.at_rest(&[&device]);
    let mut failures = 0;
    let late = loop {
        world.lab.sim().fail_allocation_after(failures, AllocationFailure::One);
        let late = world.on(CPU, |mm| mm.fork(&process.space));
        world.lab.sim().permit_allocations();
        match late {
            Ok(space) => break TestProcess { world: world.clone(), space },
            Err(error) => assert_eq!(error.errno(), Errno::ENOMEM),
        }
        device.agrees(&process, CPU, base, failures * 4 + 2);
        world.at_rest(&[&device]);
        failures += 1;
    };
    assert!(failures > 4, "a space, tables and the copy of the pinned page are allocated");
    let was = process.read(CPU, base);
    device.agrees(&process, CPU, base, 900);
    assert_eq!(late.read(CPU, base), was);
    device.release(MakeDirty::No);
    [&late, &child, &process].iter().for_each(|process| process.end());
    world.at_rest(&[]);
}

/// INV-GUP-LINEAR.
fn dropped_pages_are_detected<I: Isa>() {
    for call in [GupCall::Get(NONE), GupCall::Pin(GupFlags::WRITE)] {
        let world = TestWorld::<I>::new(1);
        let process = TestProcess::new(&world);
        let base = process.anon(1);
        process.write(CPU, base, 1);
        let device = process.take(CPU, base, 1, call).expect("a present page");
        let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(device)));
        assert_eq!(dropped.is_err(), cfg!(debug_assertions), "{call:?}");
    }
}

fn zero_pages_are_taken_without_counting<I: Isa>() {
    let (world, process) = TestProcess::<I>::judged(1);
    let base = process.anon(3);
    let got = process.take(CPU, base, 3, GupCall::Get(NONE)).expect("the zero page");
    let pinned = process.take(CPU, base, 3, GupCall::PinFast(NONE)).expect("the zero page");
    assert!((0..3).all(|page| got.read(page) == 0 && got.pfn(page) == pinned.pfn(0)));
    assert!(!pinned.pages.iter().any(|page| page.is_pinned()));
    assert_eq!(process.space.rss().pages(), 0);
    got.release(MakeDirty::No);
    pinned.release(MakeDirty::No);
    assert_eq!(world.lab.mm().counter(Counter::NrFollPinAcquired), 0);
    process.end();
    world.at_rest(&[]);
}

fn a_released_page_is_dirty_only_if_written<I: Isa>() {
    use pagewright_tlb::frames::FolioFlags;
    let (world, process) = TestProcess::<I>::judged(1);
    let file = world.file(2);
    let base = process.map(2, Rights::RW, MapFlags::SHARED, Some(&file));
    let dirty = |pfn| world.on(CPU, |mm| mm.tlb().frames().folio(pfn).flags().contains(FolioFlags::DIRTY));
    let reader = process.take(CPU, base, 1, GupCall::Pin(NONE)).expect("a present page");
    let frame = reader.pfn(0);
    assert!(!dirty(frame));
    reader.release(MakeDirty::No);
    assert!(!dirty(frame), "the page was only read");
    let writer = process.take(CPU, base, 1, GupCall::PinFast(GupFlags::WRITE)).expect("a present page");
    writer.agrees(&process, CPU, base, 3);
    // As after writeback, which has seen the stores so far but not the device's next one.
    world.on(CPU, |mm| mm.tlb().frames().folio(frame).clear_flags(FolioFlags::DIRTY));
    writer.write(0, 9);
    writer.release(MakeDirty::Yes);
    assert!(dirty(frame));
    end_and_forget(&process, &file);
}

/// Ends a process and forgets the file that it mapped.
fn end_and_forget<I: Isa>(process: &TestProcess<I>, file: &FileHandle<I>) {
    process.end();
    process.world.on(CPU, |mm| mm.forget_file(file));
    process.world.at_rest(&[]);
}

/// INV-FRAME-REFS: new mappings do not exceed the limit of references.
///
/// A refused operation changes nothing.
fn mappings_do_not_exceed_the_reference_limit<I: Isa>() {
    const MOST: u32 = 3 << 30;
    let (world, process) = TestProcess::<I>::judged(1);
    world.set(MmSetting::CowPageTables, "never");
    let file = world.file(2);
    let base = process.map(2, Rights::RW, MapFlags::PRIVATE, Some(&file));
    // Fork copies the entries of this mapping, because it has a private copy.
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
    assert_eq!(process.touch(CPU, other, Access::Read), Err(FaultError::TooManyHolders { va: other }));
    assert_eq!(
        process.touch(CPU, other.add(PAGE_SIZE), Access::Read),
        Ok(()),
        "the page is mapped, but fault-around skips its neighbour"
    );
    assert_eq!(counts(), (MOST, mappings));
    assert_eq!((process.read(CPU, base), process.read(CPU, base.add(PAGE_SIZE))), (7, 1));
    world
        .on(CPU, |mm| mm.tlb().frames().folio(pfn).freeze(MOST).map(|frozen| frozen.thaw(known)))
        .expect("no other references");
    assert_eq!(process.touch(CPU, other, Access::Read), Ok(()), "below the limit again");
    process.fork().end();
    end_and_forget(&process, &file);
}

/// INV-FRAME-REFS: references and pins do not exceed the limit.
///
/// The call fails instead of retrying for ever.
fn references_do_not_exceed_the_limit<I: Isa>() {
    const MOST: u32 = 1 << 31;
    let (world, process) = TestProcess::<I>::judged(1);
    let base = process.anon(1);
    process.write(CPU, base, 1);
    let pfn = process.frame(CPU, base, Access::Read);
    world.on(CPU, |mm| mm.tlb().frames().folio(pfn).get_raw(MOST - 1));
    for call in
        [GupCall::Get(NONE), GupCall::GetFast(NONE), GupCall::Pin(GupFlags::WRITE), GupCall::PinFast(GupFlags::WRITE)]
    {
        let refused = process.take(CPU, base, 1, call).map(drop);
        assert_eq!(refused, Err(MmError::TooManyHolders { va: base }), "{call:?}");
        assert_eq!(MmError::TooManyHolders { va: base }.errno(), Errno::ENOMEM);
    }
    world
        .on(CPU, |mm| mm.tlb().frames().folio(pfn).freeze(MOST).map(|frozen| frozen.thaw(1)))
        .expect("no other references");
    process.take(CPU, base, 1, GupCall::Pin(GupFlags::WRITE)).expect("below the limit again").release(MakeDirty::No);
    process.end();
    world.at_rest(&[]);
}
