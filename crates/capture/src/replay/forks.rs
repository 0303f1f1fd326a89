//! What forks took, and the memory of page tables when there was most of it.
//!
//! Key type: [`ForkReport`]. A `vfork` is no fork here: its child uses the parent's memory.
//!
//! Not guaranteed: that the peak of the tables is seen exactly. They are looked at after each fork
//! and before the end of each image, and a program that unmaps much may have had more between.

use super::process::Process;
use pagewright_arch::Isa;
use pagewright_lab::Lab;
use pagewright_mm::counters::Gauge;
use pagewright_sim::Picos;
use pagewright_types::{CpuId, PAGE_SIZE};

/// The forks of a replay, and its page tables.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct ForkReport {
    /// Number of forks.
    pub forks: u64,
    /// Time in forks, the sum over all CPUs, in modelled nanoseconds.
    pub total_ns: u64,
    /// The longest fork, in modelled nanoseconds.
    pub longest_ns: u64,
    /// The page tables when all processes together had most of them.
    pub most_tables: TableMemory,
}

/// The page tables of all processes at one moment, roots included.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct TableMemory {
    /// Number of processes.
    pub processes: u64,
    /// Bytes of all tables, a shared one once.
    pub all_bytes: u64,
    /// Bytes of those that one process reaches alone.
    pub private_bytes: u64,
    /// Bytes of the tables that the process with the most of them reaches.
    pub largest_bytes: u64,
    /// The same, with each table divided by the number of processes that reach it.
    pub largest_proportional_bytes: u64,
}

impl TableMemory {
    fn of<I: Isa>(lab: &Lab<I>, cpu: CpuId, all_bytes: u64, processes: &[Option<Process<I>>]) -> Self {
        let mut tables = Self { all_bytes, ..Self::default() };
        for process in processes.iter().flatten().filter(|process| !process.borrowed) {
            let Some(space) = &process.space else { continue };
            let bytes = lab.on(cpu, |mm| mm.table_bytes(space));
            tables.processes += 1;
            tables.private_bytes += bytes.private;
            if bytes.private + bytes.shared > tables.largest_bytes {
                tables.largest_bytes = bytes.private + bytes.shared;
                tables.largest_proportional_bytes = bytes.proportional;
            }
        }
        tables
    }
}

/// Collects a [`ForkReport`].
#[derive(Default)]
pub(super) struct ForkLog {
    forks: u64,
    total: u64,
    longest: u64,
    most_tables: TableMemory,
}

impl ForkLog {
    /// Notes a fork that took from `began` to `ended`.
    pub(super) fn note_fork(&mut self, began: Picos, ended: Picos) {
        let took = ended.raw().saturating_sub(began.raw());
        self.forks += 1;
        self.total += took;
        self.longest = self.longest.max(took);
    }

    /// Looks at the tables of all processes, if there are more than ever before.
    pub(super) fn note_tables<I: Isa>(&mut self, lab: &Lab<I>, cpu: CpuId, processes: &[Option<Process<I>>]) {
        let all = lab.mm().gauge(Gauge::PageTablePages) * PAGE_SIZE;
        if all > self.most_tables.all_bytes {
            self.most_tables = TableMemory::of(lab, cpu, all, processes);
        }
    }

    /// The report at the end of the replay.
    pub(super) fn report(self) -> ForkReport {
        let Self { forks, total, longest, most_tables } = self;
        ForkReport { forks, total_ns: total / 1000, longest_ns: longest / 1000, most_tables }
    }
}
