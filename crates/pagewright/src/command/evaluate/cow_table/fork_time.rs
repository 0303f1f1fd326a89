//! How long a fork takes, and what it touches, by the size of the parent and its mappings.
//!
//! Key types: [`ForkTimes`], one parent forked in each way and by Linux; [`ForkCounts`], the
//! entries that a fork loads or stores and the memmap records that it changes.
//!
//! In a round, the ways take turns on the same parent. Before each fork, the parent's pages are its
//! own again, as those of a process that has stored to them since its last fork.
//!
//! The child ends before the next fork, and its end reads the record of each table that it leaves.
//! From about 32 GiB on these are more than a second-level cache holds, so forks with shared tables
//! then find cold caches, and the smaller ones warm ones.
//!
//! Not guaranteed: the exception and the rest of fork(2), which are in Linux's figure only. A
//! record that a fork reads and does not change is not counted; it can read only records of frames
//! that entries name which it loads.

use super::super::plot::size;
use super::super::{Context, EvaluateError, Figures, Grid, Plot, PlotAxis, PlotScale, Run, Scale, Stats};
use super::parent::{ForkMode, Parent, failed};
use crate::command::linux_fork::{LinuxFork, available};
use pagewright_arch::X86_64;
use pagewright_host::TableMachine;
use pagewright_mm::Mm;
use pagewright_types::snapshot::SnapshotRecord;
use pagewright_types::{Counter, PageRange, Pfn, VirtAddr};

const MIB: u64 = 1 << 20;
/// Sizes of parents with one mapping; the last is for full scale only.
const SIZES: [u64; 6] = [MIB, 8 * MIB, 64 * MIB, 512 * MIB, 8192 * MIB, super::LARGEST];
/// Mappings of the parents that are cut into many, and their size.
const MAPPINGS: [u64; 3] = [10, 1000, 10_000];
const CUT: u64 = 1024 * MIB;
/// Forks with shared tables in a round; the table shows the median of their medians.
const SHARED_IN_A_ROUND: usize = 9;

const LINUX: &str = "Linux on this computer";

/// What one fork touches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ForkCounts {
    /// Loads, stores and exchanges of entries of page tables, of all levels.
    pub(super) entry_accesses: u64,
    /// Memmap records whose counts differ afterwards, those of the child's new tables included.
    pub(super) records: u64,
    /// `pw_table_shared` and `pw_fork_entries`.
    pub(super) tables_shared: u64,
    pub(super) entries_copied: u64,
}

/// The forks of one parent.
pub(super) struct ForkTimes {
    pub(super) bytes: u64,
    pub(super) mappings: u64,
    /// Microseconds by round; of shared tables, the median of each round.
    pub(super) classic: Vec<f64>,
    pub(super) shared: Vec<f64>,
    /// Linux's microseconds; empty if its memory does not suffice.
    pub(super) linux: Vec<f64>,
    /// By [`ForkMode`].
    pub(super) counts: [ForkCounts; 2],
}

/// The parents of an evaluation.
pub(super) struct ForkResults {
    pub(super) by_size: Vec<ForkTimes>,
    pub(super) by_mappings: Vec<ForkTimes>,
    /// The bytes that Linux could give when the measurement began.
    pub(super) available: u64,
}

/// Measures all parents of the scale.
pub(super) fn measure(context: &Context<'_>) -> Result<ForkResults, EvaluateError> {
    let available = available();
    let largest = match context.scale {
        Scale::Quick => 8192 * MIB,
        Scale::Full => super::LARGEST,
    };
    let times = |(bytes, mappings): (u64, u64)| {
        context.show_step(&format!("forking {} in {mappings} mappings", size(bytes)));
        // Linux needs memory for the contents, and leaves some to others.
        let linux = bytes <= available / 2;
        ForkTimes::measure(bytes, mappings, rounds(context.scale, bytes), linux)
    };
    let sizes = SIZES.into_iter().filter(|bytes| *bytes <= largest).map(|bytes| (bytes, 1));
    let by_size = sizes.map(times).collect::<Result<_, _>>()?;
    let cut = MAPPINGS.into_iter().map(|mappings| (CUT, mappings));
    let by_mappings = cut.map(times).collect::<Result<_, _>>()?;
    Ok(ForkResults { by_size, by_mappings, available })
}

/// Rounds, fewer for larger parents.
fn rounds(scale: Scale, bytes: u64) -> usize {
    let most = match scale {
        Scale::Quick => 9,
        Scale::Full => 25,
    };
    ((4096 * MIB / bytes) as usize).clamp(3, most)
}

impl ForkTimes {
    /// Forks a parent of `bytes` in `mappings` mappings.
    pub(super) fn measure(bytes: u64, mappings: u64, rounds: usize, linux: bool) -> Result<Self, EvaluateError> {
        let linux = if linux { linux_times(bytes, mappings, rounds) } else { Vec::new() };
        let parent = Parent::<TableMachine<X86_64>>::without_contents(bytes)?;
        let range = parent.populate(VirtAddr::ZERO, bytes)?;
        parent.cut(range, mappings)?;
        let counts = ForkCounts::of_both(&parent, range)?;
        let (mut classic, mut shared) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            parent.set(ForkMode::Classic)?;
            classic.push(parent.time_fork()?);
            restore(&parent, range, ForkMode::Classic)?;
            parent.set(ForkMode::Shared)?;
            let mut samples = Vec::new();
            for _ in 0..SHARED_IN_A_ROUND {
                samples.push(parent.time_fork()?);
                restore(&parent, range, ForkMode::Shared)?;
            }
            shared.push(Stats::of(samples).median);
        }
        Ok(Self { bytes, mappings, classic, shared, linux, counts })
    }

    /// How many times as fast a fork is that shares tables.
    pub(super) fn gain(&self) -> Stats {
        Stats::of_ratios(&self.classic, &self.shared)
    }

    pub(super) fn counts_of(&self, mode: ForkMode) -> &ForkCounts {
        &self.counts[mode as usize]
    }
}

/// Makes the pages of the parent its own again, after its only child has ended.
///
/// A store to one page takes back all tables that were shared, since the parent has lent them.
fn restore(parent: &Parent<TableMachine<X86_64>>, range: PageRange, mode: ForkMode) -> Result<(), EvaluateError> {
    match mode {
        ForkMode::Classic => parent.store_to_all(range),
        ForkMode::Shared | ForkMode::Auto => parent.take_back(range),
    }
}

/// Linux's microseconds by round; empty if Linux refuses.
fn linux_times(bytes: u64, mappings: u64, rounds: usize) -> Vec<f64> {
    let Some(mut linux) = LinuxFork::try_new(bytes, mappings) else { return Vec::new() };
    let times: Option<Vec<f64>> = (0..rounds).map(|_| linux.time()).collect();
    times.unwrap_or_default()
}

impl ForkCounts {
    /// Counts a fork of a parent of `bytes` in one mapping in each way.
    pub(super) fn of_parent(bytes: u64) -> Result<[Self; 2], EvaluateError> {
        let parent = Parent::<TableMachine<X86_64>>::without_contents(bytes)?;
        let range = parent.populate(VirtAddr::ZERO, bytes)?;
        Self::of_both(&parent, range)
    }

    /// Counts a fork of `parent` in each way; afterwards all pages of `range` are its own.
    fn of_both(parent: &Parent<TableMachine<X86_64>>, range: PageRange) -> Result<[Self; 2], EvaluateError> {
        let mut counts = [Self::default(); 2];
        for (mode, counts) in ForkMode::BOTH.into_iter().zip(&mut counts) {
            parent.set(mode)?;
            *counts = Self::of(parent)?;
            restore(parent, range, mode)?;
        }
        Ok(counts)
    }

    /// Counts one fork.
    fn of(parent: &Parent<TableMachine<X86_64>>) -> Result<Self, EvaluateError> {
        let count = |counter| parent.mm.counter(counter);
        let counters = || [Counter::PwTableShared, Counter::PwForkEntries].map(count);
        let (records, before) = (fingerprints(&parent.mm), counters());
        let mut child = None;
        let entry_accesses = parent.mm.tlb().fx().count_accesses(|| child = Some(parent.mm.fork(&parent.space)));
        let child = child.map_or_else(|| Err(failed("no fork")), |child| child.map_err(failed))?;
        let after = counters();
        let differ = records.iter().zip(fingerprints(&parent.mm)).filter(|(before, after)| *before != after);
        let counts = Self {
            entry_accesses,
            records: differ.count() as u64,
            tables_shared: after[0] - before[0],
            entries_copied: after[1] - before[1],
        };
        parent.mm.end_space(&child);
        Ok(counts)
    }
}

/// A number for each frame that changes with the counts in its memmap record.
fn fingerprints(mm: &Mm<TableMachine<X86_64>>) -> Vec<u64> {
    let mut of = vec![0_u64; mm.tlb().frames().managed() as usize];
    let mut add = |pfn: Pfn, values: &[u64]| {
        let fingerprint = &mut of[pfn.index()];
        for value in values {
            // The multiplier of Knuth's linear congruential generator (MMIX).
            *fingerprint = fingerprint.wrapping_add(value + 1).wrapping_mul(0x5851_f42d_4c95_7f2d);
        }
    };
    mm.snapshot(&mut |record| match record {
        SnapshotRecord::Folio(folio) => {
            add(folio.pfn, &[1, folio.refs, folio.mapcount, folio.entire_mapcount, folio.pages_mapped]);
        }
        SnapshotRecord::Page(page) => add(page.pfn, &[2, page.mapcount, page.tail_refs]),
        SnapshotRecord::Pinned(pinned) => add(pinned.pfn, &[3, pinned.pins]),
        SnapshotRecord::Listed(listed) => add(listed.pfn, &[4, listed.list as u64]),
        SnapshotRecord::Table(table) => add(table.pfn, &[5, u64::from(table.level.raw()), table.shares]),
        SnapshotRecord::Deposit(deposit) => add(deposit.pfn, &[6, u64::from(deposit.holder.raw())]),
        SnapshotRecord::Deferred(deferred) => add(deferred.pfn, &[7]),
        SnapshotRecord::Held(_)
        | SnapshotRecord::SwapSlot(_)
        | SnapshotRecord::SwapRef(_)
        | SnapshotRecord::Space(_)
        | SnapshotRecord::Gauge(_) => {}
    });
    of
}

impl ForkResults {
    fn all(&self) -> impl Iterator<Item = &ForkTimes> {
        self.by_size.iter().chain(&self.by_mappings)
    }

    pub(super) fn figures(&self) -> Figures {
        let over = |times: &&ForkTimes| Stats::of(times.linux.clone()).median / Stats::of(times.shared.clone()).median;
        let measured = |times: &&ForkTimes, text: String| {
            if times.linux.is_empty() { "not measured".to_owned() } else { text }
        };
        let input = |times: &ForkTimes| format!("a parent of {} in {} mappings", size(times.bytes), times.mappings);
        let by_linux = self.all().filter(|times| !times.linux.is_empty()).map(|times| {
            let label = format!("fork, {LINUX}");
            Run::measured(label, input(times), "fork_us", Stats::of(times.linux.clone()))
        });
        let title = "Fork by size and mappings, distinct frames without contents (Linux: with)";
        let times = Grid::of(title, self.all())
            .text("parent", |times| size(times.bytes))
            .text("mappings", |times| times.mappings)
            .text("classic µs", |times| Stats::of(times.classic.clone()))
            .text("shared µs", |times| Stats::of(times.shared.clone()))
            .text("×", |times| format!("{:.0}", times.gain().median))
            .text("Linux µs", |times| measured(times, Stats::of(times.linux.clone()).text()))
            .text("Linux / shared", |times| measured(times, format!("{:.0}", over(times))))
            .with_runs(by_linux);
        let forks = self.all().flat_map(|times| {
            let took = [&times.classic, &times.shared].map(|samples| Stats::of(samples.clone()));
            ForkMode::BOTH.map(|mode| (times, mode, *times.counts_of(mode), took[mode as usize]))
        });
        let counts = Grid::of("What a fork touches, counted", forks)
            .text("parent", |(times, ..)| size(times.bytes))
            .text("mappings", |(times, ..)| times.mappings)
            .text("fork", |(_, mode, ..)| mode.name())
            .counted("accesses to entries", "entry_accesses", |(_, _, counts, _)| counts.entry_accesses)
            .counted("records changed", "records_changed", |(_, _, counts, _)| counts.records)
            .counted("pw_table_shared", "pw_table_shared", |(_, _, counts, _)| counts.tables_shared)
            .counted("pw_fork_entries", "pw_fork_entries", |(_, _, counts, _)| counts.entries_copied)
            .only_measured("fork_us", |(.., took)| *took)
            .figures(|(times, mode, ..)| [format!("fork, {}", mode.name()), input(times)]);
        let plot = Figures { plots: vec![self.plot()], ..Figures::default() };
        [times, counts, plot].into_iter().collect()
    }

    /// Fork time over size, beside Linux.
    fn plot(&self) -> Plot {
        let points = self.by_size.iter().flat_map(|times| {
            let ways = [("classic", &times.classic), ("shared", &times.shared), (LINUX, &times.linux)];
            let measured = ways.into_iter().filter(|(_, samples)| !samples.is_empty());
            measured.map(|(way, samples)| (way, times.bytes, Stats::of(samples.clone())))
        });
        let title = "Fork, by touched memory of the parent";
        Plot::of(title, "µs", PlotScale::Logarithmic, PlotAxis::Bytes, points)
    }
}
