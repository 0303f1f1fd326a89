//! The cases of Linux's `cow` selftest that need neither huge pages nor swap.
//!
//! Each runs with page tables that fork copies, and with such that it shares.
//!
//! Fourteen of `tools/testing/selftests/mm/cow.c` are on anonymous memory, three on everything else
//! that can be mapped privately.
//!
//! | `cow.c` | test here |
//! | --- | --- |
//! | "Basic COW after fork()" | [`basic_cow_after_fork`] |
//! | "… with mprotect() optimization" | [`basic_cow_after_mprotect`] |
//! | "vmsplice() + unmap in child" | [`vmsplice_and_unmap_in_the_child`] |
//! | "… with mprotect() optimization" | [`vmsplice_and_unmap_in_the_child_after_mprotect_of_the_parent`] |
//! | "vmsplice() before fork(), unmap in parent after fork()" | [`vmsplice_before_fork_and_unmap_in_the_parent`] |
//! | "vmsplice() + unmap in parent after fork()" | [`vmsplice_after_fork_and_unmap_in_the_parent`] |
//! | "R/O-mapping a page registered as iouring fixed buffer" | [`fixed_buffer_mapped_read_only`] |
//! | "fork() with an iouring fixed buffer" | [`fork_with_a_fixed_buffer`] |
//! | "R/O GUP pin on R/O-mapped shared page", and "R/O GUP-fast pin …" | [`read_only_pin_of_a_shared_page`], [`read_only_fast_pin_of_a_shared_page`] |
//! | "… on R/O-mapped previously-shared page", both | [`read_only_pin_of_a_previously_shared_page`], [`read_only_fast_pin_of_a_previously_shared_page`] |
//! | "… on R/O-mapped exclusive page", both | [`read_only_pin_of_an_exclusive_page`], [`read_only_fast_pin_of_an_exclusive_page`] |
//! | "Basic COW" of the zero page, a memfd, a file | [`other_memory_is_copied_by_a_store`] |
//! | "R/O longterm GUP pin", "R/O longterm GUP-fast pin" of these | [`other_memory_is_copied_by_a_longterm_read_only_pin`], [`other_memory_is_copied_by_a_longterm_read_only_fast_pin`] |
//!
//! Not covered: the four cases of collapsing, and pages that are huge, swapped out or hugetlb's.
//! Random programs beside Linux also splice pages into pipes between forks, stores and unmaps
//! (`against_linux`).
//!
//! `vmsplice` leaves plain references in a pipe; here they are references for reading. A fixed
//! buffer of `io_uring` is a longterm pin for writing. As in the selftest, an exclusive page is
//! mapped read-only by removing the right to write, clearing the soft-dirty bits, and granting the
//! right again, which then leaves the entry read-only.

use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::{ANON, CPU, GupCall, OTHER, TestDevice, TestProcess, TestWorld, recount};
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_mm::space::ClearRefs;
use pagewright_mm::{MapFlags, MmSetting};
use pagewright_types::{Access, Counter, PAGE_SIZE, Rights, VirtAddr};
use std::rc::Rc;

on_both! {
    basic_cow_after_fork: either(|shares| basic_cow::<I>(false, shares)),
    basic_cow_after_mprotect: either(|shares| basic_cow::<I>(true, shares)),
    vmsplice_and_unmap_in_the_child: either(|shares| vmsplice_in_child::<I>(false, shares)),
    vmsplice_and_unmap_in_the_child_after_mprotect_of_the_parent: either(|shares| vmsplice_in_child::<I>(true, shares)),
    vmsplice_before_fork_and_unmap_in_the_parent: either(|shares| vmsplice_in_parent::<I>(true, shares)),
    vmsplice_after_fork_and_unmap_in_the_parent: either(|shares| vmsplice_in_parent::<I>(false, shares)),
    fixed_buffer_mapped_read_only: either(|shares| fixed_buffer::<I>(false, shares)),
    fork_with_a_fixed_buffer: either(|shares| fixed_buffer::<I>(true, shares)),
    read_only_pin_of_a_shared_page: either(|shares| read_pin::<I>(&ReadOnly::Shared, GupCall::Pin(LONG), shares)),
    read_only_fast_pin_of_a_shared_page: either(|shares| read_pin::<I>(&ReadOnly::Shared, GupCall::PinFast(LONG), shares)),
    read_only_pin_of_a_previously_shared_page: either(|shares| read_pin::<I>(&ReadOnly::PreviouslyShared, GupCall::Pin(LONG), shares)),
    read_only_fast_pin_of_a_previously_shared_page: either(|shares| read_pin::<I>(&ReadOnly::PreviouslyShared, GupCall::PinFast(LONG), shares)),
    read_only_pin_of_an_exclusive_page: either(|shares| read_pin::<I>(&ReadOnly::Exclusive, GupCall::Pin(LONG), shares)),
    read_only_fast_pin_of_an_exclusive_page: either(|shares| read_pin::<I>(&ReadOnly::Exclusive, GupCall::PinFast(LONG), shares)),
    other_memory_is_copied_by_a_store: either(store_to_other_memory::<I>),
    other_memory_is_copied_by_a_longterm_read_only_pin: either(|shares| long_pin_of_other_memory::<I>(GupCall::Pin(LONG), shares)),
    other_memory_is_copied_by_a_longterm_read_only_fast_pin: either(|shares| long_pin_of_other_memory::<I>(GupCall::PinFast(LONG), shares)),
}

const OLD: u64 = 0x0101_0101;
const NEW: u64 = 0xffff_ffff;
const LONG: GupFlags = GupFlags::LONGTERM;
const SPLICE: GupCall = GupCall::Get(GupFlags::empty());

/// Runs `test` with both values of the setting `cow_page_tables` that need no `prctl`.
fn either(test: impl Fn(&str)) {
    ["never", "always"].into_iter().for_each(test);
}

/// A process with a page that holds `OLD`.
fn page<I: Isa>(shares: &str) -> (Rc<TestWorld<I>>, TestProcess<I>, VirtAddr) {
    let world = TestWorld::new(2);
    world.set(MmSetting::CowPageTables, shares);
    let process = TestProcess::new(&world);
    let base = process.anon(1);
    process.write(CPU, base, OLD);
    (world, process, base)
}

fn is_writable<I: Isa>(process: &TestProcess<I>, va: VirtAddr) -> bool {
    let leaf = process.world.on(CPU, |mm| recount::leaf(mm, &process.space, va));
    let leaf = leaf.expect("mapped");
    assert!(leaf.is_exclusive(), "{leaf:?}");
    leaf.rights().contains(Rights::WRITE)
}

/// Makes the entry of a page read-only under a mapping that is writable.
fn map_read_only<I: Isa>(process: &TestProcess<I>, va: VirtAddr) {
    process.protect(va, 1, Rights::READ);
    process.world.on(CPU, |mm| mm.clear_refs(&process.space, ClearRefs::SoftDirty).expect("memory"));
    process.protect(va, 1, Rights::RW);
}

/// A parent and its child, which share a page; with `mprotect`, its entry in the parent changed.
fn shared_page<I: Isa>(mprotect: bool, shares: &str) -> (TestProcess<I>, TestProcess<I>, VirtAddr) {
    let (_, parent, base) = page::<I>(shares);
    let child = parent.fork();
    if mprotect {
        parent.protect(base, 1, Rights::READ);
        parent.protect(base, 1, Rights::RW);
    }
    (parent, child, base)
}

/// `child_memcmp_fn`.
fn basic_cow<I: Isa>(mprotect: bool, shares: &str) {
    let (parent, child, base) = shared_page::<I>(mprotect, shares);
    parent.write(CPU, base, NEW);
    assert_eq!((child.read(OTHER, base), parent.read(OTHER, base)), (OLD, NEW));
    TestProcess::end_all_at_rest(&[&child, &parent]);
}

/// `child_vmsplice_memcmp_fn`: CVE-2020-29374.
fn vmsplice_in_child<I: Isa>(mprotect: bool, shares: &str) {
    let (parent, child, base) = shared_page::<I>(mprotect, shares);
    let pipe = child.take(OTHER, base, 1, SPLICE).expect("a present page");
    child.unmap(base, 1);
    parent.write(CPU, base, NEW);
    end_with_the_old_contents(pipe, &[&child, &parent]);
}

/// A pipe still shows what the page had when it was spliced; then everything ends.
fn end_with_the_old_contents<I: Isa>(pipe: TestDevice<I>, processes: &[&TestProcess<I>]) {
    assert_eq!(pipe.read(0), OLD, "the pipe shows what the other process stored");
    pipe.release(MakeDirty::No);
    TestProcess::end_all_at_rest(processes);
}

/// `do_test_vmsplice_in_parent`.
fn vmsplice_in_parent<I: Isa>(before_fork: bool, shares: &str) {
    let (_, parent, base) = page::<I>(shares);
    let splice = || parent.take(CPU, base, 1, SPLICE).expect("a present page");
    let early = before_fork.then(splice);
    let child = parent.fork();
    let pipe = early.unwrap_or_else(splice);
    parent.unmap(base, 1);
    child.write(OTHER, base, NEW);
    end_with_the_old_contents(pipe, &[&child, &parent]);
}

/// `do_test_iouring`.
fn fixed_buffer<I: Isa>(fork: bool, shares: &str) {
    let (world, parent, base) = page::<I>(shares);
    let buffer = parent.take(CPU, base, 1, GupCall::PinFast(GupFlags::WRITE | LONG)).expect("a present page");
    let child = fork.then(|| parent.fork());
    if !fork {
        map_read_only(&parent, base);
    }
    parent.write(CPU, base, NEW);
    assert_eq!(buffer.read(0), NEW);
    buffer.agrees(&parent, OTHER, base, 5);
    if let Some(child) = child {
        assert_eq!(child.read(OTHER, base), OLD);
        child.end();
    }
    world.at_rest(&[&buffer]);
    buffer.release(MakeDirty::Yes);
    TestProcess::end_all_at_rest(&[&parent]);
}

/// The history of a page that is mapped read-only when it is pinned (`enum ro_pin_test`).
enum ReadOnly {
    Shared,
    PreviouslyShared,
    Exclusive,
}

/// `do_test_ro_pin`.
fn read_pin<I: Isa>(before: &ReadOnly, call: GupCall, shares: &str) {
    let (_, process, base) = page::<I>(shares);
    let child = match before {
        ReadOnly::Shared => Some(process.fork()),
        ReadOnly::PreviouslyShared => {
            process.fork().end();
            None
        }
        ReadOnly::Exclusive => {
            map_read_only(&process, base);
            assert!(!is_writable(&process, base));
            None
        }
    };
    let pin = process.take(CPU, base, 1, call).expect("a present page");
    // A parent whose children are gone takes its table back as it was, with a writable entry.
    let taken_back = process.world.count(Counter::PwTableTakenBack) > 0;
    assert_eq!(is_writable(&process, base), taken_back, "whether a pin for reading granted the right to write");
    compare_after_store(&process, base, pin);
    if let Some(child) = child {
        assert_eq!(child.read(OTHER, base), OLD);
        child.end();
    }
    TestProcess::end_all_at_rest(&[&process]);
}

fn compare_after_store<I: Isa>(process: &TestProcess<I>, base: VirtAddr, pin: TestDevice<I>) {
    process.write(CPU, base, NEW);
    assert_eq!(pin.read(0), NEW, "the pin does not see the store");
    pin.agrees(process, OTHER, base, 5);
    process.world.at_rest(&[&pin]);
    pin.release(MakeDirty::No);
}

/// Runs `test` on the other memory that can be mapped privately: the zero page, a memfd, a file.
///
/// `test` gets a private mapping of one page, its contents, and a shared mapping that must not
/// change.
fn on_other_memory<I: Isa>(shares: &str, test: impl Fn(&TestProcess<I>, VirtAddr, u64, Option<VirtAddr>)) {
    for kind in 0..3 {
        let world = TestWorld::<I>::new(2);
        world.set(MmSetting::CowPageTables, shares);
        let process = TestProcess::new(&world);
        let file = match kind {
            0 => None,
            1 => Some(world.shmem(1)),
            _ => Some(world.file(1)),
        };
        let shared = file.as_ref().map(|file| process.map(1, Rights::RW, MapFlags::SHARED, Some(file)));
        let flags = if file.is_some() { MapFlags::PRIVATE } else { ANON };
        let base = process.map(1, Rights::RW, flags, file.as_ref());
        let contents = process.read(CPU, base);
        test(&process, base, contents, shared);
        if let Some(shared) = shared {
            assert_eq!(process.read(OTHER, shared), contents, "the object has changed");
        }
        process.end();
        if let Some(file) = file {
            world.on(CPU, |mm| mm.forget_file(&file));
        }
        world.at_rest(&[]);
    }
}

/// `test_cow`.
fn store_to_other_memory<I: Isa>(shares: &str) {
    on_other_memory::<I>(shares, |process, base, contents, shared| {
        let untouched = process.anon(1);
        process.write(CPU, base, NEW);
        assert_eq!(process.read(OTHER, base), NEW);
        assert_eq!(process.read(OTHER, untouched), 0);
        if let Some(shared) = shared {
            assert_eq!(process.read(CPU, shared), contents);
        }
    });
}

/// `test_ro_pin`, `test_ro_fast_pin`.
fn long_pin_of_other_memory<I: Isa>(call: GupCall, shares: &str) {
    on_other_memory::<I>(shares, |process, base, contents, _| {
        let pin = process.take(CPU, base, 1, call).expect("a present page");
        assert_eq!(pin.read(0), contents);
        assert!(pin.pages.iter().all(|page| page.is_pinned()));
        compare_after_store(process, base, pin);
        assert!(process.touch(OTHER, base.add(PAGE_SIZE - 8), Access::Write).is_ok());
    });
}
