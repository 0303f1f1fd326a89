//! Entries whose flush is deferred, as other operations on the space find them.
//!
//! INV-TLB-PLACE, INV-TLB-KEY-LIFE.

use crate::space::{Child, Space, special};
use crate::support::{Delivery, Effect, Host, Step, on};
use pagewright_arch::{Effects, Isa, LeafFlags, PteSlot, SoftEntry, SoftKind};
use pagewright_table::{CopyStop, EntryRun, EntryView, Mlocked, TableReserve};
use pagewright_tlb::frames::{FolioFlags, FolioOwner, NewFolio};
use pagewright_tlb::{Batch, Gather};
use pagewright_types::{Access, Counter, ForkNodeId, Level, Order, PAGE_SIZE, PageRange, Pfn, Rights, VirtAddr};

on_both_also_as_words! {
    a_swap_entry_that_is_zapped_leaves_its_flush_pending,
    a_swap_entry_that_is_changed_leaves_its_flush_pending,
    a_soft_entry_over_a_pending_one_leaves_its_flush_pending,
    a_table_hooked_over_a_pending_leaf_flushes_it_first,
    a_child_inherits_no_pending_entry,
    fork_settles_what_it_copies,
    fork_settles_what_it_shares,
    the_copy_of_a_shared_table_owes_nothing,
    leaving_a_table_settles_for_the_space_that_leaves,
    a_table_that_is_taken_back_keeps_its_key,
    a_move_flushes_what_is_pending_at_its_destination,
    a_move_flushes_every_old_address,
    an_install_that_flushes_every_sharer_counts_as_one_that_met_a_deferred_flush,
    a_batch_that_absorbs_what_a_table_owes_settles_it,
    a_leaf_that_lost_its_rights_is_cleared_with_the_flush_that_is_pending,
    a_soft_entry_cleared_for_all_is_gone_for_every_sharer,
    a_space_that_ends_leaves_its_family,
}

pub(crate) const VA: VirtAddr = VirtAddr::new(0x4000_0000);
const SWAP: SoftEntry = SoftEntry { kind: SoftKind::Swap, exclusive: true, payload: 3 };

/// A page of [`used`].
pub(crate) fn page(index: u64) -> VirtAddr {
    VA.add(index * PAGE_SIZE)
}

/// A space that CPUs 1 and 2 run, and four pages of anonymous memory that CPU 1 has used.
pub(crate) fn used<I: Isa>() -> Space<I> {
    let space = Space::<I>::new(4, Delivery::AtOnce);
    for cpu in [2, 1] {
        on(cpu, || space.tlb.switch_to(space.context()));
    }
    space.ensure_tables(VA, Level::PTE);
    (0..4).for_each(|index| map_new(&space, index));
    space
}

fn map_new<I: Isa>(space: &Space<I>, index: u64) {
    let block = space.tlb.alloc(space.tlb.request(Order::ZERO)).expect("memory is left");
    let (owner, flags) = (FolioOwner::Anon(ForkNodeId::new(1)), FolioFlags::SWAPBACKED);
    let new = NewFolio { block, owner, index, flags };
    let leaf = LeafFlags::USER | LeafFlags::ACCESSED;
    let map = || space.edit(page(index), Level::PTE, |run| run.map_new(page(index), new, Rights::RW, leaf));
    on(3, map).expect("a table");
    assert!(reaches(space, index));
}

pub(crate) fn is_flush(step: &Step) -> bool {
    matches!(step.effect, Effect::Invalidate(_) | Effect::Complete | Effect::SendIpi(_))
}

fn reaches<I: Isa>(space: &Space<I>, index: u64) -> bool {
    on(1, || space.host.access(page(index), Access::Write)).is_some()
}

/// Replaces a page by a swap entry, and defers the flush.
fn swap_out<'t, I: Isa>(space: &'t Space<I>, batch: &mut Batch<'t, Host<I>>, index: u64) {
    let edit = |run: &mut EntryRun<'_, '_, Host<I>>| {
        let debt = run.unmap_to_soft(page(index), |_| SWAP, |_| false).expect("a leaf");
        batch.absorb(space.context(), debt);
    };
    space.edit(page(index), Level::PTE, edit).expect("a table");
    assert_eq!(entry(space, index), EntryView::Soft(SWAP), "a pending swap entry reads as one");
}

fn entry<I: Isa>(space: &Space<I>, index: u64) -> EntryView {
    space.locked(page(index), Level::PTE, |table| table.entry(page(index))).expect("a table")
}

/// What an install at a page does, on CPU 3.
fn install<I: Isa>(space: &Space<I>, index: u64) -> Vec<Step> {
    let map = || space.edit(page(index), Level::PTE, |run| run.map(page(index), special(Pfn::new(1))));
    let ((), log) = space.host.log(|| on(3, map).expect("a table"));
    log.into_iter().filter(is_flush).collect()
}

fn unmap_soft<I: Isa>(space: &Space<I>, index: u64) {
    let soft = space.edit(page(index), Level::PTE, |run| run.unmap_soft(page(index))).expect("a table");
    assert!(soft.is_some());
    assert_eq!(entry(space, index), EntryView::Empty, "a pending entry reads as empty");
}

/// The first page has this entry, and an install after it still flushes.
fn assert_still_pending<I: Isa>(space: &Space<I>, soft: SoftEntry) {
    assert_eq!(entry(space, 0), EntryView::Soft(soft));
    unmap_soft(space, 0);
    assert_ne!(install(space, 0), []);
}

fn a_swap_entry_that_is_zapped_leaves_its_flush_pending<I: Isa>() {
    let space = used::<I>();
    let mut batch = Batch::new(&space.tlb);
    swap_out(&space, &mut batch, 0);
    swap_out(&space, &mut batch, 1);
    unmap_soft(&space, 0);
    assert!(reaches(&space, 0), "CPU 1 still holds the page");
    assert_eq!(install(&space, 6), [], "an entry that was never used");
    assert_ne!(install(&space, 0), []);
    assert!(!reaches(&space, 1));
    unmap_soft(&space, 1);
    assert_eq!(install(&space, 1), [], "the space is flushed");
    batch.settle();
}

fn a_swap_entry_that_is_changed_leaves_its_flush_pending<I: Isa>() {
    let space = used::<I>();
    let mut batch = Batch::new(&space.tlb);
    swap_out(&space, &mut batch, 0);
    let changed = SoftEntry { exclusive: false, ..SWAP };
    space.edit(page(0), Level::PTE, |run| run.change_soft(page(0), changed)).expect("a table");
    assert_still_pending(&space, changed);
    batch.settle();
}

fn a_soft_entry_over_a_pending_one_leaves_its_flush_pending<I: Isa>() {
    let space = used::<I>();
    let mut batch = Batch::new(&space.tlb);
    swap_out(&space, &mut batch, 0);
    unmap_soft(&space, 0);
    let guard = SoftEntry { kind: SoftKind::Marker, exclusive: false, payload: 1 };
    space.edit(page(0), Level::PTE, |run| run.map_soft(page(0), guard)).expect("a table");
    assert_still_pending(&space, guard);
    batch.settle();
}

/// A huge leaf that a concurrent gather has cleared: its flush is of the level of the leaf.
fn a_table_hooked_over_a_pending_leaf_flushes_it_first<I: Isa>() {
    let space = used::<I>();
    let huge = VA.add(Level::PMD.span());
    space.map_special(huge, Level::PMD, Pfn::new(512));
    assert!(on(1, || space.host.access(huge, Access::Read)).is_some());
    let mut gather = Gather::concurrent(&space.tlb, space.context());
    space.locked(huge, Level::PMD, |table| {
        let debt = table.run(Mlocked(false)).unmap(huge).expect("a leaf");
        gather.absorb(debt);
        gather.publish(table.table());
    });
    let mut reserve = TableReserve::new(&space.tlb);
    reserve.fill(1).expect("memory is left");
    assert!(on(1, || space.host.access(huge, Access::Read)).is_some(), "CPU 1 still holds the huge leaf");
    assert_eq!(on(3, || space.ensure_from(huge, Level::PTE, &mut reserve)), 1);
    assert!(on(1, || space.host.access(huge, Access::Read)).is_none());
    gather.settle();
}

fn a_child_inherits_no_pending_entry<I: Isa>() {
    let space = used::<I>();
    let mut batch = Batch::new(&space.tlb);
    swap_out(&space, &mut batch, 0);
    let child = crate::space::new_lock(&space.tlb);
    let mut gather = Gather::new(&space.tlb, space.context());
    copy_first(&space, &child, &mut gather);
    gather.settle();
    batch.settle();
}

/// What a fork copies it depends on: the child would have a page that a CPU may still store to.
fn fork_settles_what_it_copies<I: Isa>() {
    let space = used::<I>();
    let mut batch = Batch::new(&space.tlb);
    swap_out(&space, &mut batch, 0);
    assert!(reaches(&space, 0), "CPU 1 still holds the page");
    let child = crate::space::new_lock(&space.tlb);
    let mut gather = Gather::new(&space.tlb, space.context());
    copy_first(&space, &child, &mut gather);
    on(3, || gather.settle());
    assert!(!reaches(&space, 0));
    batch.settle();
}

/// Copies the entry of the first page to a child that has no table yet.
fn copy_first<I: Isa>(space: &Space<I>, child: &Child<I>, gather: &mut Gather<'_, Host<I>>) {
    let mut reserve = TableReserve::new(&space.tlb);
    reserve.fill(3).expect("memory is left");
    let (from, to) = (space.mmap.write(), child.write());
    to.tables(&space.tlb).owned(PageRange::page(VA)).ensure(VA, Level::PTE, &mut reserve);
    let (from, to) = (from.tables(&space.tlb), to.tables(&space.tlb));
    let (from, to) = (from.owned(PageRange::page(VA)), to.owned(PageRange::page(VA)));
    let (parent, theirs) = (from.lock(VA).expect("a table"), to.lock(VA).expect("a table"));
    let copied = parent.copy_run(&theirs, PageRange::page(VA), &mut crate::runs::Hooks, |_| None, gather);
    assert_eq!(copied, (1, Ok(())));
    let word = |table: Pfn| space.host.load(PteSlot { table, index: 0 });
    assert!(I::pending(word(parent.table())).is_some());
    assert_eq!(I::pending(word(theirs.table())), None, "the child's entry is not pending");
}

/// A child that shares every table, and which CPU 2 runs.
pub(crate) fn fork<I: Isa>(space: &Space<I>) -> Child<I> {
    let (child, complete) = on(3, || space.fork(|_| true));
    assert!(complete, "nothing is left to copy");
    on(2, || space.tlb.switch_to(child.table().context()));
    child
}

/// A parent and a child, which have read four pages of a table that they share.
fn sharing<I: Isa>() -> (Space<I>, Child<I>) {
    let space = used::<I>();
    let child = fork(&space);
    for cpu in [1, 2] {
        (0..4).for_each(|index| assert!(reads(&space, cpu, index)));
    }
    (space, child)
}

fn swap_out_for_all<'t, I: Isa>(space: &'t Space<I>, batch: &mut Batch<'t, Host<I>>, index: u64) {
    let held = space.mmap.read();
    let tables = held.tables(&space.tlb);
    let token = tables.family_token();
    let table = tables.lock_for_all(page(index), token.as_ref()).expect("a table");
    let debt = table.run(Mlocked(false)).unmap_to_soft(page(index), |_| SWAP, |_| false);
    debt.expect("a leaf").absorb_into(batch, space.context());
    drop(table);
    assert!(reads(space, 1, index) && reads(space, 2, index), "the flush is deferred");
}

fn reads<I: Isa>(space: &Space<I>, cpu: u16, index: u64) -> bool {
    on(cpu, || space.host.access(page(index), Access::Read)).is_some()
}

/// What a check before an install at a page does through `mmap`, on CPU 3.
fn before_install<I: Isa>(space: &Space<I>, mmap: &Child<I>, table: Pfn, index: u64) -> Vec<Step> {
    let slot = PteSlot { table, index: index as u16 };
    let check = || space.tlb.flush_before_install(mmap.table().context(), slot, page(index), Level::PTE);
    let ((), log) = space.host.log(|| on(3, check));
    log.into_iter().filter(is_flush).collect()
}

fn fork_settles_what_it_shares<I: Isa>() {
    let space = used::<I>();
    let mut batch = Batch::new(&space.tlb);
    let table = space.table_at(VA, Level::PTE).expect("a table");
    swap_out(&space, &mut batch, 0);
    assert!(reaches(&space, 0), "CPU 1 still holds the page");
    let child = fork(&space);
    assert!(!reads(&space, 1, 0));
    for mmap in [&child, &space.mmap] {
        assert_eq!(before_install(&space, mmap, table, 0), []);
    }
    batch.settle();
}

/// The flush of a break spans the whole copy, so an install there flushes nothing.
fn the_copy_of_a_shared_table_owes_nothing<I: Isa>() {
    let (space, child) = sharing::<I>();
    let mut batch = Batch::new(&space.tlb);
    swap_out_for_all(&space, &mut batch, 0);
    let old = child.read().tables(&space.tlb).read_lock(VA).expect("a table").table();
    own(&space, &child);
    assert!(!reads(&space, 2, 0), "the child's CPU is flushed by the break");
    assert!(reads(&space, 1, 0), "that of the parent is not");
    let copy = child.read().tables(&space.tlb).owned(PageRange::page(VA)).lock(VA).expect("a table").table();
    assert_ne!(copy, old);
    assert_eq!(before_install(&space, &child, copy, 0), []);
    assert_ne!(before_install(&space, &space.mmap, old, 0), []);
    assert!(!reads(&space, 1, 0));
    batch.settle();
}

/// Makes the table of the pages the space's own.
pub(crate) fn own<I: Isa>(space: &Space<I>, mmap: &Child<I>) {
    own_at(space, mmap, VA);
}

/// Makes the tables on the way to `va` the space's own.
pub(crate) fn own_at<I: Isa>(space: &Space<I>, mmap: &Child<I>, va: VirtAddr) {
    let held = mmap.read();
    let owned = on(3, || {
        held.tables(&space.tlb).own(PageRange::page(va), &mut crate::runs::Hooks, |reserve, wanted| {
            reserve.fill(wanted).map_err(|_| CopyStop::NoFrame(va))
        })
    });
    assert!(owned.is_ok());
}

fn leaving_a_table_settles_for_the_space_that_leaves<I: Isa>() {
    let (space, child) = sharing::<I>();
    let mut batch = Batch::new(&space.tlb);
    swap_out_for_all(&space, &mut batch, 0);
    let (held, all) = (child.write(), PageRange::new(VirtAddr::ZERO, I::USER_END));
    on(3, || held.leave_shared(&space.tlb, all, core::iter::once(all)));
    assert!(!reads(&space, 2, 0));
    assert!(reads(&space, 1, 0), "the flush of the parent is still deferred");
    batch.settle();
    assert!(!reads(&space, 1, 0));
}

fn a_table_that_is_taken_back_keeps_its_key<I: Isa>() {
    let (space, child) = sharing::<I>();
    let mut batch = Batch::new(&space.tlb);
    swap_out_for_all(&space, &mut batch, 0);
    own(&space, &child);
    own(&space, &space.mmap);
    let table = space.table_at(VA, Level::PTE).expect("a table");
    assert!(reads(&space, 1, 0), "nothing is flushed to take a table back");
    assert_ne!(before_install(&space, &space.mmap, table, 0), []);
    assert!(!reads(&space, 1, 0));
    batch.settle();
}

fn an_install_that_flushes_every_sharer_counts_as_one_that_met_a_deferred_flush<I: Isa>() {
    let (space, child) = sharing::<I>();
    let mut batch = Batch::new(&space.tlb);
    swap_out_for_all(&space, &mut batch, 0);
    let table = child.read().tables(&space.tlb).read_lock(VA).expect("a table").table();
    let overtaken = || space.tlb.frames().counters().sum(Counter::PwTlbBatchOvertaken);
    assert_eq!(overtaken(), 0);
    assert_ne!(before_install(&space, &space.mmap, table, 0), []);
    assert_eq!(overtaken(), 1);
    batch.settle();
}

/// For a caller that depends on entries which another operation cleared.
fn a_batch_that_absorbs_what_a_table_owes_settles_it<I: Isa>() {
    let absorb = |space: &Space<I>| {
        let held = space.mmap.read();
        let tables = held.tables(&space.tlb);
        let token = tables.family_token();
        let mut other = Batch::new(&space.tlb);
        let table = tables.lock_for_all(page(0), token.as_ref()).expect("a table");
        table.absorb_pending(&mut other, space.context());
        drop(table);
        other.settle();
    };
    let space = used::<I>();
    let mut batch = Batch::new(&space.tlb);
    swap_out(&space, &mut batch, 0);
    assert!(reaches(&space, 0), "the flush is deferred");
    absorb(&space);
    assert!(!reaches(&space, 0));
    batch.settle();
    let (space, _child) = sharing::<I>();
    let mut batch = Batch::new(&space.tlb);
    swap_out_for_all(&space, &mut batch, 0);
    absorb(&space);
    assert!(!reads(&space, 1, 0) && !reads(&space, 2, 0), "every sharer owed the flush");
    batch.settle();
}

/// INV-TABLE-WEAKENED: the entry allows nothing, but a TLB may have it as it was.
fn a_leaf_that_lost_its_rights_is_cleared_with_the_flush_that_is_pending<I: Isa>() {
    let space = used::<I>();
    let (mut first, mut second) = (Batch::new(&space.tlb), Batch::new(&space.tlb));
    space.edit(page(0), Level::PTE, |run| {
        let debt = run.protect(page(0), |leaf| leaf.with_rights(Rights::empty()));
        first.absorb(space.context(), debt.expect("a change"));
    });
    assert!(reaches(&space, 0), "the flush is deferred");
    space.edit(page(0), Level::PTE, |run| second.absorb(space.context(), run.unmap(page(0)).expect("a leaf")));
    second.settle();
    assert!(!reaches(&space, 0));
    first.settle();
}

/// One of two entries is cleared, with its count in the table that both spaces reach.
fn a_soft_entry_cleared_for_all_is_gone_for_every_sharer<I: Isa>() {
    let (space, child) = sharing::<I>();
    let mut batch = Batch::new(&space.tlb);
    swap_out_for_all(&space, &mut batch, 0);
    swap_out_for_all(&space, &mut batch, 1);
    let pfn = child.read().tables(&space.tlb).read_lock(page(0)).expect("a table").table();
    let live = || space.tlb.frames().table(pfn).live();
    let before = live();
    {
        let held = space.mmap.read();
        let tables = held.tables(&space.tlb);
        let token = tables.family_token();
        tables.lock_for_all(page(0), token.as_ref()).expect("a table").run(Mlocked(false)).unmap_soft(page(0));
    }
    assert_eq!(before - live(), 1, "INV-TABLE-COUNTS");
    for mmap in [&space.mmap, &child] {
        let held = mmap.read();
        let table = held.tables(&space.tlb).read_lock(page(0)).expect("a table");
        assert_eq!((table.entry(page(0)), table.entry(page(1))), (EntryView::Empty, EntryView::Soft(SWAP)));
    }
    batch.settle();
}

/// INV-FAMILY-FLUSH: what is owed by all members is owed by the spaces that are left.
fn a_space_that_ends_leaves_its_family<I: Isa>() {
    let (space, child) = sharing::<I>();
    let family = space.mmap.write().family().cloned().expect("it shares tables");
    assert_eq!(family.token().members(), 2);
    on(2, || space.tlb.switch_to(space.context()));
    let (held, all) = (child.write(), PageRange::new(VirtAddr::ZERO, I::USER_END));
    on(3, || held.leave_shared(&space.tlb, all, core::iter::once(all)));
    let root = child.table().root();
    held.close(&space.tlb);
    assert_eq!(family.token().members(), 1);
    assert!(reads(&space, 1, 0), "the table is still that of the parent");
    let block = space.reuse_root(root);
    assert!(child.read().tables(&space.tlb).lock_for_all(VA, Some(&family.token())).is_none());
    space.tlb.free(block);
}

fn a_move_flushes_what_is_pending_at_its_destination<I: Isa>() {
    let space = used::<I>();
    let mut batch = Batch::new(&space.tlb);
    swap_out(&space, &mut batch, 3);
    unmap_soft(&space, 3);
    let held = space.mmap.write();
    let table = held.tables(&space.tlb).owned(PageRange::page(VA)).lock(VA).expect("a table");
    let mut gather = Gather::new(&space.tlb, space.context());
    let ((), log) = space
        .host
        .log(|| on(3, || table.move_run(PageRange::page(VA), &table, page(3), |leaf| leaf, |soft| soft, &mut gather)));
    assert!(log.iter().any(is_flush), "before the leaf is stored");
    gather.settle();
    batch.settle();
}

/// Also the first of leaves that share all bits but their frame.
fn a_move_flushes_every_old_address<I: Isa>() {
    let space = used::<I>();
    let held = space.mmap.write();
    let table = held.tables(&space.tlb).owned(PageRange::page(VA)).lock(VA).expect("a table");
    let mut gather = Gather::new(&space.tlb, space.context());
    let part = PageRange::new(VA, page(4));
    on(3, || table.move_run(part, &table, page(8), |leaf| leaf, |soft| soft, &mut gather));
    on(3, || gather.settle());
    for index in 0..4 {
        assert!(!reaches(&space, index) && reaches(&space, 8 + index), "page {index}");
    }
}

#[cfg(feature = "planted")]
#[test]
fn a_lost_mark_is_found() {
    use pagewright_arch::X86_64;
    use pagewright_plant::{PlantedBug, assert_found_by};
    assert_found_by(PlantedBug::PendingMarkLost, a_swap_entry_that_is_zapped_leaves_its_flush_pending::<X86_64>);
}

#[cfg(feature = "planted")]
#[test]
fn mistakes_about_the_keys_of_shared_tables_are_found() {
    use pagewright_arch::{Aarch64, X86_64};
    use pagewright_plant::{PlantedBug, assert_found_by};
    assert_found_by(PlantedBug::ForkMeetsNoSpace, fork_settles_what_it_shares::<Aarch64>);
    assert_found_by(PlantedBug::BreakNotFlushed, the_copy_of_a_shared_table_owes_nothing::<X86_64>);
    assert_found_by(PlantedBug::LeaveNotFlushed, leaving_a_table_settles_for_the_space_that_leaves::<Aarch64>);
}
