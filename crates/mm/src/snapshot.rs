//! What the memory manager believes of its own counts, told to somebody who counts again
//! ([`pagewright_types::snapshot`]).
//!
//! Everything told is what is kept: the memmap's records, each space's counters and the gauges.
//! Page tables are not looked at – what a walk finds is what the claims are compared with
//! (INV-ORACLE-O4). The one exception are proportional sets, which nobody keeps: they are told as
//! `smaps` reckons them.
//!
//! Neighbours: reads `file`, `space`, `counters`, `view`; nothing reads this.
//!
//! Protocol: nothing is allocated. `tell` may run under the locks of a space or a page cache and
//! must not enter the memory manager.
//!
//! Pins are told twice: of each folio as its references say, and of the machine as they were
//! counted when they were taken and given up. A pin that is lost, or given up twice, makes the two
//! differ.
//!
//! Not guaranteed: anything while a call is under way on any CPU. And not a word of pages that were
//! got and not pinned: nobody here keeps a list of them, and who has them tells it himself.

use crate::counters::{Gauge, RssKind};
use crate::mm::Mm;
use crate::rmap::rss_kind;
use crate::space::Space;
use pagewright_sync::Platform;
use pagewright_tlb::frames::{Folio, FolioFlags, FrameState};
use pagewright_types::snapshot::{
    FolioRecord, GaugeRecord, HeldRecord, ListedRecord, PageKind, PageRecord, PinnedRecord, RefHolder, SnapshotRecord,
    SpaceRecord, SwapRefRecord, SwapSlotRecord, TableRecord, VmstatGauge,
};
use pagewright_types::{Counter, LruList, PAGE_SIZE, Pfn};

/// Whom a claim is told to.
type Tell<'a> = &'a mut dyn FnMut(SnapshotRecord);

fn page_kind(kind: RssKind) -> PageKind {
    match kind {
        RssKind::Anon => PageKind::Anon,
        RssKind::File => PageKind::File,
        RssKind::Shmem => PageKind::Shmem,
    }
}

impl<P: Platform> Mm<P> {
    /// Tells every count that the memory manager keeps.
    ///
    /// Call it at rest: while nothing else of the memory manager runs on any CPU.
    pub fn snapshot(&self, tell: Tell<'_>) {
        for (pfn, state) in self.frames().in_use() {
            match state {
                FrameState::Folio => tell_folio(self.frames().folio(pfn), tell),
                FrameState::Table => self.tell_table(pfn, tell),
                FrameState::Allocated
                | FrameState::Interior
                | FrameState::Free
                | FrameState::Pcp
                | FrameState::Tail => {}
            }
        }
        tell(SnapshotRecord::Held(HeldRecord { pfn: self.zero_page, holder: RefHolder::Reserved, refs: 1 }));
        self.files.for_each(|file| {
            file.for_each_cached(|pfn| {
                tell(SnapshotRecord::Held(HeldRecord { pfn, holder: RefHolder::Cache, refs: 1 }))
            });
        });
        self.tell_swap(tell);
        self.for_each_space(|space| self.tell_space(space, tell));
        for (gauge, own) in [
            (VmstatGauge::TablePages, Gauge::PageTablePages),
            (VmstatGauge::AnonPages, Gauge::AnonPages),
            (VmstatGauge::MappedPages, Gauge::Mapped),
        ] {
            tell(SnapshotRecord::Gauge(GaugeRecord { gauge, count: self.gauge(own) }));
        }
        for list in LruList::ALL {
            self.tell_list(list, tell);
        }
        let pins = self.counter(Counter::NrFollPinAcquired).wrapping_sub(self.counter(Counter::NrFollPinReleased));
        tell(SnapshotRecord::Gauge(GaugeRecord { gauge: VmstatGauge::Pins, count: pins }));
    }

    fn tell_list(&self, list: LruList, tell: Tell<'_>) {
        let mut pages = 0;
        for node in self.nodes() {
            self.frames().for_each_listed(node, list, |pfn| tell(SnapshotRecord::Listed(ListedRecord { pfn, list })));
            pages += u64::from(self.frames().lru_pages(node, list));
        }
        tell(SnapshotRecord::Gauge(GaugeRecord { gauge: VmstatGauge::Listed(list), count: pages }));
    }

    /// Slots, and whatever names them or is kept for them beside page tables.
    fn tell_swap(&self, tell: Tell<'_>) {
        self.files.for_each(|file| {
            file.for_each_swapped(|entry| {
                tell(SnapshotRecord::SwapRef(SwapRefRecord { entry, holder: RefHolder::Cache }))
            });
        });
        self.for_each_in_swap_cache(|pfn| {
            tell(SnapshotRecord::Held(HeldRecord { pfn, holder: RefHolder::SwapCache, refs: 1 }))
        });
        self.for_each_slot(|entry, entries| tell(SnapshotRecord::SwapSlot(SwapSlotRecord { entry, entries })));
        self.for_each_zram_frame(|pfn| {
            tell(SnapshotRecord::Held(HeldRecord { pfn, holder: RefHolder::Zram, refs: 1 }))
        });
    }

    fn tell_table(&self, pfn: Pfn, tell: Tell<'_>) {
        // The root of no space: no walk of a space comes by, and no gauge counts it.
        if pfn == self.tlb.kernel_root() {
            return;
        }
        let table = self.frames().table(pfn);
        tell(SnapshotRecord::Table(TableRecord { pfn, level: table.level(), shares: u64::from(table.shares()) }));
    }

    fn tell_space(&self, space: &Space<P>, tell: Tell<'_>) {
        let mut rss = [0; PageKind::ALL.len()];
        for kind in RssKind::ALL {
            rss[page_kind(kind) as usize] = space.rss().of(kind);
        }
        tell(SnapshotRecord::Space(SpaceRecord {
            id: space.id(),
            root: space.table().root(),
            rss,
            swapped: space.rss().swapped(),
            pss: self.mem_size_stats(space).pss.parts(),
            table_bytes: space.table().bytes() + PAGE_SIZE,
        }));
    }
}

fn tell_folio(folio: Folio<'_>, tell: Tell<'_>) {
    let is_page = !folio.flags().contains(FolioFlags::RESERVED);
    tell(SnapshotRecord::Folio(FolioRecord {
        pfn: folio.pfn(),
        order: folio.order(),
        kind: is_page.then(|| page_kind(rss_kind(folio))),
        refs: u64::from(folio.refs()),
        entire_mapcount: u64::from(folio.entire_mapcount()),
        mapcount: u64::from(folio.mapcount()),
        pages_mapped: u64::from(folio.nr_pages_mapped()),
        list: folio.flags().contains(FolioFlags::LRU).then(|| folio.flags().list()),
    }));
    let (pins, bias) = folio.pins();
    if pins > 0 {
        tell(SnapshotRecord::Pinned(PinnedRecord { pfn: folio.pfn(), pins: u64::from(pins), bias: u64::from(bias) }));
    }
    for index in 0..folio.pages() {
        let tail_refs = if index == 0 { 0 } else { folio.page_refs(index) };
        let (pfn, mapcount) = (folio.page(index), u64::from(folio.page_mapcount(index)));
        tell(SnapshotRecord::Page(PageRecord { pfn, mapcount, tail_refs: u64::from(tail_refs) }));
    }
}
