//! Page tables that parent and child share.
//!
//! What fork touches, what a break copies, and when a table is taken back.

mod calls;
mod ends;
mod families;
mod for_all;
mod lent;
mod peak;
mod pins;
mod races;
mod reasons;

use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::{ANON, CPU, GupCall, OTHER, TestProcess, TestWorld, at};
use pagewright_mm::counters::Gauge;
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_mm::{Advice, FaultError, MapFlags, MmError, MmSetting};
use pagewright_sim::AllocationFailure;
use pagewright_types::{Access, Counter, Errno, PAGE_SIZE, Pfn, Rights, VirtAddr};
use std::rc::Rc;

on_both! {
    a_fork_touches_no_page_and_no_entry_of_one,
    a_store_copies_the_tables_on_its_way_and_no_others,
    a_child_has_its_root_alone_and_the_rest_in_proportion,
    the_parent_gets_its_tables_back_untouched,
    a_child_that_is_left_may_not_store_to_what_the_parent_lent,
    a_mapping_in_a_shared_table_is_flushed_on_other_cpus,
    an_unmap_of_a_shared_table_is_flushed_on_other_cpus,
    a_fork_of_a_fork_shares_what_was_broken,
    fork_shares_tables_for_those_who_asked,
    a_thread_asks_for_all_threads_of_its_process,
    a_fork_of_a_small_space_copies_tables_if_the_setting_is_auto,
    a_table_of_memory_that_a_child_does_not_get_is_not_shared,
    a_fork_that_finds_no_memory_leaves_what_it_has_shared,
    a_store_that_finds_no_memory_for_a_table_changes_nothing,
    a_break_at_the_limit_of_references_changes_nothing,
    a_fork_that_copies_forgets_only_what_is_shared_no_more,
    a_cpu_whose_walk_cache_has_a_pointer_as_it_was_shared_may_store,
}

/// Pages of three last-level tables, one in each.
const PLACES: [u64; 3] = [0, 700, 1500];
const PAGES: u64 = 1536;

/// A process with a page in each of [`PLACES`], whose forks share tables.
fn parent<I: Isa>(cpus: u16) -> (Rc<TestWorld<I>>, TestProcess<I>, VirtAddr) {
    let (world, process) = TestProcess::<I>::judged(cpus);
    world.set(MmSetting::CowPageTables, "always");
    let base = process.map_at(VirtAddr::new(1 << 30), PAGES, Rights::RW, ANON | MapFlags::FIXED | MapFlags::NORESERVE);
    for (value, page) in (1..).zip(PLACES) {
        process.write(CPU, at(base, page), value);
    }
    (world, process, base)
}

/// Forks while only so many allocations succeed; `None` if they are too few.
fn fork_after<I: Isa>(process: &TestProcess<I>, allowed: u64) -> Option<TestProcess<I>> {
    let world = &process.world;
    world.lab.sim().fail_allocation_after(allowed, AllocationFailure::All);
    let child = world.on(CPU, |mm| mm.fork(&process.space));
    world.lab.sim().permit_allocations();
    child.ok().map(|space| TestProcess { world: world.clone(), space })
}

/// The values in [`PLACES`].
fn values<I: Isa>(process: &TestProcess<I>, base: VirtAddr) -> [u64; 3] {
    PLACES.map(|page| process.read(CPU, at(base, page)))
}

fn a_fork_touches_no_page_and_no_entry_of_one<I: Isa>() {
    let (world, process, base) = parent::<I>(2);
    let (tables, refs) = (world.gauge(Gauge::PageTablePages), |page| {
        let pfn = process.frame(CPU, at(base, page), Access::Read);
        world.on(CPU, |mm| mm.tlb().frames().folio(pfn).refs())
    });
    let child = process.fork();
    assert_eq!(world.gauge(Gauge::PageTablePages), tables + 1, "the child has a root");
    assert_eq!((world.count(Counter::PwTableShared), world.count(Counter::PwForkEntries)), (1, 0));
    assert_eq!(PLACES.map(refs), [1; 3], "the table has one reference of each page");
    assert_eq!((values(&process, base), values(&child, base)), ([1, 2, 3], [1, 2, 3]));
    assert_eq!((world.gauge(Gauge::PageTablePages), world.count(Counter::PwTableBroken)), (tables + 1, 0));
    for process in [&process, &child] {
        assert_eq!(process.space.rss().pages(), 3);
        assert_eq!(process.space.table().bytes(), 5 * PAGE_SIZE, "both reach all tables");
    }
    world.recount(&[&process, &child]);
    TestProcess::end_all_at_rest(&[&process, &child]);
}

fn a_store_copies_the_tables_on_its_way_and_no_others<I: Isa>() {
    let (world, process, base) = parent::<I>(2);
    let child = process.fork();
    let tables = world.gauge(Gauge::PageTablePages);
    child.write(CPU, at(base, PLACES[1]), 20);
    assert_eq!(world.gauge(Gauge::PageTablePages), tables + 3, "one table at each level below the root");
    assert_eq!((values(&process, base), values(&child, base)), ([1, 2, 3], [1, 20, 3]));
    process.write(CPU, at(base, PLACES[2]), 30);
    assert_eq!((values(&process, base), values(&child, base)), ([1, 2, 30], [1, 20, 3]));
    child.write(CPU, at(base, PLACES[1] + 1), 21);
    assert_eq!(process.read(CPU, at(base, PLACES[1] + 1)), 0, "the parent does not have the child's new page");
    world.recount(&[&process, &child]);
    TestProcess::end_all_at_rest(&[&process, &child]);
}

/// Of a child of 1 GiB, before it stores anything and after a store in each of three places.
fn a_child_has_its_root_alone_and_the_rest_in_proportion<I: Isa>() {
    const GIB_PAGES: u64 = 1 << 18;
    let (world, process) = TestProcess::<I>::unjudged();
    world.set(MmSetting::CowPageTables, "always");
    let flags = ANON | MapFlags::FIXED | MapFlags::NORESERVE;
    let base = process.map_at(VirtAddr::new(1 << 30), GIB_PAGES, Rights::RW, flags);
    // One page in each table: 512 of the last level, one at each level above.
    (0..512).for_each(|table| process.write(CPU, at(base, 512 * table), table));
    let child = process.fork();
    let bytes = |process: &TestProcess<I>| world.on(CPU, |mm| mm.table_bytes(&process.space));
    let total = || world.gauge(Gauge::PageTablePages) * PAGE_SIZE;
    let (whole, of_child) = (bytes(&process), bytes(&child));
    assert_eq!((of_child.private, of_child.shared), (PAGE_SIZE, 514 * PAGE_SIZE), "the root alone is its own");
    assert_eq!(whole, of_child, "the parent has as much");
    assert_eq!(whole.proportional + of_child.proportional, total());
    for place in [0, 1, 300] {
        child.write(CPU, at(base, 512 * place), 7);
    }
    let (whole, of_child) = (bytes(&process), bytes(&child));
    assert_eq!(of_child.private, 6 * PAGE_SIZE, "the root, one table at two levels, and three of the last");
    assert_eq!(whole.proportional + of_child.proportional, total());
    let mut text = String::new();
    world.on(CPU, |mm| mm.show_page_tables(&mut text)).expect("a string takes everything");
    let lines: Vec<&str> = text.lines().collect();
    let [parents, childs] = [&process, &child].map(|process| {
        let start = format!("{} ", process.space.id().raw());
        lines.iter().find_map(|line| line.strip_prefix(&*start)).expect("a line of the space")
    });
    assert_eq!(childs, format!("24 kB 2036 kB {} kB", of_child.proportional / 1024));
    assert_eq!(
        parents,
        format!("{} kB {} kB {} kB", whole.private / 1024, whole.shared / 1024, whole.proportional / 1024)
    );
    assert!(lines.last().is_some_and(|all| all.ends_with(&format!(" {} kB", total() / 1024))), "{text}");
    child.end();
    process.end();
}

/// INV-SHARE-ORIGIN, of the origin.
fn the_parent_gets_its_tables_back_untouched<I: Isa>() {
    let (world, process, base) = parent::<I>(2);
    let frames = PLACES.map(|page| process.frame(CPU, at(base, page), Access::Read));
    process.fork().end();
    let (copies, faults) = (world.count(Counter::PwCowCopy), world.count(Counter::PgFault));
    PLACES.iter().for_each(|page| process.write(CPU, at(base, *page), 9));
    assert_eq!(PLACES.map(|page| process.frame(CPU, at(base, page), Access::Read)), frames);
    assert_eq!(
        (world.count(Counter::PwCowCopy), world.count(Counter::PgFault)),
        (copies, faults + 1),
        "one fault in all"
    );
    assert_eq!((world.count(Counter::PwTableTakenBack), world.count(Counter::PwTableBroken)), (1, 0));
    world.recount(&[&process]);
    TestProcess::end_all_at_rest(&[&process]);
}

/// INV-TABLE-OWN, of a space that shares tables still when it forks with copies of some.
fn a_fork_that_copies_forgets_only_what_is_shared_no_more<I: Isa>() {
    let (world, process, base) = parent::<I>(2);
    // A fork copies no entries of a mapping that has only the zero page.
    let zeros = process.map_at(VirtAddr::new(1 << 40), 512, Rights::RW, ANON | MapFlags::FIXED);
    assert_eq!(process.read(CPU, zeros), 0);
    let sharing = process.fork();
    world.set(MmSetting::CowPageTables, "never");
    let copied = process.fork();
    assert!(process.space.table().has_shared());
    process.write(CPU, zeros, 30);
    assert_eq!((process.read(CPU, zeros), sharing.read(CPU, zeros), copied.read(CPU, zeros)), (30, 0, 0));
    process.unmap(zeros, 512);
    assert_eq!((values(&process, base), values(&sharing, base)), ([1, 2, 3], [1, 2, 3]));
    world.recount(&[&process, &sharing, &copied]);
    sharing.end();
    copied.end();
    let again = process.fork();
    assert!(!process.space.table().has_shared(), "the next fork need not look");
    assert!(again.space.table().bytes() > 0 && !again.space.table().ever_shared());
    world.recount(&[&process, &again]);
    TestProcess::end_all_at_rest(&[&process, &again]);
}

/// A fork that copies takes tables back; its flush of one page leaves the pointers in walk caches.
fn a_cpu_whose_walk_cache_has_a_pointer_as_it_was_shared_may_store<I: Isa>() {
    let (world, process) = TestProcess::<I>::judged(2);
    world.set(MmSetting::CowPageTables, "always");
    let page = process.anon(1);
    process.write(CPU, page, 1);
    let child = process.fork();
    assert_eq!(process.read(OTHER, page), 1, "a CPU with walk caches");
    child.end();
    world.set(MmSetting::CowPageTables, "never");
    process.fork().end();
    assert!(!process.space.table().has_shared() && process.space.table().ever_shared());
    process.write(OTHER, page, 9);
    assert_eq!(process.read(CPU, page), 9);
    world.recount(&[&process]);
    TestProcess::end_all_at_rest(&[&process]);
}

/// INV-SHARE-ORIGIN, of another space: the page that the parent has lent has a reader.
fn a_child_that_is_left_may_not_store_to_what_the_parent_lent<I: Isa>() {
    let (world, process, base) = parent::<I>(2);
    let lent = process.take(CPU, at(base, 0), 1, GupCall::Get(GupFlags::empty())).expect("a page");
    let child = process.fork();
    process.end();
    child.write(CPU, at(base, 0), 50);
    assert_eq!(lent.read(0), 1, "the reader has the page as it was");
    assert!(world.count(Counter::PwTableTakenBack) > 0 && world.count(Counter::PwTableBroken) == 0);
    lent.release(MakeDirty::No);
    assert_eq!(values(&child, base), [50, 2, 3]);
    world.recount(&[&child]);
    TestProcess::end_all_at_rest(&[&child]);
}

/// INV-SHARE-LEAVE: the break for the mapping, with no flush of a page after it.
fn a_mapping_in_a_shared_table_is_flushed_on_other_cpus<I: Isa>() {
    let (world, process, base) = parent::<I>(2);
    let child = process.fork();
    assert_eq!(PLACES.map(|page| process.read(OTHER, at(base, page))), [1, 2, 3], "a CPU with walk caches");
    process.map_at(at(base, PAGES), 1, Rights::RW, ANON | MapFlags::FIXED);
    assert!(world.count(Counter::PwTableBroken) > 0);
    child.end();
    // New pages take the frames of the tables that were freed.
    let another = TestProcess::new(&world);
    let new = another.anon(64);
    (0..64).for_each(|page| another.write(CPU, at(new, page), page));
    assert_eq!(PLACES.map(|page| process.read(OTHER, at(base, page))), [1, 2, 3]);
    world.recount(&[&process, &another]);
    TestProcess::end_all_at_rest(&[&process, &another]);
}

/// INV-SHARE-LEAVE: the table is left, so no entry is cleared that would be flushed.
fn an_unmap_of_a_shared_table_is_flushed_on_other_cpus<I: Isa>() {
    let (world, process, base) = parent::<I>(2);
    let child = process.fork();
    // The break for the first unmap flushes; the second unmap breaks nothing.
    process.unmap(base, 512);
    assert_eq!(process.read(OTHER, at(base, PLACES[1])), 2, "a CPU with translations");
    process.unmap(at(base, 512), 512);
    assert!(world.count(Counter::PwTableLeft) > 0);
    assert!(process.touch(OTHER, at(base, PLACES[1]), Access::Read).is_err(), "nothing is mapped there");
    assert_eq!(values(&child, base), [1, 2, 3]);
    world.recount(&[&process, &child]);
    TestProcess::end_all_at_rest(&[&process, &child]);
}

/// INV-SHARE-LEAVE.
fn a_fork_of_a_fork_shares_what_was_broken<I: Isa>() {
    let (world, process, base) = parent::<I>(2);
    let mut family = vec![process];
    for value in 10..20 {
        let child = family[family.len() - 1].fork();
        child.write(CPU, at(base, PLACES[value as usize % 3]), value);
        family.push(child);
    }
    let mut expected = [1, 2, 3];
    for (value, process) in (9..).zip(&family) {
        if value >= 10 {
            expected[value as usize % 3] = value;
        }
        assert_eq!(values(process, base), expected, "generation {value}");
    }
    world.recount(&family.iter().collect::<Vec<_>>());
    // From the middle outwards: each is the last sharer of something.
    for index in [5, 4, 6, 0, 10, 1, 9, 2, 8, 3] {
        family[index].end();
    }
    assert_eq!(values(&family[7], base), [15, 16, 14]);
    family[7].write(CPU, at(base, PLACES[0]), 99);
    world.recount(&[&family[7]]);
    TestProcess::end_all_at_rest(&[&family[7]]);
    world.assert_nothing_leaked();
}

/// `prctl(PR_SET_COW_PTE)`: inherited, and a second call is refused.
fn fork_shares_tables_for_those_who_asked<I: Isa>() {
    let (world, process, base) = parent::<I>(1);
    world.set(MmSetting::CowPageTables, "prctl");
    let classic = process.fork();
    assert_eq!(world.count(Counter::PwTableShared), 0);
    let ask = |process: &TestProcess<I>| world.on(CPU, |mm| mm.set_cow_page_tables(&process.space));
    assert_eq!((ask(&process), ask(&process)), (Ok(()), Err(MmError::AlreadySet)));
    assert_eq!(MmError::AlreadySet.errno(), Errno::EINVAL);
    let child = process.fork();
    assert_eq!(world.count(Counter::PwTableShared), 1);
    assert_eq!(ask(&child), Err(MmError::AlreadySet));
    let grandchild = child.fork();
    assert_eq!(world.count(Counter::PwTableShared), 2);
    world.set(MmSetting::CowPageTables, "never");
    let copied = grandchild.fork();
    assert_eq!((world.count(Counter::PwTableShared), values(&copied, base)), (2, [1, 2, 3]));
    let all = [&process, &classic, &child, &grandchild, &copied];
    world.recount(&all);
    TestProcess::end_all_at_rest(&all);
}

/// A thread is a CPU that runs the space: what one asks holds for the forks of another.
fn a_thread_asks_for_all_threads_of_its_process<I: Isa>() {
    for [asking, forking] in [[CPU, OTHER], [OTHER, CPU], [OTHER, OTHER]] {
        let (world, process, base) = parent::<I>(2);
        world.set(MmSetting::CowPageTables, "prctl");
        world.lab.run(OTHER, &process.space);
        let before = world.on(forking, |mm| mm.fork(&process.space)).expect("memory");
        let counts = || [Counter::PwTableShared, Counter::PwTableCopiedUnasked].map(|counter| world.count(counter));
        assert_eq!(counts(), [0, 3], "no thread has asked");
        let ask = |cpu| world.on(cpu, |mm| mm.set_cow_page_tables(&process.space));
        assert_eq!((ask(asking), ask(forking)), (Ok(()), Err(MmError::AlreadySet)));
        let after = world.on(forking, |mm| mm.fork(&process.space)).expect("memory");
        assert_eq!(counts(), [1, 3], "the tables, by one pointer");
        let children = [before, after].map(|space| TestProcess { world: world.clone(), space });
        process.write(OTHER, at(base, PLACES[1]), 20);
        assert_eq!(children.each_ref().map(|child| values(child, base)), [[1, 2, 3]; 2]);
        let all = [&process, &children[0], &children[1]];
        world.recount(&all);
        TestProcess::end_all_at_rest(&all);
    }
}

/// `auto`: by the pages and the tables of the space.
fn a_fork_of_a_small_space_copies_tables_if_the_setting_is_auto<I: Isa>() {
    let (world, process, base) = parent::<I>(1);
    world.set(MmSetting::CowPageTables, "auto");
    let shared = |process: &TestProcess<I>| {
        let before = world.count(Counter::PwTableShared);
        process.fork().end();
        world.count(Counter::PwTableShared) - before
    };
    assert_eq!((shared(&process), values(&process, base)), (0, [1, 2, 3]), "three pages in five tables");
    (0..317).for_each(|page| process.write(CPU, at(base, page), page));
    assert_eq!(shared(&process), 0, "319 pages");
    process.write(CPU, at(base, 317), 7);
    assert_eq!(shared(&process), 1, "320 pages");
    world.swap_to(256);
    process.advise(base, 100, Advice::PageOut);
    assert_eq!(process.space.rss().swapped(), 100);
    assert_eq!(shared(&process), 1, "220 pages, and 100 in swap");
    process.unmap(at(base, 158), 160);
    assert_eq!(shared(&process), 1, "160 pages, and tables that were shared");
    process.unmap(at(base, 157), 1);
    assert_eq!(shared(&process), 0, "159 pages");
    process.unmap(at(base, 0), PAGES);
    assert_eq!(shared(&process), 0, "no tables at all");
    let (world, sparse) = TestProcess::<I>::judged(1);
    world.set(MmSetting::CowPageTables, "auto");
    let base =
        sparse.map_at(VirtAddr::new(1 << 30), 512 * 14, Rights::RW, ANON | MapFlags::FIXED | MapFlags::NORESERVE);
    (0..14).for_each(|table| sparse.write(CPU, at(base, 512 * table), table));
    assert_eq!(world.count(Counter::PwTableShared), 0);
    sparse.fork().end();
    assert_eq!(world.count(Counter::PwTableShared), 1, "14 pages in 16 tables");
    TestProcess::end_all_at_rest(&[&sparse]);
    TestProcess::end_all_at_rest(&[&process]);
}

#[cfg(feature = "planted")]
#[test]
fn a_space_at_the_limit_that_changes_its_mind_is_found() {
    use pagewright_arch::{Aarch64, X86_64};
    use pagewright_plant::{PlantedBug, assert_found_by};
    let bug = PlantedBug::AutoChangesItsMind;
    assert_found_by(bug, a_fork_of_a_small_space_copies_tables_if_the_setting_is_auto::<X86_64>);
    assert_found_by(bug, a_fork_of_a_small_space_copies_tables_if_the_setting_is_auto::<Aarch64>);
}

fn a_table_of_memory_that_a_child_does_not_get_is_not_shared<I: Isa>() {
    for advice in [Advice::DontFork, Advice::WipeOnFork] {
        let (world, process, base) = parent::<I>(2);
        process.advise(at(base, PLACES[1]), 1, advice);
        let child = process.fork();
        assert_eq!(world.count(Counter::PwTableShared), 2, "the tables before and after");
        assert_eq!((child.read(CPU, at(base, 0)), child.read(CPU, at(base, PLACES[2]))), (1, 3));
        match advice {
            Advice::WipeOnFork => assert_eq!(child.read(CPU, at(base, PLACES[1])), 0),
            _ => assert!(child.touch(CPU, at(base, PLACES[1]), Access::Read).is_err()),
        }
        assert_eq!(process.read(CPU, at(base, PLACES[1])), 2);
        world.recount(&[&process, &child]);
        TestProcess::end_all_at_rest(&[&process, &child]);
    }
}

/// The tables that it had shared have shared tables below them, which count once.
fn a_fork_that_finds_no_memory_leaves_what_it_has_shared<I: Isa>() {
    let (world, process, base) = parent::<I>(2);
    let alone = process.map_at(VirtAddr::new(3 << 30), 1, Rights::RW, ANON | MapFlags::FIXED);
    process.write(CPU, alone, 9);
    process.advise(alone, 1, Advice::WipeOnFork);
    let first = process.fork();
    process.write(CPU, at(base, PLACES[0]), 4);
    let tables = world.gauge(Gauge::PageTablePages);
    let child = (0..).find_map(|allowed| {
        let child = fork_after(&process, allowed);
        if child.is_none() {
            world.recount(&[&process, &first]);
            assert_eq!(world.gauge(Gauge::PageTablePages), tables, "allocation {allowed} fails");
        }
        Some((allowed, child?))
    });
    let (allowed, child) = child.expect("memory in the end");
    assert!(allowed > 2, "the fork allocates at least three tables");
    assert_eq!([&process, &first, &child].map(|of| values(of, base)), [[4, 2, 3], [1, 2, 3], [4, 2, 3]]);
    TestProcess::end_all_at_rest(&[&process, &first, &child]);
}

/// INV-SHARE-ATOMIC.
fn a_store_that_finds_no_memory_for_a_table_changes_nothing<I: Isa>() {
    let (world, process, base) = parent::<I>(2);
    let child = process.fork();
    for allowed in 0..4 {
        world.lab.sim().fail_allocation_after(allowed, AllocationFailure::All);
        let stored = child.touch(CPU, at(base, 0), Access::Write);
        world.lab.sim().permit_allocations();
        assert!(stored.is_err(), "three tables and a page, of which {allowed} can be had");
        assert_eq!((values(&process, base), values(&child, base)), ([1, 2, 3], [1, 2, 3]));
        world.recount(&[&process, &child]);
    }
    child.write(CPU, at(base, 0), 10);
    assert_eq!((values(&process, base), values(&child, base)), ([1, 2, 3], [10, 2, 3]));
    TestProcess::end_all_at_rest(&[&process, &child]);
}

/// A page that has as many references as entries may have.
struct AtTheLimit<I: Isa> {
    world: Rc<TestWorld<I>>,
    pfn: Pfn,
    /// The references without those of the test.
    known: u32,
}

impl<I: Isa> AtTheLimit<I> {
    const MOST: u32 = 3 << 30;

    fn begin(world: &Rc<TestWorld<I>>, pfn: Pfn) -> Self {
        let known = world.on(CPU, |mm| mm.tlb().frames().folio(pfn).refs());
        world.on(CPU, |mm| mm.tlb().frames().folio(pfn).get_raw(Self::MOST - known));
        Self { world: Rc::clone(world), pfn, known }
    }

    /// Drops the references of the test; there are no others but those of before.
    fn end(self) {
        let thawed = self
            .world
            .on(CPU, |mm| mm.tlb().frames().folio(self.pfn).freeze(Self::MOST).map(|frozen| frozen.thaw(self.known)));
        thawed.expect("no other references");
    }
}

/// INV-SHARE-ATOMIC: a page on the way has as many references as entries may have.
///
/// Of the pages before it, one is in swap and one is the zero page: the copy that is given up has
/// counted the slot, and nothing of the zero page.
fn a_break_at_the_limit_of_references_changes_nothing<I: Isa>() {
    let (world, process, base) = parent::<I>(2);
    let device = world.swap_to(8);
    (1..=2).for_each(|page| process.write(CPU, at(base, page), 7 + page));
    process.advise(at(base, 1), 1, Advice::PageOut);
    assert_eq!(device.used(), 1);
    assert_eq!(process.read(CPU, at(base, 3)), 0, "the zero page");
    process.write(CPU, at(base, 4), 9);
    let child = process.fork();
    let pfn = process.frame(CPU, at(base, 4), Access::Read);
    let full = AtTheLimit::begin(&world, pfn);
    let tables = world.gauge(Gauge::PageTablePages);
    let refused = FaultError::TooManyHolders { va: at(base, 4) };
    for process in [&process, &child] {
        assert_eq!(process.touch(CPU, base, Access::Write), Err(refused));
        assert_eq!((process.read(CPU, at(base, 4)), values(process, base)), (9, [1, 2, 3]));
    }
    assert_eq!(world.gauge(Gauge::PageTablePages), tables);
    full.end();
    world.recount(&[&process, &child]);
    child.write(CPU, base, 10);
    assert_eq!((values(&process, base)[0], values(&child, base)[0]), (1, 10), "below the limit again");
    world.recount(&[&process, &child]);
    TestProcess::end_all_at_rest(&[&process, &child]);
    assert_eq!(device.used(), 0);
}
