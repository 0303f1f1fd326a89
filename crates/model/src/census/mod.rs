//! O4: at rest every count is what all page tables say.
//!
//! - [`Census`] – what a memory manager claims ([`Record`]s), and the comparison with a walk of everything.
//! - [`SoftwareBits`] – the bits of entries that the manuals leave to software and that the counts depend on.
//! - `tables`: the walk. `compare`: the rules.
//!
//! Physical counting: an entry of a table counts once, however many paths lead to the table; resident sets count every path. One place,
//! `tables`, knows which is which.
//!
//! Promises INV-ORACLE-O4.
//!
//! Not guaranteed: that a claim which was never made is missed – a folio that neither a record nor a leaf names stays unknown.

mod compare;
mod tables;

use crate::tally::Tally;
use crate::violation::Count;
use crate::walk::Isa;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use pagewright_types::snapshot::{FolioRecord, LiveRecord, PageRecord, Record, SpaceRecord, TableRecord};
use pagewright_types::{Pfn, PhysAddr};

/// Bits of an entry that only software reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SoftwareBits {
    /// In a word that walkers don't see: it is a leaf without rights, which keeps its frame.
    pub unseen_leaf: u64,
    /// In a leaf: neither references nor mappings are counted for it.
    pub special: u64,
    /// In a leaf: the anonymous page under it belongs to this space alone.
    pub exclusive: u64,
}

impl SoftwareBits {
    /// As Pagewright's own entries have them; written down at the top of `arch`'s two codecs.
    pub const fn pagewright(isa: Isa) -> Self {
        match isa {
            Isa::X86_64 => Self { unseen_leaf: 1 << 9, special: 1 << 55, exclusive: 1 << 56 },
            Isa::Aarch64 => Self { unseen_leaf: 1 << 59, special: 1 << 56, exclusive: 1 << 57 },
        }
    }
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
    spaces: Vec<SpaceRecord>,
    tables: Vec<TableRecord>,
    live: Vec<LiveRecord>,
}

impl Census {
    /// No claims yet.
    pub fn new(bits: SoftwareBits) -> Self {
        Self { bits, ..Self::default() }
    }

    /// Takes down a claim.
    pub fn add(&mut self, record: Record) {
        match record {
            Record::Folio(folio) => self.folios.push(folio),
            Record::Page(page) => self.pages.push(page),
            Record::Held(held) => *self.held.entry(held.pfn).or_default() += held.refs,
            Record::Pinned(pinned) => {
                *self.held.entry(pinned.pfn).or_default() += pinned.pins * pinned.bias;
                if pinned.pins > 0 {
                    *self.pinned.entry(pinned.pfn).or_default() += pinned.pins;
                }
            }
            Record::Space(space) => self.spaces.push(space),
            Record::Table(table) => self.tables.push(table),
            Record::Live(live) => self.live.push(live),
        }
    }

    /// Every claim that the tables, whose words `read` gives, contradict.
    pub fn compare(&self, isa: Isa, read: &dyn Fn(PhysAddr) -> u64, tally: &mut Tally) -> Vec<Count> {
        compare::run(self, isa, read, tally)
    }
}
