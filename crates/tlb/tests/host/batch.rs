//! Batches: flushes that are put off, what pays them, and who asks whether they were. INV-TLB-DEFERRED.

use crate::on_both;
use crate::space::{Space, is_free, machine, page};
use crate::support::{Effect, Host, Step, on};
use pagewright_arch::{Aarch64, Isa, IsaKind, X86_64};
use pagewright_tlb::{Batch, Gather, Tlb};
use pagewright_types::{Access, Counter, CpuId, CpuMask, Level, PageRange};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

on_both! {
    many_spaces_cost_one_wait,
    frames_are_freed_after_the_wait,
    a_gather_takes_along_what_was_put_off,
    who_puts_an_entry_where_one_was_cleared_flushes_it,
    a_batch_takes_along_what_another_has_cleared,
    a_dropped_batch_is_settled_before_its_frames_are_reused,
}

const CPUS: u16 = 4;

fn kicks(log: &[Step]) -> Vec<CpuMask> {
    let kick = |step: &Step| match step.effect {
        Effect::Kick(targets) => Some(targets),
        _ => None,
    };
    log.iter().filter_map(kick).collect()
}

fn count(log: &[Step], wanted: impl Fn(&Effect) -> bool) -> usize {
    log.iter().filter(|step| wanted(&step.effect)).count()
}

type Machine<I> = (Host<I>, Arc<Tlb<Host<I>>>, Vec<Space<I>>);

/// Three spaces, on CPUs 1 to 3, of which each has used its pages.
fn spaces<I: Isa>(pages: u16) -> Machine<I> {
    let (host, tlb) = machine::<I>(usize::from(CPUS));
    let spaces: Vec<Space<I>> = (1..CPUS).map(|_| Space::new(&tlb)).collect();
    for (cpu, space) in (1..).zip(&spaces) {
        on(cpu, || space.run());
        for index in 0..pages {
            space.map_new(index);
            assert!(on(cpu, || host.access(page(index), Access::Write)).is_some());
        }
    }
    (host, tlb, spaces)
}

fn many_spaces_cost_one_wait<I: Isa>() {
    let (host, tlb, spaces) = spaces::<I>(8);
    let mut batch = Batch::new(&tlb);
    let ((), queued) = host.log(|| {
        for (space, index) in spaces.iter().flat_map(|space| (0..8).map(move |index| (space, index))) {
            batch.absorb(&space.context, space.clear(index));
        }
    });
    let waits = |log: &[Step]| count(log, |effect| matches!(effect, Effect::Complete | Effect::Kick(_)));
    assert_eq!((batch.len(), waits(&queued)), (24, 0), "nobody is waited for");
    let ((), settled) = host.log(|| batch.settle());
    assert_eq!(waits(&settled), 1);
    for cpu in 1..CPUS {
        assert_eq!(host.cached(cpu), 0, "of CPU {cpu}");
    }
}

fn frames_are_freed_after_the_wait<I: Isa>() {
    let (host, tlb, spaces) = spaces::<I>(1);
    let space = &spaces[0];
    let (alone, shared) = (space.map_new(1), space.map_new(2));
    assert!(on(1, || host.access(page(1), Access::Write)).is_some());
    let mine = tlb.frames().folio(shared).get();
    // Another entry of the same folio.
    space.map(3, tlb.frames().folio(shared).get().into_raw());
    let mut batch = Batch::new(&tlb);
    batch.absorb(&space.context, space.unmap(1, alone));
    batch.absorb(&space.context, space.unmap(2, shared));
    batch.absorb(&space.context, space.unmap(3, shared));
    assert!(!is_free(&tlb, alone));
    assert_eq!(tlb.frames().folio(shared).refs(), 2, "ours, and one of the batch for both entries");
    batch.settle();
    assert!(is_free(&tlb, alone));
    assert_eq!(on(1, || host.access(page(1), Access::Read)), None);
    assert_eq!(tlb.frames().folio(shared).refs(), 1);
    tlb.free(tlb.frames().put(mine).expect("the last reference"));
}

fn a_gather_takes_along_what_was_put_off<I: Isa>() {
    let (host, tlb, spaces) = spaces::<I>(1);
    let space = &spaces[0];
    let mut batch = Batch::new(&tlb);
    batch.absorb(&space.context, space.clear(0));
    batch.absorb(&spaces[1].context, spaces[1].clear(0));
    assert!(host.cached(1) > 0);
    // It has found nothing, and says to its caller that nothing is there any more.
    Gather::new(&tlb, &space.context).settle();
    assert_eq!(host.cached(1), 0);
    // A barrier is for all that its CPU has issued.
    assert_eq!(host.cached(2) > 0, I::KIND == IsaKind::X86_64, "of a space that it has nothing to do with");
    let ((), log) = host.log(|| Gather::new(&tlb, &space.context).settle());
    assert_eq!(log, [], "it is known to be flushed");
    batch.settle();
    assert_eq!(host.cached(2), 0);
    let ((), log) = host.log(|| Gather::new(&tlb, &spaces[1].context).settle());
    assert_eq!(log, [], "and so is what was waited for");
}

fn who_puts_an_entry_where_one_was_cleared_flushes_it<I: Isa>() {
    let (host, tlb, spaces) = spaces::<I>(1);
    let space = &spaces[0];
    let mut batch = Batch::new(&tlb);
    batch.absorb(&space.context, space.clear(0));
    batch.absorb(&spaces[1].context, spaces[1].clear(0));
    tlb.flush_cleared(&space.context, PageRange::page(page(0)), Level::PTE);
    assert_eq!(host.cached(1), 0);
    batch.settle();
    let ((), log) = host.log(|| tlb.flush_cleared(&space.context, PageRange::page(page(0)), Level::PTE));
    assert_eq!(log, []);
}

fn a_batch_takes_along_what_another_has_cleared<I: Isa>() {
    let (host, tlb, spaces) = spaces::<I>(1);
    let mut one = Batch::new(&tlb);
    one.absorb(&spaces[0].context, spaces[0].clear(0));
    let mut other = Batch::new(&tlb);
    other.take_along(&spaces[0].context);
    other.take_along(&spaces[1].context);
    assert_eq!(other.len(), 1, "nobody has cleared anything of the second");
    other.settle();
    assert_eq!(host.cached(1), 0);
    one.settle();
}

fn a_dropped_batch_is_settled_before_its_frames_are_reused<I: Isa>() {
    let (host, tlb, spaces) = spaces::<I>(1);
    let pfn = spaces[0].map_new(1);
    assert!(on(1, || host.access(page(1), Access::Write)).is_some());
    let mut batch = Batch::new(&tlb);
    batch.absorb(&spaces[0].context, spaces[0].unmap(1, pfn));
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(batch)));
    assert_eq!(dropped.is_err(), cfg!(debug_assertions));
    let mut taken = Vec::new();
    loop {
        let block = tlb.alloc(tlb.request(pagewright_types::Order::ZERO)).expect("the frame is somewhere");
        let found = block.pfn() == pfn;
        taken.push(block);
        if found {
            break;
        }
    }
    assert_eq!(on(1, || host.access(page(1), Access::Read)), None, "CPU 1 reaches a frame that is reused");
    taken.into_iter().for_each(|block| tlb.free(block));
}

/// Who has flushed everything since, and who is lazy, is sent no interrupt.
#[test]
fn who_has_paid_is_not_interrupted() {
    let (host, tlb, spaces) = spaces::<X86_64>(1);
    let mut batch = Batch::new(&tlb);
    for space in &spaces {
        batch.absorb(&space.context, space.clear(0));
    }
    // CPU 2 flushes for a debt of its own; CPU 3 runs a kernel thread.
    tlb.settle(tlb.ledger().open(CpuMask::of(CpuId::new(2))));
    on(3, || tlb.enter_lazy());
    let before = tlb.frames().counters().sum(Counter::PwTlbPaidAlready);
    let ((), log) = host.log(|| batch.settle());
    assert_eq!(kicks(&log), [CpuMask::of(CpuId::new(1))]);
    assert_eq!(tlb.frames().counters().sum(Counter::PwTlbPaidAlready) - before, 2);
    assert!(host.cached(3) > 0, "it can't use it");
    on(3, || spaces[2].run());
    assert_eq!(on(3, || host.access(page(0), Access::Read)), None, "caught up by its generation");
}

/// Only the barrier of the CPU that issued ends an invalidation; on another one it is issued again.
#[test]
fn the_wait_is_on_the_cpu_that_issued() {
    let is_broadcast = |effect: &Effect| matches!(effect, Effect::Invalidate(_));
    for (settles, again) in [(0, 0), (1, 1)] {
        let (host, tlb, spaces) = spaces::<Aarch64>(1);
        let mut batch = Batch::new(&tlb);
        batch.absorb(&spaces[0].context, spaces[0].clear(0));
        let ((), log) = host.log(|| on(settles, || batch.settle()));
        assert_eq!((count(&log, is_broadcast), count(&log, |effect| *effect == Effect::Complete)), (again, 1));
        assert_eq!(host.cached(1), 0);
    }
}
