//! Everything the memory manager does that hardware or another CPU could notice.
//!
//! The order in which effects are issued is the protocol that `tlb` and `table` promise and the
//! oracle checks: *store the entry → [`Effects::publish`] → [`Effects::invalidate`] →
//! [`Effects::complete`] (or a [`Effects::send_ipi`] that was answered) → reuse the frame*.

use crate::entry::Pte;
use crate::isa::Isa;
use pagewright_types::judge::Fact;
use pagewright_types::{CpuId, CpuMask, Level, Order, PageRange, Pfn, PhysAddr, Tag, VirtAddr};

/// One entry of one page-table page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PteSlot {
    /// The table's frame.
    pub table: Pfn,
    /// Which of its 512 entries.
    pub index: u16,
}

impl PteSlot {
    /// Where the entry's eight bytes are.
    pub const fn addr(self) -> PhysAddr {
        PhysAddr::new(self.table.base().raw() + self.index as u64 * 8)
    }
}

/// Whose TLBs an invalidation reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InvalidateScope {
    /// This CPU's.
    ///
    /// Done when the call returns.
    Local,
    /// Every CPU's (arm64 `…IS`).
    ///
    /// Done only after this CPU's next [`Effects::complete`].
    Broadcast,
}

/// What an invalidation removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InvalidateTarget {
    /// One entry of `tag` at `va`: the translation, and with `!last_level` every walk-cache entry
    /// used to reach it.
    Page {
        /// Whose.
        tag: Tag,
        /// Any address under the entry.
        va: VirtAddr,
        /// Level of the entry (arm64 TTL hint).
        level: Level,
        /// Whether only the leaf changed (arm64 `VALE1`). x86's `INVLPG` always drops the walk
        /// caches of the tag.
        last_level: bool,
    },
    /// All entries of `tag` in a range, `level` apart (arm64 FEAT_TLBIRANGE).
    Range {
        /// Whose.
        tag: Tag,
        /// Which pages.
        range: PageRange,
        /// Level of the entries.
        level: Level,
        /// As for `Page`.
        last_level: bool,
    },
    /// Everything under one tag except global entries.
    Tag(Tag),
    /// Everything under every tag except global entries.
    AllTags,
}

/// One TLB invalidation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Invalidate {
    /// Whose TLBs.
    pub scope: InvalidateScope,
    /// Which entries.
    pub target: InvalidateTarget,
}

/// How this machine makes other CPUs forget a translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ShootdownKind {
    /// Interrupt them and wait for their answer (x86).
    Ipi,
    /// The invalidation is broadcast by hardware; wait by barrier (arm64).
    Broadcast,
}

/// What the machine can do; found at boot, constant afterwards.
///
/// Decisions are made on these values and never by `cfg`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// How remote TLBs are reached.
    pub shootdown: ShootdownKind,
    /// Whether translations carry tags (x86 PCID; arm64 always).
    ///
    /// Without, every switch of root flushes.
    pub tagged: bool,
    /// Tags usable: 2^12 PCIDs, or 2^8 or 2^16 ASIDs.
    pub tags: u32,
    /// Whether a TLB keeps an entry that has just refused an access, so that it must be told when
    /// the right is given (arm64). x86 walks again after a fault (Intel SDM vol. 3A §4.10.4.1).
    pub keeps_faulting_entry: bool,
    /// Whether [`InvalidateTarget::Range`] exists (arm64 FEAT_TLBIRANGE).
    pub range_invalidate: bool,
    /// Whether one TLBI and one DSB may leave something behind, so that each invalidation must be
    /// waited for and issued again (Linux's `ARM64_WORKAROUND_REPEAT_TLBI`, for errata of Arm's
    /// Cortex-A55, A76 and A510).
    pub repeat_invalidate: bool,
    /// If user mode runs under a tag of its own, because the kernel has tables that programs can't
    /// see (KPTI, PTI): the bit by which that tag differs from the one that is installed.
    /// Translations of user memory stand under both.
    pub user_tag_bit: Option<Tag>,
}

impl Caps {
    /// The tag under which user mode runs while `tag` is installed, if that is another one.
    #[inline]
    pub fn user_tag(&self, tag: Tag) -> Option<Tag> {
        self.user_tag_bit.map(|bit| Tag::new(tag.raw() | bit.raw()))
    }
}

/// The door to the machine.
///
/// One implementation stands for one machine; methods act on the CPU that calls.
///
/// A handle is cheap to clone (a reference count in the lab, a zero-sized value in a kernel).
///
/// Except where it says so, no method may take a lock of
/// [`pagewright-sync`](https://docs.rs/pagewright-sync) or allocate.
pub trait Effects: Clone + 'static {
    /// The instruction set whose tables this machine walks.
    type Isa: Isa;

    /// What the machine can do.
    fn caps(&self) -> &Caps;

    /// The CPU on which the caller runs.
    ///
    /// The caller must not be moved to another CPU while it uses the answer.
    fn cpu(&self) -> CpuId;

    /// The CPUs that are online.
    fn online(&self) -> CpuMask;

    /// Loads an entry, as one atomic 8-byte read with acquire ordering.
    fn load(&self, slot: PteSlot) -> Pte;

    /// Stores an entry, as one atomic 8-byte write with release ordering.
    ///
    /// Walkers may see it late: see [`Effects::publish`].
    fn store(&self, slot: PteSlot, pte: Pte);

    /// Exchanges an entry atomically against the walkers' accessed and dirty updates
    /// (`ptep_get_and_clear`), and returns what stood there.
    fn swap(&self, slot: PteSlot, pte: Pte) -> Pte;

    /// Replaces the entry if it is still `current`.
    ///
    /// # Errors
    /// What stands there instead; nothing was stored.
    fn compare_exchange(&self, slot: PteSlot, current: Pte, new: Pte) -> Result<(), Pte>;

    /// Makes earlier entry stores of this CPU visible to every walker (arm64 `DSB ISHST`; nothing
    /// on x86, whose walkers obey TSO).
    fn publish(&self);

    /// Issues an invalidation.
    fn invalidate(&self, op: Invalidate);

    /// Waits until every broadcast invalidation issued *by this CPU* is done on all CPUs (arm64
    /// `DSB ISH; ISB`). A barrier on another CPU proves nothing about this one's (Arm ARM D8.14.5).
    fn complete(&self);

    /// Asks `targets` (never the caller) to run the shootdown handler that the embedder bound to
    /// this machine. Returns at once; the answer is the handler's business. What the caller stored
    /// before is visible to the handlers (INV-MAIL-LOST).
    fn send_ipi(&self, targets: &CpuMask);

    /// Passes time while another CPU must act first.
    ///
    /// Interrupts are open inside.
    fn relax(&self);

    /// Walks from `root` under `tag` from now on.
    ///
    /// Without `keep`, translations under `tag` on this CPU are dropped first (x86 `MOV CR3` with
    /// bit 63 clear), and so are those under [`Caps::user_tag`].
    fn install_root(&self, root: Pfn, tag: Tag, keep: bool);

    /// Runs `body` with interrupts closed on this CPU.
    ///
    /// A machine that delivers interrupts only inside [`Effects::relax`] just runs it; anywhere
    /// else walks without locks rest on it (INV-TLB-WALKERS), so there is no default.
    fn without_interrupts<T>(&self, body: impl FnOnce() -> T) -> T;

    /// Whether the caller may wait for other CPUs: interrupts are open and no interrupt handler is
    /// running.
    fn may_wait(&self) -> bool;

    /// Asked before each allocation of kernel memory or of a frame; `false` makes that allocation
    /// fail. The default never refuses; the lab counts down here to make each allocation fail in
    /// turn.
    fn permit_allocation(&self) -> bool {
        true
    }

    /// Declares a fact to whoever judges this machine's translations.
    ///
    /// Nothing on a machine that nobody judges.
    #[inline]
    fn declare(&self, fact: Fact) {
        let _ = fact;
    }

    /// The CPU runs a kernel thread on whatever root is loaded, or comes back from that: until then
    /// no user access will be made. Only a judge wants to know.
    #[inline]
    fn set_lazy(&self, lazy: bool) {
        let _ = lazy;
    }

    /// Fills a block of frames with zeroes.
    fn zero(&self, pfn: Pfn, order: Order);

    /// Copies a block of frames.
    fn copy(&self, from: Pfn, to: Pfn, order: Order);

    /// Reads bytes of physical memory; the range must lie within one frame.
    ///
    /// An aligned range of 1, 2, 4 or 8 bytes is read at once.
    fn read(&self, from: PhysAddr, to: &mut [u8]);

    /// Writes bytes of physical memory; the range must lie within one frame.
    ///
    /// An aligned range of 1, 2, 4 or 8 bytes is written at once.
    fn write(&self, to: PhysAddr, from: &[u8]);
}
