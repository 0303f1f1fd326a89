//! A lock that survives a fork, and the turns of threads.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A lock whose holder may be missing after a fork.
pub(crate) struct ForkLock {
    held: AtomicU32,
    waiting: AtomicU32,
}

impl ForkLock {
    pub(crate) const fn new() -> Self {
        Self { held: AtomicU32::new(0), waiting: AtomicU32::new(0) }
    }

    /// Acquires the lock; `false` if that took longer than `limit`.
    pub(crate) fn acquire(&self, limit: Option<Duration>) -> bool {
        if self.try_acquire() {
            return true;
        }
        let start = Instant::now();
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let acquired = loop {
            if self.try_acquire() {
                break true;
            }
            if limit.is_some_and(|limit| start.elapsed() >= limit) {
                break false;
            }
            let pause = libc::timespec { tv_sec: 0, tv_nsec: 5_000_000 };
            let (word, wait) = (self.held.as_ptr(), libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG);
            // SAFETY: the word and the time are valid for the call.
            unsafe { libc::syscall(libc::SYS_futex, word, wait, 1, &raw const pause) };
        };
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        acquired
    }

    /// Releases the lock, and wakes a thread that waits for it.
    pub(crate) fn release(&self) {
        self.held.store(0, Ordering::SeqCst);
        if self.is_wanted() {
            let (word, wake) = (self.held.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG);
            // SAFETY: the word is valid for the call.
            unsafe { libc::syscall(libc::SYS_futex, word, wake, 1) };
        }
    }

    /// Whether a thread waits.
    pub(crate) fn is_wanted(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// Releases the lock for a moment in which another thread can take it.
    pub(crate) fn offer(&self) {
        self.release();
        let start = Instant::now();
        while self.held.load(Ordering::SeqCst) == 0 && start.elapsed() < Duration::from_millis(2) {
            std::thread::yield_now();
        }
    }

    /// Makes the lock free, in a forked child, whose only thread calls this.
    pub(crate) fn reset(&self) {
        self.held.store(0, Ordering::SeqCst);
        self.waiting.store(0, Ordering::SeqCst);
    }

    fn try_acquire(&self) -> bool {
        self.held.compare_exchange(0, 1, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_with_a_limit_ends() {
        let lock = ForkLock::new();
        assert!(lock.acquire(None));
        assert!(!lock.acquire(Some(Duration::from_millis(1))));
        lock.release();
        assert!(lock.acquire(Some(Duration::ZERO)) && !lock.is_wanted());
        lock.reset();
        assert!(lock.acquire(Some(Duration::ZERO)));
    }
}
