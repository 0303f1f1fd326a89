//! O1: when a frame is allocated again, no CPU reaches it through a stale translation.

use super::Oracle;
use super::condemned::{Stale, StaleReason};
use crate::tally::Antecedent;
use crate::violation::{CpuStep, Exposure, ReusedBlock, Rule, ViolationKind};
use alloc::vec::Vec;
use pagewright_types::judge::{CachedEntry, CachedEntryKind, CachedEntryState, MemoryAccess, Witness};
use pagewright_types::{Access, FrameRange, Order, Pfn};

/// Whether a cached entry leads into `frames`, as a page or as a page table.
fn reaches(cached: &CachedEntry, frames: FrameRange) -> bool {
    match cached.kind {
        CachedEntryKind::Translation { pfn, .. } => {
            FrameRange::new(pfn, Pfn::new(pfn.raw() + cached.level.pages() as u32)).overlaps(frames)
        }
        CachedEntryKind::Table { table, .. } | CachedEntryKind::Walk { table, .. } => frames.contains(table),
    }
}

impl Oracle {
    pub(super) fn frame_reused(&mut self, witness: &dyn Witness, by: CpuStep, pfn: Pfn, order: Order) {
        let (freed, touched) = self.frames.reused(pfn, order);
        if touched {
            self.tally.note(Antecedent::FrameReused);
        }
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
