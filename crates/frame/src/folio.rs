//! Folios: aligned runs of 2^order frames that are referenced, mapped and freed as one.
//!
//! Linux's `struct folio`.
//!
//! Key types: [`Folio`], a borrowed view, found by any frame of the folio; [`FolioOwner`], the
//! owner of its contents.
//!
//! Neighbours: `folio_ref` has owned references. `folio_flags`, `mapcount`, `pin`, `freeze` and
//! `lru` have the other methods of [`Folio`]. `record` lays out the words.
//!
//! Protocol: a view keeps nothing alive. The user of a view has its own reference, or holds a lock
//! that keeps another reference alive: the lock of the page table for the reference of an entry,
//! the lock of the page cache for the reference of the cache. Without either, only
//! [`Frames::try_get_folio`] is allowed.
//!
//! Invariants:
//! - **INV-FRAME-REFS** The count of a folio is the number of its [`FolioRef`]s, raw ones included,
//!   plus 1024 (small folio) or 1 (large folio) for each pin. Only the caller that takes it from 1
//!   to 0 gets the block.
//!
//! Not guaranteed: that counts stay as read, unless the caller holds a lock that prevents changes.

use crate::block::Block;
use crate::folio_flags::FolioFlags;
use crate::folio_ref::{FolioRef, FolioRefs};
use crate::frames::Frames;
use crate::memmap::Memmap;
use crate::record::{FrameRecord, FrameState};
use core::fmt;
use core::sync::atomic::Ordering;
use pagewright_sync::{Backend, LineRef, LineUse, Platform};
use pagewright_types::{FileId, ForkNodeId, FrameRange, Order, Pfn, SwapEntry};

/// The name under which uses of the references and mapcounts of folios are reported.
pub const FOLIO_COUNTS: &str = "folio counts";

/// The owner of the contents of a folio (Linux's `folio->mapping`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FolioOwner {
    /// No owner yet, or none any more.
    None,
    /// Anonymous memory; the reverse map starts at this node of the tree of forks.
    Anon(ForkNodeId),
    /// The page cache of a file.
    File(FileId),
}

impl FolioOwner {
    const ANON: u64 = 1 << 32;
    const FILE: u64 = 2 << 32;

    #[inline]
    pub(crate) fn pack(self) -> u64 {
        match self {
            Self::None => 0,
            Self::Anon(fork_node) => Self::ANON | u64::from(fork_node.raw()),
            Self::File(file) => Self::FILE | u64::from(file.raw()),
        }
    }

    #[inline]
    fn unpack(raw: u64) -> Self {
        match raw & 3 << 32 {
            Self::ANON => Self::Anon(ForkNodeId::new(raw as u32)),
            Self::FILE => Self::File(FileId::new(raw as u32)),
            _ => Self::None,
        }
    }
}

/// A borrowed view of a folio.
///
/// It is a copy of the frame number and keeps no reference.
#[derive(Clone, Copy)]
pub struct Folio<'a> {
    pub(crate) memmap: &'a Memmap,
    record: &'a FrameRecord,
    pub(crate) head: Pfn,
}

impl<P: Platform> Frames<P> {
    /// Makes a folio of a block (`prep_compound_page`).
    ///
    /// The folio has one reference, no flags, no owner and no mappings.
    ///
    /// # Panics
    /// In debug builds when the frames are not an allocated block or are still mapped.
    pub fn new_folio(&self, block: Block) -> FolioRef {
        let head = block.into_raw();
        let record = self.memmap.allocated(head);
        let kind = record.kind();
        record.flags.store(0, Ordering::Relaxed);
        record.owner_or_space.store(FolioOwner::None.pack(), Ordering::Relaxed);
        record.index.store(0, Ordering::Relaxed);
        clear_counts(record);
        self.memmap.name_tails(head, kind.order(), kind);
        record.set_kind(kind.to(FrameState::Folio));
        record.counts.set(1, 0);
        FolioRef::new(head)
    }

    /// The folio that contains `pfn`.
    ///
    /// # Panics
    /// When no folio contains it.
    #[inline]
    pub fn folio(&self, pfn: Pfn) -> Folio<'_> {
        self.find_folio(pfn).unwrap_or_else(|| self.is_no_folio(pfn))
    }

    #[cold]
    fn is_no_folio(&self, pfn: Pfn) -> ! {
        panic!("INV-FRAME-STATE: frame {pfn} is {:?} and in no folio", self.state(pfn));
    }

    /// The folio that contains `pfn`; `None` if there is none.
    #[inline]
    pub fn find_folio(&self, pfn: Pfn) -> Option<Folio<'_>> {
        let (head, record) = self.memmap.folio_head(pfn)?;
        Some(Folio::of_record(&self.memmap, record, head))
    }

    /// Takes a reference to the folio that contains `pfn`, without a lock (`try_get_folio`).
    ///
    /// Returns `None` if no folio contains `pfn`, or if it has no references or 2^31 or more. The
    /// folio may be another one than the caller saw. The caller checks that the folio contains
    /// `pfn`, then that the entry or index that led to `pfn` is unchanged, and [puts](Self::put)
    /// the reference otherwise.
    pub fn try_get_folio(&self, pfn: Pfn) -> Option<FolioRef> {
        self.find_folio(pfn)?.try_get()
    }

    /// Takes back the reference that [`FolioRef::into_raw`] turned into a frame number.
    ///
    /// `pfn` may be any frame of the folio. [`StoredFolioRef`](crate::StoredFolioRef) and
    /// [`FolioCell`](crate::FolioCell) store references without unsafe code.
    ///
    /// # Panics
    /// When no folio contains `pfn`; in debug builds when the folio has no references.
    ///
    /// # Safety
    /// INV-FRAME-REFS: the word from which the caller got `pfn` holds a reference that
    /// [`FolioRef::into_raw`] or [`Folio::get_raw`] put there, and gives it up with this call.
    #[inline]
    #[allow(unsafe_code)]
    pub unsafe fn folio_ref_from_raw(&self, pfn: Pfn) -> FolioRef {
        // SAFETY: INV-FRAME-REFS – the caller promises the same.
        unsafe { self.folio(pfn).ref_from_raw() }
    }

    /// The folio of a reference.
    #[inline]
    pub fn folio_of(&self, reference: &FolioRef) -> Folio<'_> {
        Folio::at(&self.memmap, reference.pfn())
    }

    /// Gives up a reference (`folio_put`).
    ///
    /// The last reference takes the folio off its LRU list, under the `LruRank` lock, and returns
    /// the block. The frames owe the debts that [`Folio::add_debt`] recorded.
    ///
    /// # Panics
    /// In debug builds when the last reference goes while the folio is mapped, pinned, locked,
    /// reserved, in the swap cache or under writeback.
    #[inline]
    pub fn put(&self, reference: FolioRef) -> Option<Block> {
        self.drop_refs(reference.into_raw(), 1)
    }

    /// Gives up references to one folio; otherwise as [`put`](Self::put) (`folio_put_refs`).
    #[inline]
    pub fn put_refs(&self, refs: FolioRefs) -> Option<Block> {
        let n = refs.count();
        self.drop_refs(refs.into_raw(), n)
    }

    /// Subtracts `n` references, and returns the block if none is left.
    #[inline]
    pub(crate) fn drop_refs(&self, head: Pfn, n: u32) -> Option<Block> {
        let record = self.memmap.at(head);
        P::Locks::line(LineRef::Record(head), FOLIO_COUNTS, LineUse::Store);
        let before = record.counts.sub_refs(n);
        debug_assert!(before >= n, "INV-FRAME-REFS: the folio at {head} loses {n} of {before} references");
        if before != n {
            return None;
        }
        Some(self.folio_into_block(head))
    }

    /// Makes a block of a folio without references.
    pub(crate) fn folio_into_block(&self, head: Pfn) -> Block {
        let folio = Folio::at(&self.memmap, head);
        folio.assert_released();
        self.undefer(folio);
        self.lru_remove(folio);
        let kind = self.memmap.transition(head, FrameState::Folio, FrameState::Allocated);
        Block::new(head, kind.order())
    }
}

/// Zeroes the mapcounts and pin count of a folio.
#[inline]
pub(crate) fn clear_counts(record: &FrameRecord) {
    debug_assert_eq!(record.counts.mappings(), 0, "INV-FRAME-MAP: a new folio is mapped");
    record.mapped_or_shares.store(0, Ordering::Relaxed);
    record.first_page_or_mlocks.store(0, Ordering::Relaxed);
    record.pincount_or_swap.store(0, Ordering::Relaxed);
}

/// References from which on attempts to take another one fail.
///
/// A pin counts as 1024 references, so about two million pins reach the limit. Without it the count
/// could overflow, and the folio would be freed under all its users (CVE-2019-11487). Counts above
/// the limit are left for page-table entries and for references that are held only briefly.
pub(crate) const MAX_TRY_GET_REFS: u32 = 1 << 31;

/// References beyond which page-table entries get no more.
///
/// The limit is for file pages only. Each space maps an anonymous page once and needs four tables
/// to do so, so memory runs out first.
const MAX_ENTRY_REFS: u32 = 3 << 30;

impl<'a> Folio<'a> {
    /// The folio whose first frame is `head`.
    #[inline]
    pub(crate) fn at(memmap: &'a Memmap, head: Pfn) -> Self {
        Self::of_record(memmap, memmap.at(head), head)
    }

    /// The folio whose first frame is `head`, and whose record the caller has found.
    #[inline]
    pub(crate) fn of_record(memmap: &'a Memmap, record: &'a FrameRecord, head: Pfn) -> Self {
        Self { memmap, record, head }
    }

    #[inline]
    pub(crate) fn record(&self) -> &'a FrameRecord {
        self.record
    }

    /// Asserts that a folio without references is not mapped, pinned, locked or in use otherwise.
    #[inline]
    pub(crate) fn assert_released(self) {
        let head = self.head;
        debug_assert!(
            !self.is_mapped(),
            "INV-FRAME-MAP: the folio at {head} is freed with mapcount {}",
            self.mapcount()
        );
        debug_assert!(!self.maybe_pinned(), "INV-FRAME-PIN: the folio at {head} is freed while pinned");
        let forbidden = FolioFlags::LOCKED | FolioFlags::RESERVED | FolioFlags::SWAPCACHE | FolioFlags::WRITEBACK;
        debug_assert!(
            !self.flags().intersects(forbidden),
            "INV-FRAME-STATE: the folio at {head} is freed as {:?}",
            self.flags()
        );
    }

    /// The first frame.
    #[inline]
    pub fn pfn(self) -> Pfn {
        self.head
    }

    /// The base-2 logarithm of the number of pages.
    #[inline]
    pub fn order(self) -> Order {
        self.record().kind().order()
    }

    /// The number of base pages.
    #[inline]
    pub fn pages(self) -> u32 {
        self.order().frames()
    }

    /// Whether the folio has more than one page.
    #[inline]
    pub fn is_large(self) -> bool {
        self.record.kind().is_large_folio()
    }

    /// All frames of the folio.
    pub fn range(self) -> FrameRange {
        FrameRange::new(self.head, self.head.add(self.pages()))
    }

    /// Whether `pfn` is a frame of the folio.
    #[inline]
    pub fn contains(self, pfn: Pfn) -> bool {
        Memmap::aligned(pfn, self.order()) == self.head
    }

    /// The index of `pfn` within the folio, in pages.
    ///
    /// # Panics
    /// In debug builds when the folio does not contain `pfn`.
    #[inline]
    pub fn page_of(self, pfn: Pfn) -> u32 {
        debug_assert!(self.contains(pfn), "frame {pfn} is not in the folio at {}", self.head);
        pfn.raw() - self.head.raw()
    }

    /// The number of references, pins included.
    #[inline]
    pub fn refs(self) -> u32 {
        self.record().counts.refs()
    }

    /// Takes another reference (`folio_get`).
    ///
    /// The caller has one, or holds a lock that keeps one alive.
    ///
    /// # Panics
    /// In debug builds when the folio has no references.
    #[inline]
    pub fn get(self) -> FolioRef {
        let before = self.record().counts.add_refs(1);
        debug_assert!(before > 0, "INV-FRAME-REFS: the folio at {} has no reference to copy", self.head);
        FolioRef::new(self.head)
    }

    /// Takes `n` more references, which exist only as frame numbers (`folio_ref_add`).
    ///
    /// They are like references after [`FolioRef::into_raw`].
    ///
    /// The caller has a reference.
    ///
    /// # Panics
    /// In debug builds when the folio has no references.
    pub fn get_raw(self, n: u32) {
        let before = self.record().counts.add_refs(n);
        debug_assert!(before > 0, "INV-FRAME-REFS: the folio at {} has no reference to copy", self.head);
    }

    /// Whether the references exceed the limit for page-table entries.
    ///
    /// A caller that has just taken a reference for an entry of a file page then gives it back and
    /// fails. Concurrent callers may all fail.
    #[inline]
    pub fn exceeds_ref_limit(self) -> bool {
        self.refs() > MAX_ENTRY_REFS
    }

    /// Whether a page-table entry may take one more reference.
    ///
    /// The caller takes it next. Concurrent callers may exceed the limit by one each, for which the
    /// counts above it leave room.
    #[inline]
    pub fn has_room_for_entry(self) -> bool {
        self.refs() < MAX_ENTRY_REFS
    }

    /// Takes another reference (`folio_try_get`).
    ///
    /// Returns `None` if the folio has no references, because it is frozen or free, or 2^31 or
    /// more.
    #[inline]
    pub fn try_get(self) -> Option<FolioRef> {
        self.record().counts.try_add_ref(MAX_TRY_GET_REFS).then(|| FolioRef::new(self.head))
    }

    /// Takes back a reference that exists as a frame number of the folio only.
    ///
    /// As [`Frames::folio_ref_from_raw`], for a caller that has looked up the folio.
    ///
    /// # Panics
    /// In debug builds when the folio has no references.
    ///
    /// # Safety
    /// INV-FRAME-REFS: as for [`Frames::folio_ref_from_raw`].
    #[inline]
    #[allow(unsafe_code)]
    pub unsafe fn ref_from_raw(self) -> FolioRef {
        debug_assert!(self.refs() > 0, "INV-FRAME-REFS: the folio at {} has no reference to take back", self.head);
        FolioRef::new(self.head)
    }

    /// As [`ref_from_raw`](Self::ref_from_raw), for `n` references.
    ///
    /// # Panics
    /// As `ref_from_raw`; in debug builds when `n` is 0.
    ///
    /// # Safety
    /// INV-FRAME-REFS: as for `ref_from_raw`, of each.
    #[inline]
    #[allow(unsafe_code)]
    pub unsafe fn refs_from_raw(self, n: u32) -> FolioRefs {
        debug_assert!(n > 0, "INV-FRAME-REFS: no reference to the folio at {} is taken back", self.head);
        // SAFETY: INV-FRAME-REFS – the caller's.
        FolioRefs::new(unsafe { self.ref_from_raw() }, n - 1)
    }

    /// The owner of the contents.
    #[inline]
    pub fn owner(self) -> FolioOwner {
        FolioOwner::unpack(self.record().owner_or_space.load(Ordering::Acquire))
    }

    /// Whether the contents are anonymous memory.
    #[inline]
    pub fn is_anon(self) -> bool {
        matches!(self.owner(), FolioOwner::Anon(_))
    }

    /// The page index of the first page in its owner: in the file, or linear in anonymous memory.
    #[inline]
    pub fn index(self) -> u64 {
        self.record().index.load(Ordering::Relaxed)
    }

    /// Sets the owner of the contents, and their page index in it.
    ///
    /// The caller holds the lock under which folios are found by owner and index: that of the page
    /// cache, or that of the page table of a new anonymous page.
    pub fn set_owner(self, owner: FolioOwner, index: u64) {
        let record = self.record();
        record.index.store(index, Ordering::Relaxed);
        record.owner_or_space.store(owner.pack(), Ordering::Release);
    }

    /// The swap slot of a folio in the swap cache, `None` outside it (`folio->swap`).
    #[inline]
    pub fn swap_entry(self) -> Option<SwapEntry> {
        let cached = self.flags().contains(FolioFlags::SWAPCACHE);
        cached.then(|| SwapEntry::from_raw(self.record().pincount_or_swap.load(Ordering::Relaxed)))
    }

    /// Puts a small folio into the swap cache, which gets a reference.
    ///
    /// The caller holds a reference and the lock of the swap device. It also holds the folio lock,
    /// unless no other task can find the folio.
    ///
    /// # Panics
    /// In debug builds when the folio is large, or in the swap cache already.
    pub fn join_swap_cache(self, entry: SwapEntry) {
        debug_assert!(!self.is_large(), "INV-FRAME-STATE: the folio at {} is larger than a swap slot", self.head);
        let _ = self.get().into_raw();
        self.record().pincount_or_swap.store(entry.raw(), Ordering::Relaxed);
        let before = self.set_flags(FolioFlags::SWAPCACHE);
        debug_assert!(!before.contains(FolioFlags::SWAPCACHE), "INV-FRAME-STATE: {self:?} joins the swap cache twice");
    }

    /// Takes a folio out of the swap cache; returns the reference of the cache.
    ///
    /// `None` if the folio is not in the swap cache. The caller holds the locks that
    /// [`join_swap_cache`](Self::join_swap_cache) needs.
    pub fn leave_swap_cache(self) -> Option<FolioRef> {
        let before = self.clear_flags(FolioFlags::SWAPCACHE);
        // One caller sees the flag set, so the reference is returned once.
        before.contains(FolioFlags::SWAPCACHE).then(|| {
            self.record().pincount_or_swap.store(0, Ordering::Relaxed);
            FolioRef::new(self.head)
        })
    }
}

impl fmt::Debug for Folio<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Folio")
            .field("pfn", &self.head)
            .field("order", &self.order())
            .field("refs", &self.refs())
            .field("mapcount", &self.mapcount())
            .field("owner", &self.owner())
            .field("index", &self.index())
            .field("flags", &self.flags())
            .finish()
    }
}
