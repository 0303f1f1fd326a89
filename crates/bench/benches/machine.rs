//! The host time of accesses, flushes and steps of explored schedules.
//!
//! Accesses are first-level hits, second-level hits, walks, and a mix, on both instruction sets.
//! This is measured time of the simulator, and not modelled time.

#[path = "../../sim/tests/common/mod.rs"]
mod common;

use common::{Bench, CPU0, page};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use pagewright_arch::{Aarch64, Effects, Invalidate, InvalidateScope, InvalidateTarget, Isa, LeafFlags, X86_64};
use pagewright_sim::explore::{self, CoroutineBody, ExploreSettings, Rates, ScheduleStrategy};
use pagewright_types::{Access, CpuId, Level, Rights, Tag};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

/// Accesses in one round.
const ROUND: u64 = 4096;

/// Makes a machine on which pages 0 to `pages` are mapped and were written.
fn mapped<I: Isa>(pages: u64) -> Bench<I> {
    let bench = Bench::<I>::new();
    let root = bench.frame(Level::PTE);
    bench.switch(CPU0, root, 1);
    for number in 0..pages {
        bench.map(root, Level::PTE, page(number), Rights::RW, LeafFlags::empty());
        bench.sim.access(CPU0, page(number), Access::Write, 1).expect("mapped");
    }
    bench
}

/// A fixed, pseudo-random order of pages without locality.
fn scattered(pages: u64) -> Vec<u64> {
    let next = |at: u64| at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    std::iter::successors(Some(1), |at| Some(next(*at))).map(|at| (at >> 33) % pages).take(ROUND as usize).collect()
}

fn accesses<I: Isa>(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group(format!("access/{}", I::KIND));
    group.throughput(Throughput::Elements(ROUND));
    let atomic = AtomicU64::new(0);
    group.bench_function("atomic increment, for comparison", |bencher| {
        bencher.iter(|| {
            for _ in 0..ROUND {
                black_box(&atomic).fetch_add(1, Ordering::Relaxed);
            }
        });
    });
    for (name, pages) in
        [("one page", 1), ("16 pages", 16), ("256 pages", 256), ("4096 pages", 4096), ("65536 pages", 65536)]
    {
        let bench = mapped::<I>(pages);
        let order = scattered(pages);
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                for (index, number) in order.iter().enumerate() {
                    let access = if index % 4 == 0 { Access::Write } else { Access::Read };
                    black_box(bench.sim.access(CPU0, page(*number), access, 1)).expect("mapped");
                }
            });
        });
    }
    group.finish();
}

fn flushes<I: Isa>(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group(format!("flush/{}", I::KIND));
    let bench = mapped::<I>(1024);
    let page_of =
        |number| InvalidateTarget::Page { tag: Tag::new(1), va: page(number), level: Level::PTE, last_level: true };
    for (name, target) in [("one page", page_of(3)), ("a tag", InvalidateTarget::Tag(Tag::new(1)))] {
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                bench.sim.access(CPU0, page(3), Access::Read, 1).expect("mapped");
                bench.sim.run_on(CPU0, || bench.sim.invalidate(Invalidate { scope: InvalidateScope::Local, target }));
            });
        });
    }
    group.finish();
}

/// Runs three CPUs under random schedules; one element is one step.
fn explored<I: Isa>(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group(format!("explore/{}", I::KIND));
    let (bench, slot) = Bench::<I>::with_one_page(3);
    let programs = || {
        (0..3).map(|cpu| {
            let (sim, cpu) = (bench.sim.clone(), CpuId::new(cpu));
            Box::new(move || {
                for _ in 0..20 {
                    let old = sim.load(slot);
                    sim.store(slot, old);
                    sim.publish();
                    sim.access(cpu, page(0), Access::Write, 1).expect("mapped");
                }
            }) as CoroutineBody
        })
    };
    let run = |seed| {
        let mut chooser = ScheduleStrategy::Random { seed, rates: Rates::default() }.chooser();
        explore::run(&bench.sim, &ExploreSettings::default(), programs().collect(), &mut *chooser)
    };
    let steps: u64 = (0..64).map(|seed| u64::from(run(seed).steps)).sum();
    group.throughput(Throughput::Elements(steps / 64));
    let mut seed = 0;
    group.bench_function("steps", |bencher| {
        bencher.iter(|| {
            seed = (seed + 1) % 64;
            black_box(run(seed))
        });
    });
    group.finish();
}

fn both(criterion: &mut Criterion) {
    explored::<X86_64>(criterion);
    explored::<Aarch64>(criterion);
    accesses::<X86_64>(criterion);
    accesses::<Aarch64>(criterion);
    flushes::<X86_64>(criterion);
    flushes::<Aarch64>(criterion);
}

criterion_group!(benches, both);
criterion_main!(benches);
