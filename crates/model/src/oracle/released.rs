//! O1 when a frame is given back: any CPU may allocate it at once, so nothing reaches it now.
//!
//! [`Fact::FrameReleased`](pagewright_types::judge::Fact::FrameReleased) says that no flush is owed
//! for the frame. So the judge need not wait until the frame is allocated again, which may never
//! happen in a short run. Two things are judged:
//!
//! - what CPUs have cached ([`super::reuse`]): translations, walk-cache entries, walks in flight;
//! - the tables of each root that a CPU has loaded. A frame to which they lead is in use, and a
//!   walk may reach it at any time. Leaves that user mode cannot use count only in the kernel's
//!   range, because a kernel may map all of memory elsewhere.
//!
//! What is cached under a tag that is not loaded is judged when the frame is allocated: the flush
//! may come with the next use of the tag.

use super::Oracle;
use super::reuse::reaches;
use crate::tally::Antecedent;
use crate::violation::{CpuStep, Rule, ViolationKind};
use crate::walk;
use alloc::vec::Vec;
use pagewright_types::judge::{CachedEntryKind, CachedEntryState, Witness};
use pagewright_types::{CpuId, FrameRange, Order, Pfn, VirtAddr};

impl Oracle {
    pub(super) fn frame_released(&mut self, witness: &dyn Witness, by: CpuStep, pfn: Pfn, order: Order) {
        let frames = FrameRange::new(pfn, pfn.add(order.frames()));
        let each = || (0..order.frames()).map(|index| pfn.add(index));
        if each().any(|frame| self.frames.is_touched(frame)) {
            self.tally.note(Antecedent::PageReleased);
        }
        if each().any(|frame| witness.is_walked_table(frame)) {
            self.tally.note(Antecedent::TableReleased);
        }
        match self.frames.free_since(pfn) {
            Some(parked) => self.judge_parked(witness, by, pfn, order, Some(parked)),
            None => self.frames.freed(pfn, order, by),
        }
        if let Some((cpu, root, va)) = self.in_loaded_tables(witness, frames) {
            self.report(by.cpu, Rule::Reuse, ViolationKind::ReleasedFrameMapped { pfn, cpu, root, va });
        }
        if !witness.might_reach(pfn, order) {
            return;
        }
        let mut held = Vec::new();
        witness.cached(&mut |cached| {
            let usable = match cached.kind {
                CachedEntryKind::Translation { rights, .. } => !rights.is_empty(),
                CachedEntryKind::Table { .. } | CachedEntryKind::Walk { .. } => true,
            };
            if usable && cached.state != CachedEntryState::Condemned && reaches(&cached, frames) {
                held.push(cached);
            }
        });
        for held in held {
            self.report(by.cpu, Rule::Reuse, ViolationKind::ReleasedFrameReachable { held, pfn });
        }
    }

    /// The CPU and its root whose tables lead to one of `frames`, and the address.
    fn in_loaded_tables(&self, witness: &dyn Witness, frames: FrameRange) -> Option<(CpuId, Pfn, VirtAddr)> {
        const UPPER: VirtAddr = VirtAddr::new(0xffff << 48);
        let lower = self.running.iter().map(|(cpu, root)| (*cpu, *root, VirtAddr::ZERO));
        let upper = self.running_kernel.iter().map(|(cpu, root)| (*cpu, *root, UPPER));
        let mut loaded: Vec<(CpuId, Pfn, VirtAddr)> = lower.chain(upper).collect();
        loaded.sort_unstable();
        loaded.into_iter().find_map(|(cpu, root, start)| {
            let va = walk::use_of(self.format(), root, start, frames, &|at| witness.stored(at))?;
            Some((cpu, root, va))
        })
    }
}
