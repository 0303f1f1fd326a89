//! INV-LOCK-EXCL of the three locks, under every memory order.

use crate::backend::Loom;
use crate::tracked::Tracked;
use loom::sync::Arc;
use loom::thread;
use pagewright_sync::atomic::{AtomicBool, AtomicU32, Ordering};
use pagewright_sync::{Backend, RwLock, SpinLock, WordLock, rank};
use pagewright_types::Pfn;

/// Runs `body` on two threads, one of them the caller's.
fn on_two<T: Send + Sync + 'static>(shared: &Arc<T>, body: impl Fn(&T) + Send + Sync + Copy + 'static) {
    let other = Arc::clone(shared);
    let thread = thread::spawn(move || body(&other));
    body(shared);
    thread.join().expect("the other thread");
}

#[test]
fn a_spin_lock_orders_its_holders() {
    loom::model(|| {
        let lock = Arc::new(SpinLock::<_, rank::LedgerRank, Loom>::new(Tracked::new(0)));
        on_two(&lock, |lock| lock.lock().add_one());
        assert_eq!(lock.lock().get(), 2);
    });
}

#[test]
fn a_word_lock_orders_its_holders() {
    loom::model(|| {
        let record = Arc::new((AtomicU32::new(0), Tracked::new(0)));
        on_two(&record, |(word, value)| {
            let _held = WordLock::lock::<rank::TableRank, Loom>(word, Pfn::new(0));
            value.add_one();
        });
        assert!(!WordLock::is_locked(&record.0));
        let _held = WordLock::lock::<rank::TableRank, Loom>(&record.0, Pfn::new(0));
        assert_eq!(record.1.get(), 2);
    });
}

#[test]
fn writers_of_an_rw_lock_are_ordered() {
    loom::model(|| {
        let lock = Arc::new(RwLock::<_, rank::SpaceRank, Loom>::new(Tracked::new(0)));
        on_two(&lock, |lock| lock.write().add_one());
        assert_eq!(lock.read().get(), 2);
    });
}

/// A pair that a writer keeps equal.
type Pair = RwLock<(Tracked, Tracked), rank::SpaceRank, Loom>;

fn write_both(pair: &Pair) {
    let pair = pair.write();
    pair.0.add_one();
    pair.1.add_one();
}

/// Two threads, because loom lets two that spin yield to each other for ever, and a third starve.
#[test]
fn readers_of_an_rw_lock_see_whole_writes() {
    // Without a bound it takes a minute.
    let mut bounded = loom::model::Builder::new();
    bounded.preemption_bound = Some(3);
    bounded.check(|| {
        let lock = Arc::new(Pair::new((Tracked::new(0), Tracked::new(0))));
        // The writer may wait for this reader, and the later ones for the writer.
        let first = lock.read();
        let writer = {
            let lock = Arc::clone(&lock);
            thread::spawn(move || write_both(&lock))
        };
        if let Some(pair) = lock.try_read() {
            assert_eq!(pair.0.get(), pair.1.get());
        }
        drop(first);
        for _ in 0..2 {
            let pair = lock.read();
            assert_eq!(pair.0.get(), pair.1.get());
        }
        writer.join().expect("the writer");
        assert_eq!(lock.write().1.get(), 1);
    });
}

/// Checks the tests: loom must catch a spin lock without acquire ordering.
#[test]
#[should_panic(expected = "Causality violation")]
fn a_lock_without_acquire_ordering_is_caught() {
    loom::model(|| {
        let shared = Arc::new((AtomicBool::new(false), Tracked::new(0)));
        on_two(&shared, |(locked, value)| {
            while locked.swap(true, Ordering::Relaxed) {
                Loom::pause();
            }
            value.add_one();
            locked.store(false, Ordering::Release);
        });
    });
}
