//! Counts of page tables, entries and pages, from what `/proc` says of a process.
//!
//! Key types: [`TableCounts`], the tables that pages need; [`ForkedCounts`], what Linux's fork
//! copies; [`Exposure`], what the first stores after a fork copy; [`HugeCounts`], what huge pages
//! would hold.
//!
//! Pages are of 4 KiB and page tables have four levels.
//!
//! Not guaranteed: tables in which no page is present or swapped. Linux keeps them until their
//! addresses are unmapped, and `pagemap` does not show them.

use super::process::{BLOCK_PAGES, Block, Mapping, MappingKind, PAGE, ProcessMemory};
use procfs::process::VmFlags;
use serde::Serialize;
use std::collections::BTreeMap;

/// Entries of a table.
const ENTRIES: u64 = 512;

/// The page tables that pages need, without the root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct TableCounts {
    /// Last-level tables, with those that Linux deposits for huge pages.
    pub(super) pte: u64,
    /// Tables whose entries cover 2 MiB.
    pub(super) pmd: u64,
    /// Tables whose entries cover 1 GiB.
    pub(super) pud: u64,
    /// Entries of the root, each of which covers 512 GiB.
    pub(super) root_entries: u64,
}

impl TableCounts {
    /// Counts the tables of some mappings, in the order of their addresses.
    pub(super) fn of<'a>(mappings: impl Iterator<Item = &'a Mapping>) -> Self {
        let (mut counts, mut latest) = (Self::default(), None);
        for mapping in mappings {
            counts.add(&mut latest, mapping.blocks.iter().map(|block| block.index));
            // Linux deposits no table for a huge page of a file.
            counts.pte = counts.pte.saturating_sub(mapping.file_huge_leaves);
        }
        counts
    }

    /// Adds the tables of blocks that follow the latest one.
    fn add(&mut self, latest: &mut Option<u64>, indices: impl Iterator<Item = u64>) {
        for index in indices {
            let is_new = |span: u64| latest.is_none_or(|latest: u64| latest / span != index / span);
            self.pte += u64::from(is_new(1));
            self.pmd += u64::from(is_new(ENTRIES));
            self.pud += u64::from(is_new(ENTRIES * ENTRIES));
            *latest = Some(index);
        }
        self.root_entries = self.pud;
    }

    pub(super) const fn tables(&self) -> u64 {
        self.pte + self.pmd + self.pud
    }

    /// Bytes, as Linux counts them in `VmPTE`: without the root.
    pub(super) const fn bytes(&self) -> u64 {
        self.tables() * PAGE
    }
}

/// The mappings and pages of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct KindCounts {
    pub(super) mappings: u64,
    pub(super) bytes: u64,
    /// Entries of last-level tables that map a page.
    pub(super) entries: u64,
    /// Entries that map 2 MiB.
    pub(super) huge_leaves: u64,
    pub(super) swapped: u64,
}

impl KindCounts {
    pub(super) fn of<'a>(mappings: impl Iterator<Item = &'a Mapping>) -> Self {
        mappings.fold(Self::default(), |sum, mapping| Self {
            mappings: sum.mappings + 1,
            bytes: sum.bytes + mapping.bytes(),
            entries: sum.entries + mapping.base_entries(),
            huge_leaves: sum.huge_leaves + mapping.huge_leaves + mapping.file_huge_leaves,
            swapped: sum.swapped + mapping.sum(|block| block.swapped),
        })
    }

    pub(super) fn of_kind(process: &ProcessMemory, kind: MappingKind) -> Self {
        Self::of(process.mappings.iter().filter(|mapping| mapping.kind == kind))
    }
}

/// What Linux's fork copies and allocates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct ForkedCounts {
    /// Entries of last-level tables, of present and of swapped pages.
    pub(super) entries: u64,
    pub(super) huge_leaves: u64,
    pub(super) tables: TableCounts,
    /// Mappings whose entries are copied.
    pub(super) copied_mappings: u64,
    /// Mappings that the child gets without entries.
    pub(super) other_mappings: u64,
}

impl ForkedCounts {
    pub(super) fn of(process: &ProcessMemory) -> Self {
        let copied = KindCounts::of(process.copied());
        let inherited = process.mappings.iter().filter(|mapping| mapping.is_inherited()).count() as u64;
        Self {
            entries: copied.entries + copied.swapped,
            huge_leaves: copied.huge_leaves,
            tables: TableCounts::of(process.copied()),
            copied_mappings: copied.mappings,
            other_mappings: inherited - copied.mappings,
        }
    }
}

/// The entries below each last-level table that Linux's fork copies; huge leaves are left out.
pub(super) fn copied_entries_by_table(process: &ProcessMemory) -> Vec<u64> {
    let mut tables = BTreeMap::<u64, u64>::new();
    for mapping in process.copied() {
        let mut huge = mapping.huge_leaves + mapping.file_huge_leaves;
        for block in &mapping.blocks {
            // `pagemap` does not say which of the full blocks are mapped by one entry.
            if block.present == BLOCK_PAGES && huge > 0 {
                huge -= 1;
            } else {
                *tables.entry(block.index).or_default() += block.present + block.swapped;
            }
        }
    }
    tables.into_values().collect()
}

/// What the first stores after a fork copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Exposure {
    /// Anonymous pages of writable private mappings that fork copies.
    pub(super) pages: u64,
    /// Those of them that another process maps already, or that are pages of zeroes.
    pub(super) not_exclusive: u64,
    /// Anonymous pages of such mappings that are not writable now.
    pub(super) read_only_pages: u64,
    /// The tables on the paths to `pages`.
    pub(super) tables: TableCounts,
}

impl Exposure {
    pub(super) fn of(process: &ProcessMemory) -> Self {
        let sum = |writable: bool, of: fn(&Block) -> u64| -> u64 {
            let mappings = process.copied().filter(|mapping| mapping.is_private() && mapping.is_writable == writable);
            mappings.map(|mapping| mapping.sum(of)).sum()
        };
        let (mut tables, mut latest) = (TableCounts::default(), None);
        for mapping in process.copied().filter(|mapping| mapping.is_private() && mapping.is_writable) {
            let stored = mapping.blocks.iter().filter(|block| block.anonymous > 0);
            tables.add(&mut latest, stored.map(|block| block.index));
        }
        Self {
            pages: sum(true, |block| block.anonymous),
            not_exclusive: sum(true, |block| block.anonymous - block.exclusive),
            read_only_pages: sum(false, |block| block.anonymous),
            tables,
        }
    }

    /// Bytes that stores to all of `pages` copy.
    pub(super) const fn bytes(&self) -> u64 {
        self.pages * PAGE
    }
}

/// Which anonymous memory gets huge pages (`transparent_hugepage.enabled`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HugeSetting {
    Madvise,
    Always,
}

impl HugeSetting {
    pub(super) const ALL: [Self; 2] = [Self::Madvise, Self::Always];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Madvise => "madvise",
            Self::Always => "always",
        }
    }

    fn permits(self, mapping: &Mapping) -> bool {
        let is_asked = self == Self::Always || mapping.flags.contains(VmFlags::HG);
        mapping.kind == MappingKind::PrivateAnonymous && is_asked && !mapping.flags.contains(VmFlags::NH)
    }
}

/// What anonymous memory would hold in huge pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct HugeCounts {
    /// Aligned ranges of 2 MiB, each within one mapping, with a page.
    pub(super) ranges: u64,
    /// Those of them with 512 pages.
    pub(super) full: u64,
    /// Those that are huge pages now.
    pub(super) huge_now: u64,
    /// Pages that the ranges hold now.
    pub(super) pages: u64,
    /// Entries that map private anonymous memory now, and those that would.
    pub(super) entries_now: u64,
    pub(super) entries_then: u64,
}

impl HugeCounts {
    pub(super) fn of(process: &ProcessMemory, setting: HugeSetting) -> Self {
        let mut counts = Self::default();
        for mapping in process.mappings.iter().filter(|mapping| mapping.kind == MappingKind::PrivateAnonymous) {
            let entries = mapping.base_entries() + mapping.huge_leaves;
            counts.entries_now += entries;
            counts.entries_then += entries;
            if !setting.permits(mapping) {
                continue;
            }
            let bounds = (mapping.start / PAGE).div_ceil(BLOCK_PAGES)..mapping.end / PAGE / BLOCK_PAGES;
            let ranges = mapping.blocks.iter().filter(|block| block.present > 0 && bounds.contains(&block.index));
            let (mut count, mut pages) = (0, 0);
            for block in ranges {
                count += 1;
                pages += block.present;
                counts.full += u64::from(block.present == BLOCK_PAGES);
            }
            counts.ranges += count;
            counts.pages += pages;
            counts.huge_now += mapping.huge_leaves;
            // Each range that is not huge yet has one entry in place of those of its pages.
            let base_pages = pages - mapping.huge_leaves * BLOCK_PAGES;
            counts.entries_then = counts.entries_then - base_pages + (count - mapping.huge_leaves);
        }
        counts
    }

    /// Bytes that the ranges would hold when they are filled.
    pub(super) const fn bytes(&self) -> u64 {
        self.ranges * BLOCK_PAGES * PAGE
    }

    /// Bytes of them that hold nothing now: internal fragmentation.
    pub(super) const fn bytes_more(&self) -> u64 {
        self.bytes() - self.pages * PAGE
    }
}
