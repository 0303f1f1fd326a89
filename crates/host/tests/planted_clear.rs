//! Planted bugs of clearing, each of which a test on real memory detects.

use pagewright_host::{HostMachine, HostMemory, run_as};
use pagewright_mm::{Mm, MmSetting, MmSettings};
use pagewright_plant::{PlantedBug, choose};
use pagewright_tlb::frames::{ClearCaps, MemoryLayout, NodeSpec};
use pagewright_types::{Counter, CpuId, CpuMask, NodeId, Order, Pfn};
use std::cell::Cell;

const POISON: u64 = 0xdead_beef_dead_beef;
const NODE: NodeId = NodeId::new(0);

/// The observations on a pool of two folios of 16 MiB, filled with streaming stores.
#[derive(Debug, PartialEq, Eq)]
struct PoolObservation {
    zero: bool,
    yields: u32,
    fences_short: u64,
}

fn fill() -> PoolObservation {
    run_as(CpuId::new(0));
    let memory = HostMemory::try_new(1 << 14).expect("memory");
    (0..32).for_each(|block| memory.fill(Pfn::new(block * 512), Order::PMD, POISON));
    let ranges = [memory.frames()];
    let nodes = [NodeSpec { id: NODE, ranges: &ranges, cpus: CpuMask::first(1) }];
    let layout = MemoryLayout { min_free_kbytes: Some(0), watermark_scale_factor: 0, ..MemoryLayout::new(&nodes) };
    let settings = MmSettings::default();
    settings.set(MmSetting::ClearUncached, 2).expect("0 to 2");
    let mm = Mm::try_new(HostMachine::new(memory, 1), &layout, settings).expect("a valid layout");
    let order = Order::new(12);
    let pool = mm.huge_pool(order, NODE, 2).expect("memory");
    let yields = Cell::new(0);
    pool.fill(0..2, || yields.set(yields.get() + 1)).expect("memory");
    let zero = (0..2).all(|place| {
        let folio = pool.folio(place).expect("filled");
        let zero = memory.holds(folio.pfn(), order, 0);
        assert!(mm.tlb().frames().put(folio).is_none(), "the pool also has a reference");
        zero
    });
    let [fences, batches, each] =
        [Counter::PwClearFences, Counter::PwClearBatches, Counter::PwClearYields].map(|counter| mm.counter(counter));
    PoolObservation { zero, yields: yields.get(), fences_short: batches + each - fences }
}

/// INV-CLEAR-WHOLE, INV-CLEAR-YIELD, INV-CLEAR-FENCES.
#[test]
fn each_planted_bug_of_clearing_is_detected() {
    let right = PoolObservation { zero: true, yields: 4, fences_short: 0 };
    assert_eq!(fill(), right);
    choose(Some(PlantedBug::ClearShort));
    assert_eq!(fill(), PoolObservation { zero: false, ..right });
    choose(Some(PlantedBug::ClearNoYield));
    assert_eq!(fill(), PoolObservation { yields: 2, ..right });
    choose(Some(PlantedBug::ClearNoFence));
    let observed = fill();
    choose(None);
    if ClearCaps::detect().streaming().is_some() {
        assert!(observed.fences_short > 0, "INV-CLEAR-FENCES: {observed:?}");
    }
}
