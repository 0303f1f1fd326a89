//! Two CPUs fault more pages than there are frames while a third balances, under many schedules.

use super::{NODE, Process, at, machine_of, swap_to};
use crate::device::{CPU, OTHER};
use crate::on_both;
use pagewright_arch::{Aarch64, Isa, X86_64};
use pagewright_check::{Attempt, Chooser, Detail, Finding, Plan, hunt};
use pagewright_sim::explore::{Outcome, Program, Settings};
use pagewright_types::{Counter, CpuId};
use std::rc::Rc;

const THIRD: CpuId = CpuId::new(2);
/// Frames of the machine: little more than what its marks keep back.
const FRAMES: u64 = 256;
const SCHEDULES: u32 = 600;

fn attempt<I: Isa>(chooser: &mut dyn Chooser, detail: Detail) -> Attempt {
    let world = machine_of::<I>(3, FRAMES);
    swap_to(&world, 1024);
    let process = Rc::new(Process::new(&world));
    let hog = process.0.anon(FRAMES);
    let base = process.0.anon(8);
    process.fill(base, 8, 70);
    // So much that whoever wants a page now must wait for one to go.
    process.fill(hog, FRAMES, 0);
    let reads = Rc::clone(&process);
    let stores = Rc::clone(&process);
    let balances = Rc::clone(&world);
    let programs: Vec<Program> = vec![
        Box::new(move || {
            for page in 0..4 {
                assert_eq!(reads.load(CPU, at(base, page)), page + 70, "page {page}");
            }
        }),
        Box::new(move || {
            for page in 4..8 {
                stores.store(OTHER, at(base, page), page + 80);
                stores.store(OTHER, at(hog, page), page + 90);
            }
        }),
        Box::new(move || {
            balances.on(THIRD, |mm| mm.balance(NODE));
        }),
    ];
    let settings = Settings::default();
    let report = world.bench.run(&settings, programs, detail, chooser);
    let completed = report.outcome == Outcome::Completed;
    if completed && world.bench.found() == 0 {
        let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            process.check(base, 4, 70);
            (4..8).for_each(|page| assert_eq!(process.load(CPU, at(base, page)), page + 80, "page {page}"));
            (4..8).for_each(|page| assert_eq!(process.load(CPU, at(hog, page)), page + 90, "page {page}"));
            world.at_rest(&[]);
            assert!(world.on(CPU, |mm| mm.counter(Counter::PswpIn)) > 0, "nothing had gone");
        }));
        if checked.is_err() {
            world.bench.report(Finding::Broken("what was stored is lost, or a count is wrong".to_string()));
        }
    }
    let attempt = world.bench.attempt(&settings, report);
    if !completed || !attempt.findings.is_empty() {
        std::mem::forget((world, process));
    }
    attempt
}

/// Schedules of each run; the soak asks for more.
fn schedules() -> u32 {
    std::env::var("PAGEWRIGHT_SCHEDULES").ok().and_then(|text| text.parse().ok()).unwrap_or(SCHEDULES)
}

fn nothing_is_lost_under_any_schedule<I: Isa>() {
    let plan = Plan { seed: 1, schedules: schedules(), shrink: 60 };
    let hunt = hunt(&plan, &mut |chooser, detail| attempt::<I>(chooser, detail));
    if let Some(found) = &hunt.found {
        panic!("{} in schedule {}, {}", found.attempt.findings[0], hunt.schedules, found.small);
    }
}

on_both!(nothing_is_lost_under_any_schedule);
