//! One set-associative array: a TLB for one or several page sizes, or a walk cache.
//!
//! The array is flat and not hashed. Each set has `ways` keys and payloads, the most recently used
//! first. That order is the replacement state (true LRU). A repeated hit finds its entry at the
//! first compare, and the same accesses always produce the same array.
//!
//! ```text
//!  key   63     62      61     60..58   57..56   55..52  51..36  35..0
//!        valid  global  1      level    granule  -       tag     virtual address >> shift of level
//!        valid  global  0      bits 56..48 of the        tag     bits 47..12 of it (PTE, 4 KiB)
//!                              virtual address
//! ```
//!
//! An address has up to 57 bits, with granules of 16 and 64 KiB 48, and the bits above are equal to
//! the highest of these. So 36 bits are enough but at a PTE of 4 KiB, where the other nine take the
//! place of the level. A global entry has tag 0 in its key and is valid under every tag. Key zero
//! is an empty way.
//!
//! **INV-SIM-KEY** The key of a TLB or walk-cache entry has the level, the tag and all bits of the
//! address, of 57 with five levels, and of 48 with granules of 16 and 64 KiB the granule. Otherwise
//! one page would use the translation of another.

use crate::reach_counts::{PointsTo, ReachCounts};
use pagewright_types::{Granule, Level, PageRange, Tag, VirtAddr};
use std::rc::Rc;

/// The key of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub(crate) struct Key(u64);

/// A pattern of keys: those that have `want` in the bits of `mask`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pattern {
    mask: u64,
    want: u64,
}

const VALID: u64 = 1 << 63;
const GLOBAL: u64 = 1 << 62;
/// The key has the level and the granule: it is not that of a PTE of 4 KiB.
const HAS_LEVEL: u64 = 1 << 61;
const LEVEL_SHIFT: u32 = 58;
const LEVEL_MASK: u64 = 7;
const GRANULE_SHIFT: u32 = 56;
const GRANULE_MASK: u64 = 3;
/// The number of bits of an address, shifted by its level, in a key.
const PAGE_BITS: u32 = TAG_SHIFT;
const TAG_SHIFT: u32 = 36;
const TAG_MASK: u64 = 0xffff << TAG_SHIFT;
const PAGE_MASK: u64 = (1 << TAG_SHIFT) - 1;
/// Bits 56 to 48 of an address, in a key of a PTE of 4 KiB.
const HIGH_SHIFT: u32 = 52;
const HIGH_MASK: u64 = 0x1ff;
/// The most bits that an address has; those above are equal to the highest.
const ADDRESS_BITS: u32 = 57;

/// The number of keys that are compared or moved at once.
const LANES: usize = 8;

impl Key {
    const EMPTY: u64 = 0;

    /// The key of the entry of `level` for `va` under `tag` (INV-SIM-KEY).
    #[inline]
    pub(crate) fn new(tag: Tag, level: Level, va: VirtAddr) -> Self {
        let page = va.raw() >> level.shift() & PAGE_MASK;
        let level = if level == Level::PTE {
            (va.raw() >> 48 & HIGH_MASK) << HIGH_SHIFT
        } else {
            HAS_LEVEL | u64::from(level.raw()) << LEVEL_SHIFT | (level.granule() as u64) << GRANULE_SHIFT
        };
        Self(VALID | level | (tag.raw() as u64) << TAG_SHIFT | page)
    }

    /// The key of the global entry of `level` for `va`.
    #[inline]
    pub(crate) fn global(level: Level, va: VirtAddr) -> Self {
        Self(Self::new(Tag::new(0), level, va).0 | GLOBAL)
    }

    /// The level of the cached table entry.
    #[inline]
    pub(crate) fn level(self) -> Level {
        if self.0 & HAS_LEVEL == 0 {
            return Level::PTE;
        }
        let granule = match self.0 >> GRANULE_SHIFT & GRANULE_MASK {
            0 => Granule::Size4K,
            1 => Granule::Size16K,
            _ => Granule::Size64K,
        };
        granule.level((self.0 >> LEVEL_SHIFT & LEVEL_MASK) as u8)
    }

    /// The first address that the entry translates.
    pub(crate) fn start(self) -> VirtAddr {
        let level = self.level();
        let address = (self.0 & PAGE_MASK) << level.shift();
        if level == Level::PTE {
            return sign_extended(address | (self.0 >> HIGH_SHIFT & HIGH_MASK) << 48, ADDRESS_BITS);
        }
        sign_extended(address, ADDRESS_BITS.min(PAGE_BITS + level.shift()))
    }

    /// The tag of the entry; 0 for a global entry.
    pub(crate) fn tag(self) -> Tag {
        Tag::new((self.0 >> TAG_SHIFT) as u16)
    }

    /// Whether the entry is valid under every tag.
    pub(crate) fn is_global(self) -> bool {
        self.0 & GLOBAL != 0
    }

    /// Whether the entry is valid under `tag`.
    pub(crate) fn is_valid_under(self, tag: Tag) -> bool {
        self.0 & GLOBAL != 0 || self.0 & TAG_MASK == (tag.raw() as u64) << TAG_SHIFT
    }

    /// The key as a number.
    pub(crate) fn number(self) -> u64 {
        self.0
    }

    #[inline]
    fn page(self) -> u64 {
        self.0 & PAGE_MASK
    }
}

/// The address of which `address` has the low `bits`.
fn sign_extended(address: u64, bits: u32) -> VirtAddr {
    let above = u64::BITS - bits;
    VirtAddr::new(((address << above) as i64 >> above) as u64)
}

impl Pattern {
    /// All entries.
    pub(crate) const ALL: Self = Self { mask: VALID, want: VALID };
    /// All entries but global ones.
    pub(crate) const NOT_GLOBAL: Self = Self { mask: VALID | GLOBAL, want: VALID };

    /// All entries of `tag` but global ones.
    pub(crate) fn tag(tag: Tag) -> Self {
        Self { mask: VALID | GLOBAL | TAG_MASK, want: VALID | (tag.raw() as u64) << TAG_SHIFT }
    }
}

/// A set-associative array of `T`.
pub(crate) struct Array<T> {
    keys: Box<[u64]>,
    values: Box<[T]>,
    ways: usize,
    set_mask: u64,
    /// The level of base pages in the tree.
    last: Level,
    /// The number of entries by level; a level without entries is not searched.
    held: [u32; Level::MOST],
    /// The number of entries; a search asks for it at each step.
    len: u32,
    /// The number of global entries.
    globals: u32,
    /// The counts of the machine, while a judge is bound.
    reached: Option<Rc<ReachCounts>>,
}

impl<T: PointsTo + Default> Array<T> {
    /// Makes an array of `sets` × `ways` empty entries, for the tree whose last level is `last`.
    ///
    /// `sets` must be a power of two, which loading a profile checks.
    pub(crate) fn new(sets: usize, ways: usize, last: Level) -> Self {
        debug_assert!(sets.is_power_of_two());
        Self {
            keys: vec![Key::EMPTY; sets * ways].into_boxed_slice(),
            values: vec![T::default(); sets * ways].into_boxed_slice(),
            ways,
            set_mask: sets as u64 - 1,
            last,
            held: [0; Level::MOST],
            len: 0,
            globals: 0,
            reached: None,
        }
    }

    /// Starts counting the entries in `reached`, or stops with `None`.
    pub(crate) fn count_in(&mut self, reached: Option<Rc<ReachCounts>>) {
        self.reached = reached;
        if let Some(reached) = self.reached.as_ref().filter(|_| !self.is_empty()) {
            self.entries().for_each(|(key, value)| reached.gain(value.points_to(key.level())));
        }
    }

    /// All entries.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (Key, T)> {
        let held = self.keys.iter().zip(&self.values).filter(|(key, _)| **key != Key::EMPTY);
        held.map(|(key, value)| (Key(*key), *value))
    }

    /// Calls `tell` for the entries of `range`, and perhaps more.
    ///
    /// For a range with fewer pages than the array has sets, it looks only at the sets of the
    /// pages.
    pub(crate) fn entries_near(&self, range: PageRange, mut tell: impl FnMut(Key, T)) {
        for level in (0..Level::MOST as u8).map(|raw| self.last.of_same_tree(raw)).filter(|level| self.holds(*level)) {
            let page = |va: VirtAddr| va.raw() >> level.shift();
            let (first, last) = (page(range.start()), page(VirtAddr::new(range.end().raw().wrapping_sub(1))));
            let sets = self.set_mask + 1;
            if last.wrapping_sub(first) >= sets {
                self.entries().filter(|(key, _)| key.level() == level).for_each(|(key, value)| tell(key, value));
                continue;
            }
            for set in (first..=last).map(|page| (page & self.set_mask) as usize * self.ways) {
                let ways = set..set + self.ways;
                let held = self.keys[ways.clone()].iter().zip(&self.values[ways]);
                for (key, value) in held.filter(|(key, _)| **key != Key::EMPTY && Key(**key).level() == level) {
                    tell(Key(*key), *value);
                }
            }
        }
    }

    /// The number of entries.
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether the array has no entry.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether the array has an entry of `level`.
    #[inline]
    pub(crate) fn holds(&self, level: Level) -> bool {
        self.held[level.index()] != 0
    }

    /// Whether the array has a global entry.
    #[inline]
    pub(crate) fn holds_globals(&self) -> bool {
        self.globals != 0
    }

    #[inline]
    fn set_of(&self, key: Key) -> usize {
        (key.page() & self.set_mask) as usize * self.ways
    }

    /// Finds the payload of `key`, and makes it the most recently used of its set.
    #[inline]
    pub(crate) fn find(&mut self, key: Key) -> Option<&mut T> {
        let base = self.set_of(key);
        if self.keys[base] != key.0 {
            self.promote(base, key)?;
        }
        Some(&mut self.values[base])
    }

    /// The payload of `key`; the order of use stays as it is.
    pub(crate) fn peek(&self, key: Key) -> Option<T> {
        let base = self.set_of(key);
        let way = self.keys[base..base + self.ways].iter().position(|other| *other == key.0)?;
        Some(self.values[base + way])
    }

    fn promote(&mut self, base: usize, key: Key) -> Option<()> {
        let set = base..base + self.ways;
        let way = position(&self.keys[set.clone()], key.0)?;
        let value = self.values[base + way];
        push_front(&mut self.keys[set.clone()][..=way], key.0);
        push_front(&mut self.values[set][..=way], value);
        Some(())
    }

    /// Inserts `value` under `key`.
    ///
    /// It replaces the entry with the same key, else it uses an empty way, else it evicts the least
    /// recently used entry.
    pub(crate) fn insert(&mut self, key: Key, value: T) {
        let base = self.set_of(key);
        let set = base..base + self.ways;
        let keys = &mut self.keys[set.clone()];
        let same = position(keys, key.0);
        let way = same.or_else(|| position(keys, Key::EMPTY)).unwrap_or(keys.len() - 1);
        let old = (keys[way], self.values[base + way]);
        push_front(&mut keys[..=way], key.0);
        push_front(&mut self.values[set][..=way], value);
        self.uncount(old);
        self.held[key.level().index()] += 1;
        self.len += 1;
        self.globals += u32::from(key.0 & GLOBAL != 0);
        if let Some(reached) = &self.reached {
            reached.gain(value.points_to(key.level()));
        }
    }

    #[inline]
    fn uncount(&mut self, (key, value): (u64, T)) {
        if key != Key::EMPTY {
            let level = Key(key).level();
            self.held[level.index()] -= 1;
            self.len -= 1;
            self.globals -= u32::from(key & GLOBAL != 0);
            if let Some(reached) = &self.reached {
                reached.lose(value.points_to(level));
            }
        }
    }

    /// Drops the entry of `key`, and returns whether there was one.
    pub(crate) fn remove(&mut self, key: Key) -> bool {
        if !self.holds(key.level()) {
            return false;
        }
        let base = self.set_of(key);
        match self.keys[base..base + self.ways].iter().position(|other| *other == key.0) {
            Some(way) => {
                self.keys[base + way] = Key::EMPTY;
                self.uncount((key.0, self.values[base + way]));
                true
            }
            None => false,
        }
    }

    /// Drops all entries that match `pattern`, and returns their number.
    pub(crate) fn remove_all(&mut self, pattern: Pattern) -> u64 {
        if self.is_empty() {
            return 0;
        }
        if self.reached.is_some() {
            return self.remove_where(|key| key.0 & pattern.mask == pattern.want);
        }
        let mut lost = 0;
        // The loop has no branch, so that the compiler vectorises it: a full flush sweeps thousands
        // of keys.
        for key in &mut self.keys {
            let hit = *key & pattern.mask == pattern.want;
            lost += u64::from(hit);
            *key = if hit { Key::EMPTY } else { *key };
        }
        if lost > 0 {
            self.recount();
        }
        lost
    }

    /// Drops all entries for which `unwanted` holds, and returns their number.
    pub(crate) fn remove_where(&mut self, unwanted: impl Fn(Key) -> bool) -> u64 {
        let mut lost = 0;
        for (key, value) in self.keys.iter_mut().zip(&self.values).filter(|(key, _)| **key != Key::EMPTY) {
            if unwanted(Key(*key)) {
                if let Some(reached) = &self.reached {
                    reached.lose(value.points_to(Key(*key).level()));
                }
                *key = Key::EMPTY;
                lost += 1;
            }
        }
        if lost > 0 {
            self.recount();
        }
        lost
    }

    /// Evicts the entry at index `nth` among those of the array.
    pub(crate) fn evict(&mut self, nth: usize) {
        let mut held = self.keys.iter().enumerate().filter(|(_, key)| **key != Key::EMPTY);
        if let Some((way, key)) = held.nth(nth).map(|(way, key)| (way, *key)) {
            self.keys[way] = Key::EMPTY;
            self.uncount((key, self.values[way]));
        }
    }

    fn recount(&mut self) {
        self.held = [0; Level::MOST];
        self.globals = 0;
        for key in self.keys.iter().filter(|key| **key != Key::EMPTY) {
            self.held[Key(*key).level().index()] += 1;
            self.globals += u32::from(key & GLOBAL != 0);
        }
        self.len = self.held.iter().sum();
    }
}

/// Puts `first` before the other slots, and drops the last.
#[inline]
fn push_front<T: Copy>(slots: &mut [T], first: T) {
    if slots.len() > LANES {
        slots.copy_within(..slots.len() - 1, 1);
        slots[0] = first;
        return;
    }
    // Moving a short set by hand is faster than a call of `memmove`.
    let mut carried = first;
    for slot in slots {
        carried = std::mem::replace(slot, carried);
    }
}

/// The index of `key`.
///
/// In a large set it compares [`LANES`] keys at once, without a branch: a fully associative TLB has
/// dozens of ways, and a miss compares them all.
#[inline]
fn position(keys: &[u64], key: u64) -> Option<usize> {
    if keys.len() <= LANES {
        return keys.iter().position(|other| *other == key);
    }
    for (chunk, lanes) in keys.chunks(LANES).enumerate() {
        if lanes.iter().fold(false, |hit, other| hit | (*other == key)) {
            return lanes.iter().position(|other| *other == key).map(|lane| chunk * LANES + lane);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagewright_types::{Order, Pfn};
    use proptest::prelude::*;

    impl PointsTo for u32 {
        fn points_to(self, level: Level) -> (Pfn, Level) {
            (Pfn::new(self % 4 * level.pages() as u32), level)
        }
    }

    proptest! {
        /// No two pages of 57-bit addresses, or of 48-bit ones, have one key (INV-SIM-KEY).
        #[test]
        fn a_key_has_the_level_the_tag_and_the_whole_address(
            address: u64,
            raw in 0..Level::MOST as u8,
            granule in prop_oneof![Just(Granule::Size4K), Just(Granule::Size16K), Just(Granule::Size64K)],
            tag: u16,
            global: bool,
        ) {
            let (level, bits) = match granule {
                Granule::Size4K => (Level::new(raw), ADDRESS_BITS),
                other => (other.level(raw.min(other.top().raw())), 48),
            };
            let va = sign_extended(address, bits).align_down(level.span());
            let key = if global { Key::global(level, va) } else { Key::new(Tag::new(tag), level, va) };
            prop_assert_eq!((key.level(), key.start(), key.is_global()), (level, va, global));
            prop_assert_eq!(key.tag(), Tag::new(if global { 0 } else { tag }));
            prop_assert!(key.number() != Key::EMPTY && key.is_valid_under(Tag::new(tag)));
        }
    }

    /// The reference: each set is a list, the most recently used entry last.
    struct Naive {
        sets: Vec<Vec<(Key, u32)>>,
        ways: usize,
    }

    impl Naive {
        fn set(&mut self, key: Key) -> &mut Vec<(Key, u32)> {
            let sets = self.sets.len() as u64;
            &mut self.sets[(key.start().raw() >> key.level().shift()) as usize % sets as usize]
        }

        fn find(&mut self, key: Key) -> Option<u32> {
            let set = self.set(key);
            let at = set.iter().position(|(other, _)| *other == key)?;
            let entry = set.remove(at);
            set.push(entry);
            Some(entry.1)
        }

        fn insert(&mut self, key: Key, value: u32) {
            let ways = self.ways;
            let set = self.set(key);
            set.retain(|(other, _)| *other != key);
            if set.len() == ways {
                set.remove(0);
            }
            set.push((key, value));
        }

        fn remove_where(&mut self, unwanted: impl Fn(Key) -> bool) -> u64 {
            let mut lost = 0;
            for set in &mut self.sets {
                let before = set.len();
                set.retain(|(key, _)| !unwanted(*key));
                lost += (before - set.len()) as u64;
            }
            lost
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Find(Key),
        Insert(Key, u32),
        Remove(Key),
        DropTag(u16),
        DropLocals,
        DropAll,
        DropLevel(Level),
    }

    fn key() -> impl Strategy<Value = Key> {
        (0u16..4, 0u8..3, 0u64..24, prop::bool::weighted(0.1)).prop_map(|(tag, level, page, global)| {
            let level = Level::new(level);
            let va = VirtAddr::new(page << level.shift());
            if global { Key::global(level, va) } else { Key::new(Tag::new(tag), level, va) }
        })
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            8 => key().prop_map(Step::Find),
            8 => (key(), any::<u32>()).prop_map(|(key, value)| Step::Insert(key, value)),
            2 => key().prop_map(Step::Remove),
            1 => (0u16..4).prop_map(Step::DropTag),
            1 => Just(Step::DropLocals),
            1 => Just(Step::DropAll),
            1 => (0u8..3).prop_map(|level| Step::DropLevel(Level::new(level))),
        ]
    }

    proptest! {
        #[test]
        fn an_array_behaves_like_a_list_for_each_set(
            log_sets in 0u32..4, ways in 1usize..6, steps in prop::collection::vec(step(), 1..200),
        ) {
            let sets = 1usize << log_sets;
            let mut array = Array::new(sets, ways, Level::PTE);
            let reached = Rc::new(ReachCounts::new(4 << 18, Level::PTE));
            array.count_in(Some(Rc::clone(&reached)));
            let mut naive = Naive { sets: vec![Vec::new(); sets], ways };
            for (steps_taken, step) in (1..).zip(steps) {
                match step {
                    Step::Find(key) => prop_assert_eq!(array.find(key).copied(), naive.find(key)),
                    Step::Insert(key, value) => {
                        array.insert(key, value);
                        naive.insert(key, value);
                    }
                    Step::Remove(key) => {
                        prop_assert_eq!(u64::from(array.remove(key)), naive.remove_where(|other| other == key));
                    }
                    Step::DropTag(tag) => {
                        let local = |key: Key| key.0 & GLOBAL == 0 && key.is_valid_under(Tag::new(tag));
                        prop_assert_eq!(array.remove_all(Pattern::tag(Tag::new(tag))), naive.remove_where(local));
                    }
                    Step::DropLocals => {
                        let lost = naive.remove_where(|key| key.0 & GLOBAL == 0);
                        prop_assert_eq!(array.remove_all(Pattern::NOT_GLOBAL), lost);
                    }
                    Step::DropAll => prop_assert_eq!(array.remove_all(Pattern::ALL), naive.remove_where(|_| true)),
                    Step::DropLevel(level) => {
                        let of_level = |key: Key| key.level() == level;
                        prop_assert_eq!(array.remove_where(of_level), naive.remove_where(of_level));
                    }
                }
                for level in (0..3).map(Level::new) {
                    let held = naive.sets.iter().flatten().any(|(key, _)| key.level() == level);
                    prop_assert_eq!(array.holds(level), held);
                }
                let near = PageRange::new(VirtAddr::from_page_index(5), VirtAddr::from_page_index(5 + steps_taken % 9));
                let mut told = Vec::new();
                array.entries_near(near, |key, value| told.push((key.0, value)));
                let covers = |key: Key| key.start() < near.end() && near.start() < key.start().add(key.level().span());
                told.retain(|(key, _)| covers(Key(*key)));
                told.sort_unstable();
                let mut there: Vec<(u64, u32)> = naive.sets.iter().flatten().filter(|(key, _)| covers(*key))
                    .map(|(key, value)| (key.0, *value)).collect();
                there.sort_unstable();
                prop_assert_eq!(told, there);
                let globals = naive.sets.iter().flatten().any(|(key, _)| key.0 & GLOBAL != 0);
                prop_assert_eq!(array.holds_globals(), globals);
            }
            for frame in 0..1024 {
                let leads = |(key, value): &(Key, u32)| {
                    let (pfn, size) = value.points_to(key.level());
                    pfn.raw() <= frame && frame < pfn.raw() + size.pages() as u32
                };
                prop_assert_eq!(reached.any(Pfn::new(frame), Order::ZERO), naive.sets.iter().flatten().any(leads));
            }
            while !array.is_empty() {
                array.evict(array.len() / 2);
            }
            prop_assert!((0..4).all(|frame| !reached.any(Pfn::new(frame << 18), Order::PUD)), "nothing is held");
        }
    }
}
