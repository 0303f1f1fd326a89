//! What mappings take, by who else has it (`smaps_account`, `struct mem_size_stats`).

use crate::counters::RssKind;
use crate::mm::Mm;
use crate::rmap::rss_kind;
use crate::space::{Space, VmFlags, Vma};
use crate::swap::SwapPte;
use core::ops::AddAssign;
use pagewright_arch::{Entry, Isa, Leaf, LeafFlags, SoftEntry};
use pagewright_sync::Platform;
use pagewright_tlb::frames::FolioFlags;
use pagewright_types::{Level, PAGE_SIZE, Pfn, Rights, VirtAddr};

/// Bytes of pages divided among those who map them, in parts of a byte fine enough that the shares
/// of a page add up to it, short of one part a mapping (`PSS_SHIFT`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pss(u64);

impl Pss {
    const SHIFT: u32 = 12;
    /// Parts of a byte.
    pub const PARTS: u64 = 1 << Self::SHIFT;

    /// Of one base page that `mappings` entries map.
    fn of_page(mappings: u32) -> Self {
        Self((PAGE_SIZE << Self::SHIFT) / u64::from(mappings.max(1)))
    }

    /// In parts.
    pub const fn parts(self) -> u64 {
        self.0
    }

    /// In whole bytes, rounded down.
    pub const fn bytes(self) -> u64 {
        self.0 >> Self::SHIFT
    }
}

impl AddAssign for Pss {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

/// What some mappings take, in bytes.
///
/// The zero page counts nowhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemSizeStats {
    /// Of address space.
    pub size: u64,
    /// Resident.
    pub rss: u64,
    /// Resident, each page divided by the number of entries that map it.
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
    /// Resident, mapped elsewhere too, and clean.
    pub shared_clean: u64,
    /// Resident, mapped elsewhere too, and dirty.
    pub shared_dirty: u64,
    /// Resident, mapped here alone, and clean.
    pub private_clean: u64,
    /// Resident, mapped here alone, and dirty.
    pub private_dirty: u64,
    /// Resident and used since somebody last cleared the accessed bits.
    pub referenced: u64,
    /// Resident and anonymous.
    pub anonymous: u64,
    /// The part of `anonymous` whose contents may go (`MADV_FREE`) and were not written again.
    pub lazy_free: u64,
    /// In swap: entries that say so, and pages of shared memory for which the mapping has no entry.
    pub swap: u64,
    /// The first of those, each page divided by the number of entries that name its slot.
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
    /// What all mappings of `space` take.
    pub fn mem_size_stats(&self, space: &Space<P>) -> MemSizeStats {
        let map = space.map().read();
        let mut total = MemSizeStats::default();
        for (start, vma) in map.iter() {
            total += self.mem_size_stats_of(space, start, vma);
        }
        total
    }

    /// What the mapping that begins at page `start` takes.
    ///
    /// The caller holds the space.
    pub(super) fn mem_size_stats_of(&self, space: &Space<P>, start: u64, vma: &Vma<P>) -> MemSizeStats {
        let range = vma.range(start);
        let mut usage = MemSizeStats { size: range.len(), ..MemSizeStats::default() };
        for (table, part) in space.table().locked_tables(&self.tlb, range) {
            let span = table.level().span();
            let mut va = part.start();
            while va < part.end() {
                let base = va.align_down(span);
                let next = base.add(span).min(part.end());
                match table.entry(va) {
                    Entry::Leaf(leaf) if !leaf.flags.contains(LeafFlags::SPECIAL) => {
                        let first = leaf.pfn.add((va.since(base) / PAGE_SIZE) as u32);
                        for index in 0..(next.since(va) / PAGE_SIZE) as u32 {
                            self.add_page(first.add(index), leaf, &mut usage);
                        }
                    }
                    Entry::Soft(soft) => self.add_swapped(soft, &mut usage),
                    Entry::Leaf(_) | Entry::Empty | Entry::Table(_) => {}
                }
                va = next;
            }
        }
        usage.swap += self.swapped_without_entry(space, start, vma) * PAGE_SIZE;
        if vma.flags().contains(VmFlags::LOCKED) {
            usage.pss_locked = usage.pss;
        }
        usage
    }

    /// Adds a page that is in swap, if that is what an entry says.
    fn add_swapped(&self, soft: SoftEntry, usage: &mut MemSizeStats) {
        if let Some(page) = SwapPte::decode(soft) {
            usage.swap += PAGE_SIZE;
            usage.swap_pss += Pss::of_page(self.swap_count(page.entry));
        }
    }

    /// Pages of the shared memory behind a mapping that are in swap (`shmem_swap_usage`); of a
    /// private mapping that may be written, those that it has no copies of (`smaps_pte_hole`).
    fn swapped_without_entry(&self, space: &Space<P>, start: u64, vma: &Vma<P>) -> u64 {
        let Some(file) = vma.file() else { return 0 };
        let has_copies = !vma.is_shared() && vma.rights().contains(Rights::WRITE);
        let (mut at, end) = (vma.pgoff(), vma.pgoff() + (vma.end() - start));
        let mut pages = 0;
        while let Some(index) = file.next_swapped(at, end, |_| true) {
            at = index + 1;
            let va = VirtAddr::from_page_index(start + (index - vma.pgoff()));
            let found = space.table().find(&self.tlb, va, Level::PTE);
            let is_empty = matches!(P::Isa::decode(found.level, found.pte), Entry::Empty);
            pages += u64::from(!has_copies || is_empty);
        }
        pages
    }

    /// Adds one page that `leaf` maps.
    ///
    /// Its table is locked.
    fn add_page(&self, pfn: Pfn, leaf: Leaf, usage: &mut MemSizeStats) {
        let folio = self.frames().folio(pfn);
        let mappings = self.mappings_of(pfn);
        let share = Pss::of_page(mappings);
        usage.rss += PAGE_SIZE;
        usage.pss += share;
        let dirty = leaf.flags.contains(LeafFlags::DIRTY) || folio.flags().contains(FolioFlags::DIRTY);
        match rss_kind(folio) {
            RssKind::Anon => {
                usage.anonymous += PAGE_SIZE;
                if !dirty && !folio.flags().contains(FolioFlags::SWAPBACKED) {
                    usage.lazy_free += PAGE_SIZE;
                }
                usage.pss_anon += share;
            }
            RssKind::File => usage.pss_file += share,
            RssKind::Shmem => usage.pss_shmem += share,
        }
        if leaf.flags.contains(LeafFlags::ACCESSED) || folio.flags().contains(FolioFlags::REFERENCED) {
            usage.referenced += PAGE_SIZE;
        }
        if dirty {
            usage.pss_dirty += share;
        }
        let count = match (mappings > 1, dirty) {
            (true, true) => &mut usage.shared_dirty,
            (true, false) => &mut usage.shared_clean,
            (false, true) => &mut usage.private_dirty,
            (false, false) => &mut usage.private_clean,
        };
        *count += PAGE_SIZE;
    }
}
