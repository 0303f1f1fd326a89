//! How large the last-level cache is in effect: the set that can be rewritten over and over at more
//! than memory's speed.
//!
//! Key type: [`CacheProbe`], a measurement in steps, for idle time. CPUID's figure is not used: a VM has
//! a share of the cache it reports (a guest that was told 480 MB had 64 to 96).
//!
//! Protocol: [`CacheProbe::step`] while the CPU is idle until it says that it is done; each step clears
//! one set three times, with ordinary stores. The frames must have been touched before, or a host
//! would back them meanwhile.
//!
//! Not guaranteed: the true size. It is a size at which the allocator's lines have certainly left
//! the cache, among ten.

use super::incoherent::store_block;
use super::selector::ClearExtent;
use crate::chain::BlockList;
use crate::frames::Frames;
use core::time::Duration;
use pagewright_sync::Platform;
use pagewright_types::Order;

/// Sets that are tried, in blocks of 2 MiB: 4 to 256 MiB.
const SETS: [usize; 10] = [2, 4, 8, 16, 24, 32, 48, 64, 96, 128];

/// A set whose bandwidth is below this share of the smallest set's does not fit: 60 %.
const FITS_PERCENT: u128 = 60;

/// All steps together take no longer than this, if the next is as slow for its size as the one
/// before.
const BUDGET: Duration = Duration::from_millis(100);

/// Where a measurement stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheProbeProgress {
    /// Another step is needed.
    More,
    /// The set of this size did not fit any more; clears of more than this are told to stream.
    Found(ClearExtent),
    /// All sets fit, or time ran out: this much fits at least.
    AtLeast(ClearExtent),
}

/// A measurement of the effective last-level cache.
#[must_use = "dropping it leaks its blocks: end it with `finish`"]
pub struct CacheProbe {
    blocks: BlockList,
    next: usize,
    /// Picoseconds a block took in the smallest set.
    smallest: u128,
    spent: Duration,
}

impl CacheProbe {
    /// Blocks that are wanted, and their order.
    ///
    /// With fewer, fewer sets are tried.
    pub const BLOCKS: (usize, Order) = (SETS[SETS.len() - 1], Order::PMD);

    /// A measurement over `blocks`.
    pub const fn new(blocks: BlockList) -> Self {
        Self { blocks, next: 0, smallest: 0, spent: Duration::ZERO }
    }

    /// How long the steps took until now.
    pub const fn elapsed(&self) -> Duration {
        self.spent
    }

    /// Measures one set.
    ///
    /// A knee that is found is in force from then on.
    pub fn step<P: Platform>(&mut self, frames: &Frames<P>, mut now: impl FnMut() -> Duration) -> CacheProbeProgress {
        let fitted = self.next.checked_sub(1).map_or(0, |last| SETS[last]);
        let Some(&set) = SETS.get(self.next).filter(|set| **set <= self.blocks.len()) else {
            return CacheProbeProgress::AtLeast(extent(fitted));
        };
        let began = now();
        self.rewrite(frames, set);
        let mut best = u128::MAX;
        for _ in 0..2 {
            let before = now();
            self.rewrite(frames, set);
            best = best.min(now().saturating_sub(before).as_nanos());
        }
        let took = now().saturating_sub(began);
        self.spent += took;
        self.next += 1;
        let each = best * 1000 / set as u128;
        if self.smallest == 0 {
            self.smallest = each.max(1);
        }
        if self.smallest * 100 < each * FITS_PERCENT {
            frames.clear_selector().set_cache(extent(set).frames() as u32);
            return CacheProbeProgress::Found(extent(set));
        }
        let ahead = SETS.get(self.next).map_or(Duration::ZERO, |next| took * *next as u32 / set as u32);
        if self.spent + ahead > BUDGET { CacheProbeProgress::AtLeast(extent(set)) } else { CacheProbeProgress::More }
    }

    /// Gives the blocks back.
    pub fn finish<P: Platform>(mut self, frames: &Frames<P>) {
        while let Some(block) = self.blocks.pop(frames) {
            frames.free(block);
        }
    }

    fn rewrite<P: Platform>(&mut self, frames: &Frames<P>, set: usize) {
        let mut done = BlockList::new();
        let with = frames.clear_selector().caps().ordinary();
        for _ in 0..set {
            let Some(block) = self.blocks.pop(frames) else { break };
            store_block(frames, block.pfn(), block.order(), with);
            done.push(frames, block);
        }
        // Backwards onto the rest, so that every round begins with the block with which the last
        // one did.
        while let Some(block) = done.pop(frames) {
            self.blocks.push(frames, block);
        }
    }
}

fn extent(blocks: usize) -> ClearExtent {
    ClearExtent::of_frames(blocks as u64 * u64::from(Order::PMD.frames()))
}
