//! `mremap`: mappings that move, grow and shrink.

use super::super::call::CallResult;
use super::super::file::Files;
use super::super::page::{MappingFlags, MlockMode, Page, PageBacking, PageMapping, PossibleState};
use super::super::{Process, Spec};
use super::{Change, ExclusiveCall, indices, pages, rounded};
use crate::violation::CpuStep;
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use pagewright_types::{Errno, PAGE_SIZE, PageRange, SpaceId, VirtAddr};

const MAYMOVE: u32 = 1;
const FIXED: u32 = 2;
const DONTUNMAP: u32 = 4;

/// A request with valid arguments; lengths are multiples of the page size.
#[derive(Clone, Copy)]
struct Request {
    addr: VirtAddr,
    old: u64,
    new: u64,
    flags: u32,
    to: VirtAddr,
}

/// The effect of a request.
#[derive(Debug)]
enum RemapEffect {
    /// Nothing happens.
    Stays,
    /// The end of the mapping is unmapped.
    Shrinks(PageRange),
    /// The mapping grows in place by `range`, whose first page is `first`.
    Grows { first: PageMapping, range: PageRange },
    /// The mapping moves to `to`, or to the address in the result.
    Moves { source: PageRange, to: Option<VirtAddr>, pages: u64 },
}

/// Whether pages belong to a single VMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SingleMapping {
    Yes,
    No,
    Maybe,
}

fn request(call: &ExclusiveCall, user_end: VirtAddr) -> Option<Request> {
    let ExclusiveCall::Remap { addr, old_len, new_len, flags, new_addr } = *call else { return None };
    let request = Request { addr, old: rounded(old_len), new: rounded(new_len), flags, to: new_addr };
    let sound = flags <= 7 && addr.is_page_aligned() && request.new != 0 && request.new <= user_end.raw();
    if !sound || flags & (FIXED | DONTUNMAP) == 0 {
        return sound.then_some(request);
    }
    let to = pages(new_addr, request.new).filter(|to| to.end() <= user_end)?;
    // The end of the source may wrap; Linux compares the wrapped value (`vrm_overlaps`).
    let overlaps = addr.raw().wrapping_add(request.old) > to.start().raw() && to.end() > addr;
    let same_size = flags & DONTUNMAP == 0 || request.old == request.new;
    (flags & MAYMOVE != 0 && same_size && !overlaps).then_some(request)
}

/// The mapping `by` pages after `map`.
fn mapping_after(map: PageMapping, by: u64) -> PageMapping {
    match map.backing {
        PageBacking::Anon => map,
        PageBacking::File { file, index } => {
            PageMapping { backing: PageBacking::File { file, index: index + by }, ..map }
        }
    }
}

/// Whether two adjacent pages could belong to one VMA.
fn is_alike(map: PageMapping, other: PageMapping, index: u64, neighbour: u64) -> bool {
    let plain = |mut map: PageMapping| {
        map.flags.guarded = false;
        map
    };
    if index < neighbour {
        mapping_after(plain(map), 1) == plain(other)
    } else {
        plain(map) == mapping_after(plain(other), 1)
    }
}

impl Process {
    /// Whether the pages of a range belong to a single VMA.
    fn is_one(&self, range: PageRange) -> SingleMapping {
        let first = range.start().page_index();
        let plain = |mut map: PageMapping| {
            map.flags.guarded = false;
            map
        };
        let Some(start) = self.mapped(first).map(plain) else { return SingleMapping::No };
        let mut one = SingleMapping::Yes;
        for index in indices(range) {
            if self.mapped(index).map(plain) != Some(mapping_after(start, index - first)) {
                return SingleMapping::No;
            }
            if index > first && self.pages.get(&index).is_some_and(|page| page.seam) {
                one = SingleMapping::Maybe;
            }
        }
        one
    }

    /// The error if `more` pages like `map` exceed an rlimit.
    fn growth_error(&self, map: &PageMapping, more: u64) -> Option<Errno> {
        if map.flags.lock != MlockMode::Unlocked && self.exceeds_lock_limit(more) {
            return Some(Errno::EAGAIN);
        }
        self.exceeds_limits(map, more, 0).then_some(Errno::ENOMEM)
    }

    /// The possible effects and errors of a request.
    ///
    /// There are several if it is uncertain which pages belong to a single VMA.
    fn remap(&self, request: &Request, user_end: VirtAddr) -> Vec<Result<RemapEffect, Errno>> {
        let Request { addr, old, new, flags, to } = *request;
        let Some(first) = self.mapped(addr.page_index()) else { return vec![Err(Errno::EFAULT)] };
        if first.flags.sealed {
            return vec![Err(Errno::EPERM)];
        }
        let placed = flags & (FIXED | DONTUNMAP) != 0;
        if !placed && old == new {
            return vec![Ok(RemapEffect::Stays)];
        }
        if !placed && old > new {
            let all = pages(addr, old).filter(|all| all.end() <= user_end);
            let Some(all) = all else { return vec![Err(Errno::EINVAL)] };
            let end = PageRange::new(addr.add(new), all.end());
            let sealed = self.is_sealed(end);
            return vec![if sealed { Err(Errno::EPERM) } else { Ok(RemapEffect::Shrinks(end)) }];
        }
        if old == 0 && !first.shared {
            return vec![Err(Errno::EINVAL)];
        }
        let source = PageRange::new(addr, addr.add(old.min(new)));
        let one = if old == 0 { SingleMapping::Yes } else { self.is_one(source) };
        // The excess of a smaller size is unmapped first, whatever is mapped there.
        let all = pages(addr, old).filter(|all| all.end() <= user_end);
        let Some(all) = all else {
            // Linux unmaps the destination first, and fails if it is sealed. Otherwise the error
            // depends on what that has unmapped.
            let sealed = flags & FIXED != 0 && pages(to, new).is_some_and(|to| self.is_sealed(to));
            return match (sealed, one) {
                (false, _) => vec![Err(Errno::EINVAL), Err(Errno::EFAULT)],
                (true, SingleMapping::Yes) => vec![Err(Errno::EPERM)],
                (true, SingleMapping::Maybe | SingleMapping::No) => vec![Err(Errno::EPERM), Err(Errno::EFAULT)],
            };
        };
        let several = flags & FIXED != 0 && old == new;
        let mut effects = Vec::new();
        if one != SingleMapping::Yes && !several {
            effects.push(Err(Errno::EFAULT));
        }
        if one == SingleMapping::No && !several {
            return effects;
        }
        let more = new.saturating_sub(old) / PAGE_SIZE;
        if let Some(errno) = (more > 0).then(|| self.growth_error(&first, more)).flatten() {
            effects.push(Err(errno));
            return effects;
        }
        let target = (flags & FIXED != 0).then_some(to);
        if self.is_sealed(all) {
            effects.push(Err(Errno::EPERM));
            return effects;
        }
        if old == 0 && target.is_some_and(|to| to == addr) {
            // Unmapping the destination unmaps the source, too, unless it is sealed.
            let sealed = pages(to, new).is_some_and(|to| self.is_sealed(to));
            effects.push(Err(if sealed { Errno::EPERM } else { Errno::EFAULT }));
            return effects;
        }
        let moves = RemapEffect::Moves { source: all, to: target, pages: new / PAGE_SIZE };
        effects.push(self.remap_one(request, first, moves, user_end));
        effects
    }

    fn remap_one(
        &self,
        request: &Request,
        first: PageMapping,
        moves: RemapEffect,
        user_end: VirtAddr,
    ) -> Result<RemapEffect, Errno> {
        let Request { addr, old, new, flags, to } = *request;
        let target = pages(to, new).filter(|_| flags & FIXED != 0);
        if target.is_some_and(|target| self.is_sealed(target)) {
            return Err(Errno::EPERM);
        }
        if flags & DONTUNMAP != 0 {
            let there = target.map_or(0, |target| self.totals_in(target).pages);
            if self.exceeds_limits(&first, new / PAGE_SIZE, there) {
                return Err(Errno::ENOMEM);
            }
        }
        if flags & (FIXED | DONTUNMAP) != 0 {
            return Ok(moves);
        }
        let behind = pages(addr.add(old), new - old).filter(|behind| behind.end() <= user_end);
        if let Some(behind) = behind.filter(|behind| old > 0 && self.mapped_in(*behind).0.is_empty()) {
            return Ok(RemapEffect::Grows { first: mapping_after(first, old / PAGE_SIZE), range: behind });
        }
        if flags & MAYMOVE == 0 { Err(Errno::ENOMEM) } else { Ok(moves) }
    }

    fn unmap(&mut self, range: PageRange) {
        for index in self.existing(range) {
            self.pages.remove(&index);
            self.forgotten += 1;
        }
        self.mark_seams(range);
    }

    /// Maps new pages, the first as `first`.
    fn map_new(&mut self, range: PageRange, first: PageMapping) {
        let start = range.start().page_index();
        let mut first = first;
        first.flags.guarded = false;
        for index in indices(range) {
            let states =
                vec![PossibleState { map: Some(mapping_after(first, index - start)), ..PossibleState::UNMAPPED }];
            let mut page = Page { states, ..Page::default() };
            page.forget_soft_dirty();
            self.pages.insert(index, page);
            self.mapped_since = true;
        }
    }

    /// Unlocks the rest of the VMA that `MREMAP_DONTUNMAP` leaves empty (`dontunmap_complete`).
    fn unlock_rest_of_vma(&mut self, source: PageRange) {
        let (first, end) = (source.start().page_index(), source.end().page_index());
        let below = (0..first).rev().map(|index| (index, index + 1, index + 1));
        let above = (end..).map(|index| (index, index - 1, index));
        let walks: [Box<dyn Iterator<Item = (u64, u64, u64)>>; 2] = [Box::new(below), Box::new(above)];
        for walk in walks {
            let mut surely = true;
            let mut changes = Vec::new();
            for (index, neighbour, border) in walk {
                let (Some(map), Some(next)) = (self.mapped(index), self.mapped(neighbour)) else { break };
                if map.flags.lock == MlockMode::Unlocked || !is_alike(map, next, index, neighbour) {
                    break;
                }
                surely &= !self.pages.get(&border).is_some_and(|page| page.seam);
                let flags = MappingFlags { lock: MlockMode::Unlocked, ..map.flags };
                changes.push((index, Change::Flags(flags), surely));
            }
            for (index, change, surely) in changes {
                if let Some(page) = self.pages.get_mut(&index) {
                    page.change(change, surely, &Files::default());
                }
            }
        }
    }

    /// Moves pages with their contents, and leaves nothing or an empty mapping behind.
    fn move_pages(&mut self, source: PageRange, to: VirtAddr, pages: u64, flags: u32) {
        let from = source.start().page_index();
        let Some(first) = self.mapped(from) else { return };
        let target = PageRange::new(to, to.add(pages * PAGE_SIZE));
        if source.is_empty() {
            self.unmap(target);
            self.map_new(target, first);
            return self.mark_seams(target);
        }
        let moved: Vec<(u64, Page)> = indices(source)
            .take(pages as usize)
            .filter_map(|index| Some((index - from, self.pages.get(&index)?.clone())))
            .collect();
        let holes: Vec<u64> =
            (0..source.pages().min(pages)).filter(|at| !moved.iter().any(|(by, _)| by == at)).collect();
        let kept: Vec<(u64, Option<Page>)> =
            holes.into_iter().map(|by| (by, self.pages.get(&(to.page_index() + by)).cloned())).collect();
        if flags & DONTUNMAP == 0 {
            self.unmap(source);
        } else {
            self.unlock_rest_of_vma(source);
            for index in indices(source) {
                if let Some(page) = self.pages.get_mut(&index) {
                    page.empty();
                }
            }
            self.mark_seams(source);
        }
        self.unmap(target);
        if pages > source.pages() {
            let rest = PageRange::new(to.add(source.len()), target.end());
            self.map_new(rest, mapping_after(first, source.pages()));
        }
        let gaps: Vec<u64> = kept.iter().map(|(by, _)| *by).collect();
        for (by, mut page) in moved {
            page.drops += 1;
            page.forget_soft_dirty();
            self.mapped_since = true;
            page.seam |= by > 0 && gaps.contains(&(by - 1));
            self.pages.insert(to.page_index() + by, page);
        }
        // Where the source has holes between VMAs, the destination keeps its pages.
        for (by, page) in kept {
            if let Some(mut page) = page {
                page.seam |= !gaps.contains(&(by.wrapping_sub(1)));
                self.pages.insert(to.page_index() + by, page);
            }
        }
        self.mark_seams(target);
    }
}

impl Page {
    /// Leaves the mapping without contents and without a lock.
    fn empty(&mut self) {
        self.drops += 1;
        self.forget_soft_dirty();
        for state in core::mem::take(&mut self.states) {
            let map = state.map.map(|mut map| {
                map.flags.lock = MlockMode::Unlocked;
                map.flags.guarded = false;
                map
            });
            self.add(PossibleState { map, own: None, ..state });
        }
    }
}

impl Spec {
    /// Whether it is certain how far a call can get.
    ///
    /// No other call may be in flight in the process, and its mappings must be certain. If several
    /// VMAs are to be moved, nothing may stop one of them: no seal, no limit, and no failing
    /// allocation (`starving`).
    ///
    /// # Panics
    /// If the process is unknown.
    pub fn is_determined(&self, space: SpaceId, call: &ExclusiveCall, starving: bool) -> bool {
        let process = self.processes.get(&space).expect("a process that was added and has not exited");
        if !process.is_certain() {
            return false;
        }
        let Some(request) = request(call, self.user_end) else { return true };
        let several = request.flags & FIXED != 0 && request.old == request.new;
        let one = pages(request.addr, request.old).is_none_or(|source| process.is_one(source) == SingleMapping::Yes);
        let limits = process.limits;
        let free = limits.data == u64::MAX && limits.space == u64::MAX && !starving;
        !several || one || free && !process.all_mapped().iter().any(|(_, map)| map.flags.sealed)
    }

    /// Judges the result of `mremap` and applies its effect.
    ///
    /// # Errors
    /// The possible results, in words.
    pub(super) fn remapped(
        &mut self,
        by: CpuStep,
        space: SpaceId,
        call: &ExclusiveCall,
        result: CallResult,
    ) -> Result<(), String> {
        let (user_end, may_fail) = (self.user_end, self.memory_may_fail);
        let Some(request) = request(call, user_end) else {
            let errno = CallResult::Failed(Errno::EINVAL);
            return if result == errno { Ok(()) } else { Err(errno.to_string()) };
        };
        let process = self.process(space);
        let effects = process.remap(&request, user_end);
        let mut words = Vec::new();
        for effect in effects {
            match effect {
                Err(errno) if result == CallResult::Failed(errno) => return Ok(()),
                Err(errno) => words.push(errno.to_string()),
                Ok(effect) => match process.apply_effect(&request, &effect, result, user_end) {
                    Ok(range) => {
                        for index in indices(range) {
                            if let Some(page) = process.pages.get_mut(&index) {
                                page.changed = Some((by, call.name()));
                            }
                        }
                        self.fault_in_growth(by, space, &request, result);
                        return Ok(());
                    }
                    Err(wanted) => words.push(wanted),
                },
            }
        }
        if may_fail && result == CallResult::Failed(Errno::ENOMEM) {
            return Ok(());
        }
        Err(words.join(" or "))
    }

    /// Records that the pages by which a locked mapping has grown may have been faulted in.
    fn fault_in_growth(&mut self, by: CpuStep, space: SpaceId, request: &Request, result: CallResult) {
        let CallResult::Mapped(at) = result else { return };
        let Some(new) = pages(at, request.new) else { return };
        let locked =
            |index: &u64| self.processes[&space].mapped(*index).is_some_and(|map| map.flags.lock == MlockMode::Locked);
        let changes: Vec<(u64, Change)> = indices(new)
            .skip((request.old / PAGE_SIZE) as usize)
            .filter(locked)
            .map(|index| (index, Change::MayCopy))
            .collect();
        self.apply(by, space, "mremap", &changes, true);
    }
}

impl Process {
    /// Applies `effect` if the result fits it.
    ///
    /// Returns the pages that have changed.
    ///
    /// # Errors
    /// The result that would fit, in words.
    fn apply_effect(
        &mut self,
        request: &Request,
        effect: &RemapEffect,
        result: CallResult,
        user_end: VirtAddr,
    ) -> Result<PageRange, String> {
        let Request { addr, flags, .. } = *request;
        let stays =
            || (result == CallResult::Mapped(addr)).then_some(()).ok_or_else(|| CallResult::Mapped(addr).to_string());
        match *effect {
            RemapEffect::Stays => stays().map(|()| PageRange::new(addr, addr)),
            RemapEffect::Shrinks(range) => {
                stays()?;
                self.unmap(range);
                Ok(PageRange::new(addr, addr))
            }
            RemapEffect::Grows { first, range } => {
                stays()?;
                self.map_new(range, first);
                if let Some(page) = self.pages.get_mut(&range.end().page_index()) {
                    page.seam = true;
                }
                Ok(range)
            }
            RemapEffect::Moves { source, to, pages } => {
                let at = match (to, result) {
                    (Some(to), CallResult::Mapped(at)) if to == at => at,
                    (Some(to), _) => return Err(CallResult::Mapped(to).to_string()),
                    (None, CallResult::Mapped(at)) => {
                        let range = PageRange::from_len(at, pages * PAGE_SIZE).ok();
                        let free = range.filter(|range| range.end() <= user_end && self.mapped_in(*range).0.is_empty());
                        free.ok_or("an address where nothing is mapped")?.start()
                    }
                    (None, CallResult::Failed(Errno::ENOMEM)) if !self.surely_has_hole(pages, user_end) => {
                        return Ok(PageRange::new(addr, addr));
                    }
                    (None, _) => return Err("an address".into()),
                };
                self.move_pages(source, at, pages, flags);
                Ok(PageRange::new(at, at.add(pages * PAGE_SIZE)))
            }
        }
    }
}
