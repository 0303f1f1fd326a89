//! Which step was missing in a run, between which two: one sentence for each finding.
//!
//! The sentence follows from the lines of the drawing: when the CPU cached what it holds, which
//! step changed the entry that it came from, and by which step it had to be gone. Where an
//! invalidation was issued that could have sufficed, the sentence says why it did not.
//!
//! The steps and the source lines are those of this run (INV-CHECK-MISSING).
//!
//! **INV-CHECK-MISSING** The sentence on the missing step names steps of the run: the one that
//! changed the entry, the one by which the right had to be gone, and an invalidation in between
//! only if it does not reach the CPU.
//!
//! Not guaranteed: that the named step is how the code should be repaired. It is one that would
//! have prevented this finding.

use super::{Merged, MergedLine, Origin};
use crate::finding::CheckFinding;
use pagewright_arch::{Invalidate, InvalidateScope, InvalidateTarget};
use pagewright_model::{CpuStep, DeferralEnd, SpecMismatch, Violation, ViolationKind};
use pagewright_sim::explore::{StepAction, StopPoint};
use pagewright_types::judge::{CachedEntry, CachedEntryKind};
use pagewright_types::{CpuId, IsaKind, PhysAddr, VirtAddr};

impl Origin {
    /// Whether the entry at `slot` is stored to.
    fn stores(self, slot: PhysAddr) -> bool {
        match self {
            Self::Stores(at) => at == slot,
            Self::Clears(first, last) => (first..=last).contains(&slot),
            Self::Nothing | Self::Reads(..) | Self::Fills(_) | Self::Faults => false,
        }
    }
}

/// What a CPU holds, in words.
fn what(held: &CachedEntry) -> String {
    match held.kind {
        CachedEntryKind::Translation { pfn, rights } => format!("{rights} to frame {pfn} at {}", held.va),
        CachedEntryKind::Table { table, .. } => format!("the path to table {table} at {}", held.va),
        CachedEntryKind::Walk { table, .. } => format!("a walk for {} that is about to read table {table}", held.va),
    }
}

/// Whether an invalidation of `target` is one of the translation or the path that is held.
///
/// Whether it is one of the last level only is not looked at.
fn covers(target: InvalidateTarget, held: &CachedEntry) -> bool {
    match target {
        InvalidateTarget::Page { tag, va, .. } => tag == held.tag && held.range().contains(va),
        InvalidateTarget::Range { tag, range, .. } => {
            tag == held.tag && range.start() < held.range().end() && held.range().start() < range.end()
        }
        InvalidateTarget::Tag(tag) => tag == held.tag,
        InvalidateTarget::PageOfAllTags { va, .. } => held.range().contains(va),
        InvalidateTarget::AllTags | InvalidateTarget::Everything => true,
    }
}

/// Whether an invalidation of `target` is one of translations of `page`, under some tag.
fn is_of_page(target: InvalidateTarget, page: VirtAddr) -> bool {
    match target {
        InvalidateTarget::Page { va, .. } | InvalidateTarget::PageOfAllTags { va, .. } => va == page,
        InvalidateTarget::Range { range, .. } => range.contains(page),
        InvalidateTarget::Tag(_) | InvalidateTarget::AllTags | InvalidateTarget::Everything => true,
    }
}

fn is_of_last_level(target: InvalidateTarget) -> bool {
    match target {
        InvalidateTarget::Page { last_level, .. }
        | InvalidateTarget::Range { last_level, .. }
        | InvalidateTarget::PageOfAllTags { last_level, .. } => last_level,
        InvalidateTarget::Tag(_) | InvalidateTarget::AllTags | InvalidateTarget::Everything => false,
    }
}

fn executed(merged: &MergedLine) -> Option<StopPoint> {
    match merged.action {
        Some(StepAction::Executed(point)) => Some(point),
        Some(_) | None => None,
    }
}

impl Merged {
    /// What was missing for `finding` not to be made; `None` if only the program can say it.
    pub(super) fn missing(&self, finding: &CheckFinding) -> Option<String> {
        match finding {
            CheckFinding::Violation(violation) => self.missing_for(violation),
            CheckFinding::Deadlock { stopped_at } => {
                let waits = stopped_at.iter().filter_map(|(cpu, point)| self.awaited(*cpu, *point));
                Some(format!("{}, by a CPU that can run", waits.collect::<Vec<_>>().join(", or ")))
            }
            CheckFinding::StepLimit => {
                let at = self.locations.iter().map(|(cpu, location)| format!("of CPU {cpu} after {location}"));
                Some(format!("the end of the program {}", at.collect::<Vec<_>>().join(", and ")))
            }
            // The program says what it expected.
            CheckFinding::Panicked { .. } | CheckFinding::Reported(_) => None,
        }
    }

    /// What a CPU that is stopped waits for.
    fn awaited(&self, cpu: CpuId, point: StopPoint) -> Option<String> {
        let what = match point {
            StopPoint::Wait | StopPoint::Lock => "the release of the lock",
            StopPoint::Relax => "the change or the acknowledgement",
            _ => return None,
        };
        let after = self.locations.get(&cpu).map(|location| format!(", after {location}"));
        Some(format!("{what} that CPU {cpu} waits for{}", after.unwrap_or_default()))
    }

    fn missing_for(&self, Violation { step, kind, .. }: &Violation) -> Option<String> {
        let last = self.lines.len().checked_sub(1)?;
        let end = self.line_of(*step).unwrap_or(last);
        let by = |step: &CpuStep| self.line_of(step.step).unwrap_or(end);
        Some(match kind {
            ViolationKind::ReusedFrameReachable { held, block, .. } => self.invalidation(held, by(&block.reused)),
            ViolationKind::ReleasedFrameReachable { held, .. } => self.invalidation(held, end),
            ViolationKind::RightKept { held, returned, .. } => self.invalidation(held, by(returned)),
            ViolationKind::ReleasedFrameMapped { pfn, cpu, va, root } => format!(
                "a store that clears the entry which leads to frame {pfn} at {va}, or another root than {root} on CPU \
                 {cpu}, before {}",
                self.name(end)
            ),
            ViolationKind::FreeFrameStored { made, freed } => {
                format!("an invalidation of {} that reaches CPU {}, before {}", made.va, made.cpu, self.name(by(freed)))
            }
            ViolationKind::FreeFrameWritten { pfn, freed } => {
                format!("an allocation of frame {pfn}, between {} and {}", self.name(by(freed)), self.name(end))
            }
            ViolationKind::ParkedFrameChanged { pfn, .. } => {
                format!("a flush of frame {pfn}, before the store that changes it and before {}", self.name(end))
            }
            ViolationKind::DeferredTooLong { held, end: DeferralEnd::Opened, .. } => self.invalidation(held, end),
            ViolationKind::DeferredTooLong { held, opened, .. } => {
                self.between(held, by(opened), end, "from which on its loss is deferred")
            }
            ViolationKind::BreakMissing { held, .. } => {
                let since = self.source(held, *step).map(|source| format!("after {} and ", self.name(source)));
                format!(
                    "a store that clears the entry, and then an invalidation that reaches CPU {}, {}before {}, which \
                     stores the new one",
                    held.cpu,
                    since.unwrap_or_default(),
                    self.name(end)
                )
            }
            ViolationKind::SharedTableStored { since, .. } => format!(
                "a copy of the table for this sharer, or an edit for all of them, between {} and {}",
                self.name(by(since)),
                self.name(end)
            ),
            ViolationKind::RightUsed { made, reduced, returned, .. } => {
                let what = if made.cached { "an invalidation" } else { "a visible change of the entry" };
                format!(
                    "{what} of {} that reaches CPU {}, between {} and {}",
                    made.va,
                    made.cpu,
                    self.name(by(reduced)),
                    self.name(by(returned))
                )
            }
            ViolationKind::Unpublished { page, reduced, .. } => self.publication(*page, reduced.cpu, by(reduced), end),
            ViolationKind::Memory(SpecMismatch::Access { stored, changed, .. }) => {
                let changed = changed.as_ref().map(|(changed, _)| changed);
                let latest = stored.iter().chain(changed).map(by).max()?;
                format!("a step that changes the result, between {} and {}", self.name(latest), self.name(end))
            }
            // Only the results are compared.
            ViolationKind::Memory(SpecMismatch::Call { .. }) | ViolationKind::Count(_) => return None,
        })
    }

    /// The sentence for a change of `page` by `cpu`, between two lines, that walkers do not see.
    fn publication(&self, page: VirtAddr, cpu: CpuId, from: usize, end: usize) -> String {
        let stores = |merged: &MergedLine| {
            merged.line.cpu == cpu && matches!(merged.origin, Origin::Stores(_) | Origin::Clears(..))
        };
        let end_name = self.name(end);
        match self.lines[from..end.max(from)].iter().rposition(stores) {
            Some(stored) => {
                let is_invalidated = self.lines[from + stored..end].iter().any(|merged| match executed(merged) {
                    Some(StopPoint::Invalidate(op)) => is_of_page(op.target, page),
                    Some(_) | None => false,
                });
                // A barrier alone leaves what other CPUs have cached.
                let flush = if is_invalidated { "" } else { ", and an invalidation after it" };
                let stored = self.name(from + stored);
                format!(
                    "{}{flush}, between {stored}, which changes the entry of {page}, and {end_name}",
                    self.barrier()
                )
            }
            None => format!("a store that changes the entry of {page}, between {} and {end_name}", self.name(from)),
        }
    }

    /// The line of what the oracle was told in `step`.
    ///
    /// A store that it reports has a step of its own, and only a note says so.
    pub(super) fn line_of(&self, step: u64) -> Option<usize> {
        let own = self.lines.iter().position(|merged| merged.step == Some(step));
        own.or_else(|| self.lines.iter().position(|merged| merged.by_then >= step))
    }

    /// The line at which `held` was cached.
    pub(super) fn source(&self, held: &CachedEntry, before: u64) -> Option<usize> {
        self.lines.iter().rposition(|merged| merged.by_then <= before && merged.is_source(held))
    }

    /// The step of a line, with its location.
    fn name(&self, index: usize) -> String {
        let line = &self.lines[index].line;
        let first = self.lines.iter().position(|merged| merged.line.at > 0);
        let step = match line.at {
            0 if first.is_some_and(|first| index < first) => "the set-up".to_owned(),
            0 => "the end".to_owned(),
            at => format!("step {at}"),
        };
        match &line.location {
            Some(location) if location.near => format!("{step} (near {})", location.code),
            Some(location) => format!("{step} ({})", location.code),
            None => step,
        }
    }

    fn barrier(&self) -> &'static str {
        match self.isa {
            IsaKind::X86_64 => "a locked or serialising instruction",
            IsaKind::Aarch64 => "a DSB ISHST",
        }
    }

    /// The sentence for `held`, which had to be gone by the line `until`.
    fn invalidation(&self, held: &CachedEntry, until: usize) -> String {
        let source = self.source(held, self.lines[until].by_then);
        let read = |merged: &MergedLine| match (merged.origin, held.kind) {
            (Origin::Reads(va, slot), CachedEntryKind::Table { table, .. } | CachedEntryKind::Walk { table, .. }) => {
                (held.range().contains(va) && slot.table != table).then_some(slot.addr())
            }
            (Origin::Reads(va, slot), CachedEntryKind::Translation { .. }) => {
                held.range().contains(va).then_some(slot.addr())
            }
            (Origin::Nothing | Origin::Fills(_) | Origin::Faults | Origin::Stores(_) | Origin::Clears(..), _) => None,
        };
        let end = source.map_or(until, |source| source + 1);
        let own = self.lines[..end].iter().filter(|merged| merged.line.cpu == held.cpu);
        let path: Vec<PhysAddr> = own.filter_map(read).collect();
        let changes = |merged: &MergedLine| path.iter().any(|slot| merged.origin.stores(*slot));
        let late = source.and_then(|source| {
            let is_late = |change: &usize| changes(&self.lines[*change]) && self.is_late(*change, source);
            Some((source, (0..source).rev().find(is_late)?))
        });
        let after = (end..until).find(|index| changes(&self.lines[*index]));
        let since = source.map(|source| format!(" since {}", self.name(source))).unwrap_or_default();
        match (after, late) {
            (Some(change), _) => self.between(held, change, until, "which changes its entry"),
            (None, Some((source, change))) => {
                let invalidates = |index: &usize| match executed(&self.lines[*index]) {
                    Some(StopPoint::Invalidate(op)) => covers(op.target, held),
                    Some(_) | None => false,
                };
                let needed = match (change..until).find(invalidates) {
                    Some(index) => format!("and the invalidation of {}", self.name(index)),
                    None => format!("and {}, with an invalidation after it", self.name(until)),
                };
                format!(
                    "{}, between {}, which changes the entry, {needed}: in {} CPU {} has read the entry as it was \
                     before",
                    self.barrier(),
                    self.name(change),
                    self.name(source),
                    held.cpu
                )
            }
            (None, None) => format!(
                "a store that changes the entry, and then an invalidation that reaches CPU {}, before {}: CPU {} \
                 holds {}{since}",
                held.cpu,
                self.name(until),
                held.cpu,
                what(held)
            ),
        }
    }

    /// The sentence for `held`, whose loss begins at the line `change` and ends at `until`.
    fn between(&self, held: &CachedEntry, change: usize, until: usize, does: &str) -> String {
        let cpu = held.cpu;
        let source = self.source(held, self.lines[until].by_then);
        let since = source.map(|source| format!(" since {}", self.name(source))).unwrap_or_default();
        let holds = format!("CPU {cpu} holds {}{since}", what(held));
        let (from, to) = (self.name(change), self.name(until));
        match (change + 1..until).rev().find_map(|index| self.insufficient(held, index, until)) {
            Some(reason) => format!("{reason} before {to}: {holds}"),
            None => format!("an invalidation that reaches CPU {cpu}, between {from}, {does}, and {to}: {holds}"),
        }
    }

    /// What was missing after the invalidation at the line `index`, if it could have sufficed.
    fn insufficient(&self, held: &CachedEntry, index: usize, until: usize) -> Option<String> {
        let merged = &self.lines[index];
        let (cpu, by) = (held.cpu, merged.line.cpu);
        let at = self.name(index);
        let later = |wanted: &dyn Fn(StepAction) -> bool| {
            let own = self.lines[index..until].iter().filter(|merged| merged.line.cpu == cpu);
            own.filter_map(|merged| merged.action).any(wanted)
        };
        match executed(merged)? {
            StopPoint::SendIpi(targets) if targets.contains(cpu) => {
                let taken = later(&|action| matches!(action, StepAction::TookInterrupt));
                (!taken).then(|| format!("a wait of CPU {by} until CPU {cpu} has taken the IPI of {at},"))
            }
            StopPoint::Invalidate(Invalidate { scope, target }) if covers(target, held) => {
                let is_path = !matches!(held.kind, CachedEntryKind::Translation { .. });
                if is_path && is_of_last_level(target) {
                    return Some(format!("an invalidation of all levels in place of {at}, of the last only,"));
                }
                let arrived = by == cpu
                    || scope == InvalidateScope::Local
                    || later(&|action| matches!(action, StepAction::Delivered(delivered) if delivered == target));
                let waits = match self.isa {
                    IsaKind::X86_64 => "a TLBSYNC",
                    IsaKind::Aarch64 => "a DSB ISH",
                };
                (!arrived).then(|| format!("{waits} on CPU {by} after the broadcast of {at}, and"))
            }
            _ => None,
        }
    }

    /// Whether the store at the line `change` was not visible to the walk at the line `read`.
    fn is_late(&self, change: usize, read: usize) -> bool {
        let stored = &self.lines[change];
        let cpu = stored.line.cpu;
        let own = |from: usize, to: usize| self.lines[from..to].iter().filter(move |merged| merged.line.cpu == cpu);
        let drains =
            |merged: &MergedLine| matches!(merged.action, Some(StepAction::Drained(at)) if stored.origin.stores(at));
        let is_barrier = |merged: &MergedLine| {
            self.isa == IsaKind::Aarch64 && matches!(executed(merged), Some(StopPoint::Publish | StopPoint::Complete))
        };
        let arrived = own(change + 1, read).any(|merged| drains(merged) || is_barrier(merged));
        let waited = self.isa == IsaKind::Aarch64 && stored.action.is_some();
        !arrived && (waited || own(read, self.lines.len()).any(drains))
    }
}
