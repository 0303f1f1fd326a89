//! The lines of the drawing that a finding refers to, and why.

use crate::finding::CheckFinding;
use pagewright_model::{CpuStep, Exposure, SpecMismatch, Violation, ViolationKind};
use pagewright_types::judge::{CachedEntry, CachedEntryKind};

/// A line that a finding refers to.
pub(super) enum Mark {
    /// The line of what the oracle was told in this step.
    Step(u64, String),
    /// The line at which a CPU cached `held`.
    ///
    /// It is the latest read or fill of that entry before step `before` of the oracle.
    Source { held: CachedEntry, before: u64, why: String },
}

fn marked(did: &CpuStep, why: &str) -> Mark {
    Mark::Step(did.step, why.to_owned())
}

/// Like [`marked`], unless the finding is made in the same step.
fn later(at: &CpuStep, found: u64, why: &str) -> Option<Mark> {
    (at.step != found).then(|| marked(at, why))
}

/// Marks the line at which `held` was cached.
fn source(held: &CachedEntry, before: u64) -> Mark {
    let why = match held.kind {
        CachedEntryKind::Translation { rights, .. } => format!("CPU {} caches {rights} from here on", held.cpu),
        CachedEntryKind::Table { table, .. } => format!("CPU {} has cached the path to table {table}", held.cpu),
        CachedEntryKind::Walk { table, .. } => format!("the walk on CPU {} has reached table {table}", held.cpu),
    };
    Mark::Source { held: *held, before, why }
}

fn still(held: &CachedEntry) -> String {
    let cpu = held.cpu;
    match held.kind {
        CachedEntryKind::Translation { pfn, rights } => format!("CPU {cpu} can still use {rights} on frame {pfn}"),
        CachedEntryKind::Table { table, .. } => format!("CPU {cpu} can still walk through table {table}"),
        CachedEntryKind::Walk { table, .. } => format!("a walk on CPU {cpu} is about to read table {table}"),
    }
}

fn exposed(exposure: &Exposure, held: &CachedEntry) -> String {
    match exposure {
        Exposure::Immediate => still(held),
        Exposure::Loaded { tag, .. } => format!("tag {tag} is loaded again: {}", still(held)),
        Exposure::Hit(_) => "a program uses the stale translation".to_owned(),
    }
}

/// The lines that a finding refers to.
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
            let freed = block.freed.as_ref().map(|freed| marked(freed, "freed"));
            let reused = later(&block.reused, *step, "reallocated");
            freed.into_iter().chain([source(held, *step)]).chain(reused).chain([end(exposed(exposure, held))]).collect()
        }
        ViolationKind::ReleasedFrameReachable { held, .. } => vec![source(held, *step), end(still(held))],
        ViolationKind::ReleasedFrameMapped { pfn, va, .. } => vec![end(format!("the tables lead to {pfn} at {va}"))],
        ViolationKind::FreeFrameStored { freed, .. } => {
            vec![marked(freed, "freed"), end("a store to a free frame".to_owned())]
        }
        ViolationKind::FreeFrameWritten { freed, .. } => {
            vec![marked(freed, "freed"), end("the kernel writes to a free frame".to_owned())]
        }
        ViolationKind::ParkedFrameChanged { freed, .. } => {
            let freed = freed.as_ref().map(|freed| marked(freed, "freed"));
            freed.into_iter().chain([end("its contents have changed since".to_owned())]).collect()
        }
        ViolationKind::DeferredTooLong { held, opened, end: why, .. } => {
            vec![source(held, *step), marked(opened, "its loss is deferred"), end(why.to_string())]
        }
        ViolationKind::BreakMissing { held, .. } => {
            vec![source(held, *step), end(format!("{}, and the tables lead elsewhere", still(held)))]
        }
        ViolationKind::SharedTableStored { since, .. } => {
            vec![marked(since, "the table is shared"), end("it changes for one sharer".to_owned())]
        }
        ViolationKind::RightKept { held, reduced, returned, exposure, .. } => {
            let reduced = marked(reduced, "this call removes the right");
            let returned = later(returned, *step, "from here on no CPU may use the right");
            [source(held, *step), reduced].into_iter().chain(returned).chain([end(exposed(exposure, held))]).collect()
        }
        ViolationKind::RightUsed { reduced, returned, .. } => {
            let reduced = marked(reduced, "this call removes the right");
            let returned = marked(returned, "from here on no CPU may use the right");
            vec![reduced, returned, end("a program uses the removed right".to_owned())]
        }
        ViolationKind::Unpublished { page, rights, reduced, .. } => {
            let end = end(format!("walkers still find {rights} at {page}: the store is not published"));
            vec![marked(reduced, "this call removes the right"), end]
        }
        ViolationKind::Memory(SpecMismatch::Access { stored, changed, .. }) => {
            let stored = stored.as_ref().map(|stored| marked(stored, "last store to this address"));
            let changed = changed.as_ref().map(|(changed, call)| marked(changed, call));
            stored
                .into_iter()
                .chain(changed)
                .chain([end("a machine without a TLB could not give this result".to_owned())])
                .collect()
        }
        ViolationKind::Memory(SpecMismatch::Call { .. }) => vec![end("the call could not give this result".to_owned())],
        ViolationKind::Count(_) => vec![end("a count is wrong".to_owned())],
    }
}
