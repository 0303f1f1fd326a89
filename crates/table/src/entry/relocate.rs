//! Moving entries to other addresses of their space (`move_ptes`).
//!
//! As in `protect_run`, what a move makes of a word does not depend on its frame, and is reused for
//! the next leaves with the same other bits. If the record of the table counts pages of one kind
//! alone, their folios are not looked up.

use super::RunChange;
use crate::leaf_view::LeafView;
use crate::locked_table::LockedTable;
use core::ops::Range;
use pagewright_arch::{Entry, Isa, LeafFlags, Pte, SoftEntry};
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_tlb::frames::{EntryCounts, RssKind, SWAP_ENTRIES};
use pagewright_tlb::{Gather, OwedFlush};
use pagewright_types::{Level, PageRange, VirtAddr};

/// What a move makes of the leaves that share all bits but their frame.
struct MovedLeaf {
    from: u64,
    to: u64,
    owes: bool,
    special: bool,
    /// The kind of page that the first of them maps, unless they are special.
    kind: Option<RssKind>,
}

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
        if self.level() > Level::PTE {
            self.move_deposits(part, to);
        }
        let only = only_kind(self.page().counts());
        let mut debts = gather.run(self.level());
        let mut left = self.indices(part);
        let mut to_index = to.index(new);
        while let Some(index) = left.next() {
            let leaf = self.move_entry(to, (index, to_index), &edit, &edit_soft, &mut moved);
            to_index += 1;
            let Some(leaf) = leaf else { continue };
            let mut alike = 0;
            if leaf.special || only.is_some() {
                alike = self.move_alike(to, left.clone(), to_index, &leaf);
                left.start += alike;
                to_index += alike;
            }
            if let Some(kind) = leaf.kind {
                debug_assert_eq!(kind, only.unwrap_or(kind), "INV-TABLE-COUNTS: entry {index}");
                moved.entries[kind as usize] += 1 + alike as i32;
            }
            moved.live += alike as i32;
            if leaf.owes {
                debts.owe(self.address(index));
                debts.owe(self.address(index + alike));
            }
        }
        drop(debts);
        if self.table() != to.table() {
            self.tables.carry_pin_mark(self.table(), new);
            self.page().adjust_counts(moved.entries.map(|entries| -entries));
            self.page().adjust_live(-moved.live);
            to.page().adjust_live(moved.live);
            plant!(MoveUncounted; (), to.page().adjust_counts(moved.entries));
        }
    }

    /// Moves one entry; returns what became of a leaf, which the caller counts by kind.
    fn move_entry(
        &self,
        to: &LockedTable<'_, P>,
        (index, to_index): (usize, usize),
        edit: impl Fn(LeafView) -> LeafView,
        edit_soft: impl Fn(SoftEntry) -> SoftEntry,
        moved: &mut RunChange,
    ) -> Option<MovedLeaf> {
        let level = self.level();
        let word = match P::Isa::decode(level, self.load(index)) {
            Entry::Empty | Entry::Table(_) => return None,
            // An exchange, since a walker may note an access of a leaf until then.
            Entry::Leaf(_) | Entry::Soft(_) => self.swap(index, Pte::EMPTY),
        };
        debug_assert!(to.is_empty(to.address(to_index)), "INV-TABLE-EMPTY: entry {index} moved over {to_index}");
        moved.live += 1;
        match P::Isa::decode(level, word) {
            Entry::Leaf(leaf) => {
                let new = P::Isa::leaf(to.level(), edit(LeafView::new(leaf, level, false)).leaf());
                to.store(to_index, new);
                let special = leaf.flags.contains(LeafFlags::SPECIAL);
                Some(MovedLeaf {
                    from: word.raw() & !P::Isa::FRAME,
                    to: new.raw() & !P::Isa::FRAME,
                    owes: self.owed(word, Pte::EMPTY) != OwedFlush::Nothing,
                    special,
                    kind: (!special).then(|| self.tables.tlb.frames().folio(leaf.pfn).rss_kind()),
                })
            }
            Entry::Soft(soft) => {
                moved.entries[SWAP_ENTRIES] += i32::from(soft.kind.is_swap());
                to.store(to_index, P::Isa::soft(edit_soft(soft)));
                None
            }
            Entry::Empty | Entry::Table(_) => unreachable!("INV-TABLE-LOCKED: entry {index} changed"),
        }
    }

    /// Moves the leading leaves of `entries` that differ from `leaf` in their frames alone.
    ///
    /// Returns their number. An exchange fails if a walker notes an access first, and the leaf is
    /// then another.
    #[inline(never)]
    fn move_alike(&self, to: &LockedTable<'_, P>, entries: Range<usize>, to_index: usize, leaf: &MovedLeaf) -> usize {
        let (first, end, len) = (entries.start, to_index + entries.len(), entries.len());
        let (from_bits, to_bits) = (leaf.from, leaf.to);
        for (index, to_index) in entries.zip(to_index..end) {
            let old = self.load(index);
            if old.raw() & !P::Isa::FRAME != from_bits || self.compare_exchange(index, old, Pte::EMPTY).is_err() {
                return index - first;
            }
            debug_assert!(to.is_empty(to.address(to_index)), "INV-TABLE-EMPTY: entry {index} moved over {to_index}");
            to.store(to_index, Pte::from_raw(old.raw() & P::Isa::FRAME | to_bits));
        }
        len
    }
}

/// The kind of page that all leaves of a table map, if its record says that there is only one.
fn only_kind(counts: EntryCounts<u16>) -> Option<RssKind> {
    let mut kinds = RssKind::ALL.into_iter().filter(|kind| counts[*kind as usize] > 0);
    kinds.next().filter(|_| kinds.next().is_none())
}
