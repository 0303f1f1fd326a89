//! What it costs the host to judge: accesses in fast mode, and schedules in explore mode, of random
//! programs, on one core.
//!
//! Required are 4 million checked accesses a second. An element is an access whose translation the
//! oracle has judged and whose value or signal the reference memory has; the calls between them,
//! the machine, its memory manager, and everything asked at rest are part of the time. Half of the
//! operations of a program are runs of thousands of accesses to cells and pages at random, each
//! checked by itself.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use pagewright_arch::{Aarch64, Isa, X86_64};
use pagewright_check::SearchPlan;
use pagewright_fuzz::random::explore::Explored;
use pagewright_fuzz::random::{Program, explored_program, fast, fast_program};

const PROGRAMS: u64 = 8;
/// Schedules of each program.
const SCHEDULES: u32 = 25;

fn run_fast<I: Isa>(programs: &[Program]) -> u64 {
    let ran = programs.iter().map(|program| fast::run::<I>(program).expect("a possible machine"));
    ran.map(|ran| {
        assert!(ran.findings.is_empty(), "{:?}", ran.findings);
        ran.done.checked()
    })
    .sum()
}

fn explore<I: Isa>(programs: &[Program]) -> u64 {
    let plan = |seed| SearchPlan { seed, schedules: SCHEDULES, max_shrink_runs: 0 };
    let searches = programs
        .iter()
        .map(|program| Explored::new::<I>(program).expect("a possible machine").search::<I>(&plan(program.seed)));
    searches.map(|search| u64::from(search.schedules)).sum()
}

fn judged<I: Isa>(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group(format!("oracle/{}", I::KIND));
    group.sample_size(10);
    let programs: Vec<Program> = (0..PROGRAMS).map(|number| fast_program(1, None, number)).collect();
    group.throughput(Throughput::Elements(run_fast::<I>(&programs)));
    group.bench_function("accesses, operation by operation", |bencher| bencher.iter(|| run_fast::<I>(&programs)));
    let programs: Vec<Program> = (0..PROGRAMS).map(|number| explored_program(1, None, None, number)).collect();
    group.throughput(Throughput::Elements(explore::<I>(&programs)));
    group.bench_function("schedules", |bencher| bencher.iter(|| explore::<I>(&programs)));
    group.finish();
}

fn both(criterion: &mut Criterion) {
    judged::<X86_64>(criterion);
    judged::<Aarch64>(criterion);
}

criterion_group!(benches, both);
criterion_main!(benches);
