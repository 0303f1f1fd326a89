//! INV-ARC-COUNT, on one thread and on several.

use crate::backend::on_cpus;
use pagewright_sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

struct CountsDrops<'a>(&'a AtomicU32);

impl Drop for CountsDrops<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn the_last_handle_drops_the_value_once() {
    let drops = AtomicU32::new(0);
    let first = Arc::try_new(CountsDrops(&drops)).expect("memory");
    let second = first.clone();
    assert!(first.ptr_eq(&second));
    drop(first);
    assert_eq!(drops.load(Ordering::Relaxed), 0);
    drop(second);
    assert_eq!(drops.load(Ordering::Relaxed), 1);
}

#[test]
fn ptr_eq_compares_identity_and_not_value() {
    let (a, b) = (Arc::try_new(7).expect("memory"), Arc::try_new(7).expect("memory"));
    assert!(!a.ptr_eq(&b));
    assert_eq!(*a, *b);
}

#[test]
fn concurrent_clones_and_drops_drop_the_value_once() {
    let drops = AtomicU32::new(0);
    let shared = Arc::try_new(CountsDrops(&drops)).expect("memory");
    on_cpus(4, |_| {
        for _ in 0..if cfg!(miri) { 50 } else { 1_000 } {
            let clone = shared.clone();
            assert_eq!(clone.0.load(Ordering::Relaxed), 0);
        }
    });
    drop(shared);
    assert_eq!(drops.load(Ordering::Relaxed), 1);
}
