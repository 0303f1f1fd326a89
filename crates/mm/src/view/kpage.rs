//! `/proc/kpagecount` and `/proc/kpageflags`: a word for each frame of the machine.
//!
//! Linux documents both in `Documentation/admin-guide/mm/pagemap.rst` (`stable_page_flags`).
//!
//! Protocol: a folio has a reference while it is looked at, so that it stays one folio.
//!
//! Not guaranteed: flags of one moment. Of a free block, only the first frame is shown as free.

use crate::mm::Mm;
use pagewright_sync::Platform;
use pagewright_tlb::frames::{Folio, FolioFlags, FrameState};
use pagewright_types::Pfn;

bitflags::bitflags! {
    /// The flags of a frame, with Linux's bits (`KPF_*`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct KpageFlags: u64 {
        /// The folio is locked.
        const LOCKED = 1;
        /// The folio was used since the last scan of reclaim.
        const REFERENCED = 1 << 2;
        /// The contents are valid.
        const UPTODATE = 1 << 3;
        /// The contents are newer than those of the backing store.
        const DIRTY = 1 << 4;
        /// The folio is on an LRU list.
        const LRU = 1 << 5;
        /// The folio is on the active list.
        const ACTIVE = 1 << 6;
        /// The folio is being written.
        const WRITEBACK = 1 << 8;
        /// The first frame of a free block.
        const BUDDY = 1 << 10;
        /// Something maps the folio or a page of it.
        const MMAP = 1 << 11;
        /// Anonymous memory.
        const ANON = 1 << 12;
        /// The folio is in the swap cache.
        const SWAPCACHE = 1 << 13;
        /// The folio is backed by swap, or by nothing.
        const SWAPBACKED = 1 << 14;
        /// The first page of a large folio.
        const COMPOUND_HEAD = 1 << 15;
        /// Another page of a large folio.
        const COMPOUND_TAIL = 1 << 16;
        /// Locked memory maps the folio.
        const UNEVICTABLE = 1 << 18;
        /// There is no memory at this number.
        const NOPAGE = 1 << 20;
        /// A page of a large folio of any size.
        const THP = 1 << 22;
        /// The page of zeroes, or a page of the huge one.
        const ZERO_PAGE = 1 << 24;
        /// Marked as idle, and not seen in use since.
        const IDLE = 1 << 25;
        /// A page table.
        const PGTABLE = 1 << 26;
        /// The folio is never freed or moved.
        const RESERVED = 1 << 32;
        /// Locked memory maps the folio.
        const MLOCKED = 1 << 33;
    }
}

/// The flags of a folio, and those that stand for them.
const OF_FOLIO: [(FolioFlags, KpageFlags); 11] = [
    (FolioFlags::LOCKED, KpageFlags::LOCKED),
    (FolioFlags::REFERENCED, KpageFlags::REFERENCED),
    (FolioFlags::UPTODATE, KpageFlags::UPTODATE),
    (FolioFlags::DIRTY, KpageFlags::DIRTY),
    (FolioFlags::LRU, KpageFlags::LRU),
    (FolioFlags::ACTIVE, KpageFlags::ACTIVE),
    (FolioFlags::WRITEBACK, KpageFlags::WRITEBACK),
    (FolioFlags::SWAPBACKED, KpageFlags::SWAPBACKED),
    (FolioFlags::RESERVED, KpageFlags::RESERVED),
    (FolioFlags::IDLE, KpageFlags::IDLE),
    (FolioFlags::UNEVICTABLE, KpageFlags::UNEVICTABLE.union(KpageFlags::MLOCKED)),
];

impl<P: Platform> Mm<P> {
    /// The number behind the last frame of memory (`max_pfn`).
    pub fn max_pfn(&self) -> Pfn {
        self.frames().max_pfn()
    }

    /// The number of entries that map the page in a frame, by itself or with its whole folio.
    ///
    /// 0 for a frame without a page of memory.
    pub fn kpagecount(&self, pfn: Pfn) -> u64 {
        self.of_page(pfn, |folio| u64::from(folio.entries_of_page(folio.page_of(pfn)))).unwrap_or(0)
    }

    /// What a frame holds.
    pub fn kpageflags(&self, pfn: Pfn) -> KpageFlags {
        if self.frames().node_of(pfn).is_none() {
            return KpageFlags::NOPAGE;
        }
        if let Some(flags) = self.of_page(pfn, |folio| self.flags_of_page(folio, pfn)) {
            return flags;
        }
        match self.frames().state(pfn) {
            FrameState::Free | FrameState::Pcp => KpageFlags::BUDDY,
            FrameState::Table => KpageFlags::PGTABLE,
            FrameState::Interior | FrameState::Allocated | FrameState::Folio | FrameState::Tail => KpageFlags::empty(),
        }
    }

    /// Calls `look` with the folio of a frame, if it has one, and holds a reference meanwhile.
    pub(crate) fn of_page<T>(&self, pfn: Pfn, look: impl FnOnce(Folio<'_>) -> T) -> Option<T> {
        let reference = self.frames().try_get_folio(pfn)?;
        let folio = self.frames().folio_of(&reference);
        // It may be another one than the frame was in when it was looked up.
        let found = folio.contains(pfn).then(|| look(folio));
        self.put_folio(reference);
        found
    }

    fn flags_of_page(&self, folio: Folio<'_>, pfn: Pfn) -> KpageFlags {
        let of_folio = folio.flags();
        let mut flags = KpageFlags::empty();
        for (of, stands_for) in OF_FOLIO {
            flags.set(stands_for, of_folio.contains(of));
        }
        flags.set(KpageFlags::SWAPCACHE, of_folio.contains(FolioFlags::SWAPBACKED | FolioFlags::SWAPCACHE));
        flags.set(KpageFlags::MMAP, folio.is_mapped());
        flags.set(KpageFlags::ANON, folio.is_anon());
        flags.set(KpageFlags::COMPOUND_HEAD, folio.is_large() && folio.pfn() == pfn);
        flags.set(KpageFlags::COMPOUND_TAIL, folio.pfn() != pfn);
        flags.set(KpageFlags::THP, folio.is_large());
        let is_zero = folio.pfn() == self.zero_page || self.huge_zero.pfn() == Some(folio.pfn());
        flags.set(KpageFlags::ZERO_PAGE, is_zero);
        flags
    }
}
