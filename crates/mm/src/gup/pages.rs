//! Pages that were got or pinned, until they are given back.

use super::Want;
use crate::error::MmError;
use crate::mm::Mm;
use alloc::vec::Vec;
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_tlb::frames::{Folio, FolioFlags, FolioRef, PinRef};
use pagewright_types::{Counter, Pfn};

/// What keeps a page.
#[derive(Debug)]
enum Held {
    Reference(FolioRef),
    Pin(PinRef),
    /// Nothing: the zero page goes nowhere.
    ZeroPage,
}

/// One page of user memory that somebody holds.
///
/// It is ended by [`Mm::release_user_pages`] (INV-GUP-LINEAR).
#[must_use = "a page that stays referenced or pinned"]
#[derive(Debug)]
pub struct UserPage {
    pfn: Pfn,
    held: Held,
}

impl UserPage {
    /// Its frame.
    pub fn pfn(&self) -> Pfn {
        self.pfn
    }

    /// Whether it is pinned; the zero page never is.
    pub fn is_pinned(&self) -> bool {
        matches!(self.held, Held::Pin(_))
    }

    /// First frame of the folio that is held, or `None` for the zero page.
    pub(super) fn folio(&self) -> Option<Pfn> {
        match &self.held {
            Held::Reference(reference) => Some(reference.pfn()),
            Held::Pin(pin) => Some(pin.pfn()),
            Held::ZeroPage => None,
        }
    }

    pub(super) fn zero_page(pfn: Pfn) -> Self {
        Self { pfn, held: Held::ZeroPage }
    }

    /// Holds page `pfn` of a folio unless nobody else does, or as many as may.
    pub(super) fn try_hold(folio: Folio<'_>, pfn: Pfn, want: Want) -> Option<Self> {
        let held = if want.pin { Held::Pin(folio.try_pin()?) } else { Held::Reference(folio.try_get()?) };
        Some(Self { pfn, held })
    }
}

/// Pages of user memory, in the order of their addresses.
///
/// They are ended by [`Mm::release_user_pages`]; a page that is dropped is lost, and debug builds
/// panic (INV-GUP-LINEAR).
#[must_use = "pages that stay referenced or pinned"]
#[derive(Debug, Default)]
pub struct UserPages(Vec<UserPage>);

impl UserPages {
    /// None, with room for `pages`.
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

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Them, in order.
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
    /// Gives pages back (`put_page`, `unpin_user_pages_dirty_lock`).
    ///
    /// If they were written, their contents are noted to be newer than what backs them.
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
        self.let_go(page);
    }

    /// Gives up what holds a page, uncounted.
    pub(super) fn let_go(&self, page: UserPage) {
        let last = match page.held {
            Held::Reference(reference) => self.frames().put(reference),
            Held::Pin(pin) => self.frames().unpin(pin),
            Held::ZeroPage => None,
        };
        if let Some(block) = last {
            self.tlb.free(block);
        }
    }
}
