//! The time of its own that a program has spent, which does not depend on other programs.

use std::time::Duration;

/// What the processes of a program did since they started, as the system counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    /// The time in which they ran.
    pub(super) ran: Duration,
    /// The time in which they could run and waited for a CPU.
    pub(super) waited: Duration,
}

/// The time of its own that a program has spent since its last progress, and what it may spend.
#[derive(Debug)]
pub(super) struct OwnTime {
    allowed: Duration,
    spent: Duration,
    last: Usage,
}

impl OwnTime {
    pub(super) fn new(allowed: Duration) -> Self {
        Self { allowed, spent: Duration::ZERO, last: Usage::default() }
    }

    /// Adds what the program spent in `interval`; returns whether it may spend no more.
    ///
    /// A count may fall, when a process ends whose parent has ended before; then nothing is known
    /// of the interval, which counts as if the program had slept.
    pub(super) fn spend(&mut self, interval: Duration, usage: Usage) -> bool {
        let ran = usage.ran.saturating_sub(self.last.ran);
        let waited = usage.waited.saturating_sub(self.last.waited);
        self.last = usage;
        // Several threads may run, and others of them wait, in one interval.
        self.spent += interval.saturating_sub(waited).max(ran.min(interval));
        self.spent >= self.allowed
    }

    /// What the program may spend.
    pub(super) fn allowed(&self) -> Duration {
        self.allowed
    }

    /// The program has made progress.
    pub(super) fn restart(&mut self) {
        self.spent = Duration::ZERO;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const ALLOWED: u32 = 60;

    /// The number of seconds after which a program may spend no more, of `seconds` at most.
    ///
    /// It runs and waits for so many milliseconds of each second.
    fn stuck_after(ran: u64, waited: u64, seconds: u32) -> Option<u32> {
        let mut own = OwnTime::new(SECOND * ALLOWED);
        let (ran, waited) = (Duration::from_millis(ran), Duration::from_millis(waited));
        (1..=seconds).find(|second| own.spend(SECOND, Usage { ran: ran * *second, waited: waited * *second }))
    }

    // INV-WATCH-OWN
    #[test]
    fn sleep_and_running_are_spent_and_waiting_for_a_cpu_is_not() {
        assert_eq!(stuck_after(0, 0, 1000), Some(ALLOWED), "it sleeps");
        assert_eq!(stuck_after(1000, 0, 1000), Some(ALLOWED), "it spins");
        assert_eq!(stuck_after(500, 0, 1000), Some(ALLOWED), "it runs and sleeps");
        assert_eq!(stuck_after(10, 990, 5999), None, "it has a hundredth of a CPU");
        assert_eq!(stuck_after(10, 990, 6000), Some(6000), "it has used as much as on an idle machine");
    }

    // INV-WATCH-OWN
    #[test]
    fn threads_that_wait_do_not_hide_one_that_spins() {
        assert_eq!(stuck_after(1000, 3000, 1000), Some(ALLOWED), "one of four threads has the CPU");
        assert_eq!(stuck_after(4000, 0, 1000), Some(ALLOWED), "four CPUs spend no more than one");
    }

    // INV-WATCH-OWN
    #[test]
    fn progress_gives_a_program_its_time_anew() {
        let mut own = OwnTime::new(SECOND * 2);
        for second in 1..100 {
            assert!(!own.spend(SECOND, Usage { ran: SECOND * second, waited: Duration::ZERO }));
            own.restart();
        }
        assert!(!own.spend(SECOND, Usage::default()), "the count falls when an orphan ends");
        assert!(own.spend(SECOND, Usage::default()));
    }
}
