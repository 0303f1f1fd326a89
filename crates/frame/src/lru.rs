//! Lists of folios by use, from which reclaim chooses: five a node, as Linux's `struct lruvec`.
//!
//! Key type: [`IsolatedFolio`], a folio that was taken off to be looked at.
//!
//! ```text
//!               add                    isolate, isolate_tail
//! in no list ─────────▶ on its list ─────────────────────────▶ IsolatedFolio ─ putback ─▶ on its list
//!                         │ last put: one by one, or a ReleaseList        └ into_folio: whoever frees it
//!                         ▼
//!                       in no list, a block
//! ```
//!
//! Neighbours: `folio` takes a folio off its list when its last reference goes, `dead` many of them
//! together; `mm` decides who is added, aged and taken.
//!
//! Protocol: one lock a node (`Lru`), under which a folio's links, its flag `LRU`, and the flags
//! that name its list change: `ACTIVE`, `UNEVICTABLE`, `SWAPBACKED`; and the number of entries of
//! locked memory that map it. `ACTIVE` and `SWAPBACKED` whoever made a folio, or isolated it, may
//! change without the lock while it is on no list. New folios go to the front, reclaim looks from
//! the back. A list holds no reference: who looks there takes one if there is any, and passes over
//! a folio that is frozen or dead.
//!
//! Invariants:
//! - INV-LRU-PLACE: under the lock, a folio has the flag `LRU` exactly if it is on a list, and that
//!   is the one that its flags name; a block that is not a folio is on none.
//! - INV-LRU-SIZE: under the lock, the size of a list is the number of base pages of the folios on
//!   it.
//! - INV-LRU-LOCKS: a folio is `UNEVICTABLE` exactly while entries of locked memory map it, and
//!   says how many.
//!
//! Not guaranteed: that every page in use is on a list. Pages of pools and reserved ones never are,
//! isolated ones are not for a while.

use crate::block::Block;
use crate::folio::{Folio, FolioFlags, FolioRef};
use crate::frames::Frames;
use crate::list::FrameList;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};
use pagewright_sync::{Backend, OutOfMemory, Platform, SpinLock, rank};
use pagewright_types::{LruList, NodeId, Pfn};

impl FolioFlags {
    /// The list that they name (`folio_lru_list`).
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
struct Node<L> {
    lists: SpinLock<[FrameList; LruList::ALL.len()], rank::Lru, L>,
    /// Base pages on each; stored under the lock, read without.
    pages: [AtomicU32; LruList::ALL.len()],
}

/// The lists of a machine.
pub(crate) struct Lru<L>(Box<[Node<L>]>);

/// What a folio's place is worth when a list is changed.
type Lists<'a> = &'a mut [FrameList; LruList::ALL.len()];

impl<L: Backend> Lru<L> {
    /// Empty lists for `nodes` nodes.
    pub(crate) fn try_new(nodes: usize) -> Result<Self, OutOfMemory> {
        let mut all = Vec::new();
        all.try_reserve_exact(nodes).map_err(|_| OutOfMemory { bytes: nodes * size_of::<Node<L>>() })?;
        all.extend((0..nodes).map(|_| Node {
            lists: SpinLock::new([FrameList::EMPTY; LruList::ALL.len()]),
            pages: [const { AtomicU32::new(0) }; LruList::ALL.len()],
        }));
        Ok(Self(all.into_boxed_slice()))
    }
}

impl<'a> Folio<'a> {
    /// Entries of locked memory that map it (`mlock_count`).
    pub fn mlocks(self) -> u32 {
        if self.flags().contains(FolioFlags::UNEVICTABLE) { self.mlock_count().load(Ordering::Relaxed) } else { 0 }
    }

    /// The word that counts them, of no meaning while the folio is evictable: one that no small
    /// folio has a use for, and no tail.
    fn mlock_count(self) -> &'a AtomicU32 {
        let record = if self.is_large() { self.memmap.at(self.head.add(1)) } else { self.record() };
        &record.large_mapcount_or_mlocks
    }
}

impl<L: Backend> Node<L> {
    fn grow(&self, list: LruList, folio: Folio<'_>) {
        let pages = &self.pages[list as usize];
        pages.store(pages.load(Ordering::Relaxed) + folio.pages(), Ordering::Relaxed);
    }

    fn shrink(&self, list: LruList, folio: Folio<'_>) {
        let pages = &self.pages[list as usize];
        let before = pages.load(Ordering::Relaxed);
        debug_assert!(
            before >= folio.pages(),
            "INV-LRU-SIZE: {list:?} fell below zero with the folio at {}",
            folio.head
        );
        pages.store(before - folio.pages(), Ordering::Relaxed);
    }

    /// Puts a folio that is on no list on the one that its flags name.
    #[inline]
    fn link(&self, lists: Lists<'_>, folio: Folio<'_>, end: End) {
        let before = folio.set_flags(FolioFlags::LRU);
        debug_assert!(!before.contains(FolioFlags::LRU), "INV-LRU-PLACE: the folio at {} is added twice", folio.head);
        let list = before.list();
        match end {
            End::Front => lists[list as usize].push_front(folio.memmap, folio.head),
            End::Back => lists[list as usize].push_back(folio.memmap, folio.head),
        }
        self.grow(list, folio);
    }

    /// Changes the flags of a folio, and its place if it has one.
    ///
    /// Returns those that stood before.
    fn relist(
        &self,
        lists: Lists<'_>,
        folio: Folio<'_>,
        (set, clear): (FolioFlags, FolioFlags),
        end: End,
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

    /// Takes a folio off its list; its flags still say that it is there.
    #[inline]
    fn unlink(&self, lists: Lists<'_>, folio: Folio<'_>) {
        let list = folio.flags().list();
        lists[list as usize].remove(folio.memmap, folio.head);
        self.shrink(list, folio);
    }
}

/// At which end of a list.
#[derive(Clone, Copy)]
enum End {
    /// Where reclaim comes last.
    Front,
    /// Where it comes next.
    Back,
}

/// A folio that was taken off its list, with a reference: it is put back by [`Frames::putback`], or
/// its reference goes another way.
#[must_use = "dropping an isolated folio leaks it"]
#[derive(Debug)]
pub struct IsolatedFolio(FolioRef);

impl IsolatedFolio {
    /// First frame of the folio.
    #[inline]
    pub const fn pfn(&self) -> Pfn {
        self.0.pfn()
    }

    /// The reference, for who will not put the folio back because it goes.
    #[inline]
    pub fn into_folio(self) -> FolioRef {
        self.0
    }
}

/// What a look at the end of a list found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LruScan {
    /// Base pages of the folios that were looked at (`nr_scanned`).
    pub scanned: u32,
    /// Base pages of those that were isolated (`nr_taken`).
    pub taken: u32,
}

impl<P: Platform> Frames<P> {
    #[inline]
    fn lru_of(&self, folio: Folio<'_>) -> &Node<P::Locks> {
        let zone = folio.record().kind().zone();
        &self.lru.0[self.zones[zone.index()].node.index()]
    }

    /// Puts a folio on the list that its flags name (`folio_add_lru`).
    ///
    /// The caller has a reference, or holds what keeps one alive.
    ///
    /// # Panics
    /// In debug builds when it is on a list.
    #[inline]
    pub fn lru_add(&self, folio: Folio<'_>) {
        let node = self.lru_of(folio);
        node.link(&mut node.lists.lock(), folio, End::Front);
    }

    /// Takes a folio off its list, with a reference of the caller's own (`folio_isolate_lru`).
    ///
    /// The caller has a reference already, or holds what keeps one alive. `None`: it is on no list.
    pub fn isolate(&self, folio: Folio<'_>) -> Option<IsolatedFolio> {
        let node = self.lru_of(folio);
        let mut lists = node.lists.lock();
        if !folio.flags().contains(FolioFlags::LRU) {
            return None;
        }
        node.unlink(&mut lists, folio);
        folio.clear_flags(FolioFlags::LRU);
        Some(IsolatedFolio(folio.get()))
    }

    /// Takes folios off the back of a list until `most` pages were looked at, or `take` wants no
    /// more (`isolate_lru_folios`). `take` is called with the list locked, and returns whether it
    /// has room for another. Folios without references go to the front: they are on their way out.
    pub fn isolate_tail(
        &self,
        node: NodeId,
        list: LruList,
        most: u32,
        mut take: impl FnMut(IsolatedFolio) -> bool,
    ) -> LruScan {
        let node = &self.lru.0[node.index()];
        let mut lists = node.lists.lock();
        let mut looked = LruScan::default();
        let mut room = true;
        let mut left = lists[list as usize].len();
        while room && left > 0 && looked.scanned < most {
            left -= 1;
            let Some(head) = lists[list as usize].last() else { break };
            let folio = Folio { memmap: &self.memmap, head };
            looked.scanned += folio.pages();
            match folio.try_get() {
                Some(reference) => {
                    node.unlink(&mut lists, folio);
                    folio.clear_flags(FolioFlags::LRU);
                    looked.taken += folio.pages();
                    room = take(IsolatedFolio(reference));
                }
                None => {
                    lists[list as usize].remove(&self.memmap, head);
                    lists[list as usize].push_front(&self.memmap, head);
                }
            }
        }
        looked
    }

    /// Puts an isolated folio at the front of the list that its flags name, and gives up the
    /// reference (`folio_putback_lru`). If that was the last one, the frames are the caller's.
    pub fn putback(&self, isolated: IsolatedFolio) -> Option<Block> {
        self.lru_add(self.folio_of(&isolated.0));
        // It is on its list again, and our reference is still there.
        P::Locks::point();
        self.put(isolated.0)
    }

    /// Changes flags that name the list of a folio, and moves it to the front of the one that they
    /// name then, unless it is on none (`folio_activate`, `lru_deactivate`, `lru_lazyfree`). The
    /// caller has a reference, or holds what keeps one alive. Returns the flags that stood before.
    pub fn lru_move(&self, folio: Folio<'_>, set: FolioFlags, clear: FolioFlags) -> FolioFlags {
        self.relist(folio, set, clear, End::Front)
    }

    /// The same, to the back: reclaim comes to it next (`folio_rotate_reclaimable`).
    pub fn lru_rotate(&self, folio: Folio<'_>, set: FolioFlags, clear: FolioFlags) -> FolioFlags {
        self.relist(folio, set, clear, End::Back)
    }

    fn relist(&self, folio: Folio<'_>, set: FolioFlags, clear: FolioFlags, end: End) -> FolioFlags {
        let node = self.lru_of(folio);
        node.relist(&mut node.lists.lock(), folio, (set, clear), end)
    }

    /// One more entry of locked memory maps a folio (`mlock_folio`).
    ///
    /// Returns whether it is the first: reclaim does not meet the folio any more. The caller has a
    /// reference, or holds what keeps one alive.
    pub fn mlock(&self, folio: Folio<'_>) -> bool {
        let node = self.lru_of(folio);
        let mut lists = node.lists.lock();
        let locks = folio.mlocks();
        folio.mlock_count().store(locks + 1, Ordering::Relaxed);
        if locks == 0 {
            let used = FolioFlags::ACTIVE | FolioFlags::REFERENCED;
            node.relist(&mut lists, folio, (FolioFlags::UNEVICTABLE, used), End::Front);
        }
        locks == 0
    }

    /// An entry of locked memory that maps a folio goes, or its memory is unlocked
    /// (`munlock_folio`). Returns whether it was the last. The caller has a reference, or holds
    /// what keeps one alive.
    ///
    /// # Panics
    /// In debug builds when there was none.
    pub fn munlock(&self, folio: Folio<'_>) -> bool {
        let node = self.lru_of(folio);
        let mut lists = node.lists.lock();
        let locks = folio.mlocks();
        debug_assert!(locks > 0, "INV-LRU-LOCKS: the folio at {} is unlocked once too often", folio.head);
        folio.mlock_count().store(locks.saturating_sub(1), Ordering::Relaxed);
        if locks == 1 {
            node.relist(&mut lists, folio, (FolioFlags::empty(), FolioFlags::UNEVICTABLE), End::Front);
        }
        locks == 1
    }

    /// Base pages on a list of a node.
    pub fn lru_pages(&self, node: NodeId, list: LruList) -> u32 {
        self.lru.0[node.index()].pages[list as usize].load(Ordering::Relaxed)
    }

    /// Calls `visit` with the first frame of each folio on a list, front to back, with the list
    /// locked: for who counts again.
    pub fn for_each_listed(&self, node: NodeId, list: LruList, mut visit: impl FnMut(Pfn)) {
        let lists = self.lru.0[node.index()].lists.lock();
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
            let node = self.lru_of(folio);
            node.unlink(&mut node.lists.lock(), folio);
            folio.clear_flags(FolioFlags::LRU);
        }
    }

    /// The same of many: the lock of a node's lists is taken once for all its neighbours.
    pub(crate) fn lru_remove_all(&self, heads: &[Pfn]) {
        let folio = |head: Pfn| Folio { memmap: &self.memmap, head };
        let mut left = heads;
        while let Some(first) = left.first() {
            let node = self.lru_of(folio(*first));
            let mut lists = node.lists.lock();
            while let Some((head, others)) = left.split_first()
                && core::ptr::eq(self.lru_of(folio(*head)), node)
            {
                let folio = folio(*head);
                if folio.flags().contains(FolioFlags::LRU) {
                    node.unlink(&mut lists, folio);
                }
                left = others;
            }
        }
    }
}
