//! Debts that were dropped: they are noticed, and their frames are not allocated unsettled.
//!
//! INV-TLB-DEBT, INV-FRAME-SEALED.

use super::space::{Space, family_of, is_free, machine, page};
use crate::support::{Effect, Host, on};
use pagewright_arch::{Aarch64, Isa, on_both};
use pagewright_tlb::frames::{Block, ClearExtent};
use pagewright_tlb::{Batch, Debt, FamilyDebt, Gather, OwedFlush, Tlb};
use pagewright_types::{Access, Counter, CpuId, CpuMask, DebtKey, IsaKind, Level, Order, Pfn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

on_both! {
    a_dropped_debt_is_settled_before_its_frame_is_reused,
    a_dropped_gather_is_settled_before_its_frames_are_reused,
    a_dropped_gather_gives_back_the_reference_of_a_folio_in_use,
    rights_of_a_dropped_debt_end_with_the_next_operation_on_the_space,
    rights_of_a_dropped_gather_end_with_the_next_operation_on_the_space,
    a_dropped_debt_of_a_family_is_settled_before_its_frame_is_reused,
    rights_of_a_dropped_debt_of_a_family_end_in_each_member,
    a_dropped_debt_costs_the_next_operation_one_flush,
    a_dropped_debt_that_an_allocation_settled_costs_no_operation_more,
    a_shared_folio_keeps_the_key_of_a_dropped_debt,
    a_caller_that_may_not_wait_gets_no_parked_frame,
    a_caller_that_may_not_wait_gets_a_frame_whose_debt_is_settled,
    a_block_of_settled_and_parked_halves_is_made_whole,
    unwinding_through_a_debt_does_not_panic_again,
    a_gather_or_batch_with_one_piece_is_not_empty,
}

/// Drops something that owes: debug builds panic, and say why.
fn drop_debt<T>(debt: T) {
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(debt)));
    if cfg!(debug_assertions) {
        let panic = dropped.expect_err("debug builds notice");
        let message = panic.downcast_ref::<String>().cloned();
        let message = message.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        assert!(message.is_some_and(|text| text.starts_with("INV-TLB-DEBT")));
    } else {
        assert!(dropped.is_ok(), "release builds carry on");
    }
}

/// Takes frames until it has all of `wanted`.
///
/// Asserts that CPU 1 cannot reach any of them when it comes.
fn take_until<I: Isa>(space: &Space<I>, wanted: &[(u16, Pfn)]) {
    let tlb = &space.tlb;
    let mut left = wanted.to_vec();
    let mut taken = Vec::new();
    while !left.is_empty() {
        let block = tlb.alloc(tlb.request(Order::ZERO)).expect("the frames are somewhere");
        left.retain(|&(index, pfn)| {
            let found = pfn == block.pfn();
            let reached = found && on(1, || tlb.fx().access(page(index), Access::Read)).is_some();
            assert!(!reached, "page {index} is reused and CPU 1 reaches it");
            !found
        });
        taken.push(block);
    }
    taken.into_iter().for_each(|block| tlb.free(block));
}

fn a_dropped_debt_is_settled_before_its_frame_is_reused<I: Isa>() {
    let (host, tlb) = machine::<I>(3);
    let space = Space::new(&tlb);
    let pfn = space.map_new(9);
    on(1, || {
        space.run();
        assert!(host.access(page(9), Access::Write).is_some());
    });
    drop_debt(space.unmap(9, pfn));
    assert!(on(1, || host.access(page(9), Access::Write)).is_some(), "CPU 1 has no request yet");
    assert!(is_free(&tlb, pfn));
    assert_eq!(tlb.frames().counters().sum(Counter::PwTlbDebtParked), 1);
    let ((), log) = host.log(|| take_until(&space, &[(9, pfn)]));
    assert_eq!(tlb.frames().counters().sum(Counter::PwTlbSettleOnAlloc), 1);
    for step in log {
        if let Effect::SendIpi(targets) = step.effect {
            assert_eq!(targets, CpuMask::of(CpuId::new(1)), "no other CPU had the space");
        }
    }
}

fn a_dropped_gather_is_settled_before_its_frames_are_reused<I: Isa>() {
    let (host, tlb) = machine::<I>(2);
    let space = Space::new(&tlb);
    let frames: Vec<(u16, Pfn)> = (0..10).map(|index| (index, space.map_new(index))).collect();
    on(1, || {
        space.run();
        assert!(frames.iter().all(|(index, _)| host.access(page(*index), Access::Read).is_some()));
    });
    let mut gather = Gather::new(&tlb, &space.context);
    for (index, pfn) in &frames {
        gather.absorb(space.unmap(*index, *pfn));
    }
    drop_debt(gather);
    assert_eq!(tlb.frames().counters().sum(Counter::PwTlbDebtParked), 10);
    take_until(&space, &frames);
    assert_eq!(tlb.frames().counters().sum(Counter::PwTlbSettleOnAlloc), 1, "one flush settles all ten");
}

fn a_dropped_gather_gives_back_the_reference_of_a_folio_in_use<I: Isa>() {
    let (_host, tlb) = machine::<I>(2);
    let space = Space::new(&tlb);
    let pfn = space.map_new(0);
    let other = tlb.frames().folio(pfn).get();
    let mut gather = Gather::new(&tlb, &space.context);
    gather.absorb(space.unmap(0, pfn));
    drop_debt(gather);
    assert_eq!(tlb.frames().folio(pfn).refs(), 1);
    tlb.free(tlb.frames().put(other).expect("the last reference"));
}

/// A space whose page 1 CPU 1 uses in another space, which shares its table.
fn used_by_a_sharer<I: Isa>() -> (Host<I>, Space<I>, Space<I>, Pfn) {
    let (host, tlb) = machine::<I>(3);
    let space = Space::new(&tlb);
    let pfn = space.map_new(1);
    let other = Space::sharing(&space);
    on(1, || {
        other.run();
        assert!(host.access(page(1), Access::Read).is_some());
    });
    (host, space, other, pfn)
}

fn a_dropped_debt_of_a_family_is_settled_before_its_frame_is_reused<I: Isa>() {
    let (host, space, other, pfn) = used_by_a_sharer::<I>();
    let family = family_of(&[&space.context, &other.context]);
    drop_debt(FamilyDebt::new(Some(&family.token()), space.unmap(1, pfn)));
    assert!(on(1, || host.access(page(1), Access::Read)).is_some(), "CPU 1 has no request yet");
    take_until(&space, &[(1, pfn)]);
}

fn rights_of_a_dropped_debt_of_a_family_end_in_each_member<I: Isa>() {
    for operation in operations::<I>() {
        let (host, space, other, _) = used_by_a_sharer::<I>();
        let family = family_of(&[&space.context, &other.context]);
        drop_debt(FamilyDebt::new(Some(&family.token()), space.clear(1)));
        on(2, || operation(&other));
        assert_eq!(on(1, || host.access(page(1), Access::Read)), None, "CPU 1 still reads");
    }
}

/// Two ways in which an operation can find what another has cleared or weakened.
fn operations<I: Isa>() -> [fn(&Space<I>); 2] {
    [
        |space| Gather::new(&space.tlb, &space.context).settle(),
        |space| space.tlb.flush_before_install(&space.context, space.slot(1), page(1), Level::PTE),
    ]
}

/// A space whose page 1 CPU 1 may use, and the machine.
fn used_on_cpu_1<I: Isa>() -> (Host<I>, Space<I>) {
    let (host, tlb) = machine::<I>(3);
    let space = Space::new(&tlb);
    space.map_new(1);
    on(1, || {
        space.run();
        assert!(host.access(page(1), Access::Write).is_some());
    });
    (host, space)
}

/// CPU 2 finds the entry, so no barrier of the CPU that issued helps it (Arm ARM D8.14.5).
fn rights_of_a_dropped_debt_end_with_the_next_operation_on_the_space<I: Isa>() {
    for operation in operations::<I>() {
        let (host, space) = used_on_cpu_1::<I>();
        drop_debt(space.clear(1));
        on(2, || operation(&space));
        assert_eq!(on(1, || host.access(page(1), Access::Write)), None, "CPU 1 still stores");
    }
}

fn rights_of_a_dropped_gather_end_with_the_next_operation_on_the_space<I: Isa>() {
    for operation in operations::<I>() {
        let (host, space) = used_on_cpu_1::<I>();
        let mut gather = Gather::new(&space.tlb, &space.context);
        gather.absorb(space.clear(1));
        drop_debt(gather);
        on(2, || operation(&space));
        assert_eq!(on(1, || host.access(page(1), Access::Write)), None, "CPU 1 still stores");
    }
}

fn a_dropped_debt_costs_the_next_operation_one_flush<I: Isa>() {
    for operation in operations::<I>() {
        let (host, space) = used_on_cpu_1::<I>();
        drop_debt(space.clear(1));
        operation(&space);
        let ((), log) = host.log(|| operation(&space));
        assert_eq!(log, [], "it is flushed already");
    }
}

fn a_dropped_debt_that_an_allocation_settled_costs_no_operation_more<I: Isa>() {
    for operation in operations::<I>() {
        let (host, tlb) = machine::<I>(3);
        let space = Space::new(&tlb);
        let pfn = space.map_new(1);
        on(1, || {
            space.run();
            assert!(host.access(page(1), Access::Write).is_some());
        });
        drop_debt(space.unmap(1, pfn));
        take_until(&space, &[(1, pfn)]);
        let ((), log) = host.log(|| operation(&space));
        assert_eq!(log, [], "the allocation flushed the rights and the frame");
    }
}

/// The barrier of any later flush counts as its payment, so its TLBI was issued before.
#[test]
fn a_dropped_debt_is_issued_at_once_on_arm64() {
    let (host, tlb) = machine::<Aarch64>(2);
    let (space, other) = (Space::new(&tlb), Space::new(&tlb));
    let pfn = space.map_new(9);
    on(1, || {
        space.run();
        assert!(host.access(page(9), Access::Write).is_some());
    });
    drop_debt(space.unmap(9, pfn));
    assert!(on(1, || host.access(page(9), Access::Write)).is_some(), "no operation has waited");
    other.clear(0).settle();
    assert_eq!(on(1, || host.access(page(9), Access::Write)), None);
    assert_eq!(tlb.owing(DebtKey::new(1)).0, CpuMask::EMPTY);
}

/// As many as were asked for, while there is memory.
#[test]
fn a_batch_of_cleared_blocks_has_no_more_than_were_asked_for() {
    let (_, tlb) = machine::<Aarch64>(1);
    for blocks in [1, 2, 7] {
        let mut zeroed =
            tlb.alloc_zeroed_batch(tlb.request(Order::ZERO), blocks, ClearExtent::PAGE).expect("memory is left");
        assert_eq!(zeroed.len(), blocks);
        while let Some(block) = zeroed.pop() {
            tlb.free(block.into_block());
        }
    }
}

fn a_shared_folio_keeps_the_key_of_a_dropped_debt<I: Isa>() {
    let (host, tlb) = machine::<I>(2);
    let space = Space::new(&tlb);
    let pfn = space.map_new(2);
    let other = tlb.frames().folio(pfn).get();
    on(1, || {
        space.run();
        assert!(host.access(page(2), Access::Read).is_some());
    });
    drop_debt(space.unmap(2, pfn));
    // The owner of the last reference does not know the debt.
    let block = tlb.frames().put(other).expect("the last reference");
    tlb.free(block);
    take_until(&space, &[(2, pfn)]);
}

/// Dropped by unwinding, debts are parked as ever, and what is told is the panic that dropped them.
fn unwinding_through_a_debt_does_not_panic_again<I: Isa>() {
    let (_, tlb) = machine::<I>(2);
    let space = Space::new(&tlb);
    let pfns = [1, 2, 3].map(|index| space.map_new(index));
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _block = tlb.alloc(tlb.request(Order::ZERO)).expect("memory is left");
        let mut gather = Gather::new(&tlb, &space.context);
        gather.absorb(space.unmap(1, pfns[0]));
        gather.absorb(space.unmap(2, pfns[1]));
        let _debt = space.unmap(3, pfns[2]);
        panic!("the first");
    }));
    let message = panicked.expect_err("it panics");
    assert_eq!(message.downcast_ref(), Some(&"the first"));
    assert_eq!(tlb.frames().counters().sum(Counter::PwTlbDebtParked), 3);
    assert!(pfns.iter().all(|pfn| is_free(&tlb, *pfn)));
}

/// The frame that is parked, and all others.
type ParkedFrame = (Pfn, Vec<Block>);

/// A machine whose only frame that is left is parked: CPU 1 may still reach it.
fn one_parked_frame<I: Isa>(cpus: usize) -> (Host<I>, Arc<Tlb<Host<I>>>, ParkedFrame) {
    let (host, tlb) = machine::<I>(cpus);
    let space = Space::new(&tlb);
    let pfn = space.map_new(2);
    on(1, || space.run());
    let mut taken = Vec::new();
    while let Ok(block) = tlb.alloc(tlb.request(Order::ZERO)) {
        taken.push(block);
    }
    drop_debt(space.unmap(2, pfn));
    (host, tlb, (pfn, taken))
}

fn a_caller_that_may_not_wait_gets_no_parked_frame<I: Isa>() {
    let (host, tlb, (pfn, mut taken)) = one_parked_frame::<I>(2);
    host.allow_waiting(false);
    assert!(tlb.alloc(tlb.request(Order::ZERO)).is_err(), "the one frame left owes");
    host.allow_waiting(true);
    let block = tlb.alloc(tlb.request(Order::ZERO)).expect("settled now");
    assert_eq!(block.pfn(), pfn);
    taken.push(block);
    taken.into_iter().for_each(|block| tlb.free(block));
}

/// Whichever flush settles the debt, the allocator learns of it when it finds no other frame.
fn a_caller_that_may_not_wait_gets_a_frame_whose_debt_is_settled<I: Isa>() {
    let (host, tlb, (pfn, mut taken)) = one_parked_frame::<I>(3);
    // x86-64: only CPU 1 owes. arm64: only CPU 0's barrier counts.
    let owing = if I::KIND == IsaKind::X86_64 { 1 } else { 0 };
    on(owing, || tlb.ledger().advance(CpuId::new(owing), tlb.ledger().sample()));
    host.allow_waiting(false);
    let block = tlb.alloc(tlb.request(Order::ZERO)).expect("its debt is settled");
    host.allow_waiting(true);
    assert_eq!((block.pfn(), tlb.frames().counters().sum(Counter::PwTlbSettleOnAlloc)), (pfn, 0));
    taken.push(block);
    taken.into_iter().for_each(|block| tlb.free(block));
}

fn a_block_of_settled_and_parked_halves_is_made_whole<I: Isa>() {
    let (host, tlb) = machine::<I>(2);
    let space = Space::new(&tlb);
    on(1, || space.run());
    let mut halves = vec![tlb.alloc(tlb.request(Order::ZERO)).expect("memory is left")];
    let (parked, settled) = loop {
        let one = tlb.alloc(tlb.request(Order::ZERO)).expect("two neighbours are left");
        let buddy = |other: &Block| other.pfn().raw() ^ 1 == one.pfn().raw();
        match halves.iter().position(buddy) {
            Some(at) => break (one, halves.swap_remove(at)),
            None => halves.push(one),
        }
    };
    while let Ok(block) = tlb.alloc(tlb.request(Order::ZERO)) {
        halves.push(block);
    }
    let (parked_pfn, settled_pfn) = (parked.pfn(), settled.pfn());
    space.map(5, tlb.frames().new_folio(parked).into_raw());
    assert!(on(1, || host.access(page(5), Access::Read)).is_some());
    drop_debt(space.unmap(5, parked_pfn));
    tlb.free(settled);
    let pair = tlb.request(Order::new(1));
    host.allow_waiting(false);
    assert!(tlb.alloc(pair).is_err(), "one half owes");
    host.allow_waiting(true);
    let whole = tlb.alloc(pair).expect("both halves are settled");
    assert_eq!(whole.pfn(), parked_pfn.min(settled_pfn));
    assert_eq!(on(1, || host.access(page(5), Access::Read)), None, "CPU 1 reaches a frame that is reused");
    tlb.free(whole);
    halves.into_iter().for_each(|block| tlb.free(block));
}

#[cfg(feature = "planted")]
#[test]
fn mistakes_about_settled_debts_are_found() {
    use pagewright_arch::X86_64;
    use pagewright_plant::{PlantedBug, assert_found_by};
    assert_found_by(
        PlantedBug::FloorNotPassedDown,
        a_caller_that_may_not_wait_gets_a_frame_whose_debt_is_settled::<X86_64>,
    );
    let of_family = [
        a_dropped_debt_of_a_family_is_settled_before_its_frame_is_reused::<X86_64>,
        rights_of_a_dropped_debt_of_a_family_end_in_each_member::<X86_64>,
        rights_of_a_dropped_debt_of_a_family_end_in_each_member::<Aarch64>,
    ];
    of_family.into_iter().for_each(|test| assert_found_by(PlantedBug::DroppedOfOneMember, test));
    assert_found_by(PlantedBug::ParkedNotSettled, a_block_of_settled_and_parked_halves_is_made_whole::<X86_64>);
    assert_found_by(PlantedBug::NewestKeyIsFloor, a_caller_that_may_not_wait_gets_no_parked_frame::<X86_64>);
    assert_found_by(PlantedBug::WaitsInAtomic, a_caller_that_may_not_wait_gets_no_parked_frame::<X86_64>);
}

/// Pieces are held until the flush, even by a holder that owes none itself.
fn a_gather_or_batch_with_one_piece_is_not_empty<I: Isa>() {
    let (_, tlb) = machine::<I>(2);
    let space = Space::new(&tlb);
    let free = tlb.frames().available();
    let block = || tlb.alloc(tlb.request(Order::ZERO)).expect("memory is left");
    let folio = || tlb.frames().new_folio(block());
    let elsewhere = folio();
    let with_block = || Debt::new(&tlb, &space.context, page(0), OwedFlush::Nothing, block());
    let with_last = || Debt::new(&tlb, &space.context, page(0), OwedFlush::Nothing, folio());
    let shared = || tlb.frames().folio_of(&elsewhere).get();
    let with_shared = || Debt::new(&tlb, &space.context, page(0), OwedFlush::Nothing, shared());

    let mut gather = Gather::new(&tlb, &space.context);
    for piece in ["a block", "a last reference", "a shared reference"] {
        assert!(gather.is_empty());
        match piece {
            "a block" => gather.absorb(with_block()),
            "a last reference" => gather.absorb(with_last()),
            _ => gather.absorb(with_shared()),
        }
        assert!(!gather.is_empty(), "the gather holds {piece}");
        gather.settle_so_far();
        let mut batch = Batch::new(&tlb);
        assert!(batch.is_empty());
        match piece {
            "a block" => batch.absorb(&space.context, with_block()),
            "a last reference" => batch.absorb(&space.context, with_last()),
            _ => batch.absorb(&space.context, with_shared()),
        }
        assert!(!batch.is_empty(), "the batch holds {piece}");
        batch.settle();
    }
    gather.settle();
    assert_eq!(tlb.frames().folio_of(&elsewhere).refs(), 1, "the shared references are given back");
    tlb.free(tlb.frames().put(elsewhere).expect("the last reference"));
    assert_eq!(tlb.frames().available(), free, "and the frames are free");
}
