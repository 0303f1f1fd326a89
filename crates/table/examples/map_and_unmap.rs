//! Maps pages, looks them up, downgrades them and unmaps them, on both instruction sets.
//!
//! It uses this crate without a memory manager. The machine is simulated; an embedder's own machine
//! takes its place.
//!
//! `cargo run -p pagewright-table --example map_and_unmap`

use pagewright_arch::{Aarch64, Isa, Leaf, LeafFlags, X86_64};
use pagewright_sim::{MachineConfig, Sim};
use pagewright_table::{Mlocked, MmapLock, OwnedLeaf, TableReserve};
use pagewright_tlb::frames::{FrameAllocator, MemoryLayout, NodeSpec};
use pagewright_tlb::{Gather, Tlb, TlbConfig};
use pagewright_types::{CpuId, FrameRange, Level, Order, PAGE_SIZE, PageRange, Pfn, Rights, VirtAddr};

const START: VirtAddr = VirtAddr::new(0x7000_0000);
const PAGES: u64 = 16;

/// Every address of user memory.
fn whole() -> PageRange {
    PageRange::new(VirtAddr::ZERO, VirtAddr::new(1 << 47))
}

fn run<I: Isa>(tlb: &Tlb<Sim<I>>) {
    let free = tlb.frames().available();
    // Tables are allocated before anything is locked, so that no edit can fail.
    let mut reserve = TableReserve::new(tlb);
    reserve.fill(1).expect("a free frame for the root");
    let space = MmapLock::try_new(&mut reserve, |_id| ()).expect("kernel memory");
    let pages = || (0..PAGES).map(|index| START.add(index * PAGE_SIZE));

    {
        let held = space.read();
        // A space that never forked shares no table, so all of them are its own.
        let tables = held.tables(tlb).owned(whole());
        reserve.fill(tables.missing(START, Level::PTE)).expect("free frames");
        tables.ensure(START, Level::PTE, &mut reserve);
        let locked = tables.lock(START).expect("a table of the last level");
        let mut run = locked.run(Mlocked(false));
        for va in pages() {
            let page = tlb.frames().new_folio(tlb.alloc(tlb.request(Order::ZERO)).expect("a free frame"));
            let leaf = Leaf { pfn: page.pfn(), rights: Rights::RW, flags: LeafFlags::USER };
            run.map(va, OwnedLeaf::new(leaf, page));
        }
        drop(run);
        let (resident, bytes) = (space.table().rss().pages(), space.table().bytes());
        println!("{}: {resident} pages and {} KiB of tables", I::KIND, bytes / 1024);
        assert!(pages().all(|va| locked.leaf(va).is_some_and(|leaf| leaf.rights() == Rights::RW)));

        // One flush for all pages; each page is freed after it.
        let mut gather = Gather::new(tlb, space.table().context());
        let mut run = locked.run(Mlocked(false));
        for va in pages() {
            gather.absorb(run.unmap(va).expect("a leaf"));
        }
        gather.settle();
        assert!(pages().all(|va| locked.leaf(va).is_none()));
    }

    let all = whole();
    let unmapped = PageRange::from_len(START, PAGES * PAGE_SIZE).expect("whole pages");
    let mut gather = Gather::full_space(tlb, space.table().context());
    let held = space.write();
    held.free_tables(held.tables(tlb).owned(all), unmapped, all, &mut gather);
    gather.settle();
    held.close(tlb);
    assert_eq!(tlb.frames().available(), free, "every page and every table is free again");
}

fn on_a_machine<I: Isa>() {
    let mut config = MachineConfig::default_for(I::KIND).expect("a shipped profile");
    config.nodes[0].bytes = 4 << 20;
    let sim = Sim::<I>::new(config).expect("a valid configuration");
    sim.run_on(CpuId::new(0), || {
        let ranges = [FrameRange::new(Pfn::new(1), sim.nodes()[0].frames.end())];
        let nodes = [NodeSpec { id: sim.nodes()[0].id, ranges: &ranges, cpus: sim.nodes()[0].cpus }];
        let frames = FrameAllocator::try_new(sim.clone(), &MemoryLayout::new(&nodes)).expect("memory for the memmap");
        run(&Tlb::try_new(sim.clone(), frames, TlbConfig::default()).expect("memory for the engine"));
    });
}

fn main() {
    on_a_machine::<X86_64>();
    on_a_machine::<Aarch64>();
}
