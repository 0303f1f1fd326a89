//! Random programs under the oracle: a share of what the soak runs, and what programs promise about
//! themselves.
//!
//! Cites INV-ORACLE-O1 to INV-ORACLE-O4 (nothing of the memory manager breaks them),
//! INV-TLB-CLEARED, INV-SIM-REPLAY.

use pagewright_arch::{Aarch64, Isa, X86_64};
use pagewright_check::{Antecedent, RunDetail, SearchPlan, Tally};
use pagewright_fuzz::random::explore::Explored;
use pagewright_fuzz::random::{
    Effort, Program, Survey, Theme, explored_program, fast, fast_program, survey, without_mechanism,
};
use pagewright_sim::explore::ReplayChooser;
use pagewright_types::IsaKind;

/// Large enough that no rule is left without something to judge, small enough for every day.
const EFFORT: Effort = Effort { seed: 7, cpus: None, accesses: 1_500_000, schedules: 600 };

#[track_caller]
fn nothing_found(isa: IsaKind) -> Survey {
    let survey = survey(isa, &EFFORT).expect("a possible machine");
    if let Some(bug) = &survey.bug {
        panic!("{} on {}: {}", bug.program, isa, bug.findings[0]);
    }
    survey
}

#[test]
fn nothing_is_found_and_nothing_is_vacuous() {
    let (intel, arm) = (nothing_found(IsaKind::X86_64), nothing_found(IsaKind::Aarch64));
    let mut tally = Tally::default();
    for survey in [&intel, &arm] {
        tally += &survey.tally;
        assert!(survey.fast.checked() >= EFFORT.accesses && survey.distinct >= EFFORT.schedules);
        assert!(survey.fast.refused > 0, "allocations fail, too");
    }
    let vacuous = |tally: &Tally, isas: &[IsaKind]| -> Vec<Antecedent> {
        tally.vacuous().filter(|what| without_mechanism(*what, isas).is_none()).collect()
    };
    assert_eq!(vacuous(&tally, &IsaKind::ALL), [], "these had nothing to judge");
    for survey in [intel, arm] {
        assert_eq!(vacuous(&survey.tally, &[survey.isa]), [], "these had nothing to judge on {}", survey.isa);
    }
}

#[test]
fn a_program_is_its_text() {
    let whole = explored_program(3, None, Some(Theme::Hot), 11);
    for program in [whole.without(0, 1).without(5, 3), whole, fast_program(1, Some(2), 0)] {
        let again: Program = program.to_string().parse().expect("its own text");
        assert_eq!((again.to_string(), again.steps()), (program.to_string(), program.steps()));
    }
    for text in
        ["", "hot-2-9", "hot-2-9-9/x/all", "hot-2-9-9/1/99", "cold-2-9-9/1/all", "hot-0-9-9/1/all", "hot-2-9-9/1/all/"]
    {
        assert!(text.parse::<Program>().is_err(), "{text}");
    }
}

#[test]
fn what_is_left_out_leaves_the_rest_as_it_was() {
    let whole = fast_program(1, None, 4);
    let steps = |program: &Program| {
        let (calm, others) = program.steps();
        calm.into_iter().chain(others).collect::<Vec<_>>()
    };
    let mut left = steps(&whole);
    left.drain(20..30);
    assert_eq!(steps(&whole.without(20, 10)), left);
}

fn twice<I: Isa>() {
    let program = fast_program(9, None, 0);
    let [first, second] = [(); 2].map(|()| fast::run::<I>(&program).expect("a possible machine"));
    assert_eq!((first.done, first.tally), (second.done, second.tally));
    let program = explored_program(9, None, Some(Theme::Moving), 1);
    let explored = Explored::new::<I>(&program).expect("a possible machine");
    let [first, second] =
        [(); 2].map(|()| explored.search::<I>(&SearchPlan { seed: 5, schedules: 20, max_shrink_runs: 0 }));
    assert_eq!((first.steps, first.distinct, first.tally), (second.steps, second.distinct, second.tally));
    let [first, second] =
        [(); 2].map(|()| explored.attempt::<I>(&mut ReplayChooser::default_schedule(), RunDetail::Full));
    assert_eq!((first.report.trace, first.journal), (second.report.trace, second.journal));
}

/// INV-SIM-REPLAY, for the memory manager and all that is asked of it.
#[test]
fn the_same_seed_does_the_same() {
    twice::<X86_64>();
    twice::<Aarch64>();
}
