//! One page of one process, in every state that is possible while calls are in flight.
//!
//! A [`PossibleState`] says what is mapped, what the private copy holds, and which of the pending
//! calls have already had their effect on the page. A pending call may take effect at any moment,
//! so the set of states is closed under the effects of all pending calls. When a call returns, the
//! states without its effect are dropped. An access drops the states that its result refutes.
//!
//! Not guaranteed: that the states of different pages are consistent with one another. Each page
//! is judged by itself, which allows more.

use super::cells::{Base, Cells};
use super::contents::PageContents;
use super::soft_dirty::SoftDirtyBit;
use crate::violation::CpuStep;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use pagewright_types::{Access, FileId, PageRange, Rights, VirtAddr};

/// What backs a mapped page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageBacking {
    /// Private anonymous memory: zero until the first store.
    Anon,
    /// A page of a file or of shared memory.
    File {
        /// The file.
        file: FileId,
        /// The page of it.
        index: u64,
    },
}

/// The mapping of one page: the part of its VMA that matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageMapping {
    /// The protection.
    pub rights: Rights,
    /// The most that `mprotect` may grant (`VM_MAYREAD`, `VM_MAYWRITE`, `VM_MAYEXEC`).
    pub max_rights: Rights,
    /// `MAP_SHARED`: stores go to the file.
    pub shared: bool,
    /// The backing.
    pub backing: PageBacking,
    /// The other properties.
    pub flags: MappingFlags,
}

/// How a mapping is locked in memory (`mlock`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MlockMode {
    /// It is not locked.
    #[default]
    Unlocked,
    /// Locked and populated (`VM_LOCKED`).
    Locked,
    /// Locked page by page as pages are faulted in (`VM_LOCKONFAULT`).
    OnFault,
}

/// The properties of a mapped page that `mlock`, `mseal`, `madvise` and `mmap` flags set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MappingFlags {
    /// How it is locked (`mlock`, `MAP_LOCKED`).
    pub lock: MlockMode,
    /// `mseal`.
    pub sealed: bool,
    /// `MADV_GUARD_INSTALL`; a property of the page, not of its VMA.
    pub guarded: bool,
    /// `MAP_GROWSDOWN`.
    pub grows_down: bool,
    /// `MADV_DONTFORK`.
    pub dont_fork: bool,
    /// `MADV_WIPEONFORK`.
    pub wipe_on_fork: bool,
    /// `MADV_DONTDUMP`.
    pub dont_dump: bool,
    /// `MAP_NORESERVE`.
    pub no_reserve: bool,
    /// The number of the last of `MADV_NORMAL`, `MADV_RANDOM` and `MADV_SEQUENTIAL`.
    pub readahead: u8,
    /// The number of the last of `MADV_HUGEPAGE` and `MADV_NOHUGEPAGE`, or 0.
    pub huge_pages: u8,
}

impl PageMapping {
    /// Whether the protection allows an access.
    ///
    /// On both instruction sets, a writable or executable page is readable.
    pub(super) fn allows(&self, access: Access) -> bool {
        match access {
            Access::Read => !self.rights.is_empty(),
            Access::Write | Access::Exec => self.rights.allow(access),
        }
    }
}

/// The mapping of a page depends on pending or failed calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Uncertain;

/// The effect of a call on each page of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Changes no page.
    None,
    /// Maps the range, its first page as `first`.
    Map { range: PageRange, first: PageMapping },
    /// Unmaps the range.
    Unmap { range: PageRange },
    /// Sets the protection of the pages whose mapping permits it.
    Protect { range: PageRange, rights: Rights },
    /// Drops private copies.
    Drop { range: PageRange },
}

impl Effect {
    pub(super) fn range(&self) -> PageRange {
        match *self {
            Self::None => PageRange::new(VirtAddr::ZERO, VirtAddr::ZERO),
            Self::Map { range, .. } | Self::Unmap { range } | Self::Protect { range, .. } | Self::Drop { range } => {
                range
            }
        }
    }

    /// The mapping and the private copy of page `index` after the effect on `state`.
    fn apply(&self, index: u64, state: &PossibleState) -> (Option<PageMapping>, Option<PageContents>) {
        match *self {
            Self::None => (state.map, state.own.clone()),
            Self::Map { range, first } => (Some(first.after(index - range.start().page_index())), None),
            Self::Unmap { .. } => (None, None),
            Self::Protect { rights, .. } => {
                let map = state
                    .map
                    .map(|map| if map.max_rights.contains(rights) { PageMapping { rights, ..map } } else { map });
                (map, state.own.clone())
            }
            Self::Drop { .. } => (state.map, None),
        }
    }
}

impl PageMapping {
    fn after(self, pages: u64) -> Self {
        match self.backing {
            PageBacking::Anon => self,
            PageBacking::File { file, index } => {
                Self { backing: PageBacking::File { file, index: index + pages }, ..self }
            }
        }
    }
}

/// One possible state of a page.
#[derive(Clone, Debug)]
pub(super) struct PossibleState {
    /// The bits of the pending calls that have taken effect.
    pub(super) done: u64,
    pub(super) map: Option<PageMapping>,
    /// The private copy, if there is one.
    pub(super) own: Option<PageContents>,
}

impl PossibleState {
    pub(super) const UNMAPPED: Self = Self { done: 0, map: None, own: None };

    /// Merges `other` into `self` if the two differ only in contents.
    ///
    /// Returns whether `self` changed, or `None` if the two cannot be merged.
    fn join(&mut self, other: &Self) -> Option<bool> {
        if self.done != other.done || self.map != other.map {
            return None;
        }
        match (&mut self.own, &other.own) {
            (None, None) => Some(false),
            (Some(mine), Some(theirs)) if mine.is(theirs) => Some(false),
            (Some(PageContents::Cow(mine)), Some(PageContents::Cow(theirs))) if mine.base() == theirs.base() => {
                let mut joined = (**mine).clone();
                let new = joined.join(theirs);
                if new {
                    *mine = Rc::new(joined);
                }
                Some(new)
            }
            (Some(_) | None, Some(_) | None) => None,
        }
    }

    /// The private copy, made from `from` if there is none yet.
    pub(super) fn own_mut(&mut self, from: impl FnOnce() -> Rc<Cells>) -> &mut PageContents {
        self.own.get_or_insert_with(|| PageContents::Cow(from()))
    }

    /// The contents of a zeroed page.
    pub(super) fn zeroes() -> Rc<Cells> {
        Rc::new(Cells::new(Base::Zero))
    }
}

/// The effect of a pending call.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingEffect {
    pub(super) bit: u64,
    pub(super) effect: Effect,
}

impl PendingEffect {
    fn covers(&self, index: u64) -> bool {
        self.effect.range().contains(VirtAddr::from_page_index(index))
    }
}

/// A page of a process.
#[derive(Clone, Debug)]
pub(super) struct Page {
    pub(super) states: Vec<PossibleState>,
    pub(super) stored: Option<CpuStep>,
    pub(super) changed: Option<(CpuStep, &'static str)>,
    /// How often states were dropped.
    pub(super) drops: u64,
    /// Whether the page is soft-dirty.
    pub(super) soft_dirty: SoftDirtyBit,
    /// Whether a VMA may begin here although the page before has the same mapping.
    pub(super) seam: bool,
    /// Whether reclaim may discard the contents, until the next store (`MADV_FREE`).
    pub(super) fleeting: bool,
}

impl Default for Page {
    fn default() -> Self {
        let (states, soft_dirty) = (vec![PossibleState::UNMAPPED], SoftDirtyBit::Set);
        Self { states, stored: None, changed: None, drops: 0, soft_dirty, seam: false, fleeting: false }
    }
}

impl Page {
    /// Adds a possible state and returns whether it was new.
    pub(super) fn add(&mut self, state: PossibleState) -> bool {
        let known = self.states.iter_mut().find_map(|known| known.join(&state));
        if known.is_none() {
            self.states.push(state);
        }
        known.unwrap_or(true)
    }

    /// Adds every state that the pending calls can lead to on page `index`.
    pub(super) fn close(&mut self, index: u64, acting: &[PendingEffect]) {
        if !acting.iter().any(|call| call.covers(index)) {
            return;
        }
        loop {
            let mut new = false;
            for at in 0..self.states.len() {
                for call in acting.iter().filter(|call| call.covers(index)) {
                    let state = &self.states[at];
                    if state.done & call.bit == 0 {
                        let (map, own) = call.effect.apply(index, state);
                        let done = state.done | call.bit;
                        new |= self.add(PossibleState { done, map, own });
                    }
                }
            }
            if !new {
                return;
            }
        }
    }

    /// Drops the states that are not `possible`.
    pub(super) fn retain(&mut self, possible: impl FnMut(&PossibleState) -> bool) {
        let before = self.states.len();
        self.states.retain(possible);
        self.drops += u64::from(self.states.len() < before);
        self.fade();
    }

    /// Adds the states in which reclaim has discarded the contents, if it may (`MADV_FREE`).
    fn fade(&mut self) {
        if self.fleeting {
            let gone = self
                .states
                .iter()
                .filter(|state| state.own.is_some())
                .map(|state| PossibleState { own: None, ..state.clone() });
            for state in gone.collect::<Vec<_>>() {
                self.add(state);
            }
        }
    }

    /// Drops the states that cannot follow from a state that was `known` at an earlier moment.
    ///
    /// No state may have been dropped since that moment.
    pub(super) fn narrow(&mut self, index: u64, acting: &[PendingEffect], known: impl Fn(&PossibleState) -> bool) {
        let mut after =
            Self { states: self.states.iter().filter(|state| known(state)).cloned().collect(), ..Self::default() };
        if !after.states.is_empty() {
            after.close(index, acting);
            self.states = after.states;
            self.fade();
        }
    }

    /// Resolves the effect of the returned call with this bit: had, not had, or unknown (`None`).
    pub(super) fn finish(&mut self, bit: u64, happened: Option<bool>) {
        self.drops += 1;
        if let Some(happened) = happened {
            self.states.retain(|state| (state.done & bit != 0) == happened);
        }
        for state in core::mem::take(&mut self.states) {
            self.add(PossibleState { done: state.done & !bit, ..state });
        }
    }

    /// A copy of the page on which no call is pending.
    pub(super) fn without_pending(&self) -> Self {
        let mut copy = Self { states: Vec::new(), ..self.clone() };
        for state in &self.states {
            copy.add(PossibleState { done: 0, map: state.map, own: state.own.as_ref().map(PageContents::copy) });
        }
        copy
    }

    /// Drops the private copy if the page shows page `pages` of the file or a later one.
    ///
    /// The file has been truncated to `pages` pages.
    pub(super) fn cut(&mut self, id: FileId, pages: u64) {
        self.drops += 1;
        self.forget_soft_dirty();
        let is_cut =
            |map: PageMapping| matches!(map.backing, PageBacking::File { file, index } if file == id && index >= pages);
        for state in core::mem::take(&mut self.states) {
            let own = if state.map.is_some_and(is_cut) { None } else { state.own };
            self.add(PossibleState { own, ..state });
        }
    }

    /// The page as a child inherits it: not at all, the mapping alone, or with its contents.
    ///
    /// A child inherits no memory lock.
    pub(super) fn inherited(&self) -> Self {
        let mut child = Self { states: Vec::new(), ..self.clone() };
        child.forget_soft_dirty();
        for state in &self.states {
            child.add(match state.map {
                Some(map) if map.flags.dont_fork => PossibleState::UNMAPPED,
                Some(map) => {
                    let guarded = map.flags.guarded && !map.flags.wipe_on_fork;
                    let flags = MappingFlags { lock: MlockMode::Unlocked, guarded, ..map.flags };
                    let own = if map.flags.wipe_on_fork { None } else { state.own.clone() };
                    PossibleState { map: Some(PageMapping { flags, ..map }), own, ..state.clone() }
                }
                None => state.clone(),
            });
        }
        child
    }

    /// The mapping, if it is the same in all states.
    pub(super) fn map(&self) -> Result<Option<PageMapping>, Uncertain> {
        let map = self.states.first().and_then(|state| state.map);
        if self.states.iter().all(|state| state.map == map && state.done == 0) { Ok(map) } else { Err(Uncertain) }
    }

    pub(super) fn is_unmapped(&self) -> bool {
        self.states.iter().all(|state| state.map.is_none() && state.done == 0)
    }
}
