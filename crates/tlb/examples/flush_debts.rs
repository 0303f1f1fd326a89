//! Unmaps eight pages: with a flush for each, and with one flush for all.
//!
//! It uses this crate without page tables or a memory manager: the caller has the entries. The
//! machine is simulated, with four CPUs; an embedder's own machine takes its place.
//!
//! `cargo run -p pagewright-tlb --example flush_debts`

use pagewright_arch::{Aarch64, Effects, Isa, Leaf, LeafFlags, Pte, PteSlot};
use pagewright_sim::{MachineConfig, Sim};
use pagewright_sync::Arc;
use pagewright_tlb::frames::{FolioRef, FrameAllocator, MemoryLayout, NodeSpec};
use pagewright_tlb::{Debt, Gather, OwedFlush, Tlb, TlbConfig, TlbContext};
use pagewright_types::{Counter, CpuId, FrameRange, Level, Order, PAGE_SIZE, Pfn, Rights, SpaceId, VirtAddr};

type Machine = Sim<Aarch64>;

const PAGES: u64 = 8;

/// A space with one last-level table, whose pages are mapped from address 0 on.
struct Mapped {
    context: Arc<TlbContext>,
    table: Pfn,
    /// Each page, with the reference that its entry holds.
    pages: Vec<(VirtAddr, FolioRef)>,
}

fn slot(table: Pfn, va: VirtAddr) -> PteSlot {
    PteSlot { table, index: Level::PTE.index_of(va) as u16 }
}

fn map(tlb: &Tlb<Machine>, id: u64) -> Mapped {
    let new_table = |level| {
        let block = tlb.alloc(tlb.request(Order::ZERO)).expect("a free frame");
        tlb.frames().new_table(block, level, SpaceId::new(id))
    };
    let (root, table) = (new_table(Level::PGD), new_table(Level::PTE));
    let context = tlb.open_context(root).expect("kernel memory");
    let page = |index: u64| {
        let va = VirtAddr::new(index * PAGE_SIZE);
        let page = tlb.frames().new_folio(tlb.alloc(tlb.request(Order::ZERO)).expect("a free frame"));
        let leaf = Leaf { pfn: page.pfn(), rights: Rights::RW, flags: LeafFlags::USER };
        tlb.fx().store(slot(table, va), Aarch64::leaf(Level::PTE, leaf));
        (va, page)
    };
    Mapped { context, table, pages: (0..PAGES).map(page).collect() }
}

/// Clears one entry; the debt owns the page until the flush is done.
fn unmap<'t>(
    tlb: &'t Tlb<Machine>,
    mapped: &'t TlbContext,
    table: Pfn,
    va: VirtAddr,
    page: FolioRef,
) -> Debt<'t, Machine, FolioRef> {
    let _old: Pte = tlb.fx().swap(slot(table, va), Pte::EMPTY);
    Debt::new(tlb, mapped, va, OwedFlush::Leaf(Level::PTE), page)
}

fn main() {
    let mut config = MachineConfig::default_for(Aarch64::KIND).expect("a shipped profile");
    config.nodes[0].bytes = 4 << 20;
    let sim = Machine::new(config).expect("a valid configuration");
    sim.run_on(CpuId::new(0), || {
        let ranges = [FrameRange::new(Pfn::new(1), sim.nodes()[0].frames.end())];
        let nodes = [NodeSpec { id: sim.nodes()[0].id, ranges: &ranges, cpus: sim.nodes()[0].cpus }];
        let frames = FrameAllocator::try_new(sim.clone(), &MemoryLayout::new(&nodes)).expect("memory for the memmap");
        let tlb = Tlb::try_new(sim.clone(), frames, TlbConfig::default()).expect("memory for the engine");
        let waits = || tlb.frames().counters().sum(Counter::NrTlbRemoteFlush);

        let Mapped { context, table, pages } = map(&tlb, 1);
        let before = waits();
        for (va, page) in pages {
            unmap(&tlb, &context, table, va, page).settle();
        }
        println!("{PAGES} debts settled one by one: {} waits", waits() - before);
        assert_eq!(waits() - before, PAGES);

        let Mapped { context, table, pages } = map(&tlb, 2);
        let (before, free) = (waits(), tlb.frames().available());
        let mut gather = Gather::new(&tlb, &context);
        for (va, page) in pages {
            gather.absorb(unmap(&tlb, &context, table, va, page));
        }
        assert_eq!(tlb.frames().available(), free, "the gather owns the pages until it is settled");
        gather.settle();
        println!("{PAGES} debts absorbed by a gather: {} wait", waits() - before);
        assert_eq!((waits() - before, tlb.frames().available()), (1, free + PAGES));
    });
}
