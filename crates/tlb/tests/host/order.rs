//! The order of a flush, read from the log of effects.
//!
//! Nothing is free before every CPU has flushed it (INV-TLB-ORDER, INV-TLB-SHARED).

use super::space::{FRAMES, Space, is_free, machine, page, take_back};
use crate::support::{Delivery, Effect, Host, Step, engine, on};
use pagewright_arch::on_both;
use pagewright_arch::{
    Caps, Effects, Invalidate, InvalidateScope, InvalidateTarget, Isa, Leaf, LeafFlags, Pte, PteSlot,
};
use pagewright_tlb::frames::FolioRef;
use pagewright_tlb::{Debt, DetachedPiece, Gather, IntoDetachedPieces, OwedFlush};
use pagewright_types::{Access, CpuId, IsaKind, Level, Pfn, Rights};
use std::sync::Arc;

on_both! {
    a_frame_is_freed_only_after_every_tlb_is_flushed,
    a_table_is_freed_only_after_walk_caches_are_flushed,
    one_flush_settles_a_gather,
    shared_references_are_held_until_the_flush,
    an_overflowing_gather_settles_early_and_loses_nothing,
    a_debt_of_many_references_settles_early,
    an_edit_that_owes_no_flush_causes_none,
    leaves_of_two_levels_are_both_flushed,
    a_full_space_gather_flushes_once,
    a_concurrent_gather_flushes_what_another_cleared,
}

/// Where in a log a step of some kind stands: first and last.
fn places(log: &[Step], of: impl Fn(&Step) -> bool) -> (usize, usize) {
    let first = log.iter().position(&of).expect("there is such a step");
    (first, log.iter().rposition(&of).expect("there is such a step"))
}

/// Asserts the order: store, publish, invalidate, acknowledged or completed.
///
/// The probe saw nothing free before the end.
fn assert_order(isa: IsaKind, log: &[Step], answers: &[CpuId]) {
    let stored = places(log, |s| matches!(s.effect, Effect::Store(..))).1;
    let published = places(log, |s| s.effect == Effect::Publish).1;
    let invalidated = places(log, |s| matches!(s.effect, Effect::Invalidate(_)));
    assert!(stored < published && published < invalidated.0, "store, publish, invalidate: {log:?}");
    let end = match isa {
        IsaKind::X86_64 => {
            for cpu in answers {
                let told = |s: &Step| s.cpu == *cpu && matches!(s.effect, Effect::Invalidate(_));
                let answered = places(log, |s| s.cpu == *cpu && s.effect == Effect::Answered).0;
                assert!(places(log, told).1 < answered, "CPU {cpu} answers after it has forgotten: {log:?}");
            }
            log.len() - 1
        }
        IsaKind::Aarch64 => {
            let completed = places(log, |s| s.effect == Effect::Complete).0;
            assert!(invalidated.1 < completed, "the barrier waits for all of them: {log:?}");
            completed
        }
    };
    for step in &log[..=end] {
        assert_eq!(step.probe, 0, "free at {step:?} of {log:?}");
    }
}

fn a_frame_is_freed_only_after_every_tlb_is_flushed<I: Isa>() {
    let (host, tlb) = machine::<I>(3);
    let space = Space::new(&tlb);
    let pfn = space.map_new(5);
    for cpu in 0..3 {
        on(cpu, || {
            space.run();
            assert!(host.access(page(5), Access::Write).is_some());
        });
    }
    let seen = Arc::downgrade(&tlb);
    host.watch(move || seen.upgrade().map_or(0, |tlb| u64::from(is_free(&tlb, pfn))));
    let ((), log) = host.log(|| space.unmap(5, pfn).settle());
    assert!(is_free(&tlb, pfn));
    assert_order(I::KIND, &log, &[CpuId::new(1), CpuId::new(2)]);
    for cpu in 0..3 {
        assert_eq!(on(cpu, || host.access(page(5), Access::Read)), None, "CPU {cpu} still reaches it");
    }
}

fn a_table_is_freed_only_after_walk_caches_are_flushed<I: Isa>() {
    let (host, tlb) = machine::<I>(2);
    let space = Space::new(&tlb);
    on(1, || space.run());
    space.run();
    let last = space.last();
    let seen = Arc::downgrade(&tlb);
    host.watch(move || seen.upgrade().map_or(0, |tlb| u64::from(is_free(&tlb, last))));
    let ((), log) = host.log(|| {
        host.swap(space.above(), Pte::EMPTY);
        // SAFETY: INV-FRAME-TABLE – the only pointer to the table was just cleared.
        let table = unsafe { tlb.frames().retire(last) };
        Debt::new(&tlb, &space.context, page(0), OwedFlush::Table(Level::PMD), table).settle();
    });
    assert!(is_free(&tlb, last));
    assert_order(I::KIND, &log, &[CpuId::new(1)]);
    let walk_caches_too = |target| match target {
        InvalidateTarget::Page { last_level, .. }
        | InvalidateTarget::PageOfAllTags { last_level, .. }
        | InvalidateTarget::Range { last_level, .. } => !last_level,
        InvalidateTarget::Tag(_) | InvalidateTarget::AllTags | InvalidateTarget::Everything => true,
    };
    for step in log {
        if let Effect::Invalidate(op) = step.effect {
            assert!(walk_caches_too(op.target), "{op:?} leaves walk caches alone");
        }
    }
}

fn one_flush_settles_a_gather<I: Isa>() {
    let (host, tlb) = machine::<I>(2);
    let space = Space::new(&tlb);
    let frames: Vec<Pfn> = (0..20).map(|index| space.map_new(index)).collect();
    on(1, || space.run());
    let free = tlb.frames().available();
    let ((), log) = host.log(|| {
        let mut gather = Gather::new(&tlb, &space.context);
        for (index, pfn) in frames.iter().enumerate() {
            gather.absorb(space.unmap(index as u16, *pfn));
        }
        assert_eq!(tlb.frames().available(), free, "nothing is free before the flush");
        gather.settle();
    });
    assert_eq!(tlb.frames().available(), free + 20);
    let waits = log.iter().filter(|s| matches!(s.effect, Effect::SendIpi(_) | Effect::Complete)).count();
    assert_eq!(waits, 1, "one wait for all: {log:?}");
}

fn shared_references_are_held_until_the_flush<I: Isa>() {
    let (host, tlb) = machine::<I>(2);
    let (one, two) = (Space::new(&tlb), Space::new(&tlb));
    let pfn = one.map_new(0);
    two.map(7, pfn);
    tlb.frames().folio(pfn).get().into_raw();
    on(1, || {
        two.run();
        assert!(host.access(page(7), Access::Read).is_some());
    });
    // INV-TLB-SHARED: the first space's reference went into a gather; the second may come and go
    // meanwhile.
    let mut gather = Gather::new(&tlb, &one.context);
    gather.absorb(one.unmap(0, pfn));
    two.unmap(7, pfn).settle();
    assert!(!is_free(&tlb, pfn), "the first space's CPUs have not been told");
    assert_eq!(tlb.frames().folio(pfn).refs(), 1);
    gather.settle();
    assert!(is_free(&tlb, pfn));
}

fn an_overflowing_gather_settles_early_and_loses_nothing<I: Isa>() {
    let (host, tlb) = machine::<I>(2);
    let (one, two) = (Space::new(&tlb), Space::new(&tlb));
    on(1, || one.run());
    let frames: Vec<Pfn> = (0..200).map(|index| one.map_new(index)).collect();
    for (index, pfn) in frames.iter().enumerate() {
        two.map(index as u16, *pfn);
        tlb.frames().folio(*pfn).get().into_raw();
        on(1, || assert!(host.access(page(index as u16), Access::Read).is_some()));
    }
    let free = tlb.frames().available();
    let mut gather = Gather::new(&tlb, &one.context);
    for (index, pfn) in frames.iter().enumerate() {
        gather.absorb(one.unmap(index as u16, *pfn));
        // A reference is given up only when no TLB has the page: neither this one nor those before.
        for (before, pfn) in frames[..=index].iter().enumerate() {
            let still_known = on(1, || host.access(page(before as u16), Access::Read)).is_some();
            assert!(tlb.frames().folio(*pfn).refs() == 2 || !still_known, "page {before} was given up unflushed");
        }
    }
    gather.settle();
    assert_eq!(on(1, || host.cached(1)), 0);
    assert!(frames.iter().all(|pfn| tlb.frames().folio(*pfn).refs() == 1), "one reference each is left");
    let mut rest = Gather::new(&tlb, &two.context);
    for (index, pfn) in frames.iter().enumerate() {
        rest.absorb(two.unmap(index as u16, *pfn));
    }
    rest.settle();
    assert_eq!(tlb.frames().available(), free + 200);
}

/// What a caller of bulk edits may park under one debt.
struct Many(Vec<FolioRef>);

impl IntoDetachedPieces for Many {
    fn for_each_piece(self, sink: &mut dyn FnMut(DetachedPiece)) {
        self.0.into_iter().for_each(|folio| sink(DetachedPiece::Folio(folio.into())));
    }
}

fn a_debt_of_many_references_settles_early<I: Isa>() {
    let (_, tlb) = machine::<I>(1);
    let space = Space::new(&tlb);
    let pfn = space.map_new(0);
    let many = Many((0..150).map(|_| tlb.frames().folio(pfn).get()).collect());
    Debt::new(&tlb, &space.context, page(0), OwedFlush::Leaf(Level::PTE), many).settle();
    assert_eq!(tlb.frames().folio(pfn).refs(), 1);
    space.unmap(0, pfn).settle();
}

fn an_edit_that_owes_no_flush_causes_none<I: Isa>() {
    let (host, tlb) = machine::<I>(2);
    let space = Space::new(&tlb);
    on(1, || space.run());
    let pfn = space.map_new(0);
    let folio = take_back(&tlb, pfn);
    let ((), log) = host.log(|| Debt::new(&tlb, &space.context, page(0), OwedFlush::Nothing, folio).settle());
    assert_eq!(log, [], "a flush that was not owed");
    assert!(is_free(&tlb, pfn), "what rode in the debt is freed all the same");
}

/// An invalidation that names a level removes entries of that level only.
///
/// One for pages would leave the huge leaf.
fn leaves_of_two_levels_are_both_flushed<I: Isa>() {
    for huge_first in [false, true] {
        let range_invalidate = I::KIND == IsaKind::Aarch64;
        let caps = Caps { range_invalidate, ..Caps::baseline(I::KIND) };
        let host = Host::<I>::new(2, FRAMES, caps, Delivery::AtOnce);
        let tlb = engine(&host, FRAMES);
        let space = Space::new(&tlb);
        space.run();
        space.map(3, Pfn::new(40));
        let block = page(0).add(Level::PMD.span());
        let above = PteSlot { table: space.pmd, index: Level::PMD.index_of(block) as u16 };
        let leaf = Leaf { pfn: Pfn::new(512), rights: Rights::RW, flags: LeafFlags::USER };
        host.store(above, I::leaf(Level::PMD, leaf));
        assert!(host.access(page(3), Access::Read).is_some() && host.access(block, Access::Read).is_some());
        let mut gather = Gather::new(&tlb, &space.context);
        let small = space.clear(3);
        host.swap(above, Pte::EMPTY);
        let huge = Debt::new(&*tlb, &space.context, block, OwedFlush::Leaf(Level::PMD), ());
        if huge_first {
            gather.absorb(huge);
            gather.absorb(small);
        } else {
            gather.absorb(small);
            gather.absorb(huge);
        }
        gather.settle();
        assert_eq!(host.access(page(3), Access::Read), None);
        assert_eq!(host.access(block, Access::Read), None, "the block is still in the TLB");
    }
}

fn a_full_space_gather_flushes_once<I: Isa>() {
    let (host, tlb) = machine::<I>(2);
    let space = Space::new(&tlb);
    space.run();
    space.map(0, Pfn::new(40));
    space.map(400, Pfn::new(41));
    assert!(host.access(page(0), Access::Read).is_some() && host.access(page(400), Access::Read).is_some());
    let ((), log) = host.log(|| {
        let mut gather = Gather::full_space(&tlb, &space.context);
        gather.absorb(space.clear(0));
        gather.absorb(space.clear(400));
        gather.settle();
    });
    let ops: Vec<_> = log
        .iter()
        .filter_map(|s| match s.effect {
            Effect::Invalidate(op) => Some(op),
            _ => None,
        })
        .collect();
    let scope = if I::KIND == IsaKind::X86_64 { InvalidateScope::Local } else { InvalidateScope::Broadcast };
    let tag = host.root().expect("the space runs").1;
    assert_eq!(ops, [Invalidate { scope, target: InvalidateTarget::Tag(tag) }]);
    assert_eq!(host.cached(0), 0);
}

/// INV-TLB-CLEARED: the second gather finds nothing to clear, and flushes what the first cleared.
///
/// It may return only when no TLB holds that.
fn a_concurrent_gather_flushes_what_another_cleared<I: Isa>() {
    let (host, tlb) = machine::<I>(2);
    let space = Space::new(&tlb);
    on(1, || space.run());
    let pfn = space.map_new(0);
    assert!(on(1, || host.access(page(0), Access::Read)).is_some());
    let mut first = Gather::concurrent(&tlb, &space.context);
    let folio = take_back(&tlb, pfn);
    host.swap(space.slot(0), Pte::EMPTY);
    first.absorb(Debt::new(&tlb, &space.context, page(0), OwedFlush::Leaf(Level::PTE), folio));
    first.publish(space.last());
    let mut second = Gather::concurrent(&tlb, &space.context);
    second.meet(space.last());
    on(1, || second.settle());
    assert_eq!(host.cached(1), 0, "what the first one cleared");
    first.settle();
    assert!(is_free(&tlb, pfn));
    let ((), log) = host.log(|| Gather::concurrent(&tlb, &space.context).settle());
    assert_eq!(log, [], "alone it has nothing to flush");
}

#[cfg(feature = "planted")]
#[test]
fn an_overflow_freed_before_its_flush_is_found() {
    let test = an_overflowing_gather_settles_early_and_loses_nothing::<pagewright_arch::Aarch64>;
    pagewright_plant::assert_found_by(pagewright_plant::PlantedBug::OverflowUnflushed, test);
}
