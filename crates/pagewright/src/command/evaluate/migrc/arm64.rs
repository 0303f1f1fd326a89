//! arm64: the waits that lingering saves, and the invalidations that it does not save.
//!
//! The TLBI of an entry that lingers is issued when the entry is cleared; only the DSB is deferred.
//! So any later DSB of the CPU that issued it settles the frame. The alternative issues no TLBI
//! then, and settles parked frames by one broadcast of everything. It is not built; its cost is
//! modelled from the counts of the run.
//!
//! Not guaranteed: that the alternative needs no more broadcasts. It is given the fewest that G
//! allows, so its cost is a lower bound.

use super::super::parent::failed;
use super::super::{EvaluateError, Limit, OurFigure, Table, Unit};
use super::column::{ColumnRun, FlushColumn, InputRuns};
use super::inputs::{ARM64, CPUS};
use super::rows::{self, ColumnRow, gap, reclaimed, settle_waits};
use pagewright_sim::{Cost, Profile};

/// The pages that a run migrated, or reclaimed if it has one node.
fn pages(run: &ColumnRun) -> u64 {
    match run.count("pgmigrate_success") {
        0 => reclaimed(run),
        migrated => migrated,
    }
}

fn per_page(run: &ColumnRun, count: f64) -> f64 {
    count / pages(run) as f64
}

fn shown(figure: f64) -> String {
    format!("{figure:.3}")
}

/// Waits and invalidations side by side.
pub(super) fn table(inputs: &InputRuns) -> Result<Table, EvaluateError> {
    let profile = Profile::named(ARM64).map_err(failed)?;
    let per_page = |name, counter: &'static str| {
        ColumnRow::counted(name, move |run| shown(per_page(run, run.count(counter) as f64)))
    };
    let mut rows = vec![
        ColumnRow::counted("pages migrated, or reclaimed on one node", |run| pages(run).to_string()),
        ColumnRow::of_counter("waits (DSBs after TLBIs)", "pw_flush_waits"),
        per_page("waits per page", "pw_flush_waits"),
        per_page("invalidations (TLBIs) per page", "pw_tlbis"),
        per_page("all DSBs per page", "pw_dsbs"),
        ColumnRow::of_counter("pages that linger", "pw_linger_pages"),
    ];
    rows.extend(settle_waits(""));
    if inputs.columns.iter().any(|(_, run)| gap(run) > 0 && run.count("pgmigrate_success") > 0) {
        rows.push(per_page("entries that hint scans clear, per page", "numa_pte_updates"));
        rows.push(band("ns per page: TLBIs of what lingers, when cleared", &profile, queued));
        rows.push(band("ns per page: no such TLBIs, a broadcast of all for G", &profile, broadcast));
    }
    Ok(rows::table(inputs, ("waits and invalidations", "per page"), rows))
}

/// A cost of the TLBIs of lingering entries, or of the broadcasts that would replace them.
fn band<'a>(name: &str, profile: &'a Profile, cost: fn(&ColumnRun, &Profile) -> [f64; 2]) -> ColumnRow<'a> {
    ColumnRow::modelled(name, move |run| match run.count("pw_linger_pages") {
        0 => "–".to_owned(),
        _ => {
            let [low, high] = cost(run, profile).map(|nanos| format!("{:.1}", per_page(run, nanos)));
            if low == high { low } else { format!("{low}–{high}") }
        }
    })
}

/// Nanoseconds of the TLBIs that lingering entries issue, at the ends of the bands of their costs.
fn queued(run: &ColumnRun, profile: &Profile) -> [f64; 2] {
    let pages = run.count("pw_linger_pages") as f64;
    [0, 1].map(|end| pages * nanos(profile, &[Cost::Tlbi, Cost::TlbiComplete], end))
}

/// Nanoseconds of the broadcasts that would settle parked frames, one for each G of them.
///
/// Each has one TLBI and one wait. The low end refills no TLB, the high end all TLBs of all CPUs,
/// by walks that cost as much as those of the run.
fn broadcast(run: &ColumnRun, profile: &Profile) -> [f64; 2] {
    let settles = run.count("pw_tlb_settle_on_alloc") + run.count("pw_tlb_settle_ahead");
    let broadcasts = run.count("pw_linger_pages").div_ceil(gap(run).max(1)).max(settles) as f64;
    let others = f64::from(CPUS - 1);
    let walk_ns = run.count("pw_walk_ps") as f64 / 1000.0 / run.count("pw_page_walks").max(1) as f64;
    let refill = (profile.tlb_entries() * u64::from(CPUS)) as f64 * walk_ns;
    [0, 1].map(|end| {
        let wait = nanos(profile, &[Cost::Tlbi, Cost::TlbiComplete, Cost::DsbWait], end)
            + others * nanos(profile, &[Cost::DsbWaitEach], end);
        broadcasts * (wait + if end == 0 { 0.0 } else { refill })
    })
}

/// The sum of costs in nanoseconds, at the low (0) or the high end (1) of their bands.
fn nanos(profile: &Profile, costs: &[Cost], end: usize) -> f64 {
    costs.iter().map(|cost| profile.band(*cost)[end].raw() as f64 / 1000.0).sum()
}

/// Waits per page in the column that lets translations linger there, of which no more is promised.
pub(super) fn waits(inputs: &InputRuns) -> Option<OurFigure> {
    let batched = inputs.of(FlushColumn::Batched)?;
    let is_migration = batched.count("pgmigrate_success") > 0;
    let column = if is_migration { FlushColumn::Migration } else { FlushColumn::Unmap };
    let run = inputs.of(column)?;
    let of = |name: &'static str| [batched, run].map(|run| per_page(run, run.count(name) as f64));
    let (waits, [tlbis, tlbis_after]) = (of("pw_flush_waits"), of("pw_tlbis").map(shown));
    let page = if is_migration { "migrated" } else { "reclaimed" };
    let total = [batched, run].map(|run| format!("{} waits for {} pages", run.count("pw_flush_waits"), pages(run)));
    let settles = run.count("pw_tlb_settle_waits");
    Some(OurFigure {
        of: format!("{page}, {}, {}", column.name(), inputs.input),
        details: format!("waits, {tlbis} → {tlbis_after} invalidations"),
        limit: Some(Limit::at_most(waits[0], Unit::PerPage).noting("as batched; invalidations are not saved")),
        reason: format!("{} → {}, {settles} of them settle parked frames", total[0], total[1]),
        ..OurFigure::change(waits)
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::verdicts;
    use super::super::claims::ARM64_WAITS;
    use super::super::claims::tests::{column, inputs};
    use super::*;

    #[test]
    fn more_waits_than_batched_break_the_promise() {
        for (waits, verdict) in [(90, "kept"), (100, "kept"), (101, "missed")] {
            let mut inputs = inputs(column(&[("pw_flush_waits", waits)], 0));
            inputs.columns[1].1 = column(&[("pw_flush_waits", 100)], 0);
            assert_eq!(verdicts(&ARM64_WAITS, &inputs), [verdict], "{waits}");
        }
    }

    #[test]
    fn a_broadcast_settles_g_frames_and_is_dearer_if_tlbs_are_refilled() {
        let profile = Profile::named(ARM64).expect("a profile");
        let mut run = column(&[("pw_linger_pages", 1001), ("pw_walk_ps", 10_000), ("pw_page_walks", 1)], 0);
        run.tiers.low_to_high = 100;
        // 11 broadcasts: at least 3 + 12 + 20 ns each.
        let [low, high] = broadcast(&run, &profile);
        assert_eq!(low.round(), 11.0 * 35.0);
        assert!(high - low > 11.0 * 10.0 * 4.0 * profile.tlb_entries() as f64, "{high}");
        assert_eq!(queued(&run, &profile).map(f64::round), [1001.0 * 15.0, 1001.0 * 157.0]);
    }
}
