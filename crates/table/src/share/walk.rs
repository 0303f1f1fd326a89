//! Reaching a table below a pointer that other spaces share.
//!
//! ```text
//!   begin a counted walk, interrupts closed
//!     descend from the root, and note each pointer
//!     try the lock of the last table          held elsewhere: end the walk, start over
//!     compare the pointers from the root down      changed: unlock, start over
//!   end the walk
//! ```
//!
//! While the lock is held and the path was the same after it was taken, the table stays: a drop
//! of its last share takes the lock first. The lock is only tried, because its owner may be
//! waiting for this very walk to end, or for this CPU to answer an interrupt.

use crate::below;
use crate::leaf_view::EntryView;
use crate::locked_table::LockedTable;
use crate::tables::Tables;
use arrayvec::ArrayVec;
use pagewright_arch::{Entry, Isa, Pte, PteSlot};
use pagewright_sync::{Backend, Platform};
use pagewright_tlb::frames::FrameState;
use pagewright_types::{Level, Pfn, VirtAddr};

/// Scheduling points between two tries, for a machine that has them: about as many as a walk has.
const PAUSES: u32 = 16;

/// What a walk found that took a lock.
pub(crate) enum Walked<'h, P: Platform> {
    /// The table of the last entry, locked.
    Table(WalkedTable<'h, P>),
    /// No table of the last level, and the entry of this level is empty.
    Nothing(Level),
}

/// A table that a walk has locked.
pub(crate) struct WalkedTable<'h, P: Platform> {
    pub(crate) table: LockedTable<'h, P>,
    /// Whether a pointer on the way is shared.
    pub(crate) shared: bool,
    /// The product of the share counts on the way ([`super::ReadTable::sharers`]).
    pub(crate) sharers: u64,
}

/// The pointers from the root to a table, as a walk read them.
type Path = ArrayVec<(PteSlot, Pte), { Level::COUNT - 1 }>;

/// Where a walk ended.
struct WalkEnd {
    slot: PteSlot,
    level: Level,
    pte: Pte,
    path: Path,
    shared: bool,
    sharers: u64,
}

impl<'h, P: Platform> Tables<'h, P> {
    /// Reads the entry for `va` below a shared pointer.
    ///
    /// Returns its level, too. The answer is of a moment during the call.
    pub(crate) fn read_shared(&self, va: VirtAddr) -> (EntryView, Level) {
        self.walk_until(|| {
            let end = self.walk(va)?;
            Some((EntryView::decode::<P::Isa>(end.level, end.pte, end.shared), end.level))
        })
    }

    /// Locks the table with the last entry for `va`, whether it is shared or not.
    pub(crate) fn lock_walked(&self, va: VirtAddr) -> Walked<'h, P> {
        // The hold keeps an own table hooked, so nothing needs to wait for this descent.
        let found = self.descend(va, Level::PTE);
        if found.level == Level::PTE && !found.shared {
            let table = LockedTable::new(*self, found.slot.table, Level::PTE, va);
            return Walked::Table(WalkedTable { table, shared: false, sharers: 1 });
        }
        self.walk_until(|| self.try_lock_walked(va))
    }

    /// Locks the table of any level that has the last entry for `va`, whatever the entry is.
    ///
    /// `None` if no other space shares the path to it.
    pub(crate) fn lock_last_shared(&self, va: VirtAddr) -> Option<LockedTable<'h, P>> {
        self.walk_until(|| {
            let end = self.walk(va)?;
            if end.shared { self.try_lock_end(&end, va).map(|walked| Some(walked.table)) } else { Some(None) }
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
    fn try_lock_walked(&self, va: VirtAddr) -> Option<Walked<'h, P>> {
        let end = self.walk(va)?;
        if end.level > Level::PTE && P::Isa::decode(end.level, end.pte) == Entry::Empty {
            return Some(Walked::Nothing(end.level));
        }
        let walked = self.try_lock_end(&end, va)?;
        let still = end.level == Level::PTE || walked.table.holds_page(va);
        still.then_some(Walked::Table(walked))
    }

    /// Locks the table in which a walk of the same section ended; `None` to start over.
    fn try_lock_end(&self, end: &WalkEnd, va: VirtAddr) -> Option<WalkedTable<'h, P>> {
        let table = LockedTable::try_new(*self, end.slot.table, end.level, va)?;
        let same = |(slot, pte): &(PteSlot, Pte)| self.tlb.fx().load(*slot) == *pte;
        let unchanged = end.path.iter().all(same);
        unchanged.then_some(WalkedTable { table, shared: end.shared, sharers: end.sharers })
    }

    /// Asserts in debug builds that a table which a counted walk has read is none that was freed.
    pub(super) fn assert_not_freed(&self, table: Pfn) {
        debug_assert!(
            matches!(self.tlb.frames().state(table), FrameState::Table | FrameState::Allocated),
            "INV-TLB-WALKERS: {table} was freed under a counted walk"
        );
    }

    /// Descends to the last entry for `va`; `None` while a pointer on the way is being replaced.
    ///
    /// The caller is in a counted walk.
    fn walk(&self, va: VirtAddr) -> Option<WalkEnd> {
        let (mut table, mut level) = (self.tree.root(), Level::PGD);
        let (mut path, mut shared, mut sharers) = (Path::new(), false, 1);
        if self.tree.is_closed() {
            let slot = PteSlot { table, index: 0 };
            return Some(WalkEnd { slot, level, pte: Pte::EMPTY, path, shared, sharers });
        }
        loop {
            let slot = PteSlot { table, index: level.index_of(va) as u16 };
            let pte = self.tlb.fx().load(slot);
            self.assert_not_freed(table);
            match P::Isa::decode(level, pte) {
                Entry::Table(next) => {
                    if next.write_protected {
                        shared = true;
                        sharers *= u64::from(self.tlb.frames().table(next.pfn).shares().max(1));
                    }
                    path.push((slot, pte));
                    (table, level) = (next.pfn, below(level));
                }
                Entry::Soft(soft) if level > Level::PTE && soft.kind.is_in_transition() => return None,
                Entry::Leaf(_) | Entry::Empty | Entry::Soft(_) => {
                    return Some(WalkEnd { slot, level, pte, path, shared, sharers });
                }
            }
        }
    }
}
