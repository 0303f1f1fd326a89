//! `pagewright check`: random programs and schedules under the oracle.
//!
//! With `--against linux`, on the Linux underneath as well, without the oracle.
//!
//! Prints what was run and how often each rule had something to judge. Exit status 1 when something
//! was found, or when a rule had nothing to judge that could have had; what is printed then replays
//! it.

use super::CommandError;
use crate::options::isa_named;
use pagewright_check::{Antecedent, ReplayToken, Tally, explain};
use pagewright_fuzz::against::{self, AgainstError};
use pagewright_fuzz::random::{Bug, Done, Effort, Program, ReplayError, Survey, replay, survey, without_mechanism};
use pagewright_lab::LabError;
use pagewright_types::IsaKind;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::process::ExitCode;

/// Options of `check`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Seeds programs and schedules; the same seed tries the same
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    #[arg(
        long,
        value_name = "N",
        help = "Accesses to be checked, operation by operation, on each instruction set [default: 8000000]; beside Linux, operations [default: 100000]"
    )]
    steps: Option<u64>,
    /// Run the same programs on the Linux underneath and compare: linux
    #[arg(long, value_name = "WHAT", conflicts_with_all = ["explore", "arch", "cpus", "replay", "explain"])]
    against: Option<String>,
    /// Only programs whose operations are interleaved
    #[arg(long)]
    explore: bool,
    /// Different schedules to be tried on each instruction set
    #[arg(long, value_name = "N", default_value_t = 1500)]
    schedules: u64,
    /// Instruction set: x86-64 or arm64 [default: both]
    #[arg(long, value_name = "A")]
    arch: Option<String>,
    /// Number of CPUs [default: 4, and 2 or 3 where operations are interleaved]
    #[arg(long, value_name = "N")]
    cpus: Option<u16>,
    /// Draw how it came to what was found
    #[arg(long)]
    explain: bool,
    /// Run one program again under this schedule
    #[arg(long, value_name = "TOKEN", requires = "program")]
    replay: Option<String>,
    /// The program to run again
    #[arg(long, value_name = "P")]
    program: Option<String>,
    /// Plant a bug first (only in builds with planted bugs)
    #[cfg(feature = "planted")]
    #[arg(long, value_name = "BUG")]
    plant: Option<String>,
}

/// What is wrong with an option of `check`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CheckError {
    #[error("--program: {0}")]
    Program(#[from] pagewright_fuzz::random::NotAProgram),
    #[error("--replay: {0}")]
    ReplayToken(#[from] pagewright_check::ReplayTokenError),
    #[error("impossible machine: {0}")]
    Lab(#[from] LabError),
    #[error("--replay: {0}")]
    Replay(#[from] ReplayError),
    #[error("--program: on which instruction set? Say --arch, or --against linux for a program of linux mode")]
    NoArch,
    #[error("--against {0}: only linux can be compared with")]
    Against(String),
    #[error("{0}")]
    NotCompared(#[from] AgainstError),
    #[error("--cpus {0}: must be 1 to {MOST_CPUS}")]
    Cpus(u16),
    #[cfg(feature = "planted")]
    #[error("--plant {0}: no such bug")]
    Plant(String),
}

/// Accesses that are checked on each instruction set, unless asked for otherwise.
const ACCESSES: u64 = 8_000_000;
/// Operations that are compared beside Linux.
const OPERATIONS_BESIDE_LINUX: u64 = 100_000;
/// The most CPUs that make sense for programs that meet on a few pages.
const MOST_CPUS: u16 = 64;

pub(crate) fn run(args: &Args) -> Result<ExitCode, CommandError> {
    #[cfg(feature = "planted")]
    if let Some(name) = &args.plant {
        let plant = pagewright_fuzz::random::PlantedBug::named(name).ok_or_else(|| CheckError::Plant(name.clone()))?;
        pagewright_fuzz::random::plant(Some(plant));
    }
    if let Some(what) = &args.against {
        return run_against(what, args);
    }
    if let Some(cpus) = args.cpus.filter(|cpus| !(1..=MOST_CPUS).contains(cpus)) {
        return Err(CheckError::Cpus(cpus).into());
    }
    let isa = args.arch.as_deref().map(isa_named).transpose()?;
    match (&args.program, isa) {
        (Some(program), Some(isa)) => run_again(args, program, isa),
        (Some(_), None) => Err(CheckError::NoArch.into()),
        (None, isa) => run_many(args, isa),
    }
}

/// The same programs on Linux, too.
fn run_against(what: &str, args: &Args) -> Result<ExitCode, CommandError> {
    if what != "linux" {
        return Err(CheckError::Against(what.to_owned()).into());
    }
    let mut out = io::stdout().lock();
    let found = match &args.program {
        Some(program) => {
            let program = program.parse().map_err(CheckError::Program)?;
            let found = against::compare_again(&program).map_err(CheckError::NotCompared)?;
            if found.is_none() {
                writeln!(out, "{program}: both show the same")?;
            }
            found
        }
        None => {
            let operations = args.steps.unwrap_or(OPERATIONS_BESIDE_LINUX);
            let compared = against::compare(args.seed, operations).map_err(CheckError::NotCompared)?;
            out.write_all(against::report::compared(&compared).as_bytes())?;
            compared.found
        }
    };
    let Some(found) = found else { return Ok(ExitCode::SUCCESS) };
    out.write_all(against::report::found(&found).as_bytes())?;
    Ok(ExitCode::FAILURE)
}

fn run_many(args: &Args, isa: Option<IsaKind>) -> Result<ExitCode, CommandError> {
    let accesses = if args.explore { 0 } else { args.steps.unwrap_or(ACCESSES) };
    let effort = Effort { seed: args.seed, cpus: args.cpus, accesses, schedules: args.schedules };
    let mut total = Tally::default();
    let mut out = io::stdout().lock();
    let isas = isa.map_or(IsaKind::ALL.to_vec(), |isa| vec![isa]);
    for isa in isas.iter().copied() {
        let survey = survey(isa, &effort).map_err(CheckError::Lab)?;
        total += &survey.tally;
        out.write_all(told(&survey).as_bytes())?;
        if let Some(bug) = &survey.bug {
            out.write_all(report(bug, args).as_bytes())?;
            return Ok(ExitCode::FAILURE);
        }
    }
    let (text, vacuous) = judged(&total, &isas);
    out.write_all(text.as_bytes())?;
    Ok(if vacuous { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn run_again(args: &Args, program: &str, isa: IsaKind) -> Result<ExitCode, CommandError> {
    let program: Program = program.parse().map_err(CheckError::Program)?;
    let token: Option<ReplayToken> =
        args.replay.as_deref().map(str::parse).transpose().map_err(CheckError::ReplayToken)?;
    let bug = replay(isa, &program, token.as_ref()).map_err(CheckError::Replay)?;
    let mut out = io::stdout().lock();
    match bug {
        Some(bug) => {
            out.write_all(report(&bug, args).as_bytes())?;
            Ok(ExitCode::FAILURE)
        }
        None => {
            writeln!(out, "{program} on {isa}: nothing was found")?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// What was run on one instruction set.
fn told(survey: &Survey) -> String {
    let mut text = format!("{}\n", survey.isa);
    let Survey { fast, fast_time, explored_time, .. } = survey;
    if survey.fast_programs > 0 {
        let seconds = fast_time.as_secs_f64();
        let rate = fast.checked() as f64 / seconds / 1e6;
        let (programs, checked) = (survey.fast_programs, fast.checked());
        let _ = writeln!(text, "  operation by operation: {programs} programs, {checked} accesses checked");
        let _ = writeln!(
            text,
            "    {rate:.1} million accesses checked in a second of one CPU, measured over {seconds:.1} s with the calls between them"
        );
        let [loads, stores, fetches] = fast.accesses;
        let _ = writeln!(text, "    {loads} loads, {stores} stores, {fetches} fetches");
        let [unmapped, forbidden, past, starved] = fast.signals;
        let _ = writeln!(
            text,
            "    signals: {unmapped} not mapped, {forbidden} not allowed, {past} past the end of the file, {starved} no memory"
        );
        text.push_str(&answers(fast));
    }
    if survey.calls_programs > 0 {
        let Survey { calls_programs, calls, calls_time, .. } = survey;
        let seconds = calls_time.as_secs_f64();
        let made: u64 = calls.calls.values().sum();
        let _ = writeln!(
            text,
            "  calls of every sort: {calls_programs} programs, {made} calls and {} accesses checked, {seconds:.1} s of one CPU (measured)",
            calls.checked()
        );
        text.push_str(&answers(calls));
    }
    if survey.explored_programs > 0 {
        let Survey { explored_programs, schedules, distinct, steps, .. } = survey;
        let _ = writeln!(
            text,
            "  interleaved: {explored_programs} programs, {schedules} schedules, {distinct} with different traces, {steps} steps, {:.1} s of one CPU (measured)",
            explored_time.as_secs_f64()
        );
    }
    text
}

/// How often each call answered what.
fn answers(done: &Done) -> String {
    let mut text = format!("    {} allocations refused; {} operations left out\n", done.refused, done.left_out);
    let mut last = "";
    for ((name, errno), times) in &done.calls {
        let start = if *name == last { "," } else { &format!("\n    {name:24}") };
        let space = if errno.is_empty() { "" } else { " " };
        let start = if last.is_empty() { start.trim_start_matches('\n') } else { start };
        let _ = write!(text, "{start} {errno}{space}{times}");
        last = name;
    }
    text.push('\n');
    text
}

/// How often each rule had something to judge, and whether one had not that should have had.
fn judged(tally: &Tally, isas: &[IsaKind]) -> (String, bool) {
    let mut text = "judged, on all of these\n".to_owned();
    let mut vacuous = Vec::new();
    for (what, count) in tally.iter() {
        let reason = without_mechanism(what, isas);
        let _ = match (count, reason) {
            (0, Some(reason)) => writeln!(text, "  {:24}{count:>12}  no mechanism: {reason}", what.name()),
            _ => writeln!(text, "  {:24}{count:>12}", what.name()),
        };
        if count == 0 && reason.is_none() {
            vacuous.push(what);
        }
    }
    let meaning = |what: &Antecedent| {
        format!("never happened, so its rule judged nothing: {} ({})\n", what.name(), what.meaning())
    };
    text.extend(vacuous.iter().map(meaning));
    (text, !vacuous.is_empty())
}

/// What was found, by what, and how to see it again.
fn report(bug: &Bug, args: &Args) -> String {
    let mut text = String::new();
    if let Some(first) = bug.findings.first() {
        let _ = writeln!(text, "FOUND: {first}");
    }
    if bug.findings.len() > 1 {
        let _ = writeln!(text, "(and {} more like it or after it)", bug.findings.len() - 1);
    }
    let shape = bug.program.shape;
    let (left, drawn) = (bug.program.len(), bug.whole.len());
    let _ = writeln!(
        text,
        "on {}, {} CPUs, seed {}; {left} of the program's {drawn} operations are left",
        bug.isa, shape.cpus, bug.program.seed
    );
    let (calm, others) = bug.program.steps();
    if !calm.is_empty() {
        let _ = writeln!(text, "first, one after the other:");
    }
    text.extend(calm.iter().map(|step| format!("  {step}\n")));
    let how = if bug.token.is_some() { "then, interleaved:" } else { "then:" };
    let _ = writeln!(text, "{how}");
    text.extend(others.iter().map(|step| format!("  {step}\n")));
    if let Some(attempt) = &bug.attempt {
        if args.explain {
            text.push_str(&explain(attempt));
        } else {
            let _ = writeln!(text, "{} steps; --explain draws them", attempt.report.steps);
        }
    }
    let _ = write!(text, "again: pagewright check --arch {} --program {}", bug.isa, bug.program);
    if let Some(token) = &bug.token {
        let _ = write!(text, " --replay {token}");
    }
    #[cfg(feature = "planted")]
    if let Some(plant) = &args.plant {
        let _ = write!(text, " --plant {plant}");
    }
    text.push('\n');
    text
}

impl From<CheckError> for CommandError {
    fn from(error: CheckError) -> Self {
        Self::Check(Box::new(error))
    }
}
