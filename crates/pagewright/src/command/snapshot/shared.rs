//! What a fork with shared page tables copies, counted on our own memory manager.
//!
//! Key type: [`SharedFork`]. A process of the memory manager gets the mappings whose entries Linux
//! copies, at the same addresses, with a page below each last-level table that the process has. It
//! forks with `cow_page_tables=always`. How many pages are below a table makes no difference.
//!
//! Not guaranteed: the tables of mappings whose entries Linux's fork does not copy.

use super::super::evaluate::{EvaluateError, ForkMode, Parent};
use super::counts::TableCounts;
use super::process::{BLOCK, ProcessMemory};
use pagewright_arch::X86_64;
use pagewright_host::TableMachine;
use pagewright_mm::MapFlags;
use pagewright_types::{Counter, FrameRange, Pfn, VirtAddr};
use serde::Serialize;

/// Frames beside those of pages and tables.
const SPARE_FRAMES: u64 = 8192;

/// What the fork copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct SharedFork {
    /// Pointers to tables that parent and child then share (`pw_table_shared`).
    pub(super) pointers: u64,
    /// Entries that were copied one by one (`pw_fork_entries`).
    pub(super) entries: u64,
    /// Bytes of tables that only the child has, its root among them.
    pub(super) child_bytes: u64,
    /// The same after a store of the child to one page.
    pub(super) child_bytes_after_store: u64,
}

impl SharedFork {
    /// Rebuilds the mappings of a process and forks it.
    ///
    /// # Errors
    /// [`EvaluateError`], if the host has too little memory or a mapping cannot be made.
    pub(super) fn count(process: &ProcessMemory) -> Result<Self, EvaluateError> {
        let needed = TableCounts::of(process.copied());
        let mappings = process.mappings.len() as u64;
        let frames = (needed.pte + mappings + 2 * needed.tables() + SPARE_FRAMES) as u32;
        let machine = TableMachine::<X86_64>::try_new(frames)?;
        let parent = Parent::on(machine, FrameRange::new(Pfn::new(0), Pfn::new(frames)))?;
        let mut stored = None;
        for mapping in process.copied() {
            parent.map(VirtAddr::new(mapping.start), mapping.bytes(), MapFlags::empty())?;
            for block in &mapping.blocks {
                let va = VirtAddr::new((block.index * BLOCK).max(mapping.start));
                parent.store(&parent.space, va)?;
                stored = Some(va);
            }
        }
        parent.set(ForkMode::Shared)?;
        let count = |counter| parent.mm.counter(counter);
        let counters = || [Counter::PwTableShared, Counter::PwForkEntries].map(count);
        let before = counters();
        let (child, _) = parent.fork()?;
        let after = counters();
        let child_bytes = parent.mm.table_bytes(&child).private;
        if let Some(va) = stored {
            parent.store(&child, va)?;
        }
        let child_bytes_after_store = parent.mm.table_bytes(&child).private;
        parent.mm.end_space(&child);
        Ok(Self { pointers: after[0] - before[0], entries: after[1] - before[1], child_bytes, child_bytes_after_store })
    }
}
