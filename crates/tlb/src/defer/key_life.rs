//! What becomes of a table's keys when the table does not stay as it is.
//!
//! | the table | its keys |
//! | --- | --- |
//! | is freed, unhooked or left, or moves | go to the gather of the operation ([`Gather::hand_over`](crate::Gather::hand_over)) |
//! | is shared, or gets one owner again | become merged unless they are paid ([`Tlb::merge_keys`]) |
//! | is broken: its entries are copied to an own table | are copied with their sequence number ([`Tlb::inherit_keys`]) |
//! | is new | none |
//!
//! INV-TLB-KEY-LIFE: no unpaid key ends with its table, and none belongs to fewer spaces than may
//! hold the translations. A key belongs to addresses, so it does not travel with a table that moves:
//! the flush of the move pays it before the space is released.
//!
//! Neighbours: `table` calls these, under the locks of its tables.
//!
//! Not guaranteed: that a member of a family can pay a merged key by a flush of its own space.

use super::key::{KeyedFlush, with_gather};
use crate::context::TlbContext;
use crate::engine::Tlb;
use pagewright_arch::{PendingSequence, PteSlot};
use pagewright_frame::TableKey;
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_types::{Level, PageRange, Pfn, VirtAddr};

impl<P: Platform> Tlb<P> {
    /// Lets translations of the entry in `slot`, which was cleared just now, linger.
    ///
    /// For a leaf whose translations are read-only and clean in every TLB, and whose page keeps its
    /// contents until they are flushed. An operation that meets the table, and an install in the
    /// entry, flush them first. The caller holds the lock of the table.
    pub fn defer_lingering(&self, context: &TlbContext, slot: PteSlot, va: VirtAddr, level: Level) {
        let start = va.align_down(level.span());
        let range = Some(PageRange::new(start, start.add(level.span())));
        let (deferred, _) =
            self.defer_flush(context, self.fx().cpu(), range, |tlb| tlb.issue_leaf(context, start, level));
        self.note_lingering(context, slot, deferred);
    }

    /// Makes the unpaid keys of `table` those of a family, and ends the paid ones.
    ///
    /// For a table of `context` that is about to be shared, or has become its own again. The caller
    /// holds the lock of the table, and the space exclusively, so no gather is open there. A table
    /// whose keys are all paid needs no call: a gather that [depends on the whole
    /// space](crate::Gather::meet_space) and settles before the first sharer runs has paid those of
    /// all tables below the shared one.
    pub fn merge_keys(&self, context: &TlbContext, table: Pfn) {
        plant!(SharedKeyNotMerged => return);
        let table = self.frames().table(table);
        let ((key, sequence), lingering) = (table.pending(), table.lingering());
        let [key, lingering] = [key, lingering].map(|key| self.merged_key(context, key));
        let sequence = self.sequence_after([key, lingering], sequence);
        table.set_pending(key, sequence);
        table.set_lingering(lingering);
    }

    fn merged_key(&self, context: &TlbContext, key: TableKey) -> TableKey {
        self.unpaid(context, key).map_or(TableKey::NONE, |owed| owed.merged().key())
    }

    /// The sequence number of a table whose keys are now `keys`.
    ///
    /// Pending entries of both keys have the same number, so it moves when neither is left.
    pub(super) fn sequence_after(&self, keys: [TableKey; 2], sequence: PendingSequence) -> PendingSequence {
        let owes = |key: &TableKey| KeyedFlush::of(*key).is_some();
        let stays = plant!(SequenceMovesEarly; keys.iter().all(owes), keys.iter().any(owes));
        if stays { sequence } else { sequence.next() }
    }

    /// Copies both keys of `from`, a shared table, to `to`, into which `context` breaks it.
    ///
    /// The entries that are pending in `from` are copied as they are, so that they count in `to`.
    /// The caller holds the locks of both tables, and no walker can reach `to`.
    ///
    /// # Panics
    /// In debug builds when `to` has keys, or those of `from` are not merged.
    pub fn inherit_keys(&self, context: &TlbContext, from: Pfn, to: Pfn) {
        plant!(CopyWithoutKeys => return);
        let (from, to) = (self.frames().table(from), self.frames().table(to));
        debug_assert_eq!((to.pending().0, to.lingering()), (TableKey::NONE, TableKey::NONE), "a copy over {to:?}");
        let ((key, sequence), lingering) = (from.pending(), from.lingering());
        for owed in [key, lingering].into_iter().filter_map(KeyedFlush::of) {
            debug_assert_eq!(
                owed,
                owed.merged(),
                "INV-TLB-KEY-LIFE: {from:?} is shared, and its key is that of a space"
            );
            context.defer(owed.deferred);
        }
        // No gather of one space edits a shared table.
        to.set_pending(with_gather(key, false), plant!(CopyWithoutSequence; sequence.next(), sequence));
        to.set_lingering(lingering);
    }
}
