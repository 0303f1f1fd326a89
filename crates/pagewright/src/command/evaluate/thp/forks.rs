//! Forks of memory in base pages and in huge pages.
//!
//! Key type: [`ForkRow`]. That a fork takes the same time whatever the size is claimed for base
//! pages, whose tables are shared. Tables with huge leaves are copied, an entry for each 2 MiB.
//!
//! Not guaranteed: the rest of fork(2), and contents of pages.

use super::super::parent::{ForkMode, Parent, failed};
use super::super::plot::size;
use super::super::rounds::in_turns;
use super::super::{Context, EvaluateError, Figures, Grid, Run, Scale, Stats};
use super::process::{Machine, enable};
use super::programs::WORDS;
use pagewright_mm::{Advice, MapFlags};
use pagewright_types::{Counter, Order, PageRange, VirtAddr};

const SIZES: [u64; 2] = [64 << 20, 512 << 20];

/// Forks of one parent.
pub(super) struct ForkRow {
    pub(super) word: &'static str,
    pub(super) mode: ForkMode,
    pub(super) bytes: u64,
    pub(super) micros: Vec<f64>,
    /// `pw_fork_entries` and `pw_table_shared` of one fork.
    pub(super) entries: u64,
    pub(super) shared: u64,
}

/// Measures forks by value of `transparent_hugepage.enabled`; the mapping is advised.
pub(super) fn measure(context: &Context<'_>) -> Result<Vec<ForkRow>, EvaluateError> {
    let rounds = if context.scale == Scale::Full { 25 } else { 5 };
    let mut rows = Vec::new();
    for word in WORDS {
        for bytes in SIZES {
            context.show_step(&format!("forks of {} under {word}", size(bytes)));
            let parent = Parent::without_contents(bytes)?;
            let range = filled(&parent, word, bytes)?;
            for mode in ForkMode::BOTH {
                rows.push(ForkRow::measure(&parent, range, (word, mode), rounds)?);
            }
        }
    }
    Ok(rows)
}

/// Maps memory that asks for huge pages, and stores to all of it.
fn filled(parent: &Parent<Machine>, word: &str, bytes: u64) -> Result<PageRange, EvaluateError> {
    enable(parent, word)?;
    let range = parent.map(VirtAddr::ZERO, bytes, MapFlags::empty())?;
    parent.mm.madvise(&parent.space, range.start(), bytes, Advice::HugePage).map_err(failed)?;
    parent.store_to_all(range)?;
    Ok(range)
}

impl ForkRow {
    fn measure(
        parent: &Parent<Machine>,
        range: PageRange,
        (word, mode): (&'static str, ForkMode),
        rounds: usize,
    ) -> Result<Self, EvaluateError> {
        parent.set(mode)?;
        let counts = || [Counter::PwForkEntries, Counter::PwTableShared].map(|counter| parent.mm.counter(counter));
        let [forks] = in_turns(rounds, |_| {
            let before = counts();
            let took = parent.time_fork()?;
            let after = counts();
            restore(parent, range, (word, mode))?;
            Ok((took, [after[0] - before[0], after[1] - before[1]]))
        })?;
        // Each fork copies and shares as much.
        let [entries, shared] = forks.last().map_or([0; 2], |(_, counts)| *counts);
        let micros = forks.into_iter().map(|(took, _)| took).collect();
        Ok(Self { word, mode, bytes: range.len(), micros, entries, shared })
    }

    fn stats(&self) -> Stats {
        Stats::of(self.micros.clone())
    }
}

/// Makes the pages of the parent its own again, after its only child has ended.
///
/// With as few stores as that takes, so that the next fork finds the caches as warm as it can: one
/// to take back all tables that were shared, one for each huge page, or one for each page.
fn restore(parent: &Parent<Machine>, range: PageRange, of: (&str, ForkMode)) -> Result<(), EvaluateError> {
    match of {
        ("never", ForkMode::Shared | ForkMode::Auto) => parent.take_back(range),
        ("never", ForkMode::Classic) => parent.store_to_all(range),
        _ => {
            let mut huge = range.iter().step_by(Order::PMD.frames() as usize);
            huge.try_for_each(|va| parent.store(&parent.space, va))
        }
    }
}

/// The forks of the small and the large parent side by side.
pub(super) fn figures(rows: &[ForkRow]) -> Figures {
    let small = |row: &ForkRow| {
        let of = |other: &&ForkRow| (other.word, other.mode, other.bytes) == (row.word, row.mode, SIZES[0]);
        rows.iter().find(of).map(ForkRow::stats)
    };
    let growth = |row: &ForkRow| small(row).map(|small| format!("{:.2}", row.stats().median / small.median));
    let [small_size, large_size] = SIZES.map(|bytes| format!("µs of {}", size(bytes)));
    let runs = rows.iter().map(|row| {
        let input = format!("a parent of {}, enabled={}", size(row.bytes), row.word);
        Run::measured(format!("fork, {}", row.mode.name()), input, "fork_us", row.stats())
            .with_counters([(Counter::PwForkEntries.name(), row.entries), (Counter::PwTableShared.name(), row.shared)])
    });
    let title = "Forks by transparent_hugepage.enabled, measured; entries and tables of the large one, counted";
    Grid::of(title, rows.iter().filter(|row| row.bytes == SIZES[1]))
        .text("enabled", |row| row.word)
        .text("page tables", |row| row.mode.name())
        .text(small_size, |row| small(row))
        .text(large_size, |row| row.stats())
        .text("×", |row| growth(row))
        .text("pw_fork_entries", |row| row.entries)
        .text("pw_table_shared", |row| row.shared)
        .with_runs(runs)
}

/// The huge leaves of the large parent.
pub(super) const HUGE_LEAVES: u64 = SIZES[1] / Order::PMD.bytes();
