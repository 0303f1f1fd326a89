//! What a fork that shares tables declares and leaves, and what spaces do that leave them.
//!
//! INV-SHARE-PIN, INV-SHARE-LEAVE.

use crate::pending::{VA, fork, is_flush, own, own_at, page, used};
use crate::space::{Child, Space, is_of_last_table};
use crate::support::{Delivery, declared, on};
use pagewright_arch::{Effects, Isa, Leaf, LeafFlags, PteSlot, SoftEntry, SoftKind};
use pagewright_table::OwnedLeaf;
use pagewright_tlb::frames::TableMarks;
use pagewright_types::judge::Fact;
use pagewright_types::{Level, Order, PageRange, Pfn, Rights, VirtAddr};

on_both_also_as_words! {
    a_table_is_declared_shared_while_two_spaces_have_it,
    a_fork_removes_the_mark_of_a_table_without_pinned_pages,
    a_fork_removes_the_marks_above_a_table_that_it_leaves_to_be_copied,
    a_space_that_stops_to_share_has_still_accessed_its_pages,
    a_space_that_ends_is_left_by_lazy_cpus,
    a_gap_hides_no_shared_table_behind_it,
    a_lock_alone_stores_nothing,
    a_space_that_stops_to_share_keeps_its_markers,
    a_table_that_no_other_space_has_is_left_without_a_flush,
    a_folio_that_is_pinned_through_another_table_does_not_stop_a_break,
}

/// Which tables `body` declares shared, or no longer shared.
fn shared_by(body: impl FnOnce()) -> Vec<(Pfn, Level, bool)> {
    let as_shared = |fact| match fact {
        Fact::TableShared { table, level, shared } => Some((table, level, shared)),
        _ => None,
    };
    declared(body).1.into_iter().filter_map(as_shared).collect()
}

fn a_table_is_declared_shared_while_two_spaces_have_it<I: Isa>() {
    let space = used::<I>();
    let table = space.table_at(VA, Level::PUD).expect("a table");
    let mut children = Vec::new();
    assert_eq!(shared_by(|| children.push(fork(&space))), [(table, Level::PUD, true)]);
    assert_eq!(shared_by(|| children.push(fork(&space))), [], "it is shared already");
    let all = PageRange::new(VirtAddr::ZERO, I::USER_END);
    let leave = |child: Child<I>| {
        child.write().leave_shared(&space.tlb, all, core::iter::once(all));
    };
    assert_eq!(shared_by(|| children.pop().into_iter().for_each(leave)), [], "two spaces are left");
    assert_eq!(shared_by(|| children.pop().into_iter().for_each(leave)), [(table, Level::PUD, false)]);
}

/// The tables on the way to the pages, from the highest one on.
fn path<I: Isa>(space: &Space<I>, last: Level) -> Vec<Pfn> {
    let levels = [Level::PUD, Level::PMD, Level::PTE].into_iter().filter(|level| *level >= last);
    levels.map(|level| space.table_at(VA, level).expect("a table")).collect()
}

/// Whether pages below a table may be pinned.
fn may_pin<I: Isa>(space: &Space<I>, table: Pfn) -> bool {
    space.tlb.frames().table(table).marks().contains(TableMarks::MAY_PIN)
}

/// Forks a space whose tables on the way to `last` may have pinned pages; returns which still may.
fn still_marked<I: Isa>(space: &Space<I>, last: Level) -> Vec<bool> {
    let tables = path(space, last);
    tables.iter().for_each(|table| space.tlb.frames().table(*table).mark(TableMarks::MAY_PIN));
    on(3, || space.fork(|_| true));
    tables.into_iter().map(|table| may_pin(space, table)).collect()
}

fn a_fork_removes_the_mark_of_a_table_without_pinned_pages<I: Isa>() {
    let space = used::<I>();
    assert_eq!(still_marked(&space, Level::PTE), [false; 3]);
    let last = space.mmap.read().tables(&space.tlb).read_lock(VA).expect("a table").table();
    assert_eq!(space.tlb.frames().table(last).shares(), 2);
}

/// Its pages are not looked at, and its own mark says that none is pinned.
fn a_fork_removes_the_marks_above_a_table_that_it_leaves_to_be_copied<I: Isa>() {
    let space = used::<I>();
    let tables = path(&space, Level::PTE);
    for (pinned, expected) in [(false, [false; 3]), (true, [true; 3])] {
        tables[..2].iter().for_each(|table| space.tlb.frames().table(*table).mark(TableMarks::MAY_PIN));
        if pinned {
            space.tlb.frames().table(tables[2]).mark(TableMarks::MAY_PIN);
        }
        let (_, complete) = on(3, || space.fork(|range: PageRange| !range.covers(PageRange::page(VA))));
        assert!(!complete);
        assert_eq!(tables.iter().map(|table| may_pin(&space, *table)).collect::<Vec<_>>(), expected);
    }
}

/// A child, whose entries a fork copies, has not.
fn a_space_that_stops_to_share_has_still_accessed_its_pages<I: Isa>() {
    let space = used::<I>();
    let child = fork(&space);
    own(&space, &child);
    let held = child.read();
    for index in 0..4 {
        let leaf = held.tables(&space.tlb).peek(page(index)).leaf().expect("a page");
        assert!(leaf.flags().contains(LeafFlags::ACCESSED), "page {index}");
    }
}

fn a_space_that_ends_is_left_by_lazy_cpus<I: Isa>() {
    let space = Space::<I>::new(4, Delivery::AtOnce);
    on(1, || {
        space.tlb.switch_to(space.context());
        space.tlb.enter_lazy();
    });
    space.mmap.write().close(&space.tlb);
    assert!(space.context().cpus().is_empty());
    assert_eq!(space.tlb.frames().available(), space.free);
}

/// The table of one span is shared; the spans beside it have none.
fn a_gap_hides_no_shared_table_behind_it<I: Isa>() {
    for gap in 0..4 {
        let space = Space::<I>::new(1, Delivery::AtOnce);
        let span = Level::PMD.span();
        space.map_special(VA.add(gap * span), Level::PTE, Pfn::new(5));
        let (_child, _) = space.fork(is_of_last_table);
        let held = space.mmap.read();
        for spans in 1..8 {
            let range = PageRange::new(VA, VA.add(spans * span));
            let is_own = held.tables(&space.tlb).try_own(range).is_some();
            assert_eq!(is_own, spans <= gap, "{spans} spans of which the first {gap} are empty");
        }
    }
}

/// A number of stores is noted when a table is unlocked.
fn a_lock_alone_stores_nothing<I: Isa>() {
    let space = used::<I>();
    let _child = fork(&space);
    let held = space.mmap.read();
    let family = held.tables(&space.tlb).family_token();
    let before = space.host.stores();
    assert!(held.tables(&space.tlb).lock_for_all(VA, family.as_ref()).is_some());
    assert_eq!(space.host.stores(), before);
}

/// A marker in the place of a table, beside the pointer to one that is shared.
fn a_space_that_stops_to_share_keeps_its_markers<I: Isa>() {
    let space = used::<I>();
    let table = space.table_at(VA, Level::PMD).expect("a table");
    let _child = space.fork(is_of_last_table);
    let slot = PteSlot { table, index: Level::PMD.index_of(VA) as u16 + 1 };
    let marker = I::soft(SoftEntry { kind: SoftKind::Marker, exclusive: false, payload: 1 });
    space.host.store(slot, marker);
    let all = PageRange::new(VirtAddr::ZERO, I::USER_END);
    space.mmap.write().leave_shared(&space.tlb, all, core::iter::once(all));
    assert_eq!(space.host.load(slot), marker);
}

/// Its pointer becomes the space's own again, which allows more than before.
fn a_table_that_no_other_space_has_is_left_without_a_flush<I: Isa>() {
    let space = used::<I>();
    let (child, all) = (fork(&space), PageRange::new(VirtAddr::ZERO, I::USER_END));
    let leave = |mmap: &Child<I>| {
        let held = mmap.write();
        let ((), log) = space.host.log(|| {
            held.leave_shared(&space.tlb, all, core::iter::once(all));
        });
        log.iter().any(is_flush)
    };
    assert!(leave(&child), "the table is left to the parent");
    assert!(!leave(&space.mmap));
    assert!(space.table_at(VA, Level::PTE).is_some());
}

/// The folio has one page in each of two tables, and the pin was taken through the other.
///
/// INV-SHARE-PIN: a pin of a large folio does not say of which page, but no page that the break
/// copies can be it.
fn a_folio_that_is_pinned_through_another_table_does_not_stop_a_break<I: Isa>() {
    let (space, flags) = (used::<I>(), LeafFlags::USER | LeafFlags::ACCESSED | LeafFlags::EXCLUSIVE);
    let (tlb, places) = (&space.tlb, [page(8), VA.add(Level::PMD.span())]);
    let order = Order::new(2);
    let folio = tlb.frames().new_folio(tlb.alloc(tlb.request(order)).expect("memory is left"));
    let first = folio.pfn();
    for (va, index) in places.into_iter().zip(0..) {
        let leaf = Leaf { pfn: first.add(index), rights: Rights::RW, flags };
        space.ensure_tables(va, Level::PTE);
        let owned = OwnedLeaf::new(leaf, tlb.frames().folio(first).get());
        space.edit(va, Level::PTE, |run| run.map(va, owned)).expect("just made");
    }
    tlb.frames().put(folio).into_iter().for_each(|block| tlb.free(block));
    let pin = tlb.frames().folio(first).try_pin().expect("it is mapped");
    let (child, _) = space.fork(|range: PageRange| is_of_last_table(range) && range.covers(PageRange::page(VA)));
    own_at(&space, &child, VA);
    let rights = |mmap: &Child<I>, va| mmap.read().tables(tlb).peek(va).leaf().map(|leaf| (leaf.pfn(), leaf.rights()));
    assert_eq!(rights(&child, places[0]), Some((first, Rights::READ)), "the page itself, without the right to store");
    assert_eq!(rights(&space.mmap, places[0]), Some((first, Rights::READ)));
    assert_eq!(rights(&space.mmap, places[1]), Some((first.add(1), Rights::RW)), "the page of the pin");
    assert_eq!(tlb.frames().folio(first).page_mapcount(0), 2);
    tlb.frames().unpin(pin).into_iter().for_each(|block| tlb.free(block));
}
