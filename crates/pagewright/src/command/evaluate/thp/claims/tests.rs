//! The rows of `evaluate thp` have figures that they must reject.

use super::*;

fn used(kind: OperationKind, locked_head: u64, locked_records: u64) -> OperationUse {
    let records = locked_records + 1;
    let [locked_elsewhere, records_stored] = [0, records];
    OperationUse { name: "an operation", kind, locked_head, locked_records, locked_elsewhere, records, records_stored }
}

fn verdicts(operations: Vec<OperationUse>) -> Vec<Verdict> {
    super::operations(&Ok(operations)).iter().map(|claim| claim.verdict).collect()
}

#[test]
fn one_locked_instruction_more_or_less_than_promised_fails() {
    use Verdict::{Differs, Reproduced};
    for (kind, promised) in [(Reference, 1), (MapRun, 2), (UnmapRun, 2), (UnmapLastOfRun, 3)] {
        for (locked, verdict) in [(promised - 1, Differs), (promised, Reproduced), (promised + 1, Differs)] {
            assert_eq!(verdicts(vec![used(kind, locked, 0)]), [verdict], "{kind:?}: {locked}");
        }
        let all = [promised, promised + 1, promised].map(|locked| used(kind, locked, 0));
        assert_eq!(verdicts(all.into()), [Differs], "one operation of {kind:?} is enough");
    }
}

#[test]
fn a_reference_may_lock_no_other_line_and_a_run_may() {
    assert_eq!(verdicts(vec![used(Reference, 1, 1)]), [Verdict::Differs]);
    let elsewhere = OperationUse { locked_elsewhere: 1, ..used(Reference, 1, 0) };
    assert_eq!(verdicts(vec![elsewhere]), [Verdict::Differs]);
    assert_eq!(verdicts(vec![used(MapRun, 2, 16)]), [Verdict::Reproduced]);
}

#[test]
fn a_split_that_stores_to_other_than_512_records_fails() {
    for (others, verdict) in [(510, Verdict::Differs), (511, Verdict::Reproduced), (512, Verdict::Differs)] {
        assert_eq!(verdicts(vec![used(SplitPmd, 3, others)]), [verdict], "{others}");
    }
}

#[test]
fn operations_that_are_not_counted_have_rows_that_say_so() {
    let rows = super::operations(&Err("no ptrace".to_owned()));
    assert_eq!(rows.len(), PROMISES.len());
    assert!(rows.iter().all(|row| row.verdict == Verdict::Undecided && row.reason == "no ptrace"));
    assert!(super::operations(&Ok(Vec::new())).is_empty());
}
