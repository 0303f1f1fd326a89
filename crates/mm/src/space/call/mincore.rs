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
        let range = user_range::<P>(addr, len)?;
        let mut done = 0;
        while done < range.pages() {
            let at = range.start().add(done * PAGE_SIZE);
            done += self.mincore_of_mapping(space, at, range.end().since(at), &mut vec[done as usize..])?;
        }
        Ok(())
    }

    /// The same of the pages of one mapping, as many as it looks at under one lock (`do_mincore`).
    ///
    /// Returns their number. Linux's call stores what it knows of them before it goes on, which may
    /// bring other pages of the range into memory.
    ///
    /// # Errors
    /// As [`Mm::mincore`].
    ///
    /// # Panics
    /// As [`Mm::mincore`].
    pub fn mincore_of_mapping(
        &self,
        space: &Space<P>,
        addr: VirtAddr,
        len: u64,
        vec: &mut [u8],
    ) -> Result<u64, MmError> {
        let range = user_range::<P>(addr, len)?;
        if range.is_empty() {
            return Ok(0);
        }
        let (at, end) = (range.start(), range.end().min(range.start().add(PAGES_PER_LOCK * PAGE_SIZE)));
        self.declare_return_of(|| {
            let map = space.map().read();
            let Some((start, vma)) = map.find(at) else { return Err(MmError::NotMapped { at }) };
            let part = PageRange::new(at, vma.range(start).end().min(end));
            self.mincore_part(map.tables(&self.tlb), (start, vma), part, &mut vec[..part.pages() as usize]);
            Ok(part.pages())
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

/// The pages of `len` bytes at `addr`, all of them of user mode.
fn user_range<P: Platform>(addr: VirtAddr, len: u64) -> Result<PageRange, MmError> {
    let range = PageRange::from_len(addr, len)?;
    if range.end() > P::Isa::USER_END {
        return Err(MmError::NotMapped { at: P::Isa::USER_END });
    }
    Ok(range)
}
