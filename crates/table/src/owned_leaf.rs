//! The owning form of a leaf entry.
//!
//! **INV-TABLE-OWNS** A leaf that is not special owns one reference to its folio, and an
//! upper-level entry the table below. Whatever removes the entry takes that over.

use pagewright_arch::{Leaf, LeafFlags};
use pagewright_sync::Platform;
use pagewright_tlb::frames::{FolioRef, Frames};
use pagewright_tlb::{DetachedPiece, IntoDetachedPieces};

/// A leaf on its way into or out of a table, with the reference that it holds on its folio.
#[derive(Debug)]
pub struct OwnedLeaf {
    leaf: Leaf,
    folio: Option<FolioRef>,
}

impl OwnedLeaf {
    /// Creates a leaf that owns the reference `folio`.
    ///
    /// `leaf.pfn` is the page of the folio that it maps.
    #[inline]
    pub fn new(leaf: Leaf, folio: FolioRef) -> Self {
        debug_assert!(!leaf.flags.contains(LeafFlags::SPECIAL), "a special leaf has no folio");
        Self { leaf, folio: Some(folio) }
    }

    /// Takes over the leaf that an exchange has just removed from an entry, with its reference.
    ///
    /// # Safety
    /// INV-TABLE-OWNS: `leaf` was decoded from the removed word, and the entry is not restored.
    #[inline]
    #[allow(unsafe_code)]
    pub(crate) unsafe fn removed<P: Platform>(frames: &Frames<P>, leaf: Leaf) -> Self {
        if leaf.flags.contains(LeafFlags::SPECIAL) {
            return Self::special(leaf);
        }
        // SAFETY: INV-TABLE-OWNS – a leaf that is not special holds a reference, which left the
        // entry with the word.
        Self::new(leaf, unsafe { frames.folio_ref_from_raw(leaf.pfn) })
    }

    /// Creates a leaf of a frame without a folio, such as the zero page (`pte_special`).
    #[inline]
    pub fn special(leaf: Leaf) -> Self {
        Self { leaf: Leaf { flags: leaf.flags | LeafFlags::SPECIAL, ..leaf }, folio: None }
    }

    /// The description of the leaf.
    #[inline]
    pub fn leaf(&self) -> Leaf {
        self.leaf
    }

    /// The reference on its folio; `None` for a special leaf.
    #[inline]
    pub fn folio(&self) -> Option<&FolioRef> {
        self.folio.as_ref()
    }

    /// Takes the reference on its folio; `None` for a special leaf.
    #[inline]
    pub fn into_folio(self) -> Option<FolioRef> {
        self.folio
    }
}

impl IntoDetachedPieces for OwnedLeaf {
    #[inline]
    fn for_each_piece(self, sink: &mut dyn FnMut(DetachedPiece)) {
        self.folio.for_each_piece(sink);
    }
}
