//! Writeback of dirty pages to their file (`write_cache_pages`, `folio_clear_dirty_for_io`).
//!
//! **INV-FILE-CLEAN** No store between a file and its page is lost: writeback clears the dirty mark
//! first, then removes the right to store and flushes, then reads the bytes.
//!
//! A later store faults and sets the flag again; an earlier one is among the bytes.
//!
//! Up to [`SWAP_CLUSTER_MAX`] pages share one wait: all their mappings in all spaces are
//! write-protected into one batch, and one settle flushes it.
//!
//! The `resize` lock excludes holes and changes of size while pages are under writeback
//! (INV-FILE-REMOVED).
//!
//! Not guaranteed: an order among pages. Shared memory has no file and is not written here.

use super::object::{FileKind, FileObject, FileOps};
use crate::error::MmError;
use crate::mm::Mm;
use crate::reclaim::SWAP_CLUSTER_MAX;
use crate::rmap::{CandidateSpace, SpaceLock};
use arrayvec::ArrayVec;
use core::ops::ControlFlow;
use pagewright_arch::LeafFlags;
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_table::{LeafView, Mlocked};
use pagewright_tlb::Batch;
use pagewright_tlb::frames::{FolioFlags, FolioLock, FolioOwner, FolioRef};
use pagewright_types::{Level, PAGE_SIZE, PageRange, Pfn, Rights, VirtAddr};

/// A page under writeback: locked, with its dirty flag cleared.
struct WritebackPage<'a> {
    index: u64,
    folio: FolioRef,
    lock: FolioLock<'a>,
}

impl<P: Platform> Mm<P> {
    /// Writes back the dirty pages of the bytes `from..to` of a file, and waits for them.
    ///
    /// Linux: `filemap_write_and_wait_range`, for `fsync` of a range.
    ///
    /// # Errors
    /// [`MmError::Device`] for the first page that failed; the others have been written.
    pub fn write_back(&self, file: &FileObject<P>, from: u64, to: u64) -> Result<(), MmError> {
        self.declare_return_of(|| self.write_pages_back(file, from / PAGE_SIZE, to.div_ceil(PAGE_SIZE)))
    }

    /// As [`Mm::write_back`] for pages `first..end`, within a call.
    pub(crate) fn write_pages_back(&self, file: &FileObject<P>, first: u64, end: u64) -> Result<(), MmError> {
        let FileKind::File(ops) = file.kind() else { return Ok(()) };
        let (mut at, mut outcome) = (first, Ok(()));
        while at < end {
            // A hole is punched in the device before its pages leave the cache. A page written
            // after that would fill the hole with its old contents.
            let _resize = file.resize.read();
            let mut pages = ArrayVec::new_const();
            at = self.collect_dirty(file, at, end, &mut pages);
            let mut batch = Batch::new(&self.tlb);
            for page in &pages {
                plant!(WriteBackNoProtect; (), self.write_protect_page(file, page.index, page.folio.pfn(), &mut batch));
            }
            plant!(WrittenBeforeSettle => outcome = outcome.and(self.write_pages(ops.as_ref(), &pages)));
            batch.settle();
            plant!(WrittenBeforeSettle; (), outcome = outcome.and(self.write_pages(ops.as_ref(), &pages)));
            for page in pages {
                plant!(WriteBackCleansLate => { self.frames().folio_of(&page.folio).clear_flags(FolioFlags::DIRTY); });
                drop(page.lock);
                self.put_folio(page.folio);
            }
        }
        outcome
    }

    /// Locks dirty pages of `first..end` and clears their dirty flags, as many as fit in `pages`.
    ///
    /// Returns the index at which to continue.
    fn collect_dirty<'a>(
        &'a self,
        file: &FileObject<P>,
        first: u64,
        end: u64,
        pages: &mut ArrayVec<WritebackPage<'a>, SWAP_CLUSTER_MAX>,
    ) -> u64 {
        let mut at = first;
        while !pages.is_full() {
            let Some((index, folio)) = file.next_cached(self, at, end) else { return end };
            let view = self.frames().folio_of(&folio);
            let lock = loop {
                match view.try_lock() {
                    Some(lock) => break lock,
                    // Its holder may be writing it and wait for a page that is locked here.
                    None if !pages.is_empty() => {
                        self.put_folio(folio);
                        return index;
                    }
                    // Another CPU may be writing it. Wait for that, and then write the stores that
                    // it has missed.
                    None => self.fx().relax(),
                }
            };
            at = index + 1;
            if view.clear_flags(FolioFlags::DIRTY).contains(FolioFlags::DIRTY) {
                pages.push(WritebackPage { index, folio, lock });
            } else {
                drop(lock);
                self.put_folio(folio);
            }
        }
        at
    }

    /// Writes pages to their device; a page that fails is dirty again.
    fn write_pages(&self, ops: &dyn FileOps, pages: &[WritebackPage<'_>]) -> Result<(), MmError> {
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

    /// Write-protects a page in all shared mappings (`folio_mkclean`), and defers the flushes.
    fn write_protect_page(&self, file: &FileObject<P>, index: u64, pfn: Pfn, batch: &mut Batch<'_, P>) {
        let owner = FolioOwner::File(file.id());
        self.visit_spaces(owner, SpaceLock::Wait, |candidate| {
            let CandidateSpace::Held(space, map) = candidate else { return ControlFlow::Continue(()) };
            let tables = map.tables(&self.tlb);
            let token = tables.family_token();
            let shared = |va: &VirtAddr| map.find(*va).is_some_and(|(_, vma)| vma.is_shared());
            let places = map.possible_ranges(owner, index, 1).flat_map(|(_, range)| range.iter());
            for va in places.filter(shared) {
                // Without a table of the last level, a huge leaf may have been cleared above it.
                let table = tables.lock_for_all(va, token.as_ref());
                let Some(table) = table.or_else(|| tables.lock_level_for_all(va, Level::PMD)) else { continue };
                if table.leaf(va).is_some_and(|leaf| leaf.page_at(va) == pfn) {
                    self.declare_reduced(space, PageRange::page(va), Rights::RX);
                    let clean =
                        |leaf: LeafView| leaf.with_rights(leaf.rights() - Rights::WRITE).without(LeafFlags::DIRTY);
                    // Of a page that is write-protected, nothing is counted.
                    if let Some(debt) = table.run(Mlocked(false)).protect(va, clean) {
                        debt.absorb_into(batch, space.table().context());
                    }
                }
                // Another CPU may still store through an entry that was cleared and not flushed.
                table.absorb_pending(batch, space.table().context());
            }
            ControlFlow::Continue(())
        });
    }
}
