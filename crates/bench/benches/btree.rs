//! Benchmarks of the tree's operations on the host.
//!
//! `find` is the look-up of a page fault. Read it as a ratio to `atomic increment` of the same run,
//! because both scale with the machine. Addresses are random, so with 100 000 items the look-ups
//! miss the cache as in a large process.

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use pagewright_btree::{BPlusTree, GapDirection, GapQuery, Gaps, TreeItem};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

/// An item of the size of a VMA.
struct Mapping {
    end: u64,
    rest: [u64; 7],
}

impl TreeItem for Mapping {
    type Key = u64;
    type Summary = Gaps;

    fn summary(&self, _key: u64) -> Gaps {
        Gaps::until(self.end)
    }
}

/// Pages from one mapping to the next.
const STRIDE: u64 = 16;
/// Pages of a mapping; the rest of the stride is a gap.
const COVERED: u64 = 12;
const SIZES: [u64; 3] = [10, 1_000, 100_000];

/// A random sequence (xorshift64, Marsaglia 2003), which neither caches nor predictors learn.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

fn mapping(start: u64) -> Mapping {
    Mapping { end: start + COVERED, rest: [start; 7] }
}

/// Returns a tree of `count` mappings, inserted in random order as by a long-lived process.
fn grown(count: u64) -> BPlusTree<Mapping> {
    let mut order: Vec<u64> = (0..count).collect();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for i in (1..order.len()).rev() {
        order.swap(i, random.below(i as u64 + 1) as usize);
    }
    let mut tree = BPlusTree::new();
    for start in order.into_iter().map(|i| i * STRIDE) {
        tree.try_reserve(1, || true).expect("the host has memory");
        tree.insert(start, mapping(start));
    }
    tree
}

fn find(c: &mut Criterion) {
    let counter = AtomicU64::new(0);
    c.bench_function("tree/atomic increment", |b| b.iter(|| counter.fetch_add(1, Ordering::SeqCst)));
    for count in SIZES {
        let tree = grown(count);
        let mut random = Random(1);
        c.bench_with_input(BenchmarkId::new("tree/find", count), &tree, |b, tree| {
            b.iter(|| tree.at(black_box(random.below(count * STRIDE))).map(|(key, _)| key));
        });
        // A fault then reads the VMA: with 100 000 VMAs, one more cache miss in any structure.
        c.bench_with_input(BenchmarkId::new("tree/find and read", count), &tree, |b, tree| {
            b.iter(|| tree.at(black_box(random.below(count * STRIDE))).map(|(_, mapping)| mapping.rest[0]));
        });
    }
    // The figures above contain this cost besides that of the tree.
    let mut random = Random(1);
    c.bench_function("tree/random address alone", |b| b.iter(|| black_box(random.below(black_box(1_600_000)))));
}

fn change(c: &mut Criterion) {
    let mut group = c.benchmark_group("tree/insert and remove");
    for count in SIZES {
        let mut tree = grown(count);
        let mut random = Random(1);
        group.bench_function(BenchmarkId::from_parameter(count), |b| {
            b.iter(|| {
                let start = random.below(count) * STRIDE + COVERED;
                tree.try_reserve(1, || true).expect("the host has memory");
                tree.insert(start, Mapping { end: start + 1, rest: [0; 7] });
                tree.remove(start)
            });
        });
    }
    group.finish();
    c.bench_function("tree/fill in order, 1000", |b| {
        b.iter_batched(
            BPlusTree::new,
            |mut tree| {
                tree.try_reserve(1000, || true).expect("the host has memory");
                for start in (0..1000).map(|i| i * STRIDE) {
                    tree.insert(start, mapping(start));
                }
                tree
            },
            BatchSize::SmallInput,
        );
    });
}

fn gap(c: &mut Criterion) {
    let mut group = c.benchmark_group("tree/find gap");
    for count in SIZES {
        let mut tree = grown(count);
        // Only one gap is large enough, and the search reaches it late.
        tree.remove(count / 4 * STRIDE);
        let query = GapQuery {
            pages: STRIDE,
            low: 0,
            high: count * STRIDE,
            align: 1,
            align_offset: 0,
            direction: GapDirection::TopDown,
        };
        group.bench_with_input(BenchmarkId::from_parameter(count), &tree, |b, tree| {
            b.iter(|| tree.find_gap(black_box(&query)));
        });
    }
    group.finish();
}

fn step(c: &mut Criterion) {
    let tree = grown(1_000);
    c.bench_function("tree/step through 1000", |b| {
        b.iter(|| tree.iter().map(|(_, mapping)| mapping.end).fold(0, u64::wrapping_add));
    });
}

criterion_group!(benches, find, change, gap, step);
criterion_main!(benches);
