//! What edits note about pages: that they are dirty, and how many entries a table counts.

use crate::runs::Hooks;
use crate::space::Space;
use crate::support::{Delivery, Host};
use pagewright_arch::{Isa, Leaf, LeafFlags, SoftEntry, SoftKind};
use pagewright_sync::LineUse;
use pagewright_sync::host::line_reports;
use pagewright_table::{EntryRun, EntryView, LockedTable, Mlocked, OwnedLeaf, TableReserve};
use pagewright_tlb::Gather;
use pagewright_tlb::frames::{FolioFlags, FolioOwner, FolioRef, NewFolio, RssKind, TableMarks};
use pagewright_types::{FileId, ForkNodeId, Gauge, Level, Order, PAGE_SIZE, PageRange, Pfn, Rights, VirtAddr};

on_both_also_as_words! {
    a_dirty_entry_that_is_cleared_makes_the_page_of_a_file_dirty,
    a_split_moves_the_count_of_a_huge_leaf_to_the_new_table,
    each_part_of_a_split_locks_the_folio_as_the_huge_leaf_did,
    a_swap_entry_that_is_shared_already_is_not_stored_again,
    a_soft_entry_above_the_last_level_is_copied_and_moved,
    a_gap_at_the_end_of_a_table_hides_no_table_behind_it,
    tables_and_pages_are_counted_on_lines_that_are_reported,
    an_entry_that_is_cleared_is_reported_as_a_store_to_the_counts_of_its_page,
    pages_of_files_that_come_and_go_in_one_run_are_counted,
}

const VA: VirtAddr = VirtAddr::new(0x4000_0000);
const KINDS: [RssKind; 3] = [RssKind::Anon, RssKind::File, RssKind::Shmem];

/// Maps a new folio that something else has, too, and returns the other reference.
fn map_new<I: Isa>(space: &Space<I>, level: Level, kind: RssKind, (mlocked, dirty): (bool, bool)) -> FolioRef {
    space.ensure_tables(VA, level);
    let block = space.tlb.alloc(space.tlb.request(level.order().expect("leaves"))).expect("memory is left");
    let owner = match kind {
        RssKind::Anon => FolioOwner::Anon(ForkNodeId::new(1)),
        RssKind::File | RssKind::Shmem => FolioOwner::File(FileId::new(1)),
    };
    let mut flags = FolioFlags::empty();
    flags.set(FolioFlags::SWAPBACKED, kind != RssKind::File);
    let (pfn, mut entry) = (block.pfn(), LeafFlags::USER | LeafFlags::ACCESSED);
    entry.set(LeafFlags::DIRTY, dirty);
    entry.set(LeafFlags::EXCLUSIVE, kind == RssKind::Anon);
    let new = NewFolio { block, owner, index: 0, flags };
    let mut reserve = TableReserve::new(&space.tlb);
    reserve.fill_deposits(usize::from(level == Level::PMD)).expect("memory is left");
    let run = |table: &LockedTable<'_, Host<I>>| {
        let mut run = table.run(Mlocked(mlocked));
        match level {
            Level::PTE => run.map_new(VA, new, Rights::RW, entry),
            _ => run.map_new_huge(VA, new, Rights::RW, entry, &mut reserve),
        }
    };
    space.locked(VA, level, run).expect("just made");
    space.tlb.frames().folio(pfn).get()
}

/// Clears the entries of what one entry of `level` spans, wherever they are.
fn unmap_run<I: Isa>(space: &Space<I>, level: Level, mlocked: Mlocked) {
    let mut gather = Gather::new(&space.tlb, space.context());
    unmap_into(space, level, mlocked, &mut gather);
    gather.settle();
}

/// As [`unmap_run`], and leaves the flush and the references to `gather`.
fn unmap_into<I: Isa>(space: &Space<I>, level: Level, mlocked: Mlocked, gather: &mut Gather<'_, Host<I>>) {
    let whole = PageRange::new(VA, VA.add(level.span()));
    let held = space.mmap.read();
    for (table, part) in held.tables(&space.tlb).owned(whole).locked(whole, Mlocked(false)) {
        table.unmap_run(part, mlocked, &mut Hooks, |_, _| true, gather);
    }
}

fn a_dirty_entry_that_is_cleared_makes_the_page_of_a_file_dirty<I: Isa>() {
    for (level, kind) in [Level::PTE, Level::PMD].into_iter().flat_map(|level| KINDS.map(|kind| (level, kind))) {
        for (mlocked, dirty, as_run) in (0..8).map(|bits| (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0)) {
            let space = Space::<I>::new(1, Delivery::AtOnce);
            let other = map_new(&space, level, kind, (mlocked, dirty));
            let folio = space.tlb.frames().folio_of(&other);
            assert!(!folio.flags().contains(FolioFlags::DIRTY));
            if as_run {
                unmap_run(&space, level, Mlocked(mlocked));
            } else {
                let unmap = |table: &LockedTable<'_, Host<I>>| {
                    table.run(Mlocked(mlocked)).unmap(VA).expect("a leaf").settle();
                };
                space.locked(VA, level, unmap).expect("a table");
            }
            let case = format!("{level}, {kind:?}, mlocked: {mlocked}, dirty: {dirty}, as a run: {as_run}");
            // The contents of an anonymous page count as dirty until they are in swap.
            assert_eq!(folio.flags().contains(FolioFlags::DIRTY), dirty && kind != RssKind::Anon, "{case}");
            assert_eq!((folio.mapcount(), folio.refs(), folio.mlocks()), (0, 1, 0), "{case}");
            space.tlb.free(space.tlb.frames().put(other).expect("the last reference"));
        }
    }
}

fn a_split_moves_the_count_of_a_huge_leaf_to_the_new_table<I: Isa>() {
    for (kind, pinned) in KINDS.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
        let space = Space::<I>::new(1, Delivery::AtOnce);
        let other = map_new(&space, Level::PMD, kind, (false, false));
        let upper = space.table_at(VA, Level::PMD).expect("just made");
        let counted = |table| space.tlb.frames().table(table).counts()[kind as usize];
        assert_eq!(counted(upper), 1);
        if pinned {
            space.tlb.frames().table(upper).mark(TableMarks::MAY_PIN);
        }
        assert!(space.split(VA));
        let below = space.table_at(VA, Level::PTE).expect("the table of the parts");
        let marks = space.tlb.frames().table(below).marks();
        assert_eq!(marks.contains(TableMarks::MAY_PIN), pinned, "fork looks there for pinned pages");
        assert_eq!((counted(upper), counted(below)), (0, Level::ENTRIES as u16), "{kind:?}");
        unmap_run(&space, Level::PMD, Mlocked(false));
        assert_eq!(counted(below), 0, "{kind:?}");
        space.tlb.free(space.tlb.frames().put(other).expect("the last reference"));
    }
}

fn each_part_of_a_split_locks_the_folio_as_the_huge_leaf_did<I: Isa>() {
    for mlocked in [false, true] {
        let space = Space::<I>::new(1, Delivery::AtOnce);
        let other = map_new(&space, Level::PMD, RssKind::Anon, (mlocked, false));
        let locks = || space.tlb.frames().folio(other.pfn()).mlocks();
        assert_eq!(locks(), u32::from(mlocked));
        let held = space.mmap.read();
        let own = held.tables(&space.tlb).owned(PageRange::page(VA));
        assert!(own.split_leaf(VA, Mlocked(mlocked)));
        assert_eq!(locks(), if mlocked { Level::ENTRIES as u32 } else { 0 });
        drop(held);
        unmap_run(&space, Level::PMD, Mlocked(mlocked));
        assert_eq!(locks(), 0);
        space.tlb.free(space.tlb.frames().put(other).expect("the last reference"));
    }
}

/// Fork keeps the word of the parent where it says what it is to say.
fn a_swap_entry_that_is_shared_already_is_not_stored_again<I: Isa>() {
    for exclusive in [false, true] {
        let space = Space::<I>::new(1, Delivery::AtOnce);
        space.ensure_tables(VA, Level::PTE);
        let soft = SoftEntry { kind: SoftKind::Swap, exclusive, payload: 77 };
        space.edit(VA, Level::PTE, |run| run.map_soft(VA, soft)).expect("just made");
        let child = crate::space::new_lock(&space.tlb);
        let mut reserve = TableReserve::new(&space.tlb);
        reserve.fill(3).expect("memory is left");
        let (from, to) = (space.mmap.write(), child.write());
        let page = PageRange::page(VA);
        to.tables(&space.tlb).owned(page).ensure(VA, Level::PTE, &mut reserve);
        let (from, to) = (from.tables(&space.tlb).owned(page), to.tables(&space.tlb).owned(page));
        let (parent, theirs) = (from.lock(VA).expect("a table"), to.lock(VA).expect("a table"));
        let mut gather = Gather::new(&space.tlb, space.context());
        let before = space.host.stores();
        assert_eq!(parent.copy_run(&theirs, page, &mut Hooks, |_| None, &mut gather), (1, Ok(())));
        let shared = EntryView::Soft(SoftEntry { exclusive: false, ..soft });
        assert_eq!((parent.entry(VA), theirs.entry(VA)), (shared, shared));
        drop((parent, theirs));
        assert_eq!(space.host.stores() - before, 1 + u64::from(exclusive), "{exclusive}");
        gather.settle();
    }
}

/// A soft entry of 2 MiB is copied by a fork and moved by `mremap` as one of a page.
fn a_soft_entry_above_the_last_level_is_copied_and_moved<I: Isa>() {
    let span = Level::PMD.span();
    let start = VA.align_down(span);
    let (block, next) = (PageRange::new(start, start.add(span)), start.add(span));
    let space = Space::<I>::new(1, Delivery::AtOnce);
    space.ensure_tables(VA, Level::PMD);
    let soft = SoftEntry { kind: SoftKind::Swap, exclusive: true, payload: 77 };
    space.edit(VA, Level::PMD, |run| run.map_soft(start, soft)).expect("just made");
    let child = crate::space::new_lock(&space.tlb);
    let mut reserve = TableReserve::new(&space.tlb);
    reserve.fill(2).expect("memory is left");
    let (from, to) = (space.mmap.write(), child.write());
    to.tables(&space.tlb).owned(block).ensure(VA, Level::PMD, &mut reserve);
    let (from, to) = (from.tables(&space.tlb).owned(block), to.tables(&space.tlb).owned(block));
    let [parent, theirs] = [from, to].map(|tables| tables.lock_level(VA, Level::PMD).expect("a table"));
    let mut gather = Gather::new(&space.tlb, space.context());
    assert_eq!(parent.copy_run(&theirs, block, &mut Hooks, |_| None, &mut gather), (1, Ok(())));
    let shared = EntryView::Soft(SoftEntry { exclusive: false, ..soft });
    assert_eq!((parent.entry(VA), theirs.entry(VA)), (shared, shared));
    parent.move_run(block, &parent, next, |leaf| leaf, |soft| soft, &mut gather);
    assert_eq!((parent.entry(VA), parent.entry(next)), (EntryView::Empty, shared));
    drop((parent, theirs));
    gather.settle();
}

/// The search for a shared table passes from the last entry of a table to the next table.
fn a_gap_at_the_end_of_a_table_hides_no_table_behind_it<I: Isa>() {
    let space = Space::<I>::new(1, Delivery::AtOnce);
    let (pud, pmd) = (Level::PUD.span(), Level::PMD.span());
    // Tables of level PMD for two neighbours, and entries at the start of the first one only.
    for va in [VA, VA.add(pud)] {
        space.ensure_tables(va, Level::PMD);
    }
    space.map_special(VA, Level::PTE, Pfn::new(5));
    let gap = PageRange::new(VA.add(pud - 3 * pmd), VA.add(pud + 2 * pmd));
    let held = space.mmap.read();
    let own = held.tables(&space.tlb).try_own(gap).expect("nothing is shared");
    assert_eq!(own.locked(gap, Mlocked(false)).count(), 0, "and there is no table of the last level");
}

fn tables_and_pages_are_counted_on_lines_that_are_reported<I: Isa>() {
    let space = Space::<I>::new(1, Delivery::AtOnce);
    let id = space.context().id().raw();
    let made = line_reports(|| assert_eq!(space.ensure_tables(VA, Level::PTE), 3));
    assert!(made.contains(&("number of tables", id, LineUse::Store)), "{made:?}");
    for as_run in [false, true] {
        let other = map_new(&space, Level::PTE, RssKind::File, (false, false));
        let pfn = u64::from(other.pfn().raw());
        // The gather drops the reference on the same line, so it is left for later.
        let mut gather = Gather::new(&space.tlb, space.context());
        let unmapped = line_reports(|| match as_run {
            true => unmap_into(&space, Level::PTE, Mlocked(false), &mut gather),
            false => space.edit(VA, Level::PTE, |run| gather.absorb(run.unmap(VA).expect("a leaf"))).expect("a table"),
        });
        gather.settle();
        for used in [("folio counts", pfn, LineUse::Store), ("resident set", id, LineUse::Load)] {
            assert!(unmapped.contains(&used), "{used:?}: {unmapped:?}");
        }
        space.tlb.free(space.tlb.frames().put(other).expect("the last reference"));
    }
    let (all, mut gather) = (PageRange::new(VirtAddr::ZERO, I::USER_END), Gather::new(&space.tlb, space.context()));
    let freed = line_reports(|| space.free_tables(all, all, &mut gather));
    gather.settle();
    assert!(freed.contains(&("number of tables", id, LineUse::Store)), "{freed:?}");
    let mut other = None;
    let block = line_reports(|| other = Some(map_new(&space, Level::PMD, RssKind::Shmem, (false, false))));
    assert!(block.contains(&("resident set", id, LineUse::Store)), "more pages than a CPU keeps: {block:?}");
    unmap_run(&space, Level::PMD, Mlocked(false));
    space.tlb.free(space.tlb.frames().put(other.expect("just mapped")).expect("the last reference"));
}

/// It takes the mapping away; whatever drops the reference stores once more.
fn an_entry_that_is_cleared_is_reported_as_a_store_to_the_counts_of_its_page<I: Isa>() {
    let space = Space::<I>::new(1, Delivery::AtOnce);
    let other = map_new(&space, Level::PTE, RssKind::File, (false, false));
    space.edit(VA, Level::PTE, |run| {
        let mut debt = None;
        let reports = line_reports(|| debt = run.unmap(VA));
        assert!(reports.contains(&("folio counts", other.pfn().raw().into(), LineUse::Store)), "{reports:?}");
        debt.expect("a leaf").settle();
    });
    space.tlb.free(space.tlb.frames().put(other).expect("the last reference"));
}

/// One page of a file stays mapped elsewhere, another is mapped for the first time.
fn pages_of_files_that_come_and_go_in_one_run_are_counted<I: Isa>() {
    let space = Space::<I>::new(1, Delivery::AtOnce);
    let other = map_new(&space, Level::PTE, RssKind::File, (false, false));
    let (beside, flags) = (VA.add(PAGE_SIZE), LeafFlags::USER | LeafFlags::ACCESSED);
    let leaf = Leaf { pfn: other.pfn(), rights: Rights::RW, flags };
    let again = OwnedLeaf::new(leaf, space.tlb.frames().folio(other.pfn()).get());
    space.edit(beside, Level::PTE, |run| run.map(beside, again)).expect("a table");
    let mapped = || space.tlb.frames().gauges().sum(Gauge::Mapped);
    assert_eq!(mapped(), 1);
    let block = space.tlb.alloc(space.tlb.request(Order::ZERO)).expect("memory is left");
    let new = NewFolio { block, owner: FolioOwner::File(FileId::new(1)), index: 1, flags: FolioFlags::empty() };
    let replace = |run: &mut EntryRun<'_, '_, _>| {
        run.unmap(VA).expect("a leaf").settle();
        run.map_new(VA, new, Rights::RW, flags);
    };
    space.edit(VA, Level::PTE, replace).expect("a table");
    assert_eq!(mapped(), 2);
    unmap_run(&space, Level::PMD, Mlocked(false));
    assert_eq!(mapped(), 0);
    space.tlb.free(space.tlb.frames().put(other).expect("the last reference"));
}
