//! Batches: deferred flushes, what settles them, and which operations depend on them.
//!
//! INV-TLB-DEFERRED.

use super::space::{Space, is_free, machine, machine_with, page};
use crate::support::{Effect, Host, Step, on};
use pagewright_arch::on_both;
use pagewright_arch::{Aarch64, Caps, Invalidate, InvalidateScope, InvalidateTarget, Isa, X86_64};
use pagewright_tlb::{Batch, BatchPolicy, Gather, Tlb};
use pagewright_types::{Access, Counter, CpuId, CpuMask, IsaKind, Level, Tag};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

on_both! {
    many_spaces_cost_one_wait,
    frames_are_freed_after_the_wait,
    a_gather_flushes_what_a_batch_deferred_in_its_space,
    a_batch_whose_debts_are_settled_neither_flushes_nor_covers_what_came_later,
    a_gather_flushes_the_whole_space_only_while_it_depends_on_a_batch,
    a_dropped_batch_of_several_cpus_is_settled_before_its_frames_are_reused,
    an_install_flushes_what_a_batch_deferred_in_the_space,
    a_batch_absorbs_what_another_has_deferred,
    a_batch_does_not_absorb_its_own_deferral,
    an_absorbed_deferral_of_another_space_is_flushed,
    a_batch_of_several_spaces_does_not_cover_what_another_cpu_deferred,
    a_dropped_batch_is_settled_before_its_frames_are_reused,
    a_batch_below_the_floor_flushes_nothing,
    the_never_policy_defers_nothing,
    one_cpu_defers_nothing_except_under_the_always_policy,
    both_tags_of_a_space_are_flushed,
}

const CPUS: u16 = 4;

fn ipis(log: &[Step]) -> Vec<CpuMask> {
    let targets = |step: &Step| match step.effect {
        Effect::SendIpi(targets) => Some(targets),
        _ => None,
    };
    log.iter().filter_map(targets).collect()
}

fn count(log: &[Step], wanted: impl Fn(&Effect) -> bool) -> usize {
    log.iter().filter(|step| wanted(&step.effect)).count()
}

type Machine<I> = (Host<I>, Arc<Tlb<Host<I>>>, Vec<Space<I>>);

/// Three spaces, on CPUs 1 to 3, of which each has used its pages.
fn spaces<I: Isa>(pages: u16) -> Machine<I> {
    spaces_on(machine::<I>(usize::from(CPUS)), pages)
}

fn spaces_on<I: Isa>((host, tlb): (Host<I>, Arc<Tlb<Host<I>>>), pages: u16) -> Machine<I> {
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

fn waits(log: &[Step]) -> usize {
    count(log, |effect| matches!(effect, Effect::Complete | Effect::SendIpi(_)))
}

fn many_spaces_cost_one_wait<I: Isa>() {
    let (host, tlb, spaces) = spaces::<I>(8);
    let mut batch = Batch::new(&tlb);
    let ((), queued) = host.log(|| {
        for (space, index) in spaces.iter().flat_map(|space| (0..8).map(move |index| (space, index))) {
            batch.absorb(&space.context, space.clear(index));
        }
    });
    assert_eq!((batch.len(), waits(&queued)), (24, 0), "no CPU is waited for");
    let ((), settled) = host.log(|| batch.settle());
    assert_eq!(waits(&settled), 1);
    let counted = |counter| tlb.frames().counters().sum(counter);
    assert_eq!((counted(Counter::PwTlbBatchWaits), counted(Counter::NrTlbRemoteFlush)), (1, 1));
    if I::KIND == IsaKind::X86_64 {
        let mine = |step: &Step| step.cpu == CpuId::new(0) && matches!(step.effect, Effect::Invalidate(_));
        assert!(!settled.iter().any(mine), "the CPU that settles ran none of the spaces: {settled:?}");
    }
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
    assert_eq!(tlb.frames().folio(shared).refs(), 3, "ours, and those of both entries");
    batch.settle();
    assert!(is_free(&tlb, alone));
    assert_eq!(on(1, || host.access(page(1), Access::Read)), None);
    assert_eq!(tlb.frames().folio(shared).refs(), 1);
    tlb.free(tlb.frames().put(mine).expect("the last reference"));
}

fn a_gather_flushes_what_a_batch_deferred_in_its_space<I: Isa>() {
    let (host, tlb, spaces) = spaces::<I>(1);
    let space = &spaces[0];
    let mut batch = Batch::new(&tlb);
    batch.absorb(&space.context, space.clear(0));
    batch.absorb(&spaces[1].context, spaces[1].clear(0));
    assert!(host.cached(1) > 0);
    // It has found nothing, and says to its caller that nothing is there any more.
    space.depend();
    assert_eq!(host.cached(1), 0);
    // A barrier is for all that its CPU has issued.
    assert_eq!(host.cached(2) > 0, I::KIND == IsaKind::X86_64, "of a space that it has nothing to do with");
    let ((), log) = host.log(|| space.depend());
    assert_eq!(log, [], "it is known to be flushed");
    batch.settle();
    assert_eq!(host.cached(2), 0);
    let ((), log) = host.log(|| spaces[1].depend());
    assert_eq!(log, [], "and so is what was waited for");
}

/// An operation has flushed the space since; what another batch deferred then is still owed.
fn a_batch_whose_debts_are_settled_neither_flushes_nor_covers_what_came_later<I: Isa>() {
    for depends in [false, true] {
        let (host, tlb, spaces) = spaces::<I>(2);
        let space = &spaces[0];
        let (mut batch, mut later) = (Batch::new(&tlb), Batch::new(&tlb));
        batch.absorb(&space.context, space.clear(0));
        space.depend();
        assert!(on(1, || host.access(page(1), Access::Write)).is_some());
        later.absorb(&space.context, space.clear(1));
        if depends {
            batch.absorb_pending(&space.context, space.last());
        }
        let ((), log) = host.log(|| batch.settle());
        assert_eq!(log.is_empty(), !depends, "{log:?}");
        assert_eq!(on(1, || host.access(page(1), Access::Write)).is_some(), !depends);
        later.settle();
    }
}

/// What the gather edits later is flushed page by page again.
fn a_gather_flushes_the_whole_space_only_while_it_depends_on_a_batch<I: Isa>() {
    let (host, tlb, spaces) = spaces::<I>(3);
    let space = &spaces[0];
    let mut batch = Batch::new(&tlb);
    batch.absorb(&space.context, space.clear(0));
    let mut gather = Gather::new(&tlb, &space.context);
    gather.meet(space.last());
    gather.settle_so_far();
    assert_eq!(host.cached(1), 0, "of the whole space");
    for index in 1..3 {
        assert!(on(1, || host.access(page(index), Access::Write)).is_some());
    }
    gather.absorb(space.clear(1));
    gather.settle();
    assert_eq!(host.cached(1), 1, "the entry of page 2 stays");
    batch.settle();
}

fn an_install_flushes_what_a_batch_deferred_in_the_space<I: Isa>() {
    let (host, tlb, spaces) = spaces::<I>(1);
    let space = &spaces[0];
    let mut batch = Batch::new(&tlb);
    batch.absorb(&space.context, space.clear(0));
    batch.absorb(&spaces[1].context, spaces[1].clear(0));
    tlb.flush_before_install(&space.context, space.slot(0), page(0), Level::PTE);
    assert_eq!(host.cached(1), 0);
    batch.settle();
    let ((), log) = host.log(|| tlb.flush_before_install(&space.context, space.slot(0), page(0), Level::PTE));
    assert_eq!(log, []);
}

/// The lowest clock does not say so: CPUs that ran none of its spaces have flushed nothing.
#[test]
fn a_batch_whose_cpus_have_flushed_everything_does_not_wait() {
    for cleared in 1..=2 {
        let (host, tlb, spaces) = spaces::<X86_64>(1);
        let mut batch = Batch::new(&tlb);
        for space in &spaces[..cleared] {
            batch.absorb(&space.context, space.clear(0));
        }
        tlb.ledger().open(CpuMask::EMPTY);
        (1..3).for_each(|cpu| on(cpu, || tlb.cpu_starting()));
        let ((), log) = host.log(|| batch.settle());
        assert_eq!(log, [], "of {cleared} spaces");
        let count = |counter| tlb.frames().counters().sum(counter);
        assert_eq!((count(Counter::PwTlbBatchSettled), count(Counter::PwTlbBatchFlushed)), (1, 0));
    }
}

fn a_batch_absorbs_what_another_has_deferred<I: Isa>() {
    let (host, tlb, spaces) = spaces::<I>(1);
    let mut one = Batch::new(&tlb);
    one.absorb(&spaces[0].context, spaces[0].clear(0));
    let mut other = Batch::new(&tlb);
    other.absorb_pending(&spaces[0].context, spaces[0].last());
    other.absorb_pending(&spaces[1].context, spaces[1].last());
    assert_eq!(other.len(), 1, "no operation has cleared anything of the second");
    other.settle();
    assert_eq!(host.cached(1), 0);
    one.settle();
}

fn a_batch_does_not_absorb_its_own_deferral<I: Isa>() {
    let (host, tlb, spaces) = spaces::<I>(2);
    let (mut batch, mut other) = (Batch::new(&tlb), Batch::new(&tlb));
    for space in &spaces {
        batch.absorb(&space.context, space.clear(0));
        let ((), log) = host.log(|| batch.absorb_pending(&space.context, space.last()));
        assert_eq!(log, []);
    }
    assert_eq!(batch.len(), 3);
    // Another batch has deferred a flush since, on another CPU.
    on(1, || other.absorb(&spaces[1].context, spaces[1].clear(1)));
    tlb.ledger().open(CpuMask::EMPTY);
    batch.absorb_pending(&spaces[1].context, spaces[1].last());
    assert_eq!(batch.len(), if I::KIND == IsaKind::X86_64 { 3 } else { 4 }, "on x86-64 all its CPUs flush everything");
    batch.settle();
    assert_eq!(host.cached(2), 0);
    other.settle();
}

/// That its own space was flushed meanwhile says nothing about the other.
fn an_absorbed_deferral_of_another_space_is_flushed<I: Isa>() {
    let (host, tlb, spaces) = spaces::<I>(1);
    let (mut one, mut other) = (Batch::new(&tlb), Batch::new(&tlb));
    one.absorb(&spaces[1].context, spaces[1].clear(0));
    other.absorb(&spaces[0].context, spaces[0].clear(0));
    other.absorb_pending(&spaces[1].context, spaces[1].last());
    on(3, || spaces[0].depend());
    other.settle();
    assert_eq!(host.cached(2), 0);
    one.settle();
}

/// Although what the other CPU deferred is older than what the batch has.
fn a_batch_of_several_spaces_does_not_cover_what_another_cpu_deferred<I: Isa>() {
    let (host, tlb, spaces) = spaces::<I>(1);
    let (mut one, mut batch) = (Batch::new(&tlb), Batch::new(&tlb));
    on(1, || one.absorb(&spaces[2].context, spaces[2].clear(0)));
    spaces[..2].iter().for_each(|space| batch.absorb(&space.context, space.clear(0)));
    batch.absorb_pending(&spaces[2].context, spaces[2].last());
    batch.settle();
    assert_eq!([1, 2, 3].map(|cpu| host.cached(cpu)), [0; 3]);
    one.settle();
}

fn a_dropped_batch_is_settled_before_its_frames_are_reused<I: Isa>() {
    drop_batch::<I>(&[0]);
}

/// On arm64 the barrier of one CPU completes nothing that another has issued.
fn a_dropped_batch_of_several_cpus_is_settled_before_its_frames_are_reused<I: Isa>() {
    drop_batch::<I>(&[2, 3]);
    drop_batch::<I>(&[3, 2, 0]);
}

/// Unmaps a page of CPU 1 on the first of `issuers` and another page on each of the others.
fn drop_batch<I: Isa>(issuers: &[u16]) {
    let (host, tlb, spaces) = spaces::<I>(1);
    let pfn = spaces[0].map_new(1);
    assert!(on(1, || host.access(page(1), Access::Write)).is_some());
    let mut batch = Batch::new(&tlb);
    on(issuers[0], || batch.absorb(&spaces[0].context, spaces[0].unmap(1, pfn)));
    for issuer in &issuers[1..] {
        let another = spaces[1].map_new(1 + issuer);
        on(*issuer, || batch.absorb(&spaces[1].context, spaces[1].unmap(1 + issuer, another)));
    }
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

fn a_batch_below_the_floor_flushes_nothing<I: Isa>() {
    let (host, tlb, spaces) = spaces::<I>(1);
    let mut batch = Batch::new(&tlb);
    for space in &spaces {
        batch.absorb(&space.context, space.clear(0));
    }
    tlb.settle(tlb.ledger().open(CpuMask::first(usize::from(CPUS))));
    let ((), log) = host.log(|| batch.settle());
    assert_eq!(log, []);
    let count = |counter| tlb.frames().counters().sum(counter);
    assert_eq!((count(Counter::PwTlbBatchEntries), count(Counter::PwTlbBatchAtOnce)), (3, 0));
    assert_eq!((count(Counter::PwTlbBatchSettled), count(Counter::PwTlbBatchFlushed)), (1, 0));
    for cpu in 1..CPUS {
        assert_eq!(host.cached(cpu), 0, "of CPU {cpu}");
    }
}

fn the_never_policy_defers_nothing<I: Isa>() {
    let never = machine_with::<I>(usize::from(CPUS), Caps::baseline(I::KIND), BatchPolicy::Never);
    let (host, tlb, spaces) = spaces_on(never, 2);
    let pfn = spaces[0].map_new(2);
    let mut batch = Batch::new(&tlb);
    let ((), log) = host.log(|| {
        batch.absorb(&spaces[0].context, spaces[0].clear(0));
        batch.absorb(&spaces[0].context, spaces[0].clear(1));
        batch.absorb(&spaces[0].context, spaces[0].unmap(2, pfn));
    });
    assert_eq!((batch.len(), waits(&log), host.cached(1)), (0, 3, 0));
    assert!(!is_free(&tlb, pfn), "held until the batch is settled");
    let ((), log) = host.log(|| batch.settle());
    assert_eq!(waits(&log), 0);
    assert!(is_free(&tlb, pfn));
    assert_eq!(tlb.frames().counters().sum(Counter::PwTlbBatchAtOnce), 3);
}

fn one_cpu_defers_nothing_except_under_the_always_policy<I: Isa>() {
    for (policy, put_off) in [(BatchPolicy::Auto, 0), (BatchPolicy::Always, 1)] {
        let (host, tlb) = machine_with::<I>(1, Caps::baseline(I::KIND), policy);
        let space = Space::new(&tlb);
        space.run();
        space.map_new(0);
        assert!(host.access(page(0), Access::Write).is_some());
        let mut batch = Batch::new(&tlb);
        batch.absorb(&space.context, space.clear(0));
        assert_eq!((batch.len(), host.cached(0)), (put_off, put_off as usize), "{policy:?}");
        batch.settle();
        assert_eq!(host.cached(0), 0);
    }
}

/// As Linux with page-table isolation: user mode runs under a tag of its own.
fn both_tags_of_a_space_are_flushed<I: Isa>() {
    let bit = match I::KIND {
        IsaKind::X86_64 => 1 << 11,
        IsaKind::Aarch64 => 1,
    };
    let caps = Caps { user_tag_bit: Some(Tag::new(bit)), ..Caps::baseline(I::KIND) };
    for policy in [BatchPolicy::Auto, BatchPolicy::Never] {
        let (host, tlb, spaces) = spaces_on(machine_with::<I>(usize::from(CPUS), caps, policy), 2);
        let mut batch = Batch::new(&tlb);
        let ((), log) = host.log(|| {
            spaces.iter().for_each(|space| batch.absorb(&space.context, space.clear(0)));
            batch.settle();
        });
        let tags: Vec<u16> = log.iter().filter_map(|step| tag_of(&step.effect)).collect();
        let (user, kernel): (Vec<u16>, Vec<u16>) = tags.iter().partition(|tag| **tag & bit != 0);
        assert_eq!(user, kernel.iter().map(|tag| tag | bit).collect::<Vec<_>>(), "{policy:?}: {log:?}");
        assert!(I::KIND == IsaKind::X86_64 && policy == BatchPolicy::Auto || user.len() == 3, "{policy:?}");
        for cpu in 1..CPUS {
            assert_eq!(on(cpu, || host.access(page(0), Access::Read)), None, "{policy:?}: CPU {cpu}");
        }
    }
}

fn tag_of(effect: &Effect) -> Option<u16> {
    match effect {
        Effect::Invalidate(Invalidate { target, .. }) => match target {
            InvalidateTarget::Page { tag, .. } | InvalidateTarget::Range { tag, .. } | InvalidateTarget::Tag(tag) => {
                Some(tag.raw())
            }
            InvalidateTarget::PageOfAllTags { .. } | InvalidateTarget::AllTags | InvalidateTarget::Everything => None,
        },
        _ => None,
    }
}

/// A TLBI that may be incomplete is waited for and issued again, so a batch would save nothing.
#[test]
fn with_the_erratum_each_invalidation_is_repeated_and_none_deferred() {
    let caps = Caps { repeat_invalidate: true, ..Caps::baseline(IsaKind::Aarch64) };
    let (host, tlb, spaces) = spaces_on(machine_with::<Aarch64>(usize::from(CPUS), caps, BatchPolicy::Always), 1);
    let tag = on(1, || host.root()).expect("it runs").1;
    let mut batch = Batch::new(&tlb);
    let ((), log) = host.log(|| batch.absorb(&spaces[0].context, spaces[0].clear(0)));
    let target = InvalidateTarget::Page { tag, va: page(0), level: Level::PTE, last_level: true };
    let once = Effect::Invalidate(Invalidate { scope: InvalidateScope::Broadcast, target });
    let effects: Vec<Effect> = log.iter().map(|step| step.effect).collect();
    assert_eq!(effects[1..], [Effect::Publish, once, Effect::Complete, once, Effect::Complete]);
    assert_eq!(batch.len(), 0);
    batch.settle();
}

/// On x86-64 a CPU that runs a space alone waits for no other.
#[test]
fn a_space_on_no_other_cpu_is_flushed_at_once() {
    let (host, tlb, spaces) = spaces::<X86_64>(1);
    let mut batch = Batch::new(&tlb);
    let ((), log) = host.log(|| on(1, || batch.absorb(&spaces[0].context, spaces[0].clear(0))));
    assert_eq!((batch.len(), waits(&log), host.cached(1)), (0, 0, 0));
    let ((), log) = host.log(|| on(1, || batch.absorb(&spaces[1].context, spaces[1].clear(0))));
    assert_eq!((batch.len(), waits(&log)), (1, 0), "CPU 2 has that one");
    on(1, || batch.settle());
    assert_eq!(host.cached(2), 0);
}

/// A barrier that the issuer has executed since completes its invalidations on every CPU.
///
/// The reason of that barrier does not matter.
#[test]
fn a_later_dsb_of_the_issuer_spares_the_wait_of_the_batch() {
    for settles in [0, 1] {
        let (host, tlb, spaces) = spaces::<Aarch64>(2);
        let mut batch = Batch::new(&tlb);
        batch.absorb(&spaces[0].context, spaces[0].clear(0));
        // Each flush that is deferred from now on is younger than the barrier that follows.
        tlb.ledger().open(CpuMask::EMPTY);
        spaces[1].clear(1).settle();
        let ((), log) = host.log(|| on(settles, || batch.settle()));
        assert_eq!((log, host.cached(1)), (vec![], 1), "on CPU {settles}; its page 1 is still mapped");
    }
}

/// An operation that depended on an entry has flushed the space, so the batch has nothing to do.
#[test]
fn a_batch_whose_space_was_flushed_since_does_not_wait() {
    let (host, tlb, spaces) = spaces::<Aarch64>(1);
    let mut batch = Batch::new(&tlb);
    batch.absorb(&spaces[0].context, spaces[0].clear(0));
    on(1, || spaces[0].depend());
    assert_eq!(tlb.frames().counters().sum(Counter::PwTlbBatchOvertaken), 1);
    let ((), log) = host.log(|| batch.settle());
    assert_eq!((log, host.cached(1)), (vec![], 0));
}

/// A CPU that has flushed everything since, and one that is lazy, gets no IPI.
#[test]
fn cpus_already_flushed_get_no_ipi() {
    let (host, tlb, spaces) = spaces::<X86_64>(1);
    let mut batch = Batch::new(&tlb);
    for space in &spaces {
        batch.absorb(&space.context, space.clear(0));
    }
    // CPU 2 flushes for a debt of its own; CPU 3 runs a kernel thread.
    tlb.settle(tlb.ledger().open(CpuMask::of(CpuId::new(2))));
    on(3, || tlb.enter_lazy());
    let before = tlb.frames().counters().sum(Counter::PwTlbSettledAlready);
    let ((), log) = host.log(|| batch.settle());
    assert_eq!(ipis(&log), [CpuMask::of(CpuId::new(1))]);
    assert_eq!(tlb.frames().counters().sum(Counter::PwTlbSettledAlready) - before, 2);
    assert!(host.cached(3) > 0, "it can't use it");
    on(3, || spaces[2].run());
    assert_eq!(on(3, || host.access(page(0), Access::Read)), None, "caught up by its generation");
}

/// Only the barrier of the CPU that issued an invalidation completes it.
///
/// Another CPU issues it again, for the one space or for all.
#[test]
fn only_the_issuer_completes_a_batch_without_issuing_again() {
    let issued = |log: &[Step]| -> Vec<InvalidateTarget> {
        let target = |step: &Step| match step.effect {
            Effect::Invalidate(Invalidate { target, .. }) => Some(target),
            _ => None,
        };
        log.iter().filter_map(target).collect()
    };
    for (settles, among) in [(0, 1), (1, 1), (1, 2)] {
        let (host, tlb, spaces) = spaces::<Aarch64>(1);
        let tag = on(1, || host.root()).expect("it runs").1;
        let mut batch = Batch::new(&tlb);
        spaces[..among].iter().for_each(|space| batch.absorb(&space.context, space.clear(0)));
        let ((), log) = host.log(|| on(settles, || batch.settle()));
        let again = match (settles, among) {
            (0, _) => vec![],
            (_, 1) => vec![InvalidateTarget::Tag(tag)],
            _ => vec![InvalidateTarget::AllTags],
        };
        assert_eq!((issued(&log), count(&log, |effect| *effect == Effect::Complete)), (again, 1));
        assert_eq!(host.cached(1), 0);
    }
}
