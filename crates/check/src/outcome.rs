//! The result of a check, and its text.
//!
//! The text of a finding names the rule, which CPU caches what since when, draws the schedule, and
//! ends with the replay token. If nothing was found, the text says how often each rule had
//! something to judge (INV-CHECK-JUDGED), and whether the search is evidence at all ([`Vacuity`]).
//!
//! **INV-CHECK-JUDGED** A check without findings says what each rule had to judge. A check in which
//! no rule had anything to judge does not pass as clean.

use crate::check::REPLAY;
use crate::exhaustive::SearchBounds;
use crate::explain::{explain, missing_steps, rows};
use crate::finding::CheckFinding;
use crate::search::{FailingSchedule, Search};
use crate::vacuity::Vacuity;
use pagewright_model::{Antecedent, Rule};
use pagewright_sim::PointerStores;
use pagewright_sim::explore::{ProgramPart, Schedule, ScheduleStrategy};
use pagewright_types::IsaKind;
use std::fmt;

/// The result of a [`crate::Check`]; its `Display` is the report.
#[derive(Clone, Debug)]
pub struct CheckOutcome {
    pub(crate) isa: IsaKind,
    pub(crate) cpus: u16,
    pub(crate) seed: u64,
    pub(crate) pointer_stores: PointerStores,
    pub(crate) trapped: bool,
    /// Whether only the schedule of a token was run.
    pub(crate) replayed: bool,
    pub(crate) search: Search,
}

impl CheckOutcome {
    /// The figures of the search, and the schedule that failed.
    pub fn search(&self) -> &Search {
        &self.search
    }

    /// The first finding, if any.
    pub fn finding(&self) -> Option<&CheckFinding> {
        self.search.failing.as_ref().and_then(|found| found.attempt.findings.first())
    }

    /// Why the search would be no evidence without a finding, if it would not.
    pub fn vacuity(&self) -> Option<Vacuity> {
        Vacuity::of(&self.search, self.cpus)
    }

    /// Asserts that nothing was found, by a search that is evidence: for a test of correct code.
    ///
    /// # Panics
    /// With the report, when there is a finding, or when the search is [vacuous](Vacuity).
    #[track_caller]
    pub fn unwrap_clean(&self) {
        assert!(self.search.failing.is_none() && self.vacuity().is_none(), "{self}");
    }

    /// Asserts that the first finding breaks `rule`: for a test of code with a known bug.
    ///
    /// # Panics
    /// With the report, when there is no finding, or another one comes first.
    #[track_caller]
    pub fn expect_violation(&self, rule: Rule) -> &FailingSchedule {
        match &self.search.failing {
            Some(found) if self.finding().and_then(CheckFinding::rule) == Some(rule) => found,
            Some(_) | None => panic!("expected a violation of {rule}: {self}"),
        }
    }

    fn judged(&self) -> Judged {
        let of = |what| self.search.tally.of(what);
        Judged {
            isa: self.isa,
            reused: of(Antecedent::FrameReused),
            pages: of(Antecedent::PageReleased),
            tables: of(Antecedent::TableReleased),
            reduced: of(Antecedent::RightReduced),
            held: of(Antecedent::RightHeld),
            replaced: of(Antecedent::EntryReplaced),
            exempt: of(Antecedent::ReplacedReadOnly) + of(Antecedent::ReplacedSize),
            by_pointer: self.search.pointer_stores,
            delayed: self.pointer_stores == PointerStores::Delayed,
            trapped: self.trapped,
        }
    }
}

/// How often the rules about translations had something to judge.
struct Judged {
    isa: IsaKind,
    /// Frames reallocated after a program had accessed them.
    reused: u64,
    /// Frames given back after a program had accessed them.
    pages: u64,
    /// Page tables given back after a walk had read them.
    tables: u64,
    /// Reductions of rights whose call returned.
    reduced: u64,
    /// Those among them while another CPU cached a translation that allowed more.
    held: u64,
    /// Valid entries stored where a walk had found another translation.
    replaced: u64,
    /// Those among them that need no break-before-make.
    exempt: u64,
    /// Stores through pointers.
    by_pointer: u64,
    /// Whether walkers could see them late.
    delayed: bool,
    /// Whether each was a scheduling point.
    trapped: bool,
}

impl Judged {
    fn reuse(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { reused, pages, tables, .. } = *self;
        write!(f, "  {} judged ", Rule::Reuse)?;
        if reused + pages + tables == 0 {
            return f
                .write_str("NOTHING: no page that a program had accessed, or table that a walk had read, was freed");
        }
        write!(f, "{} freed and {reused} reallocated, ", Many(pages, "page"))?;
        match tables {
            0 => f.write_str("and NO page table: none that a walk had read was freed"),
            _ => write!(f, "and {} freed", Many(tables, "page table")),
        }
    }

    fn rights(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { reduced, held, .. } = *self;
        write!(f, "\n  {} judged ", Rule::Rights)?;
        match (reduced, held) {
            (0, _) => f.write_str("NOTHING: no call declared that it reduces rights, and returned"),
            (_, 0) => write!(f, "{} of rights, NONE while another CPU cached the right", Many(reduced, "reduction")),
            _ => write!(f, "{} of rights, {held} while another CPU cached the right", Many(reduced, "reduction")),
        }
    }

    fn replacements(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { replaced, exempt, .. } = *self;
        match (self.isa, replaced) {
            (IsaKind::X86_64, _) => Ok(()),
            (IsaKind::Aarch64, 0) => write!(f, "\n  break-before-make: NOTHING judged, no live entry was replaced"),
            (IsaKind::Aarch64, _) => {
                write!(f, "\n  break-before-make: judged {}, {exempt} exempt", Many(replaced, "replaced entry"))
            }
        }
    }

    fn pointers(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stores = match self.by_pointer {
            0 => return Ok(()),
            stores => Many(stores, "store"),
        };
        write!(f, "\n  {stores} through pointers")?;
        if self.trapped {
            f.write_str(", each a scheduling point")?;
        }
        let barrier = self.isa == IsaKind::Aarch64 && !self.delayed;
        match (barrier, self.trapped) {
            (true, true) => f.write_str("; NOT judged: a missing DSB ISHST")?,
            (true, false) => f.write_str("; NOT judged: a missing DSB ISHST, the order of two of them")?,
            (false, true) => {}
            (false, false) => f.write_str("; NOT judged: the order of two of them")?,
        }
        Ok(())
    }
}

impl fmt::Display for Judged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reuse(f)?;
        self.rights(f)?;
        self.replacements(f)?;
        self.pointers(f)
    }
}

/// A number with its noun, in the plural where it is one.
struct Many(u64, &'static str);

impl fmt::Display for Many {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0, self.1.strip_suffix('y')) {
            (1, _) => write!(f, "1 {}", self.1),
            (many, Some(stem)) => write!(f, "{many} {stem}ies"),
            (many, None) => write!(f, "{many} {}s", self.1),
        }
    }
}

/// Parts of programs, in words.
struct LeftOut<'a>(&'a [ProgramPart]);

impl fmt::Display for LeftOut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = self.0.to_vec();
        parts.sort_unstable();
        for (index, part) in parts.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            match part {
                ProgramPart::Program(cpu) => write!(f, "{comma}the program of CPU {cpu}")?,
                ProgramPart::Operation(cpu, number) => write!(f, "{comma}operation {number} of CPU {cpu}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for CheckOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { isa, cpus, seed, replayed, search, .. } = self;
        let Search { schedules, distinct, steps, exhaustive, .. } = search;
        let machine = format!("{}, {isa}", Many(u64::from(*cpus), "CPU"));
        let Some(found) = &search.failing else {
            let vacuity = self.vacuity();
            let clean = match vacuity {
                None => "clean",
                Some(Vacuity::Incomplete) => "clean so far",
                Some(_) => "NO EVIDENCE",
            };
            let schedules = Many(u64::from(*schedules), "schedule");
            match exhaustive {
                None => {
                    writeln!(f, "{clean}: {schedules} ({distinct} distinct, {steps} steps) on {machine}, seed {seed}")?
                }
                Some((bounds, done)) => {
                    let complete = if done.complete { "complete" } else { "NOT COMPLETE" };
                    writeln!(f, "{clean}, {complete} for {bounds} ({schedules}, {steps} steps) on {machine}")?;
                    writeln!(f, "  acts: {}", SearchBounds::acts_of(*isa))?;
                }
            }
            if let Some(vacuity) = vacuity {
                rows(&format!("  {vacuity}")).iter().try_for_each(|row| writeln!(f, "{row}"))?;
            }
            return self.judged().fmt(f);
        };
        let findings = found.attempt.findings_by_schedule_step().into_iter().zip(missing_steps(&found.attempt));
        for (index, (finding, missing)) in findings.enumerate() {
            let also = if index > 0 { "also " } else { "" };
            let missing = missing.map(|missing| format!("\n  missing: {missing}"));
            let text = format!("{also}{finding}{}", missing.unwrap_or_default());
            text.lines().flat_map(rows).try_for_each(|row| writeln!(f, "{row}"))?;
        }
        let default_schedule = found.token.strategy == ScheduleStrategy::List(Schedule::default());
        match (replayed, default_schedule) {
            (true, _) => writeln!(f, "in the schedule of the token, on {machine}:\n")?,
            (false, true) => writeln!(f, "in the default schedule on {machine}, without a race:\n")?,
            (false, false) => match exhaustive {
                None => writeln!(f, "in schedule {schedules} of seed {seed} on {machine}, shrunk:\n")?,
                Some((bounds, _)) => {
                    writeln!(f, "in schedule {schedules} of those for {bounds} on {machine}, shrunk:\n")?
                }
            },
        }
        let left_out = &found.attempt.report.schedule.left_out;
        if !left_out.is_empty() {
            let text = format!("left out, because the finding does not need it: {}", LeftOut(left_out));
            rows(&text).iter().try_for_each(|row| writeln!(f, "{row}"))?;
            writeln!(f)?;
        }
        f.write_str(&explain(&found.attempt))?;
        write!(f, "\nreplay this run with {REPLAY}={}", found.printed_token())
    }
}
