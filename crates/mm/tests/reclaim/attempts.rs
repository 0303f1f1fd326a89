//! When a run of reclaim ends, and when reclaim gives up.

use super::{FRAMES, NODE, TWICE, machine};
use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::{CPU, GupCall, MemorySwap, OTHER, TestProcess, TestWorld, at, one_node_machine};
use pagewright_mm::counters::Gauge;
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_mm::swap::{SwapBacking, SwapOps};
use pagewright_mm::{Advice, Mm, MmSetting};
use pagewright_sim::NodeConfig;
use pagewright_types::{Access, Counter, CpuMask, Errno, LruList, NodeId, PAGE_SIZE};
use std::sync::atomic::{AtomicU32, Ordering};

on_both! {
    background_reclaim_ends_at_the_high_watermark,
    a_run_goes_on_after_a_batch_that_no_device_took,
    memory_of_another_node_is_reclaimed_for_an_allocation,
    an_allocation_gives_up_after_16_attempts_that_freed_nothing,
    background_reclaim_of_a_balanced_node_is_no_failure,
    a_request_gives_up_after_16_attempts_that_freed_nothing,
    background_reclaim_gives_up_until_pages_are_freed,
}

/// `balance_pgdat`: a run ends once a zone has as many free frames as its high watermark.
fn background_reclaim_ends_at_the_high_watermark<I: Isa>() {
    const BATCH: u64 = 32;
    let mut ends = Vec::new();
    for more in 0..BATCH {
        let world = machine::<I>(1);
        world.swap_to(4096);
        let process = TestProcess::new(&world);
        let base = process.anon(FRAMES);
        let mut stores = (0..FRAMES).map(|page| process.write(CPU, at(base, page), page));
        while !world.on(CPU, |mm| mm.needs_balance(NODE)) {
            stores.next().expect("memory until reclaim is needed");
        }
        stores.take(more as usize).for_each(drop);
        assert!(world.on(CPU, |mm| mm.balance(NODE)) > 0);
        let (free, high) = world.on(CPU, |mm| {
            let zone = mm.tlb().frames().zones().next().expect("a zone");
            (u64::from(zone.free()), u64::from(zone.watermarks().high))
        });
        assert!(free >= high && free < high + 2 * BATCH, "{free} frames are free, the watermark is {high}");
        ends.push(free - high);
        process.end();
    }
    assert!(ends.contains(&0), "no run ended at the watermark: {ends:?}");
}

/// A device that refuses as many writes as `refusals` says, and takes all later ones.
struct ReluctantSwap {
    memory: MemorySwap,
    refusals: AtomicU32,
}

impl SwapOps for ReluctantSwap {
    fn write_page(&self, slot: u32, get: &mut dyn FnMut(u64, &mut [u8])) -> Result<(), Errno> {
        let refuses = |left: u32| left.checked_sub(1);
        match self.refusals.fetch_update(Ordering::Relaxed, Ordering::Relaxed, refuses) {
            Ok(_) => Err(Errno::EIO),
            Err(_) => self.memory.write_page(slot, get),
        }
    }

    fn read_page(&self, slot: u32, put: &mut dyn FnMut(u64, &[u8])) -> Result<(), Errno> {
        self.memory.read_page(slot, put)
    }

    fn discard(&self, slot: u32) {
        self.memory.discard(slot);
    }
}

/// One run tries other pages until some are freed.
fn a_run_goes_on_after_a_batch_that_no_device_took<I: Isa>() {
    let world = machine::<I>(1);
    let device = ReluctantSwap { memory: MemorySwap::default(), refusals: AtomicU32::new(32) };
    world.on(CPU, |mm| mm.swap_on(SwapBacking::Device(Box::new(device)), 4096)).expect("memory");
    let process = TestProcess::new(&world);
    let base = process.anon(FRAMES);
    let enough = |_: &u64| !world.on(CPU, |mm| mm.needs_balance(NODE));
    let stored =
        (0..FRAMES).take_while(enough).inspect(|page| process.write(CPU, at(base, *page), *page)).count() as u64;
    process.advise(base, stored, Advice::Cold);
    let freed = world.on(CPU, |mm| mm.balance(NODE));
    assert!(freed > 0, "the run ended with the batch of which no page could be written");
    assert_eq!(world.count(Counter::PswpOut), freed);
    super::check(&process, base, stored, 0);
    process.end();
}

/// A request that is not strict may be served by any node.
fn memory_of_another_node_is_reclaimed_for_an_allocation<I: Isa>() {
    const CACHED: u64 = 100;
    let mut config = one_node_machine::<I>(2, FRAMES * PAGE_SIZE);
    config.nodes[0].cpus = CpuMask::of(CPU);
    config.nodes.push(NodeConfig { bytes: FRAMES * PAGE_SIZE, cpus: CpuMask::of(OTHER) });
    let world = TestWorld::<I>::on_machine(config);
    world.set(MmSetting::OvercommitMemory, "1");
    let file = world.file(CACHED);
    for page in 0..CACHED {
        world.on(OTHER, |mm| mm.read_at(&file, page * PAGE_SIZE, &mut [0; 8])).expect("a good device");
    }
    let on_other = |mm: &Mm<_>| mm.tlb().frames().lru_pages(NodeId::new(1), LruList::InactiveFile);
    assert_eq!(u64::from(world.on(OTHER, on_other)), CACHED, "the node of the CPU that reads has the pages");
    let process = TestProcess::new(&world);
    let base = process.anon(4 * FRAMES);
    let refused = (0..4 * FRAMES).find(|page| process.touch(CPU, at(base, *page), Access::Write).is_err());
    assert!(refused.is_some_and(|page| page > FRAMES), "refused at {refused:?}");
    assert_eq!(world.gauge(Gauge::FilePages), 0, "none of the other node's pages was reclaimed");
    process.end();
}

/// `MAX_RECLAIM_RETRIES`: the first attempt and one after each of 16 runs of reclaim.
fn an_allocation_gives_up_after_16_attempts_that_freed_nothing<I: Isa>() {
    let world = machine::<I>(1);
    let device = world.swap_to(4096);
    let process = TestProcess::new(&world);
    let base = process.anon(TWICE);
    device.broken.store(true, Ordering::Relaxed);
    let refused = || {
        let before = world.count(Counter::AllocStall);
        let full = (0..TWICE).find(|page| process.touch(CPU, at(base, *page), Access::Write).is_err());
        assert!(full.is_some_and(|page| page > FRAMES / 2), "refused at {full:?}");
        world.count(Counter::AllocStall) - before
    };
    assert_eq!(refused(), 17);
    assert_eq!(refused(), 17, "and so does the next one");
    device.broken.store(false, Ordering::Relaxed);
}

/// `kswapd_failures` counts only runs that left the node without enough free pages.
fn background_reclaim_of_a_balanced_node_is_no_failure<I: Isa>() {
    let world = machine::<I>(1);
    let process = TestProcess::new(&world);
    (0..20).for_each(|_| assert_eq!(world.on(CPU, |mm| mm.balance(NODE)), 0));
    let base = process.anon(FRAMES);
    let full = (0..FRAMES).find(|page| process.touch(CPU, at(base, *page), Access::Write).is_err());
    assert!(full.is_some() && world.on(CPU, |mm| mm.needs_balance(NODE)), "refused at {full:?}");
    process.end();
}

/// `user_proactive_reclaim`: of the one page that there is, which each attempt scans once.
fn a_request_gives_up_after_16_attempts_that_freed_nothing<I: Isa>() {
    let world = machine::<I>(1);
    world.swap_to(1);
    let process = TestProcess::new(&world);
    let base = process.anon(1);
    process.write(CPU, base, 1);
    let device = process.take(CPU, base, 1, GupCall::Pin(GupFlags::WRITE)).expect("it can be had");
    process.advise(base, 1, Advice::Cold);
    assert_eq!(world.on(CPU, |mm| mm.reclaim(NODE, 1)), 0);
    assert_eq!(world.count(Counter::PgScanProactive), 16);
    device.release(MakeDirty::No);
    process.end();
}

/// `kswapd_failures`: after 16 runs in a row that freed nothing, until pages are freed again.
fn background_reclaim_gives_up_until_pages_are_freed<I: Isa>() {
    let world = machine::<I>(1);
    let process = TestProcess::new(&world);
    let base = process.anon(4 * FRAMES);
    let mut page = 0;
    let mut store = || {
        page += 1;
        process.touch(CPU, at(base, page), Access::Write).is_ok()
    };
    let needed = || world.on(CPU, |mm| mm.needs_balance(NODE));
    let balance = || world.on(CPU, |mm| mm.balance(NODE));
    while store() {}
    for run in 0..16 {
        assert!(needed(), "given up after {run} runs");
        assert_eq!(balance(), 0);
    }
    assert!(!needed());
    // Direct reclaim has freed something.
    // More slots than pages: a page that cannot be written keeps its slot.
    let device = world.swap_to(FRAMES as u32);
    assert!(store());
    while !needed() {
        assert!(store(), "background reclaim has given up for ever");
    }
    // Fifteen runs that free nothing, and one that does.
    device.broken.store(true, Ordering::Relaxed);
    (0..15).for_each(|_| assert_eq!(balance(), 0));
    device.broken.store(false, Ordering::Relaxed);
    assert!(needed() && balance() > 0);
    while store() {}
    assert!(needed(), "runs count that were not in a row");
}
