//! Time as a thread sees it.
//!
//! Key type: [`ThreadClock`]. A busy computer takes the CPU away now and then; the time that a thread was
//! running is what its stores took. Short spans are read off the monotonic clock, which costs less
//! than they do.
//!
//! Not guaranteed: that memory was not busy with somebody else's stores.

use nix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// How long a thread has been at it.
#[derive(Clone, Copy, Debug)]
pub struct ThreadClock {
    began: Instant,
    running: Option<Duration>,
}

impl ThreadClock {
    /// A clock of all time that passes, for spans well below a millisecond.
    pub fn start() -> Self {
        Self { began: Instant::now(), running: None }
    }

    /// A clock of the time for which this thread runs; of all time where the host does not tell.
    pub fn start_running() -> Self {
        Self { began: Instant::now(), running: Self::running() }
    }

    /// How much of it has passed.
    pub fn elapsed(&self) -> Duration {
        match (self.running, Self::running()) {
            (Some(began), Some(now)) => now.saturating_sub(began),
            (Some(_) | None, _) => self.began.elapsed(),
        }
    }

    /// For how long this thread has run since it began.
    pub fn running() -> Option<Duration> {
        clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).ok().map(Duration::from)
    }
}
