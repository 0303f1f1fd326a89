//! Random edits of a tree against a map that is one.
//!
//! After each step the tree is walked as the processor walks it and compared leaf by leaf; tables
//! are counted, and the live entries in each. So what INV-TABLE-EMPTY, INV-TABLE-RESERVE and
//! INV-TABLE-BBM promise is tried at every state that steps lead to. The space runs on a CPU that
//! touches pages as it goes, so that an edit whose debt was too small shows in its TLB.

use crate::space::{Space, map_at};
use crate::support::{Delivery, as_words};
use pagewright_arch::{Aarch64, Caps, Isa, Leaf, LeafFlags, X86_64};
use pagewright_table::{EntryView, OwnedLeaf, TableReserve};
use pagewright_tlb::Gather;
use pagewright_tlb::frames::FrameState;
use pagewright_types::{Access, CpuId, Level, Order, PAGE_SIZE, PageRange, Pfn, Rights, VirtAddr};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// An address by the index at each level, few enough that steps meet each other.
#[derive(Clone, Copy, Debug)]
struct Place([u8; 4]);

impl Place {
    fn va(self) -> VirtAddr {
        let [pgd, pud, pmd, pte] = self.0.map(u64::from);
        // The last entries of a table as well as the first: where a range ends, a table does.
        let spread = |index: u64| if index == 0 { 0 } else { 512 - index };
        let raw = (spread(pgd) / 2) << 39 | spread(pud) << 30 | spread(pmd) << 21 | spread(pte) << 12;
        VirtAddr::new(raw)
    }
}

#[derive(Clone, Debug)]
enum Step {
    Ensure {
        at: Place,
        level: u8,
    },
    Map {
        at: Place,
        level: u8,
        rights: u8,
        folio: bool,
    },
    Take {
        at: Place,
    },
    Update {
        at: Place,
        rights: u8,
    },
    Split {
        at: Place,
    },
    Touch {
        at: Place,
    },
    /// Unmaps what lies between two places and frees the tables that Linux would.
    Free {
        one: Place,
        other: Place,
    },
}

fn place() -> impl Strategy<Value = Place> {
    [0..3u8, 0..3u8, 0..3u8, 0..4u8].prop_map(Place)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => (place(), 0..3u8).prop_map(|(at, level)| Step::Ensure { at, level }),
        6 => (place(), prop_oneof![4 => Just(0u8), 2 => Just(1), 1 => Just(2)], 0..8u8, any::<bool>())
            .prop_map(|(at, level, rights, folio)| Step::Map { at, level, rights, folio }),
        3 => place().prop_map(|at| Step::Take { at }),
        3 => (place(), 0..8u8).prop_map(|(at, rights)| Step::Update { at, rights }),
        1 => place().prop_map(|at| Step::Split { at }),
        4 => place().prop_map(|at| Step::Touch { at }),
        3 => (place(), place()).prop_map(|(one, other)| Step::Free { one, other }),
    ]
}

/// What hardware makes of rights: whatever has one can be read.
fn readable(rights: Rights) -> Rights {
    if rights.is_empty() { rights } else { rights | Rights::READ }
}

/// A leaf, by what it maps and allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mapped {
    level: Level,
    pfn: Pfn,
    rights: Rights,
}

#[derive(Default)]
struct Model {
    leaves: BTreeMap<VirtAddr, Mapped>,
    /// Tables below the root: level and first address.
    tables: BTreeSet<(Level, VirtAddr)>,
}

impl Model {
    fn leaf_at(&self, va: VirtAddr) -> Option<(VirtAddr, Mapped)> {
        let (start, leaf) = self.leaves.range(..=va).next_back()?;
        (va < start.add(leaf.level.span())).then_some((*start, *leaf))
    }

    fn has_table(&self, va: VirtAddr, level: Level) -> bool {
        level == Level::PGD || self.tables.contains(&(level, va.align_down(level.table_span())))
    }

    /// Levels of the tables that are not there for `va`, unless a leaf stands in their place.
    fn missing_tables(&self, va: VirtAddr, level: Level) -> Vec<Level> {
        let below = (level.raw()..Level::PGD.raw()).map(Level::new);
        let missing: Vec<Level> = below.filter(|level| !self.has_table(va, *level)).collect();
        if self.leaf_at(va).is_some_and(|(_, leaf)| leaf.level > level) { Vec::new() } else { missing }
    }

    fn overlapping(&self, range: PageRange) -> Vec<(VirtAddr, Mapped)> {
        let over =
            |(start, leaf): &(VirtAddr, Mapped)| PageRange::new(*start, start.add(leaf.level.span())).overlaps(range);
        self.leaves.iter().map(|(start, leaf)| (*start, *leaf)).filter(over).collect()
    }

    /// Entries of a table that are in use.
    fn live(&self, level: Level, base: VirtAddr) -> usize {
        let range = PageRange::new(base, base.add(level.table_span()));
        let leaves = self.leaves.range(base..range.end()).filter(|(_, leaf)| leaf.level == level).count();
        let tables = self.tables.iter().filter(|(of, at)| of.raw() + 1 == level.raw() && range.contains(*at)).count();
        leaves + tables
    }
}

struct Run<I: Isa> {
    space: Space<I>,
    model: Model,
    next: u32,
}

impl<I: Isa> Run<I> {
    fn new(caps: Caps) -> Self {
        let space = Space::on(1, Delivery::AtOnce, caps);
        space.tlb.switch_to(space.context());
        Self { space, model: Model::default(), next: 0 }
    }

    fn ensure_tables(&mut self, va: VirtAddr, level: Level) {
        let missing = self.model.missing_tables(va, level);
        assert_eq!(self.space.ensure_tables(va, level), missing.len(), "tables made for {va} down to {level}");
        self.model.tables.extend(missing.iter().map(|level| (*level, va.align_down(level.table_span()))));
    }

    fn map(&mut self, va: VirtAddr, level: Level, rights: Rights, with_folio: bool) {
        let va = va.align_down(level.span());
        self.ensure_tables(va, level);
        let tlb = &self.space.tlb;
        let occupied = self.model.leaf_at(va).is_some()
            || level > Level::PTE && self.model.has_table(va, Level::new(level.raw() - 1));
        if occupied {
            return;
        }
        let flags = LeafFlags::USER | LeafFlags::ACCESSED;
        let block = (with_folio && level < Level::PUD)
            .then(|| tlb.alloc(tlb.request(level.order().expect("no leaf at PGD"))).ok())
            .flatten();
        let owned = match block {
            Some(block) => {
                let folio = tlb.frames().new_folio(block);
                OwnedLeaf::new(Leaf { pfn: folio.pfn(), rights, flags }, folio)
            }
            None => {
                // A frame that the allocator does not manage, like a device's.
                self.next += 1;
                OwnedLeaf::special(Leaf { pfn: Pfn::new(self.next << 18), rights, flags })
            }
        };
        let pfn = owned.leaf().pfn;
        let mut reserve = TableReserve::new(tlb);
        reserve.fill_deposits(usize::from(level == Level::PMD)).expect("memory is left");
        let edited = self.space.edit(va, level, |run| {
            assert_eq!((run.table().level(), run.table().entry(va)), (level, EntryView::Empty));
            map_at(run, va, owned, &mut reserve);
        });
        edited.expect("just made");
        self.model.leaves.insert(va, Mapped { level, pfn, rights: readable(rights) });
    }

    /// Takes the leaf over `va`, if there is one, into `gather`.
    fn take(space: &Space<I>, model: &mut Model, va: VirtAddr, gather: &mut Gather<'_, crate::support::Host<I>>) {
        let expected = model.leaf_at(va);
        let edited = space.edit(va, Level::PTE, |run| {
            let debt = run.unmap(va);
            let found = debt.as_ref().map(|debt| debt.detached().leaf());
            assert_eq!(found.map(|leaf| (leaf.pfn, leaf.rights)), expected.map(|(_, leaf)| (leaf.pfn, leaf.rights)));
            if let (Some(debt), Some((start, leaf))) = (debt, expected) {
                assert!(leaf.rights.is_empty() || debt.range() == PageRange::new(start, start.add(leaf.level.span())));
                gather.absorb(debt);
                model.leaves.remove(&start);
            }
        });
        assert!(edited.is_some() || expected.is_none());
    }

    fn update(&mut self, va: VirtAddr, rights: Rights) {
        let expected = self.model.leaf_at(va);
        self.space.edit(va, Level::PTE, |run| {
            if let Some(debt) = run.protect(va, |leaf| leaf.with_rights(rights)) {
                assert!(expected.is_some_and(|(_, leaf)| leaf.rights != readable(rights)));
                debt.settle();
            }
        });
        if let Some((start, leaf)) = expected {
            self.model.leaves.insert(start, Mapped { rights: readable(rights), ..leaf });
        }
    }

    fn split(&mut self, va: VirtAddr) {
        let (level, available) = (Level::PMD, self.space.tlb.frames().available());
        let split = self.space.split(va);
        let expected = self.model.leaf_at(va).filter(|(_, leaf)| leaf.level == level);
        assert_eq!(split, expected.is_some());
        assert_eq!(self.space.tlb.frames().available(), available, "a split allocates nothing");
        let Some((start, leaf)) = expected else { return };
        let below = Level::new(level.raw() - 1);
        self.model.leaves.remove(&start);
        self.model.tables.insert((below, start));
        for index in 0..512 {
            let pfn = leaf.pfn.add(index * below.pages() as u32);
            let part = Mapped { level: below, pfn, rights: leaf.rights };
            self.model.leaves.insert(start.add(u64::from(index) * below.span()), part);
        }
    }

    fn free(&mut self, range: PageRange) {
        let Self { space, model, .. } = self;
        let mut gather = Gather::new(&space.tlb, space.context());
        for (start, _) in model.overlapping(range) {
            Self::take(space, model, start, &mut gather);
        }
        let before = model.leaves.range(..range.start()).next_back();
        let floor = before.map_or(VirtAddr::ZERO, |(start, leaf)| start.add(leaf.level.span()));
        let ceiling = model.leaves.range(range.end()..).next().map_or(VirtAddr::new(1 << 48), |(start, _)| *start);
        let limits = PageRange::new(floor, ceiling);
        // A memory call has mappings over all tables that it leaves behind; tables of steps that
        // mapped nothing go with the rest.
        let under = |(level, base): &(Level, VirtAddr)| PageRange::new(*base, base.add(level.table_span()));
        let strays = model.tables.iter().map(under).any(|table| limits.covers(table) && !table.overlaps(range));
        let range = if strays { limits } else { range };
        space.free_tables(range, limits, &mut gather);
        gather.settle();
        // Linux's rule (free_pgd_range): what the range touches and nothing between floor and
        // ceiling needs.
        model.tables.retain(|table| !(under(table).overlaps(range) && limits.covers(under(table))));
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Ensure { at, level } => self.ensure_tables(at.va(), Level::new(level)),
            Step::Map { at, level, rights, folio } => {
                self.map(at.va(), Level::new(level), Rights::from_bits_truncate(rights), folio);
            }
            Step::Take { at } => {
                let Self { space, model, .. } = self;
                let mut gather = Gather::new(&space.tlb, space.context());
                Self::take(space, model, at.va(), &mut gather);
                gather.settle();
            }
            Step::Update { at, rights } => self.update(at.va(), Rights::from_bits_truncate(rights)),
            Step::Split { at } => self.split(at.va()),
            Step::Touch { at } => {
                let leaf = self.space.host.access(at.va(), Access::Read);
                let expected = self.model.leaf_at(at.va()).filter(|(_, leaf)| !leaf.rights.is_empty());
                assert_eq!(leaf.map(|leaf| leaf.pfn), expected.map(|(_, leaf)| leaf.pfn));
            }
            Step::Free { one, other } => {
                let (start, end) = (one.va().min(other.va()), one.va().max(other.va()));
                self.free(PageRange::new(start, end.add(PAGE_SIZE)));
            }
        }
    }

    fn check(&self) {
        let Space { host, tlb, .. } = &self.space;
        let table = self.space.table();
        for (start, leaf) in &self.model.leaves {
            let found = host.walk(table.root(), start.add(leaf.level.span() - PAGE_SIZE));
            let found = found.map(|(level, leaf)| Mapped { level, pfn: leaf.pfn, rights: leaf.rights });
            assert_eq!(found, Some(*leaf), "at {start}");
        }
        // INV-HUGE-DEPOSIT.
        let deposits = self.model.leaves.values().filter(|leaf| leaf.level == Level::PMD).count();
        assert_eq!(table.bytes(), (self.model.tables.len() + deposits) as u64 * PAGE_SIZE);
        assert_eq!(table.deposits(), deposits as u64);
        let mut seen = BTreeSet::from([table.root()]);
        let counted = |level, base, pfn| {
            let page = tlb.frames().table(pfn);
            assert_eq!(page.live() as usize, self.model.live(level, base), "{level} table at {base}");
            assert_eq!((page.level(), page.origin(), page.is_locked()), (level, table.context().id(), false));
        };
        counted(Level::PGD, VirtAddr::ZERO, table.root());
        for (level, base) in &self.model.tables {
            let found = self.space.table_at(*base, *level).expect("the table is hooked");
            assert!(seen.insert(found), "a table hooked twice");
            counted(*level, *base, found);
        }
        self.check_spans();
        host.assert_fresh(CpuId::new(0));
    }

    /// The spans of the whole address space: last-level tables and the leaves above them.
    fn check_spans(&self) {
        let whole = PageRange::new(VirtAddr::ZERO, VirtAddr::new(1 << 48));
        let held = self.space.mmap.read();
        let found: Vec<PageRange> = held.tables(&self.space.tlb).spans(whole).collect();
        let upper = self.model.leaves.iter().filter(|(_, leaf)| leaf.level > Level::PTE);
        let upper = upper.map(|(start, leaf)| PageRange::new(*start, start.add(leaf.level.span())));
        let last = self.model.tables.iter().filter(|(level, _)| *level == Level::PTE);
        let last = last.map(|(_, base)| PageRange::new(*base, base.add(Level::PTE.table_span())));
        let mut expected: Vec<PageRange> = upper.chain(last).collect();
        expected.sort_unstable_by_key(|range| range.start());
        assert_eq!(found, expected);
    }

    fn end(mut self) {
        self.free(PageRange::new(VirtAddr::ZERO, VirtAddr::new(1 << 48)));
        assert!(self.model.tables.is_empty());
        self.space.tlb.leave_space();
        let root = self.space.table().root();
        self.space.mmap.write().close(&self.space.tlb);
        assert_ne!(self.space.tlb.frames().state(root), FrameState::Table);
        assert_eq!(self.space.tlb.frames().available(), self.space.free, "every table and every page came back");
        let whole = self.space.tlb.alloc(self.space.tlb.request(Order::ZERO)).expect("there is memory");
        self.space.tlb.free(whole);
    }
}

/// Runs the steps; returns the stores to entries.
fn stores<I: Isa>(steps: &[Step], caps: Caps) -> u64 {
    let mut run = Run::<I>::new(caps);
    for step in steps {
        run.step(step);
        run.check();
    }
    let host = run.space.host.clone();
    run.end();
    host.stores()
}

/// Runs the steps on a machine without invalidations of ranges, on one with them, and on words.
fn run<I: Isa>(steps: &[Step]) {
    let caps = |range_invalidate| Caps { range_invalidate, ..Caps::baseline(I::KIND) };
    let seen = [false, true].map(|range_invalidate| stores::<I>(steps, caps(range_invalidate)));
    let words = as_words(|| stores::<I>(steps, caps(true)));
    assert_eq!(seen, [words; 2], "each store is noted, however it is made");
}

proptest! {
    #[test]
    fn a_tree_is_what_a_map_says_on_x86_64(steps in proptest::collection::vec(step(), 1..60)) {
        run::<X86_64>(&steps);
    }

    #[test]
    fn a_tree_is_what_a_map_says_on_aarch64(steps in proptest::collection::vec(step(), 1..60)) {
        run::<Aarch64>(&steps);
    }
}
