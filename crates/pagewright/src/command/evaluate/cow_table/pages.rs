//! What the pages of a parent and its child take, per process and in total, after its first stores.
//!
//! Key type: [`PageMemory`]. The figures are those of `/proc/PID/smaps_rollup`, and the total is
//! the machine's own count of mapped pages. A page in a table that both share is mapped once, and
//! still shared by both.
//!
//! Not guaranteed: equal parts of a page that several entries of one process map.

use super::super::{Figures, Grid, Run};
use super::parent::{ForkMode, Parent};
use pagewright_arch::Isa;
use pagewright_host::{Arc, TableMachine};
use pagewright_mm::Space;
use pagewright_types::{Gauge, IsaKind, PAGE_SIZE};

/// The pages of one process, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProcessPages {
    pub(super) private: u64,
    pub(super) shared: u64,
    pub(super) proportional: u64,
}

/// The pages of a parent and its child.
#[derive(Clone, Copy)]
pub(super) struct PageMemory {
    isa: IsaKind,
    bytes: u64,
    mode: ForkMode,
    /// Of the parent, and of the child.
    pub(super) processes: [ProcessPages; 2],
    /// All pages that processes map, each once.
    pub(super) total: u64,
}

impl PageMemory {
    /// Reads the pages of a parent of `bytes`, and of the child of a fork of this kind.
    pub(super) fn of<I: Isa>(
        parent: &Parent<TableMachine<I>>,
        child: &Arc<Space<TableMachine<I>>>,
        (mode, bytes): (ForkMode, u64),
    ) -> Self {
        let pages = |space| {
            let stats = parent.mm.mem_size_stats(space);
            ProcessPages {
                private: stats.private_clean + stats.private_dirty,
                shared: stats.shared_clean + stats.shared_dirty,
                proportional: stats.pss.bytes(),
            }
        };
        let processes = [pages(&parent.space), pages(child)];
        Self { isa: I::KIND, bytes, mode, processes, total: parent.mm.gauge(Gauge::AnonPages) * PAGE_SIZE }
    }
}

/// The pages after each way to fork, on one instruction set.
pub(super) fn figures(of: &[PageMemory]) -> Figures {
    let rows = of.iter().flat_map(|memory| {
        let [parent, child] = memory.processes.map(|pages| [pages.private, pages.shared, pages.proportional].map(Some));
        let all = [None, None, Some(memory.total)];
        [("the parent", parent), ("the child", child), ("mapped in total", all)]
            .map(|(name, bytes)| (memory.mode.name(), name, bytes))
    });
    let (isa, bytes) = of.first().map_or(("", 0), |memory| (memory.isa.name(), memory.bytes));
    Grid::of(format!("{isa}, pages of a parent of {} MB and its child, after those stores", bytes >> 20), rows)
        .texts(["fork", "whose"], |(mode, name, _)| [*mode, *name])
        .texts(["private kB", "shared", "proportional"], |(.., bytes)| bytes.map(|bytes| Some(bytes? >> 10)))
        .with_runs(of.iter().map(PageMemory::run))
}

impl PageMemory {
    fn run(&self) -> Run {
        let Self { processes: [parent, child], total, .. } = *self;
        let label = format!("{}, {}, pages of parent and child", self.isa.name(), self.mode.name());
        Run::of(label, format!("a parent of {} MB", self.bytes >> 20)).with_counters([
            ("parent_private_bytes", parent.private),
            ("parent_shared_bytes", parent.shared),
            ("parent_proportional_bytes", parent.proportional),
            ("child_private_bytes", child.private),
            ("child_shared_bytes", child.shared),
            ("child_proportional_bytes", child.proportional),
            ("mapped_bytes", total),
        ])
    }
}
