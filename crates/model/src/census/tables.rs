//! The walk of all page tables, from which all counts come.
//!
//! Each table is read once, whatever the number of entries that point to it, level by level from
//! the roots. Physical counts come from that. Logical counts (what a space reaches) are sums over
//! the paths: each table has its own totals and those of its tables, per entry that points to them.
//!
//! Proportional set sizes need both directions. Down from the roots, each table gets the paths of
//! the tables that point to it, and each page those of its entries: its logical mappings. Up from
//! the last level, each table has the shares of the pages that it maps.

use super::Census;
use crate::walk::{self, DecodedEntry, PathRights};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::AddAssign;
use pagewright_types::snapshot::{FolioRecord, PageKind};
use pagewright_types::{IsaKind, Level, PAGE_SIZE, Pfn, PhysAddr, Rights, SpaceId, SwapEntry};

/// 4096ths of a byte in a page.
const PARTS: u64 = PAGE_SIZE << 12;

/// A page table.
#[derive(Clone, Debug)]
pub(super) struct Table {
    pub(super) level: Level,
    /// Entries that point to it, each counted once, or the spaces whose root it is.
    pub(super) shares: u64,
    /// One of the tables that point to it.
    parent: Option<Pfn>,
    /// The different rights that are left on paths to it.
    paths: Vec<PathRights>,
    /// The tables that its entries point to.
    below: Vec<Pfn>,
    /// Its leaves of the PMD level, special ones included.
    pub(super) pmd_leaves: u64,
    /// The pairs of a space and a path from its root; known at the end of the walk.
    spaces: u64,
    /// What its entries map or name, of pages that count as resident or in swap.
    pages: Vec<MappedPage>,
    /// What its entries hold and, at the end of the scan, all below it on every path.
    reach: Reach,
}

/// A page as an entry has it.
#[derive(Clone, Copy, Debug)]
enum MappedPage {
    /// The page of a last-level leaf.
    Page(Pfn),
    /// The first page of a leaf of this level, which maps a whole folio.
    Block(Pfn, Level),
    /// The page in a swap slot.
    Slot(SwapEntry),
}

/// The pairs of a space and an entry that the space reaches, of one page or slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LogicalMappings {
    pub(super) count: u64,
    /// The spaces that reach the entry that was added last.
    latest: u64,
    /// Different numbers of spaces reach its entries.
    pub(super) unequal: bool,
}

impl LogicalMappings {
    /// Adds an entry that `spaces` spaces reach.
    fn add(&mut self, spaces: u64) {
        self.unequal |= self.count > 0 && self.latest != spaces;
        self.count += spaces;
        self.latest = spaces;
    }
}

/// A page, or a folio that is mapped whole, and the entries that map it.
#[derive(Clone, Debug, Default)]
pub(super) struct Page {
    /// The entries.
    pub(super) mapcount: u64,
    /// The tables in which an exclusive leaf maps it.
    pub(super) exclusive_in: Vec<Pfn>,
    /// An entry lets user mode store.
    pub(super) writable: bool,
    /// Last-level entries, counted in each space.
    pub(super) logical: LogicalMappings,
}

/// A folio that an entry maps or a record names.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Folio {
    pub(super) frames: u32,
    pub(super) kind: Option<PageKind>,
    /// Entries that map all of it.
    pub(super) entire: u64,
    /// Entries that map one of its pages.
    pub(super) small: u64,
    /// How far the first of them that was read is from its page, in entries.
    distance: Option<usize>,
    /// Whether another one is not as far from its page.
    pub(super) is_apart: bool,
    /// Entries that map all of it, counted in each space.
    pub(super) entire_logical: LogicalMappings,
}

impl Folio {
    /// Counts the entry at `index` of its table, which maps `page` of the folio.
    fn add_small(&mut self, index: usize, page: u32) {
        self.small += 1;
        let distance = (index + Level::ENTRIES - page as usize % Level::ENTRIES) % Level::ENTRIES;
        self.is_apart |= *self.distance.get_or_insert(distance) != distance;
    }
}

/// What a space or a table reaches, counted on every path.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reach {
    /// Tables, itself included.
    pub(super) tables: u64,
    /// Resident pages, in the order of [`PageKind::ALL`].
    pub(super) rss: [u64; 3],
    /// Swap entries.
    pub(super) swapped: u64,
    /// The shares of resident pages, in 4096ths of a byte.
    pub(super) pss: u64,
    /// The shares of pages in swap.
    pub(super) swap_pss: u64,
}

impl AddAssign for Reach {
    fn add_assign(&mut self, other: Self) {
        self.tables += other.tables;
        self.swapped += other.swapped;
        self.pss += other.pss;
        self.swap_pss += other.swap_pss;
        self.rss.iter_mut().zip(other.rss).for_each(|(pages, more)| *pages += more);
    }
}

/// The swap entries in page tables that name one slot.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slot {
    pub(super) entries: u64,
    /// Those that mark the page as exclusive.
    pub(super) exclusive: u64,
    /// All of them, counted in each space.
    pub(super) logical: LogicalMappings,
}

/// Everything that the page tables hold.
pub(super) struct TableScan {
    pub(super) tables: BTreeMap<Pfn, Table>,
    /// By first frame.
    pub(super) folios: BTreeMap<Pfn, Folio>,
    pub(super) pages: BTreeMap<Pfn, Page>,
    /// The leaves that map a folio whole, by its first frame.
    pub(super) blocks: BTreeMap<Pfn, Page>,
    pub(super) spaces: BTreeMap<SpaceId, Reach>,
    pub(super) slots: BTreeMap<SwapEntry, Slot>,
    /// Mapped frames outside any folio.
    pub(super) unowned: Vec<Pfn>,
    /// Tables with a malformed entry.
    pub(super) malformed: Vec<Pfn>,
}

impl TableScan {
    /// Walks every space that the census names.
    pub(super) fn new(census: &Census, isa: IsaKind, read: &dyn Fn(PhysAddr) -> u64) -> Self {
        let mut scan = Self {
            tables: BTreeMap::new(),
            folios: census.folios.iter().map(folio).collect(),
            pages: BTreeMap::new(),
            blocks: BTreeMap::new(),
            spaces: BTreeMap::new(),
            slots: BTreeMap::new(),
            unowned: Vec::new(),
            malformed: Vec::new(),
        };
        let mut walk = TableWalk { scan: &mut scan, isa, census, read, next: Vec::new() };
        for claim in &census.spaces {
            walk.point_to(claim.root, Level::PGD, None, &[PathRights::ROOT]);
        }
        let levels = walk.run();
        scan.count_logical(census, &levels);
        scan.sum_up(census, levels);
        for claim in &census.spaces {
            let reach = scan.tables.get(&claim.root).map(|root| root.reach).unwrap_or_default();
            scan.spaces.insert(claim.id, reach);
        }
        scan
    }

    /// Counts the mappings of each page and slot in each space, from the roots down.
    fn count_logical(&mut self, census: &Census, levels: &[Vec<Pfn>]) {
        for claim in &census.spaces {
            self.tables.entry(claim.root).and_modify(|root| root.spaces += 1);
        }
        for pfn in levels.iter().flatten() {
            let Some(table) = self.tables.get(pfn) else { continue };
            let (spaces, below) = (table.spaces, table.below.clone());
            for page in &table.pages {
                let logical = match *page {
                    MappedPage::Page(pfn) => self.pages.get_mut(&pfn).map(|page| &mut page.logical),
                    MappedPage::Block(pfn, _) => {
                        let head = self.head_of(pfn);
                        head.and_then(|head| self.folios.get_mut(&head)).map(|folio| &mut folio.entire_logical)
                    }
                    MappedPage::Slot(entry) => self.slots.get_mut(&entry).map(|slot| &mut slot.logical),
                };
                if let Some(logical) = logical {
                    logical.add(spaces);
                }
            }
            for below in below {
                self.tables.entry(below).and_modify(|table| table.spaces += spaces);
            }
        }
    }

    /// Adds the shares of the pages of each table, and what the tables below it reach.
    fn sum_up(&mut self, census: &Census, levels: Vec<Vec<Pfn>>) {
        for pfn in levels.into_iter().rev().flatten() {
            let Some(table) = self.tables.get(&pfn) else { continue };
            let mut more = Reach::default();
            for page in &table.pages {
                let (resident, in_swap) = self.share(census, *page);
                more.pss += resident;
                more.swap_pss += in_swap;
            }
            for below in &table.below {
                more += self.tables.get(below).map(|table| table.reach).unwrap_or_default();
            }
            self.tables.entry(pfn).and_modify(|table| table.reach += more);
        }
    }

    /// What an entry adds to the proportional set size and to that of the swap entries.
    ///
    /// Each page is divided by its mappings, and rounded down.
    fn share(&self, census: &Census, page: MappedPage) -> (u64, u64) {
        let of_page = |pfn: Pfn| {
            let small = self.pages.get(&pfn).map_or(0, |page| page.logical.count);
            let folio = self.head_of(pfn).and_then(|head| self.folios.get(&head));
            PARTS / (small + folio.map_or(0, |folio| folio.entire_logical.count)).max(1)
        };
        match page {
            MappedPage::Page(pfn) => (of_page(pfn), 0),
            MappedPage::Block(pfn, level) => ((0..level.pages()).map(|index| of_page(pfn.add(index as u32))).sum(), 0),
            MappedPage::Slot(entry) => {
                let in_tables = self.slots.get(&entry).map_or(0, |slot| slot.logical.count);
                let in_caches = census.named.get(&entry).copied().unwrap_or(0);
                (0, PARTS / (in_tables + in_caches).max(1))
            }
        }
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

    /// Pages of the folios of a kind that an entry maps whole.
    pub(super) fn entirely_mapped_pages(&self, kind: PageKind) -> u64 {
        let folios = self.folios.values().filter(|folio| folio.kind == Some(kind) && folio.entire > 0);
        folios.map(|folio| u64::from(folio.frames)).sum()
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
    (claim.pfn, Folio { frames: claim.order.frames(), kind: claim.kind, ..Folio::default() })
}

/// The walk of all tables.
struct TableWalk<'a> {
    scan: &'a mut TableScan,
    isa: IsaKind,
    census: &'a Census,
    read: &'a dyn Fn(PhysAddr) -> u64,
    /// The tables of the next level.
    next: Vec<Pfn>,
}

impl TableWalk<'_> {
    /// Reads the tables of each level, and returns them.
    fn run(mut self) -> Vec<Vec<Pfn>> {
        let mut levels: Vec<Vec<Pfn>> = Vec::new();
        while !self.next.is_empty() {
            let tables = core::mem::take(&mut self.next);
            tables.iter().for_each(|table| self.read_table(*table));
            levels.push(tables);
        }
        levels
    }

    /// Counts an entry of `parent` that points to a table, or a root.
    fn point_to(&mut self, pfn: Pfn, level: Level, parent: Option<Pfn>, paths: &[PathRights]) {
        let table = self.scan.tables.entry(pfn).or_insert_with(|| {
            self.next.push(pfn);
            let reach = Reach { tables: 1 + self.census.deposits_of(pfn), ..Reach::default() };
            let (paths, below, pages) = (Vec::new(), Vec::new(), Vec::new());
            Table { level, shares: 0, parent, paths, below, pmd_leaves: 0, spaces: 0, pages, reach }
        });
        table.shares += 1;
        if table.level != level {
            // A table at two levels: its entries cannot mean both.
            self.malformed(pfn);
            return;
        }
        for path in paths {
            if !table.paths.contains(path) {
                table.paths.push(*path);
            }
        }
        if let Some(parent) = parent {
            self.scan.tables.entry(parent).and_modify(|table| table.below.push(pfn));
        }
    }

    fn malformed(&mut self, table: Pfn) {
        if !self.scan.malformed.contains(&table) {
            self.scan.malformed.push(table);
        }
    }

    fn read_table(&mut self, pfn: Pfn) {
        let Some(table) = self.scan.tables.get(&pfn) else { return };
        let (level, paths) = (table.level, table.paths.clone());
        for (index, raw) in walk::indexed_words(pfn, level, self.read) {
            let mut decoded = paths.iter().map(|path| walk::decode(self.isa, level, raw, *path));
            match walk::decode(self.isa, level, raw, PathRights::ROOT) {
                DecodedEntry::Table { pfn: to, .. } => {
                    let rights = decoded.filter_map(|entry| match entry {
                        DecodedEntry::Table { path, .. } => Some(path),
                        DecodedEntry::NotPresent | DecodedEntry::Leaf { .. } | DecodedEntry::Malformed => None,
                    });
                    let rights: Vec<PathRights> = rights.collect();
                    if let Some(down) = level.down() {
                        self.point_to(to, down, Some(pfn), &rights);
                    }
                }
                DecodedEntry::Leaf { pfn: to, .. } => {
                    let writable = |entry| match entry {
                        DecodedEntry::Leaf { rights, .. } => rights.contains(Rights::WRITE),
                        DecodedEntry::NotPresent | DecodedEntry::Table { .. } | DecodedEntry::Malformed => false,
                    };
                    let writable = decoded.any(writable);
                    self.leaf((pfn, index), level, to, raw, writable);
                }
                DecodedEntry::NotPresent => match walk::frame_field(self.isa, level, raw) {
                    Some(to) if raw & self.census.bits.prot_none_leaf != 0 => {
                        self.leaf((pfn, index), level, to, raw, false)
                    }
                    Some(_) | None => self.swap_entry(pfn, raw),
                },
                DecodedEntry::Malformed => self.malformed(pfn),
            }
        }
    }

    fn swap_entry(&mut self, table: Pfn, raw: u64) {
        let Some(format) = self.census.bits.swap else { return };
        let Some(entry) = format.entry(raw) else { return };
        self.scan.tables.entry(table).and_modify(|table| {
            table.reach.swapped += 1;
            table.pages.push(MappedPage::Slot(entry));
        });
        let slot = self.scan.slots.entry(entry).or_default();
        slot.entries += 1;
        slot.exclusive += u64::from(raw & format.exclusive != 0);
    }

    fn leaf(&mut self, (table, index): (Pfn, usize), level: Level, pfn: Pfn, raw: u64, writable: bool) {
        if level == Level::PMD {
            self.scan.tables.entry(table).and_modify(|table| table.pmd_leaves += 1);
        }
        if raw & self.census.bits.special != 0 {
            return;
        }
        let Some(head) = self.scan.head_of(pfn) else {
            self.scan.unowned.push(pfn);
            return;
        };
        let Some(folio) = self.scan.folios.get_mut(&head) else { return };
        if let Some(kind) = folio.kind {
            let page = if level == Level::PTE { MappedPage::Page(pfn) } else { MappedPage::Block(pfn, level) };
            self.scan.tables.entry(table).and_modify(|table| {
                table.reach.rss[kind as usize] += level.pages();
                table.pages.push(page);
            });
        }
        if level == Level::PTE {
            folio.add_small(index, pfn.raw() - head.raw());
        } else {
            folio.entire += 1;
        }
        let page = if level == Level::PTE {
            self.scan.pages.entry(pfn).or_default()
        } else {
            self.scan.blocks.entry(head).or_default()
        };
        page.mapcount += 1;
        page.writable |= writable;
        if raw & self.census.bits.exclusive != 0 {
            page.exclusive_in.push(table);
        }
    }
}
