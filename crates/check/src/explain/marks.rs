//! What a finding speaks of: which lines of the drawing, and why.

use crate::finding::CheckFinding;
use pagewright_model::{CpuStep, Exposure, SpecMismatch, Violation, ViolationKind};
use pagewright_types::judge::{CachedEntry, CachedEntryKind};

/// A line that a finding speaks of.
pub(super) enum Mark {
    /// What the oracle was told in this step.
    Step(u64, String),
    /// Where what is held came from: the latest line before that step of the oracle at which its
    /// CPU read it or kept it.
    Source { held: CachedEntry, before: u64, why: String },
}

fn did(did: &CpuStep, why: &str) -> Mark {
    Mark::Step(did.step, why.to_owned())
}

/// As [`did`], if the finding itself is made later.
fn later(at: &CpuStep, found: u64, why: &str) -> Option<Mark> {
    (at.step != found).then(|| did(at, why))
}

/// Where what is held came from.
fn source(held: &CachedEntry, before: u64) -> Mark {
    let why = match held.kind {
        CachedEntryKind::Translation { rights, .. } => format!("CPU {} holds {rights} from here on", held.cpu),
        CachedEntryKind::Table { table } | CachedEntryKind::Walk { table } => {
            format!("CPU {} knows the way to table {table}", held.cpu)
        }
    };
    Mark::Source { held: *held, before, why }
}

fn still(held: &CachedEntry) -> String {
    let cpu = held.cpu;
    match held.kind {
        CachedEntryKind::Translation { pfn, rights } => format!("CPU {cpu} still has {rights} of frame {pfn}"),
        CachedEntryKind::Table { table } => format!("CPU {cpu} still walks through table {table}"),
        CachedEntryKind::Walk { table } => format!("a walk of CPU {cpu} is about to read table {table}"),
    }
}

fn exposed(exposure: &Exposure, held: &CachedEntry) -> String {
    match exposure {
        Exposure::Immediate => still(held),
        Exposure::Loaded { tag, .. } => format!("tag {tag} is in use again: {}", still(held)),
        Exposure::Hit(_) => "what should be gone is used".to_owned(),
    }
}

/// The lines that a finding speaks of.
pub(super) fn of(finding: &CheckFinding) -> Vec<Mark> {
    match finding {
        CheckFinding::Violation(violation) => of_violation(violation),
        CheckFinding::Deadlock { .. }
        | CheckFinding::Panicked { .. }
        | CheckFinding::StepLimit
        | CheckFinding::Reported(_) => Vec::new(),
    }
}

fn of_violation(Violation { step, kind, rule, .. }: &Violation) -> Vec<Mark> {
    let end = |why: String| Mark::Step(*step, format!("{rule}: {why}"));
    match kind {
        ViolationKind::ReusedFrameReachable { held, block, exposure } => {
            let freed = block.freed.as_ref().map(|freed| did(freed, "freed"));
            let reused = later(&block.reused, *step, "handed out again");
            freed.into_iter().chain([source(held, *step)]).chain(reused).chain([end(exposed(exposure, held))]).collect()
        }
        ViolationKind::FreeFrameStored { freed, .. } => {
            vec![did(freed, "freed"), end("a store to a frame that is nobody's".to_owned())]
        }
        ViolationKind::RightKept { held, reduced, returned, exposure, .. } => {
            let reduced = did(reduced, "the right is to go");
            let returned = later(returned, *step, "the right should be gone");
            [source(held, *step), reduced].into_iter().chain(returned).chain([end(exposed(exposure, held))]).collect()
        }
        ViolationKind::RightUsed { reduced, returned, .. } => {
            let (reduced, returned) = (did(reduced, "the right is to go"), did(returned, "the right should be gone"));
            vec![reduced, returned, end("it is used".to_owned())]
        }
        ViolationKind::Unpublished { page, rights, reduced, .. } => {
            vec![did(reduced, "the right is to go"), end(format!("walkers still find {rights} at {page}"))]
        }
        ViolationKind::Memory(SpecMismatch::Access { stored, changed, .. }) => {
            let stored = stored.as_ref().map(|stored| did(stored, "last stored to"));
            let changed = changed.as_ref().map(|(changed, call)| did(changed, call));
            stored.into_iter().chain(changed).chain([end("no machine without a TLB answers so".to_owned())]).collect()
        }
        ViolationKind::Memory(SpecMismatch::Call { .. }) => vec![end("no call answers so".to_owned())],
        ViolationKind::Count(_) => vec![end("a count is wrong".to_owned())],
    }
}
