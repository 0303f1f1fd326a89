//! `pagewright check`: runs random programs and schedules under the oracle.
//!
//! With `--against linux` it runs the programs here and on the host's Linux, without the oracle,
//! and compares results.
//!
//! It prints what was run and how often each rule of the oracle judged something. The exit status
//! is 1 if there is a finding, or if a rule that could have judged something never did. A finding
//! is printed with the command that reproduces it.

use super::{CommandError, examples};
use crate::options::{NodeOptions, OptionError, parse_isa};
use crate::progress::StepProgress;
use crate::show::cpus;
use pagewright_check::{Antecedent, ReplayToken, Tally, explain};
use pagewright_fuzz::against::{self, AgainstError, HugePrograms};
use pagewright_fuzz::random::{
    BugReport, MEETINGS, OperationCounts, ProgramNodes, ProgramReplayError, RandomProgram, Survey, SurveyPlan, Theme,
    needs_schedules, replay, survey, without_mechanism,
};
use pagewright_lab::LabError;
use pagewright_sim::MachineConfig;
use pagewright_types::IsaKind;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::process::ExitCode;

/// Options of `check`.
#[derive(clap::Args)]
#[command(after_help = examples::of_command("check", ""))]
pub(crate) struct Args {
    /// Seed of programs and schedules; the same seed runs the same ones.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Number of accesses to check in programs that run one operation at a time.
    ///
    /// For each instruction set; the default is 8000000. With --against linux: the number of
    /// operations to compare; the default is 100000.
    #[arg(long, value_name = "N")]
    steps: Option<u64>,
    /// Compare with another system: linux, the kernel of this computer.
    ///
    /// Runs each program here and there, one operation at a time, and compares results, errors and
    /// signals. With --theme huge, all programs use huge pages; without, one of eight.
    #[arg(long, value_name = "SYSTEM", conflicts_with_all = ["explore", "arch", "cpus", "node", "distance", "replay", "explain"])]
    against: Option<String>,
    /// Run only programs whose operations are interleaved.
    #[arg(long)]
    explore: bool,
    /// Run only interleaved programs of this theme.
    ///
    /// What a theme cannot show is no failure then. The themes are mixed, hot, copies, moving,
    /// tables, families, lingering, huge and together. With huge and --steps, programs with huge
    /// pages that run one operation at a time are run, too.
    #[arg(long, value_name = "THEME", value_parser = parse_theme)]
    theme: Option<Theme>,
    /// Number of different schedules to try, for each instruction set.
    #[arg(long, value_name = "N", default_value_t = 1500)]
    schedules: u64,
    /// Instruction set: x86-64 or arm64.
    ///
    /// The default is both, one after the other.
    #[arg(long, value_name = "ISA")]
    arch: Option<String>,
    /// Number of CPUs, 1 to 64.
    ///
    /// The default is 4 for programs that run one operation at a time, 2 for those that are mostly
    /// system calls, 2 or 3 for those whose operations are interleaved.
    #[arg(long, value_name = "N")]
    cpus: Option<u16>,
    #[command(flatten)]
    nodes: NodeOptions,
    /// Draw the steps that lead to the finding, a column for each CPU.
    #[arg(long)]
    explain: bool,
    /// Run --program under the schedule of this token, as printed with a finding.
    #[arg(long, value_name = "TOKEN", requires = "program")]
    replay: Option<String>,
    /// Run only this program, as printed with a finding; needs --arch or --against linux.
    #[arg(long, value_name = "PROGRAM")]
    program: Option<String>,
    /// Plant a bug, to see that it is found (only in builds with the feature `planted`).
    #[cfg(feature = "planted")]
    #[arg(long, value_name = "BUG")]
    plant: Option<String>,
}

/// Why an option of `check` was refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CheckError {
    #[error("--program: {0}")]
    Program(#[from] pagewright_fuzz::random::ParseProgramError),
    #[error("--replay: {0}")]
    ReplayToken(#[from] pagewright_check::ReplayTokenError),
    #[error("the machine cannot be built: {0}")]
    Lab(#[from] LabError),
    #[error("--replay: {0}")]
    Replay(#[from] ProgramReplayError),
    #[error("--program: add --arch, or --against linux for a program that begins with linux-")]
    NoArch,
    #[error("--against {0}: must be linux")]
    Against(String),
    #[error("--theme: with --against linux, must be huge")]
    ThemeAgainst,
    #[error("--against linux: {0}")]
    NotCompared(#[from] AgainstError),
    #[error("--cpus {0}: must be 1 to {MOST_CPUS}")]
    Cpus(u16),
    #[cfg(feature = "planted")]
    #[error("--plant {0}: unknown bug")]
    Plant(String),
}

fn parse_theme(name: &str) -> Result<Theme, String> {
    Theme::named(name).ok_or_else(|| {
        let names: Vec<_> = Theme::ALL.iter().map(|theme| theme.name()).collect();
        format!("must be one of {}", names.join(", "))
    })
}

/// Default of `--steps`: accesses checked on each instruction set.
const ACCESSES: u64 = 8_000_000;
/// Default of `--steps` with `--against linux`: operations compared.
const OPERATIONS_AGAINST_LINUX: u64 = 100_000;
/// Number of CPUs of a program without `--cpus`, at most.
const MOST_DEFAULT_CPUS: u16 = 4;
/// Limit of `--cpus`; all CPUs of these programs share a few pages, so more add nothing.
const MOST_CPUS: u16 = 64;

pub(crate) fn run(args: &Args) -> Result<ExitCode, CommandError> {
    #[cfg(feature = "planted")]
    if let Some(name) = &args.plant {
        let plant = pagewright_fuzz::random::PlantedBug::named(name).ok_or_else(|| CheckError::Plant(name.clone()))?;
        pagewright_fuzz::random::plant(Some(plant));
    }
    if let Some(system) = &args.against {
        return compare_with(system, args);
    }
    if let Some(cpus) = args.cpus.filter(|cpus| !(1..=MOST_CPUS).contains(cpus)) {
        return Err(CheckError::Cpus(cpus).into());
    }
    let isa = args.arch.as_deref().map(parse_isa).transpose()?;
    let nodes = nodes(args)?;
    match (&args.program, isa) {
        (Some(program), Some(isa)) => reproduce(args, program, isa, &nodes),
        (Some(_), None) => Err(CheckError::NoArch.into()),
        (None, isa) => run_many(args, isa, nodes),
    }
}

/// The nodes of the machines, validated for the most CPUs that a program has.
fn nodes(args: &Args) -> Result<ProgramNodes, OptionError> {
    let given = ProgramNodes { nodes: args.nodes.nodes()?, distances: args.nodes.distances()? };
    let mut machine = MachineConfig::default_for(IsaKind::X86_64)?;
    machine.cpus = args.cpus.unwrap_or(MOST_DEFAULT_CPUS);
    if args.nodes.are_given() {
        machine.nodes.clone_from(&given.nodes);
    }
    machine.distances.clone_from(&given.distances);
    machine.validate(IsaKind::X86_64).map_err(|error| OptionError::machine(error, true))?;
    Ok(given)
}

/// Runs programs here and on `system`, which must be Linux, and compares the results.
fn compare_with(system: &str, args: &Args) -> Result<ExitCode, CommandError> {
    if system != "linux" {
        return Err(CheckError::Against(system.to_owned()).into());
    }
    let mut out = io::stdout().lock();
    let difference = match &args.program {
        Some(program) => {
            let program = program.parse().map_err(CheckError::Program)?;
            let difference = against::compare_again(&program).map_err(CheckError::NotCompared)?;
            if difference.is_none() {
                writeln!(out, "{program}: same results here and on Linux")?;
            }
            difference
        }
        None => {
            let operations = args.steps.unwrap_or(OPERATIONS_AGAINST_LINUX);
            let huge = match args.theme {
                None => HugePrograms::Some,
                Some(Theme::Huge) => HugePrograms::All,
                Some(_) => return Err(CheckError::ThemeAgainst.into()),
            };
            let progress = StepProgress::start("check");
            let mut ran = |compared| progress.show(&format!("{compared} of {operations} operations compared"));
            let compared = against::compare(args.seed, operations, huge, &mut ran).map_err(CheckError::NotCompared)?;
            drop(progress);
            out.write_all(against::report::comparison(&compared).as_bytes())?;
            compared.difference
        }
    };
    let Some(difference) = difference else { return Ok(ExitCode::SUCCESS) };
    out.write_all(against::report::difference(&difference).as_bytes())?;
    Ok(ExitCode::FAILURE)
}

fn run_many(args: &Args, isa: Option<IsaKind>, nodes: ProgramNodes) -> Result<ExitCode, CommandError> {
    let only_explored = args.explore || args.theme.is_some_and(|theme| theme != Theme::Huge || args.steps.is_none());
    let accesses = if only_explored { 0 } else { args.steps.unwrap_or(ACCESSES) };
    let Args { seed, cpus, schedules, theme, .. } = *args;
    let plan = SurveyPlan { seed, cpus, accesses, schedules, theme, nodes };
    let (mut total, mut surveys) = (Tally::default(), Vec::new());
    let progress = StepProgress::start("check");
    let mut ran = |survey: &Survey| progress.show(&progress_text(survey, &plan));
    let mut out = io::stdout().lock();
    let isas = isa.map_or(IsaKind::ALL.to_vec(), |isa| vec![isa]);
    for isa in isas.iter().copied() {
        let survey = survey(isa, &plan, &mut ran).map_err(CheckError::Lab)?;
        total += &survey.tally;
        progress.suspend(|| out.write_all(survey_text(&survey).as_bytes()))?;
        if let Some(bug) = &survey.bug {
            let text = bug_text(bug, args.explain, &more_words(args));
            progress.suspend(|| out.write_all(text.as_bytes()))?;
            return Ok(ExitCode::FAILURE);
        }
        surveys.push(survey);
    }
    drop(progress);
    let (text, vacuous) = antecedents_text(&total, &isas, &plan);
    out.write_all(text.as_bytes())?;
    out.write_all(meetings_text(&surveys, &plan).as_bytes())?;
    Ok(if vacuous && args.theme.is_none() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// How much of the plan has been run.
fn progress_text(survey: &Survey, plan: &SurveyPlan) -> String {
    let isa = survey.isa;
    if survey.explored_programs > 0 {
        return format!("{isa}: {} of {} schedules", survey.distinct, plan.schedules);
    }
    format!("{isa}: {} of {} accesses checked", survey.fast.checked(), plan.accesses)
}

/// Runs one program, under one schedule if a token is given.
fn reproduce(args: &Args, program: &str, isa: IsaKind, nodes: &ProgramNodes) -> Result<ExitCode, CommandError> {
    let program: RandomProgram = program.parse().map_err(CheckError::Program)?;
    let program = program.on_nodes(nodes);
    let token: Option<ReplayToken> =
        args.replay.as_deref().map(str::parse).transpose().map_err(CheckError::ReplayToken)?;
    let bug = replay(isa, &program, token.as_ref()).map_err(CheckError::Replay)?;
    let mut out = io::stdout().lock();
    match bug {
        Some(bug) => {
            out.write_all(bug_text(&bug, args.explain, &more_words(args)).as_bytes())?;
            Ok(ExitCode::FAILURE)
        }
        None => {
            writeln!(out, "{program} on {isa}: no finding")?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Lists what was run on one instruction set.
fn survey_text(survey: &Survey) -> String {
    let mut text = format!("{}\n", survey.isa);
    let Survey { fast, fast_time, explored_time, .. } = survey;
    if survey.fast_programs > 0 {
        let seconds = fast_time.as_secs_f64();
        let rate = fast.checked() as f64 / seconds / 1e6;
        let (programs, checked) = (survey.fast_programs, fast.checked());
        let _ = writeln!(text, "  one operation at a time: {programs} programs, {checked} accesses checked");
        let _ = writeln!(
            text,
            "    {rate:.1} million accesses checked per second of CPU time, calls included ({seconds:.1} s, measured)"
        );
        let [loads, stores, fetches] = fast.accesses;
        let _ = writeln!(text, "    {loads} loads, {stores} stores, {fetches} fetches");
        let [unmapped, forbidden, past, starved] = fast.signals;
        let _ = writeln!(
            text,
            "    signals: {unmapped} not mapped, {forbidden} not allowed, {past} past the end of the file, {starved} no memory"
        );
        text.push_str(&results_text(fast));
    }
    if survey.calls_programs > 0 {
        let Survey { calls_programs, calls, calls_time, .. } = survey;
        let seconds = calls_time.as_secs_f64();
        let made: u64 = calls.calls.values().sum();
        let _ = writeln!(
            text,
            "  mostly system calls: {calls_programs} programs, {made} calls and {} accesses checked, {seconds:.1} s of CPU time (measured)",
            calls.checked()
        );
        text.push_str(&results_text(calls));
    }
    if survey.explored_programs > 0 {
        let Survey { explored_programs, schedules, distinct, steps, .. } = survey;
        let _ = writeln!(
            text,
            "  interleaved: {explored_programs} programs, {schedules} schedules, {distinct} with different traces, {steps} steps, {:.1} s of CPU time (measured)",
            explored_time.as_secs_f64()
        );
    }
    text
}

/// Lists how often each call returned each errno.
fn results_text(counts: &OperationCounts) -> String {
    let mut text = format!("    {} allocations refused; {} operations skipped\n", counts.refused, counts.skipped);
    let mut last = "";
    for ((name, errno), times) in &counts.calls {
        let start = if *name == last { "," } else { &format!("\n    {name:24}") };
        let space = if errno.is_empty() { "" } else { " " };
        let start = if last.is_empty() { start.trim_start_matches('\n') } else { start };
        let _ = write!(text, "{start} {errno}{space}{times}");
        last = name;
    }
    text.push('\n');
    text
}

/// Lists how often each rule judged something.
///
/// The flag is true if a rule that could have judged something on these instruction sets never
/// did, in as many schedules.
fn antecedents_text(tally: &Tally, isas: &[IsaKind], plan: &SurveyPlan) -> (String, bool) {
    let schedules = plan.schedules;
    let mut text = "judged by the oracle, in all programs above\n".to_owned();
    let mut vacuous = Vec::new();
    for (antecedent, count) in tally.iter() {
        let reason = without_mechanism(antecedent, isas, &plan.nodes);
        let _ = match (count, reason) {
            (0, Some(reason)) => writeln!(text, "  {:24}{count:>12}  no mechanism: {reason}", antecedent.name()),
            (0, None) if schedules < needs_schedules(antecedent) => writeln!(
                text,
                "  {:24}{count:>12}  seldom: it takes {} schedules",
                antecedent.name(),
                needs_schedules(antecedent)
            ),
            _ => writeln!(text, "  {:24}{count:>12}", antecedent.name()),
        };
        if count == 0 && reason.is_none() && schedules >= needs_schedules(antecedent) {
            vacuous.push(antecedent);
        }
    }
    let warning = |antecedent: &Antecedent| {
        format!("never happened, so its rule judged nothing: {} ({})\n", antecedent.name(), antecedent.meaning())
    };
    text.extend(vacuous.iter().map(warning));
    (text, !vacuous.is_empty())
}

/// Lists how often each pair of mechanisms met.
fn meetings_text(surveys: &[Survey], plan: &SurveyPlan) -> String {
    let mut text = "mechanisms that met, in all programs above\n".to_owned();
    for (index, meeting) in MEETINGS.iter().enumerate() {
        let met: u64 = surveys.iter().map(|survey| survey.met()[index]).sum();
        let missing = if meeting.needs_nodes && plan.nodes.nodes.len() < 2 { "  on two nodes only" } else { "" };
        let _ = writeln!(text, "  {:36}{met:>10}  {meeting}{missing}", meeting.pair);
    }
    text
}

/// The words of the command line that a command needs which reproduces a bug, each after a space.
fn more_words(args: &Args) -> String {
    let words: String = args.nodes.words().map(|words| format!(" {words}")).collect();
    #[cfg(feature = "planted")]
    let words = args.plant.iter().fold(words, |words, plant| format!("{words} --plant {plant}"));
    words
}

/// Describes a bug: the finding, the minimised program, and the command that reproduces it.
///
/// With `drawn`, it draws the schedule; `more` are words that the command needs, too.
pub(super) fn bug_text(bug: &BugReport, drawn: bool, more: &str) -> String {
    let mut text = String::new();
    if let Some(first) = bug.findings.first() {
        let _ = writeln!(text, "FOUND: {first}");
    }
    if bug.findings.len() > 1 {
        let _ = writeln!(text, "(and {} later findings)", bug.findings.len() - 1);
    }
    let shape = bug.program.shape;
    let (left, whole) = (bug.program.len(), bug.whole.len());
    let _ = writeln!(
        text,
        "on {}, {}, seed {}; minimised to {left} of {whole} operations",
        bug.isa,
        cpus(shape.cpus.into()),
        bug.program.seed
    );
    let (setup, body) = bug.program.steps();
    if !setup.is_empty() {
        let _ = writeln!(text, "first, one at a time:");
    }
    text.extend(setup.iter().map(|step| format!("  {step}\n")));
    let heading = if bug.token.is_some() { "then, interleaved:" } else { "then:" };
    let _ = writeln!(text, "{heading}");
    text.extend(body.iter().map(|step| format!("  {step}\n")));
    if let Some(attempt) = &bug.attempt {
        if drawn {
            text.push_str(&explain(attempt));
        } else {
            let _ = writeln!(text, "{} steps; add --explain to draw them", attempt.report.steps);
        }
    }
    let _ = write!(text, "reproduce with: pagewright check --arch {} --program {}", bug.isa, bug.program);
    if let Some(token) = &bug.token {
        let _ = write!(text, " --replay {token}");
    }
    text.push_str(more);
    text.push('\n');
    text
}

impl From<CheckError> for CommandError {
    fn from(error: CheckError) -> Self {
        Self::Check(Box::new(error))
    }
}
