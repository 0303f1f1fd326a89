//! References and pins on pages of user memory, for code that reaches them by frame (`mm/gup.c`).
//!
//! - [`Mm::get_user_pages`] takes references, which only keep the pages in memory. A later
//!   copy-on-write may leave the reference on a page that the mapping no longer shows.
//! - [`Mm::pin_user_pages`] takes pins: the mapping and the holder of the pin see the same page
//!   until the mapping itself is removed.
//! - The `…_fast` forms first try a lockless walk (`fast`) and fall back to the locked walk
//!   (`slow`).
//!
//! Key types: [`GupFlags`], the `FOLL_*` flags; [`UserPages`], the pages taken. As in Linux, each
//! call may return fewer pages than requested, but at least one.
//!
//! The rules:
//!
//! 1. A page is pinned only if its entry is exclusive or the page is not anonymous. If the entry is
//!    not exclusive, a pin for reading first takes an unshare fault, and a pin for writing takes a
//!    write fault, which makes the page exclusive.
//! 2. A longterm pin in a private mapping that may become writable takes neither a file page nor
//!    the zero page: it breaks copy-on-write first. A longterm pin for writing is refused on a
//!    shared mapping of a file with a device behind it, because writeback would not see the stores.
//! 3. Fork copies pinned pages at once, and a store reuses an exclusive page.
//!
//! **INV-GUP-EXCLUSIVE** An anonymous page is pinned only while its entry is exclusive, and an
//! exclusive entry becomes shared only while the page has no pin. So the holder of the pin and the
//! space that maps the page keep seeing the same bytes.
//!
//! **INV-GUP-LINEAR** Pages of user memory that a call returned or pinned are given back by
//! [`Mm::release_user_pages`], and never dropped.
//!
//! Neighbours: uses `space` and `fault`; used by `user`. `frame` counts the pins.
//!
//! Not guaranteed: anything about a page whose mapping its own space changes (`munmap`,
//! `MADV_DONTNEED`, truncation). The pin keeps the old page, and the mapping shows another.

mod fast;
mod pages;
mod slow;

pub use pages::{MakeDirty, UserPage, UserPages};

use crate::error::MmError;
use crate::fault::{ClearedPageSource, PreclearedPages};
use crate::mm::Mm;
use crate::space::{Space, Vma};
use pagewright_arch::Isa;
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_table::LeafView;
use pagewright_types::{Access, PageRange, Rights, VirtAddr};

bitflags::bitflags! {
    /// How pages are taken (`FOLL_*`, with Linux's values).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct GupFlags: u32 {
        /// The pages will be written.
        const WRITE = 1;
        /// Ignore the mapping's current rights if it may ever have the needed one, for debuggers.
        const FORCE = 1 << 3;
        /// Take no faults: only pages that the entries already permit.
        const NOFAULT = 1 << 5;
        /// The pages may be held indefinitely; only for pins.
        const LONGTERM = 1 << 8;
        /// A huge leaf is split first; not for the fast calls (`FOLL_SPLIT_PMD`).
        const SPLIT_PMD = 1 << 9;
        /// The range is part of a large one, as when a VM's memory is pinned for a device.
        ///
        /// Missing pages are cleared in batches, with uncached stores if they are faster. Linux has
        /// no such flag, and so no value for it; the uncached series names it `FOLL_HINT_BULK`.
        const HINT_BULK = 1 << 31;
    }
}

/// The flags of one call, whether it pins, and whether it tries a lockless walk first.
#[derive(Clone, Copy)]
pub(crate) struct GupRequest {
    flags: GupFlags,
    pin: bool,
    fast: bool,
}

impl GupRequest {
    pub(crate) const fn pin(flags: GupFlags) -> Self {
        Self { flags, pin: true, fast: false }
    }

    pub(crate) const fn get(flags: GupFlags) -> Self {
        Self { flags, pin: false, fast: false }
    }

    /// The same request, with a lockless walk first.
    pub(crate) const fn fast(self) -> Self {
        Self { fast: true, ..self }
    }

    fn writes(self) -> bool {
        self.flags.contains(GupFlags::WRITE)
    }

    fn access(self) -> Access {
        if self.writes() { Access::Write } else { Access::Read }
    }

    /// Fails unless all flags are known and allowed together (`is_valid_gup_args`).
    fn check(self) -> Result<(), MmError> {
        let unknown = self.flags.bits() & !GupFlags::all().bits() != 0;
        let splits_fast = self.fast && self.flags.contains(GupFlags::SPLIT_PMD);
        if unknown || splits_fast || self.flags.contains(GupFlags::LONGTERM) && !self.pin {
            return Err(MmError::BadFlags { flags: self.flags.bits() });
        }
        Ok(())
    }

    /// Whether a mapping permits this request (`check_vma_flags`).
    ///
    /// As in Linux, a request to read needs the right to read, although the hardware lets a program
    /// load from a mapping that is only writable.
    fn is_permitted<P: Platform>(self, vma: &Vma<P>) -> bool {
        let force = self.flags.contains(GupFlags::FORCE);
        if !self.writes() {
            return vma.rights().contains(Rights::READ) || force && vma.may_be_forced(Access::Read);
        }
        let shared_file = vma.file().is_some_and(|file| !file.is_shmem()) && vma.is_shared();
        if self.pin && self.flags.contains(GupFlags::LONGTERM) && shared_file {
            return false;
        }
        vma.rights().contains(Rights::WRITE) || force && vma.may_be_forced(Access::Write)
    }

    /// Whether a read-only entry must be made exclusive before its page is pinned.
    ///
    /// Linux: `gup_must_unshare`. `vma` is `None` in a lockless walk, which must assume a private
    /// mapping.
    fn must_unshare<P: Platform>(self, leaf: LeafView, is_anon: bool, vma: Option<&Vma<P>>) -> bool {
        plant!(PinNotExclusive => return false);
        if self.writes() || !self.pin {
            return false;
        }
        if is_anon {
            return !leaf.is_exclusive();
        }
        self.flags.contains(GupFlags::LONGTERM) && vma.is_none_or(Vma::is_cow)
    }
}

impl<P: Platform> Mm<P> {
    /// Takes a reference on each page of `range`, and faults in missing pages.
    ///
    /// The caller holds no lock and releases the pages by [`Mm::release_user_pages`].
    ///
    /// # Errors
    /// [`MmError`] if the first page cannot be taken: `EFAULT` if an access would raise a signal,
    /// `ENOMEM`, or `EINVAL` for flags that are unknown or only for pins. Pages may have been
    /// faulted in.
    pub fn get_user_pages(&self, space: &Space<P>, range: PageRange, flags: GupFlags) -> Result<UserPages, MmError> {
        self.declare_return_of(|| self.gup_range(space, range, GupRequest::get(flags)))
    }

    /// As [`Mm::get_user_pages`], but tries a lockless walk for each page first.
    ///
    /// Only the space that this CPU runs can be walked without locks.
    ///
    /// # Errors
    /// As [`Mm::get_user_pages`].
    pub fn get_user_pages_fast(
        &self,
        space: &Space<P>,
        range: PageRange,
        flags: GupFlags,
    ) -> Result<UserPages, MmError> {
        self.declare_return_of(|| self.gup_range(space, range, GupRequest::get(flags).fast()))
    }

    /// Pins each page of `range`, after the faults that make it present and exclusive.
    ///
    /// # Errors
    /// As [`Mm::get_user_pages`].
    pub fn pin_user_pages(&self, space: &Space<P>, range: PageRange, flags: GupFlags) -> Result<UserPages, MmError> {
        self.declare_return_of(|| self.gup_range(space, range, GupRequest::pin(flags)))
    }

    /// As [`Mm::pin_user_pages`], but tries a lockless walk for each page first.
    ///
    /// Only the space that this CPU runs can be walked without locks.
    ///
    /// # Errors
    /// As [`Mm::get_user_pages`].
    pub fn pin_user_pages_fast(
        &self,
        space: &Space<P>,
        range: PageRange,
        flags: GupFlags,
    ) -> Result<UserPages, MmError> {
        self.declare_return_of(|| self.gup_range(space, range, GupRequest::pin(flags).fast()))
    }

    fn gup_range(&self, space: &Space<P>, range: PageRange, request: GupRequest) -> Result<UserPages, MmError> {
        request.check()?;
        // Checked before the list is allocated, so that its length is bounded.
        if range.end() > P::Isa::USER_END {
            return Err(MmError::Inaccessible { va: range.end() });
        }
        let mut pages = UserPages::with_room(self, range.pages())?;
        let bulk = request.flags.contains(GupFlags::HINT_BULK);
        let precleared = if bulk { PreclearedPages::for_pages(self, range.pages()) } else { None };
        for va in range.iter() {
            self.cond_resched();
            match self.gup_page(space, va, request, PreclearedPages::as_source(&precleared)) {
                Ok(page) => pages.push(page),
                Err(error) if pages.is_empty() => return Err(error),
                Err(_) => break,
            }
        }
        Ok(pages)
    }

    /// Takes one page; the caller holds no lock.
    ///
    /// A fault that needs a cleared page takes it from `pages`, if given.
    pub(crate) fn gup_page(
        &self,
        space: &Space<P>,
        va: VirtAddr,
        request: GupRequest,
        pages: Option<&dyn ClearedPageSource>,
    ) -> Result<UserPage, MmError> {
        let page = if request.fast { self.gup_fast(space, va, request) } else { None };
        match page {
            Some(page) => Ok(page),
            None => self.gup_slow(space, va, request, pages),
        }
    }
}
