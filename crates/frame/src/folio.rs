//! Folios: naturally aligned runs of 2^order frames that are referenced, mapped and freed as one
//! (Linux's `struct folio`).
//!
//! Key types: [`FolioRef`], one owned reference; [`Folio`], a borrowed view, found by any of the
//! folio's frames; [`FolioOwner`] and [`FolioFlags`], what it holds.
//!
//! Neighbours: `mapcount`, `pin` and `freeze` are the other verbs of [`Folio`]. Records are laid
//! out in `record`.
//!
//! Protocol: a view proves nothing. Whoever uses one has a reference of his own, or a lock that
//! keeps somebody else's alive – the page table's for an entry's reference, the page cache's for
//! the cache's. Without either, only [`Frames::try_get_folio`] is allowed.
//!
//! Invariants:
//! - INV-FRAME-REFS: a folio's count is the number of its [`FolioRef`]s, raw ones included, plus
//!   1024 (small) or 1 (large) for each pin; whoever takes it from 1 to 0 has the block.
//!
//! Not guaranteed: that counts read without a lock that stops their changes are still right.

use crate::block::Block;
use crate::frames::Frames;
use crate::memmap::Memmap;
use crate::record::{FrameRecord, FrameState};
use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering, fence};
use pagewright_sync::{Platform, bomb};
use pagewright_types::{DebtKey, FileId, ForkNodeId, FrameRange, Order, Pfn, SwapEntry};

bitflags::bitflags! {
    /// State of a folio beside its counts; Linux's page flags.
    ///
    /// Bits 12 to 15 are free; the age stands above them.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct FolioFlags: u32 {
        /// Held by one user at a time: see [`Folio::try_lock`] (`PG_locked`).
        const LOCKED = 1;
        /// Contents are newer than what backs them (`PG_dirty`).
        const DIRTY = 1 << 1;
        /// Contents are valid (`PG_uptodate`).
        const UPTODATE = 1 << 2;
        /// Backed by swap or nothing, not by a file (`PG_swapbacked`).
        const SWAPBACKED = 1 << 3;
        /// Used since reclaim last looked (`PG_referenced`).
        const REFERENCED = 1 << 4;
        /// On the active list (`PG_active`).
        const ACTIVE = 1 << 5;
        /// On an LRU list (`PG_lru`).
        const LRU = 1 << 6;
        /// Never freed or moved, like the zero page (`PG_reserved`).
        const RESERVED = 1 << 7;
        /// Not to be reclaimed, because a mapping that has it is locked (`PG_unevictable`).
        const UNEVICTABLE = 1 << 8;
        /// In the swap cache: [`Folio::swap_entry`] says for which slot (`PG_swapcache`).
        const SWAPCACHE = 1 << 9;
        /// Being written to its device (`PG_writeback`).
        const WRITEBACK = 1 << 10;
        /// Was on the active list once (`PG_workingset`).
        const WORKINGSET = 1 << 11;
    }
}

/// Where the age stands in the word of the flags.
const AGE_SHIFT: u32 = 16;
const AGE_MASK: u32 = 0xff << AGE_SHIFT;

/// What a folio's contents belong to (Linux's `folio->mapping`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FolioOwner {
    /// Nothing yet, or not any more.
    None,
    /// Anonymous memory, found by the reverse map under this node of the tree of forks.
    Anon(ForkNodeId),
    /// A file's page cache.
    File(FileId),
}

impl FolioOwner {
    const ANON: u64 = 1 << 32;
    const FILE: u64 = 2 << 32;

    fn pack(self) -> u64 {
        match self {
            Self::None => 0,
            Self::Anon(fork_node) => Self::ANON | u64::from(fork_node.raw()),
            Self::File(file) => Self::FILE | u64::from(file.raw()),
        }
    }

    fn unpack(raw: u64) -> Self {
        match raw & !u64::from(u32::MAX) {
            Self::ANON => Self::Anon(ForkNodeId::new(raw as u32)),
            Self::FILE => Self::File(FileId::new(raw as u32)),
            _ => Self::None,
        }
    }
}

/// One reference to a folio.
#[must_use = "dropping a reference leaks the folio"]
#[derive(Debug, PartialEq, Eq)]
pub struct FolioRef(Pfn);

impl FolioRef {
    pub(crate) const fn new(head: Pfn) -> Self {
        Self(head)
    }

    /// First frame of the folio.
    #[inline]
    pub const fn pfn(&self) -> Pfn {
        self.0
    }

    /// Gives up the value for the folio's first frame, for a page-table entry or another word that
    /// holds the reference from now on. [`Frames::folio_ref_from_raw`] takes it back.
    #[inline]
    pub const fn into_raw(self) -> Pfn {
        let head = self.0;
        core::mem::forget(self);
        head
    }
}

impl Drop for FolioRef {
    fn drop(&mut self) {
        bomb::dropped(format_args!("INV-FRAME-LINEAR: leaked reference to the folio at {}", self.0));
    }
}

/// A borrowed view of a folio.
#[derive(Clone, Copy)]
pub struct Folio<'a> {
    pub(crate) memmap: &'a Memmap,
    pub(crate) head: Pfn,
}

impl<P: Platform> Frames<P> {
    /// Makes a folio of a block, with one reference, no flags, no owner and no mappings (Linux's
    /// `prep_compound_page`).
    pub fn new_folio(&self, block: Block) -> FolioRef {
        let head = block.into_raw();
        let record = self.memmap.at(head);
        let kind = record.kind();
        debug_assert_eq!(kind.state(), FrameState::Allocated, "INV-FRAME-STATE: frame {head} is {kind:?}");
        record.flags.store(0, Ordering::Relaxed);
        record.owner_or_space.store(FolioOwner::None.pack(), Ordering::Relaxed);
        record.index.store(0, Ordering::Relaxed);
        clear_counts(record);
        self.memmap.name_tails(head, kind.order(), kind);
        record.set_kind(kind.to(FrameState::Folio));
        record.refs.store(1, Ordering::Release);
        FolioRef::new(head)
    }

    /// The folio of which `pfn` is a page.
    ///
    /// # Panics
    /// When it is a page of none.
    #[inline]
    pub fn folio(&self, pfn: Pfn) -> Folio<'_> {
        match self.find_folio(pfn) {
            Some(folio) => folio,
            None => panic!("INV-FRAME-STATE: frame {pfn} is {:?} and no page of a folio", self.state(pfn)),
        }
    }

    /// The folio of which `pfn` is a page, if there is one.
    #[inline]
    pub fn find_folio(&self, pfn: Pfn) -> Option<Folio<'_>> {
        self.memmap.folio_head(pfn).map(|head| Folio { memmap: &self.memmap, head })
    }

    /// Takes a reference on whatever folio has `pfn`, without any lock (Linux's `try_get_folio`).
    ///
    /// It may be another folio than the caller saw: he checks that it contains `pfn`, then that
    /// what led him here still does, and [puts](Self::put) it otherwise.
    pub fn try_get_folio(&self, pfn: Pfn) -> Option<FolioRef> {
        self.find_folio(pfn)?.try_get()
    }

    /// Takes back the reference that [`FolioRef::into_raw`] gave up.
    ///
    /// Any page of the folio will do.
    ///
    /// # Panics
    /// When the frame is a page of no folio; in debug builds when the folio has no references.
    #[inline]
    pub fn folio_ref_from_raw(&self, pfn: Pfn) -> FolioRef {
        let folio = self.folio(pfn);
        debug_assert!(folio.refs() > 0, "INV-FRAME-REFS: no reference to the folio at {pfn}");
        FolioRef::new(folio.head)
    }

    /// The folio to which `reference` refers.
    #[inline]
    pub fn folio_of(&self, reference: &FolioRef) -> Folio<'_> {
        Folio { memmap: &self.memmap, head: reference.0 }
    }

    /// Gives up a reference.
    ///
    /// The last one gives back the frames, which owe whatever their mappings left.
    #[inline]
    pub fn put(&self, reference: FolioRef) -> Option<Block> {
        self.drop_refs(reference.into_raw(), 1)
    }

    /// Takes `n` from the count of a folio; at zero the folio is a block again.
    #[inline]
    pub(crate) fn drop_refs(&self, head: Pfn, n: u32) -> Option<Block> {
        let record = self.memmap.at(head);
        let before = record.refs.fetch_sub(n, Ordering::Release);
        debug_assert!(before >= n, "INV-FRAME-REFS: {n} references to the folio at {head} given up, {before} held");
        if before != n {
            return None;
        }
        // Pairs with the Release above in everybody else's last put: what they did to the folio
        // happened before it is freed.
        fence(Ordering::Acquire);
        Some(self.dissolve(head))
    }

    /// Makes a folio without references a block again.
    pub(crate) fn dissolve(&self, head: Pfn) -> Block {
        let folio = Folio { memmap: &self.memmap, head };
        folio.assert_dead();
        self.lru_remove(folio);
        let kind = self.memmap.transition(head, FrameState::Folio, FrameState::Allocated);
        Block::new(head, kind.order())
    }
}

/// Zeroes the counts of a folio's mappings and pins.
pub(crate) fn clear_counts(record: &FrameRecord) {
    debug_assert_eq!(record.mapcount.load(Ordering::Relaxed), 0, "INV-FRAME-MAP: a new folio is mapped");
    let counts =
        [&record.entire_or_shares, &record.large_mapcount_or_mlocks, &record.nr_pages_mapped, &record.pincount_or_swap];
    for count in counts {
        count.store(0, Ordering::Relaxed);
    }
}

/// References from which on nobody gets another for the asking.
///
/// A pin counts 1024, so that two million of them come here: a count that went on would pass its
/// end, and the folio be freed under all of them (CVE-2019-11487). What is left is for entries, and
/// for who has one for a moment.
pub(crate) const MOST_REFS: u32 = 1 << 31;

/// References beyond which none is left to an entry.
///
/// Of anonymous memory there can't be as many: each space has a page once, and takes four tables
/// for it.
const MOST_FOR_ENTRIES: u32 = 3 << 30;

/// Takes a reference unless there is none, or there are [`MOST_REFS`].
#[inline]
pub(crate) fn add_unless_zero(refs: &AtomicU32) -> bool {
    let mut now = refs.load(Ordering::Relaxed);
    while (1..MOST_REFS).contains(&now) {
        // Acquire: what the folio says is read after the reference was had.
        match refs.compare_exchange_weak(now, now + 1, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(other) => now = other,
        }
    }
    false
}

impl<'a> Folio<'a> {
    #[inline]
    pub(crate) fn record(&self) -> &'a FrameRecord {
        self.memmap.at(self.head)
    }

    /// Whoever had the last reference left nothing behind that others go by.
    #[inline]
    pub(crate) fn assert_dead(self) {
        let head = self.head;
        debug_assert!(!self.is_mapped(), "INV-FRAME-MAP: folio at {head} freed with mapcount {}", self.mapcount());
        debug_assert!(!self.maybe_pinned(), "INV-FRAME-PIN: folio at {head} freed with a pin");
        let forbidden = FolioFlags::LOCKED | FolioFlags::RESERVED | FolioFlags::SWAPCACHE | FolioFlags::WRITEBACK;
        debug_assert!(!self.flags().intersects(forbidden), "INV-FRAME-STATE: folio at {head} freed {:?}", self.flags());
    }

    /// First frame.
    #[inline]
    pub fn pfn(self) -> Pfn {
        self.head
    }

    /// log2 of the number of pages.
    #[inline]
    pub fn order(self) -> Order {
        self.record().kind().order()
    }

    /// Number of base pages.
    #[inline]
    pub fn pages(self) -> u32 {
        self.order().frames()
    }

    /// Whether it has more than one page.
    #[inline]
    pub fn is_large(self) -> bool {
        self.order() > Order::ZERO
    }

    /// All its frames.
    pub fn range(self) -> FrameRange {
        FrameRange::new(self.head, self.head.add(self.pages()))
    }

    /// Whether `pfn` is one of its frames.
    #[inline]
    pub fn contains(self, pfn: Pfn) -> bool {
        Memmap::aligned(pfn, self.order()) == self.head
    }

    /// Which page of the folio `pfn` is.
    ///
    /// # Panics
    /// In debug builds when it is none.
    #[inline]
    pub fn page_of(self, pfn: Pfn) -> u32 {
        debug_assert!(self.contains(pfn), "frame {pfn} is no page of the folio at {}", self.head);
        pfn.raw() - self.head.raw()
    }

    /// The count of references, pins included.
    #[inline]
    pub fn refs(self) -> u32 {
        self.record().refs.load(Ordering::Acquire)
    }

    /// Takes another reference.
    ///
    /// The caller has one, or holds what keeps one alive.
    ///
    /// # Panics
    /// In debug builds when there was none.
    #[inline]
    pub fn get(self) -> FolioRef {
        let before = self.record().refs.fetch_add(1, Ordering::Relaxed);
        debug_assert!(before > 0, "INV-FRAME-REFS: reference taken from nobody on the folio at {}", self.head);
        FolioRef::new(self.head)
    }

    /// Takes `n` more references at once, each held by somebody as after [`FolioRef::into_raw`]
    /// (`folio_ref_add`). The caller has one.
    ///
    /// # Panics
    /// In debug builds when there was none.
    pub fn get_raw(self, n: u32) {
        let before = self.record().refs.fetch_add(n, Ordering::Relaxed);
        debug_assert!(before > 0, "INV-FRAME-REFS: references taken from nobody on the folio at {}", self.head);
    }

    /// Whether there are more references than entries may have: who has just got one for an entry
    /// of a file's page gives it back then, and fails. Those who ask at the same time may all be
    /// refused.
    #[inline]
    pub fn exceeds_ref_limit(self) -> bool {
        self.refs() > MOST_FOR_ENTRIES
    }

    /// Takes a reference unless there is none, because the folio is frozen or free
    /// (`folio_try_get`), or there are as many as may be.
    #[inline]
    pub fn try_get(self) -> Option<FolioRef> {
        add_unless_zero(&self.record().refs).then(|| FolioRef::new(self.head))
    }

    /// What the contents belong to.
    #[inline]
    pub fn owner(self) -> FolioOwner {
        FolioOwner::unpack(self.record().owner_or_space.load(Ordering::Acquire))
    }

    /// Whether the contents are anonymous memory.
    #[inline]
    pub fn is_anon(self) -> bool {
        matches!(self.owner(), FolioOwner::Anon(_))
    }

    /// Index of the first page in what it belongs to: in the file, or the linear page index of
    /// anonymous memory.
    #[inline]
    pub fn index(self) -> u64 {
        self.record().index.load(Ordering::Relaxed)
    }

    /// Says what the contents belong to and where in it they are.
    ///
    /// The caller holds the lock of whatever finds folios by this (the page cache, the page table
    /// of a new anonymous page).
    pub fn set_owner(self, owner: FolioOwner, index: u64) {
        let record = self.record();
        record.index.store(index, Ordering::Relaxed);
        record.owner_or_space.store(owner.pack(), Ordering::Release);
    }

    /// The slot whose contents it has, while it is in the swap cache (`folio->swap`).
    #[inline]
    pub fn swap_entry(self) -> Option<SwapEntry> {
        let cached = self.flags().contains(FolioFlags::SWAPCACHE);
        cached.then(|| SwapEntry::from_raw(self.record().pincount_or_swap.load(Ordering::Relaxed)))
    }

    /// Puts a small folio into the swap cache, or takes it out.
    ///
    /// The caller holds the lock of the device, and the folio's unless nobody else can find it.
    ///
    /// # Panics
    /// In debug builds when the folio is large.
    pub fn set_swap_entry(self, entry: Option<SwapEntry>) {
        debug_assert!(!self.is_large(), "INV-FRAME-STATE: the folio at {} has more pages than a slot", self.head);
        self.record().pincount_or_swap.store(entry.map_or(0, SwapEntry::raw), Ordering::Relaxed);
        match entry {
            Some(_) => self.set_flags(FolioFlags::SWAPCACHE),
            None => self.clear_flags(FolioFlags::SWAPCACHE),
        };
    }

    /// The flags.
    #[inline]
    pub fn flags(self) -> FolioFlags {
        FolioFlags::from_bits_truncate(self.record().flags.load(Ordering::Acquire))
    }

    /// Sets flags and returns those that stood before.
    #[inline]
    pub fn set_flags(self, flags: FolioFlags) -> FolioFlags {
        FolioFlags::from_bits_truncate(self.record().flags.fetch_or(flags.bits(), Ordering::AcqRel))
    }

    /// Clears flags and returns those that stood before.
    #[inline]
    pub fn clear_flags(self, flags: FolioFlags) -> FolioFlags {
        FolioFlags::from_bits_truncate(self.record().flags.fetch_and(!flags.bits(), Ordering::AcqRel))
    }

    /// Locks the folio unless somebody has it locked (`folio_trylock`).
    ///
    /// There is no waiting form: who waits holds no lock that ranks, and comes back.
    #[inline]
    pub fn try_lock(self) -> Option<FolioLock<'a>> {
        let before = self.set_flags(FolioFlags::LOCKED);
        (!before.contains(FolioFlags::LOCKED)).then(|| FolioLock(self))
    }

    /// How long ago it was last seen in use, in scans of whoever ages it.
    pub fn age(self) -> u8 {
        (self.record().flags.load(Ordering::Relaxed) >> AGE_SHIFT) as u8
    }

    /// Says how long ago it was last seen in use.
    pub fn set_age(self, age: u8) {
        let flags = &self.record().flags;
        let mut now = flags.load(Ordering::Relaxed);
        let aged = |flags: u32| flags & !AGE_MASK | u32::from(age) << AGE_SHIFT;
        while let Err(other) = flags.compare_exchange_weak(now, aged(now), Ordering::Relaxed, Ordering::Relaxed) {
            now = other;
        }
    }

    /// Makes the folio's frames owe a debt when they are freed, whoever frees them: somebody gives
    /// up a reference while a TLB may still reach the folio through a mapping that is gone.
    pub fn add_debt(self, key: DebtKey) {
        self.record().merge_debt(key);
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

/// Holds a folio locked; unlocked on drop.
#[must_use]
pub struct FolioLock<'a>(Folio<'a>);

impl Drop for FolioLock<'_> {
    fn drop(&mut self) {
        self.0.clear_flags(FolioFlags::LOCKED);
    }
}
