//! Deferred flushes with a place: what an install flushes.
//!
//! The record of the table and the entry decide.
//! INV-TLB-PLACE, INV-TLB-KEY-LIFE, INV-TLB-BATCH-SETTLED.

use super::space::{Space, machine, page};
use crate::support::{Host, Step, on};
use pagewright_arch::{Effects, Entry, Isa, Leaf, LeafFlags, Pte, PteSlot, on_both};
use pagewright_tlb::{Batch, Debt, Family, Gather, OwedFlush, Tlb};
use pagewright_types::{Access, Counter, CpuId, CpuMask, IsaKind, Level, Pfn, Rights};
use std::sync::Arc;

on_both! {
    an_install_next_to_a_deferred_entry_flushes_nothing,
    the_debt_of_one_entry_does_not_wait_for_others,
    a_gather_flushes_for_the_tables_that_it_has_met,
    gathers_of_distant_tables_do_not_flush_the_space,
    an_install_over_a_deferred_entry_flushes_once,
    an_entry_cleared_after_the_flush_is_not_pending,
    a_key_covers_what_was_deferred_before_it_was_merged,
    a_settled_key_is_replaced_and_older_entries_do_not_count,
    a_weakened_leaf_is_not_marked,
    a_deferral_without_a_place_holds_up_every_install,
    an_install_beside_a_gather_flushes_only_in_the_tables_that_it_has_edited,
    a_gather_beside_one_that_cleared_a_huge_leaf_flushes_the_space,
    a_dropped_gather_holds_up_every_install,
    a_new_table_owes_nothing,
    an_unhooked_table_hands_its_key_to_the_gather,
    a_gather_that_flushes_for_a_family_counts_it,
    a_batch_settles_what_the_sharers_of_a_table_owe,
    a_gather_flushes_nothing_for_a_family_that_was_flushed_since,
    a_space_settles_no_key_of_its_family,
    one_cpu_that_has_flushed_settles_no_key_of_a_family,
    a_batch_that_has_settled_leaves_no_wait_to_its_family,
    a_batch_settles_nothing_that_an_open_one_has_deferred,
    a_batch_settles_nothing_that_a_later_one_defers,
    the_last_of_several_batches_settles_for_all,
    an_install_over_a_lingering_translation_flushes_once,
    a_lingering_translation_that_was_flushed_does_not_count,
    a_gather_ends_the_lingering_translations_of_the_tables_that_it_has_met,
    a_new_table_has_no_lingering_translations,
    entries_of_both_keys_have_one_sequence,
    a_gather_that_depends_on_the_space_settles_each_table,
    a_merged_key_stays_merged_when_more_is_deferred,
    the_clock_of_the_installing_cpu_settles_no_key,
    a_deferred_block_is_seen_by_a_gather_that_meets_no_table,
}

const CPUS: usize = 4;

/// A space that CPUs 1 and 2 run, with the first eight pages mapped and used by CPU 1.
fn used<I: Isa>() -> (Host<I>, Arc<Tlb<Host<I>>>, Space<I>) {
    let (host, tlb) = machine::<I>(CPUS);
    let space = Space::new(&tlb);
    on(2, || space.run());
    on(1, || space.run());
    (0..8).for_each(|index| use_page(&host, &space, index));
    (host, tlb, space)
}

fn use_page<I: Isa>(host: &Host<I>, space: &Space<I>, index: u16) {
    space.map_new(index);
    assert!(on(1, || host.access(page(index), Access::Write)).is_some());
}

/// What an install in the entry of a page does, on CPU 3.
fn install<I: Isa>(host: &Host<I>, space: &Space<I>, index: u16) -> Vec<Step> {
    let place = (space.slot(index), page(index));
    let flush = || space.tlb.flush_before_install(&space.context, place.0, place.1, Level::PTE);
    host.log(|| on(3, flush)).1
}

fn reaches<I: Isa>(host: &Host<I>, index: u16) -> bool {
    on(1, || host.access(page(index), Access::Write)).is_some()
}

fn overtaken<I: Isa>(tlb: &Tlb<Host<I>>) -> u64 {
    tlb.frames().counters().sum(Counter::PwTlbBatchOvertaken)
}

fn an_install_next_to_a_deferred_entry_flushes_nothing<I: Isa>() {
    let (host, tlb, space) = used::<I>();
    let mut batch = Batch::new(&tlb);
    batch.absorb(&space.context, space.clear(0));
    // The entry of page 9 has never been used, and that of page 1 is cleared and flushed.
    space.clear(1).settle();
    for index in [9, 1] {
        assert_eq!(install(&host, &space, index), [], "page {index}");
    }
    assert_eq!(overtaken(&tlb), 0);
    batch.settle();
}

/// On x86-64 the flush brings every CPU up to the generation of the deferral, too.
fn the_debt_of_one_entry_does_not_wait_for_others<I: Isa>() {
    let (host, tlb, space) = used::<I>();
    let mut batch = Batch::new(&tlb);
    batch.absorb(&space.context, space.clear(0));
    let nothing = Debt::new(&*tlb, &space.context, page(1), OwedFlush::Nothing, ()).at(space.slot(1));
    let ((), log) = host.log(|| nothing.settle());
    assert_eq!(log, []);
    on(2, || space.clear(1).settle());
    assert!(!reaches(&host, 1));
    assert_eq!(reaches(&host, 0), I::KIND == IsaKind::Aarch64);
    assert_eq!(overtaken(&tlb), 0);
    batch.settle();
}

fn a_gather_flushes_for_the_tables_that_it_has_met<I: Isa>() {
    let (host, tlb, space) = used::<I>();
    let mut batch = Batch::new(&tlb);
    batch.absorb(&space.context, space.clear(0));
    for concurrent in [false, true] {
        let gather = if concurrent { Gather::concurrent } else { Gather::new };
        let distant = || {
            let mut gather = gather(&tlb, &space.context);
            gather.meet(space.pmd);
            gather.settle();
        };
        assert_eq!(host.log(distant).1, [], "nothing is deferred in that table");
    }
    let mut gather = Gather::new(&tlb, &space.context);
    gather.meet(space.last());
    gather.settle();
    assert!(!reaches(&host, 0));
    assert_eq!(overtaken(&tlb), 1);
    let mut gather = Gather::new(&tlb, &space.context);
    gather.meet(space.last());
    assert_eq!(host.log(|| gather.settle()).1, [], "once");
    batch.settle();
}

fn gathers_of_distant_tables_do_not_flush_the_space<I: Isa>() {
    let (host, tlb, space) = used::<I>();
    let mut open = Gather::concurrent(&tlb, &space.context);
    open.meet(space.last());
    open.absorb(space.clear(0));
    open.publish(space.last());
    let mut distant = Gather::concurrent(&tlb, &space.context);
    distant.meet(space.pmd);
    assert_eq!(host.log(|| distant.settle()).1, []);
    assert!(reaches(&host, 0));
    // INV-TLB-CLEARED: this one depends on the entry of page 0.
    let mut near = Gather::concurrent(&tlb, &space.context);
    near.meet(space.last());
    near.settle();
    assert!(!reaches(&host, 0));
    open.settle();
}

fn an_install_over_a_deferred_entry_flushes_once<I: Isa>() {
    let (host, tlb, space) = used::<I>();
    let mut batch = Batch::new(&tlb);
    batch.absorb(&space.context, space.clear(0));
    batch.absorb(&space.context, space.clear(1));
    assert_eq!(I::decode(Level::PTE, tlb.fx().load(space.slot(0))), Entry::Empty, "a pending entry reads as empty");
    assert_ne!(install(&host, &space, 0), []);
    assert!(!reaches(&host, 0) && !reaches(&host, 1), "the flush is that of the space");
    for index in [0, 1] {
        assert_eq!(install(&host, &space, index), [], "page {index} is flushed");
    }
    assert_eq!(overtaken(&tlb), 1);
    let ((), log) = host.log(|| batch.settle());
    assert_eq!(log, [], "and so is the batch");
}

fn an_entry_cleared_after_the_flush_is_not_pending<I: Isa>() {
    let (host, tlb, space) = used::<I>();
    let mut batch = Batch::new(&tlb);
    batch.absorb(&space.context, space.clear(0));
    batch.settle();
    use_page(&host, &space, 0);
    space.clear(0).settle();
    let mut batch = Batch::new(&tlb);
    batch.absorb(&space.context, space.clear(1));
    assert_eq!(install(&host, &space, 0), []);
    batch.settle();
}

/// On arm64 two CPUs have issued, and neither's barrier alone completes both.
fn a_key_covers_what_was_deferred_before_it_was_merged<I: Isa>() {
    let (host, tlb, space) = used::<I>();
    let (mut one, mut other) = (Batch::new(&tlb), Batch::new(&tlb));
    on(1, || one.absorb(&space.context, space.clear(0)));
    tlb.ledger().open(CpuMask::EMPTY);
    on(2, || other.absorb(&space.context, space.clear(1)));
    tlb.ledger().open(CpuMask::EMPTY);
    on(2, || tlb.ledger().advance(CpuId::new(2), tlb.ledger().sample()));
    assert_ne!(install(&host, &space, 0), [], "CPU 1 still owes");
    assert!(!reaches(&host, 0));
    on(1, || one.settle());
    on(2, || other.settle());
}

fn a_settled_key_is_replaced_and_older_entries_do_not_count<I: Isa>() {
    let (host, tlb, space) = used::<I>();
    for index in 0..2 {
        let mut batch = Batch::new(&tlb);
        batch.absorb(&space.context, space.clear(index));
        batch.settle();
    }
    let mut batch = Batch::new(&tlb);
    batch.absorb(&space.context, space.clear(2));
    for index in 0..2 {
        assert_eq!(install(&host, &space, index), [], "page {index} is flushed long since");
    }
    assert_ne!(install(&host, &space, 2), []);
    batch.settle();
}

/// Its key covers it, for operations that depend on its rights.
fn a_weakened_leaf_is_not_marked<I: Isa>() {
    let (_, tlb, space) = used::<I>();
    let word = tlb.fx().load(space.slot(0));
    let weakened = Debt::new(&*tlb, &space.context, page(0), OwedFlush::Leaf(Level::PTE), ()).at(space.slot(0));
    let mut batch = Batch::new(&tlb);
    batch.absorb(&space.context, weakened);
    assert_eq!(tlb.fx().load(space.slot(0)), word);
    assert!(tlb.may_owe_flush(&space.context, space.last()));
    batch.settle();
    assert!(!tlb.may_owe_flush(&space.context, space.last()));
}

fn a_deferral_without_a_place_holds_up_every_install<I: Isa>() {
    let (host, tlb, space) = used::<I>();
    let mut batch = Batch::new(&tlb);
    batch.absorb(&space.context, Debt::new(&*tlb, &space.context, page(0), OwedFlush::Leaf(Level::PTE), ()));
    assert_ne!(install(&host, &space, 9), []);
    assert_eq!(install(&host, &space, 9), [], "once");
    batch.settle();
}

/// A fault beside another thread's `MADV_DONTNEED` of a distant range.
fn an_install_beside_a_gather_flushes_only_in_the_tables_that_it_has_edited<I: Isa>() {
    let (host, tlb, space) = used::<I>();
    let mut gather = Gather::concurrent(&tlb, &space.context);
    gather.absorb(space.clear(0));
    gather.absorb(space.clear(1));
    gather.publish(space.last());
    let above = (space.above(), page(0));
    let ((), log) = host.log(|| on(3, || tlb.flush_before_install(&space.context, above.0, above.1, Level::PMD)));
    assert_eq!(log, [], "the gather has edited another table");
    for index in [0, 1] {
        assert_ne!(install(&host, &space, index), []);
        assert!(!reaches(&host, index));
    }
    gather.settle();
    assert_eq!(install(&host, &space, 0), [], "no gather is open");
    // A later gather of another table leaves this one alone.
    let mut gather = Gather::concurrent(&tlb, &space.context);
    gather.absorb(Debt::new(&*tlb, &space.context, page(0), OwedFlush::Leaf(Level::PMD), ()));
    gather.publish(space.pmd);
    assert_eq!(install(&host, &space, 1), []);
    gather.settle();
}

/// The other does not meet the table of the huge leaf, because it finds no entry there.
fn a_gather_beside_one_that_cleared_a_huge_leaf_flushes_the_space<I: Isa>() {
    let (host, tlb, space) = used::<I>();
    let huge = Leaf { pfn: Pfn::new(512), rights: Rights::RW, flags: LeafFlags::USER | LeafFlags::ACCESSED };
    let (slot, va) = (PteSlot { table: space.pmd, index: 7 }, page(0).align_down(1 << 30).add(7 << 21));
    tlb.fx().store(slot, I::leaf(Level::PMD, huge));
    let reaches = || on(1, || host.access(va, Access::Read)).is_some();
    assert!(reaches());
    let mut open = Gather::concurrent(&tlb, &space.context);
    open.meet(space.pmd);
    tlb.fx().store(slot, Pte::EMPTY);
    open.absorb(Debt::new(&*tlb, &space.context, va, OwedFlush::Leaf(Level::PMD), ()).at(slot));
    open.publish(space.pmd);
    assert!(reaches());
    Gather::concurrent(&tlb, &space.context).settle();
    assert!(!reaches());
    open.settle();
    assert_eq!(host.log(|| Gather::concurrent(&tlb, &space.context).settle()).1, [], "alone");
    let beside = Gather::concurrent(&tlb, &space.context);
    assert_eq!(
        host.log(|| Gather::concurrent(&tlb, &space.context).settle()).1,
        [],
        "no huge leaf is cleared any more"
    );
    beside.settle();
}

fn a_dropped_gather_holds_up_every_install<I: Isa>() {
    let (host, tlb, space) = used::<I>();
    let mut gather = Gather::concurrent(&tlb, &space.context);
    gather.absorb(space.clear(0));
    gather.publish(space.last());
    let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(gather)));
    assert_eq!(dropped.is_err(), cfg!(debug_assertions));
    assert_ne!(install(&host, &space, 9), [], "the ledger does not know which entry it was");
    assert!(!reaches(&host, 0));
    assert_eq!(install(&host, &space, 0), [], "once");
}

fn a_new_table_owes_nothing<I: Isa>() {
    let (host, tlb, space) = used::<I>();
    let mut batch = Batch::new(&tlb);
    batch.absorb(&space.context, space.clear(0));
    // SAFETY: INV-FRAME-TABLE – the entry that points to the table is cleared first.
    let table = unsafe {
        tlb.fx().store(space.above(), pagewright_arch::Pte::EMPTY);
        tlb.frames().retire(space.last())
    };
    Debt::new(&*tlb, &space.context, page(0), OwedFlush::Table(Level::PMD), ()).settle();
    let last = tlb.frames().new_table(table, Level::PTE, space.context.id());
    assert_eq!(last, space.last());
    assert_eq!(install(&host, &space, 0), []);
    batch.settle();
}

/// Unhooks the last-level table, whose entry 3 is pending.
fn an_unhooked_table_hands_its_key_to_the_gather<I: Isa>() {
    let (host, tlb, space) = used::<I>();
    let mut batch = Batch::new(&tlb);
    batch.absorb(&space.context, space.clear(3));
    let mut gather = Gather::new(&tlb, &space.context);
    tlb.fx().store(space.above(), Pte::EMPTY);
    gather.hand_over(space.last());
    gather.absorb(Debt::new(&*tlb, &space.context, page(0), OwedFlush::Table(Level::PMD), ()));
    assert!(reaches(&host, 3));
    gather.settle();
    assert!(!reaches(&host, 3), "one invalidation of 2 MiB does not cover each page");
    assert_eq!(host.log(|| batch.settle()).1, [], "the batch is settled, too");
}

/// A space that shares the table of another; CPU 2 runs it and has used the first eight pages.
fn shared<I: Isa>() -> (Host<I>, Space<I>, Space<I>) {
    let (host, _, space) = used::<I>();
    let other = Space::sharing(&space);
    on(2, || other.run());
    (0..8).for_each(|index| assert!(on(2, || host.access(page(index), Access::Read)).is_some()));
    (host, space, other)
}

/// Clears an entry of the shared table, in a batch that owes the flush of both spaces.
fn clear_shared<'t, I: Isa>(batch: &mut Batch<'t, Host<I>>, (space, other): (&'t Space<I>, &Space<I>), index: u16) {
    space.clear_for_all(&[&space.context, &other.context], batch, index);
}

fn other_reaches<I: Isa>(host: &Host<I>, index: u16) -> bool {
    on(2, || host.access(page(index), Access::Read)).is_some()
}

fn a_gather_that_flushes_for_a_family_counts_it<I: Isa>() {
    let (host, space, other) = shared::<I>();
    let mut batch = Batch::new(&space.tlb);
    clear_shared(&mut batch, (&space, &other), 0);
    on(3, || space.depend());
    assert!(!reaches(&host, 0) && !other_reaches(&host, 0));
    assert_eq!(overtaken(&space.tlb), 1);
    on(3, || space.depend());
    assert_eq!(overtaken(&space.tlb), 1, "all is settled");
    batch.settle();
}

/// Another batch has cleared the entry.
///
/// No flush is added twice, and none before the end.
fn a_batch_settles_what_the_sharers_of_a_table_owe<I: Isa>() {
    let (host, space, other) = shared::<I>();
    let family = Family::try_new().expect("memory is left");
    [&space, &other].into_iter().for_each(|space| family.join(&space.context).expect("memory is left"));
    let (mut batch, mut depending) = (Batch::new(&space.tlb), Batch::new(&space.tlb));
    clear_shared(&mut batch, (&space, &other), 0);
    for _ in 0..2 {
        on(3, || family.token().absorb_pending(&mut depending, space.last()));
        assert_eq!((depending.len(), other_reaches(&host, 0)), (1, true));
    }
    on(3, || depending.settle());
    assert!(!reaches(&host, 0) && !other_reaches(&host, 0));
    assert_eq!(host.log(|| batch.settle()).1, [], "the first batch is settled, too");
}

/// Two CPUs have cleared entries, so no one CPU's barrier ends both.
fn a_gather_flushes_nothing_for_a_family_that_was_flushed_since<I: Isa>() {
    let (host, space, other) = shared::<I>();
    let tlb = &space.tlb;
    let mut batches = [Batch::new(tlb), Batch::new(tlb)];
    for (batch, cpu) in batches.iter_mut().zip([1, 2]) {
        on(cpu, || clear_shared(batch, (&space, &other), cpu));
    }
    let mut gather = Gather::new(tlb, &space.context);
    gather.meet(space.last());
    on(3, || space.depend());
    assert_eq!([1, 2].map(|index| (reaches(&host, index), other_reaches(&host, index))), [(false, false); 2]);
    let counts =
        || [Counter::PwTlbBatchOvertaken, Counter::PwTlbSettledAlready].map(|of| tlb.frames().counters().sum(of));
    let before = counts();
    assert_eq!((host.log(|| gather.settle()).1, counts()), (vec![], before));
    batches.into_iter().for_each(Batch::settle);
}

fn a_space_settles_no_key_of_its_family<I: Isa>() {
    for by_other in [false, true] {
        let (host, space, other) = shared::<I>();
        let tlb = &space.tlb;
        let mut batch = Batch::new(tlb);
        clear_shared(&mut batch, (&space, &other), 0);
        // The flush of the one space, which reaches no CPU of the other.
        let unplaced = Debt::new(tlb, &space.context, page(9), OwedFlush::Leaf(Level::PTE), ());
        batch.absorb(&space.context, unplaced);
        on(3, || Gather::new(tlb, &space.context).settle());
        assert_eq!((reaches(&host, 0), other_reaches(&host, 0)), (false, true));
        let installing = if by_other { &other } else { &space };
        assert_ne!(install(&host, installing, 0), []);
        assert!(!other_reaches(&host, 0));
        assert_eq!(install(&host, installing, 0), [], "once");
        batch.settle();
    }
}

fn one_cpu_that_has_flushed_settles_no_key_of_a_family<I: Isa>() {
    let (host, space, other) = shared::<I>();
    let mut batch = Batch::new(&space.tlb);
    clear_shared(&mut batch, (&space, &other), 0);
    space.tlb.ledger().open(CpuMask::EMPTY);
    on(1, || space.tlb.cpu_starting());
    assert_ne!(install(&host, &space, 0), []);
    assert!(!other_reaches(&host, 0));
    batch.settle();
}

/// CPU 3 runs no space of the family and has flushed nothing, so its clock says nothing.
fn a_batch_that_has_settled_leaves_no_wait_to_its_family<I: Isa>() {
    let (host, space, other) = shared::<I>();
    for index in 0..2 {
        let mut batch = Batch::new(&space.tlb);
        clear_shared(&mut batch, (&space, &other), index);
        batch.settle();
        assert!(!reaches(&host, index) && !other_reaches(&host, index));
        assert_eq!(install(&host, &other, index), []);
    }
    let mut gather = Gather::new(&space.tlb, &space.context);
    gather.meet(space.last());
    assert_eq!(host.log(|| gather.settle()).1, []);
    assert_eq!(overtaken(&space.tlb), 0);
}

fn a_batch_settles_nothing_that_an_open_one_has_deferred<I: Isa>() {
    let (host, space, other) = shared::<I>();
    let apart = Space::new(&space.tlb);
    on(0, || apart.run());
    let [mut open, mut batch] = [(); 2].map(|()| Batch::new(&space.tlb));
    on(1, || clear_shared(&mut open, (&space, &other), 0));
    apart.map_new(0);
    on(3, || apart.run());
    batch.absorb(&apart.context, apart.clear(0));
    batch.settle();
    assert!(other_reaches(&host, 0));
    assert_ne!(install(&host, &space, 0), []);
    assert!(!other_reaches(&host, 0));
    open.settle();
}

/// On x86 the first one flushes no CPU, because the only one of its space is lazy.
fn a_batch_settles_nothing_that_a_later_one_defers<I: Isa>() {
    let (host, space, other) = shared::<I>();
    let apart = Space::new(&space.tlb);
    apart.map_new(0);
    on(3, || {
        apart.run();
        space.tlb.enter_lazy();
    });
    let mut batch = Batch::new(&space.tlb);
    batch.absorb(&apart.context, apart.clear(0));
    batch.settle();
    let mut later = Batch::new(&space.tlb);
    on(1, || clear_shared(&mut later, (&space, &other), 0));
    assert!(other_reaches(&host, 0));
    assert_ne!(install(&host, &space, 0), []);
    assert!(!other_reaches(&host, 0));
    later.settle();
}

/// The one that closes first has the latest epoch.
fn the_last_of_several_batches_settles_for_all<I: Isa>() {
    let (host, space, other) = shared::<I>();
    let [mut first, mut second] = [(); 2].map(|()| Batch::new(&space.tlb));
    clear_shared(&mut first, (&space, &other), 0);
    space.tlb.ledger().open(CpuMask::EMPTY);
    clear_shared(&mut second, (&space, &other), 1);
    second.settle();
    first.settle();
    for index in 0..2 {
        assert!(!reaches(&host, index) && !other_reaches(&host, index));
        assert_eq!(install(&host, &other, index), []);
    }
}

fn an_install_over_a_lingering_translation_flushes_once<I: Isa>() {
    let (host, tlb, space) = used::<I>();
    space.linger(0);
    assert_eq!(install(&host, &space, 1), [], "beside it");
    assert_ne!(install(&host, &space, 0), []);
    assert!(!reaches(&host, 0));
    assert_eq!(install(&host, &space, 0), []);
    assert_eq!(overtaken(&tlb), 1);
    space.linger(2);
    assert_eq!(install(&host, &space, 0), [], "what lingers now is another entry");
}

/// A gather has flushed it, and leaves the key as it is.
fn a_lingering_translation_that_was_flushed_does_not_count<I: Isa>() {
    let (host, _, space) = used::<I>();
    space.linger(0);
    space.depend();
    assert!(!reaches(&host, 0));
    space.linger(2);
    assert_eq!(install(&host, &space, 0), []);
    assert_ne!(install(&host, &space, 2), []);
}

fn a_gather_ends_the_lingering_translations_of_the_tables_that_it_has_met<I: Isa>() {
    let (host, tlb, space) = used::<I>();
    space.linger(0);
    let gather_of = |table| {
        let mut gather = Gather::new(&tlb, &space.context);
        gather.meet(table);
        host.log(|| gather.settle()).1
    };
    assert_eq!(gather_of(space.pmd), []);
    assert!(reaches(&host, 0));
    assert_ne!(gather_of(space.last()), []);
    assert!(!reaches(&host, 0));
    assert_eq!(gather_of(space.last()), []);
}

fn a_new_table_has_no_lingering_translations<I: Isa>() {
    let (host, tlb, space) = used::<I>();
    space.linger(0);
    // SAFETY: INV-FRAME-TABLE – the entry that points to the table is cleared first.
    let table = unsafe {
        tlb.fx().store(space.above(), Pte::EMPTY);
        tlb.frames().retire(space.last())
    };
    let last = tlb.frames().new_table(table, Level::PTE, space.context.id());
    assert_eq!(last, space.last());
    assert_eq!(install(&host, &space, 0), []);
}

/// A must-flush key that is settled makes way for the next, beside entries that linger.
fn entries_of_both_keys_have_one_sequence<I: Isa>() {
    let (host, tlb, space) = used::<I>();
    let mut batch = Batch::new(&tlb);
    batch.absorb(&space.context, space.clear(1));
    batch.settle();
    space.linger(0);
    let mut batch = Batch::new(&tlb);
    batch.absorb(&space.context, space.clear(2));
    assert_ne!(install(&host, &space, 0), []);
    assert!(!reaches(&host, 0));
    batch.settle();
}

fn a_gather_that_depends_on_the_space_settles_each_table<I: Isa>() {
    let (host, tlb, space) = used::<I>();
    let mut batch = Batch::new(&tlb);
    batch.absorb(&space.context, space.clear(0));
    let mut gather = Gather::new(&tlb, &space.context);
    gather.meet_space();
    gather.settle();
    assert!(!reaches(&host, 0));
    let mut gather = Gather::new(&tlb, &space.context);
    gather.meet_space();
    assert_eq!(host.log(|| gather.settle()).1, [], "all is settled");
    batch.settle();
}

/// On arm64 CPU 1 has issued, and only its DSB completes (Arm ARM D8.14.5).
fn the_clock_of_the_installing_cpu_settles_no_key<I: Isa>() {
    let (host, tlb, space) = used::<I>();
    let mut batch = Batch::new(&tlb);
    on(1, || batch.absorb(&space.context, space.clear(0)));
    tlb.ledger().open(CpuMask::EMPTY);
    on(3, || tlb.ledger().advance(CpuId::new(3), tlb.ledger().sample()));
    assert_ne!(install(&host, &space, 0), []);
    assert!(!reaches(&host, 0));
    on(1, || batch.settle());
}

fn a_merged_key_stays_merged_when_more_is_deferred<I: Isa>() {
    let (host, space, other) = shared::<I>();
    let tlb = &space.tlb;
    let mut batch = Batch::new(tlb);
    clear_shared(&mut batch, (&space, &other), 0);
    // An epoch later, as a copy that is the space's own.
    tlb.ledger().open(CpuMask::EMPTY);
    batch.absorb(&space.context, space.clear(1));
    batch.absorb(&space.context, Debt::new(tlb, &space.context, page(9), OwedFlush::Leaf(Level::PTE), ()));
    on(3, || Gather::new(tlb, &space.context).settle());
    assert_eq!((reaches(&host, 0), other_reaches(&host, 0)), (false, true));
    assert_ne!(install(&host, &space, 0), []);
    assert!(!other_reaches(&host, 0));
    batch.settle();
}

fn a_deferred_block_is_seen_by_a_gather_that_meets_no_table<I: Isa>() {
    let (host, tlb, space) = used::<I>();
    let leaf = Leaf { pfn: Pfn::new(512), rights: Rights::RW, flags: LeafFlags::USER | LeafFlags::ACCESSED };
    let (slot, va) = (PteSlot { table: space.pmd, index: 7 }, page(0).align_down(1 << 30).add(7 << 21));
    tlb.fx().store(slot, I::leaf(Level::PMD, leaf));
    let reaches = || on(1, || host.access(va, Access::Read)).is_some();
    assert!(reaches());
    let mut batch = Batch::new(&tlb);
    tlb.fx().store(slot, Pte::EMPTY);
    batch.absorb(&space.context, Debt::new(&*tlb, &space.context, va, OwedFlush::Leaf(Level::PMD), ()).at(slot));
    assert!(reaches());
    Gather::new(&tlb, &space.context).settle();
    assert!(!reaches());
    batch.settle();
}

#[cfg(feature = "planted")]
#[test]
fn mistakes_about_the_life_of_a_key_are_found() {
    use pagewright_arch::{Aarch64, X86_64};
    use pagewright_plant::{PlantedBug, assert_found_by};
    assert_found_by(PlantedBug::KeysNotTaken, an_unhooked_table_hands_its_key_to_the_gather::<Aarch64>);
    assert_found_by(PlantedBug::BatchEpochGoesOn, a_batch_settles_nothing_that_a_later_one_defers::<X86_64>);
    assert_found_by(PlantedBug::OpenBatchSettled, a_batch_settles_nothing_that_an_open_one_has_deferred::<X86_64>);
    assert_found_by(PlantedBug::FamilyKeyOfSpace, a_space_settles_no_key_of_its_family::<X86_64>);
    assert_found_by(PlantedBug::FamilyKeyNotTakenAlong, a_batch_settles_what_the_sharers_of_a_table_owe::<X86_64>);
    assert_found_by(PlantedBug::MergedSettledBySpace, a_space_settles_no_key_of_its_family::<Aarch64>);
    assert_found_by(
        PlantedBug::LingeringNotMet,
        a_gather_ends_the_lingering_translations_of_the_tables_that_it_has_met::<X86_64>,
    );
    assert_found_by(
        PlantedBug::LingeringNotSeenAtInstall,
        an_install_over_a_lingering_translation_flushes_once::<Aarch64>,
    );
    assert_found_by(PlantedBug::MergedKeyLost, a_merged_key_stays_merged_when_more_is_deferred::<X86_64>);
    assert_found_by(PlantedBug::LingerKeyKept, a_new_table_has_no_lingering_translations::<X86_64>);
    assert_found_by(PlantedBug::SequenceMovesEarly, entries_of_both_keys_have_one_sequence::<Aarch64>);
}

#[cfg(feature = "planted")]
#[test]
fn mistakes_about_places_are_found() {
    use pagewright_arch::{Aarch64, X86_64};
    use pagewright_plant::{PlantedBug, assert_found_by};
    assert_found_by(PlantedBug::TableNotMet, a_gather_flushes_for_the_tables_that_it_has_met::<Aarch64>);
    assert_found_by(PlantedBug::TableNotMet, gathers_of_distant_tables_do_not_flush_the_space::<X86_64>);
    assert_found_by(
        PlantedBug::GatherMarkCleared,
        an_install_beside_a_gather_flushes_only_in_the_tables_that_it_has_edited::<Aarch64>,
    );
    assert_found_by(
        PlantedBug::HugeDeferralPlaced,
        a_deferred_block_is_seen_by_a_gather_that_meets_no_table::<Aarch64>,
    );
    assert_found_by(PlantedBug::OwnClockAsked, the_clock_of_the_installing_cpu_settles_no_key::<Aarch64>);
    assert_found_by(PlantedBug::PendingNotMarked, an_install_over_a_deferred_entry_flushes_once::<X86_64>);
    assert_found_by(PlantedBug::UnsettledKeyReplaced, a_key_covers_what_was_deferred_before_it_was_merged::<Aarch64>);
    assert_found_by(
        PlantedBug::GatherNotRecorded,
        an_install_beside_a_gather_flushes_only_in_the_tables_that_it_has_edited::<X86_64>,
    );
}
