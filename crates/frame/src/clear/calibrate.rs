//! Which streaming stores are worth it on this machine, measured ("trust but verify").
//!
//! Key type: [`ClearCalibration`]. Pairs of blocks of 2 MiB are cleared, one with ordinary stores and
//! one with streaming ones, in turns; the median of the ratios decides. The best stores come first,
//! and the first that are worth it are taken, so that slow ones are not even tried. The blocks must
//! be cold, or the measurement would find the cache fast: they are streamed over first, which also
//! has whoever lends us the memory back it, and leaves no line of it in the cache.
//!
//! Each clear comes right after a locked instruction, as it does in use, after the allocator's:
//! there are CPUs on which that alone makes MOVNTI forty times slower.
//!
//! Not guaranteed: a verdict on a machine whose memory is busy beyond measure. A pair takes a third
//! of a millisecond; few are disturbed.

use super::backend::{self, ClearBackend};
use super::incoherent::store_block;
use crate::block::Block;
use crate::chain::BlockList;
use crate::frames::Frames;
use core::time::Duration;
use pagewright_sync::Platform;
use pagewright_types::Order;

/// Pairs that are measured: three were never wrong in 200 trials on a busy machine, and take 0.8
/// ms.
const PAIRS: usize = 3;

/// Streaming stores must be this much faster, in thousandths, or they are vetoed.
const LEAST: u32 = 1100;

/// What a calibration found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClearCalibration {
    /// The stores that are used from now on; `None` if all were vetoed.
    pub streaming: Option<ClearBackend>,
    /// How many times faster than ordinary ones they, or the last that were tried, were on cold
    /// blocks, in thousandths.
    pub ratio_permille: u32,
    /// How long the pairs took, of all stores that were tried.
    pub elapsed: Duration,
}

impl<P: Platform> Frames<P> {
    /// Blocks that [`Frames::calibrate_clearing`] wants, and their order.
    pub const CALIBRATION_BLOCKS: (usize, Order) = (2 * PAIRS, Order::PMD);

    /// Measures ordinary against streaming stores over `blocks`, frees these, and uses from now on
    /// the best streaming stores that are worth it. `None` where there is nothing to compare: no
    /// streaming stores, no map of memory, too few blocks.
    pub fn calibrate_clearing(
        &self,
        mut blocks: BlockList,
        mut now: impl FnMut() -> Duration,
    ) -> Option<ClearCalibration> {
        let clearing = self.clear_selector();
        let mut six: [Option<Block>; 2 * PAIRS] = core::array::from_fn(|_| blocks.pop(self));
        let mut found = None;
        if six.iter().all(Option::is_some) && clearing.has_map() {
            let mut took = Duration::ZERO;
            for candidate in clearing.caps().candidates() {
                let (ratio_permille, spent) = self.compare(&six, candidate, &mut now);
                took += spent;
                let streaming = (ratio_permille >= LEAST).then_some(candidate);
                found = Some(ClearCalibration { streaming, ratio_permille, elapsed: took });
                if streaming.is_some() {
                    break;
                }
            }
        }
        six.iter_mut().filter_map(Option::take).for_each(|block| self.free(block));
        while let Some(block) = blocks.pop(self) {
            self.free(block);
        }
        if let Some(found) = found {
            clearing.set_streaming(found.streaming);
        }
        found
    }

    /// The median ratio of the pairs, in thousandths, and how long they took.
    fn compare(
        &self,
        six: &[Option<Block>; 2 * PAIRS],
        streaming: ClearBackend,
        now: &mut impl FnMut() -> Duration,
    ) -> (u32, Duration) {
        let ordinary = self.clear_selector().caps().ordinary();
        let mut time = |block: &Block, with: ClearBackend| {
            let began = now();
            // The locked instruction.
            self.count(with.counter(), 0);
            store_block(self, block.pfn(), block.order(), with);
            backend::fence();
            now().saturating_sub(began).as_nanos().max(1)
        };
        for block in six.iter().flatten() {
            time(block, streaming);
        }
        let mut took = 0;
        let mut ratios = [0; PAIRS];
        for (ratio, pair) in ratios.iter_mut().zip(six.chunks_exact(2)) {
            if let [Some(one), Some(other)] = pair {
                let (slow, fast) = (time(one, ordinary), time(other, streaming));
                took += slow + fast;
                *ratio = u32::try_from(slow * 1000 / fast).unwrap_or(u32::MAX);
            }
        }
        ratios.sort_unstable();
        (ratios[PAIRS / 2], Duration::from_nanos(took as u64))
    }
}
