//! INV-LOCK-WRITER: readers do not keep a writer out.

use crate::backend::on_cpus;
use pagewright_sync::host::HostLocks;
use pagewright_sync::{Backend, RwLock, rank};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The tests of this file, which run side by side.
const TESTS: usize = 2;

/// The CPUs of each test that have waited for a lock, by their bits.
static WAITED: [AtomicU32; TESTS] = [const { AtomicU32::new(0) }; TESTS];

/// [`HostLocks`] that say which CPU of a test waits.
struct Watched<const TEST: usize>;

impl<const TEST: usize> Watched<TEST> {
    fn waits(cpu: u16) -> bool {
        WAITED[TEST].load(Ordering::Relaxed) & 1 << cpu != 0
    }

    fn wait_until_waits(cpu: u16, limit: Duration) {
        let start = Instant::now();
        while !Self::waits(cpu) {
            assert!(start.elapsed() < limit, "CPU {cpu} does not wait");
            thread::yield_now();
        }
    }
}

impl<const TEST: usize> Backend for Watched<TEST> {
    type Line = ();

    fn pause() {
        WAITED[TEST].fetch_or(1 << Self::cpu().raw(), Ordering::Relaxed);
        HostLocks::pause();
    }

    pagewright_sync::locks_of_threads!();
}

/// CPU 1 writes while CPU 0 reads, and CPU 2 reads again and again; each calls `begin` first.
///
/// CPU 2 must wait within `limit`.
fn writer_beside_readers<const TEST: usize>(limit: Duration, begin: impl Fn() + Sync) {
    let (lock, read, written) =
        (RwLock::<_, rank::SpaceRank, Watched<TEST>>::new(()), AtomicBool::new(false), AtomicBool::new(false));
    let (waits, patient) = (Watched::<TEST>::waits, Duration::from_secs(20));
    on_cpus(3, |cpu| {
        begin();
        match cpu.raw() {
            0 => {
                let _reading = lock.read();
                read.store(true, Ordering::Relaxed);
                Watched::<TEST>::wait_until_waits(1, patient);
                // If nothing makes it wait, CPU 2 reads on and on while this reader holds the lock.
                Watched::<TEST>::wait_until_waits(2, limit);
                assert!(lock.try_read().is_some(), "an attempt to read overtakes the writer");
                assert!(!written.load(Ordering::Relaxed));
            }
            1 => {
                while !read.load(Ordering::Relaxed) {
                    thread::yield_now();
                }
                let _writing = lock.write();
                written.store(true, Ordering::Relaxed);
            }
            _ => {
                Watched::<TEST>::wait_until_waits(1, patient);
                let start = Instant::now();
                while !waits(2) && start.elapsed() < limit {
                    drop(lock.read());
                }
                assert!(written.load(Ordering::Relaxed), "the reader that waits comes after the writer");
            }
        }
    });
}

#[test]
fn readers_that_keep_coming_wait_for_a_writer() {
    writer_beside_readers::<0>(Duration::from_secs(20), || {});
}

#[cfg(feature = "planted")]
#[test]
fn a_writer_that_readers_keep_out_is_found() {
    use pagewright_plant::{PlantedBug, assert_found_by, choose};
    assert_found_by(PlantedBug::WriterKeptOut, || {
        writer_beside_readers::<1>(Duration::from_millis(200), || choose(Some(PlantedBug::WriterKeptOut)));
    });
}
