//! Bandwidth by stores, extent and state of the target.
//!
//! Key types: [`Grid`] of [`Cell`]s. A sample clears blocks worth some milliseconds, each as an
//! operation of its own with its own fence; the ways take turns, sample by sample. `auto` is the
//! choice of the memory manager, which is told of the target what its allocator would know.
//!
//! Not guaranteed: that a *cold* target's line is in no cache at all – only that a ring of memory
//! lies between two uses of it.

use super::super::plot::size;
use super::super::{Context, EvaluateError, Over, Plot, Run, Scale, Series, Stats, Table};
use super::bed::{Bed, POISON};
use pagewright_host::ThreadClock;
use pagewright_tlb::frames::{Block, ClearBackend, ClearExtent, ClearPolicy, Residency};
use pagewright_types::{Order, PAGE_SIZE};
use std::sync::Barrier;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

/// State of a target's lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Cold,
    /// Cold, and read as soon as it is cleared; the reading counts.
    ReadBack,
    Clean,
    Dirty,
}

impl State {
    const fn name(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::ReadBack => "cold, cleared and read at once",
            Self::Clean => "clean in cache",
            Self::Dirty => "dirty in cache",
        }
    }
}

/// A way to clear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Only(ClearBackend),
    Auto,
}

impl Way {
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

/// One state, extent and number of CPUs: what each way reached there, in GB/s.
pub(super) struct Cell {
    pub(super) state: State,
    /// Bytes of the extent.
    pub(super) bytes: u64,
    pub(super) cpus: usize,
    /// What the allocator would know of the target.
    pub(super) known: Residency,
    /// The stores that `auto` chose, by the counters.
    pub(super) chosen: ClearBackend,
    pub(super) ways: Vec<(Way, Stats)>,
}

impl Cell {
    pub(super) fn of(&self, way: Way) -> Option<&Stats> {
        self.ways.iter().find(|(other, _)| *other == way).map(|(_, stats)| stats)
    }

    /// The best way but `auto`.
    pub(super) fn best(&self) -> Option<&(Way, Stats)> {
        let backends = self.ways.iter().filter(|(way, _)| *way != Way::Auto);
        backends.max_by(|a, b| a.1.median.total_cmp(&b.1.median))
    }
}

/// All cells.
pub(super) struct Grid {
    pub(super) cells: Vec<Cell>,
    checked_bytes: u64,
}

/// Bytes in the ring that is walked for cold targets.
const RING: u64 = 1 << 30;

/// Measures all cells.
///
/// # Errors
/// [`EvaluateError`].
pub(super) fn measure(context: &Context<'_>, bed: &Bed) -> Result<Grid, EvaluateError> {
    let mut grid = Grid { cells: Vec::new(), checked_bytes: 0 };
    let ways: Vec<Way> = bed.backends().map(Way::Only).chain([Way::Auto]).collect();
    for raw in [0u8, 2, 4, 6, 9, 13, 16, 18] {
        let order = Order::new(raw);
        let blocks = RING / order.bytes();
        context.doing(&format!("checking and clearing {}", size(order.bytes())));
        let mut ring = (0..blocks).map(|_| bed.take(order)).collect::<Result<Vec<_>, _>>()?;
        for way in &ways {
            let block = ring.pop().expect("a ring has blocks");
            ring.push(check(bed, *way, block)?);
            grid.checked_bytes += order.bytes();
        }
        grid.cells.push(cold(bed, &ways, &mut ring, State::Cold, 1));
        if raw <= 9 {
            grid.cells.push(cold(bed, &ways, &mut ring, State::ReadBack, 1));
        }
        if bed.cpus() > 1 && blocks >= 2 * bed.cpus() as u64 {
            grid.cells.push(cold(bed, &ways, &mut ring, State::Cold, bed.cpus()));
        }
        if order.bytes() <= bed.cached_up_to() {
            grid.cells.push(cached(bed, &ways, &mut ring, State::Clean));
            grid.cells.push(cached(bed, &ways, &mut ring, State::Dirty));
        }
        ring.into_iter().for_each(|block| bed.mm().tlb().free(block));
    }
    if bed.scale == Scale::Full {
        context.doing("clearing 4 GiB");
        let mut four = (0..4).map(|_| bed.take(Order::PUD)).collect::<Result<Vec<_>, _>>()?;
        grid.cells.push(whole(bed, &ways, &mut four));
        four.into_iter().for_each(|block| bed.mm().tlb().free(block));
    }
    bed.set(ClearPolicy::Auto);
    Ok(grid)
}

/// Clears a poisoned block one way and looks at every byte.
fn check(bed: &Bed, way: Way, block: Block) -> Result<Block, EvaluateError> {
    let (pfn, order) = (block.pfn(), block.order());
    bed.memory().fill(pfn, order, POISON);
    bed.set(way.policy());
    let block = clear(bed, block, ClearExtent::of_order(order), Residency::Unknown);
    if !bed.memory().holds(pfn, order, 0) {
        return Err(EvaluateError::NotZero { what: format!("{} over {}", way.name(), size(order.bytes())) });
    }
    Ok(block)
}

/// Clears a block as an operation over `whole`.
fn clear(bed: &Bed, block: Block, whole: ClearExtent, known: Residency) -> Block {
    let cpu = bed.frames().pin_cpu();
    cpu.clear(block.with_residency(known), whole).fence().into_block()
}

fn poison(bed: &Bed, blocks: &[Block]) {
    blocks.iter().for_each(|block| bed.memory().fill(block.pfn(), block.order(), POISON));
}

/// How blocks are cleared, and with what clock.
#[derive(Clone, Copy)]
struct Sampling {
    known: Residency,
    read: bool,
    clock: fn() -> ThreadClock,
}

/// Clears `blocks`, each for itself, and returns GB/s.
fn sample(bed: &Bed, blocks: &mut Vec<Block>, how: Sampling) -> f64 {
    let bytes: u64 = blocks.iter().map(|block| block.order().bytes()).sum();
    let mut done = Vec::with_capacity(blocks.len());
    let clock = (how.clock)();
    for block in blocks.drain(..) {
        let whole = ClearExtent::of_order(block.order());
        let block = clear(bed, block, whole, how.known);
        if how.read {
            read(bed, &block);
        }
        done.push(block);
    }
    let took = clock.elapsed();
    *blocks = done;
    rate(bytes, took)
}

/// Loads every word of a block.
fn read(bed: &Bed, block: &Block) {
    let words = bed.memory().block(block.pfn(), block.order()).iter();
    std::hint::black_box(words.map(|word| word.load(Ordering::Relaxed)).fold(0, |sum, word| sum ^ word));
}

fn rate(bytes: u64, took: Duration) -> f64 {
    bytes as f64 / took.as_nanos().max(1) as f64
}

/// Pages that each sort of stores has cleared until now.
fn paths(bed: &Bed) -> Vec<(ClearBackend, u64)> {
    ClearBackend::ALL.iter().map(|backend| (*backend, bed.mm().counter(backend.counter()))).collect()
}

/// By which stores most was cleared since.
fn path_since(bed: &Bed, before: &[(ClearBackend, u64)]) -> ClearBackend {
    let since = paths(bed).into_iter().zip(before).map(|((backend, now), (_, before))| (now - before, backend));
    since.max_by_key(|(pages, _)| *pages).map_or(ClearBackend::Machine, |(_, backend)| backend)
}

/// Collects samples of each way in turns: `prepare`, then `sample`, which alone is measured.
///
/// The order is another in each round, because a way finds the cache as the one before left it.
fn in_turns<T>(
    bed: &Bed,
    ways: &[Way],
    repetitions: usize,
    state: &mut T,
    mut prepare: impl FnMut(&mut T),
    mut sample: impl FnMut(&mut T) -> f64,
) -> (Vec<(Way, Stats)>, ClearBackend) {
    let mut samples = vec![Vec::new(); ways.len()];
    let mut chosen = ClearBackend::Machine;
    // The first round warms up and counts for nothing.
    for round in 0..=repetitions {
        for at in shuffled(ways.len(), round) {
            prepare(state);
            bed.set(ways[at].policy());
            let before = paths(bed);
            let rate = sample(state);
            if ways[at] == Way::Auto {
                chosen = path_since(bed, &before);
            }
            if round > 0 {
                samples[at].push(rate);
            }
        }
    }
    (ways.iter().copied().zip(samples.into_iter().map(Stats::of)).collect(), chosen)
}

/// 0 to `len` in an order that only `round` decides.
fn shuffled(len: usize, round: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..len).collect();
    let mut random = round as u64;
    for last in (1..len).rev() {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        order.swap(last, (random >> 33) as usize % (last + 1));
    }
    order
}

/// Bytes of one sample of cold targets: 32 MiB, or the extent if that is more.
fn per_sample(order: Order) -> usize {
    ((32 << 20) / order.bytes()).max(1) as usize
}

/// What a round of cold samples goes through.
struct Walk {
    shares: Vec<Vec<Block>>,
    /// The first block of each share that the next sample takes.
    at: usize,
}

/// Cold targets: each sample takes the next part of the ring, which is poisoned anew after each
/// round.
fn cold(bed: &Bed, ways: &[Way], ring: &mut Vec<Block>, state: State, cpus: usize) -> Cell {
    let order = ring[0].order();
    let share = ring.len() / cpus;
    let each = per_sample(order).min(share);
    let mut walk = Walk { shares: (0..cpus).map(|_| ring.drain(..share).collect()).collect(), at: share };
    let how = Sampling { known: Residency::Cold, read: state == State::ReadBack, clock: ThreadClock::start_running };
    let prepare = |walk: &mut Walk| {
        walk.at += each;
        if walk.at + each > share {
            walk.shares.iter().for_each(|share| poison(bed, share));
            walk.at = 0;
        }
    };
    let (ways, chosen) = in_turns(bed, ways, bed.repetitions(), &mut walk, prepare, |walk| {
        let range = walk.at..walk.at + each;
        together(bed, &mut walk.shares, |mine| {
            let mut part: Vec<Block> = mine.drain(range.clone()).collect();
            let rate = sample(bed, &mut part, how);
            mine.splice(range.start..range.start, part);
            rate
        })
    });
    ring.extend(walk.shares.into_iter().flatten());
    Cell { state, bytes: order.bytes(), cpus, known: Residency::Cold, chosen, ways }
}

/// Runs `work` on a CPU for each of `shares` at the same time and adds up what they say.
fn together(bed: &Bed, shares: &mut [Vec<Block>], work: impl Fn(&mut Vec<Block>) -> f64 + Sync) -> f64 {
    if let [only] = shares {
        return work(only);
    }
    let barrier = Barrier::new(shares.len());
    thread::scope(|scope| {
        let run = |(cpu, share)| {
            let (barrier, work) = (&barrier, &work);
            scope.spawn(move || {
                bed.become_cpu(cpu);
                barrier.wait();
                work(share)
            })
        };
        let threads: Vec<_> = shares.iter_mut().enumerate().map(run).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or(0.0)).sum()
    })
}

/// Targets in the cache: the same blocks over and over, 256 KiB or the extent if that is more.
fn cached(bed: &Bed, ways: &[Way], ring: &mut Vec<Block>, state: State) -> Cell {
    let order = ring[0].order();
    let set = ((256 << 10) / order.bytes()).max(1) as usize;
    let mut blocks: Vec<Block> = ring.drain(..set).collect();
    // What the allocator's lists would say of a block just freed here: they keep orders 0 to 3, and
    // 9.
    let known = if order.raw() <= 3 || order == Order::PMD { Residency::Hot } else { Residency::Unknown };
    let streaming = bed.streaming().or(bed.frames().clear_selector().caps().candidates().next());
    // Short spans are read off the clock that costs least.
    let clock = if order.bytes() * set as u64 > 1 << 20 { ThreadClock::start_running } else { ThreadClock::start };
    let how = Sampling { known, read: false, clock };
    let prepare = |blocks: &mut Vec<Block>| {
        // Twice, because the first time brings the lines from wherever the way before left them.
        poison(bed, blocks);
        poison(bed, blocks);
        if let (State::Clean, Some(streaming)) = (state, streaming) {
            // Out of the cache with the new contents, and back by loads.
            bed.set(ClearPolicy::Only(streaming));
            sample(bed, blocks, how);
            blocks.iter().for_each(|block| read(bed, block));
        }
    };
    let (ways, chosen) =
        in_turns(bed, ways, 4 * bed.repetitions(), &mut blocks, prepare, |blocks| sample(bed, blocks, how));
    let bytes = order.bytes();
    ring.extend(blocks);
    Cell { state, bytes, cpus: 1, known, chosen, ways }
}

/// Four folios of 1 GiB in one batch with one fence.
fn whole(bed: &Bed, ways: &[Way], four: &mut Vec<Block>) -> Cell {
    let bytes = four.len() as u64 * Order::PUD.bytes();
    let (ways, chosen) = in_turns(
        bed,
        ways,
        3,
        four,
        |_| {},
        |four| {
            let clock = ThreadClock::start_running();
            let cpu = bed.frames().pin_cpu();
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
    Cell { state: State::Cold, bytes, cpus: 1, known: Residency::Cold, chosen, ways }
}

impl Grid {
    /// Bytes that were poisoned, cleared and looked at.
    pub(super) fn checked_bytes(&self) -> u64 {
        self.checked_bytes
    }

    /// The cell of cold memory on one CPU at an extent.
    pub(super) fn cold(&self, bytes: u64) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.state == State::Cold && cell.cpus == 1 && cell.bytes == bytes)
    }

    /// Whether MOVNTI has less than half of the best bandwidth on cold memory of 64 KiB.
    pub(super) fn movnti_is_slow(&self) -> bool {
        let Some(cell) = self.cold(64 << 10) else { return false };
        let best = cell.best().map(|(_, stats)| stats);
        cell.of(Way::Only(ClearBackend::Movnti))
            .zip(best)
            .is_some_and(|(movnti, best)| super::ratio(movnti, best) < 0.5)
    }

    /// Each state and number of CPUs once, with its cells.
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

    pub(super) fn tables(&self) -> Vec<Table> {
        let table = |(name, cells): (String, Vec<&Cell>)| {
            let mut head = vec!["extent".to_owned()];
            head.extend(cells[0].ways.iter().map(|(way, _)| way.name().to_owned()));
            head.extend(["allocator knows", "auto chose", "auto/best"].map(str::to_owned));
            let rows = cells.iter().map(|cell| row(cell)).collect();
            Table { title: format!("GB/s, {name}"), head, rows }
        };
        self.groups().into_iter().map(table).collect()
    }

    pub(super) fn plots(&self) -> Vec<Plot> {
        let plot = |(name, cells): (String, Vec<&Cell>)| {
            let series = cells[0].ways.iter().map(|(way, _)| Series {
                name: way.name().to_owned(),
                points: cells.iter().filter_map(|cell| Some((cell.bytes, *cell.of(*way)?))).collect(),
            });
            Plot { title: format!("Clearing, {name}"), unit: "GB/s", over: Over::Bytes, series: series.collect() }
        };
        self.groups().into_iter().map(plot).collect()
    }

    pub(super) fn runs(&self) -> Vec<Run> {
        let runs = self.cells.iter().flat_map(|cell| {
            cell.ways.iter().map(move |(way, stats)| {
                let input = format!("{}, {} CPUs, {} bytes an extent", cell.state.name(), cell.cpus, cell.bytes);
                Run::measured(way.name().to_owned(), input, "gb_per_s", *stats)
            })
        });
        runs.collect()
    }
}

fn row(cell: &Cell) -> Vec<String> {
    let mut row = vec![size(cell.bytes)];
    row.extend(cell.ways.iter().map(|(_, stats)| stats.text()));
    row.push(format!("{:?}", cell.known).to_lowercase());
    row.push(cell.chosen.name().to_owned());
    let share = cell.of(Way::Auto).zip(cell.best()).map_or(0.0, |(auto, (_, best))| super::ratio(auto, best));
    row.push(format!("{share:.2}"));
    row
}
