//! Random programs find the planted bugs that memory calls and accesses can trigger.
//!
//! For each bug, programs of a seed find it within a budget, by the rule that it breaks, and the
//! printed token reproduces it. With `PAGEWRIGHT_SOAK` programs of three seeds must. Programs
//! without interleaving do not find a bug that needs a race. `Rule::Reuse` reports a bug when a CPU
//! takes the freed frame, so a search for it depends on a program in which a third CPU allocates.
//! The printed table has the median effort. INV-ORACLE-O1, INV-ORACLE-O2, INV-ORACLE-O3,
//! INV-ORACLE-O4.

use pagewright_arch::{Isa, on_both};
use pagewright_check::{CheckFinding, ReplayToken, Rule, SearchPlan};
use pagewright_fuzz::random::explore_mode::ExploredProgram;
use pagewright_fuzz::random::{
    PlantedBug, ProgramNodes, RandomProgram, Theme, explored_program, fast_mode, fast_program, plant, replay,
};
use pagewright_sim::NodeConfig;
use pagewright_types::{CpuMask, IsaKind};

/// Seeds, of which [`wanted`] must find the bug.
const SEEDS: u64 = 8;
/// Schedules of each program.
const SCHEDULES: u32 = 25;
/// Limit of the programs of fast mode that must not find a bug that needs a race.
const MAX_FAST: u64 = 40;

/// Number of seeds that must find the bug.
fn wanted() -> usize {
    if std::env::var_os("PAGEWRIGHT_SOAK").is_some() { 3 } else { 1 }
}

/// The programs that must find a bug.
enum Search {
    /// This number of programs of fast mode.
    Fast { isa: IsaKind, programs: u64 },
    /// This number of schedules of programs with a theme.
    ///
    /// With `race`, programs of fast mode must not find it.
    Explored { isa: IsaKind, theme: Theme, schedules: u32, race: bool },
    /// As [`Explored`](Self::Explored), on two nodes, between which pages move.
    OnTwoNodes { isa: IsaKind, theme: Theme, schedules: u32 },
}

impl Search {
    /// Whether this search is for a machine with this instruction set.
    fn is_on(&self, kind: IsaKind) -> bool {
        match self {
            Self::Fast { isa, .. } | Self::Explored { isa, .. } | Self::OnTwoNodes { isa, .. } => *isa == kind,
        }
    }
}

const X86: IsaKind = IsaKind::X86_64;
const ARM: IsaKind = IsaKind::Aarch64;

fn race(isa: IsaKind, theme: Theme, schedules: u32) -> Search {
    Search::Explored { isa, theme, schedules, race: true }
}

fn fast(isa: IsaKind, programs: u64) -> Vec<Search> {
    vec![Search::Fast { isa, programs }]
}

fn both(programs: u64) -> Vec<Search> {
    vec![Search::Fast { isa: X86, programs }, Search::Fast { isa: ARM, programs }]
}

fn explored(isa: IsaKind, theme: Theme, schedules: u32) -> Search {
    Search::Explored { isa, theme, schedules, race: false }
}

fn tables(isa: IsaKind) -> Search {
    explored(isa, Theme::Tables, 4000)
}

fn races(theme: Theme, schedules: u32) -> Vec<Search> {
    vec![race(X86, theme, schedules), race(ARM, theme, schedules)]
}

fn on_two_nodes(theme: Theme, schedules: u32) -> Vec<Search> {
    [X86, ARM].map(|isa| Search::OnTwoNodes { isa, theme, schedules }).into()
}

/// A node with the CPUs, and one without.
fn two_nodes() -> ProgramNodes {
    let node = NodeConfig { bytes: 8 << 20, cpus: CpuMask::EMPTY };
    ProgramNodes { nodes: vec![node, node], distances: Vec::new() }
}

/// Any finding: of a rule, of the end of the program, or of a check inside the memory manager.
const ANY: &[Rule] = &[];

/// The bugs, the programs that must find each of them, and the rules that may report it.
type Expected = (&'static [PlantedBug], Vec<Search>, &'static [Rule]);

/// What random programs must find.
///
/// Tests of single calls and of their races find the other bugs.
fn expected() -> Vec<Expected> {
    [flushes(), races_of_flushes(), counts(), moves()].into_iter().flatten().collect()
}

fn flushes() -> Vec<Expected> {
    vec![
        (
            &[PlantedBug::NoFlush, PlantedBug::LocalOnly, PlantedBug::ProtectNoFlush, PlantedBug::CowNoFlush],
            both(3),
            &[Rule::Rights],
        ),
        // Needs page-table isolation, where user mode has tags of its own.
        (&[PlantedBug::UserTagForgotten], both(40), &[Rule::Rights, Rule::Reuse, Rule::Memory]),
        (&[PlantedBug::TagReused], fast(X86, 10), &[Rule::Rights, Rule::Reuse]),
        (&[PlantedBug::LazyNoCatchUp], fast(X86, 40), &[Rule::Rights]),
        (&[PlantedBug::RolloverNoFlush], fast(ARM, 200), &[Rule::Memory, Rule::Reuse, Rule::Rights]),
        (&[PlantedBug::TableAsLeaf], vec![tables(X86), tables(ARM)], &[Rule::Reuse]),
        (&[PlantedBug::LazySkipped], vec![tables(X86)], &[Rule::Reuse]),
    ]
}

fn races_of_flushes() -> Vec<Expected> {
    vec![
        (&[PlantedBug::FlushBeforeClear], races(Theme::Hot, 1000), &[Rule::Rights]),
        (&[PlantedBug::NoPublish], vec![race(ARM, Theme::Hot, 2000)], &[Rule::Rights, Rule::Reuse]),
        // In fast mode the machine itself panics, so `race` cannot be required.
        (&[PlantedBug::NoComplete], vec![explored(ARM, Theme::Hot, 500)], &[Rule::Rights, Rule::Reuse]),
        (&[PlantedBug::FreedInGather], races(Theme::Hot, 2000), &[Rule::Reuse]),
        (&[PlantedBug::AcknowledgedEarly], vec![race(X86, Theme::Hot, 2000)], &[Rule::Rights, Rule::Reuse]),
        (
            &[PlantedBug::MaskBeforeBump, PlantedBug::JoinAfterRead],
            vec![race(X86, Theme::Moving, 3000)],
            &[Rule::Rights],
        ),
        (&[PlantedBug::LazyWhileJoining], vec![race(X86, Theme::Moving, 10_000)], &[Rule::Rights]),
        (&[PlantedBug::ForkFlushLate], races(Theme::Copies, 6000), &[Rule::Memory]),
        // On arm64 the store of the new entry is reported: break-before-make is missing. On x86-64
        // it needs a race, or a translation that lingers at the address.
        (&[PlantedBug::CowFlushLate], fast(ARM, 10), &[Rule::Memory, Rule::Rights]),
        (&[PlantedBug::CowFlushLate], vec![explored(X86, Theme::Copies, 6000)], &[Rule::Memory, Rule::Rights]),
        (&[PlantedBug::ProtectFlushLate, PlantedBug::ZapFlushLate], races(Theme::Hot, 4000), &[Rule::Memory]),
    ]
}

fn counts() -> Vec<Expected> {
    let families = |isa| explored(isa, Theme::Families, 200);
    vec![
        (&[PlantedBug::RssDrift], both(3), &[Rule::Counts]),
        (&[PlantedBug::SwapSlotKept], both(20), &[Rule::Counts]),
        (&[PlantedBug::SharedTableTakenForOwn], vec![families(X86), families(ARM)], &[Rule::Counts]),
        // INV-VIEW-PATHS.
        (&[PlantedBug::PssByOnePath], both(40), &[Rule::Counts]),
        // Pages in swap, of which one of three spaces has broken its path, are rare.
        (&[PlantedBug::SwapPssByOnePath], fast(X86, 200), &[Rule::Counts]),
    ]
}

fn moves() -> Vec<Expected> {
    vec![
        (&[PlantedBug::MigratedFlagsLost], on_two_nodes(Theme::Families, 1500), &[Rule::Counts]),
        (&[PlantedBug::MigrateCopiesEarly], on_two_nodes(Theme::Hot, 1500), &[Rule::Memory]),
        (&[PlantedBug::MigrationNotAwaited], on_two_nodes(Theme::Copies, 1500), &[Rule::Memory]),
        (&[PlantedBug::HintNotFlushed], on_two_nodes(Theme::Copies, 1500), &[Rule::Rights]),
        (&[PlantedBug::HintGivesEveryRight], on_two_nodes(Theme::Copies, 2200), &[Rule::Memory, Rule::Counts]),
        (&[PlantedBug::MigratedRefLost], on_two_nodes(Theme::Hot, 1500), ANY),
        (&[PlantedBug::MigrateIgnoresPin, PlantedBug::BreakCopiesMigration], on_two_nodes(Theme::Copies, 1500), ANY),
        (&[PlantedBug::MigrateIgnoresUnfound], on_two_nodes(Theme::Families, 1500), ANY),
    ]
}

/// The result of a seed.
struct Hit {
    /// Programs of fast mode, or schedules.
    tried: u64,
    /// Programs.
    programs: u64,
    program: RandomProgram,
    token: Option<ReplayToken>,
    finding: CheckFinding,
}

fn find_in_fast_mode<I: Isa>(seed: u64, most: u64) -> Option<Hit> {
    (0..most).find_map(|number| {
        let program = fast_program(seed, None, number);
        let findings = fast_mode::run::<I>(&program).expect("a possible machine").findings;
        let finding = findings.into_iter().next()?;
        Some(Hit { tried: number + 1, programs: number + 1, program, token: None, finding })
    })
}

fn find_in_explore_mode<I: Isa>(seed: u64, theme: Theme, most: u32, nodes: &ProgramNodes) -> Option<Hit> {
    let mut tried = 0;
    (0..u64::from(most.div_ceil(SCHEDULES))).find_map(|number| {
        let program = explored_program(seed, None, Some(theme), number).on_nodes(nodes);
        let plan = SearchPlan { seed: program.seed, schedules: SCHEDULES, max_shrink_runs: 0 };
        let search = ExploredProgram::new::<I>(&program).expect("a possible machine").search::<I>(&plan);
        tried += u64::from(search.schedules);
        let found = search.failing?;
        let finding = found.attempt.findings.into_iter().next()?;
        Some(Hit { tried, programs: number + 1, program, token: Some(found.token), finding })
    })
}

/// Searches for the chosen bug; returns the effort as text, and the number of programs.
fn search_all<I: Isa>(plant: PlantedBug, rules: &[Rule], search: impl Fn(u64) -> Option<Hit>) -> (String, u64) {
    let (mut tried, mut programs) = (Vec::new(), 0);
    for hit in (1..=SEEDS).filter_map(search) {
        let again = replay(I::KIND, &hit.program, hit.token.as_ref()).expect("a token of this program");
        let again = again.expect("the token reproduces the finding");
        assert!(
            again.findings[0].is_like(&hit.finding),
            "{}: the token of {} reproduces {}",
            hit.program,
            hit.finding,
            again.findings[0]
        );
        if rules.is_empty() || hit.finding.rule().is_some_and(|rule| rules.contains(&rule)) {
            tried.push(hit.tried);
            programs = programs.max(hit.programs);
        }
        if tried.len() == wanted() {
            break;
        }
    }
    assert!(
        tried.len() >= wanted(),
        "{} on {}: found by its rule from {} of {SEEDS} seeds",
        plant.name(),
        I::KIND,
        tried.len()
    );
    tried.sort_unstable();
    (format!("{:6}  {tried:?}", tried[tried.len() / 2]), programs)
}

fn run<I: Isa>(plant: PlantedBug, rules: &[Rule], search: &Search) -> String {
    match *search {
        Search::Fast { programs, .. } => {
            let (figures, _) = search_all::<I>(plant, rules, |seed| find_in_fast_mode::<I>(seed, programs));
            format!("{figures} programs")
        }
        Search::Explored { theme, schedules, race, .. } => {
            let (figures, programs) = search_all::<I>(plant, rules, |seed| {
                find_in_explore_mode::<I>(seed, theme, schedules, &ProgramNodes::ONE)
            });
            if !race {
                return format!("{figures} schedules");
            }
            let without = find_in_fast_mode::<I>(1, programs.min(MAX_FAST));
            if let Some(hit) = without {
                panic!("{} needs no race: {} finds {}", plant.name(), hit.program, hit.finding);
            }
            format!("{figures} schedules, a race")
        }
        Search::OnTwoNodes { theme, schedules, .. } => {
            let find = |seed| find_in_explore_mode::<I>(seed, theme, schedules, &two_nodes());
            format!("{} schedules on two nodes", search_all::<I>(plant, rules, find).0)
        }
    }
}

fn each_planted_bug_is_found_by_its_rule<I: Isa>() {
    for (bugs, searches, rules) in expected() {
        for (bug, search) in bugs.iter().flat_map(|bug| searches.iter().map(move |search| (*bug, search))) {
            if !search.is_on(I::KIND) {
                continue;
            }
            plant(Some(bug));
            let figures = run::<I>(bug, rules, search);
            plant(None);
            println!("{:22} {:7} {figures}", bug.name(), I::KIND.name());
        }
    }
}

on_both! { each_planted_bug_is_found_by_its_rule }
