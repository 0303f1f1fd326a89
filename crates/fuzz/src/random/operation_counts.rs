//! Counts of what random programs did, for the report.

use super::meetings::MEETINGS;
use pagewright_model::spec::{CallResult, FaultSignal};
use pagewright_types::{Access, Errno};
use std::collections::BTreeMap;
use std::ops::AddAssign;

/// Counts of accesses, calls and skipped operations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperationCounts {
    /// Accesses that reached memory: loads, stores, fetches.
    pub accesses: [u64; 3],
    /// Accesses that got a signal: not mapped, not allowed, past the end of the file, no memory.
    pub signals: [u64; 4],
    /// Calls by name and name of the errno, which is empty for success.
    pub calls: BTreeMap<(&'static str, &'static str), u64>,
    /// Operations that were skipped because they were impossible at that time.
    pub skipped: u64,
    /// Allocations that were made to fail.
    pub refused: u64,
    /// Operations after which everything was counted again.
    pub checked_steps: u64,
    /// Pages that pins unshared, took without a lock, and dropped because the entry changed.
    pub pins: [u64; 3],
    /// Of each of [`MEETINGS`], what the memory manager counted.
    pub(super) met: [u64; MEETINGS.len()],
}

impl OperationCounts {
    /// Accesses that were checked, including those that got a signal.
    pub fn checked(&self) -> u64 {
        self.accesses.iter().sum::<u64>() + self.signals.iter().sum::<u64>()
    }

    #[inline]
    pub(super) fn count_access(&mut self, access: Access) {
        self.accesses[access as usize] += 1;
    }

    pub(super) fn count_signal(&mut self, signal: FaultSignal) {
        self.signals[signal as usize] += 1;
    }

    pub(super) fn count_call(&mut self, name: &'static str, result: CallResult) {
        let errno = match result {
            CallResult::Failed(errno) => Errno::name(errno),
            CallResult::Done
            | CallResult::Mapped(_)
            | CallResult::Break(_)
            | CallResult::Child(_)
            | CallResult::Bytes(_)
            | CallResult::Number(_) => "",
        };
        *self.calls.entry((name, errno)).or_default() += 1;
    }

    pub(super) fn count_skipped(&mut self) {
        self.skipped += 1;
    }
}

impl AddAssign<&Self> for OperationCounts {
    fn add_assign(&mut self, other: &Self) {
        let add = |mine: &mut [u64], more: &[u64]| mine.iter_mut().zip(more).for_each(|(mine, more)| *mine += more);
        add(&mut self.accesses, &other.accesses);
        add(&mut self.signals, &other.signals);
        add(&mut self.pins, &other.pins);
        add(&mut self.met, &other.met);
        self.checked_steps += other.checked_steps;
        for (call, times) in &other.calls {
            *self.calls.entry(*call).or_default() += times;
        }
        self.skipped += other.skipped;
        self.refused += other.refused;
    }
}
