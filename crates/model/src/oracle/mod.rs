//! The judge of translations: rules O1 and O2 (`docs/oracle.md`).
//!
//! - [`Oracle`] receives facts and accesses, and records [`Violation`]s and a [`Tally`].
//! - `frames`: when each frame was freed. `condemned`: stale entries that are not usable yet.
//!   `reuse`, `released`: O1. `rights`, `paths`, `deferred` with `windows` and `key_tables`, and
//!   `replaced`: O2; `hidden` counts for it.
//!   `shared`: O4 while it runs.
//!
//! **INV-ORACLE-O1** When a frame is handed out, as a page or a table, no CPU reaches it by a
//! translation, a walk-cache entry or a walk from before. Nor does a CPU when the frame is freed
//! with no flush owed, and then no loaded root leads to it. What only another tag or a lazy CPU has
//! cached is never used afterwards. Neither a program nor the kernel stores to a free frame, and a
//! frame that was freed while a CPU could reach it holds the same when it is allocated.
//!
//! **INV-ORACLE-O2** When a call that takes a right returns, no CPU holds a translation, or a path
//! to one in a walk cache, that allows more than the call left, unless the tables allow it again,
//! or the loss of a right to read is deferred and nothing has happened that requires it; and
//! walkers see the entries that took the right. On arm64, no valid entry replaces another that a
//! CPU still holds.
//!
//! Protocol: a call declares [`Fact::RightReduced`] before it stores the first entry that reduces
//! the right, and [`Fact::CallReturned`] after its last invalidation. An access costs a few array
//! look-ups while no stale entry is watched.
//!
//! Not guaranteed: that a translation which a call in flight on another CPU excuses is judged
//! before that call returns.

mod condemned;
mod deferred;
mod frames;
mod hidden;
mod key_tables;
mod paths;
mod released;
mod replaced;
mod reuse;
mod rights;
mod shared;
mod state;
mod windows;

use crate::FxHashMap;
use crate::census::{Census, SoftwareBits};
use crate::tally::{Antecedent, Tally};
use crate::violation::{CpuStep, Exposure, Reduction, Rule, Violation, ViolationKind};
use crate::walk::{self, TableFormat};
use alloc::vec::Vec;
use condemned::{Condemned, StaleReason};
use frames::Frames;
use key_tables::KeyTables;
use pagewright_types::judge::{CachedEntryKind, Fact, Judge, MemoryAccess, StatePart, Witness};
use pagewright_types::{CpuId, FrameRange, IsaKind, Level, PageRange, Pfn, PhysAddr, Rights, Tag, VirtAddr};
use rights::Reductions;
use shared::SharedTables;
use windows::{Window, Windows};

/// Violations that are kept; further ones are only counted.
const KEPT: usize = 64;

/// The judge of one machine's translations.
pub struct Oracle {
    isa: IsaKind,
    /// The addresses that the kernel accesses.
    kernel: Option<PageRange>,
    /// The level of root tables.
    top: Level,
    bits: SoftwareBits,
    /// Whether a mapping may change its size without break-before-make.
    resizes: bool,
    /// Events received so far.
    step: u64,
    frames: Frames,
    /// What frames held that were freed while a CPU might reach them, as a hash.
    parked: FxHashMap<Pfn, u64>,
    condemned: Condemned,
    reductions: Reductions,
    /// The root that each CPU has loaded.
    running: FxHashMap<CpuId, Pfn>,
    /// The root of the upper half that each CPU has loaded (arm64).
    running_kernel: FxHashMap<CpuId, Pfn>,
    windows: Windows,
    key_tables: KeyTables,
    shared: SharedTables,
    tally: Tally,
    violations: Vec<Violation>,
    /// Violations found, kept or not.
    found: u64,
}

impl Oracle {
    /// Creates the judge of a machine with page tables of this format.
    ///
    /// The machine must report to it from its first step on.
    pub fn new(isa: IsaKind) -> Self {
        Self {
            isa,
            kernel: None,
            top: Level::PGD,
            bits: SoftwareBits::default(),
            resizes: false,
            step: 0,
            frames: Frames::default(),
            parked: FxHashMap::default(),
            condemned: Condemned::default(),
            reductions: Reductions::default(),
            running: FxHashMap::default(),
            running_kernel: FxHashMap::default(),
            windows: Windows::default(),
            key_tables: KeyTables::default(),
            shared: SharedTables::default(),
            tally: Tally::default(),
            violations: Vec::new(),
            found: 0,
        }
    }

    /// Sets the software bits of entries, which edits of shared tables may change.
    #[must_use]
    pub fn with_software_bits(mut self, bits: SoftwareBits) -> Self {
        self.bits = bits;
        self
    }

    /// Judges accesses of the kernel in `range` of the upper half; all others are of user mode.
    #[must_use]
    pub fn with_kernel_range(mut self, range: PageRange) -> Self {
        self.kernel = Some(range);
        self
    }

    /// Judges page tables whose root has this level: PML5 on x86-64, or that of an arm64 granule.
    #[must_use]
    pub fn with_root_level(mut self, top: Level) -> Self {
        self.top = top;
        self
    }

    /// Lets a mapping change its size without break-before-make (arm64 FEAT_BBM level 2).
    #[must_use]
    pub fn with_bbm_level_2(mut self) -> Self {
        self.resizes = true;
        self
    }

    /// The first violations found, at most 64, in order.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// The number of violations found.
    pub fn found(&self) -> u64 {
        self.found
    }

    /// How often each rule had something to judge.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The number of events received: the step of a report.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// Compares the counts that a memory manager claims with the page tables in memory (O4).
    ///
    /// No call may be in flight. `cpu` is named in the violations.
    pub fn at_rest(&mut self, witness: &dyn Witness, cpu: CpuId, census: &Census) {
        self.step += 1;
        let counts = census.compare(self.isa, &|at| witness.stored(at), &mut self.tally);
        for count in counts {
            self.report(cpu, Rule::Counts, ViolationKind::Count(count));
        }
        self.judge_hashes(witness, cpu);
    }

    fn report(&mut self, cpu: CpuId, rule: Rule, kind: ViolationKind) {
        self.found += 1;
        if self.violations.len() < KEPT {
            self.violations.push(Violation { rule, cpu, step: self.step, kind });
        }
    }

    /// The tables as their walkers read them.
    fn format(&self) -> TableFormat {
        TableFormat { isa: self.isa, kernel: self.kernel, top: self.top }
    }

    /// Whether what a walk under `cached` has filled for `va` is of the space of `root`.
    ///
    /// On x86-64 all spaces have the kernel's range in common.
    fn is_of_space(&self, cached: Pfn, root: Pfn, va: VirtAddr) -> bool {
        let common = || self.isa == IsaKind::X86_64 && self.kernel.is_some_and(|range| range.contains(va));
        cached == root || common()
    }

    /// Whether the tables under `root` map `va` to `frame` for user mode with at least `rights`.
    ///
    /// Stores that walkers cannot see yet count.
    fn tables_allow(&self, witness: &dyn Witness, root: Pfn, va: VirtAddr, frame: Pfn, rights: Rights) -> bool {
        walk::lookup(self.format(), root, va, &|at| self.shared.entry(witness, at))
            .is_some_and(|leaf| leaf.frame_at(va) == frame && leaf.rights.contains(rights))
    }

    /// Judges an access that may have hit a condemned translation.
    fn judge_hit(&mut self, witness: &dyn Witness, made: MemoryAccess) {
        let frame = Pfn::containing(made.at);
        for stale in self.condemned.at(made.cpu, made.va, self.top) {
            let CachedEntryKind::Translation { pfn, .. } = stale.held.kind else { continue };
            if walk::frame_under(pfn, stale.held.level, made.va) != frame
                || !is_taken(&stale.reason, made.access.needs())
            {
                continue;
            }
            let page = made.va.align_down(pagewright_types::PAGE_SIZE);
            if self.tables_allow(witness, made.root, page, frame, made.access.needs())
                || self.reductions.excuses(made.root, page, made.access.needs(), None)
                || matches!(stale.reason, StaleReason::Reduced { .. })
                    && self.windows.excuse(made.root, page, frame, made.access.needs())
            {
                continue;
            }
            self.condemned.forget(&stale);
            self.report_stale(made.cpu, stale.held, page, stale.reason, Exposure::Hit(made));
        }
    }

    /// Judges what was condemned on `cpu` under `tag`, which is usable from now on.
    fn judge_loaded(&mut self, witness: &dyn Witness, cpu: CpuId, root: Pfn, tag: Tag) {
        for stale in self.condemned.take(witness, cpu, tag) {
            let exposure = Exposure::Loaded { root, tag };
            match (stale.held.kind, stale.reason) {
                (CachedEntryKind::Table { .. } | CachedEntryKind::Walk { .. }, StaleReason::Reused(_)) => {
                    self.report_stale(cpu, stale.held, stale.held.va, stale.reason, exposure);
                }
                (CachedEntryKind::Translation { pfn, rights }, StaleReason::Reused(_)) => {
                    let frame = walk::frame_under(pfn, stale.held.level, stale.held.va);
                    if !self.tables_allow(witness, root, stale.held.va, frame, rights) {
                        self.report_stale(cpu, stale.held, stale.held.va, stale.reason, exposure);
                    }
                }
                (_, StaleReason::Reduced { reduction, .. }) => {
                    // The tag may belong to another space now, whose tables decide.
                    let under = Reduction { root, ..reduction };
                    if let Some(page) = self.taken(witness, &stale.held, &under, None) {
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

/// Whether an entry that is stale for this reason must not be used with rights `needs`.
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
            Fact::FrameFreed { pfn, order } => {
                let frames = FrameRange::new(pfn, pfn.add(order.frames()));
                self.shared.forget(frames);
                self.note_freed(frames);
                self.frame_freed(witness, by, pfn, order);
            }
            Fact::FrameReleased { pfn, order } => {
                let frames = FrameRange::new(pfn, pfn.add(order.frames()));
                self.shared.forget(frames);
                self.note_freed(frames);
                self.frame_released(witness, by, pfn, order);
            }
            Fact::FrameReused { pfn, order } => {
                let frames = FrameRange::new(pfn, pfn.add(order.frames()));
                self.frame_reused(witness, by, pfn, order);
                self.deferred_taken(witness, frames);
            }
            Fact::RightReduced { root, range, left } => {
                self.right_reduced(witness, Reduction { root, range, left, by });
            }
            Fact::CallReturned => {
                self.call_returned(witness, by);
                self.shared_returned(witness, cpu);
            }
            Fact::RightDeferred { root, range, frame, copy, page } => {
                self.right_deferred(witness, Window { root, range, frame, copy, page: Some(page), by });
            }
            Fact::PageMoved { frame, copy } => {
                self.windows.moved(frame, copy);
                self.note_moved(copy);
            }
            Fact::PageFilled { page, frame } => self.windows.filled(page, frame),
            Fact::PageReplaced { page } => self.deferred_replaced(witness, self.windows.of_label(page)),
            Fact::PagesRemoved { file, first, end } => {
                self.deferred_replaced(witness, self.windows.of_pages_of_file(file, first..end));
            }
            Fact::TableShared { table, level, shared } => {
                if shared {
                    self.note_table_shared(witness, table);
                }
                let level = self.top.of_same_tree(level.raw());
                self.table_shared(witness, (table, level), shared, by);
            }
            Fact::EditInPlace { table, begins } => self.shared.edit_in_place(cpu, table, begins),
        }
    }

    #[inline]
    fn access(&mut self, witness: &dyn Witness, made: MemoryAccess) {
        self.step += 1;
        self.tally.note(Antecedent::Accessed);
        if let Some(freed) = self.frames.touch(Pfn::containing(made.at)) {
            self.reached_free(made, freed);
        }
        if made.cached && !self.condemned.is_empty() {
            self.judge_hit(witness, made);
        }
        if made.cached && self.reductions.is_watching() {
            self.judge_watched(witness, made);
        }
        if !self.windows.is_empty() {
            self.deferred_access(witness, made);
        }
    }

    fn entry_stored(&mut self, witness: &dyn Witness, cpu: CpuId, at: PhysAddr, old: u64, new: u64) {
        if !self.shared.is_empty() {
            self.stored_beside_sharers(witness, cpu, at, (old, new));
        }
        if !self.windows.is_empty() {
            self.deferred_stored(witness, at);
        }
        self.note_hidden(witness, cpu, at, (old, new));
        self.note_stored(at, new);
        self.entry_replaced(witness, cpu, at, new);
    }

    fn written(&mut self, witness: &dyn Witness, cpu: CpuId, frames: FrameRange) {
        self.frames_written(cpu, frames);
        if !self.windows.is_empty() {
            self.deferred_written(witness, frames);
        }
    }

    fn state(&self, part: &mut dyn FnMut(&StatePart<'_>)) -> bool {
        self.tell_state(part)
    }

    fn kernel_loaded(&mut self, _: &dyn Witness, cpu: CpuId, root: Pfn) {
        self.step += 1;
        self.running_kernel.insert(cpu, root);
    }

    fn loaded(&mut self, witness: &dyn Witness, cpu: CpuId, root: Pfn, tag: Tag) {
        self.step += 1;
        self.running.insert(cpu, root);
        if !self.condemned.is_empty() {
            self.judge_loaded(witness, cpu, root, tag);
        }
    }
}
