//! Rows of `evaluate clear` have measurements that they must reject.

use super::super::grid::MethodRate;
use super::super::pollution::Row;
use super::*;
use std::collections::BTreeMap;

/// A cell in which cached stores reach 10 GB/s, streaming ones 20, and `auto` this much.
fn cell(state: TargetState, bytes: u64, known: Residency, auto: f64) -> Cell {
    let rate = |method, rate: f64| MethodRate::new(method, vec![rate; 3]);
    let methods = vec![rate(CACHED_STORES, 10.0), rate(MOVNTI, 20.0), rate(Method::Auto, auto)];
    Cell { state, bytes, cpus: 1, known, chosen: ClearBackend::Cached, methods }
}

fn grid(cells: Vec<Cell>) -> Grid {
    Grid { cells, checked_bytes: 0 }
}

const MIB2: u64 = 2 << 20;

#[test]
fn a_choice_slower_than_the_fastest_stores_fails() {
    let verdicts = |auto| {
        let rows = known_targets(&grid(vec![cell(TargetState::Cold, MIB2, Residency::Cold, auto)]));
        rows.iter().map(|row| row.verdict).collect::<Vec<_>>()
    };
    assert_eq!(verdicts(19.5), [Verdict::Reproduced; 2]);
    assert_eq!(verdicts(15.0), [Verdict::Differs, Verdict::Reproduced]);
    assert_eq!(verdicts(9.0), [Verdict::Differs; 2]);
}

#[test]
fn cells_that_a_row_leaves_out_are_named_with_their_figures() {
    let rows = known_targets(&grid(vec![
        cell(TargetState::Cold, MIB2, Residency::Cold, 20.0),
        cell(TargetState::Cold, PAGE_SIZE, Residency::Cold, 14.8),
        cell(TargetState::ReadBack, MIB2, Residency::Cold, 17.0),
        cell(TargetState::Dirty, MIB2, Residency::Unknown, 10.0),
    ]));
    assert_eq!(rows[0].verdict, Verdict::Reproduced);
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
        rows[0].verdict
    };
    assert_eq!([verdict(5.4), verdict(24.0)], [Verdict::Reproduced, Verdict::Differs]);
}

#[test]
fn a_compilation_with_overlapping_times_is_not_better() {
    let verdict = |auto: &[f64]| {
        let [alone, cached] = [vec![2.0; 3], vec![2.2, 2.2, 2.2]];
        compilation(&CompileTimes { alone, cached, auto: auto.to_vec() }).verdict
    };
    assert_eq!(verdict(&[2.0, 2.1, 2.2]), Verdict::Reproduced, "not slower, which is all that Icelake showed");
    assert_eq!(verdict(&[2.0, 2.1, 2.4]), Verdict::Undecided);
    assert_eq!(verdict(&[2.4, 2.5, 2.4]), Verdict::Differs);
}

#[test]
fn a_hint_that_makes_pins_slower_fails() {
    let verdict = |hinted| bulk_pins(&BulkPins { plain: vec![2.0; 3], hinted: vec![hinted; 3] }).verdict;
    assert_eq!([verdict(3.0), verdict(1.9)], [Verdict::Reproduced, Verdict::Differs]);
}

#[test]
fn demand_faults_that_are_slower_than_uncached_ones_fail() {
    let verdict = |auto| {
        let row =
            super::super::faults::Row { state: "cold", bytes: MIB2, uncached: vec![900.0; 3], auto: vec![auto; 3] };
        demand_faults(&row).verdict
    };
    assert_eq!([verdict(800.0), verdict(950.0)], [Verdict::Reproduced, Verdict::Differs]);
}
