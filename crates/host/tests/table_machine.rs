//! A machine without contents: its tables are clear, and it sees each access to an entry.

use pagewright_host::TableMachine;
use pagewright_mm::file::FileKind;
use pagewright_mm::space::FileMapping;
use pagewright_mm::{MapFlags, MapRequest, Mm, MmSetting, MmSettings, Space};
use pagewright_tlb::frames::{MemoryLayout, NodeSpec};
use pagewright_types::{Access, CpuId, CpuMask, FrameRange, NodeId, PAGE_SIZE, Pfn, Rights, VirtAddr};

const FRAMES: u32 = 4096;

pub(crate) fn boot<I: pagewright_arch::Isa>() -> (TableMachine<I>, Mm<TableMachine<I>>) {
    let machine = TableMachine::<I>::try_new(FRAMES).expect("address space");
    let ranges = [FrameRange::new(Pfn::new(0), Pfn::new(FRAMES))];
    let nodes = [NodeSpec { id: NodeId::new(0), ranges: &ranges, cpus: CpuMask::of(CpuId::new(0)) }];
    let layout = MemoryLayout { min_free_kbytes: Some(0), watermark_scale_factor: 0, ..MemoryLayout::new(&nodes) };
    let mm = Mm::try_new(machine.clone(), &layout, MmSettings::default()).expect("memory");
    (machine, mm)
}

fn map<I: pagewright_arch::Isa>(mm: &Mm<TableMachine<I>>, space: &Space<TableMachine<I>>, pages: u64) -> VirtAddr {
    let flags = MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::NORESERVE;
    let request = MapRequest { addr: VirtAddr::ZERO, len: pages * PAGE_SIZE, rights: Rights::RW, flags, file: None };
    mm.mmap(space, &request).expect("room")
}

/// A private mapping of two pages of a file.
fn map_file<I: pagewright_arch::Isa>(mm: &Mm<TableMachine<I>>, space: &Space<TableMachine<I>>) -> VirtAddr {
    let file = mm.add_file("file", FileKind::Shmem, 2 * PAGE_SIZE).expect("memory");
    let file = Some(FileMapping { file: &file, offset: 0, opened: Rights::RW });
    let (len, flags) = (2 * PAGE_SIZE, MapFlags::PRIVATE);
    mm.mmap(space, &MapRequest { addr: VirtAddr::ZERO, len, rights: Rights::RW, flags, file }).expect("room")
}

fn store<I: pagewright_arch::Isa>(mm: &Mm<TableMachine<I>>, space: &Space<TableMachine<I>>, va: VirtAddr) {
    mm.fault(space, va, Access::Write).expect("memory");
}

/// Frames go from pages to tables and back; a table that was not clear would map what it maps not.
fn a_frame_that_becomes_a_table_is_clear<I: pagewright_arch::Isa>() {
    let (_, mm) = boot::<I>();
    for round in 0..20 {
        let space = mm.new_space().expect("memory");
        // Pages far apart, each under a table of its own, and then many under one.
        let (far, near) = (map(&mm, &space, 512 * 64), map(&mm, &space, 1000));
        (0..64).for_each(|page| store(&mm, &space, far.add(page * 512 * PAGE_SIZE)));
        (0..50 * (round + 1)).for_each(|page| store(&mm, &space, near.add(page * PAGE_SIZE)));
        assert_eq!(space.rss().pages(), 64 + 50 * (round + 1));
        let map = space.map().read();
        let tables = map.tables(mm.tlb());
        assert!((1..512).all(|page| tables.peek(far.add(page * PAGE_SIZE)).leaf().is_none()), "round {round}");
        drop(map);
        mm.end_space(&space);
        assert_eq!(space.rss().pages(), 0);
    }
}

#[test]
fn a_frame_that_becomes_a_table_is_clear_on_both_instruction_sets() {
    a_frame_that_becomes_a_table_is_clear::<pagewright_arch::X86_64>();
    a_frame_that_becomes_a_table_is_clear::<pagewright_arch::Aarch64>();
}

/// INV-SHARE-SUM: a second sum walks no table, until something has changed.
#[test]
fn a_resident_set_that_has_not_changed_is_not_summed_again() {
    let (machine, mm) = boot::<pagewright_arch::X86_64>();
    mm.settings().set(MmSetting::CowPageTables, 2).expect("an accepted value");
    let space = mm.new_space().expect("memory");
    let base = map(&mm, &space, 512 * 8);
    let file_page = map_file(&mm, &space);
    (0..8).for_each(|table| store(&mm, &space, base.add(table * 512 * PAGE_SIZE)));
    let sum = || machine.count_accesses(|| space.map().read().tables(mm.tlb()).sum_shared_edits());
    assert_eq!(sum(), 0, "nothing is shared");
    let child = mm.fork(&space).expect("memory");
    mm.fault(&child, file_page, Access::Read).expect("memory");
    assert!(sum() > 512, "the tables of a GiB are visited");
    assert_eq!(space.rss().pages(), 9);
    assert_eq!([sum(), sum()], [0, 0]);
    store(&mm, &child, base);
    assert_eq!(sum(), 0, "the child reaches other tables, and this space the same");
    mm.end_space(&child);
    store(&mm, &space, base);
    assert!(sum() > 0, "the space has its tables back");
    assert_eq!(sum(), 0);
    mm.end_space(&space);
}

/// INV-SHARE-SUM: what is read after an edit are the tables of the GiB that it was in.
#[test]
fn a_sum_after_an_edit_reads_as_much_in_a_large_space() {
    const GIB: u64 = 1 << 30;
    let [small, large] = [1, 40].map(|gigabytes| {
        let (machine, mm) = boot::<pagewright_arch::X86_64>();
        mm.settings().set(MmSetting::CowPageTables, 2).expect("an accepted value");
        let space = mm.new_space().expect("memory");
        let file_page = map_file(&mm, &space);
        let base = map(&mm, &space, gigabytes * GIB / PAGE_SIZE);
        (0..gigabytes).for_each(|gigabyte| store(&mm, &space, base.add(gigabyte * GIB)));
        // The table with the entry exists.
        store(&mm, &space, file_page.add(PAGE_SIZE));
        let child = mm.fork(&space).expect("memory");
        mm.fault(&child, file_page, Access::Read).expect("memory");
        let read = machine.count_accesses(|| space.map().read().tables(mm.tlb()).sum_shared_edits());
        assert_eq!(space.rss().pages(), gigabytes + 2);
        read
    });
    assert!(small > 512 && large <= small + 512, "{small} and {large} entries, where one GiB has 512 tables");
}
