//! A set of frames against a plain set: what INV-HAL-MANAGED depends on.

use crate::backend::on_cpus;
use pagewright_sync::FrameSet;
use pagewright_types::{FrameRange, Order, Pfn};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};

fn range(start: u32, end: u32) -> FrameRange {
    FrameRange::new(Pfn::new(start), Pfn::new(end))
}

proptest! {
    #[test]
    fn a_frame_set_answers_as_a_plain_set_does(
        lengths in prop::collection::vec((0u32..200, 1u32..300), 0..4),
        removals in prop::collection::vec((0u32..1_500, 0u8..9, any::<bool>()), 0..30),
    ) {
        let mut at = 100;
        let ranges: Vec<FrameRange> = lengths.into_iter().map(|(gap, len)| {
            let start = at + gap;
            at = start + len;
            range(start, at)
        }).collect();
        let set = FrameSet::try_new(&ranges).expect("memory");
        let mut plain: BTreeSet<u32> = ranges.iter().flat_map(|range| range.start().raw()..range.end().raw()).collect();
        for (pfn, order, aligned) in removals {
            let order = Order::new(order);
            let pfn = if aligned { pfn / order.frames() * order.frames() } else { pfn };
            let block = pfn..pfn + order.frames();
            let has = pfn.is_multiple_of(order.frames()) && block.clone().all(|frame| plain.contains(&frame));
            prop_assert_eq!(set.contains(Pfn::new(pfn), order), has);
            prop_assert_eq!(set.remove(Pfn::new(pfn), order), has);
            if has {
                block.for_each(|frame| { plain.remove(&frame); });
            }
        }
        for frame in 0..1_800 {
            prop_assert_eq!(set.contains(Pfn::new(frame), Order::ZERO), plain.contains(&frame));
            prop_assert_eq!(set.contains_frame(Pfn::new(frame)), plain.contains(&frame));
        }
    }
}

/// The frames before the one that is missing are in other words than it.
#[test]
fn a_large_block_that_lacks_a_frame_stays_whole() {
    let set = FrameSet::try_new(&[range(256, 512)]).expect("memory");
    assert!(set.remove(Pfn::new(500), Order::ZERO));
    assert!(!set.remove(Pfn::new(256), Order::new(8)));
    for frame in 0..1024 {
        assert_eq!(set.contains_frame(Pfn::new(frame)), (256..512).contains(&frame) && frame != 500, "{frame}");
    }
    assert!(set.remove(Pfn::new(256), Order::new(7)) && !set.contains_frame(Pfn::new(300)));
}

#[test]
fn a_frame_is_removed_once() {
    const FRAMES: u32 = if cfg!(miri) { 1 << 6 } else { 1 << 10 };
    let set = FrameSet::try_new(&[range(0, FRAMES)]).expect("memory");
    let removed = AtomicU32::new(0);
    on_cpus(4, |_| {
        for frame in 0..FRAMES {
            removed.fetch_add(u32::from(set.remove(Pfn::new(frame), Order::ZERO)), Ordering::Relaxed);
        }
    });
    assert_eq!(removed.into_inner(), FRAMES);
}
