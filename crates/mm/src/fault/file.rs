//! Pages of files touched for the first time (`do_read_fault`, `do_cow_fault`, `do_shared_fault`).

use super::{ClearedPageSource, Fault, FaultKind, FaultProgress, NewPages};
use crate::error::FaultError;
use crate::file::FileObject;
use crate::policy::MemPolicy;
use crate::settings::MmSetting;
use core::ops::Range;
use pagewright_arch::{Isa, Leaf, LeafFlags};
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_table::{EditForAll, EntryRun, OwnedLeaf, TableReserve};
use pagewright_tlb::frames::{FolioFlags, FolioRef};
use pagewright_types::{Access, Counter, Level, Order, PAGE_SIZE, PageRange, Rights, VirtAddr};

impl<P: Platform> Fault<'_, P> {
    fn file(&self) -> &FileObject<P> {
        self.vma.file().expect("classified as a fault on a file")
    }

    /// The pages that the fault adds to the cache.
    ///
    /// Shared memory obeys the policy of the mapping, and a file that of the task
    /// (`filemap_alloc_folio`).
    fn new_pages<'p>(&self, source: Option<&'p dyn ClearedPageSource>) -> NewPages<'p> {
        let policy = if self.file().is_shmem() { self.policy() } else { MemPolicy::DEFAULT };
        NewPages { policy, source }
    }

    /// The index of the page in the file, and the number of removals before the size was read.
    ///
    /// The file may shrink after that, so that the page lies past its end (INV-FILE-REMOVED).
    fn wanted_page(&self) -> Result<(u64, u64), FaultError> {
        let removals = self.file().removals();
        let index = self.file_index();
        if index >= self.file().pages() {
            return Err(FaultError::PastEnd { va: self.va });
        }
        Ok((index, removals))
    }

    /// Maps the cached page itself; for a store through a shared mapping, writable.
    pub(super) fn map_file_page(&self) -> Result<FaultProgress, FaultError> {
        let file = self.file();
        let (index, removals) = self.wanted_page()?;
        let mut reserve = TableReserve::new(&self.mm.tlb);
        self.reserve_tables(&mut reserve)?;
        let found = file.find_or_read(self.mm, index, self.new_pages(self.request.pages))?;
        let served = if found.waited { FaultKind::Major } else { FaultKind::Minor };
        let write = self.access() == Access::Write;
        let around = self.fault_around_range();
        if !write {
            self.read_around(around);
        }
        let token = self.family_token();
        let Some(table) = self.lock_to_fill(&mut reserve, token.as_ref()) else {
            self.mm.put_folio(found.folio);
            return Ok(FaultProgress::RaceLost);
        };
        // INV-FILE-REMOVED: the page found may not be the file's any more.
        if plant!(HoleNotSeen; false, file.removals() != removals) {
            drop(table);
            self.mm.put_folio(found.folio);
            return Ok(FaultProgress::RaceLost);
        }
        if self.exceeds_ref_limit(&found.folio) {
            drop(table);
            self.mm.put_folio(found.folio);
            return Err(FaultError::TooManyHolders { va: self.va });
        }
        let mut run = table.run(self.vma.mlocked());
        self.map_cached(&mut run, self.va, found.folio, true);
        if !write {
            self.map_around(&mut run, around);
        }
        Ok(FaultProgress::Done(served))
    }

    /// Maps a copy of the cached page, for a store through a private mapping.
    pub(super) fn map_file_copy(&self) -> Result<FaultProgress, FaultError> {
        let file = self.file();
        let (index, removals) = self.wanted_page()?;
        let mut reserve = TableReserve::new(&self.mm.tlb);
        self.reserve_tables(&mut reserve)?;
        let block = self.alloc_page()?;
        let found = match file.find_or_read(self.mm, index, self.new_pages(self.request.pages)) {
            Ok(found) => found,
            Err(error) => {
                self.mm.tlb.free(block);
                return Err(error);
            }
        };
        self.mm.fx().copy(found.folio.pfn(), block.pfn(), Order::ZERO);
        self.mm.tlb.count(Counter::PwCowCopy, 1);
        self.mm.put_folio(found.folio);
        let locked = self.lock_if_unchanged(&mut reserve).filter(|_| file.removals() == removals);
        let Some(locked) = locked else {
            self.mm.tlb.free(block);
            return Ok(FaultProgress::RaceLost);
        };
        self.map_exclusive(&mut locked.run(self.vma.mlocked()), block);
        Ok(FaultProgress::Done(if found.waited { FaultKind::Major } else { FaultKind::Minor }))
    }

    fn exceeds_ref_limit(&self, folio: &FolioRef) -> bool {
        self.mm.frames().folio_of(folio).exceeds_ref_limit()
    }

    /// Maps a page of the cache, which the fault has `touched` or brings along.
    fn map_cached(
        &self,
        run: &mut EntryRun<'_, '_, P, EditForAll<'_, P>>,
        va: VirtAddr,
        folio: FolioRef,
        touched: bool,
    ) {
        let pfn = folio.pfn();
        let mut rights = self.mapping_rights();
        let mut flags = LeafFlags::USER;
        flags.set(LeafFlags::ACCESSED, touched || !P::Isa::PREFAULTS_OLD);
        if touched && self.access() == Access::Write {
            flags |= LeafFlags::DIRTY | LeafFlags::SOFT_DIRTY;
            self.mm.frames().folio(pfn).set_flags(FolioFlags::DIRTY);
        } else {
            // The first store faults, so that the page is known to be dirty.
            rights -= Rights::WRITE;
        }
        run.map(va, OwnedLeaf::new(Leaf { pfn, rights, flags }, folio));
    }

    /// The pages that a read fault maps together (`do_fault_around`).
    ///
    /// They are `fault_around_bytes` from the aligned start of the window, or from the start of the
    /// mapping if that is later, cut to the mapping and to the last-level table. So if the mapping
    /// starts within the window, the pages extend beyond the end of the window.
    fn fault_around_range(&self) -> PageRange {
        let bytes = self.mm.settings.get(MmSetting::FaultAroundBytes);
        let mapping = self.vma.range(self.start);
        let start = self.va.align_down(bytes).max(mapping.start());
        let table_end = self.va.align_down(Level::PTE.table_span()).add(Level::PTE.table_span());
        PageRange::new(start, start.add(bytes).min(table_end).min(mapping.end()))
    }

    /// Brings the window's pages into the cache as far as that needs no waiting.
    ///
    /// Pages that cannot be read are left out.
    fn read_around(&self, around: PageRange) {
        let file = self.file();
        let mut window = self.file_indices(around);
        while let Some(index) = file.first_missing(window.clone()) {
            window.start = index + 1;
            if file.is_resident(index) {
                match file.find_or_read(self.mm, index, self.new_pages(None)) {
                    Ok(found) => self.mm.put_folio(found.folio),
                    Err(_) => return,
                }
            }
        }
    }

    /// The pages of the file under `range` of the mapping.
    fn file_indices(&self, range: PageRange) -> Range<u64> {
        let first = self.vma.pgoff() + (range.start().page_index() - self.start);
        first..first + range.pages()
    }

    /// Maps the cached pages of the window (`filemap_map_pages`).
    ///
    /// Whether they start as accessed is the instruction set's ([`Isa::PREFAULTS_OLD`]).
    fn map_around(&self, run: &mut EntryRun<'_, '_, P, EditForAll<'_, P>>, around: PageRange) {
        let file = self.file();
        let mut window = self.file_indices(around);
        let first = window.start;
        let address = |index: u64| around.start().add((index - first) * PAGE_SIZE);
        window.end = plant!(FaultAroundPastEnd; window.end, window.end.min(file.pages()));
        let mut mapped = 0;
        while !window.is_empty() {
            let cached = file.lookup_range(self.mm, window.clone(), |index| run.table().is_empty(address(index)));
            window.start = match cached.last() {
                Some((last, _)) if cached.is_full() => last + 1,
                Some(_) | None => window.end,
            };
            for (index, folio) in cached {
                if self.exceeds_ref_limit(&folio) {
                    self.mm.put_folio(folio);
                    continue;
                }
                self.map_cached(run, address(index), folio, false);
                mapped += 1;
            }
        }
        self.mm.tlb.count(Counter::PwFaultAround, mapped);
    }
}
