//! Freeing of frames (`mm/page_alloc.c`).
//!
//! ```text
//! free(Block) ─▶ per-CPU list of the block's zone ─▶ (when it is full) buddy lists: coalesce
//! free_with_debt(Block, key) ─▶ buddy lists, parked
//! ```
//!
//! Neighbours: `zone`, `pcp` and `buddy` put the block on their lists; `release_list` drops many
//! references and frees what is left without one.
//!
//! Not guaranteed: that frames are handed out again only when no TLB reaches them. The key names
//! what must be flushed first, and `tlb` settles it in the allocation.

use crate::block::{Block, UnsettledBlock};
use crate::buddy::BLOCKS_PER_HOLD;
use crate::frames::Frames;
use crate::record::FrameState;
use pagewright_sync::Platform;
use pagewright_types::judge::Fact;
use pagewright_types::{Counter, DebtKey, Pfn};

impl<P: Platform> Frames<P> {
    /// Frees a block.
    ///
    /// Its frames owe only the debts that [`Folio::add_debt`](crate::Folio::add_debt) recorded.
    ///
    /// Takes locks of ranks `PerCpuPagesRank` and `ZoneRank`.
    #[inline]
    pub fn free(&self, block: Block) {
        self.free_with_debt(block, DebtKey::NONE);
    }

    /// Frees a block and parks its frames under a debt (`free_pages`).
    ///
    /// The allocator hands the frames out again only together with a key that covers `key` and the
    /// debts that [`Folio::add_debt`](crate::Folio::add_debt) recorded. Takes locks of ranks
    /// `PerCpuPagesRank` and `ZoneRank`.
    ///
    /// # Panics
    /// In debug builds when the frames are not an allocated block.
    #[inline]
    pub fn free_with_debt(&self, block: Block, key: DebtKey) {
        let cpu = self.machine.cpu();
        let pfn = block.into_raw();
        let record = self.memmap.at(pfn);
        let kind = record.kind();
        let key = record.debt().merge(key);
        debug_assert_eq!(kind.state(), FrameState::Allocated, "INV-FRAME-STATE: frame {pfn} is freed as {kind:?}");
        self.machine.declare(Fact::FrameFreed { pfn, order: kind.order() });
        self.zones[kind.zone().index()].put(&self.memmap, cpu, pfn, kind, key);
        self.counters.add(cpu, Counter::PgFree, u64::from(kind.order().frames()));
    }

    /// Frees many blocks that owe `key` and the debts in their records (`free_unref_folios`).
    ///
    /// Those that owe anything are parked in runs, each under one hold of their zone's lock.
    pub(crate) fn free_many(&self, blocks: &[Pfn], key: DebtKey) {
        let cpu = self.machine.cpu();
        let mut frames = 0;
        for pfn in blocks {
            let kind = self.memmap.at(*pfn).kind();
            debug_assert_eq!(kind.state(), FrameState::Allocated, "INV-FRAME-STATE: frame {pfn} is freed as {kind:?}");
            self.machine.declare(Fact::FrameFreed { pfn: *pfn, order: kind.order() });
            frames += u64::from(kind.order().frames());
        }
        let mut left = blocks;
        while let Some(first) = left.first() {
            let zone = &self.zones[self.memmap.at(*first).kind().zone().index()];
            let some = &left[..left.len().min(BLOCKS_PER_HOLD)];
            left = &left[zone.put_many(&self.memmap, cpu, some, key)..];
        }
        self.counters.add(cpu, Counter::PgFree, frames);
    }

    /// Frees a block that was just allocated and whose debt cannot be settled now.
    pub fn free_unsettled(&self, unsettled: UnsettledBlock) {
        let (block, key) = unsettled.into_parts();
        self.free_with_debt(block, key);
    }

    /// Moves all blocks from per-CPU lists to the buddy lists (`drain_all_pages`).
    ///
    /// The blocks coalesce there.
    ///
    /// Takes locks of ranks `PerCpuPagesRank` and `ZoneRank`.
    pub fn drain(&self) {
        for zone in &self.zones {
            zone.drain(&self.memmap);
        }
    }
}
