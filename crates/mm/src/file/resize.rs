//! Truncation, holes and preallocation (`ftruncate`, `fallocate`).
//!
//! **INV-FILE-REMOVED** When a call that removes pages from a file returns, no mapping shows them,
//! and none will. Otherwise a fault that looked up a page before would map it after the file has
//! lost it. Below a shared table the call also flushes what reclaim has cleared there.
//!
//! The pages leave the cache first, then [`FileObject::removals`] is incremented, then they are
//! unmapped everywhere. A fault that found one earlier either installs it before its table is
//! reached, and it is unmapped with the others, or sees the new value of `removals`.
//!
//! Neighbours: `rmap` finds the spaces, `zap` clears the entries.
//!
//! Not guaranteed: zeroes past the end of the file in its last page. A program can store there
//! through a mapping, and reads it back when the file grows, as on Linux's tmpfs.

use super::object::{FILE_PAGES, FileKind, FileObject};
use super::seals::Seals;
use crate::error::MmError;
use crate::fault::{NewPages, PreclearedPages};
use crate::mm::Mm;
use crate::policy::MemPolicy;
use crate::rmap::{CandidateSpace, SpaceLock};
use crate::space::entries::zap::Zap;
use crate::space::{AddressMap, Space};
use core::ops::ControlFlow;
use core::sync::atomic::Ordering;
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_table::MmapRead;
use pagewright_tlb::frames::{FolioOwner, FolioRef};
use pagewright_tlb::{Batch, Gather};
use pagewright_types::{PAGE_SIZE, PageRange};

/// The page index past the last page that a file can have.
const MAX_PAGES: u64 = 1 << FILE_PAGES;

bitflags::bitflags! {
    /// The `FALLOC_FL_*` that Linux's tmpfs supports (`include/uapi/linux/falloc.h`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct FallocateFlags: u32 {
        /// Keep the file size.
        const KEEP_SIZE = 0x1;
        /// Deallocate the range.
        const PUNCH_HOLE = 0x2;
    }
}

impl<P: Platform> Mm<P> {
    /// Sets a file's size in bytes (`truncate_pagecache`).
    ///
    /// Pages past the new end leave the cache and are unmapped everywhere, together with the copies
    /// that private mappings made of them.
    ///
    /// # Errors
    /// [`MmError::FileSealed`], [`MmError::FileTooLarge`], or [`MmError`] if the page of the new
    /// end cannot be swapped in; nothing has changed.
    pub fn truncate(&self, file: &FileObject<P>, size: u64) -> Result<(), MmError> {
        self.declare_return_of(|| {
            file.note_writer();
            let _resize = file.resize.write();
            if size > FileObject::<P>::MAX_BYTES {
                return Err(MmError::FileTooLarge { bytes: size });
            }
            if size < file.size() {
                file.check_unsealed(Seals::SHRINK)?;
            } else if size > file.size() {
                file.check_unsealed(Seals::GROW)?;
            }
            let tail = self.find_partial_page(file, size)?;
            self.truncate_file(file, size);
            self.zero_partial_page(tail, size, size.next_multiple_of(PAGE_SIZE));
            Ok(())
        })
    }

    /// Allocates or, with `PUNCH_HOLE`, deallocates `len` bytes at `offset` (`fallocate`).
    ///
    /// The caller has checked that the descriptor is writable (`EBADF`).
    ///
    /// # Errors
    /// [`MmError`]; nothing has changed, except that missing pages within the size may have been
    /// added as zeroes, and pages of the range past the size may have been freed, which an earlier
    /// call had allocated.
    pub fn fallocate(&self, file: &FileObject<P>, flags: FallocateFlags, offset: u64, len: u64) -> Result<(), MmError> {
        const LARGEST: u64 = i64::MAX as u64;
        if offset > LARGEST || len == 0 || len > LARGEST {
            return Err(MmError::BadFileRange { offset, len });
        }
        let hole = flags.contains(FallocateFlags::PUNCH_HOLE);
        let known = FallocateFlags::all().contains(flags);
        if !known || hole && !flags.contains(FallocateFlags::KEEP_SIZE) {
            return Err(MmError::NotSupported { flags: flags.bits() });
        }
        let end = offset + len;
        if end > FileObject::<P>::MAX_BYTES {
            return Err(MmError::FileTooLarge { bytes: end });
        }
        self.declare_return_of(|| {
            file.note_writer();
            if hole {
                self.punch_hole(file, offset, end)
            } else {
                self.allocate_range(file, offset, end, flags.contains(FallocateFlags::KEEP_SIZE))
            }
        })
    }

    /// Adds the missing pages of the bytes `offset..end` (`shmem_fallocate`).
    fn allocate_range(&self, file: &FileObject<P>, offset: u64, end: u64, keep_size: bool) -> Result<(), MmError> {
        if !file.is_shmem() {
            return Err(MmError::NotSupported { flags: 0 });
        }
        let _resize = file.resize.write();
        if end > file.size() {
            file.check_unsealed(Seals::GROW)?;
        }
        let first = offset / PAGE_SIZE;
        let pages = end.div_ceil(PAGE_SIZE) - first;
        file.check_limit(pages)?;
        let precleared = PreclearedPages::for_pages(self, pages);
        for index in first..first + pages {
            match file.find_or_create(self, index, true, NewPages::of_task(PreclearedPages::as_source(&precleared))) {
                Ok(found) => self.put_folio(found.folio),
                Err(error) => {
                    // Linux: `shmem_undo_range` of what the call has reached. No page past the end
                    // has contents.
                    let past = first.max(file.pages());
                    file.remove_range(self, past, plant!(UndoesOtherPages; MAX_PAGES, index.max(past)));
                    return Err(error.into());
                }
            }
        }
        if !keep_size && end > file.size() {
            file.set_size(end);
        }
        Ok(())
    }

    /// Deallocates the bytes `offset..end` of a file (`FALLOC_FL_PUNCH_HOLE`).
    ///
    /// Copies that private mappings made stay.
    pub(crate) fn punch_hole(&self, file: &FileObject<P>, offset: u64, end: u64) -> Result<(), MmError> {
        let _resize = file.resize.write();
        if file.is_shmem() {
            file.check_unsealed(Seals::ANY_WRITE)?;
        }
        let (first, last) = (offset.div_ceil(PAGE_SIZE), end / PAGE_SIZE);
        // Partial pages at the start and the end are zeroed; a range within one page is only a
        // head.
        let first_end = (first * PAGE_SIZE).min(end);
        if let FileKind::File(ops) = file.kind() {
            ops.punch_hole(offset, end).map_err(|errno| MmError::Device { index: offset / PAGE_SIZE, errno })?;
            // A concurrent read of the old bytes is either in the cache below, or starts over.
            file.note_removal();
        }
        // Only shared memory can fail here, when it is swapped in.
        let (head, tail) =
            self.find_partial_pages(file, (offset, first_end), ((last * PAGE_SIZE).max(first_end), end))?;
        if first < last {
            self.remove_pages(file, first, last, Zap::FilePages);
        }
        self.zero_partial_page(head, offset, first_end);
        self.zero_partial_page(tail, (last * PAGE_SIZE).max(first_end), end);
        Ok(())
    }

    /// Sets the size of a file and removes the pages past it, within a call.
    ///
    /// The caller holds `resize` for writing, or is the last user of the file.
    pub(crate) fn truncate_file(&self, file: &FileObject<P>, size: u64) {
        let old = file.size();
        file.set_size(size);
        if size > old {
            return;
        }
        self.remove_pages(file, size.div_ceil(PAGE_SIZE), MAX_PAGES, Zap::Pages);
    }

    /// Removes pages `first..end` from the cache and from every mapping (INV-FILE-REMOVED).
    fn remove_pages(&self, file: &FileObject<P>, first: u64, end: u64, what: Zap) {
        file.remove_range(self, first, end);
        file.removals.fetch_add(1, Ordering::AcqRel);
        let mut batch = Batch::new(&self.tlb);
        let owner = FolioOwner::File(file.id());
        self.visit_spaces(owner, SpaceLock::Wait, |candidate| {
            if let CandidateSpace::Held(space, map) = candidate {
                let ranges = map.possible_ranges(owner, first, end - first).map(|(_, range)| range);
                self.unmap_ranges(space, map, ranges, what, &mut batch);
            }
            ControlFlow::Continue(())
        });
        batch.settle();
        self.declare_removed(file.id(), first..end);
    }

    /// Unmaps ranges of one space, each of one mapping.
    ///
    /// One flush settles the debts of the space's own tables. What is done for all sharers of a
    /// table goes to `batch`.
    fn unmap_ranges(
        &self,
        space: &Space<P>,
        map: &MmapRead<'_, P, AddressMap<P>>,
        ranges: impl Iterator<Item = PageRange>,
        what: Zap,
        batch: &mut Batch<'_, P>,
    ) {
        let mut gather = Gather::concurrent(&self.tlb, space.table().context());
        for range in ranges {
            let Some((_, vma)) = map.find(range.start()) else { continue };
            // A shared mapping has no private copies.
            let what = if vma.is_shared() { Zap::Pages } else { what };
            match map.tables(&self.tlb).try_own(range) {
                Some(own) => self.zap(space, own, (vma, what), range, &mut gather),
                None => self.zap_for_all(space, map.tables(&self.tlb), (vma, what), range, batch),
            }
        }
        gather.settle();
    }

    /// The page that a truncation to `at` cuts, with a reference; it is swapped in if needed.
    ///
    /// Returns `None` if `at` is page-aligned, the page is missing, or the file grows.
    ///
    /// # Errors
    /// [`MmError`] if the page cannot be swapped in.
    fn find_partial_page(&self, file: &FileObject<P>, at: u64) -> Result<Option<FolioRef>, MmError> {
        if at.is_multiple_of(PAGE_SIZE) || at > file.size() {
            return Ok(None);
        }
        Ok(file.find(self, at / PAGE_SIZE, MemPolicy::DEFAULT)?.map(|found| found.folio))
    }

    /// The pages of the partial ranges `head` and `tail`, as far as these are not empty.
    fn find_partial_pages(
        &self,
        file: &FileObject<P>,
        head: (u64, u64),
        tail: (u64, u64),
    ) -> Result<(Option<FolioRef>, Option<FolioRef>), MmError> {
        let find = |(from, to): (u64, u64)| {
            if from < to { file.find(self, from / PAGE_SIZE, MemPolicy::DEFAULT) } else { Ok(None) }
        };
        let head = find(head)?.map(|found| found.folio);
        match find(tail) {
            Ok(tail) => Ok((head, tail.map(|found| found.folio))),
            Err(error) => {
                head.into_iter().for_each(|folio| self.put_folio(folio));
                Err(error.into())
            }
        }
    }

    /// Zeroes the bytes `from..to` of one page, and drops the reference to it.
    fn zero_partial_page(&self, folio: Option<FolioRef>, from: u64, to: u64) {
        const ZEROES: [u8; 256] = [0; 256];
        let Some(folio) = folio else { return };
        let page = folio.pfn().base();
        self.tlb.settle_folio(self.frames().folio_of(&folio));
        let mut at = from;
        while at < to {
            let bytes = (to - at).min(ZEROES.len() as u64);
            self.fx().write(page.add(at % PAGE_SIZE), &ZEROES[..bytes as usize]);
            at += bytes;
        }
        self.note_stored(self.frames().folio_of(&folio));
        self.put_folio(folio);
    }
}
