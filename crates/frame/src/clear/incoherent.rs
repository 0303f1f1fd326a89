//! Blocks between their clearing and their fence.
//!
//! Key types: [`PinnedCpu`], on which somebody clears; [`IncoherentBlock`], [`ClearBatch`], cleared and
//! not fenced; [`ZeroedBlock`], [`ZeroedList`], fenced.
//!
//! Protocol: the module above. A block larger than a chunk is cleared by
//! [`Frames::clear_yielding`], which gives up the CPU in between.
//!
//! Not guaranteed: anything after `core::mem::forget`, but that the frames are lost and never
//! mapped.

use super::backend::{self, ClearBackend};
use super::selector::{ClearExtent, ClearPolicy};
use crate::block::Block;
use crate::chain::BlockList;
use crate::frames::Frames;
use core::cell::Cell;
use core::marker::PhantomData;
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_types::{Counter, CpuId, Order, PAGE_SIZE, Pfn};

/// The most that is cleared without a chance to yield: 8 MiB (INV-CLEAR-YIELD).
const CHUNK: Order = Order::new(11);

/// The CPU on which the caller stays as long as this value is there: no preemption, no migration,
/// as [`Effects::cpu`](pagewright_arch::Effects::cpu) asks. Not `Send`.
pub struct PinnedCpu<'m, P: Platform> {
    frames: &'m Frames<P>,
    /// Where it began, for the check that it is still there.
    cpu: CpuId,
    /// Pages cleared since the last fence, by each sort of stores.
    ///
    /// To count is an atomic exchange, which on x86 drains the buffers of the stores before it as a
    /// fence does, so it waits for the fence.
    uncounted: [Cell<u64>; ClearBackend::COUNT],
    here: PhantomData<*mut ()>,
}

impl<P: Platform> Frames<P> {
    /// Begins clearing on the CPU that runs.
    pub fn pin_cpu(&self) -> PinnedCpu<'_, P> {
        let uncounted = [const { Cell::new(0) }; ClearBackend::COUNT];
        PinnedCpu { frames: self, cpu: self.machine().cpu(), uncounted, here: PhantomData }
    }

    /// Clears a block of any order, with a fence and a chance to yield after each chunk of 8 MiB
    /// (INV-CLEAR-YIELD). `yield_now` runs with nothing incoherent, so it may give up the CPU.
    pub fn clear_yielding(&self, block: Block, whole: ClearExtent, mut yield_now: impl FnMut()) -> ZeroedBlock {
        let backend = self.clear_selector().select(block.residency(), whole);
        let mut at = block.pfn();
        let end = at.raw() + block.order().frames();
        let chunk = block.order().min(CHUNK);
        loop {
            let next = at.add(chunk.frames());
            let more = next.raw() < end;
            {
                let cpu = self.pin_cpu();
                cpu.store(at, chunk, backend);
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

    /// Brings the line of `page` in a block that went past the cache back into it, for who is about
    /// to touch it (the faulting address, as the review of the series asked).
    pub fn prefetch(&self, zeroed: &ZeroedBlock, page: Pfn, offset: u64) {
        if !zeroed.streamed {
            return;
        }
        if let Some(at) = self.clear_selector().at(page, Order::ZERO) {
            debug_assert!(offset < PAGE_SIZE, "an offset in a page");
            // A line beyond the map would only not be fetched.
            backend::prefetch(at.map_addr(|at| at.saturating_add(offset as usize)));
        }
    }
}

impl<'m, P: Platform> PinnedCpu<'m, P> {
    /// Clears a block that is part of an operation over `whole`.
    pub fn clear(&self, block: Block, whole: ClearExtent) -> IncoherentBlock<'_, 'm, P> {
        let backend = self.frames.clear_selector().select(block.residency(), whole);
        self.store(block.pfn(), block.order(), backend);
        IncoherentBlock { cpu: self, block: Some(block), is_weak: backend.is_weak() }
    }

    /// A batch to which cleared blocks are added.
    pub fn batch(&self) -> ClearBatch<'_, 'm, P> {
        ClearBatch { cpu: self, list: BlockList::new(), is_weak: false }
    }

    /// Lets `wait` give up the CPU, and goes on wherever it comes back.
    ///
    /// Nothing may be incoherent meanwhile: it would borrow this value.
    pub fn yield_cpu(&mut self, wait: impl FnOnce(&P)) {
        wait(self.frames.machine());
        self.cpu = self.frames.machine().cpu();
    }

    fn store(&self, pfn: Pfn, order: Order, backend: ClearBackend) {
        let frames = self.frames;
        let uncounted = &self.uncounted[backend as usize];
        uncounted.set(uncounted.get() + u64::from(order.frames()));
        if frames.clear_selector().policy() == ClearPolicy::CachedByPage {
            (0..order.frames()).for_each(|page| store_block(frames, pfn.add(page), Order::ZERO, backend));
        } else {
            store_block(frames, pfn, order, backend);
        }
    }

    /// The fence, and its count: the one is not made without the other.
    fn order_stores(&self) {
        backend::fence();
        self.frames.count(Counter::PwClearFences, 1);
    }

    /// INV-CLEAR-PINNED: the fence of the CPU that stored, if its stores want one; `why` counts it.
    ///
    /// And counts what was cleared.
    fn fence(&self, is_weak: bool, why: Counter) {
        if is_weak {
            debug_assert_eq!(self.cpu, self.frames.machine().cpu(), "INV-CLEAR-PINNED: moved with stores not fenced");
            plant!(ClearNoFence; (), self.order_stores());
            self.frames.count(why, 1);
        }
        for (backend, pages) in ClearBackend::ALL.iter().zip(&self.uncounted) {
            let pages = pages.take();
            if pages > 0 {
                self.frames.count(backend.counter(), pages);
            }
        }
    }
}

/// Clears a block of whoever calls, with nothing counted and nothing fenced.
#[allow(unsafe_code)]
pub(super) fn store_block<P: Platform>(frames: &Frames<P>, pfn: Pfn, order: Order, backend: ClearBackend) {
    let clearing = frames.clear_selector();
    let len = order.bytes() as usize;
    match clearing.at(pfn, order) {
        Some(at) if backend != ClearBackend::Machine => {
            // SAFETY: INV-LINEAR-MAP – the frames are memory, mapped for writing; INV-FRAME-LINEAR
            // – they belong to who passed the block they are of, and nobody else uses them.
            unsafe { backend::store(backend, clearing.caps(), at, plant!(ClearShort; len - 64, len)) }
        }
        _ => frames.machine().zero(pfn, order),
    }
}

/// A block that was cleared, and whose zeroes other CPUs may not see yet.
#[must_use = "dropped, its frames are freed"]
pub struct IncoherentBlock<'c, 'm, P: Platform> {
    cpu: &'c PinnedCpu<'m, P>,
    /// There until a call takes the value.
    block: Option<Block>,
    is_weak: bool,
}

impl<P: Platform> IncoherentBlock<'_, '_, P> {
    /// Makes the zeroes visible to everybody, and the block usable.
    pub fn fence(mut self) -> ZeroedBlock {
        let (block, streamed) = (self.take(), self.is_weak);
        self.cpu.fence(streamed, Counter::PwClearBatches);
        ZeroedBlock { block, streamed }
    }

    fn take(&mut self) -> Block {
        self.block.take().expect("INV-FRAME-LINEAR: taken once, by the call that ends the value")
    }
}

impl<P: Platform> Drop for IncoherentBlock<'_, '_, P> {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            // Whoever gets the frames next may store to them from another CPU: our late zeroes must
            // not come after that.
            self.cpu.fence(self.is_weak, Counter::PwClearBatches);
            self.cpu.frames.free(block);
        }
    }
}

/// Several blocks that were cleared, for one fence.
#[must_use = "dropped, its frames are freed"]
pub struct ClearBatch<'c, 'm, P: Platform> {
    cpu: &'c PinnedCpu<'m, P>,
    list: BlockList,
    is_weak: bool,
}

impl<'c, 'm, P: Platform> ClearBatch<'c, 'm, P> {
    /// Adds a block that this CPU has cleared.
    pub fn add(&mut self, mut cleared: IncoherentBlock<'c, 'm, P>) {
        self.is_weak |= cleared.is_weak;
        self.list.push(self.cpu.frames, cleared.take());
    }

    /// Makes the zeroes of all blocks visible to everybody, by one fence.
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

/// A block that is zero for everybody.
#[must_use = "dropping a block leaks its frames"]
pub struct ZeroedBlock {
    block: Block,
    streamed: bool,
}

impl ZeroedBlock {
    /// First frame.
    pub const fn pfn(&self) -> Pfn {
        self.block.pfn()
    }

    /// The block, to become a folio or a table.
    pub fn into_block(self) -> Block {
        self.block
    }
}

/// Blocks that are zero for everybody.
///
/// What is left in it when it is dropped is freed.
pub struct ZeroedList<'m, P: Platform> {
    frames: &'m Frames<P>,
    list: BlockList,
    streamed: bool,
}

impl<'m, P: Platform> ZeroedList<'m, P> {
    /// A list without blocks.
    pub const fn empty(frames: &'m Frames<P>) -> Self {
        Self { frames, list: BlockList::new(), streamed: false }
    }

    /// Takes one out, the last added first.
    pub fn pop(&mut self) -> Option<ZeroedBlock> {
        let block = self.list.pop(self.frames)?;
        Some(ZeroedBlock { block, streamed: self.streamed })
    }

    /// Blocks in it.
    pub const fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether it has none.
    pub const fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

impl<P: Platform> Drop for ZeroedList<'_, P> {
    fn drop(&mut self) {
        free_all(self.frames, &mut self.list);
    }
}
