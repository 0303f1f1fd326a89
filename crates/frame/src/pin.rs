//! Pins: references for access to the contents from outside the page tables, such as DMA.
//!
//! Linux's `FOLL_PIN`, `Documentation/core-api/pin_user_pages.rst`.
//!
//! Key type: [`PinRef`], one pin.
//!
//! A pin of a small folio counts as 1024 references. [`Folio::maybe_pinned`] may therefore report a
//! pin that does not exist, but never misses one. A pin of a large folio counts as one reference,
//! and the folio also has an exact count of its pins.
//!
//! Invariants:
//! - **INV-FRAME-PIN** While a folio has a pin, `maybe_pinned` is true, and the folio can be
//!   neither frozen nor freed.
//!
//! Not guaranteed: that only exclusive anonymous pages are pinned. `mm` ensures that.

use crate::block::Block;
use crate::folio::{Folio, MAX_TRY_GET_REFS};
use crate::frames::Frames;
use core::sync::atomic::Ordering;
use pagewright_sync::{FullBarrier, Platform, bomb};
use pagewright_types::Pfn;

/// The references that a pin of a small folio counts as (Linux's `GUP_PIN_COUNTING_BIAS`).
pub(crate) const PIN_BIAS: u32 = 1024;

/// One pin of a folio.
///
/// [`Frames::unpin`] ends it.
#[must_use = "dropping a pin leaks the folio"]
#[derive(Debug, PartialEq, Eq)]
pub struct PinRef(Pfn);

impl PinRef {
    /// The first frame of the folio.
    pub const fn pfn(&self) -> Pfn {
        self.0
    }

    fn into_raw(self) -> Pfn {
        let head = self.0;
        core::mem::forget(self);
        head
    }
}

impl Drop for PinRef {
    fn drop(&mut self) {
        bomb::dropped(format_args!("INV-FRAME-LINEAR: leaked pin of the folio at {}", self.0));
    }
}

impl Folio<'_> {
    /// Pins the folio (`try_grab_folio`).
    ///
    /// Returns `None` if the folio has no references, because it is frozen or free, or 2^31 or
    /// more.
    pub fn try_pin(self) -> Option<PinRef> {
        let record = self.record();
        if !record.counts.try_add_ref(MAX_TRY_GET_REFS) {
            return None;
        }
        // The order can be read only now: without a reference it may change.
        if self.is_large() {
            record.pincount_or_swap.fetch_add(1, Ordering::AcqRel);
        } else {
            record.counts.add_refs(PIN_BIAS - 1);
        }
        Some(PinRef(self.head))
    }

    /// The number of pins, and the number of references that each pin counts as.
    ///
    /// The number of pins of a small folio is computed from its references. It is too high if 1024
    /// or more of them are no pins.
    pub fn pins(self) -> (u32, u32) {
        if self.is_large() {
            (self.record().pincount_or_swap.load(Ordering::Acquire), 1)
        } else {
            (self.refs() / PIN_BIAS, PIN_BIAS)
        }
    }

    /// Whether the folio may be pinned; `false` is certain (`folio_maybe_dma_pinned`).
    pub fn maybe_pinned(self) -> bool {
        if self.is_large() {
            self.record().pincount_or_swap.load(Ordering::Acquire) > 0
        } else {
            self.refs() >= PIN_BIAS
        }
    }

    /// Whether the folio may be pinned, for a caller that has stored what makes a pin step back.
    ///
    /// If it is false, each later lockless pin sees the store (INV-FULL-BARRIER). So the barrier is
    /// an argument:
    ///
    /// ```compile_fail,E0061
    /// # fn may_share(folio: pagewright_frame::Folio<'_>) -> bool {
    /// !folio.maybe_pinned_after() // an argument is missing
    /// # }
    /// ```
    pub fn maybe_pinned_after(self, _stored: FullBarrier) -> bool {
        self.maybe_pinned()
    }

    /// The number of references, for a caller that has stored what makes a lockless walk step back.
    ///
    /// A later lockless walk sees the store (INV-FULL-BARRIER).
    pub fn refs_after(self, _stored: FullBarrier) -> u32 {
        self.refs()
    }

    /// Whether one more entry may map the folio without looking any further; `false` is no answer.
    ///
    /// The folio is small and has so few references that it is not pinned
    /// ([`maybe_pinned`](Self::maybe_pinned)) and has room for an entry
    /// ([`has_room_for_entry`](Self::has_room_for_entry)).
    #[inline]
    pub fn has_few_refs(self) -> bool {
        self.refs() < PIN_BIAS && !self.is_large()
    }

    /// Whether the folio is probably pinned, the references of its mappings not counted.
    ///
    /// More than a thousand mappings of a small folio do not count as a pin here. Concurrent
    /// changes of the mappings make the result wrong in either direction, so only heuristics may
    /// use it.
    pub fn seems_pinned(self) -> bool {
        self.maybe_pinned() && (self.is_large() || self.refs().saturating_sub(self.mapcount()) >= PIN_BIAS)
    }
}

impl<P: Platform> Frames<P> {
    /// Gives up a pin (`unpin_user_folio`).
    ///
    /// Returns the block if that was the last reference.
    ///
    /// # Panics
    /// In debug builds when the folio has fewer pins or references than that.
    pub fn unpin(&self, pin: PinRef) -> Option<Block> {
        let folio = Folio::at(&self.memmap, pin.into_raw());
        if !folio.is_large() {
            return self.drop_refs(folio.head, PIN_BIAS);
        }
        let before = folio.record().pincount_or_swap.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before > 0, "INV-FRAME-PIN: the folio at {} is unpinned more often than pinned", folio.head);
        self.drop_refs(folio.head, 1)
    }
}
