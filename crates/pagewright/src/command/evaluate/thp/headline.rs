//! The figures of the tour: faults of a heap, references, and a huge page in two processes.

use super::super::headline::{Headline, HeadlineFigure};
use super::super::parent::failed;
use super::super::{Context, EvaluateError, run_parallel};
use super::programs::ProgramRun;
use super::{operations, story};
use crate::show::grouped;

/// Runs a dense and a sparse heap without and with huge pages, and counts what a folio costs.
pub(in super::super) fn headline(context: &Context<'_>) -> Result<Headline, EvaluateError> {
    context.show_step("heaps without and with huge pages");
    let runs = |program| run_parallel(["never", "always"], |word| ProgramRun::run(program, word));
    let (dense, sparse) = (runs("heap-dense")?, runs("heap-sparse")?);
    context.show_step("stepping through get and put of a huge page");
    let locked = match operations(false) {
        Ok(used) => {
            let figures = used.iter().map(super::operations::OperationUse::locked);
            let (least, most) = (figures.clone().min().unwrap_or(0), figures.max().unwrap_or(0));
            let range = if least == most { most.to_string() } else { format!("{least} to {most}") };
            format!("Locked instructions of get or put, head or tail page, counted: {range}.")
        }
        Err(reason) => format!("Locked instructions were not counted: {reason}"),
    };
    let [_, _, child, parent, reclaim, _, exit] = &story::tell()?[..] else {
        return Err(failed("the story has other events"));
    };
    let kept = if child.huge[0] { "stays whole" } else { "does not stay whole" };
    let row = |name: &str, runs: &[ProgramRun]| {
        let faults = runs.iter().map(|run| grouped(run.faults)).collect::<Vec<_>>();
        let peaks = runs.iter().map(|run| format!("{:.0}", run.peak_bytes as f64 / f64::from(1 << 20)));
        let peaks = peaks.collect::<Vec<_>>();
        format!("{name:<32} {:>10} {:>10}   {:>9} {:>9}", faults[0], faults[1], peaks[0], peaks[1])
    };
    let [never, always] = [0, 1].map(|at| grouped(dense[at].faults));
    Ok(Headline {
        published: "-13 % system time of a kernel build -j4 (no time is measured here)",
        ours: vec![HeadlineFigure::counted(format!("{never} → {always} faults of a heap that is touched densely"))],
        details: vec![
            format!("{:<32} {:>21}   {:>19}", "counted", "faults", "MiB in use at peak"),
            format!("{:<32} {:>10} {:>10}   {:>9} {:>9}", "", "never", "always", "never", "always"),
            row("a dense heap", &dense),
            row("a sparse heap", &sparse),
            "A huge page in two processes: the child unmaps a half, then the parent does.".to_owned(),
            format!("  PMDs split: {}, and the parent's {kept}; then {}.", child.splits[0], parent.splits[0]),
            format!(
                "  Frames in use: {}, after reclaim {}, after both exits {}.",
                parent.frames, reclaim.frames, exit.frames
            ),
            locked,
        ],
    })
}
