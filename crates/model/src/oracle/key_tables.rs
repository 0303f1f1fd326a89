//! Counts what becomes of a page table while the flush of an entry in it is deferred.
//!
//! A translation of a [window](super::windows) may outlive the table of its entry: the table is
//! freed, moves to other addresses, or is shared. An operation that does so has to take the
//! deferred flush along. The rules of O1 and O2 judge whether it did; this counts that it had to.

use super::Oracle;
use super::windows::Window;
use crate::tally::Antecedent;
use crate::walk;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use pagewright_types::judge::Witness;
use pagewright_types::{FrameRange, Level, Pfn, PhysAddr};

/// The number of frames that are remembered.
const MOST: usize = 64;

/// What is remembered of frames until it is known what becomes of them.
#[derive(Default)]
pub(super) struct KeyTables {
    /// Tables that no walk of their windows reads any more.
    unhooked: Vec<Pfn>,
    /// Frames to which pages have moved.
    copies: Vec<Pfn>,
}

impl KeyTables {
    fn is_empty(&self) -> bool {
        self.unhooked.is_empty() && self.copies.is_empty()
    }

    fn remember(frames: &mut Vec<Pfn>, frame: Pfn) {
        if frames.len() == MOST {
            frames.remove(0);
        }
        frames.push(frame);
    }

    fn take(frames: &mut Vec<Pfn>, frame: Option<Pfn>) -> bool {
        let found = frames.iter().position(|known| Some(*known) == frame);
        found.map(|index| frames.swap_remove(index)).is_some()
    }
}

impl Oracle {
    /// A walk of a window does not read the tables `lost` any more.
    pub(super) fn note_unhooked(&mut self, witness: &dyn Witness, window: &Window, mut lost: BTreeSet<Pfn>) {
        // A table that is shared is left to the others.
        lost.retain(|table| !self.shared.contains(*table));
        if !lost.is_empty() && self.is_held(witness, window) {
            lost.into_iter().for_each(|table| KeyTables::remember(&mut self.key_tables.unhooked, table));
        }
    }

    /// An entry was stored: it may point to a table that was unhooked, or map a page that moved.
    pub(super) fn note_stored(&mut self, at: PhysAddr, raw: u64) {
        if self.key_tables.is_empty() {
            return;
        }
        let frame = walk::frame_field(self.isa, Level::PTE, raw);
        if KeyTables::take(&mut self.key_tables.unhooked, frame) {
            self.tally.note(Antecedent::KeyTableMoved);
        }
        if self.shared.contains(Pfn::containing(at)) && KeyTables::take(&mut self.key_tables.copies, frame) {
            self.tally.note(Antecedent::SharedMoved);
        }
    }

    pub(super) fn note_moved(&mut self, copy: Pfn) {
        KeyTables::remember(&mut self.key_tables.copies, copy);
    }

    /// Several entries point to `table` from now on; fork settles what lingers before it returns.
    pub(super) fn note_table_shared(&mut self, witness: &dyn Witness, table: Pfn) {
        let below = self.windows.below(FrameRange::new(table, table.add(1)));
        let windows: Vec<Window> = below.into_iter().filter_map(|id| self.windows.get(id)).collect();
        if windows.iter().any(|window| self.is_held(witness, window)) {
            self.tally.note(Antecedent::KeyTableShared);
        }
    }

    /// Frames were freed; tables that were unhooked may be among them.
    pub(super) fn note_freed(&mut self, frames: FrameRange) {
        let unhooked = self.key_tables.unhooked.len();
        self.key_tables.unhooked.retain(|table| !frames.contains(*table));
        if self.key_tables.unhooked.len() < unhooked {
            self.tally.note(Antecedent::KeyTableFreed);
        }
        self.key_tables.copies.retain(|copy| !frames.contains(*copy));
    }
}
