//! The owning form of a leaf entry.

use pagewright_arch::{Leaf, LeafFlags};
use pagewright_tlb::frames::FolioRef;
use pagewright_tlb::{DetachedPiece, IntoDetachedPieces};

/// A leaf on its way into or out of a table, together with the reference that it holds on its
/// folio.
#[derive(Debug)]
pub struct OwnedLeaf {
    leaf: Leaf,
    folio: Option<FolioRef>,
}

impl OwnedLeaf {
    /// A leaf that will hold `folio`'s reference.
    ///
    /// `leaf.pfn` is the page of the folio that it maps.
    #[inline]
    pub fn new(leaf: Leaf, folio: FolioRef) -> Self {
        debug_assert!(!leaf.flags.contains(LeafFlags::SPECIAL), "a special leaf has no folio");
        Self { leaf, folio: Some(folio) }
    }

    /// A leaf of a frame without a folio, such as the zero page.
    #[inline]
    pub fn special(leaf: Leaf) -> Self {
        Self { leaf: Leaf { flags: leaf.flags | LeafFlags::SPECIAL, ..leaf }, folio: None }
    }

    /// What it says.
    #[inline]
    pub fn leaf(&self) -> Leaf {
        self.leaf
    }

    /// Whether a folio stands behind it.
    #[inline]
    pub fn is_special(&self) -> bool {
        self.folio.is_none()
    }

    /// Its folio's reference, or `None` for a special leaf.
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
