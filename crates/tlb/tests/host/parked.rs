//! One flush settles the debts of all parked frames (INV-TLB-SETTLE-ALL).
//!
//! A flush for another reason may have settled them before.

use super::space::machine;
use crate::support::{Effect, Host};
use pagewright_arch::{Isa, on_both};
use pagewright_tlb::Tlb;
use pagewright_tlb::frames::Block;
use pagewright_types::{Counter, CpuId, CpuMask, DebtKey, IsaKind, Order};
use std::sync::Arc;

const CPUS: u16 = 4;
const PARKED: usize = 512;

on_both! {
    one_flush_settles_all_parked_frames,
    frames_that_other_flushes_have_settled_are_allocated_without_a_flush,
    parked_frames_are_settled_ahead_by_one_flush,
    settled_frames_are_freed_ahead_without_a_flush,
    a_large_block_is_made_of_frames_with_different_keys,
    a_settle_counts_as_a_remote_flush_only_if_it_is_one,
}

fn count<I: Isa>(tlb: &Tlb<Host<I>>, counter: Counter) -> u64 {
    tlb.frames().counters().sum(counter)
}

/// A machine whose only free frames are parked, each `per_key` of them under a key; the others.
///
/// CPUs 1 and 2 owe the keys in turn.
fn only_parked_frames<I: Isa>(per_key: usize) -> (Host<I>, Arc<Tlb<Host<I>>>, Vec<Block>) {
    let (host, tlb) = machine::<I>(usize::from(CPUS));
    let mut taken = Vec::new();
    while let Ok(block) = tlb.alloc(tlb.request(Order::ZERO)) {
        taken.push(block);
    }
    let mut key = DebtKey::NONE;
    for (number, block) in taken.drain(..PARKED).enumerate() {
        if number.is_multiple_of(per_key) {
            key = tlb.ledger().open(CpuMask::of(CpuId::new(1 + (number / per_key % 2) as u16)));
        }
        tlb.frames().free_with_debt(block, key);
    }
    assert_eq!(tlb.frames().parked(), PARKED as u64);
    (host, tlb, taken)
}

/// Takes all parked frames, and returns the number of flushes that it takes.
fn take_parked<I: Isa>(tlb: &Tlb<Host<I>>, taken: &mut Vec<Block>) -> u64 {
    let before = count(tlb, Counter::NrTlbRemoteFlush);
    taken.extend((0..PARKED).map(|_| tlb.alloc(tlb.request(Order::ZERO)).expect("a parked frame is left")));
    assert!(tlb.alloc(tlb.request(Order::ZERO)).is_err());
    assert_eq!(tlb.frames().parked(), 0);
    count(tlb, Counter::NrTlbRemoteFlush) - before
}

/// The flushes that other operations make anyway.
fn settle_all<I: Isa>(tlb: &Tlb<Host<I>>) {
    (0..CPUS).map(CpuId::new).for_each(|cpu| tlb.ledger().advance(cpu, tlb.ledger().sample()));
}

fn end<I: Isa>(tlb: &Tlb<Host<I>>, taken: Vec<Block>) {
    let holds: Vec<_> = tlb.frames().zones().map(|zone| zone.longest_hold()).collect();
    assert!(holds.iter().all(|blocks| *blocks <= 64), "INV-FRAME-HOLD: {holds:?} blocks at once");
    taken.into_iter().for_each(|block| tlb.free(block));
}

/// Also if there are more keys than the ledger remembers one by one.
fn one_flush_settles_all_parked_frames<I: Isa>() {
    for per_key in [64, 1] {
        let (host, tlb, mut taken) = only_parked_frames::<I>(per_key);
        let (flushes, log) = host.log(|| take_parked(&tlb, &mut taken));
        assert_eq!(flushes, 1, "{per_key} frames per key");
        assert_eq!([Counter::PwTlbSettleOnAlloc, Counter::PwTlbSettleWaits].map(|of| count(&tlb, of)), [1, 1]);
        let owing: CpuMask = [1, 2].map(CpuId::new).into_iter().collect();
        for step in log {
            if let Effect::SendIpi(targets) = step.effect {
                assert_eq!(targets, owing, "the CPUs that owe a key");
            }
        }
        end(&tlb, taken);
    }
}

fn frames_that_other_flushes_have_settled_are_allocated_without_a_flush<I: Isa>() {
    let (host, tlb, mut taken) = only_parked_frames::<I>(64);
    settle_all(&tlb);
    host.allow_waiting(false);
    assert_eq!(take_parked(&tlb, &mut taken), 0);
    host.allow_waiting(true);
    assert_eq!(count(&tlb, Counter::PwTlbSettleOnAlloc), 0);
    end(&tlb, taken);
}

fn parked_frames_are_settled_ahead_by_one_flush<I: Isa>() {
    let (_host, tlb, mut taken) = only_parked_frames::<I>(64);
    let flushes = || [Counter::NrTlbRemoteFlush, Counter::PwTlbSettleAhead].map(|of| count(&tlb, of));
    let [before, _] = flushes();
    assert_eq!(tlb.settle_parked(), PARKED as u64);
    assert_eq!(flushes(), [before + 1, 1]);
    assert_eq!((tlb.frames().parked(), tlb.settle_parked()), (0, 0));
    assert_eq!(flushes(), [before + 1, 1], "nothing is parked any more");
    assert_eq!(take_parked(&tlb, &mut taken), 0);
    end(&tlb, taken);
}

/// On x86-64, where the CPU that allocates is the only one that owes, no IPI is sent.
fn a_settle_counts_as_a_remote_flush_only_if_it_is_one<I: Isa>() {
    let (_host, tlb) = machine::<I>(usize::from(CPUS));
    let mut taken = Vec::new();
    while let Ok(block) = tlb.alloc(tlb.request(Order::ZERO)) {
        taken.push(block);
    }
    let key = tlb.ledger().open(CpuMask::of(CpuId::new(0)));
    tlb.frames().free_with_debt(taken.pop().expect("a block"), key);
    let before = count(&tlb, Counter::NrTlbRemoteFlush);
    taken.push(tlb.alloc(tlb.request(Order::ZERO)).expect("the parked frame"));
    let sent = count(&tlb, Counter::NrTlbRemoteFlush) - before;
    assert_eq!(sent, u64::from(I::KIND == IsaKind::Aarch64));
    assert_eq!([Counter::PwTlbSettleOnAlloc, Counter::PwTlbSettleWaits].map(|of| count(&tlb, of)), [1, sent]);
    end(&tlb, taken);
}

/// Also if the caller may not wait.
fn settled_frames_are_freed_ahead_without_a_flush<I: Isa>() {
    let (host, tlb, taken) = only_parked_frames::<I>(64);
    settle_all(&tlb);
    host.allow_waiting(false);
    assert_eq!(tlb.settle_parked(), PARKED as u64);
    host.allow_waiting(true);
    assert_eq!(count(&tlb, Counter::PwTlbSettleAhead), 0);
    end(&tlb, taken);
}

/// INV-FRAME-ONE-KEY: parked, they are no block of two; the allocation flushes for both, once.
fn a_large_block_is_made_of_frames_with_different_keys<I: Isa>() {
    let (_host, tlb) = machine::<I>(usize::from(CPUS));
    let mut taken = Vec::new();
    while let Ok(block) = tlb.alloc(tlb.request(Order::ZERO)) {
        taken.push(block);
    }
    let pair = |block: &Block| block.pfn().raw() / 2 == 100;
    let halves: Vec<_> = taken.extract_if(.., |block| pair(block)).collect();
    for (block, cpu) in halves.into_iter().zip([1, 2]) {
        tlb.frames().free_with_debt(block, tlb.ledger().open(CpuMask::of(CpuId::new(cpu))));
    }
    let before = count(&tlb, Counter::NrTlbRemoteFlush);
    let whole = tlb.alloc(tlb.request(Order::new(1))).expect("both halves are settled");
    assert!(pair(&whole));
    assert_eq!((count(&tlb, Counter::NrTlbRemoteFlush) - before, tlb.frames().parked()), (1, 0));
    taken.push(whole);
    end(&tlb, taken);
}

#[cfg(feature = "planted")]
#[test]
fn flushes_for_one_key_at_a_time_are_found() {
    use pagewright_arch::X86_64;
    use pagewright_plant::{PlantedBug, assert_found_by};
    assert_found_by(PlantedBug::OneKeySettled, one_flush_settles_all_parked_frames::<X86_64>);
    assert_found_by(
        PlantedBug::FloorNotPassedDown,
        frames_that_other_flushes_have_settled_are_allocated_without_a_flush::<X86_64>,
    );
}
