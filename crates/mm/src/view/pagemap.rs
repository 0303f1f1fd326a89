//! `/proc/PID/pagemap`: a word for each page of a space.
//!
//! Linux documents the layout in `Documentation/admin-guide/mm/pagemap.rst`.

use crate::mm::Mm;
use crate::space::{Space, VmFlags};
use crate::swap::SwapPte;
use core::fmt;
use pagewright_arch::{LeafFlags, SoftEntry, SoftKind};
use pagewright_sync::Platform;
use pagewright_table::{EntryView, Tables};
use pagewright_types::{Level, PageRange, Pfn, SwapEntry, VirtAddr};

bitflags::bitflags! {
    /// The flags of a page, with Linux's bits.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct PagemapFlags: u64 {
        /// The page was written, or mapped, since soft-dirty bits were cleared.
        const SOFT_DIRTY = 1 << 55;
        /// No other entry maps the page.
        const EXCLUSIVE = 1 << 56;
        /// The page has a guard (`MADV_GUARD_INSTALL`).
        const GUARD = 1 << 58;
        /// The page belongs to a file or to shared memory.
        const FILE = 1 << 61;
        /// The page is in swap, or the entry is a marker, which Linux encodes as a swap entry.
        const SWAP = 1 << 62;
        /// The page is in memory.
        const PRESENT = 1 << 63;
    }
}

/// The word of one page.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct PagemapEntry(u64);

impl PagemapEntry {
    const FRAME: u64 = (1 << 55) - 1;
    /// First bit of the slot of a page in swap; the device is below (`MAX_SWAPFILES_SHIFT`).
    const SLOT_SHIFT: u32 = 5;

    fn in_swap(entry: SwapEntry, state: PagemapFlags) -> Self {
        Self(state.bits() | u64::from(entry.device()) | u64::from(entry.slot()) << Self::SLOT_SHIFT)
    }

    fn new(frame: Option<Pfn>, state: PagemapFlags) -> Self {
        Self(state.bits() | frame.map_or(0, |pfn| u64::from(pfn.raw())))
    }

    /// Returns the word as the file has it.
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// Returns the flags of the page.
    pub fn flags(self) -> PagemapFlags {
        PagemapFlags::from_bits_truncate(self.0)
    }

    /// Returns the frame of the page, if it is in memory.
    pub fn pfn(self) -> Option<Pfn> {
        self.flags().contains(PagemapFlags::PRESENT).then(|| Pfn::new((self.0 & Self::FRAME) as u32))
    }

    /// Returns the swap entry of the page, if it is in swap.
    pub fn swap_entry(self) -> Option<SwapEntry> {
        let (device, slot) = (self.0 & ((1 << Self::SLOT_SHIFT) - 1), (self.0 & Self::FRAME) >> Self::SLOT_SHIFT);
        let is_page = self.flags().contains(PagemapFlags::SWAP) && !self.flags().contains(PagemapFlags::GUARD);
        is_page.then(|| SwapEntry::new(device as u8, slot as u32))
    }
}

impl fmt::Debug for PagemapEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.swap_entry() {
            Some(entry) => write!(f, "PagemapEntry({entry}, {:?})", self.flags()),
            None => write!(f, "PagemapEntry({:?}, {:?})", self.pfn(), self.flags()),
        }
    }
}

impl<P: Platform> Mm<P> {
    /// Calls `visit` with the word of each page of `range` whose word is not 0, in order.
    ///
    /// The word is 0 if the page is not mapped, or was never accessed and soft-dirty bits have been
    /// cleared since the mapping was created.
    pub fn pagemap(&self, space: &Space<P>, range: PageRange, mut visit: impl FnMut(VirtAddr, PagemapEntry)) {
        let map = space.map().read();
        for (_, vma, part) in map.parts(range) {
            let mut all = PagemapFlags::empty();
            all.set(PagemapFlags::SOFT_DIRTY, vma.flags().contains(VmFlags::SOFTDIRTY));
            for va in part.iter() {
                let word = self.page_word(map.tables(&self.tlb), va, all);
                if word != PagemapEntry::default() {
                    visit(va, word);
                }
            }
        }
    }

    /// Returns the word of one page; `all` are the flags of every page of its mapping.
    fn page_word(&self, tables: Tables<'_, P>, va: VirtAddr, all: PagemapFlags) -> PagemapEntry {
        let Some(locked) = tables.read_lock(va) else { return PagemapEntry::new(None, all) };
        let entry = locked.entry(va);
        let leaf = match (entry.page(locked.level()), entry) {
            (Some(leaf), _) => leaf,
            (None, EntryView::Soft(soft)) => return soft_word(soft, all),
            (None, EntryView::Empty | EntryView::Table | EntryView::Leaf(_)) => return PagemapEntry::new(None, all),
        };
        let pfn = leaf.page_at(va);
        let mut state = all | PagemapFlags::PRESENT;
        if leaf.has(LeafFlags::SOFT_DIRTY) {
            state |= PagemapFlags::SOFT_DIRTY;
        }
        if !leaf.is_special() {
            state.set(PagemapFlags::FILE, !self.frames().folio(pfn).is_anon());
            state.set(PagemapFlags::EXCLUSIVE, self.mappings_of(pfn) == 1 && locked.sharers() == 1);
        } else if leaf.level() > Level::PTE {
            // `pagemap_pmd_range` takes the huge page of zeroes for one of a file.
            state |= PagemapFlags::FILE;
        }
        PagemapEntry::new(Some(pfn), state)
    }
}

/// Returns the word of a page with a soft entry.
fn soft_word(soft: SoftEntry, all: PagemapFlags) -> PagemapEntry {
    if let Some(page) = SwapPte::decode(soft) {
        let mut state = all | PagemapFlags::SWAP;
        state.set(PagemapFlags::SOFT_DIRTY, all.contains(PagemapFlags::SOFT_DIRTY) || page.soft_dirty);
        return PagemapEntry::in_swap(page.entry, state);
    }
    let state = match soft.kind {
        SoftKind::Marker => PagemapFlags::GUARD | PagemapFlags::SWAP,
        SoftKind::Swap => PagemapFlags::SWAP,
        SoftKind::Migration | SoftKind::InTransition => PagemapFlags::empty(),
    };
    PagemapEntry::new(None, all | state)
}
