//! INV-LOCK-ORDER: the locks that may be acquired while others are held.

use pagewright_sync::host::HostLocks;
use pagewright_sync::{Backend, Rank, RankSet, RwLock, SpinLock, rank};
use proptest::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A rank as a value.
#[derive(Clone, Copy, Debug)]
struct AnyRank {
    place: u8,
    nests: bool,
    with: fn(RankSet) -> Result<RankSet, u8>,
    without: fn(RankSet) -> Option<RankSet>,
}

const fn rank_of<R: Rank>() -> AnyRank {
    AnyRank { place: R::PLACE, nests: R::NESTS, with: RankSet::with::<R>, without: RankSet::without::<R> }
}

const RANKS: [AnyRank; 12] = [
    rank_of::<rank::InodeRank>(),
    rank_of::<rank::SpaceRank>(),
    rank_of::<rank::ForkTreeRank>(),
    rank_of::<rank::MappersRank>(),
    rank_of::<rank::TableUpperRank>(),
    rank_of::<rank::TableRank>(),
    rank_of::<rank::CacheRank>(),
    rank_of::<rank::ContextRank>(),
    rank_of::<rank::LedgerRank>(),
    rank_of::<rank::PerCpuPagesRank>(),
    rank_of::<rank::ZoneRank>(),
    rank_of::<rank::LoadedRank>(),
];

proptest! {
    /// Acquires and releases random ranks, and compares with a list of the ranks held.
    #[test]
    fn a_rank_set_allows_exactly_what_the_order_allows(steps in prop::collection::vec((0..RANKS.len(), any::<bool>()), 1..60)) {
        let mut held: Vec<AnyRank> = Vec::new();
        let mut set = RankSet::EMPTY;
        for (rank, take) in steps {
            let rank = RANKS[rank];
            if take {
                let deepest = held.iter().map(|r| r.place).max();
                let allowed = deepest.is_none_or(|d| d < rank.place || (d == rank.place && rank.nests));
                match (rank.with)(set) {
                    Ok(more) => {
                        prop_assert!(allowed, "{:?} under {:?}", rank, held);
                        set = more;
                        held.push(rank);
                    }
                    Err(place) => {
                        prop_assert!(!allowed, "{:?} refused under {:?}", rank, held);
                        prop_assert_eq!(Some(place), deepest);
                    }
                }
            } else if let Some(index) = held.iter().rposition(|r| r.place == rank.place) {
                held.remove(index);
                set = (rank.without)(set).expect("the rank is held");
            } else {
                prop_assert_eq!((rank.without)(set), None);
            }
            prop_assert_eq!(RankSet::from_bits(set.to_bits()), set);
            prop_assert_eq!(set.is_empty(), held.is_empty());
        }
    }
}

#[test]
#[cfg(debug_assertions)]
fn an_inversion_panics_without_a_deadlock_and_names_both_locks() {
    let (inner, outer) =
        (SpinLock::<_, rank::ZoneRank, HostLocks>::new(()), RwLock::<_, rank::SpaceRank, HostLocks>::new(()));
    for attempt in [&(|| drop(outer.read())) as &dyn Fn(), &|| drop(outer.write()), &|| {
        drop(SpinLock::<_, rank::ZoneRank, HostLocks>::new(()).lock())
    }] {
        let held = inner.lock();
        let told = catch_unwind(AssertUnwindSafe(attempt)).expect_err("the order is violated");
        let told = told.downcast::<String>().expect("a message");
        assert!(told.contains("lock order") && told.contains("Zone"), "{told}");
        drop(held);
        assert!(HostLocks::held().is_empty(), "a refused lock is still recorded");
    }
    // Both locks are free: they can be acquired in order.
    let _outer = outer.write();
    let _inner = inner.lock();
}

#[test]
#[cfg(debug_assertions)]
fn nested_locks_are_released_in_any_order() {
    let (parent, child) =
        (SpinLock::<_, rank::TableRank, HostLocks>::new(()), SpinLock::<_, rank::TableRank, HostLocks>::new(()));
    let (first, second) = (parent.lock(), child.lock());
    drop(first);
    assert_eq!(format!("{:?}", HostLocks::held()), r#"["TableRank"]"#);
    drop(second);
    assert!(HostLocks::held().is_empty());
}
