//! O1: when a frame is allocated again, no CPU reaches it through a stale translation.

use super::Oracle;
use super::condemned::{Stale, StaleReason};
use crate::tally::Antecedent;
use crate::violation::{CpuStep, Exposure, ReusedBlock, Rule, ViolationKind};
use alloc::vec::Vec;
use pagewright_types::judge::{CachedEntry, CachedEntryKind, CachedEntryState, MemoryAccess, Witness};
use pagewright_types::{Access, CpuId, FrameRange, Order, PAGE_SIZE, Pfn};

/// Whether a cached entry leads into `frames`, as a page or as a page table.
pub(super) fn reaches(cached: &CachedEntry, frames: FrameRange) -> bool {
    match cached.kind {
        CachedEntryKind::Translation { pfn, .. } => {
            FrameRange::new(pfn, Pfn::new(pfn.raw() + cached.level.pages() as u32)).overlaps(frames)
        }
        CachedEntryKind::Table { table, .. } | CachedEntryKind::Walk { table, .. } => frames.contains(table),
    }
}

/// The hash of what a frame holds (FNV-1a by words).
fn contents(witness: &dyn Witness, frame: Pfn) -> u64 {
    let words = (0..PAGE_SIZE).step_by(8).map(|offset| witness.stored(frame.base().add(offset)));
    words.fold(0xcbf2_9ce4_8422_2325, |hash, word| (hash ^ word).wrapping_mul(0x0000_0100_0000_01b3))
}

impl Oracle {
    /// The frames are free; they are parked if a CPU may still reach them.
    pub(super) fn frame_freed(&mut self, witness: &dyn Witness, by: CpuStep, pfn: Pfn, order: Order) {
        self.frames.freed(pfn, order, by);
        if witness.might_reach(pfn, order) {
            for frame in (0..order.frames()).map(|index| pfn.add(index)) {
                self.parked.insert(frame, contents(witness, frame));
            }
        }
    }

    /// Reports parked frames that hold something else than when they were freed.
    pub(super) fn judge_parked(
        &mut self,
        witness: &dyn Witness,
        by: CpuStep,
        pfn: Pfn,
        order: Order,
        freed: Option<CpuStep>,
    ) {
        if self.parked.is_empty() {
            return;
        }
        for frame in (0..order.frames()).map(|index| pfn.add(index)) {
            let Some(before) = self.parked.remove(&frame) else { continue };
            self.tally.note(Antecedent::Parked);
            if contents(witness, frame) != before {
                self.report(by.cpu, Rule::Reuse, ViolationKind::ParkedFrameChanged { pfn: frame, freed });
            }
        }
    }

    /// The kernel wrote to frames; none of them may be free.
    pub(super) fn frames_written(&mut self, cpu: CpuId, frames: FrameRange) {
        for pfn in (frames.start().raw()..frames.end().raw()).map(Pfn::new) {
            if let Some(freed) = self.frames.free_since(pfn) {
                self.step += 1;
                self.report(cpu, Rule::Reuse, ViolationKind::FreeFrameWritten { pfn, freed });
                // One report is enough: what was hashed is gone.
                self.parked.remove(&pfn);
            }
        }
    }

    pub(super) fn frame_reused(&mut self, witness: &dyn Witness, by: CpuStep, pfn: Pfn, order: Order) {
        let (freed, touched) = self.frames.reused(pfn, order);
        if touched {
            self.tally.note(Antecedent::FrameReused);
            if witness.uninterruptible().contains(by.cpu) {
                self.tally.note(Antecedent::ReusedAtOnce);
            }
        }
        self.judge_parked(witness, by, pfn, order, freed);
        if !witness.might_reach(pfn, order) {
            return;
        }
        self.tally.note(Antecedent::FrameSwept);
        let frames = FrameRange::new(pfn, pfn.add(order.frames()));
        let reason = StaleReason::Reused(ReusedBlock { pfn, order, freed, reused: by });
        let mut reaching = Vec::new();
        witness.cached(&mut |cached| {
            if reaches(&cached, frames) {
                reaching.push(cached);
            }
        });
        for held in reaching {
            match held.state {
                CachedEntryState::Usable | CachedEntryState::Speculative => {
                    self.report_stale(by.cpu, held, held.va, reason, Exposure::Immediate);
                }
                CachedEntryState::Condemned => {
                    self.tally.note(Antecedent::Condemned);
                    self.condemned.watch(Stale { held, reason });
                }
            }
        }
        self.condemned.prune(witness);
    }

    /// A program accessed a free frame.
    ///
    /// Until the frame is allocated again, the program may read its old contents, but not write.
    #[cold]
    pub(super) fn reached_free(&mut self, made: MemoryAccess, freed: CpuStep) {
        match made.access {
            Access::Read | Access::Exec => self.tally.note(Antecedent::FrameDebt),
            Access::Write => self.report(made.cpu, Rule::Reuse, ViolationKind::FreeFrameStored { made, freed }),
        }
    }
}
