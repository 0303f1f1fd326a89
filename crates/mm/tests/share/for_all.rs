//! What is done once for all sharers of a table: page-out, swap-in, read faults, truncation.

use super::{AtTheLimit, PLACES};
use pagewright_arch::{Isa, LeafFlags, on_both};
use pagewright_lab::harness::files::DiskFile;
use pagewright_lab::harness::{ANON, CPU, FileHandle, MemorySwap, OTHER, THIRD, TestProcess, TestWorld, at, recount};
use pagewright_mm::counters::Gauge;
use pagewright_mm::file::FallocateFlags;
use pagewright_mm::space::ClearRefs;
use pagewright_mm::{Advice, FaultError, MapFlags, MmSetting};
use pagewright_sim::AllocationFailure;
use pagewright_table::LeafView;
use pagewright_types::{Access, Counter, NodeId, PAGE_SIZE, Rights, VirtAddr};
use std::rc::Rc;

on_both! {
    a_page_of_a_hundred_processes_ages_by_one_edit,
    a_page_of_a_hundred_processes_is_swapped_out_by_one_edit,
    a_page_out_is_flushed_on_the_cpus_of_all_sharers,
    a_page_in_swap_is_read_for_all_sharers,
    a_page_that_is_only_read_is_mapped_for_all_sharers,
    a_missing_table_is_made_once_for_a_hundred_sharers,
    a_missing_table_is_made_for_all_by_each_kind_of_read,
    a_table_that_is_made_for_all_counts_until_each_sharer_has_left_it,
    a_read_that_finds_no_memory_for_a_missing_table_changes_nothing,
    a_file_is_truncated_for_all_sharers_of_its_tables,
    each_operation_for_a_hundred_sharers_waits_once_for_the_other_cpus,
    a_resident_set_is_summed_again_after_what_changes_it,
    an_ended_process_has_no_resident_set,
    a_break_that_fails_counts_no_edit_for_all,
}

/// Children of one process, and more than the pages of a node's lists that one scan takes.
const CHILDREN: usize = 100;
const PAGES: u64 = 16;

fn family<I: Isa>(process: TestProcess<I>) -> Vec<TestProcess<I>> {
    let children: Vec<_> = (0..CHILDREN).map(|_| process.fork()).collect();
    core::iter::once(process).chain(children).collect()
}

/// A process and its children, which share the table of [`PAGES`] pages.
fn large_family<I: Isa>() -> (Rc<TestWorld<I>>, VirtAddr, Vec<TestProcess<I>>) {
    let (world, process) = TestProcess::<I>::unjudged();
    world.set(MmSetting::CowPageTables, "always");
    let base = process.map(PAGES, Rights::RW, ANON, None);
    (0..PAGES).for_each(|page| process.write(CPU, at(base, page), page + 1));
    (world, base, family(process))
}

/// The same, whose shared pages are all in swap.
fn paged_out_family<I: Isa>() -> (Rc<TestWorld<I>>, MemorySwap, VirtAddr, Vec<TestProcess<I>>) {
    let (world, base, family) = large_family::<I>();
    let device = world.swap_to(64);
    // More than once: the first scan finds the pages accessed.
    for _ in 0..4 {
        scan(&world);
    }
    (world, device, base, family)
}

/// Looks at each page once, and evicts those that were not in use.
fn scan<I: Isa>(world: &TestWorld<I>) {
    world.on(CPU, |mm| mm.reclaim(NodeId::new(0), PAGES as u32));
}

fn end<I: Isa>(world: &TestWorld<I>, family: &[TestProcess<I>]) {
    family.iter().for_each(TestProcess::end);
    world.assert_nothing_leaked();
}

/// INV-RMAP-ONCE: its accessed bit is cleared in one space.
///
/// Linux's walk, too, ends with the last entry.
pub(super) fn a_page_of_a_hundred_processes_ages_by_one_edit<I: Isa>() {
    let (world, base, family) = large_family::<I>();
    let device = world.swap_to(64);
    let leaves = |process: &TestProcess<I>| {
        let leaf = |page| world.on(CPU, |mm| recount::leaf(mm, &process.space, at(base, page)));
        (0..PAGES).filter_map(leaf).collect::<Vec<_>>()
    };
    let all_used = |leaves: Vec<LeafView>| leaves.iter().all(|leaf| leaf.has(LeafFlags::ACCESSED));
    assert!(family.iter().all(|process| all_used(leaves(process))));
    let nodes = world.count(Counter::PwRmapNodes);
    world.on(CPU, |mm| mm.reclaim(NodeId::new(0), 1));
    // Each page is looked at, and the one that goes once more; then that one is unmapped.
    assert_eq!(world.count(Counter::PwRmapNodes) - nodes, PAGES + 2, "one space in the place of a hundred");
    assert_eq!((world.count(Counter::PswpOut), world.count(Counter::PwTableBroken)), (1, 0));
    for process in &family {
        let left = leaves(process);
        assert_eq!(left.len() as u64, PAGES - 1);
        assert!(left.iter().all(|leaf| !leaf.has(LeafFlags::ACCESSED)), "every sharer sees it");
    }
    world.recount(&family.iter().collect::<Vec<_>>());
    end(&world, &family);
    assert_eq!(device.used(), 0);
}

/// INV-FAMILY-FLUSH, INV-SHARE-OWN.
fn a_page_of_a_hundred_processes_is_swapped_out_by_one_edit<I: Isa>() {
    let (world, device, base, family) = paged_out_family::<I>();
    assert_eq!(world.count(Counter::PswpOut), PAGES, "each page is written once");
    assert_eq!(device.used(), PAGES as usize);
    assert_eq!(world.count(Counter::PwTableBroken), 0, "no table is copied for it");
    let owed = world.count(Counter::PwTlbBatchEntries) + world.count(Counter::PwTlbBatchAtOnce);
    assert_eq!(owed, PAGES * family.len() as u64, "each member's generation moves once for a page");
    assert!(world.count(Counter::PwTlbBatchFlushed) <= 1, "one batch for all pages and members");
    assert_eq!(world.count(Counter::PwRmapNodes), 3 * PAGES, "two looks and an edit, each in one space");
    let mut status = String::new();
    world.on(CPU, |mm| mm.show_status(&family[0].space, &mut status)).expect("a string takes everything");
    let line = |name| status.lines().find(|line| line.starts_with(name)).expect("a line of status").to_owned();
    assert_eq!((line("RssAnon"), line("VmSwap")), ("RssAnon:\t       0 kB".into(), "VmSwap:\t      64 kB".into()));
    world.recount(&family.iter().collect::<Vec<_>>());
    for (index, process) in family.iter().enumerate().step_by(17) {
        process.write(CPU, at(base, 3), 1000 + index as u64);
        for page in (0..PAGES).filter(|page| *page != 3) {
            assert_eq!(process.read(CPU, at(base, page)), page + 1, "process {index}");
        }
    }
    for (index, process) in family.iter().enumerate() {
        let expected = if index % 17 == 0 { 1000 + index as u64 } else { 4 };
        assert_eq!(process.read(CPU, at(base, 3)), expected, "process {index}");
    }
    world.recount(&family.iter().collect::<Vec<_>>());
    end(&world, &family);
    assert_eq!(device.used(), 0);
}

/// INV-FAMILY-FLUSH: a sibling on another CPU has translations of the pages.
pub(super) fn a_page_out_is_flushed_on_the_cpus_of_all_sharers<I: Isa>() {
    let (world, process, base) = super::parent::<I>(3);
    let device = world.swap_to(8);
    let [child, sibling] = [process.fork(), process.fork()];
    for _ in 0..4 {
        for (cpu, process) in [(OTHER, &child), (THIRD, &sibling)] {
            assert_eq!(PLACES.map(|page| process.read(cpu, at(base, page))), [1, 2, 3]);
        }
        world.on(CPU, |mm| mm.madvise(&process.space, base, PAGES * PAGE_SIZE, Advice::PageOut)).expect("mapped");
        world.on(CPU, |mm| mm.reclaim(NodeId::new(0), 3));
    }
    // What is freed gets other contents, which the siblings must not see.
    world.on(CPU, |mm| mm.reclaim(NodeId::new(0), 3));
    let other = process.anon(8);
    (0..8).for_each(|page| process.write(CPU, at(other, page), 77));
    for (cpu, process) in [(OTHER, &child), (THIRD, &sibling)] {
        assert_eq!(PLACES.map(|page| process.read(cpu, at(base, page))), [1, 2, 3]);
    }
    assert!(world.count(Counter::PswpOut) > 0);
    world.recount(&[&process, &child, &sibling]);
    TestProcess::end_all_at_rest(&[&process, &child, &sibling]);
    assert_eq!(device.used(), 0);
}

/// INV-SHARE-COUNT: another process may have the frame of its root, with edits for all noted below.
pub(super) fn an_ended_process_has_no_resident_set<I: Isa>() {
    let (world, process, _) = super::parent::<I>(1);
    let _device = world.swap_to(8);
    let ended = process.fork();
    ended.end();
    let children = [process.fork(), process.fork()];
    for _ in 0..4 {
        world.on(CPU, |mm| mm.reclaim(NodeId::new(0), 3));
    }
    assert_eq!(world.count(Counter::PswpOut), 3);
    let counted = |process: &TestProcess<I>| {
        let rss = world.on(CPU, |mm| mm.rss(&process.space).swapped());
        (rss, process.space.rss().pages())
    };
    assert_eq!(counted(&ended), (0, 0));
    assert_eq!(counted(&children[0]), (3, 0));
    children[0].end();
    assert_eq!(counted(&children[0]), (0, 0), "what was summed up goes, too");
    TestProcess::end_all_at_rest(&[&process, &children[1]]);
}

/// INV-SHARE-SUM: each recount reads all resident sets, and the next one reads them anew.
pub(super) fn a_resident_set_is_summed_again_after_what_changes_it<I: Isa>() {
    let (world, process, base) = super::parent::<I>(1);
    let _device = world.swap_to(8);
    let children = [(); 3].map(|()| process.fork());
    let all = [&process, &children[0], &children[1], &children[2]];
    world.recount(&all);
    for _ in 0..4 {
        world.on(CPU, |mm| mm.reclaim(NodeId::new(0), 3));
    }
    assert_eq!(world.count(Counter::PswpOut), 3);
    world.recount(&all);
    assert_eq!(process.read(CPU, at(base, PLACES[1])), 2, "read for all sharers");
    world.recount(&all);
    assert_eq!(all.map(|process| process.space.rss().pages()), [1; 4]);
    children[0].write(CPU, at(base, PLACES[0]), 10);
    world.recount(&all);
    // The first breaks the tables above, which the second finds its own.
    for table in [0, 2] {
        children[2].unmap(at(base, 512 * table), 512);
        world.recount(&all);
    }
    children.iter().for_each(TestProcess::end);
    world.recount(&[&process]);
    process.write(CPU, at(base, PLACES[2]), 20);
    assert!(world.count(Counter::PwTableTakenBack) > 0);
    world.recount(&[&process]);
    assert_eq!(process.space.rss().pages(), 2);
    TestProcess::end_all_at_rest(&[&process]);
}

/// INV-SHARE-ATOMIC, INV-SHARE-COUNT.
pub(super) fn a_break_that_fails_counts_no_edit_for_all<I: Isa>() {
    let (world, process, base) = super::parent::<I>(1);
    let _device = world.swap_to(8);
    let last = at(base, 7);
    process.write(CPU, last, 4);
    let child = process.fork();
    for _ in 0..4 {
        world.on(CPU, |mm| mm.reclaim(NodeId::new(0), 3));
    }
    let swapped = world.count(Counter::PswpOut);
    assert!(swapped > 0);
    let pfn = process.frame(CPU, last, Access::Read);
    let full = AtTheLimit::begin(&world, pfn);
    let resident = |process: &TestProcess<I>| world.on(CPU, |mm| mm.rss(&process.space)).swapped();
    let before = [&process, &child].map(resident);
    assert!(before[0] > 0 && before[0] == before[1]);
    for process in [&process, &child] {
        assert_eq!(process.touch(CPU, base, Access::Write), Err(FaultError::TooManyHolders { va: last }));
    }
    assert_eq!([&process, &child].map(resident), before);
    full.end();
    world.recount(&[&process, &child]);
    child.write(CPU, base, 10);
    world.recount(&[&process, &child]);
    TestProcess::end_all_at_rest(&[&process, &child]);
}

/// One entry and one read of the device, however many spaces reach the entry.
pub(super) fn a_page_in_swap_is_read_for_all_sharers<I: Isa>() {
    let (world, device, base, family) = paged_out_family::<I>();
    assert_eq!((world.count(Counter::PswpOut), device.used()), (PAGES, PAGES as usize));
    for (index, process) in family.iter().enumerate() {
        assert_eq!(process.read(CPU, at(base, 5)), 6, "process {index}");
    }
    assert_eq!((world.count(Counter::PswpIn), world.count(Counter::PwTableBroken)), (1, 0));
    world.recount(&family.iter().collect::<Vec<_>>());
    // The page is the origin's, and other spaces', in one entry: a store by one is not seen.
    family[40].write(CPU, at(base, 5), 600);
    assert_eq!([0, 40, 41].map(|index| family[index].read(CPU, at(base, 5))), [6, 600, 6]);
    family[40].write(CPU, at(base, 9), 601);
    assert_eq!([0, 40, 41].map(|index| family[index].read(CPU, at(base, 9))), [10, 601, 10], "INV-SHARE-FILL");
    world.on(CPU, |mm| mm.swap_off(0)).expect("there is memory for all");
    assert_eq!(device.used(), 0, "swapoff reads the pages once for all of them");
    assert_eq!(world.count(Counter::PswpIn), PAGES);
    world.recount(&family.iter().collect::<Vec<_>>());
    for (index, process) in family.iter().enumerate().filter(|(index, _)| *index != 40).step_by(13) {
        (0..PAGES).for_each(|page| assert_eq!(process.read(CPU, at(base, page)), page + 1, "process {index}"));
    }
    end(&world, &family);
}

/// INV-SHARE-FILL: the zero page and a file's, each in one entry; a store is the space's own.
fn a_page_that_is_only_read_is_mapped_for_all_sharers<I: Isa>() {
    let (world, process) = TestProcess::<I>::unjudged();
    world.set(MmSetting::CowPageTables, "always");
    let file = world.file(PAGES);
    let anon = process.map(PAGES, Rights::RW, ANON, None);
    let cached = process.map_file(&file, Rights::RW, MapFlags::PRIVATE);
    process.write(CPU, at(anon, 0), 1);
    let family = family(process);
    for process in &family {
        assert_eq!(process.read(CPU, at(anon, 3)), 0);
        process.read(CPU, at(cached, 2));
    }
    assert_eq!(world.count(Counter::PwTableBroken), 0, "no table is copied for it");
    assert_eq!(world.count(Counter::PgFault), 3, "each page is mapped by one fault");
    world.recount(&family.iter().collect::<Vec<_>>());
    family[7].write(CPU, at(anon, 3), 70);
    family[7].write(CPU, at(cached, 2), 71);
    assert_eq!([0, 7, 8].map(|index| family[index].read(CPU, at(anon, 3))), [0, 70, 0]);
    let kept = family[0].read(CPU, at(cached, 2));
    assert!(kept != 71 && family[8].read(CPU, at(cached, 2)) == kept);
    world.recount(&family.iter().collect::<Vec<_>>());
    world.on(CPU, |mm| mm.forget_file(&file));
    end(&world, &family);
}

/// The bytes of the page tables that a process reaches, as `VmPTE` has them.
fn table_bytes<I: Isa>(world: &TestWorld<I>, process: &TestProcess<I>) -> u64 {
    world.on(CPU, |mm| mm.rss(&process.space));
    process.space.table().bytes()
}

/// INV-SHARE-MAKE: by one fault, without a copy of a table, and none stores into it.
fn a_missing_table_is_made_once_for_a_hundred_sharers<I: Isa>() {
    let (world, process) = TestProcess::<I>::unjudged();
    world.set(MmSetting::CowPageTables, "always");
    let base = process.map_at(VirtAddr::new(1 << 30), 1, Rights::RW, ANON | MapFlags::FIXED);
    process.write(CPU, base, 1);
    // One table is missing for the first, and two for the second.
    let [near, far] = [1 << 14, 1 << 20]
        .map(|page| process.map_at(at(base, page), PAGES, Rights::RW, ANON | MapFlags::FIXED | MapFlags::NORESERVE));
    let before = table_bytes(&world, &process);
    let family = family(process);
    let (faults, tables) = (world.count(Counter::PgFault), world.gauge(Gauge::PageTablePages));
    for process in &family {
        assert_eq!([near, far].map(|place| process.read(CPU, place)), [0, 0]);
    }
    assert_eq!(world.count(Counter::PgFault), faults + 2, "each page is mapped by one fault");
    assert_eq!((world.count(Counter::PwTableBroken), world.count(Counter::PwTableMadeForAll)), (0, 3));
    assert_eq!(world.gauge(Gauge::PageTablePages), tables + 3);
    for process in &family {
        assert_eq!(table_bytes(&world, process), before + 3 * PAGE_SIZE);
    }
    world.recount(&family.iter().collect::<Vec<_>>());
    family[7].write(CPU, near, 70);
    family[0].write(CPU, far, 71);
    let values = |place| [0, 7, 8].map(|index| family[index].read(CPU, place));
    assert_eq!((values(near), values(far)), ([0, 70, 0], [71, 0, 0]));
    for process in &family {
        assert_eq!(table_bytes(&world, process), before + 3 * PAGE_SIZE, "a copy is one table, too");
    }
    world.recount(&family.iter().collect::<Vec<_>>());
    // The origin is last, and no space had the new tables before.
    family[1..].iter().for_each(TestProcess::end);
    family[0].write(CPU, near, 72);
    family[0].write(CPU, base, 2);
    assert_eq!([base, near, far].map(|place| family[0].read(CPU, place)), [2, 72, 71]);
    world.recount(&[&family[0]]);
    end(&world, &family[..1]);
}

/// Accesses, fault-around, `MADV_POPULATE_READ` and a call that reads.
fn a_missing_table_is_made_for_all_by_each_kind_of_read<I: Isa>() {
    let (world, process, base) = super::parent::<I>(2);
    let file = world.file(PAGES);
    let place = |table: u64| at(base, 512 * (8 + table));
    process.map_over(place(0), &file, Rights::RW, MapFlags::SHARED | MapFlags::FIXED);
    process.map_over(place(1), &file, Rights::RW, MapFlags::PRIVATE | MapFlags::FIXED);
    for table in [2, 3] {
        process.map_at(place(table), PAGES, Rights::RW, ANON | MapFlags::FIXED);
    }
    let child = process.fork();
    let made = || (world.count(Counter::PwTableMadeForAll), world.count(Counter::PwTableBroken));
    child.read(OTHER, place(0));
    world.recount(&[&process, &child]);
    child.read(OTHER, place(1));
    assert_eq!(made(), (2, 0));
    assert!(world.on(CPU, |mm| mm.rss(&process.space)).pages() >= 5, "the pages of the file are the sibling's, too");
    child.advise(place(2), PAGES, Advice::PopulateRead);
    assert_eq!(made(), (3, 0));
    let mut bytes = [9; 8];
    assert_eq!(world.on(OTHER, |mm| mm.copy_from_user(&child.space, place(3), &mut bytes)), 0);
    assert_eq!((bytes, made()), ([0; 8], (4, 0)));
    world.recount(&[&process, &child]);
    let spurious = world.count(Counter::PgFault);
    for table in 0..4 {
        process.read(CPU, place(table));
    }
    assert_eq!(world.count(Counter::PgFault), spurious, "the sibling has them already");
    process.write(CPU, place(2), 5);
    child.write(CPU, place(0), 6);
    assert_eq!((child.read(OTHER, place(2)), process.read(CPU, place(0))), (0, 6));
    world.recount(&[&process, &child]);
    world.on(CPU, |mm| mm.forget_file(&file));
    TestProcess::end_all_at_rest(&[&process, &child]);
}

/// INV-SHARE-COUNT: broken, taken back, left by an unmap and by an end, and shared again.
pub(super) fn a_table_that_is_made_for_all_counts_until_each_sharer_has_left_it<I: Isa>() {
    let (world, process, base) = super::parent::<I>(1);
    let [near, far] = [1 << 14, 1 << 20]
        .map(|page| process.map_at(at(base, page), 1 << 10, Rights::RW, ANON | MapFlags::FIXED | MapFlags::NORESERVE));
    let children = [(); 3].map(|()| process.fork());
    let all = [&process, &children[0], &children[1], &children[2]];
    for place in [near, far, at(near, 512)] {
        children[0].read(CPU, place);
        world.recount(&all);
    }
    assert_eq!((world.count(Counter::PwTableMadeForAll), world.count(Counter::PwTableBroken)), (4, 0));
    let bytes = || all.map(|process| table_bytes(&world, process));
    assert_eq!(bytes(), [9 * PAGE_SIZE; 4]);
    children[1].write(CPU, base, 10);
    world.recount(&all);
    children[1].write(CPU, near, 11);
    world.recount(&all);
    // One table that was copied, and one that is shared.
    children[1].unmap(near, 1 << 10);
    world.recount(&all);
    assert_eq!(bytes(), [9, 9, 7, 9].map(|tables| tables * PAGE_SIZE));
    let grandchild = children[0].fork();
    world.recount(&[&process, &children[0], &children[1], &children[2], &grandchild]);
    for ended in [&children[0], &children[1], &children[2]] {
        ended.end();
        assert_eq!((table_bytes(&world, ended), ended.space.rss().pages()), (0, 0));
    }
    world.recount(&[&process, &grandchild]);
    process.end();
    grandchild.write(CPU, near, 12);
    world.recount(&[&grandchild]);
    assert_eq!(grandchild.read(CPU, near), 12);
    // The table that is taken back is shared once more, and counts as any other.
    let last = grandchild.fork();
    world.recount(&[&grandchild, &last]);
    assert_eq!([&grandchild, &last].map(|process| table_bytes(&world, process)), [9 * PAGE_SIZE; 2]);
    TestProcess::end_all_at_rest(&[&grandchild, &last]);
}

/// INV-SHARE-MAKE.
fn a_read_that_finds_no_memory_for_a_missing_table_changes_nothing<I: Isa>() {
    let (world, process, base) = super::parent::<I>(1);
    let far = process.map_at(at(base, 1 << 20), PAGES, Rights::RW, ANON | MapFlags::FIXED | MapFlags::NORESERVE);
    let child = process.fork();
    let state = || {
        let bytes = [&process, &child].map(|process| table_bytes(&world, process));
        (bytes, world.gauge(Gauge::PageTablePages), world.count(Counter::PwTableMadeForAll))
    };
    let before = state();
    for allowed in 0..2 {
        world.lab.sim().fail_allocation_after(allowed, AllocationFailure::All);
        let read = child.touch(CPU, far, Access::Read);
        world.lab.sim().permit_allocations();
        assert!(matches!(read, Err(FaultError::OutOfMemory(_))), "two tables, of which {allowed} can be had");
        assert_eq!(state(), before);
        world.recount(&[&process, &child]);
    }
    assert_eq!(child.read(CPU, far), 0);
    assert_eq!(world.count(Counter::PwTableMadeForAll), 2);
    world.recount(&[&process, &child]);
    TestProcess::end_all_at_rest(&[&process, &child]);
}

/// INV-FAMILY-FLUSH: the sharers owe the flushes of all pages together.
///
/// One child runs on another CPU, with a translation of each page.
fn each_operation_for_a_hundred_sharers_waits_once_for_the_other_cpus<I: Isa>() {
    type Operation<I> = fn(&TestWorld<I>, &TestProcess<I>, &FileHandle<I>);
    let operations: [(&str, Operation<I>, u64); 5] = [
        ("truncation", |world, _, file| world.on(CPU, |mm| mm.truncate(file, 0)).expect("no seals"), 0),
        (
            "a hole",
            |world, _, file| {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                world.on(CPU, |mm| mm.fallocate(file, flags, 0, PAGES * PAGE_SIZE)).expect("no seals");
            },
            0,
        ),
        ("writeback", |world, _, file| world.on(CPU, |mm| mm.write_back(file, 0, u64::MAX)).expect("a device"), PAGES),
        ("page-out", |world, _, _| (0..2).for_each(|_| scan(world)), 0),
        (
            "ageing",
            |world, process, _| world.on(CPU, |mm| mm.clear_refs(&process.space, ClearRefs::All)).expect("no memory"),
            PAGES,
        ),
    ];
    for (name, operation, mapped) in operations {
        let (world, process) = TestProcess::<I>::unjudged();
        world.set(MmSetting::CowPageTables, "always");
        let file = if name == "a hole" { world.shmem(PAGES) } else { world.file_of(DiskFile::default(), PAGES) };
        let base = process.map_file(&file, Rights::RW, MapFlags::SHARED);
        (0..PAGES).for_each(|page| process.write(CPU, at(base, page), page + 1));
        if name == "page-out" {
            world.on(CPU, |mm| mm.write_back(&file, 0, u64::MAX)).expect("a device");
        }
        let family = family(process);
        (0..PAGES).for_each(|page| assert_eq!(family[7].read(OTHER, at(base, page)), page + 1));
        let before = world.count(Counter::NrTlbRemoteFlush);
        operation(&world, &family[0], &file);
        let waits = world.count(Counter::NrTlbRemoteFlush) - before;
        let is_mapped = |page: &u64| world.on(CPU, |mm| recount::leaf(mm, &family[9].space, at(base, *page))).is_some();
        assert_eq!((0..PAGES).filter(is_mapped).count() as u64, mapped, "{name}");
        assert_eq!(waits, u64::from(name != "ageing"), "{name} of {PAGES} pages with {} sharers", family.len());
        assert_eq!(world.count(Counter::PwTableBroken), 0, "no table is copied for {name}");
        world.recount(&family.iter().collect::<Vec<_>>());
        world.on(CPU, |mm| mm.forget_file(&file));
        end(&world, &family);
    }
}

fn a_file_is_truncated_for_all_sharers_of_its_tables<I: Isa>() {
    for flags in [MapFlags::SHARED, MapFlags::PRIVATE] {
        let (world, process) = TestProcess::<I>::unjudged();
        world.set(MmSetting::CowPageTables, "always");
        let file = world.file(PAGES);
        let base = process.map_file(&file, Rights::RW, flags);
        (0..PAGES).for_each(|page| process.write(CPU, at(base, page), page + 1));
        let family = family(process);
        world.on(CPU, |mm| mm.truncate(&file, 4 * pagewright_types::PAGE_SIZE)).expect("no seals");
        assert_eq!(world.count(Counter::PwTableBroken), 0, "no table is copied for it");
        for process in family.iter().step_by(9) {
            assert_eq!(process.read(CPU, at(base, 3)), 4);
            assert!(process.touch(CPU, at(base, 4), Access::Read).is_err(), "SIGBUS");
        }
        world.recount(&family.iter().collect::<Vec<_>>());
        world.on(CPU, |mm| mm.forget_file(&file));
        end(&world, &family);
    }
}
