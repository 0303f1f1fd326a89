//! Rows of `evaluate clear` have measurements that they must reject.

use super::super::super::verdicts;
use super::super::grid::MethodRate;
use super::super::pollution;
use super::*;
use std::collections::BTreeMap;

/// A cell in which cached stores reach 10 GB/s, streaming ones 20, and `auto` this much.
fn cell(state: TargetState, bytes: u64, known: Residency, auto: f64) -> Cell {
    cell_with(state, bytes, known, [10.0, 20.0, auto])
}

/// A cell with the GB/s of cached stores, of streaming ones and of `auto`.
fn cell_with(state: TargetState, bytes: u64, known: Residency, rates: [f64; 3]) -> Cell {
    let methods = [CACHED_STORES, MOVNTI, Method::Auto].into_iter().zip(rates);
    let methods = methods.map(|(method, rate)| MethodRate::new(method, vec![rate; 3])).collect();
    Cell { state, bytes, cpus: 1, known, chosen: ClearBackend::Cached, methods }
}

/// A cold extent that streaming stores clear at this rate, and cached ones at 10 GB/s.
fn cold(bytes: u64, movnti: f64) -> Cell {
    cell_with(TargetState::Cold, bytes, Residency::Cold, [10.0, movnti, movnti])
}

fn grid(cells: Vec<Cell>) -> ClearCells {
    ClearCells { cells, checked_bytes: 0 }
}

const MIB2: u64 = 2 << 20;

/// The rows of cells whose words begin so.
fn rows(what: &str, cells: Vec<Cell>) -> Vec<Claim> {
    claims_of(&CELLS, &grid(cells)).into_iter().filter(|row| row.what.starts_with(what)).collect()
}

fn assert_verdicts(what: &str, cells: Vec<Cell>, expected: &[&str]) {
    let verdicts: Vec<_> = rows(what, cells).iter().map(|row| row.verdict.name()).collect();
    assert_eq!(verdicts, expected, "{what}");
}

#[test]
fn a_cell_that_is_slower_than_published_or_promised_fails() {
    let known = |auto| vec![cell(TargetState::Cold, MIB2, Residency::Cold, auto)];
    assert_verdicts("Target known", known(19.5), &["kept"; 2]);
    assert_verdicts("Target known", known(15.0), &["missed", "kept"]);
    assert_verdicts("Target known", known(9.0), &["missed"; 2]);
    let series = |large, medium| vec![cold(4 << 30, large), cold(128 << 20, medium)];
    assert_verdicts("MOVNTI", series(20.0, 18.0), &["reproduced"; 2]);
    assert_verdicts("MOVNTI", series(17.0, 18.0), &["differs", "reproduced"]);
    assert_verdicts("MOVNTI", series(20.0, 16.0), &["reproduced", "differs"]);
    // 4 GiB were not measured.
    assert_verdicts("MOVNTI", vec![cold(1 << 30, 20.0)], &["undecided"]);
    for (movnti, verdict) in [(17.5, "reproduced"), (15.0, "differs")] {
        let dirty = cell_with(TargetState::Dirty, MIB2, Residency::Hot, [20.0; 3]);
        assert_verdicts("MOVNTI against rep stosb, 2 MB", vec![cold(MIB2, movnti), dirty], &[verdict]);
    }
    // A fence for each page that costs nothing, and one for each 64 KiB that costs a third.
    let fences = |small, medium| vec![cold(PAGE_SIZE, small), cold(64 << 10, medium), cold(MIB2, 20.0)];
    assert_verdicts("Bandwidth with a fence", fences(12.0, 18.0), &["reproduced"; 2]);
    assert_verdicts("Bandwidth with a fence", fences(19.0, 18.0), &["differs", "reproduced"]);
    assert_verdicts("Bandwidth with a fence", fences(12.0, 14.0), &["reproduced", "differs"]);
}

#[test]
fn cells_that_a_row_leaves_out_are_named_with_their_figures() {
    let row = rows(
        "Target known",
        vec![
            cell(TargetState::Cold, MIB2, Residency::Cold, 20.0),
            cell(TargetState::Cold, PAGE_SIZE, Residency::Cold, 14.8),
            cell(TargetState::ReadBack, MIB2, Residency::Cold, 17.0),
            cell(TargetState::Dirty, MIB2, Residency::Unknown, 10.0),
        ],
    )
    .swap_remove(0);
    assert_eq!(row.verdict.name(), "kept");
    for text in ["cold 4 KiB that nothing reads: 0.74 ×", "read at once: 0.85 ×", "not known to be hot or cold: 0.5 ×"]
    {
        assert!(row.leaves_out.contains(text), "{text} in {}", row.leaves_out);
    }
}

#[test]
fn large_cold_memory_cleared_slower_than_possible_fails_and_small_is_left_out() {
    let cells = |large, small| {
        let of = |bytes, auto| cell(TargetState::Cold, bytes, Residency::Cold, auto);
        vec![of(MIB2, 20.0), of(1 << 30, large), of(PAGE_SIZE, small)]
    };
    assert_verdicts("Cold memory", cells(18.0, 20.0), &["missed"]);
    assert_verdicts("Cold memory", cells(19.5, 10.0), &["kept"]);
    let row = rows("Cold memory", cells(19.5, 10.0)).swap_remove(0);
    assert!(row.leaves_out.starts_with("cold memory below 2 MiB: 0.5 ×"), "{}", row.leaves_out);
}

#[test]
fn a_clear_that_evicts_the_hot_set_fails() {
    for (after, verdict) in [(5.4, "kept"), (24.0, "missed")] {
        let row = |method, after| pollution::Row {
            history: BlockHistory::Written,
            cleared: MIB2,
            method,
            answers: BTreeMap::from([("hot".to_owned(), 3)]),
            clear: vec![100.0; 3],
            walks: [vec![5.0; 3], vec![after; 3]],
        };
        let rows = claims_of(&HOT_SET, &Pollution { rows: vec![row(CACHED, 25.0), row(AUTO, after)] });
        assert!(rows[0].ours.contains("hot 3"), "the allocator's own answer: {}", rows[0].ours);
        assert_eq!(rows[0].verdict.name(), verdict);
    }
}

#[test]
fn a_compilation_with_overlapping_times_is_not_better() {
    // Not slower, which is all that Icelake showed.
    for (auto, verdict) in
        [([2.0, 2.1, 2.2], "reproduced"), ([2.0, 2.1, 2.4], "undecided"), ([2.4, 2.5, 2.4], "differs")]
    {
        let times = CompileTimes { alone: vec![2.0; 3], cached: vec![2.2; 3], auto: auto.to_vec() };
        assert_eq!(verdicts(&COMPILATION, &times), [verdict], "{auto:?}");
    }
}

#[test]
fn a_hint_that_makes_pins_slower_and_faults_that_are_slower_than_uncached_ones_fail() {
    for (hinted, auto, verdict) in [(3.0, 800.0, "kept"), (1.9, 950.0, "missed")] {
        assert_eq!(verdicts(&BULK_PINS, &BulkPins { plain: vec![2.0; 3], hinted: vec![hinted; 3] }), [verdict]);
        let row = Row { state: "cold", bytes: MIB2, uncached: vec![900.0; 3], auto: vec![auto; 3] };
        assert_eq!(verdicts(&FAULTS, &row), [verdict]);
    }
}

#[test]
fn a_vm_that_gains_less_than_published_or_promised_fails() {
    let vm = |gain, permille| VmGain { gain: Stats::of(vec![gain; 3]), has_clzero: true, permille };
    for (gain, expected) in [
        (3.7, ["reproduced", "better", "kept"]),
        (2.5, ["differs", "reproduced", "kept"]),
        (1.9, ["differs", "differs", "missed"]),
    ] {
        assert_eq!(verdicts(&VM, &vm(gain, Some(2500))), expected, "{gain}");
    }
    assert_eq!(verdicts(&VM, &VmGain { has_clzero: false, ..vm(1.9, None) }), ["differs", "missed"], "without CLZERO");
    let has_reason = |permille| !claims_of(&VM, &vm(1.9, permille))[2].reason.is_empty();
    assert_eq!([Some(1999), Some(2000), None].map(has_reason), [true, false, true], "why it cannot be twice as fast");
}

#[test]
fn measurements_that_take_longer_than_their_budget_fail() {
    for (micros, verdict) in [([100_000, 2_000], "kept"), ([100_100, 2_010], "missed")] {
        let [probe, calibration] = micros.map(Duration::from_micros);
        assert_eq!(verdicts(&BUDGETS, &Budgets { probe, calibration: Some(calibration) }), [verdict; 2]);
    }
}
