//! The log of a run: which agent did what, step by step.

use super::point::StopPoint;
use pagewright_arch::InvalidateTarget;
use pagewright_types::{CpuId, PhysAddr, VirtAddr};
use std::fmt;

/// What an agent did in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepAction {
    /// A CPU passed this stop point.
    Executed(StopPoint),
    /// A CPU took an interrupt, and remains at its stop point.
    TookInterrupt,
    /// A store to this word became visible to walkers.
    Drained(PhysAddr),
    /// A broadcast invalidation arrived at the CPU.
    Delivered(InvalidateTarget),
    /// A speculative walk took this step.
    SpeculativeWalk(StopPoint),
    /// A speculative walk began.
    SpeculationStarted(VirtAddr),
    /// An entry of a TLB or walk cache was evicted.
    Evicted,
    /// One of several conflicting translations was used, with this number.
    Picked(u32),
}

/// One step of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduleStep {
    /// The number of the step, counted from 1.
    ///
    /// A [`StepAction::Picked`] has the number of the step in which it happened.
    pub at: u32,
    /// The CPU of the agent.
    pub cpu: CpuId,
    /// What the agent did.
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
                write!(f, "CPU {cpu} begins a speculative walk for {va}")
            }
            StepAction::Evicted => write!(f, "CPU {cpu} evicts an entry of a TLB or walk cache"),
            StepAction::Picked(way) => write!(f, "CPU {cpu} uses conflicting translation {way}"),
        }
    }
}
