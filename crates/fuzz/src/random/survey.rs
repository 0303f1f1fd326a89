//! Many random programs, in both modes, and what they came to.

use super::explore::Explored;
use super::fast;
use super::minimise::{self, Bug};
use super::program::{Mode, Program, Shape, Theme};
use super::tally::Done;
use nix::time::{ClockId, clock_gettime};
use pagewright_arch::{Aarch64, Isa, X86_64};
use pagewright_check::{Antecedent, ReplayToken, SearchPlan, Tally};
use pagewright_lab::LabError;
use pagewright_types::IsaKind;
use std::time::Duration;

/// Operations of a program in fast mode: calm ones, and others.
const FAST: (u16, u16) = (8, 120);
/// Operations of a program of calls.
const CALLS: (u16, u16) = (8, 1000);
/// Programs of fast mode for each program of calls.
const FAST_FOR_CALLS: u64 = 2;
/// Schedules that each program gets in explore mode.
const SCHEDULES: u32 = 25;

/// What can't have anything to judge, on one instruction set or on any, and why.
const WITHOUT_MECHANISM: [(Antecedent, Option<IsaKind>, &str); 3] = [
    (Antecedent::FrameDebt, None, "no flush is postponed past the freeing of a frame"),
    (Antecedent::Tails, None, "every folio is one page"),
    (
        Antecedent::Condemned,
        Some(IsaKind::Aarch64),
        "no CPU is lazy, and broadcasts reach what another CPU has under any tag",
    ),
];

/// Why `what` never happens on these instruction sets, if it can't.
pub fn without_mechanism(what: Antecedent, isas: &[IsaKind]) -> Option<&'static str> {
    let concerns = |only: &Option<IsaKind>| only.is_none_or(|only| isas.iter().all(|isa| *isa == only));
    let found = WITHOUT_MECHANISM.iter().find(|(without, only, _)| *without == what && concerns(only));
    found.map(|(_, _, why)| *why)
}

/// How much is to be tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Of the programs and schedules.
    pub seed: u64,
    /// CPUs of the machines; by default 4 in fast mode, 2 and 3 in explore mode.
    pub cpus: Option<u16>,
    /// Accesses to be checked in fast mode, at least.
    pub accesses: u64,
    /// Different schedules to be tried in explore mode, at least.
    pub schedules: u64,
}

/// What was tried, and what came of it.
#[derive(Clone, Debug)]
pub struct Survey {
    /// Where.
    pub isa: IsaKind,
    /// Programs run in fast mode.
    pub fast_programs: u64,
    /// What they did.
    pub fast: Done,
    /// Measured: how much CPU time they took.
    pub fast_time: Duration,
    /// Programs run that are mostly calls of every sort, operation by operation, too.
    pub calls_programs: u64,
    /// What they did.
    pub calls: Done,
    /// Measured: how much CPU time they took.
    pub calls_time: Duration,
    /// Programs run in explore mode.
    pub explored_programs: u64,
    /// Schedules tried.
    pub schedules: u64,
    /// Schedules whose steps differ.
    pub distinct: u64,
    /// Steps taken in them.
    pub steps: u64,
    /// Measured: how much CPU time they took.
    pub explored_time: Duration,
    /// What was judged, in both modes.
    pub tally: Tally,
    /// The first finding, with which it ended.
    pub bug: Option<Bug>,
}

impl Survey {
    fn new(isa: IsaKind) -> Self {
        Self {
            isa,
            fast_programs: 0,
            fast: Done::default(),
            fast_time: Duration::ZERO,
            calls_programs: 0,
            calls: Done::default(),
            calls_time: Duration::ZERO,
            explored_programs: 0,
            schedules: 0,
            distinct: 0,
            steps: 0,
            explored_time: Duration::ZERO,
            tally: Tally::default(),
            bug: None,
        }
    }
}

/// The program of this number among those of fast mode.
pub fn fast_program(seed: u64, cpus: Option<u16>, number: u64) -> Program {
    let (calm, others) = FAST;
    let shape = Shape { mode: Mode::Fast, cpus: cpus.unwrap_or(4), calm, others };
    Program::new(shape, nth_seed(seed, number))
}

/// The program of this number among those that are mostly calls.
pub fn calls_program(seed: u64, cpus: Option<u16>, number: u64) -> Program {
    let (calm, others) = CALLS;
    let shape = Shape { mode: Mode::Calls, cpus: cpus.unwrap_or(2), calm, others };
    Program::new(shape, nth_seed(seed, number))
}

/// The program of this number among those of explore mode: about one thing after the other, or
/// always about `theme`, with two CPUs and with three, with short beginnings and long ones.
pub fn explored_program(seed: u64, cpus: Option<u16>, theme: Option<Theme>, number: u64) -> Program {
    let themes = Theme::ALL.len() as u64;
    let (theme, lengths) = match theme {
        Some(theme) => (theme, number),
        None => (Theme::ALL[(number % themes) as usize], number / themes),
    };
    // Two who use one page differently, and one who makes the difference, are three.
    let usual = if theme == Theme::Copies { 3 } else { 3 - (lengths % 2) as u16 };
    let cpus = cpus.unwrap_or(usual);
    // Each CPU has used the page, has left, and has become lazy there.
    let rounds = if theme == Theme::Moving { 2 } else { 1 };
    let (calm, others) = (8 + (lengths % 3) as u16 * 4 + rounds * cpus, 4 + (lengths % 4) as u16 * 2);
    Program::new(Shape { mode: Mode::Explore(theme), cpus, calm, others }, nth_seed(seed, number))
}

/// Seeds that lie side by side give programs of their own.
fn nth_seed(seed: u64, number: u64) -> u64 {
    seed.wrapping_mul(1_000_003).wrapping_add(number)
}

/// CPU time that this host thread has had: what else runs on the host does not count.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// Runs programs until enough was tried or something was found, which is cut down.
///
/// # Errors
/// [`LabError`], when there is no such machine.
pub fn survey(isa: IsaKind, effort: &Effort) -> Result<Survey, LabError> {
    match isa {
        IsaKind::X86_64 => survey_on::<X86_64>(effort),
        IsaKind::Aarch64 => survey_on::<Aarch64>(effort),
    }
}

fn survey_on<I: Isa>(effort: &Effort) -> Result<Survey, LabError> {
    let mut survey = Survey::new(I::KIND);
    let begun = cpu_time();
    while survey.fast.checked() < effort.accesses && survey.bug.is_none() {
        let program = fast_program(effort.seed, effort.cpus, survey.fast_programs);
        let ran = fast::run::<I>(&program)?;
        survey.fast_programs += 1;
        survey.fast += &ran.done;
        survey.tally += &ran.tally;
        survey.fast_time = cpu_time() - begun;
        if !ran.findings.is_empty() {
            survey.bug = Some(minimise::of_fast::<I>(&program, ran.findings));
        }
    }
    let begun = cpu_time();
    while survey.calls_programs < survey.fast_programs.div_ceil(FAST_FOR_CALLS) && survey.bug.is_none() {
        let program = calls_program(effort.seed, None, survey.calls_programs);
        let ran = fast::run::<I>(&program)?;
        survey.calls_programs += 1;
        survey.calls += &ran.done;
        survey.tally += &ran.tally;
        survey.calls_time = cpu_time() - begun;
        if !ran.findings.is_empty() {
            survey.bug = Some(minimise::of_fast::<I>(&program, ran.findings));
        }
    }
    let begun = cpu_time();
    while survey.distinct < effort.schedules && survey.bug.is_none() {
        let program = explored_program(effort.seed, effort.cpus, None, survey.explored_programs);
        let plan = SearchPlan { seed: program.seed, schedules: SCHEDULES, ..SearchPlan::default() };
        let search = Explored::new::<I>(&program)?.search::<I>(&plan);
        survey.explored_programs += 1;
        survey.schedules += u64::from(search.schedules);
        survey.distinct += u64::from(search.distinct);
        survey.steps += search.steps;
        survey.tally += &search.tally;
        survey.explored_time = cpu_time() - begun;
        survey.bug = search.failing.map(|found| minimise::of_explored::<I>(&program, &found));
    }
    Ok(survey)
}

/// Runs one program again: in explore mode under the schedule of `token`, or calmly without one.
///
/// # Errors
/// [`ReplayError`].
pub fn replay(isa: IsaKind, program: &Program, token: Option<&ReplayToken>) -> Result<Option<Bug>, ReplayError> {
    match isa {
        IsaKind::X86_64 => replay_on::<X86_64>(program, token),
        IsaKind::Aarch64 => replay_on::<Aarch64>(program, token),
    }
}

fn replay_on<I: Isa>(program: &Program, token: Option<&ReplayToken>) -> Result<Option<Bug>, ReplayError> {
    let (isa, whole) = (I::KIND, Program::new(program.shape, program.seed));
    let bug = |findings, token, attempt| Bug { isa, program: program.clone(), whole, token, findings, attempt };
    match (program.shape.mode, token) {
        (Mode::Fast | Mode::Calls, Some(_)) => Err(ReplayError::NoSchedule),
        (Mode::Fast | Mode::Calls, None) => {
            let findings = fast::run::<I>(program)?.findings;
            Ok((!findings.is_empty()).then(|| bug(findings, None, None)))
        }
        (Mode::Linux, _) => Err(ReplayError::BesideLinux),
        (Mode::Explore(_), None) => Err(ReplayError::NoToken),
        (Mode::Explore(_), Some(token)) => {
            let explored = Explored::new::<I>(program)?;
            let attempt =
                pagewright_check::replay(token, &mut |chooser, detail| explored.attempt::<I>(chooser, detail))?;
            let findings = attempt.findings.clone();
            Ok((!findings.is_empty()).then(|| bug(findings, Some(token.clone()), Some(attempt))))
        }
    }
}

/// Why a program can't be run again.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// There is no such machine.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// The token is another machine's.
    #[error(transparent)]
    Foreign(#[from] pagewright_check::ForeignToken),
    /// A token where there is no schedule.
    #[error("a program of fast mode has no schedule to replay")]
    NoSchedule,
    /// No token where there must be one.
    #[error("a program of explore mode needs a replay token")]
    NoToken,
    /// A program that is not for the oracle.
    #[error("a program of linux mode runs with --against linux")]
    BesideLinux,
}
