//! Work that is spread over the cores of the host.

use crate::error::Error;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Does `work` for each index below `count`, on every core; stops at the first error.
pub(crate) fn on_every_core(count: usize, work: impl Fn(usize) -> Result<(), Error> + Sync) -> Result<(), Error> {
    let next = AtomicUsize::new(0);
    let error = Mutex::new(None);
    let worker = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return;
            }
            if let Err(failed) = work(index) {
                next.store(count, Ordering::Relaxed);
                *error.lock().expect("no worker panics with the lock") = Some(failed);
            }
        }
    };
    thread::scope(|scope| {
        (0..thread::available_parallelism().map_or(1, usize::from)).for_each(|_| {
            scope.spawn(worker);
        });
    });
    error.into_inner().expect("no worker panics with the lock").map_or(Ok(()), Err)
}
