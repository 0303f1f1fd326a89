//! Runs tests without a mutant, and each mutant with the tests that reach it, on every core.

use super::mutant::Mutant;
use super::results::{Fate, MutantResult, RunFolder};
use super::suite::{Suite, TestEnd};
use crate::cores::on_every_core;
use crate::error::Error;
use std::sync::Mutex;
use std::time::Instant;

/// The seconds by which a test of another package comes later than one of the mutant's own.
const OTHER_PACKAGE: f64 = 1.0;

/// Runs each test without a mutant, unless an earlier run has.
pub(crate) fn baselines(suite: &Suite, folder: &RunFolder) -> Result<(), Error> {
    let missing: Vec<usize> = (0..suite.tests.len()).filter(|test| suite.known(*test).is_none()).collect();
    let noted = Mutex::new(());
    on_every_core(missing.len(), |index| {
        let baseline = suite.baseline(missing[index])?;
        let _noted = noted.lock().expect("no worker panics with the lock");
        folder.add_baseline(baseline)
    })
}

/// Runs each mutant of `chosen` that has no result yet, and prints its fate.
pub(crate) fn mutants(suite: &Suite, folder: &RunFolder, mutants: &[Mutant], chosen: &[usize]) -> Result<(), Error> {
    let done = folder.results();
    let missing: Vec<usize> = chosen
        .iter()
        .copied()
        .filter(|index| !done.iter().any(|result| result.mutation.id == mutants[*index].mutation.id))
        .collect();
    let finished = Mutex::new(chosen.len() - missing.len());
    on_every_core(missing.len(), |index| {
        let number = missing[index];
        let start = Instant::now();
        let fate = fate(suite, &mutants[number], number)?;
        let result = MutantResult::new(&mutants[number], fate, start.elapsed().as_secs_f64());
        let mut finished = finished.lock().expect("no worker panics with the lock");
        *finished += 1;
        let fate = match &result.fate {
            Fate::Killed(test) => format!("killed by {test}"),
            Fate::TimedOut(test) => format!("timed out in {test}"),
            Fate::Survived { tests } => format!("SURVIVED {tests} tests"),
            Fate::Rejected(_) => String::from("not viable"),
        };
        println!("{}/{} {:.1} s {}: {fate}", *finished, chosen.len(), result.seconds, result.mutation);
        folder.add_result(&result)
    })
}

/// Runs the tests that reach a mutant until one fails.
fn fate(suite: &Suite, mutant: &Mutant, number: usize) -> Result<Fate, Error> {
    let cost = |test: &usize| {
        let own = suite.tests[*test].package == mutant.mutation.package;
        suite.known(*test).map_or(0.0, |baseline| baseline.seconds) + if own { 0.0 } else { OTHER_PACKAGE }
    };
    let mut order: Vec<usize> = (0..suite.tests.len()).collect();
    order.sort_by(|one, other| cost(one).total_cmp(&cost(other)));
    let mut tests = 0;
    for test in order {
        let baseline = suite.baseline(test)?;
        if !baseline.passes || !baseline.reached.contains(&number) {
            continue;
        }
        tests += 1;
        let name = || suite.tests[test].name.clone();
        match suite.run_mutant(test, baseline, number)? {
            TestEnd::Passed => {}
            TestEnd::Failed => return Ok(Fate::Killed(name())),
            TestEnd::TimeLimit => return Ok(Fate::TimedOut(name())),
        }
    }
    Ok(Fate::Survived { tests })
}
