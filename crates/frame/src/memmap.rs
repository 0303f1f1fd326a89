//! The memmap: all frame records of the machine, found by frame number (Linux's `mem_map`, flat).
//!
//! Key type: `Memmap`. One array from the lowest frame of any range to the highest, holes included;
//! an untouched record costs address space only.
//!
//! Neighbours: `record` says what a record means, `list` strings records together.
//!
//! Not guaranteed: that a frame number it knows is memory. `Zones` knows the ranges.

use crate::record::{FrameKind, FrameRecord, FrameState};
use crate::zeroed_slice::ZeroedSlice;
use core::sync::atomic::Ordering;
use pagewright_sync::OutOfMemory;
use pagewright_types::{FrameRange, Order, Pfn};

/// All records of a machine.
pub(crate) struct Memmap {
    start: Pfn,
    records: ZeroedSlice<FrameRecord>,
}

impl Memmap {
    /// Zeroed records for all frames of `span`.
    pub(crate) fn try_new(span: FrameRange) -> Result<Self, OutOfMemory> {
        Ok(Self { start: span.start(), records: ZeroedSlice::try_new(span.frames() as usize)? })
    }

    /// Bytes of address space for all frames of `span`.
    pub(crate) const fn bytes(span: FrameRange) -> usize {
        span.frames() as usize * size_of::<FrameRecord>()
    }

    /// The record of a frame.
    ///
    /// # Panics
    /// When the frame is outside the span.
    #[inline]
    pub(crate) fn at(&self, pfn: Pfn) -> &FrameRecord {
        &self.records[pfn.index().wrapping_sub(self.start.index())]
    }

    /// The record of a frame, or `None` outside the span.
    #[inline]
    pub(crate) fn get(&self, pfn: Pfn) -> Option<&FrameRecord> {
        self.records.get(pfn.index().wrapping_sub(self.start.index()))
    }

    /// First frame of the naturally aligned block of `order` around `pfn`.
    #[inline]
    pub(crate) const fn aligned(pfn: Pfn, order: Order) -> Pfn {
        Pfn::new(pfn.raw() & !(order.frames() - 1))
    }

    /// Head of the folio of which `pfn` is a page now (INV-FRAME-TAIL).
    #[inline]
    pub(crate) fn folio_head(&self, pfn: Pfn) -> Option<Pfn> {
        let kind = self.get(pfn)?.kind();
        match kind.state() {
            FrameState::Folio => Some(pfn),
            FrameState::Tail => {
                let head = Self::aligned(pfn, kind.order());
                (self.get(head)?.kind() == kind.to(FrameState::Folio)).then_some(head)
            }
            FrameState::Interior | FrameState::Free | FrameState::Pcp | FrameState::Allocated | FrameState::Table => {
                None
            }
        }
    }

    /// Makes the frames of a folio after its head its tails; `kind` is the block's, in any state.
    pub(crate) fn name_tails(&self, head: Pfn, order: Order, kind: FrameKind) {
        let tail = kind.to(FrameState::Tail);
        for index in 1..order.frames() {
            let record = self.at(head.add(index));
            debug_assert_eq!(record.mapcount.load(Ordering::Relaxed), 0, "INV-FRAME-MAP: a new folio is mapped");
            // A block that was a folio of this order before still says so: spare the cache the
            // store.
            if record.kind() != tail {
                record.set_kind(tail);
            }
        }
    }

    /// Changes the state of the block at `pfn` from `from`, which its caller owns, to `to`.
    #[inline]
    pub(crate) fn transition(&self, pfn: Pfn, from: FrameState, to: FrameState) -> FrameKind {
        let record = self.at(pfn);
        let kind = record.kind();
        debug_assert_eq!(kind.state(), from, "INV-FRAME-STATE: frame {pfn} is {kind:?}");
        debug_assert_eq!(record.refs.load(Ordering::Relaxed), 0, "INV-FRAME-SPEC: frame {pfn} is {kind:?}");
        record.set_kind(kind.to(to));
        kind
    }
}
