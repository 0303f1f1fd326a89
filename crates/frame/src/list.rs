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

/// The block that a link names.
#[inline]
const fn block(link: u32) -> Option<Pfn> {
    if link == NIL { None } else { Some(Pfn::new(link)) }
}

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
        block(self.first)
    }

    pub(crate) const fn last(&self) -> Option<Pfn> {
        block(self.last)
    }

    /// The block behind `pfn`, which is on the list.
    pub(crate) fn after(&self, memmap: &Memmap, pfn: Pfn) -> Option<Pfn> {
        block(memmap.at(pfn).next.load(Ordering::Relaxed))
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

    /// Puts all blocks of another list in front, in their order, and leaves that list empty.
    pub(crate) fn prepend(&mut self, memmap: &Memmap, other: &mut Self) {
        let Self { first, last, len } = core::mem::replace(other, Self::EMPTY);
        if len > 0 {
            self.join(memmap, last, self.first, last, self.first);
            self.first = first;
            self.len += len;
        }
    }

    /// Takes a block off the list, wherever it is, and returns the blocks that were beside it.
    #[inline]
    pub(crate) fn remove(&mut self, memmap: &Memmap, pfn: Pfn) -> [Option<Pfn>; 2] {
        let record = memmap.at(pfn);
        let prev = record.prev.load(Ordering::Relaxed);
        let next = record.next.load(Ordering::Relaxed);
        self.join(memmap, prev, next, prev, next);
        self.len -= 1;
        [prev, next].map(block)
    }

    /// Takes the first of `blocks` off the list, and those that follow it both there and here.
    ///
    /// One change of links removes them all. Returns their number, and the blocks that were beside
    /// them.
    #[inline]
    pub(crate) fn remove_run(&mut self, memmap: &Memmap, blocks: &[Pfn]) -> (usize, [Option<Pfn>; 2]) {
        let Some((first, others)) = blocks.split_first() else { return (0, [None; 2]) };
        let record = memmap.at(*first);
        let prev = record.prev.load(Ordering::Relaxed);
        let mut next = record.next.load(Ordering::Relaxed);
        let mut taken = 1;
        for other in others {
            if other.raw() != next {
                break;
            }
            next = memmap.at(*other).next.load(Ordering::Relaxed);
            taken += 1;
        }
        self.join(memmap, prev, next, prev, next);
        self.len -= taken;
        (taken as usize, [prev, next].map(block))
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
