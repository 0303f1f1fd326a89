//! Folios: references, freezing, splitting, pins, flags and debts.

use crate::support::{self, Host, one_node, shape, take};
use pagewright_arch::PendingSequence;
use pagewright_frame::{
    BlockList, Folio, FolioFlags, FolioOwner, FolioRef, FrameAllocator, FrameState, NewFolio, NotFrozen, ReleaseList,
    TableKey, TableMarks,
};
use pagewright_types::{DebtKey, FileId, ForkNodeId, Level, Order, Pfn, SpaceId};

fn machine() -> FrameAllocator<Host> {
    one_node(&Host::new(1), 0x400, 0x1000)
}

/// Orders at which folios differ: one page, two pages (one tail), 16 pages, a PMD's worth.
const ORDERS: [u8; 4] = [0, 1, 4, 9];

/// Calls `body` with a folio of each order: the order, its machine, the reference, the folio.
fn for_each_order(body: impl Fn(u8, &FrameAllocator<Host>, FolioRef, Folio<'_>)) {
    for raw in ORDERS {
        let frames = machine();
        let reference = frames.new_folio(take(&frames, raw));
        let folio = frames.folio_of(&reference);
        body(raw, &frames, reference, folio);
    }
}

/// INV-FRAME-STATE.
#[test]
fn a_folio_is_found_by_each_of_its_frames_and_by_no_other() {
    for raw in ORDERS {
        let frames = machine();
        let reference = frames.new_folio(take(&frames, raw));
        let folio = frames.folio(reference.pfn());
        assert_eq!((folio.order(), folio.refs(), folio.is_mapped()), (Order::new(raw), 1, false));
        for index in 0..folio.pages() {
            let pfn = folio.page(index);
            assert_eq!(frames.find_folio(pfn).map(|found| found.pfn()), Some(folio.pfn()));
            assert_eq!(folio.page_of(pfn), index);
            assert_eq!(frames.state(pfn), if index == 0 { FrameState::Folio } else { FrameState::Tail });
        }
        assert!(frames.find_folio(folio.range().end()).is_none());
        assert!(frames.find_folio(Pfn::new(0)).is_none(), "frame 0 is below all memory");
        let head = folio.pfn();
        let block = frames.put(reference).expect("the last reference");
        assert_eq!((block.pfn(), block.order()), (head, Order::new(raw)));
        // INV-FRAME-TAIL: the records of the tails are stale now and must not be used.
        for index in 0..block.order().frames() {
            assert!(frames.find_folio(head.add(index)).is_none());
            assert!(frames.try_get_folio(head.add(index)).is_none());
        }
        frames.free(block);
    }
}

#[test]
fn stale_tails_do_not_belong_to_a_smaller_folio_at_their_head() {
    let frames = machine();
    let large = frames.new_folio(take(&frames, 4));
    let head = large.pfn();
    frames.free(frames.put(large).expect("the last reference"));
    let small = frames.new_folio(take(&frames, 0));
    let at = small.pfn();
    assert_eq!(Pfn::new(at.raw() & !0xf), head, "the test needs the same frames again");
    for index in 0..16 {
        let pfn = head.add(index);
        assert_eq!(frames.find_folio(pfn).is_some(), pfn == at, "INV-FRAME-TAIL");
    }
    frames.free(frames.put(small).expect("the last reference"));
}

#[test]
fn only_the_last_put_returns_the_block() {
    for_each_order(|_, frames, first, folio| {
        let second = folio.get();
        let third = folio.try_get().expect("the folio has references");
        folio.get_raw(2);
        assert_eq!(folio.refs(), 5, "INV-FRAME-REFS");
        assert!(frames.put(support::take_back(frames, folio.page(folio.pages() - 1))).is_none());
        assert!(frames.put(support::take_back(frames, folio.pfn())).is_none());
        assert!(frames.put(second).is_none());
        let mut release_list = ReleaseList::new();
        let first = release_list.put_last(frames, first).expect_err("there are other references");
        assert!(frames.put(third).is_none());
        release_list.put_last(frames, first).expect("the last reference");
        assert!(folio.try_get().is_none(), "INV-FRAME-SPEC: a reference to a folio that is being freed");
        release_list.free(frames);
        assert!(folio.try_get().is_none(), "INV-FRAME-SPEC: a reference to free frames");
    });
}

#[test]
fn no_reference_can_be_taken_to_a_table() {
    let frames = machine();
    let table = frames.new_table(take(&frames, 0), pagewright_types::Level::PTE, Default::default());
    assert!(frames.try_get_folio(table).is_none(), "INV-FRAME-SPEC");
    frames.free(support::retire(&frames, table));
}

#[test]
fn freezing_needs_exactly_the_expected_references() {
    for_each_order(|raw, frames, reference, folio| {
        let extra = folio.get();
        for expected in [1, 3] {
            let refusal = NotFrozen { pfn: folio.pfn(), expected, found: 2 };
            assert_eq!(folio.freeze(expected).expect_err("the count differs"), refusal, "INV-FRAME-FROZEN");
        }
        assert_eq!(folio.refs(), 2, "a failed freeze changed the count");
        let frozen = folio.freeze(2).expect("the count is right");
        assert!(folio.try_get().is_none() && folio.try_pin().is_none() && frames.try_get_folio(folio.pfn()).is_none());
        assert_eq!(frozen.folio().order(), Order::new(raw));
        frozen.thaw(2);
        assert!(frames.put(extra).is_none());
        frames.free(frames.put(reference).expect("the last reference"));
    });
}

#[test]
fn a_pin_prevents_freezing_and_is_always_reported() {
    for_each_order(|raw, frames, reference, folio| {
        assert!(!folio.maybe_pinned());
        let (one, two) = (folio.try_pin().expect("alive"), folio.try_pin().expect("alive"));
        assert_eq!(folio.refs(), if raw == 0 { 1 + 2 * 1024 } else { 3 });
        assert!(folio.maybe_pinned() && folio.freeze(1).is_err(), "INV-FRAME-PIN");
        assert!(frames.unpin(one).is_none());
        assert!(folio.maybe_pinned(), "INV-FRAME-PIN");
        assert!(frames.put(reference).is_none(), "INV-FRAME-PIN: the folio is freed while pinned");
        frames.free(frames.unpin(two).expect("the pin was the last reference"));
    });
}

#[test]
fn only_a_small_folio_reports_1024_references_as_a_pin() {
    let frames = machine();
    for raw in [0, 1] {
        let reference = frames.new_folio(take(&frames, raw));
        let folio = frames.folio_of(&reference);
        folio.get_raw(1023);
        assert_eq!(folio.maybe_pinned(), raw == 0, "a pin counts as 1024 references in a small folio only");
        for _ in 0..1023 {
            assert!(frames.put(support::take_back(&frames, folio.pfn())).is_none());
        }
        frames.free(frames.put(reference).expect("the last reference"));
    }
}

/// Mappings are references too, and a thousand of them are no pin.
#[test]
fn a_small_folio_seems_pinned_by_references_beside_its_mappings() {
    let frames = machine();
    let reference = frames.new_folio(take(&frames, 0));
    let folio = frames.folio_of(&reference);
    assert_eq!((folio.pins(), folio.seems_pinned(), folio.has_few_refs()), ((0, 1024), false, true));
    for _ in 0..1023 {
        folio.get_and_map_page(0);
    }
    assert_eq!((folio.refs(), folio.pins(), folio.has_few_refs()), (1024, (1, 1024), false));
    assert!(folio.maybe_pinned() && !folio.seems_pinned(), "all but one of 1024 references are of mappings");
    let (one, two) = (folio.try_pin().expect("alive"), folio.try_pin().expect("alive"));
    assert_eq!((folio.pins(), folio.seems_pinned()), ((3, 1024), true));
    assert!(frames.unpin(one).is_none());
    folio.get_raw(1024 - 2);
    assert!(frames.unpin(two).is_none());
    assert!(!folio.seems_pinned(), "1023 references are of no mapping");
    folio.get_raw(1);
    assert!(folio.seems_pinned(), "1024 references are of no mapping");
    assert_eq!(folio.refs(), 1023 + 1024);
    (0..1023).for_each(|_| _ = folio.unmap_page(0));
    folio.freeze(1023 + 1024).expect("the count is right").thaw(1);
    frames.free(frames.put(reference).expect("the last reference"));
}

#[test]
fn a_large_folio_counts_its_pins_apart() {
    let frames = machine();
    let reference = frames.new_folio(take(&frames, 2));
    let folio = frames.folio_of(&reference);
    folio.get_raw(2000);
    assert_eq!((folio.pins(), folio.seems_pinned(), folio.has_few_refs()), ((0, 1), false, false));
    let (one, two) = (folio.try_pin().expect("alive"), folio.try_pin().expect("alive"));
    assert_eq!((folio.pins(), folio.seems_pinned()), ((2, 1), true));
    assert!(frames.unpin(one).is_none() && frames.unpin(two).is_none());
    assert_eq!((folio.pins(), folio.seems_pinned()), ((0, 1), false));
    folio.freeze(2001).expect("the count is right").thaw(1);
    frames.free(frames.put(reference).expect("the last reference"));
}

/// What `new_mapped_folio` says at once is what a folio says that is made, placed and mapped.
#[test]
fn a_new_mapped_folio_is_mapped_once_and_listed() {
    for raw in ORDERS {
        let frames = machine_of_former_tables();
        let (block, owner) = (take(&frames, raw), FolioOwner::Anon(ForkNodeId::new(5)));
        let flags = FolioFlags::SWAPBACKED | FolioFlags::UPTODATE;
        let new = NewFolio { block, owner, index: 9, flags };
        let head = new.pfn();
        let reference = frames.new_mapped_folio(new);
        let folio = frames.folio_of(&reference);
        assert_eq!((folio.pfn(), folio.order(), folio.refs(), folio.mapcount()), (head, Order::new(raw), 1, 1));
        assert_eq!((folio.owner(), folio.index(), folio.flags()), (owner, 9, flags | FolioFlags::LRU));
        assert!(folio.is_mapped() && !folio.is_partially_mapped() && !folio.maybe_pinned());
        assert_eq!((folio.mlocks(), folio.swap_entry(), folio.entire_mapcount()), (0, None, u32::from(raw > 0)));
        for page in 0..folio.pages() {
            assert_eq!(frames.find_folio(folio.page(page)).map(|found| found.pfn()), Some(head));
            assert_eq!(folio.page_mapcount(page), u32::from(raw == 0));
        }
        let change = if raw == 0 { folio.unmap_page(0) } else { folio.unmap_entire() };
        assert_eq!((change.pages, change.mapcount), (folio.pages(), 0));
        assert!(!folio.is_mapped());
        frames.free(frames.put(reference).expect("the last reference"));
    }
}

#[test]
fn the_last_entry_of_a_small_folio_gives_up_reference_and_mapping_at_once() {
    for_each_order(|raw, frames, reference, folio| {
        let mut list = ReleaseList::new();
        folio.map_page(0);
        let extra = folio.get();
        let reference = list.put_last_entry(frames, reference).expect_err("there is another reference");
        assert!(frames.put(extra).is_none());
        folio.get_and_map_page(0);
        let reference = list.put_last_entry(frames, reference).expect_err("there is another mapping");
        assert_eq!((folio.refs(), folio.mapcount()), (2, 2), "nothing has changed");
        if raw == 0 {
            assert!(!folio.unmap_small(), "one of two mappings");
        } else {
            folio.unmap_page(0);
        }
        assert!(frames.put(support::take_back(frames, folio.pfn())).is_none());
        match list.put_last_entry(frames, reference) {
            Ok(()) => assert!(raw == 0 && folio.refs() == 0),
            Err(reference) => {
                assert!(raw > 0, "a small folio with one reference and one mapping is taken");
                folio.unmap_page(0);
                list.put_last(frames, reference).expect("the last reference");
            }
        }
        list.free(frames);
        assert!(frames.find_folio(folio.pfn()).is_none());
    });
    let frames = machine();
    let reference = frames.new_folio(take(&frames, 0));
    let folio = frames.folio_of(&reference);
    folio.map_page(0);
    assert!(folio.unmap_small(), "the only mapping");
    frames.free(frames.put(reference).expect("the last reference"));
}

/// The limit for entries is three quarters of what the count holds.
#[test]
fn an_entry_gets_no_reference_above_its_limit() {
    const LIMIT: u32 = 3 << 30;
    for_each_order(|_, frames, reference, folio| {
        folio.get_raw(LIMIT - 2);
        assert!(!folio.exceeds_ref_limit() && folio.has_room_for_entry(), "one below the limit");
        folio.get_raw(1);
        assert!(!folio.exceeds_ref_limit() && !folio.has_room_for_entry(), "at the limit");
        folio.get_raw(1);
        assert!(folio.exceeds_ref_limit() && !folio.has_room_for_entry());
        folio.freeze(LIMIT + 1).expect("the count is right").thaw(1);
        frames.free(frames.put(reference).expect("the last reference"));
    });
}

/// INV-FRAME-REFS: the count cannot overflow, which would free the folio under its users.
#[test]
fn no_reference_can_be_taken_to_a_folio_with_2_31_references() {
    for_each_order(|_, frames, reference, folio| {
        folio.get_raw((1 << 31) - 2);
        let pin = folio.try_pin().expect("the count is below the limit");
        assert!(folio.try_get().is_none() && folio.try_pin().is_none() && frames.try_get_folio(folio.pfn()).is_none());
        assert!(frames.unpin(pin).is_none());
        let last = folio.try_get().expect("the count is below the limit again");
        assert_eq!(folio.refs(), 1 << 31);
        assert!(folio.try_get().is_none(), "a refused reference was counted");
        assert!(frames.put(last).is_none());
        folio.freeze((1 << 31) - 1).expect("the count is right").thaw(1);
        frames.free(frames.put(reference).expect("the last reference"));
    });
}

#[test]
fn the_parts_of_a_split_folio_keep_its_state() {
    for (from, to) in [(1, 0), (4, 0), (4, 2), (9, 0), (9, 4), (9, 8)] {
        let frames = machine();
        let initial = shape(&frames);
        let reference = frames.new_folio(take(&frames, from));
        let folio = frames.folio_of(&reference);
        folio.set_owner(FolioOwner::Anon(ForkNodeId::new(77)), 0x1_2345_6000);
        folio.set_flags(FolioFlags::DIRTY | FolioFlags::SWAPBACKED | FolioFlags::UPTODATE);
        folio.set_age(9);
        folio.add_debt(DebtKey::new(5));
        let lock = folio.try_lock().expect("the folio is unlocked");
        let head = folio.pfn();
        let mut parts = folio.freeze(1).expect("one reference").split(Order::new(to));
        for index in 0..1 << (from - to) {
            assert_eq!(parts.len(), (1 << (from - to)) - index, "those that are left");
            let part = parts.next().expect("one of them");
            let view = part.folio();
            assert_eq!(view.pfn(), head.add((index as u32) << to));
            assert_eq!(view.order(), Order::new(to));
            assert_eq!(view.owner(), FolioOwner::Anon(ForkNodeId::new(77)));
            assert_eq!(view.index(), 0x1_2345_6000 + ((index as u64) << to));
            assert_eq!(view.age(), 9);
            let locked = if index == 0 { FolioFlags::LOCKED } else { FolioFlags::empty() };
            assert_eq!(view.flags(), FolioFlags::DIRTY | FolioFlags::SWAPBACKED | FolioFlags::UPTODATE | locked);
            assert!(frames.try_get_folio(view.pfn()).is_none(), "INV-FRAME-FROZEN: a part is not frozen");
            part.thaw(1);
            for page in 0..view.pages() {
                assert_eq!(frames.folio(view.page(page)).pfn(), view.pfn());
            }
        }
        drop(lock);
        let mut list = BlockList::new();
        assert_eq!(reference.into_raw(), head, "the caller's reference is now to the first part");
        for index in 0..1u32 << (from - to) {
            let part = support::take_back(&frames, head.add(index << to));
            list.push(&frames, frames.put(part).expect("the part's only reference"));
        }
        assert_eq!(list.len(), 1 << (from - to));
        while let Some(block) = list.pop(&frames) {
            frames.free(block);
        }
        assert_eq!(frames.parked(), 1 << from, "the parts lost the debt of the folio");
        frames.drain();
        support::settle_everything(&frames);
        assert_eq!(shape(&frames), initial);
    }
}

/// A machine each of whose frames was a table with marks.
///
/// A word of a record means something else in other states, and keeps what was stored there.
fn machine_of_former_tables() -> FrameAllocator<Host> {
    let frames = machine();
    {
        let request = pagewright_frame::FrameRequest::new(Order::ZERO, support::NODE0);
        let blocks = core::iter::from_fn(|| frames.alloc(request, support::nothing_settled).ok());
        let tables: Vec<Pfn> = blocks
            .map(|block| {
                let table = frames.new_table(block.settle(|_| {}), Level::PTE, SpaceId::new(7));
                let record = frames.table(table);
                record.mark(TableMarks::all());
                record.set_pending(TableKey::new(5), PendingSequence::new(3));
                record.set_lingering(TableKey::new(7));
                table
            })
            .collect();
        tables.into_iter().for_each(|table| frames.free(support::retire(&frames, table)));
    }
    frames.drain();
    frames
}

#[test]
fn the_parts_of_a_split_folio_have_no_counts_of_former_tables() {
    for (from, to) in [(1, 0), (4, 2), (9, 0)] {
        let frames = machine_of_former_tables();
        let reference = frames.new_folio(take(&frames, from));
        assert_eq!(frames.folio_of(&reference).mlocks(), 0, "it is evictable");
        let parts = frames.folio_of(&reference).freeze(1).expect("one reference").split(Order::new(to));
        let _ = reference.into_raw();
        for part in parts {
            let view = part.folio();
            assert_eq!((view.mapcount(), view.entire_mapcount(), view.swap_entry()), (0, 0, None), "INV-FRAME-MAP");
            assert!(!view.is_mapped() && !view.is_partially_mapped());
            part.thaw(1);
            assert!(!view.maybe_pinned(), "INV-FRAME-PIN");
        }
    }
}

#[test]
fn splitting_around_one_page_leaves_ten_folios() {
    // As in Linux's non-uniform split of order 9 around one page: one part each of orders 8 to 1,
    // and two of order 0.
    let frames = machine();
    let reference = frames.new_folio(take(&frames, 9));
    let wanted = reference.pfn().add(0x155);
    let mut orders = vec![];
    let mut around = frames.folio_of(&reference).freeze(1).expect("one reference");
    let _ = reference.into_raw();
    for raw in (0..9).rev() {
        let [left, right]: [_; 2] = around.split(Order::new(raw)).collect::<Vec<_>>().try_into().expect("two halves");
        let other;
        (around, other) = if left.folio().contains(wanted) { (left, right) } else { (right, left) };
        orders.push(other.folio().order().raw());
        other.thaw(1);
    }
    assert_eq!(around.folio().pfn(), wanted);
    orders.push(around.folio().order().raw());
    around.thaw(1);
    assert_eq!(orders, [8, 7, 6, 5, 4, 3, 2, 1, 0, 0]);
}

#[test]
fn frames_with_a_debt_are_parked_by_any_free() {
    let frames = machine();
    let reference = frames.new_folio(take(&frames, 2));
    let other = frames.folio_of(&reference).get();
    frames.folio_of(&reference).add_debt(DebtKey::new(4));
    frames.folio_of(&reference).add_debt(DebtKey::new(2));
    assert!(frames.put(reference).is_none());
    frames.free(frames.put(other).expect("the last reference"));
    let parked: u32 = frames.zones().map(|zone| zone.parked()).sum();
    assert_eq!(parked, 4);
    // INV-FRAME-KEY
    let request = pagewright_frame::FrameRequest::new(Order::new(2), support::NODE0);
    let key = loop {
        let block = frames.alloc(request, support::nothing_settled).expect("a parked block is left");
        let key = block.key();
        let _ = block.settle(|_| {}).into_raw();
        if key != DebtKey::NONE {
            break key;
        }
    };
    assert_eq!(key, DebtKey::new(2).merge(DebtKey::new(4)));
}

#[test]
fn flags_owner_index_and_age_do_not_affect_each_other() {
    let frames = machine();
    let reference = frames.new_folio(take(&frames, 0));
    let folio = frames.folio_of(&reference);
    assert_eq!(
        (folio.flags(), folio.owner(), folio.index(), folio.age()),
        (FolioFlags::empty(), FolioOwner::None, 0, 0)
    );
    folio.set_age(255);
    assert_eq!(folio.set_flags(FolioFlags::DIRTY), FolioFlags::empty());
    assert_eq!(folio.set_flags(FolioFlags::ACTIVE), FolioFlags::DIRTY);
    assert_eq!(folio.age(), 255);
    folio.set_age(1);
    assert_eq!(folio.clear_flags(FolioFlags::all()), FolioFlags::DIRTY | FolioFlags::ACTIVE);
    assert_eq!(folio.age(), 1);
    for owner in [
        FolioOwner::Anon(ForkNodeId::new(0)),
        FolioOwner::File(FileId::new(0)),
        FolioOwner::File(FileId::new(u32::MAX)),
    ] {
        folio.set_owner(owner, u64::MAX);
        assert_eq!((folio.owner(), folio.index()), (owner, u64::MAX));
        assert_eq!(folio.is_anon(), owner == FolioOwner::Anon(ForkNodeId::new(0)));
    }
    let lock = folio.try_lock().expect("the folio is unlocked");
    assert!(folio.try_lock().is_none());
    drop(lock);
    drop(folio.try_lock().expect("the drop unlocked it"));
    frames.free(frames.put(reference).expect("the last reference"));
    let fresh = frames.new_folio(take(&frames, 0));
    let view = frames.folio_of(&fresh);
    assert_eq!((view.flags(), view.owner(), view.index(), view.age()), (FolioFlags::empty(), FolioOwner::None, 0, 0));
    frames.free(frames.put(fresh).expect("the last reference"));
}
