//! INV-LOCK-EXCL under threads: a read, a pause and a write lose updates without mutual exclusion.

use crate::backend::on_cpus;
use core::sync::atomic::{AtomicU32, Ordering};
use pagewright_sync::host::HostLocks;
use pagewright_sync::{RwLock, SpinLock, WordLock, rank};
use pagewright_types::Pfn;
use std::hint::black_box;
use std::thread;

const CPUS: u16 = 4;
const ROUNDS: u64 = if cfg!(miri) { 40 } else { 2_000 };

/// Adds one in two steps, and lets other threads run between them every few rounds.
fn add_one(value: &mut u64, round: u64) {
    let before = black_box(*value);
    if round.is_multiple_of(16) {
        thread::yield_now();
    }
    *value = black_box(before + 1);
}

#[test]
fn a_spin_lock_loses_no_update() {
    let lock = SpinLock::<_, rank::LedgerRank, HostLocks>::new(0);
    on_cpus(CPUS, |_| (0..ROUNDS).for_each(|round| add_one(&mut lock.lock(), round)));
    assert_eq!(*lock.lock(), u64::from(CPUS) * ROUNDS);
}

#[test]
fn a_panic_releases_a_spin_lock() {
    let mut lock = SpinLock::<_, rank::LedgerRank, HostLocks>::new(1);
    let died = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut guard = lock.lock();
        *guard = 2;
        panic!("while holding");
    }));
    assert!(died.is_err());
    assert_eq!(*lock.lock(), 2);
    assert_eq!(*lock.get_mut(), 2);
}

#[test]
fn writers_exclude_writers_and_readers_see_whole_writes() {
    // A writer keeps the two equal; a reader that overlaps a writer sees them differ.
    let mut lock = RwLock::<_, rank::SpaceRank, HostLocks>::new((0, 0));
    on_cpus(CPUS, |cpu| {
        for round in 0..ROUNDS {
            if cpu.raw().is_multiple_of(2) {
                let mut pair = lock.write();
                add_one(&mut pair.0, round);
                pair.1 += 1;
            } else {
                let pair = lock.read();
                assert_eq!(black_box(pair.0), black_box(pair.1));
            }
        }
    });
    assert_eq!(*lock.get_mut(), (u64::from(CPUS / 2) * ROUNDS, u64::from(CPUS / 2) * ROUNDS));
}

#[test]
fn readers_share_an_rw_lock() {
    let lock = RwLock::<_, rank::SpaceRank, HostLocks>::new(());
    let inside = std::sync::Barrier::new(usize::from(CPUS));
    // If readers excluded each other, the first would wait here for ever.
    on_cpus(CPUS, |_| {
        let _reading = lock.read();
        inside.wait();
    });
    let _writing = lock.write();
}

#[test]
fn a_word_lock_excludes() {
    struct Record {
        word: AtomicU32,
        value: SplitCounter,
    }
    let record = Record { word: AtomicU32::new(0), value: SplitCounter::default() };
    on_cpus(CPUS, |_| {
        for round in 0..ROUNDS {
            let _held = WordLock::lock::<rank::TableRank, HostLocks>(&record.word, Pfn::new(0));
            assert!(WordLock::is_locked(&record.word));
            record.value.add_one(round);
        }
    });
    assert!(!WordLock::is_locked(&record.word));
    assert_eq!(record.value.get(), u64::from(CPUS) * ROUNDS);
}

/// A counter that loses updates without a lock, although each access is atomic.
#[derive(Default)]
struct SplitCounter(std::sync::atomic::AtomicU64);

impl SplitCounter {
    fn add_one(&self, round: u64) {
        let mut value = self.get();
        add_one(&mut value, round);
        self.0.store(value, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
