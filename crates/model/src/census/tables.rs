//! The walk of all page tables, from which all counts come.

use super::{Census, SoftwareBits};
use crate::walk::{self, WalkedEntry};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use pagewright_types::snapshot::{FolioRecord, PageKind};
use pagewright_types::{IsaKind, Level, Pfn, PhysAddr, Rights, SpaceId, SwapEntry};

/// A page table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Table {
    pub(super) level: Level,
    /// Entries that point to it, each counted once, or the spaces whose root it is.
    pub(super) shares: u64,
    /// One of the tables that point to it.
    parent: Option<Pfn>,
}

/// A page and the entries that map it.
#[derive(Clone, Debug, Default)]
pub(super) struct Page {
    /// Last-level entries.
    pub(super) mapcount: u64,
    /// The tables in which an exclusive leaf maps it.
    pub(super) exclusive_in: Vec<Pfn>,
    /// An entry lets user mode store.
    pub(super) writable: bool,
}

/// A folio that an entry maps or a record names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Folio {
    pub(super) frames: u32,
    pub(super) kind: Option<PageKind>,
    /// Entries that map all of it.
    pub(super) entire: u64,
    /// Entries that map one of its pages.
    pub(super) small: u64,
}

/// The totals of one space.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Space {
    /// Tables on all its paths.
    pub(super) tables: u64,
    /// Resident pages, in the order of [`PageKind::ALL`].
    pub(super) rss: [u64; 3],
    /// Swap entries.
    pub(super) swapped: u64,
}

/// The swap entries in page tables that name one slot.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slot {
    pub(super) entries: u64,
    /// Those that mark the page as exclusive.
    pub(super) exclusive: u64,
}

/// Everything that the page tables hold.
pub(super) struct TableScan {
    pub(super) tables: BTreeMap<Pfn, Table>,
    /// By first frame.
    pub(super) folios: BTreeMap<Pfn, Folio>,
    pub(super) pages: BTreeMap<Pfn, Page>,
    pub(super) spaces: BTreeMap<SpaceId, Space>,
    pub(super) slots: BTreeMap<SwapEntry, Slot>,
    /// Mapped frames outside any folio.
    pub(super) unowned: Vec<Pfn>,
    /// Tables with a malformed entry.
    pub(super) malformed: Vec<Pfn>,
    /// Mapped pages, counted on every path.
    pub(super) logical_pages: u64,
}

impl TableScan {
    /// Walks every space that the census names.
    pub(super) fn new(census: &Census, isa: IsaKind, read: &dyn Fn(PhysAddr) -> u64) -> Self {
        let mut scan = Self {
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
            let mut visit =
                Visit { scan: &mut scan, isa, bits: census.bits, fresh: [true; Level::COUNT], space: Space::default() };
            walk::walk(isa, claim.root, read, &mut |seen| visit.see(seen));
            let space = visit.space;
            scan.spaces.insert(claim.id, space);
        }
        scan
    }

    /// The first frame of the folio that contains `pfn`.
    pub(super) fn head_of(&self, pfn: Pfn) -> Option<Pfn> {
        let (head, folio) = self.folios.range(..=pfn).next_back()?;
        (pfn.raw() - head.raw() < folio.frames).then_some(*head)
    }

    /// Whether several paths lead to this table.
    pub(super) fn is_shared(&self, table: Pfn) -> bool {
        let mut at = Some(table);
        while let Some(table) = at.and_then(|pfn| self.tables.get(&pfn)) {
            if table.shares > 1 {
                return true;
            }
            at = table.parent;
        }
        false
    }

    /// Pages of the folio at `head` that have a last-level entry.
    pub(super) fn pages_with_entry(&self, head: Pfn, frames: u32) -> u64 {
        self.pages.range(head..head.add(frames)).filter(|(_, page)| page.mapcount > 0).count() as u64
    }

    /// Mapped pages of the wanted kinds.
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
    scan: &'a mut TableScan,
    isa: IsaKind,
    bits: SoftwareBits,
    /// By level: whether the current table is walked for the first time.
    ///
    /// Only then do its entries add to physical counts.
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
                if !self.scan.malformed.contains(&table) {
                    self.scan.malformed.push(table);
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
        self.fresh[level.index()] = !self.scan.tables.contains_key(&pfn);
        let table = self.scan.tables.entry(pfn).or_insert(Table { level, shares: 0, parent });
        if parent_is_fresh {
            table.shares += 1;
        }
    }

    fn unseen(&mut self, level: Level, raw: u64) {
        let Some(format) = self.bits.swap else { return };
        let Some(entry) = format.entry(raw) else { return };
        self.space.swapped += 1;
        if self.fresh[level.index()] {
            let slot = self.scan.slots.entry(entry).or_default();
            slot.entries += 1;
            slot.exclusive += u64::from(raw & format.exclusive != 0);
        }
    }

    fn leaf(&mut self, table: Pfn, level: Level, pfn: Pfn, raw: u64, writable: bool) {
        if raw & self.bits.special != 0 {
            return;
        }
        let Some(head) = self.scan.head_of(pfn) else {
            self.scan.unowned.push(pfn);
            return;
        };
        let Some(folio) = self.scan.folios.get_mut(&head) else { return };
        if let Some(kind) = folio.kind {
            self.space.rss[kind as usize] += level.pages();
            self.scan.logical_pages += level.pages();
        }
        if !self.fresh[level.index()] {
            return;
        }
        if level == Level::PTE {
            folio.small += 1;
        } else {
            folio.entire += 1;
        }
        let page = self.scan.pages.entry(pfn).or_default();
        page.mapcount += u64::from(level == Level::PTE);
        page.writable |= writable;
        if raw & self.bits.exclusive != 0 {
            page.exclusive_in.push(table);
        }
    }
}
