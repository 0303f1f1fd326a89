//! O4: at rest, every count agrees with the page tables.
//!
//! - [`Census`] – the counts that a memory manager claims ([`SnapshotRecord`]s), and their
//!   comparison with a walk of all page tables.
//! - [`SoftwareBits`] – the software bits of entries on which the counts depend.
//! - `tables`: the walk. `compare`: the rules. `large`: what is noted of large folios.
//!
//! Counts of mappings are physical: an entry counts once, however many paths lead to its table.
//! Resident sets are logical: a page counts on every path. Only `tables` makes the distinction.
//!
//! **INV-ORACLE-O4** At rest, references, mapcounts, sharers, resident and proportional set sizes
//! and page-table bytes are what a walk of all tables counts. The entries of a shared table change
//! for all its sharers or not at all, except for what a break takes from both copies. For all of
//! them, an empty table may come where nothing was, and no pointer to a table goes.
//!
//! Not guaranteed: that a missing claim is noticed. A folio that neither a record nor a leaf names
//! is unknown here.

mod compare;
mod large;
mod tables;

use crate::count::CountMismatch;
use crate::tally::Tally;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use pagewright_types::snapshot::{
    DeferredRecord, DepositRecord, FolioRecord, GaugeRecord, PageRecord, SnapshotRecord, SpaceRecord, TableRecord,
};
use pagewright_types::{IsaKind, LruList, Pfn, PhysAddr, SwapEntry};

/// The bits of an entry that only software reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SoftwareBits {
    /// In a non-present entry: it is a leaf without rights that keeps its frame (`PROT_NONE`).
    pub prot_none_leaf: u64,
    /// In a leaf: it holds no reference and no mapcount (`pte_special`).
    pub special: u64,
    /// In a leaf: its anonymous page is exclusive (`PageAnonExclusive`).
    pub exclusive: u64,
    /// In a leaf that is not writable: its page is dirty, where the walker's bit cannot say so.
    pub kept_dirty: u64,
    /// In a pointer to a table: the space had the table to itself when sharing began.
    pub origin: u64,
    /// The format of swap entries; `None` if there are none.
    pub swap: Option<SwapEntryFormat>,
}

/// The format of a non-present entry that names a swap slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwapEntryFormat {
    /// The bits that identify a swap entry.
    pub mask: u64,
    /// The value of those bits.
    pub value: u64,
    /// Set if the page was exclusive when it was swapped out.
    pub exclusive: u64,
    /// The lowest bit of the [`SwapEntry`].
    pub shift: u32,
}

impl SwapEntryFormat {
    /// The slot that `raw` names, if `raw` is a swap entry.
    pub(crate) fn entry(self, raw: u64) -> Option<SwapEntry> {
        (raw & self.mask == self.value).then(|| SwapEntry::from_raw((raw >> self.shift) as u32))
    }
}

impl SoftwareBits {
    /// The bits of Pagewright's own entries, as documented at the top of the codecs in `arch`.
    pub const fn pagewright(isa: IsaKind) -> Self {
        match isa {
            IsaKind::X86_64 => Self {
                prot_none_leaf: 1 << 9,
                special: 1 << 55,
                exclusive: 1 << 56,
                kept_dirty: 0,
                origin: 1 << 52,
                swap: Some(swap_entry_format(9, 10)),
            },
            IsaKind::Aarch64 => Self {
                prot_none_leaf: 1 << 59,
                special: 1 << 56,
                exclusive: 1 << 57,
                kept_dirty: 1 << 55,
                origin: 1 << 52,
                swap: Some(swap_entry_format(59, 60)),
            },
        }
    }
}

/// Kind 1 in bits 1 to 4, exclusive in bit 5, the [`SwapEntry`] from bit 11 on.
///
/// Bit `leaf` marks a leaf without rights, and bit `soft` every other non-present entry.
const fn swap_entry_format(leaf: u32, soft: u32) -> SwapEntryFormat {
    let (kinds, swap) = (0xf << 1, 1 << 1);
    SwapEntryFormat { mask: kinds | 1 << leaf | 1 << soft, value: swap | 1 << soft, exclusive: 1 << 5, shift: 11 }
}

/// The counts that a memory manager claims while it is at rest.
#[derive(Clone, Debug, Default)]
pub struct Census {
    bits: SoftwareBits,
    folios: Vec<FolioRecord>,
    pages: Vec<PageRecord>,
    /// References that no entry holds, by the folio's first frame.
    held: BTreeMap<Pfn, u64>,
    /// Pins of each pinned folio.
    pinned: BTreeMap<Pfn, u64>,
    /// Pages of large folios that a holder has pinned.
    pinned_pages: BTreeSet<Pfn>,
    /// The LRU lists on which each folio was found.
    listed: BTreeMap<Pfn, Vec<LruList>>,
    /// Slots in use, and the claimed number of entries that name each.
    slots: BTreeMap<SwapEntry, u64>,
    /// Swap entries outside page tables, by slot.
    named: BTreeMap<SwapEntry, u64>,
    spaces: Vec<SpaceRecord>,
    tables: Vec<TableRecord>,
    /// How often each folio is on a queue of folios to be split.
    deferred: BTreeMap<Pfn, u64>,
    /// The deposited tables.
    deposited: BTreeSet<Pfn>,
    /// The number of them that each table has.
    deposits: BTreeMap<Pfn, u64>,
    live: Vec<GaugeRecord>,
}

impl Census {
    /// Creates a census without claims.
    pub fn new(bits: SoftwareBits) -> Self {
        Self { bits, ..Self::default() }
    }

    /// Adds a claim.
    pub fn add(&mut self, record: SnapshotRecord) {
        match record {
            SnapshotRecord::Folio(folio) => self.folios.push(folio),
            SnapshotRecord::Page(page) => self.pages.push(page),
            SnapshotRecord::Held(held) => *self.held.entry(held.pfn).or_default() += held.refs,
            SnapshotRecord::Pinned(pinned) => {
                *self.held.entry(pinned.pfn).or_default() += pinned.pins * pinned.bias;
                if pinned.pins > 0 {
                    *self.pinned.entry(pinned.pfn).or_default() += pinned.pins;
                }
            }
            SnapshotRecord::Listed(listed) => self.listed.entry(listed.pfn).or_default().push(listed.list),
            SnapshotRecord::SwapSlot(slot) => *self.slots.entry(slot.entry).or_default() += slot.entries,
            SnapshotRecord::SwapRef(named) => *self.named.entry(named.entry).or_default() += 1,
            SnapshotRecord::Space(space) => self.spaces.push(space),
            SnapshotRecord::Table(table) => self.tables.push(table),
            SnapshotRecord::Deposit(DepositRecord { pfn, holder }) => {
                self.deposited.insert(pfn);
                *self.deposits.entry(holder).or_default() += 1;
            }
            SnapshotRecord::Deferred(DeferredRecord { pfn }) => *self.deferred.entry(pfn).or_default() += 1,
            SnapshotRecord::Gauge(live) => self.live.push(live),
        }
    }

    /// Adds what the holder of a pin knows: which page it is.
    ///
    /// A memory manager counts the pins of a large folio, and not of which pages they are.
    pub fn add_pinned_page(&mut self, page: Pfn) {
        self.pinned_pages.insert(page);
    }

    /// The claimed number of deposits of a table.
    fn deposits_of(&self, table: Pfn) -> u64 {
        self.deposits.get(&table).copied().unwrap_or(0)
    }

    /// Whether a page of a folio is known to be pinned.
    fn is_pinned(&self, page: Pfn, (head, frames): (Pfn, u32)) -> bool {
        if frames == 1 { self.pinned.contains_key(&head) } else { self.pinned_pages.contains(&page) }
    }

    /// Returns every claim that the page tables contradict.
    ///
    /// `read` reads eight bytes of physical memory.
    pub fn compare(&self, isa: IsaKind, read: &dyn Fn(PhysAddr) -> u64, tally: &mut Tally) -> Vec<CountMismatch> {
        compare::run(self, isa, read, tally)
    }
}
