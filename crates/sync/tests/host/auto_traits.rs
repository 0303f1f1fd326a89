//! What the compiler must refuse: INV-LOCK-CPU, and guards and containers shared between CPUs.
//!
//! A type that has a trait which it must not have makes the call below ambiguous, so these tests
//! fail to compile.

use pagewright_sync::host::HostLocks;
use pagewright_sync::rank::{LedgerRank, SpaceRank, TableRank};
use pagewright_sync::{Arc, LinearMap, ReadGuard, RwLock, SpinGuard, SpinLock, WordGuard, WriteGuard};
use std::cell::Cell;
use std::rc::Rc;

/// Fails to compile if the type implements one of the traits.
macro_rules! has_none_of {
    ($kind:ty: $($bound:ident),+) => {$({
        trait Ambiguous<Which> {
            fn refused() {}
        }
        impl<T: ?Sized> Ambiguous<()> for T {}
        impl<T: ?Sized + $bound> Ambiguous<u8> for T {}
        <$kind as Ambiguous<_>>::refused();
    })+};
}

fn has_both<T: Send + Sync>() {}

#[test]
fn no_guard_leaves_the_cpu_that_acquired_its_lock() {
    has_none_of!(SpinGuard<'static, u32, LedgerRank, HostLocks>: Send, Sync);
    has_none_of!(SpinGuard<'static, Cell<u32>, LedgerRank, HostLocks>: Send, Sync);
    has_none_of!(ReadGuard<'static, u32, SpaceRank, HostLocks>: Send, Sync);
    has_none_of!(WriteGuard<'static, u32, SpaceRank, HostLocks>: Send, Sync);
    has_none_of!(WordGuard<'static, TableRank, HostLocks>: Send, Sync);
}

#[test]
fn cpus_share_a_lock_exactly_if_they_may_share_what_it_hands_out() {
    // A spin lock hands out the value to one CPU at a time, so `Send` is enough.
    has_both::<SpinLock<Cell<u32>, LedgerRank, HostLocks>>();
    has_none_of!(SpinLock<Rc<u32>, LedgerRank, HostLocks>: Send, Sync);
    // Readers share the value.
    has_both::<RwLock<u32, SpaceRank, HostLocks>>();
    has_none_of!(RwLock<Cell<u32>, SpaceRank, HostLocks>: Sync);
    has_none_of!(RwLock<Rc<u32>, SpaceRank, HostLocks>: Send, Sync);
    has_both::<Arc<u32>>();
    has_none_of!(Arc<Cell<u32>>: Send, Sync);
    has_none_of!(Arc<Rc<u32>>: Send, Sync);
}

/// INV-LINEAR-MAP: a second map of the same memory would clear it for a second owner.
#[test]
fn a_linear_map_is_not_copied() {
    has_none_of!(LinearMap: Copy, Clone);
}
