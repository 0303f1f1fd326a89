//! Dirty pages back to their file (`write_cache_pages`, `folio_clear_dirty_for_io`).
//!
//! INV-FILE-CLEAN: no store is lost between the file and its page. The page's mark goes first, then the right to store from every shared
//! mapping, flushed, and only then are the bytes read. A store that comes later faults and marks the page again; one that came before is
//! among the bytes.
//!
//! Not guaranteed: an order among pages, and anything about shared memory, which has no file.

use super::object::{FileObject, FileOps, Kind};
use crate::error::MmError;
use crate::mm::Mm;
use pagewright_arch::{Leaf, LeafFlags};
use pagewright_sync::Platform;
use pagewright_tlb::Gather;
use pagewright_tlb::frames::{FolioFlags, FolioRef, Owner};
use pagewright_types::{Level, PAGE_SIZE, PageRange, Pfn, Rights, SpaceId, VirtAddr, plant};

impl<P: Platform> Mm<P> {
    /// Writes back the dirty pages among the bytes from `from` up to `to` of a file, and waits for them (`fsync` of a range).
    ///
    /// # Errors
    /// [`MmError::Device`] for the first page that failed; the others have been written.
    pub fn write_back(&self, file: &FileObject<P>, from: u64, to: u64) -> Result<(), MmError> {
        self.call(|| self.write_pages_back(file, from / PAGE_SIZE, to.div_ceil(PAGE_SIZE)))
    }

    /// The same for the pages from `first` up to `end`, within a call.
    pub(crate) fn write_pages_back(&self, file: &FileObject<P>, first: u64, end: u64) -> Result<(), MmError> {
        let Kind::File(ops) = file.kind() else { return Ok(()) };
        let (mut at, mut outcome) = (first, Ok(()));
        while let Some((index, folio)) = file.next_cached(self, at, end) {
            outcome = outcome.and(self.write_page_back(file, ops.as_ref(), index, &folio));
            self.put_folio(folio);
            at = index + 1;
        }
        outcome
    }

    fn write_page_back(
        &self,
        file: &FileObject<P>,
        ops: &dyn FileOps,
        index: u64,
        folio: &FolioRef,
    ) -> Result<(), MmError> {
        let view = self.frames().folio_of(folio);
        // Somebody else may be writing it: wait until he has, for his sake and for what he has not seen.
        let _lock = loop {
            match view.try_lock() {
                Some(lock) => break lock,
                None => self.fx().relax(),
            }
        };
        if !view.clear_flags(FolioFlags::DIRTY).contains(FolioFlags::DIRTY) {
            return Ok(());
        }
        plant!(WriteBackNoProtect; (), self.take_stores(file, index, folio.pfn()));
        let base = folio.pfn().base();
        let mut get = |offset: u64, bytes: &mut [u8]| {
            debug_assert!(offset + bytes.len() as u64 <= PAGE_SIZE, "more bytes than a page has");
            self.fx().read(base.add(offset), bytes);
        };
        ops.write_page(index, &mut get).map_err(|errno| {
            view.set_flags(FolioFlags::DIRTY);
            MmError::Device { index, errno }
        })
    }

    /// Takes the right to store to a page from all shared mappings (`folio_mkclean`).
    fn take_stores(&self, file: &FileObject<P>, index: u64, pfn: Pfn) {
        let mut at: Option<SpaceId> = None;
        while let Some(space) = self.candidate_after(Owner::File(file.id()), at) {
            let map = space.map().read();
            // An entry that somebody else has just cleared may still be stored through.
            let mut gather = Gather::among_others(&self.tlb, space.table().context());
            let shared = |va: &VirtAddr| map.find(*va).is_some_and(|(_, vma)| vma.is_shared());
            for va in map.places_of(Owner::File(file.id()), index).filter(shared) {
                let Some(table) = space.table().lock(&self.tlb, va, Level::PTE) else { continue };
                if table.leaf(va).is_none_or(|leaf| leaf.pfn != pfn) {
                    continue;
                }
                self.reduce(&space, PageRange::page(va), Rights::RX);
                let clean = |leaf: Leaf| Leaf {
                    rights: leaf.rights - Rights::WRITE,
                    flags: leaf.flags - LeafFlags::DIRTY,
                    ..leaf
                };
                if let Some(debt) = table.update(va, clean) {
                    gather.absorb(debt);
                }
            }
            gather.settle();
            drop(map);
            at = Some(space.id());
        }
    }
}
