//! How often the oracle judged a mechanism in this run, and what it found.
//!
//! Key type: [`Judgement`]. It counts the times at which a rule had something to compare: an access
//! with what it may reach, a value, a count of references. Random programs run under random
//! schedules, on both instruction sets; `pagewright check --theme THEME` runs more of them.
//!
//! Not guaranteed: more than these programs. `pagewright check` and the tests run the others.

use crate::command::check::bug_text;
use crate::command::evaluate::half_memory::replay_capture;
use crate::command::evaluate::{EvaluateError, judge_clears};
use crate::show::grouped;
use pagewright_check::{Antecedent, Tally};
use pagewright_fuzz::random::{ProgramNodes, SurveyPlan, Theme, survey};
use pagewright_mm::MmSetting;
use pagewright_sim::NodeConfig;
use pagewright_types::{CpuMask, IsaKind};

/// What was judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Judgement {
    /// How often a rule judged something.
    pub(super) times: u64,
    /// What ran, in a few words.
    pub(super) programs: String,
    /// The first finding, with the command that reproduces it.
    pub(super) finding: Option<String>,
}

impl Judgement {
    /// Whether something was judged and nothing found.
    pub(super) const fn is_clean(&self) -> bool {
        self.times > 0 && self.finding.is_none()
    }

    /// The judgement as the row has it.
    pub(super) fn text(&self) -> String {
        let Self { times, programs, finding } = self;
        match (times, finding) {
            (_, Some(_)) => format!("{} times, A FINDING: {programs}", grouped(*times)),
            (0, None) => format!("not judged: no rule met its case in {programs}"),
            (_, None) => format!("{} times, no finding: {programs}", grouped(*times)),
        }
    }
}

/// Schedules of a theme that are tried on each instruction set.
const SCHEDULES: u64 = 400;
/// Bytes of each of two nodes, between which pages move.
const NODE: u64 = 8 << 20;

/// Pages that move and are reclaimed while TLBs keep what was there.
pub(super) fn lingering() -> Result<Judgement, EvaluateError> {
    let node = NodeConfig { bytes: NODE, cpus: CpuMask::EMPTY };
    let nodes = ProgramNodes { nodes: vec![node; 2], distances: Vec::new() };
    random_programs(Theme::Lingering, (Antecedent::DeferralEnded, "deferrals"), nodes, " --node 0:8M --node 1:8M")
}

/// Huge pages that are shared, split and paged out in parts.
pub(super) fn huge() -> Result<Judgement, EvaluateError> {
    let case = (Antecedent::LargeBothWays, "folios both ways");
    random_programs(Theme::Huge, case, ProgramNodes::ONE, "")
}

/// Processes that share page tables.
pub(super) fn families() -> Result<Judgement, EvaluateError> {
    random_programs(Theme::Families, (Antecedent::SharedTables, "shared tables"), ProgramNodes::ONE, "")
}

/// Runs programs of a theme on both instruction sets; `words` make `check` use the same `nodes`.
///
/// Nothing counts as judged unless the mechanism's own `case` was.
fn random_programs(
    theme: Theme,
    (case, cases): (Antecedent, &str),
    nodes: ProgramNodes,
    words: &str,
) -> Result<Judgement, EvaluateError> {
    let plan = SurveyPlan { seed: 0, cpus: None, accesses: 0, schedules: SCHEDULES, theme: Some(theme), nodes };
    let (mut tally, mut tried, mut finding) = (Tally::default(), 0, None);
    for isa in IsaKind::ALL {
        let survey = survey(isa, &plan, &mut |_| {}).map_err(|error| EvaluateError::Machine(error.to_string()))?;
        tally += &survey.tally;
        tried += survey.distinct;
        finding = finding.or_else(|| survey.bug.map(|bug| bug_text(&bug, false, words)));
    }
    let times = if tally.of(case) == 0 { 0 } else { tally.iter().map(|(_, count)| count).sum() };
    let programs = format!("{tried} schedules, {} {cases}", grouped(tally.of(case)));
    Ok(Judgement { times, programs, finding })
}

/// A captured program in half of its memory, whose pages reclaim unmaps in batches.
pub(super) fn batches() -> Result<Judgement, EvaluateError> {
    let report =
        replay_capture("python", "kunpeng920", 4, true, [(MmSetting::TlbBatch, MmSetting::TlbBatch.default())])?;
    let batches = report.counters.get("pw_tlb_batch_flushed").unwrap_or(0);
    let oracle = report.oracle.ok_or_else(|| EvaluateError::Machine("the oracle did not judge".to_owned()))?;
    let times = if batches == 0 { 0 } else { oracle.judged.0.iter().map(|(_, times)| times).sum() };
    let programs = format!("python in half its memory, {} batches", grouped(batches));
    Ok(Judgement { times, programs, finding: oracle.findings.first().cloned() })
}

/// Huge pages that one CPU clears past the cache and another reads.
///
/// The oracle has no rule for them, because the simulated machine has no cache. Words in real
/// memory are compared with zero.
pub(super) fn clears() -> Result<Judgement, EvaluateError> {
    let judged = judge_clears()?;
    let finding = (judged.wrong > 0).then(|| format!("{} words were not zero", grouped(judged.wrong)));
    let programs = if judged.by_another { "words that another CPU read" } else { "words that were read" };
    Ok(Judgement { times: judged.words, programs: format!("{programs} were zero"), finding })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_judged_or_has_a_finding_is_not_clean_and_says_so() {
        let of = |times, finding: Option<&str>| Judgement {
            times,
            programs: "3 schedules".to_owned(),
            finding: finding.map(str::to_owned),
        };
        for (judgement, is_clean, text) in [
            (of(1234, None), true, "1,234 times, no finding: 3 schedules"),
            (of(0, None), false, "not judged: no rule met its case in 3 schedules"),
            (of(1234, Some("O1")), false, "1,234 times, A FINDING: 3 schedules"),
        ] {
            assert_eq!((judgement.is_clean(), judgement.text().as_str()), (is_clean, text));
        }
    }
}
