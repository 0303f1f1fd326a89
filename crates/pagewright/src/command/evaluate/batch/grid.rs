//! Runs the series' program by machine, number of CPUs and sharers, in each flush mode.
//!
//! Key types: [`Cell`], one machine with one program; [`ModeCost`], its cost in one flush mode.
//! Cells are independent of each other, so they run in parallel on host threads.
//!
//! Not guaranteed: that other CPUs are busy. CPUs without a reader idle.

use super::super::{Context, EvaluateError, Plot, PlotAxis, Run, Scale, Series, Stats, Table};
use super::run_parallel;
use pagewright_capture::pageout::{self, PageOutCosts, PageOutProgram};
use pagewright_capture::replay::ReplayConfig;
use pagewright_mm::MmSetting;
use pagewright_sim::{MachineConfig, Profile};
use std::collections::BTreeMap;
use std::thread;

/// Pages that reclaim isolates at a time (`SWAP_CLUSTER_MAX`).
pub(super) const BATCH: u64 = 32;
/// Profile of the phone of the series.
pub(super) const PHONE: &str = "snapdragon888";
/// Profile of the server of the series.
pub(super) const KUNPENG: &str = "kunpeng920";
/// Profile of an x86-64 server.
pub(super) const X86: &str = "icelake";
const PROFILES: [&str; 3] = [PHONE, KUNPENG, X86];
pub(super) const CPUS: [u16; 6] = [1, 2, 4, 8, 32, 128];
/// The forced mode runs on machines with at most so many CPUs.
pub(super) const FEW: u16 = 4;
const SHARERS: [u32; 3] = [1, 10, 100];
/// Number of CPUs of the machines on which all entries are also dirty.
const DIRTY_CPUS: u16 = 8;
/// Swap slots: 16 MiB, more than the program's 1 MiB ever needs.
const SLOTS: u32 = 4096;

/// The flush mode of reclaim: the values of `tlb_batch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlushMode {
    /// Reclaim waits for each flush at once.
    Before,
    /// Reclaim defers flushes if that saves a wait.
    After,
    /// Reclaim always defers flushes.
    Forced,
}

impl FlushMode {
    const fn value(self) -> u64 {
        match self {
            Self::Before => 0,
            Self::After => 1,
            Self::Forced => 2,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::After => "after",
            Self::Forced => "forced",
        }
    }
}

/// A machine and the shape of the program on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Setup {
    pub(super) profile: &'static str,
    pub(super) cpus: u16,
    /// Processes that map the memory.
    pub(super) sharers: u32,
    /// Whether the program also stores to each page, so that its entries are dirty.
    pub(super) stores: bool,
}

/// The machines of the tour.
const TOUR: [(&str, u16); 2] = [(PHONE, 8), (KUNPENG, 128)];

impl Setup {
    /// The program of the series: one process, which reads.
    const fn of_the_series(profile: &'static str, cpus: u16) -> Self {
        Self { profile, cpus, sharers: 1, stores: false }
    }

    /// The description in tables and labels.
    pub(super) fn text(self) -> String {
        let many = |count: u64, of: &str| format!("{count} {of}{}", if count == 1 { "" } else { "s" });
        let dirty = if self.stores { ", all dirty" } else { "" };
        let cpus = many(self.cpus.into(), "CPU");
        format!("{}, {cpus}, {}{dirty}", self.profile, many(self.sharers.into(), "sharer"))
    }

    /// Runs the program with flush costs at `percent` of the profile's.
    fn run(self, mode: FlushMode, percent: u64, rounds: u32) -> Result<PageOutCosts, EvaluateError> {
        let failed = |error: &dyn std::fmt::Display| EvaluateError::Machine(format!("{}: {error}", self.text()));
        let profile = Profile::named(self.profile).map_err(|error| failed(&error))?.with_flushes_at(percent);
        let isa = profile.isa();
        let mut machine = MachineConfig::new(profile);
        machine.cpus = self.cpus;
        let mut config = ReplayConfig::new(machine);
        config.swap_slots = SLOTS;
        config.settings.push((MmSetting::TlbBatch, mode.value()));
        // On x86-64 a CPU that has not run the address space gets no IPI.
        let threads = self.profile == X86 && self.sharers == 1;
        let program = PageOutProgram {
            sharers: self.sharers,
            threads,
            stores: self.stores,
            ..PageOutProgram::of_the_series(rounds)
        };
        pageout::run(isa, &config, program).map_err(|error| failed(&error))
    }
}

/// The cost of a program in one flush mode.
pub(super) struct ModeCost {
    pub(super) paged_out: PageOutCosts,
    /// The same with flush costs at 50 % and at 150 %; only for one process.
    band: Option<[PageOutCosts; 2]>,
}

impl ModeCost {
    fn run(setup: Setup, mode: FlushMode, rounds: u32) -> Result<Self, EvaluateError> {
        let at = |percent| setup.run(mode, percent, rounds);
        let band = if setup.sharers == 1 { Some([at(50)?, at(150)?]) } else { None };
        Ok(Self { paged_out: at(100)?, band })
    }

    pub(super) fn count(&self, name: &str) -> u64 {
        self.paged_out.counters.get(name).unwrap_or(0)
    }

    fn per_page(&self, count: u64) -> f64 {
        count as f64 / self.paged_out.pages as f64
    }

    /// Waits per page.
    pub(super) fn waits(&self) -> f64 {
        self.per_page(self.count("pw_flush_waits"))
    }

    /// Entries that needed a flush, per page.
    pub(super) fn entries(&self) -> f64 {
        self.per_page(self.count("pw_tlb_batch_entries") + self.count("pw_tlb_batch_at_once"))
    }

    /// Modelled nanoseconds per page.
    fn nanos(&self) -> f64 {
        self.per_page(self.paged_out.elapsed.raw()) / 1e3
    }
}

/// One machine with one program, in all flush modes.
pub(super) struct Cell {
    pub(super) setup: Setup,
    pub(super) before: ModeCost,
    pub(super) after: ModeCost,
    pub(super) forced: Option<ModeCost>,
}

fn wait_share(paged_out: &PageOutCosts) -> f64 {
    paged_out.waited.raw() as f64 / paged_out.elapsed.raw() as f64
}

fn saving(before: &PageOutCosts, after: &PageOutCosts) -> f64 {
    1.0 - after.elapsed.raw() as f64 / before.elapsed.raw() as f64
}

impl Cell {
    fn run(setup: Setup, rounds: u32) -> Result<Self, EvaluateError> {
        let cost = |mode| ModeCost::run(setup, mode, rounds);
        let is_forced = setup.cpus <= FEW && setup.sharers == 1;
        let forced = if is_forced { Some(cost(FlushMode::Forced)?) } else { None };
        Ok(Self { setup, before: cost(FlushMode::Before)?, after: cost(FlushMode::After)?, forced })
    }

    /// The share of the time before that is spent waiting.
    pub(super) fn wait_share(&self) -> Stats {
        let all = [&self.before.paged_out].into_iter().chain(self.before.band.iter().flatten());
        band(&all.map(wait_share).collect::<Vec<f64>>())
    }

    /// The share of the time before that the mode of `cost` saves.
    pub(super) fn saving(&self, cost: &ModeCost) -> Stats {
        let mut savings = vec![saving(&self.before.paged_out, &cost.paged_out)];
        if let (Some(before), Some(after)) = (&self.before.band, &cost.band) {
            savings.extend(before.iter().zip(after).map(|(before, after)| saving(before, after)));
        }
        band(&savings)
    }

    /// Saved time as a part of the time that one wait per batch could save.
    ///
    /// It is the lowest value of the band, and `None` if there is nothing to wait for.
    pub(super) fn saved_fraction(&self) -> Option<f64> {
        let possible = |before: &PageOutCosts| wait_share(before) * (1.0 - 1.0 / BATCH as f64);
        let pairs = [(&self.before.paged_out, &self.after.paged_out)].into_iter();
        let banded = self.before.band.iter().flatten().zip(self.after.band.iter().flatten());
        let parts = pairs
            .chain(banded)
            .filter(|(before, _)| possible(before) > 0.0)
            .map(|(before, after)| saving(before, after) / possible(before));
        parts.reduce(f64::min)
    }

    fn row(&self) -> Vec<String> {
        let forced = self.forced.as_ref().map_or_else(|| "–".to_owned(), |cost| percent(&self.saving(cost)));
        vec![
            self.setup.cpus.to_string(),
            self.setup.sharers.to_string(),
            format!("{:.3}", self.before.waits()),
            format!("{:.3}", self.after.waits()),
            format!("{:.1}", self.after.entries()),
            format!("{:.0}", self.before.nanos()),
            format!("{:.0}", self.after.nanos()),
            percent(&self.wait_share()),
            percent(&self.saving(&self.after)),
            forced,
        ]
    }

    fn modes(&self) -> impl Iterator<Item = (FlushMode, &ModeCost)> {
        let forced = self.forced.iter().map(|cost| (FlushMode::Forced, cost));
        [(FlushMode::Before, &self.before), (FlushMode::After, &self.after)].into_iter().chain(forced)
    }
}

/// The first figure as the median, with the lowest and highest of all figures.
fn band(figures: &[f64]) -> Stats {
    let (low, high) = figures.iter().fold((f64::MAX, f64::MIN), |(low, high), at| (low.min(*at), high.max(*at)));
    Stats { median: figures[0], p10: low, p90: high, samples: figures.len() }
}

/// Formats a fraction and its band, such as `12.5 % [6.8–17.2]`.
pub(super) fn percent(stats: &Stats) -> String {
    let Stats { median, p10, p90, samples } = *stats;
    let whole = format!("{:.1} %", median * 100.0);
    if samples == 1 { whole } else { format!("{whole} [{:.1}–{:.1}]", p10 * 100.0, p90 * 100.0) }
}

/// All cells.
pub(super) struct Grid {
    pub(super) cells: Vec<Cell>,
}

/// Runs every cell.
pub(super) fn run(context: &Context<'_>) -> Result<Grid, EvaluateError> {
    let mut setups = Vec::new();
    for profile in PROFILES {
        for sharers in SHARERS {
            setups.extend(CPUS.map(|cpus| Setup { profile, cpus, sharers, stores: false }));
            setups.push(Setup { profile, cpus: DIRTY_CPUS, sharers, stores: true });
        }
    }
    if context.scale == Scale::Tour {
        setups.retain(|setup| TOUR.iter().any(|(profile, cpus)| *setup == Setup::of_the_series(profile, *cpus)));
    }
    let mut cells = Vec::new();
    let threads = thread::available_parallelism().map_or(1, usize::from);
    for chunk in setups.chunks(threads) {
        context.show_step(&format!("paging out: {}", chunk[0].text()));
        // All rounds are alike, so more of them do not change the figures per page.
        let rounds = |setup: &Setup| if setup.sharers == 1 { 16 } else { 2 };
        cells.extend(run_parallel(chunk, |setup| Cell::run(*setup, rounds(setup)))?);
    }
    Ok(Grid { cells })
}

impl Grid {
    /// The cell with the program of the series: one process, which reads.
    pub(super) fn of_the_series(&self, profile: &'static str, cpus: u16) -> Option<&Cell> {
        let setup = Setup::of_the_series(profile, cpus);
        self.cells.iter().find(|cell| cell.setup == setup)
    }

    pub(super) fn tables(&self) -> Vec<Table> {
        let head = [
            "CPUs",
            "sharers",
            "waits per page before",
            "after",
            "entries per page",
            "ns per page before",
            "after",
            "waiting before",
            "saved",
            "saved if forced",
        ];
        let table = |profile: &str, stores: bool| {
            let of = |cell: &&Cell| cell.setup.profile == profile && cell.setup.stores == stores;
            let dirty = if stores { ", all entries dirty" } else { "" };
            Table {
                title: format!("{profile}{dirty}"),
                head: head.map(str::to_owned).to_vec(),
                rows: self.cells.iter().filter(of).map(Cell::row).collect(),
            }
        };
        PROFILES.iter().flat_map(|profile| [table(profile, false), table(profile, true)]).collect()
    }

    pub(super) fn plots(&self) -> Vec<Plot> {
        let series = |profile: &&'static str| {
            let cells = CPUS.iter().filter_map(|cpus| self.of_the_series(profile, *cpus));
            let as_percent = |stats: Stats| Stats {
                median: stats.median * 100.0,
                p10: stats.p10 * 100.0,
                p90: stats.p90 * 100.0,
                ..stats
            };
            let points = cells.map(|cell| (u64::from(cell.setup.cpus), as_percent(cell.saving(&cell.after))));
            Series { name: (*profile).to_owned(), points: points.collect() }
        };
        let title = "Time saved by one wait per batch, one process that reads".to_owned();
        vec![Plot {
            title,
            unit: "% of the time before",
            axis: PlotAxis::Cpus,
            series: PROFILES.iter().map(series).collect(),
        }]
    }

    pub(super) fn runs(&self) -> Vec<Run> {
        self.cells.iter().flat_map(|cell| cell.modes().map(|(mode, cost)| run_of(cell, mode, cost))).collect()
    }
}

fn run_of(cell: &Cell, mode: FlushMode, cost: &ModeCost) -> Run {
    let nanos = |picos: u64| picos / 1000;
    let PageOutCosts { pages, counters, elapsed, paging, waited } = &cost.paged_out;
    let mut modelled = BTreeMap::from([
        ("elapsed_ns".to_owned(), nanos(elapsed.raw())),
        ("paging_out_ns".to_owned(), nanos(paging.raw())),
        ("waiting_ns".to_owned(), nanos(waited.raw())),
    ]);
    if let Some([low, high]) = &cost.band {
        modelled.insert("elapsed_ns_flushes_at_50_percent".to_owned(), nanos(low.elapsed.raw()));
        modelled.insert("elapsed_ns_flushes_at_150_percent".to_owned(), nanos(high.elapsed.raw()));
    }
    let counters = counters.0.iter().map(|(name, count)| ((*name).to_owned(), *count));
    let input = format!("{pages} pages {}", if cell.setup.stores { "stored to" } else { "read" });
    Run {
        counters: counters.chain([("pw_pages_paged_out".to_owned(), *pages)]).collect(),
        modelled,
        ..Run::of(format!("{}, {}", cell.setup.text(), mode.name()), input)
    }
}
