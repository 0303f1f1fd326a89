//! One page of one process: every state that it can be in while calls are under way.
//!
//! A [`World`] is one possibility: what is mapped, what the private copy holds, and which of the
//! calls under way have already had their effect on this page. Each call under way may have its
//! effect at any moment until it returns, so a page has the closure of that. When a call returns,
//! worlds in which it had no effect are dropped; an access that tells worlds apart drops those that
//! it refutes.
//!
//! Not guaranteed: that worlds of different pages are consistent with one another. Each page is
//! judged by itself, which allows more.

use super::data::{Base, Data};
use super::sheet::Sheet;
use super::soft_dirty::Mark;
use crate::violation::Did;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use pagewright_types::{Access, FileId, PageRange, Rights, VirtAddr};

/// What a mapped page shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
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
pub struct Mapped {
    /// What accesses it allows.
    pub rights: Rights,
    /// What `mprotect` may make of that.
    pub most: Rights,
    /// Stores go to the file.
    pub shared: bool,
    /// What it shows.
    pub source: Source,
    /// What else is said of it.
    pub traits: Traits,
}

/// Whether memory is locked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lock {
    /// It is not.
    #[default]
    No,
    /// With all its pages.
    Now,
    /// Page by page, as they are touched.
    OnFault,
}

/// What has been said of a mapped page, in calls that are alone in their process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traits {
    /// `mlock`.
    pub lock: Lock,
    /// `mseal`.
    pub sealed: bool,
    /// `MADV_GUARD_INSTALL`; what a page has and not a mapping.
    pub guarded: bool,
    /// `MAP_GROWSDOWN`.
    pub grows: bool,
    /// `MADV_DONTFORK`.
    pub unforked: bool,
    /// `MADV_WIPEONFORK`.
    pub wiped: bool,
    /// `MADV_DONTDUMP`.
    pub undumped: bool,
    /// `MAP_NORESERVE`.
    pub unreserved: bool,
    /// `MADV_RANDOM`, `MADV_SEQUENTIAL`: their numbers.
    pub order: u8,
}

impl Mapped {
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
    Map { range: PageRange, first: Mapped },
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
    fn apply(&self, index: u64, world: &World) -> (Option<Mapped>, Option<Sheet>) {
        match *self {
            Self::None => (world.map, world.own.clone()),
            Self::Map { range, first } => (Some(first.after(index - range.start().page_index())), None),
            Self::Unmap { .. } => (None, None),
            Self::Protect { rights, .. } => {
                let map = world.map.map(|map| if map.most.contains(rights) { Mapped { rights, ..map } } else { map });
                (map, world.own.clone())
            }
            Self::Drop { .. } => (world.map, None),
        }
    }
}

impl Mapped {
    fn after(self, pages: u64) -> Self {
        match self.source {
            Source::Anon => self,
            Source::File { file, index } => Self { source: Source::File { file, index: index + pages }, ..self },
        }
    }
}

/// One possibility.
#[derive(Clone, Debug)]
pub(super) struct World {
    /// Calls under way that have had their effect here, by their bit.
    pub(super) done: u64,
    pub(super) map: Option<Mapped>,
    /// The private copy, once there is one.
    pub(super) own: Option<Sheet>,
}

impl World {
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
            (Some(Sheet::Lent(mine)), Some(Sheet::Lent(theirs))) if mine.base() == theirs.base() => {
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
    pub(super) fn own_mut(&mut self, from: impl FnOnce() -> Rc<Data>) -> &mut Sheet {
        self.own.get_or_insert_with(|| Sheet::Lent(from()))
    }

    /// An empty page of one's own.
    pub(super) fn zeroes() -> Rc<Data> {
        Rc::new(Data::new(Base::Zero))
    }
}

/// A call under way, as pages see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Acting {
    pub(super) bit: u64,
    pub(super) effect: Effect,
}

impl Acting {
    fn covers(&self, index: u64) -> bool {
        self.effect.range().contains(VirtAddr::from_page_index(index))
    }
}

/// A page.
#[derive(Clone, Debug)]
pub(super) struct Page {
    pub(super) worlds: Vec<World>,
    pub(super) stored: Option<Did>,
    pub(super) changed: Option<(Did, &'static str)>,
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
        let (worlds, mark) = (vec![World::UNMAPPED], Mark::Set);
        Self { worlds, stored: None, changed: None, drops: 0, mark, seam: false, fleeting: false }
    }
}

impl Page {
    /// Adds a possibility.
    ///
    /// Returns whether it was new.
    pub(super) fn add(&mut self, world: World) -> bool {
        let known = self.worlds.iter_mut().find_map(|known| known.join(&world));
        if known.is_none() {
            self.worlds.push(world);
        }
        known.unwrap_or(true)
    }

    /// Adds what follows when calls under way have their effect on page `index` now.
    pub(super) fn close(&mut self, index: u64, acting: &[Acting]) {
        if !acting.iter().any(|call| call.covers(index)) {
            return;
        }
        loop {
            let mut new = false;
            for at in 0..self.worlds.len() {
                for call in acting.iter().filter(|call| call.covers(index)) {
                    let world = &self.worlds[at];
                    if world.done & call.bit == 0 {
                        let (map, own) = call.effect.apply(index, world);
                        let done = world.done | call.bit;
                        new |= self.add(World { done, map, own });
                    }
                }
            }
            if !new {
                return;
            }
        }
    }

    /// Drops the worlds that something refutes.
    pub(super) fn retain(&mut self, possible: impl FnMut(&World) -> bool) {
        let before = self.worlds.len();
        self.worlds.retain(possible);
        self.drops += u64::from(self.worlds.len() < before);
        self.fade();
    }

    /// What was there a moment ago may go now, if it may at all.
    fn fade(&mut self) {
        if self.fleeting {
            let gone = self
                .worlds
                .iter()
                .filter(|world| world.own.is_some())
                .map(|world| World { own: None, ..world.clone() });
            for world in gone.collect::<Vec<_>>() {
                self.add(world);
            }
        }
    }

    /// At some moment at which no world has been dropped since, one of `known` was true: drops what
    /// can't have followed from them.
    pub(super) fn settle_on(&mut self, index: u64, acting: &[Acting], known: impl Fn(&World) -> bool) {
        let mut after =
            Self { worlds: self.worlds.iter().filter(|world| known(world)).cloned().collect(), ..Self::default() };
        if !after.worlds.is_empty() {
            after.close(index, acting);
            self.worlds = after.worlds;
            self.fade();
        }
    }

    /// The call with this bit has returned: it has had its effect, has not, or nobody knows
    /// (`None`).
    pub(super) fn finish(&mut self, bit: u64, happened: Option<bool>) {
        self.drops += 1;
        if let Some(happened) = happened {
            self.worlds.retain(|world| (world.done & bit != 0) == happened);
        }
        for world in core::mem::take(&mut self.worlds) {
            self.add(World { done: world.done & !bit, ..world });
        }
    }

    /// A copy of the page, as one that no call under way acts on.
    pub(super) fn settled(&self) -> Self {
        let mut settled = Self { worlds: Vec::new(), ..self.clone() };
        for world in &self.worlds {
            settled.add(World { done: 0, map: world.map, own: world.own.as_ref().map(Sheet::copy) });
        }
        settled
    }

    /// Pages of `file` from `pages` on are cut off: private copies of them go, too.
    pub(super) fn cut(&mut self, id: FileId, pages: u64) {
        self.drops += 1;
        self.blur();
        let is_cut = |map: Mapped| matches!(map.source, Source::File { file, index } if file == id && index >= pages);
        for world in core::mem::take(&mut self.worlds) {
            let own = if world.map.is_some_and(is_cut) { None } else { world.own };
            self.add(World { own, ..world });
        }
    }

    /// What a child gets: nothing, the mapping alone, or all of it.
    ///
    /// Locks stay with the parent.
    pub(super) fn inherited(&self) -> Self {
        let mut child = Self { worlds: Vec::new(), ..self.clone() };
        child.blur();
        for world in &self.worlds {
            child.add(match world.map {
                Some(map) if map.traits.unforked => World::UNMAPPED,
                Some(map) => {
                    let guarded = map.traits.guarded && !map.traits.wiped;
                    let traits = Traits { lock: Lock::No, guarded, ..map.traits };
                    let own = if map.traits.wiped { None } else { world.own.clone() };
                    World { map: Some(Mapped { traits, ..map }), own, ..world.clone() }
                }
                None => world.clone(),
            });
        }
        child
    }

    /// What is mapped, if there is no doubt about it.
    pub(super) fn map(&self) -> Result<Option<Mapped>, InDoubt> {
        let map = self.worlds.first().and_then(|world| world.map);
        if self.worlds.iter().all(|world| world.map == map && world.done == 0) { Ok(map) } else { Err(InDoubt) }
    }

    pub(super) fn is_unmapped(&self) -> bool {
        self.worlds.iter().all(|world| world.map.is_none() && world.done == 0)
    }
}
