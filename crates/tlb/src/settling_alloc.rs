//! The settling allocator, and how dropped debts are parked for it.
//!
//! Key type: [`Tlb`], whose [`alloc`](Tlb::alloc) is the only way to a frame for crates above
//! (INV-FRAME-SEALED): the engine owns the [`FrameAllocator`](pagewright_frame::FrameAllocator) of
//! the machine, and what [`Tlb::frames`] returns cannot allocate.
//!
//! ```compile_fail,E0599
//! # use pagewright_tlb::{Tlb, frames::FrameRequest};
//! # use pagewright_types::DebtFloor;
//! fn take<P: pagewright_sync::Platform>(tlb: &Tlb<P>, request: FrameRequest) {
//!     let unsettled = tlb.frames().alloc(request, || DebtFloor::NONE);
//! }
//! ```
//!
//! A frame whose flush is owed is freed with the [`DebtKey`] of its debt. A folio that is still
//! used remembers the key until its last reference goes (`Folio::add_debt`). The allocator returns
//! an [`UnsettledBlock`], which only this crate can settle and make a [`Block`]
//! (INV-FRAME-SETTLED).
//!
//! An allocation takes a parked frame only after the allocator has learned the floor, and made the
//! frames below it free. If it still has to, one flush settles the debts of all parked frames
//! (INV-TLB-SETTLE-ALL), and the next allocations find them free. [`Tlb::settle_parked`] does so
//! ahead.
//!
//! **INV-TLB-SETTLE-ALL** An allocation takes a parked frame only if the zone has no settled one to
//! spare and the floor covers none, and then one flush settles every key that there is. So the next
//! allocations find the other frames settled. Otherwise each of many parked frames would cost a
//! flush, and frames that other flushes have settled would be taken singly.
//!
//! Neighbours: `ledger` says which CPUs owe a key; `frame` keeps settled and parked blocks apart.
//!
//! Not guaranteed: that an allocation that may wait is fast. It may flush for the sake of a debt
//! that another operation left.

use crate::context::{DeferredFlush, TlbContext};
use crate::detached::DetachedPiece;
use crate::engine::Tlb;
use crate::ledger::SpaceGeneration;
use pagewright_arch::ShootdownKind;
use pagewright_frame::{Block, BlockList, ClearExtent, FrameRequest, NoFrames, NoFramesCause};
use pagewright_frame::{UnsettledBlock, ZeroedBlock, ZeroedList};
use pagewright_plant::plant;
use pagewright_sync::{Backend, Platform};
use pagewright_types::judge::Fact;
use pagewright_types::{Counter, CpuId, CpuMask, DebtFloor, DebtKey, Order};

impl<P: Platform> Tlb<P> {
    /// Allocates a block of frames; settles the key of parked ones first.
    ///
    /// No TLB can reach the block. Its contents are undefined.
    ///
    /// # Errors
    /// [`NoFrames`] when the request cannot be met above its watermark, or when every free frame is
    /// parked and the caller may not wait for other CPUs. Nothing has changed.
    pub fn alloc(&self, request: FrameRequest) -> Result<Block, NoFrames> {
        let request = FrameRequest {
            settled_only: request.settled_only || plant!(WaitsInAtomic; false, !self.fx().may_wait()),
            ..request
        };
        let floor = || self.floor(&self.fx().online());
        let unsettled = match self.frame_allocator().alloc(request, floor) {
            Ok(unsettled) => unsettled,
            Err(refused) => self.alloc_after_settling(request, refused)?,
        };
        // All keys, not this one alone: the next allocations find the other parked frames settled.
        let block = unsettled.settle(|key| {
            let is_settled = self.ledger().is_below_clocks(key);
            if !is_settled && plant!(OneKeySettled; { self.settle(key); true }, self.settle_all_keys()) {
                self.count(Counter::PwTlbSettleOnAlloc, 1);
            }
        });
        self.fx().declare(Fact::FrameReused { pfn: block.pfn(), order: block.order() });
        Ok(block)
    }

    /// Settles every debt, so that parked frames coalesce with settled ones, and tries again.
    ///
    /// For a request that no settled and no parked block can meet alone.
    #[cold]
    fn alloc_after_settling(&self, request: FrameRequest, refused: NoFrames) -> Result<UnsettledBlock, NoFrames> {
        let may_help = refused.cause == NoFramesCause::Exhausted && !request.settled_only;
        if plant!(ParkedNotSettled; true, !may_help || self.frames().parked() == 0) {
            return Err(refused);
        }
        if self.settle_all_keys() {
            self.count(Counter::PwTlbSettleOnAlloc, 1);
        }
        self.frame_allocator().alloc(request, || self.floor(&self.fx().online()))
    }

    /// Settles the debts of all parked frames, before an allocation has to.
    ///
    /// Returns the number of frames that became free. It flushes at most once, only the CPUs that
    /// still owe, and only if a frame is parked whose debt is not settled. For an idle CPU. Takes
    /// locks of ranks `LedgerRank` and `ZoneRank`, the latter for at most 64 blocks at a time.
    ///
    /// # Panics
    /// In debug builds when a CPU owes and the caller may not wait for other CPUs.
    pub fn settle_parked(&self) -> u64 {
        let is_parked = || self.frames().parked() > 0;
        let unpark = || self.frame_allocator().unpark(self.floor(&self.fx().online()));
        let mut freed = if is_parked() { unpark() } else { 0 };
        if is_parked() {
            if self.settle_all_keys() {
                self.count(Counter::PwTlbSettleAhead, 1);
            }
            freed += unpark();
        }
        freed
    }

    /// Settles every key that there is: one flush of the CPUs that owe any.
    ///
    /// Returns whether there were such CPUs. Every frame that was parked before then owes nothing.
    #[cold]
    fn settle_all_keys(&self) -> bool {
        let online = self.fx().online();
        let (owing, settled) = self.ledger().owing_any(&online, |cpu, flushed| self.has_seen(cpu, flushed));
        self.attribute_flushes(Counter::PwTlbSettleWaits, || self.flush_owing(&owing, settled))
    }

    /// Raises the floor to the latest key up to which no CPU owes any, and returns it.
    ///
    /// Acquires the lock of rank `LedgerRank`.
    pub fn floor(&self, online: &CpuMask) -> DebtFloor {
        self.ledger().raise_floor(online, |cpu, flushed| self.has_seen(cpu, flushed))
    }

    /// The online CPUs that still owe `key`, and the number of its CPUs that do not any more.
    pub fn owing(&self, key: DebtKey) -> (CpuMask, u32) {
        self.ledger().owing_unless_seen(key, &self.fx().online(), |cpu, flushed| self.has_seen(cpu, flushed))
    }

    /// Whether a CPU has flushed a space up to a generation; any CPU may ask.
    fn has_seen(&self, cpu: CpuId, flushed: SpaceGeneration) -> bool {
        self.cpus.get(cpu).pcids.has_seen(flushed.space, flushed.generation)
    }

    /// Allocates a block and clears it, for an operation that clears `whole` in all.
    ///
    /// # Errors
    /// As [`Tlb::alloc`].
    pub fn alloc_zeroed(&self, request: FrameRequest, whole: ClearExtent) -> Result<ZeroedBlock, NoFrames> {
        let block = self.alloc(request)?;
        Ok(self.frames().pin_cpu().clear(block, whole).fence())
    }

    /// Allocates up to `blocks` blocks and clears them, with one fence for all.
    ///
    /// Returns fewer, but at least one, if memory runs out.
    ///
    /// # Errors
    /// As [`Tlb::alloc`], for the first block.
    pub fn alloc_zeroed_batch(
        &self,
        request: FrameRequest,
        blocks: usize,
        whole: ClearExtent,
    ) -> Result<ZeroedList<'_, P>, NoFrames> {
        // All of them before the first is cleared: an allocation may settle, and so wait.
        let mut dirty = BlockList::new();
        let mut fill = || {
            while dirty.len() < blocks {
                dirty.push(self.frames(), self.alloc(request)?);
            }
            Ok(())
        };
        match fill() {
            Err(refused) if dirty.is_empty() => return Err(refused),
            Ok(()) | Err(_) => {}
        }
        let cpu = self.frames().pin_cpu();
        let mut batch = cpu.batch();
        while let Some(block) = dirty.pop(self.frames()) {
            batch.add(cpu.clear(block, whole));
        }
        Ok(batch.fence())
    }

    /// Creates a request for `2^order` frames on the node of the calling CPU.
    pub fn request(&self, order: Order) -> FrameRequest {
        FrameRequest::new(order, self.frames().node_of_cpu(self.fx().cpu()))
    }

    /// Frees a block that no TLB can reach.
    pub fn free(&self, block: Block) {
        self.frames().free(block);
    }

    /// Gives up a piece that no TLB can reach.
    pub(crate) fn free_piece(&self, piece: DetachedPiece) {
        match piece {
            DetachedPiece::Block(block) => self.free(block),
            DetachedPiece::Folio(refs) => {
                if let Some(block) = self.frames().put_refs(refs) {
                    self.free(block);
                }
            }
        }
    }

    /// Settles `key`: flushes the CPUs that still owe it.
    ///
    /// # Panics
    /// In debug builds when a CPU owes it and the caller may not wait for other CPUs.
    pub fn settle(&self, key: DebtKey) {
        self.settle_owing(key);
    }

    /// As [`Tlb::settle`]; returns whether any CPU did.
    pub(crate) fn settle_owing(&self, key: DebtKey) -> bool {
        if self.ledger().is_below_clocks(key) {
            return false;
        }
        let (owing, settled) = self.owing(key);
        self.flush_owing(&owing, settled)
    }

    /// Flushes the CPUs that owe, beside `settled` that do not any more; returns whether any owed.
    fn flush_owing(&self, owing: &CpuMask, settled: u32) -> bool {
        self.count(Counter::PwTlbSettledAlready, u64::from(settled));
        if !owing.is_empty() {
            self.flush_everything(owing);
        }
        self.ledger().raise_lowest_clock(&self.fx().online());
        !owing.is_empty()
    }

    /// Records a dropped debt in its spaces and in the ledger; parks what it held under its key.
    ///
    /// `others` are the spaces that owe it beside that of `context`.
    ///
    /// INV-TLB-DEBT: the rights that the edit took away are a deferred flush of each space, which
    /// the next operation on the space makes; the frames are settled by the allocation that takes
    /// them. Infallible and without allocation; it waits for nothing but lockless walks.
    pub(crate) fn abandon<'a>(
        &self,
        context: &TlbContext,
        others: impl Iterator<Item = &'a TlbContext> + Clone,
        pieces: impl FnOnce(&mut dyn FnMut(DetachedPiece)),
    ) {
        self.fx().publish();
        let (mut mask, mut is_of_one) = (CpuMask::EMPTY, true);
        for other in others.clone() {
            mask.insert_all(&self.begin_abandoning(other).1);
            is_of_one = false;
        }
        let (generation, members) = self.begin_abandoning(context);
        mask.insert_all(&members);
        let (mask, issuer, of_space) = match self.fx().caps().shootdown {
            ShootdownKind::Ipi => {
                let of_space = SpaceGeneration { space: context.id(), generation };
                (mask, None, is_of_one.then_some(of_space))
            }
            // The issuer's next barrier completes all that was issued.
            ShootdownKind::Broadcast => {
                let me = self.fx().cpu();
                (CpuMask::of(me), Some(me), None)
            }
        };
        let key = self.ledger().open_of(mask, of_space);
        let owe = |context: &TlbContext| {
            plant!(DroppedRightsForgotten; (), context.defer_unplaced(DeferredFlush::of_key(key, issuer)));
        };
        others.for_each(owe);
        owe(context);
        self.park_dropped(key, pieces);
    }

    /// Has the CPUs of a space owe a flush: x86 by a new generation, which is returned with them.
    fn begin_abandoning(&self, context: &TlbContext) -> (u64, CpuMask) {
        self.tell_secondaries(context, None);
        // INV-TLB-SWITCH: the generation moves before the mask is read. A CPU that joins in between
        // then sees that what it kept under its tag is stale; the other way round it would use it,
        // and the debt would not name it.
        let (generation, members) = plant!(
            DebtMaskBeforeBump;
            { let mask = context.cpus(); P::Locks::point(); (context.bump(), mask) },
            { let generation = context.bump(); P::Locks::point(); (generation, context.cpus()) }
        );
        if self.fx().caps().shootdown == ShootdownKind::Broadcast {
            self.issue_whole(context);
        }
        (generation, members)
    }

    /// Parks what a dropped debt held under `key`, and counts it.
    pub(crate) fn park_dropped(&self, key: DebtKey, pieces: impl FnOnce(&mut dyn FnMut(DetachedPiece))) {
        let mut parked = 0;
        self.park_under(key, |sink| {
            pieces(&mut |piece| {
                parked += 1;
                sink(piece);
            });
        });
        self.count(Counter::PwTlbDebtParked, parked);
    }

    /// Parks pieces under `key`.
    pub(crate) fn park_under(&self, key: DebtKey, pieces: impl FnOnce(&mut dyn FnMut(DetachedPiece))) {
        pieces(&mut |piece| {
            match piece {
                DetachedPiece::Block(block) => {
                    // It may be a table, and the key says nothing of lockless walkers
                    // (INV-TLB-WALKERS).
                    if self.fx().caps().shootdown == ShootdownKind::Broadcast {
                        self.await_walkers();
                    }
                    self.frames().free_with_debt(block, key);
                }
                DetachedPiece::Folio(refs) => {
                    // INV-TLB-SHARED: the owner of the last reference does not know this key when
                    // it drops that, so the folio remembers the key.
                    self.frames().folio(refs.pfn()).add_debt(key);
                    if let Some(block) = self.frames().put_refs(refs) {
                        self.frames().free(block);
                    }
                }
            }
        });
    }
}
