//! Rows of `evaluate clear` have measurements that they must reject.

use super::super::grid::MethodRate;
use super::super::pollution::Row;
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

#[test]
fn a_choice_slower_than_the_fastest_stores_fails() {
    let verdicts = |auto| {
        let rows = known_targets(&grid(vec![cell(TargetState::Cold, MIB2, Residency::Cold, auto)]));
        rows.iter().map(|row| row.verdict.name()).collect::<Vec<_>>()
    };
    assert_eq!(verdicts(19.5), ["kept"; 2]);
    assert_eq!(verdicts(15.0), ["missed", "kept"]);
    assert_eq!(verdicts(9.0), ["missed"; 2]);
}

#[test]
fn cells_that_a_row_leaves_out_are_named_with_their_figures() {
    let rows = known_targets(&grid(vec![
        cell(TargetState::Cold, MIB2, Residency::Cold, 20.0),
        cell(TargetState::Cold, PAGE_SIZE, Residency::Cold, 14.8),
        cell(TargetState::ReadBack, MIB2, Residency::Cold, 17.0),
        cell(TargetState::Dirty, MIB2, Residency::Unknown, 10.0),
    ]));
    assert_eq!(rows[0].verdict.name(), "kept");
    for text in ["cold 4 KiB that nothing reads: 0.74", "read at once: 0.85", "not known to be hot or cold: 0.50"] {
        assert!(rows[0].leaves_out.contains(text), "{text} in {}", rows[0].leaves_out);
    }
}

#[test]
fn a_clear_that_evicts_the_hot_set_fails() {
    let verdict = |after| {
        let row = |method, after| Row {
            history: BlockHistory::Written,
            cleared: MIB2,
            method,
            answers: BTreeMap::from([("hot".to_owned(), 3)]),
            clear: vec![100.0; 3],
            walks: [vec![5.0; 3], vec![after; 3]],
        };
        let rows = hot_set(&Pollution { rows: vec![row(CACHED, 25.0), row(AUTO, after)] });
        assert!(rows[0].ours.contains("hot 3"), "the allocator's own answer: {}", rows[0].ours);
        rows[0].verdict.name()
    };
    assert_eq!([verdict(5.4), verdict(24.0)], ["kept", "missed"]);
}

#[test]
fn a_compilation_with_overlapping_times_is_not_better() {
    let verdict = |auto: &[f64]| {
        let [alone, cached] = [vec![2.0; 3], vec![2.2, 2.2, 2.2]];
        compilation(&CompileTimes { alone, cached, auto: auto.to_vec() }).verdict.name()
    };
    assert_eq!(verdict(&[2.0, 2.1, 2.2]), "reproduced", "not slower, which is all that Icelake showed");
    assert_eq!(verdict(&[2.0, 2.1, 2.4]), "undecided");
    assert_eq!(verdict(&[2.4, 2.5, 2.4]), "differs");
}

#[test]
fn a_hint_that_makes_pins_slower_fails() {
    let verdict = |hinted| bulk_pins(&BulkPins { plain: vec![2.0; 3], hinted: vec![hinted; 3] }).verdict.name();
    assert_eq!([verdict(3.0), verdict(1.9)], ["kept", "missed"]);
}

#[test]
fn demand_faults_that_are_slower_than_uncached_ones_fail() {
    let verdict = |auto| {
        let row =
            super::super::faults::Row { state: "cold", bytes: MIB2, uncached: vec![900.0; 3], auto: vec![auto; 3] };
        demand_faults(&row).verdict.name()
    };
    assert_eq!([verdict(800.0), verdict(950.0)], ["kept", "missed"]);
}

#[test]
fn uncached_stores_that_gain_less_than_the_series_fail() {
    let verdicts = |large, medium| {
        let rows = uncached_stores(&grid(vec![cold(4 << 30, large), cold(128 << 20, medium)]));
        rows.iter().map(|row| row.verdict.name()).collect::<Vec<_>>()
    };
    assert_eq!(verdicts(20.0, 18.0), ["reproduced"; 2]);
    assert_eq!(verdicts(17.0, 18.0), ["differs", "reproduced"]);
    assert_eq!(verdicts(20.0, 16.0), ["reproduced", "differs"]);
    let quick = uncached_stores(&grid(vec![cold(1 << 30, 20.0)]));
    assert_eq!(quick[0].verdict.name(), "undecided", "4 GiB were not measured");
}

#[test]
fn stores_to_one_buffer_that_are_slower_than_the_series_fail() {
    let verdict = |movnti| {
        let dirty = cell_with(TargetState::Dirty, MIB2, Residency::Hot, [20.0; 3]);
        same_buffer(&grid(vec![cold(MIB2, movnti), dirty])).expect("a row").verdict.name()
    };
    assert_eq!([verdict(17.5), verdict(15.0)], ["reproduced", "differs"]);
}

#[test]
fn a_vm_that_gains_less_than_published_or_promised_fails() {
    let verdicts = |gain| {
        let gain = Stats::of(vec![gain; 3]);
        let published = series_preallocation(&gain, true);
        [published[0].verdict.name(), published[1].verdict.name(), preallocation(&gain, Some(2500)).verdict.name()]
    };
    assert_eq!(verdicts(3.7), ["better", "reproduced", "kept"]);
    assert_eq!(verdicts(2.5), ["reproduced", "differs", "kept"]);
    assert_eq!(verdicts(1.9), ["differs", "differs", "missed"]);
    let gain = Stats::of(vec![1.9; 3]);
    assert_eq!(series_preallocation(&gain, false).len(), 1, "without CLZERO");
    let reasons = [Some(1999), Some(2000), None].map(|permille| !preallocation(&gain, permille).reason.is_empty());
    assert_eq!(reasons, [true, false, true], "why it cannot be twice as fast");
}

#[test]
fn a_fence_that_costs_nothing_or_too_much_fails() {
    let verdict = |small, medium| {
        let cells = vec![cold(PAGE_SIZE, small), cold(64 << 10, medium), cold(MIB2, 20.0)];
        fence(&grid(cells)).expect("a row").verdict.name()
    };
    assert_eq!(verdict(12.0, 18.0), "reproduced");
    assert_eq!(verdict(19.0, 18.0), "differs", "one for each page costs nothing");
    assert_eq!(verdict(12.0, 14.0), "differs", "one for each 64 KiB costs a third");
}

#[test]
fn large_cold_memory_cleared_slower_than_possible_fails_and_small_is_left_out() {
    let row = |large, small| {
        let of = |bytes, auto| cell(TargetState::Cold, bytes, Residency::Cold, auto);
        large_extents(&grid(vec![of(MIB2, 20.0), of(1 << 30, large), of(PAGE_SIZE, small)])).expect("a row")
    };
    assert_eq!([row(19.5, 20.0), row(18.0, 20.0)].map(|row| row.verdict.name()), ["kept", "missed"]);
    let row = row(19.5, 10.0);
    assert_eq!(row.verdict.name(), "kept");
    assert!(row.leaves_out.starts_with("cold memory below 2 MiB: 0.50"), "{}", row.leaves_out);
}

#[test]
fn measurements_that_take_longer_than_their_budget_fail() {
    let verdicts = |budget: fn(Duration) -> Claim, micros: [u64; 2]| {
        micros.map(|micros| budget(Duration::from_micros(micros)).verdict.name())
    };
    assert_eq!(verdicts(probe_budget, [100_000, 100_100]), ["kept", "missed"]);
    assert_eq!(verdicts(calibration_budget, [2_000, 2_010]), ["kept", "missed"]);
}
