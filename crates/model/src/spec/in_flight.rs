//! Calls, from their beginning to their return.

use super::call::{CallResult, MemoryCall, MmapObject, MmapPlacement, Outlook, Plan};
use super::exclusive::Denial;
use super::page::{Effect, Page, PendingEffect};
use super::soft_dirty::Mark;
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

/// Names a call under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the call's return must be told"]
pub struct CallId {
    space: SpaceId,
    id: u64,
}

/// A call under way.
pub(super) struct PendingCall {
    id: u64,
    call: MemoryCall,
    plan: Plan,
    acting: PendingEffect,
    outlook: Outlook,
    /// What limits and seals say.
    denial: Denial,
    /// Of a fork: what the child may find, page by page.
    child: FxHashMap<u64, Page>,
}

impl PendingCall {
    /// Whether it copies the process.
    fn forks(&self) -> bool {
        self.call == MemoryCall::Fork
    }
}

/// What a call's answer says about its effect on the pages of its range.
enum Happened {
    Everywhere,
    Nowhere,
    /// On the first `sure` pages; perhaps on those up to `possible`; nowhere after.
    Before {
        sure: u64,
        possible: u64,
    },
}

impl Process {
    /// What the call with this bit may find on its pages: other calls act, it does not.
    fn outlook(&self, acting: PendingEffect) -> Outlook {
        let others: Vec<PendingEffect> = self.acting.iter().filter(|other| other.bit != acting.bit).copied().collect();
        Outlook::of(acting.effect, |index| {
            let mut page = self.pages.get(&index)?.clone();
            page.close(index, &others);
            page.states.retain(|state| state.done & acting.bit == 0);
            Some(page)
        })
    }

    /// Something has changed: every call and fault under way may have found it before or may find
    /// it after.
    fn revise(&mut self) {
        if self.pending.len() > 1 {
            let now: Vec<Outlook> = self.pending.iter().map(|call| self.outlook(call.acting)).collect();
            for (call, now) in self.pending.iter_mut().zip(now) {
                call.outlook = call.outlook.or(now);
            }
        }
    }

    /// A fork under way may find page `index` as it may be now.
    pub(super) fn tell_forks(&mut self, index: u64) {
        if !self.pending.iter().any(PendingCall::forks) {
            return;
        }
        let Some(page) = self.look(index) else { return };
        for fork in self.pending.iter_mut().filter(|call| call.forks()) {
            let seen = fork.child.entry(index).or_default();
            for state in page.settled().states {
                seen.add(state);
            }
        }
    }

    /// Existing pages of `range`, by index.
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
        let bit = 1u64 << (!used).trailing_zeros();
        assert!(used != u64::MAX, "64 calls of one process are under way");
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
            indices.into_iter().filter_map(|index| Some((index, self.look(index)?.settled()))).collect()
        } else {
            FxHashMap::default()
        };
        self.acting.push(acting);
        self.pending.push(PendingCall { id, call, plan, acting, outlook, denial, child });
        for index in self.existing(effect.range()) {
            self.tell_forks(index);
        }
        self.revise();
    }

    /// The call's effect on each page is known now.
    fn finish(&mut self, pending: &PendingCall, by: CpuStep, happened: &Happened) {
        let PendingEffect { bit, effect } = pending.acting;
        let first = effect.range().start().page_index();
        for index in self.existing(effect.range()) {
            let Some(page) = self.page(index) else { continue };
            let known = match *happened {
                Happened::Everywhere => Some(true),
                Happened::Nowhere => Some(false),
                Happened::Before { sure, .. } if index - first < sure => Some(true),
                Happened::Before { possible, .. } if index - first < possible => None,
                Happened::Before { .. } => Some(false),
            };
            page.finish(bit, known);
            match (effect, known) {
                (_, Some(false)) | (Effect::None | Effect::Unmap { .. } | Effect::Protect { .. }, _) => {}
                (Effect::Map { .. }, Some(true)) => page.mark = Mark::Set,
                (Effect::Map { .. }, None) | (Effect::Drop { .. }, _) => page.blur(),
            }
            if known != Some(false) {
                page.changed = Some((by, pending.call.name()));
            }
            if page.is_unmapped() {
                self.pages.remove(&index);
                self.forgotten += 1;
            }
        }
        if !matches!(happened, Happened::Nowhere) && !matches!(effect, Effect::Drop { .. }) {
            self.sew(effect.range());
        }
        self.acting.retain(|call| call.bit != bit);
    }

    /// Mappings may begin where `range` does and where it ends.
    pub(super) fn sew(&mut self, range: PageRange) {
        for index in [range.start().page_index(), range.end().page_index()] {
            if let Some(page) = self.pages.get_mut(&index) {
                page.seam = true;
            }
        }
    }
}

impl Spec {
    /// A call begins.
    ///
    /// Its arguments are judged; what it may find is watched until it returns.
    ///
    /// # Panics
    /// When the process is unknown, or has 64 calls under way.
    pub fn call_begins(&mut self, _by: CpuStep, space: SpaceId, call: MemoryCall) -> CallId {
        let (id, user_end) = (self.fresh_id(), self.user_end);
        let seals = if let MemoryCall::Mmap { object: MmapObject::File { file, .. }, .. } = call {
            self.files.0.get(&file).and_then(|file| file.seals).unwrap_or(0)
        } else {
            0
        };
        let process = self.process(space);
        let plan = match call {
            MemoryCall::Brk { to } if to < process.heap_start || to > user_end => {
                Plan::Refused([Some(Errno::ENOMEM), None, None])
            }
            other => other.plan(user_end, process.heap, seals),
        };
        let (plan, denial) = process.denial(call, plan);
        process.begin(id, call, plan, denial);
        self.revise_faults();
        CallId { space, id }
    }

    /// A call has returned.
    ///
    /// # Errors
    /// A [`crate::Violation`] when it could not have answered so; it is then taken at its word.
    ///
    /// # Panics
    /// When the process has ended meanwhile.
    pub fn call_ends(&mut self, by: CpuStep, call: CallId, result: CallResult) -> SpecVerdict {
        self.tally.note(Antecedent::Answered);
        let CallId { space, id } = call;
        self.process(space).revise();
        let may_fail = self.memory_may_fail;
        let user_end = self.user_end;
        let process = self.process(space);
        let at = process.pending.iter().position(|pending| pending.id == id).expect("a call under way");
        let pending = process.pending.remove(at);
        if let MemoryCall::Exclusive(call) = pending.call {
            process.acting.retain(|acting| acting.bit != pending.acting.bit);
            let judged = self.alone(by, space, &call, result);
            self.revise_faults();
            return judged.map_err(|expected| Self::misread(by, space, call.name(), result, expected));
        }
        let judged = process.judge(&pending, result, may_fail, user_end);
        let happened = happened(&pending, result, may_fail);
        process.finish(&pending, by, &happened);
        process.revise();
        if let (Plan::Places { pages, first }, CallResult::Mapped(va)) = (pending.plan, result)
            && let Ok(range) = PageRange::from_len(va.align_down(PAGE_SIZE), pages * PAGE_SIZE)
        {
            let now = Plan::Acts(Effect::Map { range, first });
            process.begin(id, pending.call, now, Denial::default());
            if let Some(mapped) = process.pending.pop() {
                process.finish(&mapped, by, &Happened::Everywhere);
            }
        }
        let name = pending.call.name();
        let changed = match (pending.plan, result) {
            (Plan::Acts(effect), _) => Some(effect.range()),
            (Plan::Places { pages, .. }, CallResult::Mapped(va)) => PageRange::from_len(va, pages * PAGE_SIZE).ok(),
            (Plan::Places { .. } | Plan::Refused(_) | Plan::Idle, _) => None,
        };
        if let Some(range) = changed {
            self.bring_locked(space, range);
        }
        match (pending.call, result) {
            (MemoryCall::Brk { .. }, CallResult::Break(now)) => self.process(space).heap = now,
            (MemoryCall::Fork, CallResult::Child(child)) => self.born(space, child, pending.child),
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

    /// A call from beginning to return, while nothing else happens.
    ///
    /// # Errors
    /// As [`Spec::call_ends`].
    pub fn call(&mut self, by: CpuStep, space: SpaceId, call: MemoryCall, result: CallResult) -> SpecVerdict {
        let id = self.call_begins(by, space, call);
        self.call_ends(by, id, result)
    }

    fn born(&mut self, parent: SpaceId, child: SpaceId, pages: FxHashMap<u64, Page>) {
        let (heap_start, heap) = (self.process(parent).heap_start, self.process(parent).heap);
        let limits = self.process(parent).limits;
        let pages = pages.into_iter().map(|(index, page)| (index, page.inherited()));
        let pages = pages.filter(|(_, page)| !page.is_unmapped()).collect();
        let inherited = Process { pages, heap_start, heap, limits, mapped_since: true, ..Process::default() };
        self.processes.insert(child, inherited);
    }

    /// A truncation of a file to so many whole pages begins.
    pub fn truncate_begins(&mut self, file: FileId, pages: u64) {
        if let Some(file) = self.files.0.get_mut(&file) {
            file.truncating = Some(pages);
        }
        self.revise_faults();
    }

    /// The truncation that began has returned: what was cut off is gone, private copies of it too
    /// (`unmap_mapping_range` with `even_cows`).
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
    /// Whether the answer is one of those possible; else what they are, in words.
    fn judge(
        &self,
        pending: &PendingCall,
        result: CallResult,
        may_fail: bool,
        user_end: VirtAddr,
    ) -> Result<(), String> {
        // MADV_DONTNEED needs no memory.
        let needs = !matches!(pending.call, MemoryCall::DontNeed { .. });
        let lacked = may_fail && needs && matches!(result, CallResult::Failed(Errno::ENOMEM));
        let look = pending.outlook;
        let denial = &pending.denial;
        if let CallResult::Failed(errno) = result
            && denial.may.contains(&Some(errno))
        {
            return Ok(());
        }
        if denial.must
            && !lacked
            && !matches!(pending.plan, Plan::Refused(_))
            && !matches!(pending.call, MemoryCall::Brk { .. })
        {
            let words: Vec<String> = denial.may.iter().flatten().map(Errno::to_string).collect();
            return Err(words.join(" or "));
        }
        let failed = |errno: Errno, when: bool| (CallResult::Failed(errno), when);
        let possible: Vec<(CallResult, bool)> = match (pending.call, pending.plan) {
            (MemoryCall::Brk { to }, plan) => return self.judge_break(pending, plan, to, result, may_fail),
            (_, Plan::Refused(errnos)) => errnos.into_iter().flatten().map(|errno| failed(errno, true)).collect(),
            (MemoryCall::Fork, _) => {
                if matches!(result, CallResult::Child(_)) || lacked {
                    return Ok(());
                }
                return Err("a child".into());
            }
            (_, Plan::Places { pages, .. }) => return self.judge_place(pages, result, lacked, user_end),
            (MemoryCall::Mmap { place: MmapPlacement::FixedNoReplace(at), .. }, _) => {
                vec![(CallResult::Mapped(at), look.all_free), failed(Errno::EEXIST, look.any_mapped)]
            }
            (MemoryCall::Mmap { place: MmapPlacement::Fixed(at), .. }, _) => vec![(CallResult::Mapped(at), true)],
            (MemoryCall::Mprotect { .. }, Plan::Acts(_)) => vec![
                (CallResult::Done, look.all_permit && !denial.sealed_after),
                failed(Errno::EPERM, look.all_permit && denial.sealed_after),
                failed(Errno::ENOMEM, look.hole),
                failed(Errno::EACCES, look.forbids),
            ],
            (MemoryCall::DontNeed { .. }, Plan::Acts(_)) => {
                vec![(CallResult::Done, look.all_mapped), failed(Errno::ENOMEM, look.hole)]
            }
            (_, Plan::Acts(_) | Plan::Idle) => vec![(CallResult::Done, true)],
        };
        if possible.contains(&(result, true)) || lacked && !matches!(pending.plan, Plan::Idle) {
            return Ok(());
        }
        let words: Vec<String> =
            possible.iter().filter(|(_, when)| *when).map(|(result, _)| result.to_string()).collect();
        Err(words.join(" or "))
    }

    /// `brk` answers with the break, moved or not.
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
            Plan::Refused(_) => true,
            Plan::Acts(_) | Plan::Idle | Plan::Places { .. } => false,
        };
        let may_block = match plan {
            Plan::Acts(Effect::Map { .. }) => pending.outlook.any_mapped,
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

    /// `mmap` chose where.
    fn judge_place(&self, pages: u64, result: CallResult, lacked: bool, user_end: VirtAddr) -> Result<(), String> {
        let len = pages * PAGE_SIZE;
        match result {
            CallResult::Mapped(va) => {
                let range = PageRange::from_len(va, len).ok().filter(|range| range.end() <= user_end);
                let Some(range) = range else { return Err("an address in user memory".into()) };
                let taken =
                    |index| self.look(index).is_some_and(|page| page.states.iter().all(|state| state.map.is_some()));
                match (range.start().page_index()..range.end().page_index()).find(|&index| taken(index)) {
                    Some(index) => {
                        Err(format!("an address where nothing is mapped ({} is)", VirtAddr::from_page_index(index)))
                    }
                    None => Ok(()),
                }
            }
            CallResult::Failed(Errno::ENOMEM) if lacked || !self.surely_has_hole(pages, user_end) => Ok(()),
            CallResult::Failed(_)
            | CallResult::Done
            | CallResult::Break(_)
            | CallResult::Child(_)
            | CallResult::Bytes(_)
            | CallResult::Number(_) => Err("an address".into()),
        }
    }

    /// Whether some hole must be large enough, however the mapped pages lie.
    pub(super) fn surely_has_hole(&self, pages: u64, user_end: VirtAddr) -> bool {
        let mapped = self.pages.len() as u64;
        let free = user_end.page_index().saturating_sub(mapped);
        free / (mapped + 1) >= pages
    }
}

fn happened(pending: &PendingCall, result: CallResult, may_fail: bool) -> Happened {
    let look = pending.outlook;
    let limited = pending.denial.may.contains(&Some(Errno::ENOMEM));
    match (pending.call, result) {
        (MemoryCall::Mprotect { .. }, CallResult::Failed(Errno::EPERM)) if pending.denial.sealed_after => {
            Happened::Everywhere
        }
        // For want of memory nothing changes; where there may have been a hole, nobody can tell.
        (MemoryCall::Mprotect { .. }, CallResult::Failed(Errno::ENOMEM)) if may_fail && !look.hole && !limited => {
            Happened::Nowhere
        }
        (MemoryCall::Mprotect { .. }, CallResult::Failed(Errno::ENOMEM)) if may_fail || limited => {
            Happened::Before { sure: 0, possible: look.possible }
        }
        (MemoryCall::Mprotect { .. }, CallResult::Failed(Errno::ENOMEM | Errno::EACCES)) => {
            Happened::Before { sure: look.sure, possible: look.possible }
        }
        // Beside holes, pages are dropped all the same.
        (MemoryCall::DontNeed { .. }, CallResult::Failed(Errno::ENOMEM)) => Happened::Everywhere,
        (MemoryCall::Brk { to }, CallResult::Break(at)) if at != to => Happened::Nowhere,
        (_, CallResult::Failed(_)) => Happened::Nowhere,
        (
            _,
            CallResult::Done
            | CallResult::Mapped(_)
            | CallResult::Break(_)
            | CallResult::Child(_)
            | CallResult::Bytes(_)
            | CallResult::Number(_),
        ) => Happened::Everywhere,
    }
}
