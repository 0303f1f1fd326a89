//! Walking the page tables, one level at a time.
//!
//! A [`Walk`] stands before one table entry; [`Walk::step`] reads that one word from memory and
//! says what comes of it. Between two steps anything may happen – the entries above may change, as
//! they may under a walker of silicon – so whoever drives a walk decides what a schedule can
//! interleave. In fast mode [`crate::access`] takes all steps at once.
//!
//! Accessed and dirty bits are set in memory by compare-and-exchange against the word that was
//! read, so that a walk never brings back an entry that was cleared meanwhile (INV-SIM-UPDATE; SDM
//! vol. 3A §4.8, Arm ARM D8.5.4).

mod word;

use crate::ram::Ram;
use pagewright_arch::PteSlot;
use pagewright_types::{Access, IsaKind, Level, Pfn, PhysAddr, Rights, VirtAddr};
use std::sync::atomic::Ordering;
use word::Word;

/// Memory as a walker sees it.
pub(crate) trait View {
    /// The word at `at`.
    fn load_entry(&self, at: PhysAddr) -> u64;

    /// Makes the word `new` if it still is `current`; says whether it was.
    fn replace_entry(&self, at: PhysAddr, current: u64, new: u64) -> bool;
}

/// Memory without stores on their way to it.
impl View for Ram {
    #[inline]
    fn load_entry(&self, at: PhysAddr) -> u64 {
        self.word(at).load(Ordering::Acquire)
    }

    #[inline]
    fn replace_entry(&self, at: PhysAddr, current: u64, new: u64) -> bool {
        self.word(at).compare_exchange(current, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

/// A walk under way, before the entry of a table of `level`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Walk {
    pub(crate) level: Level,
    pub(crate) table: Pfn,
    /// What the entries above allow.
    pub(crate) allows: Rights,
}

/// What one step found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WalkStep {
    /// A table: the walk goes on there, and may start there next time.
    ///
    /// `updated` says that the entry's accessed bit had to be set.
    Down { next: Walk, updated: bool },
    /// A leaf that allows the access; accessed and dirty are set as the access needs.
    Arrived { found: WalkedLeaf, updated: bool },
    /// The entry changed between reading it and setting a bit in it; the same step must be taken
    /// again.
    Again,
    /// The access is refused.
    Refused { present: bool },
}

/// A translation as a walk found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WalkedLeaf {
    /// First frame of the leaf.
    pub(crate) pfn: Pfn,
    pub(crate) level: Level,
    /// What the leaf and the entries above allow together.
    pub(crate) rights: Rights,
    pub(crate) global: bool,
    /// Stores may go ahead without a walk.
    pub(crate) dirty: bool,
}

impl Walk {
    /// A walk from the root.
    pub(crate) fn from_root(root: Pfn) -> Self {
        Self { level: Level::PGD, table: root, allows: Rights::all() }
    }

    /// The entry that this walk reads next.
    #[inline]
    pub(crate) fn slot(self, va: VirtAddr) -> PteSlot {
        PteSlot { table: self.table, index: self.level.index_of(va) as u16 }
    }

    /// Reads the one entry that this walk stands before.
    #[inline]
    pub(crate) fn step(self, isa: IsaKind, memory: &impl View, va: VirtAddr, access: Access) -> WalkStep {
        let at = self.slot(va).addr();
        let raw = memory.load_entry(at);
        match word::decode(isa, self.level, raw) {
            Word::Absent => WalkStep::Refused { present: false },
            Word::Malformed => WalkStep::Refused { present: true },
            Word::Table(down) => match (update(memory, at, raw, down.used), self.level.down()) {
                (Ok(updated), Some(level)) => WalkStep::Down {
                    next: Self { level, table: down.table, allows: self.allows & down.allows },
                    updated,
                },
                (Err(Changed), _) => WalkStep::Again,
                (Ok(_), None) => unreachable!("no word at PTE level is a table"),
            },
            Word::Leaf(leaf) => {
                let rights = self.allows & leaf.allows;
                if !rights.allow(access) {
                    return WalkStep::Refused { present: true };
                }
                let store = access == Access::Write;
                match update(memory, at, raw, if store { leaf.used_by_store } else { leaf.used }) {
                    Ok(updated) => {
                        let dirty = leaf.dirty || store;
                        let found = WalkedLeaf { pfn: leaf.pfn, level: self.level, rights, global: leaf.global, dirty };
                        WalkStep::Arrived { found, updated }
                    }
                    Err(Changed) => WalkStep::Again,
                }
            }
        }
    }
}

/// The entry is no longer what the walker read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Changed;

/// Makes the word at `at`, which was read as `raw`, say `used`; returns whether it had to be
/// stored.
#[inline]
fn update(memory: &impl View, at: PhysAddr, raw: u64, used: u64) -> Result<bool, Changed> {
    if raw == used {
        return Ok(false);
    }
    if memory.replace_entry(at, raw, used) { Ok(true) } else { Err(Changed) }
}

#[cfg(test)]
mod tests;
