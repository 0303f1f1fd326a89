//! Hints in tables that several spaces share, and in pages that several spaces map.

use super::{Clock, FAR, NEAR, faults, move_to, node, slow_pages};
use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::files::DiskFile;
use pagewright_lab::harness::{CPU, OTHER, TestProcess, TestWorld, at};
use pagewright_mm::{Advice, MapFlags, MmSetting};
use pagewright_types::{Counter, Rights};
use std::sync::Arc;

on_both! {
    a_hint_of_shared_memory_is_one_edit_for_all_sharers,
    a_private_page_that_others_have_is_left_alone,
    a_hint_made_before_a_fork_is_served_in_each_space,
    a_library_and_a_dirty_file_page_are_left_alone,
}

fn a_hint_of_shared_memory_is_one_edit_for_all_sharers<I: Isa>() {
    const PAGES: u64 = 32;
    let world = TestWorld::<I>::two_nodes(2, 4 << 20);
    world.bench.sim().unbind_judge();
    world.set(MmSetting::CowPageTables, "always");
    let process = TestProcess::new(&world);
    let base = process.map_shared(PAGES);
    (0..PAGES).for_each(|page| process.write(CPU, at(base, page), page));
    move_to(&process, base, PAGES, FAR);
    let children: Vec<_> = (0..100).map(|_| process.fork()).collect();
    world.lab.run(OTHER, &children[0].space);
    let clock = Clock::start(&process, "2");
    let waits = world.count(Counter::NrTlbRemoteFlush);
    assert_eq!(clock.scan(&process), PAGES);
    assert_eq!(world.count(Counter::NrTlbRemoteFlush) - waits, 1, "32 leaves of 101 processes");
    let page_faults = world.count(Counter::PgFault);
    for reader in [&children[7], &process, &children[8]] {
        assert!((0..PAGES).all(|page| reader.read(OTHER, at(base, page)) == page));
    }
    assert_eq!(world.count(Counter::PgFault) - page_faults, PAGES, "the first reader serves all");
    assert_eq!((faults(&world)[2], world.count(Counter::PwTableBroken)), (PAGES, 0));
    assert!((0..PAGES).all(|page| node(&process, at(base, page)) == NEAR));
    let all: Vec<_> = children.iter().chain([&process]).collect();
    world.recount(&all);
    children[7].write(OTHER, base, 99);
    assert_eq!(process.read(CPU, base), 99);
    all.iter().for_each(|process| process.end());
    world.assert_nothing_leaked();
}

/// `folio_maybe_mapped_shared` in `change_pte_range`.
fn a_private_page_that_others_have_is_left_alone<I: Isa>() {
    for policy in ["never", "always"] {
        let (world, process, base) = slow_pages::<I>(2);
        world.set(MmSetting::CowPageTables, policy);
        let child = process.fork();
        let clock = Clock::start(&process, "2");
        assert_eq!(clock.scan(&process), 0, "{policy}");
        process.write(CPU, base, 20);
        move_to(&process, base, 1, FAR);
        assert_eq!(clock.scan(&process), 1, "{policy}: the page that it has alone now");
        assert_eq!((process.read(CPU, base), child.read(OTHER, base)), (20, 10));
        world.recount(&[&process, &child]);
        TestProcess::end_all_at_rest(&[&child, &process]);
    }
}

/// INV-NUMA-HINT.
fn a_hint_made_before_a_fork_is_served_in_each_space<I: Isa>() {
    for policy in ["never", "always"] {
        for first in [0, 1] {
            let (world, process, base) = slow_pages::<I>(2);
            world.set(MmSetting::CowPageTables, policy);
            let clock = Clock::start(&process, "2");
            assert_eq!(clock.scan(&process), 2);
            let child = process.fork();
            let spaces = [(&process, CPU), (&child, OTHER)];
            let [(one, on), (two, beside)] = [spaces[first], spaces[1 - first]];
            assert_eq!(one.read(on, base), 10, "{policy}");
            one.write(on, base, 20);
            assert_eq!((one.read(on, base), two.read(beside, base)), (20, 10), "{policy}");
            // The first access is the store.
            two.write(beside, at(base, 1), 21);
            assert_eq!((one.read(on, at(base, 1)), two.read(beside, at(base, 1))), (11, 21), "{policy}");
            world.recount(&[&process, &child]);
            world.at_rest(&[]);
            child.end();
            process.write(CPU, base, 30);
            TestProcess::end_all_at_rest(&[&process]);
        }
    }
}

/// `task_numa_work` and `change_pte_range` leave them out.
fn a_library_and_a_dirty_file_page_are_left_alone<I: Isa>() {
    let world = TestWorld::<I>::two_nodes(2, 4 << 20);
    let process = TestProcess::new(&world);
    let file = world.file_of(DiskFile(Arc::default()), 2);
    let library = process.map_file(&file, Rights::RX, MapFlags::PRIVATE);
    let shared = process.map_file(&file, Rights::RW, MapFlags::SHARED);
    process.write(CPU, shared, 5);
    process.read(CPU, at(shared, 1));
    process.read(CPU, library);
    move_to(&process, shared, 2, FAR);
    let clock = Clock::start(&process, "2");
    assert_eq!(clock.scan(&process), 1, "the clean page of the shared mapping");
    let faults = world.count(Counter::PgFault);
    process.write(CPU, at(shared, 1), 6);
    assert_eq!(world.count(Counter::PgFault) - faults, 1, "one fault serves the hint and makes the page dirty");
    process.advise(shared, 2, Advice::DontNeed);
    assert_eq!((process.read(CPU, shared), process.read(CPU, at(shared, 1))), (5, 6));
    TestProcess::end_all_at_rest(&[&process]);
}
