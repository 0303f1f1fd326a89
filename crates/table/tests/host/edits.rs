//! Single edits: the order of their effects, what they refuse, and what fails without a trace.

use crate::space::{Space, special};
use crate::support::{Delivery, Effect, on};
use pagewright_arch::on_both;
use pagewright_arch::{Caps, Effects, Entry, Isa, Leaf, LeafFlags, Pte, PteSlot, SoftEntry, SoftKind};
use pagewright_table::{PageTable, TableAllocError, TableReserve};
use pagewright_tlb::Gather;
use pagewright_types::{Access, CpuId, IsaKind, Level, Order, PageRange, Pfn, Rights, VirtAddr};

on_both! {
    a_new_table_is_zero_before_a_walker_can_reach_it,
    edits_happen_under_the_lock_of_their_table,
    a_split_clears_and_flushes_before_it_hooks_the_table,
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

/// INV-TABLE-ZERO: what a frame held before it became a table is gone, and published as gone,
/// before the pointer to it is stored.
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
        let table = space.table.find(tlb, VA, level).table;
        let used = (0..512).filter(|index| !space.host.load(PteSlot { table, index: *index }).is_empty()).count();
        assert_eq!(used, usize::from(level > Level::PTE));
    }
}

/// INV-TABLE-LOCKED.
fn edits_happen_under_the_lock_of_their_table<I: Isa>() {
    let space = space::<I>();
    space.ensure_tables(VA, Level::PTE);
    let table = space.table.find(&space.tlb, VA, Level::PTE).table;
    let upper = space.table.find(&space.tlb, VA, Level::PMD).table;
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
        let lock = || space.table.lock(&space.tlb, VA, Level::PTE).expect("just made");
        lock().install(VA, special(Pfn::new(9)));
        let debt = lock().update(VA, |leaf| Leaf { rights: Rights::READ, ..leaf });
        debt.expect("a change").settle();
        lock().take(VA).expect("a leaf").settle();
        let mut gather = Gather::new(&space.tlb, space.table.context());
        let all = PageRange::new(VirtAddr::ZERO, VirtAddr::new(1 << 48));
        space.table.free_tables(&space.tlb, PageRange::page(VA), all, &mut gather);
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
    assert_eq!(space.table.bytes(), 0);
}

/// INV-TABLE-BBM: no CPU can have the block and its parts at once.
fn a_split_clears_and_flushes_before_it_hooks_the_table<I: Isa>() {
    let space = space::<I>();
    space.map_special(VA, Level::PMD, Pfn::new(512));
    let block = VA.align_down(Level::PMD.span());
    for cpu in 0..2 {
        on(cpu, || {
            space.tlb.switch_to(space.table.context());
            assert!(space.host.access(VA, Access::Write).is_some());
        });
    }
    let mut reserve = TableReserve::new(&space.tlb);
    reserve.fill(1).expect("memory is left");
    let at = space.table.find(&space.tlb, VA, Level::PMD);
    let above = PteSlot { table: at.table, index: Level::PMD.index_of(VA) as u16 };
    let (split, log) = space.host.log(|| space.table.split_leaf(&space.tlb, VA, Level::PMD, &mut reserve));
    assert!(split);
    let place = |effect: &dyn Fn(Effect) -> bool| log.iter().position(|step| effect(step.effect)).expect("it happens");
    let broken = place(&|effect| effect == Effect::Store(above, Pte::EMPTY));
    let made = place(&|effect| matches!(effect, Effect::Store(slot, pte) if slot == above && !pte.is_empty()));
    let told = match I::KIND {
        IsaKind::X86_64 => place(&|effect| effect == Effect::Answered),
        IsaKind::Aarch64 => place(&|effect| effect == Effect::Complete),
    };
    assert!(broken < told && told < made);
    assert_eq!(log[made - 1].effect, Effect::Publish);
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
    let machines = [false, true].into_iter().flat_map(|range| [Level::PMD, Level::PUD].map(|level| (range, level)));
    for (range_invalidate, level) in machines {
        let space = Space::<I>::on(2, Delivery::AtOnce, Caps { range_invalidate, ..Caps::baseline(I::KIND) });
        let first = Pfn::new(level.pages() as u32);
        space.map_special(VA, level, first);
        let start = VA.align_down(level.span());
        // Each CPU caches the leaf by another of its addresses, the last one included.
        let last = start.add(level.span() - 1);
        for (cpu, va) in [(0, last), (1, start)] {
            on(cpu, || {
                space.tlb.switch_to(space.table.context());
                assert!(space.host.access(va, Access::Write).is_some());
            });
        }
        let mut reserve = TableReserve::new(&space.tlb);
        reserve.fill(1).expect("memory is left");
        assert!(space.table.split_leaf(&space.tlb, VA, level, &mut reserve));
        for cpu in 0..2 {
            assert_eq!(space.host.cached(cpu), 0, "CPU {cpu}, level {level:?}, range {range_invalidate}");
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
    space.table.lock(tlb, VA, Level::PMD).expect("just made").install(VA, owned);
    let free = tlb.frames().available();
    let mut reserve = TableReserve::new(tlb);
    reserve.fill(1).expect("memory is left");
    assert!(space.table.split_leaf(tlb, VA, Level::PMD, &mut reserve));
    assert_eq!(tlb.frames().folio(pfn).refs(), 512);
    let range = PageRange::new(block, block.add(Level::PMD.span()));
    let mut gather = Gather::new(tlb, space.table.context());
    for (index, va) in range.iter().enumerate() {
        let debt = space.table.lock(tlb, va, Level::PTE).expect("split").take(va).expect("a part");
        assert_eq!(debt.detached().leaf(), Leaf { pfn: pfn.add(index as u32), ..leaf });
        gather.absorb(debt);
    }
    gather.settle();
    assert_eq!(tlb.frames().available(), free + 512 - 1, "the folio is gone and the table is left");
}

fn a_page_table_that_fails_to_allocate_leaks_nothing<I: Isa>() {
    let space = space::<I>();
    let free = space.tlb.frames().available();
    for permitted in 0..2 {
        space.host.permit(permitted);
        let refused = PageTable::try_new(&space.tlb);
        space.host.permit_all();
        let expected = if permitted == 0 { "frames" } else { "kernel" };
        match refused {
            Err(TableAllocError::Frames(_)) => assert_eq!(expected, "frames"),
            Err(TableAllocError::Kernel(_)) => assert_eq!(expected, "kernel"),
            Ok(_) => panic!("nothing was permitted"),
        }
        assert_eq!(space.tlb.frames().available(), free);
    }
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
    space.table.ensure_tables(&space.tlb, VA, Level::PTE, &mut reserve);
    assert_eq!(reserve.len(), 4);
    drop(reserve);
    assert_eq!(space.tlb.frames().available(), free - 3);
}

fn a_lost_right_is_flushed_and_a_gained_one_is_not<I: Isa>() {
    let space = space::<I>();
    space.map_special(VA, Level::PTE, Pfn::new(9));
    let set = |rights| {
        let ((), log) = space.host.log(|| {
            let locked = space.table.lock(&space.tlb, VA, Level::PTE).expect("mapped");
            if let Some(debt) = locked.update(VA, |leaf| Leaf { rights, ..leaf }) {
                debt.settle();
            }
        });
        log.iter().filter(|step| step.effect == Effect::Publish).count()
    };
    assert_eq!(set(Rights::RW), 0, "nothing changes");
    assert_eq!(set(Rights::READ), 1);
    assert_eq!(set(Rights::RW), 0, "no TLB can allow too much");
    assert_eq!(set(Rights::empty()), 1);
    assert_eq!(set(Rights::RX), 0);
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
    let table = space.table.find(&space.tlb, VA, Level::PTE).table;
    let live = || space.tlb.frames().table(table).live();
    let ((), log) = space.host.log(|| {
        let locked = space.table.lock(&space.tlb, VA, Level::PTE).expect("made above");
        locked.install_soft(VA, SOFT);
        assert_eq!((locked.entry(VA), locked.leaf(VA), live()), (Entry::Soft(SOFT), None, 1));
        assert!(locked.take(VA).is_none(), "it is no leaf");
        assert_eq!((locked.take_soft(VA), live()), (Some(SOFT), 0));
        assert_eq!((locked.take_soft(VA), locked.pte(VA).is_empty()), (None, true));
    });
    let stores = |effect: Effect| matches!(effect, Effect::Store(..));
    assert!(log.iter().all(|step| stores(step.effect)), "nothing is flushed: {log:?}");
}

fn installing_a_soft_entry_over_a_leaf_panics<I: Isa>() {
    let space = space::<I>();
    space.map_special(VA, Level::PTE, Pfn::new(9));
    space.table.lock(&space.tlb, VA, Level::PTE).expect("mapped").install_soft(VA, SOFT);
}

fn unhooking_a_table_with_live_entries_panics<I: Isa>() {
    let space = space::<I>();
    space.map_special(VA, Level::PTE, Pfn::new(9));
    let mut gather = Gather::new(&space.tlb, space.table.context());
    let all = PageRange::new(VirtAddr::ZERO, VirtAddr::new(1 << 48));
    space.table.free_tables(&space.tlb, PageRange::page(VA), all, &mut gather);
    gather.settle();
}

fn changing_the_frame_of_a_leaf_in_one_step_panics<I: Isa>() {
    let space = space::<I>();
    space.map_special(VA, Level::PTE, Pfn::new(9));
    let locked = space.table.lock(&space.tlb, VA, Level::PTE).expect("mapped");
    if let Some(debt) = locked.update(VA, |leaf| Leaf { pfn: Pfn::new(10), ..leaf }) {
        debt.settle();
    }
}

fn closing_a_page_table_in_use_panics<I: Isa>() {
    let space = space::<I>();
    space.ensure_tables(VA, Level::PTE);
    space.table.close(&space.tlb);
}

fn taking_from_an_empty_reserve_panics<I: Isa>() {
    let space = space::<I>();
    let mut reserve = TableReserve::new(&space.tlb);
    space.table.ensure_tables(&space.tlb, VA, Level::PTE, &mut reserve);
}

#[cfg(feature = "planted")]
#[test]
fn a_split_flushed_at_the_level_of_its_parts_is_found() {
    let test = a_split_leaves_no_cpu_the_huge_leaf_at_any_level::<pagewright_arch::Aarch64>;
    pagewright_plant::assert_found_by(pagewright_plant::PlantedBug::SplitLevelBelow, test);
}
