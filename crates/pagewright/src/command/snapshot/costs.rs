//! What a fork costs on this computer by entry, table and mapping, measured by forks of our own.
//!
//! Key type: [`ForkCosts`]. Caches make an entry cost more in a large process than in a small one.
//! So the process that is measured has as many entries below each table as the one that is
//! predicted, and as many tables as memory permits.
//!
//! ```text
//!   a page, nothing else                          ─▶  the base, with the code and heap of this process
//!   one page below each table                     ─▶  a table with its first entry
//!   as many pages as in the predicted process     ─▶  an entry
//!   512 mappings of a page; of a file             ─▶  a mapping
//! ```
//!
//! Times are the CPU time of the thread that forks, and medians of several forks. Before each, the
//! process stores to as much other memory as the predicted one has, up to 64 MiB: a program that
//! works between its forks does not find its page tables in the caches either.
//!
//! Not guaranteed: the same costs in another control group, or while other programs use the caches.

use super::super::evaluate::Stats;
use super::super::linux_fork::{LinuxFork, available};
use super::SnapshotError;
use super::counts::{ForkedCounts, copied_entries_by_table};
use super::process::{BLOCK_PAGES, PAGE, ProcessMemory};
use serde::Serialize;
use std::process;

/// Mappings whose copies are measured.
const MAPPINGS: u64 = 512;
/// Huge pages whose copies are measured.
const HUGE_LEAVES: u64 = 32;
/// The least entries of the process that is measured.
const LEAST_ENTRIES: u64 = 4096;
/// The least entries below a table while entries are measured.
const LEAST_BELOW_TABLE: u64 = 16;
/// Forks of each process: fewer for larger ones.
const FORKS: std::ops::RangeInclusive<u64> = 5..=31;
/// Entries that all forks of a process copy together, if it is not forked the fewest times.
const ALL_ENTRIES: u64 = 1 << 21;

/// The costs of a fork in nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ForkCosts {
    /// All that does not depend on memory.
    pub(super) base_ns: f64,
    /// An entry of a last-level table that maps a page.
    pub(super) entry_ns: f64,
    /// A table, with a look at its 512 entries.
    pub(super) table_ns: f64,
    /// A mapping whose entries are copied.
    pub(super) copied_mapping_ns: f64,
    /// A mapping whose entries are not copied.
    pub(super) other_mapping_ns: f64,
    /// An entry that maps 2 MiB; `None` if the process has none, or Linux gave none here.
    pub(super) huge_leaf_ns: Option<f64>,
    /// Entries and last-level tables of the process whose entries were measured.
    pub(super) entries: u64,
    pub(super) tables: u64,
    /// The forks of that process, in microseconds.
    pub(super) fork_us: Stats,
}

/// Forks a process of this computer after stores to `resident` bytes; returns the microseconds.
fn forks(fork: Option<LinuxFork>, entries: u64, resident: u64) -> Result<Stats, SnapshotError> {
    let refused = || SnapshotError::Calibration { reason: "Linux refuses a fork or its memory".to_owned() };
    let mut fork = fork.and_then(|fork| fork.after_stores(resident)).ok_or_else(refused)?;
    let rounds = (ALL_ENTRIES / entries.max(1)).clamp(*FORKS.start(), *FORKS.end());
    let times: Option<Vec<f64>> = (0..rounds).map(|_| fork.time()).collect();
    times.map(Stats::of).ok_or_else(refused)
}

impl ForkCosts {
    /// Measures the costs for a process.
    ///
    /// # Errors
    /// [`SnapshotError::Calibration`], if Linux refuses a fork; those of a read of this process.
    pub(super) fn measure(process: &ProcessMemory, show: impl Fn(&str)) -> Result<Self, SnapshotError> {
        let forks = |fork, entries| forks(fork, entries, process.vm_rss);
        let by_table = replica(&copied_entries_by_table(process), available() / 4 / PAGE);
        let (entries, tables) = (by_table.iter().sum::<u64>(), by_table.len() as u64);
        show("forking a process without much memory");
        let least = forks(LinuxFork::try_files(0), 0)?;
        show(&format!("forking {tables} page tables with an entry each"));
        let one_each = forks(LinuxFork::try_tables(by_table.iter().map(|_| 1)), tables)?;
        show(&format!("forking {entries} entries"));
        let full = forks(LinuxFork::try_tables(by_table.iter().copied()), entries)?;
        let ns = |time: &Stats, than: &Stats, count: u64| (time.median - than.median) * 1e3 / count.max(1) as f64;
        let entry_ns = ns(&full, &one_each, entries - tables).max(0.0);
        // Tables of the levels above are allocated, too.
        let all_tables = tables + tables.div_ceil(BLOCK_PAGES);
        let table_ns = (ns(&one_each, &least, all_tables) - entry_ns * tables as f64 / all_tables as f64).max(0.0);
        show(&format!("forking {MAPPINGS} mappings"));
        let mapped = forks(LinuxFork::try_new(MAPPINGS * PAGE, MAPPINGS), MAPPINGS)?;
        let files = forks(LinuxFork::try_files(MAPPINGS as usize), 0)?;
        let huge_leaf_ns = match process.copied().any(|mapping| mapping.huge_leaves > 0) {
            true => huge_leaf(&least, process.vm_rss, &show)?,
            false => None,
        };
        let mut costs = Self {
            base_ns: 0.0,
            entry_ns,
            table_ns,
            copied_mapping_ns: (ns(&mapped, &least, MAPPINGS) - entry_ns).max(0.0),
            other_mapping_ns: ns(&files, &least, MAPPINGS).max(0.0),
            huge_leaf_ns,
            entries,
            tables,
            fork_us: full,
        };
        show("reading the memory of this process");
        let own = ForkedCounts::of(&ProcessMemory::read(process::id() as i32, |_| ())?);
        costs.base_ns = (least.median * 1e3 - costs.of(&own).total_ns()).max(0.0);
        Ok(costs)
    }

    /// The cost of a fork that copies so much.
    pub(super) fn of(&self, counts: &ForkedCounts) -> ForkTime {
        ForkTime {
            base_ns: self.base_ns,
            entries_ns: self.entry_ns * counts.entries as f64,
            tables_ns: self.table_ns * counts.tables.tables() as f64,
            // A table is deposited for each huge page, and counted as one.
            huge_leaves_ns: self.huge_leaf_ns.map_or(0.0, |ns| ns - self.table_ns) * counts.huge_leaves as f64,
            mappings_ns: self.mappings_ns(counts),
        }
    }

    /// The model of a fork that shares tables and copies `pointers` to them.
    ///
    /// A pointer costs what an entry costs, and mappings what they cost otherwise.
    pub(super) fn of_shared(&self, counts: &ForkedCounts, pointers: u64, tables: u64) -> ForkTime {
        ForkTime {
            base_ns: self.base_ns,
            entries_ns: self.entry_ns * pointers as f64,
            tables_ns: self.table_ns * tables as f64,
            huge_leaves_ns: 0.0,
            mappings_ns: self.mappings_ns(counts),
        }
    }

    fn mappings_ns(&self, counts: &ForkedCounts) -> f64 {
        self.copied_mapping_ns * counts.copied_mappings as f64 + self.other_mapping_ns * counts.other_mappings as f64
    }
}

/// Nanoseconds of a huge leaf; `None` if Linux gives no huge pages.
fn huge_leaf(least: &Stats, resident: u64, show: &impl Fn(&str)) -> Result<Option<f64>, SnapshotError> {
    show(&format!("forking {HUGE_LEAVES} huge pages"));
    let fork = LinuxFork::try_huge(HUGE_LEAVES);
    let own = ProcessMemory::read(process::id() as i32, |_| ())?;
    let leaves: u64 = own.mappings.iter().map(|mapping| mapping.huge_leaves).sum();
    if leaves < HUGE_LEAVES {
        return Ok(None);
    }
    // A fork splits no huge page, and the stores after it find the child gone.
    let time = forks(fork, HUGE_LEAVES, resident)?;
    Ok(Some((time.median - least.median) * 1e3 / HUGE_LEAVES as f64))
}

/// The time of a fork by what it does.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct ForkTime {
    pub(super) base_ns: f64,
    pub(super) entries_ns: f64,
    pub(super) tables_ns: f64,
    /// Beside what the deposited tables cost.
    pub(super) huge_leaves_ns: f64,
    pub(super) mappings_ns: f64,
}

impl ForkTime {
    pub(super) fn total_ns(&self) -> f64 {
        self.base_ns + self.entries_ns + self.tables_ns + self.huge_leaves_ns + self.mappings_ns
    }
}

/// The entries by table of a process to measure, with at most so many pages.
///
/// It is the given process if that is neither too small nor too large. Tables of a larger one are
/// left out evenly.
fn replica(entries_by_table: &[u64], most: u64) -> Vec<u64> {
    let bounded = |entries: u64| entries.clamp(LEAST_BELOW_TABLE, BLOCK_PAGES);
    let all: Vec<u64> = entries_by_table.iter().map(|entries| bounded(*entries)).collect();
    let all = if all.is_empty() { vec![BLOCK_PAGES] } else { all };
    let sum: u64 = all.iter().sum();
    let one_in = sum.div_ceil(most.max(LEAST_ENTRIES)).max(1) as usize;
    let repeats = LEAST_ENTRIES.div_ceil(sum).max(1) as usize;
    let len = all.len() * repeats;
    all.into_iter().cycle().take(len).step_by(one_in).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_has_the_tables_of_the_process_within_its_bounds() {
        assert_eq!(replica(&[512; 20], 1 << 20), [512; 20], "the process itself");
        let sparse = replica(&[1; 2000], 1 << 20);
        assert_eq!((sparse.len(), sparse[0]), (2000, LEAST_BELOW_TABLE), "an entry can be told from a table");
        assert_eq!(replica(&[512; 400], 512 * 100).len(), 100, "one table in four");
        assert!(replica(&[30], 1 << 20).iter().sum::<u64>() >= LEAST_ENTRIES, "small processes are repeated");
        assert!(!replica(&[], 0).is_empty());
    }

    #[test]
    fn the_time_of_a_fork_is_the_sum_of_what_it_copies() {
        let costs = ForkCosts {
            base_ns: 1000.0,
            entry_ns: 10.0,
            table_ns: 100.0,
            copied_mapping_ns: 50.0,
            other_mapping_ns: 20.0,
            huge_leaf_ns: Some(150.0),
            entries: 0,
            tables: 0,
            fork_us: Stats::of(Vec::new()),
        };
        let tables = super::super::counts::TableCounts { pte: 5, pmd: 2, pud: 1, root_entries: 1 };
        let counts = ForkedCounts { entries: 7, huge_leaves: 2, tables, copied_mappings: 3, other_mappings: 4 };
        let time = costs.of(&counts);
        assert_eq!(
            (time.entries_ns, time.tables_ns, time.huge_leaves_ns, time.mappings_ns),
            (70.0, 800.0, 100.0, 230.0)
        );
        assert_eq!(time.total_ns(), 2200.0);
        let shared = costs.of_shared(&counts, 2, 1);
        assert_eq!(shared.total_ns(), 1000.0 + 20.0 + 100.0 + 230.0);
        let unknown = ForkCosts { huge_leaf_ns: None, ..costs };
        assert_eq!(unknown.of(&counts).huge_leaves_ns, 0.0, "only what its table costs");
    }
}
