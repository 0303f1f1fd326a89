//! Reaching a table below a pointer that other spaces share.
//!
//! ```text
//!   begin a counted walk, interrupts closed
//!     descend from the root, and note each pointer
//!     try the lock of the last table          held elsewhere: end the walk, start over
//!     compare the pointers on the way              changed: unlock, start over
//!   end the walk
//! ```
//!
//! While the lock is held and the path was the same after it was taken, the table stays: a drop
//! of its last share takes the lock first. The lock is only tried, because its owner may be
//! waiting for this very walk to end, or for this CPU to answer an interrupt.

use super::read::ReadOnly;
use crate::leaf_view::EntryView;
use crate::locked_table::{LockedTable, TableRight};
use crate::peek::PeekedEntry;
use crate::tables::Tables;
use pagewright_arch::{Entry, Isa};
use pagewright_sync::{Backend, Platform};
use pagewright_types::{Level, VirtAddr};

/// Scheduling points between two tries, for a machine that has them: about as many as a walk has.
const PAUSES: u32 = 16;

impl<'h, P: Platform> Tables<'h, P> {
    /// Reads the entry for `va` below a shared pointer.
    ///
    /// Returns its level, too. The answer is of a moment during the call.
    pub(crate) fn read_shared(&self, va: VirtAddr) -> (EntryView, Level) {
        self.walk_until(|| {
            let (end, path) = self.walk(va)?;
            Some((EntryView::decode::<P::Isa>(end.level, end.pte, path.shared), end.level))
        })
    }

    /// Locks the table with the last entry for `va`, whether it is shared or not.
    ///
    /// `right` makes the right by which it is locked out of the path to it.
    ///
    /// # Errors
    /// The level of the entry, if it is empty and above the last.
    pub(super) fn lock_walked<R: TableRight>(
        &self,
        va: VirtAddr,
        right: impl Fn(ReadOnly) -> R,
    ) -> Result<LockedTable<'h, P, R>, Level> {
        // The hold keeps an own table hooked, so nothing needs to wait for this descent.
        let found = self.descend(va, Level::PTE);
        if found.level == Level::PTE && !found.shared {
            let own = ReadOnly { shared: false, sharers: 1 };
            return Ok(LockedTable::lock((*self, found.slot.table, Level::PTE), va, right(own)));
        }
        self.walk_until(|| self.try_lock_walked(va, &right))
    }

    /// Locks the table of any level that has the last entry for `va`, whatever the entry is.
    ///
    /// `None` if no other space shares the path to it.
    pub(super) fn lock_last_shared<R: TableRight>(
        &self,
        va: VirtAddr,
        right: impl Fn(ReadOnly) -> R,
    ) -> Option<LockedTable<'h, P, R>> {
        self.walk_until(|| {
            let (end, path) = self.walk(va)?;
            if path.shared { self.try_lock_end(&end, va, right(path)).map(Some) } else { Some(None) }
        })
    }

    /// Tries `walk` in one counted walk after the other, until it answers.
    fn walk_until<T>(&self, walk: impl Fn() -> Option<T>) -> T {
        loop {
            match self.tlb.walk_unheld(&walk) {
                Some(answer) => return answer,
                None => self.pause_between_walks(),
            }
        }
    }

    /// Leaves interrupts open for longer than a walk closes them.
    ///
    /// The owner of the lock, or of the pointer, may be waiting for this CPU to answer one.
    fn pause_between_walks(&self) {
        self.tlb.fx().relax();
        (0..PAUSES).for_each(|_| <P::Locks as Backend>::point());
    }

    /// One try; `None` to start over.
    fn try_lock_walked<R: TableRight>(
        &self,
        va: VirtAddr,
        right: impl Fn(ReadOnly) -> R,
    ) -> Option<Result<LockedTable<'h, P, R>, Level>> {
        let (end, path) = self.walk(va)?;
        if end.level > Level::PTE && P::Isa::decode(end.level, end.pte) == Entry::Empty {
            return Some(Err(end.level));
        }
        let table = self.try_lock_end(&end, va, right(path))?;
        let still = end.level == Level::PTE || table.holds_page(va);
        still.then_some(Ok(table))
    }

    /// Locks the table in which a walk of the same section ended; `None` to start over.
    fn try_lock_end<R: TableRight>(&self, end: &PeekedEntry, va: VirtAddr, right: R) -> Option<LockedTable<'h, P, R>> {
        let table = LockedTable::try_lock((*self, end.slot.table, end.level), va, right)?;
        end.is_path_unchanged(self.tlb).then_some(table)
    }

    /// Descends to the last entry for `va`; `None` while a pointer on the way is being replaced.
    ///
    /// The caller is in a counted walk.
    fn walk(&self, va: VirtAddr) -> Option<(PeekedEntry, ReadOnly)> {
        let mut path = ReadOnly { shared: false, sharers: 1 };
        if self.tree.is_closed() {
            return Some((PeekedEntry::of_ended(self.tree.root()), path));
        }
        let end = self.tree.walk(self.tlb, va, |next| {
            if next.write_protected {
                path.shared = true;
                path.sharers *= u64::from(self.tlb.frames().table(next.pfn).shares().max(1));
            }
            true
        });
        match P::Isa::decode(end.level, end.pte) {
            Entry::Soft(soft) if end.level > Level::PTE && soft.kind.is_in_transition() => None,
            Entry::Leaf(_) | Entry::Empty | Entry::Soft(_) | Entry::Table(_) => Some((end, path)),
        }
    }
}
