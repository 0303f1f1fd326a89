//! What the pointers on the way to a page say of it, read from the raw tables.
//!
//! - INV-SHARE-ORIGIN: at most one pointer to a table says that its space is the origin. At most
//!   one space has a right to what is exclusive in a table: the one on whose way each pointer is
//!   its own, or says that.
//! - INV-SHARE-OWN: a page with an exclusive entry has no other entry.
//! - INV-SHARE-PIN: no page below a shared pointer is pinned.
//! - INV-GUP-EXCLUSIVE: the entry of a page that is pinned is exclusive.
//!
//! Not guaranteed: that the space with the right is the one that stored to the page. The random
//! families of the memory manager's tests know which one did.

use super::recount::Pins;
use pagewright_arch::{Effects, Entry, Isa, Leaf, LeafFlags, PteSlot, SoftKind, TableEntry};
use pagewright_mm::{Mm, Space};
use pagewright_sim::Sim;
use pagewright_sync::Arc;
use pagewright_types::{Level, Pfn, SpaceId, VirtAddr};
use std::collections::{BTreeMap, BTreeSet};

/// What the pointers from the root to a table say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// Whether one of them is write-protected, so that other spaces may reach the table.
    pub shared: bool,
    /// Whether the space has a right to what is exclusive below.
    ///
    /// It has if it is the origin of each shared pointer.
    pub claims: bool,
}

impl Way {
    const ROOT: Self = Self { shared: false, claims: true };

    fn through(self, pointer: TableEntry) -> Self {
        Self {
            shared: self.shared || pointer.write_protected,
            claims: self.claims && (!pointer.write_protected || pointer.origin),
        }
    }
}

/// The last entry for an address, and the way to it.
pub fn last_entry<I: Isa>(mm: &Mm<Sim<I>>, space: &Space<Sim<I>>, va: VirtAddr) -> (Entry, Way) {
    let (mut table, mut level, mut way) = (space.table().root(), Level::PGD, Way::ROOT);
    loop {
        let slot = PteSlot { table, index: level.index_of(va) as u16 };
        match I::decode(level, mm.tlb().fx().load(slot)) {
            Entry::Table(pointer) => {
                way = way.through(pointer);
                (table, level) = (pointer.pfn, Level::new(level.raw() - 1));
            }
            entry => return (entry, way),
        }
    }
}

/// Asserts the rules of this module for `spaces`, which are all spaces, where pages have `pins`.
///
/// No operation is under way.
///
/// # Panics
/// If one is broken.
pub fn check<I: Isa>(mm: &Mm<Sim<I>>, spaces: &[Arc<Space<Sim<I>>>], pins: &Pins) {
    let mut seen =
        SeenPaths { mm, pins, origins: BTreeMap::new(), exclusive: BTreeMap::new(), others: BTreeSet::new() };
    for space in spaces {
        seen.visit(space.id(), space.table().root(), Level::PGD, Way::ROOT);
    }
}

/// What holds a page that is exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ExclusivePage {
    Frame(Pfn),
    Swapped(u64),
}

struct SeenPaths<'m, I: Isa> {
    mm: &'m Mm<Sim<I>>,
    pins: &'m Pins,
    /// The pointer that names its space as the origin, by table.
    origins: BTreeMap<Pfn, (Pfn, u16)>,
    /// The space with the right to it, by page.
    exclusive: BTreeMap<ExclusivePage, SpaceId>,
    /// Tables that were visited for a space without a right to what is exclusive there.
    others: BTreeSet<Pfn>,
}

impl<I: Isa> SeenPaths<'_, I> {
    fn visit(&mut self, space: SpaceId, table: Pfn, level: Level, way: Way) {
        if !way.claims && !self.others.insert(table) {
            return;
        }
        let entries = match level {
            // The root of x86-64 also has the kernel's.
            Level::PGD => level.index_of(VirtAddr::new(I::USER_END.raw() - 1)) + 1,
            _ => Level::ENTRIES,
        };
        for index in 0..entries as u16 {
            let slot = PteSlot { table, index };
            match I::decode(level, self.mm.tlb().fx().load(slot)) {
                Entry::Table(pointer) => {
                    if pointer.write_protected && pointer.origin {
                        let first = *self.origins.entry(pointer.pfn).or_insert((table, index));
                        assert_eq!(first, (table, index), "INV-SHARE-ORIGIN: table {} has two origins", pointer.pfn);
                    }
                    self.visit(space, pointer.pfn, Level::new(level.raw() - 1), way.through(pointer));
                }
                Entry::Leaf(leaf) if !leaf.flags.contains(LeafFlags::SPECIAL) => self.note_leaf(space, leaf, way),
                Entry::Soft(soft) if soft.kind == SoftKind::Swap && soft.exclusive && way.claims => {
                    self.claim(space, ExclusivePage::Swapped(soft.payload));
                }
                Entry::Leaf(_) | Entry::Soft(_) | Entry::Empty => {}
            }
        }
    }

    fn note_leaf(&mut self, space: SpaceId, leaf: Leaf, way: Way) {
        let is_exclusive = leaf.flags.contains(LeafFlags::EXCLUSIVE);
        let folio = self.mm.tlb().frames().folio(leaf.pfn);
        // A large folio counts the entries of all its pages.
        let is_alone = folio.is_large() || folio.mapcount() == 1;
        assert!(!is_exclusive || is_alone, "INV-SHARE-OWN: {folio:?} is exclusive in one of its entries");
        if folio.is_anon() && self.pins.contains_key(&leaf.pfn) {
            assert!(!way.shared, "INV-SHARE-PIN: {folio:?} is pinned below a shared pointer");
            assert!(is_exclusive, "INV-GUP-EXCLUSIVE: {folio:?} is pinned, and its entry is not exclusive");
        }
        if is_exclusive && way.claims {
            self.claim(space, ExclusivePage::Frame(leaf.pfn));
        }
    }

    fn claim(&mut self, space: SpaceId, page: ExclusivePage) {
        let first = *self.exclusive.entry(page).or_insert(space);
        assert_eq!(first, space, "INV-SHARE-ORIGIN: {page:?} is exclusive to two spaces");
    }
}
