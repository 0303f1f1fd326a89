//! Walking the page tables, one level at a time.
//!
//! A [`WalkPosition`] is before one table entry. [`WalkPosition::step`] reads that word from memory
//! and returns the result. Anything may happen between two steps: the entries above may change, as
//! they may during a walk in hardware. The caller drives the walk, and so decides what can be
//! interleaved with it. In fast mode [`crate::access`] takes all steps at once.
//!
//! A walk sets accessed and dirty bits in memory by compare-and-exchange against the word that it
//! read, so it never restores an entry that was cleared meanwhile (INV-SIM-UPDATE; SDM vol. 3A
//! §4.8, Arm ARM D8.5.4).
//!
//! **INV-SIM-UPDATE** The walker sets accessed and dirty only in the word that it read (SDM vol. 3A
//! §4.8, Arm ARM D8.5.4). So an entry that was cleared meanwhile does not come back.

mod word;

use crate::ram::Ram;
use pagewright_arch::PteSlot;
use pagewright_types::{Access, IsaKind, Level, Pfn, PhysAddr, Rights, VirtAddr};
use std::sync::atomic::Ordering;
pub(crate) use word::{Privilege, Word, decode};

/// Memory as walkers see it.
pub(crate) trait WalkerMemory {
    /// The word at `at`.
    fn load_entry(&self, at: PhysAddr) -> u64;

    /// Replaces the word by `new` if it still is `current`; returns whether it did.
    fn replace_entry(&self, at: PhysAddr, current: u64, new: u64) -> bool;
}

/// Memory without buffered stores.
impl WalkerMemory for Ram {
    #[inline]
    fn load_entry(&self, at: PhysAddr) -> u64 {
        self.word(at).load(Ordering::Acquire)
    }

    #[inline]
    fn replace_entry(&self, at: PhysAddr, current: u64, new: u64) -> bool {
        self.word(at).compare_exchange(current, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

/// The position of a walk: before an entry of a table of `level`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct WalkPosition {
    pub(crate) level: Level,
    pub(crate) table: Pfn,
    /// The rights that the entries above allow.
    pub(crate) allows: Rights,
}

/// The result of one step of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WalkStep {
    /// The entry points to a table, where the walk goes on.
    ///
    /// `updated` says whether the step set the accessed bit of the entry.
    Down { next: WalkPosition, updated: bool },
    /// The entry is a leaf that allows the access.
    ///
    /// `updated` says whether the step set its accessed or dirty bit.
    Arrived { found: WalkedLeaf, updated: bool },
    /// The entry changed between the read and the update; the step must be repeated.
    Again,
    /// The entry refuses the access.
    Refused { present: bool },
}

/// The translation that a walk found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct WalkedLeaf {
    /// The first frame of the leaf.
    pub(crate) pfn: Pfn,
    pub(crate) level: Level,
    /// The rights that the leaf and the entries above allow together.
    pub(crate) rights: Rights,
    pub(crate) global: bool,
    /// Whether a store needs no walk to set the dirty bit.
    pub(crate) dirty: bool,
}

impl WalkPosition {
    /// The position at the start of a walk from the root, a table of level `top`.
    pub(crate) fn from_root(root: Pfn, top: Level) -> Self {
        Self { level: top, table: root, allows: Rights::all() }
    }

    /// The entry that the walk reads next.
    #[inline]
    pub(crate) fn slot(self, va: VirtAddr) -> PteSlot {
        PteSlot { table: self.table, index: self.level.index_of(va) as u16 }
    }

    /// Reads the entry at this position.
    #[inline]
    pub(crate) fn step(
        self,
        (isa, privilege): (IsaKind, Privilege),
        memory: &impl WalkerMemory,
        va: VirtAddr,
        access: Access,
    ) -> WalkStep {
        let at = self.slot(va).addr();
        let raw = memory.load_entry(at);
        match word::decode(isa, self.level, raw, privilege) {
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

/// The entry changed since the walk read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Changed;

/// Changes the word at `at` from `raw`, as it was read, to `used`.
///
/// It returns whether the word had to be stored.
#[inline]
fn update(memory: &impl WalkerMemory, at: PhysAddr, raw: u64, used: u64) -> Result<bool, Changed> {
    if raw == used {
        return Ok(false);
    }
    if memory.replace_entry(at, raw, used) { Ok(true) } else { Err(Changed) }
}

#[cfg(test)]
mod tests;
