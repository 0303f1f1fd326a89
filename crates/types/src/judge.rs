//! The interface between a machine, the code that runs on it, and a judge of its translations.
//!
//! Code declares [`Fact`]s: five of any page-table code, four of mechanisms that share tables or
//! defer the loss of a right. The machine reports cached entries ([`CachedEntry`]) and accesses
//! ([`MemoryAccess`]). A [`Judge`] compares them. None of the three depends on the internals of the
//! others: the code names only frames, roots and ranges, the machine only the contents of its TLBs.
//! So a judge also works on code that was not written for one: a wrapper around its calls declares
//! the facts.

use crate::{Access, CpuId, CpuMask, FrameRange, Level, Order, PageRange, Pfn, PhysAddr, Rights, Tag, VirtAddr};
use core::hash::Hasher;

/// A declaration of the code under judgement, the only kind of statement that a judge accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fact {
    /// These frames were freed; their contents do not change until they are allocated again.
    ///
    /// A flush of what leads to them may still be owed.
    FrameFreed {
        /// First frame.
        pfn: Pfn,
        /// The size of the block.
        order: Order,
    },
    /// These frames were freed, or were free, and no flush is owed: any CPU may allocate them now.
    FrameReleased {
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
    /// A translation of this page may stay in TLBs after its entry is gone, read-only.
    ///
    /// No CPU may hold a right to store to the page. Until every TLB has lost the translation,
    /// nothing stores to the page, and no other page is mapped in the range. A family declares it
    /// for each member. A page that has moved before, and of which a translation of then may still
    /// be in a TLB, is declared again after it was copied and before the second copy is mapped.
    RightDeferred {
        /// The root table of the space.
        root: Pfn,
        /// The addresses, as many as the page has.
        range: PageRange,
        /// First frame of the page.
        frame: Pfn,
        /// First frame of its copy, if the page was copied before; else [`Fact::PageMoved`] tells.
        copy: Option<Pfn>,
        /// The page, whatever frame holds it.
        page: LogicalPage,
    },
    /// A page was copied, and the copy is the page from now on; the contents are equal.
    PageMoved {
        /// First frame of the page.
        frame: Pfn,
        /// First frame of its copy.
        copy: Pfn,
    },
    /// A page of a file was read into this frame; its contents are what they were before.
    PageFilled {
        /// The page.
        page: LogicalPage,
        /// Its first frame.
        frame: Pfn,
    },
    /// These pages of a file were removed from it; what is read there now is something else.
    PagesRemoved {
        /// The file.
        file: u64,
        /// The index of the first page.
        first: u64,
        /// The index after the last page.
        end: u64,
    },
    /// The contents of this page end or change without a store.
    ///
    /// The file is truncated, or another page takes its place in the page cache or in swap.
    PageReplaced {
        /// The page.
        page: LogicalPage,
    },
    /// Several entries point to this page table from now on, or at most one does.
    ///
    /// Several spaces reach it then, and every table below it.
    TableShared {
        /// The table.
        table: Pfn,
        /// Its level.
        level: Level,
        /// Whether several do.
        shared: bool,
    },
    /// This CPU starts or ends to edit a shared table for all spaces that share it.
    EditInPlace {
        /// The table.
        table: Pfn,
        /// Whether it starts.
        begins: bool,
    },
}

/// A page, whatever frame holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LogicalPage {
    /// A page of anonymous memory.
    Anon {
        /// A number that no other anonymous page has.
        id: u64,
    },
    /// A page of a file or of shared memory.
    File {
        /// The file.
        file: u64,
        /// The index of the page in the file.
        index: u64,
    },
}

/// An address that a walk has translated by a page-table entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WalkedPlace {
    /// The root of the walk.
    pub root: Pfn,
    /// Its tag.
    pub tag: Tag,
    /// The first address that the entry covers.
    pub va: VirtAddr,
    /// The level of the entry.
    pub level: Level,
    /// The table or the first frame to which the entry led.
    pub pfn: Pfn,
    /// Whether the entry was a leaf.
    pub is_leaf: bool,
}

/// What a CPU caches of page tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    /// The root loaded on it for the address.
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

    /// Calls `visit` for each address that a walk has translated by the entry at `at`.
    ///
    /// Places of earlier entries of the word are told, too, until another translation is stored.
    /// The default knows none, and rules about the replacement of an entry judge nothing.
    fn walked_at(&self, at: PhysAddr, visit: &mut dyn FnMut(WalkedPlace)) {
        let _ = (at, visit);
    }

    /// Whether a walk has read an entry of the table in `pfn`, since the frame was allocated.
    ///
    /// The default knows none, and a table that is given back is not counted.
    fn is_walked_table(&self, pfn: Pfn) -> bool {
        let _ = pfn;
        false
    }

    /// The CPUs that have interrupts disabled, and so may not wait for others.
    fn uninterruptible(&self) -> CpuMask {
        CpuMask::EMPTY
    }

    /// Calls `visit` for each lockless walk of the kernel, with the tables that it has read.
    ///
    /// That is a CPU that has interrupts disabled, and the tables of which it has read entries
    /// since, from the root on. The default knows none, and nothing is counted beside one.
    fn lockless_walks(&self, visit: &mut dyn FnMut(CpuId, &[Pfn])) {
        let _ = visit;
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

    /// Whether a store by `cpu` to `at` is still invisible to walkers.
    ///
    /// `true` is always correct while any [waits](Self::stores_wait).
    fn store_waits(&self, cpu: CpuId, at: PhysAddr) -> bool {
        let _ = (cpu, at);
        self.stores_wait()
    }
}

/// A part of the state of a [`Judge`]: it writes itself to a hasher.
pub type StatePart<'a> = dyn Fn(&mut dyn Hasher) + 'a;

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

    /// `cpu` is about to load `root` for the kernel's addresses (arm64 TTBR1_EL1).
    ///
    /// The default ignores it.
    fn kernel_loaded(&mut self, witness: &dyn Witness, cpu: CpuId, root: Pfn) {
        let _ = (witness, cpu, root);
    }

    /// The kernel on `cpu` has changed the page-table entry at `at` from `old` to `new`.
    ///
    /// Walkers may not see the store yet. The default ignores it.
    fn entry_stored(&mut self, witness: &dyn Witness, cpu: CpuId, at: PhysAddr, old: u64, new: u64) {
        let _ = (witness, cpu, at, old, new);
    }

    /// The same by a store through a pointer to memory, which the machine has found later.
    ///
    /// It was made since the last event of `cpu`. The default is [`Judge::entry_stored`].
    fn pointer_stored(&mut self, witness: &dyn Witness, cpu: CpuId, at: PhysAddr, old: u64, new: u64) {
        self.entry_stored(witness, cpu, at, old, new);
    }

    /// Calls `part` for each part of what decides its later reports; their order has no meaning.
    ///
    /// It returns whether these are all: two judges with equal parts then report the same after
    /// equal events. The default returns false.
    fn state(&self, part: &mut dyn FnMut(&StatePart<'_>)) -> bool {
        let _ = part;
        false
    }

    /// The kernel on `cpu` has written to these frames by physical address.
    ///
    /// It cleared them, copied to them, or wrote bytes. The default ignores it.
    fn written(&mut self, witness: &dyn Witness, cpu: CpuId, frames: FrameRange) {
        let _ = (witness, cpu, frames);
    }
}
