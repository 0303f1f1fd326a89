//! How a finding came about, as a drawing.

use crate::bench::Attempt;

/// Draws the run: one line for each thing that happened.
pub fn explain(attempt: &Attempt) -> String {
    attempt.report.log.iter().map(|step| format!("{:5}  {step}\n", step.at)).collect()
}
