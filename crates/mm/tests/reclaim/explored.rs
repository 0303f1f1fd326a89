//! Faults of several CPUs under memory pressure, while another CPU balances the node.
//!
//! The races run under many schedules. Each counts what happened in all of them: a race in which
//! nothing was reclaimed concurrently would prove nothing.

use super::{NODE, check, fill, machine_of};
use pagewright_arch::Isa;
use pagewright_arch::on_both;
use pagewright_check::{Attempt, CheckFinding, Chooser, RunDetail, SearchPlan, search};
use pagewright_lab::harness::race::schedules;
use pagewright_lab::harness::{CPU, OTHER, THIRD, TestProcess, TestWorld, at};
use pagewright_mm::MapFlags;
use pagewright_mm::counters::Gauge;
use pagewright_sim::explore::{CoroutineBody, ExploreSettings, RunEnd};
use pagewright_types::{Counter, PAGE_SIZE, Rights};
use std::cell::Cell;
use std::rc::Rc;

/// The frames of the machine: not many more than its watermarks reserve.
const FRAMES: u64 = 256;
/// The schedules of each race.
const SCHEDULES: u64 = 80;

/// A check of a process after the race.
type Check<I> = Box<dyn FnOnce(&TestProcess<I>)>;

/// Makes the programs of three CPUs, and the check, for a machine whose memory is then exhausted.
type SetUp<I> = fn(&Rc<TestWorld<I>>, &Rc<TestProcess<I>>) -> (Vec<CoroutineBody>, Check<I>);

/// What happened in all schedules of a race, without its preparation.
#[derive(Default)]
struct RaceCounts {
    background: Cell<u64>,
    direct: Cell<u64>,
    read: Cell<u64>,
}

fn add(to: &Cell<u64>, more: u64) {
    to.set(to.get() + more);
}

fn attempt<I: Isa>(set_up: SetUp<I>, counts: &RaceCounts, chooser: &mut dyn Chooser, detail: RunDetail) -> Attempt {
    let world = machine_of::<I>(3, FRAMES);
    world.swap_to(1024);
    let process = Rc::new(TestProcess::new(&world));
    let (programs, check) = set_up(&world, &process);
    let hog = TestProcess::new(&world);
    exhaust_memory(&world, &hog);
    let counted = || {
        let count = |counter| world.lab.mm().counter(counter);
        [Counter::PgStealKswapd, Counter::PgStealDirect, Counter::PswpIn].map(count)
    };
    let before = counted();
    let settings = ExploreSettings { max_steps: 400_000, ..ExploreSettings::default() };
    let report = world.bench.run(&settings, programs, detail, chooser);
    let after = counted();
    for (index, cell) in [&counts.background, &counts.direct, &counts.read].into_iter().enumerate() {
        add(cell, after[index] - before[index]);
    }
    let completed = report.end == RunEnd::Completed;
    if completed && world.bench.finding_count() == 0 {
        let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            check(&process);
            world.at_rest(&[]);
        }));
        if checked.is_err() {
            world.bench.report(CheckFinding::Reported("a store is lost or a count is wrong".to_string()));
        }
    } else {
        std::mem::forget(check);
    }
    let attempt = world.bench.attempt(&settings, report);
    if !completed || !attempt.findings.is_empty() {
        std::mem::forget((world, process, hog));
    }
    attempt
}

/// Allocates memory down to the min watermark, so that the next allocation must reclaim.
///
/// A process of its own has it, so that a fork of the other copies little.
fn exhaust_memory<I: Isa>(world: &TestWorld<I>, process: &TestProcess<I>) {
    let hog = process.anon(2 * FRAMES);
    fill(process, hog, FRAMES, 0);
    let is_left = |page: &u64| {
        let mut zones = world.lab.mm().tlb().frames().zones();
        *page < 2 * FRAMES && zones.any(|zone| zone.free() > zone.watermarks().min)
    };
    (FRAMES..).take_while(is_left).for_each(|page| process.write(CPU, at(hog, page), 0));
}

fn assert_clean<I: Isa>(set_up: SetUp<I>) {
    let plan = SearchPlan { seed: 1, schedules: schedules(SCHEDULES) as u32, max_shrink_runs: 60 };
    let counts = RaceCounts::default();
    let search = search(&plan, &mut |chooser, detail| attempt::<I>(set_up, &counts, chooser, detail));
    if let Some(found) = &search.failing {
        panic!("{} in schedule {}, {}", found.attempt.findings[0], search.schedules, found.shrunk);
    }
    let [background, direct, read] = [counts.background, counts.direct, counts.read].map(|cell| cell.get());
    println!(
        "{} different schedules; background freed {background}, direct {direct}, swapped in {read}",
        search.distinct
    );
    assert!(search.distinct * 2 > plan.schedules, "{} different schedules", search.distinct);
    assert!(background > 0 && direct > 0 && read > 0, "background reclaim, direct reclaim or swap-in did not happen");
}

fn balance<I: Isa>(world: &Rc<TestWorld<I>>) -> CoroutineBody {
    let world = Rc::clone(world);
    Box::new(move || {
        world.on(THIRD, |mm| mm.balance(NODE));
    })
}

/// One CPU loads, one stores, one balances; all memory is private.
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

/// One CPU forks and stores in the child, one stores in the parent, one balances.
fn a_fork_under_pressure<I: Isa>(
    world: &Rc<TestWorld<I>>,
    process: &Rc<TestProcess<I>>,
) -> (Vec<CoroutineBody>, Check<I>) {
    let base = process.anon(6);
    fill(process, base, 6, 70);
    let child: Rc<std::cell::RefCell<Option<TestProcess<I>>>> = Rc::default();
    let (forks, forked, stores) = (Rc::clone(process), Rc::clone(&child), Rc::clone(process));
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || {
            let child = forks.fork();
            (0..3).for_each(|page| child.write(CPU, at(base, page), page + 90));
            *forked.borrow_mut() = Some(child);
        }),
        Box::new(move || (3..6).for_each(|page| stores.write(OTHER, at(base, page), page + 80))),
        balance(world),
    ];
    let check = move |process: &TestProcess<I>| {
        let child = child.take().expect("fork succeeded");
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

fn loads_and_stores_survive_background_reclaim<I: Isa>() {
    assert_clean::<I>(loads_and_stores);
}

fn a_fork_survives_background_reclaim<I: Isa>() {
    assert_clean::<I>(a_fork_under_pressure);
}

fn unmapping_and_sharing_survive_background_reclaim<I: Isa>() {
    assert_clean::<I>(unmapping_and_sharing);
}

fn files_and_mlocked_memory_survive_background_reclaim<I: Isa>() {
    assert_clean::<I>(files_and_locks);
}

on_both!(
    loads_and_stores_survive_background_reclaim,
    a_fork_survives_background_reclaim,
    unmapping_and_sharing_survive_background_reclaim,
    files_and_mlocked_memory_survive_background_reclaim,
);
