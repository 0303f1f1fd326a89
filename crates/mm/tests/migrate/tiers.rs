//! Demotion: reclaim moves pages to the slower node before it evicts them.

use super::{FAR, NEAR, nodes};
use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::files::{DiskFile, TestDisk};
use pagewright_lab::harness::{ANON, CPU, OTHER, TestProcess, TestWorld, at, one_node_machine};
use pagewright_mm::file::FileOps;
use pagewright_mm::policy::{PolicyFlags, PolicyMode, PolicyRequest};
use pagewright_mm::space::{BindFlags, BindRequest};
use pagewright_mm::{Advice, LockFlags, MapFlags, MmSetting};
use pagewright_sim::NodeConfig;
use pagewright_types::{Access, Counter, CpuMask, Errno, NodeId, NodeMask, PAGE_SIZE, Rights, VirtAddr};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

on_both! {
    pages_that_are_not_used_are_demoted_before_they_are_swapped_out,
    without_the_setting_no_page_is_demoted,
    pages_of_the_lowest_tier_are_swapped_out,
    pages_for_which_the_lower_tier_has_no_room_are_swapped_out,
    without_room_and_swap_pages_stay,
    pages_of_a_locked_segment_are_not_demoted,
    pages_that_are_locked_while_they_are_pending_are_not_demoted,
    direct_reclaim_demotes_dirty_file_pages,
    dirty_file_pages_that_direct_reclaim_cannot_demote_stay,
}

const PAGES: u64 = 32;
const NEAR_BYTES: u64 = 4 << 20;

/// A machine with a fast node of 4 MiB, which has the CPUs, and a slow one; and a process on it.
fn tiers<I: Isa>(far_bytes: u64, demotes: &str) -> (Rc<TestWorld<I>>, TestProcess<I>) {
    let mut config = one_node_machine::<I>(2, NEAR_BYTES);
    config.nodes.push(NodeConfig { bytes: far_bytes, cpus: CpuMask::EMPTY });
    let world = TestWorld::on_machine(config);
    world.set(MmSetting::DemotionEnabled, demotes);
    let process = TestProcess::new(&world);
    (world, process)
}

/// Stores to each page from `base` on, and returns their addresses.
fn store_to<I: Isa>(process: &TestProcess<I>, base: VirtAddr, pages: u64) -> Vec<VirtAddr> {
    (0..pages).map(|page| at(base, page)).inspect(|va| process.write(CPU, *va, va.raw())).collect()
}

/// A process with pages on the fast node that no CPU has accessed since the last scan.
fn idle_pages<I: Isa>(far_bytes: u64, demotes: &str) -> (Rc<TestWorld<I>>, TestProcess<I>, Vec<VirtAddr>) {
    let (world, process) = tiers::<I>(far_bytes, demotes);
    let pages = store_to(&process, process.map(PAGES, Rights::RW, ANON, None), PAGES);
    (world, process, pages)
}

/// Reclaims from a node until every page has been looked at twice; returns what was freed.
fn reclaim<I: Isa>(world: &TestWorld<I>, node: NodeId) -> u64 {
    (0..4).map(|_| world.on(CPU, |mm| mm.reclaim(node, PAGES as u32))).sum()
}

fn end<I: Isa>(world: &TestWorld<I>, process: &TestProcess<I>, pages: &[VirtAddr]) {
    pages.iter().for_each(|va| assert_eq!(process.read(CPU, *va), va.raw()));
    world.recount(&[process]);
    world.at_rest(&[]);
    process.end();
    world.at_rest(&[]);
}

fn pages_that_are_not_used_are_demoted_before_they_are_swapped_out<I: Isa>() {
    let (world, process, pages) = idle_pages::<I>(4 << 20, "1");
    world.swap_to(64);
    assert_eq!(reclaim(&world, NEAR), PAGES);
    assert_eq!(nodes(&process, &pages), vec![Ok(FAR); PAGES as usize]);
    assert_eq!(world.count(Counter::PgDemoteProactive), PAGES);
    assert_eq!((world.count(Counter::PgStealProactive), world.count(Counter::PswpOut)), (PAGES, 0));
    end(&world, &process, &pages);
}

fn without_the_setting_no_page_is_demoted<I: Isa>() {
    let (world, process, pages) = idle_pages::<I>(4 << 20, "0");
    world.swap_to(64);
    assert_eq!(reclaim(&world, NEAR), PAGES);
    assert_eq!((world.count(Counter::PgDemoteProactive), world.count(Counter::PswpOut)), (0, PAGES));
    end(&world, &process, &pages);
}

fn pages_of_the_lowest_tier_are_swapped_out<I: Isa>() {
    let (world, process, pages) = idle_pages::<I>(4 << 20, "1");
    world.swap_to(64);
    reclaim(&world, NEAR);
    assert_eq!(world.count(Counter::PswpOut), 0);
    assert_eq!(reclaim(&world, FAR), PAGES);
    assert_eq!(world.count(Counter::PswpOut), PAGES);
    end(&world, &process, &pages);
}

fn pages_for_which_the_lower_tier_has_no_room_are_swapped_out<I: Isa>() {
    let (world, process, pages) = idle_pages::<I>(64 << 10, "1");
    world.swap_to(64);
    assert_eq!(reclaim(&world, NEAR), PAGES);
    let demoted = world.count(Counter::PgDemoteProactive);
    assert!((1..=16).contains(&demoted), "{demoted} pages are demoted to a node of 16 frames");
    assert_eq!(world.count(Counter::PswpOut), PAGES - demoted);
    end(&world, &process, &pages);
}

fn without_room_and_swap_pages_stay<I: Isa>() {
    let (world, process, pages) = idle_pages::<I>(64 << 10, "1");
    let demoted = reclaim(&world, NEAR);
    assert!((1..=16).contains(&demoted), "{demoted} pages are demoted to a node of 16 frames");
    let near = nodes(&process, &pages).iter().filter(|node| **node == Ok(NEAR)).count() as u64;
    assert_eq!(near, PAGES - demoted);
    end(&world, &process, &pages);
}

/// INV-RECLAIM-UNEVICTABLE.
fn pages_of_a_locked_segment_are_not_demoted<I: Isa>() {
    let (world, process) = tiers::<I>(4 << 20, "1");
    let file = world.shmem(PAGES);
    let base = process.map(PAGES, Rights::RW, MapFlags::SHARED, Some(&file));
    let pages = store_to(&process, base, PAGES);
    for (locked, freed, node) in [(true, 0, NEAR), (false, PAGES, FAR)] {
        file.set_unevictable(locked);
        assert_eq!(reclaim(&world, NEAR), freed, "locked: {locked}");
        assert_eq!(nodes(&process, &pages), vec![Ok(node); PAGES as usize], "locked: {locked}");
        assert_eq!(world.count(Counter::PgDemoteProactive), freed);
    }
    end(&world, &process, &pages);
    world.on(CPU, |mm| mm.close_file(&file));
}

thread_local! {
    /// What another CPU does while a page of an [`InterruptedFile`] is written.
    static DURING_WRITE: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

/// A file that another CPU acts beside while it is written.
struct InterruptedFile;

impl FileOps for InterruptedFile {
    fn is_resident(&self, _index: u64) -> bool {
        true
    }

    fn read_page(&self, _index: u64, _put: &mut dyn FnMut(u64, &[u8])) -> Result<(), Errno> {
        Ok(())
    }

    fn write_page(&self, _index: u64, _get: &mut dyn FnMut(u64, &mut [u8])) -> Result<(), Errno> {
        if let Some(act) = DURING_WRITE.take() {
            act();
        }
        Ok(())
    }
}

/// A file page is scanned last, and written while the other pages are pending.
fn pages_that_are_locked_while_they_are_pending_are_not_demoted<I: Isa>() {
    const FEW: u64 = PAGES / 2;
    for by_mlock in [true, false] {
        let (world, process) = tiers::<I>(4 << 20, "1");
        let file = world.shmem(FEW);
        let base = process.map(FEW, Rights::RW, MapFlags::SHARED, Some(&file));
        let pages = store_to(&process, base, FEW);
        process.advise(base, FEW, Advice::Cold);
        let dirty = world.file_of(InterruptedFile, 1);
        world.on(CPU, |mm| mm.write_at(&dirty, 0, &[1; 8])).expect("memory");
        let (there, space, segment) = (Rc::clone(&world), process.space.clone(), file.clone());
        DURING_WRITE.set(Some(Box::new(move || match by_mlock {
            true => there.on(OTHER, |mm| mm.mlock(&space, base, FEW * PAGE_SIZE)).expect("within the limit"),
            false => segment.set_unevictable(true),
        })));
        assert_eq!(world.on(CPU, |mm| mm.reclaim(NEAR, PAGES as u32)), 1, "only the page of the file is demoted");
        assert!(DURING_WRITE.take().is_none(), "the page of the file was not written");
        assert_eq!(nodes(&process, &pages), vec![Ok(NEAR); FEW as usize], "by mlock: {by_mlock}");
        end(&world, &process, &pages);
        [&file, &dirty].iter().for_each(|file| world.on(CPU, |mm| mm.close_file(file)));
    }
}

/// A fast node that is full of dirty pages of a file, and a slow one; calls of bound memory.
///
/// Memory that is bound to the fast node, and locked so that it stays there, is stored to. Returns
/// how many of its pages could be.
fn store_beside_dirty_pages<I: Isa>(far_bytes: u64) -> (Rc<TestWorld<I>>, u64) {
    let (world, process) = tiers::<I>(far_bytes, "1");
    world.set(MmSetting::OvercommitMemory, "1");
    let disk = Arc::new(TestDisk::default());
    let frames = NEAR_BYTES / PAGE_SIZE;
    let file = world.file_of(DiskFile(disk.clone()), frames);
    let base = process.map(frames, Rights::RW, MapFlags::SHARED, Some(&file));
    let mut pages = Vec::new();
    let is_near = |va| nodes(&process, &[va]) == [Ok(NEAR)];
    while pages.last().is_none_or(|va| is_near(*va)) {
        pages.extend(store_to(&process, at(base, pages.len() as u64), 1));
    }
    assert!(pages.len() as u64 > frames / 2, "the fast node is not full of {} pages", pages.len());
    let bound = process.map(BOUND, Rights::RW, ANON, None);
    let policy = PolicyRequest { mode: PolicyMode::Bind, flags: PolicyFlags::empty(), nodes: NodeMask::of(NEAR) };
    let (len, flags) = (BOUND * PAGE_SIZE, BindFlags::empty());
    world
        .on(CPU, |mm| mm.mbind(&process.space, BindRequest { addr: bound, len, policy, flags }, false))
        .expect("a node");
    world.on(CPU, |mm| mm.mlock2(&process.space, bound, len, LockFlags::ONFAULT)).expect("within the limit");
    let store = |page: &u64| process.touch(CPU, at(bound, *page), Access::Write).is_ok();
    let stored = (0..BOUND).take_while(store).count() as u64;
    process.unmap(bound, BOUND);
    assert_eq!(disk.written.lock().expect("unpoisoned").len(), 0, "direct reclaim has waited for a device");
    end(&world, &process, &pages);
    world.on(CPU, |mm| mm.close_file(&file));
    (world, stored)
}

/// Pages of bound memory, more than the fast node has below its watermarks.
const BOUND: u64 = 200;

/// `shrink_folio_list`: demotion comes before the dirty flag is looked at.
fn direct_reclaim_demotes_dirty_file_pages<I: Isa>() {
    let (world, stored) = store_beside_dirty_pages::<I>(4 << 20);
    assert_eq!(stored, BOUND, "no more could be allocated");
    assert!(world.count(Counter::PgDemoteDirect) > 0);
}

fn dirty_file_pages_that_direct_reclaim_cannot_demote_stay<I: Isa>() {
    let (world, stored) = store_beside_dirty_pages::<I>(64 << 10);
    assert!(stored < BOUND, "{stored} pages were stored to");
    assert!(world.count(Counter::PgDemoteDirect) <= 16, "a node of 16 frames");
}

#[cfg(feature = "planted")]
#[test]
fn demotion_that_takes_or_leaves_the_wrong_pages_is_found() {
    use pagewright_arch::{Aarch64, X86_64};
    use pagewright_plant::{PlantedBug, assert_found_by};
    for (bug, tests) in [
        (
            PlantedBug::UnevictableDemoted,
            [
                pages_that_are_locked_while_they_are_pending_are_not_demoted::<X86_64> as fn(),
                pages_that_are_locked_while_they_are_pending_are_not_demoted::<Aarch64>,
            ],
        ),
        (
            PlantedBug::DirtyFileNotDemoted,
            [direct_reclaim_demotes_dirty_file_pages::<X86_64>, direct_reclaim_demotes_dirty_file_pages::<Aarch64>],
        ),
    ] {
        tests.into_iter().for_each(|test| assert_found_by(bug, test));
    }
}
