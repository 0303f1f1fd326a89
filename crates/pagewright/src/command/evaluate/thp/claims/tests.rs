//! The rows of `evaluate thp` have figures that they must reject.

use super::super::super::verdicts;
use super::*;

fn used(kind: OperationKind, locked_head: u64, locked_records: u64) -> OperationUse {
    let records = locked_records + 1;
    let [locked_elsewhere, records_stored] = [0, records];
    OperationUse { name: "an operation", kind, locked_head, locked_records, locked_elsewhere, records, records_stored }
}

#[test]
fn one_locked_instruction_more_or_less_than_promised_fails() {
    for (kind, promised) in [(Reference, 1), (MapRun, 2), (UnmapRun, 2), (UnmapLastOfRun, 3)] {
        for (locked, verdict) in [(promised - 1, "missed"), (promised, "kept"), (promised + 1, "missed")] {
            assert_eq!(verdicts(&OPERATIONS, &[used(kind, locked, 0)][..]), [verdict], "{kind:?}: {locked}");
        }
        let all = [promised, promised + 1, promised].map(|locked| used(kind, locked, 0));
        assert_eq!(verdicts(&OPERATIONS, &all[..]), ["missed"], "one operation of {kind:?} is enough");
        let reason = format!("an operation: {promised}; an operation: {}; an operation: {promised}", promised + 1);
        assert_eq!(claims_of(&OPERATIONS, &all[..])[0].reason, reason);
    }
}

#[test]
fn a_reference_may_lock_no_other_line_and_a_run_may() {
    let elsewhere = OperationUse { locked_elsewhere: 1, ..used(Reference, 1, 0) };
    for (operation, verdict) in
        [(used(Reference, 1, 1), "missed"), (elsewhere, "missed"), (used(MapRun, 2, 16), "kept")]
    {
        assert_eq!(verdicts(&OPERATIONS, &[operation][..]), [verdict]);
    }
}

#[test]
fn a_split_that_stores_to_other_than_512_records_fails() {
    for (others, verdict) in [(510, "missed"), (511, "kept"), (512, "missed")] {
        assert_eq!(verdicts(&OPERATIONS, &[used(SplitPmd, 3, others)][..]), [verdict], "{others}");
    }
}

#[test]
fn operations_that_are_not_counted_have_no_rows() {
    assert!(claims_of(&OPERATIONS, &[][..]).is_empty());
}

/// The events of the story as they should be.
fn told() -> Vec<StoryEvent> {
    let event = |at: usize, huge, splits, [queued, frames]: [u64; 2]| StoryEvent {
        name: super::super::story::EVENTS[at],
        huge,
        splits,
        queued,
        frames,
    };
    vec![
        event(0, [true, false], [0, 0], [0, 512]),
        event(1, [true, true], [0, 0], [0, 512]),
        event(2, [true, false], [1, 0], [0, 512]),
        event(3, [false, false], [2, 0], [512, 512]),
        event(4, [false, false], [2, 1], [0, 256]),
        event(5, [false, false], [2, 1], [0, 256]),
        event(6, [false, false], [2, 1], [0, 0]),
    ]
}

#[test]
fn the_story_is_told_as_promised() {
    assert_eq!(super::super::story::tell().expect("a machine"), told());
    assert_eq!(verdicts(&STORY, &told()[..]), ["kept"]);
}

#[test]
fn a_story_with_another_end_fails() {
    type Spoil = fn(&mut [StoryEvent]);
    let spoils: [(&str, Spoil); 6] = [
        ("the parent's PMD is split, too", |events| events[2].huge = [false, false]),
        ("the folio is split at once", |events| events[2].splits = [1, 1]),
        ("the pages are freed before memory is short", |events| events[3].frames = 256),
        ("reclaim frees nothing", |events| events[4].frames = 512),
        ("the folio stays queued", |events| events[4].queued = 512),
        ("a frame leaks", |events| events[6].frames = 1),
    ];
    for (what, spoil) in spoils {
        let mut events = told();
        spoil(&mut events);
        assert_eq!(verdicts(&STORY, &events[..]), ["missed"], "{what}");
    }
    assert!(claims_of(&STORY, &told()[..4]).is_empty(), "a story without its end has no row");
}

#[test]
fn a_first_store_is_judged_by_its_time_for_each_page() {
    for ([small, large], expected) in
        [([30.0, 14.0], ["kept", "kept"]), ([30.0, 16.0], ["kept", "missed"]), ([31.0, 14.0], ["missed", "kept"])]
    {
        let stores = FirstStores([vec![100.0; 3], vec![small; 3], vec![large; 3]]);
        assert_eq!(verdicts(&FIRST_STORES, &stores), expected, "{small} and {large} of 100 ns");
    }
}

#[test]
fn a_fork_that_shares_tables_of_huge_leaves_or_copies_more_entries_fails() {
    use super::super::super::parent::ForkMode;
    for (entries, shared, expected) in
        [(256, 0, ["kept", "kept"]), (255, 1, ["missed", "missed"]), (131_072, 0, ["missed", "kept"])]
    {
        let (mode, bytes, micros) = (ForkMode::Shared, 512 << 20, Vec::new());
        let row = ForkRow { word: "always", mode, bytes, micros, entries, shared };
        assert_eq!(verdicts(&FORKS, &row), expected, "{entries} entries, {shared} tables");
    }
}

#[test]
fn more_faults_with_huge_pages_fail() {
    for (faults, verdict) in [([9, 9, 1], "kept"), ([9, 9, 10], "missed"), ([9, 10, 9], "missed")] {
        let run = |(word, faults)| ProgramRun { program: "a heap", word, faults, ..ProgramRun::default() };
        let runs: Vec<_> = WORDS.into_iter().zip(faults).map(run).collect();
        assert_eq!(verdicts(&PROGRAMS, &runs[..]), [verdict], "{faults:?}");
    }
}
