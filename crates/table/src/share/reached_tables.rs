//! The tables that a space reaches: its own, and those that it shares.

use super::user_entries;
use crate::below;
use crate::tables::Tables;
use core::ops::ControlFlow;
use pagewright_arch::{Entry, Isa, PteSlot};
use pagewright_sync::Platform;
use pagewright_types::{Level, PageRange, Pfn, VirtAddr};

/// A table that a space reaches.
#[derive(Clone, Copy)]
struct ReachedTable {
    table: Pfn,
    level: Level,
    /// The addresses under it.
    under: PageRange,
    /// Whether other spaces reach it, too.
    shared: bool,
}

/// The addresses under a table of `level` whose first one is `base`.
fn under(base: VirtAddr, level: Level) -> PageRange {
    PageRange::new(base, base.add(level.table_span()))
}

/// Whether a walk from the root down visits the table over `this` after the one over `other`.
fn is_after(this: PageRange, other: PageRange) -> bool {
    (this.start(), other.len()) > (other.start(), this.len())
}

impl<P: Platform> Tables<'_, P> {
    /// Visits the tables that the space reaches, its root included, until `visit` breaks.
    ///
    /// `visit` gets a table, the addresses under it, and whether other spaces reach it, too. A
    /// table comes before those below it, and these come by address. Begins after the table over
    /// `after`. Exact while no CPU edits; interrupts are disabled meanwhile.
    pub fn reached_tables(
        &self,
        after: Option<PageRange>,
        mut visit: impl FnMut(Pfn, PageRange, bool) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        if self.tree.is_closed() {
            return ControlFlow::Continue(());
        }
        let under = under(VirtAddr::ZERO, Level::PGD);
        let root = ReachedTable { table: self.tree.root(), level: Level::PGD, under, shared: false };
        self.tlb.walk_unheld(|| self.reached_below(root, after, &mut visit))
    }

    /// Visits a table and those below it.
    fn reached_below(
        &self,
        reached: ReachedTable,
        after: Option<PageRange>,
        visit: &mut impl FnMut(Pfn, PageRange, bool) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let ReachedTable { table, level, under: range, shared } = reached;
        if after.is_some_and(|after| range.end() <= after.start()) {
            return ControlFlow::Continue(());
        }
        if after.is_none_or(|after| is_after(range, after)) {
            visit(table, range, shared)?;
        }
        if level == Level::PTE {
            return ControlFlow::Continue(());
        }
        for index in 0..user_entries::<P>(level) {
            let slot = PteSlot { table, index: index as u16 };
            if let Entry::Table(child) = P::Isa::decode(level, self.tlb.fx().load(slot)) {
                let shared = shared || self.tlb.frames().table(child.pfn).shares() > 1;
                let under = under(range.start().add(index as u64 * level.span()), below(level));
                self.reached_below(
                    ReachedTable { table: child.pfn, level: below(level), under, shared },
                    after,
                    visit,
                )?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Whether the space reaches a table where another space does, over the addresses `under`.
    ///
    /// The answer is of a moment during the call. Spaces that share a table reach it at the same
    /// addresses: a table that moves is its space's own.
    pub fn reaches(&self, reached: Pfn, under: PageRange) -> bool {
        if self.tree.is_closed() {
            return false;
        }
        self.tlb.walk_unheld(|| {
            let (mut table, mut level) = (self.tree.root(), Level::PGD);
            while level.table_span() > under.len() {
                let slot = PteSlot { table, index: level.index_of(under.start()) as u16 };
                match P::Isa::decode(level, self.tlb.fx().load(slot)) {
                    Entry::Table(next) => (table, level) = (next.pfn, below(level)),
                    Entry::Leaf(_) | Entry::Empty | Entry::Soft(_) => return false,
                }
            }
            table == reached
        })
    }
}
