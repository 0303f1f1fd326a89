//! Each row of `evaluate batch` has results that it must reject.

use super::super::grid::{Grid, ModeCost, Setup};
use super::super::half_memory::{CaptureCosts, HalfMemory};
use super::*;
use pagewright_capture::pageout::PageOutCosts;
use pagewright_capture::replay::NamedCounts;
use pagewright_sim::Picos;

const PAGES: u64 = 256;

/// The costs of a mode: waits, nanoseconds elapsed and of them waiting, all of 256 pages.
fn costs(waits: u64, elapsed: u64, waited: u64) -> PageOutCosts {
    let counters = NamedCounts(vec![("pw_flush_waits", waits), ("pw_tlb_batch_entries", PAGES)]);
    let [elapsed, waited] = [elapsed, waited].map(Picos::from_nanos);
    PageOutCosts { pages: PAGES, counters, elapsed, paging: elapsed, waited }
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
    BatchResults { grid: Grid { cells, tlbi_limit: None }, half_memory }
}

/// A saving of 31 of 32 waits: 1,000 ns elapsed, 320 waiting before.
fn good(cpus: u16) -> Cell {
    cell(cpus, costs(256, 1000, 320), costs(8, 690, 10))
}

fn verdict_of(row: Option<Claim>) -> Verdict {
    row.expect("a row").verdict
}

#[test]
fn more_than_one_wait_for_32_pages_fails() {
    let verdict = |cells| waits(&results(cells))[0].verdict;
    assert_eq!(verdict(vec![good(8)]), Verdict::Reproduced);
    assert_eq!(verdict(vec![good(8), cell(4, costs(256, 1000, 320), costs(9, 690, 10))]), Verdict::Differs);
}

#[test]
fn a_single_cpu_is_left_out_and_named() {
    let rows = waits(&results(vec![good(8), cell(1, costs(256, 1000, 320), costs(256, 1000, 320))]));
    assert_eq!(rows[0].verdict, Verdict::Reproduced);
    assert!(rows[0].leaves_out.contains("1.000 after"), "{}", rows[0].leaves_out);
}

#[test]
fn a_batch_that_saves_less_than_its_waits_fails() {
    let verdict = |cells| verdict_of(saved_part(&results(cells)).expect("known profiles"));
    assert_eq!(verdict(vec![good(8)]), Verdict::Reproduced);
    // 270 of the 310 ns that one wait could save.
    assert_eq!(verdict(vec![good(8), cell(2, costs(256, 1000, 320), costs(8, 730, 50))]), Verdict::Differs);
    let mut doubtful = good(8);
    doubtful.before.corners = vec![costs(256, 1000, 320)];
    doubtful.after.corners = vec![costs(8, 800, 120)];
    assert_eq!(verdict(vec![doubtful]), Verdict::Undecided, "an end of the band saves less");
}

#[test]
fn a_published_share_that_the_model_misses_fails() {
    let share = |waited| {
        let cells = vec![cell(8, costs(256, 100_000, waited), costs(8, 95_000, 100))];
        published(&results(cells), &PUBLISHED[0]).expect("known profiles")[0].verdict
    };
    assert_eq!(share(5_100), Verdict::Reproduced);
    assert_eq!([share(4_000), share(6_000)], [Verdict::Differs; 2]);
}

#[test]
fn a_saving_with_few_cpus_that_the_reviewers_did_not_see_fails() {
    let verdict = |after| {
        let with_forced = |cpus| {
            let forced = ModeCost { paged_out: costs(8, after, 10), corners: Vec::new() };
            Cell { forced: Some(forced), ..good(cpus) }
        };
        verdict_of(few_cpus(&results([1, FEW, 8].map(with_forced).into())))
    };
    assert_eq!(verdict(995), Verdict::Reproduced);
    assert_eq!(verdict(960), Verdict::Differs);
}

#[test]
fn flushes_that_deferral_causes_count_as_waits() {
    let verdict = |waits, overtaken| {
        let half_memory = HalfMemory(vec![capture(31, 0), capture(waits, overtaken)]);
        verdict_of(super::half_memory(&BatchResults { half_memory, ..results(Vec::new()) }))
    };
    assert_eq!(verdict(31, 0), Verdict::Reproduced);
    assert_eq!(verdict(31, 7), Verdict::Differs);
}
