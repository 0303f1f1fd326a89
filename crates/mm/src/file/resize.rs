//! Truncation, holes, and room made in advance (`ftruncate`, `fallocate`).
//!
//! INV-FILE-REMOVED: when a call that takes pages of a file away returns, no mapping shows them,
//! and none will. They leave the cache first, then [`FileObject::removals`] rises, then they are
//! unmapped everywhere: a fault that found one before it left either installs it before its table's
//! turn, and it is unmapped with the others, or sees that `removals` has risen.
//!
//! Neighbours: `rmap` finds the spaces, `zap` clears the entries.
//!
//! Not guaranteed: zeroes behind the end of the file in its last page. A program can put something
//! there through a mapping, and find it again when the file grows, as on Linux's tmpfs.

use super::object::{FILE_PAGES, FileKind, FileObject};
use super::seals::Seals;
use crate::error::MmError;
use crate::mm::Mm;
use crate::space::entries::zap::Zap;
use crate::space::{AddressMap, Space};
use core::sync::atomic::Ordering;
use pagewright_sync::Platform;
use pagewright_tlb::Gather;
use pagewright_tlb::frames::{FolioFlags, FolioOwner, FolioRef};
use pagewright_types::{PAGE_SIZE, PageRange, SpaceId, VirtAddr};

/// Past the last page that any file can have.
const MOST_PAGES: u64 = 1 << FILE_PAGES;

bitflags::bitflags! {
    /// `FALLOC_FL_*` with Linux's values (`include/uapi/linux/falloc.h`), of which Linux's tmpfs
    /// knows these.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct FallocateFlags: u32 {
        /// The size stays.
        const KEEP_SIZE = 0x1;
        /// Forget what is there.
        const PUNCH_HOLE = 0x2;
    }
}

impl<P: Platform> Mm<P> {
    /// Sets a file's size.
    ///
    /// Pages past the new end are unmapped everywhere, copies that private mappings made of them
    /// included, and leave the cache (`truncate_pagecache`).
    ///
    /// # Errors
    /// [`MmError::FileSealed`], [`MmError::FileTooLarge`]; nothing has changed.
    pub fn truncate(&self, file: &FileObject<P>, size: u64) -> Result<(), MmError> {
        self.call(|| {
            let _resize = file.resize.write();
            if size > FileObject::<P>::MAX_BYTES {
                return Err(MmError::FileTooLarge { bytes: size });
            }
            if size < file.size() {
                file.unsealed(Seals::SHRINK)?;
            } else if size > file.size() {
                file.unsealed(Seals::GROW)?;
            }
            let tail = self.hold_part(file, size)?;
            self.cut_file(file, size);
            self.clear_part(tail, size, size.next_multiple_of(PAGE_SIZE));
            Ok(())
        })
    }

    /// Allocates (`fallocate`) or, with `PUNCH_HOLE`, forgets `len` bytes of a file from `offset`
    /// on. The descriptor that it is asked of can write (`EBADF`).
    ///
    /// # Errors
    /// [`MmError`]; nothing has changed, except that pages that were missing may be there, as
    /// zeroes.
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
        self.call(|| {
            if hole {
                self.punch_hole(file, offset, end)
            } else {
                self.make_room(file, offset, end, flags.contains(FallocateFlags::KEEP_SIZE))
            }
        })
    }

    /// Makes the pages missing among the bytes from `offset` up to `end` (`shmem_fallocate`).
    fn make_room(&self, file: &FileObject<P>, offset: u64, end: u64, keep_size: bool) -> Result<(), MmError> {
        if !file.is_shmem() {
            return Err(MmError::NotSupported { flags: 0 });
        }
        let _resize = file.resize.write();
        if end > file.size() {
            file.unsealed(Seals::GROW)?;
        }
        file.could_have(end.div_ceil(PAGE_SIZE) - offset / PAGE_SIZE)?;
        for index in offset / PAGE_SIZE..end.div_ceil(PAGE_SIZE) {
            match file.find_or_make(self, index) {
                Ok(found) => self.put_folio(found.folio),
                Err(error) => {
                    file.evict(self, file.pages(), MOST_PAGES);
                    return Err(error.into());
                }
            }
        }
        if !keep_size && end > file.size() {
            file.set_size(end);
        }
        Ok(())
    }

    /// Forgets what a file has among the bytes from `offset` up to `end`.
    ///
    /// Copies that private mappings made stay (`FALLOC_FL_PUNCH_HOLE`).
    pub(crate) fn punch_hole(&self, file: &FileObject<P>, offset: u64, end: u64) -> Result<(), MmError> {
        let _resize = file.resize.write();
        if file.is_shmem() {
            file.unsealed(Seals::ANY_WRITE)?;
        }
        let (first, last) = (offset.div_ceil(PAGE_SIZE), end / PAGE_SIZE);
        // What is not whole pages are parts: at the start, at the end, or of one page both.
        let first_end = (first * PAGE_SIZE).min(end);
        if let FileKind::File(ops) = file.kind() {
            ops.punch_hole(offset, end).map_err(|errno| MmError::Device { index: offset / PAGE_SIZE, errno })?;
            // Whoever has read a part of it before is either found below, or reads it again.
            file.note_removal();
        }
        // Fails for shared memory alone.
        let (head, tail) = self.hold_parts(file, (offset, first_end), ((last * PAGE_SIZE).max(first_end), end))?;
        if first < last {
            self.remove_pages(file, first, last, Zap::FilePages);
        }
        self.clear_part(head, offset, first_end);
        self.clear_part(tail, (last * PAGE_SIZE).max(first_end), end);
        Ok(())
    }

    /// Cuts a file within a call.
    ///
    /// The caller holds `resize`, or nobody else has the file any more.
    pub(crate) fn cut_file(&self, file: &FileObject<P>, size: u64) {
        let old = file.size();
        file.set_size(size);
        if size > old {
            return;
        }
        self.remove_pages(file, size.div_ceil(PAGE_SIZE), MOST_PAGES, Zap::Pages);
    }

    /// Takes the pages from `first` up to `end` away from everybody (INV-FILE-REMOVED).
    fn remove_pages(&self, file: &FileObject<P>, first: u64, end: u64, what: Zap) {
        file.evict(self, first, end);
        file.removals.fetch_add(1, Ordering::AcqRel);
        let mut at: Option<SpaceId> = None;
        while let Some(space) = self.candidate_after(FolioOwner::File(file.id()), at) {
            let map = space.map().read();
            self.unmap_pages(&space, &map, file, (first, end), what);
            drop(map);
            at = Some(space.id());
        }
    }

    /// Unmaps what one space maps of a file's pages from `first` up to `end`.
    fn unmap_pages(
        &self,
        space: &Space<P>,
        map: &AddressMap<P>,
        file: &FileObject<P>,
        (first, end): (u64, u64),
        what: Zap,
    ) {
        let mut gather = Gather::concurrent(&self.tlb, space.table().context());
        for (start, vma) in map.of_file_from(file.id(), first) {
            let page = |index: u64| (start + index.saturating_sub(vma.pgoff())).min(vma.end());
            let (from, to) = (page(first), page(end));
            if from < to {
                let part = PageRange::new(VirtAddr::from_page_index(from), VirtAddr::from_page_index(to));
                // A shared mapping has no copies.
                let what = if vma.is_shared() { Zap::Pages } else { what };
                self.zap_only(space, (vma, what), part, &mut gather);
            }
        }
        gather.settle();
    }

    /// The page that has byte `at`, unless `at` is its first byte, nothing is there, or the file
    /// grows: whoever clears a part of it must have it in memory first.
    ///
    /// # Errors
    /// [`MmError`] when it can't be had back from swap.
    fn hold_part(&self, file: &FileObject<P>, at: u64) -> Result<Option<FolioRef>, MmError> {
        if at.is_multiple_of(PAGE_SIZE) || at > file.size() {
            return Ok(None);
        }
        Ok(file.find(self, at / PAGE_SIZE)?.map(|found| found.folio))
    }

    /// The pages that have these parts, those that are not empty.
    fn hold_parts(
        &self,
        file: &FileObject<P>,
        head: (u64, u64),
        tail: (u64, u64),
    ) -> Result<(Option<FolioRef>, Option<FolioRef>), MmError> {
        let hold = |(from, to): (u64, u64)| if from < to { file.find(self, from / PAGE_SIZE) } else { Ok(None) };
        let head = hold(head)?.map(|found| found.folio);
        match hold(tail) {
            Ok(tail) => Ok((head, tail.map(|found| found.folio))),
            Err(error) => {
                head.into_iter().for_each(|folio| self.put_folio(folio));
                Err(error.into())
            }
        }
    }

    /// Zeroes the bytes from `from` up to `to`, of one page, which is given up.
    fn clear_part(&self, folio: Option<FolioRef>, from: u64, to: u64) {
        const ZEROES: [u8; 256] = [0; 256];
        let Some(folio) = folio else { return };
        let page = folio.pfn().base();
        let mut at = from;
        while at < to {
            let bytes = (to - at).min(ZEROES.len() as u64);
            self.fx().write(page.add(at % PAGE_SIZE), &ZEROES[..bytes as usize]);
            at += bytes;
        }
        // Marked after the zeroes are there, as what `write` has written.
        self.frames().folio_of(&folio).set_flags(FolioFlags::DIRTY);
        self.put_folio(folio);
    }
}
