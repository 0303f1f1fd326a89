//! Read-only translations that stay in TLBs after their entries are gone (MIGRC, LUF).
//!
//! A translation that allows no store, to a frame whose contents do not change, does no harm: an
//! access through it reads what the page holds. So its flush is not needed before the contents of
//! the frame change, or the program may rely on the address being empty.
//!
//! ```text
//!   entry cleared ─▶ judged ─┬─ may linger ──▶ the table's may-linger key     no flush
//!                            └─ may not ─────▶ Batch                          flushed by `settle`
//!   settle ─▶ the generation of each space moves ─▶ one DebtKey, of all CPUs that may hold one
//!                                                     ├─▶ the frame that the page left: parked
//!                                                     └─▶ the copy of the page: `settle_folio`
//! ```
//!
//! **INV-LINGER-MAY** A translation lingers only if the entry that was cleared was a leaf of the
//! last level in a table of one space; it allowed no store; every flush that its table or space
//! owed is settled; and no device walks the tables. So no TLB can hold a right to store to the
//! frame.
//!
//! **INV-LINGER-WHOLE** A folio lingers whole or not at all: if one entry may not, the spaces of
//! the others are flushed, too.
//!
//! **INV-LINGER-CONTENTS** While TLBs may read a page at a frame that it left, nothing stores to
//! the page, nor to that frame. The allocation that takes a free frame settles its key; an entry
//! gets a right to store to a folio, and the kernel stores to it, after its key was settled.
//! `mprotect` and a hint that is served give no such right. A page that an entry may store to moves
//! after its key was settled.
//!
//! Reclaim also leaves a key on pages that it unmapped and kept: they are read where they are, so a
//! store does no harm until they move.
//!
//! **INV-LINGER-GENERATION** Clocks settle the key of translations that linger only after the batch
//! has moved the generation of the space. A CPU that comes back to the space before that would not
//! flush what it has kept.
//!
//! The generation moves once for each space and batch, not once for each page.
//!
//! Nothing lingers where the flush would wait for no other CPU.
//!
//! Neighbours: `table_key` records; `settle` says what is settled; the ledger keeps the key of the
//! frames.
//!
//! Not guaranteed: that a folio whose translations linger can be stored to without a wait.

use super::batch::Batch;
use crate::context::TlbContext;
use crate::debt::Debt;
use crate::detached::{DetachedHolder, DetachedList, IntoDetachedPieces};
use crate::engine::Tlb;
use crate::ledger::SpaceGeneration;
use arrayvec::ArrayVec;
use core::sync::atomic::Ordering;
use pagewright_arch::ShootdownKind;
use pagewright_frame::{Folio, Frames};
use pagewright_plant::plant;
use pagewright_sync::{Arc, Backend, Platform, bomb};
use pagewright_types::{Counter, CpuMask, DebtKey, Level, Pfn};

/// Spaces whose generation a batch moves together.
const SPACES: usize = 16;

/// Why a translation may not linger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LingerRefusal {
    /// The caller says so, of the page.
    Page,
    /// Clearing the entry owed nothing: it was inaccessible, and flushed since.
    NothingOwed,
    /// The entry allowed stores.
    Writable,
    /// The entry is above the last level.
    Block,
    /// Several spaces reach the table.
    SharedTable,
    /// A flush of the table or the space is not complete, and may be of a right to store.
    Unflushed,
    /// A device walks the tables of the space.
    Device,
    /// No other CPU may hold it.
    NoWait,
    /// The folio has translations in more spaces than a batch remembers.
    ManySpaces,
}

impl LingerRefusal {
    fn counter(self) -> Counter {
        match self {
            Self::Page => Counter::PwLingerPageRefused,
            Self::NothingOwed => Counter::PwLingerNothingOwed,
            Self::Writable => Counter::PwLingerWritable,
            Self::Block | Self::SharedTable | Self::ManySpaces => Counter::PwLingerShared,
            Self::Unflushed => Counter::PwLingerUnflushed,
            Self::Device => Counter::PwLingerDevice,
            Self::NoWait => Counter::PwLingerNoWait,
        }
    }
}

/// What is decided of the folio whose entries are being cleared.
#[derive(Clone, Copy)]
enum FolioChoice {
    /// The number of its translations that linger.
    Lingers(u32),
    Refused,
}

/// Debts of any number of spaces, of which those that may linger are not flushed.
///
/// # Panics
/// INV-TLB-DEBT: a debug build panics when it is dropped unsettled; see [`Debt`].
#[must_use = "a batch owes a TLB flush: settle it"]
pub struct LazyBatch<'t, P: Platform> {
    batch: Batch<'t, P>,
    /// Whether anything may linger.
    lingers: bool,
    folio: FolioChoice,
    /// Spaces in which translations linger, and whose generation has not moved since.
    spaces: ArrayVec<Arc<TlbContext>, SPACES>,
    /// The CPUs that owe the flush of the other spaces in which translations linger.
    ///
    /// x86: those that may hold such a translation; arm64: those that have issued invalidations.
    owing: CpuMask,
    /// The generation that settles, if translations linger in one space.
    of_space: Option<SpaceGeneration>,
    /// Translations that linger.
    entries: u32,
    detached: DetachedList,
}

impl<'t, P: Platform> LazyBatch<'t, P> {
    /// Creates an empty batch, in which translations may linger if `lingers`.
    pub fn new(tlb: &'t Tlb<P>, lingers: bool) -> Self {
        if lingers && !tlb.may_have_lingered() {
            plant!(LingeringNotNoted; (), tlb.has_lingered.store(true, Ordering::Relaxed));
        }
        Self {
            batch: Batch::new(tlb),
            lingers,
            folio: FolioChoice::Refused,
            spaces: ArrayVec::new(),
            owing: CpuMask::EMPTY,
            of_space: None,
            entries: 0,
            detached: DetachedList::new(),
        }
    }

    /// Begins the entries of another folio; `may_linger` is what the caller knows of its contents.
    pub fn begin_folio(&mut self, may_linger: bool) {
        self.folio = FolioChoice::Lingers(0);
        if self.lingers && !may_linger {
            self.refuse(LingerRefusal::Page);
        }
    }

    /// Whether all entries of the folio that were absorbed linger, and there is one.
    ///
    /// Counts the folio. The caller has absorbed its last entry.
    pub fn end_folio(&mut self) -> bool {
        let lingers = matches!(self.folio, FolioChoice::Lingers(1..));
        if lingers {
            self.tlb().count(Counter::PwLingerPages, 1);
        }
        self.folio = FolioChoice::Refused;
        lingers
    }

    fn tlb(&self) -> &'t Tlb<P> {
        self.batch.tlb
    }

    /// Lets the translations of an edit linger, if they may.
    ///
    /// The table of `context` is reached by other spaces, too, if it `is_shared`. The caller still
    /// holds its lock.
    ///
    /// # Errors
    /// The debt, which must be flushed: the caller adds it to [`Self::batch`].
    pub(crate) fn try_linger<'d, T: IntoDetachedPieces>(
        &mut self,
        context: &Arc<TlbContext>,
        is_shared: bool,
        debt: Debt<'d, P, T>,
    ) -> Result<(), Debt<'d, P, T>> {
        if self.lingers && matches!(self.folio, FolioChoice::Lingers(_)) {
            match self.judge(context, is_shared, &debt) {
                Ok(()) => {
                    self.let_linger(context, debt);
                    return Ok(());
                }
                Err(refusal) => self.refuse(refusal),
            }
        }
        Err(debt)
    }

    /// The debts that are flushed.
    pub(crate) fn batch(&mut self) -> &mut Batch<'t, P> {
        &mut self.batch
    }

    /// Whether the translations of an entry may linger (INV-LINGER-MAY).
    fn judge<T: IntoDetachedPieces>(
        &self,
        context: &Arc<TlbContext>,
        is_shared: bool,
        debt: &Debt<'_, P, T>,
    ) -> Result<(), LingerRefusal> {
        let table = debt.slot().map(|slot| slot.table);
        let refusal = match (debt.level(), table) {
            (None, _) => LingerRefusal::NothingOwed,
            (Some(level), _) if level > Level::PTE => LingerRefusal::Block,
            (Some(_), None) => LingerRefusal::Block,
            _ if !plant!(WritableLingers; true, debt.is_cleared_read_only()) => LingerRefusal::Writable,
            _ if is_shared => LingerRefusal::SharedTable,
            _ if plant!(DeviceLingers; false, context.has_secondaries()) => LingerRefusal::Device,
            _ if !self.batch.would_defer(context) => LingerRefusal::NoWait,
            (Some(_), Some(table)) if self.tlb().owes_must_flush(context, table) => LingerRefusal::Unflushed,
            _ if self.spaces.is_full() && matches!(self.folio, FolioChoice::Lingers(1..)) && !self.has(context) => {
                LingerRefusal::ManySpaces
            }
            (Some(_), Some(_)) => return Ok(()),
        };
        Err(refusal)
    }

    /// Whether the generation of a space is still to move.
    fn has(&self, context: &Arc<TlbContext>) -> bool {
        self.spaces.iter().any(|other| Arc::ptr_eq(other, context))
    }

    /// Flushes the folio's entries, those that were let linger before too (INV-LINGER-WHOLE).
    #[cold]
    fn refuse(&mut self, refusal: LingerRefusal) {
        if let FolioChoice::Lingers(1..) = self.folio {
            // Which spaces are the folio's is not known.
            let spaces = plant!(FolioLingersInPart; &[][..], &self.spaces);
            spaces.iter().for_each(|context| self.batch.absorb_space(context));
        }
        self.folio = FolioChoice::Refused;
        self.tlb().count(refusal.counter(), 1);
    }

    fn let_linger<T: IntoDetachedPieces>(&mut self, context: &Arc<TlbContext>, debt: Debt<'_, P, T>) {
        let tlb = self.tlb();
        let (slot, va) = (debt.slot().expect("INV-LINGER-MAY: an entry with a place"), debt.range().start());
        let (_, _, detached) = debt.dissolve();
        if !self.has(context) {
            if self.spaces.is_full() {
                self.move_generations();
            }
            context.inc_lingerers();
            self.spaces.push(context.clone());
        }
        let issuer = tlb.defer_lingering(context, slot, va);
        issuer.into_iter().for_each(|cpu| self.owing.insert(cpu));
        self.entries += 1;
        if let FolioChoice::Lingers(entries) = &mut self.folio {
            *entries += 1;
        }
        detached.for_each_piece(&mut |piece| self.keep(piece));
    }

    /// Moves the generation of each space, and notes which CPUs may hold what lingers there.
    fn move_generations(&mut self) {
        let many = self.of_space.is_some() || !self.owing.is_empty() || self.spaces.len() > 1;
        for context in self.spaces.drain(..) {
            if self.batch.tlb.fx().caps().shootdown == ShootdownKind::Ipi {
                // INV-TLB-SWITCH: the generation moves before the mask is read.
                let generation = context.bump();
                P::Locks::point();
                self.owing.insert_all(&context.cpus());
                self.of_space = (!many).then_some(SpaceGeneration { space: context.id(), generation });
            }
            // After the generation: clocks count from here on (INV-LINGER-GENERATION).
            context.dec_lingerers();
        }
    }

    /// Waits for what may not linger, and returns the key of what does.
    ///
    /// The key is [`DebtKey::NONE`] if nothing lingers. The frames that the edits detached are
    /// freed, or parked under the key.
    ///
    /// # Panics
    /// In debug builds when the caller may not wait for other CPUs.
    pub fn settle(mut self) -> DebtKey {
        self.batch.flush_and_free();
        self.open_key()
    }

    /// Opens the key of what lingers, and parks what its edits detached.
    fn open_key(&mut self) -> DebtKey {
        self.move_generations();
        if core::mem::take(&mut self.entries) == 0 {
            return DebtKey::NONE;
        }
        let owing = core::mem::replace(&mut self.owing, CpuMask::EMPTY);
        let key = self.tlb().ledger().open_of(owing, self.of_space.take());
        let (tlb, detached) = (self.batch.tlb, &mut self.detached);
        tlb.park_under(key, |sink| detached.drain(tlb.frames(), sink));
        key
    }
}

impl<P: Platform> DetachedHolder<P> for LazyBatch<'_, P> {
    fn detached(&mut self) -> (&mut DetachedList, &Frames<P>) {
        (&mut self.detached, self.batch.tlb.frames())
    }

    fn flush_and_free(&mut self) {
        self.open_key();
    }
}

impl<P: Platform> Drop for LazyBatch<'_, P> {
    fn drop(&mut self) {
        if self.entries > 0 {
            let entries = self.entries;
            let key = self.open_key();
            self.tlb().settle(key);
            bomb::dropped(format_args!("INV-TLB-DEBT: batch of {entries} lingering entries dropped unsettled"));
        }
    }
}

impl<P: Platform> Tlb<P> {
    /// Settles what TLBs may still read of a folio, before anything stores to it.
    ///
    /// INV-LINGER-CONTENTS. One load where nothing has ever lingered. The caller holds the lock of
    /// a table that maps the folio, or a reference: so the page does not move meanwhile.
    #[inline]
    pub fn settle_folio(&self, folio: Folio<'_>) {
        if self.may_have_lingered() {
            self.settle_folio_key(folio);
        }
    }

    /// Whether any folio may have the key of translations that linger.
    ///
    /// Exact for folios that the caller found under a lock: a batch in which translations may
    /// linger says so before it clears the first entry.
    #[inline]
    pub fn may_have_lingered(&self) -> bool {
        self.has_lingered.load(Ordering::Relaxed)
    }

    #[cold]
    fn settle_folio_key(&self, folio: Folio<'_>) {
        plant!(StoredWhileLingering => return);
        let key = folio.debt();
        if key == DebtKey::NONE {
            return;
        }
        if self.attribute_flushes(Counter::PwLingerStoreWaits, || self.settle_owing(key)) {
            self.count(Counter::PwLingerSettledForStore, 1);
        }
        folio.forget_debt(key);
    }

    /// Whether CPUs may still read another frame of the folio's page, so that nothing may store.
    #[inline]
    pub fn must_settle(&self, folio: Folio<'_>) -> bool {
        let key = folio.debt();
        key != DebtKey::NONE && !self.owing(key).0.is_empty()
    }

    /// Whether a flush of rights is not complete that entries of `table`, or the space, owe.
    ///
    /// The caller holds the lock of the table.
    fn owes_must_flush(&self, context: &TlbContext, table: Pfn) -> bool {
        plant!(LingersUnflushed => return false);
        let (key, _) = self.frames().table(table).pending();
        context.is_flush_pending()
            || self.owed_under(context, key).is_some()
            || context.unplaced().is_some_and(|deferred| !self.is_settled(context, deferred))
    }
}
