//! Rows of `evaluate cow-table` have results that they must reject.

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

fn verdict_of(row: Option<Claim>) -> &'static str {
    row.expect("a row").verdict.name()
}

#[test]
fn a_child_with_more_private_tables_than_promised_fails() {
    let mut measured = memory::measure::<X86_64>(16 * MIB).expect("memory");
    let verdicts = |measured: &[TableMemory]| child_tables(measured).expect("rows").map(|row| row.verdict.name());
    assert_eq!(verdicts(&measured), ["kept", "better", "kept"]);
    let shared = measured.iter_mut().find(|memory| memory.mode == ForkMode::Shared).expect("both ways");
    let last = shared.moments.len() - 1;
    shared.moments[0].private += PAGE_SIZE;
    shared.moments[last].private = 9 * PAGE_SIZE;
    assert_eq!(verdicts(&measured), ["missed", "better", "missed"]);
    let shared = measured.iter_mut().find(|memory| memory.mode == ForkMode::Shared).expect("both ways");
    shared.moments[last].private = 13 * PAGE_SIZE;
    assert_eq!(verdicts(&measured), ["missed", "differs", "missed"]);
}

#[test]
fn a_fork_that_sharing_makes_slower_differs_from_the_series() {
    let verdict = |shared| verdict_of(series_fork(&forks(vec![times(512 * MIB, 10.0, shared)])));
    assert_eq!(verdict([5.0; 3]), "better");
    assert_eq!(verdict([10.0; 3]), "reproduced");
    assert_eq!(verdict([10.0, 10.0, 20.0]), "undecided");
    assert_eq!(verdict([12.0; 3]), "differs");
    assert!(series_fork(&forks(vec![times(MIB, 10.0, [5.0; 3])])).is_none(), "another size");
}

#[test]
fn a_fork_of_the_largest_parent_that_takes_too_long_fails() {
    let verdict = |shared| {
        let all = forks(vec![times(MIB, 1.0, [1000.0; 3]), times(LARGEST, 1.0, shared)]);
        verdict_of(fork_of_largest(&all))
    };
    assert_eq!(verdict([20.0; 3]), "kept");
    assert_eq!(verdict([19.0, 19.0, 40.0]), "undecided");
    assert_eq!(verdict([21.0; 3]), "missed");
}

#[test]
fn a_fork_that_grows_with_the_parent_fails() {
    let verdict = |shared| {
        let all = forks(vec![times(MIB, 1.0, [2.0; 3]), times(LARGEST, 1.0, shared)]);
        verdict_of(fork_growth(&all))
    };
    assert_eq!(verdict([4.0; 3]), "kept");
    assert_eq!(verdict([3.0, 3.0, 9.0]), "undecided");
    assert_eq!(verdict([4.1; 3]), "missed");
}

#[test]
fn a_fork_that_touches_more_in_a_larger_parent_fails() {
    let verdict = |change: fn(&mut ForkCounts)| {
        let mut large = times(LARGEST, 1.0, [1.0; 3]);
        change(&mut large.counts[ForkMode::Shared as usize]);
        verdict_of(touched(&forks(vec![times(MIB, 1.0, [1.0; 3]), large])))
    };
    assert_eq!(verdict(|_| ()), "kept");
    assert_eq!(verdict(|counts| counts.entry_accesses += 1), "missed");
    assert_eq!(verdict(|counts| counts.records += 1), "missed");
}

#[test]
fn stores_after_a_shared_fork_that_take_too_long_fail() {
    let verdicts = |order, shared| {
        let nanos = [vec![1000.0; 3], vec![shared; 3]];
        let (with_fork, counts) = (nanos.clone(), [0; 2]);
        let bytes = 512 * MIB;
        let costs = FaultCosts { bytes, order, nanos, with_fork, pages_copied: counts, tables_copied: counts };
        stores_after_fork(&costs).iter().map(|row| row.verdict.name()).collect::<Vec<_>>()
    };
    assert_eq!(verdicts(StoreOrder::Sequential, 1050.0), ["reproduced", "kept"]);
    assert_eq!(verdicts(StoreOrder::Sequential, 1051.0), ["reproduced", "missed"]);
    assert_eq!(verdicts(StoreOrder::Sequential, 1136.0), ["differs", "missed"]);
    assert_eq!(verdicts(StoreOrder::Random, 1226.0), ["reproduced"]);
    assert_eq!(verdicts(StoreOrder::Random, 1228.0), ["differs"]);
}

#[test]
fn a_cycle_that_gains_less_than_published_or_promised_fails() {
    let row = |name, work, shared: f64| {
        let cycle = Cycle { name, bytes: 1024 * MIB, density: Density::Dense, work };
        let micros = [vec![100.0; 3], vec![100.0 / shared; 3], vec![100.0; 3]];
        super::cycle(&CycleTimes { cycle, micros, tables_copied: [0; 3], pages_copied: [0; 3] })
    };
    let runs = ChildWork::Runs { runs: 1, pages: 1 };
    for (name, shared) in [("fork server", [0.9, 0.8]), ("VM clone", [1.0, 0.9])] {
        let verdicts = shared.map(|shared| verdict_of(row(name, runs, shared)));
        assert_eq!(verdicts, ["reproduced", "differs"], "{name}");
    }
    let verdicts = [10.5, 9.5].map(|shared| verdict_of(row("fork and exit", ChildWork::Exit, shared)));
    assert_eq!(verdicts, ["kept", "missed"]);
    assert!(row("fork and exec", ChildWork::Exec, 1.0).is_none(), "nothing is published or promised");
}

#[test]
fn a_quick_run_keeps_no_promise_about_the_largest_parent() {
    let quick = forks(vec![times(MIB, 1.0, [2.0; 3]), times(8192 * MIB, 1.0, [2.0; 3])]);
    let rows = [fork_of_largest(&quick), fork_growth(&quick), touched(&quick)];
    for row in rows.map(|row| row.expect("a row")) {
        assert_eq!(row.verdict.name(), "undecided", "{}", row.what);
        let left = "64 GiB, which --full decides: this run went up to 8 GiB";
        assert!(row.leaves_out.ends_with(left), "{}", row.leaves_out);
    }
    let cycle = Cycle { name: "matrix", bytes: 16 * MIB, density: Density::Dense, work: ChildWork::Exec };
    let cell = MatrixCell { cycle, gains: [Stats::of(vec![4.0]); 2] };
    assert_eq!(matrix(&[cell], &MEASURED)[0].verdict.name(), "undecided");
}

#[test]
fn a_snapshot_that_pauses_or_stores_for_too_long_fails() {
    let verdicts = |pause: f64, total: f64| {
        let of = |pause, total| [pause, 1.0, 1.0, 1.0, 1.0, total].map(|figure: f64| vec![figure; 3]);
        let samples = [of(1000.0, 100.0), of(pause, total)];
        snapshot(&Snapshots { bytes: 1024 * MIB, stores: 10, samples }).map(|row| row.verdict.name())
    };
    assert_eq!(verdicts(100.0, 105.0), ["kept"; 2]);
    assert_eq!(verdicts(101.0, 105.0), ["missed", "kept"]);
    assert_eq!(verdicts(100.0, 105.1), ["kept", "missed"]);
}

#[test]
fn operations_that_a_large_space_makes_slow_fail() {
    let verdicts = |status: [f64; 3], unmap| {
        let both = |small, large| [vec![small; 3], vec![large; 3]];
        let space = LargeSpace {
            bytes: [MIB, LARGEST],
            status: both(1.0, status[0]),
            status_shared: both(1.0, status[1]),
            status_first: both(1.0, 9000.0),
            status_edited: both(1.0, status[2]),
            unmap: both(10.0, unmap),
            unmap_shared: both(10.0, 9000.0),
        };
        large(&space).iter().map(|row| row.verdict.name()).collect::<Vec<_>>()
    };
    assert_eq!(verdicts([50.0; 3], 11.0), ["kept"; 4], "the first operation after an edit is left out");
    assert_eq!(verdicts([51.0, 50.0, 50.0], 11.0), ["missed", "kept", "kept", "kept"]);
    assert_eq!(verdicts([50.0, 51.0, 50.0], 11.0), ["kept", "missed", "kept", "kept"]);
    assert_eq!(verdicts([50.0, 50.0, 51.0], 11.0), ["kept", "kept", "missed", "kept"]);
    assert_eq!(verdicts([50.0; 3], 11.2), ["kept", "kept", "kept", "missed"]);
}
