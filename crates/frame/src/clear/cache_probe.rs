//! A probe of the effective size of the last-level cache.
//!
//! It is the size of the largest set of blocks that can be rewritten faster than memory allows.
//!
//! Key type: [`CacheProbe`], a measurement in steps, for idle time. It does not use CPUID's figure,
//! because a VM has only a share of the cache that CPUID reports: a guest that read 480 MB had 64
//! to 96 MB.
//!
//! Protocol: the caller calls [`CacheProbe::step`] while the CPU is idle, until it returns another
//! value than [`CacheProbeProgress::More`], with the blocks that [`CacheProbe::wanted`] names. Each
//! step clears one set three times, with ordinary stores, and frees it. The frames must have been
//! touched before, or the hypervisor would back them during the measurement.
//!
//! Not guaranteed: the exact size. The result is one of ten sizes, above which the lines of a block
//! have certainly left the cache.

use super::incoherent::store_part;
use super::selector::ClearExtent;
use crate::chain::BlockList;
use crate::frames::Frames;
use core::time::Duration;
use pagewright_sync::Platform;
use pagewright_types::Order;

/// The sizes of the sets, in blocks of 2 MiB: 4 to 256 MiB.
const SETS: [usize; 10] = [2, 4, 8, 16, 24, 32, 48, 64, 96, 128];

/// A set whose bandwidth is below this share of the smallest set's does not fit: 60 %.
const FITS_PERCENT: u128 = 60;

/// The longest time that all steps together may take.
///
/// The next step is predicted to take the time of the last one in proportion to its size.
const BUDGET: Duration = Duration::from_millis(100);

/// The progress of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheProbeProgress {
    /// Another step is needed.
    More,
    /// The set of this size did not fit.
    ///
    /// It is the cache size of the [`ClearSelector`](super::ClearSelector) from now on.
    Found(ClearExtent),
    /// All sets fit, or time ran out; the cache holds at least this much.
    AtLeast(ClearExtent),
}

/// A probe of the effective size of the last-level cache.
#[derive(Debug, Default)]
pub struct CacheProbe {
    next: usize,
    /// Nanoseconds for the smallest set; 0 before the first step.
    smallest: u128,
    elapsed: Duration,
}

impl CacheProbe {
    /// A probe before its first step.
    pub const fn new() -> Self {
        Self { next: 0, smallest: 0, elapsed: Duration::ZERO }
    }

    /// The number of blocks that the next step needs, and their order.
    pub fn wanted(&self) -> (usize, Order) {
        (SETS.get(self.next).copied().unwrap_or(0), Order::PMD)
    }

    /// The duration of all steps so far.
    pub const fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// Measures one set, and frees its blocks; `now` reads a clock.
    ///
    /// With fewer blocks than [`Self::wanted`], the probe ends. If the set does not fit, its size
    /// is the cache size of the [`ClearSelector`](super::ClearSelector) from then on.
    pub fn step<P: Platform>(
        &mut self,
        frames: &Frames<P>,
        mut blocks: BlockList,
        now: impl FnMut() -> Duration,
    ) -> CacheProbeProgress {
        let progress = self.measure(frames, &mut blocks, now);
        while let Some(block) = blocks.pop(frames) {
            frames.free(block);
        }
        progress
    }

    fn measure<P: Platform>(
        &mut self,
        frames: &Frames<P>,
        blocks: &mut BlockList,
        mut now: impl FnMut() -> Duration,
    ) -> CacheProbeProgress {
        let fitted = self.next.checked_sub(1).map_or(0, |last| SETS[last]);
        let Some(&set) = SETS.get(self.next).filter(|set| **set <= blocks.len()) else {
            return CacheProbeProgress::AtLeast(extent_of(fitted));
        };
        let began = now();
        rewrite(frames, blocks, set);
        let mut best = u128::MAX;
        for _ in 0..2 {
            let before = now();
            rewrite(frames, blocks, set);
            best = best.min(now().saturating_sub(before).as_nanos());
        }
        let step_time = now().saturating_sub(began);
        self.elapsed += step_time;
        self.next += 1;
        if self.smallest == 0 {
            self.smallest = best.max(1);
        }
        // Times for one block, each multiplied by the sizes of both sets.
        let (of_smallest, of_set) = (self.smallest * set as u128, best * SETS[0] as u128);
        if of_smallest * 100 < of_set * FITS_PERCENT {
            frames.clear_selector().set_cache(extent_of(set).frames() as u32);
            return CacheProbeProgress::Found(extent_of(set));
        }
        let ahead = SETS.get(self.next).map_or(Duration::ZERO, |next| step_time * *next as u32 / set as u32);
        if self.elapsed + ahead > BUDGET {
            CacheProbeProgress::AtLeast(extent_of(set))
        } else {
            CacheProbeProgress::More
        }
    }
}

/// Clears `set` of the blocks by ordinary stores.
fn rewrite<P: Platform>(frames: &Frames<P>, blocks: &mut BlockList, set: usize) {
    let mut done = BlockList::new();
    let with = frames.clear_selector().caps().ordinary();
    for _ in 0..set {
        let Some(block) = blocks.pop(frames) else { break };
        store_part(frames, &block, block.pfn(), block.order(), with);
        done.push(frames, block);
    }
    // In reverse, so that every round begins with the same block.
    while let Some(block) = done.pop(frames) {
        blocks.push(frames, block);
    }
}

fn extent_of(blocks: usize) -> ClearExtent {
    ClearExtent::of_frames(blocks as u64 * u64::from(Order::PMD.frames()))
}
