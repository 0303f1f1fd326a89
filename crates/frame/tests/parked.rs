//! Many parked frames: how they are freed, how they become free again, and what they count for.

use crate::support::{self, Host, NODE0, one_node, take};
use pagewright_frame::{FrameAllocator, FrameRequest, ReleaseList, UnsettledBlock};
use pagewright_types::{DebtFloor, DebtKey, Order, Pfn};

fn longest_hold(frames: &FrameAllocator<Host>) -> usize {
    frames.zones().map(|zone| zone.longest_hold()).max().expect("a zone")
}

/// The block, whose key the caller takes over.
fn into_raw(unsettled: UnsettledBlock) -> Pfn {
    unsettled.settle(|_| {}).into_raw()
}

/// INV-FRAME-ONE-KEY: two keys would be owed by every CPU.
#[test]
fn parked_frames_coalesce_if_their_keys_are_equal() {
    for (keys, is_whole) in [([3, 3], true), ([3, 9], false), ([9, 3], false)] {
        let keys = keys.map(DebtKey::new);
        let frames = one_node(&Host::new(1), 0, 32);
        for (block, key) in [(); 2].map(|()| take(&frames, 4)).into_iter().zip(keys) {
            frames.free_with_debt(block, key);
        }
        let zone = frames.zones().next().expect("a zone");
        let blocks = [4, 5].map(|order| zone.blocks(Order::new(order)));
        assert_eq!(blocks, if is_whole { [0, 1] } else { [2, 0] }, "{keys:?}");
        let found = keys.map(|_| {
            let unsettled = frames.alloc(FrameRequest::new(Order::new(4), NODE0), support::nothing_paid);
            let unsettled = unsettled.expect("a half");
            let key = unsettled.key();
            let _ = into_raw(unsettled);
            key
        });
        assert_eq!(found, keys, "each half has the key with which it was freed");
    }
}

/// INV-FRAME-HOLD, INV-FRAME-KEY: a list of folios is parked in runs.
#[test]
fn many_folios_are_parked_under_one_hold() {
    let frames = one_node(&Host::new(1), 0, 256);
    let mut release = ReleaseList::new();
    for number in 0..62 {
        let reference = frames.new_folio(take(&frames, number % 2));
        if number % 4 == 0 {
            frames.folio_of(&reference).add_debt(DebtKey::new(5));
        }
        release.put_last(&frames, reference).expect("the last reference");
    }
    release.free_with_debt(&frames, DebtKey::new(7));
    assert_eq!((frames.parked(), longest_hold(&frames)), (93, 31));
    assert_eq!(frames.available(), 256);
    // Those that owe two debts are paid with the later one.
    for (floor, parked) in [(6, 93), (7, 0)] {
        frames.unpark(DebtFloor::new(floor));
        assert_eq!(frames.parked(), parked);
    }
}

#[cfg(feature = "planted")]
#[test]
fn mistakes_about_many_parked_frames_are_found() {
    use pagewright_plant::{PlantedBug, assert_found_by};
    assert_found_by(PlantedBug::ParkedMerges, parked_frames_coalesce_if_their_keys_are_equal);
}
