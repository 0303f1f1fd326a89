//! The points at which a CPU can stop.
//!
//! A CPU stops before every operation that another CPU, a walker or a TLB could observe.

use pagewright_arch::{Invalidate, Pte, PteSlot};
use pagewright_types::judge::Fact;
use pagewright_types::{Access, CpuMask, Pfn, Tag, VirtAddr};
use std::fmt;

/// What a CPU is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StopPoint {
    /// Start its program.
    Start,
    /// Try to take a lock.
    Lock,
    /// Check again whether a lock is free.
    Wait,
    /// Read an entry.
    Load(PteSlot),
    /// Store an entry.
    Store(PteSlot, Pte),
    /// Store an entry by an instruction that was trapped.
    PointerStore(PteSlot),
    /// Exchange an entry.
    Swap(PteSlot, Pte),
    /// Exchange an entry if it has not changed.
    CompareExchange(PteSlot, Pte),
    /// Make its stores visible to walkers.
    Publish,
    /// Issue an invalidation.
    Invalidate(Invalidate),
    /// Wait until its broadcast invalidations are complete.
    Complete,
    /// Send an IPI to other CPUs.
    SendIpi(CpuMask),
    /// Check again whether another CPU has acted.
    Relax,
    /// Load a root.
    InstallRoot(Pfn, Tag),
    /// Load a root for the upper half (arm64).
    InstallKernelRoot(Pfn),
    /// Enter or leave lazy TLB mode.
    Lazy(bool),
    /// Declare a fact to the judge.
    Declare(Fact),
    /// Make an access.
    Access(VirtAddr, Access),
    /// Read the next entry of a walk for this address.
    Walk(VirtAddr, PteSlot),
    /// Fill its TLBs with the translation that a walk for this address found, and use it.
    Fill(VirtAddr, Pfn),
    /// Use one of this many conflicting translations.
    Choose(u32),
    /// Nothing: its program has ended, and it only takes interrupts.
    Idle,
}

impl StopPoint {
    /// Whether the CPU only waits for another CPU to act.
    pub(crate) fn waits(self) -> bool {
        matches!(self, Self::Wait | Self::Relax)
    }

    /// A number for the trace, made of the kind of the point and its operands.
    pub(crate) fn fingerprint(self) -> u64 {
        let slot = |slot: PteSlot| slot.addr().raw();
        let (kind, on) = match self {
            Self::Start => (0, 0),
            Self::Lock => (1, 0),
            Self::Wait => (2, 0),
            Self::Load(at) => (3, slot(at)),
            Self::Store(at, pte) => (4, slot(at) ^ pte.raw().rotate_left(20)),
            Self::Swap(at, pte) => (5, slot(at) ^ pte.raw().rotate_left(20)),
            Self::CompareExchange(at, pte) => (6, slot(at) ^ pte.raw().rotate_left(20)),
            Self::Publish => (7, 0),
            Self::Invalidate(_) => (8, 0),
            Self::Complete => (9, 0),
            Self::SendIpi(mask) => (10, mask.words().into_iter().fold(0, |sum, word| sum ^ word)),
            Self::Relax => (11, 0),
            Self::InstallRoot(root, tag) => (12, u64::from(root.raw()) << 16 | u64::from(tag.raw())),
            Self::InstallKernelRoot(root) => (20, u64::from(root.raw())),
            Self::PointerStore(at) => (21, slot(at)),
            Self::Lazy(lazy) => (13, u64::from(lazy)),
            Self::Declare(_) => (14, 0),
            Self::Access(va, access) => (15, va.raw() ^ u64::from(access.needs().bits())),
            Self::Walk(va, at) => (16, va.raw() ^ slot(at).rotate_left(20)),
            Self::Fill(va, pfn) => (17, va.raw() ^ u64::from(pfn.raw()) << 20),
            Self::Choose(ways) => (18, u64::from(ways)),
            Self::Idle => (19, 0),
        };
        on << 5 ^ kind
    }
}

/// Prints a slot as table and index.
struct At(PteSlot);

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "table {}[{}]", self.0.table, self.0.index)
    }
}

impl fmt::Display for StopPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start => f.write_str("starts"),
            Self::Lock => f.write_str("takes a lock"),
            Self::Wait => f.write_str("waits for a lock"),
            Self::Load(slot) => write!(f, "loads {}", At(*slot)),
            Self::Store(slot, pte) => write!(f, "stores {:#x} to {}", pte.raw(), At(*slot)),
            Self::Swap(slot, pte) => write!(f, "exchanges {} for {:#x}", At(*slot), pte.raw()),
            Self::CompareExchange(slot, pte) => write!(f, "compares and exchanges {} for {:#x}", At(*slot), pte.raw()),
            Self::Publish => f.write_str("publishes its stores"),
            Self::Invalidate(op) => write!(f, "invalidates {:?}, {:?}", op.target, op.scope),
            Self::Complete => f.write_str("completes its invalidations"),
            Self::SendIpi(targets) => {
                f.write_str("sends an IPI to CPU")?;
                targets.iter().try_for_each(|cpu| write!(f, " {cpu}"))
            }
            Self::Relax => f.write_str("waits for other CPUs"),
            Self::InstallRoot(root, tag) => write!(f, "installs root {root}, tag {}", tag.raw()),
            Self::PointerStore(at) => write!(f, "stores to {}[{}] by pointer", at.table, at.index),
            Self::InstallKernelRoot(root) => write!(f, "installs the kernel's root {root}"),
            Self::Lazy(true) => f.write_str("enters lazy TLB mode"),
            Self::Lazy(false) => f.write_str("leaves lazy TLB mode"),
            Self::Declare(fact) => write!(f, "declares {fact:?}"),
            Self::Access(va, access) => write!(f, "{access} of {va}"),
            Self::Walk(va, slot) => write!(f, "walks for {va}: reads {}", At(*slot)),
            Self::Fill(va, pfn) => write!(f, "fills its TLB for {va} with frame {pfn}"),
            Self::Choose(ways) => write!(f, "uses one of {ways} conflicting translations"),
            Self::Idle => f.write_str("is idle"),
        }
    }
}
