//! Backends whose `held` is wrong are named in the message of the panic (INV-LOCK-ORDER).
#![cfg(debug_assertions)]

use pagewright_sync::host::{HostLocks, on_cpu};
use pagewright_sync::{Backend, HeldRanks, RankSet, SpinLock, rank};
use pagewright_types::CpuId;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The message of the panic of `violate`.
fn message(violate: impl FnOnce()) -> String {
    let told = catch_unwind(AssertUnwindSafe(violate)).expect_err("a panic");
    *told.downcast::<String>().expect("a message")
}

/// A backend that loses what `set_held` stores.
struct Forgetful;

impl Backend for Forgetful {
    type Line = ();

    fn pause() {}

    fn cpu() -> CpuId {
        CpuId::new(2)
    }

    fn held() -> RankSet {
        RankSet::EMPTY
    }

    fn set_held(_: RankSet) {}
}

#[test]
fn a_backend_that_stores_no_ranks_is_told_that_held_is_wrong() {
    let lock = SpinLock::<_, rank::ZoneRank, Forgetful>::new(());
    let told = message(|| drop(lock.lock()));
    assert!(
        told.starts_with("`Backend::held` of ") && told.contains("Forgetful is wrong: CPU 2 releases ZoneRank"),
        "{told}"
    );
    assert!(told.ends_with("it must return what `Backend::set_held` stored last on this CPU"), "{told}");
}

/// A backend whose CPUs, which are threads, share one set of ranks.
struct Shared;

static OF_ALL_CPUS: HeldRanks = HeldRanks::new();

impl Backend for Shared {
    type Line = ();

    fn pause() {}

    fn cpu() -> CpuId {
        HostLocks::cpu()
    }

    fn held() -> RankSet {
        OF_ALL_CPUS.get()
    }

    fn set_held(held: RankSet) {
        OF_ALL_CPUS.set(held);
    }
}

#[test]
fn a_backend_whose_cpus_share_their_ranks_is_told_that_held_may_be_wrong() {
    let (zone, space) =
        (SpinLock::<_, rank::ZoneRank, Shared>::new(()), SpinLock::<_, rank::SpaceRank, Shared>::new(()));
    let _zone = zone.lock();
    let told = on_cpu(CpuId::new(1), || message(|| drop(space.lock())));
    assert!(told.starts_with("lock order: SpaceRank acquired on CPU 1 while [\"ZoneRank\"] is held"), "{told}");
    assert!(told.contains("`Backend::held` of ") && told.ends_with("Shared returns the set of another CPU"), "{told}");
}
