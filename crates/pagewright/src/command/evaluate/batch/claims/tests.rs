//! Each row of `evaluate batch` has results that it must reject.

use super::super::grid::{ModeCost, PageOutCells, Setup};
use super::super::half_memory::{CaptureCosts, HalfMemory};
use super::*;
use pagewright_capture::pageout::PageOutCosts;
use pagewright_capture::replay::NamedCounts;
use pagewright_sim::Picos;

const PAGES: u64 = 256;

/// The costs of a mode: waits, nanoseconds elapsed and of them waiting, all of 256 pages.
fn costs(waits: u64, elapsed: u64, waited: u64) -> PageOutCosts {
    costs_with(vec![("pw_flush_waits", waits), ("pw_tlb_batch_entries", PAGES)], elapsed, waited)
}

fn costs_with(counters: Vec<(&'static str, u64)>, elapsed: u64, waited: u64) -> PageOutCosts {
    let [elapsed, waited] = [elapsed, waited].map(Picos::from_nanos);
    PageOutCosts { pages: PAGES, counters: NamedCounts(counters), elapsed, paging: elapsed, waited }
}

/// 256 pages of so many sharers on a large x86-64 machine.
fn shared(sharers: u32, waits: u64, entries: u64) -> Cell {
    let counters = vec![("pw_flush_waits", waits), ("pw_tlb_batch_entries", entries)];
    let after = costs_with(counters, 690, 10);
    let setup = Setup { profile: X86, cpus: 128, sharers, stores: false };
    Cell { setup, ..cell(128, costs(256, 1000, 320), after) }
}

fn cell(cpus: u16, before: PageOutCosts, after: PageOutCosts) -> Cell {
    let mode = |paged_out| ModeCost { paged_out, corners: Vec::new() };
    let setup = Setup { profile: PHONE, cpus, sharers: 1, stores: false };
    Cell { setup, before: mode(before), after: mode(after), forced: None }
}

fn capture(waits: u64, overtaken: u64) -> CapturePair {
    let costs = || CaptureCosts {
        counters: NamedCounts(vec![
            ("pgsteal_kswapd", 1000),
            ("pw_reclaim_waits", waits),
            ("pw_tlb_batch_overtaken", overtaken),
            ("nr_tlb_remote_flush", 500),
        ]),
        elapsed_ns: 1,
    };
    CapturePair { name: "pigz", profile: PHONE, reports: [costs(), costs()] }
}

fn results(cells: Vec<Cell>) -> BatchResults {
    let half_memory = HalfMemory(vec![capture(31, 0)]);
    BatchResults { grid: PageOutCells { cells, tlbi_limit: None }, half_memory }
}

/// A saving of 31 of 32 waits: 1,000 ns elapsed, 320 waiting before.
fn good(cpus: u16) -> Cell {
    cell(cpus, costs(256, 1000, 320), costs(8, 690, 10))
}

/// The verdict on the row whose words begin so.
fn verdict(what: &str, results: &BatchResults) -> Option<&'static str> {
    claims_of(&CLAIMS, results).iter().find(|row| row.what.starts_with(what)).map(|row| row.verdict.name())
}

fn single(cells: Vec<Cell>, what: &str) -> &'static str {
    verdict(what, &results(cells)).unwrap_or_else(|| panic!("no row: {what}"))
}

#[test]
fn more_than_one_wait_for_a_batch_fails() {
    let nine = || cell(4, costs(256, 1000, 320), costs(9, 690, 10));
    for (what, cells, expected) in [
        ("Waits per page, one process", vec![good(8)], "kept"),
        ("Waits per page, one process", vec![good(8), nine()], "missed"),
        ("Waits per page, 100 sharers", vec![shared(100, 8, 25_600)], "kept"),
        ("Waits per page, 100 sharers", vec![shared(100, 9, 25_600)], "missed"),
    ] {
        assert_eq!(single(cells, what), expected, "{what}");
    }
}

#[test]
fn sharers_that_cost_more_edits_or_more_waits_than_promised_fail() {
    let (ten, hundred) = (|waits| shared(10, waits, 2560), |waits| shared(100, waits, 25_600));
    for (cells, expected) in [
        ([ten(8), hundred(8)], "kept"),
        ([ten(8), hundred(9)], "missed"),
        ([ten(9), hundred(8)], "missed"),
        // As many waits with 10 as with 100, and too many.
        ([ten(256), hundred(256)], "missed"),
        ([ten(8), shared(100, 8, 25_601)], "missed"),
        ([shared(10, 8, 2561), hundred(8)], "missed"),
    ] {
        assert_eq!(single(cells.into(), "Sharers of a page"), expected);
    }
    assert_eq!(verdict("Sharers of a page", &results(vec![ten(8)])), None);
}

#[test]
fn a_single_cpu_is_left_out_and_named() {
    let rows = claims_of(&CLAIMS, &results(vec![good(8), cell(1, costs(256, 1000, 320), costs(256, 1000, 320))]));
    assert_eq!((rows[0].verdict.name(), rows[0].what.as_str()), ("kept", "Waits per page, one process"));
    assert_eq!(rows[0].leaves_out, "one CPU, where nothing is deferred: 1 per page after");
}

#[test]
fn a_batch_that_saves_less_than_its_waits_fails() {
    assert_eq!(single(vec![good(8)], "Time saved"), "kept");
    // 270 of the 310 ns that one wait could save.
    assert_eq!(single(vec![good(8), cell(2, costs(256, 1000, 320), costs(8, 730, 50))], "Time saved"), "missed");
    let mut doubtful = good(8);
    doubtful.before.corners = vec![costs(256, 1000, 320)];
    doubtful.after.corners = vec![costs(8, 800, 120)];
    assert_eq!(single(vec![doubtful], "Time saved"), "undecided", "an end of the band saves less");
}

#[test]
fn a_published_share_that_the_model_misses_fails() {
    let share = |waited| {
        let cells = vec![cell(8, costs(256, 100_000, waited), costs(8, 95_000, 100))];
        of_the_series(&results(cells), &PUBLISHED[0])[0].verdict.name()
    };
    assert_eq!([5_100, 4_000, 6_000].map(share), ["reproduced", "differs", "differs"]);
}

#[test]
fn a_saving_with_few_cpus_that_the_reviewers_did_not_see_fails() {
    for (after, expected) in [(995, "reproduced"), (960, "differs")] {
        let with_forced = |cpus| {
            let forced = ModeCost { paged_out: costs(8, after, 10), corners: Vec::new() };
            Cell { forced: Some(forced), ..good(cpus) }
        };
        assert_eq!(single([1, FEW, 8].map(with_forced).into(), "Deferring flushes"), expected);
    }
}

#[test]
fn flushes_that_deferral_causes_count_as_waits() {
    for (overtaken, expected) in [(0, "kept"), (7, "missed")] {
        let half_memory = HalfMemory(vec![capture(31, 0), capture(31, overtaken)]);
        let results = BatchResults { half_memory, ..results(Vec::new()) };
        assert_eq!(verdict("Waits that reclaim", &results), Some(expected));
    }
}
