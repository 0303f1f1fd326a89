//! The counts that a memory manager claims at rest, for a judge that counts again.
//!
//! The memory manager passes one [`SnapshotRecord`] after the other, and allocates nothing. A judge
//! compares them with each other and with the page tables in memory. At rest, no CPU executes a
//! memory call, and no debt is left to settle.
//!
//! Mapcounts are *physical*: an entry counts once, even if several spaces share its table. Resident
//! sets are *logical*: a page counts in each space that maps it. A proportional set size has each
//! page divided by its logical mappings: the pairs of a space and an entry that the space reaches.

use crate::{Level, LruList, Order, Pfn, SpaceId, SwapEntry};

crate::named_table! {
    /// The kind of a resident page.
    pub enum PageKind {
        Anon = "anonymous", "Anonymous memory (`MM_ANONPAGES`).";
        File = "file", "A file (`MM_FILEPAGES`).";
        Shmem = "shared memory", "Shared memory (`MM_SHMEMPAGES`).";
    }
}

crate::named_table! {
    /// The holder of a reference to a folio or slot that is no page-table entry.
    pub enum RefHolder {
        Cache = "a page cache", "A page cache.";
        SwapCache = "the swap cache", "The swap cache.";
        Zram = "compressed swap", "The store of compressed pages, of which the folio is a part.";
        Debt = "a debt", "A frame that owes a flush.";
        List = "a list", "A list that keeps the folio for a while.";
        Reserved = "the memory manager", "The memory manager itself, permanently.";
    }
}

/// A gauge that the memory manager keeps for the whole machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VmstatGauge {
    /// Page-table pages, roots included (`nr_page_table_pages`).
    TablePages,
    /// Mapped anonymous pages (`nr_anon_pages`).
    AnonPages,
    /// Pages of anonymous folios that an entry maps whole (`nr_anon_transparent_hugepages`).
    AnonThps,
    /// Mapped pages of files and shared memory (`nr_mapped`).
    MappedPages,
    /// Current pins (`nr_foll_pin_acquired` minus `nr_foll_pin_released`).
    Pins,
    /// Pages on an LRU list, over all nodes.
    Listed(LruList),
}

impl VmstatGauge {
    /// The name in `/proc/vmstat`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TablePages => "nr_page_table_pages",
            Self::AnonPages => "nr_anon_pages",
            Self::AnonThps => "nr_anon_transparent_hugepages",
            Self::MappedPages => "nr_mapped",
            Self::Pins => "nr_foll_pin",
            Self::Listed(list) => list.name(),
        }
    }
}

/// A folio in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FolioRecord {
    /// First frame.
    pub pfn: Pfn,
    /// The size.
    pub order: Order,
    /// The kind of its pages; `None` if a mapping of them does not count as resident.
    pub kind: Option<PageKind>,
    /// The raw reference count, pins included.
    pub refs: u64,
    /// The number of entries that map the whole folio.
    pub entire_mapcount: u64,
    /// The number of entries that map the folio or one of its pages.
    pub mapcount: u64,
    /// The number of its pages that have an entry of their own.
    pub pages_mapped: u64,
    /// The LRU list, according to the folio's flags.
    pub list: Option<LruList>,
}

/// A folio on an LRU list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedRecord {
    /// First frame.
    pub pfn: Pfn,
    /// The list.
    pub list: LruList,
}

/// A page of a folio in use.
///
/// May be omitted if no entry of its own maps the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRecord {
    /// The frame.
    pub pfn: Pfn,
    /// The number of entries that map this page by itself.
    pub mapcount: u64,
    /// The references in the memmap record of a tail page.
    pub tail_refs: u64,
}

/// References of a holder that is no page-table entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldRecord {
    /// First frame of the folio.
    pub pfn: Pfn,
    /// The holder.
    pub holder: RefHolder,
    /// The number of references.
    pub refs: u64,
}

/// The pins of a folio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PinnedRecord {
    /// First frame of the folio.
    pub pfn: Pfn,
    /// The number of pins.
    pub pins: u64,
    /// The amount that each pin adds to the reference count.
    pub bias: u64,
}

/// An address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceRecord {
    /// The identifier.
    pub id: SpaceId,
    /// The root table.
    pub root: Pfn,
    /// The resident pages, in the order of [`PageKind::ALL`].
    pub rss: [u64; 3],
    /// The number of its swap entries (`VmSwap`).
    pub swapped: u64,
    /// The proportional set size in 4096ths of a byte, the share of each page rounded down (`Pss`).
    pub pss: u64,
    /// The proportional size of its swap entries, in the same unit (`SwapPss`).
    pub swap_pss: u64,
    /// The bytes of its page tables, root included.
    pub table_bytes: u64,
}

/// A slot of a swap device in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwapSlotRecord {
    /// The slot.
    pub entry: SwapEntry,
    /// The number of entries that name it (`swap_map`).
    pub entries: u64,
}

/// A reference to a slot from outside the page tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwapRefRecord {
    /// The slot.
    pub entry: SwapEntry,
    /// The holder.
    pub holder: RefHolder,
}

/// A page table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableRecord {
    /// The frame.
    pub pfn: Pfn,
    /// The level.
    pub level: Level,
    /// The number of entries that point to it, or 1 for a root.
    pub shares: u64,
}

/// A table that is kept to split a huge leaf, and that no entry points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DepositRecord {
    /// The frame.
    pub pfn: Pfn,
    /// The table that has the leaf.
    pub holder: Pfn,
}

/// A large folio on a queue of folios to be split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeferredRecord {
    /// The first frame.
    pub pfn: Pfn,
}

/// The value of a gauge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GaugeRecord {
    /// The gauge.
    pub gauge: VmstatGauge,
    /// The value.
    pub count: u64,
}

/// One claim of a snapshot; the order of claims has no meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotRecord {
    /// A folio in use.
    Folio(FolioRecord),
    /// A page of a folio in use.
    Page(PageRecord),
    /// References of a holder that is no page-table entry.
    Held(HeldRecord),
    /// The pins of a folio.
    Pinned(PinnedRecord),
    /// A folio on an LRU list.
    Listed(ListedRecord),
    /// A slot of a swap device in use.
    SwapSlot(SwapSlotRecord),
    /// A reference to a slot from outside the page tables.
    SwapRef(SwapRefRecord),
    /// An address space.
    Space(SpaceRecord),
    /// A page table.
    Table(TableRecord),
    /// A deposited page table.
    Deposit(DepositRecord),
    /// A large folio that waits to be split.
    Deferred(DeferredRecord),
    /// The value of a gauge.
    Gauge(GaugeRecord),
}
