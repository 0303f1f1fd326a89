//! Objects of up to a page, stored in frames (a small zsmalloc).
//!
//! A frame is divided into places of one size, its size class. The frames of a class with a free
//! place form a list; a frame without objects is returned. All bookkeeping is allocated when the
//! pool is made, so that storing an object takes at most a frame.
//!
//! Unlike in zsmalloc, an object does not straddle frames. So an object larger than half a frame
//! takes a whole one, and its page is stored uncompressed.
//!
//! Not guaranteed: compaction. Sparsely used frames are not merged.

use alloc::boxed::Box;
use pagewright_sync::{AllocError, try_boxed};
use pagewright_types::PAGE_SIZE;

/// The size classes in bytes: a page divided by a number of places, rounded down to 16 bytes.
const CLASSES: [u16; 19] =
    [64, 96, 128, 160, 192, 240, 272, 304, 336, 400, 448, 512, 576, 672, 816, 1024, 1360, 2048, 4096];

/// The largest object that can share its frame, in bytes.
pub(super) const LARGEST: usize = CLASSES[CLASSES.len() - 2] as usize;

/// The index of no frame, at the ends of lists.
const NIL: u32 = u32::MAX;

/// The position of an object (zsmalloc's handle).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ObjectHandle {
    /// The index of its frame in the pool.
    frame: u32,
    /// The index of its place in the frame.
    index: u8,
}

/// A frame of the pool, or an unused record for one.
struct PoolFrame<R> {
    /// The reference to the frame; `None` in an unused record.
    frame: Option<R>,
    /// A bit for each place in use; 0 in an unused record.
    in_use: u64,
    class: u8,
    /// Neighbours in the list of its class, or in the list of unused records (`next` only).
    prev: u32,
    next: u32,
}

/// Why an object cannot be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PoolError {
    /// It needs a new frame, and the caller has supplied none.
    NoFrame,
    /// It needs a new frame, and the pool has as many as it may have.
    LimitReached,
}

/// The frames and the lists that find free places; `R` owns a frame.
pub(super) struct Pool<R> {
    frames: Box<[PoolFrame<R>]>,
    /// The first unused record.
    unused: u32,
    /// For each class, the first frame with a free place.
    partial: [u32; CLASSES.len()],
    used: u32,
}

/// The size class of objects of `len` bytes.
fn class_of(len: usize) -> u8 {
    CLASSES.partition_point(|bytes| usize::from(*bytes) < len) as u8
}

fn places(class: u8) -> u32 {
    PAGE_SIZE as u32 / u32::from(CLASSES[usize::from(class)])
}

impl<R> Pool<R> {
    /// An empty pool of at most `limit` frames.
    ///
    /// # Errors
    /// [`AllocError`] if the records cannot be allocated.
    pub(super) fn try_new(limit: u32) -> Result<Self, AllocError> {
        let next = |index: u32| if index + 1 < limit { index + 1 } else { NIL };
        let empty = |index| PoolFrame { frame: None, in_use: 0, class: 0, prev: NIL, next: next(index) };
        let frames = try_boxed(limit as usize, (0..limit).map(empty))?;
        let unused = if limit > 0 { 0 } else { NIL };
        Ok(Self { frames, unused, partial: [NIL; CLASSES.len()], used: 0 })
    }

    /// The number of frames in use.
    pub(super) fn used(&self) -> u32 {
        self.used
    }

    /// Allocates a place for an object of `len` bytes, in the frame `spare` if no other has room.
    ///
    /// # Errors
    /// [`PoolError`]; nothing has changed.
    pub(super) fn alloc(&mut self, len: usize, spare: &mut Option<R>) -> Result<ObjectHandle, PoolError> {
        let class = class_of(len);
        if self.partial[usize::from(class)] == NIL {
            if self.unused == NIL {
                return Err(PoolError::LimitReached);
            }
            self.add(class, spare.take().ok_or(PoolError::NoFrame)?);
        }
        let at = self.partial[usize::from(class)];
        let frame = &mut self.frames[at as usize];
        let index = frame.in_use.trailing_ones();
        frame.in_use |= 1 << index;
        if frame.in_use.count_ones() == places(class) {
            self.remove_partial(at);
        }
        Ok(ObjectHandle { frame: at, index: index as u8 })
    }

    /// Frees a place; returns its frame if it has no other objects.
    pub(super) fn free(&mut self, handle: ObjectHandle) -> Option<R> {
        let frame = &mut self.frames[handle.frame as usize];
        let was_full = frame.in_use.count_ones() == places(frame.class);
        debug_assert!(frame.in_use & 1 << handle.index != 0, "{handle:?} is freed but not in use");
        frame.in_use &= !(1 << handle.index);
        if frame.in_use != 0 {
            if was_full {
                self.add_partial(handle.frame);
            }
            return None;
        }
        if !was_full {
            self.remove_partial(handle.frame);
        }
        let frame = &mut self.frames[handle.frame as usize];
        frame.next = self.unused;
        self.unused = handle.frame;
        self.used -= 1;
        frame.frame.take()
    }

    /// The frame of an object, and the offset of the object's bytes in it.
    ///
    /// # Panics
    /// If there is no such object.
    pub(super) fn object(&self, handle: ObjectHandle) -> (&R, u64) {
        let PoolFrame { frame, class, .. } = &self.frames[handle.frame as usize];
        let bytes = u64::from(CLASSES[usize::from(*class)]);
        (frame.as_ref().expect("an object has a frame"), u64::from(handle.index) * bytes)
    }

    /// The frames in use.
    pub(super) fn iter(&self) -> impl Iterator<Item = &R> {
        self.frames.iter().filter_map(|frame| frame.frame.as_ref())
    }

    fn add(&mut self, class: u8, new: R) {
        let at = self.unused;
        let frame = &mut self.frames[at as usize];
        self.unused = frame.next;
        *frame = PoolFrame { frame: Some(new), in_use: 0, class, prev: NIL, next: NIL };
        self.used += 1;
        self.add_partial(at);
    }

    fn add_partial(&mut self, at: u32) {
        let first = &mut self.partial[usize::from(self.frames[at as usize].class)];
        let next = core::mem::replace(first, at);
        self.frames[at as usize].prev = NIL;
        self.frames[at as usize].next = next;
        if next != NIL {
            self.frames[next as usize].prev = at;
        }
    }

    fn remove_partial(&mut self, at: u32) {
        let PoolFrame { class, prev, next, .. } = &self.frames[at as usize];
        let (class, prev, next) = (*class, *prev, *next);
        match prev {
            NIL => self.partial[usize::from(class)] = next,
            prev => self.frames[prev as usize].next = next,
        }
        if next != NIL {
            self.frames[next as usize].prev = prev;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use alloc::vec::Vec;
    use pagewright_types::Pfn;

    #[test]
    fn every_size_has_the_smallest_class_that_fits() {
        for len in 1..=PAGE_SIZE as usize {
            let class = class_of(len);
            let bytes = usize::from(CLASSES[usize::from(class)]);
            assert!(bytes >= len && (class == 0 || usize::from(CLASSES[usize::from(class) - 1]) < len));
            assert!((1..=64).contains(&places(class)));
        }
        assert_eq!(places(class_of(LARGEST)), 2);
        assert_eq!(places(class_of(LARGEST + 1)), 1);
    }

    /// Objects are stored and freed at random; a frame is in the pool exactly while it has one.
    #[test]
    fn objects_do_not_overlap_and_empty_frames_are_returned() {
        const LIMIT: u32 = 40;
        let mut pool = Pool::try_new(LIMIT).expect("memory");
        let (mut next, mut seed) = (100, 12345_u64);
        let mut objects: BTreeMap<u64, (usize, ObjectHandle)> = BTreeMap::new();
        let mut frames = 0;
        let mut limited = false;
        for step in 0..20_000_u64 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let random = seed >> 33;
            // Mostly stores in the first half, mostly frees in the second.
            if random % 100 < if step < 10_000 { 60 } else { 40 } {
                let len = (random / 100 % PAGE_SIZE) as usize + 1;
                let mut spare = Some(Pfn::new(next));
                match pool.alloc(len, &mut spare) {
                    Ok(handle) => {
                        frames += u32::from(spare.is_none());
                        next += u32::from(spare.is_none());
                        let (frame, offset) = pool.object(handle);
                        let start = frame.base().add(offset).raw();
                        assert_eq!(start / PAGE_SIZE, (start + len as u64 - 1) / PAGE_SIZE);
                        let before = objects.range(..start + len as u64).next_back();
                        assert!(before.is_none_or(|(at, (len, _))| at + *len as u64 <= start));
                        objects.insert(start, (len, handle));
                    }
                    Err(lack) => {
                        assert_eq!((lack, frames), (PoolError::LimitReached, LIMIT));
                        limited = true;
                    }
                }
            } else if !objects.is_empty() {
                let at = *objects.keys().nth(random as usize % objects.len()).expect("one of them");
                let (_, handle) = objects.remove(&at).expect("it is there");
                let freed = pool.free(handle);
                let in_frame = objects.range(at / PAGE_SIZE * PAGE_SIZE..).next().map(|(at, _)| at / PAGE_SIZE);
                assert_eq!(freed.is_some(), in_frame != Some(at / PAGE_SIZE));
                frames -= u32::from(freed.is_some());
            }
            assert_eq!((pool.used(), pool.iter().count() as u32), (frames, frames));
        }
        assert!(limited, "the limit was never reached");
        for (_, (_, handle)) in objects {
            frames -= u32::from(pool.free(handle).is_some());
        }
        assert_eq!((pool.used(), frames), (0, 0));
    }

    /// A frame that was full takes the next object once it has room again.
    #[test]
    fn a_place_that_was_freed_in_a_full_frame_is_used_again() {
        let mut pool = Pool::try_new(2).expect("memory");
        let fill = |pool: &mut Pool<Pfn>, frame| {
            let mut spare = Some(Pfn::new(frame));
            let places = places(class_of(LARGEST));
            (0..places).map(|_| pool.alloc(LARGEST, &mut spare).expect("room")).collect::<Vec<_>>()
        };
        let [first, second] = [7, 8].map(|frame| fill(&mut pool, frame));
        assert_eq!((pool.used(), pool.alloc(LARGEST, &mut None)), (2, Err(PoolError::LimitReached)));
        for handle in [first[0], second[1]] {
            assert_eq!(pool.free(handle), None, "its frame has another object");
            assert_eq!(pool.alloc(LARGEST, &mut None), Ok(handle));
        }
    }

    #[test]
    fn a_new_frame_is_needed_only_without_room_and_below_the_limit() {
        let mut pool = Pool::try_new(1).expect("memory");
        assert_eq!(pool.alloc(64, &mut None), Err(PoolError::NoFrame));
        assert!(pool.alloc(64, &mut Some(Pfn::new(7))).is_ok());
        assert!(pool.alloc(64, &mut None).is_ok(), "the frame has room");
        assert_eq!(pool.alloc(65, &mut Some(Pfn::new(8))), Err(PoolError::LimitReached));
        assert_eq!(Pool::<Pfn>::try_new(0).expect("memory").alloc(1, &mut None), Err(PoolError::LimitReached));
    }
}
