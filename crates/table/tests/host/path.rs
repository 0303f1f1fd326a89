//! What the path to an entry allows, whatever the entry itself says (INV-TABLE-OWN).

use crate::runs::Hooks;
use crate::space::Space;
use crate::support::Delivery;
use core::ops::ControlFlow;
use pagewright_arch::{Effects, Isa, Leaf, LeafFlags, PteSlot, SoftEntry, SoftKind, TableEntry};
use pagewright_table::{EntryView, Mlocked, OwnedLeaf};
use pagewright_tlb::Gather;
use pagewright_types::{Level, PageRange, Pfn, Rights, VirtAddr};

on_both_also_as_words! {
    a_descent_tells_an_own_entry_from_one_whose_table_is_missing,
    a_soft_entry_above_the_last_level_is_found_and_cleared,
    a_leaf_below_a_shared_entry_is_neither_writable_nor_exclusive,
    #[should_panic = "INV-TABLE-OWN"]
    a_table_below_a_shared_entry_is_not_locked_for_one_space,
    a_space_that_has_ended_has_no_tables,
}

const VA: VirtAddr = VirtAddr::new(0x1234_5678_9000);

fn found<I: Isa>(space: &Space<I>, level: Level) -> (&'static str, Level) {
    let held = space.mmap.read();
    let found = held.tables(&space.tlb).find(VA, level);
    let path = match (found.is_own(), found.is_shared()) {
        (true, false) => "own",
        (false, true) => "shared",
        (false, false) => "missing",
        (true, true) => unreachable!("an entry has one path"),
    };
    (path, found.level)
}

fn a_descent_tells_an_own_entry_from_one_whose_table_is_missing<I: Isa>() {
    let space = Space::<I>::new(1, Delivery::AtOnce);
    assert_eq!((found(&space, Level::PGD), found(&space, Level::PTE)), (("own", Level::PGD), ("missing", Level::PGD)));
    space.ensure_tables(VA, Level::PMD);
    assert_eq!((found(&space, Level::PMD), found(&space, Level::PTE)), (("own", Level::PMD), ("missing", Level::PMD)));
    space.map_special(VA, Level::PMD, Pfn::new(512));
    assert_eq!((found(&space, Level::PMD), found(&space, Level::PTE)), (("own", Level::PMD), ("own", Level::PMD)));
}

/// A soft entry above the last level is an entry like a leaf there: found, listed, locked, cleared.
fn a_soft_entry_above_the_last_level_is_found_and_cleared<I: Isa>() {
    let space = Space::<I>::new(1, Delivery::AtOnce);
    space.ensure_tables(VA, Level::PMD);
    let soft = SoftEntry { kind: SoftKind::Swap, exclusive: false, payload: 7 };
    space.edit(VA, Level::PMD, |run| run.map_soft(VA, soft)).expect("a table");
    assert_eq!(found(&space, Level::PTE), ("own", Level::PMD));
    let start = VA.align_down(Level::PMD.span());
    let (block, around) =
        (PageRange::new(start, start.add(Level::PMD.span())), PageRange::new(start, start.add(1 << 30)));
    {
        let held = space.mmap.read();
        let tables = held.tables(&space.tlb);
        assert_eq!(tables.missing(VA, Level::PTE), 0, "a table there would overwrite it");
        assert_eq!(tables.spans(around).collect::<Vec<_>>(), [block]);
        assert_eq!(
            tables.read_locked(around).map(|(table, part)| (table.level(), part)).collect::<Vec<_>>(),
            [(Level::PMD, block)]
        );
        assert_eq!(tables.peek(VA), EntryView::Soft(soft));
    }
    assert!(space.locked(VA, Level::PTE, |table| table.entry(VA) == EntryView::Soft(soft)).expect("it is locked"));
    let mut gather = Gather::new(&space.tlb, space.context());
    {
        let held = space.mmap.read();
        for (table, part) in held.tables(&space.tlb).owned(around).locked(around, Mlocked(false)) {
            table.unmap_run(part, Mlocked(false), &mut Hooks, |_, _| true, &mut gather);
        }
    }
    gather.settle();
    assert_eq!(found(&space, Level::PTE), ("missing", Level::PMD));
}

/// A space whose entry of `level` above `VA` is write-protected, with a leaf that allows all.
fn shared<I: Isa>(level: Level) -> Space<I> {
    let space = Space::<I>::new(1, Delivery::AtOnce);
    let flags = LeafFlags::USER | LeafFlags::ACCESSED | LeafFlags::EXCLUSIVE;
    space.ensure_tables(VA, Level::PTE);
    space.edit(VA, Level::PTE, |run| {
        run.map(VA, OwnedLeaf::special(Leaf { pfn: Pfn::new(9), rights: Rights::RW, flags }));
    });
    let below = Level::new(level.raw() - 1);
    let (table, child) = (space.table_at(VA, level), space.table_at(VA, below));
    let slot = PteSlot { table: table.expect("made"), index: level.index_of(VA) as u16 };
    space.host.store(slot, I::table(TableEntry { pfn: child.expect("made"), write_protected: true, origin: false }));
    space
}

fn a_leaf_below_a_shared_entry_is_neither_writable_nor_exclusive<I: Isa>() {
    for level in [Level::PMD, Level::PUD, Level::PGD] {
        let space = shared::<I>(level);
        assert_eq!((found(&space, level).0, found(&space, Level::PTE).0), ("own", "shared"));
        let held = space.mmap.read();
        let tables = held.tables(&space.tlb);
        let found = tables.find(VA, Level::PTE);
        assert!(found.is_shared(), "the path is shared");
        let taken = space.table().take_lockless(&space.tlb, VA, |entry, _| {
            assert_eq!(entry, EntryView::Table, "a walk without a hold goes no further");
            Some(())
        });
        assert_eq!(taken, Some(((), true)));
        let seen = [found.entry, tables.peek(VA), tables.read_lock(VA).expect("a table").entry(VA)];
        for entry in seen {
            let EntryView::Leaf(leaf) = entry else { panic!("{entry:?}") };
            assert_eq!((leaf.pfn(), leaf.rights(), leaf.is_exclusive()), (Pfn::new(9), Rights::READ, false));
            assert!(leaf.has(LeafFlags::ACCESSED), "a bit that a walker may set in a shared table stays");
        }
        assert_eq!(tables.spans(PageRange::page(VA)).count(), 0, "no part of the table is the space's own");
        assert_eq!(tables.read_locked(PageRange::page(VA)).count(), 1, "what is shared is still there");
    }
}

fn a_table_below_a_shared_entry_is_not_locked_for_one_space<I: Isa>() {
    let space = shared::<I>(Level::PUD);
    let held = space.mmap.read();
    let _locked = held.tables(&space.tlb).owned(PageRange::page(VA)).lock(VA);
}

/// INV-TABLE-STABLE.
fn a_space_that_has_ended_has_no_tables<I: Isa>() {
    let space = Space::<I>::new(1, Delivery::AtOnce);
    let root = space.table().root();
    space.mmap.write().close(&space.tlb);
    let block = space.reuse_root(root);
    assert_eq!((found(&space, Level::PTE).0, space.locked(VA, Level::PTE, |_| ())), ("missing", None));
    let held = space.mmap.read();
    assert!(held.tables(&space.tlb).lock_for_all(VA, None).is_none());
    let reached = held.tables(&space.tlb).reached_tables(None, |_, _, _| ControlFlow::Break(()));
    assert_eq!(reached, ControlFlow::Continue(()), "no table is reached");
    let tables = held.tables(&space.tlb).owned(PageRange::page(VA));
    assert_eq!(tables.peek(VA), EntryView::Empty);
    let mut reserve = pagewright_table::TableReserve::new(&space.tlb);
    reserve.fill(3).expect("memory is left");
    assert_eq!((tables.ensure(VA, Level::PTE, &mut reserve), reserve.len()), (0, 3));
    assert_eq!(space.table().bytes(), 0);
    drop(reserve);
    space.tlb.free(block);
}

#[cfg(feature = "planted")]
#[test]
fn an_edit_below_a_shared_entry_is_found() {
    use pagewright_plant::{PlantedBug, choose};
    let refused = || {
        let attempt = || a_table_below_a_shared_entry_is_not_locked_for_one_space::<pagewright_arch::X86_64>();
        std::panic::catch_unwind(attempt).is_err()
    };
    assert!(refused());
    choose(Some(PlantedBug::SharedTableEdited));
    let missed = !refused();
    choose(None);
    assert!(missed, "the test of the rule passes without the rule");
}
