//! Random runs of edits in two spaces, counted again after each step (INV-TABLE-COUNTS).
//!
//! Pages and huge pages, anonymous and of files, mapped, copied, moved, protected, split, replaced
//! by swap entries and unmapped. After each step, references, mapcounts, locked memory, resident
//! sets, gauges and the records of the tables are compared with what the entries say.

use crate::space::Space;
use crate::support::{Delivery, Host, as_words};
use pagewright_arch::{Aarch64, Caps, Isa, Leaf, LeafFlags, SoftEntry, SoftKind, X86_64};
use pagewright_table::{EntryHooks, EntryView, LockedTable, Mlocked, MmapLock, OwnedLeaf, TableReserve};
use pagewright_tlb::frames::{EntryCounts, Folio, FolioFlags, FolioOwner, FolioRef, NewFolio, RssKind, SWAP_ENTRIES};
use pagewright_tlb::{Gather, Tlb};
use pagewright_types::{FileId, ForkNodeId, Gauge, Level, Order, PAGE_SIZE, PageRange, Pfn, Rights, VirtAddr};
use proptest::prelude::*;
use std::collections::BTreeMap;

const BASE: VirtAddr = VirtAddr::new(0x4000_0000);
/// Pages of each last-level table that the steps use.
const PAGES: u64 = 6;
/// Ranges of 2 MiB: the first two hold tables, the last huge leaves.
const BLOCKS: u64 = 3;
const SWAP: SoftEntry = SoftEntry { kind: SoftKind::Swap, exclusive: true, payload: 3 };

#[derive(Clone, Copy, Debug)]
enum Step {
    Map { page: u64, kind: RssKind, twice: bool },
    MapBlock { kind: RssKind },
    Unmap { page: u64 },
    UnmapRun { block: u64, from: u64, pages: u64 },
    ToSwap { page: u64 },
    Protect { page: u64 },
    ProtectRun { block: u64, rights: Rights },
    Copy { block: u64 },
    Move { from: u64, to: u64 },
    Split,
    UnmapBlock,
    EndChild,
}

fn step() -> impl Strategy<Value = Step> {
    let page = 0..2 * PAGES;
    let rights = prop_oneof![Just(Rights::RW), Just(Rights::READ), Just(Rights::empty())];
    let kind = || prop_oneof![Just(RssKind::Anon), Just(RssKind::File), Just(RssKind::Shmem)];
    prop_oneof![
        6 => (page.clone(), kind(), any::<bool>()).prop_map(|(page, kind, twice)| Step::Map { page, kind, twice }),
        2 => kind().prop_map(|kind| Step::MapBlock { kind }),
        3 => page.clone().prop_map(|page| Step::Unmap { page }),
        2 => (0..BLOCKS, 0..PAGES, 1..=PAGES).prop_map(|(block, from, pages)| Step::UnmapRun { block, from, pages }),
        2 => (0..BLOCKS, rights).prop_map(|(block, rights)| Step::ProtectRun { block, rights }),
        2 => page.clone().prop_map(|page| Step::ToSwap { page }),
        2 => page.clone().prop_map(|page| Step::Protect { page }),
        3 => (0..BLOCKS).prop_map(|block| Step::Copy { block }),
        3 => (page.clone(), page).prop_map(|(from, to)| Step::Move { from, to }),
        1 => Just(Step::Split),
        1 => Just(Step::UnmapBlock),
        2 => Just(Step::EndChild),
    ]
}

fn page(index: u64) -> VirtAddr {
    BASE.add(index / PAGES % 2 * Level::PMD.span() + index % PAGES * PAGE_SIZE)
}

fn block(index: u64) -> PageRange {
    let start = BASE.add(index * Level::PMD.span());
    PageRange::new(start, start.add(Level::PMD.span()))
}

struct World<I: Isa> {
    parent: Space<I>,
    child: MmapLock<Host<I>, ()>,
    mlocked: Mlocked,
    /// References that the test holds, by folio.
    held: Vec<FolioRef>,
}

/// Swap entries are copied as they are.
pub(crate) struct Hooks;

impl EntryHooks for Hooks {
    fn copy_soft(&mut self, soft: SoftEntry) -> Option<SoftEntry> {
        Some(SoftEntry { exclusive: false, ..soft })
    }

    fn release_soft(&mut self, soft: SoftEntry) {
        assert_eq!(soft.kind, SoftKind::Swap);
    }

    fn unmapped(&mut self, folio: Folio<'_>) {
        assert!(folio.refs() > 0, "the reference of the entry is still held");
    }
}

impl<I: Isa> World<I> {
    fn new(mlocked: Mlocked) -> Self {
        let parent = Space::on(1, Delivery::AtOnce, Caps::baseline(I::KIND));
        let child = crate::space::new_lock(&parent.tlb);
        for index in 0..2 {
            parent.ensure_tables(block(index).start(), Level::PTE);
        }
        parent.ensure_tables(block(2).start(), Level::PMD);
        Self { parent, child, mlocked, held: Vec::new() }
    }

    fn tlb(&self) -> &Tlb<Host<I>> {
        &self.parent.tlb
    }

    fn edit<R>(&self, va: VirtAddr, body: impl FnOnce(&LockedTable<'_, Host<I>>) -> R) -> Option<R> {
        self.parent.locked(va, Level::PTE, body)
    }

    fn new_folio(&self, order: Order, kind: RssKind) -> Option<NewFolio> {
        let tlb = self.tlb();
        let block = tlb.alloc(tlb.request(order)).ok()?;
        let (owner, flags) = match kind {
            RssKind::Anon => (FolioOwner::Anon(ForkNodeId::new(1)), FolioFlags::SWAPBACKED),
            RssKind::Shmem => (FolioOwner::File(FileId::new(1)), FolioFlags::SWAPBACKED),
            RssKind::File => (FolioOwner::File(FileId::new(1)), FolioFlags::empty()),
        };
        Some(NewFolio { block, owner, index: 0, flags })
    }

    fn flags(pfn: Pfn, kind: RssKind) -> LeafFlags {
        let mut flags = LeafFlags::USER;
        // A walker may still set bits of every other leaf.
        flags.set(LeafFlags::ACCESSED | LeafFlags::DIRTY, pfn.raw().is_multiple_of(2));
        flags.set(LeafFlags::EXCLUSIVE, kind == RssKind::Anon);
        flags
    }

    /// Maps a new folio if the entry of `level` is empty, and returns its frame then.
    fn map_new(&self, va: VirtAddr, level: Level, kind: RssKind) -> Option<Pfn> {
        let order = level.order().expect("a level with leaves");
        let mut reserve = TableReserve::new(self.tlb());
        reserve.fill_deposits(usize::from(level == Level::PMD)).ok()?;
        let mut new = Some(self.new_folio(order, kind)?);
        let mapped = self.parent.locked(va, level, |table| {
            let new = new.take_if(|_| table.is_empty(va))?;
            let pfn = new.pfn();
            let mut run = table.run(self.mlocked);
            match level {
                Level::PTE => run.map_new(va, new, Rights::RW, Self::flags(pfn, kind)),
                _ => run.map_new_huge(va, new, Rights::RW, Self::flags(pfn, kind), &mut reserve),
            }
            Some(pfn)
        });
        if let Some(unused) = new {
            self.tlb().free(unused.block);
        }
        mapped.flatten()
    }

    /// Maps a page of a folio once more if the entry is empty, and returns the reference otherwise.
    fn map_again(&self, va: VirtAddr, kind: RssKind, folio: FolioRef) -> Option<FolioRef> {
        let leaf = Leaf { pfn: folio.pfn(), rights: Rights::RW, flags: Self::flags(folio.pfn(), kind) };
        let mut left = Some(folio);
        self.edit(va, |table| {
            if let Some(folio) = left.take_if(|_| table.is_empty(va)) {
                table.run(self.mlocked).map(va, OwnedLeaf::new(leaf, folio));
            }
        });
        left
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Map { page: index, kind, twice } => {
                let mapped = self.map_new(page(index), Level::PTE, kind);
                if let Some(pfn) = mapped.filter(|_| twice) {
                    let again = self.tlb().frames().folio(pfn).get();
                    let refused = self.map_again(page(index + PAGES), kind, again);
                    self.held.extend(refused);
                }
            }
            Step::MapBlock { kind } => drop(self.map_new(block(2).start(), Level::PMD, kind)),
            Step::Unmap { page: index } => {
                let (va, mlocked) = (page(index), self.mlocked);
                self.edit(va, |table| {
                    let mut run = table.run(mlocked);
                    match run.unmap(va) {
                        Some(debt) => debt.settle(),
                        None => drop(run.unmap_soft(va)),
                    }
                });
            }
            Step::UnmapRun { block: index, from, pages } => {
                let start = block(index).start().add(from * PAGE_SIZE);
                self.unmap(PageRange::new(start, start.add(pages * PAGE_SIZE)));
            }
            Step::ProtectRun { block: index, rights } => self.protect(block(index), rights),
            Step::UnmapBlock => self.unmap(block(2)),
            Step::ToSwap { page: index } => {
                let (va, mlocked) = (page(index), self.mlocked);
                self.edit(va, |table| {
                    if let Some(debt) = table.run(mlocked).unmap_to_soft(va, |_| SWAP, |_| false) {
                        debt.settle();
                    }
                });
            }
            Step::Protect { page: index } => {
                let (va, mlocked) = (page(index), self.mlocked);
                self.edit(va, |table| {
                    if let Some(debt) = table.run(mlocked).protect(va, |leaf| leaf.with_rights(Rights::READ)) {
                        debt.settle();
                    }
                });
            }
            Step::Copy { block: index } => self.copy(block(index)),
            Step::Move { from, to } => self.relocate(page(from), page(to)),
            Step::Split => {
                let held = self.parent.mmap.read();
                held.tables(&self.parent.tlb).owned(block(2)).split_leaf(block(2).start(), self.mlocked);
            }
            Step::EndChild => self.empty_child(),
        }
    }

    fn unmap(&self, range: PageRange) {
        let mut gather = Gather::new(self.tlb(), self.parent.context());
        let held = self.parent.mmap.read();
        for (table, part) in held.tables(self.tlb()).owned(range).locked(range, self.mlocked) {
            table.unmap_run(part, self.mlocked, &mut Hooks, |_, _| true, &mut gather);
            assert!(table.entries(part).all(|va| table.is_empty(va)));
        }
        gather.settle();
    }

    fn protect(&self, range: PageRange, rights: Rights) {
        let mut gather = Gather::new(self.tlb(), self.parent.context());
        let held = self.parent.mmap.read();
        for (table, part) in held.tables(self.tlb()).owned(range).locked(range, self.mlocked) {
            let before: Vec<_> = table.entries(part).map(|va| table.entry(va)).collect();
            table.protect_run(part, |_, _| rights, &mut gather);
            for (va, before) in table.entries(part).zip(before) {
                let expected = match before {
                    EntryView::Leaf(leaf) => EntryView::Leaf(leaf.with_rights(rights)),
                    EntryView::Empty | EntryView::Soft(_) | EntryView::Table => before,
                };
                assert_eq!(table.entry(va), expected, "the entry for {va}");
            }
        }
        gather.settle();
    }

    fn copy(&self, range: PageRange) {
        self.empty_child();
        let (from, to) = (self.parent.mmap.write(), self.child.write());
        let (from, to) = (from.tables(self.tlb()).owned(range), to.tables(self.tlb()).owned(range));
        let mut gather = Gather::new(self.tlb(), self.parent.context());
        for span in from.spans(range) {
            let Some(source) = from.lock(span.start()) else { continue };
            let level = source.level();
            drop(source);
            let mut reserve = TableReserve::new(self.tlb());
            let huge = usize::from(level == Level::PMD);
            let had = reserve.fill(to.missing(span.start(), level)).and_then(|()| reserve.fill_deposits(huge));
            if had.is_err() {
                continue;
            }
            to.ensure(span.start(), level, &mut reserve);
            let source = from.lock(span.start()).expect("as before");
            let target = to.lock_level(span.start(), level).expect("just made");
            let (copied, stop) = match level {
                Level::PTE => source.copy_run(&target, span, &mut Hooks, |_| None, &mut gather),
                _ => source.copy_huge_run(&target, span, &mut Hooks, &mut reserve, &mut gather),
            };
            let entries = source.entries(span).filter(|va| !source.is_empty(*va)).count();
            assert_eq!((copied, stop), (entries as u64, Ok(())));
            for va in source.entries(span) {
                let (ours, theirs) = (source.entry(va), target.entry(va));
                match (ours, theirs) {
                    (EntryView::Leaf(ours), EntryView::Leaf(theirs)) => {
                        assert_eq!(ours.pfn(), theirs.pfn());
                        for leaf in [ours, theirs] {
                            assert!(!leaf.is_exclusive() && !leaf.rights().contains(Rights::WRITE), "{leaf:?}");
                        }
                        assert!(!theirs.has(LeafFlags::ACCESSED), "a child has accessed nothing: {theirs:?}");
                    }
                    _ => assert_eq!(ours, theirs),
                }
            }
        }
        gather.settle();
    }

    fn relocate(&self, from: VirtAddr, to: VirtAddr) {
        let held = self.parent.mmap.write();
        let tables = held.tables(self.tlb()).owned(PageRange::page(from));
        let Some(source) = tables.lock(from) else { return };
        let other = (!source.range().contains(to)).then(|| tables.lock(to)).flatten();
        let target = other.as_ref().unwrap_or(&source);
        if !target.is_empty(to) {
            return;
        }
        let mut gather = Gather::new(self.tlb(), self.parent.context());
        let before = source.entry(from);
        source.move_run(PageRange::page(from), target, to, |leaf| leaf, |soft| soft, &mut gather);
        assert_eq!((source.entry(from), target.entry(to)), (EntryView::Empty, before));
        gather.settle();
    }

    /// Unmaps everything of the child, and frees its tables.
    fn empty_child(&self) {
        let whole = PageRange::new(VirtAddr::ZERO, VirtAddr::new(1 << 48));
        let held = self.child.write();
        let mut gather = Gather::new(self.tlb(), self.child.table().context());
        for (table, part) in held.tables(self.tlb()).owned(whole).locked(whole, Mlocked(false)) {
            table.unmap_run(part, Mlocked(false), &mut Hooks, |_, _| true, &mut gather);
        }
        held.free_tables(held.tables(self.tlb()).owned(whole), whole, whole, &mut gather);
        gather.settle();
        assert_eq!(self.child.table().rss().pages(), 0);
    }

    fn check(&self) {
        let mut folios: BTreeMap<Pfn, (u32, u32)> = BTreeMap::new();
        let frames = self.tlb().frames();
        for reference in &self.held {
            folios.entry(reference.pfn()).or_default().0 += 1;
        }
        let (mut anon, mut mapped) = (BTreeMap::new(), BTreeMap::new());
        for (space, mlocked) in [(&self.parent.mmap, self.mlocked), (&self.child, Mlocked(false))] {
            let whole = PageRange::new(VirtAddr::ZERO, VirtAddr::new(1 << 48));
            let held = space.read();
            let mut resident = EntryCounts::<u64>::default();
            for (table, _) in held.tables(self.tlb()).owned(whole).locked(whole, Mlocked(false)) {
                let mut counts = EntryCounts::<u16>::default();
                let live = table.entries(table.range()).filter(|va| !table.is_empty(*va)).count();
                assert_eq!(frames.table(table.table()).live() as usize, live, "the table for {}", table.range());
                for va in table.entries(table.range()) {
                    match table.entry(va) {
                        EntryView::Leaf(leaf) => {
                            let folio = frames.folio(leaf.pfn());
                            let kind = folio.rss_kind();
                            counts[kind as usize] += 1;
                            resident[kind as usize] += leaf.level().pages();
                            let entry = folios.entry(folio.pfn()).or_default();
                            entry.0 += 1;
                            entry.1 += u32::from(mlocked.0);
                            let gauge = if kind == RssKind::Anon { &mut anon } else { &mut mapped };
                            for page in 0..leaf.level().pages() as u32 {
                                *gauge.entry(leaf.pfn().add(page)).or_insert(0) += 1;
                            }
                        }
                        EntryView::Soft(_) => {
                            counts[SWAP_ENTRIES] += 1;
                            resident[SWAP_ENTRIES] += 1;
                        }
                        EntryView::Empty | EntryView::Table => {}
                    }
                }
                assert_eq!(frames.table(table.table()).counts(), counts, "the table for {}", table.range());
                // INV-HUGE-DEPOSIT.
                let huge = table.huge_leaves(table.range());
                assert_eq!(frames.table(table.table()).deposits() as usize, huge, "the table for {}", table.range());
            }
            let rss = space.table().rss();
            let counted = RssKind::ALL.map(|kind| rss.of(kind));
            assert_eq!((&counted[..], rss.swapped()), (&resident[..SWAP_ENTRIES], resident[SWAP_ENTRIES]));
        }
        for (pfn, (entries, mlocks)) in folios {
            let folio = frames.folio(pfn);
            let held = self.held.iter().filter(|held| held.pfn() == pfn).count() as u32;
            assert_eq!((folio.refs(), folio.mapcount()), (entries, entries - held), "{folio:?}");
            assert_eq!(folio.mlocks(), mlocks, "{folio:?}");
        }
        let gauges = [Gauge::AnonPages, Gauge::Mapped].map(|gauge| frames.gauges().sum(gauge));
        assert_eq!(gauges, [anon.len() as i64, mapped.len() as i64]);
    }

    fn end(mut self) {
        self.unmap(PageRange::new(VirtAddr::ZERO, VirtAddr::new(1 << 48)));
        self.empty_child();
        let frames = self.parent.tlb.frames();
        for reference in self.held.drain(..) {
            if let Some(block) = frames.put(reference) {
                self.parent.tlb.free(block);
            }
        }
        self.check();
        let whole = PageRange::new(VirtAddr::ZERO, VirtAddr::new(1 << 48));
        let mut gather = Gather::new(self.tlb(), self.parent.context());
        self.parent.free_tables(whole, whole, &mut gather);
        gather.settle();
        self.child.write().close(self.tlb());
        self.parent.mmap.write().close(self.tlb());
        assert_eq!(self.tlb().frames().available(), self.parent.free, "every page and every table came back");
    }
}

/// Runs the steps; returns the stores to entries.
fn stores<I: Isa>(steps: &[Step], mlocked: bool) -> u64 {
    let mut world = World::<I>::new(Mlocked(mlocked));
    for step in steps {
        world.step(*step);
        world.check();
    }
    let host = world.parent.host.clone();
    world.end();
    host.stores()
}

fn run<I: Isa>(steps: &[Step], mlocked: bool) {
    let seen = stores::<I>(steps, mlocked);
    assert_eq!(as_words(|| stores::<I>(steps, mlocked)), seen, "each store is noted, however it is made");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn runs_count_what_the_entries_say_on_x86_64(
        steps in proptest::collection::vec(step(), 1..40),
        mlocked in any::<bool>(),
    ) {
        run::<X86_64>(&steps, mlocked);
    }

    #[test]
    fn runs_count_what_the_entries_say_on_aarch64(
        steps in proptest::collection::vec(step(), 1..40),
        mlocked in any::<bool>(),
    ) {
        run::<Aarch64>(&steps, mlocked);
    }
}

/// INV-TABLE-COUNTS.
#[cfg(feature = "planted")]
#[test]
fn a_count_that_an_edit_forgets_is_found() {
    use pagewright_plant::{PlantedBug, choose};
    let map = Step::Map { page: 0, kind: RssKind::Anon, twice: false };
    for (bug, step) in [
        (PlantedBug::CopyUncounted, Step::Copy { block: 0 }),
        (PlantedBug::MoveUncounted, Step::Move { from: 0, to: PAGES }),
    ] {
        run::<X86_64>(&[map, step], false);
        choose(Some(bug));
        let found = std::panic::catch_unwind(|| run::<X86_64>(&[map, step], false)).is_err();
        choose(None);
        assert!(found, "{} is not found", bug.name());
    }
}
