//! The TLBs and walk caches of one CPU.
//!
//! There are first-level arrays for data and for instructions, a second level for both or for each,
//! and a walk cache for each level of table entry. The profile says which array holds which page
//! size ([`Route`]); a size that no array of a TLB level holds is not cached at that level.
//!
//! **INV-SIM-STALE** A simulated CPU drops what it has cached of page tables by eviction, by an
//! invalidation that names it, or by a fault where the architecture says so; never because the
//! tables changed. Otherwise a missing flush could not show.

mod array;

pub(crate) use array::{Key, Pattern};

use crate::core::Root;
use crate::profile::{Geometry, TlbKind};
use crate::reach_counts::{PointsTo, ReachCounts};
use crate::walk::{WalkPosition, WalkedLeaf};
use array::Array;
use pagewright_types::{Access, Level, PageRange, Pfn, Rights, Tag, VirtAddr};
use std::rc::Rc;

/// The side of the TLBs that an access uses.
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

/// The level of a TLB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    First = 0,
    Second = 1,
}

/// The number of a root table in the machine's list of roots.
///
/// It has 28 bits, so that a cached translation fits in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(crate) struct RootId(u32);

impl RootId {
    const BITS: u32 = 28;

    /// The number of the root at `index` of the list.
    ///
    /// # Panics
    /// When `index` is 2^28 or more.
    pub(crate) fn new(index: usize) -> Self {
        assert!(index < 1 << Self::BITS, "{index} different roots");
        Self(index as u32)
    }

    /// The index in the list.
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A cached translation, in one word.
///
/// The low half is the frame. Then come 3 bits of rights, whether the page is cached as dirty, and
/// the root of the walk that found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(crate) struct TlbEntry(u64);

impl TlbEntry {
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

impl PointsTo for TlbEntry {
    #[inline]
    fn points_to(self, level: Level) -> (Pfn, Level) {
        (self.pfn(), level)
    }
}

/// A cached translation with its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TlbHit {
    pub(crate) key: Key,
    pub(crate) entry: TlbEntry,
}

impl TlbHit {
    /// Its address with the rights of `other`, and with what that knows of the dirty state.
    pub(crate) fn with_rights_of(&self, other: &Self) -> Self {
        let rights = 0b111 << TlbEntry::RIGHTS_SHIFT | TlbEntry::DIRTY;
        Self { entry: TlbEntry(self.entry.0 & !rights | other.entry.0 & rights), ..*self }
    }
}

/// A walk-cache entry: the table that a table entry points to.
///
/// It also has the rights that the entry and those above allow, and the root of the walk that read
/// it.
#[derive(Clone, Copy, Debug, Hash, Default)]
pub(crate) struct WalkCacheEntry {
    pub(crate) table: Pfn,
    pub(crate) allows: Rights,
    pub(crate) root: RootId,
}

impl PointsTo for WalkCacheEntry {
    #[inline]
    fn points_to(self, level: Level) -> (Pfn, Level) {
        (self.table, level.of_same_tree(Level::PTE.raw()))
    }
}

/// What an array holds under a key.
#[derive(Clone, Copy, Debug, Hash)]
pub(crate) enum HeldEntry {
    Translation(TlbEntry),
    Path(WalkCacheEntry),
}

/// The entries of one key that can be evicted together.
pub(crate) struct Evictable {
    pub(crate) key: Key,
    /// The entry of each array that has one; all are translations, or all are paths.
    pub(crate) held: Vec<HeldEntry>,
    /// Their indices for [`Tlbs::evict`].
    pub(crate) ways: Vec<u32>,
}

/// The array that holds translations of each level; [`NOWHERE`] if none does.
type Route = [u8; Level::COUNT - 1];
const NOWHERE: u8 = u8::MAX;

/// The TLBs and walk caches of one CPU.
pub(crate) struct Tlbs {
    /// The level of base pages in the tree.
    last: Level,
    arrays: Vec<Array<TlbEntry>>,
    /// By depth and side.
    routes: [[Route; 2]; 2],
    /// By the level of the cached table entry; there is none for PTE.
    walk_caches: [Option<Array<WalkCacheEntry>>; Level::MOST],
}

impl Tlbs {
    pub(crate) fn new(geometry: &Geometry, top: Level) -> Self {
        let mut routes = [[[NOWHERE; Level::COUNT - 1]; 2]; 2];
        let last = top.of_same_tree(Level::PTE.raw());
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
            arrays.push(Array::new(tlb.size.sets(), tlb.size.ways, last));
        }
        let mut walk_caches = [const { None }; Level::MOST];
        for cache in geometry.walk_caches.iter().filter(|cache| cache.level.raw() <= top.raw()) {
            walk_caches[cache.level.index()] = Some(Array::new(cache.size.sets(), cache.size.ways, last));
            // No profile has a size for PML5 entries: it is taken to be that for PGD entries.
            if top == Level::PML5 && cache.level == Level::PGD {
                walk_caches[top.index()] = Some(Array::new(cache.size.sets(), cache.size.ways, last));
            }
        }
        Self { last, arrays, routes, walk_caches }
    }

    /// Looks `va` up under `tag` at one depth, small pages first.
    ///
    /// It is inlined because it is most of the cost of an access.
    #[inline(always)]
    pub(crate) fn find(&mut self, depth: Depth, side: Side, tag: Tag, va: VirtAddr) -> Option<TlbHit> {
        let route = &self.routes[depth as usize][side as usize];
        for (level, at) in route.iter().enumerate() {
            let level = self.last.of_same_tree(level as u8);
            let Some(array) = self.arrays.get_mut(usize::from(*at)) else { continue };
            if !array.holds(level) {
                continue;
            }
            let key = Key::new(tag, level, va);
            if let Some(entry) = array.find(key) {
                return Some(TlbHit { key, entry: *entry });
            }
            if array.holds_globals() {
                let key = Key::global(level, va);
                if let Some(entry) = array.find(key) {
                    return Some(TlbHit { key, entry: *entry });
                }
            }
        }
        None
    }

    /// Fills one depth with a translation, if an array there holds its size.
    #[inline]
    pub(crate) fn fill(&mut self, depth: Depth, side: Side, hit: TlbHit) {
        let at = self.routes[depth as usize][side as usize][hit.key.level().index()];
        if let Some(array) = self.arrays.get_mut(usize::from(at)) {
            array.insert(hit.key, hit.entry);
        }
    }

    /// Fills both depths with the translation that a walk for `va` found.
    pub(crate) fn fill_from_walk(&mut self, side: Side, root: Root, va: VirtAddr, found: WalkedLeaf) -> TlbHit {
        let key = if found.global { Key::global(found.level, va) } else { Key::new(root.tag, found.level, va) };
        let hit = TlbHit { key, entry: TlbEntry::new(root.id, found) };
        self.fill(Depth::Second, side, hit);
        self.fill(Depth::First, side, hit);
        hit
    }

    /// The lowest cached position from which a walk for `va` under `tag` may start.
    pub(crate) fn walk_start(&mut self, tag: Tag, va: VirtAddr) -> Option<WalkPosition> {
        for (level, cache) in self.walk_caches.iter_mut().enumerate() {
            let entry_level = self.last.of_same_tree(level as u8);
            let (Some(cache), Some(level)) = (cache, entry_level.down()) else { continue };
            if let Some(upper) = cache.find(Key::new(tag, entry_level, va)) {
                return Some(WalkPosition { level, table: upper.table, allows: upper.allows });
            }
        }
        None
    }

    /// The same; the order of use stays as it is.
    pub(crate) fn peek_walk_start(&self, tag: Tag, va: VirtAddr) -> Option<WalkPosition> {
        (0..Level::MOST as u8).map(|raw| self.last.of_same_tree(raw)).find_map(|level| {
            let upper = self.walk_cached(tag, level, va)?;
            Some(WalkPosition { level: level.down()?, table: upper.table, allows: upper.allows })
        })
    }

    /// The walk-cache entry of `level` for `va` under `tag`; the order of use stays as it is.
    pub(crate) fn walk_cached(&self, tag: Tag, level: Level, va: VirtAddr) -> Option<WalkCacheEntry> {
        let cache = self.walk_caches[level.index()].as_ref().filter(|cache| !cache.is_empty())?;
        cache.peek(Key::new(tag, level, va))
    }

    /// Fills the walk cache of `level`: its entry for `va` points to `next`.
    pub(crate) fn fill_walk_cache(&mut self, root: Root, va: VirtAddr, level: Level, next: WalkPosition) {
        if let Some(cache) = &mut self.walk_caches[level.index()] {
            let upper = WalkCacheEntry { table: next.table, allows: next.allows, root: root.id };
            cache.insert(Key::new(root.tag, level, va), upper);
        }
    }

    /// Starts counting all cached entries in `reached`, or stops with `None`.
    pub(crate) fn count_in(&mut self, reached: Option<&Rc<ReachCounts>>) {
        self.arrays.iter_mut().for_each(|array| array.count_in(reached.cloned()));
        self.walk_caches.iter_mut().flatten().for_each(|cache| cache.count_in(reached.cloned()));
    }

    /// Calls `tell` for all cached translations, or for those of `range` and perhaps more.
    ///
    /// A translation that both depths cache is told twice.
    pub(crate) fn translations(&self, range: Option<PageRange>, mut tell: impl FnMut(TlbHit)) {
        for array in &self.arrays {
            let mut tell = |key, entry| tell(TlbHit { key, entry });
            match range {
                Some(range) => array.entries_near(range, tell),
                None => array.entries().for_each(|(key, entry)| tell(key, entry)),
            }
        }
    }

    /// Calls `visit` for each entry, with the number of its array.
    pub(crate) fn each(&self, mut visit: impl FnMut(usize, Key, HeldEntry)) {
        for (index, array) in self.arrays.iter().enumerate().filter(|(_, array)| !array.is_empty()) {
            array.entries().for_each(|(key, entry)| visit(index, key, HeldEntry::Translation(entry)));
        }
        for (index, cache) in self.walk_caches.iter().enumerate() {
            let entries = cache.iter().filter(|cache| !cache.is_empty()).flat_map(Array::entries);
            entries.for_each(|(key, upper)| visit(index, key, HeldEntry::Path(upper)));
        }
    }

    /// Calls `tell` for all walk-cache entries, or for those of `range` and perhaps more.
    pub(crate) fn walk_caches(&self, range: Option<PageRange>, mut tell: impl FnMut(Key, WalkCacheEntry)) {
        for cache in self.walk_caches.iter().flatten() {
            match range {
                Some(range) => cache.entries_near(range, &mut tell),
                None => cache.entries().for_each(|(key, upper)| tell(key, upper)),
            }
        }
    }

    /// The number of cached entries, walk caches included.
    pub(crate) fn len(&self) -> usize {
        let translations: usize = self.arrays.iter().map(Array::len).sum();
        translations + self.walk_caches.iter().flatten().map(Array::len).sum::<usize>()
    }

    /// The cached entries that can be evicted, one for each key.
    pub(crate) fn evictable(&self) -> Vec<Evictable> {
        let mut found: Vec<Evictable> = Vec::new();
        let mut next = 0;
        let mut add = |key: Key, held: HeldEntry| {
            let same = |other: &&mut Evictable| {
                other.key == key && std::mem::discriminant(&other.held[0]) == std::mem::discriminant(&held)
            };
            match found.iter_mut().find(same) {
                Some(other) => {
                    other.ways.push(next);
                    other.held.push(held);
                }
                None => found.push(Evictable { key, held: vec![held], ways: vec![next] }),
            }
            next += 1;
        };
        for array in self.arrays.iter().filter(|array| !array.is_empty()) {
            array.entries().for_each(|(key, entry)| add(key, HeldEntry::Translation(entry)));
        }
        for cache in self.walk_caches.iter().flatten().filter(|cache| !cache.is_empty()) {
            cache.entries().for_each(|(key, upper)| add(key, HeldEntry::Path(upper)));
        }
        found
    }

    /// The tables to which walk-cache entries of `level` for `va` lead, under whatever tag.
    pub(crate) fn table_on_path(&self, level: Level, va: VirtAddr) -> Vec<Pfn> {
        let Some(cache) = &self.walk_caches[level.index()] else { return Vec::new() };
        if cache.is_empty() {
            return Vec::new();
        }
        let leads = |key: &Key| key.start() == va.align_down(level.span());
        cache.entries().filter(|(key, _)| leads(key)).map(|(_, upper)| upper.table).collect()
    }

    /// Evicts the entry at index `nth` among those cached.
    pub(crate) fn evict(&mut self, mut nth: usize) {
        for array in &mut self.arrays {
            if nth < array.len() {
                return array.evict(nth);
            }
            nth -= array.len();
        }
        for cache in self.walk_caches.iter_mut().flatten() {
            if nth < cache.len() {
                return cache.evict(nth);
            }
            nth -= cache.len();
        }
    }

    /// Drops the translations of `va` under `tag`, and global ones if `globals` is set.
    ///
    /// `only` restricts that to one level. Returns the number of entries dropped.
    pub(crate) fn drop_page(&mut self, tag: Tag, va: VirtAddr, only: Option<Level>, globals: bool) -> u64 {
        let mut lost = 0;
        for level in (0..Level::PGD.raw()).map(|raw| self.last.of_same_tree(raw)) {
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

    /// Drops the translations for which `unwanted` holds, and returns their number.
    pub(crate) fn drop_where(&mut self, unwanted: impl Fn(Key) -> bool + Copy) -> u64 {
        self.arrays.iter_mut().map(|array| array.remove_where(unwanted)).sum()
    }

    /// Drops the translations that match `pattern`, and returns their number.
    pub(crate) fn drop_all(&mut self, pattern: Pattern) -> u64 {
        self.arrays.iter_mut().map(|array| array.remove_all(pattern)).sum()
    }

    /// Drops the walk-cache entries on the path to `va` under `tag`.
    pub(crate) fn drop_walk_caches_of(&mut self, tag: Tag, va: VirtAddr) {
        for (level, cache) in self.walk_caches.iter_mut().enumerate() {
            if let Some(cache) = cache {
                cache.remove(Key::new(tag, self.last.of_same_tree(level as u8), va));
            }
        }
    }

    /// Drops the walk-cache entries that match `pattern`.
    pub(crate) fn drop_walk_caches(&mut self, pattern: Pattern) {
        for cache in self.walk_caches.iter_mut().flatten() {
            cache.remove_all(pattern);
        }
    }

    /// Drops the walk-cache entries for which `unwanted` holds.
    pub(crate) fn drop_walk_caches_where(&mut self, unwanted: impl Fn(Key) -> bool + Copy) {
        for cache in self.walk_caches.iter_mut().flatten() {
            cache.remove_where(unwanted);
        }
    }
}
