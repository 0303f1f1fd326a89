//! Pages cleared ahead of the faults of one operation.
//!
//! An operation that faults in many pages clears them in batches: one fence for each batch, and the
//! stores that suit the whole.
//!
//! Key type: [`PreclearedPages`]. `populate` and `gup` make one for the length of a call;
//! [`ClearedPageSource`] is how a fault sees it, and [`NewPages`] how a page cache does.
//!
//! A batch obeys one policy. A page for a mapping with another policy ends the batch, and the rest
//! of it is freed (INV-POLICY-OBEYED).
//!
//! Not guaranteed: that every page is used. What is left goes back to the allocator when the
//! operation ends, uncounted as cleared for use.

use crate::mm::Mm;
use crate::policy::MemPolicy;
use core::cell::{Cell, RefCell};
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_tlb::frames::{ClearExtent, NoFrames, ZeroedBlock, ZeroedList};
use pagewright_types::Order;

/// The number of pages that are cleared together.
///
/// With a fence for each 256 KiB, uncached stores reach 98 % of their bandwidth. Ordinary stores of
/// that size hardly touch a second-level cache.
const BATCH: u64 = 64;

/// Where a fault gets cleared pages.
pub(crate) trait ClearedPageSource {
    /// The next page, by a policy.
    ///
    /// # Errors
    /// [`NoFrames`].
    fn next_page(&self, policy: MemPolicy) -> Result<ZeroedBlock, NoFrames>;
}

/// Where an operation gets the pages that it adds to a page cache, and by which policy.
#[derive(Clone, Copy, Default)]
pub(crate) struct NewPages<'a> {
    pub(crate) policy: MemPolicy,
    /// `None` for the allocator.
    pub(crate) source: Option<&'a dyn ClearedPageSource>,
}

impl<'a> NewPages<'a> {
    /// Pages of `source` by the policy of the task.
    pub(crate) fn of_task(source: Option<&'a dyn ClearedPageSource>) -> Self {
        Self { policy: MemPolicy::DEFAULT, source }
    }

    /// The next page.
    ///
    /// # Errors
    /// [`NoFrames`].
    pub(crate) fn next<P: Platform>(self, mm: &Mm<P>) -> Result<ZeroedBlock, NoFrames> {
        match self.source {
            Some(source) => source.next_page(self.policy),
            None => mm.alloc_zeroed(mm.request(Order::ZERO, self.policy), ClearExtent::PAGE),
        }
    }
}

/// Pages for the rest of one operation.
pub(crate) struct PreclearedPages<'m, P: Platform> {
    mm: &'m Mm<P>,
    whole: ClearExtent,
    /// Pages of the operation for which none was made yet.
    left: Cell<u64>,
    made: RefCell<ZeroedList<'m, P>>,
    /// The policy by which they were made.
    policy: Cell<MemPolicy>,
}

impl<'m, P: Platform> PreclearedPages<'m, P> {
    /// Creates a source for an operation that may fault in `pages` pages.
    ///
    /// `None` if batches would not help: the stores need no fence, or there are too few pages.
    pub(crate) fn for_pages(mm: &'m Mm<P>, pages: u64) -> Option<Self> {
        let whole = ClearExtent::of_frames(pages);
        let made = RefCell::new(ZeroedList::empty(mm.frames()));
        mm.frames().clear_selector().benefits_from_batch(whole).then(|| Self {
            mm,
            whole,
            left: Cell::new(pages),
            made,
            policy: Cell::new(MemPolicy::DEFAULT),
        })
    }

    /// The source as a fault sees it.
    pub(crate) fn as_source(this: &Option<Self>) -> Option<&dyn ClearedPageSource> {
        this.as_ref().map(|precleared| precleared as &dyn ClearedPageSource)
    }
}

impl<P: Platform> ClearedPageSource for PreclearedPages<'_, P> {
    fn next_page(&self, policy: MemPolicy) -> Result<ZeroedBlock, NoFrames> {
        let mut made = self.made.borrow_mut();
        if plant!(BatchIgnoresPolicy; false, self.policy.replace(policy) != policy) {
            *made = ZeroedList::empty(self.mm.frames());
        }
        loop {
            if let Some(page) = made.pop() {
                return Ok(page);
            }
            // Pages that turned out to be there already leave some over; one is always made.
            let batch = self.left.get().clamp(1, BATCH);
            self.left.set(self.left.get().saturating_sub(batch));
            let tlb = &self.mm.tlb;
            let request = self.mm.request(Order::ZERO, policy);
            *made = self.mm.with_reclaim(|| tlb.alloc_zeroed_batch(request, batch as usize, self.whole))?;
        }
    }
}
