//! What calls and faults cost, as ratios to an atomic increment measured at the same time.
//!
//! The units are those that a program pays for: a fault, a page mapped, unmapped or forked, a
//! lookup. Steps that restore the state between repetitions are not timed. `benches/linux.rs`
//! measures the same on the host's kernel.

mod support;

use pagewright_arch::{Aarch64, Isa, X86_64};
use pagewright_mm::{Advice, MapFlags, MapRequest, Mm, MmSetting, MmSettings, RemapFlags, RemapRequest, Space};
use pagewright_sync::Arc;
use pagewright_types::{Access, Level, NodeId, Order, PAGE_SIZE, PageRange, Rights, VirtAddr};
use std::hint::black_box;
use std::time::{Duration, Instant};
use support::machine::{Host, boot};
use support::table::{Scenario, in_parts, measure, timed};

/// The machine's memory: 512 MiB.
const FRAMES: u32 = 1 << 17;
/// Pages faulted in before all are unmapped: 16 MiB, more than fits in the L2 cache.
const BATCH: u64 = 4096;
/// Pages of the parent that is forked: 64 MiB.
const FORKED: u64 = (64 << 20) / PAGE_SIZE;

/// Mappings of the parent that is forked with little mapped.
const FORKED_MAPPINGS: u64 = 10_000;

/// Pages that move between nodes together: a chunk of `move_pages`.
const MOVED: u64 = 512;

/// A machine with one space, which its CPU runs.
struct Bench<I: Isa> {
    mm: Mm<Host<I>>,
    space: Arc<Space<Host<I>>>,
}

/// What a fork does with page tables.
#[derive(Clone, Copy)]
enum Tables {
    /// It copies them, as Linux does.
    Copied,
    /// It shares them with the child.
    Shared,
}

impl Tables {
    /// The value of `cow_page_tables`.
    fn word(self) -> &'static str {
        match self {
            Self::Copied => "never",
            Self::Shared => "always",
        }
    }

    /// What the name of a row says of it.
    fn name(self) -> &'static str {
        match self {
            Self::Copied => "",
            Self::Shared => ", tables shared",
        }
    }
}

impl<I: Isa> Bench<I> {
    fn new() -> Self {
        Self::with(Tables::Copied)
    }

    fn with(tables: Tables) -> Self {
        let settings = MmSettings::default();
        settings.set(MmSetting::MaxMapCount, 1 << 20).expect("a possible limit");
        let shares = MmSetting::CowPageTables;
        settings.set(shares, shares.parse(tables.word()).expect("one of its words")).expect("a possible value");
        Self::on(boot(FRAMES, 0, settings))
    }

    fn on(mm: Mm<Host<I>>) -> Self {
        let space = mm.new_space().expect("memory");
        mm.tlb().switch_to(space.table().context());
        Self { mm, space }
    }

    /// A machine with a fast and a slow node, and pages on the slow one.
    fn with_slow_pages() -> (Self, Vec<VirtAddr>) {
        let bench = Self::on(boot(FRAMES, 4 * MOVED as u32, MmSettings::default()));
        let list: Vec<_> = pages(bench.map(MOVED, MapFlags::empty()), MOVED).collect();
        list.iter().for_each(|va| bench.touch(*va, Access::Write));
        bench.move_to(&list, 1);
        (bench, list)
    }

    fn move_to(&self, list: &[VirtAddr], node: u8) {
        let wanted: Vec<_> = list.iter().map(|va| (*va, NodeId::new(node))).collect();
        let stayed = self.mm.move_pages(&self.space, &wanted, false, |_, _| {});
        assert_eq!(stayed, Ok(0));
    }

    fn map(&self, pages: u64, flags: MapFlags) -> VirtAddr {
        self.map_at(VirtAddr::ZERO, pages, flags)
    }

    fn map_at(&self, addr: VirtAddr, pages: u64, flags: MapFlags) -> VirtAddr {
        let flags = flags | MapFlags::PRIVATE | MapFlags::ANONYMOUS;
        let request = MapRequest { addr, len: pages * PAGE_SIZE, rights: Rights::RW, flags, file: None };
        self.mm.mmap(&self.space, &request).expect("room")
    }

    fn unmap(&self, start: VirtAddr, pages: u64) {
        self.mm.munmap(&self.space, start, pages * PAGE_SIZE).expect("mapped");
    }

    fn touch(&self, va: VirtAddr, access: Access) {
        self.mm.fault(&self.space, va, access).expect("memory");
    }
}

fn pages(start: VirtAddr, pages: u64) -> impl Iterator<Item = VirtAddr> {
    PageRange::new(start, start.add(pages * PAGE_SIZE)).iter()
}

/// Clears the same pages in the same order as the first stores do, without the memory manager.
fn clearing<I: Isa>(isa: &str) -> Scenario<'static> {
    let bench = Bench::<I>::new();
    let mut list: Vec<_> = (0..BATCH)
        .map(|_| bench.mm.tlb().alloc(bench.mm.tlb().request(Order::ZERO)).expect("memory").into_raw())
        .collect();
    list.rotate_left(1);
    Scenario::new(format!("{isa}: clearing a page"), move |times| {
        in_parts(times, BATCH, |part| {
            timed(|| {
                for &pfn in &list[..part as usize] {
                    pagewright_arch::Effects::zero(bench.mm.tlb().fx(), pfn, Order::ZERO);
                }
            })
        })
    })
}

fn fault<I: Isa>(isa: &str, access: Access, what: &str) -> Scenario<'static> {
    let bench = Bench::<I>::new();
    Scenario::new(format!("{isa}: minor fault, {what}"), move |times| {
        in_parts(times, BATCH, |part| {
            let start = bench.map(BATCH, MapFlags::empty());
            let time = timed(|| pages(start, part).for_each(|va| bench.touch(va, access)));
            bench.unmap(start, BATCH);
            time
        })
    })
}

/// First stores whose pages the machine does not clear: what the memory manager adds.
///
/// The page tables exist before, because their pages must be cleared.
fn store_without_clearing<I: Isa>(isa: &str) -> Scenario<'static> {
    const TABLE: u64 = Level::ENTRIES as u64;
    let bench = Bench::<I>::new();
    let start = VirtAddr::new(1 << 32);
    Scenario::new(format!("{isa}: minor fault, first store, page not cleared"), move |times| {
        in_parts(times, BATCH, |part| {
            bench.map_at(start, BATCH, MapFlags::FIXED);
            pages(start, part).step_by(TABLE as usize).for_each(|va| bench.touch(va, Access::Write));
            let others = (0..part).filter(|index| index % TABLE != 0).map(|index| start.add(index * PAGE_SIZE));
            let mut time = Duration::ZERO;
            let left = bench.mm.tlb().fx().without_clearing(|| {
                time = timed(|| others.for_each(|va| bench.touch(va, Access::Write)));
            });
            assert_eq!(left, part - part.div_ceil(TABLE), "each store takes a page, and no table is missing");
            bench.unmap(start, BATCH);
            time.mul_f64(part as f64 / left.max(1) as f64)
        })
    })
}

fn map<I: Isa>(isa: &str, run: u64) -> Scenario<'static> {
    let bench = Bench::<I>::new();
    Scenario::new(format!("{isa}: map and populate {run}, per page"), move |times| {
        in_parts(times, BATCH, |part| {
            let runs = part.div_ceil(run);
            let mut starts = Vec::with_capacity(runs as usize);
            let time = timed(|| starts.extend((0..runs).map(|_| bench.map(run, MapFlags::POPULATE))));
            starts.into_iter().for_each(|start| bench.unmap(start, run));
            time.mul_f64(part as f64 / (runs * run) as f64)
        })
    })
}

fn unmap<I: Isa>(isa: &str, run: u64) -> Scenario<'static> {
    let bench = Bench::<I>::new();
    Scenario::new(format!("{isa}: unmap {run} populated, per page"), move |times| {
        in_parts(times, BATCH, |part| {
            let runs = part.div_ceil(run);
            // An unmapped page between two runs keeps their mappings apart.
            let base = bench.map(BATCH * 2, MapFlags::empty());
            bench.unmap(base, BATCH * 2);
            let starts: Vec<_> = (0..runs)
                .map(|index| {
                    bench.map_at(base.add(index * (run + 1) * PAGE_SIZE), run, MapFlags::FIXED | MapFlags::POPULATE)
                })
                .collect();
            let time = timed(|| starts.into_iter().for_each(|start| bench.unmap(start, run)));
            time.mul_f64(part as f64 / (runs * run) as f64)
        })
    })
}

/// Takes the right to store from runs of pages, or gives it back.
fn protect<I: Isa>(isa: &str, run: u64, timed_rights: Rights) -> Scenario<'static> {
    let bench = Bench::<I>::new();
    let base = bench.map(BATCH, MapFlags::POPULATE);
    let other = if timed_rights == Rights::RW { Rights::READ } else { Rights::RW };
    let protect = move |bench: &Bench<I>, rights: Rights, runs: u64| {
        for start in (0..runs).map(|index| base.add(index * run * PAGE_SIZE)) {
            bench.mm.mprotect(&bench.space, start, run * PAGE_SIZE, rights).expect("mapped");
        }
    };
    let what = if timed_rights == Rights::RW { "writable again" } else { "read-only" };
    Scenario::new(format!("{isa}: mprotect {run} {what}, per page"), move |times| {
        in_parts(times, BATCH, |part| {
            let runs = part.div_ceil(run);
            protect(&bench, other, runs);
            let time = timed(|| protect(&bench, timed_rights, runs));
            time.mul_f64(part as f64 / (runs * run) as f64)
        })
    })
}

/// Moves runs of pages to and fro, between addresses aligned to the span of a last-level table.
fn remap<I: Isa>(isa: &str, run: u64) -> Scenario<'static> {
    let bench = Bench::<I>::new();
    let places = [1, 2].map(|place| VirtAddr::new(place << 32));
    bench.map_at(places[0], run, MapFlags::FIXED | MapFlags::POPULATE);
    let mut at = 0;
    Scenario::new(format!("{isa}: mremap {run}, per page"), move |times| {
        let moves = times.div_ceil(run);
        let time = timed(|| {
            for _ in 0..moves {
                let (addr, new_addr, len) = (places[at], places[1 - at], run * PAGE_SIZE);
                let flags = RemapFlags::MAYMOVE | RemapFlags::FIXED;
                let request = RemapRequest { addr, old_len: len, new_len: len, flags, new_addr };
                bench.mm.mremap(&bench.space, &request).expect("room");
                at = 1 - at;
            }
        });
        time.mul_f64(times as f64 / (moves * run) as f64)
    })
}

/// Stores by a parent to the pages that it shares with its child; without it, the page is reused.
fn store_after_fork<I: Isa>(isa: &str, tables: Tables, child_lives: bool) -> Scenario<'static> {
    let bench = Bench::<I>::with(tables);
    let start = bench.map(BATCH, MapFlags::POPULATE);
    let what = if child_lives { "copy" } else { "reuse" };
    Scenario::new(format!("{isa}: store after fork, {what}{}", tables.name()), move |times| {
        in_parts(times, BATCH, |part| {
            pages(start, BATCH).for_each(|va| bench.touch(va, Access::Write));
            let child = bench.mm.fork(&bench.space).expect("memory");
            if !child_lives {
                bench.mm.end_space(&child);
            }
            let time = timed(|| pages(start, part).for_each(|va| bench.touch(va, Access::Write)));
            if child_lives {
                bench.mm.end_space(&child);
            }
            time
        })
    })
}

fn fork<I: Isa>(isa: &str, tables: Tables) -> Scenario<'static> {
    let bench = Bench::<I>::with(tables);
    let start = bench.map(FORKED, MapFlags::POPULATE);
    Scenario::new(format!("{isa}: fork of 64 MiB{}, per page", tables.name()), move |times| {
        in_parts(times, FORKED, |part| {
            // Makes the parent's pages exclusive and writable again after the last child has ended.
            pages(start, FORKED).for_each(|va| bench.touch(va, Access::Write));
            let begin = Instant::now();
            let child = bench.mm.fork(&bench.space).expect("memory");
            let time = begin.elapsed();
            bench.mm.end_space(&child);
            time.mul_f64(part as f64 / FORKED as f64)
        })
    })
}

/// Forks a parent with many mappings and no pages; with `skipped`, the child gets one mapping less.
fn fork_of_mappings<I: Isa>(isa: &str, skipped: bool) -> Scenario<'static> {
    let bench = Bench::<I>::new();
    let base = VirtAddr::new(1 << 32);
    for index in 0..FORKED_MAPPINGS {
        bench.map_at(base.add(index * 2 * PAGE_SIZE), 1, MapFlags::FIXED);
    }
    if skipped {
        bench.mm.madvise(&bench.space, base, PAGE_SIZE, Advice::DontFork).expect("mapped");
    }
    assert_eq!(bench.space.map().read().len() as u64, FORKED_MAPPINGS);
    let what = if skipped { ", one of them kept" } else { "" };
    Scenario::new(format!("{isa}: fork of 10 000 mappings{what}, per mapping"), move |times| {
        in_parts(times, FORKED_MAPPINGS, |part| {
            let begin = Instant::now();
            let child = bench.mm.fork(&bench.space).expect("memory");
            let time = begin.elapsed();
            bench.mm.end_space(&child);
            time.mul_f64(part as f64 / FORKED_MAPPINGS as f64)
        })
    })
}

/// Pages that move to the fast node together.
fn moving<I: Isa>(isa: &str) -> Scenario<'static> {
    let (bench, list) = Bench::<I>::with_slow_pages();
    Scenario::new(format!("{isa}: move_pages, per page of 512"), move |times| {
        in_parts(times, MOVED, |part| {
            let time = timed(|| bench.move_to(&list[..part as usize], 0));
            bench.move_to(&list, 1);
            time
        })
    })
}

/// Loads from pages that a scan made inaccessible; they stay where they are, or are promoted.
fn hint_fault<I: Isa>(isa: &str, is_hot: bool) -> Scenario<'static> {
    /// More than any scan period, and than any hot threshold.
    const LATER: u64 = 100_000;
    let (bench, list) = Bench::<I>::with_slow_pages();
    let set = |setting, value| bench.mm.settings().set(setting, value).expect("an accepted value");
    set(MmSetting::NumaScanDelayMs, 0);
    let what = if is_hot { "hint fault, page promoted" } else { "hint fault, page stays" };
    let mut now = 1;
    bench.mm.numa_tick(&bench.space, now);
    Scenario::new(format!("{isa}: {what}"), move |times| {
        in_parts(times, MOVED, |part| {
            let mut tick = |mode| {
                now += LATER;
                bench.mm.settings().set(MmSetting::NumaBalancing, mode).expect("an accepted value");
                bench.mm.numa_tick(&bench.space, now);
                bench.mm.settings().set(MmSetting::NumaBalancing, 2).expect("an accepted value");
            };
            tick(2);
            if !is_hot {
                // Time passes without a scan.
                tick(0);
            }
            let time = timed(|| list[..part as usize].iter().for_each(|va| bench.touch(*va, Access::Read)));
            list[part as usize..].iter().for_each(|va| bench.touch(*va, Access::Read));
            bench.move_to(&list, 1);
            time
        })
    })
}

fn find(count: u64) -> Scenario<'static> {
    /// The distance between the starts of two mappings, in pages.
    const STRIDE: u64 = 16;
    let bench = Bench::<X86_64>::new();
    let base = VirtAddr::new(1 << 32);
    for index in 0..count {
        bench.map_at(base.add(index * STRIDE * PAGE_SIZE), STRIDE - 4, MapFlags::FIXED);
    }
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    Scenario::plain(format!("find a VMA among {count}"), move || {
        // xorshift64 (Marsaglia 2003), so that neither caches nor branch predictors learn the
        // order.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let va = base.add(state % (count * STRIDE) * PAGE_SIZE);
        black_box(bench.space.map().read().find(va).map(|(start, vma)| (start, vma.rights())));
    })
}

fn allocation() -> Scenario<'static> {
    let bench = Bench::<X86_64>::new();
    Scenario::plain("allocate and free a frame, hot", move || {
        let block = bench.mm.tlb().alloc(bench.mm.tlb().request(Order::ZERO)).expect("memory");
        bench.mm.tlb().free(black_box(block));
    })
}

fn scenarios_of<I: Isa>(isa: &str, into: &mut Vec<Scenario<'_>>) {
    into.push(clearing::<I>(isa));
    into.push(fault::<I>(isa, Access::Write, "first store"));
    into.push(store_without_clearing::<I>(isa));
    into.push(fault::<I>(isa, Access::Read, "zero page"));
    into.extend([1, 16, 512].map(|run| map::<I>(isa, run)));
    into.extend([1, 16, 512].map(|run| unmap::<I>(isa, run)));
    into.extend([Rights::READ, Rights::RW].map(|rights| protect::<I>(isa, 512, rights)));
    into.push(remap::<I>(isa, 512));
    for tables in [Tables::Copied, Tables::Shared] {
        into.push(fork::<I>(isa, tables));
        into.extend([true, false].map(|child_lives| store_after_fork::<I>(isa, tables, child_lives)));
    }
    into.extend([false, true].map(|skipped| fork_of_mappings::<I>(isa, skipped)));
    into.push(moving::<I>(isa));
    into.extend([false, true].map(|is_hot| hint_fault::<I>(isa, is_hot)));
}

fn main() {
    let mut scenarios = vec![allocation()];
    scenarios.extend([10, 1_000, 100_000].map(find));
    scenarios_of::<X86_64>(X86_64::KIND.name(), &mut scenarios);
    scenarios_of::<Aarch64>(Aarch64::KIND.name(), &mut scenarios);
    measure(scenarios);
}
