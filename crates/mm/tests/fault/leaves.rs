//! The leaves that a fault on a file maps: which pages, how accessed, and what is noted as dirty.

use pagewright_arch::{Isa, LeafFlags, on_both};
use pagewright_lab::harness::files::{DiskFile, NumberedFile, TestDisk};
use pagewright_lab::harness::recount;
use pagewright_lab::harness::{CPU, TestProcess, TestWorld, at};
use pagewright_mm::counters::Gauge;
use pagewright_mm::file::FileOps;
use pagewright_mm::{MapFlags, MmSetting};
use pagewright_table::LeafView;
use pagewright_tlb::frames::FolioFlags;
use pagewright_types::{Access, Errno, IsaKind, Level, PAGE_SIZE, Rights, VirtAddr};
use std::sync::Arc;

on_both! {
    fault_around_maps_the_neighbours_of_the_same_table,
    fault_around_maps_the_whole_window,
    a_store_through_a_shared_mapping_makes_the_page_dirty_at_once,
    a_store_through_a_shared_mapping_brings_one_page,
}

/// Pages of the file.
const PAGES: u64 = 24;
const TABLE: u64 = 512;

pub(super) fn leaf_at<I: Isa>(process: &TestProcess<I>, va: VirtAddr) -> Option<LeafView> {
    process.world.on(CPU, |mm| recount::leaf(mm, &process.space, va))
}

/// A numbered file of which every third page must be waited for.
struct PartlyResident;

impl FileOps for PartlyResident {
    fn is_resident(&self, index: u64) -> bool {
        index % 3 != 1
    }

    fn read_page(&self, index: u64, put: &mut dyn FnMut(u64, &[u8])) -> Result<(), Errno> {
        NumberedFile.read_page(index, put)
    }
}

/// As many pages as the window has, however many one look at the cache returns.
fn fault_around_maps_the_whole_window<I: Isa>() {
    const WINDOW: u64 = 64;
    let world = TestWorld::<I>::new(1);
    world.set(MmSetting::FaultAroundBytes, "262144");
    let process = TestProcess::new(&world);
    let file = world.file(WINDOW);
    for page in 0..WINDOW {
        world.on(CPU, |mm| mm.read_at(&file, page * PAGE_SIZE, &mut [0; 8])).expect("a good device");
    }
    let base = VirtAddr::new(1 << 30);
    process.map_over(base, &file, Rights::READ, MapFlags::PRIVATE);
    process.read(CPU, at(base, 5));
    let missing: Vec<u64> = (0..WINDOW).filter(|page| leaf_at(&process, at(base, *page)).is_none()).collect();
    assert_eq!(missing, []);
    process.end();
    world.on(CPU, |mm| mm.forget_file(&file));
}

/// Mappings that begin at each distance from the end of a table, each touched at three pages.
///
/// The neighbours count as accessed on x86-64 and not on arm64, as on Linux.
fn fault_around_maps_the_neighbours_of_the_same_table<I: Isa>() {
    let world = TestWorld::<I>::new(1);
    let end_of_table = VirtAddr::new((1 << 30) + Level::PTE.table_span());
    let process = TestProcess::new(&world);
    for (bytes, window) in [("65536", 16), ("16384", 4)] {
        world.set(MmSetting::FaultAroundBytes, bytes);
        for before in [1, 3, 4, 15, 16, 17, 20] {
            for touched in [0, before - 1, before] {
                let base = VirtAddr::new(end_of_table.raw() - before * PAGE_SIZE);
                let file = world.file_of(PartlyResident, PAGES);
                process.map_over(base, &file, Rights::RW, MapFlags::PRIVATE);
                let va = at(base, touched);
                assert_eq!(process.read(CPU, va), touched + 7);
                let start = va.align_down(window * PAGE_SIZE).max(base);
                for page in 0..TABLE * 2 {
                    let neighbour = at(VirtAddr::new(1 << 30), page);
                    let in_mapping = neighbour >= base && neighbour < at(base, PAGES);
                    let in_window = neighbour >= start && neighbour < at(start, window);
                    let in_table = (neighbour < end_of_table) == (va < end_of_table);
                    let leaf = leaf_at(&process, neighbour);
                    let case = format!("{window} pages, {before} before the end, {touched} touched: {neighbour}");
                    let is_touched = neighbour == va;
                    let is_there =
                        || is_touched || PartlyResident.is_resident((neighbour.raw() - base.raw()) / PAGE_SIZE);
                    assert_eq!(leaf.is_some(), in_mapping && in_window && in_table && is_there(), "{case}");
                    if let Some(leaf) = leaf {
                        let is_young = is_touched || I::KIND == IsaKind::X86_64;
                        assert_eq!(leaf.has(LeafFlags::ACCESSED), is_young, "{case}");
                        assert!(!leaf.has(LeafFlags::DIRTY) && !leaf.rights().contains(Rights::WRITE), "{case}");
                    }
                }
                for page in 0..PAGES {
                    assert_eq!(process.read(CPU, at(base, page)), page + 7, "each shows its page of the file");
                }
                process.unmap(base, PAGES);
                world.on(CPU, |mm| mm.forget_file(&file));
            }
        }
    }
    TestProcess::end_all_at_rest(&[&process]);
}

/// How a page of a shared mapping becomes writable.
#[derive(Clone, Copy, Debug)]
enum FirstStore {
    ToAnEmptyEntry,
    ToAPageThatWasRead,
    ToANeighbourOfOne,
    AfterWriteback,
}

/// Writeback and page-out look at the folio while it is mapped, and not at its entries.
fn a_store_through_a_shared_mapping_makes_the_page_dirty_at_once<I: Isa>() {
    for store in [
        FirstStore::ToAnEmptyEntry,
        FirstStore::ToAPageThatWasRead,
        FirstStore::ToANeighbourOfOne,
        FirstStore::AfterWriteback,
    ] {
        let (world, process) = TestProcess::<I>::judged(1);
        let disk = Arc::new(TestDisk::default());
        let file = world.file_of(DiskFile(disk.clone()), 2);
        let base = process.map_file(&file, Rights::RW, MapFlags::SHARED);
        let written = || {
            world.on(CPU, |mm| mm.write_back(&file, 0, 2 * PAGE_SIZE)).expect("the disk works");
            std::mem::take(&mut *disk.written.lock().expect("unpoisoned"))
        };
        match store {
            FirstStore::ToAnEmptyEntry => {}
            FirstStore::ToAPageThatWasRead => assert_eq!(process.read(CPU, base), 0),
            FirstStore::ToANeighbourOfOne => assert_eq!(process.read(CPU, at(base, 1)), 1),
            FirstStore::AfterWriteback => process.write(CPU, base, 5),
        }
        let before = written();
        assert_eq!(before.len(), usize::from(matches!(store, FirstStore::AfterWriteback)), "{store:?}");
        let pfn = process.frame(CPU, base, Access::Write);
        let is_dirty = || world.on(CPU, |mm| mm.tlb().frames().folio(pfn).flags().contains(FolioFlags::DIRTY));
        assert!(is_dirty(), "{store:?}");
        process.write(CPU, base, 77);
        assert_eq!(written(), [(0, 77)], "{store:?}");
        assert!(!is_dirty() && written().is_empty(), "{store:?}: written once");
        world.on(CPU, |mm| mm.forget_file(&file));
        TestProcess::end_all_at_rest(&[&process]);
    }
}

/// `do_shared_fault` does not fault around.
fn a_store_through_a_shared_mapping_brings_one_page<I: Isa>() {
    let world = TestWorld::<I>::new(1);
    world.set(MmSetting::FaultAroundBytes, "65536");
    let process = TestProcess::new(&world);
    let file = world.file(16);
    let base = process.map_file(&file, Rights::RW, MapFlags::SHARED);
    process.write(CPU, at(base, 3), 9);
    assert_eq!(world.gauge(Gauge::FilePages), 1);
    process.end();
    world.on(CPU, |mm| mm.forget_file(&file));
}
