//! INV-LOCK-WRITER: readers do not keep a writer out.

use crate::backend::on_cpus;
use pagewright_sync::host::HostLocks;
use pagewright_sync::{Backend, RwLock, rank};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The CPUs that have waited for a lock, by their bits.
static WAITED: AtomicU32 = AtomicU32::new(0);

/// [`HostLocks`] that say which CPU waits.
struct Watched;

impl Backend for Watched {
    type Line = ();

    fn pause() {
        WAITED.fetch_or(1 << Self::cpu().raw(), Ordering::Relaxed);
        HostLocks::pause();
    }

    pagewright_sync::locks_of_threads!();
}

fn waits(cpu: u16) -> bool {
    WAITED.load(Ordering::Relaxed) & 1 << cpu != 0
}

fn wait_until_waits(cpu: u16) {
    let start = Instant::now();
    while !waits(cpu) {
        assert!(start.elapsed() < Duration::from_secs(20), "CPU {cpu} does not wait");
        thread::yield_now();
    }
}

#[test]
fn readers_that_keep_coming_wait_for_a_writer() {
    let (lock, read, written) =
        (RwLock::<_, rank::SpaceRank, Watched>::new(()), AtomicBool::new(false), AtomicBool::new(false));
    on_cpus(3, |cpu| match cpu.raw() {
        0 => {
            let _reading = lock.read();
            read.store(true, Ordering::Relaxed);
            wait_until_waits(1);
            // If nothing makes it wait, CPU 2 reads for ever while this reader holds the lock.
            wait_until_waits(2);
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
            wait_until_waits(1);
            while !waits(2) {
                drop(lock.read());
            }
            assert!(written.load(Ordering::Relaxed), "the reader that waits comes after the writer");
        }
    });
}
