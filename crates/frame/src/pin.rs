//! Pins: references under which the contents may be read or written at any time from outside the
//! page tables (Linux's `FOLL_PIN`, `Documentation/core-api/pin_user_pages.rst`).
//!
//! Key type: [`PinRef`], one pin.
//!
//! A pin of a small folio counts 1024 references, so that [`Folio::maybe_pinned`] may be wrongly
//! true, never wrongly false. A pin of a large folio counts one reference and is counted exactly
//! besides.
//!
//! Invariants:
//! - INV-FRAME-PIN: while a pin exists `maybe_pinned` is true, and the folio can be neither frozen
//!   nor freed.
//!
//! Not guaranteed: that only exclusive anonymous pages are pinned; that is `mm`'s rule.

use crate::block::Block;
use crate::folio::{Folio, add_unless_zero};
use crate::frames::Frames;
use core::sync::atomic::Ordering;
use pagewright_sync::{Platform, bomb};
use pagewright_types::Pfn;

/// References that a pin of a small folio counts (Linux's `GUP_PIN_COUNTING_BIAS`).
const PIN_BIAS: u32 = 1024;

/// One pin of a folio.
#[must_use = "dropping a pin leaks the folio"]
#[derive(Debug, PartialEq, Eq)]
pub struct PinRef(Pfn);

impl PinRef {
    /// First frame of the folio.
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
    /// Pins the folio unless it has no references, because it is frozen or free, or as many as may
    /// be (`try_grab_folio`).
    pub fn try_pin(self) -> Option<PinRef> {
        let record = self.record();
        if !add_unless_zero(&record.refs) {
            return None;
        }
        // The first reference keeps the order from changing, so that it can be asked only now.
        if self.is_large() {
            record.pincount_or_swap.fetch_add(1, Ordering::AcqRel);
        } else {
            record.refs.fetch_add(PIN_BIAS - 1, Ordering::AcqRel);
        }
        Some(PinRef(self.head))
    }

    /// How often it is pinned, and what each pin adds to its references.
    ///
    /// Of a small folio it is what its references leave room for: right unless somebody holds 1024
    /// references that are no pins.
    pub fn pins(self) -> (u32, u32) {
        if self.is_large() {
            (self.record().pincount_or_swap.load(Ordering::Acquire), 1)
        } else {
            (self.refs() / PIN_BIAS, PIN_BIAS)
        }
    }

    /// Whether the folio may be pinned: certainly not when false (`folio_maybe_dma_pinned`).
    pub fn maybe_pinned(self) -> bool {
        if self.is_large() {
            self.record().pincount_or_swap.load(Ordering::Acquire) > 0
        } else {
            self.refs() >= PIN_BIAS
        }
    }

    /// Whether the folio seems to be pinned, the references of its mappings left out: that more
    /// than a thousand map it is no pin. Mappings that come or go meanwhile make the answer wrong
    /// either way, so nothing may rest on it but what is worth trying.
    pub fn seems_pinned(self) -> bool {
        self.maybe_pinned() && (self.is_large() || self.refs().saturating_sub(self.mapcount()) >= PIN_BIAS)
    }
}

impl<P: Platform> Frames<P> {
    /// Gives up a pin.
    ///
    /// The last reference gives back the frames.
    pub fn unpin(&self, pin: PinRef) -> Option<Block> {
        let folio = Folio { memmap: &self.memmap, head: pin.into_raw() };
        if !folio.is_large() {
            return self.drop_refs(folio.head, PIN_BIAS);
        }
        let before = folio.record().pincount_or_swap.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before > 0, "INV-FRAME-PIN: the folio at {} is unpinned once too often", folio.head);
        self.drop_refs(folio.head, 1)
    }
}
