//! The period of scans, which adapts to what the hint faults find (`update_task_scan_period`).
//!
//! Key type: [`NumaScan`], the state of the scans of a space.
//!
//! After each round over the whole space, the faults of the round decide. If most were by the CPU
//! that used the page last, or most found the page on the node of the CPU, there is little to gain:
//! the period grows. Otherwise it shrinks. A round without useful faults doubles it.
//!
//! Protocol: words that several CPUs change without a lock, as in Linux. A lost update moves one
//! decision to the next round.

use crate::mm::Mm;
use crate::settings::MmSetting;
use crate::space::Space;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use pagewright_sync::Platform;
use pagewright_types::{PAGE_SIZE, VirtAddr};

/// The steps into which a period is divided (`NUMA_PERIOD_SLOTS`).
const SLOTS: u64 = 10;
/// From how many of them on faults say that there is little to gain (`NUMA_PERIOD_THRESHOLD`).
const THRESHOLD: u64 = 7;
/// The most that is scanned in a second, in MB (`MAX_SCAN_WINDOW`).
const MAX_SCAN_WINDOW: u64 = 2560;

/// What a hint fault found; the faults of a round are counted by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum HintFault {
    /// The page was on the node of the CPU.
    Local,
    /// The page was on another node.
    Remote,
    /// The CPU was the last to use the page, or nothing was known.
    Private,
    /// Another CPU used the page last.
    Shared,
    /// The page should have moved, and did not.
    Failed,
}

/// The state of the scans of a space (`mm->numa_next_scan` and its kin).
#[derive(Debug, Default)]
pub(crate) struct NumaScan {
    /// When the next part is due, in ms; 0 before the first tick.
    due_ms: AtomicU64,
    /// The time between parts, in ms; 0 before the first part.
    period_ms: AtomicU64,
    /// Where the next part begins.
    next: AtomicU64,
    /// The rounds over the whole space that are done (`numa_scan_seq`).
    rounds: AtomicU32,
    /// The round after which the period was adapted last.
    adapted: AtomicU32,
    /// The faults since then, by [`HintFault`].
    faults: [AtomicU64; 5],
}

impl NumaScan {
    /// Where the next part begins.
    pub(super) fn next(&self) -> VirtAddr {
        VirtAddr::new(self.next.load(Ordering::Relaxed))
    }

    /// Notes where the next part begins; `None` if the round is done (`reset_ptenuma_scan`).
    pub(super) fn set_next(&self, next: Option<VirtAddr>) {
        if next.is_none() {
            self.rounds.fetch_add(1, Ordering::Relaxed);
        }
        self.next.store(next.unwrap_or_default().raw(), Ordering::Relaxed);
    }

    fn faults(&self, kind: HintFault) -> u64 {
        self.faults[kind as usize].load(Ordering::Relaxed)
    }
}

/// The bounds of a period, in ms.
#[derive(Clone, Copy)]
struct PeriodBounds {
    min: u64,
    max: u64,
}

impl<P: Platform> Mm<P> {
    /// The bounds of the period of a space (`task_scan_min`, `task_scan_max`).
    ///
    /// A space of several parts has a shorter period, so that a round takes as long.
    fn period_bounds(&self, space: &Space<P>) -> PeriodBounds {
        let size_mb = self.settings.get(MmSetting::NumaScanSizeMb);
        let part = (size_mb << 20) / PAGE_SIZE;
        let resident = space.rss().pages().max(1);
        let parts = resident.div_ceil(part);
        let windows = (MAX_SCAN_WINDOW / size_mb).max(1);
        let min = (self.settings.get(MmSetting::NumaScanPeriodMinMs) / parts).max(1000 / windows).max(1);
        let max = self.settings.get(MmSetting::NumaScanPeriodMaxMs) / parts;
        PeriodBounds { min, max: max.max(min) }
    }

    /// Whether a part is due at `now`; if so, the next one is due a period later.
    ///
    /// Of several CPUs that ask at once, one is told that it is.
    pub(super) fn part_is_due(&self, space: &Space<P>, now: u64) -> bool {
        let scan = space.numa();
        let due = scan.due_ms.load(Ordering::Relaxed);
        if due == 0 {
            let first = now + self.settings.get(MmSetting::NumaScanDelayMs);
            scan.due_ms.store(first.max(1), Ordering::Relaxed);
            return false;
        }
        if now < due {
            return false;
        }
        if scan.period_ms.load(Ordering::Relaxed) == 0 {
            scan.period_ms.store(self.period_bounds(space).min, Ordering::Relaxed);
        }
        let next = now + scan.period_ms.load(Ordering::Relaxed).max(1);
        scan.due_ms.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Counts what a hint fault found; adapts the period once a round is done (`task_numa_fault`).
    pub(crate) fn note_hint_fault(&self, space: &Space<P>, found: &[HintFault]) {
        let scan = space.numa();
        for kind in found {
            scan.faults[*kind as usize].fetch_add(1, Ordering::Relaxed);
        }
        let rounds = scan.rounds.load(Ordering::Relaxed);
        if scan.adapted.swap(rounds, Ordering::Relaxed) != rounds {
            self.adapt_period(space);
        }
    }

    fn adapt_period(&self, space: &Space<P>) {
        let (scan, bounds) = (space.numa(), self.period_bounds(space));
        let period = scan.period_ms.load(Ordering::Relaxed);
        let [local, remote, private, shared] =
            [HintFault::Local, HintFault::Remote, HintFault::Private, HintFault::Shared].map(|kind| scan.faults(kind));
        // Nothing is to be gained by scans, or the pages cannot move.
        let is_useless = local + shared == 0 || scan.faults(HintFault::Failed) > 0;
        let adapted = if is_useless {
            (period * 2).min(bounds.max)
        } else {
            let slots = adapted_by(tenths(local, remote), tenths(private, shared));
            let step = period.div_ceil(SLOTS);
            period.saturating_add_signed(slots * step as i64).clamp(bounds.min, bounds.max)
        };
        scan.period_ms.store(adapted, Ordering::Relaxed);
        if is_useless {
            scan.due_ms.store(self.now_ms() + adapted, Ordering::Relaxed);
        }
        scan.faults.iter().for_each(|count| count.store(0, Ordering::Relaxed));
    }
}

/// How many of ten faults were of the first kind.
fn tenths(of: u64, others: u64) -> u64 {
    (of * SLOTS).checked_div(of + others).unwrap_or(0)
}

/// By how many tenths the period grows, or shrinks.
fn adapted_by(local: u64, private: u64) -> i64 {
    let grows = |tenths: u64| (tenths >= THRESHOLD).then(|| (tenths - THRESHOLD).max(1) as i64);
    grows(private).or(grows(local)).unwrap_or_else(|| -((THRESHOLD - local.max(private)) as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `update_task_scan_period`.
    #[test]
    fn the_period_grows_where_little_is_to_be_gained() {
        let cases = [((0, 10), 3), ((0, 7), 1), ((0, 8), 1), ((10, 0), 3), ((9, 6), 2), ((0, 0), -7), ((6, 2), -1)];
        for ((local, private), slots) in cases {
            assert_eq!(adapted_by(local, private), slots, "{local} of ten local, {private} private");
        }
        assert_eq!((tenths(0, 0), tenths(1, 2), tenths(5, 0)), (0, 3, 10));
    }
}
