//! `mincore(2)`: which pages are at hand.
//!
//! Not guaranteed: that they still are when the call returns.

use crate::error::MmError;
use crate::mm::Mm;
use crate::space::{Space, Vma};
use crate::swap::SwapPte;
use pagewright_arch::{Entry, Isa, SoftKind};
use pagewright_sync::Platform;
use pagewright_types::{Level, PAGE_SIZE, PageRange, VirtAddr};

/// Pages that are looked at under one hold of the space.
const AT_A_TIME: u64 = 256;

impl<P: Platform> Mm<P> {
    /// Says of each page of `len` bytes at `addr`, in a byte of `vec` each, whether an access would
    /// find it without a device: 1, or 0. Of a file's pages those in its cache are meant, mapped or
    /// not, and of what is in swap those in the swap cache. Of a file that the caller could not
    /// write, 1 is said of all.
    ///
    /// # Errors
    /// [`MmError`]. As in Linux, `vec` has been filled up to a hole when the call fails because of
    /// it.
    ///
    /// # Panics
    /// When `vec` has fewer bytes than there are pages.
    pub fn mincore(&self, space: &Space<P>, addr: VirtAddr, len: u64, vec: &mut [u8]) -> Result<(), MmError> {
        let range = PageRange::from_len(addr, len)?;
        if range.end() > P::Isa::USER_END {
            return Err(MmError::NotMapped { at: P::Isa::USER_END });
        }
        let vec = &mut vec[..range.pages() as usize];
        self.call(|| {
            let mut at = range.start();
            while at < range.end() {
                let most = at.add(AT_A_TIME * PAGE_SIZE).min(range.end());
                let map = space.map().read();
                let Some((start, vma)) = map.find(at) else { return Err(MmError::NotMapped { at }) };
                let part = PageRange::new(at, vma.range(start).end().min(most));
                let first = (at.since(range.start()) / PAGE_SIZE) as usize;
                self.tell(space, (start, vma), part, &mut vec[first..][..part.pages() as usize]);
                at = part.end();
            }
            Ok(())
        })
    }

    /// Fills `vec` for part of one mapping (`do_mincore`).
    fn tell(&self, space: &Space<P>, (start, vma): (u64, &Vma<P>), part: PageRange, vec: &mut [u8]) {
        if vma.file().is_some_and(|file| !file.could_be_written()) {
            vec.fill(1);
            return;
        }
        for (va, byte) in part.iter().zip(vec) {
            let found = space.table().find(&self.tlb, va, Level::PTE);
            *byte = u8::from(match P::Isa::decode(found.level, found.pte) {
                Entry::Leaf(_) => true,
                Entry::Soft(soft) if soft.kind == SoftKind::Swap => {
                    SwapPte::decode(soft).is_some_and(|page| self.is_in_swap_cache(page.entry))
                }
                // Where nothing is mapped, or a marker stands, the cache is asked.
                Entry::Empty | Entry::Soft(_) | Entry::Table(_) => {
                    vma.file().is_some_and(|file| file.has_cached(vma.pgoff() + (va.page_index() - start)))
                }
            });
        }
    }
}
