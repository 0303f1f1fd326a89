//! Dirty pages back to their file (`write_cache_pages`, `folio_clear_dirty_for_io`).
//!
//! INV-FILE-CLEAN: no store is lost between the file and its page. The page's mark goes first, then
//! the right to store from every shared mapping, flushed, and only then are the bytes read. A store
//! that comes later faults and marks the page again; one that came before is among the bytes.
//!
//! Up to [`SWAP_CLUSTER_MAX`] pages wait together: the right is taken from all their mappings in
//! all spaces, then one wait pays for all of it.
//!
//! Nobody makes a hole, or changes the file's size, while pages are on their way
//! (INV-FILE-REMOVED).
//!
//! Not guaranteed: an order among pages, and anything about shared memory, which has no file.

use super::object::{FileKind, FileObject, FileOps};
use crate::error::MmError;
use crate::mm::Mm;
use crate::reclaim::SWAP_CLUSTER_MAX;
use arrayvec::ArrayVec;
use pagewright_arch::{Leaf, LeafFlags};
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_tlb::Batch;
use pagewright_tlb::frames::{FolioFlags, FolioLock, FolioOwner, FolioRef};
use pagewright_types::{Level, PAGE_SIZE, PageRange, Pfn, Rights, SpaceId, VirtAddr};

/// A page on its way to the device: locked, its mark taken.
struct Taken<'a> {
    index: u64,
    folio: FolioRef,
    lock: FolioLock<'a>,
}

impl<P: Platform> Mm<P> {
    /// Writes back the dirty pages among the bytes from `from` up to `to` of a file, and waits for
    /// them (`fsync` of a range).
    ///
    /// # Errors
    /// [`MmError::Device`] for the first page that failed; the others have been written.
    pub fn write_back(&self, file: &FileObject<P>, from: u64, to: u64) -> Result<(), MmError> {
        self.call(|| self.write_pages_back(file, from / PAGE_SIZE, to.div_ceil(PAGE_SIZE)))
    }

    /// The same for the pages from `first` up to `end`, within a call.
    pub(crate) fn write_pages_back(&self, file: &FileObject<P>, first: u64, end: u64) -> Result<(), MmError> {
        let FileKind::File(ops) = file.kind() else { return Ok(()) };
        let (mut at, mut outcome) = (first, Ok(()));
        while at < end {
            // A hole is forgotten by the device before its pages leave the cache: one that came
            // after it would bring back what was there.
            let _resize = file.resize.read();
            let mut pages = ArrayVec::new_const();
            at = self.take_dirty(file, at, end, &mut pages);
            let mut batch = Batch::new(&self.tlb);
            for page in &pages {
                plant!(WriteBackNoProtect; (), self.take_stores(file, page.index, page.folio.pfn(), &mut batch));
            }
            plant!(WrittenBeforeSettle => outcome = outcome.and(self.write_pages(ops.as_ref(), &pages)));
            batch.settle();
            plant!(WrittenBeforeSettle; (), outcome = outcome.and(self.write_pages(ops.as_ref(), &pages)));
            for page in pages {
                drop(page.lock);
                self.put_folio(page.folio);
            }
        }
        outcome
    }

    /// Locks dirty pages from `first` up to `end` and takes their marks, as many as fit; returns
    /// where to go on.
    fn take_dirty<'a>(
        &'a self,
        file: &FileObject<P>,
        first: u64,
        end: u64,
        pages: &mut ArrayVec<Taken<'a>, SWAP_CLUSTER_MAX>,
    ) -> u64 {
        let mut at = first;
        while !pages.is_full() {
            let Some((index, folio)) = file.next_cached(self, at, end) else { return end };
            let view = self.frames().folio_of(&folio);
            let lock = loop {
                match view.try_lock() {
                    Some(lock) => break lock,
                    // Whoever writes it may wait for one that is held here.
                    None if !pages.is_empty() => {
                        self.put_folio(folio);
                        return index;
                    }
                    // Somebody else may be writing it: wait until he has, for his sake and for what
                    // he has not seen.
                    None => self.fx().relax(),
                }
            };
            at = index + 1;
            if view.clear_flags(FolioFlags::DIRTY).contains(FolioFlags::DIRTY) {
                pages.push(Taken { index, folio, lock });
            } else {
                drop(lock);
                self.put_folio(folio);
            }
        }
        at
    }

    /// Writes pages to their device.
    ///
    /// One that fails is dirty again.
    fn write_pages(&self, ops: &dyn FileOps, pages: &[Taken<'_>]) -> Result<(), MmError> {
        let mut outcome = Ok(());
        for page in pages {
            let written = ops.write_page(page.index, &mut self.reader_of(page.folio.pfn())).map_err(|errno| {
                self.frames().folio_of(&page.folio).set_flags(FolioFlags::DIRTY);
                MmError::Device { index: page.index, errno }
            });
            outcome = outcome.and(written);
        }
        outcome
    }

    /// Takes the right to store to a page from all shared mappings (`folio_mkclean`).
    fn take_stores(&self, file: &FileObject<P>, index: u64, pfn: Pfn, batch: &mut Batch<'_, P>) {
        let mut at: Option<SpaceId> = None;
        while let Some(space) = self.candidate_after(FolioOwner::File(file.id()), at) {
            let map = space.map().read();
            let shared = |va: &VirtAddr| map.find(*va).is_some_and(|(_, vma)| vma.is_shared());
            for va in map.places_of(FolioOwner::File(file.id()), index).filter(shared) {
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
                    batch.absorb(space.table().context(), debt);
                }
            }
            // An entry that somebody else has just cleared may still be stored through.
            batch.absorb_pending(space.table().context());
            drop(map);
            at = Some(space.id());
        }
    }
}
