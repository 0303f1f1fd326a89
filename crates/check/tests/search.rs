//! A search finds a missing flush and shrinks its schedule; its tokens replay the same run.
//!
//! INV-CHECK-TOKEN.

use crate::common::{Unmap, attempt};
use pagewright_arch::{Aarch64, Isa, on_both};
use pagewright_check::{Chooser, Rule, RunDetail, SearchPlan, replay, search};

on_both! {
    a_missing_flush_is_found,
}

fn a_missing_flush_is_found<I: Isa>() {
    let mut run = |chooser: &mut dyn Chooser, detail: RunDetail| attempt::<I>(Unmap::Unflushed, chooser, detail);
    let plan = SearchPlan { seed: 1, ..SearchPlan::default() };
    let search = search(&plan, &mut run);
    let found = search.failing.expect("a missing flush");
    assert_eq!(found.attempt.findings[0].rule(), Some(Rule::Reuse), "{}", found.attempt.findings[0]);
    let again = replay(&found.shrunk, &mut run).expect("the same machine");
    assert_eq!(again.report.trace, found.attempt.report.trace);
    assert_eq!((&again.findings, &again.journal), (&found.attempt.findings, &found.attempt.journal));
    let first = replay(&found.token, &mut run).expect("the same machine");
    assert!(first.report.schedule.runs.len() >= found.attempt.report.schedule.runs.len());
    assert!(again.journal.windows(2).all(|pair| pair[0].oracle_step <= pair[1].oracle_step));
}

#[test]
fn an_unmap_that_flushes_is_clean() {
    let search = search(&SearchPlan { schedules: 300, ..SearchPlan::default() }, &mut |chooser, detail| {
        attempt::<Aarch64>(Unmap::Flushed, chooser, detail)
    });
    assert!(search.failing.is_none() && search.distinct > 100, "{} distinct", search.distinct);
}

#[test]
fn a_token_of_another_machine_is_refused() {
    let mut run = |chooser: &mut dyn Chooser, detail| attempt::<Aarch64>(Unmap::Unflushed, chooser, detail);
    let token = "pw1/0000f00d/list/c0*5".parse().expect("a token");
    let foreign = replay(&token, &mut run).expect_err("made up").to_string();
    assert!(foreign.contains("0000f00d"), "{foreign}");
}
