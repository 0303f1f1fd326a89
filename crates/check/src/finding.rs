//! What a run can come to that is wrong.

use pagewright_model::{CpuStep, Rule, SpecMismatch, Violation, ViolationKind};
use pagewright_sim::explore::{RunEnd, StopPoint};
use pagewright_types::CpuId;
use std::fmt;

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckFinding {
    /// The oracle, or the reference memory, reports.
    Violation(Violation),
    /// Nobody can go on.
    ///
    /// What each CPU stands before.
    Deadlock {
        /// By CPU.
        stopped_at: Vec<(CpuId, StopPoint)>,
    },
    /// A program panicked.
    Panicked {
        /// Where.
        cpu: CpuId,
        /// Place and message.
        message: String,
    },
    /// The programs did not end within the steps that were given to them.
    StepLimit,
    /// An assertion of whoever set the run up does not hold.
    Reported(String),
}

impl CheckFinding {
    /// The oracle's rule that is broken, if it is one.
    pub fn rule(&self) -> Option<Rule> {
        match self {
            Self::Violation(violation) => Some(violation.rule),
            Self::Deadlock { .. } | Self::Panicked { .. } | Self::StepLimit | Self::Reported(_) => None,
        }
    }

    /// Whether `other` is a finding of the same kind; for violations, of the same rule.
    pub fn is_like(&self, other: &Self) -> bool {
        self.rule() == other.rule() && std::mem::discriminant(self) == std::mem::discriminant(other)
    }

    /// The same with other numbers for the oracle's steps.
    pub(crate) fn by(&self, at: &dyn Fn(u64) -> u64) -> Self {
        match self {
            Self::Violation(violation) => Self::Violation(renumbered(violation.clone(), at)),
            Self::Deadlock { .. } | Self::Panicked { .. } | Self::StepLimit | Self::Reported(_) => self.clone(),
        }
    }

    /// What the end of a run says, if it is bad.
    pub(crate) fn of_run_end(end: &RunEnd) -> Option<Self> {
        match end {
            RunEnd::Completed | RunEnd::Stopped => None,
            RunEnd::Deadlock { stopped_at } => Some(Self::Deadlock { stopped_at: stopped_at.clone() }),
            RunEnd::Panicked { cpu, message } => Some(Self::Panicked { cpu: *cpu, message: message.clone() }),
            RunEnd::StepLimit => Some(Self::StepLimit),
        }
    }
}

fn renumbered(mut violation: Violation, at: &dyn Fn(u64) -> u64) -> Violation {
    let dids: [Option<&mut CpuStep>; 2] = match &mut violation.kind {
        ViolationKind::ReusedFrameReachable { block, .. } => [block.freed.as_mut(), Some(&mut block.reused)],
        ViolationKind::FreeFrameStored { freed, .. } => [Some(freed), None],
        ViolationKind::RightKept { reduced, returned, .. } | ViolationKind::RightUsed { reduced, returned, .. } => {
            [Some(reduced), Some(returned)]
        }
        ViolationKind::Unpublished { reduced, .. } => [Some(reduced), None],
        ViolationKind::Memory(SpecMismatch::Access { stored, changed, .. }) => {
            [stored.as_mut(), changed.as_mut().map(|(did, _)| did)]
        }
        ViolationKind::Memory(SpecMismatch::Call { .. }) | ViolationKind::Count(_) => [None, None],
    };
    dids.into_iter().flatten().for_each(|did| did.step = at(did.step));
    violation.step = at(violation.step);
    violation
}

impl fmt::Display for CheckFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Violation(violation) => violation.fmt(f),
            Self::Deadlock { stopped_at } => {
                f.write_str("deadlock: nobody can go on")?;
                stopped_at.iter().try_for_each(|(cpu, point)| write!(f, "\n  CPU {cpu} {point}"))
            }
            Self::Panicked { cpu, message } => write!(f, "the program of CPU {cpu} panicked: {message}"),
            Self::StepLimit => f.write_str("the programs did not end within the steps given to them"),
            Self::Reported(what) => f.write_str(what),
        }
    }
}
