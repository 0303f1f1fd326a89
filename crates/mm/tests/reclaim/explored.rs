//! CPUs that fault more pages than there are frames while another balances, under many schedules.
//!
//! Each counts what happened over all schedules: a race in which nobody reclaims beside another has
//! shown nothing.

use super::{NODE, check, fill, machine_of};
use pagewright_arch::Isa;
use pagewright_check::{Attempt, CheckFinding, Chooser, RunDetail, SearchPlan, search};
use pagewright_lab::harness::{CPU, OTHER, TestProcess, TestWorld, at};
use pagewright_lab::on_both;
use pagewright_mm::MapFlags;
use pagewright_mm::counters::Gauge;
use pagewright_sim::explore::{CoroutineBody, ExploreSettings, RunEnd};
use pagewright_types::{Counter, CpuId, PAGE_SIZE, Rights};
use std::cell::Cell;
use std::rc::Rc;

const THIRD: CpuId = CpuId::new(2);
/// Frames of the machine: not many more than what its marks keep back.
const FRAMES: u64 = 256;
/// Schedules of each race; with `PAGEWRIGHT_SOAK` a hundred times as many.
const SCHEDULES: u32 = 150;

/// What must be true of a process in the end.
type Check<I> = Box<dyn FnOnce(&TestProcess<I>)>;

/// Programs of three CPUs on a machine whose memory is full.
type SetUp<I> = fn(&Rc<TestWorld<I>>, &Rc<TestProcess<I>>) -> (Vec<CoroutineBody>, Check<I>);

/// What happened in all schedules of a race, beside its preparation.
#[derive(Default)]
struct Seen {
    background: Cell<u64>,
    direct: Cell<u64>,
    read: Cell<u64>,
}

fn add(to: &Cell<u64>, more: u64) {
    to.set(to.get() + more);
}

fn attempt<I: Isa>(set_up: SetUp<I>, seen: &Seen, chooser: &mut dyn Chooser, detail: RunDetail) -> Attempt {
    let world = machine_of::<I>(3, FRAMES);
    world.swap_to(1024);
    let process = Rc::new(TestProcess::new(&world));
    let (programs, check) = set_up(&world, &process);
    leave_nothing_free(&world, &process);
    let counted = || {
        let count = |counter| world.lab.mm().counter(counter);
        [Counter::PgStealKswapd, Counter::PgStealDirect, Counter::PswpIn].map(count)
    };
    let before = counted();
    let settings = ExploreSettings { max_steps: 400_000, ..ExploreSettings::default() };
    let report = world.bench.run(&settings, programs, detail, chooser);
    let after = counted();
    for (index, cell) in [&seen.background, &seen.direct, &seen.read].into_iter().enumerate() {
        add(cell, after[index] - before[index]);
    }
    let completed = report.end == RunEnd::Completed;
    if completed && world.bench.finding_count() == 0 {
        let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            check(&process);
            world.at_rest(&[]);
        }));
        if checked.is_err() {
            world.bench.report(CheckFinding::Reported("what was stored is lost, or a count is wrong".to_string()));
        }
    } else {
        std::mem::forget(check);
    }
    let attempt = world.bench.attempt(&settings, report);
    if !completed || !attempt.findings.is_empty() {
        std::mem::forget((world, process));
    }
    attempt
}

/// Uses memory until whoever wants a page must wait for one to go.
fn leave_nothing_free<I: Isa>(world: &TestWorld<I>, process: &TestProcess<I>) {
    let hog = process.anon(2 * FRAMES);
    fill(process, hog, FRAMES, 0);
    let is_left = |page: &u64| {
        let mut zones = world.lab.mm().tlb().frames().zones();
        *page < 2 * FRAMES && zones.any(|zone| zone.free() > zone.watermarks().min)
    };
    (FRAMES..).take_while(is_left).for_each(|page| process.write(CPU, at(hog, page), 0));
}

fn clean<I: Isa>(set_up: SetUp<I>) {
    let soak = if std::env::var_os("PAGEWRIGHT_SOAK").is_some() { 100 } else { 1 };
    let plan = SearchPlan { seed: 1, schedules: soak * SCHEDULES, max_shrink_runs: 60 };
    let seen = Seen::default();
    let search = search(&plan, &mut |chooser, detail| attempt::<I>(set_up, &seen, chooser, detail));
    if let Some(found) = &search.failing {
        panic!("{} in schedule {}, {}", found.attempt.findings[0], search.schedules, found.shrunk);
    }
    let [background, direct, read] = [seen.background, seen.direct, seen.read].map(|cell| cell.get());
    println!("{} different schedules; freed {background} and {direct}, read {read}", search.distinct);
    assert!(search.distinct * 2 > plan.schedules, "{} different schedules", search.distinct);
    assert!(background > 0 && direct > 0 && read > 0, "somebody had nothing to do");
}

fn balance<I: Isa>(world: &Rc<TestWorld<I>>) -> CoroutineBody {
    let world = Rc::clone(world);
    Box::new(move || {
        world.on(THIRD, |mm| mm.balance(NODE));
    })
}

/// One CPU loads, one stores, one balances: all memory is private.
fn loads_and_stores<I: Isa>(world: &Rc<TestWorld<I>>, process: &Rc<TestProcess<I>>) -> (Vec<CoroutineBody>, Check<I>) {
    let (old, new) = (process.anon(8), process.anon(8));
    fill(process, old, 8, 70);
    let (loads, stores) = (Rc::clone(process), Rc::clone(process));
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || {
            for page in 0..8 {
                assert_eq!(loads.read(CPU, at(old, page)), page + 70, "page {page}");
            }
        }),
        Box::new(move || {
            for page in 0..8 {
                stores.write(OTHER, at(new, page), page + 80);
            }
        }),
        balance(world),
    ];
    let check = move |process: &TestProcess<I>| {
        check(process, old, 8, 70);
        check(process, new, 8, 80);
    };
    (programs, Box::new(check))
}

/// One CPU forks and the child stores, one stores, one balances: what is shared and what is not
/// comes back right.
fn a_fork_under_pressure<I: Isa>(
    world: &Rc<TestWorld<I>>,
    process: &Rc<TestProcess<I>>,
) -> (Vec<CoroutineBody>, Check<I>) {
    let base = process.anon(6);
    fill(process, base, 6, 70);
    let child: Rc<std::cell::RefCell<Option<TestProcess<I>>>> = Rc::default();
    let (forks, born, stores) = (Rc::clone(process), Rc::clone(&child), Rc::clone(process));
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || {
            let child = forks.fork();
            (0..3).for_each(|page| child.write(CPU, at(base, page), page + 90));
            *born.borrow_mut() = Some(child);
        }),
        Box::new(move || (3..6).for_each(|page| stores.write(OTHER, at(base, page), page + 80))),
        balance(world),
    ];
    let check = move |process: &TestProcess<I>| {
        let child = child.take().expect("it was born");
        for page in 0..3 {
            assert_eq!((process.read(CPU, at(base, page)), child.read(OTHER, at(base, page))), (page + 70, page + 90));
        }
        for page in 3..6 {
            assert_eq!(process.read(CPU, at(base, page)), page + 80);
            let theirs = child.read(OTHER, at(base, page));
            assert!(theirs == page + 70 || theirs == page + 80, "page {page} of the child: {theirs}");
        }
        child.end();
    };
    (programs, Box::new(check))
}

/// One CPU maps, uses and unmaps, one stores to shared memory, one balances.
fn unmapping_and_sharing<I: Isa>(
    world: &Rc<TestWorld<I>>,
    process: &Rc<TestProcess<I>>,
) -> (Vec<CoroutineBody>, Check<I>) {
    let shared = process.map(6, Rights::RW, MapFlags::SHARED | MapFlags::ANONYMOUS, None);
    fill(process, shared, 6, 70);
    let (maps, stores) = (Rc::clone(process), Rc::clone(process));
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || {
            for round in 0..2 {
                let base = maps.anon(4);
                fill(&maps, base, 4, round);
                check(&maps, base, 4, round);
                maps.unmap(base, 4);
            }
        }),
        Box::new(move || (0..6).for_each(|page| stores.write(OTHER, at(shared, page), page + 80))),
        balance(world),
    ];
    (programs, Box::new(move |process: &TestProcess<I>| check(process, shared, 6, 80)))
}

/// One CPU loads pages of a file, one locks and unlocks memory, one balances.
fn files_and_locks<I: Isa>(world: &Rc<TestWorld<I>>, process: &Rc<TestProcess<I>>) -> (Vec<CoroutineBody>, Check<I>) {
    let file = world.file(8);
    let mapped = process.map(8, Rights::READ, MapFlags::SHARED, Some(&file));
    let base = process.anon(4);
    fill(process, base, 4, 70);
    check(process, mapped, 8, 7);
    let (loads, locks) = (Rc::clone(process), Rc::clone(process));
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || (0..8).for_each(|page| assert_eq!(loads.read(CPU, at(mapped, page)), page + 7))),
        Box::new(move || {
            let space = &locks.space;
            locks.world.on(OTHER, |mm| mm.mlock(space, base, 4 * PAGE_SIZE)).expect("within the limit");
            (0..4).for_each(|page| locks.write(OTHER, at(base, page), page + 80));
            locks.world.on(OTHER, |mm| mm.munlock(space, base, 4 * PAGE_SIZE)).expect("mapped");
        }),
        balance(world),
    ];
    let check = move |process: &TestProcess<I>| {
        check(process, mapped, 8, 7);
        check(process, base, 4, 80);
        // INV-LRU-LOCKS.
        assert_eq!(process.world.gauge(Gauge::Unevictable), 0);
    };
    (programs, Box::new(check))
}

fn nothing_is_lost_between_loads_and_stores<I: Isa>() {
    clean::<I>(loads_and_stores);
}

fn nothing_is_lost_by_a_fork<I: Isa>() {
    clean::<I>(a_fork_under_pressure);
}

fn nothing_is_lost_by_unmapping_and_sharing<I: Isa>() {
    clean::<I>(unmapping_and_sharing);
}

fn nothing_is_lost_of_files_and_locked_memory<I: Isa>() {
    clean::<I>(files_and_locks);
}

on_both!(
    nothing_is_lost_between_loads_and_stores,
    nothing_is_lost_by_a_fork,
    nothing_is_lost_by_unmapping_and_sharing,
    nothing_is_lost_of_files_and_locked_memory,
);
