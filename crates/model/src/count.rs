//! The counts that O4 compares, and their names in reports.
//!
//! A [`CountMismatch`] is the evidence of [`crate::ViolationKind::Count`]; [`CountKind`] says what
//! was counted, with the number of its rule in `docs/oracle.md`.

use core::fmt;
use pagewright_types::snapshot::{PageKind, VmstatGauge};
use pagewright_types::{Pfn, SpaceId, SwapEntry};

/// A count of the memory manager that disagrees with the page tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountMismatch {
    /// What is counted.
    pub of: CountKind,
    /// The memory manager's count.
    pub claimed: u64,
    /// The oracle's count.
    pub counted: u64,
}

/// What a count is of, with the number of the rule in `docs/oracle.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountKind {
    /// References of a folio (D1).
    Refs(Pfn),
    /// Mappings of a folio and its pages (D2).
    Mapcount(Pfn),
    /// Last-level entries that map one page of a folio (D2).
    PageMapcount(Pfn),
    /// Entries that map the whole folio (D2).
    EntireMapcount(Pfn),
    /// Pages of a folio that have a last-level entry (D2).
    PagesMapped(Pfn),
    /// References in the record of a tail page of a folio (D3).
    TailRefs(Pfn),
    /// Leaf entries that map a frame outside any folio; 1 where it should be 0.
    Unowned(Pfn),
    /// Mappings of a writable anonymous page (D6).
    WritableMappings(Pfn),
    /// Mappings of an exclusive anonymous page (D7).
    ExclusiveMappings(Pfn),
    /// Mappings of a pinned anonymous page that are not exclusive (D7).
    PinnedShared(Pfn),
    /// Entries that point to a page table (D9).
    Shares(Pfn),
    /// Level of a page table.
    TableLevel(Pfn),
    /// Entries of a page table that the manual forbids.
    Malformed(Pfn),
    /// Bytes of page tables that a space reaches (D12).
    TableBytes(SpaceId),
    /// How often a folio is on a queue of folios to be split (D19).
    Deferred(Pfn),
    /// Deposited tables of a table (D13).
    Deposits(Pfn),
    /// A machine-wide gauge (D12).
    Gauge(VmstatGauge),
    /// Resident pages of a space (D16).
    Rss(SpaceId, PageKind),
    /// Swap entries of a space (D16).
    Swapped(SpaceId),
    /// The entries of a shared page table, as a hash (D9).
    SharedHash(Pfn),
    /// Swap entries that name a slot (D17).
    Slot(SwapEntry),
    /// Swap entries that name the slot of an exclusive page (D7).
    ExclusiveSlot(SwapEntry),
    /// How often a folio is on the LRU list that its flags name (D22).
    Listed(Pfn),
    /// How often a folio is on other LRU lists (D22).
    ListedElsewhere(Pfn),
    /// Proportional set size of a space, in 4096ths of a byte (D18).
    Pss(SpaceId),
    /// Proportional size of the swap entries of a space, in the same unit (D18).
    SwapPss(SpaceId),
}

impl fmt::Display for CountMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { of, claimed, counted } = self;
        write!(f, "{of}: the memory manager counts {claimed}, the page tables show {counted}")
    }
}

impl fmt::Display for CountKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refs(pfn) => write!(f, "references of the folio at {pfn}"),
            Self::Mapcount(pfn) => write!(f, "mappings of the folio at {pfn}"),
            Self::PageMapcount(pfn) => write!(f, "mappings of the page at {pfn}"),
            Self::EntireMapcount(pfn) => write!(f, "mappings of the entire folio at {pfn}"),
            Self::PagesMapped(pfn) => write!(f, "mapped pages of the folio at {pfn}"),
            Self::TailRefs(pfn) => write!(f, "references of the tail page at {pfn}"),
            Self::Unowned(pfn) => write!(f, "mappings of frame {pfn}, which is in no folio"),
            Self::WritableMappings(pfn) => write!(f, "mappings of the writable anonymous page at {pfn}"),
            Self::ExclusiveMappings(pfn) => write!(f, "mappings of the exclusive anonymous page at {pfn}"),
            Self::PinnedShared(pfn) => write!(f, "mappings of the pinned page at {pfn} that are not exclusive"),
            Self::Shares(pfn) => write!(f, "entries that point to the table at {pfn}"),
            Self::TableLevel(pfn) => write!(f, "level of the table at {pfn}"),
            Self::Malformed(pfn) => write!(f, "malformed entries in the table at {pfn}"),
            Self::TableBytes(id) => write!(f, "bytes of page tables of space {id}"),
            Self::Deferred(pfn) => write!(f, "places of the folio at {pfn} on a queue of folios to be split"),
            Self::Deposits(pfn) => write!(f, "deposits of the table at {pfn}"),
            Self::Gauge(gauge) => f.write_str(gauge.name()),
            Self::Rss(id, kind) => write!(f, "resident {kind} pages of space {id}"),
            Self::Swapped(id) => write!(f, "swap entries of space {id}"),
            Self::SharedHash(pfn) => write!(f, "hash of the entries of the shared table at {pfn}"),
            Self::Slot(entry) => write!(f, "entries that name {entry}"),
            Self::ExclusiveSlot(entry) => write!(f, "entries that name {entry}, whose page is exclusive"),
            Self::Listed(pfn) => write!(f, "places of the folio at {pfn} on the LRU list that its flags name"),
            Self::ListedElsewhere(pfn) => write!(f, "places of the folio at {pfn} on other LRU lists"),
            Self::Pss(id) => write!(f, "proportional set size of space {id}, in 4096ths of a byte"),
            Self::SwapPss(id) => write!(f, "proportional size of the swap entries of space {id}, in 4096ths of a byte"),
        }
    }
}
