//! Declarations of facts to a judge of the machine's translations (`pagewright_types::judge`).
//!
//! Two of the four facts are declared here; the allocator declares those about frames.
//!
//! - [`Mm::declare_return_of`] wraps every public call and fault. It declares that the call returns
//!   on this CPU, successful or not. A call that needs another one (to populate, to drop shared
//!   memory, to end the child of a failed fork) uses the inner function without this wrapper,
//!   because only the outermost call returns to the caller.
//! - [`Mm::declare_reduced`] is called before an operation stores the first entry that loses a
//!   right. [`Mm::zap`] calls it for all that is unmapped or discarded. Operations that change
//!   single leaves call it themselves: copy-on-write, fork, `mprotect`, `mremap`, guards,
//!   `clear_refs`, writeback, reclaim. The split of a huge leaf declares that leaf's range itself,
//!   and so does the sharing of a table.
//!
//! Neighbours: uses `space`; every operation that edits leaves uses this module.
//!
//! Not declared: the end of a space. Its root is freed when the call returns, so a judge cannot
//! read what its tables allow. Stale translations of its pages are found when the frames are
//! reused.

use crate::mm::Mm;
use crate::space::Space;
use core::ops::Range;
use pagewright_sync::Platform;
use pagewright_tlb::frames::{Folio, FolioOwner};
use pagewright_types::judge::{Fact, LogicalPage};
use pagewright_types::{FileId, PageRange, Pfn, Rights, VirtAddr};

impl<P: Platform> Mm<P> {
    /// Executes a call or a fault, and declares that it returns.
    #[inline]
    pub(crate) fn declare_return_of<T>(&self, body: impl FnOnce() -> T) -> T {
        let result = body();
        self.fx().declare(Fact::CallReturned);
        result
    }

    /// Declares that translations of the page at `va` may stay in TLBs after its entry was cleared.
    pub(crate) fn declare_deferred(&self, space: &Space<P>, va: VirtAddr, folio: Folio<'_>) {
        let (root, range, page) = (space.table().root(), PageRange::page(va), logical_page(folio));
        self.fx().declare(Fact::RightDeferred { root, range, frame: folio.pfn(), copy: None, page });
    }

    /// Declares that a page of a file was read into a frame, and is in no cache yet.
    pub(crate) fn declare_filled(&self, file: FileId, index: u64, frame: Pfn) {
        let page = LogicalPage::File { file: u64::from(file.raw()), index };
        self.fx().declare(Fact::PageFilled { page, frame });
    }

    /// Declares that pages of a file were removed.
    pub(crate) fn declare_removed(&self, file: FileId, pages: Range<u64>) {
        self.fx().declare(Fact::PagesRemoved { file: u64::from(file.raw()), first: pages.start, end: pages.end });
    }

    /// Declares that `range` has only the rights `left` when the present call returns.
    #[inline]
    pub(crate) fn declare_reduced(&self, space: &Space<P>, range: PageRange, left: Rights) {
        self.fx().declare(Fact::RightReduced { root: space.table().root(), range, left });
    }
}

/// The page of a small folio, whatever frame holds it.
fn logical_page(folio: Folio<'_>) -> LogicalPage {
    match folio.owner() {
        FolioOwner::File(file) => LogicalPage::File { file: u64::from(file.raw()), index: folio.index() },
        // No other page of the tree of forks is at the same address of the same space.
        FolioOwner::Anon(_) | FolioOwner::None => LogicalPage::Anon { id: folio.index() },
    }
}
