//! The cost of judging an access, a reused frame and a returned call, and of the reference memory.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use pagewright_model::spec::{CallResult, MappingFlags, MemoryCall, MmapObject, MmapPlacement, RangeCall, Spec};
use pagewright_model::{CpuStep, Oracle};
use pagewright_types::judge::{
    CachedEntry, CachedEntryKind, CachedEntryState, Fact, Judge, LogicalPage, MemoryAccess, Witness,
};
use pagewright_types::{
    Access, CpuId, IsaKind, Level, Order, PageRange, Pfn, PhysAddr, Rights, SpaceId, Tag, VirtAddr,
};
use std::hint::black_box;

const CPUS: u16 = 4;
/// Entries that each CPU caches.
const ENTRIES: u32 = 1600;
const ROUND: u64 = 4096;
const ROOT: Pfn = Pfn::new(1);

/// Four CPUs with full TLBs, and page tables that map nothing.
struct Full(Vec<CachedEntry>);

impl Full {
    fn new(state: CachedEntryState) -> Self {
        let cached = (0..CPUS).flat_map(|cpu| (0..ENTRIES).map(move |entry| (cpu, entry)));
        let cached = cached.map(|(cpu, entry)| CachedEntry {
            cpu: CpuId::new(cpu),
            kind: CachedEntryKind::Translation { pfn: Pfn::new(0x1000 + entry), rights: Rights::RW },
            tag: Tag::new(1),
            root: ROOT,
            va: VirtAddr::from_page_index(u64::from(entry)),
            level: Level::PTE,
            global: false,
            state,
        });
        Self(cached.collect())
    }
}

impl Witness for Full {
    fn cached(&self, tell: &mut dyn FnMut(CachedEntry)) {
        self.0.iter().copied().for_each(tell);
    }

    fn word(&self, _at: PhysAddr) -> u64 {
        0
    }
}

fn made(entry: u64, cached: bool) -> MemoryAccess {
    MemoryAccess {
        cpu: CpuId::new(0),
        root: ROOT,
        va: VirtAddr::from_page_index(entry),
        access: Access::Write,
        at: Pfn::new(0x8000 + entry as u32).base(),
        cached,
    }
}

fn accesses(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("access");
    group.throughput(Throughput::Elements(ROUND));
    let none = Full(Vec::new());
    let mut oracle = Oracle::new(IsaKind::X86_64);
    group.bench_function("no stale entry", |bencher| {
        bencher.iter(|| (0..ROUND).for_each(|entry| oracle.access(&none, black_box(made(entry, true)))));
    });
    let full = Full::new(CachedEntryState::Condemned);
    for entry in 0..64 {
        oracle.fact(&full, CpuId::new(1), Fact::FrameReused { pfn: Pfn::new(0x1000 + entry), order: Order::ZERO });
    }
    group.bench_function("256 condemned", |bencher| {
        bencher.iter(|| (0..ROUND).for_each(|entry| oracle.access(&full, black_box(made(entry, true)))));
    });
    assert_eq!(oracle.found(), 0);
    group.finish();
}

fn facts(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("fact");
    let full = Full::new(CachedEntryState::Usable);
    let mut oracle = Oracle::new(IsaKind::X86_64);
    group.bench_function("frame reused, 6400 entries searched", |bencher| {
        bencher.iter(|| {
            oracle.fact(&full, CpuId::new(0), Fact::FrameReused { pfn: black_box(Pfn::new(7)), order: Order::ZERO })
        });
    });
    let range = PageRange::page(VirtAddr::from_page_index(1 << 20));
    group.bench_function("right reduced and call returned, 6400 entries searched twice", |bencher| {
        bencher.iter(|| {
            oracle.fact(
                &full,
                CpuId::new(0),
                Fact::RightReduced { root: ROOT, range: black_box(range), left: Rights::READ },
            );
            oracle.fact(&full, CpuId::new(0), Fact::CallReturned);
        });
    });
    assert_eq!(oracle.found(), 0);
    group.finish();
}

/// Empty TLBs, and x86-64 page tables that map the copies of moved pages.
struct Moved(Vec<u64>);

impl Moved {
    /// The first table of the last level; those above it are in frames 1 to 3.
    const FIRST: u64 = 4;
    /// The first frame of the pages before they moved, and of their copies.
    const FRAMES: (u32, u32) = (0x10_0000, 0x20_0000);
    /// A table that no window needs.
    const ELSEWHERE: PhysAddr = PhysAddr::new(63 << 12);

    fn slot(page: u64) -> PhysAddr {
        PhysAddr::new((Self::FIRST << 12) + page * 8)
    }

    /// Maps `pages` pages; each has moved, and its old translation may stay in TLBs.
    fn pages(pages: u64) -> (Self, Oracle) {
        let mut moved = Self(vec![0; 64 * 512]);
        let tables = pages.div_ceil(512);
        let pointers = [(1, 0, 2), (2, 0, 3)].into_iter().chain((0..tables).map(|n| (3, n, Self::FIRST + n)));
        pointers.for_each(|(table, index, to)| moved.0[(table * 512 + index) as usize] = to << 12 | 0x67);
        let mut oracle = Oracle::new(IsaKind::X86_64);
        for page in 0..pages {
            let frames = (Pfn::new(Self::FRAMES.0 + page as u32), Pfn::new(Self::FRAMES.1 + page as u32));
            moved.0[(Self::slot(page).raw() / 8) as usize] = frames.1.base().raw() | 0x25;
            let declared = Fact::RightDeferred {
                root: ROOT,
                range: PageRange::page(VirtAddr::from_page_index(page)),
                frame: frames.0,
                copy: Some(frames.1),
                page: LogicalPage::Anon { id: page },
            };
            oracle.fact(&moved, CpuId::new(0), declared);
        }
        (moved, oracle)
    }
}

impl Witness for Moved {
    fn cached(&self, _: &mut dyn FnMut(CachedEntry)) {}

    fn word(&self, at: PhysAddr) -> u64 {
        self.0.get((at.raw() / 8) as usize).copied().unwrap_or(0)
    }
}

/// With windows of deferred rights: stores to entries, and accesses of other pages and of old ones.
fn windows(criterion: &mut Criterion) {
    for pages in [1, 512, 10_000] {
        let mut group = criterion.benchmark_group(format!("{pages} deferred"));
        group.sample_size(10);
        let (moved, mut oracle) = Moved::pages(pages);
        for (name, at) in [("store elsewhere", Moved::ELSEWHERE), ("store to its entry", Moved::slot(0))] {
            group.bench_function(name, |bencher| {
                bencher.iter(|| oracle.entry_stored(&moved, CpuId::new(0), black_box(at), 0, 1));
            });
        }
        let read = MemoryAccess { access: Access::Read, ..made(0, true) };
        let stale = MemoryAccess { at: Pfn::new(Moved::FRAMES.0).base(), ..read };
        for (name, made) in [("store by a program", made(0, true)), ("load", read), ("load of an old frame", stale)] {
            group.bench_function(name, |bencher| bencher.iter(|| oracle.access(&moved, black_box(made))));
        }
        assert_eq!(oracle.found(), 0);
        group.finish();
    }
}

fn memory(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("reference memory");
    let space = SpaceId::new(1);
    let by = CpuStep { cpu: CpuId::new(0), step: 1 };
    let map = MemoryCall::Mmap {
        place: MmapPlacement::Fixed(VirtAddr::from_page_index(16)),
        len: ROUND * 4096,
        rights: Rights::RW,
        shared: false,
        object: MmapObject::Anon,
        flags: MappingFlags::default(),
    };
    let at = |page: u64| VirtAddr::from_page_index(16 + page).add(page % 512 * 8);
    let fresh = || {
        let mut spec = Spec::new(VirtAddr::new(1 << 47), false);
        spec.add_space(space, VirtAddr::new(1 << 40));
        spec.call(by, space, map, CallResult::Mapped(VirtAddr::from_page_index(16))).expect("a possible result");
        spec
    };
    let mut spec = fresh();
    group.throughput(Throughput::Elements(2 * ROUND));
    group.bench_function("store and load", |bencher| {
        bencher.iter(|| {
            for page in 0..ROUND {
                spec.store(by, space, at(page), page).expect("a possible result");
                spec.load(by, space, at(page), black_box(page)).expect("a possible result");
            }
        });
    });
    group.throughput(Throughput::Elements(ROUND));
    group.bench_function("munmap a page at a time", |bencher| {
        bencher.iter_batched_ref(
            fresh,
            |spec| {
                for page in 0..ROUND {
                    let call =
                        MemoryCall::Range(RangeCall::Munmap { addr: VirtAddr::from_page_index(16 + page), len: 4096 });
                    spec.call(by, space, call, CallResult::Done).expect("a possible result");
                }
            },
            BatchSize::LargeInput,
        );
    });
    group.finish();
}

criterion_group!(benches, accesses, facts, windows, memory);
criterion_main!(benches);
