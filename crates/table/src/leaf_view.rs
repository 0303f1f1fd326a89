//! What an entry says, with the path that leads to it.
//!
//! A leaf alone does not say what a program may do: an entry above it can refuse stores for all
//! that is below. [`LeafView`] has the rights that remain, and is the only view of a leaf outside
//! this crate.

use pagewright_arch::{Entry, Isa, Leaf, LeafFlags, Pte, SoftEntry};
use pagewright_plant::plant;
use pagewright_types::{Level, PAGE_SIZE, Pfn, Rights, VirtAddr};

/// A leaf as the path to it allows it to be used.
///
/// Below an entry that other spaces share, no store is allowed and no page is exclusive, whatever
/// the leaf itself says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafView {
    leaf: Leaf,
    level: Level,
}

impl LeafView {
    #[inline]
    pub(crate) fn new(leaf: Leaf, level: Level, shared_path: bool) -> Self {
        if !shared_path {
            return Self { leaf, level };
        }
        let (rights, flags) = (leaf.rights - Rights::WRITE, leaf.flags - LeafFlags::EXCLUSIVE);
        Self { leaf: Leaf { rights, flags, ..leaf }, level }
    }

    #[inline]
    pub(crate) fn leaf(self) -> Leaf {
        self.leaf
    }

    /// The first frame that the leaf maps.
    #[inline]
    pub fn pfn(self) -> Pfn {
        self.leaf.pfn
    }

    /// The frame that the leaf maps at `va`, any address under it.
    #[inline]
    pub fn page_at(self, va: VirtAddr) -> Pfn {
        self.leaf.pfn.add((va.since(va.align_down(self.level.span())) / PAGE_SIZE) as u32)
    }

    /// The level of the leaf.
    #[inline]
    pub fn level(self) -> Level {
        self.level
    }

    /// The accesses that the leaf and the path to it allow.
    #[inline]
    pub fn rights(self) -> Rights {
        self.leaf.rights
    }

    /// Accessed, dirty and the software bits.
    #[inline]
    pub fn flags(self) -> LeafFlags {
        self.leaf.flags
    }

    /// Whether the leaf has all of `flags`.
    #[inline]
    pub fn has(self, flags: LeafFlags) -> bool {
        self.leaf.flags.contains(flags)
    }

    /// Whether the leaf maps a frame without a folio (`pte_special`).
    #[inline]
    pub fn is_special(self) -> bool {
        self.has(LeafFlags::SPECIAL)
    }

    /// Whether the page is anonymous memory of this space alone.
    #[inline]
    pub fn is_exclusive(self) -> bool {
        self.has(LeafFlags::EXCLUSIVE)
    }

    /// The leaf with other rights.
    #[inline]
    #[must_use]
    pub fn with_rights(self, rights: Rights) -> Self {
        Self { leaf: Leaf { rights, ..self.leaf }, ..self }
    }

    /// The leaf with more flags.
    #[inline]
    #[must_use]
    pub fn with(self, flags: LeafFlags) -> Self {
        Self { leaf: Leaf { flags: self.leaf.flags | flags, ..self.leaf }, ..self }
    }

    /// The leaf with fewer flags.
    #[inline]
    #[must_use]
    pub fn without(self, flags: LeafFlags) -> Self {
        Self { leaf: Leaf { flags: self.leaf.flags - flags, ..self.leaf }, ..self }
    }
}

/// An entry as the path to it allows it to be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryView {
    /// Nothing is mapped.
    Empty,
    /// A page, or a huge page at PMD and PUD level.
    Leaf(LeafView),
    /// Nothing is mapped, but the entry carries information.
    Soft(SoftEntry),
    /// A table of the level below.
    Table,
}

impl EntryView {
    #[inline]
    pub(crate) fn decode<I: Isa>(level: Level, pte: Pte, shared_path: bool) -> Self {
        match I::decode(level, pte) {
            Entry::Empty => Self::Empty,
            Entry::Leaf(leaf) => Self::Leaf(LeafView::new(leaf, level, shared_path)),
            Entry::Soft(soft) => Self::Soft(soft),
            Entry::Table(_) => Self::Table,
        }
    }

    /// The leaf, if the entry is one.
    #[inline]
    pub fn leaf(self) -> Option<LeafView> {
        match self {
            Self::Leaf(leaf) => Some(leaf),
            Self::Empty | Self::Soft(_) | Self::Table => None,
        }
    }

    /// Whether the page of the entry is being moved.
    #[inline]
    pub fn is_migrating(self) -> bool {
        match self {
            Self::Soft(soft) => soft.migrating().is_some(),
            Self::Empty | Self::Leaf(_) | Self::Table => false,
        }
    }

    /// The leaf, also if its page is being moved; for a view of what is mapped.
    ///
    /// `level` is that of the entry.
    #[inline]
    pub fn page(self, level: Level) -> Option<LeafView> {
        match self {
            Self::Leaf(leaf) => Some(leaf),
            Self::Soft(soft) => soft
                .migrating()
                .map(|leaf| LeafView::new(leaf, plant!(MovedLeafTakenForPage; Level::PTE, level), false)),
            Self::Empty | Self::Table => None,
        }
    }
}
