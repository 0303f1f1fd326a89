//! Clocks of a thread.
//!
//! Key type: [`ThreadClock`]. A busy host takes the CPU away from a thread now and then, so a
//! measurement of stores reads the CPU time of the thread. Reading it costs more than reading the
//! monotonic clock, which is for short spans.
//!
//! Not guaranteed: that no other thread accessed memory at the same time.

use nix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// The time since a thread started this clock.
#[derive(Clone, Copy, Debug)]
pub struct ThreadClock {
    began: Instant,
    cpu_time: Option<Duration>,
}

impl ThreadClock {
    /// Starts a clock of monotonic time, for spans well below a millisecond.
    pub fn start() -> Self {
        Self { began: Instant::now(), cpu_time: None }
    }

    /// Starts a clock of this thread's CPU time.
    ///
    /// It reads monotonic time if the host does not report CPU time.
    pub fn start_cpu_time() -> Self {
        Self { began: Instant::now(), cpu_time: Self::cpu_time() }
    }

    /// The time since the clock was started.
    pub fn elapsed(&self) -> Duration {
        match (self.cpu_time, Self::cpu_time()) {
            (Some(began), Some(now)) => now.saturating_sub(began),
            (Some(_) | None, _) => self.began.elapsed(),
        }
    }

    /// The CPU time of this thread since it was created; `None` if the host does not report it.
    pub fn cpu_time() -> Option<Duration> {
        clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).ok().map(Duration::from)
    }
}
