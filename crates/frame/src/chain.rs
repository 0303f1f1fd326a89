//! A list of blocks that needs no memory: each block's record holds the link to the next.
//!
//! For whoever must keep frames for a while and may not allocate: a gather between its edits and
//! its flush, a reserve of tables.
//!
//! Not guaranteed: any order but last in, first out.

use crate::block::Block;
use crate::frames::Frames;
use crate::record::FrameState;
use core::sync::atomic::Ordering;
use pagewright_sync::{Platform, bomb};
use pagewright_types::Pfn;

/// Where a chain of frames begins.
///
/// In which word of its record each has its link, whoever owns the chain says.
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

    /// Puts a frame at the front; returns its link, for the caller to store.
    ///
    /// The last one's is itself, since every frame number is a possible neighbour.
    #[inline]
    pub(crate) fn push(&mut self, pfn: Pfn) -> Pfn {
        self.len += 1;
        self.head.replace(pfn).unwrap_or(pfn)
    }

    /// Takes the frame at the front, whose link `link` reads.
    #[inline]
    pub(crate) fn pop(&mut self, link: impl FnOnce(Pfn) -> Pfn) -> Option<Pfn> {
        let pfn = self.head?;
        let next = link(pfn);
        self.head = (next != pfn).then_some(next);
        self.len -= 1;
        Some(pfn)
    }
}

/// Blocks chained through their records.
///
/// It owns them: empty it before it is dropped.
#[must_use = "dropping a list leaks its blocks"]
#[derive(Debug, Default)]
pub struct BlockList(Chain);

impl BlockList {
    /// The empty list.
    pub const fn new() -> Self {
        Self(Chain::new())
    }

    /// Blocks in it.
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it has none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Puts a block at the front.
    #[inline]
    pub fn push<P: Platform>(&mut self, frames: &Frames<P>, block: Block) {
        let residency = block.residency();
        let pfn = block.into_raw();
        let record = frames.memmap.at(pfn);
        record.set_residency(residency);
        debug_assert_eq!(
            record.kind().state(),
            FrameState::Allocated,
            "INV-FRAME-STATE: frame {pfn} is {:?}",
            record.kind()
        );
        record.next.store(self.0.push(pfn).raw(), Ordering::Relaxed);
    }

    /// Takes the block at the front.
    #[inline]
    pub fn pop<P: Platform>(&mut self, frames: &Frames<P>) -> Option<Block> {
        let pfn = self.0.pop(|pfn| Pfn::new(frames.memmap.at(pfn).next.load(Ordering::Relaxed)))?;
        Some(frames.block_from_raw(pfn).with_residency(frames.memmap.at(pfn).residency()))
    }
}

impl Drop for BlockList {
    fn drop(&mut self) {
        if !self.is_empty() {
            bomb::dropped(format_args!("INV-FRAME-LINEAR: leaked {} blocks in a list", self.len()));
        }
    }
}
