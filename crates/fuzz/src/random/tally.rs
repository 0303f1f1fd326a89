//! What random programs did, for the report.

use pagewright_model::spec::{CallResult, FaultSignal};
use pagewright_types::{Access, Errno};
use std::collections::BTreeMap;
use std::ops::AddAssign;

/// Counts of what was done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Accesses that reached memory, each compared with the reference memory: loads, stores,
    /// fetches.
    pub accesses: [u64; 3],
    /// Accesses that got a signal: not mapped, not allowed, past the end, no memory.
    pub signals: [u64; 4],
    /// Calls by name and answer: the errno's name, or nothing.
    pub calls: BTreeMap<(&'static str, &'static str), u64>,
    /// Operations that could not be done at that moment, and were left out.
    pub left_out: u64,
    /// Allocations refused.
    pub refused: u64,
}

impl Done {
    /// Accesses that were compared, signals included.
    pub fn checked(&self) -> u64 {
        self.accesses.iter().sum::<u64>() + self.signals.iter().sum::<u64>()
    }

    #[inline]
    pub(super) fn accessed(&mut self, access: Access) {
        self.accesses[access as usize] += 1;
    }

    pub(super) fn signalled(&mut self, signal: FaultSignal) {
        self.signals[signal as usize] += 1;
    }

    pub(super) fn called(&mut self, name: &'static str, answer: CallResult) {
        let errno = match answer {
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

    pub(super) fn leave_out(&mut self) {
        self.left_out += 1;
    }
}

impl AddAssign<&Self> for Done {
    fn add_assign(&mut self, other: &Self) {
        let add = |mine: &mut [u64], more: &[u64]| mine.iter_mut().zip(more).for_each(|(mine, more)| *mine += more);
        add(&mut self.accesses, &other.accesses);
        add(&mut self.signals, &other.signals);
        for (call, times) in &other.calls {
            *self.calls.entry(*call).or_default() += times;
        }
        self.left_out += other.left_out;
        self.refused += other.refused;
    }
}
