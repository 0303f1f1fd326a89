//! What an address space is to the TLBs.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use pagewright_sync::AtomicMask;
use pagewright_types::{CpuMask, Pfn, SpaceId, Tag};

/// The TLB side of one address space (Linux's `mm_context_t` and `mm_cpumask`).
pub struct Context {
    id: SpaceId,
    root: Pfn,
    /// CPUs that may hold translations of the space. On x86 a CPU leaves when it switches away, because the generation
    /// catches up whatever it kept under its tag.
    pub(crate) cpus: AtomicMask,
    /// Bumped by every flush (x86 `tlb_gen`); starts at 1 so that 0 means "never seen".
    generation: AtomicU64,
    /// Gathers of callers who clear entries while others may fault (Linux's `tlb_flush_pending`).
    unflushed: AtomicU32,
    /// arm64: the ASID in the low 16 bits, the allocator's generation above; 0 before the first switch.
    pub(crate) asid: AtomicU64,
}

impl Context {
    pub(crate) fn new(id: SpaceId, root: Pfn) -> Self {
        let (generation, asid) = (AtomicU64::new(1), AtomicU64::new(0));
        Self { id, root, cpus: AtomicMask::new(), generation, unflushed: AtomicU32::new(0), asid }
    }

    /// The space's id.
    pub fn id(&self) -> SpaceId {
        self.id
    }

    /// The frame of the root table.
    pub fn root(&self) -> Pfn {
        self.root
    }

    /// CPUs that may hold translations of the space at this moment.
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

    /// Whether somebody who does not have the space alone may have cleared entries that are not flushed yet. To be asked under the lock of
    /// the table in which an entry was found cleared (INV-TLB-CLEARED).
    #[inline]
    pub fn may_be_unflushed(&self) -> bool {
        self.unflushed.load(Ordering::SeqCst) > 0
    }

    /// Whether somebody but the caller, who is one of them, may have.
    pub(crate) fn others_may_be_unflushed(&self) -> bool {
        self.unflushed.load(Ordering::SeqCst) > 1
    }

    /// Entries are going to be cleared.
    pub(crate) fn begin_clearing(&self) {
        self.unflushed.fetch_add(1, Ordering::SeqCst);
    }

    /// What was cleared has been flushed.
    pub(crate) fn end_clearing(&self) {
        self.unflushed.fetch_sub(1, Ordering::SeqCst);
    }

    /// arm64: the ASID last given to the space. Entries under an older one are gone since the rollover that took it back.
    pub(crate) fn asid_tag(&self) -> Tag {
        Tag::new(self.asid.load(Ordering::SeqCst) as u16)
    }
}
