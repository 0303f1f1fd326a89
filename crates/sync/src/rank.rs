//! The lock order, written once (INV-LOCK-ORDER).
//!
//! A lock may be acquired only while every lock held is *outside* it, above it in this table. Two
//! locks of one rank may be held together only if the rank nests ([`Rank::NESTS`]), in the order
//! that the table states. The type of a rank is its name here with `Rank` appended. The order
//! follows the comment at the top of Linux's `mm/rmap.c`.
//!
//! ```text
//! Inode              a file's size, seals and holes (i_rwsem)
//!   Space            an address space's VMAs (mmap_lock) – fork: the parent's before the child's;
//!                    reclaim only tries those of other spaces
//!     ForkTree       the tree of forks: the spaces that may map an anonymous page (anon_vma)
//!       Mappers      the mappings of a file (i_mmap_rwsem)
//!         Family     the spaces that share page tables
//!           TableUpper one upper-level table page – parent before child
//!             Table    one last-level table page (split PTL) – fork: the parent's before the
//!                      child's; mremap: source and target, while it holds the space's lock for
//!                      writing
//!               Cache  one file's page cache (i_pages)
//!                 SwapAreas  the active swap devices (swap_lock)
//!                   Swap     one device's slots and their cached pages (cluster lock)
//!                     Zram   a CPU's buffers, then the store (zram_slot_lock, class->lock)
//!                       Context  tags (PCID, ASID) and their generations
//!                         Ledger   open debts
//!                           Deferred  one node's folios that wait to be split
//!                                       (split_queue_lock)
//!                             Lru      one node's LRU lists (lruvec->lru_lock) – a CPU's batch
//!                                        before the lists
//!                               PerCpuPages  one CPU's lists of free pages (pcp->lock), also
//!                                            during their refill and drain
//!                                 Zone     one zone's buddy lists (zone->lock)
//!                                   Loaded   the space loaded on a CPU (loaded_mm): innermost,
//!                                            because interrupt handlers acquire it
//! ```
//!
//! **INV-LOCK-ORDER** A lock is acquired only while every lock held precedes it in the order of
//! `sync::rank`. Debug builds panic at the first violation, deadlock or not.

use crate::backend::Backend;
use core::any::type_name;
use core::fmt;

/// A lock's rank in the order.
pub trait Rank: 'static {
    /// Position from the outermost, which is 0.
    const PLACE: u8;
    /// Name in the message of a violation.
    const NAME: &'static str;
    /// Whether locks of this rank may be held together, in the order that the module states.
    const NESTS: bool = false;
}

macro_rules! ranks {
    ($($(#[$doc:meta])* $name:ident = $place:literal $(, $nests:literal)?;)*) => {
        $(
            $(#[$doc])*
            #[derive(Debug)]
            pub struct $name;

            impl Rank for $name {
                const PLACE: u8 = $place;
                const NAME: &'static str = stringify!($name);
                $(const NESTS: bool = $nests;)?
            }
        )*

        const NAMES: &[(u8, &str)] = &[$(($place, stringify!($name))),*];
    };
}

ranks! {
    /// A file's size, seals and holes.
    InodeRank = 0;
    /// An address space's VMAs.
    SpaceRank = 1, true;
    /// The tree of forks, by which the reverse map finds the spaces of an anonymous page.
    ForkTreeRank = 2;
    /// The mappings of a file.
    MappersRank = 3;
    /// The spaces that share page tables.
    FamilyRank = 4;
    /// An upper-level table page.
    TableUpperRank = 5, true;
    /// A last-level table page.
    TableRank = 6, true;
    /// A file's page cache.
    CacheRank = 7;
    /// The active swap devices.
    SwapAreasRank = 8;
    /// A swap device's slots and their cached pages.
    SwapRank = 9;
    /// A CPU's compression buffers, and the store of compressed pages.
    ZramRank = 10, true;
    /// Tags and their generations.
    ContextRank = 11;
    /// Open debts.
    LedgerRank = 12;
    /// A node's folios that wait to be split.
    DeferredRank = 13;
    /// A node's LRU lists.
    LruRank = 14, true;
    /// A CPU's lists of free pages.
    PerCpuPagesRank = 15;
    /// A zone's buddy lists.
    ZoneRank = 16;
    /// The space loaded on a CPU.
    LoadedRank = 17;
}

/// The ranks that one CPU holds: the number of locks of each, in three bits.
///
/// A count and not a bit: when the inner of two nested locks is released, the outer one is still
/// held. All counts are one word, which a CPU can keep in an atomic:
/// [`HeldRanks`](crate::HeldRanks).
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct RankSet(u64);

impl RankSet {
    /// No lock is held.
    pub const EMPTY: Self = Self(0);
    const WIDTH: u32 = 3;
    /// The count of locks of one rank that fits, and its mask.
    const MOST: u64 = (1 << Self::WIDTH) - 1;

    const fn count(self, place: u8) -> u64 {
        self.0 >> (place as u32 * Self::WIDTH) & Self::MOST
    }

    /// Whether no lock is held.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The set as a word, for memory of the embedder's.
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// The set that [`to_bits`](Self::to_bits) made a word.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The set with one more lock of rank `R`.
    ///
    /// # Errors
    /// The place of the innermost rank held, which forbids it.
    pub fn with<R: Rank>(self) -> Result<Self, u8> {
        let inner = self.0 >> (u32::from(R::PLACE) * Self::WIDTH);
        let same = inner & Self::MOST;
        if inner >> Self::WIDTH != 0 {
            let deepest = (u64::BITS - 1 - self.0.leading_zeros()) / Self::WIDTH;
            return Err(deepest as u8);
        }
        if same != 0 && (!R::NESTS || same == Self::MOST) {
            return Err(R::PLACE);
        }
        Ok(Self(self.0 + (1 << (u32::from(R::PLACE) * Self::WIDTH))))
    }

    /// The set with one lock of rank `R` fewer; `None` if no lock of this rank is held.
    pub fn without<R: Rank>(self) -> Option<Self> {
        (self.count(R::PLACE) > 0).then(|| Self(self.0 - (1 << (u32::from(R::PLACE) * Self::WIDTH))))
    }
}

impl fmt::Debug for RankSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(NAMES.iter().filter(|(place, _)| self.count(*place) > 0).map(|(_, name)| name)).finish()
    }
}

/// Records that this CPU is about to acquire a lock of rank `R`.
///
/// Called before the CPU waits, so an inversion is reported even if it does not deadlock.
#[inline]
pub(crate) fn enter<R: Rank, B: Backend>() {
    if cfg!(debug_assertions) {
        let held = B::held();
        match held.with::<R>() {
            Ok(more) => B::set_held(more),
            Err(_) => panic!(
                "lock order: {} acquired on CPU {} while {held:?} is held; if this CPU holds none of these, \
                 `Backend::held` of {} returns the set of another CPU",
                R::NAME,
                B::cpu(),
                type_name::<B>()
            ),
        }
    }
}

/// Records that this CPU has released a lock of rank `R`.
#[inline]
pub(crate) fn leave<R: Rank, B: Backend>() {
    if cfg!(debug_assertions) {
        let held = B::held();
        match held.without::<R>() {
            Some(fewer) => B::set_held(fewer),
            None => panic!(
                "`Backend::held` of {} is wrong: CPU {} releases {}, which it acquired, and `held` returns {held:?}; \
                 it must return what `Backend::set_held` stored last on this CPU",
                type_name::<B>(),
                B::cpu(),
                R::NAME
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_go_inward_and_nested_locks_are_counted() {
        let held = RankSet::EMPTY
            .with::<SpaceRank>()
            .and_then(RankSet::with::<TableRank>)
            .and_then(RankSet::with::<TableRank>);
        let held = held.expect("Space, Table, Table is in order");
        assert_eq!(held.with::<ForkTreeRank>(), Err(TableRank::PLACE));
        assert_eq!(RankSet::EMPTY.with::<ZoneRank>().and_then(RankSet::with::<ZoneRank>), Err(ZoneRank::PLACE));
        let held = held.without::<TableRank>().expect("two are held");
        assert_eq!(held.with::<TableUpperRank>(), Err(TableRank::PLACE), "one of the two is still held");
        let held = held.without::<TableRank>().expect("one is held");
        assert!(held.with::<TableUpperRank>().is_ok());
        assert_eq!(held.without::<TableRank>(), None);
    }

    /// Three bits count them: one more would count as a lock of the next rank.
    #[test]
    fn seven_locks_of_a_rank_that_nests_may_be_held() {
        fn check<R: Rank>() {
            let mut held = [RankSet::EMPTY; 8];
            for count in 0..7 {
                held[count + 1] = held[count].with::<R>().expect("there are fewer than seven");
            }
            assert_eq!(held[7].with::<R>(), Err(R::PLACE), "{}", R::NAME);
            assert!(held[7].with::<LoadedRank>().is_ok(), "a lock inside is still allowed");
            for count in (0..7).rev() {
                assert_eq!(held[count + 1].without::<R>(), Some(held[count]), "{}", R::NAME);
            }
        }
        check::<SpaceRank>();
        check::<TableRank>();
        check::<LruRank>();
    }

    #[test]
    fn places_are_distinct_and_fit_a_rank_set() {
        for (i, (place, _)) in NAMES.iter().enumerate() {
            assert_eq!(usize::from(*place), i);
            assert!((u32::from(*place) + 1) * RankSet::WIDTH <= u64::BITS);
        }
    }
}
