//! One CPU's TLBs and walk caches.
//!
//! First-level arrays for data and for instructions, a second level that serves both or each, walk
//! caches by the level of the entry they remember. Which array holds which page size is the
//! profile's to say ([`Route`]); a size that no array of a level takes is not cached at that level.
//!
//! What is here may be stale, and nothing in this module minds: an entry leaves when it is evicted
//! or when somebody removes it (INV-SIM-STALE).

mod array;

pub(crate) use array::{Key, Pattern};

use crate::core::Root;
use crate::profile::{Geometry, TlbKind};
use crate::reach_counts::{PointsTo, ReachCounts};
use crate::walk::{Walk, WalkedLeaf};
use array::Array;
use pagewright_types::{Access, Level, PageRange, Pfn, Rights, Tag, VirtAddr};
use std::rc::Rc;

/// Which first-level TLB an access goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Data = 0,
    Instruction = 1,
}

impl Side {
    #[inline]
    pub(crate) fn of(access: Access) -> Self {
        match access {
            Access::Read | Access::Write => Self::Data,
            Access::Exec => Self::Instruction,
        }
    }
}

/// First or second level of TLB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    First = 0,
    Second = 1,
}

/// A root table as cached translations name it: 28 bits beside a frame and its rights.
///
/// The machine keeps the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct RootId(u32);

impl RootId {
    const BITS: u32 = 28;

    /// The root at place `index` of the machine's list.
    ///
    /// # Panics
    /// Past 2^28 roots.
    pub(crate) fn new(index: usize) -> Self {
        assert!(index < 1 << Self::BITS, "{index} different roots");
        Self(index as u32)
    }

    /// Its place in the list.
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A cached translation: frame in the low half, then rights (3 bits), whether it is known to be
/// dirty, and the root of the walk that found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Entry(u64);

impl Entry {
    const RIGHTS_SHIFT: u32 = 32;
    const DIRTY: u64 = 1 << 35;
    const ROOT_SHIFT: u32 = 36;

    fn new(root: RootId, found: WalkedLeaf) -> Self {
        let dirty = if found.dirty { Self::DIRTY } else { 0 };
        let root = u64::from(root.0) << Self::ROOT_SHIFT;
        Self(u64::from(found.pfn.raw()) | u64::from(found.rights.bits()) << Self::RIGHTS_SHIFT | dirty | root)
    }

    pub(crate) fn root(self) -> RootId {
        RootId((self.0 >> Self::ROOT_SHIFT) as u32)
    }

    #[inline]
    pub(crate) fn pfn(self) -> Pfn {
        Pfn::new(self.0 as u32)
    }

    #[inline]
    pub(crate) fn rights(self) -> Rights {
        Rights::from_bits_truncate((self.0 >> Self::RIGHTS_SHIFT) as u8 & 7)
    }

    #[inline]
    pub(crate) fn dirty(self) -> bool {
        self.0 & Self::DIRTY != 0
    }
}

impl PointsTo for Entry {
    #[inline]
    fn points_to(self, level: Level) -> (Pfn, Level) {
        (self.pfn(), level)
    }
}

/// A translation that was found, and under which key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hit {
    pub(crate) key: Key,
    pub(crate) entry: Entry,
}

/// A remembered table entry: the table it points to, what it and those above allow, and the root of
/// the walk that read it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Upper {
    pub(crate) table: Pfn,
    allows: Rights,
    pub(crate) root: RootId,
}

impl PointsTo for Upper {
    #[inline]
    fn points_to(self, _level: Level) -> (Pfn, Level) {
        (self.table, Level::PTE)
    }
}

/// Which array holds translations of each level; [`NOWHERE`] where none does.
type Route = [u8; Level::COUNT - 1];
const NOWHERE: u8 = u8::MAX;

/// All that one CPU remembers of page tables.
pub(crate) struct Tlbs {
    arrays: Vec<Array<Entry>>,
    /// By depth and side.
    routes: [[Route; 2]; 2],
    /// By level of the entry remembered; none at PTE.
    uppers: [Option<Array<Upper>>; Level::COUNT],
}

impl Tlbs {
    pub(crate) fn new(geometry: &Geometry) -> Self {
        let mut routes = [[[NOWHERE; Level::COUNT - 1]; 2]; 2];
        let mut arrays = Vec::new();
        for tlb in &geometry.tlbs {
            let (depth, sides): (Depth, &[Side]) = match tlb.kind {
                TlbKind::L1Data => (Depth::First, &[Side::Data]),
                TlbKind::L1Instruction => (Depth::First, &[Side::Instruction]),
                TlbKind::L2 => (Depth::Second, &[Side::Data, Side::Instruction]),
                TlbKind::L2Data => (Depth::Second, &[Side::Data]),
                TlbKind::L2Instruction => (Depth::Second, &[Side::Instruction]),
            };
            for side in sides {
                for level in &tlb.levels {
                    routes[depth as usize][*side as usize][level.index()] = arrays.len() as u8;
                }
            }
            arrays.push(Array::new(tlb.sets(), tlb.ways));
        }
        let mut uppers = [const { None }; Level::COUNT];
        for cache in &geometry.walk_caches {
            uppers[cache.level.index()] = Some(Array::new(cache.sets(), cache.ways));
        }
        Self { arrays, routes, uppers }
    }

    /// Looks up `va` under `tag` in one depth, small pages first.
    ///
    /// Inlined even so: most accesses are little else.
    #[inline(always)]
    pub(crate) fn find(&mut self, depth: Depth, side: Side, tag: Tag, va: VirtAddr) -> Option<Hit> {
        let route = &self.routes[depth as usize][side as usize];
        for (level, at) in route.iter().enumerate() {
            let level = Level::new(level as u8);
            let Some(array) = self.arrays.get_mut(usize::from(*at)) else { continue };
            if !array.holds(level) {
                continue;
            }
            let key = Key::new(tag, level, va);
            if let Some(entry) = array.find(key) {
                return Some(Hit { key, entry: *entry });
            }
            if array.holds_globals() {
                let key = Key::global(level, va);
                if let Some(entry) = array.find(key) {
                    return Some(Hit { key, entry: *entry });
                }
            }
        }
        None
    }

    /// Copies a translation into one depth, if it keeps that size.
    #[inline]
    pub(crate) fn fill(&mut self, depth: Depth, side: Side, hit: Hit) {
        let at = self.routes[depth as usize][side as usize][hit.key.level().index()];
        if let Some(array) = self.arrays.get_mut(usize::from(at)) {
            array.insert(hit.key, hit.entry);
        }
    }

    /// Remembers in both depths what a walk for `va` under `tag` found.
    pub(crate) fn remember(&mut self, side: Side, root: Root, va: VirtAddr, found: WalkedLeaf) -> Hit {
        let key = if found.global { Key::global(found.level, va) } else { Key::new(root.tag, found.level, va) };
        let hit = Hit { key, entry: Entry::new(root.id, found) };
        self.fill(Depth::Second, side, hit);
        self.fill(Depth::First, side, hit);
        hit
    }

    /// The lowest table from which a walk for `va` under `tag` may start, if any is remembered.
    pub(crate) fn start(&mut self, tag: Tag, va: VirtAddr) -> Option<Walk> {
        for (level, cache) in self.uppers.iter_mut().enumerate() {
            let entry_level = Level::new(level as u8);
            let (Some(cache), Some(level)) = (cache, entry_level.down()) else { continue };
            if let Some(upper) = cache.find(Key::new(tag, entry_level, va)) {
                return Some(Walk { level, table: upper.table, allows: upper.allows });
            }
        }
        None
    }

    /// Remembers that the entry of `level` over `va` leads to `next`.
    pub(crate) fn remember_upper(&mut self, root: Root, va: VirtAddr, level: Level, next: Walk) {
        if let Some(cache) = &mut self.uppers[level.index()] {
            let upper = Upper { table: next.table, allows: next.allows, root: root.id };
            cache.insert(Key::new(root.tag, level, va), upper);
        }
    }

    /// Counts in `reached` where everything held leads, from now on; stops counting with `None`.
    pub(crate) fn count_in(&mut self, reached: Option<&Rc<ReachCounts>>) {
        self.arrays.iter_mut().for_each(|array| array.count_in(reached.cloned()));
        self.uppers.iter_mut().flatten().for_each(|cache| cache.count_in(reached.cloned()));
    }

    /// Tells all translations held, or those of `range` and perhaps more; one kept at both depths
    /// comes twice.
    pub(crate) fn translations(&self, range: Option<PageRange>, mut tell: impl FnMut(Hit)) {
        for array in &self.arrays {
            let mut tell = |key, entry| tell(Hit { key, entry });
            match range {
                Some(range) => array.entries_near(range, tell),
                None => array.entries().for_each(|(key, entry)| tell(key, entry)),
            }
        }
    }

    /// The same of all that the walk caches hold.
    pub(crate) fn uppers(&self, range: Option<PageRange>, mut tell: impl FnMut(Key, Upper)) {
        for cache in self.uppers.iter().flatten() {
            match range {
                Some(range) => cache.entries_near(range, &mut tell),
                None => cache.entries().for_each(|(key, upper)| tell(key, upper)),
            }
        }
    }

    /// Number of entries held, those of walk caches included.
    pub(crate) fn len(&self) -> usize {
        let translations: usize = self.arrays.iter().map(Array::len).sum();
        translations + self.uppers.iter().flatten().map(Array::len).sum::<usize>()
    }

    /// Drops the entry at place `nth` among those held.
    pub(crate) fn evict(&mut self, mut nth: usize) {
        for array in &mut self.arrays {
            if nth < array.len() {
                return array.evict(nth);
            }
            nth -= array.len();
        }
        for cache in self.uppers.iter_mut().flatten() {
            if nth < cache.len() {
                return cache.evict(nth);
            }
            nth -= cache.len();
        }
    }

    /// Drops the translations of `va` under `tag` and the global ones, of one level or of all.
    ///
    /// Returns how many entries there were.
    pub(crate) fn drop_page(&mut self, tag: Tag, va: VirtAddr, only: Option<Level>, globals: bool) -> u64 {
        let mut lost = 0;
        for level in (0..Level::PGD.raw()).map(Level::new) {
            if only.is_some_and(|only| only != level) {
                continue;
            }
            for array in self.arrays.iter_mut().filter(|array| array.holds(level)) {
                lost += u64::from(array.remove(Key::new(tag, level, va)));
                if globals && array.holds_globals() {
                    lost += u64::from(array.remove(Key::global(level, va)));
                }
            }
        }
        lost
    }

    /// Drops the translations for which `unwanted` holds.
    ///
    /// Returns how many entries there were.
    pub(crate) fn drop_where(&mut self, unwanted: impl Fn(Key) -> bool + Copy) -> u64 {
        self.arrays.iter_mut().map(|array| array.remove_where(unwanted)).sum()
    }

    /// Drops the translations that match.
    ///
    /// Returns how many entries there were.
    pub(crate) fn drop_all(&mut self, pattern: Pattern) -> u64 {
        self.arrays.iter_mut().map(|array| array.remove_all(pattern)).sum()
    }

    /// Drops what the walk caches remember of the way to `va` under `tag`.
    pub(crate) fn drop_uppers_of(&mut self, tag: Tag, va: VirtAddr) {
        for (level, cache) in self.uppers.iter_mut().enumerate() {
            if let Some(cache) = cache {
                cache.remove(Key::new(tag, Level::new(level as u8), va));
            }
        }
    }

    /// Drops what the walk caches remember and matches.
    pub(crate) fn drop_uppers(&mut self, pattern: Pattern) {
        for cache in self.uppers.iter_mut().flatten() {
            cache.remove_all(pattern);
        }
    }

    /// Drops what the walk caches remember and for which `unwanted` holds.
    pub(crate) fn drop_uppers_where(&mut self, unwanted: impl Fn(Key) -> bool + Copy) {
        for cache in self.uppers.iter_mut().flatten() {
            cache.remove_where(unwanted);
        }
    }
}
