//! The interface of a judge.
//!
//! A judge is told facts, accesses and loaded roots in order. It sees everything cached, with its
//! root and its state.

use crate::common::{Bench, CPU0, page};
use pagewright_arch::{Effects, Invalidate, InvalidateScope, InvalidateTarget, Isa, LeafFlags, on_both};
use pagewright_sim::explore::{self, ExploreSettings, ReplayChooser, Schedule};
use pagewright_types::judge::{CachedEntry, CachedEntryKind, CachedEntryState, Fact, Judge, MemoryAccess, Witness};
use pagewright_types::{Access, CpuId, Level, Order, Pfn, Rights, Tag};
use std::cell::RefCell;
use std::rc::Rc;

const CPU1: CpuId = CpuId::new(1);

/// An event that the judge was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JudgeEvent {
    Fact(CpuId, Fact),
    Access(MemoryAccess),
    Loaded(CpuId, Pfn, Tag),
}

#[derive(Default)]
struct RecordingJudge(Vec<JudgeEvent>);

impl Judge for RecordingJudge {
    fn fact(&mut self, _: &dyn Witness, cpu: CpuId, fact: Fact) {
        self.0.push(JudgeEvent::Fact(cpu, fact));
    }

    fn access(&mut self, _: &dyn Witness, made: MemoryAccess) {
        self.0.push(JudgeEvent::Access(made));
    }

    fn loaded(&mut self, _: &dyn Witness, cpu: CpuId, root: Pfn, tag: Tag) {
        self.0.push(JudgeEvent::Loaded(cpu, root, tag));
    }
}

fn bind_recorder<I: Isa>(bench: &Bench<I>) -> Rc<RefCell<RecordingJudge>> {
    let judge = Rc::new(RefCell::new(RecordingJudge::default()));
    bench.sim.bind_judge(judge.clone());
    judge
}

fn cached<I: Isa>(bench: &Bench<I>) -> Vec<CachedEntry> {
    let mut all = Vec::new();
    bench.sim.cached(&mut |cached| all.push(cached));
    all
}

fn a_judge_is_told_everything_in_order<I: Isa>() {
    let bench = Bench::<I>::new();
    let judge = bind_recorder(&bench);
    let root = bench.frame(Level::PTE);
    bench.switch(CPU1, root, 3);
    let pfn = bench.map(root, Level::PTE, page(0), Rights::RW, LeafFlags::empty());
    for _ in 0..2 {
        bench.sim.access(CPU1, page(0).add(8), Access::Write, 5).expect("mapped");
    }
    bench.sim.access(CPU1, page(1), Access::Read, 1).expect_err("not mapped");
    let freed = Fact::FrameFreed { pfn, order: Order::ZERO };
    bench.sim.run_on(CPU1, || {
        bench.sim.declare(freed);
        bench.sim.set_lazy(true);
        bench.sim.set_lazy(false);
    });
    let made = |cached| {
        let at = pfn.base().add(8);
        JudgeEvent::Access(MemoryAccess { cpu: CPU1, root, va: page(0).add(8), access: Access::Write, at, cached })
    };
    let loaded = JudgeEvent::Loaded(CPU1, root, Tag::new(3));
    assert_eq!(judge.borrow().0, [loaded, made(false), made(true), JudgeEvent::Fact(CPU1, freed), loaded]);
    bench.sim.unbind_judge();
    bench.sim.declare(freed);
    assert_eq!(judge.borrow().0.len(), 5);
}

fn a_judge_sees_cached_entries_and_their_state<I: Isa>() {
    let bench = Bench::<I>::new();
    let root = bench.frame(Level::PTE);
    bench.switch(CPU0, root, 1);
    let pfn = bench.map(root, Level::PTE, page(5), Rights::READ, LeafFlags::empty());
    bench.sim.access(CPU0, page(5), Access::Read, 1).expect("mapped");
    let leaf = CachedEntryKind::Translation { pfn, rights: Rights::READ };
    let of_leaf = |all: &[CachedEntry]| all.iter().find(|cached| cached.kind == leaf).copied();
    let of_table = |all: &[CachedEntry]| {
        all.iter()
            .find(|cached| cached.level == Level::PMD && matches!(cached.kind, CachedEntryKind::Table { .. }))
            .copied()
    };
    let seen = of_leaf(&cached(&bench)).expect("the translation of the page is cached");
    assert_eq!((seen.cpu, seen.tag, seen.root, seen.va), (CPU0, Tag::new(1), root, page(5)));
    assert_eq!((seen.level, seen.global, seen.state), (Level::PTE, false, CachedEntryState::Usable));
    let table = of_table(&cached(&bench)).expect("the path to the page is cached");
    assert_eq!((table.root, table.state), (root, CachedEntryState::Usable));
    assert!(matches!(table.kind, CachedEntryKind::Table { allows, .. } if allows == Rights::all()));
    assert!(table.range().contains(page(5)));

    bench.sim.run_on(CPU0, || bench.sim.set_lazy(true));
    assert_eq!(
        of_leaf(&cached(&bench)).map(|cached| cached.state),
        Some(CachedEntryState::Condemned),
        "a lazy CPU does not run user mode"
    );
    assert_eq!(
        of_table(&cached(&bench)).map(|cached| cached.state),
        Some(CachedEntryState::Speculative),
        "the walker may still use it"
    );
    bench.sim.run_on(CPU0, || bench.sim.set_lazy(false));
    bench.switch(CPU0, bench.frame(Level::PTE), 2);
    let later = cached(&bench);
    assert_eq!(of_leaf(&later).map(|cached| (cached.state, cached.root)), Some((CachedEntryState::Condemned, root)));
    assert_eq!(of_table(&later).map(|cached| cached.state), Some(CachedEntryState::Condemned));
}

fn might_reach_counts_cached_entries<I: Isa>() {
    let bench = Bench::<I>::new();
    let root = bench.frame(Level::PTE);
    bench.switch(CPU0, root, 1);
    let before = bench.map(root, Level::PTE, page(0), Rights::RW, LeafFlags::empty());
    let large = bench.map(root, Level::PMD, page(512), Rights::RW, LeafFlags::empty());
    let touch = |number| bench.sim.access(CPU0, page(number), Access::Write, 1).expect("mapped");
    touch(0);
    assert!(bench.sim.might_reach(large, Order::PMD), "without a judge, every frame might be reached");
    let _judge = bind_recorder(&bench);
    let reaches = |pfn| bench.sim.might_reach(pfn, Order::ZERO);
    assert!(reaches(before), "entries cached before the judge was bound are not counted");
    assert!(!reaches(large.add(100)));
    touch(512);
    assert!(reaches(large.add(100)));
    bench.sim.run_on(CPU0, || {
        bench.sim.invalidate(Invalidate { scope: InvalidateScope::Local, target: InvalidateTarget::Tag(Tag::new(1)) });
    });
    assert!(!reaches(before) && !reaches(large.add(100)) && cached(&bench).is_empty());
}

/// Records everything cached when a fact is declared.
#[derive(Default)]
struct CacheRecorder(Vec<(CachedEntryKind, CachedEntryState)>);

impl Judge for CacheRecorder {
    fn fact(&mut self, witness: &dyn Witness, _: CpuId, _: Fact) {
        witness.cached(&mut |cached| self.0.push((cached.kind, cached.state)));
    }

    fn access(&mut self, _: &dyn Witness, _: MemoryAccess) {}

    fn loaded(&mut self, _: &dyn Witness, _: CpuId, _: Pfn, _: Tag) {}
}

/// A speculative walk has found a leaf and not filled a TLB yet: user mode must run to use it.
fn a_translation_in_flight_is_condemned_on_a_lazy_cpu<I: Isa>() {
    for (lazy, state) in [(false, CachedEntryState::Usable), (true, CachedEntryState::Condemned)] {
        let bench = Bench::<I>::new();
        let root = bench.frame(Level::PTE);
        let pfn = bench.map(root, Level::PTE, page(0), Rights::READ, LeafFlags::empty());
        bench.switch(CPU0, root, 1);
        let judge = Rc::new(RefCell::new(CacheRecorder::default()));
        bench.sim.bind_judge(judge.clone());
        let sim = bench.sim.clone();
        let program = move || {
            sim.set_lazy(lazy);
            sim.declare(Fact::CallReturned);
        };
        let settings = ExploreSettings { speculate_near: vec![page(0)], ..ExploreSettings::default() };
        // The program starts and sets lazy mode, a walk begins and reads four levels, and the
        // program declares a fact.
        let schedule: Schedule = "c0*2,s0,w0*4,c0".parse().expect("a schedule");
        explore::run(&bench.sim, &settings, vec![Box::new(program)], &mut ReplayChooser::new(&schedule));
        let found = CachedEntryKind::Translation { pfn, rights: Rights::READ };
        let seen: Vec<CachedEntryState> =
            judge.borrow().0.iter().filter(|(kind, _)| *kind == found).map(|(_, state)| *state).collect();
        assert_eq!(seen, [state]);
    }
}

on_both!(
    a_judge_is_told_everything_in_order,
    a_judge_sees_cached_entries_and_their_state,
    might_reach_counts_cached_entries,
    a_translation_in_flight_is_condemned_on_a_lazy_cpu,
);
