//! The tables that a space reaches: its own, and those that it shares.

use super::user_entries;
use crate::below;
use crate::tables::Tables;
use core::ops::ControlFlow;
use pagewright_arch::{Entry, Isa, PteSlot};
use pagewright_sync::Platform;
use pagewright_types::{Level, Pfn, VirtAddr};

/// A table, and where a space reaches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReachedTable {
    table: Pfn,
    level: Level,
    base: VirtAddr,
    shared: bool,
}

impl ReachedTable {
    /// Whether other spaces reach the table, too.
    pub fn is_shared(self) -> bool {
        self.shared
    }

    /// The address after the last one under the table.
    fn end(self) -> VirtAddr {
        self.base.add(Level::ENTRIES as u64 * self.level.span())
    }

    /// Whether a walk from the root down visits `self` after `other`.
    fn is_after(self, other: Self) -> bool {
        (self.base, other.level) > (other.base, self.level)
    }
}

impl<P: Platform> Tables<'_, P> {
    /// Visits the tables that the space reaches, its root included, until `visit` breaks.
    ///
    /// A table comes before those below it, and these come by address. Begins after `after`. Exact
    /// while no CPU edits; interrupts are disabled meanwhile.
    pub fn reached_tables(
        &self,
        after: Option<ReachedTable>,
        mut visit: impl FnMut(ReachedTable) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        if self.tree.is_closed() {
            return ControlFlow::Continue(());
        }
        let root = ReachedTable { table: self.tree.root(), level: Level::PGD, base: VirtAddr::ZERO, shared: false };
        self.tlb.walk_unheld(|| self.reached_below(root, after, &mut visit))
    }

    /// Visits a table and those below it.
    fn reached_below(
        &self,
        reached: ReachedTable,
        after: Option<ReachedTable>,
        visit: &mut impl FnMut(ReachedTable) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        if after.is_some_and(|after| reached.end() <= after.base) {
            return ControlFlow::Continue(());
        }
        if after.is_none_or(|after| reached.is_after(after)) {
            visit(reached)?;
        }
        let ReachedTable { table, level, base, shared } = reached;
        if level == Level::PTE {
            return ControlFlow::Continue(());
        }
        for index in 0..user_entries::<P>(level) {
            let slot = PteSlot { table, index: index as u16 };
            if let Entry::Table(child) = P::Isa::decode(level, self.tlb.fx().load(slot)) {
                let shared = shared || self.tlb.frames().table(child.pfn).shares() > 1;
                let base = base.add(index as u64 * level.span());
                self.reached_below(ReachedTable { table: child.pfn, level: below(level), base, shared }, after, visit)?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Whether the space reaches a table where another space does.
    ///
    /// The answer is of a moment during the call. Spaces that share a table reach it at the same
    /// addresses: a table that moves is its space's own.
    pub fn reaches(&self, reached: ReachedTable) -> bool {
        if self.tree.is_closed() {
            return false;
        }
        self.tlb.walk_unheld(|| {
            let (mut table, mut level) = (self.tree.root(), Level::PGD);
            while level > reached.level {
                let slot = PteSlot { table, index: level.index_of(reached.base) as u16 };
                match P::Isa::decode(level, self.tlb.fx().load(slot)) {
                    Entry::Table(next) => (table, level) = (next.pfn, below(level)),
                    Entry::Leaf(_) | Entry::Empty | Entry::Soft(_) => return false,
                }
            }
            table == reached.table
        })
    }
}
