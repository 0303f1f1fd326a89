//! Tables allocated before anything is changed, so that the change can't fail.

use pagewright_sync::Platform;
use pagewright_tlb::Tlb;
use pagewright_tlb::frames::{Block, BlockList, ClearExtent, NoFrames};
use pagewright_types::{Level, Order, Pfn, SpaceId};

/// Cleared frames for tables, allocated before an edit so that the edit cannot fail.
///
/// Frames that are left when it is dropped go back to the allocator.
pub struct TableReserve<'t, P: Platform> {
    tlb: &'t Tlb<P>,
    list: BlockList,
    count: usize,
}

impl<'t, P: Platform> TableReserve<'t, P> {
    /// Creates an empty reserve.
    #[inline]
    pub fn new(tlb: &'t Tlb<P>) -> Self {
        Self { tlb, list: BlockList::new(), count: 0 }
    }

    /// Allocates until the reserve holds `count` tables.
    ///
    /// # Errors
    /// [`NoFrames`]; the reserve keeps what it holds.
    pub fn fill(&mut self, count: usize) -> Result<(), NoFrames> {
        while self.count < count {
            let cleared = self.tlb.alloc_zeroed(self.tlb.request(Order::ZERO), ClearExtent::PAGE)?;
            self.list.push(self.tlb.frames(), cleared.into_block());
            self.count += 1;
        }
        Ok(())
    }

    /// The number of tables that it holds.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Takes a cleared frame out, for a table page or to be [put back](TableReserve::put_back).
    pub(crate) fn take_frame(&mut self) -> Block {
        let block = self.list.pop(self.tlb.frames()).expect("INV-TABLE-RESERVE: filled before use");
        self.count -= 1;
        block
    }

    /// Makes a cleared frame a table page.
    pub(crate) fn take_table(&mut self, level: Level, space: SpaceId) -> Pfn {
        let block = self.take_frame();
        self.tlb.frames().new_table(block, level, space)
    }

    /// Undoes [`TableReserve::take_frame`].
    pub(crate) fn put_back(&mut self, block: Block) {
        self.list.push(self.tlb.frames(), block);
        self.count += 1;
    }
}

impl<P: Platform> Drop for TableReserve<'_, P> {
    #[inline]
    fn drop(&mut self) {
        while let Some(block) = self.list.pop(self.tlb.frames()) {
            self.tlb.free(block);
        }
    }
}
