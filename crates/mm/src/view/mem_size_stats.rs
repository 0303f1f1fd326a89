//! The resident memory of mappings, private and shared (`smaps_account`, `struct mem_size_stats`).
//!
//! A page's share, and whether it is private, depend on how many spaces reach its entries; module
//! `mappings` counts them. The lock of the space is released meanwhile, so the figures are of the
//! range that the mapping had first.
//!
//! Not guaranteed: figures of one moment, or of one mapping if others take its place meanwhile.

use super::mappings::{MappedPage, UncountedMappings};
use crate::counters::RssKind;
use crate::mm::Mm;
use crate::space::{Space, VmFlags, Vma};
use core::ops::AddAssign;
use pagewright_arch::LeafFlags;
use pagewright_sync::Platform;
use pagewright_table::{EntryView, LeafView, Tables};
use pagewright_tlb::frames::{FolioFlags, FolioOwner};
use pagewright_types::{Level, PAGE_SIZE, PageRange, Pfn, Rights, VirtAddr};

/// A proportional set size: each page counts divided by the number of its mappings.
///
/// It is stored in fractions of a byte, as in Linux (`PSS_SHIFT`). The shares of a page add up to
/// the page, except for a rounding error of less than one fraction for each mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pss(u64);

impl Pss {
    const SHIFT: u32 = 12;
    /// Number of fractions in a byte.
    pub const PARTS: u64 = 1 << Self::SHIFT;

    /// Returns the share of one base page with `mappings` mappings.
    ///
    /// An entry in a shared table is a mapping of each space that reaches it.
    fn of_page(mappings: u64) -> Self {
        Self((PAGE_SIZE << Self::SHIFT) / mappings.max(1))
    }

    /// Returns the size in fractions of a byte.
    pub const fn parts(self) -> u64 {
        self.0
    }

    /// Returns the size in bytes, rounded down.
    pub const fn bytes(self) -> u64 {
        self.0 >> Self::SHIFT
    }
}

impl AddAssign for Pss {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

/// The memory of mappings, in bytes; the zero page does not count (`struct mem_size_stats`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemSizeStats {
    /// Bytes of address space.
    pub size: u64,
    /// Resident bytes.
    pub rss: u64,
    /// Proportional resident size.
    pub pss: Pss,
    /// The part of `pss` that is anonymous.
    pub pss_anon: Pss,
    /// The part of `pss` that belongs to files.
    pub pss_file: Pss,
    /// The part of `pss` that is shared memory.
    pub pss_shmem: Pss,
    /// The part of `pss` that is dirty.
    pub pss_dirty: Pss,
    /// The part of `pss` that is locked.
    pub pss_locked: Pss,
    /// Clean resident bytes that have other mappings too.
    pub shared_clean: u64,
    /// Dirty resident bytes that have other mappings too.
    pub shared_dirty: u64,
    /// Clean resident bytes without another mapping.
    pub private_clean: u64,
    /// Dirty resident bytes without another mapping.
    pub private_dirty: u64,
    /// Resident bytes that were accessed since the accessed bits were cleared.
    pub referenced: u64,
    /// Resident anonymous bytes.
    pub anonymous: u64,
    /// The part of `anonymous` that leaves of the PMD level map.
    pub anonymous_thp: u64,
    /// The part of `anonymous` that was not written since `MADV_FREE`.
    pub lazy_free: u64,
    /// Bytes in swap: swap entries, and pages of shared memory without an entry in the mapping.
    pub swap: u64,
    /// Proportional size of the swap entries: each counts divided by the mappings of its slot.
    pub swap_pss: Pss,
}

impl AddAssign for MemSizeStats {
    fn add_assign(&mut self, other: Self) {
        self.size += other.size;
        self.rss += other.rss;
        self.pss += other.pss;
        self.pss_anon += other.pss_anon;
        self.pss_file += other.pss_file;
        self.pss_shmem += other.pss_shmem;
        self.pss_dirty += other.pss_dirty;
        self.pss_locked += other.pss_locked;
        self.shared_clean += other.shared_clean;
        self.shared_dirty += other.shared_dirty;
        self.private_clean += other.private_clean;
        self.private_dirty += other.private_dirty;
        self.referenced += other.referenced;
        self.anonymous += other.anonymous;
        self.anonymous_thp += other.anonymous_thp;
        self.lazy_free += other.lazy_free;
        self.swap += other.swap;
        self.swap_pss += other.swap_pss;
    }
}

/// What a page's share adds to, beside the sum of all.
#[derive(Clone, Copy)]
struct ShareOf {
    /// Kind and whether the page is dirty; `None` if it is in swap.
    resident: Option<(RssKind, bool)>,
    /// Whether the mapping is locked.
    locked: bool,
}

impl MemSizeStats {
    /// Adds the share of a page with `mappings` mappings.
    fn add_share(&mut self, of: ShareOf, mappings: u64) {
        let share = Pss::of_page(mappings);
        let Some((kind, dirty)) = of.resident else {
            self.swap_pss += share;
            return;
        };
        self.pss += share;
        match kind {
            RssKind::Anon => self.pss_anon += share,
            RssKind::File => self.pss_file += share,
            RssKind::Shmem => self.pss_shmem += share,
        }
        if dirty {
            self.pss_dirty += share;
        }
        if of.locked {
            self.pss_locked += share;
        }
        let count = match (mappings > 1, dirty) {
            (true, true) => &mut self.shared_dirty,
            (true, false) => &mut self.shared_clean,
            (false, true) => &mut self.private_dirty,
            (false, false) => &mut self.private_clean,
        };
        *count += PAGE_SIZE;
    }
}

impl<P: Platform> Mm<P> {
    /// Returns the memory of all mappings of `space`.
    ///
    /// The caller holds no lock.
    pub fn mem_size_stats(&self, space: &Space<P>) -> MemSizeStats {
        let (mut total, mut at) = (MemSizeStats::default(), VirtAddr::ZERO);
        while let Some(range) = first_mapping(space, at) {
            // The part before `at` has counted if mappings were merged meanwhile.
            total += self.mem_size_stats_of(space, PageRange::new(range.start().max(at), range.end()));
            at = range.end();
        }
        total
    }

    /// Returns the memory of what is mapped in `range`, which is that of a mapping.
    ///
    /// The caller holds no lock.
    pub(super) fn mem_size_stats_of(&self, space: &Space<P>, range: PageRange) -> MemSizeStats {
        let mut stats = MemSizeStats { size: range.len(), ..MemSizeStats::default() };
        stats.swap += self.swapped_without_entry(space, range) * PAGE_SIZE;
        // A page from swap may be found in the whole tree: its owner is the space or one above it.
        let tree = FolioOwner::Anon(self.fork_tree.root_of(space.fork_node()));
        let (mut at, mut uncounted) = (range.start(), UncountedMappings::new());
        while at < range.end() {
            at = self.add_pages(space, tree, PageRange::new(at, range.end()), &mut stats, &mut uncounted);
            self.count_paths(&mut uncounted, |_, mappings, of| stats.add_share(of, mappings));
        }
        stats
    }

    /// Adds pages of `range` to `stats`, and those with other mappings to `uncounted`, too.
    ///
    /// Returns the address at which to continue, after those in `uncounted` are counted.
    fn add_pages(
        &self,
        space: &Space<P>,
        tree: FolioOwner,
        range: PageRange,
        stats: &mut MemSizeStats,
        uncounted: &mut UncountedMappings<ShareOf>,
    ) -> VirtAddr {
        let map = space.map().read();
        for (start, vma, part) in map.parts(range) {
            let locked = vma.flags().contains(VmFlags::LOCKED);
            for (table, part) in map.tables(&self.tlb).read_locked(part) {
                for va in part.iter() {
                    let entry = table.entry(va);
                    let Some(mapped) = MappedPage::of((entry, table.level()), va) else { continue };
                    if uncounted.is_full() {
                        return va;
                    }
                    let resident = match (mapped, entry.page(table.level())) {
                        (MappedPage::InMemory(pfn), Some(leaf)) => Some(self.add_resident(pfn, leaf, stats)),
                        (MappedPage::InMemory(_) | MappedPage::InSwap(_), _) => {
                            stats.swap += PAGE_SIZE;
                            None
                        }
                    };
                    let of = ShareOf { resident, locked };
                    let swapped_from = (tree, vma.linear_index() + (va.page_index() - start));
                    if self.has_one_path((va, mapped), table.sharers(), swapped_from, uncounted, of) {
                        stats.add_share(of, 1);
                    }
                }
                if !uncounted.is_empty() {
                    return part.end();
                }
            }
        }
        range.end()
    }

    /// Returns the number of pages of the shared memory of mappings in `range` that are in swap.
    ///
    /// For a private writable mapping, it counts only pages without an entry, which have no private
    /// copy.
    ///
    /// Linux: `shmem_swap_usage`, `smaps_pte_hole`.
    fn swapped_without_entry(&self, space: &Space<P>, range: PageRange) -> u64 {
        let map = space.map().read();
        map.parts(range).map(|(start, vma, part)| swapped_of_mapping(map.tables(&self.tlb), (start, vma), part)).sum()
    }

    /// Adds one page that `leaf` maps to the figures that do not depend on other mappings.
    ///
    /// Returns its kind and whether it is dirty. The caller holds the lock of its table.
    fn add_resident(&self, pfn: Pfn, leaf: LeafView, stats: &mut MemSizeStats) -> (RssKind, bool) {
        let folio = self.frames().folio(pfn);
        stats.rss += PAGE_SIZE;
        let dirty = leaf.has(LeafFlags::DIRTY) || folio.flags().contains(FolioFlags::DIRTY);
        if folio.rss_kind() == RssKind::Anon {
            stats.anonymous += PAGE_SIZE;
            if leaf.level() == Level::PMD {
                stats.anonymous_thp += PAGE_SIZE;
            }
            if !dirty && !folio.flags().contains(FolioFlags::SWAPBACKED) {
                stats.lazy_free += PAGE_SIZE;
            }
        }
        if leaf.has(LeafFlags::ACCESSED) || folio.flags().intersects(FolioFlags::REFERENCED | FolioFlags::YOUNG) {
            stats.referenced += PAGE_SIZE;
        }
        (folio.rss_kind(), dirty)
    }
}

/// The range of the first mapping of `space` that ends after `from`.
pub(super) fn first_mapping<P: Platform>(space: &Space<P>, from: VirtAddr) -> Option<PageRange> {
    space.map().read().iter_from(from).next().map(|(start, vma)| vma.range(start))
}

/// As [`Mm::swapped_without_entry`], for `part` of one mapping.
fn swapped_of_mapping<P: Platform>(tables: Tables<'_, P>, (start, vma): (u64, &Vma<P>), part: PageRange) -> u64 {
    let Some(file) = vma.file() else { return 0 };
    let has_copies = !vma.is_shared() && vma.rights().contains(Rights::WRITE);
    let index_of = |va: VirtAddr| vma.pgoff() + (va.page_index() - start);
    let (mut at, end) = (index_of(part.start()), index_of(part.end()));
    let mut pages = 0;
    while let Some(index) = file.next_swapped(at, end, |_| true) {
        at = index + 1;
        let va = VirtAddr::from_page_index(start + (index - vma.pgoff()));
        pages += u64::from(!has_copies || tables.peek(va) == EntryView::Empty);
    }
    pages
}
