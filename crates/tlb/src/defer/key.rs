//! The keys in the record of a table: since when its entries owe a flush, and which spaces do.
//!
//! A table has two keys. That of entries which *must be flushed* stands for rights that were taken
//! away; that of translations which *may linger* for read-only ones of pages whose contents are
//! kept. Both have the form of [`KeyedFlush`], and share the sequence number of pending entries.
//!
//! ```text
//!   bit    63       62       61 … 16     15 … 0
//!          GATHER   MERGED   epoch + 1   issuer      of the must-flush key
//!          0        MERGED   epoch + 1   issuer      of the may-linger key
//! ```
//!
//! Protocol: a key names no space, because the record of a table does not say which spaces reach
//! it. The key of an own table is that of its space, and the flush of that space settles it. The
//! key of a table that was ever shared is *merged*: every space of the family owes it, so the flush
//! of one does not settle it ([`Debtor`]). The clocks of the CPUs do, or the batches.
//!
//! Neighbours: `table_key` records, asks, and says what becomes of a table's keys; `settle` says
//! what a space still owes.
//!
//! Not guaranteed: that a merged key is recognised as settled once each member was flushed. Spaces
//! have no common record of that.

use super::cover::EntryDeferral;
use crate::context::{DeferredFlush, TlbContext};
use crate::engine::Tlb;
use pagewright_arch::ShootdownKind;
use pagewright_frame::TableKey;
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_types::{CpuId, Pfn};

/// Entries of the table were cleared by a gather that may be open.
const GATHER: u64 = 1 << 63;
/// Several spaces owe the flush.
const MERGED: u64 = 1 << 62;

/// Which spaces owe the flush of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Debtor {
    /// The space that owns the table; it is that of the operation which holds the table's lock.
    Space,
    /// Every space that shares the table, or shared it.
    Family,
}

/// The flush that a key of a table asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyedFlush {
    pub(crate) deferred: DeferredFlush,
    pub(crate) debtor: Debtor,
}

impl KeyedFlush {
    /// What a batch, a dropped debt or a lingering translation has deferred under `key`.
    #[inline]
    pub(crate) fn of(key: TableKey) -> Option<Self> {
        let raw = key.raw() & !(GATHER | MERGED);
        let debtor = if key.raw() & MERGED == 0 { Debtor::Space } else { Debtor::Family };
        (raw != 0).then(|| Self { deferred: DeferredFlush::from_raw(raw), debtor })
    }

    /// The flush of an own table's entry.
    #[inline]
    pub(crate) fn of_space(deferred: DeferredFlush) -> Self {
        Self { deferred, debtor: Debtor::Space }
    }

    /// The key, without the mark of gathers.
    #[inline]
    pub(crate) fn key(self) -> TableKey {
        let merged = match self.debtor {
            Debtor::Space => 0,
            Debtor::Family => MERGED,
        };
        debug_assert_eq!(self.deferred.raw() & (GATHER | MERGED), 0, "the epoch of {self:?} exceeds a key");
        TableKey::new(self.deferred.raw() | merged)
    }

    /// Both of two.
    #[inline]
    pub(crate) fn and(self, other: Self) -> Self {
        let debtor = if self.debtor == other.debtor {
            self.debtor
        } else {
            plant!(MergedKeyLost; Debtor::Space, Debtor::Family)
        };
        Self { deferred: self.deferred.and(other.deferred), debtor }
    }

    /// The state of an entry that owes the flush: `own`, unless the key is merged.
    pub(crate) fn state(self, own: EntryDeferral) -> EntryDeferral {
        match self.debtor {
            Debtor::Space => own,
            Debtor::Family => EntryDeferral::Merged,
        }
    }

    /// The same flush, owed by every space of a family.
    #[inline]
    pub(crate) fn merged(self) -> Self {
        Self { debtor: Debtor::Family, ..self }
    }
}

/// Whether a gather that may be open has cleared entries of the table with this must-flush key.
#[inline]
pub(crate) fn has_gather(key: TableKey) -> bool {
    key.raw() & GATHER != 0
}

/// `key` with or without the mark of gathers.
#[inline]
pub(crate) fn with_gather(key: TableKey, gather: bool) -> TableKey {
    TableKey::new(if gather { key.raw() | GATHER } else { key.raw() & !GATHER })
}

/// What the entries of the tables that an operation has met owe.
#[derive(Clone, Copy, Default)]
pub(crate) struct TablesOwe {
    /// The flush of the operation's space.
    pub(crate) own: Option<DeferredFlush>,
    /// The flush of every space that shares, or shared, one of the tables.
    pub(crate) family: Option<DeferredFlush>,
    /// The flush of a gather that may be open.
    pub(crate) gathered: bool,
}

impl TablesOwe {
    pub(crate) fn add(&mut self, owed: KeyedFlush) {
        let of_debtor = match owed.debtor {
            Debtor::Space => &mut self.own,
            Debtor::Family => &mut self.family,
        };
        *of_debtor = Some(of_debtor.map_or(owed.deferred, |old| old.and(owed.deferred)));
    }
}

impl<P: Platform> Tlb<P> {
    /// Adds to `owed` what the entries of `table` still owe, under both keys.
    ///
    /// The caller holds the lock of the table, or the space exclusively.
    #[inline]
    pub(crate) fn add_owed(&self, context: &TlbContext, table: Pfn, owed: &mut TablesOwe) {
        let table = self.frames().table(table);
        let (key, _) = table.pending();
        let lingering = plant!(LingeringNotMet; TableKey::NONE, table.lingering());
        if key != TableKey::NONE || lingering != TableKey::NONE {
            owed.gathered |= has_gather(key);
            [key, lingering]
                .into_iter()
                .filter_map(|key| self.owed_under(context, key))
                .for_each(|flush| owed.add(flush));
        }
    }

    /// The flush that `key` asks for, unless it is settled.
    #[inline]
    pub(crate) fn owed_under(&self, context: &TlbContext, key: TableKey) -> Option<KeyedFlush> {
        KeyedFlush::of(key).filter(|owed| match plant!(MergedSettledBySpace; Debtor::Space, owed.debtor) {
            Debtor::Space => !self.is_settled(context, owed.deferred),
            Debtor::Family => context.has_lingerers() || !self.is_settled_in_family(owed.deferred),
        })
    }

    /// Whether no CPU can hold what was deferred, whichever space it runs.
    ///
    /// Only batches defer for a family, so none is owed once they have settled
    /// (INV-TLB-BATCH-SETTLED). A CPU that is lazy, or runs no space of the family, is caught up by
    /// the generation: a deferral advances that of each member.
    pub(crate) fn is_settled_in_family(&self, deferred: DeferredFlush) -> bool {
        let reached = |cpu: CpuId| self.ledger().has_reached(cpu, deferred.epoch());
        self.ledger().clocks_have_reached(deferred.epoch())
            || self.ledger().batches_have_settled(deferred.epoch())
            || match (self.fx().caps().shootdown, deferred.issuer()) {
                (ShootdownKind::Broadcast, Some(issuer)) => reached(issuer),
                (ShootdownKind::Ipi | ShootdownKind::Broadcast, _) => {
                    self.fx().online().iter().all(|cpu| self.is_lazy(cpu) || reached(cpu))
                }
            }
    }

    /// Flushes everything on the CPUs that still owe a merged key; returns whether one did.
    ///
    /// `context` is the space through which its table was found.
    #[cold]
    pub(crate) fn flush_family(&self, context: &TlbContext, deferred: DeferredFlush) -> bool {
        context.move_for_lingerers();
        if self.is_settled_in_family(deferred) {
            return false;
        }
        match self.fx().caps().shootdown {
            ShootdownKind::Ipi => !self.flush_behind(self.fx().online(), deferred.epoch()),
            ShootdownKind::Broadcast => !self.complete_issued(deferred.issuer(), deferred.epoch(), None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_of_gathers_changes_and_says_nothing_else() {
        for rest in [0, 1, MERGED | 5 << 16 | 3] {
            for (before, gather) in [(rest, false), (rest, true), (rest | GATHER, false), (rest | GATHER, true)] {
                let key = with_gather(TableKey::new(before), gather);
                assert_eq!((has_gather(key), key.raw() & !GATHER), (gather, rest), "{before:#x}");
            }
        }
    }
}
