//! The series' program by machine, number of CPUs and sharers, before and after.
//!
//! Key types: [`Cell`], one machine with one program; [`Side`], what it cost one way of flushing.
//! Cells are apart from each other, so they are run side by side on host threads.
//!
//! Not guaranteed: CPUs that do something else meanwhile. Those without a reader idle.

use super::super::{Context, EvaluateError, Over, Plot, Run, Series, Stats, Table};
use super::at_once;
use pagewright_capture::pageout::{self, PagedOut, Program};
use pagewright_capture::replay::ReplayConfig;
use pagewright_mm::Knob;
use pagewright_sim::{MachineConfig, Profile};
use std::collections::BTreeMap;
use std::thread;

/// Pages that reclaim takes at a time (`SWAP_CLUSTER_MAX`).
pub(super) const BATCH: u64 = 32;
/// A phone and two servers.
pub(super) const PHONE: &str = "snapdragon888";
pub(super) const KUNPENG: &str = "kunpeng920";
pub(super) const X86: &str = "icelake";
const PROFILES: [&str; 3] = [PHONE, KUNPENG, X86];
pub(super) const CPUS: [u16; 6] = [1, 2, 4, 8, 32, 128];
/// At so many CPUs and fewer, flushes are also put off by force.
pub(super) const FEW: u16 = 4;
const SHARERS: [u32; 3] = [1, 10, 100];
/// Machines on which all entries are also dirty.
const DIRTY_CPUS: u16 = 8;
/// Room for the megabyte, however often it is in memory and in swap.
const SLOTS: u32 = 4096;

/// Whether flushes are put off: values of `tlb_batch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Each is waited for at once.
    Before,
    /// They are put off where that spares a wait.
    After,
    /// They are put off, whatever it spares.
    Forced,
}

impl Way {
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

/// A machine and a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) profile: &'static str,
    pub(super) cpus: u16,
    pub(super) sharers: u32,
    pub(super) stores: bool,
}

impl Place {
    /// As tables and labels name it.
    pub(super) fn text(self) -> String {
        let many = |count: u64, of: &str| format!("{count} {of}{}", if count == 1 { "" } else { "s" });
        let dirty = if self.stores { ", all dirty" } else { "" };
        let cpus = many(self.cpus.into(), "CPU");
        format!("{}, {cpus}, {}{dirty}", self.profile, many(self.sharers.into(), "sharer"))
    }

    fn run(self, way: Way, percent: u64, rounds: u32) -> Result<PagedOut, EvaluateError> {
        let failed = |error: &dyn std::fmt::Display| EvaluateError::Machine(format!("{}: {error}", self.text()));
        let profile = Profile::named(self.profile).map_err(|error| failed(&error))?.with_flushes_at(percent);
        let isa = profile.isa();
        let mut machine = MachineConfig::new(profile);
        machine.cpus = self.cpus;
        let mut config = ReplayConfig::new(machine);
        config.swap_slots = SLOTS;
        config.knobs.push((Knob::TlbBatch, way.value()));
        // On x86-64 whoever has not run the space is not interrupted.
        let threads = self.profile == X86 && self.sharers == 1;
        let program = Program { sharers: self.sharers, threads, stores: self.stores, ..Program::of_the_series(rounds) };
        pageout::run(isa, &config, program).map_err(|error| failed(&error))
    }
}

/// What one way of flushing cost.
pub(super) struct Side {
    pub(super) found: PagedOut,
    /// With the costs of flushes at 50 and 150 %; only for one process.
    band: Option<[PagedOut; 2]>,
}

impl Side {
    fn run(place: Place, way: Way, rounds: u32) -> Result<Self, EvaluateError> {
        let at = |percent| place.run(way, percent, rounds);
        let band = if place.sharers == 1 { Some([at(50)?, at(150)?]) } else { None };
        Ok(Self { found: at(100)?, band })
    }

    pub(super) fn count(&self, name: &str) -> u64 {
        self.found.counters.get(name).unwrap_or(0)
    }

    fn per_page(&self, count: u64) -> f64 {
        count as f64 / self.found.pages as f64
    }

    /// Waits for each page.
    pub(super) fn waits(&self) -> f64 {
        self.per_page(self.count("pw_flush_waits"))
    }

    /// Entries of which a translation had to be flushed, for each page.
    pub(super) fn entries(&self) -> f64 {
        self.per_page(self.count("pw_tlb_batch_entries") + self.count("pw_tlb_batch_at_once"))
    }

    fn nanos(&self) -> f64 {
        self.per_page(self.found.elapsed.raw()) / 1e3
    }
}

/// One machine with one program.
pub(super) struct Cell {
    pub(super) place: Place,
    pub(super) before: Side,
    pub(super) after: Side,
    pub(super) forced: Option<Side>,
}

fn wait_share(found: &PagedOut) -> f64 {
    found.waited.raw() as f64 / found.elapsed.raw() as f64
}

fn saving(before: &PagedOut, after: &PagedOut) -> f64 {
    1.0 - after.elapsed.raw() as f64 / before.elapsed.raw() as f64
}

impl Cell {
    fn run(place: Place, rounds: u32) -> Result<Self, EvaluateError> {
        let side = |way| Side::run(place, way, rounds);
        let few = place.cpus <= FEW && place.sharers == 1;
        let forced = if few { Some(side(Way::Forced)?) } else { None };
        Ok(Self { place, before: side(Way::Before)?, after: side(Way::After)?, forced })
    }

    /// Of the time before, what was spent waiting.
    pub(super) fn share(&self) -> Stats {
        self.banded(&self.before, wait_share)
    }

    /// Of the time before, what `side` spares.
    pub(super) fn saving(&self, side: &Side) -> Stats {
        let mut savings = vec![saving(&self.before.found, &side.found)];
        if let (Some(before), Some(after)) = (&self.before.band, &side.band) {
            savings.extend(before.iter().zip(after).map(|(before, after)| saving(before, after)));
        }
        band(&savings)
    }

    fn banded(&self, side: &Side, figure: impl Fn(&PagedOut) -> f64) -> Stats {
        let figures: Vec<f64> = [&side.found].into_iter().chain(side.band.iter().flatten()).map(figure).collect();
        band(&figures)
    }

    /// Saved time as a part of what could be saved by waiting once for a batch; at the worst of the
    /// band. None where nobody waits.
    pub(super) fn reached(&self) -> Option<f64> {
        let possible = |before: &PagedOut| wait_share(before) * (1.0 - 1.0 / BATCH as f64);
        let pairs = [(&self.before.found, &self.after.found)].into_iter();
        let banded = self.before.band.iter().flatten().zip(self.after.band.iter().flatten());
        let parts = pairs
            .chain(banded)
            .filter(|(before, _)| possible(before) > 0.0)
            .map(|(before, after)| saving(before, after) / possible(before));
        parts.reduce(f64::min)
    }

    fn row(&self) -> Vec<String> {
        let forced = self.forced.as_ref().map_or_else(|| "–".to_owned(), |side| percent(&self.saving(side)));
        vec![
            self.place.cpus.to_string(),
            self.place.sharers.to_string(),
            format!("{:.3}", self.before.waits()),
            format!("{:.3}", self.after.waits()),
            format!("{:.1}", self.after.entries()),
            format!("{:.0}", self.before.nanos()),
            format!("{:.0}", self.after.nanos()),
            percent(&self.share()),
            percent(&self.saving(&self.after)),
            forced,
        ]
    }

    fn sides(&self) -> impl Iterator<Item = (Way, &Side)> {
        let forced = self.forced.iter().map(|side| (Way::Forced, side));
        [(Way::Before, &self.before), (Way::After, &self.after)].into_iter().chain(forced)
    }
}

/// The figure of the profile, with the least and the greatest of the band.
fn band(figures: &[f64]) -> Stats {
    let (low, high) = figures.iter().fold((f64::MAX, f64::MIN), |(low, high), at| (low.min(*at), high.max(*at)));
    Stats { median: figures[0], p10: low, p90: high, samples: figures.len() }
}

/// A part of one as `12.5 % [6.8–17.2]`.
pub(super) fn percent(stats: &Stats) -> String {
    let Stats { median, p10, p90, samples } = *stats;
    let whole = format!("{:.1} %", median * 100.0);
    if samples == 1 { whole } else { format!("{whole} [{:.1}–{:.1}]", p10 * 100.0, p90 * 100.0) }
}

/// All of them.
pub(super) struct Grid {
    pub(super) cells: Vec<Cell>,
}

/// Runs every cell.
pub(super) fn run(context: &Context<'_>) -> Result<Grid, EvaluateError> {
    let mut places = Vec::new();
    for profile in PROFILES {
        for sharers in SHARERS {
            places.extend(CPUS.map(|cpus| Place { profile, cpus, sharers, stores: false }));
            places.push(Place { profile, cpus: DIRTY_CPUS, sharers, stores: true });
        }
    }
    let mut cells = Vec::new();
    let threads = thread::available_parallelism().map_or(1, usize::from);
    for some in places.chunks(threads) {
        context.doing(&format!("paging out: {}", some[0].text()));
        // Each round is as the one before, and the figures of more are the same.
        let rounds = |place: &Place| if place.sharers == 1 { 16 } else { 2 };
        cells.extend(at_once(some, |place| Cell::run(*place, rounds(place)))?);
    }
    Ok(Grid { cells })
}

impl Grid {
    /// The cell of one process that reads.
    pub(super) fn of_the_series(&self, profile: &str, cpus: u16) -> Option<&Cell> {
        let place =
            |place: &Place| place.profile == profile && place.cpus == cpus && place.sharers == 1 && !place.stores;
        self.cells.iter().find(|cell| place(&cell.place))
    }

    pub(super) fn tables(&self) -> Vec<Table> {
        let head = [
            "CPUs",
            "sharers",
            "waits a page before",
            "after",
            "entries a page",
            "ns a page before",
            "after",
            "waiting before",
            "saved",
            "saved if forced",
        ];
        let table = |profile: &str, stores: bool| {
            let of = |cell: &&Cell| cell.place.profile == profile && cell.place.stores == stores;
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
        let series = |profile: &&str| {
            let cells = CPUS.iter().filter_map(|cpus| self.of_the_series(profile, *cpus));
            let as_percent = |stats: Stats| Stats {
                median: stats.median * 100.0,
                p10: stats.p10 * 100.0,
                p90: stats.p90 * 100.0,
                ..stats
            };
            let points = cells.map(|cell| (u64::from(cell.place.cpus), as_percent(cell.saving(&cell.after))));
            Series { name: (*profile).to_owned(), points: points.collect() }
        };
        let title = "Time saved by waiting once for a batch: one process that reads".to_owned();
        vec![Plot {
            title,
            unit: "% of the time before",
            over: Over::Cpus,
            series: PROFILES.iter().map(series).collect(),
        }]
    }

    pub(super) fn runs(&self) -> Vec<Run> {
        self.cells.iter().flat_map(|cell| cell.sides().map(|(way, side)| run_of(cell, way, side))).collect()
    }
}

fn run_of(cell: &Cell, way: Way, side: &Side) -> Run {
    let nanos = |picos: u64| picos / 1000;
    let PagedOut { pages, counters, elapsed, paging, waited } = &side.found;
    let mut modelled = BTreeMap::from([
        ("elapsed_ns".to_owned(), nanos(elapsed.raw())),
        ("paging_out_ns".to_owned(), nanos(paging.raw())),
        ("waiting_ns".to_owned(), nanos(waited.raw())),
    ]);
    if let Some([low, high]) = &side.band {
        modelled.insert("elapsed_ns_flushes_at_50_percent".to_owned(), nanos(low.elapsed.raw()));
        modelled.insert("elapsed_ns_flushes_at_150_percent".to_owned(), nanos(high.elapsed.raw()));
    }
    let counters = counters.0.iter().map(|(name, count)| ((*name).to_owned(), *count));
    let input = format!("{pages} pages {}", if cell.place.stores { "stored to" } else { "read" });
    Run {
        counters: counters.chain([("pw_pages_paged_out".to_owned(), *pages)]).collect(),
        modelled,
        ..Run::of(format!("{}, {}", cell.place.text(), way.name()), input)
    }
}
