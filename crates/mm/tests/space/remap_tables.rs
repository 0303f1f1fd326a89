//! `mremap` of whole tables: what moves as one, what does not, and that no CPU uses the old path.
//!
//! The oracle judges each move: at its end no CPU may have a translation of the old addresses, in
//! its TLB or along its walk cache.
//!
//! Not covered: moves of 512 GiB, which are those of 1 GiB one level up.

use pagewright_arch::{Isa, LeafFlags, on_both};
use pagewright_lab::harness::{CPU, OTHER, TestProcess, TestWorld, at, one_node_machine, recount};
use pagewright_mm::space::ClearRefs;
use pagewright_mm::{Advice, MapFlags, MmError, MmSetting, RemapFlags, RemapRequest};
use pagewright_types::{Access, Counter, Level, PAGE_SIZE, PageRange, Pfn, Rights, VirtAddr};
use std::collections::BTreeMap;
use std::rc::Rc;

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;
/// Aligned to 1 GiB, as is [`NEW`].
const OLD: VirtAddr = VirtAddr::new(64 * GIB);
const NEW: VirtAddr = VirtAddr::new(80 * GIB);
/// Bytes of the mapping that moves.
const LEN: u64 = 6 * MIB;

on_both! {
    tables_of_every_level_move_whole,
    pages_of_tables_that_moved_are_found_forked_and_paged_out,
    tracked_pages_are_marked_when_they_move,
    moves_at_any_offset_keep_every_page,
    entries_that_are_alike_move_as_what_they_are,
    no_cpu_uses_the_old_addresses_of_tables_that_moved:
        assert!(moved_tables_leave_nothing_behind::<I>(0) && moved_tables_leave_nothing_behind::<I>(1)),
    no_table_is_lost_where_one_is_in_the_way:
        assert!(table_in_the_way::<I>(0)),
}

fn remap<I: Isa>(process: &TestProcess<I>, from: VirtAddr, len: u64, to: VirtAddr) -> Result<VirtAddr, MmError> {
    let flags = RemapFlags::MAYMOVE | RemapFlags::FIXED;
    let request = RemapRequest { addr: from, old_len: len, new_len: len, flags, new_addr: to };
    process.world.on(CPU, |mm| mm.mremap(&process.space, &request))
}

fn map<I: Isa>(process: &TestProcess<I>, start: VirtAddr, len: u64) {
    process.map_at(start, len / PAGE_SIZE, Rights::RW, MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE);
}

/// The table of `level` for an address.
fn table<I: Isa>(process: &TestProcess<I>, va: VirtAddr, level: Level) -> Option<Pfn> {
    let map = process.space.map().read();
    process
        .world
        .on(CPU, |mm| map.tables(mm.tlb()).owned(PageRange::page(va)).lock_level(va, level).map(|table| table.table()))
}

/// A process of a judged machine, with a page in the middle of each 2 MiB of its mapping.
///
/// An arm64 machine has range TLBIs if `ranges` says so.
fn mapped<I: Isa>(ranges: bool) -> (Rc<TestWorld<I>>, TestProcess<I>, [VirtAddr; 3]) {
    let mut config = one_node_machine::<I>(2, 4 << 20);
    if ranges {
        config.profile = config.profile.with_ranges();
    }
    let world = TestWorld::on_machine(config);
    let process = TestProcess::new(&world);
    map(&process, OLD, LEN);
    let places = [0, 1, 2].map(|index| OLD.add(index * 2 * MIB + 7 * PAGE_SIZE));
    places.iter().zip(1..).for_each(|(va, value)| process.write(CPU, *va, value));
    // Both CPUs have the pages in their TLBs, and the ways to them in their walk caches.
    places.iter().for_each(|va| assert_ne!(process.read(OTHER, *va), 0));
    (world, process, places)
}

fn moved(va: VirtAddr) -> VirtAddr {
    NEW.add(va.since(OLD))
}

/// An own copy and a page of the file, which differ in nothing but their frame.
fn entries_that_are_alike_move_as_what_they_are<I: Isa>() {
    let world = TestWorld::<I>::new(1);
    world.set(MmSetting::CowPageTables, "never");
    world.swap_to(2);
    let process = TestProcess::new(&world);
    let base = process.map_file(&world.file(3), Rights::RW, MapFlags::PRIVATE);
    process.write(CPU, at(base, 1), 5);
    world.on(CPU, |mm| mm.clear_refs(&process.space, ClearRefs::SoftDirty)).expect("memory");
    process.advise(at(base, 1), 1, Advice::PageOut);
    let child = process.fork();
    let values = |base: VirtAddr| [0, 1, 2].map(|page| process.read(CPU, at(base, page)));
    let before = values(base);
    assert_eq!(before[1], 5);
    let leaves = [0, 1, 2].map(|page| {
        let leaf = world.on(CPU, |mm| recount::leaf(mm, &process.space, at(base, page))).expect("a leaf");
        (leaf.rights(), leaf.flags())
    });
    assert!(leaves.iter().all(|leaf| *leaf == leaves[0]), "{leaves:?}");
    for to in [NEW, NEW.add(LEN)] {
        remap(&process, if to == NEW { base } else { NEW }, 3 * PAGE_SIZE, to).expect("room");
        world.recount(&[&process, &child]);
        assert_eq!(values(to), before);
    }
    TestProcess::end_all_at_rest(&[&process, &child]);
}

/// INV-REMAP-TABLES, INV-REMAP-FLUSH.
fn moved_tables_leave_nothing_behind<I: Isa>(seed: u64) -> bool {
    let (world, process, places) = mapped::<I>(seed % 2 == 1);
    // A neighbour keeps the upper tables. Otherwise their end would flush the walk caches.
    map(&process, OLD.add(16 * MIB), PAGE_SIZE);
    process.write(CPU, OLD.add(16 * MIB), 1);
    remap(&process, OLD, LEN, NEW).expect("nothing is in the way");
    world.at_rest(&[]);
    let intact = places.iter().zip(1..).all(|(va, value)| {
        process.touch(OTHER, *va, Access::Read).is_err() && process.read(OTHER, moved(*va)) == value
    });
    world.recount(&[&process]);
    TestProcess::end_all_at_rest(&[&process]);
    world.assert_nothing_leaked();
    intact
}

/// INV-REMAP-TABLES: an entry that points to a table never gets another one.
fn table_in_the_way<I: Isa>(_seed: u64) -> bool {
    let (world, process, places) = mapped::<I>(false);
    map(&process, NEW, LEN);
    process.write(CPU, moved(places[0]), 9);
    let (source, target) = (table(&process, OLD, Level::PTE), table(&process, NEW, Level::PTE));
    remap(&process, OLD, LEN, NEW).expect("the mapping there is replaced");
    assert_eq!(table(&process, NEW, Level::PTE), target, "its entries moved one by one");
    assert_ne!(table(&process, NEW, Level::PTE), source);
    let intact = places.iter().zip(1..).all(|(va, value)| process.read(OTHER, moved(*va)) == value);
    world.recount(&[&process]);
    TestProcess::end_all_at_rest(&[&process]);
    world.assert_nothing_leaked();
    intact
}

fn tables_of_every_level_move_whole<I: Isa>() {
    let (world, process, places) = mapped::<I>(false);
    let tables = places.map(|va| table(&process, va, Level::PTE));
    let bytes = process.space.table().bytes();
    remap(&process, OLD, LEN, NEW).expect("nothing is in the way");
    assert_eq!(places.map(|va| table(&process, moved(va), Level::PTE)), tables, "2 MiB each");
    assert_eq!(process.space.table().bytes(), bytes);
    remap(&process, NEW, LEN, OLD).expect("nothing is in the way");
    world.recount(&[&process]);
    process.unmap(OLD, LEN / PAGE_SIZE);
    map(&process, OLD, 2 * GIB);
    process.write(CPU, places[1], 5);
    process.write(CPU, OLD.add(GIB), 6);
    let tables = [OLD, OLD.add(GIB)].map(|va| table(&process, va, Level::PMD));
    remap(&process, OLD, 2 * GIB, NEW).expect("nothing is in the way");
    assert_eq!([NEW, NEW.add(GIB)].map(|va| table(&process, va, Level::PMD)), tables, "1 GiB each");
    assert_eq!((process.read(OTHER, moved(places[1])), process.read(OTHER, NEW.add(GIB))), (5, 6));
    world.recount(&[&process]);
    TestProcess::end_all_at_rest(&[&process]);
    world.assert_nothing_leaked();
}

fn pages_of_tables_that_moved_are_found_forked_and_paged_out<I: Isa>() {
    let (world, process, places) = mapped::<I>(false);
    let device = world.swap_to(8);
    remap(&process, OLD, LEN, NEW).expect("nothing is in the way");
    process.fork().end();
    places.iter().for_each(|va| process.advise(moved(*va), 1, Advice::PageOut));
    assert_eq!(world.count(Counter::PswpOut), places.len() as u64, "the reverse map finds them");
    let child = process.fork();
    remap(&process, NEW, LEN, OLD).expect("swap entries move, too");
    for (va, value) in places.iter().zip(1..) {
        assert_eq!((process.read(CPU, *va), child.read(CPU, moved(*va))), (value, value));
    }
    world.recount(&[&process, &child]);
    TestProcess::end_all_at_rest(&[&process, &child]);
    assert_eq!(device.used(), 0);
}

/// INV-SOFT-DIRTY: after the bits were cleared, a move must set those of the entries.
fn tracked_pages_are_marked_when_they_move<I: Isa>() {
    let (world, process, places) = mapped::<I>(false);
    let before = table(&process, places[0], Level::PTE);
    world.on(CPU, |mm| mm.clear_refs(&process.space, ClearRefs::SoftDirty).expect("memory"));
    remap(&process, OLD, LEN, NEW).expect("nothing is in the way");
    assert_ne!(table(&process, moved(places[0]), Level::PTE), before);
    let map = process.space.map().read();
    let marked = world.on(CPU, |mm| {
        let leaf = |va| map.tables(mm.tlb()).read_lock(va).and_then(|table| table.leaf(va));
        places.iter().all(|va| leaf(moved(*va)).is_some_and(|leaf| leaf.has(LeafFlags::SOFT_DIRTY)))
    });
    assert!(marked);
    drop(map);
    TestProcess::end_all_at_rest(&[&process]);
}

/// Heads, tails and distances that are whole tables or are not, in every combination.
fn moves_at_any_offset_keep_every_page<I: Isa>() {
    let (world, process) = TestProcess::<I>::judged(2);
    let parts = [0, PAGE_SIZE, MIB, 2 * MIB - PAGE_SIZE];
    for (head, tail, off) in parts
        .into_iter()
        .flat_map(|head| parts.into_iter().flat_map(move |tail| [0, PAGE_SIZE, 2 * MIB].map(|off| (head, tail, off))))
    {
        let (from, len) = (OLD.add(head), 6 * MIB - head - tail);
        map(&process, OLD, LEN);
        let pages = LEN / PAGE_SIZE;
        let written: BTreeMap<_, _> = (0..pages).step_by(97).map(|page| (at(OLD, page), page + 1)).collect();
        written.iter().for_each(|(va, value)| process.write(CPU, *va, *value));
        let to = NEW.add(head + off);
        remap(&process, from, len, to).expect("nothing is in the way");
        for (va, value) in &written {
            let inside = *va >= from && va.since(from) < len;
            let now = if inside { to.add(va.since(from)) } else { *va };
            assert_eq!(process.read(OTHER, now), *value, "{va} of a move of {len:#x} bytes from {from} to {to}");
        }
        world.recount(&[&process]);
        process.unmap(OLD, pages);
        process.unmap(NEW, 2 * pages);
        assert_eq!((process.space.rss().pages(), process.space.table().bytes()), (0, 0));
    }
    TestProcess::end_all_at_rest(&[&process]);
    world.assert_nothing_leaked();
}

#[cfg(feature = "planted")]
#[test]
fn planted_bugs_are_found() {
    use pagewright_arch::{Aarch64, X86_64};
    use pagewright_lab::harness::race::assert_planted_bugs_are_found;
    use pagewright_plant::PlantedBug;
    assert_planted_bugs_are_found(
        2,
        &[
            (PlantedBug::MovedTableAsPage, moved_tables_leave_nothing_behind::<X86_64>),
            (PlantedBug::MovedTableAsPage, moved_tables_leave_nothing_behind::<Aarch64>),
            // Without range TLBIs, a flush of so many pages takes the whole tag, and the walk
            // caches.
            (PlantedBug::MovedTableCached, moved_tables_leave_nothing_behind::<Aarch64>),
            (PlantedBug::TableMovedOver, table_in_the_way::<X86_64>),
            (PlantedBug::TableMovedOver, table_in_the_way::<Aarch64>),
        ],
    );
}
