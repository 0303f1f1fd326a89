//! Rows of `evaluate cow-table` have results that they must reject.

use super::super::super::verdicts;
use super::super::fork_time::ForkCounts;
use super::super::memory;
use super::*;
use pagewright_arch::X86_64;

const MIB: u64 = 1 << 20;

fn times(bytes: u64, classic: f64, shared: [f64; 3]) -> ForkTimes {
    let counts = ForkCounts { entry_accesses: 259, records: 2, tables_shared: 1, entries_copied: 0 };
    let (classic, shared) = (vec![classic; 3], shared.to_vec());
    ForkTimes { bytes, mappings: 1, classic, shared, linux: Vec::new(), counts: [counts; 2] }
}

fn forks(by_size: Vec<ForkTimes>) -> ForkResults {
    ForkResults { by_size, by_mappings: Vec::new(), available: 0 }
}

#[test]
fn a_child_with_more_private_tables_than_promised_fails() {
    let mut measured = memory::measure::<X86_64>(16 * MIB).expect("memory");
    assert_eq!(verdicts(&TABLES, &measured[..]), ["kept", "better", "kept"]);
    for (first, last, expected) in [(2, 9, ["missed", "better", "missed"]), (2, 13, ["missed", "differs", "missed"])] {
        let shared = measured.iter_mut().find(|memory| memory.mode == ForkMode::Shared).expect("both ways");
        let of_last = shared.moments.len() - 1;
        shared.moments[0].private = first * PAGE_SIZE;
        shared.moments[of_last].private = last * PAGE_SIZE;
        assert_eq!(verdicts(&TABLES, &measured[..]), expected, "{first} and {last} tables");
    }
}

#[test]
fn a_fork_that_sharing_makes_slower_differs_from_the_series() {
    for (shared, verdict) in
        [([5.0; 3], "better"), ([10.0; 3], "reproduced"), ([10.0, 10.0, 20.0], "undecided"), ([12.0; 3], "differs")]
    {
        let all = forks(vec![times(512 * MIB, 10.0, shared)]);
        assert_eq!(verdicts(&FORKS, &all)[0], verdict, "{shared:?}");
    }
    let other_size = claims_of(&FORKS, &forks(vec![times(MIB, 10.0, [5.0; 3])]));
    assert!(other_size.iter().all(Claim::is_promise));
}

#[test]
fn a_fork_of_the_largest_parent_that_takes_too_long_or_touches_more_fails() {
    type Change = fn(&mut ForkCounts);
    let same: Change = |_| ();
    for (small, large, change, expected) in [
        (10.0, [20.0; 3], same, ["kept", "kept", "kept"]),
        (10.0, [19.0, 19.0, 40.0], same, ["undecided", "undecided", "kept"]),
        (10.0, [21.0; 3], same, ["missed", "missed", "kept"]),
        (2.0, [4.1; 3], same, ["kept", "missed", "kept"]),
        (2.0, [4.0; 3], |counts| counts.entry_accesses += 1, ["kept", "kept", "missed"]),
        (2.0, [4.0; 3], |counts| counts.records += 1, ["kept", "kept", "missed"]),
    ] {
        let mut largest = times(LARGEST, 1.0, large);
        change(&mut largest.counts[ForkMode::Shared as usize]);
        let all = forks(vec![times(MIB, 1.0, [small; 3]), largest]);
        assert_eq!(verdicts(&FORKS, &all), expected, "{small} and {large:?}");
    }
}

#[test]
fn stores_after_a_shared_fork_that_take_too_long_fail() {
    for (order, shared, expected) in [
        (StoreOrder::Sequential, 1050.0, &["reproduced", "kept"][..]),
        (StoreOrder::Sequential, 1051.0, &["reproduced", "missed"]),
        (StoreOrder::Sequential, 1136.0, &["differs", "missed"]),
        (StoreOrder::Random, 1226.0, &["reproduced"]),
        (StoreOrder::Random, 1228.0, &["differs"]),
    ] {
        let nanos = [vec![1000.0; 3], vec![shared; 3]];
        let (with_fork, counts, bytes) = (nanos.clone(), [0; 2], 512 * MIB);
        let costs = FaultCosts { bytes, order, nanos, with_fork, pages_copied: counts, tables_copied: counts };
        assert_eq!(verdicts(&STORES, &costs), expected, "{order:?}: {shared}");
    }
}

#[test]
fn a_cycle_that_gains_less_than_published_or_promised_fails() {
    let runs = ChildWork::Runs { runs: 1, pages: 1 };
    for (name, work, gain, expected) in [
        ("fork server", runs, 0.9, &["reproduced"][..]),
        ("fork server", runs, 0.8, &["differs"]),
        ("VM clone", runs, 1.0, &["reproduced"]),
        ("VM clone", runs, 0.9, &["differs"]),
        ("fork and exit", ChildWork::Exit, 10.5, &["kept"]),
        ("fork and exit", ChildWork::Exit, 9.5, &["missed"]),
        // Nothing is published or promised.
        ("fork and exec", ChildWork::Exec, 1.0, &[]),
    ] {
        let cycle = Cycle { name, bytes: 1024 * MIB, density: Density::Dense, work };
        let micros = [vec![100.0; 3], vec![100.0 / gain; 3], vec![100.0; 3]];
        let times = CycleTimes { cycle, micros, tables_copied: [0; 3], pages_copied: [0; 3] };
        assert_eq!(verdicts(&CYCLES, &times), expected, "{name}: {gain}");
    }
}

#[test]
fn a_quick_run_keeps_no_promise_about_the_largest_parent() {
    let quick = forks(vec![times(MIB, 1.0, [2.0; 3]), times(8192 * MIB, 1.0, [2.0; 3])]);
    for row in claims_of(&FORKS, &quick) {
        assert_eq!(row.verdict.name(), "undecided", "{}", row.what);
        let left = "64 GiB, which --full decides: this run went up to 8 GiB";
        assert!(row.leaves_out.ends_with(left), "{}", row.leaves_out);
    }
    let cycle = Cycle { name: "matrix", bytes: 16 * MIB, density: Density::Dense, work: ChildWork::Exec };
    let cells = vec![MatrixCell { cycle, gains: [Stats::of(vec![4.0]); 2] }];
    assert_eq!(verdicts(&MEASURED, &Matrix { name: "m", cells }), ["undecided"; 2]);
}

#[test]
fn a_snapshot_that_pauses_or_stores_for_too_long_fails() {
    for (pause, total, expected) in
        [(100.0, 105.0, ["kept", "kept"]), (101.0, 105.0, ["missed", "kept"]), (100.0, 105.1, ["kept", "missed"])]
    {
        let of = |pause, total| [pause, 1.0, 1.0, 1.0, 1.0, total].map(|figure: f64| vec![figure; 3]);
        let samples = [of(1000.0, 100.0), of(pause, total)];
        assert_eq!(verdicts(&SNAPSHOTS, &Snapshots { bytes: 1024 * MIB, stores: 10, samples }), expected);
    }
}

#[test]
fn operations_that_a_large_space_makes_slow_fail() {
    // The first operation after an edit is left out.
    for (at, figures) in [[50.0, 50.0, 50.0, 11.0], [51.0, 50.0, 50.0, 11.0], [50.0, 51.0, 50.0, 11.0]]
        .into_iter()
        .chain([[50.0, 50.0, 51.0, 11.0], [50.0, 50.0, 50.0, 11.2]])
        .enumerate()
    {
        let both = |small, large| [vec![small; 3], vec![large; 3]];
        let [own, shared, edited, unmap] = figures;
        let space = LargeSpace {
            bytes: [MIB, LARGEST],
            status: both(1.0, own),
            status_shared: both(1.0, shared),
            status_first: both(1.0, 9000.0),
            status_edited: both(1.0, edited),
            unmap: both(10.0, unmap),
            unmap_shared: both(10.0, 9000.0),
        };
        let mut expected = ["kept"; 5];
        expected[at] = if at == 0 { "kept" } else { "missed" };
        assert_eq!(verdicts(&LARGE, &space), expected[1..], "{figures:?}");
    }
}
