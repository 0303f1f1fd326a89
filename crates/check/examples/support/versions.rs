//! Checks the versions of an example: the correct one, and those with one bug each.

use pagewright_check::{CheckOutcome, Rule};
use std::fmt::Debug;

/// Checks each version; returns whether the rule that `rule_of` names found its bug.
///
/// A version for which `rule_of` returns `None` must be clean, by a search that is evidence.
pub(crate) fn have_expected_outcomes<V: Copy + Debug>(
    versions: &[V],
    rule_of: impl Fn(V) -> Option<Rule>,
    check: impl Fn(V) -> CheckOutcome,
) -> bool {
    let mut as_expected = true;
    for version in versions.iter().copied() {
        let (outcome, rule) = (check(version), rule_of(version));
        println!("=== {version:?} (expected: {})\n{outcome}\n", rule.map_or("clean", Rule::id));
        as_expected &= outcome.finding().map(|finding| finding.rule()) == rule.map(Some)
            && (rule.is_some() || outcome.vacuity().is_none());
    }
    as_expected
}
