//! What a judge hears and sees: facts, accesses and roots in the order in which they happen;
//! everything cached, where it came from, and whether it can be used.

mod common;

use common::{Bench, CPU0, both, page};
use pagewright_arch::{Effects, Invalidate, InvalidateScope, InvalidateTarget, Isa, LeafFlags};
use pagewright_sim::explore::{self, ExploreSettings, ReplayChooser, Schedule};
use pagewright_types::judge::{CachedEntry, CachedEntryKind, CachedEntryState, Fact, Judge, MemoryAccess, Witness};
use pagewright_types::{Access, CpuId, Level, Order, Pfn, Rights, Tag};
use std::cell::RefCell;
use std::rc::Rc;

const CPU1: CpuId = CpuId::new(1);

/// What was heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    Fact(CpuId, Fact),
    Access(MemoryAccess),
    Loaded(CpuId, Pfn, Tag),
}

#[derive(Default)]
struct Ear(Vec<Heard>);

impl Judge for Ear {
    fn fact(&mut self, _: &dyn Witness, cpu: CpuId, fact: Fact) {
        self.0.push(Heard::Fact(cpu, fact));
    }

    fn access(&mut self, _: &dyn Witness, made: MemoryAccess) {
        self.0.push(Heard::Access(made));
    }

    fn loaded(&mut self, _: &dyn Witness, cpu: CpuId, root: Pfn, tag: Tag) {
        self.0.push(Heard::Loaded(cpu, root, tag));
    }
}

fn listening<I: Isa>(bench: &Bench<I>) -> Rc<RefCell<Ear>> {
    let ear = Rc::new(RefCell::new(Ear::default()));
    bench.sim.bind_judge(ear.clone());
    ear
}

fn told<I: Isa>(bench: &Bench<I>) -> Vec<CachedEntry> {
    let mut all = Vec::new();
    bench.sim.cached(&mut |cached| all.push(cached));
    all
}

fn hears_in_order<I: Isa>() {
    let bench = Bench::<I>::new();
    let ear = listening(&bench);
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
        Heard::Access(MemoryAccess { cpu: CPU1, root, va: page(0).add(8), access: Access::Write, at, cached })
    };
    let loaded = Heard::Loaded(CPU1, root, Tag::new(3));
    assert_eq!(ear.borrow().0, [loaded, made(false), made(true), Heard::Fact(CPU1, freed), loaded]);
    bench.sim.unbind_judge();
    bench.sim.declare(freed);
    assert_eq!(ear.borrow().0.len(), 5);
}

fn sees_what_is_cached_and_whether_it_can_be_used<I: Isa>() {
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
    let seen = of_leaf(&told(&bench)).expect("the page that was read");
    assert_eq!((seen.cpu, seen.tag, seen.root, seen.va), (CPU0, Tag::new(1), root, page(5)));
    assert_eq!((seen.level, seen.global, seen.state), (Level::PTE, false, CachedEntryState::Usable));
    let table = of_table(&told(&bench)).expect("the way to it");
    assert_eq!((table.root, table.state), (root, CachedEntryState::Usable));
    assert!(table.range().contains(page(5)));

    bench.sim.run_on(CPU0, || bench.sim.set_lazy(true));
    assert_eq!(of_leaf(&told(&bench)).map(|cached| cached.state), Some(CachedEntryState::Condemned), "no user mode");
    assert_eq!(
        of_table(&told(&bench)).map(|cached| cached.state),
        Some(CachedEntryState::Usable),
        "the walker may still use it"
    );
    bench.sim.run_on(CPU0, || bench.sim.set_lazy(false));
    bench.switch(CPU0, bench.frame(Level::PTE), 2);
    let later = told(&bench);
    assert_eq!(of_leaf(&later).map(|cached| (cached.state, cached.root)), Some((CachedEntryState::Condemned, root)));
    assert_eq!(of_table(&later).map(|cached| cached.state), Some(CachedEntryState::Condemned));
}

fn counts_who_reaches_a_frame<I: Isa>() {
    let bench = Bench::<I>::new();
    let root = bench.frame(Level::PTE);
    bench.switch(CPU0, root, 1);
    let before = bench.map(root, Level::PTE, page(0), Rights::RW, LeafFlags::empty());
    let large = bench.map(root, Level::PMD, page(512), Rights::RW, LeafFlags::empty());
    let touch = |number| bench.sim.access(CPU0, page(number), Access::Write, 1).expect("mapped");
    touch(0);
    assert!(bench.sim.might_reach(large, Order::PMD), "nobody counts yet");
    let _ear = listening(&bench);
    let reaches = |pfn| bench.sim.might_reach(pfn, Order::ZERO);
    assert!(reaches(before), "what was cached before the judge came is counted");
    assert!(!reaches(large.add(100)));
    touch(512);
    assert!(reaches(large.add(100)));
    bench.sim.run_on(CPU0, || {
        bench.sim.invalidate(Invalidate { scope: InvalidateScope::Local, target: InvalidateTarget::Tag(Tag::new(1)) });
    });
    assert!(!reaches(before) && !reaches(large.add(100)) && told(&bench).is_empty());
}

/// Notes what CPU 0 remembers as a translation when a fact is declared.
#[derive(Default)]
struct Eye(Vec<(CachedEntryKind, CachedEntryState)>);

impl Judge for Eye {
    fn fact(&mut self, witness: &dyn Witness, _: CpuId, _: Fact) {
        witness.cached(&mut |cached| self.0.push((cached.kind, cached.state)));
    }

    fn access(&mut self, _: &dyn Witness, _: MemoryAccess) {}

    fn loaded(&mut self, _: &dyn Witness, _: CpuId, _: Pfn, _: Tag) {}
}

/// A walk that nobody asked for has found a leaf and not filled a TLB yet.
///
/// User mode can use it only where it runs.
fn what_a_walk_has_found_is_out_of_reach_on_a_lazy_cpu<I: Isa>() {
    for (lazy, state) in [(false, CachedEntryState::Usable), (true, CachedEntryState::Condemned)] {
        let bench = Bench::<I>::new();
        let root = bench.frame(Level::PTE);
        let pfn = bench.map(root, Level::PTE, page(0), Rights::READ, LeafFlags::empty());
        bench.switch(CPU0, root, 1);
        let eye = Rc::new(RefCell::new(Eye::default()));
        bench.sim.bind_judge(eye.clone());
        let sim = bench.sim.clone();
        let program = move || {
            sim.set_lazy(lazy);
            sim.declare(Fact::CallReturned);
        };
        let settings = ExploreSettings { speculate_near: vec![page(0)], ..ExploreSettings::default() };
        // It starts, says whether it is lazy; the walk begins and reads four levels; it declares.
        let schedule: Schedule = "c0*2,s0,w0*4,c0".parse().expect("a schedule");
        explore::run(&bench.sim, &settings, vec![Box::new(program)], &mut ReplayChooser::new(&schedule));
        let found = CachedEntryKind::Translation { pfn, rights: Rights::READ };
        let seen: Vec<CachedEntryState> =
            eye.borrow().0.iter().filter(|(what, _)| *what == found).map(|(_, how)| *how).collect();
        assert_eq!(seen, [state]);
    }
}

both!(
    hears_in_order,
    sees_what_is_cached_and_whether_it_can_be_used,
    counts_who_reaches_a_frame,
    what_a_walk_has_found_is_out_of_reach_on_a_lazy_cpu,
);
