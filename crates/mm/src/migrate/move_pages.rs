//! `move_pages`: moving single pages to nodes, and asking where they are.

use super::{MOST_PAGES, Migrator};
use crate::error::MmError;
use crate::mm::Mm;
use crate::space::Space;
use pagewright_sync::Platform;
use pagewright_table::EntryView;
use pagewright_tlb::frames::{FrameRequest, IsolatedFolio};
use pagewright_types::{Errno, NodeId, Order, PAGE_SIZE, VirtAddr};

/// The most pages that [`Mm::move_pages`] takes at once; a caller with more calls it again.
pub const MOVE_PAGES_CHUNK: usize = MOST_PAGES;

/// What `move_pages` says about a page: its node, or why there is none.
pub type PageStatus = Result<NodeId, Errno>;

/// A page that was looked up to be moved.
enum PageToMove {
    Isolated(IsolatedFolio),
    Status(PageStatus),
}

impl<P: Platform> Mm<P> {
    /// The node of each page of `pages` (`do_pages_stat`).
    ///
    /// [`Errno::EFAULT`] for an address without a mapping and for the zero page, [`Errno::ENOENT`]
    /// for a page that is not in memory.
    pub fn page_nodes(&self, space: &Space<P>, pages: &[VirtAddr], mut tell: impl FnMut(usize, PageStatus)) {
        self.declare_return_of(|| {
            let map = space.map().read();
            for (index, va) in pages.iter().enumerate() {
                let va = va.align_down(PAGE_SIZE);
                let status = match map.find(va) {
                    None => Err(Errno::EFAULT),
                    Some(_) => match map.tables(&self.tlb).read_lock(va).and_then(|table| table.entry(va).leaf()) {
                        None => Err(Errno::ENOENT),
                        Some(leaf) => self.vm_normal_folio(leaf).map(|folio| self.node_of(folio)).ok_or(Errno::EFAULT),
                    },
                };
                tell(index, status);
            }
        });
    }

    /// Moves each page to the node that stands beside it (`do_pages_move`).
    ///
    /// Pages that only this process maps are moved, or all with `all`. `tell` is called with the
    /// index and the status of a page; as in Linux, pages that could not be moved after they were
    /// taken have none. Returns how many were not moved or not attempted, 0 if all were.
    ///
    /// # Errors
    /// [`MmError::NoKernelMemory`]; nothing has changed.
    ///
    /// # Panics
    /// In debug builds when there are more than [`MOVE_PAGES_CHUNK`] pages.
    pub fn move_pages(
        &self,
        space: &Space<P>,
        pages: &[(VirtAddr, NodeId)],
        all: bool,
        mut tell: impl FnMut(usize, PageStatus),
    ) -> Result<usize, MmError> {
        debug_assert!(pages.len() <= MOVE_PAGES_CHUNK, "{} pages are more than a chunk", pages.len());
        self.declare_return_of(|| {
            let mut migrator = Migrator::try_new(self, pages.len())?;
            let mut at = 0;
            while at < pages.len() {
                // Pages that follow each other and go to one node move together.
                let (first, node) = (at, pages[at].1);
                let mut status = None;
                while at < pages.len() && pages[at].1 == node && status.is_none() {
                    match self.take_small_page(space, pages[at].0.align_down(PAGE_SIZE), node, all) {
                        PageToMove::Status(known) => status = Some(known),
                        PageToMove::Isolated(isolated) => {
                            migrator.add(isolated, FrameRequest::of_node(Order::ZERO, node))
                        }
                    }
                    at += 1;
                }
                let taken = at - first - usize::from(status.is_some());
                let moved = migrator.run(|isolated| self.putback(isolated)) as usize;
                if let Some(status) = status {
                    tell(at - 1, status);
                }
                if moved < taken {
                    return Ok(taken - moved + pages.len() - at);
                }
                (first..first + taken).for_each(|index| tell(index, Ok(node)));
            }
            Ok(0)
        })
    }

    /// As [`take_page`](Self::take_page), after it has split a large folio (INV-MIGRATE-SMALL).
    ///
    /// One that stays whole is taken, and stays where it is.
    fn take_small_page(&self, space: &Space<P>, va: VirtAddr, node: NodeId, all: bool) -> PageToMove {
        let taken = self.take_page(space, va, node, all);
        match taken {
            PageToMove::Isolated(isolated) if self.frames().folio(isolated.pfn()).is_large() => {
                match self.split_folio(isolated) {
                    Ok(()) => self.take_page(space, va, node, all),
                    Err(isolated) => PageToMove::Isolated(isolated),
                }
            }
            taken => taken,
        }
    }

    /// Takes the page at `va` off its list, to move it (`add_folio_for_migration`).
    fn take_page(&self, space: &Space<P>, va: VirtAddr, node: NodeId, all: bool) -> PageToMove {
        let map = space.map().read();
        if map.find(va).is_none() {
            return PageToMove::Status(Err(Errno::EFAULT));
        }
        let Some(table) = map.tables(&self.tlb).read_lock(va) else { return PageToMove::Status(Err(Errno::ENOENT)) };
        let EntryView::Leaf(leaf) = table.entry(va) else { return PageToMove::Status(Err(Errno::ENOENT)) };
        let Some(folio) = self.vm_normal_folio(leaf) else { return PageToMove::Status(Err(Errno::EFAULT)) };
        if self.node_of(folio) == node {
            return PageToMove::Status(Ok(node));
        }
        let by_others = self.mappings_of(leaf.page_at(va)) > 1 || table.sharers() > 1;
        if by_others && !all {
            return PageToMove::Status(Err(Errno::EACCES));
        }
        match self.frames().isolate(folio) {
            Some(isolated) => PageToMove::Isolated(isolated),
            None => PageToMove::Status(Err(Errno::EBUSY)),
        }
    }
}
