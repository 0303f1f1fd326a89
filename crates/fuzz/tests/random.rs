//! Random programs under the oracle: a part of what the soak runs, and properties of programs.
//!
//! Cites INV-ORACLE-O1 to INV-ORACLE-O4, which the memory manager does not violate, INV-TLB-CLEARED
//! and INV-SIM-REPLAY.

use pagewright_arch::{Aarch64, Isa, X86_64};
use pagewright_check::{Antecedent, RunDetail, SearchPlan, Tally};
use pagewright_fuzz::random::explore_mode::ExploredProgram;
use pagewright_fuzz::random::{
    ProgramNodes, RandomProgram, Survey, SurveyPlan, Theme, explored_program, fast_mode, fast_program, survey,
    without_mechanism,
};
use pagewright_sim::explore::ReplayChooser;
use pagewright_types::IsaKind;

/// Large enough that no rule is vacuous.
const PLAN: SurveyPlan =
    SurveyPlan { seed: 0, cpus: None, accesses: 1_500_000, schedules: 700, theme: None, nodes: ProgramNodes::ONE };

/// What only spaces that share page tables show, and seldom.
const FAMILIES: SurveyPlan = SurveyPlan {
    seed: 0,
    cpus: None,
    accesses: 0,
    schedules: 2000,
    theme: Some(Theme::Families),
    nodes: ProgramNodes::ONE,
};

/// What only translations that linger show.
const LINGERING: SurveyPlan = SurveyPlan {
    seed: 8,
    cpus: None,
    accesses: 0,
    schedules: 1500,
    theme: Some(Theme::Lingering),
    nodes: ProgramNodes::ONE,
};

/// What only large folios show, and seldom.
const HUGE: SurveyPlan = SurveyPlan {
    seed: 1,
    cpus: None,
    accesses: 300_000,
    schedules: 600,
    theme: Some(Theme::Huge),
    nodes: ProgramNodes::ONE,
};

#[track_caller]
fn survey_without_finding(isa: IsaKind, plan: &SurveyPlan) -> Survey {
    let survey = survey(isa, plan, &mut |_| {}).expect("a possible machine");
    if let Some(bug) = &survey.bug {
        panic!("{} on {}: {}", bug.program, isa, bug.findings[0]);
    }
    survey
}

#[test]
fn no_rule_is_violated_and_none_is_vacuous() {
    let surveys = IsaKind::ALL.map(|isa| {
        let mut survey = survey_without_finding(isa, &PLAN);
        for plan in [FAMILIES, LINGERING, HUGE] {
            survey.tally += &survey_without_finding(isa, &plan).tally;
        }
        survey
    });
    let mut tally = Tally::default();
    for survey in &surveys {
        tally += &survey.tally;
        assert!(survey.fast.checked() >= PLAN.accesses && survey.distinct >= PLAN.schedules);
        assert!(survey.fast.refused > 0, "no allocation failed");
    }
    let vacuous = |tally: &Tally, isas: &[IsaKind]| -> Vec<Antecedent> {
        tally.vacuous().filter(|what| without_mechanism(*what, isas, &ProgramNodes::ONE).is_none()).collect()
    };
    assert_eq!(vacuous(&tally, &IsaKind::ALL), [], "rules that judged nothing");
    for survey in surveys {
        assert_eq!(vacuous(&survey.tally, &[survey.isa]), [], "rules that judged nothing on {}", survey.isa);
    }
}

/// Programs that the soak found, and that the programs above are unlike.
#[test]
fn programs_with_findings_have_none_any_more() {
    // INV-RECLAIM-ENDS. It never did: a pass left folios pending, the next tried them in vain.
    let program = fast_program(11, None, 567);
    let ran = fast_mode::run::<Aarch64>(&program).expect("a possible machine");
    assert!(ran.findings.is_empty(), "{program}: {}", ran.findings[0]);
}

#[test]
fn the_text_of_a_program_reproduces_it() {
    let whole = explored_program(3, None, Some(Theme::Hot), 11);
    for program in [whole.without(0, 1).without(5, 3), whole, fast_program(1, Some(2), 0)] {
        let again: RandomProgram = program.to_string().parse().expect("the text of a program");
        assert_eq!((again.to_string(), again.steps()), (program.to_string(), program.steps()));
    }
    for text in
        ["", "hot-2-9", "hot-2-9-9/x/all", "hot-2-9-9/1/99", "cold-2-9-9/1/all", "hot-0-9-9/1/all", "hot-2-9-9/1/all/"]
    {
        assert!(text.parse::<RandomProgram>().is_err(), "{text}");
    }
}

#[test]
fn removing_operations_leaves_the_others_unchanged() {
    let whole = fast_program(1, None, 4);
    let steps = |program: &RandomProgram| {
        let (setup, body) = program.steps();
        setup.into_iter().chain(body).collect::<Vec<_>>()
    };
    let mut kept = steps(&whole);
    kept.drain(20..30);
    assert_eq!(steps(&whole.without(20, 10)), kept);
}

fn run_twice<I: Isa>() {
    let program = fast_program(9, None, 0);
    let [first, second] = [(); 2].map(|()| fast_mode::run::<I>(&program).expect("a possible machine"));
    assert_eq!((first.counts, first.tally), (second.counts, second.tally));
    let program = explored_program(9, None, Some(Theme::Moving), 1);
    let explored = ExploredProgram::new::<I>(&program).expect("a possible machine");
    let [first, second] =
        [(); 2].map(|()| explored.search::<I>(&SearchPlan { seed: 5, schedules: 20, max_shrink_runs: 0 }));
    assert_eq!((first.steps, first.distinct, first.tally), (second.steps, second.distinct, second.tally));
    let [first, second] =
        [(); 2].map(|()| explored.attempt::<I>(&mut ReplayChooser::default_schedule(), RunDetail::Full));
    assert_eq!((first.report.trace, first.journal), (second.report.trace, second.journal));
}

/// INV-SIM-REPLAY, for the memory manager and the checks.
#[test]
fn runs_of_the_same_seed_are_equal() {
    run_twice::<X86_64>();
    run_twice::<Aarch64>();
}
