//! Each row of `evaluate migrc` has results that it must reject.

use super::super::super::verdicts;
use super::super::rows::eligible;
use super::*;
use pagewright_capture::replay::{NamedCounts, RemoteFlushes, SettleReport, TierReport, TurnoverCounts};

/// A run of 1,000 migrated pages before the turnover and 10,000 after it.
///
/// Each flush of a scan is that of a batch.
pub(in super::super) fn column(later: &[(&'static str, u64)], scan_flushes: u64) -> ColumnRun {
    let before = NamedCounts(vec![("pgmigrate_success", 1000), ("nr_tlb_remote_flush", 500)]);
    let mut counters = vec![("pgmigrate_success", 11_000)];
    let scans = RemoteFlushes { all: scan_flushes, batches: scan_flushes, ..RemoteFlushes::default() };
    counters.extend(later.iter().map(|(name, count)| {
        let early = before.get(name).unwrap_or(0);
        (*name, early + count)
    }));
    let at_turnover = TurnoverCounts { counters: before, ..TurnoverCounts::default() };
    let tiers = TierReport { scans, at_turnover: Some(at_turnover), ..TierReport::default() };
    ColumnRun {
        counters: NamedCounts(counters),
        tiers,
        settles: SettleReport::default(),
        elapsed_ns: 1000,
        flush_wait_ns: 1,
        memory_ns: 0,
        memory_ns_band: [0; 2],
        stale_hits: None,
        findings: Vec::new(),
    }
}

pub(in super::super) fn inputs(migration: ColumnRun) -> InputRuns {
    let batched = || column(&[("nr_tlb_remote_flush", 1130)], 0);
    let columns = FlushColumn::ALL.into_iter().zip([batched(), batched(), migration, batched()]).collect();
    InputRuns { input: "look-ups".to_owned(), columns }
}

#[test]
fn more_remote_flushes_per_page_than_published_differ_and_name_the_cause() {
    let row = |flushes, settles| {
        let counts = [("nr_tlb_remote_flush", flushes), ("pw_tlb_settle_waits", settles), ("pw_tlb_batch_waits", 20)];
        let run = column(&counts, 20);
        claims_of(&FLUSHES, &inputs(run)).swap_remove(0)
    };
    assert_eq!(row(64, 44).verdict.name(), "reproduced");
    let missed = row(200, 180);
    assert_eq!(missed.verdict.name(), "differs");
    assert!(missed.reason.contains("by themselves: settles of parked frames"), "{}", missed.reason);
}

#[test]
fn flushes_before_the_turnover_are_not_judged_and_none_without_it() {
    let run = || column(&[("nr_tlb_remote_flush", 60), ("pw_tlb_batch_waits", 60)], 60);
    let row = |run| claims_of(&FLUSHES, &inputs(run)).swap_remove(0);
    assert!(row(run()).leaves_out.contains("0.051"), "{}", row(run()).leaves_out);
    let without = ColumnRun { tiers: TierReport::default(), ..run() };
    assert_eq!(row(without).verdict.name(), "differs", "nothing is counted, so nothing is reproduced");
}

/// The causes add up to all remote flushes, and each batch of a scan counts once.
///
/// Settles that sent no IPI do not count.
#[test]
fn each_remote_flush_has_one_cause() {
    let counts = [
        ("nr_tlb_remote_flush", 100),
        ("pw_tlb_batch_flushed", 70),
        ("pw_tlb_batch_waits", 50),
        ("pw_tlb_settle_on_alloc", 17),
        ("pw_tlb_settle_waits", 10),
        ("pw_linger_settled_for_store", 6),
        ("pw_linger_store_waits", 5),
    ];
    let run = column(&counts, 30);
    let flushes = FlushPart::ALL.map(|cause| cause.flushes(&run, RunPart::Later));
    assert_eq!(flushes, [30, 20, 5, 10, 35], "{:?}", FlushPart::ALL);
}

#[test]
fn a_count_that_falls_less_than_published_differs() {
    let count = COUNTS.iter().find(|count| count.name == "nr_tlb_remote_flush").expect("a count of the mail");
    // The mail: 17.6 times fewer. Before: 1,630 for 11,000 pages.
    let verdict = |flushes| {
        let run = column(&[("nr_tlb_remote_flush", flushes)], 0);
        verdicts(&events(), &(&inputs(run), count))
    };
    assert_eq!(verdict(1000), ["differs"]);
}

#[test]
fn a_run_that_takes_longer_saves_no_time() {
    for (elapsed_ns, verdict) in [(1100, "differs"), (964, "reproduced")] {
        let run = ColumnRun { elapsed_ns, ..column(&[], 0) };
        assert_eq!(verdicts(&TIMES, &inputs(run))[0], verdict, "{elapsed_ns} of 1,000 ns");
    }
}

#[test]
fn the_shares_of_the_rules_are_of_all_pages_that_a_rule_judged() {
    let run = column(&[("pw_linger_pages", 30), ("pw_linger_writable", 60), ("pw_linger_nothing_owed", 10)], 0);
    let table = eligible(&inputs(run));
    let cell = |row: usize| table.rows[row][4].as_str();
    assert_eq!([cell(0), cell(1), cell(2), cell(3)], ["100", "30 (30.00 %)", "60 (60.00 %)", "10 (10.00 %)"]);
}
