//! What a check came to, in words.
//!
//! A finding is told with its rule, who holds what since when, how it came about, and how to see it
//! again. Where nothing was found, the text says what was judged: a rule that never had anything to
//! judge is no evidence (INV-CHECK-JUDGED).

use crate::check::REPLAY;
use crate::explain::{explain, rows};
use crate::finding::CheckFinding;
use crate::search::{FailingSchedule, Search};
use pagewright_model::{Antecedent, Rule};
use pagewright_sim::explore::{Schedule, ScheduleStrategy};
use pagewright_types::IsaKind;
use std::fmt;

/// What a [`crate::Check`] came to.
#[derive(Clone, Debug)]
pub struct CheckOutcome {
    pub(crate) isa: IsaKind,
    pub(crate) cpus: u16,
    pub(crate) seed: u64,
    /// Whether it is of one schedule, which was given.
    pub(crate) replayed: bool,
    pub(crate) search: Search,
}

impl CheckOutcome {
    /// The figures, and what was found.
    pub fn search(&self) -> &Search {
        &self.search
    }

    /// The first finding.
    pub fn finding(&self) -> Option<&CheckFinding> {
        self.search.failing.as_ref().and_then(|found| found.attempt.findings.first())
    }

    /// Whether neither rule about translations had anything to judge.
    pub fn is_vacuous(&self) -> bool {
        let Judged { reused, reduced, .. } = self.judged();
        reused == 0 && reduced == 0
    }

    /// For a test of code that should be correct.
    ///
    /// # Panics
    /// With the whole text when something was found, and when nothing was judged.
    #[track_caller]
    pub fn unwrap_clean(&self) {
        assert!(self.search.failing.is_none() && !self.is_vacuous(), "{self}");
    }

    /// For a test of code that is known to be broken.
    ///
    /// # Panics
    /// With the whole text when nothing was found, or something else first.
    #[track_caller]
    pub fn expect_violation(&self, rule: Rule) -> &FailingSchedule {
        match &self.search.failing {
            Some(found) if self.finding().and_then(CheckFinding::rule) == Some(rule) => found,
            Some(_) | None => panic!("{rule} was to be found: {self}"),
        }
    }

    fn judged(&self) -> Judged {
        let of = |what| self.search.tally.of(what);
        Judged {
            reused: of(Antecedent::FrameReused),
            reduced: of(Antecedent::RightReduced),
            held: of(Antecedent::RightHeld),
        }
    }
}

/// How often the rules about translations had something to judge.
struct Judged {
    reused: u64,
    reduced: u64,
    held: u64,
}

impl fmt::Display for Judged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { reused, reduced, held } = *self;
        match reused {
            0 => {
                write!(f, "  {} judged NOTHING: no frame that a program had reached was handed out again", Rule::Reuse)?
            }
            _ => write!(
                f,
                "  {} judged {}, handed out again after a program had reached it",
                Rule::Reuse,
                Many(reused, "frame")
            )?,
        }
        match (reduced, held) {
            (0, _) => {
                write!(f, "\n  {} judged NOTHING: no call said that it takes a right, and returned", Rule::Rights)
            }
            (_, 0) => write!(
                f,
                "\n  {} judged {} taken, NONE while another CPU held it",
                Rule::Rights,
                Many(reduced, "right")
            ),
            _ => write!(
                f,
                "\n  {} judged {} taken, {held} while another CPU held it",
                Rule::Rights,
                Many(reduced, "right")
            ),
        }
    }
}

/// A number of things.
struct Many(u64, &'static str);

impl fmt::Display for Many {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.0 == 1 { "" } else { "s" };
        write!(f, "{} {}{plural}", self.0, self.1)
    }
}

impl fmt::Display for CheckOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { isa, cpus, seed, replayed, search } = self;
        let Search { schedules, distinct, steps, .. } = search;
        let machine = format!("{}, {isa}", Many(u64::from(*cpus), "CPU"));
        let Some(found) = &search.failing else {
            let clean = if self.is_vacuous() { "NOTHING JUDGED" } else { "clean" };
            let schedules = Many(u64::from(*schedules), "schedule");
            writeln!(f, "{clean}: {schedules} ({distinct} distinct, {steps} steps) on {machine}, seed {seed}")?;
            return self.judged().fmt(f);
        };
        for (index, finding) in found.attempt.findings_by_schedule_step().iter().enumerate() {
            let also = if index > 0 { "also " } else { "" };
            let text = format!("{also}{finding}");
            text.lines().flat_map(rows).try_for_each(|row| writeln!(f, "{row}"))?;
        }
        let calm = found.token.strategy == ScheduleStrategy::List(Schedule::default());
        match (replayed, calm) {
            (true, _) => writeln!(f, "in the schedule of the token, on {machine}:\n")?,
            (false, true) => writeln!(f, "in the calm schedule on {machine}; it needs no race:\n")?,
            (false, false) => {
                writeln!(f, "in schedule {schedules} of seed {seed} on {machine}; cut down to what it needs:\n")?;
            }
        }
        f.write_str(&explain(&found.attempt))?;
        write!(f, "\nthe same run again: {REPLAY}={}", found.printed_token())
    }
}
