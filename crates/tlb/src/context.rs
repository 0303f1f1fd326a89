//! What an address space is to the TLBs.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use pagewright_plant::{plant, planted};
use pagewright_sync::AtomicCpuMask;
use pagewright_types::{CpuId, CpuMask, DebtKey, Pfn, SpaceId, Tag};

/// A deferred flush: the epoch since which it is owed, and the CPU that issued it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeferredFlush(u64);

impl DeferredFlush {
    const ISSUER_BITS: u32 = 16;
    /// Several issuers, or a machine on which the issuer does not matter.
    const ANYONE: u64 = (1 << Self::ISSUER_BITS) - 1;

    /// A flush deferred at `epoch` of the ledger; `issuer` if only the barrier of that CPU ends it.
    pub(crate) fn new(epoch: u64, issuer: Option<CpuId>) -> Self {
        let issuer = issuer.map_or(Self::ANYONE, |cpu| cpu.index() as u64);
        Self((epoch + 1) << Self::ISSUER_BITS | issuer)
    }

    /// The flush that a dropped debt owes, whose key the ledger has opened.
    pub(crate) fn of_key(key: DebtKey, issuer: Option<CpuId>) -> Self {
        Self::new(key.epoch() - 1, issuer)
    }

    /// The epoch that a clock must have reached for its CPU to owe the flush no more.
    pub(crate) fn epoch(self) -> u64 {
        self.0 >> Self::ISSUER_BITS
    }

    /// The CPU whose clock counts, if one issued.
    pub(crate) fn issuer(self) -> Option<CpuId> {
        let issuer = self.0 & Self::ANYONE;
        (issuer != Self::ANYONE).then(|| CpuId::new(issuer as u16))
    }

    /// The flush in the bits of a [`TableKey`](pagewright_frame::TableKey).
    pub(crate) fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// The bits, of which the highest is clear.
    pub(crate) fn raw(self) -> u64 {
        self.0
    }

    /// Both of two.
    pub(crate) fn and(self, other: Self) -> Self {
        plant!(LatestDeferralKept => return other);
        let issuer = self.issuer().filter(|_| self.issuer() == other.issuer());
        Self::new(self.epoch().max(other.epoch()) - 1, issuer)
    }
}

/// One address space as the TLBs see it (Linux's `mm_context_t` and `mm_cpumask`).
pub struct TlbContext {
    id: SpaceId,
    root: Pfn,
    /// CPUs that may hold translations of the space.
    ///
    /// On x86 a CPU leaves when it switches away, because the generation catches up whatever it
    /// kept under its tag.
    pub(crate) cpus: AtomicCpuMask,
    /// Bumped by every flush (x86 `tlb_gen`); starts at 1 so that 0 means "never seen".
    generation: AtomicU64,
    /// Gathers that clear entries while other CPUs may fault (Linux's `tlb_flush_pending`).
    flush_pending: AtomicU32,
    /// Those of them that edit or have edited tables above the last level.
    upper_gathers: AtomicU32,
    /// Those of these whose edits page-table walkers may not see yet.
    upper_edits: AtomicU32,
    /// The latest flush that a [`crate::Batch`] has deferred (Linux's `tlb_flush_batched`).
    ///
    /// [`DeferredFlush`] packs it.
    deferred: AtomicU64,
    /// The latest of those that no table records, or 0.
    unplaced: AtomicU64,
    /// The epoch up to which everything that was deferred in the space is flushed.
    flushed: AtomicU64,
    /// Batches that let translations of the space linger, and have not moved its generation since.
    lingerers: AtomicU32,
    /// How many [`crate::SecondaryMmu`]s are registered.
    pub(crate) secondaries: AtomicU32,
    /// arm64: the ASID in the low 16 bits, the allocator's generation above.
    ///
    /// It is 0 before the first switch.
    pub(crate) asid: AtomicU64,
}

impl TlbContext {
    pub(crate) fn new(id: SpaceId, root: Pfn) -> Self {
        Self {
            id,
            root,
            cpus: AtomicCpuMask::new(),
            generation: AtomicU64::new(1),
            flush_pending: AtomicU32::new(0),
            upper_gathers: AtomicU32::new(0),
            upper_edits: AtomicU32::new(0),
            deferred: AtomicU64::new(0),
            unplaced: AtomicU64::new(0),
            flushed: AtomicU64::new(0),
            lingerers: AtomicU32::new(0),
            secondaries: AtomicU32::new(0),
            asid: AtomicU64::new(0),
        }
    }

    /// The space's id.
    pub fn id(&self) -> SpaceId {
        self.id
    }

    /// The frame of the root table.
    pub fn root(&self) -> Pfn {
        self.root
    }

    /// The CPUs that may hold translations of the space at this moment.
    pub fn cpus(&self) -> CpuMask {
        self.cpus.load()
    }

    /// The flush generation that a CPU must have seen to hold nothing stale.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    /// Starts a new generation; a full barrier before the mask is read (INV-TLB-SWITCH).
    pub(crate) fn bump(&self) -> u64 {
        self.generation.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Whether an operation that shares the space may have cleared entries and not flushed yet.
    #[inline]
    pub(crate) fn is_flush_pending(&self) -> bool {
        self.flush_pending.load(Ordering::SeqCst) > 0
    }

    /// The latest deferred flush, unless the space has been flushed since.
    #[inline]
    pub(crate) fn deferred(&self) -> Option<DeferredFlush> {
        self.unless_flushed(&self.deferred)
    }

    /// The latest deferred flush that no table records, unless the space has been flushed since.
    #[inline]
    pub(crate) fn unplaced(&self) -> Option<DeferredFlush> {
        self.unless_flushed(&self.unplaced)
    }

    #[inline]
    fn unless_flushed(&self, word: &AtomicU64) -> Option<DeferredFlush> {
        let deferred = DeferredFlush(word.load(Ordering::SeqCst));
        (deferred.0 != 0 && !self.is_flushed(deferred)).then_some(deferred)
    }

    /// Whether the space was flushed after `deferred` arose.
    #[inline]
    pub(crate) fn is_flushed(&self, deferred: DeferredFlush) -> bool {
        self.is_flushed_up_to(deferred.epoch())
    }

    /// As [`is_flushed`](Self::is_flushed), of all that a clock at `epoch` settles.
    #[inline]
    pub(crate) fn is_flushed_up_to(&self, epoch: u64) -> bool {
        epoch <= self.flushed.load(Ordering::SeqCst)
    }

    /// Notes that the flush of an entry, edited just now, is deferred.
    ///
    /// The caller holds the lock of the entry's table.
    #[inline]
    pub(crate) fn defer(&self, now: DeferredFlush) {
        self.add_to(&self.deferred, now);
    }

    /// As [`defer`](Self::defer), if no table records it: every install in the space flushes it.
    #[cold]
    pub(crate) fn defer_unplaced(&self, now: DeferredFlush) {
        self.add_to(&self.unplaced, now);
        self.defer(now);
    }

    #[inline]
    fn add_to(&self, word: &AtomicU64, now: DeferredFlush) {
        let mut old = word.load(Ordering::SeqCst);
        loop {
            let settled = self.is_flushed(DeferredFlush(old));
            let new = if settled { now } else { DeferredFlush(old).and(now) };
            if new.0 == old {
                return;
            }
            match word.compare_exchange_weak(old, new.0, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return,
                Err(other) => old = other,
            }
        }
    }

    /// Notes that everything deferred up to `epoch` is flushed.
    pub(crate) fn note_flushed(&self, epoch: u64) {
        plant!(LateAdderCleared => self.note_latest_flushed());
        self.flushed.fetch_max(epoch, Ordering::SeqCst);
    }

    planted! {
        /// Notes that what is deferred by now is flushed, also after the flush began.
        fn note_latest_flushed(&self) {
            let deferred = DeferredFlush(self.deferred.load(Ordering::SeqCst));
            self.flushed.fetch_max(deferred.epoch(), Ordering::SeqCst);
        }
    }

    /// As [`is_flush_pending`](Self::is_flush_pending), of operations beside the caller's.
    ///
    /// The gather of the caller is among those that are counted.
    pub(crate) fn is_flush_nested(&self) -> bool {
        self.flush_pending.load(Ordering::SeqCst) > 1
    }

    /// How many open gathers edit or have edited tables above the last level.
    pub(crate) fn upper_gathers(&self) -> u32 {
        self.upper_gathers.load(Ordering::SeqCst)
    }

    /// A gather is going to edit a table above the last level, whose lock it holds.
    pub(crate) fn inc_upper_gathers(&self) {
        self.upper_gathers.fetch_add(1, Ordering::SeqCst);
    }

    /// Such a gather is flushed.
    pub(crate) fn dec_upper_gathers(&self) {
        self.upper_gathers.fetch_sub(1, Ordering::SeqCst);
    }

    /// How many gathers have edits in tables above the last level that walkers may not see yet.
    pub(crate) fn upper_edits(&self) -> u32 {
        self.upper_edits.load(Ordering::SeqCst)
    }

    /// A gather is going to edit tables above the last level.
    pub(crate) fn inc_upper_edits(&self) {
        self.upper_edits.fetch_add(1, Ordering::SeqCst);
    }

    /// Walkers see its edits.
    pub(crate) fn dec_upper_edits(&self) {
        self.upper_edits.fetch_sub(1, Ordering::SeqCst);
    }

    /// Entries are going to be cleared.
    pub(crate) fn inc_flush_pending(&self) {
        self.flush_pending.fetch_add(1, Ordering::SeqCst);
    }

    /// What was cleared has been flushed.
    pub(crate) fn dec_flush_pending(&self) {
        self.flush_pending.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether translations linger that no generation tells a CPU to flush when it comes back.
    #[inline]
    pub(crate) fn has_lingerers(&self) -> bool {
        self.lingerers.load(Ordering::SeqCst) > 0
    }

    /// A batch lets a translation linger; it holds the lock of the table.
    pub(crate) fn inc_lingerers(&self) {
        self.lingerers.fetch_add(1, Ordering::SeqCst);
    }

    /// Moves the generation in place of batches that have not yet, for a caller that asks clocks.
    #[inline]
    pub(crate) fn move_for_lingerers(&self) {
        if self.has_lingerers() {
            self.bump();
        }
    }

    /// That batch has moved the generation.
    pub(crate) fn dec_lingerers(&self) {
        self.lingerers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether a device translates through the space.
    #[inline]
    pub(crate) fn has_secondaries(&self) -> bool {
        self.secondaries.load(Ordering::SeqCst) > 0
    }

    /// arm64: the ASID last given to the space.
    ///
    /// Entries under an older one are gone since the rollover that took it back.
    pub(crate) fn asid_tag(&self) -> Tag {
        Tag::new(self.asid.load(Ordering::SeqCst) as u16)
    }
}
