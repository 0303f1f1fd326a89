//! Zones: the memory of a node below 4 GiB and the memory above.
//!
//! Linux's `struct zone`, `ZONE_DMA32` and `ZONE_NORMAL`.
//!
//! Key types: `Zone`, with its buddy lists, per-CPU lists and counts; [`ZoneView`], the view of it
//! that `/proc/zoneinfo` shows.
//!
//! Locks: the list of a CPU (`PerCpuPagesRank`) outside the buddy lists of the zone (`ZoneRank`),
//! as Linux's `pcp->lock` and `zone->lock`.
//!
//! Invariants:
//! - **INV-FRAME-COUNT** `free` of a zone is the number of frames on its buddy lists, and `parked`
//!   the number of free frames whose block carries a debt key. Frames that are free, on per-CPU
//!   lists and handed out add up to what the zone manages. As in Linux's `NR_FREE_PAGES`, those on
//!   per-CPU lists are not in `free`.
//! - **INV-FRAME-RESERVE** While blocks are parked, a caller that may wait leaves as many settled
//!   frames in a zone as its `min` watermark. So a caller that must not wait finds some.
//! - **INV-FRAME-ATOMIC** Parked frames count as free for a caller that may wait and for waking
//!   reclaim, and not in the watermark check of a caller that must not wait. Otherwise such a
//!   caller would take the last settled frames. It may go below `min` as far as Linux's
//!   `GFP_ATOMIC`, so that the reserve is there for it.
//! - **INV-FRAME-HOLD** One hold of a zone's lock parks or unparks at most 64 blocks. Otherwise
//!   other CPUs would wait as long as many frames take whose debts a flush has settled.
//!
//! Not guaranteed: that `free` and `parked` agree with the lists when they are read without the
//! lock.

mod view;

pub use view::ZoneView;

use crate::buddy::{BLOCKS_PER_HOLD, Buddy, FreeKind};
use crate::clear::Residency;
use crate::memmap::Memmap;
use crate::pcp::{self, Pcp, PcpLimits};
use crate::record::{FrameKind, FrameState};
use crate::watermark::{Urgency, Watermarks};
use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering};
use pagewright_plant::plant;
use pagewright_sync::rank;
use pagewright_sync::{AllocError, Backend, LineRef, LineUse, PerCpu, SpinLock};
use pagewright_types::{CpuId, DebtFloor, DebtKey, FrameRange, NodeId, Order, Pfn};

/// The index of a zone among the zones of its machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ZoneId(u8);

impl ZoneId {
    pub(crate) const fn new(raw: u8) -> Self {
        Self(raw)
    }

    pub(crate) const fn raw(self) -> u8 {
        self.0
    }

    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for ZoneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The part of a node's memory that a zone covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ZoneKind {
    /// Below 4 GiB.
    Dma32,
    /// From 4 GiB up.
    Normal,
}

impl ZoneKind {
    /// All kinds, from low to high addresses.
    pub const ALL: [Self; 2] = [Self::Dma32, Self::Normal];
    const BOUNDARY: Pfn = Pfn::new(1 << 20);

    /// The name of the zone in `/proc/zoneinfo` and `/proc/buddyinfo`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dma32 => "DMA32",
            Self::Normal => "Normal",
        }
    }

    /// The part of `range` that lies in a zone of this kind.
    pub(crate) fn part_of(self, range: FrameRange) -> Option<FrameRange> {
        let (start, end) = match self {
            Self::Dma32 => (range.start(), range.end().min(Self::BOUNDARY)),
            Self::Normal => (range.start().max(Self::BOUNDARY), range.end()),
        };
        (start < end).then(|| FrameRange::new(start, end))
    }
}

/// What the allocator requests of a zone.
#[derive(Clone, Copy)]
pub(crate) struct ZoneRequest {
    pub(crate) order: Order,
    pub(crate) settled_only: bool,
    /// A block is cold once this many frames were freed after it.
    pub(crate) cold_after: u32,
}

/// A block that a zone hands out.
pub(crate) struct ZoneBlock {
    pub(crate) pfn: Pfn,
    pub(crate) key: DebtKey,
    pub(crate) residency: Residency,
}

/// The watermark above which a request must leave a zone.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum WatermarkLevel {
    Low,
    Min,
    None,
}

impl WatermarkLevel {
    /// The watermarks to try, in order.
    pub(crate) const fn of(urgency: Urgency) -> &'static [Self] {
        match urgency {
            Urgency::Normal => &[Self::Low, Self::Min],
            Urgency::Reserve => &[Self::Low, Self::Min, Self::None],
        }
    }
}

/// One zone of a node.
pub(crate) struct Zone<L: Backend> {
    pub(crate) node: NodeId,
    pub(crate) kind: ZoneKind,
    pub(crate) managed: u32,
    pub(crate) marks: Watermarks,
    limits: PcpLimits,
    free: AtomicU32,
    parked: AtomicU32,
    buddy: SpinLock<Buddy, rank::ZoneRank, L>,
    pcp: PerCpu<SpinLock<Pcp, rank::PerCpuPagesRank, L>>,
}

impl<L: Backend> Zone<L> {
    pub(crate) fn try_new(
        id: ZoneId,
        node: NodeId,
        kind: ZoneKind,
        managed: u32,
        marks: Watermarks,
        cpus: usize,
    ) -> Result<Self, AllocError> {
        Ok(Self {
            node,
            kind,
            managed,
            marks,
            limits: PcpLimits::of_zone(managed),
            free: AtomicU32::new(0),
            parked: AtomicU32::new(0),
            buddy: SpinLock::new(Buddy::new(id)),
            pcp: PerCpu::try_new(cpus, |_| SpinLock::new(Pcp::EMPTY))?,
        })
    }

    /// Adds free frames at boot.
    pub(crate) fn add_range(&self, memmap: &Memmap, range: FrameRange) {
        self.buddy.lock().add_range(memmap, range);
        self.add_free(range.frames());
    }

    pub(crate) fn free(&self) -> u32 {
        self.use_counts(LineUse::Load);
        self.free.load(Ordering::Relaxed)
    }

    fn add_free(&self, frames: u32) {
        self.use_counts(LineUse::Store);
        self.free.fetch_add(frames, Ordering::Relaxed);
    }

    fn sub_free(&self, frames: u32) {
        self.use_counts(LineUse::Store);
        self.free.fetch_sub(frames, Ordering::Relaxed);
    }

    fn add_parked(&self, frames: u32) {
        self.use_counts(LineUse::Store);
        self.parked.fetch_add(frames, Ordering::Relaxed);
    }

    fn sub_parked(&self, frames: u32) {
        self.use_counts(LineUse::Store);
        self.parked.fetch_sub(frames, Ordering::Relaxed);
    }

    /// Reports a use of the line of `free` and `parked`.
    #[inline]
    fn use_counts(&self, used: LineUse) {
        let number = u64::from(self.node.raw()) * ZoneKind::ALL.len() as u64 + self.kind as u64;
        L::line(LineRef::Word(number), "zone counts", used);
    }

    /// Free frames, and those of them that are parked.
    fn counts(&self) -> (u32, u32) {
        self.use_counts(LineUse::Load);
        (self.free.load(Ordering::Relaxed), self.parked.load(Ordering::Relaxed))
    }

    /// Whether at least `mark` frames remain free after a block of `order` is taken.
    ///
    /// Linux's `__zone_watermark_ok`. With `settled_only`, parked frames are not free, and the
    /// request may go as far below `min` as one with `GFP_ATOMIC`.
    #[inline]
    pub(crate) fn above(&self, mark: WatermarkLevel, order: Order, settled_only: bool) -> bool {
        if settled_only {
            return self.above_settled(mark, order);
        }
        let keep = match mark {
            WatermarkLevel::Low => self.marks.low,
            WatermarkLevel::Min => self.marks.min,
            WatermarkLevel::None => return true,
        };
        self.free() >= keep.saturating_add(plant!(OrderNotKept; 1, order.frames()))
    }

    #[cold]
    fn above_settled(&self, mark: WatermarkLevel, order: Order) -> bool {
        let keep = match mark {
            WatermarkLevel::Low => self.marks.low,
            WatermarkLevel::Min => self.marks.min_atomic(),
            WatermarkLevel::None => return true,
        };
        let (free, parked) = self.counts();
        let usable = free.saturating_sub(plant!(ParkedForAtomic; 0, parked));
        usable >= keep.saturating_add(order.frames())
    }

    /// Takes a settled block, through the per-CPU list of `cpu` if its order has one.
    #[inline(always)]
    pub(crate) fn take(&self, memmap: &Memmap, cpu: CpuId, request: ZoneRequest) -> Option<ZoneBlock> {
        if pcp::keeps(request.order)
            && let Some(block) = self.take_pcp(memmap, cpu, request)
        {
            return Some(block);
        }
        self.take_settled(memmap, request)
    }

    #[inline(always)]
    fn take_pcp(&self, memmap: &Memmap, cpu: CpuId, request: ZoneRequest) -> Option<ZoneBlock> {
        let mut pcp = self.pcp.get(cpu).lock();
        let mut block = pcp.take(memmap, request.order);
        if block.is_none() {
            self.refill(memmap, &mut pcp, request);
            block = pcp.take(memmap, request.order);
        }
        let pfn = block?;
        let residency = memmap.at(pfn).residency();
        L::line(LineRef::Record(pfn), "free block", LineUse::Store);
        memmap.transition(pfn, FrameState::Pcp, FrameState::Allocated);
        Some(ZoneBlock { pfn, key: DebtKey::NONE, residency })
    }

    /// Moves a batch from the buddy lists to a per-CPU list (Linux's `rmqueue_bulk`).
    #[cold]
    fn refill(&self, memmap: &Memmap, pcp: &mut Pcp, request: ZoneRequest) {
        let mut buddy = self.buddy.lock();
        let most = self.limits.batch(request.order).min(self.settled_for(request));
        let mut moved = 0;
        while moved < most {
            let left = (most - moved, request.cold_after);
            let taken = buddy.take_several(memmap, request.order, left, |pfn, kind, residency| {
                L::line(LineRef::Record(pfn), "free block", LineUse::Store);
                pcp.put(memmap, pfn, kind, residency, self.limits);
            });
            if taken == 0 {
                break;
            }
            moved += taken;
        }
        self.sub_free(moved << request.order.raw());
    }

    /// The number of settled blocks that a request may take before a parked one.
    ///
    /// INV-FRAME-RESERVE: the rest is left to others. The caller holds the lock.
    fn settled_for(&self, request: ZoneRequest) -> u32 {
        let (free, parked) = self.counts();
        plant!(ReserveNotKept => return u32::MAX);
        if request.settled_only || parked < request.order.frames() {
            return u32::MAX;
        }
        free.saturating_sub(parked).saturating_sub(self.marks.min).div_ceil(request.order.frames())
    }

    #[cold]
    fn take_settled(&self, memmap: &Memmap, request: ZoneRequest) -> Option<ZoneBlock> {
        let mut buddy = self.buddy.lock();
        if self.settled_for(request) == 0 {
            return None;
        }
        self.take_kind(memmap, &mut buddy, request, FreeKind::Settled)
    }

    /// Takes a parked block; if none is large enough, a settled one of the reserve.
    ///
    /// For a caller that may wait and found no settled block.
    #[cold]
    pub(crate) fn take_parked(&self, memmap: &Memmap, request: ZoneRequest) -> Option<ZoneBlock> {
        let mut buddy = self.buddy.lock();
        let kinds = [FreeKind::Parked, FreeKind::Settled];
        kinds.into_iter().find_map(|kind| self.take_kind(memmap, &mut buddy, request, kind))
    }

    fn take_kind(&self, memmap: &Memmap, buddy: &mut Buddy, request: ZoneRequest, kind: FreeKind) -> Option<ZoneBlock> {
        let (pfn, key) = buddy.take(memmap, request.order, kind)?;
        self.sub_free(request.order.frames());
        if key != DebtKey::NONE {
            self.sub_parked(request.order.frames());
            memmap.at(pfn).set_debt(DebtKey::NONE);
        }
        L::line(LineRef::Record(pfn), "free block", LineUse::Store);
        let residency = buddy.residency(memmap, pfn, request.cold_after);
        memmap.transition(pfn, FrameState::Free, FrameState::Allocated);
        Some(ZoneBlock { pfn, key, residency })
    }

    /// Unparks blocks whose debts are settled, at most [`BLOCKS_PER_HOLD`].
    ///
    /// Returns the number of their frames: 0 if `floor` covers no more.
    #[cold]
    pub(crate) fn unpark(&self, memmap: &Memmap, floor: DebtFloor) -> u32 {
        plant!(FloorNotPassedDown => return 0);
        if self.parked() == 0 {
            return 0;
        }
        let mut buddy = self.buddy.lock();
        let frames = buddy.unpark(memmap, floor);
        self.sub_parked(frames);
        frames
    }

    /// The number of free frames that carry a debt.
    pub(crate) fn parked(&self) -> u32 {
        self.use_counts(LineUse::Load);
        self.parked.load(Ordering::Relaxed)
    }

    /// Frees a block in the state `Allocated`.
    #[inline]
    pub(crate) fn put(&self, memmap: &Memmap, cpu: CpuId, pfn: Pfn, kind: FrameKind, key: DebtKey) {
        let order = kind.order();
        if key != DebtKey::NONE || !pcp::keeps(order) {
            self.put_buddy(memmap, [(pfn, order, key)]);
            return;
        }
        let mut pcp = self.pcp.get(cpu).lock();
        if pcp.put(memmap, pfn, kind, Residency::Hot, self.limits) {
            self.drain_list(memmap, &mut pcp, order, self.limits.batch(order));
        }
    }

    /// Frees the leading blocks of `blocks` that are in the zone of the first one.
    ///
    /// Returns their number.
    ///
    /// Takes the lock of the CPU's list once (`free_unref_folios`), and that of the zone once for
    /// those that pass through no such list. All blocks are in the state `Allocated`, and are at
    /// most [`BLOCKS_PER_HOLD`]. Each owes `key` and the debt in its record.
    pub(crate) fn put_many(&self, memmap: &Memmap, cpu: CpuId, blocks: &[Pfn], key: DebtKey) -> usize {
        debug_assert!(blocks.len() <= BLOCKS_PER_HOLD, "INV-FRAME-HOLD: {} blocks are freed at once", blocks.len());
        let owed = |pfn: Pfn| memmap.at(plant!(BulkDebtLost; blocks[0], pfn)).debt().merge(key);
        let id = memmap.at(blocks[0]).kind().zone();
        // One bit for each block that goes to the buddy lists.
        let (mut others, mut count) = (0_u64, 0);
        let mut pcp = self.pcp.get(cpu).lock();
        for pfn in blocks {
            let kind = memmap.at(*pfn).kind();
            if kind.zone() != id {
                break;
            }
            let order = kind.order();
            if owed(*pfn) != DebtKey::NONE || !pcp::keeps(order) {
                others |= 1 << count;
            } else if pcp.put(memmap, *pfn, kind, Residency::Hot, self.limits) {
                self.drain_list(memmap, &mut pcp, order, self.limits.batch(order));
            }
            count += 1;
        }
        drop(pcp);
        if others != 0 {
            let others = blocks.iter().enumerate().filter(|(index, _)| others >> index & 1 != 0);
            self.put_buddy(memmap, others.map(|(_, pfn)| (*pfn, memmap.at(*pfn).kind().order(), owed(*pfn))));
        }
        count
    }

    /// Puts blocks on the buddy lists, each with its order and key, under one hold of the lock.
    fn put_buddy(&self, memmap: &Memmap, blocks: impl IntoIterator<Item = (Pfn, Order, DebtKey)>) {
        let mut buddy = self.buddy.lock();
        let (mut count, mut free, mut parked) = (0, 0, 0);
        for (pfn, order, key) in blocks {
            L::line(LineRef::Record(pfn), "free block", LineUse::Store);
            if buddy.put(memmap, pfn, order, key) {
                parked += order.frames();
            }
            free += order.frames();
            count += 1;
        }
        if parked > 0 {
            buddy.note_hold(count);
            self.add_parked(parked);
        }
        self.add_free(free);
    }

    /// Moves the oldest blocks of a per-CPU list to the buddy lists (Linux's `free_pcppages_bulk`).
    #[cold]
    fn drain_list(&self, memmap: &Memmap, pcp: &mut Pcp, order: Order, blocks: u32) {
        let mut buddy = self.buddy.lock();
        let mut freed = 0;
        while freed < blocks
            && let Some(pfn) = pcp.take_oldest(memmap, order)
        {
            L::line(LineRef::Record(pfn), "free block", LineUse::Store);
            buddy.put(memmap, pfn, order, DebtKey::NONE);
            freed += 1;
        }
        self.add_free(freed << order.raw());
    }

    /// Empties the lists of all CPUs (Linux's `drain_all_pages`).
    pub(crate) fn drain(&self, memmap: &Memmap) {
        for lists in self.pcp.iter() {
            let mut pcp = lists.lock();
            if pcp.frames() > 0 {
                for order in pcp::orders() {
                    self.drain_list(memmap, &mut pcp, order, u32::MAX);
                }
            }
        }
    }
}
