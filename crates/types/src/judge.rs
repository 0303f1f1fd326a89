//! The interface between a machine, the code that runs on it, and a judge of its translations.
//!
//! Code declares four [`Fact`]s. The machine reports cached entries ([`CachedEntry`]) and accesses
//! ([`MemoryAccess`]). A [`Judge`] compares them. None of the three depends on the internals of the
//! others: the code names only frames, roots and ranges, the machine only the contents of its TLBs.
//! So a judge also works on code that was not written for one: a wrapper around its calls declares
//! the facts.

use crate::{Access, CpuId, Level, Order, PageRange, Pfn, PhysAddr, Rights, Tag, VirtAddr};

/// A declaration of the code under judgement, the only kind of statement that a judge accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// These frames were freed; their contents do not change until they are allocated again.
    FrameFreed {
        /// First frame.
        pfn: Pfn,
        /// The size of the block.
        order: Order,
    },
    /// These frames are allocated, for a page, a page table, or any other use.
    ///
    /// From now on no translation of their earlier use may reach them.
    FrameReused {
        /// First frame.
        pfn: Pfn,
        /// The size of the block.
        order: Order,
    },
    /// The call that runs on this CPU removes rights.
    ///
    /// After it returns, translations of `range` under `root` allow no more than `left`, unless the
    /// tables grant more again.
    RightReduced {
        /// The root table of the space.
        root: Pfn,
        /// The pages.
        range: PageRange,
        /// The remaining rights; none if the mapping was removed.
        left: Rights,
    },
    /// The call that runs on this CPU is about to return to its caller.
    CallReturned,
}

/// What a CPU caches of page tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CachedEntryKind {
    /// A translation in a TLB.
    Translation {
        /// First frame of the leaf.
        pfn: Pfn,
        /// The accesses that it allows.
        rights: Rights,
    },
    /// A walk-cache entry: a walk may start at this table without reading the entries above it.
    Table {
        /// The table, one level below the cached entry.
        table: Pfn,
        /// The most that a leaf below can allow: the cached entry and those above it.
        ///
        /// READ stands for all accesses of user mode but fetches on arm64.
        allows: Rights,
    },
    /// A walk in flight that is about to read an entry of this table.
    Walk {
        /// The table.
        table: Pfn,
        /// The most that a leaf below can allow: the entries that the walk has read.
        allows: Rights,
    },
}

/// Whether a CPU can use a cached entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CachedEntryState {
    /// The CPU can use it now: its tag is loaded, and user mode may run.
    Usable,
    /// Only speculative walks can use it now, because the CPU is lazy or has another root loaded.
    ///
    /// Translations are never in this state.
    Speculative,
    /// The CPU can use it after it loads the tag or leaves lazy mode, unless it invalidates first.
    Condemned,
}

/// An entry that a CPU caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachedEntry {
    /// The CPU.
    pub cpu: CpuId,
    /// What it caches.
    pub kind: CachedEntryKind,
    /// The tag.
    pub tag: Tag,
    /// The root of the walk that filled it.
    pub root: Pfn,
    /// The first address that it covers.
    pub va: VirtAddr,
    /// The level of the page-table entry that it caches; it covers [`Level::span`] bytes.
    pub level: Level,
    /// Whether it is valid under every tag.
    pub global: bool,
    /// Whether the CPU can use it.
    pub state: CachedEntryState,
}

impl CachedEntry {
    /// The pages that it covers.
    pub fn range(&self) -> PageRange {
        PageRange::new(self.va, self.va.add(self.level.span()))
    }
}

/// An access of a program to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryAccess {
    /// The CPU.
    pub cpu: CpuId,
    /// The root loaded on it.
    pub root: Pfn,
    /// The address.
    pub va: VirtAddr,
    /// Load, store or fetch.
    pub access: Access,
    /// The physical address, by the translation used.
    pub at: PhysAddr,
    /// Whether the TLB hit; otherwise a walk translated.
    pub cached: bool,
}

/// The machine as a judge sees it.
pub trait Witness {
    /// Calls `visit` for every entry that any CPU caches.
    fn cached(&self, visit: &mut dyn FnMut(CachedEntry));

    /// Calls `visit` for every cached entry that covers an address in `range`.
    ///
    /// A machine that can find them without a full scan overrides this.
    fn cached_in(&self, range: PageRange, visit: &mut dyn FnMut(CachedEntry)) {
        self.cached(&mut |cached| {
            if cached.range().overlaps(range) {
                visit(cached);
            }
        });
    }

    /// Whether any CPU may cache an entry that leads to these frames, as page or as table.
    ///
    /// `true` is always correct. `false` spares the judge a scan of all cached entries.
    fn might_reach(&self, pfn: Pfn, order: Order) -> bool {
        let _ = (pfn, order);
        true
    }

    /// The eight bytes at `at`, as a page-table walker reads them now; 0 if there is no memory.
    fn word(&self, at: PhysAddr) -> u64;

    /// The eight bytes at `at`, as a load of the kernel reads them.
    ///
    /// They include stores that page-table walkers do not see yet.
    fn stored(&self, at: PhysAddr) -> u64 {
        self.word(at)
    }

    /// Whether a store is still invisible to walkers, so that `stored` and `word` may differ.
    fn stores_wait(&self) -> bool {
        false
    }
}

/// A judge of a machine's translations.
///
/// The machine calls it in the order of the events.
pub trait Judge {
    /// `cpu` declared a fact.
    fn fact(&mut self, witness: &dyn Witness, cpu: CpuId, fact: Fact);

    /// A program accessed memory.
    fn access(&mut self, witness: &dyn Witness, access: MemoryAccess);

    /// `cpu` is about to load `root` under `tag`, or to leave lazy mode on it.
    ///
    /// Condemned entries of that tag become usable.
    fn loaded(&mut self, witness: &dyn Witness, cpu: CpuId, root: Pfn, tag: Tag);
}
