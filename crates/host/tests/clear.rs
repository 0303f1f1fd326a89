//! The memory manager on real memory: all paths that clear, over poisoned frames.
//!
//! The counters show by which stores frames were cleared.

use pagewright_host::{HostMachine, HostMemory, run_as};
use pagewright_mm::file::{FallocateFlags, MemfdFlags};
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_mm::policy::{PolicyFlags, PolicyMode, PolicyRequest};
use pagewright_mm::space::{BindFlags, BindRequest};
use pagewright_mm::{Advice, MapFlags, MapRequest, Mm, MmSetting, MmSettings};
use pagewright_sync::Arc;
use pagewright_tlb::ClearMeasurements;
use pagewright_tlb::frames::{BlockList, ClearBackend, ClearCaps, MemoryLayout, NodeSpec};
use pagewright_types::{
    Access, Counter, CpuId, CpuMask, FrameRange, NodeId, NodeMask, Order, PAGE_SIZE, PageRange, Rights, VirtAddr,
};
use std::cell::Cell;
use std::thread;
use std::time::Duration;

const POISON: u64 = 0xdead_beef_dead_beef;
const NODE: NodeId = NodeId::new(0);
const PAGES: u64 = 300;

struct Fixture {
    mm: Mm<HostMachine>,
    memory: HostMemory,
}

type Space = Arc<pagewright_mm::Space<HostMachine>>;

impl Fixture {
    /// A machine whose frames are all poisoned, with this value of `clear_uncached`.
    fn new(frames: u32, cpus: usize, uncached: u64) -> Self {
        run_as(CpuId::new(0));
        let memory = HostMemory::try_new(frames).expect("memory");
        (0..frames / 512).for_each(|block| {
            memory.fill(pagewright_types::Pfn::new(block * 512), Order::PMD, POISON);
        });
        let ranges = [memory.frames()];
        let nodes = [NodeSpec { id: NODE, ranges: &ranges, cpus: CpuMask::first(cpus) }];
        let layout = MemoryLayout { min_free_kbytes: Some(0), watermark_scale_factor: 0, ..MemoryLayout::new(&nodes) };
        let settings = MmSettings::default();
        settings.set(MmSetting::ClearUncached, uncached).expect("0 to 2");
        Self { mm: Mm::try_new(HostMachine::new(memory, cpus), &layout, settings).expect("a valid layout"), memory }
    }

    /// A machine as above, with an address space.
    fn with_space(frames: u32, cpus: usize, uncached: u64) -> (Self, Space) {
        let fixture = Self::new(frames, cpus, uncached);
        let space = fixture.mm.new_space().expect("memory");
        (fixture, space)
    }

    /// Ends the space, after a check of the fences.
    fn end(&self, space: &Space) {
        self.check_fences();
        self.mm.end_space(space);
    }

    fn assert_two_frames_in_use(&self) {
        let frames = self.mm.tlb().frames();
        assert_eq!(frames.available(), frames.managed() - 2);
    }

    fn map(&self, space: &Space, flags: MapFlags) -> PageRange {
        let request = MapRequest {
            addr: VirtAddr::ZERO,
            len: PAGES * PAGE_SIZE,
            rights: Rights::READ | Rights::WRITE,
            flags: MapFlags::PRIVATE | MapFlags::ANONYMOUS | flags,
            file: None,
        };
        let start = self.mm.mmap(space, &request).expect("free addresses");
        PageRange::from_len(start, request.len).expect("whole pages")
    }

    fn reads_as_zero(&self, space: &Space, range: PageRange) -> bool {
        let mut bytes = vec![1; range.len() as usize];
        self.mm.copy_from_user(space, range.start(), &mut bytes) == 0 && bytes.iter().all(|byte| *byte == 0)
    }

    fn cleared(&self, backend: ClearBackend) -> u64 {
        self.mm.counter(backend.counter())
    }

    fn check_fences(&self) {
        let [fences, batches, yields] = [Counter::PwClearFences, Counter::PwClearBatches, Counter::PwClearYields]
            .map(|counter| self.mm.counter(counter));
        assert_eq!(fences, batches + yields, "INV-CLEAR-FENCES");
    }
}

/// The streaming stores that the policy `Auto` selects on this CPU.
fn streaming() -> Option<ClearBackend> {
    let caps = ClearCaps::detect();
    caps.streaming().filter(|_| !caps.is_denied())
}

#[test]
fn populating_clears_in_batches_and_every_page_reads_as_zero() {
    let (fixture, space) = Fixture::with_space(4096, 1, 1);
    let before = fixture.mm.counter(Counter::PwClearBatches);
    let populated = fixture.map(&space, MapFlags::POPULATE);
    let advised = fixture.map(&space, MapFlags::empty());
    fixture.mm.madvise(&space, advised.start(), advised.len(), Advice::PopulateWrite).expect("memory");
    if let Some(streaming) = streaming() {
        assert_eq!(fixture.cleared(streaming), 2 * PAGES, "new frames of an operation of 1.2 MB are cold");
        assert_eq!(fixture.mm.counter(Counter::PwClearBatches) - before, 2 * PAGES.div_ceil(64), "64 pages a batch");
    }
    assert_eq!(fixture.mm.counter(Counter::PwZeroed), 2 * PAGES, "each page is counted once");
    for range in [populated, advised] {
        assert!(fixture.reads_as_zero(&space, range), "INV-CLEAR-WHOLE");
    }
    fixture.end(&space);
}

/// INV-POLICY-OBEYED, where a call populates two mappings.
#[test]
fn a_batch_obeys_the_policy_of_one_mapping() {
    run_as(CpuId::new(0));
    let memory = HostMemory::try_new(4096).expect("memory");
    let start = memory.frames().start();
    let middle = pagewright_types::Pfn::new(start.raw() + 2048);
    let ranges = [[FrameRange::new(start, middle)], [FrameRange::new(middle, memory.frames().end())]];
    let far = NodeId::new(1);
    let nodes = [
        NodeSpec { id: NODE, ranges: &ranges[0], cpus: CpuMask::first(1) },
        NodeSpec { id: far, ranges: &ranges[1], cpus: CpuMask::EMPTY },
    ];
    let settings = MmSettings::default();
    settings.set(MmSetting::ClearUncached, 1).expect("0 to 2");
    let mm = Mm::try_new(HostMachine::new(memory, 1), &MemoryLayout::new(&nodes), settings).expect("a valid layout");
    let fixture = Fixture { mm, memory };
    let space = fixture.mm.new_space().expect("memory");
    let range = fixture.map(&space, MapFlags::empty());
    let cut = range.start().add(PAGES / 2 * PAGE_SIZE);
    let policy = PolicyRequest { mode: PolicyMode::Bind, flags: PolicyFlags::empty(), nodes: NodeMask::of(far) };
    let len = range.end().since(cut);
    let request = BindRequest { addr: cut, len, policy, flags: BindFlags::empty() };
    fixture.mm.mbind(&space, request, false).expect("a mapping");
    fixture.mm.madvise(&space, range.start(), range.len(), Advice::PopulateWrite).expect("memory");
    let mut nodes = Vec::new();
    fixture.mm.pagemap(&space, range, |va, word| {
        let node = word.pfn().and_then(|pfn| fixture.mm.tlb().frames().node_of(pfn));
        nodes.push((node, if va < cut { NODE } else { far }));
    });
    assert_eq!(nodes.len() as u64, PAGES);
    assert!(nodes.iter().all(|(node, expected)| *node == Some(*expected)), "{nodes:?}");
    fixture.end(&space);
}

#[cfg(feature = "planted")]
#[test]
fn a_batch_for_another_policy_is_found() {
    use pagewright_plant::{PlantedBug, assert_found_by};
    // Without uncached stores, nothing is cleared ahead.
    if streaming().is_some() {
        assert_found_by(PlantedBug::BatchIgnoresPolicy, a_batch_obeys_the_policy_of_one_mapping);
    }
}

#[test]
fn measuring_selects_stores_and_keeps_no_memory() {
    let fixture = Fixture::new(1 << 15, 1, 1);
    let available = fixture.mm.tlb().frames().available();
    let measured = pagewright_host::measure_clearing(fixture.mm.tlb());
    assert_eq!(fixture.mm.tlb().frames().available(), available, "the measurements leak blocks");
    if ClearCaps::detect().candidates().next().is_some() {
        let calibration = measured.calibration().expect("64 MiB are enough");
        assert_eq!(fixture.mm.tlb().frames().clear_selector().streaming(), calibration.streaming);
        assert!(measured.cache().is_some(), "the probe ends");
        assert!(fixture.mm.counter(Counter::PwClearMeasurements) >= 2, "a calibration and a set");
    }
    // Too little memory for a calibration: nothing is measured, and nothing changes.
    let small = Fixture::new(1024, 1, 1);
    let streaming = small.mm.tlb().frames().clear_selector().streaming();
    assert_eq!(pagewright_host::measure_clearing(small.mm.tlb()).calibration(), None);
    assert_eq!(small.mm.tlb().frames().clear_selector().streaming(), streaming);
}

/// INV-CLEAR-MEASURED.
#[test]
fn a_cpu_that_is_never_idle_makes_one_measurement_a_second() {
    let fixture = Fixture::new(1 << 15, 1, 1);
    if ClearCaps::detect().candidates().next().is_none() {
        return;
    }
    let mut measurements = ClearMeasurements::new();
    let mut tick_at = |ms: u64| {
        let time = Cell::new(Duration::from_millis(ms));
        measurements.tick(fixture.mm.tlb(), || {
            time.set(time.get() + Duration::from_micros(1));
            time.get()
        });
        (fixture.mm.counter(Counter::PwClearMeasurements), measurements.calibration().is_some())
    };
    assert_eq!(tick_at(5000), (0, false), "the first second begins with the first tick");
    assert_eq!(tick_at(5990), (0, false));
    assert_eq!(tick_at(6000), (1, true), "a second later");
    assert_eq!(tick_at(6990), (1, true), "one step a second");
    assert_eq!(tick_at(7500), (2, true));
    let (measured, _) = (8..41).map(|second| tick_at(second * 1000)).last().expect("a tick");
    assert!(measured <= 11, "the measurements end, after {measured}");
    assert!(measurements.cache().is_some());
}

/// Only the clears are made together; each page is added to the file by itself.
#[test]
fn shared_memory_is_allocated_and_populated_in_batches() {
    let fixture = Fixture::new(4096, 1, 1);
    let space = fixture.mm.new_space().expect("memory");
    let file = fixture.mm.memfd_create("batches", MemfdFlags::empty()).expect("memory");
    let batches = || fixture.mm.counter(Counter::PwClearBatches);
    let expected = if streaming().is_some() { PAGES.div_ceil(64) } else { 0 };
    let before = batches();
    fixture.mm.fallocate(&file, FallocateFlags::empty(), 0, PAGES * PAGE_SIZE).expect("memory");
    assert_eq!(batches() - before, expected, "fallocate clears 64 pages at a time");
    let before = batches();
    let request = MapRequest {
        addr: VirtAddr::ZERO,
        len: PAGES * PAGE_SIZE,
        rights: Rights::RW,
        flags: MapFlags::SHARED | MapFlags::ANONYMOUS | MapFlags::POPULATE,
        file: None,
    };
    let start = fixture.mm.mmap(&space, &request).expect("free addresses");
    assert_eq!(batches() - before, expected, "populating shared memory clears 64 pages at a time");
    assert!(fixture.reads_as_zero(&space, PageRange::from_len(start, request.len).expect("whole pages")));
    assert_eq!(fixture.mm.counter(Counter::PwZeroed), 2 * PAGES);
    fixture.check_fences();
    fixture.mm.end_space(&space);
}

#[test]
fn a_bulk_pin_clears_in_batches_and_a_plain_one_page_by_page() {
    let (fixture, space) = Fixture::with_space(4096, 1, 1);
    for (flags, batches) in [(GupFlags::empty(), 0), (GupFlags::HINT_BULK, PAGES.div_ceil(64))] {
        let before = fixture.mm.counter(Counter::PwClearBatches);
        let range = fixture.map(&space, MapFlags::empty());
        let pages = fixture.mm.pin_user_pages(&space, range, flags | GupFlags::WRITE).expect("memory");
        assert_eq!(pages.len() as u64, PAGES);
        assert!(pages.iter().all(|page| fixture.memory.holds(page.pfn(), Order::ZERO, 0)));
        let expected = if streaming().is_some() { batches } else { 0 };
        assert_eq!(fixture.mm.counter(Counter::PwClearBatches) - before, expected);
        fixture.mm.release_user_pages(pages, MakeDirty::No);
    }
    fixture.end(&space);
}

/// A fault of a program uses ordinary stores, unless `clear_uncached` is 2.
#[test]
fn a_fault_clears_one_page_with_the_stores_of_the_policy() {
    for (setting, faults_stream) in [(0, false), (1, false), (2, true)] {
        let (fixture, space) = Fixture::with_space(4096, 1, setting);
        let range = fixture.map(&space, MapFlags::empty());
        for va in range.iter() {
            fixture.mm.fault(&space, va.add(0x123), Access::Write).expect("memory");
        }
        assert!(fixture.reads_as_zero(&space, range));
        let streams = faults_stream && ClearCaps::detect().candidates().next().is_some();
        let fences = fixture.mm.counter(Counter::PwClearFences);
        assert!(if streams { fences >= PAGES } else { fences == 0 }, "{fences} fences with clear_uncached = {setting}");
        fixture.end(&space);
    }
}

#[test]
fn memory_exhausted_in_a_batch_is_an_error_and_leaks_no_frame() {
    let (fixture, space) = Fixture::with_space(1024, 1, 1);
    let mut mapped = Vec::new();
    let refused = loop {
        let range = fixture.map(&space, MapFlags::empty());
        mapped.push(range);
        if let Err(error) = fixture.mm.madvise(&space, range.start(), range.len(), Advice::PopulateWrite) {
            break error;
        }
    };
    assert_eq!(refused.errno(), pagewright_types::Errno::ENOMEM);
    assert_eq!(mapped.len(), 4, "1024 frames hold three times 300 pages and their tables");
    assert!(mapped[..3].iter().all(|range| fixture.reads_as_zero(&space, *range)));
    fixture.mm.end_space(&space);
    let frames = fixture.mm.tlb().frames();
    // The zero page and the empty root remain allocated.
    assert_eq!(frames.available(), frames.managed() - 2);
}

/// The pages that a short batch has left out are cleared one by one, until no frame is left.
#[test]
fn memory_exhausted_in_the_last_batch_of_a_call_is_an_error() {
    const BATCH: u64 = 64;
    let (fixture, space) = Fixture::with_space(1024, 1, 1);
    let refused = loop {
        let start = fixture.map(&space, MapFlags::empty()).start();
        if let Err(error) = fixture.mm.madvise(&space, start, BATCH * PAGE_SIZE, Advice::PopulateWrite) {
            break error;
        }
    };
    assert_eq!(refused.errno(), pagewright_types::Errno::ENOMEM);
    assert!(!space.rss().pages().is_multiple_of(BATCH), "the last batch was whole or empty");
    fixture.mm.end_space(&space);
    fixture.assert_two_frames_in_use();
}

/// INV-POOL-ZERO, INV-CLEAR-YIELD.
#[test]
fn a_pool_has_zeroed_folios_after_filling_and_refilling() {
    let fixture = Fixture::new(1 << 14, 1, 1);
    for (raw, places, yields) in [(9, 10, 3), (12, 2, 2 + 2)] {
        let order = Order::new(raw);
        let pool = fixture.mm.huge_pool(order, NODE, places).expect("memory");
        assert!(pool.folio(0).is_none());
        let given = Cell::new(0);
        pool.fill(0..places, || given.set(given.get() + 1)).expect("memory");
        assert_eq!((pool.filled(), given.get()), (places, yields), "one chance to yield after each 8 MiB");
        for place in 0..places {
            let folio = pool.folio(place).expect("filled");
            assert!(fixture.memory.holds(folio.pfn(), order, 0), "place {place}");
            fixture.memory.fill(folio.pfn(), order, POISON);
            assert!(fixture.mm.tlb().frames().put(folio).is_none(), "the pool also has a reference");
        }
        pool.punch(1..places);
        assert_eq!(pool.filled(), 1);
        pool.fill(0..places, || {}).expect("memory");
        let (kept, again) = (pool.folio(0).expect("kept"), pool.folio(1).expect("filled"));
        assert!(fixture.memory.holds(kept.pfn(), order, POISON), "a folio that was not punched is cleared");
        assert!(fixture.memory.holds(again.pfn(), order, 0), "a folio that was punched is not cleared again");
        for folio in [kept, again] {
            assert!(fixture.mm.tlb().frames().put(folio).is_none());
        }
    }
    fixture.check_fences();
    fixture.assert_two_frames_in_use();
}

#[test]
fn a_pool_that_exhausts_memory_keeps_the_folios_it_got() {
    let fixture = Fixture::new(1 << 13, 1, 1);
    let pool = fixture.mm.huge_pool(Order::PMD, NODE, 100).expect("memory");
    let refused = pool.fill(0..100, || {}).expect_err("the machine has 32 MiB, the pool needs 200");
    assert_eq!(refused.errno(), pagewright_types::Errno::ENOMEM);
    assert_eq!(pool.filled(), 15, "the zero page occupies one of 16 blocks");
    drop(pool);
    fixture.assert_two_frames_in_use();
}

#[test]
fn several_cpus_fill_a_pool_together() {
    let fixture = Fixture::new(1 << 15, 2, 1);
    let pool = fixture.mm.huge_pool(Order::PMD, NODE, 48).expect("memory");
    for _ in 0..3 {
        let filling = pool.begin_fill(0..48);
        thread::scope(|scope| {
            for cpu in 0..2 {
                let filling = &filling;
                scope.spawn(move || {
                    run_as(CpuId::new(cpu));
                    filling.help(thread::yield_now).expect("memory");
                });
            }
        });
        assert_eq!(pool.filled(), 48);
        let mut seen = Vec::new();
        for place in 0..48 {
            let folio = pool.folio(place).expect("filled");
            assert!(fixture.memory.holds(folio.pfn(), Order::PMD, 0));
            fixture.memory.fill(folio.pfn(), Order::PMD, POISON);
            seen.push(folio.pfn());
            assert!(fixture.mm.tlb().frames().put(folio).is_none());
        }
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 48, "two places have the same folio");
        pool.punch(0..48);
    }
    fixture.check_fences();
}

/// The residency that the allocator records, from end to end.
///
/// A small folio that was just freed is hot, and is cleared through the cache.
#[test]
fn small_folios_just_freed_are_cleared_through_the_cache() {
    let fixture = Fixture::new(1 << 14, 1, 1);
    let Some(streaming) = streaming() else { return };
    let tlb = fixture.mm.tlb();
    let whole = pagewright_tlb::frames::ClearExtent::of_frames(1 << 20);
    let mut list = BlockList::new();
    let take = || tlb.alloc_zeroed(tlb.request(Order::new(3)), whole).expect("memory").into_block();
    list.push(tlb.frames(), take());
    assert_eq!(fixture.cleared(streaming), 8);
    while let Some(block) = list.pop(tlb.frames()) {
        tlb.free(block);
    }
    let again = take();
    assert_eq!(fixture.cleared(streaming), 8, "a hot block is cleared with streaming stores");
    tlb.free(again);
}
