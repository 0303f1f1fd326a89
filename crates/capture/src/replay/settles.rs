//! The waits of operations in which an allocation settled parked frames.
//!
//! Key type: [`SettleReport`]. An operation is an access with its faults, a memory call, or a round
//! of background reclaim. Its wait is known as the settle's only if it waited for no other flush.
//!
//! Not guaranteed: that each wait is of one settle. An operation may allocate several times.

use super::engine::Engine;
use pagewright_arch::Isa;
use pagewright_lab::Lab;
use pagewright_sim::MachineEvent;
use pagewright_types::{Counter, CpuId};

/// The modelled waits of operations in which an allocation settled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SettleReport {
    /// The waits in picoseconds, in the order of the operations.
    pub waits_ps: Vec<u64>,
    /// Operations that also waited for other flushes; their waits are not in `waits_ps`.
    pub mixed: u64,
}

impl SettleReport {
    /// The wait that `percent` of the operations do not exceed, in picoseconds (nearest rank).
    pub fn percentile(&self, percent: usize) -> Option<u64> {
        let mut sorted = self.waits_ps.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() * percent).div_ceil(100).max(1);
        sorted.get(rank - 1).copied()
    }
}

/// What a CPU has counted before an operation.
#[derive(Clone, Copy)]
pub(super) struct SettleMark {
    settles: u64,
    settle_flushes: u64,
    flushes: u64,
    wait_ps: u64,
}

impl SettleMark {
    #[inline]
    fn of<I: Isa>(lab: &Lab<I>, cpu: CpuId) -> Self {
        let counters = lab.mm().tlb().frames().counters();
        Self {
            settles: counters.of(cpu, Counter::PwTlbSettleOnAlloc),
            settle_flushes: counters.of(cpu, Counter::PwTlbSettleWaits),
            flushes: counters.of(cpu, Counter::NrTlbRemoteFlush),
            wait_ps: lab.sim().count(cpu, MachineEvent::FlushWaitTime),
        }
    }
}

impl<I: Isa> Engine<'_, I> {
    /// What `cpu` has counted before an operation that [`Self::note_settle`] ends.
    #[inline]
    pub(super) fn mark_settles(&self, cpu: CpuId) -> SettleMark {
        SettleMark::of(self.lab, cpu)
    }

    /// Notes the wait of an operation of `cpu`, if an allocation in it settled.
    #[inline]
    pub(super) fn note_settle(&mut self, cpu: CpuId, before: SettleMark) {
        let after = SettleMark::of(self.lab, cpu);
        if after.settles == before.settles {
            return;
        }
        if after.flushes - before.flushes == after.settle_flushes - before.settle_flushes {
            self.settles.waits_ps.push(after.wait_ps - before.wait_ps);
        } else {
            self.settles.mixed += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_a_wait_that_was_counted() {
        let report = SettleReport { waits_ps: (1..=200).rev().collect(), mixed: 0 };
        assert_eq!([50, 99, 100].map(|percent| report.percentile(percent)), [100, 198, 200].map(Some));
        let one = SettleReport { waits_ps: vec![7], mixed: 0 };
        assert_eq!([1, 99].map(|percent| one.percentile(percent)), [Some(7); 2]);
        assert_eq!(SettleReport::default().percentile(99), None);
    }
}
