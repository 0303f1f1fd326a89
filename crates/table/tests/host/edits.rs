//! Single edits: the order of their effects, what they refuse, and what fails without a trace.

use crate::space::{Space, special};
use crate::support::{Delivery, Effect, on};
use pagewright_arch::on_both;
use pagewright_arch::{Caps, Effects, Entry, Isa, Leaf, LeafFlags, PteSlot, SoftEntry, SoftKind};
use pagewright_table::{EntryView, Mlocked, MmapLock, OwnedLeaf, TableReserve};
use pagewright_tlb::Gather;
use pagewright_types::{Access, CpuId, IsaKind, Level, Order, PAGE_SIZE, PageRange, Pfn, Rights, VirtAddr};

on_both! {
    each_leaf_of_a_run_changes_by_its_own_bits,
    a_new_table_is_zero_before_a_walker_can_reach_it,
    edits_happen_under_the_lock_of_their_table,
    a_split_hides_and_flushes_before_it_hooks_the_table,
    a_split_leaves_no_cpu_the_huge_leaf_at_any_level,
    parts_of_a_split_share_the_folio,
    a_page_table_that_fails_to_allocate_leaks_nothing,
    a_dropped_reserve_frees_its_tables,
    a_lost_right_is_flushed_and_a_gained_one_is_not,
    a_soft_entry_counts_as_live_and_owes_no_flush,
    #[cfg_attr(debug_assertions, should_panic = "INV-TABLE-EMPTY")]
    installing_a_soft_entry_over_a_leaf_panics,
    #[cfg_attr(debug_assertions, should_panic = "INV-TABLE-EMPTY")]
    installing_a_leaf_over_a_leaf_panics,
    #[cfg_attr(debug_assertions, should_panic = "INV-TABLE-EMPTY")]
    unhooking_a_table_with_live_entries_panics,
    #[cfg_attr(debug_assertions, should_panic = "INV-TABLE-SAME-FRAME")]
    changing_the_frame_of_a_leaf_in_one_step_panics,
    #[cfg_attr(debug_assertions, should_panic = "INV-TABLE-CLOSE")]
    closing_a_page_table_in_use_panics,
    #[should_panic = "INV-TABLE-RESERVE"]
    taking_from_an_empty_reserve_panics,
}

const VA: VirtAddr = VirtAddr::new(0x1234_5678_9000);
const SOFT: SoftEntry = SoftEntry { kind: SoftKind::Marker, exclusive: false, payload: 1 };

fn space<I: Isa>() -> Space<I> {
    Space::new(2, Delivery::AtOnce)
}

/// INV-TABLE-ZERO.
///
/// The old contents of a frame are cleared and published before the pointer to it is stored.
fn a_new_table_is_zero_before_a_walker_can_reach_it<I: Isa>() {
    let space = space::<I>();
    let tlb = &space.tlb;
    let junk = I::leaf(Level::PTE, special(Pfn::new(77)).leaf());
    let blocks: Vec<_> = (0..64).map(|_| tlb.alloc(tlb.request(Order::ZERO)).expect("memory is left")).collect();
    for block in blocks {
        (0..512).for_each(|index| space.host.store(PteSlot { table: block.pfn(), index }, junk));
        tlb.free(block);
    }
    let (_, log) = space.host.log(|| space.ensure_tables(VA, Level::PTE));
    let is_hook = |effect: Effect| match effect {
        Effect::Store(_, pte) => matches!(I::decode(Level::PMD, pte), Entry::Table(_)),
        _ => false,
    };
    let hooks: Vec<usize> = (0..log.len()).filter(|at| is_hook(log[*at].effect)).collect();
    assert_eq!(hooks.len(), 3);
    for at in hooks {
        assert_eq!(log[at - 1].effect, Effect::Publish);
        assert_eq!(log[at + 1].effect, Effect::Publish, "and a walker finds the table without further ado");
    }
    for level in [Level::PTE, Level::PMD, Level::PUD] {
        let table = space.table_at(VA, level).expect("just made");
        let used = (0..512).filter(|index| !space.host.load(PteSlot { table, index: *index }).is_empty()).count();
        assert_eq!(used, usize::from(level > Level::PTE));
    }
}

/// INV-TABLE-LOCKED.
fn edits_happen_under_the_lock_of_their_table<I: Isa>() {
    let space = space::<I>();
    space.ensure_tables(VA, Level::PTE);
    let table = space.table_at(VA, Level::PTE).expect("just made");
    let upper = space.table_at(VA, Level::PMD).expect("just made");
    let tlb = std::sync::Arc::downgrade(&space.tlb);
    space.host.watch(move || {
        let tlb = tlb.upgrade().expect("it lives as long as the test");
        let locked = |pfn| u64::from(tlb.frames().table(pfn).is_locked());
        if tlb.frames().state(table) == pagewright_tlb::frames::FrameState::Table {
            locked(table) | locked(upper) << 1
        } else {
            2
        }
    });
    let ((), log) = space.host.log(|| {
        space.edit(VA, Level::PTE, |run| {
            run.map(VA, special(Pfn::new(9)));
            run.protect(VA, |leaf| leaf.with_rights(Rights::READ)).expect("a change").settle();
            run.unmap(VA).expect("a leaf").settle();
        });
        let mut gather = Gather::new(&space.tlb, space.context());
        let all = PageRange::new(VirtAddr::ZERO, VirtAddr::new(1 << 48));
        space.free_tables(PageRange::page(VA), all, &mut gather);
        gather.settle();
    });
    let mut stores = 0;
    for step in &log {
        if let Effect::Store(slot, _) = step.effect {
            stores += 1;
            assert!(slot.table != table || step.probe & 1 == 1, "the last-level table was edited unlocked");
            assert!(slot.table != upper || step.probe & 2 == 2, "the table above was edited unlocked");
        }
    }
    assert_eq!(stores, 3 + 3);
    assert_eq!(space.table().bytes(), 0);
}

/// INV-TABLE-BBM, INV-SPLIT-HIDDEN: no CPU can have the huge leaf and its parts at once.
fn a_split_hides_and_flushes_before_it_hooks_the_table<I: Isa>() {
    let space = space::<I>();
    space.map_special(VA, Level::PMD, Pfn::new(512));
    let block = VA.align_down(Level::PMD.span());
    for cpu in 0..2 {
        on(cpu, || {
            space.tlb.switch_to(space.context());
            assert!(space.host.access(VA, Access::Write).is_some());
        });
    }
    let table = space.table_at(VA, Level::PMD).expect("mapped above");
    let above = PteSlot { table, index: Level::PMD.index_of(VA) as u16 };
    let (split, log) = space.host.log(|| space.split(VA));
    assert!(split);
    let place = |effect: &dyn Fn(Effect) -> bool| log.iter().position(|step| effect(step.effect)).expect("it happens");
    let hidden = I::soft(SoftEntry { kind: SoftKind::InTransition, exclusive: false, payload: 0 });
    let broken = place(&|effect| effect == Effect::Store(above, hidden));
    let made = place(&|effect| matches!(effect, Effect::Store(slot, pte) if slot == above && pte != hidden));
    let told = match I::KIND {
        IsaKind::X86_64 => place(&|effect| effect == Effect::Answered),
        IsaKind::Aarch64 => place(&|effect| effect == Effect::Complete),
    };
    assert!(broken < told && told < made);
    assert_eq!((log[made - 1].effect, log[made + 1].effect), (Effect::Publish, Effect::Publish));
    for cpu in 0..2 {
        assert_eq!(space.host.cached(cpu), 0, "CPU {cpu}");
        let leaf = on(cpu, || space.host.access(VA, Access::Write)).expect("mapped as before");
        assert_eq!(leaf.pfn, Pfn::new(512).add((VA.since(block) >> 12) as u32));
        space.host.assert_fresh(CpuId::new(cpu));
    }
}

/// INV-TABLE-BBM: also where an invalidation names a range and the level of its entries.
///
/// A TLB need not drop an entry of another level than the invalidation names (Arm ARM D8.14.5).
fn a_split_leaves_no_cpu_the_huge_leaf_at_any_level<I: Isa>() {
    for range_invalidate in [false, true] {
        let level = Level::PMD;
        let space = Space::<I>::on(2, Delivery::AtOnce, Caps { range_invalidate, ..Caps::baseline(I::KIND) });
        let first = Pfn::new(level.pages() as u32);
        space.map_special(VA, level, first);
        let start = VA.align_down(level.span());
        // Each CPU caches the leaf by another of its addresses, the last one included.
        let last = start.add(level.span() - 1);
        for (cpu, va) in [(0, last), (1, start)] {
            on(cpu, || {
                space.tlb.switch_to(space.context());
                assert!(space.host.access(va, Access::Write).is_some());
            });
        }
        assert!(space.split(VA));
        for cpu in 0..2 {
            assert_eq!(space.host.cached(cpu), 0, "CPU {cpu}, range {range_invalidate}");
        }
    }
}

/// INV-TABLE-OWNS.
fn parts_of_a_split_share_the_folio<I: Isa>() {
    let space = space::<I>();
    let tlb = &space.tlb;
    space.ensure_tables(VA, Level::PMD);
    let folio = tlb.frames().new_folio(tlb.alloc(tlb.request(Order::PMD)).expect("memory is left"));
    let (pfn, block) = (folio.pfn(), VA.align_down(Level::PMD.span()));
    let flags = LeafFlags::USER | LeafFlags::DIRTY | LeafFlags::EXCLUSIVE;
    let leaf = Leaf { pfn, rights: Rights::READ, flags };
    let owned = pagewright_table::OwnedLeaf::new(leaf, folio);
    space.map_owned(block, Level::PMD, owned);
    assert_eq!((tlb.frames().folio(pfn).entire_mapcount(), space.table().rss().pages()), (1, 512));
    let free = tlb.frames().available();
    assert!(space.split(VA));
    let folio = tlb.frames().folio(pfn);
    assert_eq!((folio.refs(), folio.mapcount(), folio.entire_mapcount()), (512, 512, 0));
    assert_eq!(space.table().rss().pages(), 512, "the pages stay resident");
    let range = PageRange::new(block, block.add(Level::PMD.span()));
    let mut gather = Gather::new(tlb, space.context());
    space.edit(block, Level::PTE, |run| {
        for (index, va) in range.iter().enumerate() {
            let debt = run.unmap(va).expect("a part");
            assert_eq!(debt.detached().leaf(), Leaf { pfn: pfn.add(index as u32), ..leaf });
            gather.absorb(debt);
        }
    });
    gather.settle();
    assert_eq!(space.table().rss().pages(), 0);
    assert_eq!(tlb.frames().available(), free + 512, "the folio is gone and the table is left");
}

fn a_page_table_that_fails_to_allocate_leaks_nothing<I: Isa>() {
    let space = space::<I>();
    let free = space.tlb.frames().available();
    let mut reserve = TableReserve::new(&space.tlb);
    reserve.fill(1).expect("memory is left");
    space.host.permit(0);
    let refused = MmapLock::try_new(&mut reserve, |_| ());
    space.host.permit_all();
    assert!(refused.is_err(), "nothing was permitted");
    assert_eq!(reserve.len(), 1, "the frame of the root is left for another try");
    drop(reserve);
    assert_eq!(space.tlb.frames().available(), free);
}

fn a_dropped_reserve_frees_its_tables<I: Isa>() {
    let space = space::<I>();
    let free = space.tlb.frames().available();
    let mut reserve = TableReserve::new(&space.tlb);
    reserve.fill(5).expect("memory is left");
    space.host.permit(2);
    assert!(reserve.fill(9).is_err());
    space.host.permit_all();
    assert_eq!(reserve.len(), 7, "what it got stays in it");
    space.ensure_from(VA, Level::PTE, &mut reserve);
    assert_eq!(reserve.len(), 4);
    drop(reserve);
    assert_eq!(space.tlb.frames().available(), free - 3);
}

fn a_lost_right_is_flushed_and_a_gained_one_is_not<I: Isa>() {
    let space = space::<I>();
    space.map_special(VA, Level::PTE, Pfn::new(9));
    let set = |rights| {
        let ((), log) = space.host.log(|| {
            space.edit(VA, Level::PTE, |run| {
                if let Some(debt) = run.protect(VA, |leaf| leaf.with_rights(rights)) {
                    debt.settle();
                }
            });
        });
        log.iter().filter(|step| step.effect == Effect::Publish).count()
    };
    assert_eq!(set(Rights::RW), 0, "nothing changes");
    assert_eq!(set(Rights::READ), 1);
    assert_eq!(set(Rights::RW), 0, "no TLB can allow too much");
    assert_eq!(set(Rights::empty()), 1);
    assert_eq!(set(Rights::RX), 0);
}

/// Three leaves in a row: two frames, with and without WRITE, ACCESSED and DIRTY, in every order.
///
/// The result for one leaf is reused for its neighbour only if all bits but the frame are equal.
fn each_leaf_of_a_run_changes_by_its_own_bits<I: Isa>() {
    let flags = [LeafFlags::empty(), LeafFlags::ACCESSED, LeafFlags::ACCESSED | LeafFlags::DIRTY];
    let leaves: Vec<Leaf> = [Pfn::new(9), Pfn::new(10)]
        .into_iter()
        .flat_map(|pfn| [Rights::READ, Rights::RW].map(|rights| (pfn, rights)))
        .flat_map(|(pfn, rights)| flags.map(|flags| Leaf { pfn, rights, flags: LeafFlags::USER | flags }))
        .collect();
    // A clean leaf loses WRITE, and a dirty one gains EXEC.
    let edit = |rights: Rights, flags: LeafFlags| {
        if flags.contains(LeafFlags::DIRTY) { rights | Rights::EXEC } else { rights - Rights::WRITE }
    };
    let space = space::<I>();
    let page = |index: usize| VA.add(index as u64 * PAGE_SIZE);
    space.ensure_tables(VA, Level::PTE);
    for number in 0..leaves.len().pow(3) {
        let run = [0, 1, 2].map(|place| leaves[number / leaves.len().pow(place) % leaves.len()]);
        let mut gather = Gather::new(&space.tlb, space.context());
        space.locked(VA, Level::PTE, |table| {
            let mut entries = table.run(Mlocked(false));
            (0..3).for_each(|index| entries.map(page(index), OwnedLeaf::special(run[index])));
            drop(entries);
            table.protect_run(PageRange::new(VA, page(3)), edit, &mut gather);
            for (index, old) in run.into_iter().enumerate() {
                let new = Leaf { rights: edit(old.rights, old.flags), ..old };
                let found = table.leaf(page(index)).expect("a leaf");
                let flags = found.flags() - LeafFlags::SPECIAL;
                let found = Leaf { pfn: found.pfn(), rights: found.rights(), flags };
                assert_eq!(found, new, "leaf {index} of {run:?}");
            }
            let lost =
                run.iter().any(|old| old.rights.contains(Rights::WRITE) && !old.flags.contains(LeafFlags::DIRTY));
            assert_eq!(gather.is_empty(), !lost, "{run:?} owes a flush if a right is lost");
            let mut entries = table.run(Mlocked(false));
            (0..3).filter_map(|index| entries.unmap(page(index))).for_each(|debt| gather.absorb(debt));
        });
        gather.settle();
    }
}

fn installing_a_leaf_over_a_leaf_panics<I: Isa>() {
    let space = space::<I>();
    space.map_special(VA, Level::PTE, Pfn::new(9));
    space.map_special(VA, Level::PTE, Pfn::new(10));
}

/// INV-TABLE-EMPTY: a table with a soft entry is in use.
fn a_soft_entry_counts_as_live_and_owes_no_flush<I: Isa>() {
    let space = space::<I>();
    space.ensure_tables(VA, Level::PTE);
    let table = space.table_at(VA, Level::PTE).expect("just made");
    let live = || space.tlb.frames().table(table).live();
    let ((), log) = space.host.log(|| {
        space.edit(VA, Level::PTE, |run| run.map_soft(VA, SOFT));
        assert_eq!(live(), 1);
        space.edit(VA, Level::PTE, |run| {
            assert_eq!(run.table().entry(VA), EntryView::Soft(SOFT));
            assert!(run.unmap(VA).is_none(), "it is no leaf");
            assert_eq!(run.unmap_soft(VA), Some(SOFT));
            assert_eq!((run.unmap_soft(VA), run.table().is_empty(VA)), (None, true));
        });
        assert_eq!(live(), 0);
    });
    let stores = |effect: Effect| matches!(effect, Effect::Store(..));
    assert!(log.iter().all(|step| stores(step.effect)), "nothing is flushed: {log:?}");
}

fn installing_a_soft_entry_over_a_leaf_panics<I: Isa>() {
    let space = space::<I>();
    space.map_special(VA, Level::PTE, Pfn::new(9));
    space.edit(VA, Level::PTE, |run| run.map_soft(VA, SOFT));
}

fn unhooking_a_table_with_live_entries_panics<I: Isa>() {
    let space = space::<I>();
    space.map_special(VA, Level::PTE, Pfn::new(9));
    let mut gather = Gather::new(&space.tlb, space.context());
    let all = PageRange::new(VirtAddr::ZERO, VirtAddr::new(1 << 48));
    space.free_tables(PageRange::page(VA), all, &mut gather);
    gather.settle();
}

fn changing_the_frame_of_a_leaf_in_one_step_panics<I: Isa>() {
    let space = space::<I>();
    space.map_special(VA, Level::PTE, Pfn::new(9));
    let beside = VA.add(PAGE_SIZE);
    space.map_special(beside, Level::PTE, Pfn::new(10));
    space.edit(VA, Level::PTE, |run| {
        let other = run.table().leaf(beside).expect("mapped");
        if let Some(debt) = run.protect(VA, |_| other) {
            debt.settle();
        }
    });
}

fn closing_a_page_table_in_use_panics<I: Isa>() {
    let space = space::<I>();
    space.ensure_tables(VA, Level::PTE);
    space.mmap.write().close(&space.tlb);
}

fn taking_from_an_empty_reserve_panics<I: Isa>() {
    let space = space::<I>();
    let mut reserve = TableReserve::new(&space.tlb);
    space.ensure_from(VA, Level::PTE, &mut reserve);
}

#[cfg(feature = "planted")]
#[test]
fn a_split_flushed_at_the_level_of_its_parts_is_found() {
    let test = a_split_leaves_no_cpu_the_huge_leaf_at_any_level::<pagewright_arch::Aarch64>;
    pagewright_plant::assert_found_by(pagewright_plant::PlantedBug::SplitLevelBelow, test);
}
