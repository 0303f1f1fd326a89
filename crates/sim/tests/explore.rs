//! The scheduler of explore mode.
//!
//! The same token gives the same run (INV-SIM-REPLAY), deadlocks and panics are reported, and a
//! failing schedule shrinks.

use crate::common::{Bench, CPU0, page};
use pagewright_arch::{Aarch64, Effects, Isa, Pte, PteSlot, X86_64, on_both};
use pagewright_sim::explore::{
    self, CoroutineBody, ExploreSettings, MachineFingerprint, Rates, ReplayChooser, ReplayToken, RunEnd, RunReport,
    ScheduleStep, ScheduleStrategy, StepAction, StopPoint,
};
use pagewright_sim::{Sim, SimLocks};
use pagewright_sync::SpinLock;
use pagewright_sync::rank::{CacheRank, ContextRank, TableRank};
use pagewright_types::{Access, CpuId, CpuMask, Pfn};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

const CPU1: CpuId = CpuId::new(1);

type Lock<R> = SpinLock<u32, R, SimLocks>;

/// A machine with a page mapped, and programs that use every kind of effect on it.
fn busy<I: Isa>() -> (Sim<I>, Vec<CoroutineBody>) {
    let (bench, slot) = Bench::<I>::with_one_page(3);
    let (sim, lock) = (bench.sim, Rc::new(Lock::<TableRank>::new(0)));
    sim.bind_ipi_handler(Rc::new(|_| {}));
    let programs = (0..3).map(|cpu| {
        let (sim, lock, cpu) = (sim.clone(), Rc::clone(&lock), CpuId::new(cpu));
        Box::new(move || {
            for _ in 0..5 {
                sim.run_on(cpu, || {
                    let mut held = lock.lock();
                    *held += 1;
                    let old = sim.load(slot);
                    sim.store(slot, old);
                    sim.publish();
                });
                sim.send_ipi(&CpuMask::of(CpuId::new((cpu.raw() + 1) % 3)));
                assert!(sim.access(cpu, page(0), Access::Write, 1).is_ok() || sim.load(slot) == Pte::EMPTY);
            }
        }) as CoroutineBody
    });
    let programs = programs.collect();
    (sim, programs)
}

fn under<I: Isa>(strategy: &ScheduleStrategy) -> RunReport {
    let (sim, programs) = busy::<I>();
    let settings = ExploreSettings { log: true, ..ExploreSettings::default() };
    let report = explore::run(&sim, &settings, programs, &mut *strategy.chooser());
    sim.unbind_ipi_handler();
    report
}

fn strategies(seed: u64) -> [ScheduleStrategy; 2] {
    let rates = Rates::default();
    [ScheduleStrategy::Random { seed, rates }, ScheduleStrategy::Pct { seed, depth: 3, length: 300, rates }]
}

fn the_same_token_gives_the_same_run<I: Isa>() {
    let mut traces = BTreeSet::new();
    for strategy in (0..50).flat_map(strategies) {
        let first = under::<I>(&strategy);
        assert_eq!(first.end, RunEnd::Completed, "{strategy:?}");
        assert_eq!(first.log.len(), first.steps as usize);
        let listed = ScheduleStrategy::List(first.schedule.clone());
        for again in [strategy, listed] {
            let second = under::<I>(&again);
            assert_eq!((second.trace, &second.log), (first.trace, &first.log), "{again:?}");
            assert_eq!(second.schedule, first.schedule);
        }
        traces.insert(first.trace);
    }
    assert_eq!(traces.len(), 100, "two seeds gave the same schedule");
}

on_both! { the_same_token_gives_the_same_run }

#[test]
fn tokens_round_trip_as_text() {
    let (sim, _) = busy::<X86_64>();
    let fingerprint = MachineFingerprint::of(&sim, &ExploreSettings::default());
    let other = ExploreSettings { walks: 1, ..ExploreSettings::default() };
    assert_ne!(MachineFingerprint::of(&sim, &other), fingerprint);
    let schedule = under::<X86_64>(&strategies(7)[0]).schedule;
    for strategy in strategies(u64::MAX).into_iter().chain([ScheduleStrategy::List(schedule)]) {
        let token = ReplayToken { fingerprint, strategy };
        assert_eq!(token.to_string().parse(), Ok(token));
    }
    for (bad, says) in [
        ("f00/list/c0", "`f00/list/c0` is not a replay token"),
        ("pw1/xyz/list/c0", "`xyz` in a replay token is not a fingerprint"),
        ("pw1/0000f00d/list/c0*5,q1", "`q1` in a replay token is not a choice"),
        ("pw1/0000f00d/random/7/1,2,3", "`1,2,3` in a replay token is not six rates"),
        ("pw1/0000f00d/pct/7/x/1/1,2,3,4,5,6", "`x` in a replay token is not a number"),
        ("pw1/0000f00d/list/c0/more", "`more` in a replay token is not the end"),
        ("pw1/0000f00d/lust/c0", "`lust` in a replay token is not `random`"),
    ] {
        let error = bad.parse::<ReplayToken>().expect_err(bad).to_string();
        assert!(error.starts_with(says), "{error}");
    }
}

/// Two CPUs take two locks; one of them takes the second lock alone, in a loop.
fn two_locks() -> (Sim<X86_64>, Vec<CoroutineBody>) {
    let sim = Bench::<X86_64>::with(|config| config.nodes[0].bytes = 1 << 20).sim;
    let locks = Rc::new((Lock::<CacheRank>::new(0), Lock::<ContextRank>::new(0), Cell::new(0)));
    let one = Rc::clone(&locks);
    let other = Rc::clone(&locks);
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || {
            let _first = one.0.lock();
            let _second = one.1.lock();
        }),
        Box::new(move || {
            while other.2.get() == 0 {
                let _second = other.1.lock();
                other.2.set(1);
            }
        }),
    ];
    (sim, programs)
}

#[test]
fn a_contended_lock_is_waited_for() {
    for strategy in (0..100).flat_map(strategies) {
        let (sim, programs) = two_locks();
        let report = explore::run(&sim, &ExploreSettings::default(), programs, &mut *strategy.chooser());
        assert_eq!((report.end, report.abandoned), (RunEnd::Completed, 0));
    }
}

#[test]
fn a_wait_that_no_cpu_ends_is_a_deadlock() {
    let (sim, _) = busy::<X86_64>();
    let lock = Rc::new(Lock::<TableRank>::new(0));
    let (holder, waiter, waits) = (Rc::clone(&lock), Rc::clone(&lock), sim.clone());
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || {
            let _held = holder.lock();
            loop {
                waits.relax();
            }
        }),
        Box::new(move || drop(waiter.lock())),
    ];
    let report = explore::run(&sim, &ExploreSettings::default(), programs, &mut ReplayChooser::default_schedule());
    let RunEnd::Deadlock { stopped_at } = report.end else { panic!("{:?}", report.end) };
    assert_eq!(stopped_at, [(CPU0, StopPoint::Relax), (CPU1, StopPoint::Wait), (CpuId::new(2), StopPoint::Idle)]);
    assert_eq!(report.abandoned, 2);
}

#[test]
fn a_panic_ends_the_run_and_the_other_programs_end() {
    let (sim, mut programs) = busy::<X86_64>();
    let ended = Rc::new(Cell::new(0));
    let program = programs.pop().expect("three programs");
    let (slot, panics, counts) = (PteSlot { table: Pfn::new(9), index: 0 }, sim.clone(), Rc::clone(&ended));
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || {
            panics.load(slot);
            panic!("entry {} is wrong", slot.index);
        }),
        Box::new(move || {
            (0..4).for_each(|_| counts.set(counts.get() + 1));
        }),
        program,
    ];
    let report = explore::run(&sim, &ExploreSettings::default(), programs, &mut ReplayChooser::default_schedule());
    let RunEnd::Panicked { cpu: CPU0, message } = report.end else { panic!("{:?}", report.end) };
    assert!(message.contains("tests/explore.rs") && message.ends_with("entry 0 is wrong"), "{message}");
    assert_eq!((ended.get(), report.abandoned), (4, 0));
}

#[test]
fn an_endless_program_reaches_the_step_limit() {
    let (sim, _) = busy::<X86_64>();
    let spins = sim.clone();
    let programs: Vec<CoroutineBody> = vec![Box::new(move || {
        loop {
            spins.load(PteSlot { table: Pfn::new(9), index: 0 });
        }
    })];
    let settings = ExploreSettings { max_steps: 500, ..ExploreSettings::default() };
    let report = explore::run(&sim, &settings, programs, &mut ReplayChooser::default_schedule());
    assert_eq!((report.end, report.steps, report.abandoned), (RunEnd::StepLimit, 500, 1));
}

/// Runs two CPUs that increment a word without a lock; it stops if an increment is lost.
fn increments(strategy: &ScheduleStrategy) -> RunReport {
    let sim = Bench::<X86_64>::with(|config| config.nodes[0].bytes = 1 << 20).sim;
    let slot = PteSlot { table: Pfn::new(9), index: 0 };
    let sum = Rc::new(RefCell::new(Vec::new()));
    let programs = (0..2).map(|_| {
        let (sim, sum) = (sim.clone(), Rc::clone(&sum));
        Box::new(move || {
            for _ in 0..3 {
                sim.load(PteSlot { table: Pfn::new(8), index: 0 });
            }
            let old = sim.load(slot);
            sim.store(slot, Pte::from_raw(old.raw() + 1));
            let new = sim.load(slot).raw();
            sum.borrow_mut().push(new);
        }) as CoroutineBody
    });
    let lost = Rc::clone(&sum);
    let enough = move || lost.borrow().len() == 2 && *lost.borrow() == [1, 1];
    let settings = ExploreSettings { stop: Some(Rc::new(enough)), ..ExploreSettings::default() };
    explore::run(&sim, &settings, programs.collect(), &mut *strategy.chooser())
}

#[test]
fn a_failing_schedule_shrinks_to_few_switches() {
    assert_eq!(
        increments(&ScheduleStrategy::List(Default::default())).end,
        RunEnd::Completed,
        "the default schedule loses an increment"
    );
    let failing = (0..100).flat_map(strategies).map(|strategy| increments(&strategy));
    let found =
        failing.into_iter().find(|report| report.end == RunEnd::Stopped).expect("a schedule that loses an increment");
    let fails =
        |schedule: &explore::Schedule| increments(&ScheduleStrategy::List(schedule.clone())).end == RunEnd::Stopped;
    let shrunk = explore::shrink(found.schedule, 1000, fails);
    assert!(fails(&shrunk));
    assert!(shrunk.switches() <= 2 && shrunk.runs.len() <= 3, "more than a switch between load and store: {shrunk}");
}

#[test]
fn every_kind_of_step_has_a_text() {
    let log: Vec<ScheduleStep> =
        (0..5).flat_map(strategies).flat_map(|strategy| under::<Aarch64>(&strategy).log).collect();
    let texts: Vec<String> = log.iter().map(ToString::to_string).collect();
    for part in
        ["takes a lock", "loads table", "stores 0x", "publishes", "sends an IPI to CPU", "store to 0x", "walks for 0x"]
    {
        assert!(texts.iter().any(|line| line.contains(part)), "no step says {part:?}");
    }
    assert!(log.iter().any(|step| matches!(step.action, StepAction::TookInterrupt)));
}

#[test]
fn a_machine_is_at_rest_and_fast_again_after_a_run() {
    let (sim, programs) = busy::<Aarch64>();
    let seen = sim.access(CPU1, page(0), Access::Read, 1).expect("mapped");
    let report = explore::run(&sim, &ExploreSettings::default(), programs, &mut *strategies(1)[0].chooser());
    assert_eq!(report.end, RunEnd::Completed);
    assert_eq!(sim.access(CPU1, page(0), Access::Read, 1), Ok(seen));
    sim.run_on(CPU1, || assert_eq!(sim.cpu(), CPU1));
}
