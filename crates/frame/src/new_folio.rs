//! Folios that begin their life mapped, as those of anonymous memory do.
//!
//! Key type: [`NewFolio`], the block of such a folio and what its record will say.
//!
//! A CPU finds a record through a list, an entry, or a frame number that it read earlier. The third
//! way needs a reference, which cannot be taken from zero (INV-FRAME-SPEC). So
//! [`Frames::new_mapped_folio`] fills the record by plain stores while the folio has no reference,
//! and the store of the counts makes it usable:
//!
//! ```text
//!   owner, index, flags with LRU          plain stores
//!   link the folio into its LRU list      under the list's lock; a scan skips what has no reference
//!   one reference, one mapping            one store, Release: from here on a reference can be taken
//!   the entry                             Release, by the caller: from here on a walk finds the page
//! ```
//!
//! `LRU` is set before the folio is linked. No CPU takes the folio off its list in between, because
//! that needs a reference.
//!
//! Not guaranteed: anything about the contents; the caller has filled the frames.

use crate::block::Block;
use crate::folio::{FOLIO_COUNTS, Folio, FolioOwner, clear_counts};
use crate::folio_flags::FolioFlags;
use crate::folio_ref::FolioRef;
use crate::frames::Frames;
use crate::record::FrameState;
use core::sync::atomic::Ordering;
use pagewright_sync::{Backend, LineRef, LineUse, Platform};
use pagewright_types::{Order, Pfn};

/// A block that is about to become a mapped folio, and what its record will say.
#[derive(Debug)]
pub struct NewFolio {
    /// The frames, with their contents.
    pub block: Block,
    /// The owner of the contents.
    pub owner: FolioOwner,
    /// The page index of the first page in its owner.
    pub index: u64,
    /// The flags, without `LRU`.
    pub flags: FolioFlags,
}

impl NewFolio {
    /// The first frame.
    #[inline]
    pub fn pfn(&self) -> Pfn {
        self.block.pfn()
    }
}

/// What maps a folio from the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FirstMapping {
    /// One entry, the whole folio.
    Whole,
    /// An entry for each page.
    EachPage,
}

impl<P: Platform> Frames<P> {
    /// Makes a folio that one entry maps whole, and puts it at the front of its LRU list.
    ///
    /// Linux's `folio_add_new_anon_rmap` and `folio_add_lru_vma`. The reference returned is that of
    /// the entry, and its mapping is counted. Takes the `LruRank` lock.
    ///
    /// # Panics
    /// In debug builds when the frames are not an allocated block, or are still mapped.
    #[inline]
    pub fn new_mapped_folio(&self, new: NewFolio) -> FolioRef {
        self.new_mapped(new, FirstMapping::Whole)
    }

    /// As [`new_mapped_folio`](Self::new_mapped_folio), a folio whose pages have an entry each.
    ///
    /// The folio has as many references and mappings as pages; that of the first page is returned,
    /// and the others exist only in their entries. A page of its own is mapped whole.
    ///
    /// # Panics
    /// As `new_mapped_folio`.
    pub fn new_folio_mapped_by_page(&self, new: NewFolio) -> FolioRef {
        self.new_mapped(new, FirstMapping::EachPage)
    }

    #[inline(always)]
    fn new_mapped(&self, new: NewFolio, mapping: FirstMapping) -> FolioRef {
        let NewFolio { block, owner, index, flags } = new;
        let head = block.into_raw();
        let record = self.memmap.allocated(head);
        let kind = record.kind();
        let order = kind.order();
        record.index.store(index, Ordering::Relaxed);
        record.owner_or_space.store(owner.pack(), Ordering::Relaxed);
        record.flags.store((flags | FolioFlags::LRU).bits(), Ordering::Relaxed);
        clear_counts(record);
        P::Locks::line(LineRef::Record(head), FOLIO_COUNTS, LineUse::Store);
        let folio = Folio::of_record(&self.memmap, record, head);
        // INV-FRAME-SPEC: a reference can be taken once the counts are set.
        if order == Order::ZERO {
            record.set_kind(kind.to(FrameState::Folio));
            self.lru_add_new(folio, kind.zone(), flags);
            record.counts.set(1, 1);
        } else {
            self.memmap.name_tails(head, order, kind);
            let entries = match mapping {
                FirstMapping::Whole => {
                    folio.mapped().set(0, 1);
                    1
                }
                FirstMapping::EachPage => {
                    record.first_page_or_mlocks.store(1, Ordering::Relaxed);
                    folio.mapped().set(order.frames(), 0);
                    (1..order.frames()).for_each(|index| self.memmap.at(head.add(index)).counts.set(0, 1));
                    order.frames()
                }
            };
            record.set_kind(kind.to(FrameState::Folio));
            self.lru_add_new_large(folio, flags);
            record.counts.set(entries, entries);
        }
        FolioRef::new(head)
    }
}
