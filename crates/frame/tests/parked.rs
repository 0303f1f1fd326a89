//! Many parked frames: how they are freed, how they become free again, and what they count for.

use crate::support::{self, Host, NODE0, block_at, cpus, one_node, range, run_on, take};
use pagewright_frame::{
    FrameAllocator, FrameRequest, MemoryLayout, NoFramesCause, NodeSpec, ReleaseList, UnsettledBlock, Urgency,
};
use pagewright_types::{DebtFloor, DebtKey, Order, Pfn};
use std::cell::Cell;

const FRAMES: u32 = 1 << 14;
const MANY: usize = 10_000;
/// The most blocks that one hold of a zone's lock parks or unparks.
const AT_ONCE: usize = 64;

fn small() -> FrameRequest {
    FrameRequest::new(Order::ZERO, NODE0)
}

fn longest_hold(frames: &FrameAllocator<Host>) -> usize {
    frames.zones().map(|zone| zone.longest_hold()).max().expect("a zone")
}

/// The block, whose key the caller takes over.
fn into_raw(unsettled: UnsettledBlock) -> Pfn {
    unsettled.settle(|_| {}).into_raw()
}

/// Parks `blocks` single frames, of which each has a key of its own: 1, 2, ...
///
/// All other frames are in use.
fn park(frames: &FrameAllocator<Host>, blocks: usize) -> Vec<Pfn> {
    run_on(0);
    let mut all = Vec::new();
    while let Ok(unsettled) =
        frames.alloc(FrameRequest { urgency: Urgency::Reserve, ..small() }, support::nothing_settled)
    {
        all.push(into_raw(unsettled));
    }
    let parked = all.split_off(all.len() - blocks);
    for (pfn, key) in parked.iter().zip(1..) {
        frames.free_with_debt(block_at(frames, *pfn), DebtKey::new(key));
    }
    assert_eq!(frames.parked(), blocks as u64);
    all
}

/// INV-FRAME-HOLD.
#[test]
fn settled_frames_become_free_64_blocks_at_a_time() {
    let frames = one_node(&Host::new(1), 0, FRAMES);
    park(&frames, MANY);
    assert_eq!(frames.unpark(DebtFloor::new(100)), 100, "the others are not settled");
    assert_eq!(frames.unpark(DebtFloor::new(MANY as u64)), MANY as u64 - 100);
    assert_eq!((frames.parked(), longest_hold(&frames)), (0, AT_ONCE));
}

/// The next 512 allocations need no key, and the allocator learns the floor 8 times.
#[test]
fn frames_that_a_flush_has_settled_are_free_before_the_next_allocation() {
    const SETTLED: u64 = 512;
    let frames = one_node(&Host::new(1), 0, FRAMES);
    park(&frames, MANY);
    let learned = Cell::new(0);
    let floor = || {
        learned.set(learned.get() + 1);
        DebtFloor::new(SETTLED)
    };
    for number in 1..=SETTLED {
        let unsettled = frames.alloc(small(), floor).expect("a settled frame");
        assert_eq!(unsettled.key(), DebtKey::NONE, "allocation {number}");
        let _ = into_raw(unsettled);
        let waiting = MANY as u64 - frames.parked();
        assert!((number..number + AT_ONCE as u64).contains(&waiting), "{waiting} are free after {number}");
    }
    assert_eq!((learned.get(), longest_hold(&frames)), (SETTLED / AT_ONCE as u64, AT_ONCE));
    let unsettled = frames.alloc(small(), floor).expect("a parked frame");
    assert_eq!(unsettled.key(), DebtKey::new(SETTLED + 1), "the oldest one that is not settled");
    let _ = into_raw(unsettled);
}

#[test]
fn the_floor_is_not_asked_for_while_nothing_is_parked() {
    let frames = one_node(&Host::new(1), 0, 64);
    let not_asked = || -> DebtFloor { unreachable!("no frame is parked") };
    let mut found = 0;
    while let Ok(unsettled) = frames.alloc(small(), not_asked) {
        let _ = into_raw(unsettled);
        found += 1;
    }
    assert_eq!(found, 64);
}

/// A caller that may not wait needs no more of them either.
#[test]
fn a_large_block_is_made_of_as_many_settled_frames_as_it_needs() {
    for settled_only in [false, true] {
        let frames = one_node(&Host::new(1), 0, FRAMES);
        park(&frames, 8192);
        let request = FrameRequest { settled_only, ..FrameRequest::new(Order::new(5), NODE0) };
        assert!(frames.alloc(request, support::nothing_settled).is_err(), "they have different keys");
        let block = frames.alloc(request, || DebtFloor::new(8192)).expect("32 of them are neighbours");
        assert_eq!(block.key(), DebtKey::NONE);
        let _ = into_raw(block);
        assert!(frames.parked() >= 8192 - 2 * AT_ONCE as u64, "{} stay parked", frames.parked());
    }
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
            let unsettled = frames.alloc(FrameRequest::new(Order::new(4), NODE0), support::nothing_settled);
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
    // Those that owe two debts are settled with the later one.
    assert_eq!(frames.unpark(DebtFloor::new(6)), 0);
    assert_eq!(frames.unpark(DebtFloor::new(7)), 93);
}

/// A machine with watermarks, of whose frames all but these numbers are in use.
fn with_watermarks(settled: u32, parked: u32) -> FrameAllocator<Host> {
    let ranges = [range(0, FRAMES)];
    let nodes = [NodeSpec { id: NODE0, ranges: &ranges, cpus: cpus([0]) }];
    let layout = MemoryLayout { min_free_kbytes: Some(4096), ..MemoryLayout::new(&nodes) };
    let frames = FrameAllocator::try_new(Host::new(1), &layout).expect("a valid layout");
    let all = park(&frames, parked as usize);
    for pfn in &all[..settled as usize] {
        frames.free(block_at(&frames, *pfn));
    }
    frames.drain();
    frames
}

/// INV-FRAME-ATOMIC, INV-FRAME-RESERVE: the reserve is for it, but for three eighths.
#[test]
fn a_caller_that_may_not_wait_counts_settled_frames_alone() {
    const MIN: u32 = 1024;
    let request = FrameRequest { settled_only: true, ..small() };
    for parked in [0, 4 * MIN] {
        let frames = with_watermarks(MIN, parked);
        let zone = frames.zones().next().expect("a zone");
        assert_eq!((zone.watermarks().min, zone.free()), (MIN, MIN + parked));
        let mut found = 0;
        let refused = loop {
            match frames.alloc(request, support::nothing_settled) {
                Ok(unsettled) => {
                    assert_eq!((unsettled.key(), into_raw(unsettled)).0, DebtKey::NONE);
                    found += 1;
                }
                Err(refused) => break refused,
            }
        };
        assert_eq!(refused.cause, NoFramesCause::Exhausted);
        assert_eq!((found, zone.parked()), (MIN * 5 / 8, parked), "{parked} frames are parked");
        // Once they are settled, they are frames like others.
        let found = frames.alloc(request, || DebtFloor::new(u64::from(parked))).map(into_raw);
        assert_eq!(found.is_ok(), parked > 0);
    }
}

/// INV-FRAME-ATOMIC: and for reclaim, which frees memory for callers that may wait.
#[test]
fn parked_frames_count_as_free_for_waking_reclaim() {
    for (parked, is_low) in [(0, true), (4096, false)] {
        let frames = with_watermarks(700, parked);
        let zone = frames.zones().next().expect("a zone");
        frames.reclaim_done(NODE0);
        let request = FrameRequest { settled_only: true, ..small() };
        let _ = into_raw(frames.alloc(request, support::nothing_settled).expect("one of the reserve"));
        assert_eq!((zone.below_low(), frames.is_reclaim_wanted(NODE0)), (is_low, is_low), "{parked} parked");
        let waiting = frames.alloc(small(), support::nothing_settled).map(into_raw);
        assert_eq!(waiting.is_ok(), !is_low, "parked frames are there for a caller that may wait");
    }
}

#[cfg(feature = "planted")]
#[test]
fn mistakes_about_many_parked_frames_are_found() {
    use pagewright_plant::{PlantedBug, assert_found_by};
    assert_found_by(PlantedBug::UnparkedAtOnce, settled_frames_become_free_64_blocks_at_a_time);
    assert_found_by(
        PlantedBug::FloorNotPassedDown,
        frames_that_a_flush_has_settled_are_free_before_the_next_allocation,
    );
    assert_found_by(PlantedBug::ParkedMerges, parked_frames_coalesce_if_their_keys_are_equal);
    assert_found_by(PlantedBug::ParkedForAtomic, a_caller_that_may_not_wait_counts_settled_frames_alone);
}
