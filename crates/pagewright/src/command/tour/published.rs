//! Published figures beside ours: those claims of an evaluation that do not need the whole of it.

use super::{StopEnd, indented};
use crate::command::CommandError;
use crate::command::evaluate::{self, EvaluateError};
use std::io::{StdoutLock, Write};

pub(super) fn batch(out: &mut StdoutLock<'_>) -> Result<StopEnd, CommandError> {
    claims(out, "batch", None)
}

pub(super) fn clear(out: &mut StdoutLock<'_>) -> Result<StopEnd, CommandError> {
    claims(out, "clear", None)
}

pub(super) fn cow_table(out: &mut StdoutLock<'_>) -> Result<StopEnd, CommandError> {
    claims(out, "cow-table", Some("Fork by size"))
}

/// Prints the claims, and the tables whose titles begin with `table`.
///
/// The verdict may be any, because a figure that differs is a result.
fn claims(out: &mut StdoutLock<'_>, evaluation: &str, table: Option<&str>) -> Result<StopEnd, CommandError> {
    let text = match evaluate::published_claims(evaluation, table) {
        Ok(text) => text,
        // A small computer is no failure of the mechanism.
        Err(CommandError::Evaluate(error @ EvaluateError::Memory(_))) => {
            writeln!(out, "   Not measured here: {error}")?;
            return Ok(StopEnd::Shown);
        }
        Err(error) => return Err(error),
    };
    indented(out, &text)?;
    Ok(if text.is_empty() { StopEnd::Failed } else { StopEnd::Shown })
}
