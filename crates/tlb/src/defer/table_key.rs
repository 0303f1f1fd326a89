//! Deferred flushes with a place: what the record of a table says about its entries.
//!
//! An entry that is cleared is *pending* if its flush is not complete when the lock of its table is
//! released. The mark is in the entry ([`PendingSequence`]), and since when it is pending is in the
//! record of the table ([`TableKey`]). So an install flushes only where an entry is pending, and an
//! install next to it flushes nothing.
//!
//! ```text
//!             record of the table            entry          an install there
//!             ------------------------       -----------    ----------------------------------------
//!   new       no key, sequence s             empty          stores
//!   absorb    key k, sequence s              pending s      flushes the space unless k is paid
//!   absorb    key k + k', sequence s         pending s      the same: the merged key covers both
//!   k paid,
//!   absorb    key k'', sequence s + 1        pending s      stores: the number is an older one
//!                                            pending s + 1  flushes the space unless k'' is paid
//!   zap of a swap entry that is pending s    pending s      as before: the mark stays
//!   publish   key with the mark of gathers   any            flushes the entry while gathers are open
//! ```
//!
//! INV-TLB-PLACE: an edit whose flush is deferred marks its entry and merges its epoch into the key
//! of the table, under the table's lock. Until an install, only an edit made after the flush turns
//! a pending entry into an empty one. A key is replaced only when it is paid, and the sequence number
//! moves with it, so no entry has to be looked for. A weakened entry that is still present has no
//! mark; the key covers it.
//!
//! A key names no debtor: it is that of the space which the install holds. A key belongs to a table
//! and ends with it. Operations that move entries or unhook tables hold the space exclusively, and
//! their gather pays all that is deferred in the space before they release it.
//!
//! Neighbours: [`Batch`](crate::Batch) and [`Gather::publish`](crate::Gather::publish) record;
//! `table` asks before it stores a leaf or hooks a table; `pay` says what is paid.
//!
//! Not guaranteed: that an entry that counts as pending is unflushed. The sequence number is short,
//! and the mark of gathers stands for all entries of its table.

use crate::context::{DeferredFlush, TlbContext};
use crate::engine::{FlushInfo, Tlb};
use pagewright_arch::{Isa, PendingSequence, PteSlot};
use pagewright_frame::TableKey;
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_types::{Counter, Level, PageRange, Pfn, VirtAddr};

/// Entries of the table were cleared by a gather that may be open.
const GATHER: u64 = 1 << 63;

/// What a batch or a dropped debt has deferred in the table.
fn deferred_in(key: TableKey) -> Option<DeferredFlush> {
    let raw = key.raw() & !GATHER;
    (raw != 0).then(|| DeferredFlush::from_raw(raw))
}

fn has_gather(key: TableKey) -> bool {
    key.raw() & GATHER != 0
}

/// What the entries of a table may owe.
#[derive(Clone, Copy)]
pub(crate) struct TableOwes {
    /// A flush that a batch has deferred.
    pub(crate) deferred: bool,
    /// The flush of a gather that may be open.
    pub(crate) gathered: bool,
}

impl<P: Platform> Tlb<P> {
    /// What the record of `table` says; whether it is paid is not asked.
    ///
    /// The caller holds the lock of the table.
    #[inline]
    pub(crate) fn owes_flush(&self, table: Pfn) -> TableOwes {
        let (key, _) = self.frames().table(table).pending();
        TableOwes { deferred: deferred_in(key).is_some(), gathered: has_gather(key) }
    }

    /// Records that the flush of the entry in `slot`, edited just now, is deferred.
    ///
    /// The caller holds the lock of the table.
    #[inline]
    pub(crate) fn note_pending(&self, context: &TlbContext, slot: PteSlot, now: DeferredFlush) {
        context.defer(now);
        let sequence = self.merge_into_key(context, slot.table, now);
        plant!(PendingNotMarked => return);
        // A leaf that was weakened stays: the key alone covers it.
        if let Some(pending) = P::Isa::pending(self.fx().load(slot), sequence) {
            self.fx().store(slot, pending);
        }
    }

    /// Adds a deferral to the key of a table, and returns the number of entries under that key.
    #[inline]
    fn merge_into_key(&self, context: &TlbContext, table: Pfn, now: DeferredFlush) -> PendingSequence {
        let table = self.frames().table(table);
        let (key, sequence) = table.pending();
        let (new, sequence) = match deferred_in(key) {
            Some(old) if old == now => return sequence,
            Some(old) if plant!(UnpaidKeyReplaced; true, self.has_paid(context, old)) => (now, sequence.next()),
            Some(old) => (old.and(now), sequence),
            None => (now, sequence),
        };
        table.set_pending(TableKey::new(new.raw() | key.raw() & GATHER), sequence);
        sequence
    }

    /// Records that a concurrent gather has edited entries of `table`.
    ///
    /// The caller holds the lock of the table.
    #[inline]
    pub(crate) fn note_gather(&self, table: Pfn) {
        let table = self.frames().table(table);
        let (key, sequence) = table.pending();
        table.set_pending(TableKey::new(key.raw() | GATHER), sequence);
    }

    /// Flushes the space if the flush of any entry of `table` is deferred and not paid.
    ///
    /// For a caller that holds the space exclusively, so that no gather is open, and will store
    /// many entries in the table. It holds the lock of the table.
    pub fn flush_pending_table(&self, context: &TlbContext, table: Pfn) {
        let (key, _) = self.frames().table(table).pending();
        let unpaid = deferred_in(key).is_some_and(|deferred| !self.has_paid(context, deferred));
        if (unpaid || context.unplaced().is_some()) && self.flush_deferred(context) {
            self.count(Counter::PwTlbBatchOvertaken, 1);
        }
    }

    /// Flushes the entry in `slot` before an install, if its clearing may not be flushed yet.
    ///
    /// `slot` is not present, is of `level`, and translates `va`. If a concurrent gather has edited
    /// the table and may be open, that flushes the entry; if the entry is pending under a key that
    /// is not paid, the whole space (INV-TLB-CLEARED, INV-TLB-DEFERRED). The caller holds the lock
    /// of the table.
    #[inline]
    pub fn flush_before_install(&self, context: &TlbContext, slot: PteSlot, va: VirtAddr, level: Level) {
        let (key, _) = self.frames().table(slot.table).pending();
        if key != TableKey::NONE || context.unplaced().is_some() {
            self.flush_pending_entry(context, slot, va, level);
        }
    }

    #[cold]
    fn flush_pending_entry(&self, context: &TlbContext, slot: PteSlot, va: VirtAddr, level: Level) {
        let table = self.frames().table(slot.table);
        let (mut key, mut sequence) = table.pending();
        if has_gather(key) {
            if context.is_flush_pending() {
                let start = va.align_down(level.span());
                let range = Some(PageRange::new(start, start.add(level.span())));
                self.flush(context, FlushInfo { range, level, freed_tables: false });
            } else {
                key = TableKey::new(key.raw() & !GATHER);
            }
        }
        plant!(DeferredNotSeenAtInstall => return);
        // After the count of gathers: a dropped one is recorded here before it leaves the count.
        let mut owes = context.unplaced().is_some_and(|deferred| !self.has_paid(context, deferred));
        if let Some(deferred) = deferred_in(key) {
            if self.has_paid(context, deferred) {
                (key, sequence) = (TableKey::new(key.raw() & GATHER), sequence.next());
            } else {
                owes |= P::Isa::pending_sequence(self.fx().load(slot)) == Some(sequence);
            }
        }
        table.set_pending(key, sequence);
        if owes && self.flush_deferred(context) {
            self.count(Counter::PwTlbBatchOvertaken, 1);
        }
    }
}
