//! The figures of the tour: a VM's memory, cleared through the cache and past it.

use super::super::headline::{Headline, HeadlineFigure};
use super::super::{Context, EvaluateError, Scale};
use super::bench::{Bench, CacheMeasurements};
use super::prealloc::{self, BY_PAGE, LINUX, OURS};
use crate::show::grouped;
use pagewright_types::{Counter, Order, PAGE_SIZE};

/// Frames of the machine, and bytes of the VM.
const MACHINE: u32 = 2 * Order::PUD.frames();
const VM: u64 = Order::PUD.bytes();

/// Clears a VM's memory by each method in turns, on one CPU.
pub(in super::super) fn headline(context: &Context<'_>) -> Result<Headline, EvaluateError> {
    context.show_step("clearing a VM's memory, through the cache and past it");
    let bench = Bench::with_frames(MACHINE, Scale::Quick)?;
    let measured = CacheMeasurements::measure(&bench);
    let counts = || {
        let counter = |counter| bench.mm().counter(counter);
        let past = [Counter::PwClearMovnti, Counter::PwClearMovdir64b, Counter::PwClearClzero].into_iter().chain([
            Counter::PwClearAvx2,
            Counter::PwClearAvx512,
            Counter::PwClearDcZva,
        ]);
        [past.map(counter).sum(), counter(Counter::PwClearCached), counter(Counter::PwClearFences)]
    };
    let before = counts();
    let vm = prealloc::on_one_cpu(&bench, VM)?;
    let after = counts();
    let [past, cached, fences] = [0, 1, 2].map(|at| after[at] - before[at]);
    let rate = |name| vm.of(name, 1).map_or_else(|| "not measured".to_owned(), |row| row.rate.text());
    let gain = vm.gain().map_or_else(String::new, |gain| format!("{} ×", gain.text()));
    let mib = |pages: u64| grouped((pages * PAGE_SIZE) >> 20);
    let medians = [BY_PAGE, OURS].map(|name| vm.of(name, 1).map_or(0.0, |row| row.rate.median));
    let row = |name: &str, rate: String| format!("{name:<48} {rate:>24}");
    Ok(Headline {
        published: "8.25 → 21.55 GB/s for a VM's memory, 2.6 × (Ice Lake, 200 GB)",
        ours: vec![
            HeadlineFigure::measured(format!(
                "{:.1} → {:.1} GB/s for a VM's memory, {gain} (this CPU)",
                medians[0], medians[1]
            )),
            HeadlineFigure::counted(format!(
                "{} MiB cleared past the cache in these rounds, {} fences",
                mib(past),
                grouped(fences)
            )),
        ],
        details: vec![
            row("1 GiB in folios of 2 MiB, one CPU, rounds in turns", "GB/s, measured".to_owned()),
            row("through the cache, page by page", rate(BY_PAGE)),
            row("past the cache where calibration found it faster", rate(OURS)),
            row("Linux on this computer, MADV_POPULATE_WRITE", rate(LINUX)),
            measured.choice_text(),
            format!("Counted: {} MiB through the cache, by the methods that are compared.", mib(cached)),
        ],
    })
}
