//! Tables that are made below a shared pointer, for all its sharers (INV-SHARE-MAKE).

use crate::pending::fork;
use crate::space::{Child, Space, is_of_last_table};
use crate::support::{Delivery, declared, on};
use pagewright_arch::Isa;
use pagewright_table::{EntryRun, EntryView, Mlocked, TableReserve};
use pagewright_tlb::Batch;
use pagewright_types::judge::Fact;
use pagewright_types::{Access, Gauge, Level, PAGE_SIZE, Pfn, VirtAddr};

on_both_also_as_words! {
    no_table_is_made_over_another_table,
    a_table_made_for_all_counts_for_each_sharer_at_once,
    an_edit_for_all_is_declared_until_the_table_is_unlocked,
    a_huge_leaf_is_left_to_a_fork_and_hides_no_table_behind_it,
    a_table_made_for_all_flushes_what_has_no_place,
}

/// A page, and places below the same tables: one in an empty entry beside it, one further away.
const HUGE: VirtAddr = VirtAddr::new(1 << 30);
const BESIDE: VirtAddr = VirtAddr::new((1 << 30) + (2 << 20));
const FURTHER: VirtAddr = VirtAddr::new(2 << 30);

/// A parent that CPU 1 runs and a child that CPU 2 runs, which share a table with a page.
fn sharing<I: Isa>() -> (Space<I>, Child<I>) {
    let space = Space::<I>::new(4, Delivery::AtOnce);
    on(1, || space.tlb.switch_to(space.context()));
    space.map_special(HUGE, Level::PTE, Pfn::new(512));
    let child = fork(&space);
    assert!([1, 2].iter().all(|cpu| reads(&space, *cpu)));
    (space, child)
}

fn reads<I: Isa>(space: &Space<I>, cpu: u16) -> bool {
    on(cpu, || space.host.access(HUGE, Access::Read)).is_some()
}

/// Makes the tables that are missing for `va` through `mmap`, and returns their number.
fn make_tables<I: Isa>(space: &Space<I>, mmap: &Child<I>, va: VirtAddr) -> usize {
    let mut reserve = TableReserve::new(&space.tlb);
    reserve.fill(3).expect("memory is left");
    let pages = || space.tlb.frames().gauges().sum(Gauge::PageTablePages);
    let before = pages();
    let held = mmap.read();
    let tables = held.tables(&space.tlb);
    let token = tables.family_token().expect("it shares tables");
    on(3, || tables.make_tables_for_all(va, &token, &mut reserve));
    (pages() - before) as usize
}

fn no_table_is_made_over_another_table<I: Isa>() {
    let (space, child) = sharing::<I>();
    assert_eq!(make_tables(&space, &child, HUGE), 0, "a table is there");
    for mmap in [&space.mmap, &child] {
        let held = mmap.read();
        let leaf = held.tables(&space.tlb).peek(HUGE).leaf().expect("the page");
        assert_eq!(leaf.pfn(), Pfn::new(512));
    }
    assert!([1, 2].iter().all(|cpu| reads(&space, *cpu)));
    assert_eq!(make_tables(&space, &child, BESIDE), 1);
    assert_eq!(make_tables(&space, &space.mmap, BESIDE), 0, "a table is there");
    assert_eq!(make_tables(&space, &space.mmap, FURTHER), 2);
}

/// INV-SHARE-COUNT: as soon as the table is made, whatever is edited in it later.
fn a_table_made_for_all_counts_for_each_sharer_at_once<I: Isa>() {
    for (va, tables) in [(BESIDE, 1), (FURTHER, 2)] {
        let (space, child) = sharing::<I>();
        let counted = || {
            [&space.mmap, &child].map(|mmap| {
                mmap.read().tables(&space.tlb).sum_shared_edits();
                mmap.table().bytes() / PAGE_SIZE
            })
        };
        let before = counted();
        assert_eq!(make_tables(&space, &child, va), tables);
        assert_eq!(counted(), before.map(|before| before + tables as u64));
        let held = space.mmap.read();
        let made = held.tables(&space.tlb).read_lock(va).expect("the table that was made");
        assert_eq!(made.entry(va), EntryView::Empty);
    }
}

/// The judge expects an edit of a table that several spaces have, and none of an own one.
fn an_edit_for_all_is_declared_until_the_table_is_unlocked<I: Isa>() {
    let space = Space::<I>::new(4, Delivery::AtOnce);
    (0..3).for_each(|page| space.map_special(HUGE.add(page * PAGE_SIZE), Level::PTE, Pfn::new(600 + page as u32)));
    let table = space.table_at(HUGE, Level::PTE).expect("just made");
    let edits = |pages: std::ops::Range<u64>| {
        let held = space.mmap.read();
        let tables = held.tables(&space.tlb);
        let token = tables.family_token();
        let ((), facts) = declared(|| {
            let locked = tables.lock_for_all(HUGE, token.as_ref()).expect("a table");
            for va in pages.map(|page| HUGE.add(page * PAGE_SIZE)) {
                locked.run(Mlocked(false)).unmap(va).expect("a leaf").settle();
            }
        });
        let is_edit = |fact: &Fact| matches!(fact, Fact::EditInPlace { .. });
        facts.into_iter().filter(is_edit).collect::<Vec<_>>()
    };
    assert_eq!(edits(0..1), [], "the table is the space's own");
    let _child = fork(&space);
    let [begins, ends] = [true, false].map(|begins| Fact::EditInPlace { table, begins });
    assert_eq!(edits(0..0), [], "nothing is edited");
    assert_eq!(on(3, || edits(1..3)), [begins, ends], "one edit of two entries");
}

/// Fork copies the huge leaf afterwards, and looks at no table that is shared.
fn a_huge_leaf_is_left_to_a_fork_and_hides_no_table_behind_it<I: Isa>() {
    let space = Space::<I>::new(4, Delivery::AtOnce);
    space.map_special(HUGE, Level::PMD, Pfn::new(512));
    space.map_special(BESIDE, Level::PTE, Pfn::new(600));
    space.map_special(FURTHER, Level::PTE, Pfn::new(601));
    let (child, complete) = space.fork(is_of_last_table);
    assert!(!complete, "the huge leaf is not shared");
    let child = child.read();
    let has = |va| child.tables(&space.tlb).peek(va).leaf().map(|leaf| leaf.pfn());
    assert_eq!([HUGE, BESIDE, FURTHER].map(has), [None, Some(Pfn::new(600)), Some(Pfn::new(601))]);
}

/// A deferred flush that no table records may be of any entry, so an install makes it first.
fn a_table_made_for_all_flushes_what_has_no_place<I: Isa>() {
    let (space, child) = sharing::<I>();
    let own = VirtAddr::new(1 << 39);
    space.map_special(own, Level::PMD, Pfn::new(1024));
    let reads_own = || on(1, || space.host.access(own, Access::Read)).is_some();
    assert!(reads_own());
    let mut batch = Batch::new(&space.tlb);
    let clear = |run: &mut EntryRun<'_, '_, _>| batch.absorb(space.context(), run.unmap(own).expect("the huge leaf"));
    space.edit(own, Level::PMD, clear).expect("a table");
    assert!(reads_own(), "the flush is deferred");
    assert_eq!(make_tables(&space, &space.mmap, BESIDE), 1);
    assert!(!reads_own());
    batch.settle();
    drop(child);
}
