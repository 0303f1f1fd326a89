//! What was objected to flushes that are deferred past the return of a call, on the Linux lists.
//!
//! Each test is named after an objection (`docs/hazards.md`). CPU 1 keeps a translation of a page
//! that moved or was reclaimed, CPU 0 does what the objection is about, and CPU 1 reads again.
//!
//! INV-LINGER-CONTENTS, INV-LINGER-FILE, INV-TLB-CLEARED.

use super::{FAR, NEAR, move_to};
use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::files::KeepingFile;
use pagewright_lab::harness::{ANON, CPU, FileHandle, OTHER, TestProcess, TestWorld, at};
use pagewright_mm::{MapFlags, MmSetting};
use pagewright_types::{Access, Counter, Order, PAGE_SIZE, Rights, VirtAddr};
use std::rc::Rc;

on_both! {
    a_mapping_over_the_range_shows_the_new_file,
    a_file_that_is_written_through_another_mapping_is_read_anew,
    a_truncated_file_is_not_read_on,
    the_kernel_uses_no_frame_that_a_program_reads,
    an_innocent_allocator_settles_all_frames_by_one_flush,
}

/// Why a page lingers.
#[derive(Clone, Copy)]
enum Why {
    /// Its entry maps the copy.
    Moved,
    /// Its entry is empty.
    Reclaimed,
}

/// The pages of the file that [`lingering_file`] maps.
const PAGES: u64 = 4;

fn world<I: Isa>() -> Rc<TestWorld<I>> {
    let world = TestWorld::<I>::two_nodes(3, 4 << 20);
    world.set(MmSetting::CowPageTables, "never");
    world.set(MmSetting::TlbLinger, "migration");
    world
}

/// CPU 1 has read `pages` pages, which have moved since and linger.
fn move_what_another_reads<I: Isa>(process: &TestProcess<I>, base: VirtAddr, pages: u64) {
    let world = &process.world;
    [CPU, OTHER].into_iter().for_each(|cpu| world.lab.run(cpu, &process.space));
    (0..pages).for_each(|page| _ = process.read(OTHER, at(base, page)));
    let before = world.count(Counter::PwLingerPages);
    let pages: Vec<VirtAddr> = (0..pages).map(|page| at(base, page)).collect();
    move_to(process, &pages, FAR, true);
    assert_eq!(world.count(Counter::PwLingerPages) - before, pages.len() as u64);
}

/// A process that maps a file to read, of which page 1 lingers; the page has its index.
fn lingering_file<I: Isa>(why: Why) -> (TestProcess<I>, FileHandle<I>, VirtAddr) {
    let world = world();
    let process = TestProcess::new(&world);
    let file = world.file_of(KeepingFile::default(), PAGES);
    // It keeps the table when the mapping goes.
    let neighbour = process.map(1, Rights::RW, ANON, None);
    process.write(CPU, neighbour, 1);
    let base = process.map(PAGES, Rights::READ, MapFlags::PRIVATE, Some(&file));
    assert_eq!(process.read(CPU, at(base, 1)), 1);
    match why {
        Why::Moved => move_what_another_reads(&process, at(base, 1), 1),
        Why::Reclaimed => {
            world.set(MmSetting::TlbLinger, "unmap");
            [CPU, OTHER].into_iter().for_each(|cpu| world.lab.run(cpu, &process.space));
            assert_eq!(process.read(OTHER, at(base, 1)), 1);
            // The first pass finds the page referenced.
            (0..2).for_each(|_| _ = world.on(CPU, |mm| mm.reclaim(NEAR, 8)));
            // Fault-around has mapped the others, too.
            assert_eq!(world.count(Counter::PwLingerPages), PAGES);
        }
    }
    (process, file, base)
}

/// The entries below the mapping are empty, and no store flushes anything.
fn a_mapping_over_the_range_shows_the_new_file<I: Isa>() {
    let (process, _old, base) = lingering_file::<I>(Why::Reclaimed);
    let new = process.world.file_of(KeepingFile::default(), PAGES);
    process.world.on(CPU, |mm| mm.write_at(&new, PAGE_SIZE, &7u64.to_le_bytes())).expect("memory");
    process.map_over(base, &new, Rights::READ, MapFlags::PRIVATE);
    assert_eq!(process.read(OTHER, at(base, 1)), 7);
    process.end();
    process.world.at_rest(&[]);
}

fn a_file_that_is_written_through_another_mapping_is_read_anew<I: Isa>() {
    let (process, file, base) = lingering_file::<I>(Why::Moved);
    let writer = TestProcess::new(&process.world);
    let theirs = writer.map(PAGES, Rights::RW, MapFlags::SHARED, Some(&file));
    process.world.lab.run(CPU, &writer.space);
    writer.write(CPU, at(theirs, 1), 7);
    assert_eq!(process.read(OTHER, at(base, 1)), 7);
    // A file with a writer does not linger any more.
    process.world.lab.run(CPU, &process.space);
    let before = process.world.count(Counter::PwLingerPageRefused);
    move_to(&process, &[at(base, 1)], NEAR, true);
    assert_eq!(process.world.count(Counter::PwLingerPageRefused) - before, 1);
    writer.end();
    process.end();
    process.world.at_rest(&[]);
}

fn a_truncated_file_is_not_read_on<I: Isa>() {
    let (process, file, base) = lingering_file::<I>(Why::Reclaimed);
    process.world.on(CPU, |mm| mm.truncate(&file, PAGE_SIZE)).expect("not sealed");
    assert!(process.touch(OTHER, at(base, 1), Access::Read).is_err(), "SIGBUS");
    process.end();
    process.world.at_rest(&[]);
}

/// A slab that the kernel makes of the frame must not be seen by the program.
fn the_kernel_uses_no_frame_that_a_program_reads<I: Isa>() {
    let world = world::<I>();
    let process = TestProcess::new(&world);
    let base = process.map(1, Rights::RW, ANON, None);
    process.write(CPU, base, 10);
    process.fork().end();
    move_what_another_reads(&process, base, 1);
    let mut blocks = Vec::new();
    world.on(CPU, |mm| {
        // The oracle stops at a frame that is handed out and not settled.
        while let Ok(block) = mm.tlb().alloc(mm.tlb().request(Order::ZERO)) {
            blocks.push(block);
        }
        assert_eq!(mm.tlb().frames().parked(), 0);
    });
    assert_eq!(process.read(OTHER, base), 10);
    world.on(CPU, |mm| blocks.into_iter().for_each(|block| mm.tlb().free(block)));
    process.end();
    world.at_rest(&[]);
}

/// A process that has nothing to do with the pages takes all memory: it waits once, not for each.
fn an_innocent_allocator_settles_all_frames_by_one_flush<I: Isa>() {
    const LINGERING: u64 = 64;
    let world = world::<I>();
    world.set(MmSetting::OvercommitMemory, "1");
    let process = TestProcess::new(&world);
    let base = process.map(LINGERING, Rights::RW, ANON, None);
    (0..LINGERING).for_each(|page| process.write(CPU, at(base, page), 10));
    process.fork().end();
    // Each has a key of its own.
    (0..LINGERING).for_each(|page| move_what_another_reads(&process, at(base, page), 1));
    let innocent = TestProcess::new(&world);
    world.lab.run(CPU, &innocent.space);
    let free = world.on(CPU, |mm| mm.tlb().frames().available());
    let more = innocent.map(2 * free, Rights::RW, ANON, None);
    let count = |counter| world.count(counter);
    let before = count(Counter::PwTlbSettleOnAlloc);
    let mut page = 0;
    while world.on(CPU, |mm| mm.tlb().frames().parked()) > 0
        && innocent.touch(CPU, at(more, page), Access::Write).is_ok()
    {
        page += 1;
    }
    assert_eq!(world.on(CPU, |mm| mm.tlb().frames().parked()), 0);
    assert_eq!(count(Counter::PwTlbSettleOnAlloc) - before, 1);
    innocent.end();
    process.end();
    world.at_rest(&[]);
}

#[cfg(feature = "planted")]
#[test]
fn what_was_objected_to_is_found() {
    use pagewright_arch::X86_64;
    use pagewright_plant::{PlantedBug, assert_found_by};
    assert_found_by(PlantedBug::LingeringNotMet, a_mapping_over_the_range_shows_the_new_file::<X86_64>);
    assert_found_by(
        PlantedBug::StoredWhileLingering,
        a_file_that_is_written_through_another_mapping_is_read_anew::<X86_64>,
    );
    assert_found_by(
        PlantedBug::LingeringNotNoted,
        a_file_that_is_written_through_another_mapping_is_read_anew::<X86_64>,
    );
    assert_found_by(PlantedBug::LingeringNotMet, a_truncated_file_is_not_read_on::<X86_64>);
    assert_found_by(PlantedBug::MovedFrameNotParked, the_kernel_uses_no_frame_that_a_program_reads::<X86_64>);
}
