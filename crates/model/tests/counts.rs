//! O4 on page tables and claims made by hand (INV-ORACLE-O4).
//!
//! Counts that agree are not reported, and each count that is off by one is named.

use pagewright_model::{Antecedent, Census, CountKind, CountMismatch, SoftwareBits, Tally};
use pagewright_types::snapshot::{
    DeferredRecord, DepositRecord, FolioRecord, GaugeRecord, HeldRecord, ListedRecord, PageKind, PageRecord,
    PinnedRecord, RefHolder, SnapshotRecord, SpaceRecord, SwapRefRecord, SwapSlotRecord, TableRecord, VmstatGauge,
};
use pagewright_types::{IsaKind, Level, LruList, Order, Pfn, PhysAddr, SpaceId, SwapEntry};
use std::collections::HashMap;

const ISA: IsaKind = IsaKind::X86_64;
const BELOW: u64 = 0x067;
/// Present, user, accessed, dirty, not executable; writable; exclusive; special.
const READ: u64 = 0x8000_0000_0000_0065;
const WRITE: u64 = READ | 2;
const EXCLUSIVE: u64 = 1 << 56;
const SPECIAL: u64 = 1 << 55;
const PROT_NONE: u64 = 1 << 9;
const BLOCK: u64 = 1 << 7;
/// A swap entry: kind 1 of non-present entries, and exclusive.
const SWAPPED: u64 = 1 << 1 | 1 << 10;
const SWAP_EXCLUSIVE: u64 = 1 << 5;

const fn pfn(raw: u32) -> Pfn {
    Pfn::new(raw)
}

const fn entry(slot: u32) -> SwapEntry {
    SwapEntry::new(3, slot)
}

fn word(slot: u32) -> u64 {
    u64::from(entry(slot).raw()) << 11 | SWAPPED
}

/// Two spaces with roots 0x10 and 0x20, which share the last-level table 0x30.
///
/// - 0x100, anonymous: mapped by space 1, writable and exclusive.
/// - 0x101, anonymous: mapped by both spaces, read-only; the entry of space 2 is `PROT_NONE`.
/// - 0x102, of a file and in its page cache: mapped by the shared table.
/// - 0x200, anonymous, order 9: mapped by space 1 as a block, writable and exclusive.
/// - 0x400, of shared memory, order 1: its second page is mapped by space 2; pinned once.
/// - 0x500: mapped by a special entry.
/// - Swap slot 7: named by space 1, exclusive. Slot 8: named by both spaces and by shared memory.
struct World {
    words: HashMap<u64, u64>,
    records: Vec<SnapshotRecord>,
    /// Pages of large folios that their holders say are pinned.
    pinned: Vec<u32>,
}

impl World {
    fn put(&mut self, table: u32, index: u64, raw: u64) {
        self.words.insert((u64::from(table) << 12) + index * 8, raw);
    }

    fn new() -> Self {
        let mut world = Self { words: HashMap::new(), records: Vec::new(), pinned: Vec::new() };
        for base in [0x10, 0x20] {
            for table in base..base + 3 {
                world.put(table, 0, u64::from(table + 1) << 12 | BELOW);
            }
            // The second entry of the PMD table, read-only because it points to a shared table.
            world.put(base + 2, 1, 0x30 << 12 | 0x065);
        }
        world.put(0x13, 0, 0x10_0000 | WRITE | EXCLUSIVE);
        world.put(0x13, 1, 0x10_1000 | READ);
        world.put(0x13, 9, 0x50_0000 | READ | SPECIAL);
        world.put(0x12, 5, 0x20_0000 | WRITE | BLOCK | EXCLUSIVE);
        world.put(0x23, 1, 0x10_1000 | PROT_NONE);
        world.put(0x23, 2, 0x40_1000 | READ);
        world.put(0x30, 0, 0x10_2000 | READ);
        world.put(0x13, 20, word(7) | SWAP_EXCLUSIVE);
        world.put(0x13, 21, word(8));
        world.put(0x23, 21, word(8));
        world.records.push(SnapshotRecord::SwapSlot(SwapSlotRecord { entry: entry(7), entries: 1 }));
        world.records.push(SnapshotRecord::SwapSlot(SwapSlotRecord { entry: entry(8), entries: 3 }));
        world.records.push(SnapshotRecord::SwapRef(SwapRefRecord { entry: entry(8), holder: RefHolder::Cache }));
        let (anon, file, shmem) = (Some(PageKind::Anon), Some(PageKind::File), Some(PageKind::Shmem));
        world.folio(0x100, 0, anon, 1, [0, 1, 1]);
        world.folio(0x101, 0, anon, 2, [0, 2, 1]);
        world.folio(0x102, 0, file, 2, [0, 1, 1]);
        world.folio(0x200, 9, anon, 1, [1, 1, 0]);
        world.folio(0x400, 1, shmem, 4, [0, 1, 1]);
        world.records.push(SnapshotRecord::Pinned(PinnedRecord { pfn: pfn(0x400), pins: 1, bias: 1 }));
        world.records.push(SnapshotRecord::Page(PageRecord { pfn: pfn(0x401), mapcount: 1, tail_refs: 0 }));
        for (folio, refs) in [(0x102, 1), (0x400, 2)] {
            world.records.push(SnapshotRecord::Held(HeldRecord { pfn: pfn(folio), holder: RefHolder::Cache, refs }));
        }
        for (table, level, shares) in [
            (0x10, 3, 1),
            (0x11, 2, 1),
            (0x12, 1, 1),
            (0x13, 0, 1),
            (0x20, 3, 1),
            (0x21, 2, 1),
            (0x22, 1, 1),
            (0x23, 0, 1),
            (0x30, 0, 2),
            (0x31, 0, 1),
        ] {
            let (pfn, level) = (pfn(table), Level::new(level));
            world.records.push(SnapshotRecord::Table(TableRecord { pfn, level, shares }));
        }
        world.records.push(SnapshotRecord::Deposit(DepositRecord { pfn: pfn(0x31), holder: pfn(0x12) }));
        let page = 4096 * 4096;
        let (first, second) = (page + page / 2 + page / 2 + 512 * page, page / 2 + page / 2 + page);
        let spaces =
            [(1, 0x10, [2 + 512, 1, 0], 2, (first, page + page / 3)), (2, 0x20, [1, 1, 1], 1, (second, page / 3))];
        for (id, root, rss, swapped, (pss, swap_pss)) in spaces {
            let id = SpaceId::new(id);
            world.records.push(SnapshotRecord::Space(SpaceRecord {
                id,
                root: pfn(root),
                rss,
                swapped,
                pss,
                swap_pss,
                // One of the tables of the first is a deposit.
                table_bytes: (7 - id.raw()) * 4096,
            }));
        }
        world.live();
        world
    }

    fn live(&mut self) {
        let live = [
            (VmstatGauge::TablePages, 10),
            (VmstatGauge::AnonPages, 2 + 512),
            (VmstatGauge::AnonThps, 512),
            (VmstatGauge::MappedPages, 2),
            (VmstatGauge::Pins, 1),
            (VmstatGauge::Listed(LruList::ActiveAnon), 2 + 512),
            (VmstatGauge::Listed(LruList::InactiveFile), 1),
        ];
        for (gauge, count) in live {
            self.records.push(SnapshotRecord::Gauge(GaugeRecord { gauge, count }));
        }
    }

    fn folio(&mut self, head: u32, order: u8, kind: Option<PageKind>, refs: u64, maps: [u64; 3]) {
        let [entire_mapcount, mapcount, pages_mapped] = maps;
        let (pfn, order) = (pfn(head), Order::new(order));
        let list = kind.map(|kind| match kind {
            PageKind::Anon => LruList::ActiveAnon,
            PageKind::File => LruList::InactiveFile,
            PageKind::Shmem => LruList::InactiveAnon,
        });
        self.records.push(SnapshotRecord::Folio(FolioRecord {
            pfn,
            order,
            kind,
            refs,
            entire_mapcount,
            mapcount,
            pages_mapped,
            list,
        }));
        self.records.extend(list.map(|list| SnapshotRecord::Listed(ListedRecord { pfn, list })));
    }

    fn judge(&self) -> (Vec<CountMismatch>, Tally) {
        let mut census = Census::new(SoftwareBits::pagewright(ISA));
        self.records.iter().for_each(|record| census.add(*record));
        self.pinned.iter().for_each(|page| census.add_pinned_page(pfn(*page)));
        let mut tally = Tally::default();
        let read = |at: PhysAddr| self.words.get(&at.raw()).copied().unwrap_or(0);
        (census.compare(ISA, &read, &mut tally), tally)
    }

    fn found(&self) -> Vec<CountKind> {
        self.judge().0.into_iter().map(|count| count.of).collect()
    }

    /// The wrong counts after a change.
    fn found_after(change: impl FnOnce(&mut Self)) -> Vec<CountKind> {
        let mut world = Self::new();
        change(&mut world);
        world.found()
    }

    /// The wrong counts without some records.
    fn found_without(lost: impl Fn(&SnapshotRecord) -> bool) -> Vec<CountKind> {
        Self::found_after(|world| world.records.retain(|record| !lost(record)))
    }

    /// The wrong counts after an edit of the records.
    fn edited(edit: impl Fn(&mut SnapshotRecord)) -> Vec<CountKind> {
        Self::found_after(|world| world.records.iter_mut().for_each(edit))
    }
}

#[test]
fn counts_that_agree_are_not_reported_and_every_rule_has_judged() {
    let (wrong, tally) = World::new().judge();
    assert_eq!(wrong, []);
    let idle: Vec<Antecedent> = tally.vacuous().filter(|what| what.name().starts_with("O4")).collect();
    let while_running = [
        Antecedent::SharedStore,
        Antecedent::SharedHash,
        Antecedent::InPlaceEdit,
        Antecedent::TableMadeInPlace,
        Antecedent::InstalledBesideBreak,
        Antecedent::LeaveBesideWalk,
        Antecedent::BreakBesideLockless,
        Antecedent::BreakBesideForeign,
        Antecedent::LeaveBesideForeign,
    ];
    let (stores, states): (Vec<_>, Vec<_>) = idle.into_iter().partition(|what| while_running.contains(what));
    assert_eq!(stores, while_running, "those judge stores, not counts");
    let others = [
        Antecedent::LargeBothWays,
        Antecedent::LargeShared,
        Antecedent::LargeUnequal,
        Antecedent::LargeApart,
        Antecedent::LargePagePinned,
        Antecedent::PartlyMapped,
        Antecedent::UnequalSharers,
        Antecedent::UnequalSwapSharers,
    ];
    assert_eq!(states, others, "see the next test, `queued_if_anonymous` and `with_unequal_sharers`");
}

#[test]
fn the_ways_in_which_a_large_folio_is_mapped_are_counted() {
    let counts = |maps: &[(u64, u64)], pinned: &[u32]| {
        let mut world = World::new();
        maps.iter().for_each(|(index, page)| world.put(0x23, *index, (page << 12) | READ));
        world.pinned.extend(pinned);
        let tally = world.judge().1;
        let states = [
            Antecedent::LargeBothWays,
            Antecedent::LargeShared,
            Antecedent::LargeUnequal,
            Antecedent::LargeApart,
            Antecedent::LargePagePinned,
        ];
        states.map(|state| tally.of(state))
    };
    assert_eq!(counts(&[], &[]), [0; 5]);
    assert_eq!(counts(&[(7, 0x207), (8, 0x208)], &[]), [1, 1, 0, 0, 0], "each page at its place");
    assert_eq!(counts(&[(7, 0x207), (9, 0x208)], &[]), [1, 1, 0, 1, 0], "one moved");
    assert_eq!(counts(&[(7, 0x207), (8, 0x207), (9, 0x209)], &[]), [1, 1, 1, 1, 0], "one is mapped twice");
    assert_eq!(counts(&[], &[0x207]), [0, 0, 0, 0, 1]);
}

#[test]
fn each_wrong_count_is_named() {
    let folio = |pfn: u32, edit: fn(&mut FolioRecord)| {
        World::edited(move |record| match record {
            SnapshotRecord::Folio(folio) if folio.pfn == Pfn::new(pfn) => edit(folio),
            _ => {}
        })
    };
    assert_eq!(folio(0x101, |folio| folio.refs += 1), [CountKind::Refs(pfn(0x101))]);
    assert_eq!(folio(0x101, |folio| folio.mapcount -= 1), [CountKind::Mapcount(pfn(0x101))]);
    assert_eq!(folio(0x200, |folio| folio.entire_mapcount = 0), [CountKind::EntireMapcount(pfn(0x200))]);
    assert_eq!(folio(0x400, |folio| folio.pages_mapped = 2), [CountKind::PagesMapped(pfn(0x400))]);
    let spaces = |edit: fn(&mut SpaceRecord)| {
        World::edited(move |record| match record {
            SnapshotRecord::Space(space) if space.id == SpaceId::new(2) => edit(space),
            _ => {}
        })
    };
    let id = SpaceId::new(2);
    assert_eq!(spaces(|space| space.table_bytes -= 4096), [CountKind::TableBytes(id)]);
    assert_eq!(
        spaces(|space| space.rss = [2, 0, 1]),
        [CountKind::Rss(id, PageKind::Anon), CountKind::Rss(id, PageKind::File)]
    );
    assert_eq!(spaces(|space| space.pss += 1), [CountKind::Pss(id)]);
    assert_eq!(spaces(|space| space.pss -= 1), [CountKind::Pss(id)]);
    assert_eq!(spaces(|space| space.swap_pss += 1), [CountKind::SwapPss(id)]);
    let other = World::edited(|record| match record {
        SnapshotRecord::Table(table) if table.pfn == pfn(0x30) => table.shares = 1,
        SnapshotRecord::Table(table) if table.pfn == pfn(0x13) => table.level = Level::PMD,
        SnapshotRecord::Page(page) => page.tail_refs = 1,
        SnapshotRecord::Gauge(live) if live.gauge == VmstatGauge::TablePages => live.count = 11,
        _ => {}
    });
    let expected = [
        CountKind::TailRefs(pfn(0x401)),
        CountKind::TableLevel(pfn(0x13)),
        CountKind::Shares(pfn(0x30)),
        CountKind::Gauge(VmstatGauge::TablePages),
    ];
    assert_eq!(other, expected);
}

/// D13, and what counts deposits as tables.
#[test]
fn a_deposit_too_few_or_too_many_is_named() {
    let first = SpaceId::new(1);
    let tables = [CountKind::TableBytes(first), CountKind::Gauge(VmstatGauge::TablePages)];
    let lost = World::found_without(|record| matches!(record, SnapshotRecord::Deposit(_)));
    assert_eq!(lost, [tables[0], CountKind::Shares(pfn(0x31)), tables[1], CountKind::Deposits(pfn(0x12))]);
    let more = World::found_after(|world| {
        world.records.push(SnapshotRecord::Deposit(DepositRecord { pfn: pfn(0x50), holder: pfn(0x12) }));
    });
    assert_eq!(more, [tables[0], tables[1], CountKind::Deposits(pfn(0x12))]);
    let hooked = World::found_after(|world| {
        world.records.push(SnapshotRecord::Deposit(DepositRecord { pfn: pfn(0x23), holder: pfn(0x22) }));
    });
    assert!(hooked.contains(&CountKind::Shares(pfn(0x23))) && hooked.contains(&CountKind::Deposits(pfn(0x22))));
    let thps = World::edited(|record| match record {
        SnapshotRecord::Gauge(live) if live.gauge == VmstatGauge::AnonThps => live.count = 0,
        _ => {}
    });
    assert_eq!(thps, [CountKind::Gauge(VmstatGauge::AnonThps)]);
}

/// D19.
#[test]
fn a_folio_that_is_queued_wrongly_or_not_at_all_is_named() {
    let queued = |folio: u32, times: usize| {
        World::found_after(|world| {
            let record = SnapshotRecord::Deferred(DeferredRecord { pfn: pfn(folio) });
            world.records.extend(core::iter::repeat_n(record, times));
        })
    };
    for (folio, what) in [(0x200, "one that is mapped whole"), (0x100, "a small one"), (0x800, "a frame that is none")]
    {
        assert_eq!(queued(folio, 1), [CountKind::Deferred(pfn(folio))], "{what}");
    }
    let queued_if_anonymous = |queued: u32| {
        World::found_after(|world| {
            for record in &mut world.records {
                if let SnapshotRecord::Folio(folio) = record
                    && folio.pfn == pfn(0x400)
                {
                    folio.kind = Some(PageKind::Anon);
                }
            }
            let record = SnapshotRecord::Deferred(DeferredRecord { pfn: pfn(0x400) });
            world.records.extend(core::iter::repeat_n(record, queued as usize));
        })
    };
    let names = |found: &[CountKind]| found.contains(&CountKind::Deferred(pfn(0x400)));
    assert_eq!(
        [0, 1, 2].map(|times| names(&queued_if_anonymous(times))),
        [true, false, true],
        "one of two pages is mapped"
    );
}

#[test]
fn entries_without_a_claim_are_named() {
    assert_eq!(
        World::found_without(|record| matches!(record, SnapshotRecord::Table(table) if table.pfn == pfn(0x23))),
        [CountKind::Shares(pfn(0x23))]
    );
    assert_eq!(World::found_after(|world| world.put(0x13, 7, 0x60_0000 | READ)), [CountKind::Unowned(pfn(0x600))]);
    assert_eq!(
        World::found_after(|world| world.put(0x10, 1, 0x20_0000 | WRITE | BLOCK)),
        [CountKind::Malformed(pfn(0x10))]
    );
    assert_eq!(
        World::found_without(|record| matches!(record, SnapshotRecord::Page(_))),
        [CountKind::PageMapcount(pfn(0x401))]
    );
}

#[test]
fn swap_slots_are_counted_and_an_exclusive_page_has_one_entry() {
    let mut world = World::new();
    // A non-present entry of another kind, and a slot without entries, whose folio is still in the
    // swap cache.
    world.put(0x13, 22, word(9) ^ 0xf << 1);
    world.records.push(SnapshotRecord::SwapSlot(SwapSlotRecord { entry: entry(10), entries: 0 }));
    assert_eq!(world.found(), []);
    assert_eq!(
        World::found_after(|world| world.put(0x13, 21, 0)),
        [
            CountKind::Swapped(SpaceId::new(1)),
            CountKind::SwapPss(SpaceId::new(1)),
            CountKind::SwapPss(SpaceId::new(2)),
            CountKind::Slot(entry(8))
        ]
    );
    assert_eq!(
        World::found_after(|world| world.put(0x23, 21, word(8) | SWAP_EXCLUSIVE)),
        [CountKind::ExclusiveSlot(entry(8))]
    );
    assert_eq!(
        World::found_without(|record| matches!(record, SnapshotRecord::SwapSlot(slot) if slot.entry == entry(7))),
        [CountKind::Slot(entry(7))]
    );
    assert_eq!(
        World::found_without(|record| matches!(record, SnapshotRecord::SwapRef(_))),
        [CountKind::SwapPss(SpaceId::new(1)), CountKind::SwapPss(SpaceId::new(2)), CountKind::Slot(entry(8))]
    );
}

#[test]
fn a_folio_is_on_the_list_that_its_flags_name_and_on_no_other() {
    let listed = |head, list| SnapshotRecord::Listed(ListedRecord { pfn: pfn(head), list });
    let mut world = World::new();
    world.records.retain(|record| *record != listed(0x100, LruList::ActiveAnon));
    let size = CountKind::Gauge(VmstatGauge::Listed(LruList::ActiveAnon));
    assert_eq!(world.found(), [size, CountKind::Listed(pfn(0x100))]);
    let found = World::found_after(|world| {
        world.records.push(listed(0x102, LruList::Unevictable));
        world.records.push(listed(0x700, LruList::ActiveFile));
    });
    assert_eq!(found, [CountKind::ListedElsewhere(pfn(0x102)), CountKind::ListedElsewhere(pfn(0x700))]);
    let mut world = World::new();
    for record in &mut world.records {
        match record {
            SnapshotRecord::Folio(folio) if folio.pfn == pfn(0x102) => folio.list = None,
            _ => {}
        }
    }
    let both = [CountKind::Listed(pfn(0x102)), CountKind::ListedElsewhere(pfn(0x102))];
    assert_eq!(world.found(), both, "the folio is mapped, and its flags name no list");
    let mut world = World::new();
    world
        .records
        .push(SnapshotRecord::Gauge(GaugeRecord { gauge: VmstatGauge::Listed(LruList::Unevictable), count: 1 }));
    assert_eq!(world.found(), [CountKind::Gauge(VmstatGauge::Listed(LruList::Unevictable))]);
}

#[test]
fn a_writable_or_exclusive_page_has_one_mapping() {
    assert_eq!(
        World::found_after(|world| world.put(0x13, 1, 0x10_1000 | WRITE)),
        [CountKind::WritableMappings(pfn(0x101))]
    );
    assert_eq!(
        World::found_after(|world| world.put(0x13, 1, 0x10_1000 | READ | EXCLUSIVE)),
        [CountKind::ExclusiveMappings(pfn(0x101))]
    );
}

/// The rules hold at every page of a huge leaf, and no other page of it is wrong.
#[test]
fn each_page_of_a_writable_or_exclusive_block_has_one_mapping() {
    let found = World::found_after(|world| world.put(0x23, 3, 0x20_7000 | READ));
    let rights = |kind: &&CountKind| matches!(kind, CountKind::WritableMappings(_) | CountKind::ExclusiveMappings(_));
    assert_eq!(
        found.iter().filter(rights).copied().collect::<Vec<_>>(),
        [CountKind::WritableMappings(pfn(0x207)), CountKind::ExclusiveMappings(pfn(0x207))]
    );
}

#[test]
fn a_pinned_page_of_a_block_is_exclusive_and_its_neighbours_need_not_be() {
    let shared = 0x20_0000 | READ | BLOCK;
    assert_eq!(World::found_after(|world| world.put(0x12, 5, shared)), [], "no page is pinned");
    let found = World::found_after(|world| {
        world.put(0x12, 5, shared);
        world.pinned.push(0x207);
    });
    assert_eq!(found, [CountKind::PinnedShared(pfn(0x207))]);
    assert_eq!(World::found_after(|world| world.pinned.push(0x207)), [], "it is exclusive");
}

#[test]
fn a_pinned_page_is_exclusive_and_its_pins_count_as_references() {
    let pin = |world: &mut World, head: u32| {
        world.records.push(SnapshotRecord::Pinned(PinnedRecord { pfn: pfn(head), pins: 1, bias: 1024 }));
        for record in &mut world.records {
            match record {
                SnapshotRecord::Folio(folio) if folio.pfn == pfn(head) => folio.refs += 1024,
                SnapshotRecord::Gauge(live) if live.gauge == VmstatGauge::Pins => live.count += 1,
                _ => {}
            }
        }
    };
    let mut world = World::new();
    pin(&mut world, 0x100);
    assert_eq!(world.found(), []);
    let mut world = World::new();
    pin(&mut world, 0x101);
    assert_eq!(world.found(), [CountKind::PinnedShared(pfn(0x101))]);
}

#[test]
fn an_exclusive_entry_in_a_shared_table_does_not_count_as_exclusive() {
    let mut world = World::new();
    world.put(0x30, 0, 0x10_2000 | READ | EXCLUSIVE);
    for record in &mut world.records {
        match record {
            SnapshotRecord::Folio(folio) if folio.pfn == pfn(0x102) => folio.kind = Some(PageKind::Anon),
            SnapshotRecord::Gauge(live) if live.gauge == VmstatGauge::AnonPages => live.count += 1,
            SnapshotRecord::Gauge(live) if live.gauge == VmstatGauge::MappedPages => live.count -= 1,
            SnapshotRecord::Space(space) => space.rss = [space.rss[0] + 1, 0, space.rss[2]],
            _ => {}
        }
    }
    assert_eq!(world.found(), [], "the shared table overrides the bit");
}

/// A PMD table that both spaces share points to a table that maps a page of a file.
fn with_a_shared_upper_table() -> World {
    let mut world = World::new();
    for parent in [0x11, 0x21] {
        world.put(parent, 1, 0x41 << 12 | 0x065);
    }
    world.put(0x41, 0, 0x42 << 12 | BELOW);
    world.put(0x42, 0, 0x10_3000 | READ);
    world.folio(0x103, 0, Some(PageKind::File), 1, [0, 1, 1]);
    for (pfn, level, shares) in [(pfn(0x41), Level::PMD, 2), (pfn(0x42), Level::PTE, 1)] {
        world.records.push(SnapshotRecord::Table(TableRecord { pfn, level, shares }));
    }
    for record in &mut world.records {
        match record {
            SnapshotRecord::Space(space) => {
                space.rss[PageKind::File as usize] += 1;
                space.table_bytes += 2 * 4096;
                space.pss += 4096 * 4096 / 2;
            }
            SnapshotRecord::Gauge(live) => match live.gauge {
                VmstatGauge::TablePages => live.count += 2,
                VmstatGauge::MappedPages | VmstatGauge::Listed(LruList::InactiveFile) => live.count += 1,
                _ => {}
            },
            _ => {}
        }
    }
    world
}

#[test]
fn tables_below_a_shared_table_count_once_and_are_reached_by_every_sharer() {
    let world = with_a_shared_upper_table();
    let (wrong, tally) = world.judge();
    assert_eq!(wrong, []);
    assert_eq!(tally.of(Antecedent::SharedTables), 2, "0x30 and 0x41 have two parents, 0x42 has one");
    let after = |change: &dyn Fn(&mut SnapshotRecord)| {
        let mut world = with_a_shared_upper_table();
        world.records.iter_mut().for_each(change);
        world.judge().0
    };
    let shares = |of: u32, claimed: u64| {
        after(&move |record| match record {
            SnapshotRecord::Table(table) if table.pfn == pfn(of) => table.shares = claimed,
            _ => {}
        })
    };
    let mismatch = |of: u32, claimed, counted| CountMismatch { of: CountKind::Shares(pfn(of)), claimed, counted };
    assert_eq!(shares(0x41, 1), [mismatch(0x41, 1, 2)], "an entry is not counted");
    assert_eq!(shares(0x42, 2), [mismatch(0x42, 2, 1)], "paths are counted instead of entries");
    assert_eq!(
        shares(0x41, 1)[0].to_string(),
        "entries that point to the table at 0x41: the memory manager counts 1, the page tables show 2"
    );
    let logical = after(&|record| match record {
        SnapshotRecord::Folio(folio) if folio.pfn == pfn(0x103) => (folio.refs, folio.mapcount) = (2, 2),
        _ => {}
    });
    let expected = [CountKind::Refs(pfn(0x103)), CountKind::Mapcount(pfn(0x103))];
    assert_eq!(logical.iter().map(|wrong| wrong.of).collect::<Vec<_>>(), expected, "the page is mapped by one entry");
    let physical = after(&|record| match record {
        SnapshotRecord::Space(space) if space.id == SpaceId::new(2) => space.rss[PageKind::File as usize] -= 1,
        _ => {}
    });
    assert_eq!(physical.len(), 1, "a space reaches the pages of a shared table: {physical:?}");
}

#[test]
fn each_table_is_read_once_whatever_the_number_of_entries_that_point_to_it() {
    let world = with_a_shared_upper_table();
    let read = std::cell::RefCell::new(HashMap::<u64, u32>::new());
    let mut census = Census::new(SoftwareBits::pagewright(ISA));
    world.records.iter().for_each(|record| census.add(*record));
    let wrong = census.compare(
        ISA,
        &|at: PhysAddr| {
            *read.borrow_mut().entry(at.raw()).or_default() += 1;
            world.words.get(&at.raw()).copied().unwrap_or(0)
        },
        &mut Tally::default(),
    );
    assert_eq!(wrong, []);
    assert!(read.borrow().values().all(|times| *times == 1), "a word was read twice");
    assert_eq!(read.borrow().len(), 11 * 512, "all words of all tables");
}

/// Both spaces reach page 0x101 and slot 8 by the shared table, space 2 also by a table of its own.
///
/// `above` are the bits of space 2's pointer to the shared table.
fn with_unequal_sharers(above: u64) -> World {
    let mut world = World::new();
    world.put(0x30, 1, 0x10_1000 | WRITE);
    world.put(0x13, 1, 0);
    world.put(0x30, 21, word(8));
    world.put(0x13, 21, 0);
    world.put(0x22, 1, 0x30 << 12 | above);
    // The page has three mappings instead of two, and the slot four users instead of three.
    let page = 4096 * 4096;
    for record in &mut world.records {
        match record {
            SnapshotRecord::Space(space) if space.id == SpaceId::new(2) => {
                space.rss[PageKind::Anon as usize] += 1;
                space.swapped += 1;
                space.pss = space.pss - page / 2 + 2 * (page / 3);
                space.swap_pss = space.swap_pss - page / 3 + 2 * (page / 4);
            }
            SnapshotRecord::Space(space) => {
                space.pss = space.pss - page / 2 + page / 3;
                space.swap_pss = space.swap_pss - page / 3 + page / 4;
            }
            _ => {}
        }
    }
    world
}

#[test]
fn a_leaf_of_a_shared_table_is_writable_if_any_path_lets_it_be() {
    assert_eq!(with_unequal_sharers(0x065).found(), [], "both pointers are write-protected");
    assert_eq!(with_unequal_sharers(0x067).found(), [CountKind::WritableMappings(pfn(0x101))]);
}

#[test]
fn a_page_is_divided_by_the_spaces_that_reach_its_entries() {
    let (wrong, tally) = with_unequal_sharers(0x065).judge();
    assert_eq!(wrong, []);
    assert_eq!((tally.of(Antecedent::UnequalSharers), tally.of(Antecedent::UnequalSwapSharers)), (1, 1));
    // By the share counts on one path: two entries, and two spaces that share the table of one.
    let page = 4096 * 4096;
    let edited = |edit: &dyn Fn(&mut SpaceRecord)| {
        let mut world = with_unequal_sharers(0x065);
        for record in &mut world.records {
            if let SnapshotRecord::Space(space) = record {
                edit(space);
            }
        }
        world.found()
    };
    let by_one_path = edited(&|space| match space.id.raw() {
        1 => space.pss = space.pss - page / 3 + page / 4,
        _ => space.pss = space.pss - 2 * (page / 3) + page / 4 + page / 2,
    });
    assert_eq!(by_one_path, [CountKind::Pss(SpaceId::new(1)), CountKind::Pss(SpaceId::new(2))], "their sum is right");
    let by_one_path = edited(&|space| match space.id.raw() {
        1 => space.swap_pss = space.swap_pss - page / 4 + page / 6,
        _ => space.swap_pss = space.swap_pss - 2 * (page / 4) + page / 6 + page / 3,
    });
    assert_eq!(by_one_path, [CountKind::SwapPss(SpaceId::new(1)), CountKind::SwapPss(SpaceId::new(2))]);
}

#[test]
fn a_table_at_two_levels_is_malformed() {
    let found = World::found_after(|world| world.put(0x22, 3, 0x22 << 12 | BELOW));
    assert_eq!(found, [CountKind::Shares(pfn(0x22)), CountKind::Malformed(pfn(0x22))], "it points to itself");
}
