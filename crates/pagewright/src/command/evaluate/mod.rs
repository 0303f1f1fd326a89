//! `pagewright evaluate`: the published before and after of each mechanism, run here and put beside
//! what was published.
//!
//! Key types: [`Evaluation`], what one of them found; [`Scale`], how much time it may take. An
//! evaluation is a function in [`ALL`]; it knows nothing of tables, JSON and pages, which
//! `document`, `text` and `page` make of what it found.
//!
//! Not guaranteed: that a figure is reproduced. One that differs is shown, with the reason.

mod batch;
mod clear;
mod document;
mod page;
mod plot;
mod stats;
mod text;

use super::{CommandError, OutFile};
pub(crate) use document::{Claim, Evaluation, Kind, OWN_PROMISE, Over, Plot, Run, Series, Table, Verdict};
use indicatif::{ProgressBar, ProgressStyle};
pub(crate) use stats::Stats;
use std::io::Write;
use std::path::PathBuf;

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// At most about a minute.
    Quick,
    /// Several minutes, with the largest inputs.
    Full,
}

/// What an evaluation is given.
pub(crate) struct Context<'a> {
    pub(crate) scale: Scale,
    progress: &'a ProgressBar,
}

impl Context<'_> {
    /// Says what is being done, to who watches.
    pub(crate) fn doing(&self, what: &str) {
        self.progress.set_message(what.to_owned());
        self.progress.tick();
    }
}

type Evaluate = fn(&Context<'_>) -> Result<Evaluation, CommandError>;

/// The evaluations, by name.
const ALL: [(&str, Evaluate); 2] = [("batch", batch::run), ("clear", clear::run)];

/// Why an evaluation was not done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EvaluateError {
    /// There is none of that name.
    #[error("evaluation '{name}': there is none; there are {}", ALL.map(|(name, _)| name).join(", "))]
    Unknown {
        /// As it was typed.
        name: String,
    },
    /// The host has not the memory.
    #[error("evaluate: {0}")]
    Memory(#[from] pagewright_host::HostMemoryError),
    /// The machine could not be set up, or ran out of frames.
    #[error("evaluate: {0}")]
    Machine(String),
    /// A target was not zero after it had been cleared.
    #[error("evaluate: INV-CLEAR-WHOLE: {what} left something behind")]
    NotZero {
        /// Which stores, over what.
        what: String,
    },
    /// A plot could not be drawn.
    #[error("evaluate: plot '{title}': {reason}")]
    Plot {
        /// Which.
        title: String,
        /// Why.
        reason: String,
    },
}

/// Options of `evaluate`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Which: batch, clear [default: all]
    names: Vec<String>,
    /// Take the time for the largest inputs and more repetitions (clear; minutes)
    #[arg(long)]
    full: bool,
    /// Write every figure to a file, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write tables and plots to one page for a browser
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<(), CommandError> {
    let chosen = chosen(&args.names)?;
    let json = args.json.as_deref().map(OutFile::create).transpose()?;
    let html = args.html.as_deref().map(OutFile::create).transpose()?;
    let progress = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
        progress.set_style(style);
    }
    let context = Context { scale: if args.full { Scale::Full } else { Scale::Quick }, progress: &progress };
    let mut found = Vec::new();
    for evaluate in chosen {
        let evaluation = evaluate(&context)?;
        progress.suspend(|| {
            let mut out = std::io::stdout().lock();
            text::evaluation(&mut out, &evaluation).and_then(|()| out.flush())
        })?;
        found.push(evaluation);
    }
    progress.finish_and_clear();
    if let Some(json) = json {
        json.write_json(&document::Document { schema: 1, evaluations: &found })?;
    }
    if let Some(html) = html {
        html.write_text(&page::page(&found).map_err(CommandError::Evaluate)?)?;
    }
    Ok(())
}

fn chosen(names: &[String]) -> Result<Vec<Evaluate>, CommandError> {
    if names.is_empty() {
        return Ok(ALL.iter().map(|(_, evaluate)| *evaluate).collect());
    }
    let by_name = |name: &String| {
        let found = ALL.iter().find(|(known, _)| known == name).map(|(_, evaluate)| *evaluate);
        found.ok_or_else(|| CommandError::Evaluate(EvaluateError::Unknown { name: name.clone() }))
    };
    names.iter().map(by_name).collect()
}
