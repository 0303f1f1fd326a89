//! The cases of Linux's `cow` selftest (`tools/testing/selftests/mm/cow.c`) that need neither huge
//! pages nor swap: fourteen on anonymous memory, three on everything else that can be mapped
//! privately.
//!
//! | `cow.c` | test here |
//! | --- | --- |
//! | "Basic COW after fork()" | [`basic_cow_in_the_parent_is_not_seen_by_the_child`] |
//! | "… with mprotect() optimization" | [`basic_cow_after_mprotect_of_the_parent`] |
//! | "vmsplice() + unmap in child" | [`vmsplice_and_unmap_in_the_child`] |
//! | "… with mprotect() optimization" | [`vmsplice_and_unmap_in_the_child_after_mprotect_of_the_parent`] |
//! | "vmsplice() before fork(), unmap in parent after fork()" | [`vmsplice_before_fork_and_unmap_in_the_parent`] |
//! | "vmsplice() + unmap in parent after fork()" | [`vmsplice_after_fork_and_unmap_in_the_parent`] |
//! | "R/O-mapping a page registered as iouring fixed buffer" | [`a_fixed_buffer_is_mapped_read_only_meanwhile`] |
//! | "fork() with an iouring fixed buffer" | [`a_fork_while_there_is_a_fixed_buffer`] |
//! | "R/O GUP pin on R/O-mapped shared page", and "R/O GUP-fast pin …" | [`a_long_pin_for_reading_of_a_shared_page`], [`a_fast_long_pin_for_reading_of_a_shared_page`] |
//! | "… on R/O-mapped previously-shared page", both | [`a_long_pin_for_reading_of_a_page_once_shared`], [`a_fast_long_pin_for_reading_of_a_page_once_shared`] |
//! | "… on R/O-mapped exclusive page", both | [`a_long_pin_for_reading_of_an_exclusive_page_mapped_read_only`], [`a_fast_long_pin_for_reading_of_an_exclusive_page_mapped_read_only`] |
//! | "Basic COW" of the zero page, a memfd, a file | [`other_memory_is_copied_for_a_store`] |
//! | "R/O longterm GUP pin", "R/O longterm GUP-fast pin" of these | [`other_memory_is_copied_for_a_long_pin_for_reading`], [`other_memory_is_copied_for_a_fast_long_pin_for_reading`] |
//!
//! Not here: the four cases of collapsing and the kinds of pages that are huge, swapped out, or
//! hugetlb's. Random programs beside Linux splice pages into pipes as well, between forks, stores
//! and unmapping (`against_linux`).
//!
//! `vmsplice` leaves plain references in a pipe: here they are got for reading. A fixed buffer of
//! `io_uring` is a long-term pin for writing. A page is mapped read-only and yet exclusive, as the
//! selftest does it, by taking the right to write away and clearing soft-dirty bits, so that giving
//! it back leaves the entry as it is.

use pagewright_arch::{Isa, LeafFlags};
use pagewright_lab::harness::{ANON, CPU, GupCall, OTHER, TestDevice, TestProcess, TestWorld};
use pagewright_lab::on_both;
use pagewright_mm::MapFlags;
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_mm::space::ClearRefs;
use pagewright_types::{Access, Level, PAGE_SIZE, Rights, VirtAddr};
use std::rc::Rc;

on_both! {
    basic_cow_in_the_parent_is_not_seen_by_the_child,
    basic_cow_after_mprotect_of_the_parent,
    vmsplice_and_unmap_in_the_child,
    vmsplice_and_unmap_in_the_child_after_mprotect_of_the_parent,
    vmsplice_before_fork_and_unmap_in_the_parent,
    vmsplice_after_fork_and_unmap_in_the_parent,
    a_fixed_buffer_is_mapped_read_only_meanwhile,
    a_fork_while_there_is_a_fixed_buffer,
    a_long_pin_for_reading_of_a_shared_page,
    a_fast_long_pin_for_reading_of_a_shared_page,
    a_long_pin_for_reading_of_a_page_once_shared,
    a_fast_long_pin_for_reading_of_a_page_once_shared,
    a_long_pin_for_reading_of_an_exclusive_page_mapped_read_only,
    a_fast_long_pin_for_reading_of_an_exclusive_page_mapped_read_only,
    other_memory_is_copied_for_a_store,
    other_memory_is_copied_for_a_long_pin_for_reading,
    other_memory_is_copied_for_a_fast_long_pin_for_reading,
}

const OLD: u64 = 0x0101_0101;
const NEW: u64 = 0xffff_ffff;
const LONG: GupFlags = GupFlags::LONGTERM;
const SPLICE: GupCall = GupCall::Get(GupFlags::empty());

/// A process with a page that holds `OLD`.
fn page<I: Isa>() -> (Rc<TestWorld<I>>, TestProcess<I>, VirtAddr) {
    let world = TestWorld::new(2);
    let process = TestProcess::new(&world);
    let base = process.anon(1);
    process.write(CPU, base, OLD);
    (world, process, base)
}

fn is_writable<I: Isa>(process: &TestProcess<I>, va: VirtAddr) -> bool {
    let leaf = process.world.on(CPU, |mm| process.space.table().lock(mm.tlb(), va, Level::PTE)?.leaf(va));
    let leaf = leaf.expect("mapped");
    assert!(leaf.flags.contains(LeafFlags::EXCLUSIVE), "{leaf:?}");
    leaf.rights.contains(Rights::WRITE)
}

/// Makes the entry of a page read-only under a mapping that is writable.
fn map_read_only<I: Isa>(process: &TestProcess<I>, va: VirtAddr) {
    process.protect(va, 1, Rights::READ);
    process.world.on(CPU, |mm| mm.clear_refs(&process.space, ClearRefs::SoftDirty));
    process.protect(va, 1, Rights::RW);
}

fn finish<I: Isa>(world: &TestWorld<I>, processes: &[&TestProcess<I>]) {
    processes.iter().for_each(|process| process.end());
    world.at_rest(&[]);
}

/// `child_memcmp_fn`.
fn basic_cow<I: Isa>(mprotect: bool) {
    let (world, parent, base) = page::<I>();
    let child = parent.fork();
    if mprotect {
        parent.protect(base, 1, Rights::READ);
        parent.protect(base, 1, Rights::RW);
    }
    parent.write(CPU, base, NEW);
    assert_eq!((child.read(OTHER, base), parent.read(OTHER, base)), (OLD, NEW));
    finish(&world, &[&child, &parent]);
}

fn basic_cow_in_the_parent_is_not_seen_by_the_child<I: Isa>() {
    basic_cow::<I>(false);
}

fn basic_cow_after_mprotect_of_the_parent<I: Isa>() {
    basic_cow::<I>(true);
}

/// `child_vmsplice_memcmp_fn`: CVE-2020-29374.
fn vmsplice_in_child<I: Isa>(mprotect: bool) {
    let (world, parent, base) = page::<I>();
    let child = parent.fork();
    if mprotect {
        parent.protect(base, 1, Rights::READ);
        parent.protect(base, 1, Rights::RW);
    }
    let pipe = child.take(OTHER, base, 1, SPLICE).expect("there");
    child.unmap(base, 1);
    parent.write(CPU, base, NEW);
    assert_eq!(pipe.read(0), OLD, "the parent's secret is in the child's pipe");
    pipe.release(MakeDirty::No);
    finish(&world, &[&child, &parent]);
}

fn vmsplice_and_unmap_in_the_child<I: Isa>() {
    vmsplice_in_child::<I>(false);
}

fn vmsplice_and_unmap_in_the_child_after_mprotect_of_the_parent<I: Isa>() {
    vmsplice_in_child::<I>(true);
}

/// `do_test_vmsplice_in_parent`.
fn vmsplice_in_parent<I: Isa>(before_fork: bool) {
    let (world, parent, base) = page::<I>();
    let splice = || parent.take(CPU, base, 1, SPLICE).expect("there");
    let early = before_fork.then(splice);
    let child = parent.fork();
    let pipe = early.unwrap_or_else(splice);
    parent.unmap(base, 1);
    child.write(OTHER, base, NEW);
    assert_eq!(pipe.read(0), OLD, "the child's secret is in the parent's pipe");
    pipe.release(MakeDirty::No);
    finish(&world, &[&child, &parent]);
}

fn vmsplice_before_fork_and_unmap_in_the_parent<I: Isa>() {
    vmsplice_in_parent::<I>(true);
}

fn vmsplice_after_fork_and_unmap_in_the_parent<I: Isa>() {
    vmsplice_in_parent::<I>(false);
}

/// `do_test_iouring`.
fn fixed_buffer<I: Isa>(fork: bool) {
    let (world, parent, base) = page::<I>();
    let buffer = parent.take(CPU, base, 1, GupCall::PinFast(GupFlags::WRITE | LONG)).expect("there");
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
    finish(&world, &[&parent]);
}

fn a_fixed_buffer_is_mapped_read_only_meanwhile<I: Isa>() {
    fixed_buffer::<I>(false);
}

fn a_fork_while_there_is_a_fixed_buffer<I: Isa>() {
    fixed_buffer::<I>(true);
}

/// How a page comes to be mapped read-only before it is pinned (`enum ro_pin_test`).
enum ReadOnly {
    Shared,
    OnceShared,
    Exclusive,
}

/// `do_test_ro_pin`.
fn read_pin<I: Isa>(before: &ReadOnly, how: GupCall) {
    let (world, process, base) = page::<I>();
    let child = match before {
        ReadOnly::Shared => Some(process.fork()),
        ReadOnly::OnceShared => {
            process.fork().end();
            None
        }
        ReadOnly::Exclusive => {
            map_read_only(&process, base);
            assert!(!is_writable(&process, base));
            None
        }
    };
    let pin = process.take(CPU, base, 1, how).expect("there");
    assert!(!is_writable(&process, base), "a pin for reading gives no right to write");
    compare_after_store(&process, base, pin);
    if let Some(child) = child {
        assert_eq!(child.read(OTHER, base), OLD);
        child.end();
    }
    finish(&world, &[&process]);
}

fn compare_after_store<I: Isa>(process: &TestProcess<I>, base: VirtAddr, pin: TestDevice<I>) {
    process.write(CPU, base, NEW);
    assert_eq!(pin.read(0), NEW, "the pin sees what is stored");
    pin.agrees(process, OTHER, base, 5);
    process.world.at_rest(&[&pin]);
    pin.release(MakeDirty::No);
}

fn a_long_pin_for_reading_of_a_shared_page<I: Isa>() {
    read_pin::<I>(&ReadOnly::Shared, GupCall::Pin(LONG));
}

fn a_fast_long_pin_for_reading_of_a_shared_page<I: Isa>() {
    read_pin::<I>(&ReadOnly::Shared, GupCall::PinFast(LONG));
}

fn a_long_pin_for_reading_of_a_page_once_shared<I: Isa>() {
    read_pin::<I>(&ReadOnly::OnceShared, GupCall::Pin(LONG));
}

fn a_fast_long_pin_for_reading_of_a_page_once_shared<I: Isa>() {
    read_pin::<I>(&ReadOnly::OnceShared, GupCall::PinFast(LONG));
}

fn a_long_pin_for_reading_of_an_exclusive_page_mapped_read_only<I: Isa>() {
    read_pin::<I>(&ReadOnly::Exclusive, GupCall::Pin(LONG));
}

fn a_fast_long_pin_for_reading_of_an_exclusive_page_mapped_read_only<I: Isa>() {
    read_pin::<I>(&ReadOnly::Exclusive, GupCall::PinFast(LONG));
}

/// What else can be mapped privately: the zero page, shared memory with a name, a file.
///
/// `test` is given a private mapping of one page, what it shows, and a view of what it must not
/// change.
fn on_other_memory<I: Isa>(test: impl Fn(&TestProcess<I>, VirtAddr, u64, Option<VirtAddr>)) {
    for kind in 0..3 {
        let world = TestWorld::<I>::new(2);
        let process = TestProcess::new(&world);
        let file = match kind {
            0 => None,
            1 => Some(world.shmem(1)),
            _ => Some(world.file(1)),
        };
        let shared = file.as_ref().map(|file| process.map(1, Rights::RW, MapFlags::SHARED, Some(file)));
        let flags = if file.is_some() { MapFlags::PRIVATE } else { ANON };
        let base = process.map(1, Rights::RW, flags, file.as_ref());
        let shows = process.read(CPU, base);
        test(&process, base, shows, shared);
        if let Some(shared) = shared {
            assert_eq!(process.read(OTHER, shared), shows, "the object is as it was");
        }
        process.end();
        if let Some(file) = file {
            world.on(CPU, |mm| mm.forget_file(&file));
        }
        world.at_rest(&[]);
    }
}

/// `test_cow`.
fn other_memory_is_copied_for_a_store<I: Isa>() {
    on_other_memory::<I>(|process, base, shows, shared| {
        let untouched = process.anon(1);
        process.write(CPU, base, NEW);
        assert_eq!(process.read(OTHER, base), NEW);
        assert_eq!(process.read(OTHER, untouched), 0);
        if let Some(shared) = shared {
            assert_eq!(process.read(CPU, shared), shows);
        }
    });
}

/// `test_ro_pin`, `test_ro_fast_pin`.
fn long_pin_of_other_memory<I: Isa>(how: GupCall) {
    on_other_memory::<I>(|process, base, shows, _| {
        let pin = process.take(CPU, base, 1, how).expect("there");
        assert_eq!(pin.read(0), shows);
        assert!(pin.pages.iter().all(|page| page.is_pinned()));
        compare_after_store(process, base, pin);
        assert!(process.touch(OTHER, base.add(PAGE_SIZE - 8), Access::Write).is_ok());
    });
}

fn other_memory_is_copied_for_a_long_pin_for_reading<I: Isa>() {
    long_pin_of_other_memory::<I>(GupCall::Pin(LONG));
}

fn other_memory_is_copied_for_a_fast_long_pin_for_reading<I: Isa>() {
    long_pin_of_other_memory::<I>(GupCall::PinFast(LONG));
}
