//! LRU lists: the lists of folios from which reclaim chooses, five for each node.
//!
//! Linux's `struct lruvec`.
//!
//! Key types: [`IsolatedFolio`], a folio that was taken off its list; [`LruScan`], the counts of
//! one scan.
//!
//! ```text
//!              lru_add                  isolate, isolate_tail
//! on no list ─────────▶ on its list ─────────────────────────▶ IsolatedFolio ─ putback ─▶ on its list
//!                         │ last put, or ReleaseList::free          └ into_folio: to be freed
//!                         ▼
//!                       on no list, a block
//! ```
//!
//! Neighbours: `lru_batch` collects new folios before they are linked, `folio` takes a folio off
//! its list when the last reference goes, `release_list` takes many off together. `mm` decides
//! which folios are added, aged and isolated.
//!
//! Protocol: each node has one lock (`LruRank`). It protects the links of a folio, the flag `LRU`,
//! the flags that select the list (`ACTIVE`, `UNEVICTABLE`, `SWAPBACKED`), and the number of
//! entries of locked memory that map the folio. The creator of a folio, or the owner of an
//! [`IsolatedFolio`], may change `ACTIVE` and `SWAPBACKED` without the lock while the folio is on
//! no list. New folios go to the front; reclaim scans from the back. A list holds no references: a
//! scan takes one, and skips a folio that has none because it is frozen or about to be freed.
//!
//! Invariants:
//! - **INV-LRU-PLACE** Under the lock of a node's lists, a folio has the flag `LRU` exactly if it
//!   is on a list or in a batch on its way there, and that list is the one that its flags name.
//!   Otherwise reclaim would miss pages, or find frames that have a new owner. A block that is not
//!   a folio is on no list.
//! - **INV-LRU-SIZE** Under the lock of a node's lists, the size of a list is the number of base
//!   pages of the folios on it.
//! - **INV-LRU-LOCKS** A folio is unevictable exactly while entries of locked mappings map it, and
//!   counts those entries. So reclaim skips it until the last of these mappings is unlocked or
//!   removed, and no longer.
//!
//! Not guaranteed: that every page in use is on a list. Pages of pools and reserved pages never
//! are, and isolated pages are not for a while.

use crate::block::Block;
use crate::folio::Folio;
use crate::folio_flags::FolioFlags;
use crate::folio_ref::FolioRef;
use crate::frames::Frames;
use crate::list::FrameList;
use crate::lru_batch::LruBatches;
use crate::memmap::Memmap;
use alloc::boxed::Box;
use core::sync::atomic::{AtomicU32, Ordering};
use pagewright_sync::{AllocError, Backend, LineRef, LineUse, Platform, SpinLock, rank, try_boxed};
use pagewright_types::{LruList, NodeId, Pfn};

impl FolioFlags {
    /// The list that these flags select (`folio_lru_list`).
    #[inline]
    pub fn list(self) -> LruList {
        let active = self.contains(Self::ACTIVE);
        match (self.contains(Self::SWAPBACKED), active) {
            _ if self.contains(Self::UNEVICTABLE) => LruList::Unevictable,
            (true, false) => LruList::InactiveAnon,
            (true, true) => LruList::ActiveAnon,
            (false, false) => LruList::InactiveFile,
            (false, true) => LruList::ActiveFile,
        }
    }
}

/// The lists of one node, on cache lines of their own.
#[repr(align(128))]
pub(crate) struct NodeLists<L: Backend> {
    pub(crate) lists: SpinLock<[FrameList; LruList::ALL.len()], rank::LruRank, L>,
    /// Base pages on each list; written under the lock, read without it.
    pages: [AtomicU32; LruList::ALL.len()],
    pub(crate) node: NodeId,
}

/// The LRU lists of a machine, and the batches before them.
pub(crate) struct Lru<L: Backend> {
    pub(crate) nodes: Box<[NodeLists<L>]>,
    pub(crate) batches: LruBatches<L>,
}

/// The lists of a node, locked.
type Lists<'a> = &'a mut [FrameList; LruList::ALL.len()];

impl<L: Backend> Lru<L> {
    /// Allocates empty lists for `nodes` nodes, and batches for `cpus` CPUs.
    pub(crate) fn try_new(nodes: usize, cpus: usize) -> Result<Self, AllocError> {
        let lists_of = |node| NodeLists {
            lists: SpinLock::new([FrameList::EMPTY; LruList::ALL.len()]),
            pages: [const { AtomicU32::new(0) }; LruList::ALL.len()],
            node: NodeId::new(node as u8),
        };
        Ok(Self { nodes: try_boxed(nodes, (0..nodes).map(lists_of))?, batches: LruBatches::try_new(cpus)? })
    }
}

impl<'a> Folio<'a> {
    /// The number of entries of locked memory that map the folio (`mlock_count`).
    pub fn mlocks(self) -> u32 {
        if self.flags().contains(FolioFlags::UNEVICTABLE) { self.mlock_count().load(Ordering::Relaxed) } else { 0 }
    }

    /// The word that counts entries of locked memory.
    ///
    /// It has no meaning while the folio is evictable.
    ///
    /// Small folios and tails use this word for nothing else.
    fn mlock_count(self) -> &'a AtomicU32 {
        let record = if self.is_large() { self.memmap.at(self.head.add(1)) } else { self.record() };
        &record.first_page_or_mlocks
    }
}

impl<L: Backend> NodeLists<L> {
    /// Reports a use of the line of the sizes.
    #[inline]
    fn use_sizes(&self, used: LineUse) {
        L::line(LineRef::Word(u64::from(self.node.raw())), "LRU sizes", used);
    }

    fn grow(&self, list: LruList, folio: Folio<'_>) {
        self.use_sizes(LineUse::Store);
        let pages = &self.pages[list as usize];
        pages.store(pages.load(Ordering::Relaxed) + folio.pages(), Ordering::Relaxed);
    }

    fn shrink(&self, list: LruList, pages: u32) {
        self.use_sizes(LineUse::Store);
        let size = &self.pages[list as usize];
        let before = size.load(Ordering::Relaxed);
        debug_assert!(before >= pages, "INV-LRU-SIZE: {list:?} has {before} pages and loses {pages}");
        size.store(before - pages, Ordering::Relaxed);
    }

    /// Puts a folio that is on no list on the list that its flags select.
    #[inline]
    fn link(&self, lists: Lists<'_>, folio: Folio<'_>, end: ListEnd) {
        let before = folio.set_flags(FolioFlags::LRU);
        debug_assert!(
            !before.contains(FolioFlags::LRU),
            "INV-LRU-PLACE: the folio at {} is on a list already",
            folio.head
        );
        let list = before.list();
        let neighbour = match end {
            ListEnd::Front => lists[list as usize].first(),
            ListEnd::Back => lists[list as usize].last(),
        };
        use_links::<L>([Some(folio.head), neighbour]);
        match end {
            ListEnd::Front => lists[list as usize].push_front(folio.memmap, folio.head),
            ListEnd::Back => lists[list as usize].push_back(folio.memmap, folio.head),
        }
        self.grow(list, folio);
    }

    /// Changes the flags of a folio, and moves it to the list that they select, if it is on a list.
    ///
    /// Returns the flags before.
    fn relist(
        &self,
        lists: Lists<'_>,
        folio: Folio<'_>,
        (set, clear): (FolioFlags, FolioFlags),
        end: ListEnd,
    ) -> FolioFlags {
        let before = folio.flags();
        let listed = before.contains(FolioFlags::LRU);
        if listed {
            self.unlink(lists, folio);
        }
        folio.clear_flags(clear | FolioFlags::LRU);
        folio.set_flags(set);
        if listed {
            self.link(lists, folio, end);
        }
        before
    }

    /// Puts a folio without references, which has the flag `LRU`, at the front of a list.
    pub(crate) fn add_front(&self, folio: Folio<'_>, list: LruList) {
        let mut lists = self.lists.lock();
        use_links::<L>([Some(folio.head), lists[list as usize].first()]);
        lists[list as usize].push_front(folio.memmap, folio.head);
        self.grow(list, folio);
    }

    /// Puts the small folios of a batch's list at the front of a list.
    pub(crate) fn prepend(&self, memmap: &Memmap, lists: Lists<'_>, list: LruList, batch: &mut FrameList) {
        let pages = &self.pages[list as usize];
        if batch.len() > 0 {
            self.use_sizes(LineUse::Store);
            use_links::<L>([batch.last(), lists[list as usize].first()]);
            pages.store(pages.load(Ordering::Relaxed) + batch.len(), Ordering::Relaxed);
            lists[list as usize].prepend(memmap, batch);
        }
    }

    /// Takes a folio off its list; the caller clears the flag `LRU`.
    #[inline]
    fn unlink(&self, lists: Lists<'_>, folio: Folio<'_>) {
        let list = folio.flags().list();
        use_links::<L>(lists[list as usize].remove(folio.memmap, folio.head));
        self.shrink(list, folio.pages());
    }

    /// Takes the first of `heads` off its list, and those behind it while `is_here` says so.
    ///
    /// `is_here` says whether a folio that is on a list is on one of this node. Returns how many of
    /// `heads` the call passed, also those that are on no list.
    fn unlink_many(&self, memmap: &Memmap, heads: &[Pfn], is_here: impl Fn(Folio<'_>) -> bool) -> usize {
        let mut lists = self.lists.lock();
        let mut passed = 0;
        while let Some(head) = heads.get(passed) {
            let folio = Folio::at(memmap, *head);
            if !folio.flags().contains(FolioFlags::LRU) {
                passed += 1;
                continue;
            }
            if passed > 0 && !is_here(folio) {
                break;
            }
            let list = folio.flags().list();
            let (run, beside) = lists[list as usize].remove_run(memmap, &heads[passed..]);
            use_links::<L>(beside);
            self.shrink(list, heads[passed..][..run].iter().map(|head| Folio::at(memmap, *head).pages()).sum());
            passed += run;
        }
        passed
    }
}

/// Reports stores to the links of folios.
#[inline]
pub(crate) fn use_links<L: Backend>(folios: [Option<Pfn>; 2]) {
    for pfn in folios.into_iter().flatten() {
        L::line(LineRef::Record(pfn), "LRU links", LineUse::Store);
    }
}

/// An end of a list.
#[derive(Clone, Copy)]
enum ListEnd {
    /// The end that reclaim scans last.
    Front,
    /// The end that reclaim scans next.
    Back,
}

/// A folio that was taken off its list, and a reference to it.
///
/// [`Frames::putback`] puts it back; [`IsolatedFolio::into_folio`] keeps only the reference.
#[must_use = "dropping an isolated folio leaks it"]
#[derive(Debug)]
pub struct IsolatedFolio(FolioRef);

impl IsolatedFolio {
    /// The first frame of the folio.
    #[inline]
    pub const fn pfn(&self) -> Pfn {
        self.0.pfn()
    }

    /// The reference, for a caller that frees the folio instead of putting it back.
    #[inline]
    pub fn into_folio(self) -> FolioRef {
        self.0
    }
}

/// The counts of one scan of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LruScan {
    /// Base pages of the folios that the scan visited (`nr_scanned`).
    pub scanned: u32,
    /// Base pages of the folios that the scan isolated (`nr_taken`).
    pub taken: u32,
}

impl<P: Platform> Frames<P> {
    #[inline]
    pub(crate) fn lru_of(&self, folio: Folio<'_>) -> &NodeLists<P::Locks> {
        &self.lru.nodes[self.node_of_folio(folio).index()]
    }

    /// Puts a folio at the front of the list that its flags select (`folio_add_lru`).
    ///
    /// The caller has a reference, or holds a lock that keeps one alive. Takes the `LruRank` lock.
    ///
    /// # Panics
    /// In debug builds when the folio is on a list.
    #[inline]
    pub fn lru_add(&self, folio: Folio<'_>) {
        let (node, mut lists) = self.lru_lock(folio);
        node.link(&mut lists, folio, ListEnd::Front);
    }

    /// Takes a folio off its list, with a reference of its own (`folio_isolate_lru`).
    ///
    /// Returns `None` if the folio is on no list. The caller has a reference, or holds a lock that
    /// keeps one alive. Takes the `LruRank` lock.
    pub fn isolate(&self, folio: Folio<'_>) -> Option<IsolatedFolio> {
        let (node, mut lists) = self.lru_lock(folio);
        if !folio.flags().contains(FolioFlags::LRU) {
            return None;
        }
        node.unlink(&mut lists, folio);
        folio.clear_flags(FolioFlags::LRU);
        Some(IsolatedFolio(folio.get()))
    }

    /// Isolates folios from the back of a list (`isolate_lru_folios`).
    ///
    /// Stops after `most` base pages, or when `take` returns `false` because it has no room for
    /// another folio. A folio without references goes to the front, because it is about to be
    /// freed. Holds the `LruRank` lock while it calls `take`.
    pub fn isolate_tail(
        &self,
        node: NodeId,
        list: LruList,
        most: u32,
        mut take: impl FnMut(IsolatedFolio) -> bool,
    ) -> LruScan {
        self.lru_drain_all();
        let node = &self.lru.nodes[node.index()];
        let mut lists = node.lists.lock();
        let mut scan = LruScan::default();
        let mut room = true;
        let mut left = lists[list as usize].len();
        while room
            && left > 0
            && scan.scanned < most
            && let Some(head) = lists[list as usize].last()
        {
            left -= 1;
            let folio = Folio::at(&self.memmap, head);
            scan.scanned += folio.pages();
            match folio.try_get() {
                Some(reference) => {
                    node.unlink(&mut lists, folio);
                    folio.clear_flags(FolioFlags::LRU);
                    scan.taken += folio.pages();
                    room = take(IsolatedFolio(reference));
                }
                None => {
                    let _ = lists[list as usize].remove(&self.memmap, head);
                    lists[list as usize].push_front(&self.memmap, head);
                }
            }
        }
        scan
    }

    /// Puts an isolated folio back on a list (`folio_putback_lru`).
    ///
    /// The folio goes to the front of the list that its flags select, and its reference is given
    /// up.
    ///
    /// Returns the block if that was the last reference. Takes the `LruRank` lock.
    pub fn putback(&self, isolated: IsolatedFolio) -> Option<Block> {
        self.lru_add(self.folio_of(&isolated.0));
        // The folio is on its list again, and this reference still keeps it alive.
        P::Locks::point();
        self.put(isolated.0)
    }

    /// Changes flags of a folio, and moves it to the front of the list that they then select.
    ///
    /// Linux's `folio_activate`, `lru_deactivate` and `lru_lazyfree`.
    ///
    /// A folio on no list only gets the flags. Returns the flags before. The caller has a
    /// reference, or holds a lock that keeps one alive. Takes the `LruRank` lock.
    pub fn lru_move(&self, folio: Folio<'_>, set: FolioFlags, clear: FolioFlags) -> FolioFlags {
        self.relist(folio, set, clear, ListEnd::Front)
    }

    /// Like [`Self::lru_move`], but to the back of the list (`folio_rotate_reclaimable`).
    ///
    /// Reclaim scans the folio next.
    pub fn lru_rotate(&self, folio: Folio<'_>, set: FolioFlags, clear: FolioFlags) -> FolioFlags {
        self.relist(folio, set, clear, ListEnd::Back)
    }

    fn relist(&self, folio: Folio<'_>, set: FolioFlags, clear: FolioFlags, end: ListEnd) -> FolioFlags {
        let (node, mut lists) = self.lru_lock(folio);
        node.relist(&mut lists, folio, (set, clear), end)
    }

    /// Counts new entries of locked memory that map a folio (`mlock_folio`).
    ///
    /// Returns whether they are the first such entries, so that the folio becomes unevictable. The
    /// caller has a reference, or holds a lock that keeps one alive. Takes the `LruRank` lock once
    /// for all `entries`.
    pub fn mlock(&self, folio: Folio<'_>, entries: u32) -> bool {
        let (node, mut lists) = self.lru_lock(folio);
        let locks = folio.mlocks();
        folio.mlock_count().store(locks + entries, Ordering::Relaxed);
        if locks == 0 {
            let used = FolioFlags::ACTIVE | FolioFlags::REFERENCED;
            node.relist(&mut lists, folio, (FolioFlags::UNEVICTABLE, used), ListEnd::Front);
        }
        locks == 0
    }

    /// Uncounts entries of locked memory that map a folio (`munlock_folio`).
    ///
    /// Returns whether they were the last such entries, so that the folio becomes evictable. The
    /// caller has a reference, or holds a lock that keeps one alive. Takes the `LruRank` lock once
    /// for all `entries`.
    ///
    /// # Panics
    /// In debug builds when fewer such entries were counted.
    pub fn munlock(&self, folio: Folio<'_>, entries: u32) -> bool {
        let (node, mut lists) = self.lru_lock(folio);
        let locks = folio.mlocks();
        debug_assert!(locks >= entries, "INV-LRU-LOCKS: {folio:?} is munlocked more often than mlocked");
        folio.mlock_count().store(locks.saturating_sub(entries), Ordering::Relaxed);
        if locks == entries {
            node.relist(&mut lists, folio, (FolioFlags::empty(), FolioFlags::UNEVICTABLE), ListEnd::Front);
        }
        locks == entries
    }

    /// The number of base pages on a list of a node, after all batches were drained.
    ///
    /// Takes locks of rank `LruRank` if a batch has folios.
    pub fn lru_pages(&self, node: NodeId, list: LruList) -> u32 {
        self.lru_drain_all();
        let node = &self.lru.nodes[node.index()];
        node.use_sizes(LineUse::Load);
        node.pages[list as usize].load(Ordering::Relaxed)
    }

    /// Calls `visit` with the first frame of each folio on a list, front to back, for checks.
    ///
    /// Holds the `LruRank` lock meanwhile.
    pub fn for_each_listed(&self, node: NodeId, list: LruList, mut visit: impl FnMut(Pfn)) {
        self.lru_drain_all();
        let lists = self.lru.nodes[node.index()].lists.lock();
        let mut at = lists[list as usize].first();
        while let Some(pfn) = at {
            visit(pfn);
            at = lists[list as usize].after(&self.memmap, pfn);
        }
    }

    /// Takes a folio without references off its list, if it is on one.
    #[inline]
    pub(crate) fn lru_remove(&self, folio: Folio<'_>) {
        if folio.flags().contains(FolioFlags::LRU) {
            self.lru_remove_all(&[folio.head]);
            folio.clear_flags(FolioFlags::LRU);
        }
    }

    /// Takes folios without references off their lists, or out of their batches.
    ///
    /// Takes the lock of a node, or of a batch, once for consecutive folios that are there. Folios
    /// that a call made one after the other are usually neighbours on their list, too, and leave it
    /// together.
    pub(crate) fn lru_remove_all(&self, heads: &[Pfn]) {
        let batches = &self.lru.batches;
        let mut left = heads;
        while let Some(head) = left.first() {
            let folio = Folio::at(&self.memmap, *head);
            let passed = if !folio.flags().contains(FolioFlags::LRU) {
                1
            } else if let Some(cpu) = batches.holder(folio) {
                // 0 if the batch was drained meanwhile; the folio is then on a list.
                batches.remove_many(&self.memmap, cpu, left)
            } else {
                let node = self.lru_of(folio);
                let is_here =
                    |other: Folio<'_>| core::ptr::eq(self.lru_of(other), node) && batches.holder(other).is_none();
                node.unlink_many(&self.memmap, left, is_here)
            };
            left = &left[passed..];
        }
    }
}
