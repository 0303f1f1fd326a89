//! What a memory manager claims about its counts at rest, so that somebody else can count again.
//!
//! The memory manager tells one [`SnapshotRecord`] after the other; nothing is allocated on its
//! side. A judge compares them with what the page tables in memory say, and with one another. "At
//! rest" means that no call is under way on any CPU and that nothing is left to be given back.
//!
//! Counts of mappings are *physical*: an entry counts once, however many spaces share the table
//! that it stands in. Resident sets are *logical*: a page counts in each space that reaches it.

use crate::{Level, LruList, Order, Pfn, SpaceId, SwapEntry};
use core::fmt;

/// What a resident page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PageKind {
    /// Anonymous (`MM_ANONPAGES`).
    Anon,
    /// Of a file (`MM_FILEPAGES`).
    File,
    /// Of shared memory (`MM_SHMEMPAGES`).
    Shmem,
}

impl PageKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Anon, Self::File, Self::Shmem];
}

impl fmt::Display for PageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Anon => "anonymous",
            Self::File => "file",
            Self::Shmem => "shared memory",
        })
    }
}

/// Who holds references on a folio beside the entries that map it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefHolder {
    /// A page cache.
    Cache,
    /// The swap cache.
    SwapCache,
    /// A swap device whose pages it has, compressed.
    Zram,
    /// A frame that owes a flush.
    Debt,
    /// A list on which somebody keeps it for a while.
    List,
    /// The memory manager itself, for good.
    Reserved,
}

impl fmt::Display for RefHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cache => "a page cache",
            Self::SwapCache => "the swap cache",
            Self::Zram => "compressed swap",
            Self::Debt => "a debt",
            Self::List => "a list",
            Self::Reserved => "the memory manager",
        })
    }
}

/// A level that the memory manager keeps for the whole machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VmstatGauge {
    /// Pages that are page tables, roots included (`nr_page_table_pages`).
    TablePages,
    /// Anonymous pages that some entry maps (`nr_anon_pages`).
    AnonPages,
    /// Pages of files and shared memory that some entry maps (`nr_mapped`).
    MappedPages,
    /// Pins that were taken and not given up (`nr_foll_pin_acquired` less `nr_foll_pin_released`).
    Pins,
    /// Pages on a list of folios by use, of all nodes.
    Listed(LruList),
}

impl VmstatGauge {
    /// Its name in `/proc/vmstat`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TablePages => "nr_page_table_pages",
            Self::AnonPages => "nr_anon_pages",
            Self::MappedPages => "nr_mapped",
            Self::Pins => "nr_foll_pin",
            Self::Listed(list) => list.name(),
        }
    }
}

/// A folio that is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FolioRecord {
    /// First frame.
    pub pfn: Pfn,
    /// Its size.
    pub order: Order,
    /// Whose pages they are; `None` for a folio that is no resident page whoever maps it.
    pub kind: Option<PageKind>,
    /// Its reference count as it stands, pins included.
    pub refs: u64,
    /// Entries that map all of it at once.
    pub entire_mapcount: u64,
    /// Entries that map it or one of its pages.
    pub mapcount: u64,
    /// Its pages that have an entry of their own.
    pub pages_mapped: u64,
    /// The list by use on which its flags say that it is.
    pub list: Option<LruList>,
}

/// That a folio was found on a list by use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedRecord {
    /// First frame.
    pub pfn: Pfn,
    /// Which list.
    pub list: LruList,
}

/// A page of a folio that is in use.
///
/// One that no entry of its own maps may be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRecord {
    /// Its frame.
    pub pfn: Pfn,
    /// Entries that map this page by itself.
    pub mapcount: u64,
    /// References counted in the record of a page that is not the first of its folio.
    pub tail_refs: u64,
}

/// References held by something that is no entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldRecord {
    /// First frame of the folio.
    pub pfn: Pfn,
    /// By whom.
    pub holder: RefHolder,
    /// How many.
    pub refs: u64,
}

/// Pins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PinnedRecord {
    /// First frame of the folio.
    pub pfn: Pfn,
    /// How many.
    pub pins: u64,
    /// What each of them adds to the folio's count.
    pub bias: u64,
}

/// An address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceRecord {
    /// Its name.
    pub id: SpaceId,
    /// Its root table.
    pub root: Pfn,
    /// Resident pages, in the order of [`PageKind::ALL`].
    pub rss: [u64; 3],
    /// Its entries of pages in swap (`VmSwap`).
    pub swapped: u64,
    /// Its proportional set, in 4096ths of a byte, each page's share rounded down.
    pub pss: u64,
    /// Bytes of the tables that it reaches, root included.
    pub table_bytes: u64,
}

/// A slot of a swap device that somebody has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwapSlotRecord {
    /// Which.
    pub entry: SwapEntry,
    /// Entries that name it.
    pub entries: u64,
}

/// An entry that names a slot and stands in no page table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwapRefRecord {
    /// The slot.
    pub entry: SwapEntry,
    /// Who has it.
    pub holder: RefHolder,
}

/// A page table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableRecord {
    /// Its frame.
    pub pfn: Pfn,
    /// Its level.
    pub level: Level,
    /// Entries that point to it, or 1 for a root.
    pub shares: u64,
}

/// A level of the whole machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GaugeRecord {
    /// Which.
    pub gauge: VmstatGauge,
    /// How much.
    pub count: u64,
}

/// One claim.
///
/// Their order does not matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotRecord {
    /// A folio that is in use.
    Folio(FolioRecord),
    /// A page of a folio that is in use.
    ///
    /// One that no entry of its own maps may be left out.
    Page(PageRecord),
    /// References held by something that is no entry.
    Held(HeldRecord),
    /// Pins.
    Pinned(PinnedRecord),
    /// A place on a list by use.
    Listed(ListedRecord),
    /// A slot of a swap device that somebody has.
    SwapSlot(SwapSlotRecord),
    /// An entry that names a slot and stands in no page table.
    SwapRef(SwapRefRecord),
    /// An address space.
    Space(SpaceRecord),
    /// A page table.
    Table(TableRecord),
    /// A level of the whole machine.
    Gauge(GaugeRecord),
}
