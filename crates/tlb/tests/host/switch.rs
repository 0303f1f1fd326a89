//! Contexts and families of spaces: how they are made, and which CPUs a context names.
//!
//! INV-TLB-SWITCH.

use super::space::{Space, machine, page};
use crate::refusing_heap::refusing;
use crate::support::{Effect, Host, declared, on};
use pagewright_arch::{Isa, on_both};
use pagewright_tlb::{Batch, Family, Tlb};
use pagewright_types::judge::Fact;
use pagewright_types::{Access, Counter, CpuId, CpuMask, IsaKind, Order};
use std::sync::Arc;

on_both! {
    a_context_names_the_cpus_that_run_its_space,
    a_lazy_cpu_is_named_while_it_stays_on_the_root,
    what_a_switch_flushes_is_counted,
    a_switch_to_the_space_that_runs_flushes_nothing,
    the_empty_root_is_declared_as_reused,
    a_context_or_family_without_memory_is_an_error,
}

fn cpus(numbers: impl IntoIterator<Item = u16>) -> CpuMask {
    numbers.into_iter().map(CpuId::new).collect()
}

/// Two spaces, the first of which CPUs 1 and 2 run.
fn two_spaces<I: Isa>() -> (Arc<Tlb<Host<I>>>, Space<I>, Space<I>) {
    let (_host, tlb) = machine::<I>(4);
    let (space, other) = (Space::new(&tlb), Space::new(&tlb));
    [1, 2].iter().for_each(|cpu| on(*cpu, || space.run()));
    (tlb, space, other)
}

fn a_context_names_the_cpus_that_run_its_space<I: Isa>() {
    let (tlb, space, other) = two_spaces::<I>();
    assert_eq!((space.context.cpus(), other.context.cpus()), (cpus([1, 2]), CpuMask::EMPTY));
    on(1, || space.run());
    assert_eq!(space.context.cpus(), cpus([1, 2]), "it runs it already");
    on(1, || other.run());
    assert_eq!((space.context.cpus(), other.context.cpus()), (cpus([2]), cpus([1])));
    on(2, || tlb.leave_space());
    assert_eq!((space.context.cpus(), other.context.cpus()), (CpuMask::EMPTY, cpus([1])));
}

/// On arm64 it leaves the root at once.
fn a_lazy_cpu_is_named_while_it_stays_on_the_root<I: Isa>() {
    let (tlb, space, other) = two_spaces::<I>();
    let stays = I::KIND == IsaKind::X86_64;
    on(1, || {
        tlb.enter_lazy();
        assert_eq!(tlb.fx().is_lazy(), stays, "a CPU that leaves the root reaches no user memory");
    });
    assert_eq!(space.context.cpus(), if stays { cpus([1, 2]) } else { cpus([2]) });
    on(1, || {
        space.run();
        assert!(!tlb.fx().is_lazy());
    });
    assert_eq!(space.context.cpus(), cpus([1, 2]));
    for other in [&other, &space] {
        other.map_new(0);
        on(1, || {
            tlb.enter_lazy();
            other.run();
            assert!(tlb.fx().access(page(0), Access::Read).is_some());
        });
        assert!(other.context.cpus().contains(CpuId::new(1)));
    }
    assert_eq!((space.context.cpus(), other.context.cpus()), (cpus([1, 2]), CpuMask::EMPTY));
}

/// On arm64 nothing is flushed until the tags run out.
fn what_a_switch_flushes_is_counted<I: Isa>() {
    let (tlb, space, other) = two_spaces::<I>();
    let flushed = || tlb.frames().counters().sum(Counter::NrTlbLocalFlushAll);
    let expected = |flushes| if I::KIND == IsaKind::X86_64 { flushes } else { 0 };
    assert_eq!(flushed(), expected(2), "the space is new to CPUs 1 and 2");
    on(1, || other.run());
    assert_eq!(flushed(), expected(3));
    on(1, || space.run());
    assert_eq!(flushed(), expected(3), "CPU 1 has kept what it had of it");
    on(1, || tlb.enter_lazy());
    space.map_new(0);
    space.clear(0).settle();
    on(1, || space.run());
    assert_eq!(flushed(), expected(4), "it has missed a flush");
}

/// A batch settles what it has deferred, by itself.
fn a_switch_to_the_space_that_runs_flushes_nothing<I: Isa>() {
    let (host, tlb) = machine::<I>(2);
    let space = Space::new(&tlb);
    on(1, || space.run());
    space.map_new(0);
    let mut batch = Batch::new(&tlb);
    batch.absorb(&space.context, space.clear(0));
    let ((), log) = host.log(|| on(1, || space.run()));
    assert!(!log.iter().any(|step| matches!(step.effect, Effect::Invalidate(_))), "{log:?}");
    batch.settle();
}

fn the_empty_root_is_declared_as_reused<I: Isa>() {
    let ((_host, tlb), facts) = declared(|| machine::<I>(1));
    let root = Fact::FrameReused { pfn: tlb.kernel_root(), order: Order::ZERO };
    assert!(facts.contains(&root), "{facts:?}");
}

fn a_context_or_family_without_memory_is_an_error<I: Isa>() {
    let (_host, tlb) = machine::<I>(1);
    let space = Space::new(&tlb);
    let (context, refused) = refusing(0, || tlb.open_context(tlb.kernel_root()));
    assert_eq!(context.err().map(|error| error.bytes), refused);
    let family = Family::<Host<I>>::try_new().expect("memory is left");
    let (joined, refused) = refusing(0, || family.join(&space.context));
    assert!(joined.is_err() && refused.is_some(), "{joined:?} by the heap, {refused:?}");
    assert_eq!(family.token().members(), 0);
}
