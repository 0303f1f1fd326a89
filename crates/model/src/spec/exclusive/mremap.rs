//! `mremap`: pages that go elsewhere.

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

/// A request whose arguments are sound, in whole pages.
#[derive(Clone, Copy)]
struct Request {
    addr: VirtAddr,
    old: u64,
    new: u64,
    flags: u32,
    to: VirtAddr,
}

/// What a request comes to.
#[derive(Debug)]
enum RemapEffect {
    /// Nothing happens.
    Stays,
    /// The end goes.
    Shrinks(PageRange),
    /// More pages like the first, behind them.
    Grows { first: PageMapping, range: PageRange },
    /// Pages go to a place that is known (`to`), or that the answer tells.
    Moves { source: PageRange, to: Option<VirtAddr>, pages: u64 },
}

/// Whether pages are one mapping.
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
    // The end of the source may wrap, and is compared as it is then (`vrm_overlaps`).
    let overlaps = addr.raw().wrapping_add(request.old) > to.start().raw() && to.end() > addr;
    let same_size = flags & DONTUNMAP == 0 || request.old == request.new;
    (flags & MAYMOVE != 0 && same_size && !overlaps).then_some(request)
}

/// What follows `map` after so many pages.
fn continued(map: PageMapping, by: u64) -> PageMapping {
    match map.backing {
        PageBacking::Anon => map,
        PageBacking::File { file, index } => {
            PageMapping { backing: PageBacking::File { file, index: index + by }, ..map }
        }
    }
}

/// Whether two pages side by side could be one mapping's.
fn is_alike(map: PageMapping, other: PageMapping, index: u64, neighbour: u64) -> bool {
    let plain = |mut map: PageMapping| {
        map.flags.guarded = false;
        map
    };
    if index < neighbour { continued(plain(map), 1) == plain(other) } else { plain(map) == continued(plain(other), 1) }
}

impl Process {
    /// Whether the pages of a range, all of which are mapped, are of one mapping.
    fn is_one(&self, range: PageRange) -> SingleMapping {
        let first = range.start().page_index();
        let plain = |mut map: PageMapping| {
            map.flags.guarded = false;
            map
        };
        let Some(start) = self.mapped(first).map(plain) else { return SingleMapping::No };
        let mut one = SingleMapping::Yes;
        for index in indices(range) {
            if self.mapped(index).map(plain) != Some(continued(start, index - first)) {
                return SingleMapping::No;
            }
            if index > first && self.pages.get(&index).is_some_and(|page| page.seam) {
                one = SingleMapping::Maybe;
            }
        }
        one
    }

    /// What limits say to `more` pages like `map`.
    fn growth_error(&self, map: &PageMapping, more: u64) -> Option<Errno> {
        if map.flags.lock != MlockMode::Unlocked && self.is_too_much_locked(more) {
            return Some(Errno::EAGAIN);
        }
        self.is_too_much(map, more, 0).then_some(Errno::ENOMEM)
    }

    /// What a request may come to: one thing, or two where it is not known what is one mapping.
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
        // What a smaller size leaves over goes first, whatever it is.
        let all = pages(addr, old).filter(|all| all.end() <= user_end);
        let Some(all) = all else {
            // Before it goes the destination, unless it is sealed. Which of two reasons is told
            // depends on what is unmapped first.
            let sealed = flags & FIXED != 0 && pages(to, new).is_some_and(|to| self.is_sealed(to));
            return match (sealed, one) {
                (false, _) => vec![Err(Errno::EINVAL), Err(Errno::EFAULT)],
                (true, SingleMapping::Yes) => vec![Err(Errno::EPERM)],
                (true, SingleMapping::Maybe | SingleMapping::No) => vec![Err(Errno::EPERM), Err(Errno::EFAULT)],
            };
        };
        let several = flags & FIXED != 0 && old == new;
        let mut courses = Vec::new();
        if one != SingleMapping::Yes && !several {
            courses.push(Err(Errno::EFAULT));
        }
        if one == SingleMapping::No && !several {
            return courses;
        }
        let more = new.saturating_sub(old) / PAGE_SIZE;
        if let Some(errno) = (more > 0).then(|| self.growth_error(&first, more)).flatten() {
            courses.push(Err(errno));
            return courses;
        }
        let target = (flags & FIXED != 0).then_some(to);
        if self.is_sealed(all) {
            courses.push(Err(Errno::EPERM));
            return courses;
        }
        if old == 0 && target.is_some_and(|to| to == addr) {
            // The destination is unmapped, and the source with it, unless it is sealed.
            let sealed = pages(to, new).is_some_and(|to| self.is_sealed(to));
            courses.push(Err(if sealed { Errno::EPERM } else { Errno::EFAULT }));
            return courses;
        }
        let moves = RemapEffect::Moves { source: all, to: target, pages: new / PAGE_SIZE };
        courses.push(self.remap_one(request, first, moves, user_end));
        courses
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
            if self.is_too_much(&first, new / PAGE_SIZE, there) {
                return Err(Errno::ENOMEM);
            }
        }
        if flags & (FIXED | DONTUNMAP) != 0 {
            return Ok(moves);
        }
        let behind = pages(addr.add(old), new - old).filter(|behind| behind.end() <= user_end);
        if let Some(behind) = behind.filter(|behind| old > 0 && self.mapped_in(*behind).0.is_empty()) {
            return Ok(RemapEffect::Grows { first: continued(first, old / PAGE_SIZE), range: behind });
        }
        if flags & MAYMOVE == 0 { Err(Errno::ENOMEM) } else { Ok(moves) }
    }

    fn unmap(&mut self, range: PageRange) {
        for index in self.existing(range) {
            self.pages.remove(&index);
            self.forgotten += 1;
        }
        self.sew(range);
    }

    /// Maps fresh pages: `first` and what follows.
    fn map_fresh(&mut self, range: PageRange, first: PageMapping) {
        let start = range.start().page_index();
        let mut first = first;
        first.flags.guarded = false;
        for index in indices(range) {
            let states = vec![PossibleState { map: Some(continued(first, index - start)), ..PossibleState::UNMAPPED }];
            let mut page = Page { states, ..Page::default() };
            page.blur();
            self.pages.insert(index, page);
            self.mapped_since = true;
        }
    }

    /// A mapping whose pages go and that stays is locked no longer, all of it
    /// (`dontunmap_complete`).
    fn unlock_around(&mut self, source: PageRange) {
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

    /// Pages go elsewhere, with all that may be in them; what they leave is nothing, or an empty
    /// mapping.
    fn move_pages(&mut self, source: PageRange, to: VirtAddr, pages: u64, flags: u32) {
        let from = source.start().page_index();
        let Some(first) = self.mapped(from) else { return };
        let target = PageRange::new(to, to.add(pages * PAGE_SIZE));
        if source.is_empty() {
            self.unmap(target);
            self.map_fresh(target, first);
            return self.sew(target);
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
            self.unlock_around(source);
            for index in indices(source) {
                if let Some(page) = self.pages.get_mut(&index) {
                    page.empty();
                }
            }
            self.sew(source);
        }
        self.unmap(target);
        if pages > source.pages() {
            let rest = PageRange::new(to.add(source.len()), target.end());
            self.map_fresh(rest, continued(first, source.pages()));
        }
        let gaps: Vec<u64> = kept.iter().map(|(by, _)| *by).collect();
        for (by, mut page) in moved {
            page.drops += 1;
            page.blur();
            self.mapped_since = true;
            page.seam |= by > 0 && gaps.contains(&(by - 1));
            self.pages.insert(to.page_index() + by, page);
        }
        // What lies between several mappings stays between them.
        for (by, page) in kept {
            if let Some(mut page) = page {
                page.seam |= !gaps.contains(&(by.wrapping_sub(1)));
                self.pages.insert(to.page_index() + by, page);
            }
        }
        self.sew(target);
    }
}

impl Page {
    /// Its contents went elsewhere and the mapping stays, locked no longer.
    fn empty(&mut self) {
        self.drops += 1;
        self.blur();
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
    /// Whether it is beyond doubt how far a call can get: nothing else is under way in the process,
    /// it is known what is mapped, and of several mappings that are to be moved none has a reason
    /// to stay, such as a seal, a limit or, where allocations fail (`starving`), memory.
    ///
    /// # Panics
    /// When the process is unknown.
    pub fn is_determined(&self, space: SpaceId, call: &ExclusiveCall, starving: bool) -> bool {
        let process = self.processes.get(&space).expect("a process that was told of and has not ended");
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

    /// `mremap` has answered.
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
        let courses = process.remap(&request, user_end);
        let mut words = Vec::new();
        for course in courses {
            match course {
                Err(errno) if result == CallResult::Failed(errno) => return Ok(()),
                Err(errno) => words.push(errno.to_string()),
                Ok(course) => match process.take_course(&request, &course, result, user_end) {
                    Ok(range) => {
                        for index in indices(range) {
                            if let Some(page) = process.pages.get_mut(&index) {
                                page.changed = Some((by, call.name()));
                            }
                        }
                        self.lock_new(by, space, &request, result);
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

    /// What a locked mapping has grown by is faulted in as far as possible.
    fn lock_new(&mut self, by: CpuStep, space: SpaceId, request: &Request, result: CallResult) {
        let CallResult::Mapped(at) = result else { return };
        let Some(new) = pages(at, request.new) else { return };
        let locked =
            |index: &u64| self.processes[&space].mapped(*index).is_some_and(|map| map.flags.lock == MlockMode::Locked);
        let changes: Vec<(u64, Change)> = indices(new)
            .skip((request.old / PAGE_SIZE) as usize)
            .filter(locked)
            .map(|index| (index, Change::MayCopy))
            .collect();
        self.make(by, space, "mremap", &changes, true);
    }
}

impl Process {
    /// Does what a request comes to if that is what the answer says; else says what it should have
    /// been.
    fn take_course(
        &mut self,
        request: &Request,
        course: &RemapEffect,
        result: CallResult,
        user_end: VirtAddr,
    ) -> Result<PageRange, String> {
        let Request { addr, flags, .. } = *request;
        let stays =
            || (result == CallResult::Mapped(addr)).then_some(()).ok_or_else(|| CallResult::Mapped(addr).to_string());
        match *course {
            RemapEffect::Stays => stays().map(|()| PageRange::new(addr, addr)),
            RemapEffect::Shrinks(range) => {
                stays()?;
                self.unmap(range);
                Ok(PageRange::new(addr, addr))
            }
            RemapEffect::Grows { first, range } => {
                stays()?;
                self.map_fresh(range, first);
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
