//! Runs many random programs in both modes, and adds up what they did.

use super::explore_mode::ExploredProgram;
use super::fast_mode;
use super::minimise::{self, BugReport};
use super::operation_counts::OperationCounts;
use super::program::{ProgramMode, ProgramNodes, ProgramShape, RandomProgram, Theme};
use nix::time::{ClockId, clock_gettime};
use pagewright_arch::{Aarch64, Isa, X86_64};
use pagewright_check::{ReplayToken, SearchPlan, Tally};
use pagewright_lab::LabError;
use pagewright_types::IsaKind;
use std::time::Duration;

/// Operations of a program of fast mode: setup and body.
const FAST: (u16, u16) = (8, 120);
/// Operations of a program that is mostly calls: setup and body.
const CALLS: (u16, u16) = (8, 1000);
/// Programs of fast mode for each program that is mostly calls.
const FAST_PER_CALLS: u64 = 2;
/// One program of fast mode, and one of those that are mostly calls, in this many has huge pages.
const HUGE_ONE_IN: u64 = 8;
/// Schedules of each program of explore mode.
const SCHEDULES: u32 = 25;

/// The programs that [`survey()`] runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SurveyPlan {
    /// Seed of the programs and schedules.
    pub seed: u64,
    /// Number of CPUs; by default 4 in fast mode, 2 and 3 in explore mode.
    pub cpus: Option<u16>,
    /// Minimum of the accesses checked in fast mode.
    pub accesses: u64,
    /// Minimum of the different schedules in explore mode.
    pub schedules: u64,
    /// The theme of all programs of explore mode; by default they alternate.
    pub theme: Option<Theme>,
    /// The nodes of all machines.
    pub nodes: ProgramNodes,
}

impl SurveyPlan {
    /// Whether program `number` of those without interleaving has blocks of 2 MiB.
    fn is_huge(&self, number: u64) -> bool {
        self.theme == Some(Theme::Huge) || number % HUGE_ONE_IN == HUGE_ONE_IN - 1
    }
}

/// What [`survey()`] ran, and its first finding.
#[derive(Clone, Debug)]
pub struct Survey {
    /// The instruction set.
    pub isa: IsaKind,
    /// Programs of fast mode.
    pub fast_programs: u64,
    /// What the programs of fast mode did.
    pub fast: OperationCounts,
    /// CPU time of the programs of fast mode, measured.
    pub fast_time: Duration,
    /// Programs that are mostly calls.
    pub calls_programs: u64,
    /// What the programs that are mostly calls did.
    pub calls: OperationCounts,
    /// CPU time of the programs that are mostly calls, measured.
    pub calls_time: Duration,
    /// Programs of explore mode.
    pub explored_programs: u64,
    /// Schedules of explore mode.
    pub schedules: u64,
    /// Schedules with different traces.
    pub distinct: u64,
    /// Steps of all schedules.
    pub steps: u64,
    /// CPU time of the programs of explore mode, measured.
    pub explored_time: Duration,
    /// How often each rule judged something.
    pub tally: Tally,
    /// The first finding, which ended the survey.
    pub bug: Option<BugReport>,
}

impl Survey {
    fn new(isa: IsaKind) -> Self {
        Self {
            isa,
            fast_programs: 0,
            fast: OperationCounts::default(),
            fast_time: Duration::ZERO,
            calls_programs: 0,
            calls: OperationCounts::default(),
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

    /// Runs a program in fast mode; minimises it if it has findings.
    fn run<I: Isa>(&mut self, program: &RandomProgram) -> Result<OperationCounts, LabError> {
        let ran = fast_mode::run::<I>(program)?;
        self.tally += &ran.tally;
        if !ran.findings.is_empty() {
            self.bug = Some(minimise::minimise_fast::<I>(program, ran.findings));
        }
        Ok(ran.counts)
    }
}

/// Program `number` of fast mode.
pub fn fast_program(seed: u64, cpus: Option<u16>, number: u64) -> RandomProgram {
    let (setup, body) = FAST;
    let shape = ProgramShape { mode: ProgramMode::Fast, cpus: cpus.unwrap_or(4), setup, body, huge: false };
    RandomProgram::new(shape, nth_seed(seed, number))
}

/// Program `number` of those that are mostly calls.
pub fn calls_program(seed: u64, cpus: Option<u16>, number: u64) -> RandomProgram {
    let (setup, body) = CALLS;
    let shape = ProgramShape { mode: ProgramMode::Calls, cpus: cpus.unwrap_or(2), setup, body, huge: false };
    RandomProgram::new(shape, nth_seed(seed, number))
}

/// Program `number` of explore mode.
///
/// Themes, lengths and the number of CPUs (2 or 3) alternate, unless they are given.
pub fn explored_program(seed: u64, cpus: Option<u16>, theme: Option<Theme>, number: u64) -> RandomProgram {
    let themes = Theme::ALL.len() as u64;
    let (theme, lengths, huge) = match theme {
        // The other themes concentrate on one page, or have calls of their own.
        Some(Theme::Huge) if number % 2 == 1 => (Theme::ALL[(number / 2 % themes) as usize], number / 2 / themes, true),
        Some(theme) => (theme, number, false),
        None => (Theme::ALL[(number % themes) as usize], number / themes, false),
    };
    // One CPU forks or copies the page that two others access; a family has a process for each CPU.
    let usual = if matches!(theme, Theme::Copies | Theme::Families) { 3 } else { 3 - (lengths % 2) as u16 };
    let cpus = cpus.unwrap_or(usual);
    // In one round each CPU accesses the page, in another it switches away or becomes lazy.
    let rounds = if theme == Theme::Moving { 2 } else { 1 };
    // Each page of a family is stored to once and read by each process.
    let family = if theme == Theme::Families { 13 } else { 0 };
    let (setup, body) = (8 + family + (lengths % 3) as u16 * 4 + rounds * cpus, 4 + (lengths % 4) as u16 * 2);
    RandomProgram::new(
        ProgramShape { mode: ProgramMode::Explore(theme), cpus, setup, body, huge },
        nth_seed(seed, number),
    )
}

/// The seed of program `number`; neighbouring seeds give different programs.
fn nth_seed(seed: u64, number: u64) -> u64 {
    seed.wrapping_mul(1_000_003).wrapping_add(number)
}

/// CPU time of this host thread.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// Runs programs until the minimums of `plan` are reached, or until a finding, which is minimised.
///
/// `ran` is called after each program.
///
/// # Errors
/// [`LabError`], if the machine cannot be built.
pub fn survey(isa: IsaKind, plan: &SurveyPlan, ran: &mut dyn FnMut(&Survey)) -> Result<Survey, LabError> {
    match isa {
        IsaKind::X86_64 => survey_on::<X86_64>(plan, ran),
        IsaKind::Aarch64 => survey_on::<Aarch64>(plan, ran),
    }
}

fn survey_on<I: Isa>(plan: &SurveyPlan, ran: &mut dyn FnMut(&Survey)) -> Result<Survey, LabError> {
    let mut survey = Survey::new(I::KIND);
    let begun = cpu_time();
    while survey.fast.checked() < plan.accesses && survey.bug.is_none() {
        let number = survey.fast_programs;
        let program = fast_program(plan.seed, plan.cpus, number).on_nodes(&plan.nodes);
        let program = if plan.is_huge(number) { program.huge() } else { program };
        let counts = survey.run::<I>(&program)?;
        survey.fast += &counts;
        survey.fast_programs += 1;
        survey.fast_time = cpu_time() - begun;
        ran(&survey);
    }
    let begun = cpu_time();
    while survey.calls_programs < survey.fast_programs.div_ceil(FAST_PER_CALLS) && survey.bug.is_none() {
        let number = survey.calls_programs;
        let program = calls_program(plan.seed, None, number).on_nodes(&plan.nodes);
        let program = if plan.is_huge(number) { program.huge() } else { program };
        let counts = survey.run::<I>(&program)?;
        survey.calls += &counts;
        survey.calls_programs += 1;
        survey.calls_time = cpu_time() - begun;
        ran(&survey);
    }
    let begun = cpu_time();
    while survey.distinct < plan.schedules && survey.bug.is_none() {
        let program = explored_program(plan.seed, plan.cpus, plan.theme, survey.explored_programs);
        let program = program.on_nodes(&plan.nodes);
        let search_plan = SearchPlan { seed: program.seed, schedules: SCHEDULES, ..SearchPlan::default() };
        let search = ExploredProgram::new::<I>(&program)?.search::<I>(&search_plan);
        survey.explored_programs += 1;
        survey.schedules += u64::from(search.schedules);
        survey.distinct += u64::from(search.distinct);
        survey.steps += search.steps;
        survey.tally += &search.tally;
        survey.explored_time = cpu_time() - begun;
        ran(&survey);
        survey.bug = search.failing.map(|found| minimise::minimise_explored::<I>(&program, &found));
    }
    Ok(survey)
}

/// Runs a program again, in explore mode under the schedule of `token`.
///
/// # Errors
/// [`ProgramReplayError`].
pub fn replay(
    isa: IsaKind,
    program: &RandomProgram,
    token: Option<&ReplayToken>,
) -> Result<Option<BugReport>, ProgramReplayError> {
    match isa {
        IsaKind::X86_64 => replay_on::<X86_64>(program, token),
        IsaKind::Aarch64 => replay_on::<Aarch64>(program, token),
    }
}

fn replay_on<I: Isa>(
    program: &RandomProgram,
    token: Option<&ReplayToken>,
) -> Result<Option<BugReport>, ProgramReplayError> {
    let (isa, whole) = (I::KIND, program.whole());
    let bug = |findings, token, attempt| BugReport { isa, program: program.clone(), whole, token, findings, attempt };
    match (program.shape.mode, token) {
        (ProgramMode::Fast | ProgramMode::Calls, Some(_)) => Err(ProgramReplayError::NoSchedule),
        (ProgramMode::Fast | ProgramMode::Calls, None) => {
            let findings = fast_mode::run::<I>(program)?.findings;
            Ok((!findings.is_empty()).then(|| bug(findings, None, None)))
        }
        (ProgramMode::Linux, _) => Err(ProgramReplayError::BesideLinux),
        (ProgramMode::Explore(_), None) => Err(ProgramReplayError::NoToken),
        (ProgramMode::Explore(_), Some(token)) => {
            let explored = ExploredProgram::new::<I>(program)?;
            let attempt =
                pagewright_check::replay(token, &mut |chooser, detail| explored.attempt::<I>(chooser, detail))?;
            let findings = attempt.findings.clone();
            Ok((!findings.is_empty()).then(|| bug(findings, Some(token.clone()), Some(attempt))))
        }
    }
}

/// Why a program was not run again.
#[derive(Debug, thiserror::Error)]
pub enum ProgramReplayError {
    /// The machine cannot be built.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// The token belongs to another machine or other settings.
    #[error(transparent)]
    Foreign(#[from] pagewright_check::ForeignToken),
    /// There is a token, and the program is of fast mode.
    #[error("a program of fast mode has no schedule: omit the token")]
    NoSchedule,
    /// There is no token, and the program is of explore mode.
    #[error("a program of explore mode needs a replay token")]
    NoToken,
    /// The program is of Linux mode.
    #[error("a program of Linux mode runs with --against linux")]
    BesideLinux,
}
