//! The memory manager on real memory: every path that zeroes, over frames that were poisoned, and
//! the counters that say how.

use pagewright_host::{HostMachine, HostMemory, run_as};
use pagewright_mm::gup::{Contents, GupFlags};
use pagewright_mm::{Advice, Knob, Knobs, MapFlags, MapRequest, Mm};
use pagewright_sync::Arc;
use pagewright_tlb::frames::{BlockList, ClearBackend, ClearCaps, MemoryLayout, NodeSpec};
use pagewright_types::{Access, Counter, CpuId, CpuMask, NodeId, Order, PAGE_SIZE, PageRange, Rights, VirtAddr};
use std::cell::Cell;
use std::thread;

const POISON: u64 = 0xdead_beef_dead_beef;
const NODE: NodeId = NodeId::new(0);
const PAGES: u64 = 300;

struct Bed {
    mm: Mm<HostMachine>,
    memory: HostMemory,
}

type Space = Arc<pagewright_mm::Space<HostMachine>>;

impl Bed {
    /// A machine whose frames are all poisoned, with this `clear_uncached`.
    fn new(frames: u32, cpus: usize, uncached: u64) -> Self {
        run_as(CpuId::new(0));
        let memory = HostMemory::try_new(frames).expect("memory");
        (0..frames / 512).for_each(|block| {
            memory.fill(pagewright_types::Pfn::new(block * 512), Order::PMD, POISON);
        });
        let ranges = [memory.frames()];
        let nodes = [NodeSpec { id: NODE, ranges: &ranges, cpus: CpuMask::first(cpus) }];
        let layout = MemoryLayout { min_free_kbytes: Some(0), watermark_scale_factor: 0, ..MemoryLayout::new(&nodes) };
        let knobs = Knobs::default();
        knobs.set(Knob::ClearUncached, uncached).expect("0 to 2");
        Self { mm: Mm::try_new(HostMachine::new(memory, cpus), &layout, knobs).expect("a possible machine"), memory }
    }

    fn map(&self, space: &Space, flags: MapFlags) -> PageRange {
        let request = MapRequest {
            addr: VirtAddr::ZERO,
            len: PAGES * PAGE_SIZE,
            rights: Rights::READ | Rights::WRITE,
            flags: MapFlags::PRIVATE | MapFlags::ANONYMOUS | flags,
            file: None,
        };
        let start = self.mm.mmap(space, &request).expect("room");
        PageRange::from_len(start, request.len).expect("whole pages")
    }

    fn reads_as_zero(&self, space: &Space, range: PageRange) -> bool {
        let mut bytes = vec![1; range.len() as usize];
        self.mm.copy_from_user(space, range.start(), &mut bytes) == 0 && bytes.iter().all(|byte| *byte == 0)
    }

    fn cleared(&self, backend: ClearBackend) -> u64 {
        self.mm.counter(backend.counter())
    }

    fn fences_are_owed(&self) {
        let [fences, batches, yields] = [Counter::PwClearFences, Counter::PwClearBatches, Counter::PwClearYields]
            .map(|counter| self.mm.counter(counter));
        assert_eq!(fences, batches + yields, "INV-CLEAR-FENCES");
    }
}

/// The streaming stores that are chosen here without being told to.
fn streaming() -> Option<ClearBackend> {
    let caps = ClearCaps::detect();
    caps.streaming().filter(|_| !caps.is_denied())
}

#[test]
fn populating_clears_in_batches_and_every_page_reads_as_zero() {
    let bed = Bed::new(4096, 1, 1);
    let space = bed.mm.new_space().expect("memory");
    let before = bed.mm.counter(Counter::PwClearBatches);
    let populated = bed.map(&space, MapFlags::POPULATE);
    let advised = bed.map(&space, MapFlags::empty());
    bed.mm.madvise(&space, advised.start(), advised.len(), Advice::PopulateWrite).expect("memory");
    if let Some(streaming) = streaming() {
        assert!(bed.cleared(streaming) >= 2 * PAGES, "fresh frames of an operation of 1.2 MB go past the cache");
        assert_eq!(bed.mm.counter(Counter::PwClearBatches) - before, 2 * PAGES.div_ceil(64), "64 pages a batch");
    }
    assert_eq!(bed.mm.counter(Counter::PwZeroed), 2 * PAGES, "no more than were mapped");
    for range in [populated, advised] {
        assert!(bed.reads_as_zero(&space, range), "INV-CLEAR-WHOLE");
    }
    bed.fences_are_owed();
    bed.mm.end_space(&space);
}

#[test]
fn a_bulk_pin_clears_in_batches_and_a_plain_one_page_by_page() {
    let bed = Bed::new(4096, 1, 1);
    let space = bed.mm.new_space().expect("memory");
    for (flags, batches) in [(GupFlags::empty(), 0), (GupFlags::HINT_BULK, PAGES.div_ceil(64))] {
        let before = bed.mm.counter(Counter::PwClearBatches);
        let range = bed.map(&space, MapFlags::empty());
        let pages = bed.mm.pin_user_pages(&space, range, flags | GupFlags::WRITE).expect("memory");
        assert_eq!(pages.len() as u64, PAGES);
        assert!(pages.iter().all(|page| bed.memory.holds(page.pfn(), Order::ZERO, 0)));
        let expected = if streaming().is_some() { batches } else { 0 };
        assert_eq!(bed.mm.counter(Counter::PwClearBatches) - before, expected);
        bed.mm.release_user_pages(pages, Contents::Read);
    }
    bed.fences_are_owed();
    bed.mm.end_space(&space);
}

/// Faults by a program: ordinary stores, as long as nobody asks for others.
#[test]
fn a_fault_clears_one_page_and_brings_it_to_the_cache() {
    for (knob, faults_stream) in [(0, false), (1, false), (2, true)] {
        let bed = Bed::new(4096, 1, knob);
        let space = bed.mm.new_space().expect("memory");
        let range = bed.map(&space, MapFlags::empty());
        for va in range.iter() {
            bed.mm.fault(&space, va.add(0x123), Access::Write).expect("memory");
        }
        assert!(bed.reads_as_zero(&space, range));
        let streams = faults_stream && ClearCaps::detect().candidates().next().is_some();
        let fences = bed.mm.counter(Counter::PwClearFences);
        assert!(if streams { fences >= PAGES } else { fences == 0 }, "{fences} fences at {knob}");
        bed.fences_are_owed();
        bed.mm.end_space(&space);
    }
}

#[test]
fn memory_that_runs_out_in_a_batch_is_an_error_and_nothing_leaks() {
    let bed = Bed::new(1024, 1, 1);
    let space = bed.mm.new_space().expect("memory");
    let mut mapped = Vec::new();
    let refused = loop {
        let range = bed.map(&space, MapFlags::empty());
        mapped.push(range);
        if let Err(error) = bed.mm.madvise(&space, range.start(), range.len(), Advice::PopulateWrite) {
            break error;
        }
    };
    assert_eq!(refused.errno(), pagewright_types::Errno::ENOMEM);
    assert_eq!(mapped.len(), 4, "1024 frames hold three times 300 pages and their tables");
    assert!(mapped[..3].iter().all(|range| bed.reads_as_zero(&space, *range)));
    bed.mm.end_space(&space);
    let frames = bed.mm.tlb().frames();
    // The zero page and the empty root stay.
    assert_eq!(frames.available(), frames.managed() - 2);
}

/// INV-POOL-ZERO, INV-CLEAR-YIELD
#[test]
fn a_pool_is_filled_with_zeroed_folios_punched_and_filled_again() {
    let bed = Bed::new(1 << 14, 1, 1);
    for (raw, places, yields) in [(9, 10, 3), (12, 2, 2 + 2)] {
        let order = Order::new(raw);
        let pool = bed.mm.huge_pool(order, NODE, places).expect("memory");
        assert!(pool.folio(0).is_none());
        let given = Cell::new(0);
        pool.fill(0..places, || given.set(given.get() + 1)).expect("memory");
        assert_eq!((pool.filled(), given.get()), (places, yields), "a chance to yield each 8 MiB");
        for place in 0..places {
            let folio = pool.folio(place).expect("filled");
            assert!(bed.memory.holds(folio.pfn(), order, 0), "place {place}");
            bed.memory.fill(folio.pfn(), order, POISON);
            assert!(bed.mm.tlb().frames().put(folio).is_none(), "the pool has a reference, too");
        }
        pool.punch(1..places);
        assert_eq!(pool.filled(), 1);
        pool.fill(0..places, || {}).expect("memory");
        let (kept, again) = (pool.folio(0).expect("kept"), pool.folio(1).expect("filled"));
        assert!(bed.memory.holds(kept.pfn(), order, POISON), "what was there is left alone");
        assert!(bed.memory.holds(again.pfn(), order, 0), "what is used again is cleared again");
        for folio in [kept, again] {
            assert!(bed.mm.tlb().frames().put(folio).is_none());
        }
    }
    bed.fences_are_owed();
    let frames = bed.mm.tlb().frames();
    assert_eq!(frames.available(), frames.managed() - 2);
}

#[test]
fn a_pool_that_memory_does_not_suffice_for_keeps_what_it_got() {
    let bed = Bed::new(1 << 13, 1, 1);
    let pool = bed.mm.huge_pool(Order::PMD, NODE, 100).expect("memory");
    let refused = pool.fill(0..100, || {}).expect_err("32 MiB are not 200");
    assert_eq!(refused.errno(), pagewright_types::Errno::ENOMEM);
    assert_eq!(pool.filled(), 15, "of 16 blocks, one has the zero page");
    drop(pool);
    let frames = bed.mm.tlb().frames();
    assert_eq!(frames.available(), frames.managed() - 2);
}

#[test]
fn several_cpus_fill_a_pool_together() {
    let bed = Bed::new(1 << 15, 2, 1);
    let pool = bed.mm.huge_pool(Order::PMD, NODE, 48).expect("memory");
    for _ in 0..3 {
        let filling = pool.begin_filling(0..48);
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
            assert!(bed.memory.holds(folio.pfn(), Order::PMD, 0));
            bed.memory.fill(folio.pfn(), Order::PMD, POISON);
            seen.push(folio.pfn());
            assert!(bed.mm.tlb().frames().put(folio).is_none());
        }
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 48, "a folio each");
        pool.punch(0..48);
    }
    bed.fences_are_owed();
}

/// The allocator's own knowledge, end to end: what a pool had a moment ago is hot in the next one,
/// and cleared through the cache.
#[test]
fn folios_just_given_back_are_cleared_through_the_cache() {
    let bed = Bed::new(1 << 14, 1, 1);
    let Some(streaming) = streaming() else { return };
    let tlb = bed.mm.tlb();
    let whole = pagewright_tlb::frames::ClearExtent::of_frames(1 << 20);
    let mut list = BlockList::new();
    let take = || tlb.alloc_zeroed(tlb.request(Order::PMD), whole).expect("memory").into_block();
    list.push(tlb.frames(), take());
    assert_eq!(bed.cleared(streaming), 512);
    while let Some(block) = list.pop(tlb.frames()) {
        tlb.free(block);
    }
    let again = take();
    assert_eq!(bed.cleared(streaming), 512, "not streamed: its lines may be dirty here");
    tlb.free(again);
}
