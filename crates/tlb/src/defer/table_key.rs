//! Deferred flushes with a place: what the record of a table says about its entries.
//!
//! An entry that is cleared is *pending* if its flush is not complete when the lock of its table is
//! released. The mark is in the entry ([`Pending`]), and since when it is pending is in the
//! record of the table ([`TableKey`]). So an install flushes only where an entry is pending, and an
//! install next to it flushes nothing.
//!
//! ```text
//!             record of the table            entry          an install there
//!             ------------------------       -----------    ----------------------------------------
//!   new       no key, sequence s             empty          stores
//!   absorb    key k, sequence s              pending s      flushes the space unless k is settled
//!   absorb    key k + k', sequence s         pending s      the same: the merged key covers both
//!   k settled,
//!   absorb    key k'', sequence s + 1        pending s      stores: the number is an older one
//!                                            pending s + 1  flushes the space unless k'' is settled
//!   zap of a swap entry that is pending s    pending s      as before: the mark stays
//!   publish   key with the mark of gathers   any            flushes the entry while gathers are open
//! ```
//!
//! **INV-TLB-PLACE** An edit whose flush is deferred marks its entry as pending and merges its
//! epoch into the key of the table, under the table's lock. The mark stays until an installation,
//! whatever replaces the entry meanwhile, and a key is replaced only when it is settled. So an
//! installation flushes if its own entry owes a flush, and no entry has to be looked for and
//! cleared.
//!
//! Until an install, only an edit made after the flush turns a pending entry into an empty one. The
//! sequence number moves with the key. A weakened entry that is still present has no mark; the key
//! covers it.
//!
//! Translations that may linger have a key of their own in the record, which is treated alike. The
//! mark of an entry says under which of the two it is pending, and an install there asks that one
//! alone. An entry is pending under the flush that was deferred last, which covers those before it.
//! Entries of both keys have the same sequence number, so it moves only when both are settled.
//!
//! # What becomes of a table's keys when the table does not stay as it is
//!
//! | the table | its keys |
//! | --- | --- |
//! | is new, or the copy of a shared one | none: the break flushes all that the copy spans |
//! | is freed, unhooked, or moves | go to the gather of the operation ([`Gather::hand_over`](crate::Gather::hand_over)) |
//! | is shared | are settled: fork's gather [depends on the whole space](crate::Gather::meet_space) |
//! | is left | stay with the table; the leaving space flushes all that it spans |
//! | gets one owner again | stay, and stay merged |
//!
//! **INV-TLB-KEY-LIFE** No key that is owed ends with its table, and none belongs to fewer spaces
//! than may hold the translations. A table that is freed, unhooked or moved hands its keys to the
//! gather of that operation. Fork settles those of the tables that it shares. A deferral for all
//! sharers makes a merged key. The clocks of the CPUs settle it, or the batches, and it stays
//! merged when the table has one owner again. The flush of a break, or of leaving, covers all that
//! the table spans, so the copy has no key.
//!
//! A key belongs to addresses, so it does not travel with a table that moves: the flush of the move
//! settles it before the space is released.
//!
//! Neighbours: [`Batch`](crate::Batch) and [`Gather::publish`](crate::Gather::publish) record;
//! `table` asks before it stores a leaf or hooks a table; `settle` says what is settled.
//!
//! Not guaranteed: that an entry that counts as pending is unflushed. The sequence number is short,
//! and the mark of gathers stands for all entries of its table.

use super::cover::{DependentOperation, EntryDeferral, FlushCover, assert_covers};
use super::key::{Debtor, KeyedFlush, has_gather, with_gather};
use crate::context::{DeferredFlush, TlbContext};
use crate::engine::{FlushInfo, Tlb};
use pagewright_arch::{Isa, Pending, PendingSequence, PteSlot, ShootdownKind};
use pagewright_frame::TableKey;
use pagewright_plant::plant;
use pagewright_sync::{LineUse, Platform};
use pagewright_types::{Counter, CpuId, Level, PageRange, Pfn, VirtAddr};

impl<P: Platform> Tlb<P> {
    /// Records that the flush of the entry in `slot`, edited just now, is deferred.
    ///
    /// The caller holds the lock of the table.
    #[inline]
    pub(crate) fn note_pending(&self, context: &TlbContext, slot: PteSlot, now: DeferredFlush) {
        context.defer(now);
        let sequence = self.merge_into_key(context, slot.table, KeyedFlush::of_space(now));
        self.mark_pending(slot, Pending { sequence, lingers: false });
    }

    /// As [`note_pending`](Self::note_pending), of an entry of a shared table.
    ///
    /// Every space of the family owes the flush, and has noted it.
    pub(crate) fn note_pending_of_family(&self, context: &TlbContext, slot: PteSlot, now: DeferredFlush) {
        let now = KeyedFlush::of_space(now);
        let sequence = self.merge_into_key(context, slot.table, plant!(FamilyKeyOfSpace; now, now.merged()));
        self.mark_pending(slot, Pending { sequence, lingers: false });
    }

    /// As [`note_pending`](Self::note_pending), of a translation that may linger.
    #[inline]
    pub(crate) fn note_lingering(&self, context: &TlbContext, slot: PteSlot, now: DeferredFlush) {
        context.defer(now);
        let table = self.frames().table(slot.table);
        let now = KeyedFlush::of_space(now);
        let ((key, sequence), old) = (table.pending(), table.lingering());
        let owed = self.owed_under(context, old);
        let other = self.owed_under(context, key).map_or(TableKey::NONE, KeyedFlush::key);
        let replaces_settled = owed.is_none() && old != TableKey::NONE;
        let sequence = if replaces_settled { self.sequence_after([TableKey::NONE, other], sequence) } else { sequence };
        table.set_pending(key, sequence);
        table.set_lingering(owed.map_or(now, |old| old.and(now)).key());
        self.mark_pending(slot, Pending { sequence, lingers: true });
    }

    /// Lets translations of the last-level entry for `va` in `slot`, cleared just now, linger.
    ///
    /// arm64: issues their invalidation, without waiting, and returns the CPU that did. An
    /// operation that meets the table, and an install in the entry, flush them first. The caller
    /// holds the lock of the table, counts among the [lingerers](TlbContext::inc_lingerers) of the
    /// space, and moves its generation before it ceases to.
    pub(crate) fn defer_lingering(&self, context: &TlbContext, slot: PteSlot, va: VirtAddr) -> Option<CpuId> {
        self.fx().publish();
        self.use_context(context, LineUse::Store);
        let issuer = match self.fx().caps().shootdown {
            ShootdownKind::Ipi => None,
            ShootdownKind::Broadcast => {
                self.issue_leaf(context, va, Level::PTE);
                Some(self.fx().cpu())
            }
        };
        // INV-LEDGER-SAMPLE: read after the edit.
        self.note_lingering(context, slot, DeferredFlush::new(self.ledger().sample(), issuer));
        issuer
    }

    #[inline]
    fn mark_pending(&self, slot: PteSlot, pending: Pending) {
        plant!(PendingNotMarked => return);
        // A leaf that was weakened stays: the key alone covers it.
        if let Some(marked) = P::Isa::mark_pending(self.fx().load(slot), pending) {
            self.fx().store(slot, marked);
        }
    }

    /// Adds a deferral to the key of a table, and returns the number of entries under that key.
    #[inline]
    fn merge_into_key(&self, context: &TlbContext, table: Pfn, now: KeyedFlush) -> PendingSequence {
        let table = self.frames().table(table);
        let (key, sequence) = table.pending();
        let (new, sequence) = match KeyedFlush::of(key) {
            Some(old) if old == now => return sequence,
            Some(old) => match plant!(UnsettledKeyReplaced; None, self.owed_under(context, key)) {
                Some(_) => (old.and(now), sequence),
                None => {
                    let lingering = self.owed_under(context, table.lingering()).map_or(TableKey::NONE, KeyedFlush::key);
                    table.set_lingering(lingering);
                    (now, self.sequence_after([TableKey::NONE, lingering], sequence))
                }
            },
            None => (now, sequence),
        };
        table.set_pending(with_gather(new.key(), has_gather(key)), sequence);
        sequence
    }

    /// The sequence number of a table whose keys are now `keys`.
    ///
    /// Pending entries of both keys have the same number, so it moves when neither is left.
    fn sequence_after(&self, keys: [TableKey; 2], sequence: PendingSequence) -> PendingSequence {
        let owes = |key: &TableKey| KeyedFlush::of(*key).is_some();
        let stays = plant!(SequenceMovesEarly; keys.iter().all(owes), keys.iter().any(owes));
        if stays { sequence } else { sequence.next() }
    }

    /// Records that a concurrent gather has edited entries of `table`.
    ///
    /// The caller holds the lock of the table, which its space owns: the mark counts while gathers
    /// of the space are open.
    #[inline]
    pub(crate) fn note_gather(&self, table: Pfn) {
        let table = self.frames().table(table);
        let (key, sequence) = table.pending();
        table.set_pending(with_gather(key, true), sequence);
    }

    /// Flushes the space if the flush of any entry of `table` is deferred and not settled.
    ///
    /// For a caller that holds the space exclusively, so that no gather is open, and will store
    /// many entries in the table. It holds the lock of the table.
    pub fn flush_pending_table(&self, context: &TlbContext, table: Pfn) {
        plant!(MovedOverPending => return);
        let table = self.frames().table(table);
        let keys = [table.pending().0, table.lingering()];
        self.flush_owed(DependentOperation::StoreMany, context, keys.map(|key| self.owed_under(context, key)));
    }

    /// Flushes the entry in `slot` before an install, if its clearing may not be flushed yet.
    ///
    /// `slot` is not present, is of `level`, and translates `va`. If a concurrent gather has edited
    /// the table and may be open, that flushes the entry; if the entry is pending under a key that
    /// is not settled, the whole space (INV-TLB-CLEARED, INV-TLB-DEFERRED). The caller holds the
    /// lock of the table.
    #[inline]
    pub fn flush_before_install(&self, context: &TlbContext, slot: PteSlot, va: VirtAddr, level: Level) {
        self.use_context(context, LineUse::Load);
        let table = self.frames().table(slot.table);
        let lingers = plant!(LingeringNotSeenAtInstall; false, table.lingering() != TableKey::NONE);
        let keyed = table.pending().0 != TableKey::NONE || lingers;
        if keyed || context.unplaced().is_some() {
            self.flush_pending_entry(context, slot, va, level);
        }
    }

    #[cold]
    fn flush_pending_entry(&self, context: &TlbContext, slot: PteSlot, va: VirtAddr, level: Level) {
        let table = self.frames().table(slot.table);
        let (key, mut sequence) = table.pending();
        let gathered = has_gather(key) && context.is_flush_pending();
        if gathered {
            let start = va.align_down(level.span());
            let range = Some(PageRange::new(start, start.add(level.span())));
            self.flush(context, FlushInfo { range, level, freed_tables: false });
            assert_covers(DependentOperation::Install, EntryDeferral::Gathered, FlushCover::Entry);
        }
        plant!(DeferredNotSeenAtInstall => return);
        // After the count of gathers: a dropped one is recorded here before it leaves the count.
        let owed = [key, table.lingering()].map(|key| self.owed_under(context, key));
        let keys = owed.map(|owed| owed.map_or(TableKey::NONE, KeyedFlush::key));
        let pending = P::Isa::pending(self.fx().load(slot)).filter(|pending| pending.sequence == sequence);
        let had_keys = KeyedFlush::of(key).is_some() || table.lingering() != TableKey::NONE;
        if had_keys {
            sequence = self.sequence_after(keys, sequence);
        }
        table.set_pending(with_gather(keys[0], plant!(GatherMarkCleared; false, gathered)), sequence);
        table.set_lingering(keys[1]);
        let owed = match pending.map(|pending| plant!(OtherKeyAsked; !pending.lingers, pending.lingers)) {
            None => [None; 2],
            Some(false) => [owed[0], None],
            Some(true) => [None, owed[1]],
        };
        self.flush_owed(DependentOperation::Install, context, owed);
    }

    /// Flushes what `owed` names under each key, and what the space owes without a place.
    fn flush_owed(&self, operation: DependentOperation, context: &TlbContext, owed: [Option<KeyedFlush>; 2]) {
        let unplaced = context.unplaced().is_some_and(|deferred| !self.is_settled(context, deferred));
        let mut space = unplaced;
        let (mut flushed, mut cover) = (false, FlushCover::Nothing);
        for owed in owed.into_iter().flatten() {
            match owed.debtor {
                Debtor::Space => space = true,
                Debtor::Family => {
                    flushed |= self.flush_family(context, owed.deferred);
                    cover = FlushCover::Everything;
                }
            }
        }
        if space {
            flushed |= self.flush_deferred(context);
            cover = cover.max(FlushCover::Space);
        }
        if flushed {
            self.count(Counter::PwTlbBatchOvertaken, 1);
        }
        let states = [EntryDeferral::Pending, EntryDeferral::Lingering];
        for (owed, own) in owed.into_iter().zip(states) {
            if let Some(owed) = owed {
                assert_covers(operation, owed.state(own), cover);
            }
        }
        if unplaced {
            assert_covers(operation, EntryDeferral::Unplaced, cover);
        }
    }
}
