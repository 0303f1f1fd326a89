//! The cost of the oracle: accesses of fast mode and schedules of explore mode per second.
//!
//! The requirement is 4 million checked accesses per second. The oracle checks the translation of
//! each access, and the reference memory its value or signal. The time includes the calls in
//! between, the machine, the memory manager and the final checks. Half of the operations of a
//! program are thousands of random accesses, each of which is checked.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use pagewright_arch::{Aarch64, Isa, X86_64};
use pagewright_check::SearchPlan;
use pagewright_fuzz::random::explore_mode::ExploredProgram;
use pagewright_fuzz::random::{RandomProgram, explored_program, fast_mode, fast_program};

/// Programs of each mode.
const PROGRAMS: u64 = 8;
/// Schedules of each program.
const SCHEDULES: u32 = 25;

fn run_fast<I: Isa>(programs: &[RandomProgram]) -> u64 {
    let ran = programs.iter().map(|program| fast_mode::run::<I>(program).expect("a possible machine"));
    ran.map(|ran| {
        assert!(ran.findings.is_empty(), "{:?}", ran.findings);
        ran.counts.checked()
    })
    .sum()
}

fn explore<I: Isa>(programs: &[RandomProgram]) -> u64 {
    let plan = |seed| SearchPlan { seed, schedules: SCHEDULES, max_shrink_runs: 0 };
    let searches = programs.iter().map(|program| {
        ExploredProgram::new::<I>(program).expect("a possible machine").search::<I>(&plan(program.seed))
    });
    searches.map(|search| u64::from(search.schedules)).sum()
}

fn judged<I: Isa>(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group(format!("oracle/{}", I::KIND));
    group.sample_size(10);
    let programs: Vec<RandomProgram> = (0..PROGRAMS).map(|number| fast_program(1, None, number)).collect();
    group.throughput(Throughput::Elements(run_fast::<I>(&programs)));
    group.bench_function("accesses, fast mode", |bencher| bencher.iter(|| run_fast::<I>(&programs)));
    let programs: Vec<RandomProgram> = (0..PROGRAMS).map(|number| explored_program(1, None, None, number)).collect();
    group.throughput(Throughput::Elements(explore::<I>(&programs)));
    group.bench_function("schedules, explore mode", |bencher| bencher.iter(|| explore::<I>(&programs)));
    group.finish();
}

fn both(criterion: &mut Criterion) {
    judged::<X86_64>(criterion);
    judged::<Aarch64>(criterion);
}

criterion_group!(benches, both);
criterion_main!(benches);
