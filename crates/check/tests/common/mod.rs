//! Page-table code on a bare `Testbench`: one page is unmapped while another CPU reads it.

use pagewright_arch::{
    Effects, Invalidate, InvalidateScope, InvalidateTarget, Isa, Leaf, LeafFlags, Pte, PteSlot, TableEntry,
};
use pagewright_check::{Attempt, Chooser, RunDetail, Testbench};
use pagewright_sim::MachineConfig;
use pagewright_sim::explore::{CoroutineBody, ExploreSettings};
use pagewright_types::judge::Fact;
use pagewright_types::{Access, CpuId, Level, Order, PAGE_SIZE, PageRange, Pfn, Rights, Tag, VirtAddr};
use std::rc::Rc;

pub(crate) const PAGE: VirtAddr = VirtAddr::new(0x40_0000);

/// Whether the unmap of [`PAGE`] flushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unmap {
    Flushed,
    Unflushed,
}

/// CPU 0 unmaps the page that CPU 1 reads, and reallocates its frame.
pub(crate) fn attempt<I: Isa>(unmap: Unmap, chooser: &mut dyn Chooser, detail: RunDetail) -> Attempt {
    let mut config = MachineConfig::default_for(I::KIND).expect("a profile");
    config.cpus = 2;
    config.nodes[0].bytes = 1 << 20;
    let bench = Rc::new(Testbench::<I>::new(config).expect("a machine"));
    let frames: Vec<Pfn> = (1..6).map(Pfn::new).collect();
    let sim = bench.sim();
    for level in [Level::PGD, Level::PUD, Level::PMD] {
        let table = frames[3 - level.index()];
        let entry = I::table(TableEntry::own(frames[4 - level.index()]));
        sim.store(PteSlot { table, index: level.index_of(PAGE) as u16 }, entry);
    }
    let slot = PteSlot { table: frames[3], index: Level::PTE.index_of(PAGE) as u16 };
    sim.store(slot, I::leaf(Level::PTE, Leaf { pfn: frames[4], rights: Rights::RW, flags: LeafFlags::USER }));
    for cpu in [0, 1].map(CpuId::new) {
        sim.run_on(cpu, || sim.install_root(frames[0], Tag::new(1), false));
    }
    let settings = ExploreSettings::default();
    let (owner, reader) = (Rc::clone(&bench), Rc::clone(&bench));
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || {
            let sim = owner.sim();
            owner.note(CpuId::new(0), format_args!("unmap({PAGE})"));
            let range = PageRange::new(PAGE, PAGE.add(PAGE_SIZE));
            sim.declare(Fact::RightReduced { root: frames[0], range, left: Rights::empty() });
            sim.swap(slot, Pte::EMPTY);
            sim.publish();
            if unmap == Unmap::Flushed {
                let target = InvalidateTarget::Page { tag: Tag::new(1), va: PAGE, level: Level::PTE, last_level: true };
                if I::KIND == pagewright_types::IsaKind::Aarch64 {
                    sim.invalidate(Invalidate { scope: InvalidateScope::Broadcast, target });
                    sim.complete();
                }
            }
            sim.declare(Fact::FrameFreed { pfn: frames[4], order: Order::ZERO });
            sim.declare(Fact::FrameReused { pfn: frames[4], order: Order::ZERO });
            sim.declare(Fact::CallReturned);
        }),
        Box::new(move || {
            for _ in 0..3 {
                let _ = reader.sim().access(CpuId::new(1), PAGE, Access::Read, 1);
            }
        }),
    ];
    let report = bench.run(&settings, programs, detail, chooser);
    bench.attempt(&settings, report)
}
