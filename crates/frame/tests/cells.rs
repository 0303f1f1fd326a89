//! References outside page tables: in a cell, in the swap cache; and what a scan of memory finds.

use crate::support::{self, Host, NODE0, declared, one_node, retire, run_on, take};
use pagewright_frame::{Block, FolioCell, FolioFlags, FrameAllocator, FrameRequest, FrameState, ReleaseList};
use pagewright_types::judge::Fact;
use pagewright_types::{DebtFloor, DebtKey, Level, Order, Pfn, SpaceId, SwapEntry};

fn machine() -> FrameAllocator<Host> {
    run_on(0);
    one_node(&Host::new(1), 0x400, 0x1000)
}

#[test]
fn a_cell_has_one_reference_until_it_is_taken() {
    let frames = machine();
    let [first, second] = [0, 0].map(|order| frames.new_folio(take(&frames, order)));
    let (pfn, cell) = (first.pfn(), FolioCell::new());
    assert_eq!((cell.pfn(), cell.take().map(|reference| reference.into_raw())), (None, None));
    cell.fill(first).expect("the cell is empty");
    assert_eq!(cell.pfn(), Some(pfn));
    let second = cell.fill(second).expect_err("the cell has a reference");
    assert_eq!(cell.pfn(), Some(pfn));
    let first = cell.take().expect("the reference");
    assert_eq!((first.pfn(), cell.pfn()), (pfn, None));
    assert!(cell.take().is_none(), "the reference is taken once");
    cell.fill(second).expect("the cell is empty again");
    for reference in [Some(first), cell.take()].into_iter().flatten() {
        frames.free(frames.put(reference).expect("the last reference"));
    }
}

#[test]
fn the_swap_cache_has_a_reference_and_names_the_slot() {
    let frames = machine();
    let reference = frames.new_folio(take(&frames, 0));
    let folio = frames.folio_of(&reference);
    let entry = SwapEntry::from_raw(0x1234_5678);
    assert_eq!(folio.swap_entry(), None);
    folio.join_swap_cache(entry);
    assert_eq!((folio.swap_entry(), folio.refs()), (Some(entry), 2));
    let cached = folio.leave_swap_cache().expect("it is in the cache");
    assert_eq!((cached.pfn(), folio.swap_entry(), folio.refs()), (folio.pfn(), None, 2));
    assert!(folio.leave_swap_cache().is_none(), "it left once");
    assert!(frames.put(cached).is_none());
    frames.free(frames.put(reference).expect("the last reference"));
}

#[test]
#[should_panic(expected = "larger than a swap slot")]
fn a_large_folio_does_not_join_the_swap_cache() {
    let frames = machine();
    let reference = frames.new_folio(take(&frames, 1)).into_raw();
    frames.folio(reference).join_swap_cache(SwapEntry::from_raw(1));
}

#[test]
fn a_folio_that_something_else_has_is_not_freed() {
    for flag in [FolioFlags::LOCKED, FolioFlags::RESERVED, FolioFlags::SWAPCACHE, FolioFlags::WRITEBACK] {
        let freed = std::panic::catch_unwind(|| {
            let frames = machine();
            let reference = frames.new_folio(take(&frames, 0));
            frames.folio_of(&reference).set_flags(flag);
            frames.put(reference).map(|block| block.into_raw())
        });
        assert!(freed.is_err(), "INV-FRAME-STATE: freed as {flag:?}");
    }
}

/// What the judge does not know, it can't judge.
#[test]
fn each_way_to_free_frames_declares_it_with_their_size() {
    let frames = machine();
    let freed = |block: &Block| Fact::FrameFreed { pfn: block.pfn(), order: block.order() };
    for order in [0, 3, 4] {
        let [first, second, third] = [(); 3].map(|()| take(&frames, order));
        let expected = [freed(&first), freed(&second), freed(&third)];
        let unsettled = |frames: &FrameAllocator<Host>| {
            frames.alloc(FrameRequest::new(Order::new(order), NODE0), || DebtFloor::NONE).expect("memory is left")
        };
        assert_eq!(declared(|| frames.free(first)), expected[..1]);
        assert_eq!(declared(|| frames.free_with_debt(second, DebtKey::new(7))), expected[1..2]);
        let mut list = ReleaseList::new();
        let folio = frames.new_folio(third);
        assert_eq!(declared(|| list.put_last(&frames, folio).expect("the last reference")), []);
        assert_eq!(declared(|| list.free(&frames)), expected[2..]);
        support::settle_everything(&frames);
        let (free, mut taken) = (frames.available(), None);
        let taking = declared(|| taken = Some(unsettled(&frames)));
        assert_eq!(taking, [], "the engine declares that frames are used again");
        let given_back = declared(|| frames.free_unsettled(taken.expect("just taken")));
        assert!(matches!(given_back[..], [Fact::FrameFreed { order: of, .. }] if of == Order::new(order)));
        assert_eq!(frames.available(), free);
    }
}

#[test]
fn a_scan_finds_what_has_an_owner_and_nothing_else() {
    let frames = machine();
    assert_eq!(frames.in_use().collect::<Vec<_>>(), []);
    let (block, freed) = (take(&frames, 4), take(&frames, 0));
    let folios = [0, 3].map(|order| frames.new_folio(take(&frames, order)));
    let table = frames.new_table(take(&frames, 0), Level::PTE, SpaceId::new(7));
    frames.free(freed);
    let mut expected = vec![(block.pfn(), FrameState::Allocated), (table, FrameState::Table)];
    expected.extend(folios.iter().map(|folio| (folio.pfn(), FrameState::Folio)));
    expected.sort_unstable_by_key(|(pfn, _)| *pfn);
    assert_eq!(frames.in_use().collect::<Vec<_>>(), expected);
    let refs = |at: usize, page| frames.folio_of(&folios[at]).page_refs(page);
    assert_eq!(([refs(0, 0), refs(1, 0)], [refs(1, 1), refs(1, 7)]), ([1, 1], [0, 0]), "INV-FRAME-SPEC");
    frames.free(block);
    frames.free(retire(&frames, table));
    folios.into_iter().for_each(|folio| frames.free(frames.put(folio).expect("the last reference")));
    assert_eq!(frames.in_use().collect::<Vec<(Pfn, FrameState)>>(), []);
}
