//! O2: when a call that took rights away returns, nobody holds them – unless the tables give them
//! again.
//!
//! A translation that allows too much is excused while a call that takes the right is under way on
//! another CPU: it may have been made lawfully in between, and is judged when that call returns.

use super::Oracle;
use super::condemned::{Stale, StaleReason};
use crate::tally::Antecedent;
use crate::violation::{CpuStep, Exposure, Reduction, Rule, ViolationKind};
use crate::walk;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use pagewright_types::judge::{CachedEntry, CachedEntryKind, CachedEntryState, MemoryAccess, Witness};
use pagewright_types::{CpuId, PageRange, Pfn, Rights, VirtAddr};

/// How many returned calls are watched because a walk was under way when they returned.
const WATCHED: usize = 64;
/// How many pages of a call are looked at for stores that walkers can't see.
const UNPUBLISHED_PAGES: usize = 1 << 16;

/// A call that has returned.
#[derive(Clone, Copy, Debug)]
struct Returned {
    reduction: Reduction,
    returned: CpuStep,
}

/// What calls have taken.
#[derive(Default)]
pub(super) struct Reductions {
    /// By calls that have not returned.
    pending: Vec<Reduction>,
    /// By calls that returned while a walk was under way that had read an older entry, perhaps:
    /// what it leaves in a TLB is judged when used.
    watched: VecDeque<Returned>,
}

impl Reductions {
    /// Whether a call under way on another CPU than `not` is taking some of `rights` from `page`.
    pub(super) fn excuses(&self, root: Pfn, page: VirtAddr, rights: Rights, not: Option<CpuId>) -> bool {
        self.pending.iter().any(|pending| {
            pending.root == root
                && Some(pending.by.cpu) != not
                && pending.range.contains(page)
                && !pending.left.contains(rights)
        })
    }

    pub(super) fn is_watching(&self) -> bool {
        !self.watched.is_empty()
    }
}

/// What `cached` allows beyond what a reduction left, if it is a translation made under its root.
fn stronger(cached: &CachedEntry, reduction: &Reduction) -> bool {
    match cached.kind {
        CachedEntryKind::Translation { rights, .. } => {
            cached.root == reduction.root && !reduction.left.contains(rights)
        }
        CachedEntryKind::Table { .. } | CachedEntryKind::Walk { .. } => false,
    }
}

impl Oracle {
    pub(super) fn right_reduced(&mut self, witness: &dyn Witness, reduction: Reduction) {
        let mut held = false;
        witness.cached_in(reduction.range, &mut |cached| {
            held |= cached.cpu != reduction.by.cpu && stronger(&cached, &reduction);
        });
        if held {
            self.tally.note(Antecedent::RightHeld);
        }
        self.rights.pending.push(reduction);
    }

    pub(super) fn call_returned(&mut self, witness: &dyn Witness, by: CpuStep) {
        let mut mine = Vec::new();
        self.rights.pending.retain(|pending| {
            let other = pending.by.cpu != by.cpu;
            if !other {
                mine.push(*pending);
            }
            other
        });
        for reduction in mine {
            self.tally.note(Antecedent::RightReduced);
            self.judge_returned(witness, reduction, by);
        }
        self.condemned.prune(witness);
    }

    fn judge_returned(&mut self, witness: &dyn Witness, reduction: Reduction, returned: CpuStep) {
        let (mut held, mut walking) = (Vec::new(), false);
        witness.cached_in(reduction.range, &mut |cached| match cached.kind {
            CachedEntryKind::Translation { .. } if stronger(&cached, &reduction) => held.push(cached),
            CachedEntryKind::Walk { .. } => walking |= cached.root == reduction.root,
            CachedEntryKind::Translation { .. } | CachedEntryKind::Table { .. } => {}
        });
        for cached in held {
            let Some(page) = self.taken_page(witness, &cached, &reduction, Some(returned.cpu)) else { continue };
            let reason = StaleReason::Reduced { reduction, returned };
            match cached.state {
                CachedEntryState::Usable => self.report_stale(returned.cpu, cached, page, reason, Exposure::Immediate),
                CachedEntryState::Condemned => {
                    self.tally.note(Antecedent::Condemned);
                    self.condemned.watch(Stale { held: cached, reason });
                }
            }
        }
        if walking {
            if self.rights.watched.len() == WATCHED {
                self.rights.watched.pop_front();
            }
            self.rights.watched.push_back(Returned { reduction, returned });
        }
        if witness.stores_wait() {
            self.judge_published(witness, reduction, returned.cpu);
        }
    }

    /// The first page for which `held` allows what `reduction` took, the tables under its root
    /// don't, and nobody is excused.
    pub(super) fn taken_page(
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
            } else if !self.rights.excuses(reduction.root, page, rights, caller) {
                return Some(page);
            }
        }
        None
    }

    /// A store that takes a right has not reached the walkers, and the call that made it returns.
    fn judge_published(&mut self, witness: &dyn Witness, reduction: Reduction, caller: CpuId) {
        let Reduction { root, range, left, by: reduced } = reduction;
        for page in range.iter().take(UNPUBLISHED_PAGES) {
            let Some(leaf) = walk::lookup(self.isa, root, page, &|at| witness.word(at)) else { continue };
            let rights = leaf.rights;
            if !left.contains(rights)
                && !self.tables_allow(witness, root, page, leaf.frame_at(page), rights)
                && !self.rights.excuses(root, page, rights, Some(caller))
            {
                self.report(caller, Rule::Rights, ViolationKind::Unpublished { root, page, rights, left, reduced });
                return;
            }
        }
    }

    /// An access by a TLB to a page that a call took rights from while a walk was under way.
    pub(super) fn judge_watched(&mut self, witness: &dyn Witness, made: MemoryAccess) {
        let page = PageRange::page(made.va).start();
        let needs = made.access.needs();
        let taken = self.rights.watched.iter().position(|watched| {
            watched.reduction.root == made.root
                && watched.reduction.range.contains(page)
                && !watched.reduction.left.contains(needs)
        });
        let Some(index) = taken else { return };
        if self.tables_allow(witness, made.root, page, Pfn::containing(made.at), needs)
            || self.rights.excuses(made.root, page, needs, None)
        {
            return;
        }
        if let Some(Returned { reduction, returned }) = self.rights.watched.remove(index) {
            let (left, reduced) = (reduction.left, reduction.by);
            self.report(made.cpu, Rule::Rights, ViolationKind::RightUsed { made, left, reduced, returned });
        }
    }
}
