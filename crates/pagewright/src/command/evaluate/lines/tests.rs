//! The row of `evaluate lines` has figures that it must reject.

use super::super::verdicts;
use super::*;
use pagewright_sim::Picos;

/// The cost of a first store: as given, and at the low and the high end of its band.
fn costs([low, given, high]: [f64; 3]) -> ModeCost {
    let line = LineCosts {
        name: "the space's lock",
        uses: 2,
        transfers: 1,
        transfer_time: Picos::from_nanos(1),
        waits: 0,
        wait_time: Picos::ZERO,
    };
    let given_costs = FaultContention { faults: 1, time: Picos::from_nanos(given as u64), lines: vec![line] };
    ModeCost { given: given_costs, each: Stats { median: given, p10: low, p90: high, samples: 3 } }
}

fn cell(cpus: u16, workload: FaultWorkload, after: [f64; 3]) -> Cell {
    let setup = Setup { isa: IsaKind::X86_64, cpus, workload };
    Cell { setup, before: costs([9000.0; 3]), after: costs(after) }
}

/// A store takes 100 ns on one CPU, and `own` and `threads` on the largest machine.
fn cells(own: [f64; 3], threads: [f64; 3]) -> Vec<Cell> {
    vec![
        cell(1, FaultWorkload::OneSpace, [10.0; 3]),
        cell(1, FaultWorkload::OwnSpaces, [100.0; 3]),
        cell(8, FaultWorkload::OwnSpaces, [900.0; 3]),
        cell(MOST, FaultWorkload::OneSpace, threads),
        cell(MOST, FaultWorkload::OwnSpaces, own),
    ]
}

#[test]
fn a_first_store_that_takes_longer_on_many_cpus_than_promised_fails() {
    for (own, verdict) in [
        ([90.0, 100.0, 110.0], "kept"),
        ([110.0, 120.0, 120.0], "kept"),
        ([110.0, 119.0, 121.0], "undecided"),
        ([90.0, 121.0, 130.0], "missed"),
        ([1000.0; 3], "missed"),
    ] {
        assert_eq!(verdicts(&CLAIMS, &cells(own, [100.0; 3])[..]), [verdict], "{own:?} beside 100 ns");
    }
}

/// The time of one CPU has a band, too: the promise holds if it holds at its low end.
#[test]
fn a_band_of_one_cpu_widens_that_of_the_ratio() {
    let mut cells = cells([110.0; 3], [100.0; 3]);
    cells[1].after = costs([90.0, 100.0, 110.0]);
    assert_eq!(verdicts(&CLAIMS, &cells[..]), ["undecided"], "110 of 90 ns is more than 1.2");
}

#[test]
fn threads_of_one_space_are_left_out_and_named() {
    let row = claims_of(&CLAIMS, &cells([100.0; 3], [620.0; 3])[..]).swap_remove(0);
    assert_eq!(row.verdict.name(), "kept");
    let left = "threads of one space: 6.20 × (9000 ns before, 620 after; the dearest line is the space's lock)";
    assert_eq!(row.leaves_out, left);
}

#[test]
fn a_machine_without_its_figures_has_no_row() {
    for missing in [1, 3, 4] {
        let mut fewer = cells([100.0; 3], [100.0; 3]);
        fewer.remove(missing);
        assert!(claims_of(&CLAIMS, &fewer[..]).is_empty(), "without cell {missing}");
    }
}
