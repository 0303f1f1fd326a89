//! The memmap: the records of all frames of the machine, by frame number (Linux's flat `mem_map`).
//!
//! Key type: `Memmap`, one array from the lowest frame of any range to the highest, holes included.
//! A record that was never written costs address space only.
//!
//! Neighbours: `record` defines what a record means; `list` links records.
//!
//! Not guaranteed: that a frame number in the memmap is memory. `Frames` knows the ranges.

use crate::record::{FrameKind, FrameRecord, FrameState};
use crate::zeroed_slice::ZeroedSlice;
use pagewright_sync::AllocError;
use pagewright_types::{FrameRange, Order, Pfn};

/// The records of all frames of a machine.
pub(crate) struct Memmap {
    start: Pfn,
    records: ZeroedSlice<FrameRecord>,
}

impl Memmap {
    /// Allocates zeroed records for all frames of `span`.
    pub(crate) fn try_new(span: FrameRange) -> Result<Self, AllocError> {
        Ok(Self { start: span.start(), records: ZeroedSlice::try_new(span.frames() as usize)? })
    }

    /// The address space for the records of `span`, in bytes.
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

    /// The records of `frames` frames from `first` on.
    ///
    /// # Panics
    /// As [`at`](Self::at).
    #[inline]
    pub(crate) fn run(&self, first: Pfn, frames: usize) -> &[FrameRecord] {
        let start = first.index().wrapping_sub(self.start.index());
        &self.records[start..][..frames]
    }

    /// The record of a frame; `None` outside the span.
    #[inline]
    pub(crate) fn get(&self, pfn: Pfn) -> Option<&FrameRecord> {
        self.records.get(pfn.index().wrapping_sub(self.start.index()))
    }

    /// The first frame of the naturally aligned block of `order` that contains `pfn`.
    #[inline]
    pub(crate) const fn aligned(pfn: Pfn, order: Order) -> Pfn {
        Pfn::new(pfn.raw() & !(order.frames() - 1))
    }

    /// The head of the folio that contains `pfn` now; `None` if there is none (INV-FRAME-TAIL).
    #[inline]
    pub(crate) fn folio_head(&self, pfn: Pfn) -> Option<(Pfn, &FrameRecord)> {
        let record = self.get(pfn)?;
        let kind = record.kind();
        if kind.is_folio() { Some((pfn, record)) } else { self.head_of_tail(pfn, kind) }
    }

    #[inline(never)]
    fn head_of_tail(&self, pfn: Pfn, kind: FrameKind) -> Option<(Pfn, &FrameRecord)> {
        if kind.state() != FrameState::Tail {
            return None;
        }
        let head = Self::aligned(pfn, kind.order());
        let record = self.get(head)?;
        (record.kind() == kind.to(FrameState::Folio)).then_some((head, record))
    }

    /// Makes every frame of a folio but the head a tail; `kind` is that of the block, in any state.
    pub(crate) fn name_tails(&self, head: Pfn, order: Order, kind: FrameKind) {
        let tail = kind.to(FrameState::Tail);
        for index in 1..order.frames() {
            let record = self.at(head.add(index));
            debug_assert_eq!(record.counts.mappings(), 0, "INV-FRAME-MAP: a new folio is mapped");
            // A block that was a folio of this order before still has these tails. Skipping the
            // store keeps their lines clean.
            if record.kind() != tail {
                record.set_kind(tail);
            }
        }
    }

    /// The record of the block at `pfn`, which the caller owns.
    ///
    /// # Panics
    /// In debug builds when its state is not `Allocated`.
    #[inline]
    pub(crate) fn allocated(&self, pfn: Pfn) -> &FrameRecord {
        let record = self.at(pfn);
        debug_assert_eq!(
            record.kind().state(),
            FrameState::Allocated,
            "INV-FRAME-STATE: frame {pfn} is {:?}, not an allocated block",
            record.kind()
        );
        record
    }

    /// Changes the state of the block at `pfn`, which the caller owns, from `from` to `to`.
    #[inline]
    pub(crate) fn transition(&self, pfn: Pfn, from: FrameState, to: FrameState) -> FrameKind {
        let record = self.at(pfn);
        let kind = record.kind();
        debug_assert_eq!(kind.state(), from, "INV-FRAME-STATE: frame {pfn} is {kind:?}, not {from:?}");
        debug_assert_eq!(record.counts.refs(), 0, "INV-FRAME-SPEC: frame {pfn}, {kind:?}, has references");
        record.set_kind(kind.to(to));
        kind
    }
}
