//! `mlock2`, `munlock`, `mlockall`, `munlockall`, `mseal`, `msync` and `mincore`.

use super::super::Process;
use super::super::file::Files;
use super::super::page::{MappingFlags, MlockMode, PageMapping};
use super::madvise::is_past_end;
use super::{CallEffect, Change, pages, rounded};
use crate::spec::{CallResult, Spec, SpecVerdict};
use crate::violation::{CpuStep, SpecMismatch};
use alloc::format;
use alloc::vec::Vec;
use pagewright_types::{Errno, PAGE_SIZE, PageRange, SpaceId, VirtAddr};

/// `MCL_*`.
const CURRENT: u32 = 1;
const FUTURE: u32 = 2;
const ONFAULT: u32 = 4;

/// The start and the length of the pages that a range of bytes touches.
///
/// The end may wrap, which leaves a short length, as in Linux.
pub(super) fn touched(addr: VirtAddr, len: u64) -> (VirtAddr, u64) {
    let start = addr.align_down(PAGE_SIZE);
    (start, rounded(len.wrapping_add(addr.since(start))))
}

fn relocked(map: &PageMapping, lock: MlockMode) -> Change {
    Change::Flags(MappingFlags { lock, ..map.flags })
}

impl Process {
    pub(super) fn lock(&self, files: &Files, addr: VirtAddr, len: u64, flags: u32) -> CallEffect {
        if flags > 1 {
            return CallEffect::failed(Errno::EINVAL);
        }
        if self.may_not_lock() {
            return CallEffect::failed(Errno::EPERM);
        }
        let (start, len) = touched(addr, len);
        let range = pages(start, len);
        let already = range.map_or(0, |range| self.totals_in(range).locked);
        let more = (self.totals().locked + len / PAGE_SIZE).saturating_sub(already);
        if more > self.limits.locked / PAGE_SIZE {
            return CallEffect::failed(Errno::ENOMEM);
        }
        let Some(range) = range else { return CallEffect::failed(Errno::EINVAL) };
        let lock = if flags == 1 { MlockMode::OnFault } else { MlockMode::Locked };
        let effect = self.relock(range, lock);
        if effect.result != CallResult::Done || lock == MlockMode::OnFault {
            return effect;
        }
        self.fault_in(range, effect, files)
    }

    /// Faults in all pages after a lock, up to the first that cannot be faulted in.
    fn fault_in(&self, range: PageRange, effect: CallEffect, files: &Files) -> CallEffect {
        let mut effect = effect;
        for (index, map) in self.mapped_in(range).0 {
            if map.rights.is_empty() || map.flags.guarded || is_past_end(&map, files) {
                return effect.ends(CallResult::Failed(Errno::ENOMEM));
            }
            effect.changes.push((index, Change::Copy));
        }
        effect
    }

    /// Changes the lock mode of the pages up to the first hole.
    fn relock(&self, range: PageRange, lock: MlockMode) -> CallEffect {
        let (mut changes, mut next) = (Vec::new(), range.start().page_index());
        for (index, map) in self.mapped_in(range).0 {
            if index != next {
                break;
            }
            next += 1;
            changes.push((index, relocked(&map, lock)));
        }
        let whole = next == range.end().page_index();
        CallEffect { result: if whole { CallResult::Done } else { CallResult::Failed(Errno::ENOMEM) }, changes }
    }

    pub(super) fn unlock(&self, addr: VirtAddr, len: u64) -> CallEffect {
        let (start, len) = touched(addr, len);
        match pages(start, len) {
            Some(range) => self.relock(range, MlockMode::Unlocked),
            None => CallEffect::failed(Errno::EINVAL),
        }
    }

    pub(super) fn lock_all(&self, flags: u32) -> CallEffect {
        if flags == 0 || flags > (CURRENT | FUTURE | ONFAULT) || flags == ONFAULT {
            return CallEffect::failed(Errno::EINVAL);
        }
        if self.may_not_lock() {
            return CallEffect::failed(Errno::EPERM);
        }
        if flags & CURRENT == 0 {
            return CallEffect::done();
        }
        if self.totals().pages > self.limits.locked / PAGE_SIZE {
            return CallEffect::failed(Errno::ENOMEM);
        }
        let lock = if flags & ONFAULT == 0 { MlockMode::Locked } else { MlockMode::OnFault };
        let mut effect = CallEffect::done();
        for (index, map) in self.all_mapped() {
            effect.changes.push((index, relocked(&map, lock)));
            // The pages are faulted in as far as possible; the result does not say how far.
            if lock == MlockMode::Locked {
                effect.changes.push((index, Change::MayCopy));
            }
        }
        effect
    }

    pub(super) fn unlock_all(&self) -> CallEffect {
        let changes =
            self.all_mapped().iter().map(|(index, map)| (*index, relocked(map, MlockMode::Unlocked))).collect();
        CallEffect { result: CallResult::Done, changes }
    }

    /// Sets how `mlockall` locks future mappings.
    pub(super) fn lock_future(&mut self, flags: u32, result: CallResult) {
        if result == CallResult::Done {
            self.future = match (flags & FUTURE != 0, flags & ONFAULT != 0) {
                (false, _) => MlockMode::Unlocked,
                (true, false) => MlockMode::Locked,
                (true, true) => MlockMode::OnFault,
            };
        }
    }

    pub(super) fn seal(&self, addr: VirtAddr, len: u64, flags: u32) -> CallEffect {
        let Some(range) = pages(addr, len).filter(|_| flags == 0) else { return CallEffect::failed(Errno::EINVAL) };
        let (mapped, whole) = self.mapped_in(range);
        if !whole {
            return CallEffect::failed(Errno::ENOMEM);
        }
        let sealed = |map: &PageMapping| Change::Flags(MappingFlags { sealed: true, ..map.flags });
        CallEffect {
            result: CallResult::Done,
            changes: mapped.iter().map(|(index, map)| (*index, sealed(map))).collect(),
        }
    }

    /// `msync` changes nothing, because every store is visible at once.
    pub(super) fn sync(&self, addr: VirtAddr, len: u64, flags: u32) -> CallEffect {
        let (asynchronously, invalidate, synchronously) = (1, 2, 4);
        let both = asynchronously | synchronously;
        if flags > 7 || flags & both == both || !addr.is_page_aligned() {
            return CallEffect::failed(Errno::EINVAL);
        }
        let Some(range) = pages(addr, rounded(len)) else { return CallEffect::failed(Errno::ENOMEM) };
        let (mut next, mut hole) = (range.start().page_index(), false);
        for (index, map) in self.mapped_in(range).0 {
            if index != next {
                hole = true;
                if flags == asynchronously {
                    break;
                }
            }
            if flags & invalidate != 0 && map.flags.lock != MlockMode::Unlocked {
                return CallEffect::failed(Errno::EBUSY);
            }
            next = index + 1;
        }
        if hole || next < range.end().page_index() { CallEffect::failed(Errno::ENOMEM) } else { CallEffect::done() }
    }

    pub(super) fn mincore(&self, addr: VirtAddr, len: u64, user_end: VirtAddr) -> CallEffect {
        if !addr.is_page_aligned() {
            return CallEffect::failed(Errno::EINVAL);
        }
        match pages(addr, len).filter(|range| range.end() <= user_end) {
            Some(range) if self.mapped_in(range).1 => CallEffect::done(),
            Some(_) | None => CallEffect::failed(Errno::ENOMEM),
        }
    }
}

impl Spec {
    /// Records that the locked pages of `range` may have been faulted in.
    pub(in super::super) fn fault_in_locked(&mut self, space: SpaceId, range: PageRange) {
        let Self { processes, files, .. } = self;
        let Some(process) = processes.get_mut(&space) else { return };
        for index in process.existing(range) {
            if process.mapped(index).is_some_and(|map| map.flags.lock == MlockMode::Locked)
                && let Some(page) = process.pages.get_mut(&index)
            {
                page.change(Change::MayCopy, true, files);
            }
        }
    }

    /// Reports whether `mincore` shows the page of `va` as resident.
    ///
    /// Without swap, a private copy is always resident.
    ///
    /// # Errors
    /// A [`crate::Violation`] if that is impossible.
    ///
    /// # Panics
    /// If the process is unknown.
    pub fn mincore_page(&self, by: CpuStep, space: SpaceId, va: VirtAddr, resident: bool) -> SpecVerdict {
        let process = self.processes.get(&space).expect("a process that was added and has not exited");
        let page = process.pages.get(&va.page_index());
        let has = page.is_some_and(|page| page.states.iter().all(|state| state.own.is_some()));
        if resident || !has || self.swaps {
            return Ok(());
        }
        let expected = format!("0x1 for page {va}, which has a private copy");
        Err(Self::violation(by, SpecMismatch::Call { space, call: "mincore", got: CallResult::Number(0), expected }))
    }
}
