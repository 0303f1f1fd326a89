//! The cost of an allocation, next to one atomic increment in the same run.
//!
//! - *hot*: allocated from and freed to the per-CPU list, which stays filled.
//! - *cold*: from the buddy lists. Blocks of orders 4 and 18 never pass through per-CPU lists. Of
//!   orders 0 and 9, so many are allocated that refills, drains, splits and merges are part of the
//!   figure, which is per block.

#[path = "../../frame/tests/support/mod.rs"]
mod support;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use pagewright_frame::{BlockList, FrameAllocator, FrameRequest};
use pagewright_types::Order;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use support::{Host, NODE0};

const GIBIBYTE: u32 = 1 << 18;

fn machine() -> FrameAllocator<Host> {
    support::one_node(&Host::new(1), 0, 2 * GIBIBYTE)
}

fn request(raw: u8) -> FrameRequest {
    FrameRequest::new(Order::new(raw), NODE0)
}

fn baseline(c: &mut Criterion) {
    let counter = AtomicU64::new(0);
    c.bench_function("atomic increment", |b| b.iter(|| black_box(&counter).fetch_add(1, Ordering::Relaxed)));
}

fn one_block(c: &mut Criterion) {
    let frames = machine();
    for (name, raw) in
        [("hot/order 0", 0), ("hot/order 9", 9), ("cold/order 4, split and merged from 18", 4), ("cold/order 18", 18)]
    {
        c.bench_function(name, |b| {
            b.iter(|| {
                let block = frames.alloc(request(raw), support::nothing_settled).expect("free memory").settle(|_| {});
                frames.free(black_box(block));
            });
        });
    }
}

fn many_blocks(c: &mut Criterion) {
    for (name, raw, blocks) in
        [("cold/order 0, per block of 8192", 0, 8192u32), ("cold/order 9, per block of 512", 9, 512)]
    {
        let frames = machine();
        let mut group = c.benchmark_group(name);
        group.throughput(Throughput::Elements(u64::from(blocks)));
        group.bench_function("take and free", |b| {
            b.iter_batched(
                || frames.drain(),
                |()| {
                    let mut list = BlockList::new();
                    for _ in 0..blocks {
                        list.push(
                            &frames,
                            frames.alloc(request(raw), support::nothing_settled).expect("free memory").settle(|_| {}),
                        );
                    }
                    while let Some(block) = list.pop(&frames) {
                        frames.free(block);
                    }
                },
                BatchSize::PerIteration,
            );
        });
        group.finish();
    }
}

fn folios(c: &mut Criterion) {
    let frames = machine();
    for (name, raw) in [("folio/order 0, made and put", 0), ("folio/order 9, made and put", 9)] {
        c.bench_function(name, |b| {
            b.iter(|| {
                let block = frames.alloc(request(raw), support::nothing_settled).expect("free memory").settle(|_| {});
                let reference = frames.new_folio(block);
                frames.free(frames.put(black_box(reference)).expect("the last reference"));
            });
        });
    }
    let reference = frames.new_folio(support::take(&frames, 0));
    let folio = frames.folio_of(&reference);
    c.bench_function("folio/order 0, mapped and unmapped with its reference", |b| {
        b.iter(|| {
            let reference = folio.get();
            black_box(folio.map_page(0));
            black_box(folio.unmap_page(0));
            frames.put(reference)
        });
    });
    frames.free(frames.put(reference).expect("the last reference"));
}

criterion_group!(benches, baseline, one_block, many_blocks, folios);
criterion_main!(benches);
