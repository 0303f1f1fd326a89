//! O2: when a call that reduced rights returns, no CPU holds a translation that grants more.
//!
//! [`super::paths`] judges walk caches.
//!
//! There are two exceptions. The page tables may grant the rights again. And a call on another CPU
//! that reduces the same right may still be in flight: the translation may have been filled
//! lawfully in between, and is judged when that call returns.

use super::Oracle;
use super::condemned::{Stale, StaleReason};
use super::paths::HeldPath;
use crate::tally::Antecedent;
use crate::violation::{CpuStep, Exposure, Reduction, Rule, ViolationKind};
use crate::walk;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::cell::Cell;
use pagewright_types::judge::{CachedEntry, CachedEntryKind, CachedEntryState, MemoryAccess, Witness};
use pagewright_types::{CpuId, PageRange, Pfn, Rights, VirtAddr};

/// Returned calls that are watched because a walk was in flight when they returned.
const WATCHED: usize = 64;
/// Pages of a call that are searched for stores that walkers cannot see.
const UNPUBLISHED_PAGES: usize = 1 << 16;

/// A reduction whose call has returned.
#[derive(Clone, Copy, Debug)]
struct Returned {
    reduction: Reduction,
    returned: CpuStep,
}

/// A reduction whose call is in flight.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) reduction: Reduction,
    /// What other CPUs had in walk caches when it was declared.
    pub(super) paths: Vec<HeldPath>,
}

/// The reductions that still matter.
#[derive(Default)]
pub(super) struct Reductions {
    /// Reductions whose calls are in flight.
    pending: Vec<Pending>,
    /// Reductions whose calls returned while a walk was in flight.
    ///
    /// The walk may have read the old entry, so the translation that it fills is judged when an
    /// access uses it.
    watched: VecDeque<Returned>,
}

impl Reductions {
    /// Whether a call in flight on a CPU other than `not` takes some of `rights` from `page`.
    pub(super) fn excuses(&self, root: Pfn, page: VirtAddr, rights: Rights, not: Option<CpuId>) -> bool {
        self.others(root, not).any(|pending| pending.range.contains(page) && !pending.left.contains(rights))
    }

    /// Whether a call in flight on a CPU other than `not` takes a right in `range`.
    pub(super) fn excuses_path(&self, root: Pfn, range: PageRange, not: Option<CpuId>) -> bool {
        self.others(root, not).any(|pending| pending.range.overlaps(range))
    }

    fn others(&self, root: Pfn, not: Option<CpuId>) -> impl Iterator<Item = &Reduction> {
        let reductions = self.pending.iter().map(|pending| &pending.reduction);
        reductions.filter(move |pending| pending.root == root && Some(pending.by.cpu) != not)
    }

    /// The reductions whose calls are in flight.
    pub(super) fn pending(&self) -> impl Iterator<Item = &Reduction> {
        self.pending.iter().map(|pending| &pending.reduction)
    }

    /// The reductions for which accesses are watched.
    pub(super) fn watched(&self) -> impl Iterator<Item = &Reduction> {
        self.watched.iter().map(|watched| &watched.reduction)
    }

    pub(super) fn is_watching(&self) -> bool {
        !self.watched.is_empty()
    }
}

impl Oracle {
    /// Whether `cached` is a translation of the space of `reduction` that grants more than it left.
    fn stronger(&self, cached: &CachedEntry, reduction: &Reduction) -> bool {
        match cached.kind {
            CachedEntryKind::Translation { rights, .. } => {
                self.is_of_space(cached.root, reduction.root, cached.va) && !reduction.left.contains(rights)
            }
            CachedEntryKind::Table { .. } | CachedEntryKind::Walk { .. } => false,
        }
    }

    pub(super) fn right_reduced(&mut self, witness: &dyn Witness, reduction: Reduction) {
        let (mut held, mut locally, mut huge) = (false, false, false);
        witness.cached_in(reduction.range, &mut |cached| {
            let is_local = cached.cpu == reduction.by.cpu;
            let stronger = self.stronger(&cached, &reduction);
            *if is_local { &mut locally } else { &mut held } |= stronger;
            huge |= stronger && !is_local && !cached.level.is_last();
        });
        let holds =
            [(held, Antecedent::RightHeld), (locally, Antecedent::RightHeldLocally), (huge, Antecedent::HugeHeld)];
        for (holds, antecedent) in holds {
            if holds {
                self.tally.note(antecedent);
            }
        }
        let paths = self.held_paths(witness, &reduction);
        self.reductions.pending.push(Pending { reduction, paths });
    }

    pub(super) fn call_returned(&mut self, witness: &dyn Witness, by: CpuStep) {
        let mut mine = Vec::new();
        self.reductions.pending.retain(|pending| {
            let other = pending.reduction.by.cpu != by.cpu;
            if !other {
                mine.push(pending.clone());
            }
            other
        });
        for pending in mine {
            self.tally.note(Antecedent::RightReduced);
            self.note_reduced_paths(witness, &pending);
            self.deferred_returned(witness, &pending.reduction, by);
            self.judge_returned(witness, pending.reduction, by);
        }
        self.condemned.prune(witness);
    }

    fn judge_returned(&mut self, witness: &dyn Witness, reduction: Reduction, returned: CpuStep) {
        let (mut held, mut walking) = (Vec::new(), false);
        witness.cached_in(reduction.range, &mut |cached| match cached.kind {
            CachedEntryKind::Translation { .. } if self.stronger(&cached, &reduction) => held.push(cached),
            CachedEntryKind::Walk { .. } if self.is_of_space(cached.root, reduction.root, cached.va) => {
                walking = true;
                held.push(cached);
            }
            CachedEntryKind::Table { .. } if self.is_of_space(cached.root, reduction.root, cached.va) => {
                held.push(cached)
            }
            CachedEntryKind::Translation { .. } | CachedEntryKind::Table { .. } | CachedEntryKind::Walk { .. } => {}
        });
        for cached in held {
            let Some(page) = self.taken(witness, &cached, &reduction, Some(returned.cpu)) else { continue };
            let reason = StaleReason::Reduced { reduction, returned };
            match cached.state {
                CachedEntryState::Usable => self.report_stale(returned.cpu, cached, page, reason, Exposure::Immediate),
                CachedEntryState::Speculative | CachedEntryState::Condemned => {
                    self.tally.note(Antecedent::Condemned);
                    self.condemned.watch(Stale { held: cached, reason });
                }
            }
        }
        if walking {
            if self.reductions.watched.len() == WATCHED {
                self.reductions.watched.pop_front();
            }
            self.reductions.watched.push_back(Returned { reduction, returned });
        }
        if witness.stores_wait() {
            self.judge_published(witness, reduction, returned.cpu);
        }
    }

    /// The first page for which `held`, or a walk from it, grants more than `reduction` left.
    pub(super) fn taken(
        &mut self,
        witness: &dyn Witness,
        held: &CachedEntry,
        reduction: &Reduction,
        caller: Option<CpuId>,
    ) -> Option<VirtAddr> {
        match held.kind {
            CachedEntryKind::Translation { .. } => self.taken_page(witness, held, reduction, caller),
            CachedEntryKind::Table { .. } | CachedEntryKind::Walk { .. } => {
                self.taken_path(witness, held, reduction, caller)
            }
        }
    }

    /// The first page for which `held` grants more than `reduction` left, without an excuse.
    ///
    /// An excuse is that the tables grant the rights again, or that a call in flight on another CPU
    /// takes them.
    fn taken_page(
        &mut self,
        witness: &dyn Witness,
        held: &CachedEntry,
        reduction: &Reduction,
        caller: Option<CpuId>,
    ) -> Option<VirtAddr> {
        let CachedEntryKind::Translation { pfn, rights } = held.kind else { return None };
        for page in held.range().intersect(reduction.range)?.iter() {
            let frame = walk::frame_under(pfn, held.level, page);
            if self.tables_allow(witness, reduction.root, page, frame, rights) {
                self.tally.note(Antecedent::RightRegranted);
            } else if !self.windows.excuse(reduction.root, page, frame, rights)
                && !self.reductions.excuses(reduction.root, page, rights, caller)
            {
                return Some(page);
            }
        }
        None
    }

    /// Reports a call that returns before walkers can see the store that reduces a right.
    ///
    /// The store is the caller's: that of another call, such as the end of the space, may be on its
    /// way.
    fn judge_published(&mut self, witness: &dyn Witness, reduction: Reduction, caller: CpuId) {
        let Reduction { root, range, left, by: reduced } = reduction;
        for page in range.iter().take(UNPUBLISHED_PAGES) {
            let waits = Cell::new(false);
            let read = |at| {
                waits.set(waits.get() || witness.store_waits(caller, at));
                witness.word(at)
            };
            let Some(leaf) = walk::lookup(self.format(), root, page, &read) else { continue };
            let rights = leaf.rights;
            if waits.get()
                && !left.contains(rights)
                && !self.tables_allow(witness, root, page, leaf.frame_at(page), rights)
                && !self.reductions.excuses(root, page, rights, Some(caller))
            {
                self.report(caller, Rule::Rights, ViolationKind::Unpublished { root, page, rights, left, reduced });
                return;
            }
        }
    }

    /// Judges a TLB hit on a page whose reduction is watched because a walk was in flight.
    pub(super) fn judge_watched(&mut self, witness: &dyn Witness, made: MemoryAccess) {
        let page = PageRange::page(made.va).start();
        let needs = made.access.needs();
        let taken = self.reductions.watched.iter().position(|watched| {
            self.is_of_space(made.root, watched.reduction.root, page)
                && watched.reduction.range.contains(page)
                && !watched.reduction.left.contains(needs)
        });
        let Some(index) = taken else { return };
        if self.tables_allow(witness, made.root, page, Pfn::containing(made.at), needs)
            || self.reductions.excuses(made.root, page, needs, None)
            || self.windows.excuse(made.root, page, Pfn::containing(made.at), needs)
        {
            return;
        }
        if let Some(Returned { reduction, returned }) = self.reductions.watched.remove(index) {
            let (left, reduced) = (reduction.left, reduction.by);
            self.report(made.cpu, Rule::Rights, ViolationKind::RightUsed { made, left, reduced, returned });
        }
    }
}
