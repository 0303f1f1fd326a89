//! The words between a machine, the code that runs on it, and whoever judges their translations.
//!
//! Code declares four [`Fact`]s; the machine tells what is cached ([`CachedEntry`]) and what is
//! accessed ([`MemoryAccess`]); a [`Judge`] listens. None of the three knows the others' insides:
//! the code names only frames, roots and ranges, the machine only what its TLBs hold. So code that
//! was never written for a judge can be judged: its calls are wrapped, and the facts are told for
//! it.

use crate::{Access, CpuId, Level, Order, PageRange, Pfn, PhysAddr, Rights, Tag, VirtAddr};

/// What code under judgement declares.
///
/// Nothing else of it is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// These frames were given back.
    ///
    /// Until they are handed out again, their contents don't change.
    FrameFreed {
        /// First frame.
        pfn: Pfn,
        /// How many.
        order: Order,
    },
    /// These frames are handed out: for a page, a page table, or anything else.
    ///
    /// From now on nobody may reach them by what they were before.
    FrameReused {
        /// First frame.
        pfn: Pfn,
        /// How many.
        order: Order,
    },
    /// The call that runs on this CPU takes rights away: once it returns, nobody may do more than
    /// `left` in `range` through translations that were made under `root`, unless the tables allow
    /// it again.
    RightReduced {
        /// The root table of the space.
        root: Pfn,
        /// The pages.
        range: PageRange,
        /// What may still be done; nothing, where a mapping was removed.
        left: Rights,
    },
    /// The call that runs on this CPU is about to return to its caller.
    CallReturned,
}

/// What a CPU remembers of page tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CachedEntryKind {
    /// A translation in a TLB.
    Translation {
        /// First frame of the leaf.
        pfn: Pfn,
        /// What it allows.
        rights: Rights,
    },
    /// A table that a walk may start from without reading the entries above it.
    Table {
        /// The table, one level below the entry remembered.
        table: Pfn,
    },
    /// A walk under way that is about to read an entry of this table.
    Walk {
        /// The table.
        table: Pfn,
    },
}

/// Whether a CPU could use what it remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CachedEntryState {
    /// Now: it stands under the tag in use, and user mode may run.
    Usable,
    /// Only after its tag is loaded again, or after lazy mode is left, without an invalidation in
    /// between.
    Condemned,
}

/// One thing that one CPU remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachedEntry {
    /// Who.
    pub cpu: CpuId,
    /// What.
    pub kind: CachedEntryKind,
    /// Under which tag.
    pub tag: Tag,
    /// The root of the walk that found it.
    pub root: Pfn,
    /// First address it stands for.
    pub va: VirtAddr,
    /// Level of the entry it came from: it stands for [`Level::span`] bytes.
    pub level: Level,
    /// Whether it answers under every tag.
    pub global: bool,
    /// Whether it can be used.
    pub state: CachedEntryState,
}

impl CachedEntry {
    /// The pages it stands for.
    pub fn range(&self) -> PageRange {
        PageRange::new(self.va, self.va.add(self.level.span()))
    }
}

/// An access that a program made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryAccess {
    /// Where.
    pub cpu: CpuId,
    /// The root loaded there.
    pub root: Pfn,
    /// The address.
    pub va: VirtAddr,
    /// Load, store or fetch.
    pub access: Access,
    /// The physical address that the translation led to.
    pub at: PhysAddr,
    /// Whether a TLB answered, and not a walk.
    pub cached: bool,
}

/// What a judge may ask of the machine.
pub trait Witness {
    /// Calls `tell` for everything that any CPU remembers.
    fn cached(&self, tell: &mut dyn FnMut(CachedEntry));

    /// Calls `tell` for everything that any CPU remembers of addresses in `range`.
    ///
    /// A machine that can find these faster than by looking at all overrides this.
    fn cached_in(&self, range: PageRange, tell: &mut dyn FnMut(CachedEntry)) {
        self.cached(&mut |cached| {
            if cached.range().overlaps(range) {
                tell(cached);
            }
        });
    }

    /// Whether any CPU could remember something of these frames, as page or as table.
    ///
    /// `true` is always right; a machine that knows better spares its judge a look at everything
    /// cached.
    fn might_reach(&self, pfn: Pfn, order: Order) -> bool {
        let _ = (pfn, order);
        true
    }

    /// The eight bytes of memory at `at`, as a walker would read them now.
    fn word(&self, at: PhysAddr) -> u64;

    /// The same, as a load of the kernel would read them: with stores that walkers can't see yet.
    ///
    /// They differ only on a machine that lets stores wait.
    fn stored(&self, at: PhysAddr) -> u64 {
        self.word(at)
    }

    /// Whether any store waits now, so that [`Self::stored`] and [`Self::word`] could differ.
    fn stores_wait(&self) -> bool {
        false
    }
}

/// Who listens.
///
/// Calls come in the order in which things happened on the machine.
pub trait Judge {
    /// `cpu` declared a fact.
    fn fact(&mut self, witness: &dyn Witness, cpu: CpuId, fact: Fact);

    /// An access was made.
    fn access(&mut self, witness: &dyn Witness, access: MemoryAccess);

    /// `cpu` is about to use `root` under `tag`, or leaves lazy mode on it: what was condemned
    /// there is usable from now on.
    fn loaded(&mut self, witness: &dyn Witness, cpu: CpuId, root: Pfn, tag: Tag);
}
