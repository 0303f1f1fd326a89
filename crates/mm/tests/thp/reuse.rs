//! Which stores take a large folio over, and which copy a page of it (INV-COW-REUSE).

use super::{BASE, PAGES, end};
use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::{ANON, CPU, GupCall, OTHER, TestProcess, TestWorld, at};
use pagewright_lab::planted_bugs_are_found;
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_mm::space::ClearRefs;
use pagewright_mm::{MapFlags, MmSetting, RemapFlags, RemapRequest};
use pagewright_types::{Counter, Level, PAGE_SIZE, Rights};
use std::rc::Rc;

on_both! {
    a_huge_leaf_that_may_not_be_stored_to_is_widened,
    the_last_space_with_a_huge_page_takes_it_over,
    a_store_to_a_huge_page_that_others_have_copies_one_page,
    a_store_that_splits_a_huge_page_has_lost_no_race,
    the_last_space_with_pieces_takes_all_of_them_over,
    a_piece_in_another_table_or_elsewhere_is_copied,
    /// INV-COW-REUSE.
    a_piece_with_a_reference_is_copied: assert!(referenced_piece::<I>(0)),
    /// INV-COW-REUSE.
    a_huge_page_with_a_reference_is_split_and_a_page_copied: assert!(referenced_huge::<I>(0)),
    a_piece_that_a_child_has_is_copied: assert!(shared_piece::<I>(0)),
}

fn world<I: Isa>(sizes: &[MmSetting]) -> (Rc<TestWorld<I>>, TestProcess<I>) {
    let world = TestWorld::sized(2, 16 << 20);
    world.set(MmSetting::CowPageTables, "never");
    let process = TestProcess::new(&world);
    process.map_at(BASE, 2 * PAGES, Rights::RW, ANON | MapFlags::FIXED | MapFlags::NORESERVE);
    sizes.iter().for_each(|size| world.set(*size, "always"));
    (world, process)
}

fn huge<I: Isa>() -> (Rc<TestWorld<I>>, TestProcess<I>) {
    let (world, process) = world(&[MmSetting::ThpEnabled2048k]);
    [1, 7].iter().for_each(|page| process.write(CPU, at(BASE, *page), *page));
    (world, process)
}

/// A folio of 16 pages, mapped by page; pages 1 and 7 have their numbers.
fn pieces<I: Isa>() -> (Rc<TestWorld<I>>, TestProcess<I>) {
    let (world, process) = world(&[MmSetting::ThpEnabled64k]);
    [1, 7].iter().for_each(|page| process.write(CPU, at(BASE, *page), *page));
    assert_eq!(process.space.rss().pages(), 16);
    (world, process)
}

/// The pages copied, and the stores that took one over, since the last call.
fn changes<I: Isa>(world: &TestWorld<I>, body: impl FnOnce()) -> (u64, u64) {
    let count = || [Counter::PwCowCopy, Counter::PgReuse].map(|counter| world.count(counter));
    let before = count();
    body();
    let after = count();
    (after[0] - before[0], after[1] - before[1])
}

fn a_huge_leaf_that_may_not_be_stored_to_is_widened<I: Isa>() {
    let (world, process) = huge::<I>();
    process.protect(BASE, PAGES, Rights::READ);
    process.protect(BASE, PAGES, Rights::RW);
    // Its stores are tracked, so the right comes with the next one.
    world.on(CPU, |mm| mm.clear_refs(&process.space, ClearRefs::SoftDirty)).expect("memory");
    assert_eq!(changes(&world, || process.write(OTHER, at(BASE, 1), 10)), (0, 1));
    assert_eq!((process.leaf_level(BASE), process.read(CPU, at(BASE, 1))), (Some(Level::PMD), 10));
    end(&world, &[&process]);
}

fn the_last_space_with_a_huge_page_takes_it_over<I: Isa>() {
    let (world, process) = huge::<I>();
    let child = process.fork();
    process.end();
    assert_eq!(changes(&world, || child.write(OTHER, at(BASE, 1), 10)), (0, 1));
    assert_eq!((child.leaf_level(BASE), child.read(OTHER, at(BASE, 7))), (Some(Level::PMD), 7));
    end(&world, &[&child]);
}

fn a_store_to_a_huge_page_that_others_have_copies_one_page<I: Isa>() {
    let (world, process) = huge::<I>();
    let child = process.fork();
    assert_eq!(changes(&world, || child.write(OTHER, at(BASE, 1), 10)), (1, 0));
    assert_eq!((child.leaf_level(BASE), process.leaf_level(BASE)), (Some(Level::PTE), Some(Level::PMD)));
    assert_eq!([&process, &child].map(|one| one.read(CPU, at(BASE, 1))), [1, 10]);
    assert_eq!([&process, &child].map(|one| one.read(CPU, at(BASE, 7))), [7; 2]);
    end(&world, &[&process, &child]);
}

/// The simulator calls the thousandth wait for another CPU a deadlock.
fn a_store_that_splits_a_huge_page_has_lost_no_race<I: Isa>() {
    let (world, process) = huge::<I>();
    for value in 0..1000 {
        let child = process.fork();
        child.write(CPU, at(BASE, 1), value);
        assert_eq!(child.leaf_level(BASE), Some(Level::PTE));
        child.end();
    }
    assert_eq!((process.leaf_level(BASE), process.read(CPU, at(BASE, 1))), (Some(Level::PMD), 1));
    end(&world, &[&process]);
}

/// With one fault: the others are exclusive then, and only lack the right.
fn the_last_space_with_pieces_takes_all_of_them_over<I: Isa>() {
    for split in [false, true] {
        let (world, process) = if split { huge::<I>() } else { pieces::<I>() };
        if split {
            process.protect(at(BASE, 100), 1, Rights::READ);
            process.protect(at(BASE, 100), 1, Rights::RW);
            assert_eq!(process.leaf_level(BASE), Some(Level::PTE));
        }
        let child = process.fork();
        process.end();
        let (first, second) = (at(BASE, 1), at(BASE, 7));
        assert_eq!(changes(&world, || child.write(OTHER, first, 10)), (0, 1), "split: {split}");
        let fork = child.fork();
        fork.end();
        assert_eq!(changes(&world, || child.write(OTHER, second, 70)), (0, 1), "split: {split}");
        assert_eq!([first, second].map(|va| child.read(CPU, va)), [10, 70]);
        end(&world, &[&child]);
    }
}

/// Entries that lie elsewhere are not looked for, so the page is copied.
fn a_piece_in_another_table_or_elsewhere_is_copied<I: Isa>() {
    for to in [at(BASE, 600), at(BASE, 40)] {
        let (world, process) = pieces::<I>();
        let flags = RemapFlags::MAYMOVE | RemapFlags::FIXED;
        let request = RemapRequest { addr: at(BASE, 7), old_len: PAGE_SIZE, new_len: PAGE_SIZE, flags, new_addr: to };
        world.on(CPU, |mm| mm.mremap(&process.space, &request)).expect("nothing is in the way");
        process.fork().end();
        assert_eq!(changes(&world, || process.write(OTHER, at(BASE, 1), 10)), (1, 0), "{to}");
        assert_eq!(changes(&world, || process.write(OTHER, to, 70)), (1, 0), "{to}");
        assert_eq!([at(BASE, 1), to, at(BASE, 2)].map(|va| process.read(CPU, va)), [10, 70, 0]);
        end(&world, &[&process]);
    }
}

/// A device reads what the page had before the store (CVE-2020-29374).
fn referenced_piece<I: Isa>(_seed: u64) -> bool {
    let (world, process) = pieces::<I>();
    referenced(&world, &process)
}

fn referenced_huge<I: Isa>(_seed: u64) -> bool {
    let (world, process) = huge::<I>();
    referenced(&world, &process)
}

fn referenced<I: Isa>(world: &TestWorld<I>, process: &TestProcess<I>) -> bool {
    let child = process.fork();
    let device = child.take(OTHER, at(BASE, 7), 1, GupCall::Get(GupFlags::empty())).expect("mapped");
    child.end();
    process.write(CPU, at(BASE, 7), 70);
    let sound = device.read(0) == 7;
    device.release(MakeDirty::No);
    end(world, &[process]);
    sound
}

fn shared_piece<I: Isa>(_seed: u64) -> bool {
    let (world, process) = pieces::<I>();
    let child = process.fork();
    // As many entries as pages are left, and not all of them in one space.
    process.unmap(at(BASE, 8), 8);
    child.unmap(at(BASE, 8), 8);
    process.write(CPU, at(BASE, 7), 70);
    child.write(OTHER, at(BASE, 1), 10);
    let read = |process: &TestProcess<I>| [1, 7].map(|page| process.read(CPU, at(BASE, page)));
    let sound = (read(&process), read(&child)) == ([1, 70], [10, 7]);
    end(&world, &[&process, &child]);
    sound
}

planted_bugs_are_found! {
    1;
    PieceReusedByMapcount => referenced_piece,
    ReusedByMapcount => referenced_huge,
    PieceTakenForWhole => shared_piece,
}
