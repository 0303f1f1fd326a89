//! The judge of translations: rules O1 and O2 (`docs/oracle.md`).
//!
//! - [`Oracle`] hears facts and accesses and keeps [`Violation`]s and a [`Tally`].
//! - `frames`: the life of each frame. `condemned`: what is stale but out of use. `reuse`: O1.
//!   `rights`: O2.
//!
//! Protocol: whoever declares a [`Fact::RightReduced`] does so before it stores the first entry
//! that takes the right, and declares [`Fact::CallReturned`] after the last invalidation. An access
//! costs a few array look-ups while nothing stale is watched.
//!
//! Promises INV-ORACLE-O1, INV-ORACLE-O2.
//!
//! Not guaranteed: that a translation which is excused by a call under way elsewhere is looked at
//! again before that call returns.

mod condemned;
mod frames;
mod reuse;
mod rights;

use crate::census::Census;
use crate::tally::Tally;
use crate::violation::{CpuStep, Exposure, Reduction, Rule, Violation, ViolationKind};
use crate::walk;
use alloc::vec::Vec;
use condemned::{Condemned, StaleReason};
use frames::Frames;
use pagewright_types::judge::{CachedEntryKind, Fact, Judge, MemoryAccess, Witness};
use pagewright_types::{CpuId, IsaKind, Pfn, Rights, Tag, VirtAddr};
use rights::Reductions;

/// How many violations are kept; more are counted only.
const KEPT: usize = 64;

/// The judge of one machine's translations.
pub struct Oracle {
    isa: IsaKind,
    /// Things told so far.
    step: u64,
    frames: Frames,
    condemned: Condemned,
    rights: Reductions,
    tally: Tally,
    violations: Vec<Violation>,
    /// Found, kept or not.
    found: u64,
}

impl Oracle {
    /// A judge for a machine with tables of this kind, to be bound before the machine runs.
    pub fn new(isa: IsaKind) -> Self {
        Self {
            isa,
            step: 0,
            frames: Frames::default(),
            condemned: Condemned::default(),
            rights: Reductions::default(),
            tally: Tally::default(),
            violations: Vec::new(),
            found: 0,
        }
    }

    /// The first violations found, in order.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// How many were found.
    pub fn found(&self) -> u64 {
        self.found
    }

    /// How often each rule had something to judge.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Things told so far: what reports call a step.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// Compares what a memory manager claims about its counts with the tables in memory (O4).
    ///
    /// `cpu` is where the question is asked.
    pub fn at_rest(&mut self, witness: &dyn Witness, cpu: CpuId, census: &Census) {
        self.step += 1;
        let counts = census.compare(self.isa, &|at| witness.stored(at), &mut self.tally);
        for count in counts {
            self.report(cpu, Rule::Counts, ViolationKind::Count(count));
        }
    }

    fn report(&mut self, cpu: CpuId, rule: Rule, kind: ViolationKind) {
        self.found += 1;
        if self.violations.len() < KEPT {
            self.violations.push(Violation { rule, cpu, step: self.step, kind });
        }
    }

    /// Whether the tables under `root`, with all stores in them, let user mode do `rights` with the
    /// frame that `va` led to.
    fn tables_allow(&self, witness: &dyn Witness, root: Pfn, va: VirtAddr, frame: Pfn, rights: Rights) -> bool {
        walk::lookup(self.isa, root, va, &|at| witness.stored(at))
            .is_some_and(|leaf| leaf.frame_at(va) == frame && leaf.rights.contains(rights))
    }

    /// An access through something stale that was out of use when it was found.
    fn judge_hit(&mut self, witness: &dyn Witness, made: MemoryAccess) {
        let frame = Pfn::containing(made.at);
        for stale in self.condemned.at(made.cpu, made.va) {
            let CachedEntryKind::Translation { pfn, .. } = stale.held.kind else { continue };
            if walk::frame_under(pfn, stale.held.level, made.va) != frame
                || !is_taken(&stale.reason, made.access.needs())
            {
                continue;
            }
            let page = made.va.align_down(pagewright_types::PAGE_SIZE);
            if self.tables_allow(witness, made.root, page, frame, made.access.needs())
                || self.rights.excuses(made.root, page, made.access.needs(), None)
            {
                continue;
            }
            self.condemned.forget(&stale);
            self.report_stale(made.cpu, stale.held, page, stale.reason, Exposure::Hit(made));
        }
    }

    /// What was out of use on `cpu` under `tag` can be used from now on.
    fn judge_loaded(&mut self, witness: &dyn Witness, cpu: CpuId, root: Pfn, tag: Tag) {
        for stale in self.condemned.take(witness, cpu, tag) {
            let exposure = Exposure::Loaded { root, tag };
            match (stale.held.kind, stale.reason) {
                (CachedEntryKind::Table { .. } | CachedEntryKind::Walk { .. }, reason) => {
                    self.report_stale(cpu, stale.held, stale.held.va, reason, exposure);
                }
                (CachedEntryKind::Translation { pfn, rights }, StaleReason::Reused(_)) => {
                    let frame = walk::frame_under(pfn, stale.held.level, stale.held.va);
                    if !self.tables_allow(witness, root, stale.held.va, frame, rights) {
                        self.report_stale(cpu, stale.held, stale.held.va, stale.reason, exposure);
                    }
                }
                (CachedEntryKind::Translation { .. }, StaleReason::Reduced { reduction, .. }) => {
                    // The tag may be another space's now: its tables decide.
                    let under = Reduction { root, ..reduction };
                    if let Some(page) = self.taken_page(witness, &stale.held, &under, None) {
                        self.report_stale(cpu, stale.held, page, stale.reason, exposure);
                    }
                }
            }
        }
    }

    fn report_stale(
        &mut self,
        cpu: CpuId,
        held: pagewright_types::judge::CachedEntry,
        page: VirtAddr,
        reason: StaleReason,
        exposure: Exposure,
    ) {
        match reason {
            StaleReason::Reused(block) => {
                self.report(cpu, Rule::Reuse, ViolationKind::ReusedFrameReachable { held, block, exposure })
            }
            StaleReason::Reduced { reduction: Reduction { left, by: reduced, .. }, returned } => {
                self.report(
                    cpu,
                    Rule::Rights,
                    ViolationKind::RightKept { held, page, left, reduced, returned, exposure },
                );
            }
        }
    }
}

/// Whether something stale for this reason must not be used for that.
fn is_taken(reason: &StaleReason, needs: Rights) -> bool {
    match reason {
        StaleReason::Reused(_) => true,
        StaleReason::Reduced { reduction, .. } => !reduction.left.contains(needs),
    }
}

impl Judge for Oracle {
    fn fact(&mut self, witness: &dyn Witness, cpu: CpuId, fact: Fact) {
        self.step += 1;
        let by = CpuStep { cpu, step: self.step };
        match fact {
            Fact::FrameFreed { pfn, order } => self.frames.freed(pfn, order, by),
            Fact::FrameReused { pfn, order } => self.frame_reused(witness, by, pfn, order),
            Fact::RightReduced { root, range, left } => {
                self.right_reduced(witness, Reduction { root, range, left, by });
            }
            Fact::CallReturned => self.call_returned(witness, by),
        }
    }

    #[inline]
    fn access(&mut self, witness: &dyn Witness, made: MemoryAccess) {
        self.step += 1;
        if let Some(freed) = self.frames.touch(Pfn::containing(made.at)) {
            self.reached_free(made, freed);
        }
        if made.cached && !self.condemned.is_empty() {
            self.judge_hit(witness, made);
        }
        if made.cached && self.rights.is_watching() {
            self.judge_watched(witness, made);
        }
    }

    fn loaded(&mut self, witness: &dyn Witness, cpu: CpuId, root: Pfn, tag: Tag) {
        self.step += 1;
        if !self.condemned.is_empty() {
            self.judge_loaded(witness, cpu, root, tag);
        }
    }
}
