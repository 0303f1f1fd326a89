//! O4: at rest every count is what all page tables say.
//!
//! - [`Census`] – what a memory manager claims ([`SnapshotRecord`]s), and the comparison with a walk of
//!   everything.
//! - [`SoftwareBits`] – the bits of entries that the manuals leave to software and that the counts
//!   depend on.
//! - `tables`: the walk. `compare`: the rules.
//!
//! Physical counting: an entry of a table counts once, however many paths lead to the table;
//! resident sets count every path. One place, `tables`, knows which is which.
//!
//! Promises INV-ORACLE-O4.
//!
//! Not guaranteed: that a claim which was never made is missed – a folio that neither a record nor
//! a leaf names stays unknown.

mod compare;
mod tables;

use crate::tally::Tally;
use crate::violation::CountMismatch;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use pagewright_types::snapshot::{FolioRecord, GaugeRecord, PageRecord, SnapshotRecord, SpaceRecord, TableRecord};
use pagewright_types::{IsaKind, LruList, Pfn, PhysAddr, SwapEntry};

/// Bits of an entry that only software reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SoftwareBits {
    /// In a word that walkers don't see: it is a leaf without rights, which keeps its frame.
    pub prot_none_leaf: u64,
    /// In a leaf: neither references nor mappings are counted for it.
    pub special: u64,
    /// In a leaf: the anonymous page under it belongs to this space alone.
    pub exclusive: u64,
    /// Which words that walkers don't see stand for a page in swap; `None` if none do.
    pub swapped: Option<SwapEntryFormat>,
}

/// How a word that walkers don't see names a page in swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwapEntryFormat {
    /// The bits by which it is told from other words.
    pub mask: u64,
    /// Those bits of such a word.
    pub value: u64,
    /// In such a word: the page was this space's alone when it went.
    pub exclusive: u64,
    /// Where in the word the number of the [`SwapEntry`] begins.
    pub shift: u32,
}

impl SwapEntryFormat {
    /// The slot that a word names, if it names one.
    pub(crate) fn entry(self, raw: u64) -> Option<SwapEntry> {
        (raw & self.mask == self.value).then(|| SwapEntry::from_raw((raw >> self.shift) as u32))
    }
}

impl SoftwareBits {
    /// As Pagewright's own entries have them; written down at the top of `arch`'s two codecs.
    pub const fn pagewright(isa: IsaKind) -> Self {
        match isa {
            IsaKind::X86_64 => {
                Self { prot_none_leaf: 1 << 9, special: 1 << 55, exclusive: 1 << 56, swapped: Some(swap_word(9, 10)) }
            }
            IsaKind::Aarch64 => {
                Self { prot_none_leaf: 1 << 59, special: 1 << 56, exclusive: 1 << 57, swapped: Some(swap_word(59, 60)) }
            }
        }
    }
}

/// Kind 1 in bits 1 to 4, exclusive in bit 5, the entry from bit 11 on.
///
/// Bit `leaf` marks a leaf without rights and bit `soft` all other words that walkers don't see.
const fn swap_word(leaf: u32, soft: u32) -> SwapEntryFormat {
    let (kinds, swap) = (0xf << 1, 1 << 1);
    SwapEntryFormat { mask: kinds | 1 << leaf | 1 << soft, value: swap | 1 << soft, exclusive: 1 << 5, shift: 11 }
}

/// What a memory manager claims, at one moment at which it rests.
#[derive(Clone, Debug, Default)]
pub struct Census {
    bits: SoftwareBits,
    folios: Vec<FolioRecord>,
    pages: Vec<PageRecord>,
    /// References that no entry holds, by the folio's first frame.
    held: BTreeMap<Pfn, u64>,
    /// Folios with a pin, and how many each has.
    pinned: BTreeMap<Pfn, u64>,
    /// Lists by use on which each folio was found.
    listed: BTreeMap<Pfn, Vec<LruList>>,
    /// Slots that somebody has, and how many entries name each.
    slots: BTreeMap<SwapEntry, u64>,
    /// Entries that name slots and stand in no table.
    named: BTreeMap<SwapEntry, u64>,
    spaces: Vec<SpaceRecord>,
    tables: Vec<TableRecord>,
    live: Vec<GaugeRecord>,
}

impl Census {
    /// No claims yet.
    pub fn new(bits: SoftwareBits) -> Self {
        Self { bits, ..Self::default() }
    }

    /// Takes down a claim.
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
            SnapshotRecord::Gauge(live) => self.live.push(live),
        }
    }

    /// Every claim that the tables, whose words `read` gives, contradict.
    pub fn compare(&self, isa: IsaKind, read: &dyn Fn(PhysAddr) -> u64, tally: &mut Tally) -> Vec<CountMismatch> {
        compare::run(self, isa, read, tally)
    }
}
