//! What can be wrong with a run.

use pagewright_model::{CpuStep, DeferralEnd, Rule, SpecMismatch, Violation, ViolationKind};
use pagewright_sim::explore::{RunEnd, StopPoint};
use pagewright_types::CpuId;
use std::fmt;

/// What is wrong with a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckFinding {
    /// The oracle, or the reference memory, reports a broken rule.
    Violation(Violation),
    /// No CPU can make progress.
    Deadlock {
        /// The point at which each CPU is stopped.
        stopped_at: Vec<(CpuId, StopPoint)>,
    },
    /// A program panicked.
    Panicked {
        /// The CPU of the program.
        cpu: CpuId,
        /// The source location and the message of the panic.
        message: String,
    },
    /// The programs did not end within the step limit.
    StepLimit,
    /// The code under test reported it ([`crate::Harness::report`], [`crate::Testbench::report`]).
    Reported(String),
}

impl CheckFinding {
    /// The rule of the oracle that is broken, for a violation.
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

    /// Whether `other`, in a run of fewer parts of the programs, is the same mistake.
    ///
    /// For a panic that is the same place in the code, whatever the message.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let place = |message: &str| message.lines().next().map(str::to_owned);
        match (self, other) {
            (Self::Violation(one), Self::Violation(other)) => {
                one.rule == other.rule && std::mem::discriminant(&one.kind) == std::mem::discriminant(&other.kind)
            }
            (Self::Panicked { message: one, .. }, Self::Panicked { message: other, .. }) => place(one) == place(other),
            (Self::Reported(one), Self::Reported(other)) => one == other,
            (one, other) => std::mem::discriminant(one) == std::mem::discriminant(other),
        }
    }

    /// The same finding with each step number of the oracle replaced by `at` of it.
    pub(crate) fn renumbered(&self, at: &dyn Fn(u64) -> u64) -> Self {
        match self {
            Self::Violation(violation) => Self::Violation(renumbered(violation.clone(), at)),
            Self::Deadlock { .. } | Self::Panicked { .. } | Self::StepLimit | Self::Reported(_) => self.clone(),
        }
    }

    /// The finding that the end of a run is, unless the run ended well.
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
    let steps: [Option<&mut CpuStep>; 2] = match &mut violation.kind {
        ViolationKind::ReusedFrameReachable { block, .. } => [block.freed.as_mut(), Some(&mut block.reused)],
        ViolationKind::FreeFrameStored { freed, .. } | ViolationKind::FreeFrameWritten { freed, .. } => {
            [Some(freed), None]
        }
        ViolationKind::ParkedFrameChanged { freed, .. } => [freed.as_mut(), None],
        ViolationKind::DeferredTooLong { opened, end: DeferralEnd::Returned(returned), .. } => {
            [Some(opened), Some(returned)]
        }
        ViolationKind::DeferredTooLong { opened, .. } => [Some(opened), None],
        ViolationKind::SharedTableStored { since, .. } => [Some(since), None],
        ViolationKind::ReleasedFrameReachable { .. }
        | ViolationKind::ReleasedFrameMapped { .. }
        | ViolationKind::BreakMissing { .. } => [None, None],
        ViolationKind::RightKept { reduced, returned, .. } | ViolationKind::RightUsed { reduced, returned, .. } => {
            [Some(reduced), Some(returned)]
        }
        ViolationKind::Unpublished { reduced, .. } => [Some(reduced), None],
        ViolationKind::Memory(SpecMismatch::Access { stored, changed, .. }) => {
            [stored.as_mut(), changed.as_mut().map(|(step, _)| step)]
        }
        ViolationKind::Memory(SpecMismatch::Call { .. }) | ViolationKind::Count(_) => [None, None],
    };
    steps.into_iter().flatten().for_each(|step| step.step = at(step.step));
    violation.step = at(violation.step);
    violation
}

impl fmt::Display for CheckFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Violation(violation) => violation.fmt(f),
            Self::Deadlock { stopped_at } => {
                f.write_str("deadlock: no CPU can make progress")?;
                stopped_at.iter().try_for_each(|(cpu, point)| write!(f, "\n  CPU {cpu} {point}"))
            }
            Self::Panicked { cpu, message } => write!(f, "the program on CPU {cpu} panicked: {message}"),
            Self::StepLimit => f.write_str(
                "the programs did not end within the step limit, which `Check::steps(..)` sets\n  a loop that waits \
                 for another CPU must call `relax`",
            ),
            Self::Reported(what) => f.write_str(what),
        }
    }
}
