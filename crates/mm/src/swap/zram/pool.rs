//! Objects of any size up to a page, in frames (zsmalloc in small).
//!
//! A frame is cut into places of one size, its class. Frames of a class that have a free place are
//! chained; one that has none left in use is given back. Everything that is needed to keep the
//! books is there from the beginning, so that storing a page takes a frame and nothing else.
//!
//! An object does not straddle frames as zsmalloc's do. So what is larger than half a page takes a
//! frame, and is kept as it is.
//!
//! Not guaranteed: that frames which are little used are ever joined (zsmalloc's compaction).

use alloc::boxed::Box;
use alloc::vec::Vec;
use pagewright_sync::AllocError;
use pagewright_types::{PAGE_SIZE, Pfn, PhysAddr};

/// Bytes of an object of each class: page sizes divided by a number of places, a multiple of 16
/// bytes, at most a third more than the class below.
const CLASSES: [u16; 19] =
    [64, 96, 128, 160, 192, 240, 272, 304, 336, 400, 448, 512, 576, 672, 816, 1024, 1360, 2048, 4096];

/// The largest object that shares its frame.
pub(super) const LARGEST: usize = CLASSES[CLASSES.len() - 2] as usize;

/// No frame of the pool.
const NIL: u32 = u32::MAX;

/// Where an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Which frame of the pool.
    frame: u32,
    /// Which of its places.
    index: u8,
}

/// A frame of the pool, or room for one.
#[derive(Clone, Copy)]
struct Frame {
    pfn: Pfn,
    /// Which places are taken; none in what has no frame.
    taken: u64,
    class: u8,
    /// Neighbours in the chain of its class, or of those without a frame (`next` only).
    prev: u32,
    next: u32,
}

/// What an object needs before it can be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lack {
    /// A frame.
    Frame,
    /// There are as many frames as there may be.
    Limit,
}

/// The frames, and which places are free.
pub(super) struct Pool {
    frames: Box<[Frame]>,
    /// The first without a frame.
    vacant: u32,
    /// Of each class, the first with a free place.
    roomy: [u32; CLASSES.len()],
    used: u32,
}

/// The class of objects of `len` bytes.
fn class_of(len: usize) -> u8 {
    CLASSES.partition_point(|bytes| usize::from(*bytes) < len) as u8
}

fn places(class: u8) -> u32 {
    PAGE_SIZE as u32 / u32::from(CLASSES[usize::from(class)])
}

impl Pool {
    /// An empty pool that may have up to `limit` frames.
    ///
    /// # Errors
    /// [`AllocError`] for the books.
    pub(super) fn try_new(limit: u32) -> Result<Self, AllocError> {
        let mut frames = Vec::new();
        let bytes = limit as usize * size_of::<Frame>();
        frames.try_reserve_exact(limit as usize).map_err(|_| AllocError { bytes })?;
        let next = |index: u32| if index + 1 < limit { index + 1 } else { NIL };
        frames.extend((0..limit).map(|index| Frame {
            pfn: Pfn::new(0),
            taken: 0,
            class: 0,
            prev: NIL,
            next: next(index),
        }));
        let vacant = if limit > 0 { 0 } else { NIL };
        Ok(Self { frames: frames.into_boxed_slice(), vacant, roomy: [NIL; CLASSES.len()], used: 0 })
    }

    /// Frames in use.
    pub(super) fn used(&self) -> u32 {
        self.used
    }

    /// Frames that there may be.
    pub(super) fn limit(&self) -> u32 {
        self.frames.len() as u32
    }

    /// Takes a place for an object of `len` bytes, in a new frame – `spare` – if no other has room.
    ///
    /// # Errors
    /// [`Lack`]; nothing has changed.
    pub(super) fn take(&mut self, len: usize, spare: &mut Option<Pfn>) -> Result<Place, Lack> {
        let class = class_of(len);
        if self.roomy[usize::from(class)] == NIL {
            if self.vacant == NIL {
                return Err(Lack::Limit);
            }
            self.add(class, spare.take().ok_or(Lack::Frame)?);
        }
        let at = self.roomy[usize::from(class)];
        let frame = &mut self.frames[at as usize];
        let index = frame.taken.trailing_ones();
        frame.taken |= 1 << index;
        if frame.taken.count_ones() == places(class) {
            self.unchain(at);
        }
        Ok(Place { frame: at, index: index as u8 })
    }

    /// Gives a place back; returns the frame if nothing else is in it.
    pub(super) fn give(&mut self, place: Place) -> Option<Pfn> {
        let frame = &mut self.frames[place.frame as usize];
        let was_full = frame.taken.count_ones() == places(frame.class);
        debug_assert!(frame.taken & 1 << place.index != 0, "{place:?} is given back and was not taken");
        frame.taken &= !(1 << place.index);
        let (left, pfn) = (frame.taken, frame.pfn);
        if left != 0 {
            if was_full {
                self.chain(place.frame);
            }
            return None;
        }
        if !was_full {
            self.unchain(place.frame);
        }
        self.frames[place.frame as usize].next = self.vacant;
        self.vacant = place.frame;
        self.used -= 1;
        Some(pfn)
    }

    /// Where the bytes of an object are.
    ///
    /// They lie within one frame.
    pub(super) fn address(&self, place: Place) -> PhysAddr {
        let frame = &self.frames[place.frame as usize];
        let bytes = u64::from(CLASSES[usize::from(frame.class)]);
        frame.pfn.base().add(u64::from(place.index) * bytes)
    }

    /// The frames in use.
    pub(super) fn iter(&self) -> impl Iterator<Item = Pfn> {
        self.frames.iter().filter(|frame| frame.taken != 0).map(|frame| frame.pfn)
    }

    fn add(&mut self, class: u8, pfn: Pfn) {
        let at = self.vacant;
        let frame = &mut self.frames[at as usize];
        self.vacant = frame.next;
        *frame = Frame { pfn, taken: 0, class, prev: NIL, next: NIL };
        self.used += 1;
        self.chain(at);
    }

    fn chain(&mut self, at: u32) {
        let first = &mut self.roomy[usize::from(self.frames[at as usize].class)];
        let next = core::mem::replace(first, at);
        self.frames[at as usize].prev = NIL;
        self.frames[at as usize].next = next;
        if next != NIL {
            self.frames[next as usize].prev = at;
        }
    }

    fn unchain(&mut self, at: u32) {
        let Frame { class, prev, next, .. } = self.frames[at as usize];
        match prev {
            NIL => self.roomy[usize::from(class)] = next,
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

    #[test]
    fn a_class_wastes_little_and_fills_its_frame() {
        for len in 1..=PAGE_SIZE as usize {
            let class = class_of(len);
            let bytes = usize::from(CLASSES[usize::from(class)]);
            assert!(bytes >= len && (class == 0 || usize::from(CLASSES[usize::from(class) - 1]) < len));
            assert!((1..=64).contains(&places(class)));
        }
        assert_eq!(places(class_of(LARGEST)), 2);
        assert_eq!(places(class_of(LARGEST + 1)), 1);
    }

    /// Objects come and go; none overlaps another, and a frame is there exactly as long as
    /// something is in it.
    #[test]
    fn places_are_had_once_and_frames_go_with_their_last() {
        const LIMIT: u32 = 40;
        let mut pool = Pool::try_new(LIMIT).expect("memory");
        let (mut next, mut seed) = (100, 12345_u64);
        let mut objects: BTreeMap<u64, (usize, Place)> = BTreeMap::new();
        let mut frames = 0;
        let mut limited = false;
        for step in 0..20_000_u64 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let random = seed >> 33;
            // More is stored than forgotten in the first half, and the other way round in the
            // second.
            if random % 100 < if step < 10_000 { 60 } else { 40 } {
                let len = (random / 100 % PAGE_SIZE) as usize + 1;
                let mut spare = Some(Pfn::new(next));
                match pool.take(len, &mut spare) {
                    Ok(place) => {
                        frames += u32::from(spare.is_none());
                        next += u32::from(spare.is_none());
                        let start = pool.address(place).raw();
                        assert_eq!(start / PAGE_SIZE, (start + len as u64 - 1) / PAGE_SIZE);
                        let before = objects.range(..start + len as u64).next_back();
                        assert!(before.is_none_or(|(at, (len, _))| at + *len as u64 <= start));
                        objects.insert(start, (len, place));
                    }
                    Err(lack) => {
                        assert_eq!((lack, frames), (Lack::Limit, LIMIT));
                        limited = true;
                    }
                }
            } else if !objects.is_empty() {
                let at = *objects.keys().nth(random as usize % objects.len()).expect("one of them");
                let (_, place) = objects.remove(&at).expect("it is there");
                let freed = pool.give(place);
                let in_frame = objects.range(at / PAGE_SIZE * PAGE_SIZE..).next().map(|(at, _)| at / PAGE_SIZE);
                assert_eq!(freed.is_some(), in_frame != Some(at / PAGE_SIZE));
                frames -= u32::from(freed.is_some());
            }
            assert_eq!((pool.used(), pool.iter().count() as u32), (frames, frames));
        }
        assert!(limited, "the limit was never reached");
        for (_, (_, place)) in objects {
            frames -= u32::from(pool.give(place).is_some());
        }
        assert_eq!((pool.used(), frames), (0, 0));
    }

    #[test]
    fn a_pool_without_a_frame_asks_for_one() {
        let mut pool = Pool::try_new(1).expect("memory");
        assert_eq!(pool.take(64, &mut None), Err(Lack::Frame));
        assert!(pool.take(64, &mut Some(Pfn::new(7))).is_ok());
        assert!(pool.take(64, &mut None).is_ok(), "there is room beside it");
        assert_eq!(pool.take(65, &mut Some(Pfn::new(8))), Err(Lack::Limit));
        assert_eq!(Pool::try_new(0).expect("memory").take(1, &mut None), Err(Lack::Limit));
    }
}
