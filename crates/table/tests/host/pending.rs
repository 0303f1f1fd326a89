//! Entries whose flush is deferred, as other operations on the space find them (INV-TLB-PLACE).

use crate::space::{Space, special};
use crate::support::{Delivery, Effect, Host, Step, on};
use pagewright_arch::{Effects, Isa, LeafFlags, PteSlot, SoftEntry, SoftKind, on_both};
use pagewright_table::{EntryRun, EntryView, Mlocked, MmapLock, TableReserve};
use pagewright_tlb::frames::{FolioFlags, FolioOwner, NewFolio};
use pagewright_tlb::{Batch, Gather};
use pagewright_types::{Access, ForkNodeId, Level, Order, PAGE_SIZE, PageRange, Pfn, Rights, VirtAddr};

on_both! {
    a_swap_entry_that_is_zapped_leaves_its_flush_pending,
    a_swap_entry_that_is_changed_leaves_its_flush_pending,
    a_soft_entry_over_a_pending_one_leaves_its_flush_pending,
    a_table_hooked_over_a_pending_leaf_flushes_it_first,
    a_child_inherits_no_pending_entry,
    a_move_flushes_what_is_pending_at_its_destination,
}

const VA: VirtAddr = VirtAddr::new(0x4000_0000);
const SWAP: SoftEntry = SoftEntry { kind: SoftKind::Swap, exclusive: true, payload: 3 };

fn page(index: u64) -> VirtAddr {
    VA.add(index * PAGE_SIZE)
}

/// A space that CPUs 1 and 2 run, and four pages of anonymous memory that CPU 1 has used.
fn used<I: Isa>() -> Space<I> {
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

fn is_flush(step: &Step) -> bool {
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

/// A block that a concurrent gather has cleared: the level of its flush is that of the block.
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
    assert!(on(1, || space.host.access(huge, Access::Read)).is_some(), "CPU 1 still holds the block");
    assert_eq!(on(3, || space.ensure_from(huge, Level::PTE, &mut reserve)), 1);
    assert!(on(1, || space.host.access(huge, Access::Read)).is_none());
    gather.settle();
}

fn a_child_inherits_no_pending_entry<I: Isa>() {
    let space = used::<I>();
    let mut batch = Batch::new(&space.tlb);
    swap_out(&space, &mut batch, 0);
    let child = MmapLock::try_new(&space.tlb, |_| ()).expect("memory is left");
    let mut reserve = TableReserve::new(&space.tlb);
    reserve.fill(3).expect("memory is left");
    let (from, to) = (space.mmap.write(), child.write());
    to.tables(&space.tlb).owned(PageRange::page(VA)).ensure(VA, Level::PTE, &mut reserve);
    let (from, to) = (from.tables(&space.tlb), to.tables(&space.tlb));
    let (from, to) = (from.owned(PageRange::page(VA)), to.owned(PageRange::page(VA)));
    let (parent, theirs) = (from.lock(VA).expect("a table"), to.lock(VA).expect("a table"));
    let mut gather = Gather::new(&space.tlb, space.context());
    let (copied, stop) = parent.copy_run(&theirs, PageRange::page(VA), &mut crate::runs::Hooks, &mut gather);
    assert_eq!((copied, stop), (1, Ok(())));
    let word = |table: Pfn| space.host.load(PteSlot { table, index: 0 });
    assert!(I::pending_sequence(word(parent.table())).is_some());
    assert_eq!(I::pending_sequence(word(theirs.table())), None);
    gather.settle();
    batch.settle();
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

#[cfg(feature = "planted")]
#[test]
fn a_lost_mark_is_found() {
    use pagewright_arch::X86_64;
    use pagewright_plant::{PlantedBug, assert_found_by};
    assert_found_by(PlantedBug::PendingMarkLost, a_swap_entry_that_is_zapped_leaves_its_flush_pending::<X86_64>);
}
