//! One page of one process: every state that it can be in while calls are under way.
//!
//! A [`PossibleState`] is one possibility: what is mapped, what the private copy holds, and which of the
//! calls under way have already had their effect on this page. Each call under way may have its
//! effect at any moment until it returns, so a page has the closure of that. When a call returns,
//! worlds in which it had no effect are dropped; an access that tells worlds apart drops those that
//! it refutes.
//!
//! Not guaranteed: that worlds of different pages are consistent with one another. Each page is
//! judged by itself, which allows more.

use super::cells::{Base, Cells};
use super::contents::PageContents;
use super::soft_dirty::Mark;
use crate::violation::CpuStep;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use pagewright_types::{Access, FileId, PageRange, Rights, VirtAddr};

/// What a mapped page shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageBacking {
    /// Zeroes until stored to.
    Anon,
    /// A page of a file or of shared memory.
    File {
        /// Which.
        file: FileId,
        /// Which page of it.
        index: u64,
    },
}

/// What is mapped at a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageMapping {
    /// What accesses it allows.
    pub rights: Rights,
    /// What `mprotect` may make of that.
    pub max_rights: Rights,
    /// Stores go to the file.
    pub shared: bool,
    /// What it shows.
    pub backing: PageBacking,
    /// What else is said of it.
    pub flags: MappingFlags,
}

/// Whether memory is locked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MlockMode {
    /// It is not.
    #[default]
    Unlocked,
    /// With all its pages.
    Locked,
    /// Page by page, as they are touched.
    OnFault,
}

/// What has been said of a mapped page, in calls that are alone in their process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MappingFlags {
    /// `mlock`.
    pub lock: MlockMode,
    /// `mseal`.
    pub sealed: bool,
    /// `MADV_GUARD_INSTALL`; what a page has and not a mapping.
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
    /// `MADV_RANDOM`, `MADV_SEQUENTIAL`: their numbers.
    pub readahead: u8,
}

impl PageMapping {
    /// Whether an access is allowed.
    ///
    /// Whatever can be written or executed can be read, on both instruction sets.
    pub(super) fn allows(&self, access: Access) -> bool {
        match access {
            Access::Read => !self.rights.is_empty(),
            Access::Write | Access::Exec => self.rights.allow(access),
        }
    }
}

/// It is not known what is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InDoubt;

/// What a call does to each page of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Nothing to any page.
    None,
    /// Maps `first` at the first page of the range, and what follows after it.
    Map { range: PageRange, first: PageMapping },
    /// Unmaps.
    Unmap { range: PageRange },
    /// Changes rights where something is mapped that may have them.
    Protect { range: PageRange, rights: Rights },
    /// Drops private contents.
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

    /// Page `index` of the address space, after the effect.
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

/// One possibility.
#[derive(Clone, Debug)]
pub(super) struct PossibleState {
    /// Calls under way that have had their effect here, by their bit.
    pub(super) done: u64,
    pub(super) map: Option<PageMapping>,
    /// The private copy, once there is one.
    pub(super) own: Option<PageContents>,
}

impl PossibleState {
    pub(super) const UNMAPPED: Self = Self { done: 0, map: None, own: None };

    /// Takes in what `other` allows if the two differ in contents alone: `None` if they don't, else
    /// whether anything was new.
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

    /// The private copy to store to; `from` is what it is a copy of, if there is none yet.
    pub(super) fn own_mut(&mut self, from: impl FnOnce() -> Rc<Cells>) -> &mut PageContents {
        self.own.get_or_insert_with(|| PageContents::Cow(from()))
    }

    /// An empty page of one's own.
    pub(super) fn zeroes() -> Rc<Cells> {
        Rc::new(Cells::new(Base::Zero))
    }
}

/// A call under way, as pages see it.
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

/// A page.
#[derive(Clone, Debug)]
pub(super) struct Page {
    pub(super) states: Vec<PossibleState>,
    pub(super) stored: Option<CpuStep>,
    pub(super) changed: Option<(CpuStep, &'static str)>,
    /// How often worlds were dropped.
    pub(super) drops: u64,
    /// Whether it is marked as stored to.
    pub(super) mark: Mark,
    /// Whether a mapping may begin here though the page before is like this one.
    pub(super) seam: bool,
    /// Whether reclaim may throw away what is there, until it is stored to (`MADV_FREE`).
    pub(super) fleeting: bool,
}

impl Default for Page {
    fn default() -> Self {
        let (states, mark) = (vec![PossibleState::UNMAPPED], Mark::Set);
        Self { states, stored: None, changed: None, drops: 0, mark, seam: false, fleeting: false }
    }
}

impl Page {
    /// Adds a possibility.
    ///
    /// Returns whether it was new.
    pub(super) fn add(&mut self, state: PossibleState) -> bool {
        let known = self.states.iter_mut().find_map(|known| known.join(&state));
        if known.is_none() {
            self.states.push(state);
        }
        known.unwrap_or(true)
    }

    /// Adds what follows when calls under way have their effect on page `index` now.
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

    /// Drops the worlds that something refutes.
    pub(super) fn retain(&mut self, possible: impl FnMut(&PossibleState) -> bool) {
        let before = self.states.len();
        self.states.retain(possible);
        self.drops += u64::from(self.states.len() < before);
        self.fade();
    }

    /// What was there a moment ago may go now, if it may at all.
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

    /// At some moment at which no world has been dropped since, one of `known` was true: drops what
    /// can't have followed from them.
    pub(super) fn settle_on(&mut self, index: u64, acting: &[PendingEffect], known: impl Fn(&PossibleState) -> bool) {
        let mut after =
            Self { states: self.states.iter().filter(|state| known(state)).cloned().collect(), ..Self::default() };
        if !after.states.is_empty() {
            after.close(index, acting);
            self.states = after.states;
            self.fade();
        }
    }

    /// The call with this bit has returned: it has had its effect, has not, or nobody knows
    /// (`None`).
    pub(super) fn finish(&mut self, bit: u64, happened: Option<bool>) {
        self.drops += 1;
        if let Some(happened) = happened {
            self.states.retain(|state| (state.done & bit != 0) == happened);
        }
        for state in core::mem::take(&mut self.states) {
            self.add(PossibleState { done: state.done & !bit, ..state });
        }
    }

    /// A copy of the page, as one that no call under way acts on.
    pub(super) fn settled(&self) -> Self {
        let mut settled = Self { states: Vec::new(), ..self.clone() };
        for state in &self.states {
            settled.add(PossibleState { done: 0, map: state.map, own: state.own.as_ref().map(PageContents::copy) });
        }
        settled
    }

    /// Pages of `file` from `pages` on are cut off: private copies of them go, too.
    pub(super) fn cut(&mut self, id: FileId, pages: u64) {
        self.drops += 1;
        self.blur();
        let is_cut =
            |map: PageMapping| matches!(map.backing, PageBacking::File { file, index } if file == id && index >= pages);
        for state in core::mem::take(&mut self.states) {
            let own = if state.map.is_some_and(is_cut) { None } else { state.own };
            self.add(PossibleState { own, ..state });
        }
    }

    /// What a child gets: nothing, the mapping alone, or all of it.
    ///
    /// Locks stay with the parent.
    pub(super) fn inherited(&self) -> Self {
        let mut child = Self { states: Vec::new(), ..self.clone() };
        child.blur();
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

    /// What is mapped, if there is no doubt about it.
    pub(super) fn map(&self) -> Result<Option<PageMapping>, InDoubt> {
        let map = self.states.first().and_then(|state| state.map);
        if self.states.iter().all(|state| state.map == map && state.done == 0) { Ok(map) } else { Err(InDoubt) }
    }

    pub(super) fn is_unmapped(&self) -> bool {
        self.states.iter().all(|state| state.map.is_none() && state.done == 0)
    }
}
