//! Measures clearing bandwidth by stores, extent and state of the target.
//!
//! Key types: [`ClearCells`] of [`Cell`]s. A sample clears blocks for some milliseconds, each block
//! as an operation of its own with its own fence; the methods take turns, sample by sample. `auto`
//! is the memory manager's choice, given what its allocator would know about the target.
//!
//! Not guaranteed: that a *cold* target is in no cache at all. Between two uses of a line, the rest
//! of a 1 GiB ring is cleared.

use super::super::plot::size;
use super::super::{Context, EvaluateError, Figures, Grid, Plot, PlotAxis, PlotScale, Run, Scale, Stats};
use super::bench::{Bench, POISON};
use pagewright_host::ThreadClock;
use pagewright_tlb::frames::{Block, ClearBackend, ClearExtent, ClearPolicy, Residency};
use pagewright_types::{Order, PAGE_SIZE};
use std::sync::Barrier;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

/// State of a target's cache lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TargetState {
    Cold,
    /// Cold, and read at once after the clear; the time to read is included.
    ReadBack,
    Clean,
    Dirty,
}

impl TargetState {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::ReadBack => "cold, cleared and read at once",
            Self::Clean => "clean in cache",
            Self::Dirty => "dirty in cache",
        }
    }
}

/// A method of clearing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    /// Always by these stores.
    Only(ClearBackend),
    /// By the stores that the memory manager chooses.
    Auto,
}

impl Method {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Only(backend) => backend.name(),
            Self::Auto => "auto",
        }
    }

    const fn policy(self) -> ClearPolicy {
        match self {
            Self::Only(backend) => ClearPolicy::Only(backend),
            Self::Auto => ClearPolicy::Auto,
        }
    }
}

/// The bandwidth of each method for one state, extent and number of CPUs.
pub(super) struct Cell {
    pub(super) state: TargetState,
    /// Size of the extent in bytes.
    pub(super) bytes: u64,
    pub(super) cpus: usize,
    /// What the allocator would know about the target.
    pub(super) known: Residency,
    /// The stores that `auto` used, by the counters.
    pub(super) chosen: ClearBackend,
    /// Bandwidth of each method.
    pub(super) methods: Vec<MethodRate>,
}

/// The bandwidth of one method in a cell, in GB/s.
pub(super) struct MethodRate {
    pub(super) method: Method,
    pub(super) stats: Stats,
    /// The samples by round; in a round all methods take a turn.
    samples: Vec<f64>,
}

impl MethodRate {
    pub(super) fn new(method: Method, samples: Vec<f64>) -> Self {
        Self { method, stats: Stats::of(samples.clone()), samples }
    }
}

impl Cell {
    pub(super) fn of(&self, method: Method) -> Option<&Stats> {
        self.rate(method).map(|rate| &rate.stats)
    }

    fn rate(&self, method: Method) -> Option<&MethodRate> {
        self.methods.iter().find(|rate| rate.method == method)
    }

    /// Bandwidth of one method divided by that of another, round by round.
    pub(super) fn ratio(&self, of: Method, to: Method) -> Option<Stats> {
        Some(Stats::of_ratios(&self.rate(of)?.samples, &self.rate(to)?.samples))
    }

    /// The fastest method, `auto` excluded.
    pub(super) fn best(&self) -> Option<&MethodRate> {
        let backends = self.methods.iter().filter(|rate| rate.method != Method::Auto);
        backends.max_by(|a, b| a.stats.median.total_cmp(&b.stats.median))
    }

    /// Bandwidth of `auto` divided by that of the fastest method.
    pub(super) fn auto_over_best(&self) -> Option<Stats> {
        self.ratio(Method::Auto, self.best()?.method)
    }
}

/// All cells.
pub(super) struct ClearCells {
    pub(super) cells: Vec<Cell>,
    pub(super) checked_bytes: u64,
}

/// Size in bytes of the ring of blocks that cold targets come from.
const RING: u64 = 1 << 30;

/// Measures all cells.
pub(super) fn measure(context: &Context<'_>, bench: &Bench) -> Result<ClearCells, EvaluateError> {
    let mut grid = ClearCells { cells: Vec::new(), checked_bytes: 0 };
    let methods: Vec<Method> = bench.backends().map(Method::Only).chain([Method::Auto]).collect();
    for raw in [0, 2, 4, 6, 9, 13, 15, 16, 18] {
        let order = Order::new(raw);
        let blocks = RING / order.bytes();
        context.show_step(&format!("checking and clearing {}", size(order.bytes())));
        let mut ring = (0..blocks).map(|_| bench.alloc(order)).collect::<Result<Vec<_>, _>>()?;
        for method in &methods {
            let block = ring.pop().expect("a ring has blocks");
            ring.push(check(bench, *method, block)?);
            grid.checked_bytes += order.bytes();
        }
        grid.cells.push(cold(bench, &methods, &mut ring, TargetState::Cold, 1));
        if raw <= 9 {
            grid.cells.push(cold(bench, &methods, &mut ring, TargetState::ReadBack, 1));
        }
        if bench.cpus() > 1 && blocks >= 2 * bench.cpus() as u64 {
            grid.cells.push(cold(bench, &methods, &mut ring, TargetState::Cold, bench.cpus()));
        }
        if order.bytes() <= bench.cached_up_to() {
            grid.cells.push(cached(bench, &methods, &mut ring, TargetState::Clean));
            grid.cells.push(cached(bench, &methods, &mut ring, TargetState::Dirty));
        }
        ring.into_iter().for_each(|block| bench.mm().tlb().free(block));
    }
    if bench.scale == Scale::Full {
        context.show_step("clearing 4 GiB");
        let mut four = (0..4).map(|_| bench.alloc(Order::PUD)).collect::<Result<Vec<_>, _>>()?;
        grid.cells.push(one_batch(bench, &methods, &mut four));
        four.into_iter().for_each(|block| bench.mm().tlb().free(block));
    }
    bench.set_policy(ClearPolicy::Auto);
    Ok(grid)
}

/// Clears a poisoned block by one method and checks every byte.
fn check(bench: &Bench, method: Method, block: Block) -> Result<Block, EvaluateError> {
    let (pfn, order) = (block.pfn(), block.order());
    bench.memory().fill(pfn, order, POISON);
    bench.set_policy(method.policy());
    let block = clear(bench, block, ClearExtent::of_order(order), Residency::Unknown);
    if !bench.memory().holds(pfn, order, 0) {
        return Err(EvaluateError::NotZero { what: format!("{} over {}", method.name(), size(order.bytes())) });
    }
    Ok(block)
}

/// Clears a block as part of an operation over `whole`.
fn clear(bench: &Bench, block: Block, whole: ClearExtent, known: Residency) -> Block {
    let cpu = bench.frames().pin_cpu();
    cpu.clear(block.with_residency(known), whole).fence().into_block()
}

fn poison(bench: &Bench, blocks: &[Block]) {
    blocks.iter().for_each(|block| bench.memory().fill(block.pfn(), block.order(), POISON));
}

/// How a sample is taken.
#[derive(Clone, Copy)]
struct Sampling {
    /// What the allocator would know about the blocks.
    known: Residency,
    /// Whether each block is read after it is cleared.
    read: bool,
    clock: fn() -> ThreadClock,
}

/// Clears `blocks`, each as an operation of its own, and returns GB/s.
fn sample(bench: &Bench, blocks: &mut Vec<Block>, sampling: Sampling) -> f64 {
    let bytes: u64 = blocks.iter().map(|block| block.order().bytes()).sum();
    let mut done = Vec::with_capacity(blocks.len());
    let clock = (sampling.clock)();
    for block in blocks.drain(..) {
        let whole = ClearExtent::of_order(block.order());
        let block = clear(bench, block, whole, sampling.known);
        if sampling.read {
            read(bench, &block);
        }
        done.push(block);
    }
    let took = clock.elapsed();
    *blocks = done;
    rate(bytes, took)
}

/// Loads every word of a block.
fn read(bench: &Bench, block: &Block) {
    let words = bench.memory().block(block.pfn(), block.order()).iter();
    std::hint::black_box(words.map(|word| word.load(Ordering::Relaxed)).fold(0, |sum, word| sum ^ word));
}

fn rate(bytes: u64, took: Duration) -> f64 {
    bytes as f64 / took.as_nanos().max(1) as f64
}

/// Pages that each backend has cleared so far.
fn pages_cleared(bench: &Bench) -> Vec<(ClearBackend, u64)> {
    ClearBackend::ALL.iter().map(|backend| (*backend, bench.mm().counter(backend.counter()))).collect()
}

/// The backend that has cleared most pages since `before` was read.
fn main_backend_since(bench: &Bench, before: &[(ClearBackend, u64)]) -> ClearBackend {
    let now = pages_cleared(bench).into_iter().zip(before);
    let since = now.map(|((backend, now), (_, before))| (now - before, backend));
    since.max_by_key(|(pages, _)| *pages).map_or(ClearBackend::Machine, |(_, backend)| backend)
}

/// Takes samples of all methods in turns.
///
/// For each sample it calls `prepare`, which is not timed, then `sample`, which returns GB/s. The
/// order changes from round to round, because each method finds the cache as the previous one left
/// it. Returns the samples and the backend that `auto` used last.
fn interleave<T>(
    bench: &Bench,
    methods: &[Method],
    repetitions: usize,
    state: &mut T,
    mut prepare: impl FnMut(&mut T),
    mut sample: impl FnMut(&mut T) -> f64,
) -> (Vec<MethodRate>, ClearBackend) {
    let mut samples = vec![Vec::new(); methods.len()];
    let mut chosen = ClearBackend::Machine;
    // The first round warms up and is not counted.
    for round in 0..=repetitions {
        for at in shuffled(methods.len(), round) {
            prepare(state);
            bench.set_policy(methods[at].policy());
            let before = pages_cleared(bench);
            let rate = sample(state);
            if methods[at] == Method::Auto {
                chosen = main_backend_since(bench, &before);
            }
            if round > 0 {
                samples[at].push(rate);
            }
        }
    }
    let rates = methods.iter().zip(samples).map(|(method, samples)| MethodRate::new(*method, samples));
    (rates.collect(), chosen)
}

/// The numbers below `len`, in an order that depends on `round` only.
pub(super) fn shuffled(len: usize, round: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..len).collect();
    let mut random = round as u64;
    for last in (1..len).rev() {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        order.swap(last, (random >> 33) as usize % (last + 1));
    }
    order
}

/// Blocks in one sample of cold targets: 32 MiB of them, and at least one.
fn blocks_per_sample(order: Order) -> usize {
    ((32 << 20) / order.bytes()).max(1) as usize
}

/// The ring of cold targets, a share for each CPU.
struct Ring {
    shares: Vec<Vec<Block>>,
    /// Index of the first block that the next sample clears, in every share.
    at: usize,
}

/// Measures cold targets.
///
/// Each sample clears the next part of the ring. The ring is poisoned again at the end of each
/// pass.
fn cold(bench: &Bench, methods: &[Method], blocks: &mut Vec<Block>, state: TargetState, cpus: usize) -> Cell {
    let order = blocks[0].order();
    let share = blocks.len() / cpus;
    let each = blocks_per_sample(order).min(share);
    let mut ring = Ring { shares: (0..cpus).map(|_| blocks.drain(..share).collect()).collect(), at: share };
    let sampling =
        Sampling { known: Residency::Cold, read: state == TargetState::ReadBack, clock: ThreadClock::start_cpu_time };
    let prepare = |ring: &mut Ring| {
        ring.at += each;
        if ring.at + each > share {
            ring.shares.iter().for_each(|share| poison(bench, share));
            ring.at = 0;
        }
    };
    let (methods, chosen) = interleave(bench, methods, bench.repetitions(), &mut ring, prepare, |ring| {
        let range = ring.at..ring.at + each;
        in_parallel(bench, &mut ring.shares, |share| {
            let mut part: Vec<Block> = share.drain(range.clone()).collect();
            let rate = sample(bench, &mut part, sampling);
            share.splice(range.start..range.start, part);
            rate
        })
    });
    blocks.extend(ring.shares.into_iter().flatten());
    Cell { state, bytes: order.bytes(), cpus, known: Residency::Cold, chosen, methods }
}

/// Runs `work` on a CPU for each share, in parallel, and adds up the results.
fn in_parallel(bench: &Bench, shares: &mut [Vec<Block>], work: impl Fn(&mut Vec<Block>) -> f64 + Sync) -> f64 {
    if let [only] = shares {
        return work(only);
    }
    let barrier = Barrier::new(shares.len());
    thread::scope(|scope| {
        let run = |(cpu, share)| {
            let (barrier, work) = (&barrier, &work);
            scope.spawn(move || {
                bench.become_cpu(cpu);
                barrier.wait();
                work(share)
            })
        };
        let threads: Vec<_> = shares.iter_mut().enumerate().map(run).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or(0.0)).sum()
    })
}

/// Measures targets in the cache: the same 256 KiB of blocks, and at least one block.
fn cached(bench: &Bench, methods: &[Method], ring: &mut Vec<Block>, state: TargetState) -> Cell {
    let order = ring[0].order();
    let set = ((256 << 10) / order.bytes()).max(1) as usize;
    let mut blocks: Vec<Block> = ring.drain(..set).collect();
    // The allocator knows that a block is hot if it was just freed to a per-CPU list. These lists
    // hold orders 0 to 3, and 9.
    let known = if order.raw() <= 3 || order == Order::PMD { Residency::Hot } else { Residency::Unknown };
    let streaming = bench.streaming().or(bench.frames().clear_selector().caps().candidates().next());
    // Short times are measured by the clock with the least overhead.
    let clock = if order.bytes() * set as u64 > 1 << 20 { ThreadClock::start_cpu_time } else { ThreadClock::start };
    let sampling = Sampling { known, read: false, clock };
    let prepare = |blocks: &mut Vec<Block>| {
        // The first pass fetches the lines from where the previous method left them. The second
        // one leaves them in the nearest cache.
        poison(bench, blocks);
        poison(bench, blocks);
        if let (TargetState::Clean, Some(streaming)) = (state, streaming) {
            // Non-temporal stores evict the dirty lines. The loads bring them back clean.
            bench.set_policy(ClearPolicy::Only(streaming));
            sample(bench, blocks, sampling);
            blocks.iter().for_each(|block| read(bench, block));
        }
    };
    let (methods, chosen) = interleave(bench, methods, 4 * bench.repetitions(), &mut blocks, prepare, |blocks| {
        sample(bench, blocks, sampling)
    });
    let bytes = order.bytes();
    ring.extend(blocks);
    Cell { state, bytes, cpus: 1, known, chosen, methods }
}

/// Measures four folios of 1 GiB in one batch with one fence.
fn one_batch(bench: &Bench, methods: &[Method], four: &mut Vec<Block>) -> Cell {
    let bytes = four.len() as u64 * Order::PUD.bytes();
    let (methods, chosen) = interleave(
        bench,
        methods,
        3,
        four,
        |_| {},
        |four| {
            let clock = ThreadClock::start_cpu_time();
            let cpu = bench.frames().pin_cpu();
            let mut batch = cpu.batch();
            for block in four.drain(..) {
                batch.add(cpu.clear(block.with_residency(Residency::Cold), ClearExtent::of_frames(bytes / PAGE_SIZE)));
            }
            let mut zeroed = batch.fence();
            let took = clock.elapsed();
            four.extend(std::iter::from_fn(|| zeroed.pop()).map(pagewright_tlb::frames::ZeroedBlock::into_block));
            rate(bytes, took)
        },
    );
    Cell { state: TargetState::Cold, bytes, cpus: 1, known: Residency::Cold, chosen, methods }
}

impl ClearCells {
    /// Bytes that were poisoned, cleared and checked.
    pub(super) fn checked_bytes(&self) -> u64 {
        self.checked_bytes
    }

    /// The cell of cold memory on one CPU with this extent.
    pub(super) fn cold(&self, bytes: u64) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.state == TargetState::Cold && cell.cpus == 1 && cell.bytes == bytes)
    }

    /// Whether MOVNTI reaches less than half of the best bandwidth on cold extents of 64 KiB.
    pub(super) fn movnti_is_slow(&self) -> bool {
        let Some(cell) = self.cold(64 << 10) else { return false };
        let ratio = |best: &MethodRate| cell.ratio(Method::Only(ClearBackend::Movnti), best.method);
        cell.best().and_then(ratio).is_some_and(|ratio| ratio.median < 0.5)
    }

    /// The cells grouped by state and number of CPUs, each group with its name.
    fn groups(&self) -> Vec<(String, Vec<&Cell>)> {
        let mut groups: Vec<(String, Vec<&Cell>)> = Vec::new();
        for cell in &self.cells {
            let cpus = if cell.cpus == 1 { "one CPU".to_owned() } else { format!("all {} CPUs", cell.cpus) };
            let name = format!("{}, {cpus}", cell.state.name());
            match groups.iter_mut().find(|(other, _)| *other == name) {
                Some((_, cells)) => cells.push(cell),
                None => groups.push((name, vec![cell])),
            }
        }
        groups
    }

    pub(super) fn figures(&self) -> Figures {
        let table = |(name, cells): (String, Vec<&Cell>)| {
            let methods = cells[0].methods.iter().map(|rate| rate.method.name()).collect::<Vec<_>>();
            let extents = Grid::of(format!("GB/s, {name}"), cells).text("extent", |cell| size(cell.bytes));
            let rates = methods.into_iter().enumerate();
            rates
                .fold(extents, |grid, (at, name)| grid.text(name, |cell| cell.methods[at].stats))
                .text("allocator knows", |cell| format!("{:?}", cell.known).to_lowercase())
                .text("auto chose", |cell| cell.chosen.name())
                .text("auto/best", |cell| cell.auto_over_best())
                .table()
        };
        let plot = |(name, cells): &(String, Vec<&Cell>)| {
            let points = cells.iter().flat_map(|cell| {
                cell.methods.iter().map(|MethodRate { method, stats, .. }| (method.name(), cell.bytes, *stats))
            });
            Plot::of(format!("Clearing, {name}"), "GB/s", PlotScale::Linear, PlotAxis::Bytes, points)
        };
        let runs = self.cells.iter().flat_map(|cell| {
            cell.methods.iter().map(move |MethodRate { method, stats, .. }| {
                let input = format!("{}, {} CPUs, extents of {} bytes", cell.state.name(), cell.cpus, cell.bytes);
                Run::measured(method.name().to_owned(), input, "gb_per_s", *stats)
            })
        });
        let groups = self.groups();
        let plots = groups.iter().map(plot).collect();
        Figures { runs: runs.collect(), plots, tables: groups.into_iter().map(table).collect() }
    }
}
