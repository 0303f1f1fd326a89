//! Variants of the look-ups: pages that are written, and larger gaps between watermarks.
//!
//! A page that is written between migrations has an entry that allows stores when it moves, so
//! little lingers, and what lingers may be settled before a store. Watermarks that are farther
//! apart let more frames be parked for one settle.

use super::super::{Limit, OurFigure, Table, Unit};
use super::column::{ColumnRun, FlushColumn, InputRuns};
use super::rows::{ColumnRow, RunPart, each, gap, side_by_side};

/// The part after the turnover, if there is one.
fn later_or_whole(run: &ColumnRun) -> RunPart {
    if run.tiers.at_turnover.is_some() { RunPart::Later } else { RunPart::Whole }
}

/// Flushes per migrated page where pages are written, in multiples of the batched ones.
///
/// Judged in the whole run and after the turnover, by the part with the larger excess.
pub(super) fn stores(inputs: &InputRuns) -> Option<OurFigure> {
    let (batched, run) = (inputs.of(FlushColumn::Batched)?, inputs.of(FlushColumn::Migration)?);
    let parts = [(RunPart::Whole, "whole run"), (RunPart::Later, "after the turnover")];
    let has_turned = [batched, run].iter().all(|run| run.tiers.at_turnover.is_some());
    let (mut worst, mut shown) = (f64::NEG_INFINITY, Vec::new());
    for (part, name) in parts.into_iter().take(if has_turned { 2 } else { 1 }) {
        let [before, after] = [batched, run].map(|run| part.remote_per_page(run));
        worst = worst.max(after / before);
        shown.push(format!("{} → {} {name}", each(before), each(after)));
    }
    let (settles, lingering) = (run.count("pw_linger_settled_for_store"), run.count("pw_linger_pages"));
    Some(OurFigure {
        of: inputs.input.clone(),
        details: format!("at worst ({})", shown.join(", ")),
        reason: format!("{lingering} pages linger, {settles} settles before stores"),
        ..OurFigure::exact(worst)
    })
}

/// Allocations that settled, and settles ahead of one.
fn settles(run: &ColumnRun, part: RunPart) -> u64 {
    part.count(run, "pw_tlb_settle_on_alloc") + part.count(run, "pw_tlb_settle_ahead")
}

/// Settles and remote flushes per migrated page, by the gap between the watermarks of one machine.
pub(super) fn gaps(machine: &[InputRuns]) -> Table {
    let runs = machine.iter().filter_map(|inputs| inputs.of(FlushColumn::Migration));
    let row = |name, cell: fn(&ColumnRun, RunPart) -> String| {
        ColumnRow::counted(name, move |run| cell(run, later_or_whole(run)))
    };
    let rows = [
        row("turnover", |_, part| match part {
            RunPart::Later => "after it".to_owned(),
            RunPart::Whole => "none: whole run".to_owned(),
        }),
        row("pages migrated", |run, part| part.count(run, "pgmigrate_success").to_string()),
        row("pages that linger", |run, part| part.count(run, "pw_linger_pages").to_string()),
        row("remote flushes per migrated page", |run, part| each(part.remote_per_page(run))),
        row("settles", |run, part| settles(run, part).to_string()),
        row("settles per migrated page", |run, part| each(part.per_page(run, settles(run, part)))),
        row("  promised: at most 1/(2G)", |run, _| each(limit(run))),
    ];
    let first = machine.first().map_or("", |inputs| inputs.input.as_str());
    let title = format!("Watermarks farther apart, from {first}");
    side_by_side(title, "migration", rows, runs.map(|run| (format!("G = {}", gap(run)), run)))
}

/// The most settles per migrated page that are promised.
fn limit(run: &ColumnRun) -> f64 {
    1.0 / (2 * gap(run)) as f64
}

/// Settles alone, of which at most one is promised for each 2 G migrated pages.
pub(super) fn settles_by_gap(inputs: &InputRuns) -> Option<OurFigure> {
    let run = inputs.of(FlushColumn::Migration)?;
    let part = later_or_whole(run);
    let settles = settles(run, part);
    Some(OurFigure {
        of: format!("G = {}, {}", gap(run), inputs.input),
        details: format!("({settles} settles, {} pages)", part.count(run, "pgmigrate_success")),
        limit: Some(Limit::at_most(limit(run), Unit::PerPage).noting("1/(2G)")),
        ..OurFigure::exact(part.per_page(run, settles))
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::verdicts;
    use super::super::claims::tests::{column, inputs};
    use super::super::claims::{GAPS, STORES};
    use super::*;

    #[test]
    fn written_pages_may_have_2_percent_more_flushes() {
        // Batched: 1,130 after the turnover and 500 before it.
        for (flushes, verdict) in [(1130, "kept"), (1152, "kept"), (1153, "missed")] {
            let run = column(&[("nr_tlb_remote_flush", flushes)], 0);
            assert_eq!(verdicts(&STORES, &inputs(run)), [verdict], "{flushes}");
        }
    }

    #[test]
    fn settles_in_allocations_and_ahead_count_against_twice_the_gap() {
        // 10,000 pages migrated: at most 10 settles.
        for (on_alloc, ahead, verdict) in [(6, 4, "kept"), (6, 5, "missed")] {
            let mut run = column(&[("pw_tlb_settle_on_alloc", on_alloc), ("pw_tlb_settle_ahead", ahead)], 0);
            run.tiers.low_to_high = 500;
            assert_eq!(verdicts(&GAPS, &inputs(run)), [verdict]);
        }
        let table = gaps(&[inputs(column(&[("pw_tlb_settle_on_alloc", 5)], 0))]);
        assert_eq!(table.rows[4], ["settles", "counted", "5"]);
    }
}
