//! Pages on which a caller holds a reference or a pin, until it releases them.

use super::GupRequest;
use crate::error::MmError;
use crate::mm::Mm;
use alloc::vec::Vec;
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_tlb::frames::{Folio, FolioFlags, FolioRef, PinRef};
use pagewright_types::{Counter, Pfn};

/// What a [`UserPage`] holds.
#[derive(Debug)]
enum UserPageRef {
    Reference(FolioRef),
    Pin(PinRef),
    /// Nothing: the zero page is never freed.
    ZeroPage,
}

/// One page of user memory, referenced or pinned.
///
/// Only [`Mm::release_user_pages`] releases it (INV-GUP-LINEAR).
#[must_use = "the page stays referenced or pinned"]
#[derive(Debug)]
pub struct UserPage {
    pfn: Pfn,
    held: UserPageRef,
}

impl UserPage {
    /// The frame.
    pub fn pfn(&self) -> Pfn {
        self.pfn
    }

    /// Whether the page is pinned; the zero page never is.
    pub fn is_pinned(&self) -> bool {
        matches!(self.held, UserPageRef::Pin(_))
    }

    /// The first frame of the folio that is held, or `None` for the zero page.
    pub(super) fn folio(&self) -> Option<Pfn> {
        match &self.held {
            UserPageRef::Reference(reference) => Some(reference.pfn()),
            UserPageRef::Pin(pin) => Some(pin.pfn()),
            UserPageRef::ZeroPage => None,
        }
    }

    pub(super) fn zero_page(pfn: Pfn) -> Self {
        Self { pfn, held: UserPageRef::ZeroPage }
    }

    /// Takes page `pfn` of a folio, unless its reference count is zero or at the limit.
    pub(super) fn try_hold(folio: Folio<'_>, pfn: Pfn, request: GupRequest) -> Option<Self> {
        let held =
            if request.pin { UserPageRef::Pin(folio.try_pin()?) } else { UserPageRef::Reference(folio.try_get()?) };
        Some(Self { pfn, held })
    }
}

/// Pages of user memory that one call took, in the order of their addresses.
///
/// Only [`Mm::release_user_pages`] releases them. A page that is dropped instead is leaked, and
/// debug builds panic (INV-GUP-LINEAR).
#[must_use = "the pages stay referenced or pinned"]
#[derive(Debug, Default)]
pub struct UserPages(Vec<UserPage>);

impl UserPages {
    /// An empty list with room for `pages` pages.
    pub(super) fn with_room<P: Platform>(mm: &Mm<P>, pages: u64) -> Result<Self, MmError> {
        let mut list = Vec::new();
        let wanted = usize::try_from(pages).unwrap_or(usize::MAX);
        let refused = MmError::NoKernelMemory { wanted };
        if wanted > 0 && !mm.permit() {
            return Err(refused);
        }
        list.try_reserve_exact(wanted).map_err(|_| refused)?;
        Ok(Self(list))
    }

    pub(super) fn push(&mut self, page: UserPage) {
        self.0.push(page);
    }

    /// The number of pages.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no pages.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The pages, in the order of their addresses.
    pub fn iter(&self) -> impl Iterator<Item = &UserPage> {
        self.0.iter()
    }
}

/// Whether pages were written while they were held, so that releasing them makes them dirty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MakeDirty {
    /// They were at most read.
    No,
    /// They were written by their frames, which sets no dirty bit in a page-table entry.
    Yes,
}

impl<P: Platform> Mm<P> {
    /// Releases pages (`put_page`, `unpin_user_pages_dirty_lock`), and makes them dirty if written.
    pub fn release_user_pages(&self, pages: UserPages, make_dirty: MakeDirty) {
        for page in pages.0 {
            self.release_user_page(page, make_dirty);
        }
    }

    pub(crate) fn release_user_page(&self, page: UserPage, make_dirty: MakeDirty) {
        if let (MakeDirty::Yes, Some(head)) = (make_dirty, page.folio()) {
            self.frames().folio(head).set_flags(FolioFlags::DIRTY);
        }
        if page.is_pinned() {
            self.tlb.count(Counter::NrFollPinReleased, 1);
        }
        plant!(PinKept => return core::mem::forget(page));
        self.put_user_page(page);
    }

    /// Drops the reference or pin on a page, without counting the release.
    pub(super) fn put_user_page(&self, page: UserPage) {
        let last = match page.held {
            UserPageRef::Reference(reference) => self.frames().put(reference),
            UserPageRef::Pin(pin) => self.frames().unpin(pin),
            UserPageRef::ZeroPage => None,
        };
        if let Some(block) = last {
            self.tlb.free(block);
        }
    }
}
