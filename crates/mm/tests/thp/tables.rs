//! What the tables above huge leaves keep: deposits, and the marks that fork reads.

use super::{BASE, PAGES, SPAN, end};
use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::{ANON, CPU, GupCall, OTHER, TestProcess, TestWorld, at};
use pagewright_lab::planted_bugs_are_found;
use pagewright_mm::counters::Gauge;
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_mm::{Advice, MapFlags, MmSetting, RemapFlags, RemapRequest};
use pagewright_types::{Counter, Level, Rights, VirtAddr};
use std::rc::Rc;

on_both! {
    /// INV-HUGE-DEPOSIT.
    a_deposit_goes_with_its_leaf: assert!(removed::<I>(0)),
    /// INV-HUGE-DEPOSIT.
    a_huge_page_is_split_where_it_has_moved: assert!(moved_then_split::<I>(0)),
    /// INV-MM-HUGE-CUT.
    a_discard_of_a_part_leaves_the_rest,
    /// INV-HUGE-OWN.
    a_huge_page_is_copied_by_fork: assert!(forked::<I>(0)),
    /// INV-HUGE-OWN.
    a_huge_page_is_copied_by_fork_where_its_table_has_moved: assert!(moved_then_forked::<I>(0)),
    /// INV-FORK-HUGE.
    fork_splits_a_pinned_huge_page_and_copies_the_next: assert!(forked_while_pinned::<I>(0)),
    /// INV-FORK-HUGE.
    fork_copies_the_huge_pages_beside_a_pinned_one: assert!(forked_beside_pinned::<I>(0)),
    a_huge_page_is_one_entry_where_the_setting_of_shared_tables_is_auto,
}

const GIB: u64 = 1 << 30;

/// A process with a huge page whose page 7 has its number, and a small page beside it.
fn huge<I: Isa>() -> (Rc<TestWorld<I>>, TestProcess<I>) {
    let world = TestWorld::sized(2, 16 << 20);
    world.set(MmSetting::CowPageTables, "always");
    let process = TestProcess::new(&world);
    process.map_at(BASE, GIB / SPAN * PAGES, Rights::RW, ANON | MapFlags::FIXED | MapFlags::NORESERVE);
    process.write(CPU, BASE.add(SPAN), 1);
    process.map_huge(BASE);
    process.write(CPU, at(BASE, 7), 7);
    (world, process)
}

/// Tables are shared from 320 entries or 16 tables on.
fn a_huge_page_is_one_entry_where_the_setting_of_shared_tables_is_auto<I: Isa>() {
    const HUGE: u64 = 14;
    let world = TestWorld::<I>::sized(2, 40 << 20);
    world.set(MmSetting::CowPageTables, "auto");
    let process = TestProcess::new(&world);
    process.map_at(BASE, GIB / SPAN * PAGES, Rights::RW, ANON | MapFlags::FIXED | MapFlags::NORESERVE);
    (0..HUGE).for_each(|page| process.map_huge(BASE.add(page * SPAN)));
    let small = BASE.add(HUGE * SPAN);
    let shared = |pages: u64| {
        (0..pages).for_each(|page| process.write(CPU, at(small, page), page));
        process.fork().end();
        world.count(Counter::PwTableShared)
    };
    assert_eq!(shared(319 - HUGE), 0, "319 entries, and 4 tables with 14 deposits");
    assert_eq!(shared(320 - HUGE), 1, "the table of small pages");
    end(&world, &[&process]);
}

fn remap<I: Isa>(process: &TestProcess<I>, len: u64, to: VirtAddr) {
    let flags = RemapFlags::MAYMOVE | RemapFlags::FIXED;
    let request = RemapRequest { addr: BASE, old_len: len, new_len: len, flags, new_addr: to };
    process.world.on(CPU, |mm| mm.mremap(&process.space, &request)).expect("nothing is in the way");
}

fn removed<I: Isa>(_seed: u64) -> bool {
    let (world, process) = huge::<I>();
    let before = world.gauge(Gauge::PageTablePages);
    process.unmap(BASE, PAGES);
    let sound = (before - world.gauge(Gauge::PageTablePages), process.space.table().deposits()) == (1, 0);
    end(&world, &[&process]);
    sound
}

fn moved_then_split<I: Isa>(_seed: u64) -> bool {
    let (world, process) = huge::<I>();
    let to = BASE.add(4 * GIB);
    remap(&process, SPAN, to);
    assert_eq!(process.leaf_level(to), Some(Level::PMD));
    process.protect(at(to, 100), 1, Rights::READ);
    let sound = process.read(OTHER, at(to, 7)) == 7 && process.leaf_level(to) == Some(Level::PTE);
    end(&world, &[&process]);
    sound
}

fn a_discard_of_a_part_leaves_the_rest<I: Isa>() {
    let (world, process) = huge::<I>();
    process.advise(BASE, 3, Advice::DontNeed);
    assert_eq!((process.read(OTHER, at(BASE, 7)), process.space.rss().pages()), (7, PAGES + 1 - 3));
    end(&world, &[&process]);
}

/// Both store to it afterwards, and neither sees the store of the other.
fn stores_stay_apart<I: Isa>(process: &TestProcess<I>, base: VirtAddr) -> bool {
    let world = &process.world;
    let child = process.fork();
    process.write(CPU, at(base, 7), 70);
    child.write(OTHER, at(base, 8), 80);
    let read = |process: &TestProcess<I>| [7, 8].map(|page| process.read(CPU, at(base, page)));
    let sound = (read(process), read(&child)) == ([70, 0], [7, 80]);
    end(world, &[process, &child]);
    sound
}

fn forked<I: Isa>(_seed: u64) -> bool {
    let (_world, process) = huge::<I>();
    stores_stay_apart(&process, BASE)
}

fn moved_then_forked<I: Isa>(_seed: u64) -> bool {
    let (world, process) = huge::<I>();
    // Its table moves whole, to below another table of the level above.
    let to = BASE.add(512 * GIB);
    remap(&process, GIB, to);
    world.recount(&[&process]);
    stores_stay_apart(&process, to)
}

/// The huge page behind the pinned one is copied whole.
fn forked_while_pinned<I: Isa>(_seed: u64) -> bool {
    let (world, process) = huge::<I>();
    let behind = at(BASE, 2 * PAGES);
    process.map_huge(behind);
    process.write(CPU, at(behind, 7), 17);
    let device = process.take(CPU, at(BASE, 7), 1, GupCall::Pin(GupFlags::WRITE)).expect("mapped");
    let child = process.fork();
    world.at_rest(&[&device]);
    process.write(CPU, at(BASE, 7), 70);
    let sound = (device.read(0), child.read(OTHER, at(BASE, 7))) == (70, 7)
        && child.read(OTHER, at(behind, 7)) == 17
        && [BASE, behind].map(|base| child.leaf_level(base)) == [Some(Level::PTE), Some(Level::PMD)];
    device.release(MakeDirty::No);
    end(&world, &[&process, &child]);
    sound
}

/// Three huge pages of one table, of which each is pinned once.
fn forked_beside_pinned<I: Isa>(_seed: u64) -> bool {
    let cases = ["always", "never"].into_iter().flat_map(|shared| (0..3).map(move |pinned| (shared, pinned)));
    cases.into_iter().all(|(shared, pinned)| {
        let world = TestWorld::<I>::sized(2, 16 << 20);
        world.set(MmSetting::CowPageTables, shared);
        let process = TestProcess::new(&world);
        let page = |number: u64| at(BASE, number * PAGES + 7);
        process.map_at(BASE, 3 * PAGES, Rights::RW, ANON | MapFlags::FIXED | MapFlags::NORESERVE);
        for number in 0..3 {
            process.map_huge(at(BASE, number * PAGES));
            process.write(CPU, page(number), 10 + number);
        }
        let device = process.take(CPU, page(pinned), 1, GupCall::Pin(GupFlags::WRITE)).expect("mapped");
        let child = process.fork();
        world.at_rest(&[&device]);
        let level = |number| if number == pinned { Level::PTE } else { Level::PMD };
        let sound = (0..3).all(|number| {
            child.leaf_level(page(number)) == Some(level(number)) && child.read(OTHER, page(number)) == 10 + number
        });
        device.release(MakeDirty::No);
        end(&world, &[&process, &child]);
        sound
    })
}

planted_bugs_are_found! {
    1;
    DepositKept => removed,
    DepositLeftBehind => moved_then_split,
    HugeUnmarked => forked,
    HugeShared => forked,
    HugeMovedUnmarked => moved_then_forked,
    ForkDepositsNothing => forked,
    ForkIgnoresPin => forked_while_pinned,
    StoppedForkKeepsDeposits => forked_while_pinned,
    PinnedEndsRun => forked_beside_pinned,
}
