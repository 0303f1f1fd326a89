//! A snapshot of the memory manager's counts, for a judge that counts again.
//!
//! The records ([`pagewright_types::snapshot`]) are the counts as they are stored: the memmap, the
//! counters of each space, and the gauges. Page tables are not read, because the judge walks them
//! to compare (INV-ORACLE-O4). Only proportional set sizes are not stored; they are computed as for
//! `smaps`.
//!
//! Pins are reported twice: for each folio from its reference count, and for the machine from the
//! counters of pins and unpins. A pin that is lost or released twice makes the two differ.
//!
//! Neighbours: reads `file`, `swap`, `space`, `counters`, `view`; no other module uses it.
//!
//! Protocol: a snapshot allocates nothing. `report` may run with the lock of a space or of a page
//! cache held, and must not call the memory manager.
//!
//! Not guaranteed: consistent counts while a CPU executes a memory call. References taken by
//! `get_user_pages` without a pin are not reported; their holder has to report them.

use crate::counters::{Gauge, RssKind};
use crate::mm::Mm;
use crate::space::Space;
use pagewright_sync::Platform;
use pagewright_tlb::frames::{Folio, FolioFlags, FrameState};
use pagewright_types::snapshot::{
    DeferredRecord, DepositRecord, FolioRecord, GaugeRecord, HeldRecord, ListedRecord, PageKind, PageRecord,
    PinnedRecord, RefHolder, SnapshotRecord, SpaceRecord, SwapRefRecord, SwapSlotRecord, TableRecord, VmstatGauge,
};
use pagewright_types::{Counter, LruList, PAGE_SIZE, Pfn};

/// The function that receives the records.
type Reporter<'a> = &'a mut dyn FnMut(SnapshotRecord);

fn page_kind(kind: RssKind) -> PageKind {
    match kind {
        RssKind::Anon => PageKind::Anon,
        RssKind::File => PageKind::File,
        RssKind::Shmem => PageKind::Shmem,
    }
}

impl<P: Platform> Mm<P> {
    /// Reports every count that the memory manager stores.
    ///
    /// Call it at rest, while no CPU executes a memory call.
    pub fn snapshot(&self, report: Reporter<'_>) {
        for (pfn, state) in self.frames().in_use() {
            match state {
                FrameState::Folio => report_folio(self.frames().folio(pfn), report),
                FrameState::Table => self.report_table(pfn, report),
                FrameState::Allocated
                | FrameState::Interior
                | FrameState::Free
                | FrameState::Pcp
                | FrameState::Tail => {}
            }
        }
        for pfn in [Some(self.zero_page), self.huge_zero.pfn()].into_iter().flatten() {
            report(SnapshotRecord::Held(HeldRecord { pfn, holder: RefHolder::Reserved, refs: 1 }));
        }
        self.files.for_each(|file| {
            file.for_each_cached(|pfn| {
                report(SnapshotRecord::Held(HeldRecord { pfn, holder: RefHolder::Cache, refs: 1 }))
            });
        });
        self.report_swap(report);
        self.for_each_space(|space| self.report_space(space, report));
        for (gauge, own) in [
            (VmstatGauge::TablePages, Gauge::PageTablePages),
            (VmstatGauge::AnonPages, Gauge::AnonPages),
            (VmstatGauge::AnonThps, Gauge::AnonThps),
            (VmstatGauge::MappedPages, Gauge::Mapped),
        ] {
            report(SnapshotRecord::Gauge(GaugeRecord { gauge, count: self.frames().gauges().sum(own) as u64 }));
        }
        for &list in LruList::ALL {
            self.report_list(list, report);
        }
        for node in self.nodes() {
            self.frames().for_each_deferred(node, |pfn| report(SnapshotRecord::Deferred(DeferredRecord { pfn })));
        }
        let pins = self.counter(Counter::NrFollPinAcquired).wrapping_sub(self.counter(Counter::NrFollPinReleased));
        report(SnapshotRecord::Gauge(GaugeRecord { gauge: VmstatGauge::Pins, count: pins }));
    }

    fn report_list(&self, list: LruList, report: Reporter<'_>) {
        let mut pages = 0;
        for node in self.nodes() {
            self.frames().for_each_listed(node, list, |pfn| report(SnapshotRecord::Listed(ListedRecord { pfn, list })));
            pages += u64::from(self.frames().lru_pages(node, list));
        }
        report(SnapshotRecord::Gauge(GaugeRecord { gauge: VmstatGauge::Listed(list), count: pages }));
    }

    /// Reports swap slots, the swap cache, and references to slots from page caches.
    fn report_swap(&self, report: Reporter<'_>) {
        self.files.for_each(|file| {
            file.for_each_swapped(|entry| {
                report(SnapshotRecord::SwapRef(SwapRefRecord { entry, holder: RefHolder::Cache }))
            });
        });
        self.for_each_in_swap_cache(|pfn| {
            report(SnapshotRecord::Held(HeldRecord { pfn, holder: RefHolder::SwapCache, refs: 1 }))
        });
        self.for_each_slot(|entry, entries| report(SnapshotRecord::SwapSlot(SwapSlotRecord { entry, entries })));
        self.for_each_zram_frame(|pfn| {
            report(SnapshotRecord::Held(HeldRecord { pfn, holder: RefHolder::Zram, refs: 1 }))
        });
    }

    fn report_table(&self, pfn: Pfn, report: Reporter<'_>) {
        // The kernel's root belongs to no space, so no walk reaches it and no gauge counts it.
        if pfn == self.tlb.kernel_root() {
            return;
        }
        let table = self.frames().table(pfn);
        report(SnapshotRecord::Table(TableRecord { pfn, level: table.level(), shares: u64::from(table.shares()) }));
        for deposit in self.frames().deposited_tables(pfn) {
            report(SnapshotRecord::Deposit(DepositRecord { pfn: deposit, holder: pfn }));
        }
    }

    fn report_space(&self, space: &Space<P>, report: Reporter<'_>) {
        let (counts, mut rss) = (self.rss(space), [0; PageKind::ALL.len()]);
        for kind in RssKind::ALL {
            rss[page_kind(kind) as usize] = counts.of(kind);
        }
        let stats = self.mem_size_stats(space);
        report(SnapshotRecord::Space(SpaceRecord {
            id: space.id(),
            root: space.table().root(),
            rss,
            swapped: counts.swapped(),
            pss: stats.pss.parts(),
            swap_pss: stats.swap_pss.parts(),
            table_bytes: space.table().bytes() + PAGE_SIZE,
        }));
    }
}

fn report_folio(folio: Folio<'_>, report: Reporter<'_>) {
    let is_page = !folio.flags().contains(FolioFlags::RESERVED);
    report(SnapshotRecord::Folio(FolioRecord {
        pfn: folio.pfn(),
        order: folio.order(),
        kind: is_page.then(|| page_kind(folio.rss_kind())),
        refs: u64::from(folio.refs()),
        entire_mapcount: u64::from(folio.entire_mapcount()),
        mapcount: u64::from(folio.mapcount()),
        pages_mapped: u64::from(folio.nr_pages_mapped()),
        list: folio.flags().contains(FolioFlags::LRU).then(|| folio.flags().list()),
    }));
    let (pins, bias) = folio.pins();
    if pins > 0 {
        report(SnapshotRecord::Pinned(PinnedRecord { pfn: folio.pfn(), pins: u64::from(pins), bias: u64::from(bias) }));
    }
    for index in 0..folio.pages() {
        let tail_refs = if index == 0 { 0 } else { folio.page_refs(index) };
        let (pfn, mapcount) = (folio.page(index), u64::from(folio.page_mapcount(index)));
        report(SnapshotRecord::Page(PageRecord { pfn, mapcount, tail_refs: u64::from(tail_refs) }));
    }
}
