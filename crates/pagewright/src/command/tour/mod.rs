//! `pagewright` without a command: the tour, which says what each mechanism is and shows figures.
//!
//! First comes a missing flush that is caught. Then the figures of all mechanisms are obtained,
//! those that are counted on two threads at once and then those that are measured, alone. Then come
//! a table with a row for each mechanism, which fits on one screen with the missing flush, and at
//! most ten lines of details for each. All takes at most a minute once the program is built.
//!
//! - `missing_flush` – a missing TLB flush, found, drawn and replayed.
//! - `mechanisms` – what each mechanism is, in words.
//! - `judgement` – how often the oracle judged a mechanism in this run, and what it found.
//! - `gather` – obtains figures and judgements.
//! - `screen` – prints them within 80 columns.

mod gather;
mod judgement;
mod mechanisms;
mod missing_flush;
mod screen;

use super::CommandError;
use crate::progress::StepProgress;
use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

/// Shows the tour.
///
/// The exit status is 1 if the missing flush is not caught, or if a mechanism has a finding or was
/// not judged.
pub(crate) fn run() -> Result<ExitCode, CommandError> {
    let mut out = std::io::stdout().lock();
    if let Some(token) = missing_flush::token_to_replay()? {
        return Ok(missing_flush::replay(&mut out, &token)?.into());
    }
    let began = Instant::now();
    let caught = missing_flush::show(&mut out)?;
    out.flush()?;
    let progress = StepProgress::start("tour");
    let gathered = gather::gather(&progress)?;
    drop(progress);
    screen::title(&mut out, "MECHANISMS: figures of this run; judged: comparisons that the oracle made")?;
    for of in &gathered {
        screen::row(&mut out, of)?;
    }
    writeln!(out)?;
    screen::title(&mut out, "DETAILS: schedules are of random programs, as pagewright check runs them")?;
    for of in &gathered {
        screen::details(&mut out, of)?;
    }
    writeln!(out, "\nThe tour took {:.0} s. docs/commands.md lists all commands.", began.elapsed().as_secs_f64())?;
    out.flush()?;
    let is_clean = gathered.iter().all(|of| of.judgement.is_clean());
    Ok(TourEnd::of(caught == TourEnd::Shown && is_clean).into())
}

/// How the tour, or a part of it, ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TourEnd {
    /// It showed what it says.
    Shown,
    /// It did not.
    Failed,
}

impl TourEnd {
    const fn of(is_shown: bool) -> Self {
        if is_shown { Self::Shown } else { Self::Failed }
    }
}

impl From<TourEnd> for ExitCode {
    fn from(end: TourEnd) -> Self {
        match end {
            TourEnd::Shown => Self::SUCCESS,
            TourEnd::Failed => Self::FAILURE,
        }
    }
}
