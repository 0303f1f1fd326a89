//! Migration: moving pages to another node while programs use them (`mm/migrate.c`).
//!
//! Key types: `Migrator`, the pages that move together; `MigrateStop`, that one stays.
//!
//! ```text
//!   add       a page that is off its list
//!   run       lock the pages; allocate their copies                              nothing has changed
//!             clear every leaf that maps it, by try: migration entries (unmap)   accesses fault and wait
//!             one flush for all pages that may not linger                        no CPU can store to them
//!             each page: copy, freeze, transfer (publish)                        the copy is the page
//!             put the entries back, by place: of the copy, or of the page        accesses go on
//! ```
//!
//! **INV-MIGRATE-ALL** A page moves only if the entries that its migrator found are all that its
//! mapcount has, and it has no other references. Otherwise each entry gets its old leaf back, and
//! counts and flags are as before.
//!
//! **INV-MIGRATE-COPY** A page is copied after the flush of its entries, or once no TLB can hold a
//! right to store to it. A store of the kernel since then undoes the migration.
//!
//! The store sets the dirty flag, which was cleared before the copy. If all translations of the
//! page may linger (`tlb_linger`), nothing is flushed.
//!
//! **INV-LINGER-COVERS** A leaf is stored over an entry whose translations linger only if it is
//! read-only and leads to the copy of the page, with equal contents. Any other install flushes
//! first.
//!
//! The frame that a page left is parked under the key of what lingers, and the copy has that key
//! until something stores to it.
//!
//! **INV-MIGRATE-WAIT** An operation that would copy, change, move or clear a migration entry waits
//! until it has changed, and holds nothing inside the lock of its space meanwhile.
//!
//! The waits:
//!
//! | operation | holds meanwhile | waits for |
//! | --- | --- | --- |
//! | a migrator, after its first entry | folio locks, and for a hint fault its space, for reading; tries spaces and folios | flushes; table, cache and slot locks |
//! | a fault, a pin, a copy of the kernel | its space, for reading | the entry |
//! | a zap, a truncation | its space, flushes that it owes; no table, no token | the entry |
//! | a break, a guard | its space; no table, no token | the entry |
//! | `munmap`, `mprotect`, `mremap`, `mlock`, fork, exit | its space, for writing | the entry |
//!
//! A migrator waits for no entry, no space and no folio, so there is no cycle. It allocates nothing
//! after its first entry.
//!
//! Where entries are met:
//!
//! | operation | does |
//! | --- | --- |
//! | `own_tables`, which precedes the edits of one space | waits for all of the range (`Mm::await_migrations`) |
//! | fork | the same, for the whole space |
//! | zap, also for all sharers; guards | clear the rest of the table, wait, and go on there |
//! | break of a shared table | gives up before it copies, waits, starts over |
//! | fault | waits and starts over |
//! | taking a table back | strips the entry of its right to store, and leaves it |
//! | reclaim, ageing, a scan for hints | do not see it |
//! | `mincore`, smaps, pagemap, `mbind` | show the page |
//! | `MADV_FREE`, `MADV_COLD`, accessed bits of `clear_refs` | leave it out |
//!
//! **INV-MIGRATE-SMALL** A folio larger than a page is split before its pages are moved, or stays.
//!
//! Neighbours: `rmap` finds the leaves; `table` edits and counts the entries.
//!
//! Folios larger than a page are refused, since callers split them first (INV-MIGRATE-SMALL). So
//! are pages on no list: pool, zram, kernel memory.
//!
//! Not guaranteed: that a page moves. A caller retries, or leaves it.

mod move_pages;
mod publish;
mod range;
mod unmap;
mod wait;

pub use move_pages::{MOVE_PAGES_CHUNK, PageStatus};

use crate::error::MmError;
use crate::mm::Mm;
use crate::settings::MmSetting;
use alloc::vec::Vec;
use pagewright_arch::PteSlot;
use pagewright_plant::{plant, planted};
use pagewright_sync::Platform;
use pagewright_sync::atomic::Ordering;
use pagewright_tlb::LazyBatch;
use pagewright_tlb::frames::{Folio, FolioFlags, FolioLock, FolioOwner, FolioRef, FrameRequest, IsolatedFolio};
use pagewright_types::{Counter, DebtKey};

/// The most pages that move together (`NR_MAX_BATCHED_MIGRATION`).
const MOST_PAGES: usize = 512;

/// The entries for which each page has room, on average, and the least in all.
const PLACES_PER_PAGE: usize = 8;
const LEAST_PLACES: usize = 512;

/// A page stays: an entry or a reference was not accounted for, or it was stored to meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MigrateStop;

/// A page that moves, and its copy.
struct MovingPage<'m> {
    isolated: IsolatedFolio,
    lock: FolioLock<'m>,
    copy: FolioRef,
    copy_lock: FolioLock<'m>,
    /// Its entries, as a part of the migrator's places.
    places: core::ops::Range<usize>,
    /// Whether every entry that was met was cleared.
    cleared: Result<(), MigrateStop>,
    /// Whether its translations stay in TLBs.
    lingers: bool,
}

/// Pages that move together, with one wait for other CPUs.
pub(crate) struct Migrator<'m, P: Platform> {
    mm: &'m Mm<P>,
    /// Pages that are not locked yet.
    added: Vec<(IsolatedFolio, FrameRequest)>,
    pages: Vec<MovingPage<'m>>,
    /// Where the migration entries are; it does not grow.
    places: Vec<PteSlot>,
    /// Whether read-only translations of the pages may stay in TLBs.
    lingers: bool,
}

impl<'m, P: Platform> Migrator<'m, P> {
    /// A migrator with room for `pages` pages, and for the entries that a batch may have.
    ///
    /// # Errors
    /// [`MmError::NoKernelMemory`].
    pub(crate) fn try_new(mm: &'m Mm<P>, pages: usize) -> Result<Self, MmError> {
        let wanted = pages.min(MOST_PAGES);
        let (mut added, mut list, mut places) = (Vec::new(), Vec::new(), Vec::new());
        let refused = MmError::NoKernelMemory { wanted };
        if !mm.permit() {
            return Err(refused);
        }
        added.try_reserve_exact(wanted).map_err(|_| refused)?;
        list.try_reserve_exact(wanted).map_err(|_| refused)?;
        places.try_reserve_exact((wanted * PLACES_PER_PAGE).max(LEAST_PLACES)).map_err(|_| refused)?;
        Ok(Self { mm, added, pages: list, places, lingers: mm.lets_moved_linger() })
    }

    /// Waits for every flush, for a caller that needs the frames which the pages leave.
    pub(crate) fn complete_flushes(&mut self) {
        self.lingers = false;
    }

    /// Adds a page that is to move, with the request for its copy.
    pub(crate) fn add(&mut self, isolated: IsolatedFolio, request: FrameRequest) {
        debug_assert!(self.added.len() < self.added.capacity(), "INV-MIGRATE-ALL: a page more than there is room for");
        self.added.push((isolated, request));
    }

    /// Moves the pages, and returns how many moved; the migrator is empty then.
    ///
    /// `stays` gets each page that did not move, off its list. Counts both.
    ///
    /// # Locks
    /// The caller holds none but locks of spaces.
    pub(crate) fn run(&mut self, mut stays: impl FnMut(IsolatedFolio)) -> u32 {
        let mm = self.mm;
        let (mut moved, mut stayed) = (0, 0);
        for (isolated, request) in self.added.drain(..) {
            match mm.prepare(isolated, request) {
                Ok(page) => self.pages.push(page),
                Err(isolated) => {
                    stayed += 1;
                    stays(isolated);
                }
            }
        }
        // Before the first space is tried: its next holder sees that entries may be there.
        mm.migrators.fetch_add(1, Ordering::AcqRel);
        plant!(MigrateCopiesEarly => self.copy_mapped());
        let mut batch = LazyBatch::new(&mm.tlb, self.lingers);
        for page in &mut self.pages {
            let first = self.places.len();
            page.cleared = mm.clear_entries(page, &mut self.places, &mut batch);
            page.places = first..self.places.len();
            page.lingers = batch.end_folio();
        }
        let key = batch.settle();
        for page in self.pages.iter().filter(|page| !page.lingers) {
            // An entry may get its right to store back: reclaim may have let the page linger, and
            // have given it its key after that entry was made.
            plant!(MovesWritableUnsettled; (), mm.tlb.settle_folio(mm.frames().folio(page.isolated.pfn())));
        }
        for page in self.pages.drain(..) {
            let key = if page.lingers { key } else { DebtKey::NONE };
            match mm.finish_page(page, &self.places, key) {
                Ok(()) => moved += 1,
                Err(isolated) => {
                    stayed += 1;
                    stays(isolated);
                }
            }
        }
        for (counter, pages) in [(Counter::PgMigrateSuccess, moved), (Counter::PgMigrateFail, stayed)] {
            if pages > 0 {
                mm.tlb.count(counter, u64::from(pages));
            }
        }
        self.places.clear();
        mm.migrators.fetch_sub(1, Ordering::AcqRel);
        moved
    }
}

planted! {
    impl<P: Platform> Migrator<'_, P> {
        /// Copies pages while they are mapped.
        fn copy_mapped(&self) {
            for page in &self.pages {
                self.mm.fx().copy(page.isolated.pfn(), page.copy.pfn(), pagewright_types::Order::ZERO);
            }
        }
    }
}

impl<P: Platform> Drop for Migrator<'_, P> {
    /// Puts back pages that were added and not moved.
    fn drop(&mut self) {
        self.added.drain(..).for_each(|(isolated, _)| self.mm.putback(isolated));
    }
}

impl<P: Platform> Mm<P> {
    /// Moves one page that is off its list, or puts it back; returns whether it moved.
    ///
    /// # Locks
    /// As [`Migrator::run`].
    pub(crate) fn move_page(&self, isolated: IsolatedFolio, request: FrameRequest) -> bool {
        let Ok(mut migrator) = Migrator::try_new(self, 1) else {
            self.putback(isolated);
            return false;
        };
        migrator.add(isolated, request);
        migrator.run(|isolated| self.putback(isolated)) > 0
    }

    /// Whether read-only translations of pages that move stay in TLBs (`tlb_linger`).
    pub(crate) fn lets_moved_linger(&self) -> bool {
        self.settings.get(MmSetting::TlbLinger) > 0
    }

    /// Whether read-only translations of pages that reclaim unmaps stay in TLBs.
    pub(crate) fn lets_unmapped_linger(&self) -> bool {
        self.settings.get(MmSetting::TlbLinger) > 1
    }

    /// Whether translations of a page may linger, as far as its owner decides.
    pub(crate) fn contents_may_linger(&self, folio: Folio<'_>) -> bool {
        match folio.owner() {
            FolioOwner::Anon(_) => true,
            FolioOwner::File(id) => self.files.get(id).is_some_and(|file| file.may_linger()),
            FolioOwner::None => false,
        }
    }

    /// Locks a page that is to move, and allocates its copy by `request`.
    ///
    /// # Errors
    /// The page, if it stays; nothing has changed.
    fn prepare(&self, isolated: IsolatedFolio, request: FrameRequest) -> Result<MovingPage<'_>, IsolatedFolio> {
        let frames = self.frames();
        let folio = frames.folio(isolated.pfn());
        if folio.is_large() || folio.seems_pinned() || matches!(folio.owner(), FolioOwner::None) {
            return Err(isolated);
        }
        let Some(lock) = folio.try_lock() else { return Err(isolated) };
        // No reclaim: it could demote, and wait for this folio.
        let block = if folio.flags().contains(FolioFlags::WRITEBACK) { None } else { self.tlb.alloc(request).ok() };
        let Some(block) = block else {
            drop(lock);
            self.free_swap_cache(folio);
            return Err(isolated);
        };
        let copy = frames.new_folio(block);
        let copy_lock = frames.folio(copy.pfn()).try_lock().expect("a new folio is not locked");
        Ok(MovingPage { isolated, lock, copy, copy_lock, places: 0..0, cleared: Ok(()), lingers: false })
    }

    /// Unlocks a page that stays and has its entries, and frees its copy.
    fn give_up(&self, page: MovingPage<'_>) -> IsolatedFolio {
        let MovingPage { isolated, lock, copy, copy_lock, .. } = page;
        drop((lock, copy_lock));
        self.put_folio(copy);
        self.free_swap_cache(self.frames().folio(isolated.pfn()));
        isolated
    }
}
