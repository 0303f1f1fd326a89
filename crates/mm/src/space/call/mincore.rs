//! `mincore(2)`: reports which pages are in memory.
//!
//! Not guaranteed: that the report still holds when the call returns.

use crate::error::MmError;
use crate::mm::Mm;
use crate::space::{Space, Vma};
use crate::swap::SwapPte;
use pagewright_arch::{Isa, SoftKind};
use pagewright_sync::Platform;
use pagewright_table::{EntryView, Tables};
use pagewright_types::{PAGE_SIZE, PageRange, VirtAddr};

/// Maximum number of pages to check between two acquisitions of the `map` lock.
const PAGES_PER_LOCK: u64 = 256;

impl<P: Platform> Mm<P> {
    /// Reports for each page of `len` bytes at `addr` whether it is in memory (`mincore(2)`).
    ///
    /// Stores 1 into the page's byte of `vec` if it is, 0 if not. A file page is in memory if it is
    /// in the page cache, mapped or not; a swapped page if it is in the swap cache. For a file that
    /// the caller may not write, all pages are reported as 1.
    ///
    /// # Errors
    /// [`MmError::Range`], or [`MmError::NotMapped`] at an unmapped page. As in Linux, `vec` is
    /// then filled up to that page.
    ///
    /// # Panics
    /// If `vec` has fewer bytes than the range has pages.
    pub fn mincore(&self, space: &Space<P>, addr: VirtAddr, len: u64, vec: &mut [u8]) -> Result<(), MmError> {
        let range = PageRange::from_len(addr, len)?;
        if range.end() > P::Isa::USER_END {
            return Err(MmError::NotMapped { at: P::Isa::USER_END });
        }
        let vec = &mut vec[..range.pages() as usize];
        self.call(|| {
            let mut at = range.start();
            while at < range.end() {
                let end = at.add(PAGES_PER_LOCK * PAGE_SIZE).min(range.end());
                let map = space.map().read();
                let Some((start, vma)) = map.find(at) else { return Err(MmError::NotMapped { at }) };
                let part = PageRange::new(at, vma.range(start).end().min(end));
                let first = (at.since(range.start()) / PAGE_SIZE) as usize;
                let bytes = &mut vec[first..][..part.pages() as usize];
                self.mincore_part(map.tables(&self.tlb), (start, vma), part, bytes);
                at = part.end();
            }
            Ok(())
        })
    }

    /// Fills `vec` for part of one mapping (`do_mincore`).
    fn mincore_part(&self, tables: Tables<'_, P>, (start, vma): (u64, &Vma<P>), part: PageRange, vec: &mut [u8]) {
        if vma.file().is_some_and(|file| !file.could_be_written()) {
            vec.fill(1);
            return;
        }
        for (va, byte) in part.iter().zip(vec) {
            // Without a page or a swap entry, the page cache decides.
            let cached = || vma.file().is_some_and(|file| file.has_cached(vma.pgoff() + (va.page_index() - start)));
            *byte = u8::from(match tables.peek(va) {
                EntryView::Leaf(_) => true,
                EntryView::Empty | EntryView::Table => cached(),
                EntryView::Soft(soft) => match soft.kind {
                    SoftKind::Swap => SwapPte::decode(soft).is_some_and(|page| self.is_in_swap_cache(page.entry)),
                    SoftKind::Migration => true,
                    SoftKind::Marker | SoftKind::InTransition => cached(),
                },
            });
        }
    }
}
