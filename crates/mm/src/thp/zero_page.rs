//! The huge page of zeroes, which loads map in many spaces (`mm_get_huge_zero_folio`).
//!
//! It is allocated by the first load that maps it. Its leaves are special: they hold no reference,
//! and count in no resident set.
//!
//! Not guaranteed: that the memory comes back. Linux frees the page when no process has used it for
//! a while; here it is kept.

use crate::mm::Mm;
use pagewright_sync::Platform;
use pagewright_tlb::frames::{ClearExtent, FolioFlags};
use pagewright_types::{Counter, Order, Pfn};

impl<P: Platform> Mm<P> {
    /// The first frame of the huge page of zeroes, which is allocated if there is none yet.
    ///
    /// `None` if no block of 2 MiB is free.
    pub(crate) fn huge_zero_page(&self) -> Option<Pfn> {
        if let Some(pfn) = self.huge_zero.pfn() {
            return Some(pfn);
        }
        let Ok(cleared) = self.tlb.alloc_zeroed(self.tlb.request(Order::PMD), ClearExtent::of_order(Order::PMD)) else {
            self.tlb.count(Counter::ThpZeroPageAllocFailed, 1);
            return None;
        };
        match self.huge_zero.fill(self.frames().new_folio(cleared.into_block())) {
            Ok(()) => {
                self.tlb.count(Counter::ThpZeroPageAlloc, 1);
                self.tlb.count(Counter::PwZeroed, u64::from(Order::PMD.frames()));
            }
            // Another CPU was first.
            Err(ours) => self.put_folio(ours),
        }
        let pfn = self.huge_zero.pfn()?;
        self.frames().folio(pfn).set_flags(FolioFlags::RESERVED | FolioFlags::UPTODATE);
        Some(pfn)
    }
}
