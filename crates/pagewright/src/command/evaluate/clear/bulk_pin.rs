//! Measures pinning memory for a device, with and without the hint that all of it is wanted.
//!
//! Key type: [`BulkPins`]. It is what VFIO does for a VM's memory (the series' patch 13,
//! `vfio_iommu_type1`): private memory that was never touched is pinned page by page in one call.
//! With `FOLL_HINT_BULK` the pages are cleared in batches, by the stores that suit the whole.
//!
//! Not guaranteed: the cost of the device's own mappings.

use super::super::parent::failed;
use super::super::plot::size;
use super::super::rounds::in_turns;
use super::super::{Context, EvaluateError, Figures, Grid, Stats};
use super::bench::Bench;
use pagewright_host::ThreadClock;
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_types::{Order, PageRange};

/// Bytes pinned at a time.
const BYTES: u64 = Order::PUD.bytes();

/// GB/s of pinning, by round.
pub(super) struct BulkPins {
    pub(super) plain: Vec<f64>,
    pub(super) hinted: Vec<f64>,
}

/// Measures both kinds of pins, in turns.
pub(super) fn measure(context: &Context<'_>, bench: &Bench) -> Result<BulkPins, EvaluateError> {
    context.show_step("pinning memory for a device");
    let [plain, hinted] =
        in_turns(bench.repetitions(), |kind| pin(bench, [GupFlags::empty(), GupFlags::HINT_BULK][kind]))?;
    Ok(BulkPins { plain, hinted })
}

/// Maps memory, pins and releases it, and returns GB/s of the pin.
fn pin(bench: &Bench, hint: GupFlags) -> Result<f64, EvaluateError> {
    let mm = bench.mm();
    let space = mm.new_space().map_err(failed)?;
    let base = bench.map(&space, BYTES)?;
    let range = PageRange::from_len(base, BYTES).map_err(failed)?;
    let clock = ThreadClock::start_cpu_time();
    let pages = mm.pin_user_pages(&space, range, GupFlags::WRITE | GupFlags::LONGTERM | hint).map_err(failed)?;
    let took = clock.elapsed();
    let whole = pages.len() as u64 == range.pages();
    mm.release_user_pages(pages, MakeDirty::No);
    mm.end_space(&space);
    if !whole {
        return Err(failed("too little memory to pin"));
    }
    Ok(BYTES as f64 / took.as_nanos().max(1) as f64)
}

impl BulkPins {
    /// How many times as fast pinning is with the hint, round by round.
    pub(super) fn gain(&self) -> Stats {
        Stats::of_ratios(&self.hinted, &self.plain)
    }

    fn stats(&self) -> [(&'static str, Stats); 2] {
        [("without a hint", &self.plain), ("FOLL_HINT_BULK", &self.hinted)]
            .map(|(name, samples)| (name, Stats::of(samples.clone())))
    }

    pub(super) fn figures(&self) -> Figures {
        Grid::of(format!("Pinning {} of untouched memory for a device", size(BYTES)), self.stats())
            .text("", |(name, _)| *name)
            .measured("GB/s", "gb_per_s", |(_, stats)| *stats)
            .figures(|(name, _)| [format!("pin: {name}"), format!("{BYTES} bytes")])
    }
}
