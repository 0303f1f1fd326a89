//! What a fork touches and what a child's tables take, in small.
//!
//! No test looks at a time.

use super::super::{Stats, claims_of, verdicts};
use super::bare_metal::{BareMetalCycle, BareMetalFork};
use super::claims::{FALLBACKS, MEASURED, Matrix, MatrixCell};
use super::cycles::{ChildWork, Cycle, CycleTimes, Density};
use super::fallbacks::{self, Before};
use super::faults;
use super::fork_time::{ForkCounts, ForkTimes};
use super::large::LargeSpace;
use super::memory::{self, TableMemory};
use super::modelled::ModelledCycle;
use super::oom::OomChoice;
use super::parent::ForkMode;
use super::snapshot::{Snapshots, figures};
use pagewright_arch::{Aarch64, Isa, X86_64};
use pagewright_host::HostMemory;
use pagewright_types::{IsaKind, PAGE_SIZE};

const MIB: u64 = 1 << 20;

fn of(memory: &[TableMemory], mode: ForkMode) -> &TableMemory {
    memory.iter().find(|memory| memory.mode == mode).expect("both ways are measured")
}

fn a_child_owns_its_root_then_eight_tables<I: Isa>() {
    let bytes = 64 * MIB;
    let measured = memory::measure::<I>(bytes).expect("memory");
    let (classic, shared) = (of(&measured, ForkMode::Classic), of(&measured, ForkMode::Shared));
    let private =
        |memory: &TableMemory| memory.moments.iter().map(|moment| moment.private / PAGE_SIZE).collect::<Vec<_>>();
    assert_eq!(private(shared), [1, 4, 5, 8], "the root, then three tables, one more and three more");
    let whole = classic.moments[0].private;
    assert!(whole >= bytes / PAGE_SIZE / 512 * PAGE_SIZE, "a classic child has all tables: {whole}");
    assert_eq!(private(classic), [whole / PAGE_SIZE; 4]);
    for (classic, shared) in classic.moments.iter().zip(&shared.moments) {
        assert_eq!((classic.shared, classic.proportional), (0, whole));
        assert_eq!((shared.rss, shared.vm_pte), (classic.rss, classic.vm_pte), "as after a classic fork");
        assert_eq!(shared.private + shared.shared, whole);
        assert_eq!(classic.total, 2 * whole);
        assert_eq!(shared.total, whole + shared.private, "parent and child have the rest in common");
    }
    let (processes, total) = (shared.pages.processes, shared.pages.total);
    assert_eq!((classic.pages.processes, classic.pages.total), (processes, total), "tables are not pages");
    for process in processes {
        assert_eq!(process.private, 3 * PAGE_SIZE, "the pages to which the child has stored");
        assert_eq!(process.private + process.shared, shared.moments[0].rss);
        assert_eq!(process.proportional, process.private + process.shared / 2);
    }
    assert_eq!(processes.map(|process| process.proportional).iter().sum::<u64>(), total);
}

#[test]
fn a_child_owns_its_root_then_eight_tables_on_both_instruction_sets() {
    a_child_owns_its_root_then_eight_tables::<X86_64>();
    a_child_owns_its_root_then_eight_tables::<Aarch64>();
}

#[test]
fn a_fork_with_shared_tables_touches_the_same_whatever_the_size() {
    let [small, large] = [MIB, 256 * MIB].map(|bytes| ForkTimes::measure(bytes, 1, 1, false).expect("memory"));
    let shared = *small.counts_of(ForkMode::Shared);
    assert_eq!(shared, *large.counts_of(ForkMode::Shared));
    assert_eq!(
        (shared.tables_shared, shared.entries_copied, shared.records),
        (1, 0, 2),
        "the child's root, and the table below the parent's"
    );
    assert!(shared.entry_accesses > 0);
    for times in [&small, &large] {
        let pages = times.bytes / PAGE_SIZE;
        let classic = times.counts_of(ForkMode::Classic);
        assert_eq!((classic.tables_shared, classic.entries_copied), (0, pages));
        assert!(
            classic.entry_accesses >= 3 * pages,
            "each page's entry is loaded, write-protected and stored: {classic:?}"
        );
        assert!(classic.records >= pages, "each page gets a reference and a mapping: {classic:?}");
    }
}

#[test]
fn mappings_change_neither_what_is_shared_nor_what_is_copied() {
    let pages = 64 * MIB / PAGE_SIZE;
    for mappings in [10, 1000] {
        let times = ForkTimes::measure(64 * MIB, mappings, 1, false).expect("memory");
        let ForkCounts { tables_shared, entries_copied, .. } = times.counts_of(ForkMode::Shared);
        assert_eq!((*tables_shared, *entries_copied), (1, 0));
        assert_eq!(times.counts_of(ForkMode::Classic).entries_copied, pages);
    }
}

#[test]
fn each_table_that_is_copied_has_the_reason_of_its_fork() {
    let mut forks = fallbacks::measure().expect("memory");
    for fork in &forks {
        let of = (fork.setting, fork.before);
        // 8 MiB are under four or five tables, and those of the small parent under one or two.
        let (reason, tables) = match of {
            ("never", _) => (Some(0), 4..=5),
            ("prctl", Before::Stores) => (Some(1), 4..=5),
            ("auto", Before::Stores) if fork.copied[2] > 0 => (Some(2), 1..=2),
            (_, Before::KeepsAPage | Before::LocksAPage) => (Some(3), 1..=1),
            (_, Before::PinsAPage) => (Some(4), 1..=1),
            _ => (None, 0..=0),
        };
        for (at, copied) in fork.copied.iter().enumerate() {
            let expected = if Some(at) == reason { tables.clone() } else { 0..=0 };
            assert!(expected.contains(copied), "{of:?}: {:?}", fork.copied);
        }
        assert_eq!(fork.shared > 0, !matches!(reason, Some(0..=2)), "{of:?} shares the rest");
    }
    assert_eq!(forks.iter().filter(|fork| fork.copied[2] > 0).count(), 1, "auto copies one parent, the small one");
    assert_eq!(verdicts(&FALLBACKS, &forks[..]), ["kept"]);
    let always = forks.iter_mut().find(|fork| fork.setting == "always").expect("a fork");
    always.copied[3] = 1;
    assert_eq!(verdicts(&FALLBACKS, &forks[..]), ["missed"]);
    forks.retain(|fork| fork.setting != "always");
    assert_eq!(verdicts(&FALLBACKS, &forks[..]), ["missed"], "no table is shared");
}

/// Memory for a parent and a copy of each of its pages.
fn contents(bytes: u64) -> HostMemory {
    HostMemory::try_new(super::parent::frames_for(2 * bytes)).expect("memory")
}

#[test]
fn a_store_to_each_page_copies_each_page_once_and_each_table_once() {
    let bytes = 8 * MIB;
    for costs in faults::measure(contents(bytes), bytes, 1).expect("memory") {
        assert_eq!(costs.pages_copied, [bytes / PAGE_SIZE; 2], "{}", costs.order.name());
        // Four or five last-level tables, as the range lies, and one at each of two levels above.
        let [classic, shared] = costs.tables_copied;
        assert_eq!(classic, 0);
        assert!((6..=7).contains(&shared), "{}: {shared}", costs.order.name());
        assert_eq!(costs.nanos.each_ref().map(Vec::len), [1, 1]);
    }
}

#[test]
fn a_cycle_copies_what_its_child_stores_to() {
    let bytes = 16 * MIB;
    let memory = contents(bytes);
    let measure = |density, work| {
        let cycle = Cycle { name: "test", bytes, density, work };
        CycleTimes::measure(memory, cycle, 2).expect("memory")
    };
    for work in [ChildWork::Exec, ChildWork::Exit] {
        let times = measure(Density::Dense, work);
        assert_eq!(times.tables_copied, [0, 7, 7], "three tables for each of two places, and one more");
        assert_eq!(times.pages_copied, [3; 3], "TID, stack and data");
    }
    let all = measure(Density::OnePerTable, ChildWork::Touch(100));
    assert_eq!(all.pages_copied, [3 + 8; 3]);
    assert_eq!((all.tables_copied[0], all.tables_copied[2]), (0, 0), "the parent has 43 pages in few tables");
    assert!((7 + 7..=7 + 9).contains(&all.tables_copied[1]), "eight last-level tables: {:?}", all.tables_copied);
    let tenth = measure(Density::Dense, ChildWork::Touch(10));
    assert_eq!(tenth.pages_copied, [3 + 410; 3], "a tenth of 4096 pages, rounded up");
    let runs = measure(Density::Dense, ChildWork::Runs { runs: 3, pages: 4 });
    assert_eq!(runs.pages_copied[0], runs.pages_copied[1]);
    assert!((4..=12).contains(&(runs.pages_copied[0] - 3)), "runs may overlap: {:?}", runs.pages_copied);
}

#[test]
fn a_modelled_cycle_takes_the_same_in_every_run_and_auto_takes_the_cheaper_way() {
    for isa in IsaKind::ALL {
        let model = |bytes, work| {
            let cycle = Cycle { name: "test", bytes, density: Density::Dense, work };
            let picos = ModelledCycle::run(isa, cycle).expect("memory").picos;
            assert_eq!(picos, ModelledCycle::run(isa, cycle).expect("memory").picos);
            picos
        };
        let [classic, shared, auto] = model(MIB, ChildWork::Exit);
        assert!(classic < shared && auto == classic, "a small parent is copied: {classic}, {shared}, {auto}");
        let [classic, shared, auto] = model(16 * MIB, ChildWork::Exit);
        assert!(2 * shared < classic && auto == shared, "a large one is shared: {classic}, {shared}, {auto}");
        let [touched, ..] = model(MIB, ChildWork::Touch(100));
        assert!(touched > 3 * model(MIB, ChildWork::Touch(1))[0], "256 pages are copied, or three");
    }
}

/// Whether shared may lose, and by how much, is a claim that figures can refute.
#[test]
fn a_matrix_is_as_good_as_its_worst_cell() {
    let cell = |density, work, [p10, median, p90]: [f64; 3]| MatrixCell {
        cycle: Cycle { name: "matrix", bytes: 1024 * MIB, density, work },
        gains: [Stats { p10, median, p90, samples: 9 }, Stats::of(vec![1.0])],
    };
    let of = |exec, exit, touch| {
        let cells = vec![
            cell(Density::Dense, ChildWork::Exec, exec),
            cell(Density::Dense, ChildWork::Exit, exit),
            cell(Density::OnePerTable, ChildWork::Touch(100), touch),
        ];
        Matrix { name: "m", cells }
    };
    let (large, kept) = ([4.0; 3], [0.8; 3]);
    for (exit, touch, expected) in [
        ([1.0; 3], kept, ["kept", "kept", "kept", "kept"]),
        ([0.9, 1.0, 1.2], kept, ["undecided", "kept", "kept", "kept"]),
        ([0.9, 0.99, 1.2], kept, ["missed", "kept", "kept", "kept"]),
        ([1.0; 3], [0.7, 0.8, 0.9], ["kept", "undecided", "kept", "kept"]),
        ([1.0; 3], [0.7, 0.79, 0.9], ["kept", "missed", "kept", "kept"]),
    ] {
        assert_eq!(verdicts(&MEASURED, &of(large, exit, touch)), expected, "{exit:?}, {touch:?}");
    }
    // The cell with the least median is not the one with the lowest end.
    let wide = claims_of(&MEASURED, &of([0.5, 4.0, 5.0], [1.0, 1.1, 1.2], kept)).swap_remove(0);
    assert_eq!(wide.verdict.name(), "undecided");
    assert!(wide.ours.starts_with("1.10 × [1.00–1.20] at worst (exit, "), "{}", wide.ours);
    assert!(wide.ours.contains(", 0 of 2 cells below the limit over their whole band; "), "{}", wide.ours);
    assert!(wide.ours.contains("; lowest end 0.5 × (exec, "), "{}", wide.ours);
}

#[test]
fn a_snapshot_reports_the_ranks_of_its_stores() {
    let mut nanos: Vec<u64> = (1..=1000).rev().collect();
    assert_eq!(figures(5.0, &mut nanos), [5.0, 500.0, 990.0, 999.0, 1000.0, 5e-3 + 500_500e-6]);
    assert_eq!(figures(0.0, &mut [])[4], 0.0);
    let snapshots = Snapshots::measure(contents(4 * MIB), 4 * MIB, 10, 1).expect("memory");
    assert_eq!(snapshots.stores as u64, 4 * MIB / PAGE_SIZE / 10);
    assert!(snapshots.samples.iter().flatten().all(|samples| samples.len() == 1));
}

/// The measurement itself compares `VmRSS` with what is mapped.
#[test]
fn a_large_space_reads_its_resident_set_and_unmaps_pages() {
    let large = LargeSpace::measure([MIB, 64 * MIB], 1).expect("VmRSS is what is mapped");
    assert_eq!(large.unmap_shared.each_ref().map(Vec::len), [1, 1]);
}

#[test]
fn forks_have_one_score_whether_tables_are_shared_and_the_choice_frees_what_is_its_own() {
    for mode in ForkMode::BOTH {
        let (bytes, stored) = (64 * MIB, 8 * MIB);
        let choice = OomChoice::measure(mode, bytes, 3, stored).expect("memory");
        // A mapping of 2 MiB or more is aligned; the root is in no score.
        let tables = bytes / PAGE_SIZE / 512 + 2;
        let score = (bytes / PAGE_SIZE + tables) as i64;
        assert_eq!(choice.scores, [score; 3], "a copied page replaces the one that was shared");
        assert_eq!(choice.chosen, 3, "the newest of equal ones");
        // Each page of the child is its parent's, too, and so are its shared tables but the root.
        let own = if mode == ForkMode::Shared { 1 } else { tables + 1 };
        assert_eq!(choice.freed[0], own, "{}", mode.name());
        assert!(choice.freed[1] > stored / PAGE_SIZE, "the pages that it copied, and tables");
    }
}

#[test]
fn the_figures_of_bare_metal_are_those_of_the_document() {
    let forks = BareMetalFork::all();
    let of = |what: &str| forks.iter().find(|fork| fork.what == what).unwrap_or_else(|| panic!("no row {what}"));
    let large = of("fork of 512 MB");
    for [ours, linux] in [large.x86_64, large.arm64] {
        assert!(linux > 10_000_000 && ours * 50 <= linux, "{ours} of {linux}: at most 2 % of Linux's");
    }
    assert!(large.x86_64[0] < of("fork and exit of a small process").x86_64[0]);
    let cycles = BareMetalCycle::all();
    assert_eq!(cycles.len(), 2 * 40, "five kinds of work, four sizes and two densities on each instruction set");
    for counts in cycles {
        let [classic, shared, auto] = counts.ours;
        let cycle = counts.cycle.labels().join(", ");
        let is_near = |other: f64| (auto / other - 1.0).abs() < 0.03;
        assert!(is_near(classic) || is_near(shared), "{cycle}: {classic}, {shared}, {auto}");
    }
}
