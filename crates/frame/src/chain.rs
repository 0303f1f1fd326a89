//! Lists of blocks that need no memory: the record of each block holds the link to the next.
//!
//! Key types: [`BlockList`], for a caller that keeps frames for a while and may not allocate, such
//! as a gather between its edits and its flush, or a reserve of page tables; `Chain`, the links
//! alone.
//!
//! Not guaranteed: any order but last in, first out.

use crate::block::Block;
use crate::frames::Frames;
use core::sync::atomic::Ordering;
use pagewright_sync::{Platform, bomb};
use pagewright_types::Pfn;

/// A singly linked chain of frames.
///
/// The owner of the chain chooses the word of the record that holds the link.
#[derive(Debug, Default)]
pub(crate) struct Chain {
    head: Option<Pfn>,
    len: usize,
}

impl Chain {
    pub(crate) const fn new() -> Self {
        Self { head: None, len: 0 }
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.head.is_none()
    }

    /// Puts a frame at the front and returns its link, which the caller stores.
    ///
    /// The last frame of the chain links to itself, because every frame number may be a next frame.
    #[inline]
    pub(crate) fn push(&mut self, pfn: Pfn) -> Pfn {
        self.len += 1;
        self.head.replace(pfn).unwrap_or(pfn)
    }

    /// Takes the frame at the front; `link` reads its link.
    #[inline]
    pub(crate) fn pop(&mut self, link: impl FnOnce(Pfn) -> Pfn) -> Option<Pfn> {
        let pfn = self.head?;
        let next = link(pfn);
        self.head = (next != pfn).then_some(next);
        self.len -= 1;
        Some(pfn)
    }
}

/// Defines the length of a list that is a [`Chain`] of the named things.
macro_rules! chained {
    ($things:literal) => {
        /// An empty list.
        pub const fn new() -> Self {
            Self(Chain::new())
        }

        #[doc = concat!("The number of ", $things, ".")]
        pub const fn len(&self) -> usize {
            self.0.len()
        }

        #[doc = concat!("Whether the list has no ", $things, ".")]
        pub const fn is_empty(&self) -> bool {
            self.0.is_empty()
        }
    };
}
pub(crate) use chained;

/// A list of blocks, chained through their records.
///
/// The list owns the blocks. The owner must empty it before dropping it.
#[must_use = "dropping a list leaks its blocks"]
#[derive(Debug, Default)]
pub struct BlockList(Chain);

impl BlockList {
    chained!("blocks");

    /// Puts a block at the front.
    ///
    /// The block keeps its order and its residency.
    ///
    /// # Panics
    /// In debug builds when the record of the block is not in the state `Allocated`.
    #[inline]
    pub fn push<P: Platform>(&mut self, frames: &Frames<P>, block: Block) {
        let residency = block.residency();
        let pfn = block.into_raw();
        let record = frames.memmap.allocated(pfn);
        record.set_residency(residency);
        record.next.store(self.0.push(pfn).raw(), Ordering::Relaxed);
    }

    /// Takes the block at the front; `None` if the list is empty.
    #[inline]
    pub fn pop<P: Platform>(&mut self, frames: &Frames<P>) -> Option<Block> {
        let pfn = self.0.pop(|pfn| Pfn::new(frames.memmap.at(pfn).next.load(Ordering::Relaxed)))?;
        let record = frames.memmap.allocated(pfn);
        Some(Block::new(pfn, record.kind().order()).with_residency(record.residency()))
    }
}

impl Drop for BlockList {
    fn drop(&mut self) {
        if !self.is_empty() {
            bomb::dropped(format_args!("INV-FRAME-LINEAR: leaked {} blocks in a list", self.len()));
        }
    }
}
