//! Whatever frees a frame, its debts come back with it (INV-FRAME-KEY).

use crate::support::{self, Host, NODE0, one_node, take};
use pagewright_frame::{Block, BlockList, FrameAllocator, FrameRequest, ReleaseList};
use pagewright_types::{DebtKey, Order, Pfn};
use proptest::prelude::*;

/// The most folios of a case, and frames for all of them.
const LIVES: usize = if cfg!(miri) { 4 } else { 40 };
const FRAMES: u32 = if cfg!(miri) { 1 << 7 } else { 1 << 11 };

/// How the last reference of a folio goes.
#[derive(Clone, Copy, Debug)]
enum Free {
    Put,
    PutWithDebt(u64),
    ReleaseList,
    ReleaseListByBlock,
}

#[derive(Clone, Debug)]
struct Life {
    order: u8,
    /// The debts that are recorded before the split.
    debts: Vec<u64>,
    /// The order of the parts, if the folio is split.
    split: Option<u8>,
    /// Debts recorded on each part.
    later: Vec<u64>,
    free: Free,
}

fn a_life() -> impl Strategy<Value = Life> {
    let debts = || prop::collection::vec(1u64..50, 0..3);
    let free = prop_oneof![
        Just(Free::Put),
        (1u64..50).prop_map(Free::PutWithDebt),
        Just(Free::ReleaseList),
        Just(Free::ReleaseListByBlock)
    ];
    (0u8..6, debts(), prop::option::of(0u8..5), debts(), free).prop_map(|(order, debts, split, later, free)| Life {
        order,
        debts,
        split,
        later,
        free,
    })
}

/// Whether settling `key` also settles `debt`.
///
/// A key that stands for several debts differs from each of them, and is owed by every CPU.
fn covers(key: DebtKey, debt: u64) -> bool {
    key == DebtKey::new(debt) || (key.raw() != key.epoch() && key.epoch() >= debt)
}

/// Makes a folio, gives it debts, splits it, and drops the references of its parts.
///
/// `owed` gets the debts of each frame.
fn live(frames: &FrameAllocator<Host>, life: &Life, release: &mut ReleaseList, owed: &mut [Vec<u64>]) {
    let reference = frames.new_folio(take_any(frames, life.order));
    let folio = frames.folio_of(&reference);
    life.debts.iter().for_each(|debt| folio.add_debt(DebtKey::new(*debt)));
    let range = folio.range();
    // Their allocation has settled what the frames owed before.
    (range.start().raw()..range.end().raw()).for_each(|pfn| owed[pfn as usize].clear());
    let parts: Vec<Pfn> = match life.split.filter(|to| *to < life.order) {
        None => vec![folio.pfn()],
        Some(to) => {
            let frozen = folio.freeze(1).expect("one reference");
            let parts = frozen.split(Order::new(to)).map(|part| {
                let pfn = part.folio().pfn();
                part.thaw(1);
                pfn
            });
            parts.collect()
        }
    };
    let _ = reference.into_raw();
    for part in parts {
        let reference = support::take_back(frames, part);
        life.later.iter().for_each(|debt| frames.folio_of(&reference).add_debt(DebtKey::new(*debt)));
        match life.free {
            Free::Put => frames.free(frames.put(reference).expect("the last one")),
            Free::PutWithDebt(key) => {
                frames.free_with_debt(frames.put(reference).expect("the last one"), DebtKey::new(key));
            }
            Free::ReleaseList | Free::ReleaseListByBlock => {
                release.put_last(frames, reference).expect("the last one");
            }
        }
    }
    if matches!(life.free, Free::ReleaseListByBlock) {
        let mut blocks = BlockList::new();
        while let Some(block) = release.pop(frames) {
            blocks.push(frames, block);
        }
        while let Some(block) = blocks.pop(frames) {
            frames.free(block);
        }
    }
    for pfn in range.start().raw()..range.end().raw() {
        let debts = &mut owed[pfn as usize];
        debts.extend(life.debts.iter().chain(&life.later));
        if let Free::PutWithDebt(key) = life.free {
            debts.push(key);
        }
    }
}

/// A block, whose debts the caller takes over.
fn take_any(frames: &FrameAllocator<Host>, order: u8) -> Block {
    frames
        .alloc(FrameRequest::new(Order::new(order), NODE0), support::nothing_settled)
        .expect("memory is left")
        .settle(|_| {})
}

proptest! {
    // A planted bug leaves no file of failing cases behind.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// INV-FRAME-KEY: also if the folio was split, and if many are freed at once.
    #[test]
    fn every_debt_of_a_frame_comes_back_with_it(lives in prop::collection::vec(a_life(), 1..LIVES)) {
        let frames = one_node(&Host::new(1), 0, FRAMES);
        let mut owed = vec![Vec::new(); FRAMES as usize];
        let mut release = ReleaseList::new();
        for life in &lives {
            live(&frames, life, &mut release, &mut owed);
        }
        release.free(&frames);
        let mut found = 0;
        while let Ok(unsettled) = frames.alloc(FrameRequest::new(Order::ZERO, NODE0), support::nothing_settled) {
            let key = unsettled.key();
            let pfn = unsettled.settle(|_| {}).into_raw();
            for debt in &owed[pfn.index()] {
                prop_assert!(covers(key, *debt), "frame {pfn} owes {debt}, and comes with {key}");
            }
            found += 1;
        }
        prop_assert_eq!(found, FRAMES);
        prop_assert_eq!(frames.zones().map(|zone| zone.parked()).sum::<u32>(), 0);
    }
}

/// INV-FRAME-KEY.
#[test]
fn a_frame_without_a_debt_owes_none_whatever_its_neighbours_owe() {
    let frames = one_node(&Host::new(1), 0, 64);
    let owing = frames.new_folio(take(&frames, 0));
    frames.folio_of(&owing).add_debt(DebtKey::new(3));
    let other = frames.new_folio(take(&frames, 0));
    let (owing_pfn, other_pfn) = (owing.pfn(), other.pfn());
    let mut release = ReleaseList::new();
    for reference in [owing, other] {
        release.put_last(&frames, reference).expect("the last one");
    }
    release.free(&frames);
    let request = FrameRequest { settled_only: true, ..FrameRequest::new(Order::ZERO, NODE0) };
    let mut seen = Vec::new();
    while let Ok(unsettled) = frames.alloc(request, support::nothing_settled) {
        seen.push(unsettled.settle(|key| panic!("a settled frame owes {key}")).into_raw());
    }
    assert!(seen.contains(&other_pfn) && !seen.contains(&owing_pfn));
}

#[cfg(feature = "planted")]
#[test]
fn lost_debts_are_found() {
    use pagewright_plant::PlantedBug;
    pagewright_plant::assert_found_by(PlantedBug::BulkDebtLost, every_debt_of_a_frame_comes_back_with_it);
    pagewright_plant::assert_found_by(PlantedBug::SplitDebtLost, every_debt_of_a_frame_comes_back_with_it);
}
