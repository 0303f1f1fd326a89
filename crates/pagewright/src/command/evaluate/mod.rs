//! `pagewright evaluate`: repeats published measurements of a mechanism and compares the figures.
//!
//! Key types: [`Evaluation`], the results; [`Scale`], how much time an evaluation may take. An
//! evaluation is a function in [`ALL`]. `document` writes its results as JSON, `text` as tables and
//! `page` as HTML.
//!
//! Not guaranteed: that a published figure is reproduced. A figure that differs is printed with the
//! reason, if it is known.

mod batch;
mod claim;
mod clear;
mod cow_table;
mod document;
mod grid;
pub(super) mod half_memory;
mod headline;
mod limit;
mod lines;
mod migrc;
mod page;
mod parent;
mod plot;
mod rounds;
mod stats;
mod text;
mod thp;

use super::{CommandError, OutFile, examples};
use crate::files::CommandFiles;
use crate::made_by::MadeBy;
pub(crate) use crate::page::Table;
use crate::progress::StepProgress;
use crate::show::cpus;
#[cfg(test)]
pub(crate) use claim::verdicts;
pub(crate) use claim::{Claim, ClaimHead, ClaimRow, FigureKind, OurFigure, claims_of, promised, published};
pub(crate) use clear::judged::judge as judge_clears;
pub(crate) use document::{Evaluation, Figures, Plot, PlotAxis, PlotScale, Run, Series};
pub(crate) use grid::Grid;
pub(crate) use headline::{HEADLINES, Headline};
pub(crate) use limit::{Limit, RULE, Unit, Verdict};
use pagewright_host::HostFacts;
pub(in crate::command) use parent::{ForkMode, Parent, cuts};
pub(crate) use stats::{LeastStats, Stats};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::thread;
use std::time::Instant;
pub(in crate::command) use text::write_table;

/// How long an evaluation may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// At most a few minutes, by [`ALL`].
    Quick,
    /// Several minutes, with the largest inputs and more repetitions.
    Full,
}

impl Scale {
    const fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Full => "full",
        }
    }
}

/// The arguments of an evaluation.
pub(crate) struct Context<'a> {
    pub(crate) scale: Scale,
    progress: &'a StepProgress,
}

impl<'a> Context<'a> {
    /// The context of headlines, whose steps are shown as those of another command.
    pub(crate) fn of_headlines(progress: &'a StepProgress) -> Self {
        Self { scale: Scale::Quick, progress }
    }

    /// Shows the current step on standard error: a spinner, or a line every few seconds.
    pub(crate) fn show_step(&self, step: &str) {
        self.progress.show(step);
    }
}

type Evaluate = fn(&Context<'_>) -> Result<Evaluation, CommandError>;

/// The evaluations by name, with the time of a quick run on two idle CPUs.
const ALL: [(&str, Evaluate, &str); 6] = [
    ("batch", batch::run, "half a minute"),
    ("clear", clear::run, "two minutes"),
    ("cow-table", cow_table::run, "two minutes"),
    ("lines", lines::run, "ten seconds"),
    ("migrc", migrc::run, "four minutes"),
    ("thp", thp::run, "a quarter of a minute"),
];

/// Why an evaluation could not finish.
///
/// Every measurement may lack memory, or frames of its machine.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EvaluateError {
    /// No evaluation has that name.
    #[error("unknown evaluation {name}: the evaluations are {}", ALL.map(|(name, ..)| name).join(", "))]
    Unknown {
        /// The name on the command line.
        name: String,
    },
    /// The host has too little memory.
    #[error("evaluate: {0}")]
    Memory(#[from] pagewright_host::HostMemoryError),
    /// The machine could not be set up, or ran out of frames.
    #[error("evaluate: {0}")]
    Machine(String),
    /// A target was not zero after it had been cleared.
    #[error("evaluate: INV-CLEAR-WHOLE: {what} left bytes that are not zero")]
    NotZero {
        /// The stores and the extent.
        what: String,
    },
    /// A plot could not be drawn.
    #[error("evaluate: plot '{title}': {reason}")]
    Plot {
        /// The title of the plot.
        title: String,
        /// The error of the plotting library.
        reason: String,
    },
}

/// Options of `evaluate`.
#[derive(clap::Args)]
#[command(after_help = examples::of_command("evaluate", ""))]
pub(crate) struct Args {
    /// Evaluations to run: batch, clear, cow-table, lines, migrc or thp.
    ///
    /// batch counts and models flushes that reclaim defers, on simulated machines. clear measures
    /// uncached clearing of memory on this computer, with 5 GiB of memory. cow-table measures forks
    /// that share page tables, and Linux's, with up to half of the memory that is available. lines
    /// models the locks and counters that up to 64 CPUs share while they fault. migrc counts
    /// flushes that pages which move on memory tiers spare. thp counts and measures what huge pages
    /// cost and save. Each says how long it takes when it begins. The default is all.
    names: Vec<String>,
    /// Let clear, cow-table and migrc use larger inputs and more repetitions.
    ///
    /// clear then takes several minutes and 13 GiB of memory; cow-table forks up to 64 GiB; migrc
    /// takes several times as long.
    #[arg(long)]
    full: bool,
    /// Also write all results to a file as JSON (docs/json.md).
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also write tables and plots to a file as one HTML page.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl Args {
    pub(super) fn files(&self) -> CommandFiles {
        CommandFiles::default().writes("--json", self.json.as_deref()).writes("--html", self.html.as_deref())
    }
}

pub(crate) fn run(args: &Args) -> Result<(), CommandError> {
    let chosen = chosen(&args.names)?;
    let json = args.json.as_deref().map(OutFile::create).transpose()?;
    let html = args.html.as_deref().map(OutFile::create).transpose()?;
    let made_by = MadeBy::now();
    let progress = StepProgress::start("evaluate");
    let context = Context { scale: if args.full { Scale::Full } else { Scale::Quick }, progress: &progress };
    let mut evaluations = Vec::new();
    for (name, evaluate, takes) in chosen {
        let more = if args.full { ", with --full several times as long" } else { "" };
        progress.suspend(|| eprintln!("pagewright: {name} takes about {takes} on two idle CPUs{more}"));
        let began = Instant::now();
        let evaluation = evaluate(&context)?;
        progress.suspend(|| {
            let mut out = std::io::stdout().lock();
            text::evaluation(&mut out, &evaluation).and_then(|()| out.flush())
        })?;
        progress.suspend(|| eprintln!("pagewright: {name} took {} s", began.elapsed().as_secs()));
        evaluations.push(evaluation);
    }
    drop(progress);
    if let Some(json) = json {
        json.write_json(&made_by, &document::Document { evaluations: &evaluations })?;
    }
    if let Some(html) = html {
        html.write_text(&page::page(&evaluations, &made_by).map_err(CommandError::Evaluate)?)?;
    }
    Ok(())
}

/// Describes the computer, for evaluations that measure on it.
fn measured_on(facts: &HostFacts) -> BTreeMap<String, String> {
    let computer = if facts.is_virtual { "a virtual machine" } else { "no hypervisor reported" };
    BTreeMap::from([
        ("computer".to_owned(), computer.to_owned()),
        ("CPU".to_owned(), format!("{}, {}", facts.model, cpus(facts.cpus as u64))),
        ("system".to_owned(), format!("Linux {}, load {:.2}", facts.kernel_release, facts.load_percent as f64 / 100.0)),
    ])
}

/// A note if other programs ran at the same time; times in `unit` are then longer.
fn busy_note(facts: &HostFacts, unit: &str) -> Option<String> {
    let is_busy = facts.load_percent as usize > 100 * facts.cpus.max(1) / 2;
    is_busy.then(|| format!("This computer was busy: compare ratios, not {unit}."))
}

/// Runs each of `jobs` on a host thread of its own, in parallel.
///
/// # Panics
/// If a job panics.
fn run_parallel<J: Send, T: Send>(
    jobs: impl IntoIterator<Item = J>,
    run: impl Fn(J) -> Result<T, EvaluateError> + Sync,
) -> Result<Vec<T>, EvaluateError> {
    thread::scope(|scope| {
        let run = &run;
        let workers: Vec<_> = jobs.into_iter().map(|job| scope.spawn(move || run(job))).collect();
        let joined = workers.into_iter().map(|worker| worker.join());
        joined.map(|done| done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

fn chosen(names: &[String]) -> Result<Vec<(&'static str, Evaluate, &'static str)>, CommandError> {
    if names.is_empty() {
        return Ok(ALL.to_vec());
    }
    let by_name = |name: &String| {
        let of_name = ALL.iter().find(|(known, ..)| known == name).copied();
        of_name.ok_or_else(|| CommandError::Evaluate(EvaluateError::Unknown { name: name.clone() }))
    };
    let is_new = |(at, name): &(usize, &String)| !names[..*at].contains(name);
    names.iter().enumerate().filter(is_new).map(|(_, name)| by_name(name)).collect()
}
