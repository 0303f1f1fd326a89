//! The part of a judge's state that decides what it reports later.
//!
//! A search of all schedules compares it with that of states that it has reached before
//! (INV-CHECK-MERGED). Left out: numbers of steps, counts of the tally, and what is remembered only
//! for them, because they change the text of a report and not whether there is one.

use super::Oracle;
use super::condemned::{Stale, StaleReason};
use crate::violation::Reduction;
use core::hash::{Hash, Hasher};
use pagewright_types::judge::{CachedEntry, StatePart};

fn reduction(of: &Reduction) -> impl Hash + use<> {
    (of.root, of.range, of.left, of.by.cpu)
}

fn entry(of: &CachedEntry) -> impl Hash + use<> {
    (of.cpu, of.kind, of.tag, of.root, of.va, of.level, of.global, of.state)
}

impl Oracle {
    /// Tells what decides its later reports; returns false if it keeps more.
    pub(super) fn tell_state(&self, part: &mut dyn FnMut(&StatePart<'_>)) -> bool {
        fn add(part: &mut dyn FnMut(&StatePart<'_>), value: impl Hash) {
            part(&|mut to: &mut dyn Hasher| value.hash(&mut to));
        }
        if !self.windows.is_empty() || !self.shared.is_empty() {
            return false;
        }
        self.frames.free_frames(&mut |frames| add(part, ("free", frames)));
        self.parked.iter().for_each(|parked| add(part, ("parked", parked)));
        self.condemned.each(&mut |Stale { held, reason }| match reason {
            StaleReason::Reused(block) => add(part, ("reused", entry(held), block.pfn, block.order)),
            StaleReason::Reduced { reduction: by, .. } => add(part, ("reduced", entry(held), reduction(by))),
        });
        self.reductions.pending().for_each(|pending| add(part, ("pending", reduction(pending))));
        self.reductions.watched().for_each(|watched| add(part, ("watched", reduction(watched))));
        self.running.iter().for_each(|running| add(part, ("running", running)));
        self.running_kernel.iter().for_each(|running| add(part, ("kernel", running)));
        true
    }
}
