//! Pages of user memory, for whoever reaches them by their frames (`mm/gup.c`).
//!
//! - [`Mm::get_user_pages`] takes references: the pages stay in memory, and that is all. A later
//!   copy-on-write may leave the reference on a page that the mapping no longer shows.
//! - [`Mm::pin_user_pages`] takes pins: what the mapping shows and what the frames hold stay one,
//!   until the mapping itself goes.
//! - The `…_fast` forms try a walk without locks first (`fast`), and what that can't do they do
//!   like the others (`slow`).
//!
//! Key types: [`GupFlags`], what is wanted; [`UserPages`], what was had. Both calls may return
//! fewer pages than they were asked for, as in Linux, if there is one at least.
//!
//! The rules:
//!
//! 1. A page is pinned only if its entry is exclusive, or if it is not anonymous. A pin for reading
//!    of a page that is not exclusive comes after an unshare fault; one for writing after a write
//!    fault, which makes it exclusive.
//! 2. A long-term pin in a private mapping that may become writable takes no page of a file and no
//!    zero page: it breaks copy-on-write first. Nor is a page of a file with a device behind it
//!    pinned for long for writing, because write-back would not know of the stores.
//! 3. Fork copies what is pinned at once, and a store reuses what is exclusive.
//!
//! INV-GUP-EXCLUSIVE: an anonymous page is pinned only while its entry is exclusive, and an entry
//! ceases to be exclusive only while nobody has the page pinned. INV-GUP-LINEAR: what was got or
//! pinned is given back by [`Mm::release_user_pages`].
//!
//! Neighbours: uses `space`, `fault`; used by `user`. Counts of pins are `frame`'s.
//!
//! Not guaranteed: anything about a page whose mapping is changed by its own space (`munmap`,
//! `MADV_DONTNEED`, truncation): the pin keeps the old page, and the mapping shows another.

mod fast;
mod pages;
mod slow;

pub use pages::{MakeDirty, UserPage, UserPages};

use crate::error::MmError;
use crate::fault::{ClearedPageSource, PreclearedPages};
use crate::mm::Mm;
use crate::space::{Space, Vma};
use pagewright_arch::{Isa, Leaf, LeafFlags};
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_types::{Access, PageRange, Rights, VirtAddr};

bitflags::bitflags! {
    /// What is wanted of the pages (`FOLL_*`, with Linux's values).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct GupFlags: u32 {
        /// They will be written.
        const WRITE = 1;
        /// Whatever the mapping's rights are now, as long as it could have them (a debugger's
        /// access).
        const FORCE = 1 << 3;
        /// Only pages that need no fault.
        const NOFAULT = 1 << 5;
        /// Held for as long as somebody likes.
        ///
        /// Only for pins.
        const LONGTERM = 1 << 8;
        /// The range is part of a large one, as when a device is given a VM's memory: pages that
        /// are missing are cleared in batches, past the cache where that is faster
        /// (`FOLL_HINT_BULK` of the uncached series; Linux has no such flag, so no value for it
        /// either).
        const HINT_BULK = 1 << 31;
    }
}

/// What one call wants.
#[derive(Clone, Copy)]
pub(crate) struct Want {
    flags: GupFlags,
    pin: bool,
}

impl Want {
    pub(crate) const fn pin(flags: GupFlags) -> Self {
        Self { flags, pin: true }
    }

    pub(crate) const fn get(flags: GupFlags) -> Self {
        Self { flags, pin: false }
    }

    fn writes(self) -> bool {
        self.flags.contains(GupFlags::WRITE)
    }

    fn access(self) -> Access {
        if self.writes() { Access::Write } else { Access::Read }
    }

    /// Whether flags are known and go together (`is_valid_gup_args`).
    fn check(self) -> Result<(), MmError> {
        let unknown = self.flags.bits() & !GupFlags::all().bits() != 0;
        if unknown || self.flags.contains(GupFlags::LONGTERM) && !self.pin {
            return Err(MmError::BadFlags { flags: self.flags.bits() });
        }
        Ok(())
    }

    /// Whether a mapping lets pages be taken so (`check_vma_flags`).
    ///
    /// The rights to read and to write are asked for by name here: what a processor reads because
    /// it may write is not readable to Linux.
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

    /// Whether an entry without the right to write must be made exclusive before its page is pinned
    /// (`gup_must_unshare`). `vma` is missing where nobody holds the space.
    fn must_unshare<P: Platform>(self, leaf: Leaf, is_anon: bool, vma: Option<&Vma<P>>) -> bool {
        plant!(PinNotExclusive => return false);
        if self.writes() || !self.pin {
            return false;
        }
        if is_anon {
            return !leaf.flags.contains(LeafFlags::EXCLUSIVE);
        }
        self.flags.contains(GupFlags::LONGTERM) && vma.is_none_or(Vma::is_cow)
    }
}

impl<P: Platform> Mm<P> {
    /// Takes a reference on each page of `range`, faulting in what is missing.
    ///
    /// # Errors
    /// [`MmError`], if the first page can't be had: `EFAULT` where an access would get a signal,
    /// `ENOMEM`, and `EINVAL` for flags that are unknown or only for pins. Pages may have been
    /// faulted in.
    pub fn get_user_pages(&self, space: &Space<P>, range: PageRange, flags: GupFlags) -> Result<UserPages, MmError> {
        self.call(|| self.take_user_pages(space, range, Want::get(flags), false))
    }

    /// As [`Mm::get_user_pages`], without locks as far as that goes.
    ///
    /// Only the space that this CPU runs can be walked so.
    ///
    /// # Errors
    /// As there.
    pub fn get_user_pages_fast(
        &self,
        space: &Space<P>,
        range: PageRange,
        flags: GupFlags,
    ) -> Result<UserPages, MmError> {
        self.call(|| self.take_user_pages(space, range, Want::get(flags), true))
    }

    /// Pins each page of `range`, faulting in what is missing and making exclusive what is not.
    ///
    /// # Errors
    /// As of [`Mm::get_user_pages`].
    pub fn pin_user_pages(&self, space: &Space<P>, range: PageRange, flags: GupFlags) -> Result<UserPages, MmError> {
        self.call(|| self.take_user_pages(space, range, Want::pin(flags), false))
    }

    /// As [`Mm::pin_user_pages`], without locks as far as that goes.
    ///
    /// Only the space that this CPU runs can be walked so.
    ///
    /// # Errors
    /// As there.
    pub fn pin_user_pages_fast(
        &self,
        space: &Space<P>,
        range: PageRange,
        flags: GupFlags,
    ) -> Result<UserPages, MmError> {
        self.call(|| self.take_user_pages(space, range, Want::pin(flags), true))
    }

    fn take_user_pages(
        &self,
        space: &Space<P>,
        range: PageRange,
        want: Want,
        fast: bool,
    ) -> Result<UserPages, MmError> {
        want.check()?;
        // Before anything is reserved: nobody can have more pages than there are.
        if range.end() > P::Isa::USER_END {
            return Err(MmError::Inaccessible { va: range.end() });
        }
        let mut pages = UserPages::with_room(self, range.pages())?;
        let bulk = want.flags.contains(GupFlags::HINT_BULK);
        let precleared = if bulk { PreclearedPages::for_pages(self, range.pages()) } else { None };
        for va in range.iter() {
            match self.take_user_page(space, va, want, fast, PreclearedPages::as_source(&precleared)) {
                Ok(page) => pages.push(page),
                Err(error) if pages.is_empty() => return Err(error),
                Err(_) => break,
            }
        }
        Ok(pages)
    }

    /// One page; the caller holds nothing.
    ///
    /// What must be cleared for it comes from `pages`, if given.
    pub(crate) fn take_user_page(
        &self,
        space: &Space<P>,
        va: VirtAddr,
        want: Want,
        fast: bool,
        pages: Option<&dyn ClearedPageSource>,
    ) -> Result<UserPage, MmError> {
        let page = if fast { self.take_without_locks(space, va, want) } else { None };
        match page {
            Some(page) => Ok(page),
            None => self.take_with_faults(space, va, want, pages),
        }
    }
}
