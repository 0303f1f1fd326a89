//! Advice on parts of what huge leaves map, and the huge page of zeroes.

use super::{BASE, PAGES};
use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::{ANON, CPU, TestProcess, TestWorld, at};
use pagewright_mm::{Advice, MapFlags, MmSetting};
use pagewright_types::{Counter, Rights};
use std::rc::Rc;

on_both! {
    lazy_free_of_a_part_keeps_the_huge_page_of_zeroes,
    a_mapping_with_the_huge_page_of_zeroes_stays_charged,
}

/// A process with room for two huge pages, and a little more.
fn with_room<I: Isa>() -> (Rc<TestWorld<I>>, TestProcess<I>) {
    let world = TestWorld::sized(2, 24 << 20);
    world.set(MmSetting::ThpEnabled, "always");
    let process = TestProcess::new(&world);
    process.map_at(BASE, 2 * PAGES + 4, Rights::RW, ANON | MapFlags::FIXED | MapFlags::NORESERVE);
    (world, process)
}

/// `madvise_free_huge_pmd`.
fn lazy_free_of_a_part_keeps_the_huge_page_of_zeroes<I: Isa>() {
    let (world, process) = with_room::<I>();
    assert_eq!([BASE, at(BASE, PAGES)].map(|va| process.read(CPU, va)), [0, 0]);
    // A part of one, and the end of one with the start of the next.
    process.advise(at(BASE, 8), 1, Advice::Free);
    process.advise(at(BASE, PAGES - 2), 4, Advice::Free);
    assert_eq!(world.count(Counter::ThpSplitPmd), 0);
    process.write(CPU, at(BASE, 1), 7);
    assert_eq!(process.space.rss().pages(), PAGES, "the store maps a huge page");
    world.recount(&[&process]);
    // That one has something to free, and is split.
    process.advise(at(BASE, 8), 1, Advice::Free);
    assert_eq!((world.count(Counter::ThpSplitPmd), process.read(CPU, at(BASE, 1))), (1, 7));
    world.recount(&[&process]);
    TestProcess::end_all_at_rest(&[&process]);
}

/// Linux prepares an `anon_vma` for that page, and a mapping that has one stays charged.
fn a_mapping_with_the_huge_page_of_zeroes_stays_charged<I: Isa>() {
    let (world, process) = with_room::<I>();
    process.unmap(BASE, 2 * PAGES + 4);
    process.map_at(BASE, PAGES, Rights::RW, ANON | MapFlags::FIXED);
    let charged = || world.on(CPU, |mm| mm.committed());
    assert_eq!((process.read(CPU, BASE), charged()), (0, PAGES));
    process.protect(BASE, PAGES, Rights::READ);
    assert_eq!(charged(), PAGES);
    let child = process.fork();
    assert_eq!(child.read(CPU, at(BASE, 3)), 0);
    world.recount(&[&process, &child]);
    TestProcess::end_all_at_rest(&[&process, &child]);
}
