//! Huge folios kept for one purpose and cleared ahead, as hugetlbfs keeps them for a VM's memory.
//!
//! Key types: [`HugePool`], places for folios of 2 MiB or 1 GiB; [`PoolFill`], a `fallocate` that
//! several CPUs share.
//!
//! Neighbours: `tlb` allocates and clears; who maps the folios takes references by
//! [`HugePool::folio`].
//!
//! Protocol: a place is empty or has a folio, which keeps one reference. Places are filled by one
//! exchange each, so any number of CPUs may fill the same ones; who comes second gives his folio
//! back. INV-POOL-ZERO: a folio that was put in place was zero for everybody.
//!
//! Not guaranteed: that the folios of a range lie beside each other. A snapshot of all memory does
//! not tell of a pool's references.

use crate::error::MmError;
use crate::mm::Mm;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use pagewright_sync::{AllocError, Platform};
use pagewright_tlb::frames::{ClearExtent, FolioFlags, FolioRef, FrameRequest, NoFrames, ZeroedBlock};
use pagewright_types::{NodeId, Order, Pfn};

/// No folio: the one frame number that no folio can have.
const EMPTY: u32 = u32::MAX;

/// Folios that are cleared between two chances to yield: 8 MiB, as within a larger one.
const GRAB: Order = Order::new(11);

/// Places for huge folios.
pub struct HugePool<'m, P: Platform> {
    mm: &'m Mm<P>,
    order: Order,
    node: NodeId,
    places: Box<[AtomicU32]>,
}

impl<P: Platform> Mm<P> {
    /// A pool of `places` places for folios of `order` of a node, all empty.
    ///
    /// # Errors
    /// [`MmError`] for want of kernel memory; nothing is kept.
    pub fn huge_pool(&self, order: Order, node: NodeId, places: usize) -> Result<HugePool<'_, P>, MmError> {
        let failed = || MmError::from(AllocError { bytes: places * size_of::<AtomicU32>() });
        if !self.permit() {
            return Err(failed());
        }
        let mut empty = Vec::new();
        empty.try_reserve_exact(places).map_err(|_| failed())?;
        empty.extend((0..places).map(|_| AtomicU32::new(EMPTY)));
        Ok(HugePool { mm: self, order, node, places: empty.into_boxed_slice() })
    }
}

impl<'m, P: Platform> HugePool<'m, P> {
    /// Number of places.
    pub fn places(&self) -> usize {
        self.places.len()
    }

    /// Places that have a folio.
    pub fn filled(&self) -> usize {
        self.places.iter().filter(|place| place.load(Ordering::Relaxed) != EMPTY).count()
    }

    /// The folio in a place, with a reference for the caller.
    ///
    /// # Panics
    /// When there is no such place.
    pub fn folio(&self, place: usize) -> Option<FolioRef> {
        let pfn = Pfn::new(self.places[place].load(Ordering::Acquire));
        // Without a lock: who punches meanwhile may free it, and then there is none.
        let folio = self.mm.frames().try_get_folio(pfn)?;
        if self.places[place].load(Ordering::Acquire) == folio.pfn().raw() {
            return Some(folio);
        }
        self.mm.put_folio(folio);
        None
    }

    /// Begins to fill `places` (`fallocate`).
    ///
    /// Each CPU that shall help calls [`PoolFill::help`].
    ///
    /// # Panics
    /// When there are no such places.
    pub fn begin_fill(&self, places: Range<usize>) -> PoolFill<'_, 'm, P> {
        assert!(places.start <= places.end && places.end <= self.places.len(), "places of this pool");
        let frames = places.len() as u64 * u64::from(self.order.frames());
        PoolFill {
            pool: self,
            next: AtomicUsize::new(places.start),
            end: places.end,
            whole: ClearExtent::of_frames(frames),
            failed: AtomicBool::new(false),
        }
    }

    /// Fills `places` on this CPU alone.
    ///
    /// `yield_now` may give it up.
    ///
    /// # Errors
    /// [`MmError`] when memory runs out. As with `fallocate`, what was filled stays.
    ///
    /// # Panics
    /// As of [`HugePool::begin_fill`].
    pub fn fill(&self, places: Range<usize>, yield_now: impl FnMut()) -> Result<(), MmError> {
        self.begin_fill(places).help(yield_now)
    }

    /// Empties `places` (`FALLOC_FL_PUNCH_HOLE`).
    ///
    /// Folios to which nobody else refers are freed.
    ///
    /// # Panics
    /// When there are no such places.
    pub fn punch(&self, places: Range<usize>) {
        for place in &self.places[places] {
            let raw = place.swap(EMPTY, Ordering::AcqRel);
            if raw != EMPTY {
                self.mm.put_folio(self.mm.frames().folio_ref_from_raw(Pfn::new(raw)));
            }
        }
    }

    /// Puts a folio in a place, unless there is one by now.
    fn put(&self, place: usize, zeroed: ZeroedBlock) {
        let folio = self.mm.frames().new_folio(zeroed.into_block());
        self.mm.frames().folio_of(&folio).set_flags(FolioFlags::UPTODATE);
        let pfn = folio.pfn().raw();
        // Release: who finds the folio there finds its record and its zeroes.
        match self.places[place].compare_exchange(EMPTY, pfn, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => drop(folio.into_raw()),
            Err(_) => self.mm.put_folio(folio),
        }
    }
}

impl<P: Platform> Drop for HugePool<'_, P> {
    fn drop(&mut self) {
        self.punch(0..self.places.len());
    }
}

/// Places that are being filled, by as many CPUs as help.
pub struct PoolFill<'p, 'm, P: Platform> {
    pool: &'p HugePool<'m, P>,
    next: AtomicUsize,
    end: usize,
    whole: ClearExtent,
    failed: AtomicBool,
}

impl<P: Platform> PoolFill<'_, '_, P> {
    /// Fills places on this CPU until none is left that nobody has begun.
    ///
    /// `yield_now` is called after each 8 MiB, or within a larger folio (INV-CLEAR-YIELD), with
    /// nothing incoherent and nothing held.
    ///
    /// # Errors
    /// [`MmError`] when memory runs out; the others stop, too. What was filled stays.
    pub fn help(&self, mut yield_now: impl FnMut()) -> Result<(), MmError> {
        let order = self.pool.order;
        let grab = 1 << GRAB.raw().saturating_sub(order.raw());
        while !self.failed.load(Ordering::Relaxed) {
            let start = self.next.fetch_add(grab, Ordering::Relaxed);
            if start >= self.end {
                break;
            }
            let filled = self.fill_some(start..(start + grab).min(self.end), &mut yield_now);
            if let Err(error) = filled {
                self.failed.store(true, Ordering::Relaxed);
                return Err(error.into());
            }
            yield_now();
        }
        Ok(())
    }

    fn fill_some(&self, places: Range<usize>, yield_now: impl FnMut()) -> Result<(), NoFrames> {
        let pool = self.pool;
        let tlb = &pool.mm.tlb;
        let request = FrameRequest::new(pool.order, pool.node);
        let is_empty = |place: &usize| pool.places[*place].load(Ordering::Relaxed) == EMPTY;
        if pool.order >= GRAB {
            return match places.clone().find(is_empty) {
                Some(place) => {
                    let block = pool.mm.with_reclaim(|| tlb.alloc(request))?;
                    pool.put(place, tlb.frames().clear_yielding(block, self.whole, yield_now));
                    Ok(())
                }
                None => Ok(()),
            };
        }
        // A batch may be short, and memory there again by now: only the allocator says that there
        // is none.
        loop {
            let wanted = places.clone().filter(is_empty).count();
            if wanted == 0 {
                return Ok(());
            }
            let mut zeroed = pool.mm.with_reclaim(|| tlb.alloc_zeroed_batch(request, wanted, self.whole))?;
            for place in places.clone().filter(is_empty) {
                let Some(block) = zeroed.pop() else { break };
                pool.put(place, block);
            }
        }
    }
}
