//! Huge leaves: their deposits, and the marks on the tables above them.
//!
//! INV-HUGE-DEPOSIT, INV-HUGE-OWN. The random edits of `model.rs` and `runs.rs` count deposits.

use crate::runs::Hooks;
use crate::space::{Child, Space, special};
use crate::support::{Delivery, on};
use pagewright_arch::{Isa, Leaf, LeafFlags};
use pagewright_table::{CopyStop, Mlocked, OwnedLeaf, TableReserve};
use pagewright_tlb::Gather;
use pagewright_tlb::frames::TableMarks;
use pagewright_types::{Gauge, Level, Order, PageRange, Pfn, Rights, VirtAddr};

on_both_also_as_words! {
    a_huge_leaf_has_a_deposit_that_counts_as_a_table,
    a_table_of_pages_beside_a_huge_leaf_has_no_mark,
    a_split_hooks_the_deposit,
    a_leaf_that_moves_to_another_table_takes_its_deposit_along,
    a_table_that_moves_takes_its_mark_along,
    a_table_with_huge_leaves_is_not_shared,
    a_copy_of_huge_leaves_that_stops_keeps_no_deposit_too_many,
    the_leaves_of_one_table_are_visited_together,
}

const SPAN: u64 = 2 << 20;
/// Aligned to 1 GiB.
const BASE: VirtAddr = VirtAddr::new(4 << 30);
/// Under another table of the PMD level.
const FAR: VirtAddr = VirtAddr::new(5 << 30);
const GIB: u64 = 1 << 30;

fn at(index: u64) -> VirtAddr {
    BASE.add(index * SPAN)
}

fn blocks(from: u64, count: u64) -> PageRange {
    PageRange::new(at(from), at(from + count))
}

/// A space with `count` huge leaves from `BASE` on.
fn mapped<I: Isa>(count: u64) -> Space<I> {
    let space = Space::<I>::new(2, Delivery::AtOnce);
    (0..count).for_each(|index| space.map_special(at(index), Level::PMD, Pfn::new(512 * (index as u32 + 1))));
    space
}

/// The deposits of the table of the PMD level for `va`, and the tables that the machine counts.
fn deposits<I: Isa>(space: &Space<I>, va: VirtAddr) -> (u32, i64) {
    let table = space.table_at(va, Level::PMD).expect("a table");
    (space.tlb.frames().table(table).deposits(), space.tlb.frames().gauges().sum(Gauge::PageTablePages))
}

fn marks<I: Isa>(space: &Space<I>, va: VirtAddr) -> Vec<bool> {
    let holds_huge = |table| space.tlb.frames().table(table).marks().contains(TableMarks::HOLDS_HUGE);
    [Level::PUD, Level::PMD].iter().filter_map(|level| space.table_at(va, *level)).map(holds_huge).collect()
}

fn unmap<I: Isa>(space: &Space<I>, range: PageRange) {
    let mut gather = Gather::new(&space.tlb, space.context());
    let held = space.mmap.read();
    for (table, part) in held.tables(&space.tlb).owned(range).locked(range, Mlocked(false)) {
        table.unmap_run(part, Mlocked(false), &mut Hooks, |_, _| true, &mut gather);
    }
    gather.settle();
}

fn a_huge_leaf_has_a_deposit_that_counts_as_a_table<I: Isa>() {
    let space = mapped::<I>(3);
    // The root, one table of each level above the last, and the deposits.
    assert_eq!((deposits(&space, BASE), space.table().bytes() >> 12), ((3, 6), 5));
    assert_eq!((space.table().deposits(), marks(&space, BASE)), (3, vec![true; 2]));

    unmap(&space, blocks(1, 1));
    space.edit(at(2), Level::PMD, |run| run.unmap(at(2)).map(|debt| debt.settle())).expect("a table");
    assert_eq!((deposits(&space, BASE), space.table().bytes() >> 12), ((1, 4), 3));
}

/// The first entry of the table of the leaf points to one with pages.
fn a_table_of_pages_beside_a_huge_leaf_has_no_mark<I: Isa>() {
    let space = Space::<I>::new(2, Delivery::AtOnce);
    space.map_special(at(0), Level::PTE, Pfn::new(5));
    space.map_special(at(1), Level::PMD, Pfn::new(512));
    assert_eq!(marks(&space, BASE), [true; 2]);
    let pages = space.table_at(at(0), Level::PTE).expect("a table");
    assert_eq!(space.tlb.frames().table(pages).marks(), TableMarks::empty());
}

fn a_split_hooks_the_deposit<I: Isa>() {
    let space = mapped::<I>(2);
    let free = space.tlb.frames().available();
    let table = space.table_at(BASE, Level::PMD).expect("a table");
    let latest = space.tlb.frames().deposited_tables(table).next();
    assert!(space.split(at(1)) && !space.split(at(1)));
    assert_eq!(space.table_at(at(1), Level::PTE), latest);
    assert_eq!((deposits(&space, BASE), space.tlb.frames().available()), ((1, 5), free));
}

/// Moves entries of the PMD level to the same places under another table.
fn relocate<I: Isa>(space: &Space<I>, range: PageRange, to: VirtAddr) {
    space.ensure_tables(to, Level::PMD);
    let held = space.mmap.write();
    let all = PageRange::new(BASE, FAR.add(GIB));
    let tables = held.tables(&space.tlb).owned(all);
    let from = tables.lock_level(range.start(), Level::PMD).expect("a table");
    let target = tables.lock_level(to, Level::PMD).expect("just made");
    let mut gather = Gather::new(&space.tlb, space.context());
    from.move_run(range, &target, to, |leaf| leaf, |soft| soft, &mut gather);
    gather.settle();
}

fn a_leaf_that_moves_to_another_table_takes_its_deposit_along<I: Isa>() {
    let space = mapped::<I>(3);
    relocate(&space, blocks(1, 2), FAR);
    assert_eq!((deposits(&space, BASE), deposits(&space, FAR)), ((1, 7), (2, 7)));
    assert_eq!(marks(&space, FAR), [true; 2]);
    assert!(space.split(FAR));
}

fn a_table_that_moves_takes_its_mark_along<I: Isa>() {
    let space = mapped::<I>(1);
    // Below another table of the PUD level.
    let to = BASE.add(512 * GIB);
    space.ensure_tables(to, Level::PUD);
    assert_eq!(marks(&space, to), [false]);
    {
        let held = space.mmap.write();
        let own = held.tables(&space.tlb).owned(PageRange::new(BASE, to.add(GIB)));
        let mut gather = Gather::new(&space.tlb, space.context());
        held.move_table(own, BASE, to, Level::PUD, &mut gather);
        gather.settle();
    }
    assert_eq!((marks(&space, to), deposits(&space, to)), (vec![true; 2], (1, 5)));
}

/// Forks a child that shares what it can; returns it, and whether that is all.
fn fork<I: Isa>(space: &Space<I>) -> (Child<I>, bool) {
    on(1, || space.fork(|_| true))
}

/// The tables below it are, and once no huge leaf is left, so is it.
fn a_table_with_huge_leaves_is_not_shared<I: Isa>() {
    let space = mapped::<I>(1);
    space.map_special(at(1), Level::PTE, Pfn::new(5));
    let [upper, middle] = [Level::PUD, Level::PMD].map(|level| space.table_at(BASE, level).expect("a table"));
    let shares = |table| space.tlb.frames().table(table).shares();
    let (child, complete) = fork(&space);
    assert!(!complete, "the huge leaf is left to be copied");
    {
        let held = child.read();
        let tables = held.tables(&space.tlb);
        let [huge, page] = [0, 1].map(|index| tables.peek(at(index)).leaf().map(|leaf| leaf.pfn()));
        assert_eq!((huge, page), (None, Some(Pfn::new(5))));
    }
    assert_eq!((shares(upper), shares(middle), marks(&space, BASE)), (1, 1, vec![true; 2]));
    assert_eq!(child.table().bytes() >> 12, 3, "no deposit, since it has no huge leaf");
    unmap(&space, blocks(0, 1));
    let (_second, complete) = fork(&space);
    assert!(complete, "the table of the page is shared");
    assert_eq!((shares(upper), marks(&space, BASE)), (1, vec![false; 2]), "this fork removes the marks");
    let _third = fork(&space);
    assert_eq!(shares(upper), 2);
}

/// The second of three leaves has as many references as entries may take.
fn a_copy_of_huge_leaves_that_stops_keeps_no_deposit_too_many<I: Isa>() {
    let space = mapped::<I>(1);
    let (tlb, limit) = (&space.tlb, 3 << 30);
    let folio = tlb.frames().new_folio(tlb.alloc(tlb.request(Order::PMD)).expect("memory is left"));
    let leaf = Leaf { pfn: folio.pfn(), rights: Rights::READ, flags: LeafFlags::USER };
    space.map_owned(at(1), Level::PMD, OwnedLeaf::new(leaf, folio));
    space.map_owned(at(2), Level::PMD, special(Pfn::new(2048)));
    let child = crate::space::new_lock(tlb);
    let mut reserve = TableReserve::new(tlb);
    reserve.fill(2).expect("memory is left");
    reserve.fill_deposits(3).expect("memory is left");
    let (from, to) = (space.mmap.write(), child.write());
    let all = blocks(0, 3);
    to.tables(tlb).owned(all).ensure(BASE, Level::PMD, &mut reserve);
    let (from, to) = (from.tables(tlb).owned(all), to.tables(tlb).owned(all));
    let [parent, theirs] = [from, to].map(|tables| tables.lock_level(BASE, Level::PMD).expect("a table"));
    assert_eq!(parent.huge_leaves(all), 3);
    tlb.frames().folio(leaf.pfn).get_raw(limit - 1);
    let mut gather = Gather::new(tlb, space.context());
    let stopped = parent.copy_huge_run(&theirs, all, &mut Hooks, &mut reserve, &mut gather);
    assert_eq!((stopped, reserve.len()), ((1, Err(CopyStop::TooManyRefs(at(1)))), 0));
    assert_eq!(tlb.frames().table(theirs.table()).deposits(), 1);
    assert_eq!(tlb.frames().table(parent.table()).deposits(), 3);
    drop((parent, theirs));
    assert_eq!((child.table().deposits(), child.table().bytes() >> 12), (1, 3));
    gather.settle();
}

/// Up to an entry that points to a table, however many are empty.
fn the_leaves_of_one_table_are_visited_together<I: Isa>() {
    let space = mapped::<I>(2);
    space.map_special(at(4), Level::PMD, Pfn::new(512 * 9));
    space.map_special(at(6), Level::PTE, Pfn::new(5));
    space.map_special(at(7), Level::PMD, Pfn::new(512 * 10));
    let held = space.mmap.read();
    let all = blocks(0, 10);
    let visited: Vec<_> = held
        .tables(&space.tlb)
        .owned(all)
        .locked(all, Mlocked(false))
        .map(|(table, part)| (table.level(), part))
        .collect();
    let expected = [(Level::PMD, blocks(0, 6)), (Level::PTE, blocks(6, 1)), (Level::PMD, blocks(7, 3))];
    assert_eq!(visited, expected);
}
