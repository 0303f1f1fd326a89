//! Runs the series' program by machine, number of CPUs and sharers, in each flush mode.
//!
//! Key types: [`Cell`], one machine with one program; [`ModeCost`], its cost in one flush mode.
//! Cells are independent of each other, so they run in parallel on host threads.
//!
//! Not guaranteed: that other CPUs are busy. CPUs without a reader idle.

use super::super::{Context, EvaluateError, Figures, Grid, Plot, PlotAxis, PlotScale, Run, Stats, Unit, run_parallel};
use pagewright_capture::pageout::{self, PageOutCosts, PageOutProgram};
use pagewright_capture::replay::ReplayConfig;
use pagewright_mm::MmSetting;
use pagewright_sim::{BandEnd, Cost, MachineConfig, Picos, Profile};
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
/// The ends of the bands, of costs of a wait and of an entry, at which each program runs again.
///
/// Each has its name in JSON. A batch saves least at the first. Programs with several processes run
/// again at the first only, and those with more than ten not at all.
const CORNERS: [(&str, BandEnd, BandEnd); 4] = [
    ("waits_low_entries_high", BandEnd::Low, BandEnd::High),
    ("waits_high_entries_low", BandEnd::High, BandEnd::Low),
    ("all_low", BandEnd::Low, BandEnd::Low),
    ("all_high", BandEnd::High, BandEnd::High),
];
/// The part of a wait that one wait for [`BATCH`] pages saves.
pub(super) const SPARED: f64 = 1.0 - 1.0 / BATCH as f64;
/// The part of it that we promise to save at least.
pub(super) const PROMISED_PART: f64 = 0.9;
/// Swap slots: 16 MiB, more than the program's 1 MiB ever needs.
const SLOTS: u32 = 4096;

/// Rounds of the program with one process.
const ROUNDS: u32 = 2;

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

    /// The profile, as it is given.
    pub(super) fn given_profile(self) -> Result<Profile, EvaluateError> {
        Profile::named(self.profile).map_err(|error| EvaluateError::Machine(format!("{}: {error}", self.text())))
    }

    /// Runs the program on a machine with the costs of `profile`.
    fn run(self, mode: FlushMode, profile: Profile, rounds: u32) -> Result<PageOutCosts, EvaluateError> {
        let failed = |error: &dyn std::fmt::Display| EvaluateError::Machine(format!("{}: {error}", self.text()));
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
    /// The same at [`CORNERS`], as far as the program runs there.
    pub(super) corners: Vec<PageOutCosts>,
}

impl ModeCost {
    fn run(setup: Setup, mode: FlushMode, rounds: u32) -> Result<Self, EvaluateError> {
        let given = setup.given_profile()?;
        let corners = match setup.sharers {
            1 => &CORNERS[..],
            2..=10 => &CORNERS[..1],
            _ => &[],
        };
        let at = |(_, waits, entries): &(&str, BandEnd, BandEnd)| {
            setup.run(mode, given.clone().with_flushes_at(*waits, *entries), rounds)
        };
        let corners = corners.iter().map(at).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { paged_out: setup.run(mode, given, rounds)?, corners })
    }

    /// The costs as given, then those at the corners of the band.
    fn band(&self) -> impl Iterator<Item = &PageOutCosts> {
        [&self.paged_out].into_iter().chain(&self.corners)
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

/// Saved time as a part of the time that one wait per batch could save.
fn saved_part(before: &PageOutCosts, after: &PageOutCosts) -> Option<f64> {
    let possible = wait_share(before) * SPARED;
    (possible > 0.0).then(|| saving(before, after) / possible)
}

impl Cell {
    /// Runs the program of the series on a machine.
    pub(super) fn of_the_series(profile: &'static str, cpus: u16) -> Result<Self, EvaluateError> {
        Self::run(Setup::of_the_series(profile, cpus), ROUNDS)
    }

    fn run(setup: Setup, rounds: u32) -> Result<Self, EvaluateError> {
        let cost = |mode| ModeCost::run(setup, mode, rounds);
        let is_forced = setup.cpus <= FEW && setup.sharers == 1;
        let forced = if is_forced { Some(cost(FlushMode::Forced)?) } else { None };
        Ok(Self { setup, before: cost(FlushMode::Before)?, after: cost(FlushMode::After)?, forced })
    }

    /// The share of the time before that is spent waiting.
    pub(super) fn wait_share(&self) -> Stats {
        band(&self.before.band().map(wait_share).collect::<Vec<f64>>())
    }

    /// The share of the time before that the mode of `cost` saves.
    pub(super) fn saving(&self, cost: &ModeCost) -> Stats {
        let savings = self.before.band().zip(cost.band()).map(|(before, after)| saving(before, after));
        band(&savings.collect::<Vec<f64>>())
    }

    /// Modelled nanoseconds that the CPU waits for one flush before.
    pub(super) fn wait_ns(&self) -> f64 {
        self.before.per_page(self.before.paged_out.waited.raw()) / self.before.waits() / 1e3
    }

    /// Saved time as a part of the time that one wait per batch could save.
    ///
    /// `None` if there is nothing to wait for.
    pub(super) fn saved_part(&self) -> Option<Stats> {
        let parts = self.before.band().zip(self.after.band());
        let parts: Vec<f64> = parts.filter_map(|(before, after)| saved_part(before, after)).collect();
        (!parts.is_empty()).then(|| band(&parts))
    }

    /// The share of a flush before that its final wait takes.
    ///
    /// The rest is what Linux's `ptep_clear_flush` does besides: exchange the entry, publish it,
    /// and issue the invalidation.
    pub(super) fn wait_share_of_flush(&self) -> Result<Stats, EvaluateError> {
        let given = self.setup.given_profile()?;
        let corners = CORNERS.map(|(_, waits, entries)| given.clone().with_flushes_at(waits, entries));
        let profiles = [&given].into_iter().chain(&corners);
        let share = |(paged_out, profile): (&PageOutCosts, &Profile)| {
            let rest = [Cost::EntrySwap, Cost::DsbLocal, Cost::Tlbi].map(|cost| profile.cost(cost).raw());
            let waited = paged_out.waited.raw() as f64 / paged_out.pages as f64;
            waited / (waited + rest.iter().sum::<u64>() as f64)
        };
        Ok(band(&self.before.band().zip(profiles).map(share).collect::<Vec<f64>>()))
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

/// All cells.
pub(super) struct PageOutCells {
    pub(super) cells: Vec<Cell>,
    /// The least [`Cost::TlbiComplete`] with which a batch saves less than [`PROMISED_PART`].
    ///
    /// On [`PHONE`] with eight CPUs; `None` if no cost in the band does.
    pub(super) tlbi_limit: Option<Picos>,
}

/// Finds [`PageOutCells::tlbi_limit`], to a nanosecond.
fn tlbi_limit() -> Result<Option<Picos>, EvaluateError> {
    let setup = Setup::of_the_series(PHONE, 8);
    let given = setup.given_profile()?;
    let keeps = |ns: u64| {
        let costs = |mode| setup.run(mode, given.clone().with_cost(Cost::TlbiComplete, Picos::from_nanos(ns)), 2);
        let part = saved_part(&costs(FlushMode::Before)?, &costs(FlushMode::After)?);
        Ok::<bool, EvaluateError>(part.is_some_and(|part| part >= PROMISED_PART))
    };
    let [mut low, mut high] = given.band(Cost::TlbiComplete).map(|end| end.raw() / 1000);
    if keeps(high)? {
        return Ok(None);
    }
    while low + 1 < high {
        let middle = low.midpoint(high);
        if keeps(middle)? {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(Some(Picos::from_nanos(high)))
}

/// Runs every cell.
pub(super) fn run(context: &Context<'_>) -> Result<PageOutCells, EvaluateError> {
    let mut setups = Vec::new();
    for profile in PROFILES {
        for sharers in SHARERS {
            setups.extend(CPUS.map(|cpus| Setup { profile, cpus, sharers, stores: false }));
            setups.push(Setup { profile, cpus: DIRTY_CPUS, sharers, stores: true });
        }
    }
    let mut cells = Vec::new();
    let threads = thread::available_parallelism().map_or(1, usize::from);
    for chunk in setups.chunks(threads) {
        context.show_step(&format!("paging out: {}", chunk[0].text()));
        // All rounds are alike, so more of them do not change the figures per page.
        let rounds = |setup: &Setup| if setup.sharers == 1 { ROUNDS } else { 1 };
        cells.extend(run_parallel(chunk, |setup| Cell::run(*setup, rounds(setup)))?);
    }
    Ok(PageOutCells { cells, tlbi_limit: tlbi_limit()? })
}

impl PageOutCells {
    /// The cell with the program of the series: one process, which reads.
    pub(super) fn of_the_series(&self, profile: &'static str, cpus: u16) -> Option<&Cell> {
        let setup = Setup::of_the_series(profile, cpus);
        self.cells.iter().find(|cell| cell.setup == setup)
    }

    pub(super) fn figures(&self) -> Figures {
        let table = |profile: &str, stores: bool| {
            let of = |cell: &&Cell| cell.setup.profile == profile && cell.setup.stores == stores;
            let dirty = if stores { ", all entries dirty" } else { "" };
            Grid::of(format!("{profile}{dirty}"), self.cells.iter().filter(of))
                .text("CPUs", |cell| u64::from(cell.setup.cpus))
                .text("sharers", |cell| u64::from(cell.setup.sharers))
                .text("waits per page before", |cell| format!("{:.3}", cell.before.waits()))
                .text("after", |cell| format!("{:.3}", cell.after.waits()))
                .text("entries per page", |cell| format!("{:.1}", cell.after.entries()))
                .text("ns per page before", |cell| format!("{:.0}", cell.before.nanos()))
                .text("after", |cell| format!("{:.0}", cell.after.nanos()))
                .text("waiting before", |cell| Unit::Percent.text(&cell.wait_share()))
                .text("saved", |cell| Unit::Percent.text(&cell.saving(&cell.after)))
                .text("saved if forced", |cell| match &cell.forced {
                    Some(forced) => Unit::Percent.text(&cell.saving(forced)),
                    None => "–".to_owned(),
                })
                .table()
        };
        let runs = self.cells.iter().flat_map(|cell| cell.modes().map(|(mode, cost)| run_of(cell, mode, cost)));
        let tables = PROFILES.iter().flat_map(|profile| [table(profile, false), table(profile, true)]);
        Figures { runs: runs.collect(), tables: tables.collect(), plots: self.plots() }
    }

    fn plots(&self) -> Vec<Plot> {
        let reading = || self.cells.iter().filter(|cell| !cell.setup.stores);
        let waits = reading().filter(|cell| cell.setup.profile == KUNPENG).flat_map(|cell| {
            let name = |mode| format!("{} sharers, {mode}", cell.setup.sharers);
            [("before", &cell.before), ("after", &cell.after)]
                .map(|(mode, cost)| (name(mode), u64::from(cell.setup.cpus), Stats::exact(cost.waits())))
        });
        let saved = reading().filter(|cell| cell.setup.sharers == 1).map(|cell| {
            let percent = cell.saving(&cell.after).scaled(100.0);
            (cell.setup.profile, u64::from(cell.setup.cpus), percent)
        });
        let of_waits = format!("Waits for flushes per page that is paged out, {KUNPENG}");
        let of_time = "Time saved by one wait per batch, one process that reads";
        vec![
            Plot::of(of_waits, "waits", PlotScale::Logarithmic, PlotAxis::Cpus, waits),
            Plot::of(of_time, "% of the time before", PlotScale::Linear, PlotAxis::Cpus, saved),
        ]
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
    let corners = CORNERS.iter().zip(&cost.corners);
    modelled.extend(corners.map(|((name, ..), costs)| (format!("elapsed_ns_{name}"), nanos(costs.elapsed.raw()))));
    let counters = counters.0.iter().map(|(name, count)| ((*name).to_owned(), *count));
    let input = format!("{pages} pages {}", if cell.setup.stores { "stored to" } else { "read" });
    Run {
        counters: counters.chain([("pw_pages_paged_out".to_owned(), *pages)]).collect(),
        modelled,
        ..Run::of(format!("{}, {}", cell.setup.text(), mode.name()), input)
    }
}
