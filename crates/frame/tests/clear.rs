//! Clearing: all bytes are zero, and fences and stores fit the backend and the residency.

use crate::support::{self, Host, NODE0, cpus, range, run_on, take};
use pagewright_frame::{
    Block, BlockList, ClearBackend, ClearCaps, ClearExtent, ClearPolicy, FrameAllocator, FrameRequest, MemoryLayout,
    NodeSpec, Residency,
};
use pagewright_sync::LinearMap;
use pagewright_types::{Counter, NodeId, Order, PAGE_SIZE, Pfn};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

const WORDS_PER_PAGE: usize = 512;
const POISON: u64 = 0xa5a5_5a5a_c3c3_3c3c;
/// 32 MiB: several chunks of [`Frames::clear_yielding`].
pub(crate) const FRAMES: u32 = 1 << 13;

/// Host memory for frames 0 to `frames`, aligned to 2 MiB as huge pages are.
fn memory(frames: u32) -> (LinearMap, &'static [AtomicU64]) {
    const HUGE: usize = 2 << 20;
    let len = frames as usize * PAGE_SIZE as usize;
    let bytes: &'static mut [u8] = Box::leak(bytemuck::zeroed_slice_box(len + HUGE));
    let skip = bytes.as_ptr().align_offset(HUGE);
    LinearMap::over(&mut bytes[skip..skip + len], Pfn::new(0)).expect("whole pages")
}

fn poison(words: &[AtomicU64]) {
    words.iter().for_each(|word| word.store(POISON, Ordering::Relaxed));
}

fn words_of(memory: &[AtomicU64], pfn: Pfn, order: Order) -> &[AtomicU64] {
    &memory[pfn.index() * WORDS_PER_PAGE..][..order.frames() as usize * WORDS_PER_PAGE]
}

fn holds(words: &[AtomicU64], value: u64) -> bool {
    words.iter().all(|word| word.load(Ordering::Relaxed) == value)
}

pub(crate) struct Fixture {
    memory: &'static [AtomicU64],
    pub(crate) frames: FrameAllocator<Host>,
}

impl Fixture {
    pub(crate) fn new(cpus: usize) -> Self {
        run_on(0);
        let (map, memory) = memory(FRAMES);
        poison(memory);
        Self { memory, frames: support::one_node(&Host::with_memory(cpus, map), 0, FRAMES) }
    }

    fn count(&self, counter: Counter) -> u64 {
        self.frames.counters().sum(counter)
    }

    /// The number of blocks of this order that hold zeroes, which are then overwritten.
    pub(crate) fn take_cleared(&self, order: Order) -> usize {
        let blocks = self.memory.chunks_exact(order.frames() as usize * WORDS_PER_PAGE);
        blocks.filter(|block| holds(block, 0)).inspect(|block| poison(block)).count()
    }

    fn fences(&self) -> [u64; 3] {
        [Counter::PwClearFences, Counter::PwClearBatches, Counter::PwClearYields].map(|counter| self.count(counter))
    }

    /// The fences, batches and yields of what `clear` does with this backend.
    fn fences_of(&self, backend: ClearBackend, clear: impl FnOnce()) -> [u64; 3] {
        self.frames.clear_selector().set_policy(ClearPolicy::Only(backend));
        let before = self.fences();
        clear();
        let after = self.fences();
        std::array::from_fn(|index| after[index] - before[index])
    }
}

/// The stores that this CPU has.
fn backends() -> Vec<ClearBackend> {
    ClearCaps::detect().backends().collect()
}

fn weak() -> Vec<ClearBackend> {
    backends().into_iter().filter(|backend| backend.is_weak()).collect()
}

/// INV-CLEAR-CAPS: Linux has asked the same CPU, by code of its own.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[test]
fn the_stores_of_this_cpu_are_those_that_linux_reports() {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").expect("Linux describes its CPUs");
    let field = |name: &str| {
        let named = cpuinfo.lines().filter_map(|line| line.split_once(':')).find(|(of, _)| of.trim() == name);
        named.map(|(_, value)| value.trim()).expect("the field of an x86 CPU")
    };
    let reported = |flag: &str| field("flags").split_whitespace().any(|other| other == flag);
    let caps = ClearCaps::detect();
    assert_eq!(caps.has_erms(), reported("erms"));
    assert_eq!(caps.has(ClearBackend::Movdir64b), reported("movdir64b"));
    assert_eq!(caps.has(ClearBackend::Clzero), reported("clzero"));
    assert!(caps.has(ClearBackend::Cached) && caps.has(ClearBackend::Movnti), "every x86-64 CPU has both");
    assert!(!caps.has(ClearBackend::DcZva));
    // Without the feature `std`, no vector register is used.
    assert!(!caps.has(ClearBackend::Avx2) || reported("avx2"));
    assert!(!caps.has(ClearBackend::Avx512) || reported("avx512f"));
    let signature = caps.signature().expect("an x86 CPU has one");
    assert_eq!(signature.intel, field("vendor_id") == "GenuineIntel");
    let [family, model] = ["cpu family", "model"].map(|name| field(name).parse::<u8>().expect("a number"));
    assert_eq!((signature.family, signature.model), (family, model));
}

/// INV-CLEAR-FENCE: a CPU that sees a store made after the fence sees the zeroes.
#[test]
fn no_cpu_finds_old_bytes_after_the_fence() {
    const ROUNDS: u64 = 4000;
    const WORDS_PER_LINE: usize = 8;
    let fixture = Fixture::new(1);
    let mut block = take(&fixture.frames, 0);
    let words = words_of(fixture.memory, block.pfn(), Order::ZERO);
    for backend in weak() {
        fixture.frames.clear_selector().set_policy(ClearPolicy::Only(backend));
        let [cleared, read] = [const { AtomicU64::new(0) }; 2];
        block = std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=ROUNDS {
                    wait_for(&cleared, round);
                    // What was stored last may still be on its way.
                    let old = words.iter().rev().step_by(WORDS_PER_LINE).find(|word| word.load(Ordering::Relaxed) != 0);
                    read.store(if old.is_some() { u64::MAX } else { round }, Ordering::Release);
                    assert!(old.is_none(), "{}, round {round}", backend.name());
                }
            });
            (1..=ROUNDS).fold(block, |block, round| {
                poison(words);
                let zeroed = fixture.frames.pin_cpu().clear(block, ClearExtent::PAGE).fence();
                cleared.store(round, Ordering::Release);
                wait_for(&read, round);
                zeroed.into_block()
            })
        });
    }
    fixture.frames.free(block);
}

/// Waits until the other thread has stored `round` or more; it may need this CPU for that.
fn wait_for(word: &AtomicU64, round: u64) {
    const PATIENCE: u32 = 1000;
    let mut spins = 0;
    while word.load(Ordering::Acquire) < round {
        std::hint::spin_loop();
        spins += 1;
        if spins > PATIENCE {
            std::thread::yield_now();
        }
    }
}

/// INV-CLEAR-WHOLE.
///
/// For all backends of this CPU, all orders up to 8 MiB, and blocks at all alignments that their
/// order allows.
#[test]
fn every_byte_of_a_block_is_zeroed_and_no_other() {
    let fixture = Fixture::new(1);
    for backend in backends() {
        fixture.frames.clear_selector().set_policy(ClearPolicy::Only(backend));
        for raw in 0..=11 {
            let order = Order::new(raw);
            let before = fixture.count(backend.counter());
            let mut blocks = BlockList::new();
            for _ in 0..3 {
                let cleared =
                    fixture.frames.pin_cpu().clear(take(&fixture.frames, raw), ClearExtent::of_order(order)).fence();
                let pfn = cleared.pfn();
                let own = words_of(fixture.memory, pfn, order);
                assert!(holds(own, 0), "{} did not clear all of {pfn}, order {order}", backend.name());
                poison(own);
                assert!(holds(fixture.memory, POISON), "{} cleared more than {pfn}, order {order}", backend.name());
                blocks.push(&fixture.frames, cleared.into_block());
            }
            while let Some(block) = blocks.pop(&fixture.frames) {
                fixture.frames.free(block);
            }
            let pages = 3 * u64::from(order.frames());
            assert_eq!(
                fixture.count(backend.counter()) - before,
                pages,
                "the policy selects this backend, but another one cleared"
            );
        }
        fixture.frames.drain();
    }
}

/// INV-CLEAR-FENCES, INV-CLEAR-YIELD, INV-CLEAR-WHOLE.
#[test]
fn a_large_block_is_fenced_and_yields_after_each_chunk() {
    let fixture = Fixture::new(1);
    for backend in backends() {
        let fences = fixture.fences_of(backend, || {
            // 32 MiB are four chunks of 8 MiB.
            let block = take(&fixture.frames, 13);
            let (pfn, order) = (block.pfn(), block.order());
            let begun = Cell::new(0);
            let cleared = fixture.frames.clear_yielding(block, ClearExtent::of_order(order), || {
                begun.set(begun.get() + 1);
                let chunk = Order::new(11);
                let done = Pfn::new(pfn.raw() + (begun.get() - 1) * chunk.frames());
                assert!(holds(words_of(fixture.memory, done, chunk), 0), "a chunk is not cleared before the yield");
            });
            assert_eq!(begun.get(), 3);
            assert!(holds(words_of(fixture.memory, pfn, order), 0));
            poison(fixture.memory);
            fixture.frames.free(cleared.into_block());
        });
        assert_eq!(fences, if backend.is_weak() { [4, 1, 3] } else { [0; 3] }, "{}", backend.name());
    }
}

/// INV-CLEAR-FENCE, INV-CLEAR-FENCES.
#[test]
fn a_batch_needs_one_fence_and_ordinary_stores_none() {
    let fixture = Fixture::new(1);
    for backend in backends() {
        let fences = fixture.fences_of(backend, || {
            let cpu = fixture.frames.pin_cpu();
            let mut batch = cpu.batch();
            for raw in [0, 0, 9, 3, 0, 9] {
                batch.add(cpu.clear(take(&fixture.frames, raw), ClearExtent::of_frames(1 << 18)));
            }
            let mut zeroed = batch.fence();
            assert_eq!(zeroed.len(), 6);
            let first = zeroed.pop().expect("one of six blocks").into_block();
            assert!(holds(words_of(fixture.memory, first.pfn(), first.order()), 0));
            // Dropping the list frees the other blocks.
            fixture.frames.free(first);
        });
        assert_eq!(fixture.frames.available(), u64::from(FRAMES));
        let one = u64::from(backend.is_weak());
        assert_eq!(fences, [one, one, 0], "{}", backend.name());
    }
}

/// INV-CLEAR-FENCE: one weakly ordered store among many makes the fence necessary, wherever it is.
#[test]
fn a_batch_of_mixed_stores_is_fenced_exactly_if_one_of_them_is_weak() {
    let fixture = Fixture::new(1);
    let (weak, ordinary) = (weak(), fixture.frames.clear_selector().caps().ordinary());
    // Every sequence of four stores; without weak stores, only the one without any.
    for pattern in 0..if weak.is_empty() { 1 } else { 1u32 << 4 } {
        for dropped in [false, true] {
            let [fences, batches, _] = fixture.fences();
            let cpu = fixture.frames.pin_cpu();
            let mut batch = cpu.batch();
            let cleared =
                || ClearBackend::ALL.iter().map(|backend| fixture.count(backend.counter())).collect::<Vec<_>>();
            let mut expected = cleared();
            for place in 0..4 {
                let is_weak = pattern >> place & 1 != 0;
                let backend = if is_weak { weak[(pattern as usize + place) % weak.len()] } else { ordinary };
                fixture.frames.clear_selector().set_policy(ClearPolicy::Only(backend));
                batch.add(cpu.clear(take(&fixture.frames, 1), ClearExtent::of_frames(1 << 18)));
                expected[backend as usize] += 2;
            }
            if dropped {
                drop(batch);
            } else {
                let zeroed = batch.fence();
                let one = u64::from(pattern != 0);
                assert_eq!(fixture.fences()[..2], [fences + one, batches + one], "pattern {pattern:04b}");
                drop(zeroed);
            }
            let one = u64::from(pattern != 0);
            assert_eq!(fixture.fences()[..2], [fences + one, batches + one], "pattern {pattern:04b}");
            assert_eq!(cleared(), expected, "pages by their stores, pattern {pattern:04b}");
        }
    }
}

/// INV-CLEAR-FENCE.
///
/// A block that is dropped between its stores and its fence is fenced and freed, and does not count
/// as zeroed.
#[test]
fn a_block_dropped_before_its_fence_is_fenced_and_freed() {
    let fixture = Fixture::new(1);
    for backend in weak() {
        let fences = fixture.fences_of(backend, || {
            let cpu = fixture.frames.pin_cpu();
            drop(cpu.clear(take(&fixture.frames, 9), ClearExtent::PAGE));
            let mut batch = cpu.batch();
            batch.add(cpu.clear(take(&fixture.frames, 0), ClearExtent::PAGE));
            batch.add(cpu.clear(take(&fixture.frames, 9), ClearExtent::PAGE));
            drop(batch);
            drop(cpu.batch());
        });
        assert_eq!(fences, [2, 2, 0], "one fence for each, and none for an empty batch");
        assert_eq!(fixture.frames.available(), u64::from(FRAMES));
    }
}

/// INV-CLEAR-PINNED.
#[test]
#[cfg_attr(not(debug_assertions), ignore = "checked in debug builds")]
#[cfg_attr(not(target_arch = "x86_64"), ignore = "no weakly ordered stores")]
#[should_panic(expected = "INV-CLEAR-PINNED")]
fn a_fence_on_another_cpu_panics() {
    let fixture = Fixture::new(2);
    fixture.frames.clear_selector().set_policy(ClearPolicy::Only(ClearBackend::Movnti));
    let cpu = fixture.frames.pin_cpu();
    let cleared = cpu.clear(take(&fixture.frames, 0), ClearExtent::PAGE);
    run_on(1);
    cleared.fence().into_block().into_raw();
}

#[test]
fn a_block_that_is_cleared_by_page_is_cleared_throughout() {
    let fixture = Fixture::new(1);
    fixture.frames.clear_selector().set_policy(ClearPolicy::CachedByPage);
    for raw in [0, 1, 4, 9] {
        let order = Order::new(raw);
        let cleared = fixture.frames.pin_cpu().clear(take(&fixture.frames, raw), ClearExtent::of_order(order)).fence();
        let own = words_of(fixture.memory, cleared.pfn(), order);
        assert!(holds(own, 0), "order {order}");
        poison(own);
        assert!(holds(fixture.memory, POISON), "more than a block of order {order} was cleared");
        fixture.frames.free(cleared.into_block());
    }
}

#[test]
fn the_cpu_may_be_yielded_between_batches() {
    let fixture = Fixture::new(2);
    fixture.frames.clear_selector().set_policy(ClearPolicy::Uncached);
    let mut cpu = fixture.frames.pin_cpu();
    let one = cpu.clear(take(&fixture.frames, 0), ClearExtent::PAGE).fence();
    let mut waited = 0;
    cpu.yield_cpu(|_| {
        run_on(1);
        waited += 1;
    });
    assert_eq!(waited, 1, "the CPU was yielded");
    let other = cpu.clear(take(&fixture.frames, 0), ClearExtent::PAGE).fence();
    for zeroed in [one, other] {
        fixture.frames.prefetch(&zeroed, zeroed.pfn(), 8);
        fixture.frames.free(zeroed.into_block());
    }
}

fn residency(frames: &FrameAllocator<Host>, raw: u8) -> (Residency, Block) {
    let block = take(frames, raw);
    (block.residency(), block)
}

#[test]
fn a_new_block_is_cold_and_a_block_just_freed_here_is_hot() {
    let fixture = Fixture::new(2);
    let frames = &fixture.frames;
    for raw in [0, 3, 9] {
        let (fresh, block) = residency(frames, raw);
        assert_eq!(fresh, Residency::Cold, "order {raw}");
        frames.free(block);
        let (again, block) = residency(frames, raw);
        assert_eq!(again, Residency::Hot, "order {raw}");
        // A list keeps the residency.
        let mut list = BlockList::new();
        list.push(frames, block);
        assert_eq!(list.len(), 1);
        let block = list.pop(frames).expect("one block");
        assert_eq!((block.residency(), list.len()), (Residency::Hot, 0));
        run_on(1);
        frames.free(block);
        run_on(0);
        let (here, block) = residency(frames, raw);
        assert_ne!(here, Residency::Hot, "another CPU freed the block");
        frames.free(block);
        frames.drain();
    }
}

#[test]
fn a_block_becomes_cold_as_others_are_freed() {
    let fixture = Fixture::new(1);
    let frames = &fixture.frames;
    // Blocks of order 4 are on no per-CPU list. All memory but one block of order 5 is allocated,
    // so that the same block is found again.
    let mut held = BlockList::new();
    for _ in 0..FRAMES / 16 - 1 {
        held.push(frames, take(frames, 4));
    }
    let (fresh, block) = residency(frames, 4);
    assert_eq!(fresh, Residency::Cold);
    frames.free(block);
    let (again, block) = residency(frames, 4);
    assert_eq!(again, Residency::Unknown, "freed a moment ago, and not through a per-CPU list");
    frames.free(block);
    // As many frames are freed as the cache holds, and then the block is found again.
    let cache = frames.clear_selector().cache().frames();
    // The buddy stays allocated, or the blocks would coalesce.
    let buddy = held.pop(frames).expect("a held block");
    let mut other = held.pop(frames);
    for _ in 0..cache / 16 {
        frames.free(other.take().expect("a block"));
        let block = take(frames, 4);
        other = Some(block);
    }
    let (one, two) = (other.take().expect("a block"), take(frames, 4));
    let cold = [one.residency(), two.residency()].into_iter().filter(|residency| *residency == Residency::Cold).count();
    assert_eq!(cold, 1, "only the block that was not freed in between is cold");
    for block in [one, two, buddy] {
        frames.free(block);
    }
    while let Some(block) = held.pop(frames) {
        frames.free(block);
    }
}

#[test]
fn freeing_a_page_leaves_the_block_that_it_joins_cold() {
    let fixture = Fixture::new(1);
    let page = take(&fixture.frames, 0);
    fixture.frames.free(page);
    fixture.frames.drain();
    let (around, block) = residency(&fixture.frames, 13);
    assert_eq!(around, Residency::Cold, "only one page of 8192 was used");
    fixture.frames.free(block);
}

#[test]
fn a_page_that_joins_a_cold_block_is_not_cold_itself() {
    let fixture = Fixture::new(1);
    let page = take(&fixture.frames, 0);
    let pfn = page.pfn();
    fixture.frames.free(page);
    fixture.frames.drain();
    let (again, block) = residency(&fixture.frames, 0);
    assert_eq!((block.pfn(), again), (pfn, Residency::Unknown));
    let (beside, other) = residency(&fixture.frames, 1);
    assert_eq!(beside, Residency::Cold);
    fixture.frames.free(block);
    fixture.frames.free(other);
}

#[test]
fn a_block_of_which_half_was_just_freed_is_not_cold() {
    let fixture = Fixture::new(1);
    let page = take(&fixture.frames, 0);
    let pfn = page.pfn();
    fixture.frames.free(page);
    fixture.frames.drain();
    let (pair, block) = residency(&fixture.frames, 1);
    assert_eq!((block.pfn(), pair), (pfn, Residency::Unknown));
    let (beside, other) = residency(&fixture.frames, 1);
    assert_eq!(beside, Residency::Cold);
    fixture.frames.free(block);
    fixture.frames.free(other);
}

#[test]
fn memory_of_another_node_is_cold() {
    run_on(0);
    let host = Host::new(2);
    let (here, there) = ([range(0, 1 << 10)], [range(1 << 10, 1 << 11)]);
    let nodes = [
        NodeSpec { id: NODE0, ranges: &here, cpus: cpus([0]) },
        NodeSpec { id: NodeId::new(1), ranges: &there, cpus: cpus([1]) },
    ];
    let layout = MemoryLayout { min_free_kbytes: Some(0), watermark_scale_factor: 0, ..MemoryLayout::new(&nodes) };
    let frames = FrameAllocator::try_new(host, &layout).expect("a valid layout");
    let from = |node| {
        frames
            .alloc(FrameRequest::new(Order::new(4), NodeId::new(node)), support::nothing_settled)
            .expect("memory")
            .settle(|_| {})
    };
    for (node, again) in [(0, Residency::Unknown), (1, Residency::Cold)] {
        frames.free(from(node));
        let block = from(node);
        assert_eq!(block.residency(), again, "node {node}");
        frames.free(block);
    }
}

/// The counters show the selected stores.
///
/// (Version 2 of the Linux series selected the slow ones unnoticed.)
#[test]
fn a_large_operation_streams_to_cold_blocks_and_to_hot_ones_only_from_2_mib_on() {
    let fixture = Fixture::new(1);
    let caps = ClearCaps::detect();
    let Some(streaming) = caps.streaming().filter(|_| !caps.is_denied()) else { return };
    let large = ClearExtent::of_frames(1 << 18);
    let clear = |raw, whole| {
        let (_, block) = residency(&fixture.frames, raw);
        let before = [streaming, caps.ordinary()].map(|backend| fixture.count(backend.counter()));
        fixture.frames.free(fixture.frames.pin_cpu().clear(block, whole).fence().into_block());
        let after = [streaming, caps.ordinary()].map(|backend| fixture.count(backend.counter()));
        [after[0] - before[0], after[1] - before[1]]
    };
    assert_eq!(clear(3, large), [8, 0], "a new block is cold");
    assert_eq!(clear(3, large), [0, 8], "a block just freed is hot");
    assert_eq!(clear(9, large), [512, 0], "a new block is cold");
    assert_eq!(clear(9, large), [512, 0], "2 MiB would evict the working set, hot or not");
    fixture.frames.drain();
    assert_eq!(clear(9, large), [512, 0], "unknown, and larger than the cache");
    fixture.frames.drain();
    assert_eq!(clear(9, ClearExtent::of_order(Order::PMD)), [0, 512], "unknown, and smaller than the cache");
}

/// A machine without weakly ordered stores has no fence to forget.
#[cfg(feature = "planted")]
#[test]
fn a_batch_that_forgets_its_first_stores_is_found() {
    if !weak().is_empty() {
        let test = a_batch_of_mixed_stores_is_fenced_exactly_if_one_of_them_is_weak;
        pagewright_plant::assert_found_by(pagewright_plant::PlantedBug::LastStoresDecide, test);
    }
}
