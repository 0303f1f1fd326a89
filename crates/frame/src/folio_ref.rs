//! Owned references to folios.
//!
//! Key types: [`FolioRef`], one reference; [`FolioRefs`], several to one folio.
//!
//! Neighbours: `folio` takes and ends them; `stored_ref` has those that structures store.
//!
//! Not guaranteed: that a reference is given up. In debug builds, dropping one panics.

use crate::stored_ref::StoredFolioRef;
use pagewright_sync::bomb;
use pagewright_types::Pfn;

/// One reference to a folio.
///
/// [`Frames::put`](crate::Frames::put) ends it.
#[must_use = "dropping a reference leaks the folio"]
#[derive(Debug, PartialEq, Eq)]
pub struct FolioRef(Pfn);

impl FolioRef {
    pub(crate) const fn new(head: Pfn) -> Self {
        Self(head)
    }

    /// The first frame of the folio.
    #[inline]
    pub const fn pfn(&self) -> Pfn {
        self.0
    }

    /// Turns the reference into the folio's first frame number, which holds the reference then.
    ///
    /// For a page-table entry or another word that stores the number.
    ///
    /// [`Frames::folio_ref_from_raw`](crate::Frames::folio_ref_from_raw) takes it back.
    #[inline]
    pub const fn into_raw(self) -> Pfn {
        let head = self.0;
        core::mem::forget(self);
        head
    }

    /// Stores the reference in a structure that may end without giving it up.
    #[inline]
    pub const fn into_stored(self) -> StoredFolioRef {
        StoredFolioRef::new(self.into_raw())
    }
}

impl Drop for FolioRef {
    fn drop(&mut self) {
        bomb::dropped(format_args!("INV-FRAME-LINEAR: leaked reference to the folio at {}", self.0));
    }
}

/// References to one folio that are given up together.
///
/// [`Frames::put_refs`](crate::Frames::put_refs) ends them by one subtraction.
#[must_use = "dropping references leaks the folio"]
#[derive(Debug)]
pub struct FolioRefs {
    first: FolioRef,
    /// The number of the others, which exist as this number only.
    others: u32,
}

impl From<FolioRef> for FolioRefs {
    #[inline]
    fn from(first: FolioRef) -> Self {
        Self::new(first, 0)
    }
}

impl FolioRefs {
    pub(crate) const fn new(first: FolioRef, others: u32) -> Self {
        Self { first, others }
    }

    /// The first frame of the folio.
    #[inline]
    pub const fn pfn(&self) -> Pfn {
        self.first.pfn()
    }

    /// The number of references.
    #[inline]
    pub const fn count(&self) -> u32 {
        self.others + 1
    }

    /// Adds references to the same folio.
    ///
    /// # Panics
    /// In debug builds when they are to another folio.
    #[inline]
    pub fn add(&mut self, more: Self) {
        debug_assert_eq!(self.pfn(), more.pfn(), "INV-FRAME-REFS: references to two folios are added");
        self.others += more.count();
        let _ = more.into_raw();
    }

    /// The first frame of the folio, which holds all the references then.
    #[inline]
    pub(crate) fn into_raw(self) -> Pfn {
        self.first.into_raw()
    }
}
