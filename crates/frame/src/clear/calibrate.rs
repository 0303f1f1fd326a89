//! The calibration: measures which streaming stores pay off on this machine.
//!
//! Key type: [`ClearCalibration`]. The calibration clears pairs of blocks of 2 MiB in turn, one
//! block with ordinary stores and one with streaming stores; the median of the ratios decides. It
//! tries the best stores first and selects the first that pay off, so slower ones are not tried.
//! The blocks must be cold, or the measurement would find the cache fast. So it streams over them
//! first, which also makes a hypervisor back them and evicts their lines.
//!
//! Each clear follows a locked instruction, as it follows that of the allocator in use. On some
//! CPUs that alone makes MOVNTI forty times slower.
//!
//! Not guaranteed: a right verdict while other CPUs saturate the memory. A pair takes a third of a
//! millisecond, so few pairs are disturbed.

use super::backend::{self, ClearBackend};
use super::incoherent::store_part;
use crate::block::Block;
use crate::chain::BlockList;
use crate::frames::Frames;
use core::time::Duration;
use pagewright_sync::Platform;
use pagewright_types::Order;

/// The pairs that are measured.
///
/// Three were never wrong in 200 trials on a busy machine, and take 0.8 ms.
const PAIRS: usize = 3;

/// Streaming stores whose ratio is below this, in thousandths, are vetoed.
const MIN_RATIO_PERMILLE: u32 = 1100;

/// The result of a calibration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClearCalibration {
    /// The streaming stores in use from now on; `None` if all were vetoed.
    pub streaming: Option<ClearBackend>,
    /// The speed of the last tried stores relative to ordinary stores, in thousandths.
    ///
    /// Measured on cold blocks.
    pub ratio_permille: u32,
    /// The duration of all measured pairs.
    pub elapsed: Duration,
}

impl<P: Platform> Frames<P> {
    /// The number of blocks that [`Frames::calibrate_clearing`] needs, and their order.
    pub const CALIBRATION_BLOCKS: (usize, Order) = (2 * PAIRS, Order::PMD);

    /// Measures streaming stores against ordinary ones, and uses the best that pay off from now on.
    ///
    /// Frees `blocks`. `now` reads a clock. Returns `None` if there is nothing to compare: no
    /// streaming stores, no linear map, or fewer than [`Self::CALIBRATION_BLOCKS`].
    pub fn calibrate_clearing(
        &self,
        mut blocks: BlockList,
        mut now: impl FnMut() -> Duration,
    ) -> Option<ClearCalibration> {
        let selector = self.clear_selector();
        let mut six: [Option<Block>; 2 * PAIRS] = core::array::from_fn(|_| blocks.pop(self));
        let mut found = None;
        if six.iter().all(Option::is_some) {
            let mut elapsed = Duration::ZERO;
            for candidate in selector.caps().candidates() {
                let (ratio_permille, spent) = self.compare(&six, candidate, &mut now);
                elapsed += spent;
                let streaming = (ratio_permille >= MIN_RATIO_PERMILLE).then_some(candidate);
                found = Some(ClearCalibration { streaming, ratio_permille, elapsed });
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
            selector.set_streaming(found.streaming);
        }
        found
    }

    /// The median ratio of the pairs, in thousandths, and the duration of the pairs.
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
            store_part(self, block, block.pfn(), block.order(), with);
            backend::fence();
            now().saturating_sub(began).as_nanos().max(1)
        };
        for block in six.iter().flatten() {
            time(block, streaming);
        }
        let mut elapsed = 0;
        let mut ratios = [0; PAIRS];
        for (ratio, pair) in ratios.iter_mut().zip(six.chunks_exact(2)) {
            if let [Some(one), Some(other)] = pair {
                let (slow, fast) = (time(one, ordinary), time(other, streaming));
                elapsed += slow + fast;
                *ratio = u32::try_from(slow * 1000 / fast).unwrap_or(u32::MAX);
            }
        }
        ratios.sort_unstable();
        (ratios[PAIRS / 2], Duration::from_nanos(elapsed as u64))
    }
}
