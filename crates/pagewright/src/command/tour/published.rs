//! Published figures beside ours: those claims of an evaluation that do not need the whole of it.

use super::{StopEnd, indented};
use crate::command::CommandError;
use crate::command::evaluate::{self, EvaluateError, TourClaims};
use std::io::{StdoutLock, Write};

pub(super) fn batch(out: &mut StdoutLock<'_>) -> Result<StopEnd, CommandError> {
    claims(out, "batch", TourClaims::Published, None)
}

pub(super) fn migrc(out: &mut StdoutLock<'_>) -> Result<StopEnd, CommandError> {
    claims(out, "migrc", TourClaims::Published, None)
}

pub(super) fn clear(out: &mut StdoutLock<'_>) -> Result<StopEnd, CommandError> {
    claims(out, "clear", TourClaims::Published, None)
}

pub(super) fn cow_table(out: &mut StdoutLock<'_>) -> Result<StopEnd, CommandError> {
    forks(out)
}

pub(super) fn thp(out: &mut StdoutLock<'_>) -> Result<StopEnd, CommandError> {
    claims(out, "thp", TourClaims::All, Some("A huge page in two processes"))
}

/// The time of a fork over the size of its parent, and the claims beside it.
fn forks(out: &mut impl Write) -> Result<StopEnd, CommandError> {
    claims(out, "cow-table", TourClaims::Published, Some("Fork by size"))
}

/// Prints the claims, and the tables whose titles begin with `table`.
///
/// The verdict may be any, because a figure that differs is a result.
fn claims(
    out: &mut impl Write,
    evaluation: &str,
    shown: TourClaims,
    table: Option<&str>,
) -> Result<StopEnd, CommandError> {
    let text = match evaluate::tour_text(evaluation, shown, table) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forks_are_shown_by_size_beside_the_series_and_linux() {
        let mut text = Vec::new();
        assert_eq!(forks(&mut text).expect("an evaluation"), StopEnd::Shown);
        let text = String::from_utf8(text).expect("text");
        println!("{text}");
        if text.contains("Not measured here") {
            return;
        }
        for words in ["Fork by size and mappings", "classic µs", "shared µs", "Linux µs", "Fork of 512 MB"] {
            assert!(text.contains(words), "no '{words}' in: {text}");
        }
        for size in ["1 MiB", "8 MiB", "64 MiB", "512 MiB"] {
            assert!(text.lines().any(|line| line.trim().starts_with(size)), "no row of {size} in: {text}");
        }
    }
}
