//! A VM's memory in folios of 2 MiB: page by page through the cache, as Linux before 7.0, against
//! ours; and Linux's own `MADV_POPULATE_WRITE` here.
//!
//! Key type: [`Prealloc`]. The pool is filled and emptied again and again, so that frames come back
//! in the states in which an allocator finds them.
//!
//! Not guaranteed: that Linux clears as it would on bare metal; its figure is what a VMM on this
//! computer would see.

use super::super::plot::size;
use super::super::{Context, EvaluateError, Run, Scale, Stats, Table};
use super::bed::{Bed, NODE, POISON};
use memmap2::{Advice, MmapMut};
use pagewright_host::ThreadClock;
use pagewright_tlb::frames::ClearPolicy;
use pagewright_types::Order;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

/// One way to get the memory.
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) cpus: usize,
    /// GB/s.
    pub(super) rate: Stats,
}

/// All ways.
pub(super) struct Prealloc {
    pub(super) bytes: u64,
    pub(super) rows: Vec<Row>,
}

/// The ways of ours.
const WAYS: [(&str, ClearPolicy); 3] = [
    (BY_PAGE, ClearPolicy::CachedByPage),
    ("ours, ordinary stores by chunk", ClearPolicy::Cached),
    (OURS, ClearPolicy::Auto),
];
/// What the series compares with.
pub(super) const BY_PAGE: &str = "cached, page by page";
/// The choice.
pub(super) const OURS: &str = "ours, auto";
/// Linux, asked.
pub(super) const LINUX: &str = "Linux, MADV_POPULATE_WRITE";

/// Measures.
///
/// # Errors
/// [`EvaluateError`].
pub(super) fn measure(context: &Context<'_>, bed: &Bed) -> Result<Prealloc, EvaluateError> {
    let gibibytes = if bed.scale == Scale::Full { 6 } else { 1 };
    let bytes = gibibytes * Order::PUD.bytes();
    context.doing(&format!("preallocating {}", size(bytes)));
    let mut rows = Vec::new();
    let all = bed.cpus();
    for cpus in [1, all].into_iter().take(if all > 1 { 2 } else { 1 }) {
        let mut samples = [const { Vec::new() }; WAYS.len()];
        let mut linux = Vec::new();
        for round in 0..=bed.repetitions() {
            for ((_, policy), samples) in WAYS.iter().zip(&mut samples) {
                bed.set(*policy);
                let rate = fill(bed, bytes, Order::PMD, cpus, round == 0)?;
                if round > 0 {
                    samples.push(rate);
                }
            }
            // The first one waits for the host to back the memory.
            let rate = if cpus == 1 { populate(bytes.min(Order::PUD.bytes())) } else { None };
            linux.extend(rate.filter(|_| round > 0));
        }
        rows.extend(WAYS.iter().zip(samples).map(|((name, _), samples)| Row { name, cpus, rate: Stats::of(samples) }));
        if !linux.is_empty() {
            rows.push(Row { name: LINUX, cpus, rate: Stats::of(linux) });
        }
    }
    // Folios of 1 GiB, for which each chunk is fenced.
    let mut samples = Vec::new();
    bed.set(ClearPolicy::Auto);
    for round in 0..=bed.repetitions() {
        let rate = fill(bed, Order::PUD.bytes(), Order::PUD, 1, round == 0)?;
        if round > 0 {
            samples.push(rate);
        }
    }
    rows.push(Row { name: "ours, auto, a folio of 1 GiB", cpus: 1, rate: Stats::of(samples) });
    Ok(Prealloc { bytes, rows })
}

/// Fills a pool on `cpus` CPUs, and returns GB/s.
///
/// With `check`, the memory is poisoned before and looked at after.
fn fill(bed: &Bed, bytes: u64, order: Order, cpus: usize, check: bool) -> Result<f64, EvaluateError> {
    let failed = |error: pagewright_mm::MmError| EvaluateError::Machine(error.to_string());
    let places = (bytes / order.bytes()) as usize;
    let pool = bed.mm().huge_pool(order, NODE, places).map_err(failed)?;
    if check {
        pool.fill(0..places, || {}).map_err(failed)?;
        each(bed, &pool, places, |pfn| bed.memory().fill(pfn, order, POISON));
        pool.punch(0..places);
    }
    let filling = pool.begin_filling(0..places);
    let took = if cpus == 1 {
        let clock = ThreadClock::start_running();
        filling.help(|| {}).map_err(failed)?;
        clock.elapsed()
    } else {
        // How long each was running, so that a CPU that was taken away does not count.
        let barrier = Barrier::new(cpus);
        let running = thread::scope(|scope| {
            let help = |cpu| {
                let (barrier, filling) = (&barrier, &filling);
                scope.spawn(move || {
                    bed.become_cpu(cpu);
                    barrier.wait();
                    let clock = ThreadClock::start_running();
                    filling.help(|| {}).map(|()| clock.elapsed())
                })
            };
            let threads: Vec<_> = (0..cpus).map(help).collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or(Ok(Duration::ZERO))).sum::<Result<Duration, _>>()
        });
        running.map_err(failed)? / cpus as u32
    };
    let mut whole = pool.filled() == places;
    if check {
        each(bed, &pool, places, |pfn| whole &= bed.memory().holds(pfn, order, 0));
    }
    if !whole {
        return Err(EvaluateError::NotZero { what: format!("a pool of {}", size(bytes)) });
    }
    Ok(bytes as f64 / took.as_nanos().max(1) as f64)
}

/// Calls `visit` with the first frame of each folio of a pool.
fn each(
    bed: &Bed,
    pool: &pagewright_mm::HugePool<'_, pagewright_host::HostMachine>,
    places: usize,
    mut visit: impl FnMut(pagewright_types::Pfn),
) {
    for folio in (0..places).filter_map(|place| pool.folio(place)) {
        visit(folio.pfn());
        if let Some(block) = bed.frames().put(folio) {
            bed.mm().tlb().free(block);
        }
    }
}

/// The same amount from Linux, if it has that call.
fn populate(bytes: u64) -> Option<f64> {
    let map = MmapMut::map_anon(bytes as usize).ok()?;
    let _ = map.advise(Advice::HugePage);
    let clock = ThreadClock::start_running();
    map.advise(Advice::PopulateWrite).ok()?;
    Some(bytes as f64 / clock.elapsed().as_nanos().max(1) as f64)
}

impl Prealloc {
    pub(super) fn of(&self, name: &str, cpus: usize) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == name && row.cpus == cpus)
    }

    pub(super) fn table(&self) -> Table {
        let row = |row: &Row| {
            let baseline = self.of(BY_PAGE, row.cpus).map_or(0.0, |baseline| super::ratio(&row.rate, &baseline.rate));
            vec![row.name.to_owned(), row.cpus.to_string(), row.rate.text(), format!("{baseline:.2}")]
        };
        Table {
            title: format!("A VM's memory, {} in folios of 2 MiB", size(self.bytes)),
            head: ["", "CPUs", "GB/s", "× cached page by page"].map(str::to_owned).to_vec(),
            rows: self.rows.iter().map(row).collect(),
        }
    }

    pub(super) fn runs(&self) -> Vec<Run> {
        let input = |row: &Row| format!("{} bytes, {} CPUs", self.bytes, row.cpus);
        self.rows
            .iter()
            .map(|row| Run::measured(format!("prealloc: {}", row.name), input(row), "gb_per_s", row.rate))
            .collect()
    }
}
