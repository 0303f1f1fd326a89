//! The log of a run: which agent did what, step by step.

use super::point::StopPoint;
use pagewright_arch::InvalidateTarget;
use pagewright_types::{CpuId, PhysAddr, VirtAddr};
use std::fmt;

/// What an agent did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepAction {
    /// A CPU did what it stood before.
    Executed(StopPoint),
    /// A CPU took an interrupt, before what it stood before.
    TookInterrupt,
    /// A store to this word became visible to walkers.
    Drained(PhysAddr),
    /// A broadcast invalidation arrived.
    Delivered(InvalidateTarget),
    /// A speculative walk took this step.
    SpeculativeWalk(StopPoint),
    /// A speculative walk began.
    SpeculationStarted(VirtAddr),
    /// An entry was evicted.
    Evicted,
    /// A translation was picked among several that contradict each other.
    Picked(u32),
}

/// One step of a run, for whoever explains it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduleStep {
    /// Which step of the run, counted from 1.
    ///
    /// What was picked in a step has its number.
    pub at: u32,
    /// Where.
    pub cpu: CpuId,
    /// What.
    pub action: StepAction,
}

impl fmt::Display for ScheduleStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cpu = self.cpu;
        match self.action {
            StepAction::Executed(point) => write!(f, "CPU {cpu} {point}"),
            StepAction::TookInterrupt => write!(f, "CPU {cpu} takes an interrupt"),
            StepAction::Drained(at) => write!(f, "CPU {cpu}'s store to {at} becomes visible to walkers"),
            StepAction::Delivered(target) => write!(f, "the invalidation of {target:?} arrives at CPU {cpu}"),
            StepAction::SpeculativeWalk(point) => write!(f, "CPU {cpu} speculates: {point}"),
            StepAction::SpeculationStarted(va) => {
                write!(f, "CPU {cpu} begins to walk for {va}, which nobody asked for")
            }
            StepAction::Evicted => write!(f, "CPU {cpu} evicts an entry"),
            StepAction::Picked(way) => write!(f, "CPU {cpu} uses translation {way} of several"),
        }
    }
}
