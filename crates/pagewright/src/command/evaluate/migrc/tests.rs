//! Small runs of all inputs: the rows fit their heads, and the causes of flushes add up.

use super::super::{Context, Scale};
use super::inputs::TierMachine;
use super::published::REMOTE;
use super::rows::{FlushPart, RunPart};
use super::*;
use crate::progress::StepProgress;

/// Rounds of look-ups in which pages begin to linger on the workload's own machine.
const ROUNDS: u64 = 100;

fn small() -> MigrcResults {
    let machine = TierMachine::own(ROUNDS).expect("the machine of the workload");
    let variants = InputPlan::with_variants(&[machine.apart()], &[2], &FlushColumn::PAIR);
    let plan = InputPlan { tiers: vec![machine], captures: &["pigz"], arm64_captures: &["pigz"], ..variants };
    let context = Context { scale: Scale::Quick, progress: &StepProgress::hidden() };
    MigrcResults::run(&context, &plan).expect("all inputs run")
}

#[test]
fn all_inputs_run_and_the_causes_of_their_flushes_add_up() {
    let results = small();
    for inputs in results.all() {
        for (column, run) in &inputs.columns {
            for part in [RunPart::Whole, RunPart::Later] {
                let causes: u64 = FlushPart::ALL.map(|cause| cause.flushes(run, part)).iter().sum();
                assert_eq!(causes, part.count(run, REMOTE), "{}, {}, {part:?}", inputs.input, column.name());
            }
            assert!(run.findings.is_empty(), "{}: {:?}", inputs.input, run.findings);
        }
    }
    // Not vacuous: pages linger on both instruction sets, and a settle of the own CPU sends no IPI.
    let sum = |inputs: &[InputRuns], name| {
        inputs.iter().flat_map(|of| &of.columns).map(|(_, run)| run.count(name)).sum::<u64>()
    };
    for inputs in [&results.tiers, &results.stores, &results.arm64, &results.captures, &results.arm64_captures] {
        assert!(sum(inputs, "pw_linger_pages") > 0);
    }
    assert!(sum(&results.captures, "pw_tlb_settle_on_alloc") > sum(&results.captures, "pw_tlb_settle_waits"));
    let evaluation = evaluation(&results).expect("tables");
    for table in &evaluation.figures.tables {
        let fits = |row: &Vec<String>| row.len() == table.head.len();
        assert!(!table.rows.is_empty() && table.rows.iter().all(fits), "{}", table.title);
    }
    let with = |text: &str| evaluation.claims.iter().filter(|claim| claim.what.contains(text)).count();
    assert_eq!(["of written pages", "Settles per migrated page", "on arm64"].map(with), [1, 3, 2]);
    let mut names: Vec<_> = evaluation.figures.runs.iter().map(|run| (&run.label, &run.input)).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), evaluation.figures.runs.len(), "each run has a name of its own");
}
