//! The resident memory of mappings, private and shared (`smaps_account`, `struct mem_size_stats`).

use crate::counters::RssKind;
use crate::mm::Mm;
use crate::space::{Space, VmFlags, Vma};
use crate::swap::SwapPte;
use core::ops::AddAssign;
use pagewright_arch::{LeafFlags, SoftEntry};
use pagewright_sync::Platform;
use pagewright_table::{EntryView, LeafView, Tables};
use pagewright_tlb::frames::FolioFlags;
use pagewright_types::{PAGE_SIZE, Pfn, Rights, VirtAddr};

/// A proportional set size: each page counts divided by the number of entries that map it.
///
/// It is stored in fractions of a byte, as in Linux (`PSS_SHIFT`). The shares of a page add up to
/// the page, except for a rounding error of less than one fraction for each mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pss(u64);

impl Pss {
    const SHIFT: u32 = 12;
    /// Number of fractions in a byte.
    pub const PARTS: u64 = 1 << Self::SHIFT;

    /// Returns the share of one base page that `mappings` entries map.
    ///
    /// An entry in a shared table counts as many as there are pointers to its tables.
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
    /// Clean resident bytes that other entries map too.
    pub shared_clean: u64,
    /// Dirty resident bytes that other entries map too.
    pub shared_dirty: u64,
    /// Clean resident bytes that no other entry maps.
    pub private_clean: u64,
    /// Dirty resident bytes that no other entry maps.
    pub private_dirty: u64,
    /// Resident bytes that were accessed since the accessed bits were cleared.
    pub referenced: u64,
    /// Resident anonymous bytes.
    pub anonymous: u64,
    /// The part of `anonymous` that was not written since `MADV_FREE`.
    pub lazy_free: u64,
    /// Bytes in swap: swap entries, and pages of shared memory without an entry in the mapping.
    pub swap: u64,
    /// Proportional size of the swap entries: each counts divided by the entries of its slot.
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
        self.lazy_free += other.lazy_free;
        self.swap += other.swap;
        self.swap_pss += other.swap_pss;
    }
}

impl<P: Platform> Mm<P> {
    /// Returns the memory of all mappings of `space`.
    pub fn mem_size_stats(&self, space: &Space<P>) -> MemSizeStats {
        let map = space.map().read();
        let mut total = MemSizeStats::default();
        for (start, vma) in map.iter() {
            total += self.mem_size_stats_of(map.tables(&self.tlb), start, vma);
        }
        total
    }

    /// Returns the memory of the mapping that begins at page `start`.
    pub(super) fn mem_size_stats_of(&self, tables: Tables<'_, P>, start: u64, vma: &Vma<P>) -> MemSizeStats {
        let range = vma.range(start);
        let mut stats = MemSizeStats { size: range.len(), ..MemSizeStats::default() };
        for (table, part) in tables.read_locked(range) {
            let span = table.level().span();
            let mut va = part.start();
            while va < part.end() {
                let base = va.align_down(span);
                let next = base.add(span).min(part.end());
                match table.entry(va) {
                    EntryView::Leaf(leaf) if !leaf.is_special() => {
                        let first = leaf.page_at(va);
                        for index in 0..(next.since(va) / PAGE_SIZE) as u32 {
                            self.add_page(first.add(index), leaf, table.sharers(), &mut stats);
                        }
                    }
                    EntryView::Soft(soft) => self.add_swapped(soft, table.sharers(), &mut stats),
                    EntryView::Leaf(_) | EntryView::Empty | EntryView::Table => {}
                }
                va = next;
            }
        }
        stats.swap += self.swapped_without_entry(tables, start, vma) * PAGE_SIZE;
        if vma.flags().contains(VmFlags::LOCKED) {
            stats.pss_locked = stats.pss;
        }
        stats
    }

    /// Adds the page of a soft entry if it is a swap entry.
    fn add_swapped(&self, soft: SoftEntry, sharers: u64, stats: &mut MemSizeStats) {
        if let Some(page) = SwapPte::decode(soft) {
            stats.swap += PAGE_SIZE;
            stats.swap_pss += Pss::of_page(u64::from(self.swap_count(page.entry)) * sharers);
        }
    }

    /// Returns the number of pages of a mapping's shared memory that are in swap.
    ///
    /// For a private writable mapping, it counts only pages without an entry, which have no private
    /// copy.
    ///
    /// Linux: `shmem_swap_usage`, `smaps_pte_hole`.
    fn swapped_without_entry(&self, tables: Tables<'_, P>, start: u64, vma: &Vma<P>) -> u64 {
        let Some(file) = vma.file() else { return 0 };
        let has_copies = !vma.is_shared() && vma.rights().contains(Rights::WRITE);
        let (mut at, end) = (vma.pgoff(), vma.pgoff() + (vma.end() - start));
        let mut pages = 0;
        while let Some(index) = file.next_swapped(at, end, |_| true) {
            at = index + 1;
            let va = VirtAddr::from_page_index(start + (index - vma.pgoff()));
            pages += u64::from(!has_copies || tables.peek(va) == EntryView::Empty);
        }
        pages
    }

    /// Adds one page that `leaf` maps; the caller holds the lock of its table.
    fn add_page(&self, pfn: Pfn, leaf: LeafView, sharers: u64, stats: &mut MemSizeStats) {
        let folio = self.frames().folio(pfn);
        let mappings = u64::from(self.mappings_of(pfn)) * sharers;
        let share = Pss::of_page(mappings);
        stats.rss += PAGE_SIZE;
        stats.pss += share;
        let dirty = leaf.has(LeafFlags::DIRTY) || folio.flags().contains(FolioFlags::DIRTY);
        match folio.rss_kind() {
            RssKind::Anon => {
                stats.anonymous += PAGE_SIZE;
                if !dirty && !folio.flags().contains(FolioFlags::SWAPBACKED) {
                    stats.lazy_free += PAGE_SIZE;
                }
                stats.pss_anon += share;
            }
            RssKind::File => stats.pss_file += share,
            RssKind::Shmem => stats.pss_shmem += share,
        }
        if leaf.has(LeafFlags::ACCESSED) || folio.flags().contains(FolioFlags::REFERENCED) {
            stats.referenced += PAGE_SIZE;
        }
        if dirty {
            stats.pss_dirty += share;
        }
        let count = match (mappings > 1, dirty) {
            (true, true) => &mut stats.shared_dirty,
            (true, false) => &mut stats.shared_clean,
            (false, true) => &mut stats.private_dirty,
            (false, false) => &mut stats.private_clean,
        };
        *count += PAGE_SIZE;
    }
}
