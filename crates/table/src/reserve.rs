//! Tables allocated before anything is changed, so that the change can't fail.
//!
//! **INV-TABLE-RESERVE** Tables come from a reserve that holds what `missing` counted, so no edit
//! fails half-way.

use pagewright_sync::Platform;
use pagewright_tlb::Tlb;
use pagewright_tlb::frames::{Block, BlockList, ClearExtent, NoFrames};
use pagewright_types::{Level, Order, Pfn, SpaceId};

/// Frames for tables, allocated before an edit so that the edit cannot fail.
///
/// Those of tables are cleared. Those of deposits are not, because a split stores every entry
/// before it hooks a deposit. Frames that are left when it is dropped go back to the allocator.
pub struct TableReserve<'t, P: Platform> {
    tlb: &'t Tlb<P>,
    list: BlockList,
    deposits: BlockList,
}

impl<'t, P: Platform> TableReserve<'t, P> {
    /// Creates an empty reserve.
    #[inline]
    pub fn new(tlb: &'t Tlb<P>) -> Self {
        Self { tlb, list: BlockList::new(), deposits: BlockList::new() }
    }

    /// The engine whose memory it is.
    #[inline]
    pub(crate) fn tlb(&self) -> &'t Tlb<P> {
        self.tlb
    }

    /// Allocates until the reserve holds `count` tables.
    ///
    /// # Errors
    /// [`NoFrames`]; the reserve keeps what it holds.
    pub fn fill(&mut self, count: usize) -> Result<(), NoFrames> {
        while self.list.len() < count {
            let cleared = self.tlb.alloc_zeroed(self.tlb.request(Order::ZERO), ClearExtent::PAGE)?;
            self.list.push(self.tlb.frames(), cleared.into_block());
        }
        Ok(())
    }

    /// Allocates until the reserve holds the deposits of `count` huge leaves.
    ///
    /// # Errors
    /// [`NoFrames`]; the reserve keeps what it holds.
    pub fn fill_deposits(&mut self, count: usize) -> Result<(), NoFrames> {
        while self.deposits.len() < count {
            let block = self.tlb.alloc(self.tlb.request(Order::ZERO))?;
            self.deposits.push(self.tlb.frames(), block);
        }
        Ok(())
    }

    /// The number of tables that it holds, without deposits.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether it holds no table.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes a cleared frame out, for a table page or to be [put back](TableReserve::put_back).
    pub(crate) fn take_frame(&mut self) -> Block {
        self.list.pop(self.tlb.frames()).expect("INV-TABLE-RESERVE: filled before use")
    }

    /// Makes a cleared frame a table page.
    pub(crate) fn take_table(&mut self, level: Level, space: SpaceId) -> Pfn {
        let block = self.take_frame();
        self.tlb.frames().new_table(block, level, space)
    }

    /// Makes a frame the deposit of a huge leaf.
    pub(crate) fn take_deposit(&mut self, space: SpaceId) -> Pfn {
        let block = self.deposits.pop(self.tlb.frames()).expect("INV-TABLE-RESERVE: filled before use");
        self.tlb.frames().new_table(block, Level::PTE, space)
    }

    /// Undoes [`TableReserve::take_frame`].
    pub(crate) fn put_back(&mut self, block: Block) {
        self.list.push(self.tlb.frames(), block);
    }
}

impl<P: Platform> Drop for TableReserve<'_, P> {
    #[inline]
    fn drop(&mut self) {
        for list in [&mut self.list, &mut self.deposits] {
            while let Some(block) = list.pop(self.tlb.frames()) {
                self.tlb.free(block);
            }
        }
    }
}
