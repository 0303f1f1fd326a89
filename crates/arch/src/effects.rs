//! Every effect of the memory manager that hardware or another CPU can observe.
//!
//! `tlb` and `table` issue effects in one order, which the oracle checks: *store the entry →
//! [`Effects::publish`] → [`Effects::invalidate`] → [`Effects::complete`] (or every target of an
//! [`Effects::send_ipi`] has acknowledged) → reuse the frame*.

use crate::entry::Pte;
use crate::isa::Isa;
use crate::table_words::TableWords;
use pagewright_types::judge::Fact;
use pagewright_types::{CpuId, CpuMask, Granule, IsaKind, Level, Order, PageRange, Pfn, PhysAddr, Tag, VirtAddr};

/// The place of one entry in one page-table page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PteSlot {
    /// The table's frame.
    pub table: Pfn,
    /// Which of its entries: of 512, or of more with a larger granule.
    pub index: u16,
}

impl PteSlot {
    /// The entry at `at`, of a table that begins at a multiple of `granule`.
    pub const fn containing(at: PhysAddr, granule: Granule) -> Self {
        let within = at.raw() & (granule.bytes() - 1);
        Self { table: Pfn::containing(PhysAddr::new(at.raw() - within)), index: (within / 8) as u16 }
    }

    /// The physical address of the entry's eight bytes.
    pub const fn addr(self) -> PhysAddr {
        PhysAddr::new(self.table.base().raw() + self.index as u64 * 8)
    }
}

/// The CPUs whose TLBs an invalidation reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InvalidateScope {
    /// This CPU; complete when the call returns.
    Local,
    /// Every CPU (arm64, Inner Shareable); complete after this CPU's next [`Effects::complete`].
    Broadcast,
}

/// The entries that an invalidation removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InvalidateTarget {
    /// The translation of `va` under `tag`.
    ///
    /// Without `last_level`, also every walk-cache entry that a walk for `va` uses.
    Page {
        /// The tag of the entries.
        tag: Tag,
        /// Any address that the entry translates.
        va: VirtAddr,
        /// The level of the entry (arm64: the TTL hint).
        level: Level,
        /// Whether only the leaf changed (arm64 `VALE1`).
        ///
        /// x86's `INVLPG` always drops the walk caches of the tag.
        last_level: bool,
    },
    /// The translations of a range under `tag`, all of one level (arm64 FEAT_TLBIRANGE).
    Range {
        /// The tag of the entries.
        tag: Tag,
        /// The pages.
        range: PageRange,
        /// The level of the entries.
        level: Level,
        /// As in [`Self::Page`].
        last_level: bool,
    },
    /// The translations of `va` under every tag, and the global one (arm64 `VAAE1`, `VAALE1`).
    ///
    /// x86-64 has no such instruction.
    PageOfAllTags {
        /// Any address that the entry translates.
        va: VirtAddr,
        /// The level of the entry (arm64: the TTL hint).
        level: Level,
        /// As in [`Self::Page`].
        last_level: bool,
    },
    /// Every entry of one tag, except global entries.
    Tag(Tag),
    /// Every entry of every tag; on x86-64 except global entries (`INVPCID` type 3).
    AllTags,
    /// Every entry of every tag, and all global entries.
    ///
    /// On x86-64 `INVPCID` type 2, or a write that changes `CR4.PGE`. On arm64 the same as
    /// [`Self::AllTags`].
    Everything,
}

/// One TLB invalidation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Invalidate {
    /// The CPUs whose TLBs it reaches.
    pub scope: InvalidateScope,
    /// The entries that it removes.
    pub target: InvalidateTarget,
}

/// How a machine invalidates the TLBs of other CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ShootdownKind {
    /// Send an IPI and wait until every target has acknowledged it (x86).
    Ipi,
    /// Hardware broadcasts the invalidation; a barrier waits for its completion (arm64).
    Broadcast,
}

/// The capabilities of a machine, detected at boot and constant afterwards.
///
/// Code decides by these values and never by `cfg`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// How the TLBs of other CPUs are invalidated.
    pub shootdown: ShootdownKind,
    /// Whether translations carry tags (x86 with PCID; arm64 always).
    ///
    /// Without tags, every switch of root flushes.
    pub tagged: bool,
    /// The number of usable tags: 2^12 PCIDs, or 2^8 or 2^16 ASIDs.
    pub tags: u32,
    /// Whether a TLB keeps an entry that has just caused a permission fault (arm64).
    ///
    /// A fault that grants the right must then invalidate the entry on its own CPU (Linux's
    /// `flush_tlb_fix_spurious_fault`). x86 drops the entry when it faults (Intel SDM vol. 3A
    /// §4.10.4.1).
    pub keeps_faulting_entry: bool,
    /// Whether the machine supports [`InvalidateTarget::Range`] (arm64 FEAT_TLBIRANGE).
    pub range_invalidate: bool,
    /// Whether one TLBI and one DSB can leave a stale entry behind.
    ///
    /// Each invalidation must then be completed and issued again (Linux's
    /// `ARM64_WORKAROUND_REPEAT_TLBI`, for errata of Arm's Cortex-A55, A76 and A510).
    pub repeat_invalidate: bool,
    /// The bit by which user mode's tag differs from the installed one, under page-table isolation.
    ///
    /// With isolation (PTI, KPTI) user mode runs under a tag of its own, and TLBs hold translations
    /// of user memory under both tags. `None` without isolation.
    pub user_tag_bit: Option<Tag>,
}

impl Caps {
    /// A tagged machine of an instruction set.
    ///
    /// It has no range invalidation, no errata and no isolation.
    pub const fn baseline(isa: IsaKind) -> Self {
        let (shootdown, tags, keeps_faulting_entry) = match isa {
            IsaKind::X86_64 => (ShootdownKind::Ipi, 1 << 12, false),
            IsaKind::Aarch64 => (ShootdownKind::Broadcast, 1 << 16, true),
        };
        Self {
            shootdown,
            tagged: true,
            tags,
            keeps_faulting_entry,
            range_invalidate: false,
            repeat_invalidate: false,
            user_tag_bit: None,
        }
    }

    /// The tag of user mode while `tag` is installed, if user mode has a tag of its own.
    #[inline]
    pub fn user_tag(&self, tag: Tag) -> Option<Tag> {
        self.user_tag_bit.map(|bit| Tag::new(tag.raw() | bit.raw()))
    }
}

/// A handle to one machine; its methods act on the calling CPU.
///
/// A handle is cheap to clone: a reference count in the lab, a zero-sized value in a kernel.
///
/// Unless its documentation says otherwise, no method takes a lock of
/// [`pagewright-sync`](https://docs.rs/pagewright-sync) or allocates.
pub trait Effects: Clone + 'static {
    /// The instruction set whose tables this machine walks.
    type Isa: Isa;

    /// The capabilities of the machine.
    fn caps(&self) -> &Caps;

    /// The CPU on which the caller runs (`smp_processor_id`).
    ///
    /// The caller must not migrate to another CPU while it uses the value.
    fn cpu(&self) -> CpuId;

    /// The CPUs that are online.
    fn online(&self) -> CpuMask;

    /// Loads an entry by one atomic 8-byte load with acquire ordering.
    fn load(&self, slot: PteSlot) -> Pte;

    /// Stores an entry by one atomic 8-byte store with release ordering.
    ///
    /// Page-table walkers may see it only after [`Effects::publish`].
    fn store(&self, slot: PteSlot, pte: Pte);

    /// Exchanges an entry and returns the old one (`ptep_get_and_clear`).
    ///
    /// Atomic with respect to the accessed and dirty updates of page-table walkers.
    fn swap(&self, slot: PteSlot, pte: Pte) -> Pte;

    /// Stores `new` if the entry is `current`.
    ///
    /// # Errors
    /// The entry found instead, if it differs; nothing was stored.
    fn compare_exchange(&self, slot: PteSlot, current: Pte, new: Pte) -> Result<(), Pte>;

    /// The entries of a table as words, if an access of an entry is that of a word and no more.
    ///
    /// For a caller that accesses several entries of one table. The default has no words, so that
    /// the machine sees each access.
    #[inline]
    fn table_words(&self, table: Pfn) -> Option<TableWords<'_>> {
        let _ = table;
        None
    }

    /// Notes that this CPU has stored entries through [`table_words`](Self::table_words).
    #[inline]
    fn note_stores(&self, entries: u32) {
        let _ = entries;
    }

    /// Makes this CPU's earlier entry stores visible to every page-table walker.
    ///
    /// arm64: `DSB ISHST`. x86: nothing, because its walkers follow TSO.
    fn publish(&self);

    /// Issues an invalidation.
    fn invalidate(&self, op: Invalidate);

    /// Waits until every broadcast invalidation *issued by this CPU* is complete on all CPUs.
    ///
    /// arm64: `DSB ISH; ISB`. A barrier on another CPU does not complete this CPU's invalidations
    /// (Arm ARM D8.14.5).
    fn complete(&self);

    /// Interrupts `targets` (never the caller) to run the machine's shootdown handler.
    ///
    /// Returns at once; the handler acknowledges. Stores that precede the call are visible to the
    /// handlers (INV-MAIL-LOST).
    fn send_ipi(&self, targets: &CpuMask);

    /// Passes time while the caller waits for another CPU (`cpu_relax`).
    ///
    /// Interrupts are enabled inside.
    fn relax(&self);

    /// Makes this CPU's walks start at `root`, under `tag` (x86: CR3; arm64: TTBR0).
    ///
    /// Without `keep`, this CPU first drops its translations under `tag` and under
    /// [`Caps::user_tag`] (x86: `MOV CR3` with bit 63 clear).
    fn install_root(&self, root: Pfn, tag: Tag, keep: bool);

    /// Runs `body` with interrupts disabled on this CPU (`local_irq_save`).
    ///
    /// Lockless walks depend on it (INV-TLB-WALKERS), so there is no default. A machine that
    /// delivers interrupts only inside [`Effects::relax`] just runs `body`.
    fn without_interrupts<T>(&self, body: impl FnOnce() -> T) -> T;

    /// Whether the caller may wait for other CPUs.
    ///
    /// It may if interrupts are enabled and no interrupt handler runs.
    fn may_wait(&self) -> bool;

    /// Offers this CPU to other work, within an operation on many pages (`cond_resched`).
    ///
    /// The caller holds no lock and has interrupts enabled, so the machine may run other threads
    /// here; it returns on the same CPU. The default refuses every offer.
    #[inline]
    fn cond_resched(&self) {}

    /// Whether the next allocation of kernel memory or of a frame may proceed.
    ///
    /// `false` makes that allocation fail (Linux's `should_failslab`). The default never refuses.
    /// The lab refuses each allocation in turn.
    fn permit_allocation(&self) -> bool {
        true
    }

    /// Declares a fact to the judge of this machine's translations, if it has one.
    #[inline]
    fn declare(&self, fact: Fact) {
        let _ = fact;
    }

    /// Tells the judge that this CPU enters or leaves lazy TLB mode.
    ///
    /// In lazy mode the CPU runs a kernel thread on the root that is loaded, and makes no user
    /// access.
    #[inline]
    fn set_lazy(&self, lazy: bool) {
        let _ = lazy;
    }

    /// Fills a block of frames with zeroes (`clear_page`).
    fn zero(&self, pfn: Pfn, order: Order);

    /// Copies a block of frames (`copy_page`).
    fn copy(&self, from: Pfn, to: Pfn, order: Order);

    /// Makes the contents of a frame visible to the instruction fetches of all CPUs.
    ///
    /// arm64: cleans the frame's lines to the point of unification, and invalidates them in the
    /// instruction caches (`DC CVAU`, `IC IVAU`; Arm ARM B2.4.4). The default does nothing, which
    /// is right where fetches see stores: on x86-64 (Intel SDM vol. 3A §12.6).
    #[inline]
    fn publish_code(&self, pfn: Pfn) {
        let _ = pfn;
    }

    /// Reads bytes of physical memory; the range must lie within one frame.
    ///
    /// An aligned range of 1, 2, 4 or 8 bytes is read by one load.
    fn read(&self, from: PhysAddr, to: &mut [u8]);

    /// Writes bytes of physical memory; the range must lie within one frame.
    ///
    /// An aligned range of 1, 2, 4 or 8 bytes is written by one store.
    fn write(&self, to: PhysAddr, from: &[u8]);
}
