//! The places that walks have translated by each page-table entry, while a judge is bound.
//!
//! A store to an entry names a word of memory and no address. With this record a judge finds the
//! roots and addresses whose translations may come from that word. A place is recorded when a walk
//! reads the entry, so an entry without a place is in no TLB. The record of a table ends when its
//! frame is freed or allocated again, and that of an entry when another translation is stored. When
//! a root gets another tag, its places under the old one end: what a TLB still holds there cannot
//! be used, because the tag is flushed before it is installed again.

use pagewright_arch::PteSlot;
use pagewright_types::judge::WalkedPlace;
use pagewright_types::{FrameRange, Pfn, Tag};
use std::collections::HashMap;

/// By table and index.
#[derive(Default)]
pub(crate) struct WalkedPlaces {
    places: HashMap<Pfn, HashMap<u16, Vec<WalkedPlace>>>,
    /// By root: the tag under which it was installed last.
    tags: HashMap<Pfn, Tag>,
}

impl WalkedPlaces {
    /// A walk for `place` has read the entry in `slot`.
    pub(crate) fn record(&mut self, slot: PteSlot, place: WalkedPlace) {
        let places = self.places.entry(slot.table).or_default().entry(slot.index).or_default();
        if !places.contains(&place) {
            places.push(place);
        }
    }

    /// The places of the entry in `slot`.
    pub(crate) fn of(&self, slot: PteSlot) -> &[WalkedPlace] {
        self.places.get(&slot.table).and_then(|table| table.get(&slot.index)).map_or(&[], Vec::as_slice)
    }

    /// Calls `visit` for each entry and a place of it, and for each root and its tag.
    pub(crate) fn each(&self, mut visit: impl FnMut(Result<(Pfn, u16, WalkedPlace), (Pfn, Tag)>)) {
        for (table, entries) in &self.places {
            for (index, places) in entries {
                places.iter().for_each(|place| visit(Ok((*table, *index, *place))));
            }
        }
        self.tags.iter().for_each(|(root, tag)| visit(Err((*root, *tag))));
    }

    /// Whether a walk has read an entry of `table`.
    pub(crate) fn has_table(&self, table: Pfn) -> bool {
        self.places.contains_key(&table)
    }

    /// Another translation was stored in `slot`.
    pub(crate) fn forget(&mut self, slot: PteSlot) {
        self.places.get_mut(&slot.table).and_then(|table| table.remove(&slot.index));
    }

    /// A CPU has installed `root` under `tag`, and under `user` for user mode.
    pub(crate) fn install(&mut self, root: Pfn, tag: Tag, user: Tag) {
        if self.tags.insert(root, tag) != Some(tag) {
            for places in self.places.values_mut().flat_map(HashMap::values_mut) {
                places.retain(|place| place.root != root || [tag, user].contains(&place.tag));
            }
        }
    }

    /// These frames are no page tables any more.
    pub(crate) fn forget_tables(&mut self, frames: FrameRange) {
        for table in (frames.start().raw()..frames.end().raw()).map(Pfn::new) {
            self.places.remove(&table);
        }
    }

    /// These roots are no roots any more.
    pub(crate) fn forget_roots(&mut self, roots: FrameRange) {
        for places in self.places.values_mut().flat_map(HashMap::values_mut) {
            places.retain(|place| !roots.contains(place.root));
        }
    }
}
