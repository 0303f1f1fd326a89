//! Folios of a pool in page tables of the embedder, as a hypervisor's for the memory of a VM.

use pagewright_arch::{Isa, Leaf, LeafFlags, on_both};
use pagewright_lab::harness::{CPU, TestWorld};
use pagewright_table::{Mlocked, MmapLock, OwnedLeaf, TableReserve};
use pagewright_tlb::Gather;
use pagewright_types::{Access, Level, NodeId, Order, PAGE_SIZE, PageRange, Rights, VirtAddr};
use std::sync::atomic::Ordering;

on_both! { a_pool_folio_is_mapped_by_one_leaf_and_outlives_its_slot }

const VA: VirtAddr = VirtAddr::new(0x4000_0000);

/// INV-POOL-ZERO, and the leaf owns a reference (INV-TABLE-OWNS).
fn a_pool_folio_is_mapped_by_one_leaf_and_outlives_its_slot<I: Isa>() {
    let world = TestWorld::<I>::sized(1, 16 << 20);
    let sim = world.bench.sim();
    let word = |page: u64| {
        let found = sim.access(CPU, VA.add(page * PAGE_SIZE), Access::Write, 1).expect("mapped for writing");
        assert_eq!(found.level, Level::PMD, "one translation for the whole folio");
        &sim.ram()[found.pfn.base().raw() as usize / 8]
    };
    world.on(CPU, |mm| {
        let tlb = mm.tlb();
        let free = tlb.frames().available();
        let pool = mm.huge_pool(Order::PMD, NodeId::new(0), 1).expect("memory");
        pool.fill(0..1, || {}).expect("memory");
        let folio = pool.folio(0).expect("filled");

        let mut reserve = TableReserve::new(tlb);
        reserve.fill(1).expect("memory");
        let guest = MmapLock::try_new(&mut reserve, |_id| ()).expect("memory");
        {
            let held = guest.read();
            let tables = held.tables(tlb).owned(PageRange::page(VA));
            reserve.fill(tables.missing(VA, Level::PMD)).expect("memory");
            reserve.fill_deposits(1).expect("memory");
            tables.ensure(VA, Level::PMD, &mut reserve);
            let leaf = Leaf { pfn: folio.pfn(), rights: Rights::RW, flags: LeafFlags::USER };
            let table = tables.lock_level(VA, Level::PMD).expect("just made");
            table.run(Mlocked(false)).map_huge(VA, OwnedLeaf::new(leaf, folio), &mut reserve);
        }
        tlb.switch_to(guest.table().context());

        for page in [0, 1, 511] {
            assert_eq!(word(page).load(Ordering::Relaxed), 0, "page {page}");
            word(page).store(page + 1, Ordering::Relaxed);
        }
        pool.punch(0..1);
        assert!(pool.folio(0).is_none());
        assert_eq!(word(511).load(Ordering::Relaxed), 512, "the leaf keeps the folio");

        {
            let held = guest.read();
            let table = held.tables(tlb).owned(PageRange::page(VA)).lock(VA).expect("kept");
            table.run(Mlocked(false)).unmap(VA).expect("a leaf").settle();
        }
        assert!(sim.access(CPU, VA, Access::Read, 1).is_err(), "no CPU can use the mapping");
        tlb.leave_space();
        let (block, all) = (PageRange::page(VA), PageRange::new(VirtAddr::ZERO, I::USER_END));
        let mut gather = Gather::full_space(tlb, guest.table().context());
        let held = guest.write();
        held.free_tables(held.tables(tlb).owned(all), block, all, &mut gather);
        gather.settle();
        held.close(tlb);
        drop(pool);
        assert_eq!(tlb.frames().available(), free);
    });
    world.at_rest(&[]);
}
