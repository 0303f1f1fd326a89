//! Pools of huge folios that are cleared in advance, as hugetlbfs keeps them for a VM's memory.
//!
//! Key types: [`HugePool`], a fixed number of slots for folios of 2 MiB or 1 GiB; [`PoolFill`], one
//! `fallocate` that several CPUs share.
//!
//! Neighbours: `tlb` allocates and clears the folios. The embedder maps one in page tables of its
//! own (`pagewright-table`), as a hypervisor does with the memory of a VM: the reference of
//! [`HugePool::folio`] goes to the leaf, which keeps the folio when its slot is punched.
//!
//! Protocol: a slot is empty or holds a folio and one reference to it. A slot is filled by one
//! compare-and-exchange, so several CPUs may fill the same slots; a CPU that loses the race frees
//! its folio.
//!
//! **INV-POOL-ZERO** A folio that a pool hands out was zero to every CPU when the pool received it.
//!
//! Not guaranteed: that the folios of a range are physically contiguous. A snapshot of memory does
//! not report the references of a pool. No [`Space`](crate::Space) maps a folio of a pool, because
//! faults, fork and reclaim know no huge leaf.

use crate::error::MmError;
use crate::mm::Mm;
use alloc::boxed::Box;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use pagewright_sync::{AllocError, Platform, try_boxed};
use pagewright_tlb::frames::{ClearExtent, FolioCell, FolioFlags, FolioRef, FrameRequest, NoFrames, ZeroedBlock};
use pagewright_types::{NodeId, Order};

/// The amount that a CPU claims, and clears before it may yield: 8 MiB, as within a larger folio.
const CHUNK: Order = Order::new(11);

/// Slots for huge folios of one order and one node.
pub struct HugePool<'m, P: Platform> {
    mm: &'m Mm<P>,
    order: Order,
    node: NodeId,
    slots: Box<[FolioCell]>,
}

impl<P: Platform> Mm<P> {
    /// Makes a pool of `slots` empty slots for folios of `order` from one node.
    ///
    /// # Errors
    /// [`MmError::NoKernelMemory`]; nothing is kept.
    pub fn huge_pool(&self, order: Order, node: NodeId, slots: usize) -> Result<HugePool<'_, P>, MmError> {
        if !self.permit() {
            return Err(AllocError { bytes: slots * size_of::<FolioCell>() }.into());
        }
        Ok(HugePool { mm: self, order, node, slots: try_boxed(slots, core::iter::repeat_with(FolioCell::new))? })
    }
}

impl<'m, P: Platform> HugePool<'m, P> {
    /// The number of slots.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// The number of slots that hold a folio.
    pub fn filled(&self) -> usize {
        self.slots.iter().filter(|slot| slot.pfn().is_some()).count()
    }

    /// The folio in a slot, with a reference for the caller.
    ///
    /// # Panics
    /// If the pool has no such slot.
    pub fn folio(&self, slot: usize) -> Option<FolioRef> {
        let pfn = self.slots[slot].pfn()?;
        // Speculative: a concurrent `punch` may free the folio, and its frame may be reused.
        let folio = self.mm.frames().try_get_folio(pfn)?;
        if self.slots[slot].pfn() == Some(folio.pfn()) {
            return Some(folio);
        }
        self.mm.put_folio(folio);
        None
    }

    /// Starts a fill of `slots` (`fallocate`) that CPUs join by [`PoolFill::help`].
    ///
    /// # Panics
    /// If the pool has no such slots.
    pub fn begin_fill(&self, slots: Range<usize>) -> PoolFill<'_, 'm, P> {
        assert!(
            slots.start <= slots.end && slots.end <= self.slots.len(),
            "slots {slots:?} of a pool of {}",
            self.slots.len()
        );
        let frames = slots.len() as u64 * u64::from(self.order.frames());
        PoolFill {
            pool: self,
            next: AtomicUsize::new(slots.start),
            end: slots.end,
            whole: ClearExtent::of_frames(frames),
            failed: AtomicBool::new(false),
        }
    }

    /// Fills `slots` on this CPU alone.
    ///
    /// `yield_now` may reschedule; see [`PoolFill::help`].
    ///
    /// # Errors
    /// [`MmError`] if no memory can be allocated. As with `fallocate`, filled slots stay filled.
    ///
    /// # Panics
    /// As [`HugePool::begin_fill`].
    pub fn fill(&self, slots: Range<usize>, yield_now: impl FnMut()) -> Result<(), MmError> {
        self.begin_fill(slots).help(yield_now)
    }

    /// Empties `slots` (`FALLOC_FL_PUNCH_HOLE`), and frees the folios without other references.
    ///
    /// # Panics
    /// If the pool has no such slots.
    pub fn punch(&self, slots: Range<usize>) {
        for slot in &self.slots[slots] {
            if let Some(folio) = slot.take() {
                self.mm.put_folio(folio);
            }
        }
    }

    /// Puts a folio in a slot, or frees it if another CPU has filled the slot.
    fn put(&self, slot: usize, zeroed: ZeroedBlock) {
        let folio = self.mm.frames().new_folio(zeroed.into_block());
        self.mm.frames().folio_of(&folio).set_flags(FolioFlags::UPTODATE);
        // A CPU that finds the folio also sees its record and its zeroes.
        if let Err(folio) = self.slots[slot].fill(folio) {
            self.mm.put_folio(folio);
        }
    }
}

impl<P: Platform> Drop for HugePool<'_, P> {
    fn drop(&mut self) {
        self.punch(0..self.slots.len());
    }
}

/// One fill of a range of slots, shared by every CPU that helps.
pub struct PoolFill<'p, 'm, P: Platform> {
    pool: &'p HugePool<'m, P>,
    next: AtomicUsize,
    end: usize,
    whole: ClearExtent,
    failed: AtomicBool,
}

impl<P: Platform> PoolFill<'_, '_, P> {
    /// Fills slots on this CPU until all are filled or claimed by other CPUs.
    ///
    /// `yield_now` is called after each 8 MiB, also within a larger folio (INV-CLEAR-YIELD). At
    /// that point nothing is incoherent and no lock is held.
    ///
    /// # Errors
    /// [`MmError`] if no memory can be allocated; the other CPUs stop too. Filled slots stay
    /// filled.
    pub fn help(&self, mut yield_now: impl FnMut()) -> Result<(), MmError> {
        let order = self.pool.order;
        let claim = 1 << CHUNK.raw().saturating_sub(order.raw());
        while !self.failed.load(Ordering::Relaxed) {
            let start = self.next.fetch_add(claim, Ordering::Relaxed);
            if start >= self.end {
                break;
            }
            let filled = self.fill_range(start..(start + claim).min(self.end), &mut yield_now);
            if let Err(error) = filled {
                self.failed.store(true, Ordering::Relaxed);
                return Err(error.into());
            }
            yield_now();
        }
        Ok(())
    }

    fn fill_range(&self, slots: Range<usize>, yield_now: impl FnMut()) -> Result<(), NoFrames> {
        let pool = self.pool;
        let tlb = &pool.mm.tlb;
        let request = FrameRequest::new(pool.order, pool.node);
        let is_empty = |slot: &usize| pool.slots[*slot].pfn().is_none();
        if pool.order >= CHUNK {
            return match slots.clone().find(is_empty) {
                Some(slot) => {
                    let block = pool.mm.with_reclaim(|| tlb.alloc(request))?;
                    pool.put(slot, tlb.frames().clear_yielding(block, self.whole, yield_now));
                    Ok(())
                }
                None => Ok(()),
            };
        }
        // A batch may be short although memory is free again: only the allocator's error ends the
        // loop.
        loop {
            let wanted = slots.clone().filter(is_empty).count();
            if wanted == 0 {
                return Ok(());
            }
            let mut zeroed = pool.mm.with_reclaim(|| tlb.alloc_zeroed_batch(request, wanted, self.whole))?;
            for slot in slots.clone().filter(is_empty) {
                let Some(block) = zeroed.pop() else { break };
                pool.put(slot, block);
            }
        }
    }
}
