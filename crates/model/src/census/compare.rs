//! The rules D1–D3, D6, D7, D9, D12, D13, D16–D19 and D22 (`docs/oracle.md`), for all claims.

use super::Census;
use super::tables::{Page, TableScan};
use crate::count::{CountKind, CountMismatch};
use crate::tally::{Antecedent, Tally};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use pagewright_types::snapshot::{FolioRecord, PageKind, PageRecord, SpaceRecord, TableRecord, VmstatGauge};
use pagewright_types::{IsaKind, Level, LruList, Order, PAGE_SIZE, Pfn, PhysAddr, SwapEntry};

pub(super) fn run(
    census: &Census,
    isa: IsaKind,
    read: &dyn Fn(PhysAddr) -> u64,
    tally: &mut Tally,
) -> Vec<CountMismatch> {
    let scan = TableScan::new(census, isa, read);
    let mut comparison = Comparison { tally, wrong: Vec::new() };
    for folio in &census.folios {
        if census.pinned.contains_key(&folio.pfn) {
            comparison.tally.note(Antecedent::Pinned);
            if folio.order > Order::ZERO {
                comparison.tally.note(Antecedent::LargePinned);
            }
        }
        let held = census.held.get(&folio.pfn).copied().unwrap_or(0);
        comparison.folio(&scan, folio, held);
    }
    for page in &census.pages {
        comparison.page(&scan, page);
    }
    for space in &census.spaces {
        comparison.space(&scan, space);
    }
    for table in &census.tables {
        comparison.table(&scan, census, table);
    }
    for live in &census.live {
        let counted = match live.gauge {
            VmstatGauge::TablePages => (scan.tables.len() + census.deposited.len()) as u64,
            VmstatGauge::AnonPages => scan.mapped_pages(|kind| kind == PageKind::Anon),
            VmstatGauge::AnonThps => scan.entirely_mapped_pages(PageKind::Anon),
            VmstatGauge::MappedPages => scan.mapped_pages(|kind| kind != PageKind::Anon),
            VmstatGauge::Pins => census.pinned.values().sum(),
            VmstatGauge::Listed(list) => listed_pages(census, list),
        };
        comparison.expect(CountKind::Gauge(live.gauge), live.count, counted);
    }
    comparison.deposits(&scan, census);
    comparison.deferred(&scan, census);
    comparison.slots(&scan, census);
    comparison.lists(census);
    comparison.unclaimed(&scan, census);
    comparison.anonymous(&scan, census);
    comparison.note_unequal(&scan);
    comparison.wrong
}

/// Pages of the folios that are on `list`.
fn listed_pages(census: &Census, list: LruList) -> u64 {
    let times = |pfn| census.listed.get(pfn).map_or(0, |lists| lists.iter().filter(|other| **other == list).count());
    census.folios.iter().map(|folio| times(&folio.pfn) as u64 * u64::from(folio.order.frames())).sum()
}

struct Comparison<'a> {
    tally: &'a mut Tally,
    wrong: Vec<CountMismatch>,
}

impl Comparison<'_> {
    fn expect(&mut self, of: CountKind, claimed: u64, counted: u64) {
        if claimed != counted {
            self.wrong.push(CountMismatch { of, claimed, counted });
        }
    }

    /// D1: references = entries + holders + pins; D2: mapcounts = entries.
    fn folio(&mut self, scan: &TableScan, claim: &FolioRecord, held: u64) {
        let FolioRecord { pfn, order, refs, entire_mapcount, mapcount, pages_mapped, .. } = *claim;
        let Some(folio) = scan.folios.get(&pfn) else { return };
        let entries = folio.entire + folio.small;
        self.tally.note(Antecedent::FolioRefs);
        self.expect(CountKind::Refs(pfn), refs, entries + held);
        self.tally.note(Antecedent::FolioMaps);
        self.expect(CountKind::Mapcount(pfn), mapcount, entries);
        if order > Order::ZERO {
            self.expect(CountKind::EntireMapcount(pfn), entire_mapcount, folio.entire);
            self.expect(CountKind::PagesMapped(pfn), pages_mapped, scan.pages_with_entry(pfn, folio.frames));
            scan.states_of_large(pfn).into_iter().for_each(|state| self.tally.note(state));
        }
    }

    /// D2 and D3, for one page.
    fn page(&mut self, scan: &TableScan, claim: &PageRecord) {
        let PageRecord { pfn, mapcount, tail_refs } = *claim;
        self.expect(CountKind::PageMapcount(pfn), mapcount, scan.pages.get(&pfn).map_or(0, |page| page.mapcount));
        if scan.head_of(pfn) != Some(pfn) {
            self.tally.note(Antecedent::Tails);
            self.expect(CountKind::TailRefs(pfn), tail_refs, 0);
        }
    }

    /// D12, D16 and D18, for one space.
    fn space(&mut self, scan: &TableScan, claim: &SpaceRecord) {
        let SpaceRecord { id, rss, swapped, table_bytes, pss, swap_pss, .. } = *claim;
        let space = scan.spaces.get(&id).copied().unwrap_or_default();
        self.tally.note(Antecedent::TablePages);
        self.expect(CountKind::TableBytes(id), table_bytes, space.tables * PAGE_SIZE);
        if space.rss != [0; 3] {
            self.tally.note(Antecedent::Resident);
        }
        for &kind in PageKind::ALL {
            self.expect(CountKind::Rss(id, kind), rss[kind as usize], space.rss[kind as usize]);
        }
        self.expect(CountKind::Swapped(id), swapped, space.swapped);
        if space.pss + space.swap_pss > 0 {
            self.tally.note(Antecedent::Proportional);
        }
        self.expect(CountKind::Pss(id), pss, space.pss);
        self.expect(CountKind::SwapPss(id), swap_pss, space.swap_pss);
    }

    /// D17: the count of a slot = the entries that name it; D7 for pages in swap.
    fn slots(&mut self, scan: &TableScan, census: &Census) {
        let names = census.slots.keys().chain(scan.slots.keys()).chain(census.named.keys());
        for entry in names.copied().collect::<BTreeSet<SwapEntry>>() {
            let slot = scan.slots.get(&entry).copied().unwrap_or_default();
            let named = census.named.get(&entry).copied().unwrap_or(0);
            self.tally.note(Antecedent::Slots);
            let claimed = census.slots.get(&entry).copied().unwrap_or(0);
            self.expect(CountKind::Slot(entry), claimed, slot.entries + named);
            if slot.exclusive > 0 {
                self.expect(CountKind::ExclusiveSlot(entry), 1, slot.entries + named);
            }
        }
    }

    /// D22: a folio is on the LRU list that its flags name and on no other.
    ///
    /// A mapped folio is on a list.
    fn lists(&mut self, census: &Census) {
        let mut listed = census.listed.clone();
        for claim in &census.folios {
            let lists = listed.remove(&claim.pfn).unwrap_or_default();
            let right = lists.iter().filter(|list| Some(**list) == claim.list).count();
            let wanted = claim.list.is_some() || claim.mapcount > 0 && claim.kind.is_some();
            if wanted {
                self.tally.note(Antecedent::Listed);
            }
            self.expect(CountKind::Listed(claim.pfn), u64::from(wanted), right as u64);
            self.expect(CountKind::ListedElsewhere(claim.pfn), 0, (lists.len() - right) as u64);
        }
        for (pfn, lists) in listed {
            self.expect(CountKind::ListedElsewhere(pfn), 0, lists.len() as u64);
        }
    }

    /// D13: a table has a deposit for each leaf of the PMD level.
    fn deposits(&mut self, scan: &TableScan, census: &Census) {
        let holders = scan.tables.iter().filter(|(_, table)| table.pmd_leaves > 0).map(|(pfn, _)| pfn);
        for &holder in census.deposits.keys().chain(holders).collect::<BTreeSet<_>>() {
            let leaves = scan.tables.get(&holder).map_or(0, |table| table.pmd_leaves);
            self.tally.note(Antecedent::Deposits);
            self.expect(CountKind::Deposits(holder), census.deposits_of(holder), leaves);
        }
    }

    /// D19: a large anonymous folio is queued to be split if it is mapped in part.
    ///
    /// No other is. One without any entry may be on the queue, if something refers to it that is no
    /// entry.
    fn deferred(&mut self, scan: &TableScan, census: &Census) {
        let mut queued = census.deferred.clone();
        let large = |folio: &&FolioRecord| folio.order > Order::ZERO && folio.kind == Some(PageKind::Anon);
        for &FolioRecord { pfn, order, .. } in census.folios.iter().filter(large) {
            let times = queued.remove(&pfn).unwrap_or(0);
            let whole = scan.folios.get(&pfn).map_or(0, |folio| folio.entire);
            let pages = scan.pages_with_entry(pfn, order.frames());
            let is_partly_mapped = whole == 0 && (1..u64::from(order.frames())).contains(&pages);
            if is_partly_mapped {
                self.tally.note(Antecedent::PartlyMapped);
            }
            let is_unmapped = whole == 0 && pages == 0;
            if !is_unmapped || times > 1 {
                self.expect(CountKind::Deferred(pfn), times, u64::from(is_partly_mapped));
            }
        }
        for (pfn, times) in queued {
            self.expect(CountKind::Deferred(pfn), times, 0);
        }
    }

    /// D9: the sharers of a table = the entries that point to it; none points to a deposit.
    fn table(&mut self, scan: &TableScan, census: &Census, claim: &TableRecord) {
        let TableRecord { pfn, level, shares } = *claim;
        self.tally.note(Antecedent::TableShares);
        let table = scan.tables.get(&pfn);
        if census.deposited.contains(&pfn) {
            // It is as it was made, with one share, until it is hooked.
            self.expect(CountKind::Shares(pfn), 0, table.map_or(0, |table| table.shares));
            self.expect(CountKind::TableLevel(pfn), u64::from(level.raw()), u64::from(Level::PTE.raw()));
            return;
        }
        if table.is_some_and(|table| table.shares > 1) {
            self.tally.note(Antecedent::SharedTables);
        }
        self.expect(CountKind::Shares(pfn), shares, table.map_or(0, |table| table.shares));
        if let Some(table) = table {
            self.expect(CountKind::TableLevel(pfn), u64::from(level.raw()), u64::from(table.level.raw()));
        }
    }

    /// Reports what the page tables hold without a claim.
    fn unclaimed(&mut self, scan: &TableScan, census: &Census) {
        for &pfn in &scan.unowned {
            self.expect(CountKind::Unowned(pfn), 0, 1);
        }
        for &pfn in &scan.malformed {
            self.expect(CountKind::Malformed(pfn), 0, 1);
        }
        let claimed: BTreeSet<Pfn> = census.tables.iter().map(|table| table.pfn).collect();
        for (&pfn, table) in scan.tables.iter().filter(|(pfn, _)| !claimed.contains(pfn)) {
            self.expect(CountKind::Shares(pfn), 0, table.shares);
        }
        let claimed: BTreeSet<Pfn> = census.pages.iter().map(|page| page.pfn).collect();
        for (&pfn, page) in scan.pages.iter().filter(|(pfn, _)| !claimed.contains(pfn)) {
            // The count of a page that is a whole folio may be in the folio's record only.
            if scan.folios.get(&pfn).is_none_or(|folio| folio.frames > 1) {
                self.expect(CountKind::PageMapcount(pfn), 0, page.mapcount);
            }
        }
    }

    /// D6 and D7: a writable or exclusive anonymous page has one mapping.
    ///
    /// A leaf that maps a folio whole is an entry of each of its pages.
    fn anonymous(&mut self, scan: &TableScan, census: &Census) {
        let anonymous = scan.folios.iter().filter(|(_, folio)| folio.kind == Some(PageKind::Anon));
        for (&head, folio) in anonymous {
            let block = scan.blocks.get(&head);
            for pfn in (0..folio.frames).map(|index| head.add(index)) {
                let entries = || scan.pages.get(&pfn).into_iter().chain(block);
                if entries().next().is_some() {
                    if folio.frames > 1 && census.pinned_pages.contains(&pfn) {
                        self.tally.note(Antecedent::LargePagePinned);
                    }
                    self.anonymous_page(scan, pfn, entries, census.is_pinned(pfn, (head, folio.frames)));
                }
            }
        }
    }

    fn anonymous_page<'s, E: Iterator<Item = &'s Page>>(
        &mut self,
        scan: &TableScan,
        pfn: Pfn,
        entries: impl Fn() -> E,
        pinned: bool,
    ) {
        let mappings: u64 = entries().map(|entry| entry.mapcount).sum();
        if entries().any(|entry| entry.writable) {
            self.tally.note(Antecedent::AnonWritable);
            self.expect(CountKind::WritableMappings(pfn), 1, mappings);
        }
        let tables = entries().flat_map(|entry| &entry.exclusive_in);
        let exclusive = tables.filter(|table| !scan.is_shared(**table)).count() as u64;
        if exclusive > 0 {
            self.tally.note(Antecedent::Exclusive);
            self.expect(CountKind::ExclusiveMappings(pfn), 1, mappings);
        }
        if pinned {
            self.expect(CountKind::PinnedShared(pfn), 0, mappings.saturating_sub(exclusive));
        }
    }

    /// Notes pages whose share does not follow from the share counts on one path (D18).
    fn note_unequal(&mut self, scan: &TableScan) {
        for _ in scan.pages.values().filter(|page| page.logical.unequal) {
            self.tally.note(Antecedent::UnequalSharers);
        }
        for _ in scan.slots.values().filter(|slot| slot.logical.unequal) {
            self.tally.note(Antecedent::UnequalSwapSharers);
        }
    }
}
