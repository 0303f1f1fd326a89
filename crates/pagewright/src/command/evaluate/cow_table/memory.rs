//! What the page tables of a child take: after the fork, and after its first stores.
//!
//! Key type: [`TableMemory`], the series' table for a parent of 1 GB. The process has the layout of
//! a Linux program: its data in the lower half, its stack at the top of user memory, and below the
//! stack a page for the thread's TID and the memory that is forked.
//!
//! Not guaranteed: a layout with random addresses, where stack and TID may be under other tables.

use super::super::{EvaluateError, Figures, Grid};
use super::pages::PageMemory;
use super::parent::{ForkMode, Parent, ProgramPages, failed};
use pagewright_arch::Isa;
use pagewright_host::{Arc, TableMachine};
use pagewright_mm::Space;
use pagewright_types::{Gauge, IsaKind, PAGE_SIZE, VirtAddr};

/// The tables of a child at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    pub(super) name: &'static str,
    /// Bytes that the child alone reaches, that other spaces reach, too, and the child's part.
    pub(super) private: u64,
    pub(super) shared: u64,
    pub(super) proportional: u64,
    /// Bytes of the page tables of the machine.
    pub(super) total: u64,
    /// `VmRSS` and `VmPTE`, as the child reads them.
    pub(super) rss: u64,
    pub(super) vm_pte: u64,
}

/// The tables of a child of one way to fork.
pub(super) struct TableMemory {
    pub(super) isa: IsaKind,
    pub(super) bytes: u64,
    pub(super) mode: ForkMode,
    /// The moments, in order; the first is before the first store.
    pub(super) moments: Vec<Moment>,
    /// The pages of both at the last moment.
    pub(super) pages: PageMemory,
}

/// Forks a parent of `bytes` in each way.
pub(super) fn measure<I: Isa>(bytes: u64) -> Result<Vec<TableMemory>, EvaluateError> {
    let parent = Parent::<TableMachine<I>>::without_contents(bytes)?;
    let ProgramPages { tid, stack, data } = parent.populate_program()?;
    let memory = parent.populate(VirtAddr::ZERO, bytes)?;
    let stores =
        [("its TID", tid.start()), ("its stack", VirtAddr::new(stack.end().raw() - 1)), ("its data", data.start())];
    let all = [memory, data, stack, tid];
    let run = |mode| {
        parent.set(mode)?;
        let child = parent.mm.fork(&parent.space).map_err(failed)?;
        let mut moments = vec![moment(&parent, &child, "after the fork")];
        for (name, va) in stores {
            parent.store(&child, va)?;
            moments.push(moment(&parent, &child, name));
        }
        let pages = PageMemory::of(&parent, &child, (mode, bytes));
        parent.mm.end_space(&child);
        all.iter().try_for_each(|range| parent.store_to_all(*range))?;
        Ok(TableMemory { isa: I::KIND, bytes, mode, moments, pages })
    };
    ForkMode::BOTH.into_iter().map(run).collect()
}

fn moment<I: Isa>(parent: &Parent<TableMachine<I>>, child: &Arc<Space<TableMachine<I>>>, name: &'static str) -> Moment {
    let bytes = parent.mm.table_bytes(child);
    Moment {
        name,
        private: bytes.private,
        shared: bytes.shared,
        proportional: bytes.proportional,
        total: parent.mm.gauge(Gauge::PageTablePages) * PAGE_SIZE,
        rss: child.rss().bytes(),
        vm_pte: child.table().bytes(),
    }
}

/// The moments of both ways, on one instruction set.
pub(super) fn figures(of: &[TableMemory]) -> Figures {
    let label = |memory: &TableMemory, moment: &Moment| {
        format!("{}, {}, child's tables, {}", memory.isa.name(), memory.mode.name(), moment.name)
    };
    let (isa, bytes) = of.first().map_or(("", 0), |memory| (memory.isa.name(), memory.bytes));
    let moments = of.iter().flat_map(|memory| memory.moments.iter().map(move |moment| (memory, moment)));
    Grid::of(format!("{isa}, page tables of a child of {} MB", bytes >> 20), moments)
        .text("fork", |(memory, _)| memory.mode.name())
        .text("child has stored to", |(_, moment)| moment.name)
        .kib("private kB", "private_table_bytes", |(_, moment)| moment.private)
        .kib("shared", "shared_table_bytes", |(_, moment)| moment.shared)
        .kib("proportional", "proportional_table_bytes", |(_, moment)| moment.proportional)
        .kib("all tables", "all_table_bytes", |(_, moment)| moment.total)
        .kib("VmRSS", "vm_rss_bytes", |(_, moment)| moment.rss)
        .kib("VmPTE", "vm_pte_bytes", |(_, moment)| moment.vm_pte)
        .figures(|(memory, moment)| [label(memory, moment), format!("a parent of {} MB", memory.bytes >> 20)])
}
