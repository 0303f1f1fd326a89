//! The lock order, written once (INV-LOCK-ORDER).
//!
//! A lock may be taken only while every lock held stands *above* it here. Locks of one rank may be
//! held together only where the rank says in which order ([`Rank::NESTS`]). The order follows the
//! comment at the top of Linux's `mm/rmap.c`.
//!
//! ```text
//! Inode              a file's size, seals and holes (i_rwsem)
//!   Space            an address space's VMAs (mmap_lock)
//!     ForkTree       the tree of forks: who may map an anonymous page (anon_vma)
//!       Mappers      who maps a file (i_mmap_rwsem)
//!         TableUpper one upper-level table page                 – parent before child
//!           Table    one last-level table page (split PTL)      – parent's before child's in fork;
//!                                                                      both places' in mremap, which has the space alone
//!             Cache  one file's page cache (i_pages)
//!               SwapAreas  which devices are swapped to (swap_lock)
//!                 Swap     one device's slots and what is cached of them (cluster lock)
//!                   Zram   a CPU's buffers before what is stored (zram_slot_lock, class->lock)
//!                     Context  tags (PCID, ASID) and their generations
//!                       Ledger   open debts
//!                         Lru      one node's lists of folios by use (lruvec->lru_lock)
//!                           PerCpuPages  one CPU's lists of free pages (pcp->lock): held while they are refilled or drained
//!                             Zone     one zone's buddy lists (zone->lock)
//!                               Loaded   the space that a CPU runs (loaded_mm): innermost, because interrupt handlers take it
//! ```

use crate::backend::Backend;
use core::fmt;

/// A lock's place in the order.
pub trait Rank: 'static {
    /// Position from the outside, 0 first.
    const PLACE: u8;
    /// Name shown when the order is broken.
    const NAME: &'static str;
    /// Whether two locks of this rank may be held at once, in the order that the table above
    /// states.
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
    /// The tree of forks.
    ForkTreeRank = 2;
    /// Who maps a file.
    MappersRank = 3;
    /// An upper-level table page.
    TableUpperRank = 4, true;
    /// A last-level table page.
    TableRank = 5, true;
    /// A file's page cache.
    CacheRank = 6;
    /// Which devices are swapped to.
    SwapAreasRank = 7;
    /// A swap device's slots and what is cached of them.
    SwapRank = 8;
    /// Compressed pages: a CPU's buffers, and what is stored.
    ZramRank = 9, true;
    /// Tags and their generations.
    ContextRank = 10;
    /// Open debts.
    LedgerRank = 11;
    /// A node's lists of folios by use.
    LruRank = 12;
    /// A CPU's lists of free pages.
    PerCpuPagesRank = 13;
    /// A zone's buddy lists.
    ZoneRank = 14;
    /// The space that a CPU runs.
    LoadedRank = 15;
}

/// The ranks held by one CPU: how many locks of each, four bits a rank.
///
/// A count and not a bit, because of two nested locks of one rank the inner is released first and
/// the outer must stay recorded.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct RankSet(u64);

impl RankSet {
    /// Nothing held.
    pub const EMPTY: Self = Self(0);
    const WIDTH: u32 = 4;

    const fn count(self, place: u8) -> u64 {
        self.0 >> (place as u32 * Self::WIDTH) & 0xf
    }

    /// Whether nothing is held.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The set with one more lock of rank `R`.
    ///
    /// # Errors
    /// The place of a held rank that forbids it.
    pub fn with<R: Rank>(self) -> Result<Self, u8> {
        let inner = self.0 >> (u32::from(R::PLACE) * Self::WIDTH);
        let same = inner & 0xf;
        if inner >> Self::WIDTH != 0 {
            let deepest = (63 - self.0.leading_zeros()) / Self::WIDTH;
            return Err(deepest as u8);
        }
        if same != 0 && (!R::NESTS || same == 0xf) {
            return Err(R::PLACE);
        }
        Ok(Self(self.0 + (1 << (u32::from(R::PLACE) * Self::WIDTH))))
    }

    /// The set with one lock of rank `R` fewer.
    ///
    /// # Panics
    /// When none was held.
    pub fn without<R: Rank>(self) -> Self {
        assert!(self.count(R::PLACE) > 0, "released {} which was not held", R::NAME);
        Self(self.0 - (1 << (u32::from(R::PLACE) * Self::WIDTH)))
    }
}

impl fmt::Debug for RankSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(NAMES.iter().filter(|(place, _)| self.count(*place) > 0).map(|(_, name)| name)).finish()
    }
}

/// Records that a lock of rank `R` is about to be taken.
///
/// Called before waiting, so that an inversion is reported even when it would not have deadlocked
/// this time.
#[inline]
pub(crate) fn enter<R: Rank, B: Backend>() {
    if cfg!(debug_assertions) {
        let held = B::held();
        match held.with::<R>() {
            Ok(more) => B::set_held(more),
            Err(_) => panic!("lock order: {} acquired while {held:?} is held", R::NAME),
        }
    }
}

/// Records that a lock of rank `R` was released.
#[inline]
pub(crate) fn leave<R: Rank, B: Backend>() {
    if cfg!(debug_assertions) {
        B::set_held(B::held().without::<R>());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_inward_and_nesting_is_counted() {
        let held = RankSet::EMPTY
            .with::<SpaceRank>()
            .and_then(RankSet::with::<TableRank>)
            .and_then(RankSet::with::<TableRank>);
        let held = held.expect("Space, Table, Table is in order");
        assert_eq!(held.with::<ForkTreeRank>(), Err(TableRank::PLACE));
        assert_eq!(RankSet::EMPTY.with::<ZoneRank>().and_then(RankSet::with::<ZoneRank>), Err(ZoneRank::PLACE));
        let held = held.without::<TableRank>();
        assert_eq!(held.with::<TableUpperRank>(), Err(TableRank::PLACE), "one of the two is still held");
        assert!(held.without::<TableRank>().with::<TableUpperRank>().is_ok());
    }

    #[test]
    fn places_are_distinct_and_fit_the_set() {
        for (i, (place, _)) in NAMES.iter().enumerate() {
            assert_eq!(usize::from(*place), i);
            assert!(u32::from(*place) * RankSet::WIDTH < 64);
        }
    }
}
