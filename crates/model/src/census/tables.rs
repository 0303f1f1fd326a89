//! One walk under every root, from which all counts come.

use super::{Census, SoftwareBits};
use crate::walk::{self, WalkedEntry};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use pagewright_types::snapshot::{FolioRecord, PageKind};
use pagewright_types::{IsaKind, Level, Pfn, PhysAddr, Rights, SpaceId, SwapEntry};

/// A table, found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Table {
    pub(super) level: Level,
    /// Entries that point to it, those of a table counted once; or spaces whose root it is.
    pub(super) shares: u64,
    /// One of the tables that point to it.
    parent: Option<Pfn>,
}

/// A page and the entries that lead to it.
#[derive(Clone, Debug, Default)]
pub(super) struct Page {
    /// Entries of the last level.
    pub(super) mapcount: u64,
    /// The tables in which an exclusive leaf maps it.
    pub(super) exclusive_in: Vec<Pfn>,
    /// Some entry lets user mode store.
    pub(super) writable: bool,
}

/// A folio that some entry maps or some record names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Folio {
    pub(super) frames: u32,
    pub(super) kind: Option<PageKind>,
    /// Entries that map it at once.
    pub(super) entire: u64,
    /// Entries that map one of its pages.
    pub(super) small: u64,
}

/// A space, walked.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Space {
    /// Tables on all its paths.
    pub(super) tables: u64,
    /// Resident pages, in the order of [`PageKind::ALL`].
    pub(super) rss: [u64; 3],
    /// Entries of pages in swap.
    pub(super) swapped: u64,
}

/// The entries of tables that name a slot.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slot {
    pub(super) entries: u64,
    /// Those that say that the page was their space's alone.
    pub(super) exclusive: u64,
}

/// Everything that was found.
pub(super) struct Found {
    pub(super) tables: BTreeMap<Pfn, Table>,
    /// By head.
    pub(super) folios: BTreeMap<Pfn, Folio>,
    pub(super) pages: BTreeMap<Pfn, Page>,
    pub(super) spaces: BTreeMap<SpaceId, Space>,
    pub(super) slots: BTreeMap<SwapEntry, Slot>,
    /// Frames that leaves map and no folio has.
    pub(super) unowned: Vec<Pfn>,
    /// Tables with a malformed word, once for each.
    pub(super) malformed: Vec<Pfn>,
    /// Mapped pages on all paths.
    pub(super) logical_pages: u64,
}

impl Found {
    /// Walks every space that the census names.
    pub(super) fn look(census: &Census, isa: IsaKind, read: &dyn Fn(PhysAddr) -> u64) -> Self {
        let mut found = Self {
            tables: BTreeMap::new(),
            folios: census.folios.iter().map(folio).collect(),
            pages: BTreeMap::new(),
            spaces: BTreeMap::new(),
            slots: BTreeMap::new(),
            unowned: Vec::new(),
            malformed: Vec::new(),
            logical_pages: 0,
        };
        for claim in &census.spaces {
            let mut visit = Visit {
                found: &mut found,
                isa,
                bits: census.bits,
                fresh: [true; Level::COUNT],
                space: Space::default(),
            };
            walk::walk(isa, claim.root, read, &mut |seen| visit.see(seen));
            let space = visit.space;
            found.spaces.insert(claim.id, space);
        }
        found
    }

    /// The head of the folio that has `pfn`.
    pub(super) fn head_of(&self, pfn: Pfn) -> Option<Pfn> {
        let (head, folio) = self.folios.range(..=pfn).next_back()?;
        (pfn.raw() - head.raw() < folio.frames).then_some(*head)
    }

    /// Whether more than one path leads to this table.
    pub(super) fn is_shared(&self, table: Pfn) -> bool {
        let mut at = Some(table);
        while let Some(found) = at.and_then(|pfn| self.tables.get(&pfn)) {
            if found.shares > 1 {
                return true;
            }
            at = found.parent;
        }
        false
    }

    /// Pages of the folio at `head` that have an entry of their own.
    pub(super) fn pages_with_entry(&self, head: Pfn, frames: u32) -> u64 {
        self.pages.range(head..head.add(frames)).filter(|(_, page)| page.mapcount > 0).count() as u64
    }

    /// Pages of these kinds that some entry maps.
    pub(super) fn mapped_pages(&self, wanted: impl Fn(PageKind) -> bool) -> u64 {
        let folios = self.folios.iter().filter(|(_, folio)| folio.kind.is_some_and(&wanted));
        let pages = folios.map(|(&head, folio)| match folio.entire {
            0 => self.pages_with_entry(head, folio.frames),
            _ => u64::from(folio.frames),
        });
        pages.sum()
    }
}

fn folio(claim: &FolioRecord) -> (Pfn, Folio) {
    (claim.pfn, Folio { frames: claim.order.frames(), kind: claim.kind, entire: 0, small: 0 })
}

/// The walk of one space.
struct Visit<'a> {
    found: &'a mut Found,
    isa: IsaKind,
    bits: SoftwareBits,
    /// By level: whether the table being walked is walked for the first time, and with it
    /// everything physical in it.
    fresh: [bool; Level::COUNT],
    space: Space,
}

impl Visit<'_> {
    fn see(&mut self, seen: WalkedEntry) {
        match seen {
            WalkedEntry::Table { pfn, level, parent, .. } => self.enter(pfn, level, parent),
            WalkedEntry::Leaf { leaf, table, .. } => {
                self.leaf(table, leaf.level, leaf.pfn, leaf.raw, leaf.rights.contains(Rights::WRITE))
            }
            WalkedEntry::NotPresent { level, table, raw, .. } => {
                if raw & self.bits.prot_none_leaf != 0
                    && let Some(pfn) = walk::frame_field(self.isa, level, raw)
                {
                    self.leaf(table, level, pfn, raw, false);
                } else {
                    self.unseen(level, raw);
                }
            }
            WalkedEntry::Malformed { table, .. } => {
                if !self.found.malformed.contains(&table) {
                    self.found.malformed.push(table);
                }
            }
        }
    }

    fn enter(&mut self, pfn: Pfn, level: Level, parent: Option<Pfn>) {
        self.space.tables += 1;
        let parent_is_fresh = match parent {
            None => true,
            Some(_) => self.fresh[level.index() + 1],
        };
        self.fresh[level.index()] = !self.found.tables.contains_key(&pfn);
        let table = self.found.tables.entry(pfn).or_insert(Table { level, shares: 0, parent });
        if parent_is_fresh {
            table.shares += 1;
        }
    }

    fn unseen(&mut self, level: Level, raw: u64) {
        let Some(swapped) = self.bits.swapped else { return };
        let Some(entry) = swapped.entry(raw) else { return };
        self.space.swapped += 1;
        if self.fresh[level.index()] {
            let slot = self.found.slots.entry(entry).or_default();
            slot.entries += 1;
            slot.exclusive += u64::from(raw & swapped.exclusive != 0);
        }
    }

    fn leaf(&mut self, table: Pfn, level: Level, pfn: Pfn, raw: u64, writable: bool) {
        if raw & self.bits.special != 0 {
            return;
        }
        let Some(head) = self.found.head_of(pfn) else {
            self.found.unowned.push(pfn);
            return;
        };
        let Some(folio) = self.found.folios.get_mut(&head) else { return };
        if let Some(kind) = folio.kind {
            self.space.rss[kind as usize] += level.pages();
            self.found.logical_pages += level.pages();
        }
        if !self.fresh[level.index()] {
            return;
        }
        if level == Level::PTE {
            folio.small += 1;
        } else {
            folio.entire += 1;
        }
        let page = self.found.pages.entry(pfn).or_default();
        page.mapcount += u64::from(level == Level::PTE);
        page.writable |= writable;
        if raw & self.bits.exclusive != 0 {
            page.exclusive_in.push(table);
        }
    }
}
