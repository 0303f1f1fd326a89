//! Moving entries to other addresses of their space (`move_ptes`).

use super::RunChange;
use crate::leaf_view::{EntryView, LeafView};
use crate::locked_table::LockedTable;
use pagewright_arch::{Isa, Pte, SoftEntry, SoftKind};
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_tlb::frames::SWAP_ENTRIES;
use pagewright_tlb::{Debt, Gather};
use pagewright_types::{PageRange, VirtAddr};

impl<'h, P: Platform> LockedTable<'h, P> {
    /// Moves the entries of `part` to the empty entries from `new` on, under `to`.
    ///
    /// `edit` changes leaves and `edit_soft` soft entries on the way. References and mapcounts move
    /// with the entries. `gather` takes the flush of the old entries. The caller settles it before
    /// it releases either table's lock, because an operation that finds a leaf at its new address
    /// may free the page.
    ///
    /// # Panics
    /// In debug builds when an entry under `to` is not empty.
    pub fn move_run(
        &self,
        part: PageRange,
        to: &LockedTable<'_, P>,
        new: VirtAddr,
        edit: impl Fn(LeafView) -> LeafView,
        edit_soft: impl Fn(SoftEntry) -> SoftEntry,
        gather: &mut Gather<'_, P>,
    ) {
        let mut moved = RunChange::default();
        gather.meet(self.table());
        // A key belongs to an address: what is pending at the new ones is flushed before leaves are
        // stored there.
        to.flush_pending();
        for va in self.entries(part) {
            let to_va = new.add(va.since(part.start()));
            let old = match self.entry(va) {
                EntryView::Empty | EntryView::Table => continue,
                EntryView::Leaf(_) | EntryView::Soft(_) => self.swap(self.index(va), Pte::EMPTY),
            };
            debug_assert!(to.is_empty(to_va), "INV-TABLE-EMPTY: {va} moved over {:?} at {to_va}", to.entry(to_va));
            let word = match EntryView::decode::<P::Isa>(self.level(), old, false) {
                EntryView::Leaf(leaf) => {
                    if !leaf.is_special() {
                        moved.entries[self.tables.tlb.frames().folio(leaf.pfn()).rss_kind() as usize] += 1;
                    }
                    P::Isa::leaf(to.level(), edit(leaf).leaf())
                }
                EntryView::Soft(soft) => {
                    moved.entries[SWAP_ENTRIES] += i32::from(soft.kind == SoftKind::Swap);
                    P::Isa::soft(edit_soft(soft))
                }
                EntryView::Empty | EntryView::Table => unreachable!("INV-TABLE-LOCKED: the entry at {va} changed"),
            };
            to.put(to_va, word);
            moved.live += 1;
            gather.absorb(Debt::new(self.tables.tlb, self.context(), va, self.owed(old, Pte::EMPTY), ()));
        }
        if self.table() != to.table() {
            self.page().adjust_counts(moved.entries.map(|entries| -entries));
            self.page().adjust_live(-moved.live);
            to.page().adjust_live(moved.live);
            plant!(MoveUncounted; (), to.page().adjust_counts(moved.entries));
        }
    }
}
