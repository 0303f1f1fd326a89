//! Counts again, from VMAs, tables and folios, everything that the memory manager counts.

use super::paths;
use pagewright_arch::{Isa, SoftKind};
use pagewright_mm::counters::{Gauge, RssKind};
use pagewright_mm::space::VmFlags;
use pagewright_mm::{Mm, Space};
use pagewright_sim::Sim;
use pagewright_sync::Arc;
use pagewright_table::{EntryView, LeafView, LockedTable, ReadOnly};
use pagewright_tlb::frames::{EntryCounts, FolioFlags, FolioOwner, SWAP_ENTRIES};
use pagewright_types::{PAGE_SIZE, Pfn, Rights, SpaceId, VirtAddr};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

/// The leaf that maps an address.
pub fn leaf<I: Isa>(mm: &Mm<Sim<I>>, space: &Space<Sim<I>>, va: VirtAddr) -> Option<LeafView> {
    space.map().read().tables(mm.tlb()).read_lock(va)?.leaf(va)
}

fn rss_kind<I: Isa>(mm: &Mm<Sim<I>>, pfn: Pfn) -> RssKind {
    let folio = mm.tlb().frames().folio(pfn);
    match folio.owner() {
        FolioOwner::Anon(_) => RssKind::Anon,
        FolioOwner::File(_) | FolioOwner::None if folio.flags().contains(FolioFlags::SWAPBACKED) => RssKind::Shmem,
        FolioOwner::File(_) | FolioOwner::None => RssKind::File,
    }
}

/// By page: the spaces and addresses that map it, and whether the VMA is locked (`VM_LOCKED`).
type Mappings = BTreeMap<Pfn, BTreeMap<(SpaceId, VirtAddr), bool>>;

/// Whether each entry that maps a folio or a page of it is locked, by the first frame.
type FolioEntries = BTreeMap<Pfn, Vec<bool>>;

/// The tables that were counted; one that several spaces share counts once.
type SeenTables = BTreeSet<Pfn>;

/// The references that a pin of a page counts as (`GUP_PIN_COUNTING_BIAS`).
const PIN_BIAS: u32 = 1024;

/// The number of pins, by page.
pub type Pins = BTreeMap<Pfn, u64>;

/// Asserts that every count of the machine and of `spaces` agrees with the tables.
///
/// Also asserts what the pointers on the way to each page must say ([`paths::check`]).
///
/// # Panics
/// If a count differs, if a page has pins, or if the machine has other spaces.
pub fn check<I: Isa>(mm: &Mm<Sim<I>>, spaces: &[Arc<Space<Sim<I>>>]) {
    check_with_pins(mm, spaces, &Pins::new());
}

/// Like [`check`], where pages have `pins`.
///
/// # Panics
/// If a count differs, or if the machine has other spaces.
pub fn check_with_pins<I: Isa>(mm: &Mm<Sim<I>>, spaces: &[Arc<Space<Sim<I>>>], pins: &Pins) {
    let (mut mappings, mut entries, mut seen) = (Mappings::new(), FolioEntries::new(), SeenTables::new());
    let (mut tables, mut shared) = (0, false);
    paths::check(mm, spaces, pins);
    for space in spaces {
        check_mappings(space);
        check_space(mm, space, &mut mappings, (&mut entries, &mut seen));
        tables += 1 + space.table().bytes() / PAGE_SIZE;
        shared |= space.table().has_shared();
    }
    // INV-MM-COMMITTED.
    assert_eq!(mm.committed(), committed(mm, spaces));
    // INV-MM-GAUGE. The judge's census counts shared tables once.
    assert!(shared || mm.gauge(Gauge::PageTablePages) == tables, "{tables} tables");
    let of = |wanted: &[RssKind]| mappings.keys().filter(|pfn| wanted.contains(&rss_kind(mm, **pfn))).count() as u64;
    assert_eq!(mm.gauge(Gauge::AnonPages), of(&[RssKind::Anon]));
    assert_eq!(mm.gauge(Gauge::Mapped), of(&[RssKind::File, RssKind::Shmem]));
    for (pfn, places) in &mappings {
        let folio = mm.tlb().frames().folio(*pfn);
        let cached = u32::from(!folio.is_anon()) + u32::from(folio.flags().contains(FolioFlags::SWAPCACHE));
        let of_folio = folio.pfn()..folio.pfn().add(folio.pages());
        // A large folio counts its pins beside its references.
        let refs_of_pin = if folio.is_large() { 1 } else { PIN_BIAS };
        let pinned: u32 = pins.range(of_folio).map(|(_, pins)| *pins as u32 * refs_of_pin).sum();
        let entries = &entries[&folio.pfn()];
        let mapcount = entries.len() as u32;
        assert_eq!((folio.mapcount(), folio.refs()), (mapcount, mapcount + cached + pinned), "{folio:?}");
        // INV-LRU-LOCKS.
        let locks = entries.iter().filter(|locked| **locked).count() as u32;
        assert_eq!(folio.mlocks(), locks, "{folio:?}");
        assert_eq!(folio.flags().contains(FolioFlags::UNEVICTABLE), locks > 0, "{folio:?}");
        // INV-RMAP-SUPERSET.
        let mut found = BTreeSet::new();
        mm.for_each_mapping(*pfn, |visit| {
            found.insert((visit.space.id(), visit.va));
            ControlFlow::Continue(())
        });
        assert!(
            found.iter().eq(places.keys()),
            "the reverse map of {pfn:?} finds {found:?}, the tables have {places:?}"
        );
    }
}

/// The pages that private writable mappings and shared-memory objects charge (`Committed_AS`).
fn committed<I: Isa>(mm: &Mm<Sim<I>>, spaces: &[Arc<Space<Sim<I>>>]) -> u64 {
    let mut pages = 0;
    mm.for_each_file(|file| pages += file.charged());
    for space in spaces {
        let map = space.map().read();
        let charged = map.iter().filter(|(_, vma)| vma.flags().contains(VmFlags::ACCOUNT));
        pages += charged.map(|(start, vma)| vma.end() - start).sum::<u64>();
    }
    pages
}

/// Asserts INV-MM-VMAS, except for merging: [`check_merged`] asserts that.
fn check_mappings<I: Isa>(space: &Space<Sim<I>>) {
    let map = space.map().read();
    let mut end = 0;
    let (mut pages, mut charged) = (0, 0);
    for (start, vma) in map.iter() {
        assert!(start >= end && start < vma.end(), "VMAs overlap, or one is empty");
        end = vma.end();
        pages += end - start;
        charged += if vma.flags().contains(VmFlags::ACCOUNT) { end - start } else { 0 };
    }
    assert_eq!((map.bytes(), map.totals().accountable), (pages * PAGE_SIZE, charged));
}

/// Asserts INV-MM-VMAS: neighbours that can be merged are merged.
///
/// This does not hold in a child of a space with locked memory.
///
/// # Panics
/// If two neighbours could be merged.
pub fn check_merged<I: Isa>(space: &Space<Sim<I>>) {
    let map = space.map().read();
    for ((start, vma), (next_start, next)) in map.iter().zip(map.iter().skip(1)) {
        let alike = vma.end() == next_start
            && (vma.rights(), vma.max_rights()) == (next.rights(), next.max_rights())
            && (vma.flags() | VmFlags::SOFTDIRTY) == (next.flags() | VmFlags::SOFTDIRTY)
            && vma.fork_depth() == next.fork_depth()
            && vma.policy() == next.policy()
            && vma.file().map(|file| file.id()) == next.file().map(|file| file.id())
            && vma.pgoff() + (vma.end() - start) == next.pgoff();
        assert!(!alike, "the VMAs that meet at page {next_start:#x} could be merged");
    }
}

/// INV-TABLE-COUNTS: the record of a table counts its entries by what they hold.
fn check_table<I: Isa>(mm: &Mm<Sim<I>>, table: &LockedTable<'_, Sim<I>, ReadOnly>) {
    let (mut live, mut counts) = (0, EntryCounts::<u16>::default());
    for va in table.entries(table.range()) {
        match table.entry(va) {
            EntryView::Empty => continue,
            EntryView::Leaf(leaf) if !leaf.is_special() => counts[rss_kind(mm, leaf.pfn()) as usize] += 1,
            EntryView::Soft(soft) if soft.kind == SoftKind::Swap => counts[SWAP_ENTRIES] += 1,
            EntryView::Leaf(_) | EntryView::Soft(_) | EntryView::Table => {}
        }
        live += 1;
    }
    let page = mm.tlb().frames().table(table.table());
    assert_eq!((page.live(), page.counts()), (live, counts), "the table for {}", table.range());
}

fn check_space<I: Isa>(
    mm: &Mm<Sim<I>>,
    space: &Space<Sim<I>>,
    mappings: &mut Mappings,
    (entries, seen): (&mut FolioEntries, &mut SeenTables),
) {
    let map = space.map().read();
    map.tables(mm.tlb()).sum_shared_edits();
    let mut resident = [RssKind::File, RssKind::Anon, RssKind::Shmem].map(|kind| (kind, 0));
    let everything = I::USER;
    let mut mine = SeenTables::new();
    let leaves: Vec<_> = map
        .tables(mm.tlb())
        .read_locked(everything)
        .flat_map(|(table, span)| {
            check_table(mm, &table);
            // One with huge leaves comes once for each run of them.
            mine.insert(table.table());
            let first = !seen.contains(&table.table());
            span.iter().filter_map(|va| Some((va, table.leaf(va)?, first))).collect::<Vec<_>>()
        })
        .collect();
    seen.append(&mut mine);
    for (va, leaf, first) in leaves {
        // INV-MM-COVERED. A page that can be written or executed can be read.
        let (_, vma) = map.find(va).expect("a leaf outside of every VMA");
        assert!((vma.rights() | Rights::READ).contains(leaf.rights()), "{leaf:?} under {}", vma.rights());
        assert!(!vma.rights().is_empty() || leaf.rights().is_empty(), "{leaf:?} under a VMA without rights");
        if leaf.is_special() {
            continue;
        }
        let locked = vma.flags().contains(VmFlags::LOCKED);
        mappings.entry(leaf.page_at(va)).or_default().insert((space.id(), va), locked);
        if first && va.is_aligned(leaf.level().span()) {
            entries.entry(mm.tlb().frames().folio(leaf.pfn()).pfn()).or_default().push(locked);
        }
        let of = rss_kind(mm, leaf.page_at(va));
        resident.iter_mut().filter(|(kind, _)| *kind == of).for_each(|(_, pages)| *pages += 1);
    }
    // INV-MM-RSS.
    for (kind, pages) in resident {
        assert_eq!(space.rss().of(kind), pages, "{kind:?}");
    }
}
