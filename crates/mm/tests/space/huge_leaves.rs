//! Huge pages under the calls of the memory manager: split where a call cuts them, else whole.
//!
//! Not covered: huge pages of files.

use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::race::{assert_holds, race, race_in_two_turns};
use pagewright_lab::harness::{CPU, GupCall, OTHER, TestProcess, TestWorld, at};
use pagewright_lab::planted_bugs_are_found;
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_mm::{Advice, MapFlags, MmSetting, RemapFlags, RemapRequest};
use pagewright_sim::explore::CoroutineBody;
use pagewright_types::{Access, Counter, Level, LruList, NodeId, Order, PAGE_SIZE, Rights, VirtAddr};
use std::cell::Cell;
use std::rc::Rc;

/// Aligned to 1 GiB.
const BASE: VirtAddr = VirtAddr::new(64 << 30);
const SPAN: u64 = 2 << 20;
/// The address of the huge leaf.
const HUGE: VirtAddr = VirtAddr::new((64 << 30) + SPAN);
const PAGES: u64 = SPAN / PAGE_SIZE;
const SCHEDULES: u64 = 60;
const NODE: NodeId = NodeId::new(0);
/// Pages of the huge leaf that have contents.
const WRITTEN: [u64; 6] = [0, 1, 7, 100, 255, 511];

on_both! {
    a_call_on_a_part_splits_the_huge_leaf_and_changes_that_part,
    a_call_on_all_of_it_leaves_a_huge_leaf_whole,
    fork_shares_a_huge_leaf_and_copies_a_pinned_one,
    a_fork_of_a_pinned_huge_leaf_needs_no_free_block,
    a_table_is_shared_again_once_its_huge_pages_are_gone,
    what_is_discarded_beside_a_split_does_not_come_back:
        assert_holds(SCHEDULES, split_beside_a_discard::<I>, "a discarded page has its old contents"),
    what_is_beside_a_huge_page_is_shared,
    a_pin_for_reading_splits_a_huge_leaf_only_if_it_is_shared,
    a_huge_leaf_moves_whole_or_is_split,
    a_page_out_takes_the_pages_of_a_huge_leaf,
    a_huge_leaf_counts_as_used_once_however_many_of_its_pages_were,
    /// INV-MM-PEAK.
    the_peak_counts_pages_that_are_mapped_beside_an_unmap:
        assert_holds(SCHEDULES, peak_beside_an_unmap::<I>, "VmHWM is below a VmRSS that was seen"),
}

fn mapped<I: Isa>() -> (Rc<TestWorld<I>>, TestProcess<I>) {
    let world = TestWorld::sized(2, 16 << 20);
    let process = TestProcess::new(&world);
    let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
    process.map_at(BASE, 4 * PAGES, Rights::RW, flags);
    process.write(CPU, BASE, 1);
    process.map_huge(HUGE);
    WRITTEN.iter().for_each(|page| process.write(CPU, at(HUGE, *page), page + 1));
    assert_eq!(process.leaf_level(at(HUGE, 7)), Some(Level::PMD));
    world.recount(&[&process]);
    (world, process)
}

/// The tables of the last level beside it, and below the copy of the one above.
fn what_is_beside_a_huge_page_is_shared<I: Isa>() {
    let (world, process) = mapped::<I>();
    world.set(MmSetting::CowPageTables, "always");
    let pages = [BASE, at(BASE, 2 * PAGES), at(BASE, 3 * PAGES)];
    pages.iter().for_each(|va| process.write(CPU, *va, va.raw()));
    let child = process.fork();
    assert_eq!((world.count(Counter::PwTableShared), world.count(Counter::PwTableCopiedHuge)), (3, 1));
    for stores in pages {
        child.write(CPU, stores, 5);
        let expected = |va: VirtAddr| if va <= stores { 5 } else { va.raw() };
        pages.iter().for_each(|va| assert_eq!(child.read(CPU, *va), expected(*va), "{va} after a store to {stores}"));
    }
    pages.iter().for_each(|va| assert_eq!(process.read(CPU, *va), va.raw()));
    assert!(holds(&child, HUGE, |_| true) && holds(&process, HUGE, |_| true));
    end(&world, &[&process, &child]);
}

/// One CPU discards a huge leaf while another maps one.
///
/// Returns whether the peak is at least what the second saw, but for what one CPU may not have
/// added to the total.
fn peak_beside_an_unmap<I: Isa>(seed: u64) -> bool {
    let (world, process) = mapped::<I>();
    world.bench.sim().unbind_judge();
    // Under another table, whose lock is free.
    let near = BASE.add(1 << 30);
    process.map_at(near, 2 * PAGES, Rights::RW, MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE);
    process.write(CPU, near, 1);
    world.lab.run(OTHER, &process.space);
    let (discards, maps) = (world.clone(), TestProcess { world: world.clone(), space: process.space.clone() });
    let (space, seen) = (process.space.clone(), Rc::new(Cell::new(0)));
    let saw = seen.clone();
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || {
            maps.write(CPU, near, 1);
            maps.map_huge(near.add(SPAN));
            saw.set(maps.space.rss().bytes());
        }),
        Box::new(move || discards.advise(OTHER, &space, HUGE, PAGES, Advice::DontNeed)),
    ];
    race_in_two_turns(&world, seed, programs);
    process.space.rss().peak_bytes() + 31 * PAGE_SIZE >= seen.get()
}

planted_bugs_are_found! {
    50 * SCHEDULES;
    PeakReadEarly => peak_beside_an_unmap,
    SplitLeavesGap => split_beside_a_discard,
}

/// Whether the pages that were written and `still` are have their values at `base`.
fn holds<I: Isa>(process: &TestProcess<I>, base: VirtAddr, still: impl Fn(u64) -> bool) -> bool {
    WRITTEN.iter().filter(|page| still(**page)).all(|page| process.read(OTHER, at(base, *page)) == page + 1)
}

fn end<I: Isa>(world: &TestWorld<I>, processes: &[&TestProcess<I>]) {
    world.recount(processes);
    TestProcess::end_all_at_rest(processes);
    world.assert_nothing_leaked();
}

/// INV-MM-HUGE-CUT.
fn a_call_on_a_part_splits_the_huge_leaf_and_changes_that_part<I: Isa>() {
    let inside = |page: u64| (7..107).contains(&page);
    let (part, pages) = (at(HUGE, 7), 100);
    let (world, process) = mapped::<I>();
    process.protect(part, pages, Rights::READ);
    world.at_rest(&[]);
    assert_eq!(process.leaf_level(HUGE), Some(Level::PTE));
    assert!(holds(&process, HUGE, |_| true));
    for page in WRITTEN {
        assert_eq!(process.touch(OTHER, at(HUGE, page), Access::Write).is_err(), inside(page), "page {page}");
    }
    end(&world, &[&process]);

    let (world, process) = mapped::<I>();
    process.unmap(part, pages);
    world.at_rest(&[]);
    assert!(holds(&process, HUGE, |page| !inside(page)));
    assert!(process.touch(OTHER, part, Access::Read).is_err());
    assert_eq!(process.space.rss().pages(), 1 + PAGES - pages);
    end(&world, &[&process]);

    let (world, process) = mapped::<I>();
    process.advise(part, pages, Advice::DontNeed);
    world.at_rest(&[]);
    assert!(holds(&process, HUGE, |page| !inside(page)));
    assert_eq!(process.read(OTHER, part), 0, "a new page");
    end(&world, &[&process]);
}

fn a_call_on_all_of_it_leaves_a_huge_leaf_whole<I: Isa>() {
    let (world, process) = mapped::<I>();
    process.protect(HUGE, PAGES, Rights::READ);
    assert_eq!(process.leaf_level(HUGE), Some(Level::PMD));
    assert!(process.touch(OTHER, at(HUGE, 7), Access::Write).is_err() && holds(&process, HUGE, |_| true));
    process.protect(HUGE, PAGES, Rights::RW);
    process.write(OTHER, at(HUGE, 7), 8);
    assert_eq!(process.leaf_level(HUGE), Some(Level::PMD));
    process.unmap(HUGE, PAGES);
    assert_eq!((process.leaf_level(HUGE), process.space.rss().pages()), (None, 1));
    end(&world, &[&process]);
}

/// INV-GUP-EXCLUSIVE: the child gets a copy of a pinned huge leaf; the parent's stays exclusive.
fn fork_shares_a_huge_leaf_and_copies_a_pinned_one<I: Isa>() {
    let (world, process) = mapped::<I>();
    let child = process.fork();
    world.at_rest(&[]);
    assert_eq!((child.leaf_level(HUGE), process.leaf_level(HUGE)), (Some(Level::PMD), Some(Level::PMD)));
    assert_eq!(process.frame(CPU, at(HUGE, 7), Access::Read), child.frame(OTHER, at(HUGE, 7), Access::Read));
    assert!(holds(&child, HUGE, |_| true));
    child.write(OTHER, at(HUGE, 7), 99);
    assert_eq!((child.leaf_level(HUGE), process.leaf_level(HUGE)), (Some(Level::PTE), Some(Level::PMD)));
    assert!(holds(&process, HUGE, |_| true) && holds(&child, HUGE, |page| page != 7));
    process.write(CPU, at(HUGE, 8), 9);
    assert_eq!((child.read(OTHER, at(HUGE, 7)), child.read(OTHER, at(HUGE, 8))), (99, 0));
    end(&world, &[&process, &child]);

    let (world, process) = mapped::<I>();
    let device = process.take(CPU, at(HUGE, 7), 1, GupCall::Pin(GupFlags::WRITE)).expect("mapped");
    let child = process.fork();
    assert_eq!([&child, &process].map(|one| one.leaf_level(HUGE)), [Some(Level::PTE); 2], "page by page");
    let ours = process.frame(CPU, at(HUGE, 7), Access::Write);
    assert_eq!(ours, device.pfn(0), "the parent stores where the device does");
    assert_ne!(child.frame(OTHER, at(HUGE, 7), Access::Read), ours);
    process.write(CPU, at(HUGE, 7), 99);
    world.at_rest(&[&device]);
    assert!(holds(&child, HUGE, |_| true), "the child has what the huge page contained");
    process.write(CPU, at(HUGE, 7), 8);
    device.release(MakeDirty::Yes);
    end(&world, &[&process, &child]);
}

/// INV-FORK-HUGE: the copies are single frames, of which there are enough, and no block is free.
fn a_fork_of_a_pinned_huge_leaf_needs_no_free_block<I: Isa>() {
    let (world, process) = mapped::<I>();
    world.set(MmSetting::CowPageTables, "never");
    // Every second frame of the rest is free.
    let singles = process.anon(4096);
    let used =
        (0..4096).take_while(|page| process.touch(CPU, at(singles, *page), Access::Write).is_ok()).count() as u64;
    (0..used / 2).for_each(|page| process.unmap(at(singles, 2 * page), 1));
    let block = world.on(CPU, |mm| mm.tlb().alloc(mm.tlb().request(Order::PMD)));
    assert!(block.is_err() && world.on(CPU, |mm| mm.tlb().frames().available()) > 1000, "free frames, and no block");
    let device = process.take(CPU, at(HUGE, 7), 1, GupCall::Pin(GupFlags::WRITE)).expect("mapped");
    let child = process.fork();
    process.write(CPU, at(HUGE, 7), 99);
    assert_eq!((device.read(0), child.read(OTHER, at(HUGE, 7))), (99, 8));
    assert!(holds(&child, HUGE, |_| true));
    device.release(MakeDirty::Yes);
    end(&world, &[&process, &child]);
}

/// INV-HUGE-OWN: the first fork after that removes the marks, and the next shares.
fn a_table_is_shared_again_once_its_huge_pages_are_gone<I: Isa>() {
    let (world, process) = mapped::<I>();
    world.set(MmSetting::CowPageTables, "always");
    let copied = || {
        let entries = world.count(Counter::PwForkEntries);
        process.fork().end();
        world.count(Counter::PwForkEntries) - entries
    };
    assert_eq!([copied(), copied()], [1; 2], "the huge page, and nothing of the table beside it");
    process.unmap(HUGE, PAGES);
    let shared = world.count(Counter::PwTableShared);
    assert_eq!(copied(), 0);
    assert_eq!(copied(), 0);
    assert_eq!(world.count(Counter::PwTableShared) - shared, 2, "a table each");
    end(&world, &[&process]);
}

/// A store splits a huge leaf that a fork has shared, while another thread discards all of it.
///
/// INV-SPLIT-HIDDEN: afterwards each page is empty, or has the store that came after the discard.
fn split_beside_a_discard<I: Isa>(seed: u64) -> bool {
    let (world, process) = mapped::<I>();
    world.set(MmSetting::CowPageTables, "never");
    let child = process.fork();
    world.lab.run(CPU, &process.space);
    world.lab.run(OTHER, &process.space);
    let (stored, discarded) = (process.space.clone(), process.space.clone());
    let [stores, discards] = [(); 2].map(|()| Rc::clone(&world));
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || stores.store(CPU, &stored, at(HUGE, 1), 50)),
        Box::new(move || discards.advise(OTHER, &discarded, HUGE, PAGES, Advice::DontNeed)),
    ];
    if seed.is_multiple_of(2) {
        race(&world, seed, programs)
    } else {
        race_in_two_turns(&world, seed, programs)
    }
    let sound = WRITTEN.iter().all(|page| {
        let value = process.read(CPU, at(HUGE, *page));
        value == 0 || *page == 1 && value == 50
    });
    let sound = sound && holds(&child, HUGE, |_| true);
    end(&world, &[&process, &child]);
    sound
}

/// INV-GUP-EXCLUSIVE: a reference may be on a page that others have, a pin may not.
fn a_pin_for_reading_splits_a_huge_leaf_only_if_it_is_shared<I: Isa>() {
    let none = GupFlags::empty();
    for (call, split) in
        [(GupCall::Get(none), false), (GupCall::Pin(none), true), (GupCall::Pin(GupFlags::LONGTERM), true)]
    {
        let (world, process) = mapped::<I>();
        process.take(CPU, at(HUGE, 7), 1, call).expect("mapped").release(MakeDirty::No);
        assert_eq!(process.leaf_level(HUGE), Some(Level::PMD), "{call:?}");
        let child = process.fork();
        let device = child.take(OTHER, at(HUGE, 7), 1, call).expect("mapped");
        let level = if split { Level::PTE } else { Level::PMD };
        assert_eq!((child.leaf_level(HUGE), process.leaf_level(HUGE)), (Some(level), Some(Level::PMD)), "{call:?}");
        process.write(CPU, at(HUGE, 7), 99);
        assert_eq!(device.read(0), 8, "{call:?}: the parent stores to its own page");
        if split {
            child.write(OTHER, at(HUGE, 7), 77);
            assert_eq!(device.read(0), 77, "{call:?}");
        }
        device.release(MakeDirty::No);
        end(&world, &[&process, &child]);
    }
}

fn a_huge_leaf_moves_whole_or_is_split<I: Isa>() {
    for (to, level) in [(BASE.add(1 << 30), Level::PMD), (BASE.add((1 << 30) + PAGE_SIZE), Level::PTE)] {
        let (world, process) = mapped::<I>();
        let len = 4 * SPAN;
        let flags = RemapFlags::MAYMOVE | RemapFlags::FIXED;
        let request = RemapRequest { addr: BASE, old_len: len, new_len: len, flags, new_addr: to };
        world.on(CPU, |mm| mm.mremap(&process.space, &request)).expect("nothing is in the way");
        world.at_rest(&[]);
        assert_eq!(process.leaf_level(to.add(SPAN)), Some(level));
        assert!(process.touch(OTHER, HUGE, Access::Read).is_err());
        assert!(holds(&process, to.add(SPAN), |_| true));
        end(&world, &[&process]);
    }
}

/// INV-RECLAIM-SMALL.
fn a_page_out_takes_the_pages_of_a_huge_leaf<I: Isa>() {
    let (world, process) = mapped::<I>();
    let device = world.swap_to(2 * PAGES as u32);
    process.advise(BASE, 4 * PAGES, Advice::PageOut);
    assert_eq!((world.count(Counter::PswpOut), process.leaf_level(BASE)), (1 + PAGES, None));
    assert_eq!((process.leaf_level(HUGE), process.space.rss().pages()), (None, 0));
    assert!(holds(&process, HUGE, |_| true));
    world.recount(&[&process]);
    TestProcess::end_all_at_rest(&[&process]);
    assert_eq!(device.used(), 0);
}

/// `folio_referenced_one`: pages that were all used, each through an entry of its own.
fn a_huge_leaf_counts_as_used_once_however_many_of_its_pages_were<I: Isa>() {
    let (world, process) = mapped::<I>();
    world.swap_to(16);
    // Split, and one mapping again.
    [Rights::READ, Rights::RW].iter().for_each(|rights| process.protect(at(HUGE, 7), 1, *rights));
    assert_eq!((process.leaf_level(HUGE), process.mappings()), (Some(Level::PTE), 1));
    assert!(holds(&process, HUGE, |_| true));
    let active = || world.on(CPU, |mm| mm.tlb().frames().lru_pages(NODE, LruList::ActiveAnon));
    assert_eq!(active(), 0);
    assert_eq!(world.on(CPU, |mm| mm.reclaim(NODE, 1)), 1, "the small page");
    assert!(world.count(Counter::PgScanProactive) >= PAGES, "the huge page was scanned");
    assert_eq!((active(), world.count(Counter::PgActivate)), (0, 0));
    world.recount(&[&process]);
    TestProcess::end_all_at_rest(&[&process]);
}
