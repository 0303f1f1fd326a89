//! References that structures of the memory manager store.
//!
//! Key types: [`StoredFolioRef`], a value, for a structure with a lock; [`FolioCell`], a place that
//! CPUs fill and empty without a lock. A page-table entry is a word and stores a reference as a
//! number ([`FolioRef::into_raw`]).
//!
//! Not guaranteed: that a reference is given up. A structure may end with its machine.

use crate::folio_ref::FolioRef;
use core::sync::atomic::{AtomicU32, Ordering};
use pagewright_types::Pfn;

/// One reference to a folio, in a structure of the memory manager.
///
/// As [`FolioRef`], except that it may be dropped: a page cache ends with its machine. The
/// reference is then lost, and the folio never freed.
#[derive(Debug, PartialEq, Eq)]
pub struct StoredFolioRef(Pfn);

impl StoredFolioRef {
    pub(crate) const fn new(head: Pfn) -> Self {
        Self(head)
    }

    /// The first frame of the folio.
    #[inline]
    pub const fn pfn(&self) -> Pfn {
        self.0
    }

    /// Takes the reference out of the structure.
    #[inline]
    pub const fn into_ref(self) -> FolioRef {
        FolioRef::new(self.0)
    }
}

/// A place for one reference that CPUs fill and empty without a lock.
///
/// As in [`StoredFolioRef`], a reference that is left in the place when it ends is lost.
#[derive(Debug)]
pub struct FolioCell(AtomicU32);

/// The value of an empty [`FolioCell`].
///
/// The last frame number, which [`MemoryLayout`](crate::MemoryLayout) refuses.
const EMPTY: u32 = u32::MAX;

impl FolioCell {
    /// An empty place.
    pub const fn new() -> Self {
        Self(AtomicU32::new(EMPTY))
    }

    /// The first frame of the folio in the place.
    ///
    /// It may be gone when this returns. A caller that takes a [speculative
    /// reference](crate::Frames::try_get_folio) checks again afterwards.
    pub fn pfn(&self) -> Option<Pfn> {
        let pfn = self.0.load(Ordering::Acquire);
        (pfn != EMPTY).then_some(Pfn::new(pfn))
    }

    /// Puts a reference into the empty place.
    ///
    /// A CPU that finds the folio here sees everything that this CPU did to it before.
    ///
    /// # Errors
    /// The reference, if the place has one.
    pub fn fill(&self, folio: FolioRef) -> Result<(), FolioRef> {
        match self.0.compare_exchange(EMPTY, folio.pfn().raw(), Ordering::Release, Ordering::Relaxed) {
            Ok(_) => {
                let _ = folio.into_raw();
                Ok(())
            }
            Err(_) => Err(folio),
        }
    }

    /// Takes the reference out of the place.
    pub fn take(&self) -> Option<FolioRef> {
        let pfn = self.0.swap(EMPTY, Ordering::AcqRel);
        (pfn != EMPTY).then(|| FolioRef::new(Pfn::new(pfn)))
    }
}

impl Default for FolioCell {
    fn default() -> Self {
        Self::new()
    }
}
