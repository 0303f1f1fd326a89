//! Blocks between the clearing stores and the fence.
//!
//! Key types: [`PinnedCpu`], the CPU that clears; [`IncoherentBlock`] and [`ClearBatch`], cleared
//! and not fenced; [`ZeroedBlock`] and [`ZeroedList`], fenced.
//!
//! Protocol: that of the module `clear`. [`Frames::clear_yielding`] clears a block larger than a
//! chunk and may yield the CPU between chunks.
//!
//! Not guaranteed: that the frames of a value given to `core::mem::forget` are ever free again.
//! They are lost, and never mapped.

use super::backend::{self, ClearBackend};
use super::selector::{ClearExtent, ClearPolicy};
use crate::block::Block;
use crate::chain::BlockList;
use crate::frames::Frames;
use core::cell::Cell;
use core::marker::PhantomData;
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_types::{Counter, CpuId, FrameRange, Order, PAGE_SIZE, Pfn};

/// The most that is cleared without a chance to yield: 8 MiB (INV-CLEAR-YIELD).
const CHUNK: Order = Order::new(11);

/// The CPU that clears, on which the caller stays while this value exists.
///
/// The caller is neither preempted nor migrated, as [`Effects::cpu`](pagewright_arch::Effects::cpu)
/// requires. The value is not `Send`.
pub struct PinnedCpu<'m, P: Platform> {
    frames: &'m Frames<P>,
    /// The CPU at the start, to check that the caller is still on it.
    cpu: CpuId,
    /// The backend that cleared last, and how many pages it cleared that are not counted yet.
    ///
    /// Counting may be an atomic addition, which drains the store buffers as a fence does, so it is
    /// deferred to the fence or to another backend's turn.
    uncounted: Cell<(ClearBackend, u64)>,
    here: PhantomData<*mut ()>,
}

impl<P: Platform> Frames<P> {
    /// Begins clearing on the running CPU.
    pub fn pin_cpu(&self) -> PinnedCpu<'_, P> {
        let uncounted = Cell::new((ClearBackend::Machine, 0));
        PinnedCpu { frames: self, cpu: self.machine().cpu(), uncounted, here: PhantomData }
    }

    /// Clears a block of any order, in chunks of 8 MiB (INV-CLEAR-YIELD).
    ///
    /// After each chunk but the last it fences and calls `yield_now`. No stores are pending then,
    /// so `yield_now` may yield the CPU. `extent` is that of the whole operation.
    pub fn clear_yielding(&self, block: Block, extent: ClearExtent, mut yield_now: impl FnMut()) -> ZeroedBlock {
        let backend = self.clear_selector().select(block.residency(), block.order(), extent);
        let mut at = block.pfn();
        let end = at.raw() + block.order().frames();
        let chunk = block.order().min(CHUNK);
        loop {
            let next = at.add(chunk.frames());
            let more = next.raw() < end;
            {
                let cpu = self.pin_cpu();
                cpu.store(&block, at, chunk, backend);
                cpu.fence(backend.is_weak(), if more { Counter::PwClearYields } else { Counter::PwClearBatches });
            }
            if !more {
                return ZeroedBlock { block, streamed: backend.is_weak() };
            }
            at = next;
            plant!(ClearNoYield => continue);
            yield_now();
        }
    }

    /// Prefetches the line at byte `offset` of `page`, if streaming stores cleared the block.
    ///
    /// For the line that the faulting program is about to touch.
    pub fn prefetch(&self, zeroed: &ZeroedBlock, page: Pfn, offset: u64) {
        if !zeroed.streamed {
            return;
        }
        if let Some(at) = self.clear_selector().at(page, Order::ZERO) {
            debug_assert!(offset < PAGE_SIZE, "offset {offset} is not in a page");
            // A prefetch outside the map has no effect.
            backend::prefetch(at.map_addr(|at| at.saturating_add(offset as usize)));
        }
    }
}

impl<'m, P: Platform> PinnedCpu<'m, P> {
    /// Clears a block that is part of an operation of this extent.
    pub fn clear(&self, block: Block, extent: ClearExtent) -> IncoherentBlock<'_, 'm, P> {
        let backend = self.frames.clear_selector().select(block.residency(), block.order(), extent);
        self.store(&block, block.pfn(), block.order(), backend);
        IncoherentBlock { cpu: self, block: Some(block), is_weak: backend.is_weak() }
    }

    /// An empty batch, for blocks cleared on this CPU.
    pub fn batch(&self) -> ClearBatch<'_, 'm, P> {
        ClearBatch { cpu: self, list: BlockList::new(), is_weak: false }
    }

    /// Calls `wait`, which may yield the CPU, and continues on the CPU on which `wait` returns.
    ///
    /// No [`IncoherentBlock`] exists meanwhile, because it would borrow this value.
    pub fn yield_cpu(&mut self, wait: impl FnOnce(&P)) {
        wait(self.frames.machine());
        self.cpu = self.frames.machine().cpu();
    }

    /// Clears the part of `block` that begins at `pfn`.
    fn store(&self, block: &Block, pfn: Pfn, order: Order, backend: ClearBackend) {
        let frames = self.frames;
        if self.uncounted.get().0 != backend {
            self.count_cleared();
        }
        self.uncounted.set((backend, self.uncounted.get().1 + u64::from(order.frames())));
        if frames.clear_selector().policy() == ClearPolicy::CachedByPage {
            (0..order.frames()).for_each(|page| store_part(frames, block, pfn.add(page), Order::ZERO, backend));
        } else {
            store_part(frames, block, pfn, order, backend);
        }
    }

    /// Fences and counts the fence.
    fn order_stores(&self) {
        backend::fence();
        self.frames.count(Counter::PwClearFences, 1);
    }

    /// Fences if the stores were weakly ordered, and counts the pages cleared (INV-CLEAR-PINNED).
    ///
    /// `reason` is the counter that the fence increments.
    fn fence(&self, is_weak: bool, reason: Counter) {
        if is_weak {
            debug_assert_eq!(
                self.cpu,
                self.frames.machine().cpu(),
                "INV-CLEAR-PINNED: the CPU changed before the fence"
            );
            plant!(ClearNoFence; (), self.order_stores());
            self.frames.count(reason, 1);
        }
        self.count_cleared();
    }

    /// Counts the pages that the last backend cleared.
    fn count_cleared(&self) {
        let (backend, pages) = self.uncounted.get();
        if pages > 0 {
            self.frames.count(backend.counter(), pages);
            self.uncounted.set((backend, 0));
        }
    }
}

/// Clears the part of `block` that begins at `pfn`, without counting or fencing.
///
/// # Panics
/// When the part is not inside the block.
#[allow(unsafe_code)]
pub(super) fn store_part<P: Platform>(
    frames: &Frames<P>,
    block: &Block,
    pfn: Pfn,
    order: Order,
    backend: ClearBackend,
) {
    let range = FrameRange::new(block.pfn(), block.pfn().add(block.order().frames()));
    let end = pfn.add(order.frames());
    assert!(range.start() <= pfn && end <= range.end(), "INV-FRAME-LINEAR: {pfn} to {end} are not in {range:?}");
    let selector = frames.clear_selector();
    let len = order.bytes() as usize;
    match selector.at(pfn, order) {
        Some(at) if backend != ClearBackend::Machine => {
            // SAFETY: INV-LINEAR-MAP – the frames are memory, mapped for writing; INV-FRAME-LINEAR
            // – they belong to the caller, which has their block, and have no other user.
            unsafe { backend::store(backend, selector.caps(), at, plant!(ClearShort; len - 64, len)) }
        }
        _ => frames.machine().zero(pfn, order),
    }
}

/// A cleared block whose zeroes may not be visible to other CPUs yet.
///
/// Dropping it fences and frees the block.
#[must_use = "dropped, its frames are freed"]
pub struct IncoherentBlock<'c, 'm, P: Platform> {
    cpu: &'c PinnedCpu<'m, P>,
    /// `None` after a call took the block.
    block: Option<Block>,
    is_weak: bool,
}

impl<P: Platform> IncoherentBlock<'_, '_, P> {
    /// Makes the zeroes visible to all CPUs, and the block usable.
    pub fn fence(mut self) -> ZeroedBlock {
        let (block, streamed) = (self.take(), self.is_weak);
        self.cpu.fence(streamed, Counter::PwClearBatches);
        ZeroedBlock { block, streamed }
    }

    fn take(&mut self) -> Block {
        self.block.take().expect("INV-FRAME-LINEAR: a block is taken once")
    }
}

impl<P: Platform> Drop for IncoherentBlock<'_, '_, P> {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            // The next owner may store to the frames from another CPU. The pending zeroes must
            // reach memory before that.
            self.cpu.fence(self.is_weak, Counter::PwClearBatches);
            self.cpu.frames.free(block);
        }
    }
}

/// Cleared blocks that share one fence.
///
/// Dropping it fences and frees the blocks.
#[must_use = "dropped, its frames are freed"]
pub struct ClearBatch<'c, 'm, P: Platform> {
    cpu: &'c PinnedCpu<'m, P>,
    list: BlockList,
    is_weak: bool,
}

impl<'c, 'm, P: Platform> ClearBatch<'c, 'm, P> {
    /// Adds a block that was cleared on this CPU.
    pub fn add(&mut self, mut cleared: IncoherentBlock<'c, 'm, P>) {
        plant!(LastStoresDecide => self.is_weak = false);
        self.is_weak |= cleared.is_weak;
        self.list.push(self.cpu.frames, cleared.take());
    }

    /// Makes the zeroes of all blocks visible to all CPUs, by one fence.
    pub fn fence(mut self) -> ZeroedList<'m, P> {
        let list = core::mem::take(&mut self.list);
        self.cpu.fence(self.is_weak, Counter::PwClearBatches);
        ZeroedList { frames: self.cpu.frames, list, streamed: self.is_weak }
    }
}

impl<P: Platform> Drop for ClearBatch<'_, '_, P> {
    fn drop(&mut self) {
        if !self.list.is_empty() {
            self.cpu.fence(self.is_weak, Counter::PwClearBatches);
            free_all(self.cpu.frames, &mut self.list);
        }
    }
}

fn free_all<P: Platform>(frames: &Frames<P>, list: &mut BlockList) {
    while let Some(block) = list.pop(frames) {
        frames.free(block);
    }
}

/// A block whose zeroes are visible to all CPUs.
#[must_use = "dropping a block leaks its frames"]
pub struct ZeroedBlock {
    block: Block,
    streamed: bool,
}

impl ZeroedBlock {
    /// The first frame.
    pub const fn pfn(&self) -> Pfn {
        self.block.pfn()
    }

    /// The block, from which to make a folio or a table.
    pub fn into_block(self) -> Block {
        self.block
    }
}

/// Blocks whose zeroes are visible to all CPUs.
///
/// Dropping the list frees the blocks left in it.
pub struct ZeroedList<'m, P: Platform> {
    frames: &'m Frames<P>,
    list: BlockList,
    streamed: bool,
}

impl<'m, P: Platform> ZeroedList<'m, P> {
    /// An empty list.
    pub const fn empty(frames: &'m Frames<P>) -> Self {
        Self { frames, list: BlockList::new(), streamed: false }
    }

    /// Takes the block that was added last; `None` if the list is empty.
    pub fn pop(&mut self) -> Option<ZeroedBlock> {
        let block = self.list.pop(self.frames)?;
        Some(ZeroedBlock { block, streamed: self.streamed })
    }

    /// The number of blocks.
    pub const fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether the list has no blocks.
    pub const fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

impl<P: Platform> Drop for ZeroedList<'_, P> {
    fn drop(&mut self) {
        free_all(self.frames, &mut self.list);
    }
}
