//! What a split of a huge leaf, or of its folio, keeps of it.
//!
//! INV-MM-HUGE-CUT, INV-SPLIT-ALL.

use super::{BASE, PAGES, end};
use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::{ANON, CPU, GupCall, OTHER, TestProcess, TestWorld, at};
use pagewright_lab::planted_bugs_are_found;
use pagewright_mm::counters::Gauge;
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_mm::space::ClearRefs;
use pagewright_mm::{Advice, MapFlags, MmSetting};
use pagewright_types::{Access, Level, NodeId, PAGE_SIZE, PageRange, Rights};
use std::rc::Rc;

on_both! {
    /// INV-GUP-EXCLUSIVE.
    a_pinned_page_stays_exclusive: assert!(exclusive::<I>(0)),
    /// INV-SHARE-PIN.
    fork_does_not_share_the_table_of_a_pinned_page: assert!(pin_mark::<I>(0)),
    a_store_after_free_is_kept: assert!(dirty::<I>(0)),
    stores_that_were_told_are_told_of_each_page: assert!(soft_dirty::<I>(0)),
    a_page_that_was_used_counts_as_used: assert!(accessed::<I>(0)),
    /// INV-LRU-LOCKS.
    locked_pages_stay_locked: assert!(lock::<I>(0)),
    /// INV-SPLIT-ALL.
    a_folio_that_stays_whole_has_its_entries_back: assert!(undone::<I>(0)),
}

/// A process with a huge page at `BASE` whose page 7 has its number.
fn huge<I: Isa>(shares_tables: &str) -> (Rc<TestWorld<I>>, TestProcess<I>) {
    let world = TestWorld::sized(2, 16 << 20);
    world.set(MmSetting::CowPageTables, shares_tables);
    let process = TestProcess::new(&world);
    process.map_at(BASE, PAGES, Rights::RW, ANON | MapFlags::FIXED | MapFlags::NORESERVE);
    process.map_huge(BASE);
    process.write(CPU, at(BASE, 7), 7);
    (world, process)
}

/// Splits the leaf, not its folio.
fn split_leaf<I: Isa>(process: &TestProcess<I>) {
    process.protect(at(BASE, 100), 1, Rights::READ);
    assert_eq!(process.leaf_level(BASE), Some(Level::PTE));
}

fn exclusive<I: Isa>(_seed: u64) -> bool {
    let (world, process) = huge::<I>("never");
    let device = process.take(CPU, at(BASE, 7), 1, GupCall::Pin(GupFlags::WRITE)).expect("mapped");
    split_leaf(&process);
    world.at_rest(&[&device]);
    process.write(OTHER, at(BASE, 7), 70);
    let sound = device.read(0) == 70;
    device.release(MakeDirty::No);
    end(&world, &[&process]);
    sound
}

fn pin_mark<I: Isa>(_seed: u64) -> bool {
    let (world, process) = huge::<I>("always");
    let device = process.take(CPU, at(BASE, 7), 1, GupCall::Pin(GupFlags::WRITE)).expect("mapped");
    split_leaf(&process);
    let child = process.fork();
    world.at_rest(&[&device]);
    process.write(OTHER, at(BASE, 7), 70);
    let sound = (device.read(0), child.read(CPU, at(BASE, 7))) == (70, 7);
    device.release(MakeDirty::No);
    end(&world, &[&process, &child]);
    sound
}

/// The store makes the leaf dirty again; reclaim discards pages whose entries are clean.
fn dirty<I: Isa>(_seed: u64) -> bool {
    let (world, process) = huge::<I>("never");
    let _device = world.swap_to(2 * PAGES as u32);
    process.advise(BASE, PAGES, Advice::Free);
    process.write(OTHER, at(BASE, 7), 70);
    split_leaf(&process);
    (0..40).for_each(|_| _ = world.on(CPU, |mm| mm.reclaim(NodeId::new(0), 32)));
    let sound = process.read(CPU, at(BASE, 7)) == 70;
    world.recount(&[&process]);
    TestProcess::end_all_at_rest(&[&process]);
    sound
}

fn soft_dirty<I: Isa>(_seed: u64) -> bool {
    let (world, process) = huge::<I>("never");
    world.on(CPU, |mm| mm.clear_refs(&process.space, ClearRefs::SoftDirty)).expect("memory");
    process.write(OTHER, at(BASE, 7), 70);
    split_leaf(&process);
    let words = super::consumers::views::words(&process, 16);
    let sound = words.iter().all(|word| word.raw() >> 55 & 1 == 1);
    end(&world, &[&process]);
    sound
}

fn accessed<I: Isa>(_seed: u64) -> bool {
    let (world, process) = huge::<I>("never");
    world.on(CPU, |mm| mm.clear_refs(&process.space, ClearRefs::All)).expect("memory");
    // A translation in a TLB would be used without setting the bit.
    [Rights::READ, Rights::RW].iter().for_each(|rights| process.protect(BASE, PAGES, *rights));
    process.touch(OTHER, at(BASE, 7), Access::Read).expect("mapped");
    split_leaf(&process);
    let sound = process.smaps_field("Referenced:") == PAGES * PAGE_SIZE / 1024;
    end(&world, &[&process]);
    sound
}

fn lock<I: Isa>(_seed: u64) -> bool {
    let (world, process) = huge::<I>("never");
    world.on(CPU, |mm| mm.mlock(&process.space, BASE, PAGES * PAGE_SIZE)).expect("mapped");
    assert_eq!(process.leaf_level(BASE), Some(Level::PMD));
    split_leaf(&process);
    world.recount(&[&process]);
    world.on(CPU, |mm| mm.munlock(&process.space, BASE, 100 * PAGE_SIZE)).expect("mapped");
    let still = world.gauge(Gauge::Unevictable);
    world.on(CPU, |mm| mm.munlock(&process.space, BASE, PAGES * PAGE_SIZE)).expect("mapped");
    let sound = (still, world.gauge(Gauge::Unevictable)) == (PAGES, 0);
    end(&world, &[&process]);
    sound
}

/// A pin keeps a folio of 16 pages whole, whose entries were replaced meanwhile.
fn undone<I: Isa>(_seed: u64) -> bool {
    let world = TestWorld::<I>::sized(2, 16 << 20);
    let process = TestProcess::new(&world);
    process.map_at(BASE, PAGES, Rights::RW, ANON | MapFlags::FIXED | MapFlags::NORESERVE);
    world.set(MmSetting::ThpEnabled64k, "always");
    (0..16).for_each(|page| process.write(CPU, at(BASE, page), page));
    let device = process.take(CPU, at(BASE, 7), 1, GupCall::Pin(GupFlags::WRITE)).expect("mapped");
    let range = PageRange::new(BASE, at(BASE, PAGES));
    let counts = world.on(CPU, |mm| mm.split_huge_pages(&process.space, range));
    let sound = counts.split == 0 && (0..16).all(|page| process.read(OTHER, at(BASE, page)) == page);
    world.at_rest(&[&device]);
    device.release(MakeDirty::No);
    end(&world, &[&process]);
    sound
}

planted_bugs_are_found! {
    1;
    SplitLosesExclusive => exclusive,
    SplitLosesMayPin => pin_mark,
    SplitLosesDirty => dirty,
    SplitLosesSoftDirty => soft_dirty,
    SplitLosesAccessed => accessed,
    SplitLosesLock => lock,
    SplitUndoneToFirst => undone,
}
