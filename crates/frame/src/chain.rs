//! A list of blocks that needs no memory: each block's record holds the link to the next.
//!
//! For whoever must keep frames for a while and may not allocate: a gather between its edits and its flush, a reserve of tables.
//!
//! Not guaranteed: any order but last in, first out.

use crate::block::Block;
use crate::frames::Frames;
use crate::record::State;
use core::sync::atomic::Ordering;
use pagewright_sync::{Platform, bomb};
use pagewright_types::Pfn;

/// Blocks chained through their records. It owns them: empty it before it is dropped.
#[must_use = "dropping a list leaks its blocks"]
#[derive(Debug, Default)]
pub struct BlockList {
    head: Option<Pfn>,
    len: usize,
}

impl BlockList {
    /// The empty list.
    pub const fn new() -> Self {
        Self { head: None, len: 0 }
    }

    /// Blocks in it.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub const fn is_empty(&self) -> bool {
        self.head.is_none()
    }

    /// Puts a block at the front.
    #[inline]
    pub fn push<P: Platform>(&mut self, frames: &Frames<P>, block: Block) {
        let residency = block.residency();
        let pfn = block.into_raw();
        let record = frames.memmap.at(pfn);
        record.set_residency(residency);
        debug_assert_eq!(record.kind().state(), State::Taken, "INV-FRAME-STATE: frame {pfn} is {:?}", record.kind());
        // A block links to itself at the end, since every frame number is a possible neighbour.
        record.next.store(self.head.unwrap_or(pfn).raw(), Ordering::Relaxed);
        self.head = Some(pfn);
        self.len += 1;
    }

    /// Takes the block at the front.
    #[inline]
    pub fn pop<P: Platform>(&mut self, frames: &Frames<P>) -> Option<Block> {
        let pfn = self.head?;
        let next = Pfn::new(frames.memmap.at(pfn).next.load(Ordering::Relaxed));
        self.head = (next != pfn).then_some(next);
        self.len -= 1;
        Some(frames.block_from_raw(pfn).known(frames.memmap.at(pfn).residency()))
    }
}

impl Drop for BlockList {
    fn drop(&mut self) {
        if self.head.is_some() {
            bomb::dropped(format_args!("INV-FRAME-LINEAR: leaked {} blocks in a list", self.len));
        }
    }
}
