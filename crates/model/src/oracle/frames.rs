//! The history of each frame: its last freeing, and accesses since its last allocation.
//!
//! Every access looks here, so the history is an array of bitmaps, allocated in blocks on first
//! use.

use crate::violation::CpuStep;
use alloc::boxed::Box;
use alloc::vec::Vec;
use pagewright_types::{CpuId, Order, Pfn};

const BLOCK: usize = 512;

#[derive(Clone, Copy)]
struct Event {
    step: u64,
    cpu: CpuId,
}

struct Block {
    /// Freed, and not allocated since.
    free: [u64; BLOCK / 64],
    /// Accessed by a program since its allocation.
    touched: [u64; BLOCK / 64],
    /// When the frame was last freed; step 0 means never.
    freed: [Event; BLOCK],
}

/// A block, the number of 64 frames in it, and which of them are free.
pub(super) type FreeFrames = (usize, usize, u64);

/// All frames of the machine.
#[derive(Default)]
pub(super) struct Frames(Vec<Option<Box<Block>>>);

fn place(pfn: Pfn) -> (usize, usize) {
    (pfn.index() / BLOCK, pfn.index() % BLOCK)
}

impl Frames {
    fn block(&mut self, index: usize) -> &mut Block {
        if index >= self.0.len() {
            self.0.resize_with(index + 1, || None);
        }
        self.0[index].get_or_insert_with(|| {
            let never = Event { step: 0, cpu: CpuId::new(0) };
            Box::new(Block { free: [0; BLOCK / 64], touched: [0; BLOCK / 64], freed: [never; BLOCK] })
        })
    }

    fn each(&mut self, pfn: Pfn, order: Order, mut edit: impl FnMut(&mut Block, usize)) {
        for offset in 0..order.frames() {
            let (block, index) = place(pfn.add(offset));
            edit(self.block(block), index);
        }
    }

    pub(super) fn freed(&mut self, pfn: Pfn, order: Order, by: CpuStep) {
        self.each(pfn, order, |block, index| {
            block.free[index / 64] |= 1 << (index % 64);
            block.freed[index] = Event { step: by.step, cpu: by.cpu };
        });
    }

    /// Whether the frame is free, and since when.
    pub(super) fn free_since(&self, pfn: Pfn) -> Option<CpuStep> {
        let (block, index) = place(pfn);
        let free = self.0.get(block)?.as_ref()?.free[index / 64] & 1 << (index % 64) != 0;
        if free { self.last_freed(pfn) } else { None }
    }

    /// Calls `visit` for each 64 frames of which some are free.
    pub(super) fn free_frames(&self, visit: &mut dyn FnMut(FreeFrames)) {
        for (index, block) in self.0.iter().enumerate() {
            let words = block.iter().flat_map(|block| block.free).enumerate();
            words.filter(|(_, free)| *free != 0).for_each(|(word, free)| visit((index, word, free)));
        }
    }

    /// Whether a program has accessed the frame since its last allocation.
    pub(super) fn is_touched(&self, pfn: Pfn) -> bool {
        let (block, index) = place(pfn);
        let block = self.0.get(block).and_then(Option::as_ref);
        block.is_some_and(|block| block.touched[index / 64] & 1 << (index % 64) != 0)
    }

    /// The frames are allocated.
    ///
    /// Returns when the first of them was last freed, and whether a program accessed any of them
    /// since their previous allocation.
    pub(super) fn reused(&mut self, pfn: Pfn, order: Order) -> (Option<CpuStep>, bool) {
        let mut touched = false;
        self.each(pfn, order, |block, index| {
            let bit = 1 << (index % 64);
            block.free[index / 64] &= !bit;
            touched |= block.touched[index / 64] & bit != 0;
            block.touched[index / 64] &= !bit;
        });
        (self.last_freed(pfn), touched)
    }

    fn last_freed(&self, pfn: Pfn) -> Option<CpuStep> {
        let (block, index) = place(pfn);
        let event = self.0.get(block)?.as_ref()?.freed[index];
        (event.step > 0).then_some(CpuStep { cpu: event.cpu, step: event.step })
    }

    /// A program accesses the frame.
    ///
    /// Returns when the frame was freed, if it is free now.
    #[inline]
    pub(super) fn touch(&mut self, pfn: Pfn) -> Option<CpuStep> {
        let (block, index) = place(pfn);
        let bit = 1 << (index % 64);
        let found = match self.0.get_mut(block) {
            Some(Some(found)) => found,
            Some(None) | None => self.block(block),
        };
        found.touched[index / 64] |= bit;
        let free = found.free[index / 64] & bit != 0;
        if free { self.last_freed(pfn) } else { None }
    }
}
