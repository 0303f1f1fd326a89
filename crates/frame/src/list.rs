//! Doubly linked lists of blocks or folios; the first record of each holds its links.
//!
//! Key type: `FrameList`. The lock of its owner protects the list and the links of every frame on
//! it.
//!
//! Not guaranteed: that a block is on this list and no other. The state in its record says only on
//! which kind of list it is.

use crate::memmap::Memmap;
use core::sync::atomic::Ordering;
use pagewright_types::Pfn;

/// No frame: the last frame number, which [`MemoryLayout`](crate::MemoryLayout) refuses.
const NIL: u32 = u32::MAX;

/// A list of blocks or folios.
pub(crate) struct FrameList {
    first: u32,
    last: u32,
    len: u32,
}

impl FrameList {
    pub(crate) const EMPTY: Self = Self { first: NIL, last: NIL, len: 0 };

    /// The number of blocks on the list.
    pub(crate) const fn len(&self) -> u32 {
        self.len
    }

    pub(crate) const fn first(&self) -> Option<Pfn> {
        if self.first == NIL { None } else { Some(Pfn::new(self.first)) }
    }

    pub(crate) const fn last(&self) -> Option<Pfn> {
        if self.last == NIL { None } else { Some(Pfn::new(self.last)) }
    }

    /// The block behind `pfn`, which is on the list.
    pub(crate) fn after(&self, memmap: &Memmap, pfn: Pfn) -> Option<Pfn> {
        let next = memmap.at(pfn).next.load(Ordering::Relaxed);
        (next != NIL).then_some(Pfn::new(next))
    }

    /// The blocks beside `pfn`, which is on the list.
    #[inline]
    pub(crate) fn neighbours(&self, memmap: &Memmap, pfn: Pfn) -> [Option<Pfn>; 2] {
        let record = memmap.at(pfn);
        [&record.prev, &record.next].map(|link| {
            let raw = link.load(Ordering::Relaxed);
            (raw != NIL).then_some(Pfn::new(raw))
        })
    }

    #[inline]
    pub(crate) fn push_front(&mut self, memmap: &Memmap, pfn: Pfn) {
        self.insert(memmap, pfn, NIL, self.first);
    }

    #[inline]
    pub(crate) fn push_back(&mut self, memmap: &Memmap, pfn: Pfn) {
        self.insert(memmap, pfn, self.last, NIL);
    }

    #[inline]
    fn insert(&mut self, memmap: &Memmap, pfn: Pfn, prev: u32, next: u32) {
        let record = memmap.at(pfn);
        record.prev.store(prev, Ordering::Relaxed);
        record.next.store(next, Ordering::Relaxed);
        self.join(memmap, prev, pfn.raw(), pfn.raw(), next);
        self.len += 1;
    }

    /// Takes a block off the list, wherever it is.
    #[inline]
    pub(crate) fn remove(&mut self, memmap: &Memmap, pfn: Pfn) {
        let record = memmap.at(pfn);
        let prev = record.prev.load(Ordering::Relaxed);
        let next = record.next.load(Ordering::Relaxed);
        self.join(memmap, prev, next, prev, next);
        self.len -= 1;
    }

    /// Makes `after_prev` the successor of `prev`, and `before_next` the predecessor of `next`.
    ///
    /// A `prev` or `next` of `NIL` stands for an end of the list.
    #[inline]
    fn join(&mut self, memmap: &Memmap, prev: u32, after_prev: u32, before_next: u32, next: u32) {
        if prev == NIL {
            self.first = after_prev;
        } else {
            memmap.at(Pfn::new(prev)).next.store(after_prev, Ordering::Relaxed);
        }
        if next == NIL {
            self.last = before_next;
        } else {
            memmap.at(Pfn::new(next)).prev.store(before_next, Ordering::Relaxed);
        }
    }
}
