//! Measures preallocating a VM's memory in folios of 2 MiB.
//!
//! Key type: [`Prealloc`]. It compares clearing page by page through the cache, as Linux before 7.0
//! does, with the auto policy and with Linux's `MADV_POPULATE_WRITE` on this computer. The pool is
//! filled and emptied again and again, so that its frames are in the states that an allocator
//! meets.
//!
//! Not guaranteed: that Linux's figure is that of bare metal. It is what a VMM on this computer
//! gets.

use super::super::parent::failed;
use super::super::plot::size;
use super::super::{Context, EvaluateError, Figures, Grid, Scale, Stats};
use super::bench::{Bench, NODE, POISON};
use memmap2::{Advice, MmapMut};
use pagewright_host::ThreadClock;
use pagewright_tlb::frames::ClearPolicy;
use pagewright_types::Order;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

/// The bandwidth of one method.
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) cpus: usize,
    /// GB/s.
    pub(super) rate: Stats,
    /// The samples by round; in a round all methods take a turn.
    samples: Vec<f64>,
}

impl Row {
    pub(super) fn new(name: &'static str, cpus: usize, samples: Vec<f64>) -> Self {
        Self { name, cpus, rate: Stats::of(samples.clone()), samples }
    }
}

/// The results of all methods.
pub(super) struct Prealloc {
    /// Size of the VM's memory.
    pub(super) bytes: u64,
    pub(super) rows: Vec<Row>,
}

/// The methods that fill a pool of ours.
const METHODS: [(&str, ClearPolicy); 3] = [
    (BY_PAGE, ClearPolicy::CachedByPage),
    ("ours, cached stores by chunk", ClearPolicy::Cached),
    (OURS, ClearPolicy::Auto),
];
/// The baseline of the series.
pub(super) const BY_PAGE: &str = "cached, page by page";
/// The memory manager's choice.
pub(super) const OURS: &str = "ours, auto";
/// Linux's own preallocation.
pub(super) const LINUX: &str = "Linux, MADV_POPULATE_WRITE";

/// Measures all methods, on one CPU and on all CPUs.
pub(super) fn measure(context: &Context<'_>, bench: &Bench) -> Result<Prealloc, EvaluateError> {
    let gibibytes = if bench.scale == Scale::Full { 6 } else { 1 };
    let bytes = gibibytes * Order::PUD.bytes();
    context.show_step(&format!("preallocating {}", size(bytes)));
    let all = bench.cpus();
    let mut rows = rows_on(bench, bytes, 1)?;
    if all > 1 {
        rows.extend(rows_on(bench, bytes, all)?);
    }
    // For folios of 1 GiB each chunk has its own fence.
    let mut samples = Vec::new();
    bench.set_policy(ClearPolicy::Auto);
    for round in 0..=bench.repetitions() {
        let rate = fill(bench, Order::PUD.bytes(), Order::PUD, 1, round == 0)?;
        if round > 0 {
            samples.push(rate);
        }
    }
    rows.push(Row::new("ours, auto, a folio of 1 GiB", 1, samples));
    Ok(Prealloc { bytes, rows })
}

/// Measures a pool of `bytes` in folios of 2 MiB, on one CPU.
pub(super) fn on_one_cpu(bench: &Bench, bytes: u64) -> Result<Prealloc, EvaluateError> {
    Ok(Prealloc { bytes, rows: rows_on(bench, bytes, 1)? })
}

/// Measures all methods on `cpus` CPUs; Linux's own on one CPU only.
fn rows_on(bench: &Bench, bytes: u64, cpus: usize) -> Result<Vec<Row>, EvaluateError> {
    let mut samples = [const { Vec::new() }; METHODS.len()];
    let mut linux = Vec::new();
    for round in 0..=bench.repetitions() {
        for ((_, policy), samples) in METHODS.iter().zip(&mut samples) {
            bench.set_policy(*policy);
            let rate = fill(bench, bytes, Order::PMD, cpus, round == 0)?;
            if round > 0 {
                samples.push(rate);
            }
        }
        // The first round waits for the hypervisor to back the memory, and is not counted.
        let rate = if cpus == 1 { populate(bytes.min(Order::PUD.bytes())) } else { None };
        linux.extend(rate.filter(|_| round > 0));
    }
    let mut rows: Vec<Row> =
        METHODS.iter().zip(samples).map(|((name, _), samples)| Row::new(name, cpus, samples)).collect();
    if !linux.is_empty() {
        rows.push(Row::new(LINUX, cpus, linux));
    }
    Ok(rows)
}

/// Fills a pool on `cpus` CPUs, and returns GB/s.
///
/// With `check`, the memory is poisoned first and every byte is checked afterwards.
fn fill(bench: &Bench, bytes: u64, order: Order, cpus: usize, check: bool) -> Result<f64, EvaluateError> {
    let folios = (bytes / order.bytes()) as usize;
    let pool = bench.mm().huge_pool(order, NODE, folios).map_err(failed)?;
    if check {
        pool.fill(0..folios, || {}).map_err(failed)?;
        for_each_folio(bench, &pool, folios, |pfn| bench.memory().fill(pfn, order, POISON));
        pool.punch(0..folios);
    }
    let filling = pool.begin_fill(0..folios);
    let took = if cpus == 1 {
        let clock = ThreadClock::start_cpu_time();
        filling.help(|| {}).map_err(failed)?;
        clock.elapsed()
    } else {
        // The clocks count only the time in which their threads ran, so preemption is excluded.
        let barrier = Barrier::new(cpus);
        let running = thread::scope(|scope| {
            let help = |cpu| {
                let (barrier, filling) = (&barrier, &filling);
                scope.spawn(move || {
                    bench.become_cpu(cpu);
                    barrier.wait();
                    let clock = ThreadClock::start_cpu_time();
                    filling.help(|| {}).map(|()| clock.elapsed())
                })
            };
            let threads: Vec<_> = (0..cpus).map(help).collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or(Ok(Duration::ZERO))).sum::<Result<Duration, _>>()
        });
        running.map_err(failed)? / cpus as u32
    };
    let mut is_zero = pool.filled() == folios;
    if check {
        for_each_folio(bench, &pool, folios, |pfn| is_zero &= bench.memory().holds(pfn, order, 0));
    }
    if !is_zero {
        return Err(EvaluateError::NotZero { what: format!("a pool of {}", size(bytes)) });
    }
    Ok(bytes as f64 / took.as_nanos().max(1) as f64)
}

/// Calls `visit` with the first frame of each folio of a pool.
fn for_each_folio(
    bench: &Bench,
    pool: &pagewright_mm::HugePool<'_, pagewright_host::HostMachine>,
    folios: usize,
    mut visit: impl FnMut(pagewright_types::Pfn),
) {
    for folio in (0..folios).filter_map(|index| pool.folio(index)) {
        visit(folio.pfn());
        if let Some(block) = bench.frames().put(folio) {
            bench.mm().tlb().free(block);
        }
    }
}

/// Populates memory by Linux, and returns GB/s, or `None` if Linux lacks `MADV_POPULATE_WRITE`.
fn populate(bytes: u64) -> Option<f64> {
    let map = MmapMut::map_anon(bytes as usize).ok()?;
    let _ = map.advise(Advice::HugePage);
    let clock = ThreadClock::start_cpu_time();
    map.advise(Advice::PopulateWrite).ok()?;
    Some(bytes as f64 / clock.elapsed().as_nanos().max(1) as f64)
}

impl Prealloc {
    pub(super) fn of(&self, name: &str, cpus: usize) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == name && row.cpus == cpus)
    }

    /// Bandwidth of our choice divided by that of the baseline, round by round, on one CPU.
    pub(super) fn gain(&self) -> Option<Stats> {
        Some(Stats::of_ratios(&self.of(OURS, 1)?.samples, &self.of(BY_PAGE, 1)?.samples))
    }

    pub(super) fn figures(&self) -> Figures {
        let input = |row: &Row| format!("{} bytes, {} CPUs", self.bytes, row.cpus);
        let times = |row: &Row| {
            let baseline = self.of(BY_PAGE, row.cpus).filter(|baseline| baseline.samples.len() == row.samples.len());
            baseline.map(|baseline| Stats::of_ratios(&row.samples, &baseline.samples))
        };
        Grid::of(format!("A VM's memory, {} in folios of 2 MiB", size(self.bytes)), &self.rows)
            .text("", |row| row.name)
            .text("CPUs", |row| row.cpus as u64)
            .measured("GB/s", "gb_per_s", |row| row.rate)
            .text("× cached page by page", |row| times(row))
            .figures(|row| [format!("prealloc: {}", row.name), input(row)])
    }
}
