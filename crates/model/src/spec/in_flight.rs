//! Calls in flight, from entry to return.

use super::call::{CallResult, MemoryCall, MmapObject, MmapPlacement, Outlook, Plan, RangeCall};
use super::exclusive::Denial;
use super::page::{Effect, Page, PendingEffect};
use super::soft_dirty::SoftDirtyBit;
use super::{Process, Spec, SpecVerdict};
use crate::FxHashMap;
use crate::tally::Antecedent;
use crate::violation::{CpuStep, SpecMismatch, Violation};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use pagewright_types::{Errno, FileId, PAGE_SIZE, PageRange, SpaceId, VirtAddr};

/// Identifies a call in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the call's return must be reported"]
pub struct CallId {
    space: SpaceId,
    id: u64,
}

/// A call in flight.
pub(super) struct PendingCall {
    id: u64,
    call: MemoryCall,
    plan: Plan,
    acting: PendingEffect,
    outlook: Outlook,
    /// The errors that rlimits and seals cause.
    denial: Denial,
    /// For a fork: the pages that the child may inherit.
    child: FxHashMap<u64, Page>,
}

impl PendingCall {
    /// Whether the call is a fork.
    fn forks(&self) -> bool {
        self.call == MemoryCall::Fork
    }
}

/// On which pages of its range a call has had its effect, judging by its result.
enum Extent {
    Everywhere,
    Nowhere,
    /// On the first `sure` pages, possibly on those up to `possible`, and on none after.
    Before {
        sure: u64,
        possible: u64,
    },
}

impl Process {
    /// What the call behind `acting` may find on its pages, given the effects of the other calls.
    fn outlook(&self, acting: PendingEffect) -> Outlook {
        let others: Vec<PendingEffect> = self.acting.iter().filter(|other| other.bit != acting.bit).copied().collect();
        let found = |index, page: &Page| {
            let mut page = page.clone();
            page.close(index, &others);
            page.states.retain(|state| state.done & acting.bit == 0);
            page
        };
        let mut look = Outlook::of(acting.effect, |index| Some(found(index, self.pages.get(&index)?)));
        if let Effect::Unmap { range } = acting.effect {
            // The range may be far larger than what is mapped.
            let indices = range.start().page_index()..range.end().page_index();
            for (index, page) in self.pages.iter().filter(|(index, _)| indices.contains(index)) {
                let page = found(*index, page);
                look.any_mapped |= page.states.iter().any(|state| state.map.is_some());
                look.all_free &= page.states.iter().any(|state| state.map.is_none());
            }
        }
        look
    }

    /// Adds what the pending calls may find now, after a change.
    fn revise(&mut self) {
        if self.pending.len() > 1 {
            let now: Vec<Outlook> = self.pending.iter().map(|call| self.outlook(call.acting)).collect();
            for (call, now) in self.pending.iter_mut().zip(now) {
                call.outlook = call.outlook.or(now);
            }
        }
    }

    /// Adds the possible states of page `index` to what pending forks may copy.
    pub(super) fn update_forks(&mut self, index: u64) {
        if !self.pending.iter().any(PendingCall::forks) {
            return;
        }
        let Some(page) = self.look(index) else { return };
        for fork in self.pending.iter_mut().filter(|call| call.forks()) {
            let seen = fork.child.entry(index).or_default();
            for state in page.without_pending().states {
                seen.add(state);
            }
        }
    }

    /// The indices of the known pages of `range`.
    pub(super) fn existing(&self, range: PageRange) -> Vec<u64> {
        let (first, end) = (range.start().page_index(), range.end().page_index());
        if range.pages() <= self.pages.len() as u64 {
            (first..end).filter(|index| self.pages.contains_key(index)).collect()
        } else {
            self.pages.keys().copied().filter(|index| (first..end).contains(index)).collect()
        }
    }

    fn begin(&mut self, id: u64, call: MemoryCall, plan: Plan, denial: Denial) {
        let used = self.acting.iter().fold(0, |used, call| used | call.bit);
        assert!(used != u64::MAX, "at most 64 calls of one process can be in flight");
        let bit = 1u64 << (!used).trailing_zeros();
        let effect = match plan {
            Plan::Acts(effect) => effect,
            Plan::Refused(_) | Plan::Idle | Plan::Places { .. } => Effect::None,
        };
        let acting = PendingEffect { bit, effect };
        if let Effect::Map { range, .. } = effect {
            self.mapped_since = true;
            for index in range.start().page_index()..range.end().page_index() {
                self.pages.entry(index).or_default();
            }
        }
        let outlook = self.outlook(acting);
        let child = if call == MemoryCall::Fork {
            let indices: Vec<u64> = self.pages.keys().copied().collect();
            indices.into_iter().filter_map(|index| Some((index, self.look(index)?.without_pending()))).collect()
        } else {
            FxHashMap::default()
        };
        self.acting.push(acting);
        self.pending.push(PendingCall { id, call, plan, acting, outlook, denial, child });
        for index in self.existing(effect.range()) {
            self.update_forks(index);
        }
        self.revise();
    }

    /// Resolves the effect of a returned call on each page of its range.
    fn finish(&mut self, pending: &PendingCall, by: CpuStep, extent: &Extent) {
        let PendingEffect { bit, effect } = pending.acting;
        let first = effect.range().start().page_index();
        for index in self.existing(effect.range()) {
            let Some(page) = self.page(index) else { continue };
            let known = match *extent {
                Extent::Everywhere => Some(true),
                Extent::Nowhere => Some(false),
                Extent::Before { sure, .. } if index - first < sure => Some(true),
                Extent::Before { possible, .. } if index - first < possible => None,
                Extent::Before { .. } => Some(false),
            };
            page.finish(bit, known);
            match (effect, known) {
                (_, Some(false)) | (Effect::None | Effect::Unmap { .. } | Effect::Protect { .. }, _) => {}
                (Effect::Map { .. }, Some(true)) => page.soft_dirty = SoftDirtyBit::Set,
                (Effect::Map { .. }, None) | (Effect::Drop { .. }, _) => page.forget_soft_dirty(),
            }
            if known != Some(false) {
                page.changed = Some((by, pending.call.name()));
            }
            if page.is_unmapped() {
                self.pages.remove(&index);
                self.forgotten += 1;
            }
        }
        if !matches!(extent, Extent::Nowhere) && !matches!(effect, Effect::Drop { .. }) {
            self.mark_seams(effect.range());
        }
        self.acting.retain(|call| call.bit != bit);
    }

    /// Marks that a mapping may begin at the start and at the end of `range`.
    pub(super) fn mark_seams(&mut self, range: PageRange) {
        for index in [range.start().page_index(), range.end().page_index()] {
            if let Some(page) = self.pages.get_mut(&index) {
                page.seam = true;
            }
        }
    }
}

impl Spec {
    /// Reports that a call begins.
    ///
    /// Its arguments are judged now, and what it may find is collected until it returns.
    ///
    /// # Panics
    /// If the process is unknown, or has 64 calls in flight already.
    pub fn call_begins(&mut self, _by: CpuStep, space: SpaceId, call: MemoryCall) -> CallId {
        let (id, user_end) = (self.fresh_id(), self.user_end);
        let seals = if let MemoryCall::Mmap { object: MmapObject::File { file, .. }, .. } = call {
            self.files.0.get(&file).and_then(|file| file.seals).unwrap_or(0)
        } else {
            0
        };
        let process = self.process(space);
        let plan = match call {
            MemoryCall::Range(RangeCall::Brk { to }) if to < process.heap_start || to > user_end => {
                Plan::Refused([Some(Errno::ENOMEM), None, None])
            }
            other => other.plan(user_end, process.heap, seals),
        };
        let (plan, denial) = process.denial(call, plan);
        process.begin(id, call, plan, denial);
        self.revise_faults();
        CallId { space, id }
    }

    /// Reports that a call has returned.
    ///
    /// # Errors
    /// A [`crate::Violation`] if the result is impossible; the reference memory then assumes that
    /// the call did what the result says.
    ///
    /// # Panics
    /// If the process has exited since the call began.
    pub fn call_ends(&mut self, by: CpuStep, call: CallId, result: CallResult) -> SpecVerdict {
        self.tally.note(Antecedent::Returned);
        let CallId { space, id } = call;
        self.process(space).revise();
        let may_fail = self.memory_may_fail;
        let user_end = self.user_end;
        let process = self.process(space);
        let at = process.pending.iter().position(|pending| pending.id == id).expect("a call in flight");
        let pending = process.pending.remove(at);
        if let MemoryCall::Exclusive(call) = pending.call {
            process.acting.retain(|acting| acting.bit != pending.acting.bit);
            let judged = self.exclusive_call(by, space, &call, result);
            self.revise_faults();
            return judged.map_err(|expected| Self::misread(by, space, call.name(), result, expected));
        }
        let judged = process.judge(&pending, result, may_fail, user_end);
        let extent = extent(&pending, result, may_fail);
        process.finish(&pending, by, &extent);
        process.revise();
        if let (Plan::Places { pages, first }, CallResult::Mapped(va)) = (pending.plan, result)
            && let Ok(range) = PageRange::from_len(va.align_down(PAGE_SIZE), pages * PAGE_SIZE)
        {
            let now = Plan::Acts(Effect::Map { range, first });
            process.begin(id, pending.call, now, Denial::default());
            if let Some(mapped) = process.pending.pop() {
                process.finish(&mapped, by, &Extent::Everywhere);
            }
        }
        let name = pending.call.name();
        let changed = match (pending.plan, result) {
            (Plan::Acts(effect), _) => Some(effect.range()),
            (Plan::Places { pages, .. }, CallResult::Mapped(va)) => PageRange::from_len(va, pages * PAGE_SIZE).ok(),
            (Plan::Places { .. } | Plan::Refused(_) | Plan::Idle, _) => None,
        };
        if let Some(range) = changed {
            self.fault_in_locked(space, range);
        }
        match (pending.call, result) {
            (MemoryCall::Range(RangeCall::Brk { .. }), CallResult::Break(now)) => self.process(space).heap = now,
            (MemoryCall::Fork, CallResult::Child(child)) => self.add_child(space, child, pending.child),
            (MemoryCall::Exit, _) => {
                self.processes.remove(&space);
            }
            (_, _) => {}
        }
        self.revise_faults();
        judged.map_err(|expected| Self::misread(by, space, name, result, expected))
    }

    fn misread(by: CpuStep, space: SpaceId, call: &'static str, got: CallResult, expected: String) -> Box<Violation> {
        Self::violation(by, SpecMismatch::Call { space, call, got, expected })
    }

    /// Reports a whole call during which nothing else happened.
    ///
    /// # Errors
    /// As [`Spec::call_ends`].
    pub fn call(&mut self, by: CpuStep, space: SpaceId, call: MemoryCall, result: CallResult) -> SpecVerdict {
        let id = self.call_begins(by, space, call);
        self.call_ends(by, id, result)
    }

    fn add_child(&mut self, parent: SpaceId, child: SpaceId, pages: FxHashMap<u64, Page>) {
        let (heap_start, heap) = (self.process(parent).heap_start, self.process(parent).heap);
        let limits = self.process(parent).limits;
        let pages = pages.into_iter().map(|(index, page)| (index, page.inherited()));
        let pages = pages.filter(|(_, page)| !page.is_unmapped()).collect();
        let inherited = Process { pages, heap_start, heap, limits, mapped_since: true, ..Process::default() };
        self.processes.insert(child, inherited);
    }

    /// Reports that a truncation of a file to `pages` whole pages begins.
    pub fn truncate_begins(&mut self, file: FileId, pages: u64) {
        if let Some(file) = self.files.0.get_mut(&file) {
            file.truncating = Some(pages);
        }
        self.revise_faults();
    }

    /// Reports that the pending truncation of a file has returned.
    ///
    /// The pages past the new end are gone, and so are their private copies (`unmap_mapping_range`
    /// with `even_cows`).
    pub fn truncate_ends(&mut self, id: FileId) {
        let Some(file) = self.files.0.get_mut(&id) else { return };
        let Some(pages) = file.truncating else { return };
        file.truncate(pages);
        let cut = |page: &mut Page| page.cut(id, pages);
        for process in self.processes.values_mut() {
            process.pages.values_mut().for_each(cut);
            for fork in &mut process.pending {
                fork.child.values_mut().for_each(cut);
            }
        }
        self.revise_faults();
    }
}

impl Process {
    /// Checks that the result is possible.
    ///
    /// # Errors
    /// The possible results, in words.
    fn judge(
        &self,
        pending: &PendingCall,
        result: CallResult,
        may_fail: bool,
        user_end: VirtAddr,
    ) -> Result<(), String> {
        let out_of_memory = may_fail && matches!(result, CallResult::Failed(Errno::ENOMEM));
        let look = pending.outlook;
        let denial = &pending.denial;
        if let CallResult::Failed(errno) = result
            && denial.may.contains(&Some(errno))
        {
            return Ok(());
        }
        if denial.must
            && !out_of_memory
            && !matches!(pending.plan, Plan::Refused(_))
            && !matches!(pending.call, MemoryCall::Range(RangeCall::Brk { .. }))
        {
            let words: Vec<String> = denial.may.iter().flatten().map(Errno::to_string).collect();
            return Err(words.join(" or "));
        }
        let failed = |errno: Errno, when: bool| (CallResult::Failed(errno), when);
        let possible: Vec<(CallResult, bool)> = match (pending.call, pending.plan) {
            (MemoryCall::Range(RangeCall::Brk { to }), plan) => {
                return self.judge_break(pending, plan, to, result, may_fail);
            }
            (_, Plan::Refused(errnos)) => errnos.into_iter().flatten().map(|errno| failed(errno, true)).collect(),
            (MemoryCall::Fork, _) => {
                if matches!(result, CallResult::Child(_)) || out_of_memory {
                    return Ok(());
                }
                return Err("a child".into());
            }
            (_, Plan::Places { pages, .. }) => return self.judge_place(pages, result, out_of_memory, user_end),
            (MemoryCall::Mmap { place: MmapPlacement::FixedNoReplace(at), .. }, _) => {
                vec![(CallResult::Mapped(at), look.all_free), failed(Errno::EEXIST, look.any_mapped)]
            }
            (MemoryCall::Mmap { place: MmapPlacement::Fixed(at), .. }, _) => vec![(CallResult::Mapped(at), true)],
            (MemoryCall::Range(RangeCall::Mprotect { .. }), Plan::Acts(_)) => vec![
                (CallResult::Done, look.all_permit && !denial.sealed_after),
                failed(Errno::EPERM, look.all_permit && denial.sealed_after),
                failed(Errno::ENOMEM, look.hole),
                failed(Errno::EACCES, look.forbids),
            ],
            (MemoryCall::Range(RangeCall::DontNeed { .. }), Plan::Acts(_)) => {
                vec![(CallResult::Done, look.all_mapped), failed(Errno::ENOMEM, look.hole)]
            }
            (_, Plan::Acts(_) | Plan::Idle) => vec![(CallResult::Done, true)],
        };
        if possible.contains(&(result, true)) || out_of_memory && !matches!(pending.plan, Plan::Idle) {
            return Ok(());
        }
        let words: Vec<String> =
            possible.iter().filter(|(_, when)| *when).map(|(result, _)| result.to_string()).collect();
        Err(words.join(" or "))
    }

    /// Checks the result of `brk`: the break, moved or not.
    fn judge_break(
        &self,
        pending: &PendingCall,
        plan: Plan,
        to: VirtAddr,
        result: CallResult,
        may_fail: bool,
    ) -> Result<(), String> {
        let blocked = match plan {
            Plan::Acts(Effect::Map { .. }) => !pending.outlook.all_free,
            // The heap that it would give up may be unmapped already.
            Plan::Acts(Effect::Unmap { .. }) => !pending.outlook.any_mapped,
            Plan::Refused(_) => true,
            Plan::Acts(_) | Plan::Idle | Plan::Places { .. } => false,
        };
        let may_block = match plan {
            Plan::Acts(Effect::Map { .. }) => pending.outlook.any_mapped,
            Plan::Acts(Effect::Unmap { .. }) => pending.outlook.all_free,
            Plan::Refused(_) | Plan::Acts(_) | Plan::Idle | Plan::Places { .. } => blocked,
        };
        let (moved, stayed) = (CallResult::Break(to), CallResult::Break(self.heap));
        let barred = pending.denial.may.iter().any(Option::is_some);
        let (blocked, may_block) = (blocked || pending.denial.must, may_block || barred);
        if result == moved && !blocked || result == stayed && (may_block || may_fail) {
            return Ok(());
        }
        Err(if blocked { stayed.to_string() } else { moved.to_string() })
    }

    /// Checks the address that `mmap` has chosen.
    fn judge_place(
        &self,
        pages: u64,
        result: CallResult,
        out_of_memory: bool,
        user_end: VirtAddr,
    ) -> Result<(), String> {
        let len = pages * PAGE_SIZE;
        match result {
            CallResult::Mapped(va) => {
                let range = PageRange::from_len(va, len).ok().filter(|range| range.end() <= user_end);
                let Some(range) = range else { return Err("an address in user space".into()) };
                let taken =
                    |index| self.look(index).is_some_and(|page| page.states.iter().all(|state| state.map.is_some()));
                match (range.start().page_index()..range.end().page_index()).find(|&index| taken(index)) {
                    Some(index) => Err(format!(
                        "an address where nothing is mapped (page {} is mapped)",
                        VirtAddr::from_page_index(index)
                    )),
                    None => Ok(()),
                }
            }
            CallResult::Failed(Errno::ENOMEM) if out_of_memory || !self.surely_has_hole(pages, user_end) => Ok(()),
            CallResult::Failed(_)
            | CallResult::Done
            | CallResult::Break(_)
            | CallResult::Child(_)
            | CallResult::Bytes(_)
            | CallResult::Number(_) => Err("an address".into()),
        }
    }

    /// Whether `pages` free pages in a row must exist, however the mapped pages lie.
    pub(super) fn surely_has_hole(&self, pages: u64, user_end: VirtAddr) -> bool {
        let mapped = self.pages.len() as u64;
        let free = user_end.page_index().saturating_sub(mapped);
        free / (mapped + 1) >= pages
    }
}

fn extent(pending: &PendingCall, result: CallResult, may_fail: bool) -> Extent {
    let look = pending.outlook;
    let limited = pending.denial.may.contains(&Some(Errno::ENOMEM));
    match (pending.call, result) {
        (MemoryCall::Range(RangeCall::Mprotect { .. }), CallResult::Failed(Errno::EPERM))
            if pending.denial.sealed_after =>
        {
            Extent::Everywhere
        }
        // For lack of memory nothing changes. If there may have been a hole, the cause of ENOMEM is
        // unknown.
        (MemoryCall::Range(RangeCall::Mprotect { .. }), CallResult::Failed(Errno::ENOMEM))
            if may_fail && !look.hole && !limited =>
        {
            Extent::Nowhere
        }
        (MemoryCall::Range(RangeCall::Mprotect { .. }), CallResult::Failed(Errno::ENOMEM)) if may_fail || limited => {
            Extent::Before { sure: 0, possible: look.possible }
        }
        (MemoryCall::Range(RangeCall::Mprotect { .. }), CallResult::Failed(Errno::ENOMEM | Errno::EACCES)) => {
            Extent::Before { sure: look.sure, possible: look.possible }
        }
        // Each mapping may lack the memory to break a table that other spaces share.
        (MemoryCall::Range(RangeCall::DontNeed { .. }), CallResult::Failed(Errno::ENOMEM)) if may_fail => {
            Extent::Before { sure: 0, possible: u64::MAX }
        }
        // The pages around the holes are dropped.
        (MemoryCall::Range(RangeCall::DontNeed { .. }), CallResult::Failed(Errno::ENOMEM)) => Extent::Everywhere,
        (MemoryCall::Range(RangeCall::Brk { to }), CallResult::Break(at)) if at != to => Extent::Nowhere,
        (_, CallResult::Failed(_)) => Extent::Nowhere,
        (
            _,
            CallResult::Done
            | CallResult::Mapped(_)
            | CallResult::Break(_)
            | CallResult::Child(_)
            | CallResult::Bytes(_)
            | CallResult::Number(_),
        ) => Extent::Everywhere,
    }
}
