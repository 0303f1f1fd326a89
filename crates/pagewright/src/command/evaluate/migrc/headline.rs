//! The figures of the tour: remote flushes per page that moves between two memory tiers.

use super::super::headline::{Headline, HeadlineFigure};
use super::super::{Context, EvaluateError};
use super::column::{ColumnRun, FlushColumn};
use super::inputs::{TierMachine, look_ups};
use super::rows::{FlushPart, RunPart, each};
use crate::show::grouped;

/// Runs a few rounds of the look-ups, with batched flushes and with deferred ones.
pub(in super::super) fn headline(context: &Context<'_>) -> Result<Headline, EvaluateError> {
    let inputs = look_ups(context, &[TierMachine::headline()?])?;
    let of = |column| inputs.iter().find_map(|inputs| inputs.of(column));
    let missing = || EvaluateError::Machine("the look-ups did not run".to_owned());
    let runs = [of(FlushColumn::Batched).ok_or_else(missing)?, of(FlushColumn::Migration).ok_or_else(missing)?];
    let part = if runs.iter().all(|run| run.tiers.at_turnover.is_some()) { RunPart::Later } else { RunPart::Whole };
    let [before, after] = runs.map(|run| each(part.remote_per_page(run)));
    let row = |name: &str, figure: &dyn Fn(&ColumnRun) -> u64| {
        let [batched, lingering] = runs.map(|run| grouped(figure(run)));
        format!("{name:<44} {batched:>12} {lingering:>12}")
    };
    let count = |name: &'static str| move |run: &ColumnRun| part.count(run, name);
    let caused = |cause: FlushPart| move |run: &ColumnRun| cause.flushes(run, part);
    let moved = grouped(part.count(runs[1], "pgmigrate_success"));
    let since = match part {
        RunPart::Later => "Counted from when as many pages were promoted as the fast node has frames.",
        RunPart::Whole => "Counted in a run that is too short for the fast node to turn over.",
    };
    Ok(Headline {
        published: "0.113 → 0.00643 remote flushes per migrated page (XSBench, 16 CPUs)",
        ours: vec![HeadlineFigure::counted(format!(
            "{before} → {after} remote flushes per migrated page, {moved} pages moved"
        ))],
        details: vec![
            format!("{:<44} {:>12} {:>12}", "look-ups on two tiers, 4 CPUs, counted", "batched", "deferred"),
            row("remote flushes", &count(super::published::REMOTE)),
            row("  of hint scans, which defer nothing", &caused(FlushPart::Scans)),
            row("  of batches of pages that move", &caused(FlushPart::Batches)),
            row("pages moved", &count("pgmigrate_success")),
            row("pages whose flush was deferred", &count("pw_linger_pages")),
            row("pages flushed, as their entry allowed stores", &count("pw_linger_writable")),
            since.to_owned(),
        ],
    })
}
