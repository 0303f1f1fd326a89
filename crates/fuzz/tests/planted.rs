//! Every planted bug that memory calls and accesses can meet is found by random programs: from
//! three seeds, by the rule that it breaks, within a budget, and again from what the finding says.
//! Those that need a race are not found by as many programs without one.
//!
//! The table that is printed has the median of how much was tried. INV-ORACLE-O1, INV-ORACLE-O2,
//! INV-ORACLE-O3, INV-ORACLE-O4.
#![cfg(feature = "planted")]

use pagewright_arch::{Aarch64, Isa, X86_64};
use pagewright_check::{CheckFinding, ReplayToken, Rule, SearchPlan};
use pagewright_fuzz::random::explore::Explored;
use pagewright_fuzz::random::{PlantedBug, Program, Theme, explored_program, fast, fast_program, plant, replay};
use pagewright_types::IsaKind;

/// Seeds that are tried until [`WANTED`] have found a bug.
const SEEDS: u64 = 8;
/// How many must.
const WANTED: usize = 3;
/// Schedules of one program before the next one's turn.
const SCHEDULES: u32 = 25;
/// Programs without a race that are tried against a bug that needs one, at most.
const MOST_FAST: u64 = 40;

/// How a bug is looked for.
enum Search {
    /// By so many programs, operation by operation.
    Fast { isa: IsaKind, programs: u64 },
    /// By so many schedules of programs about this.
    ///
    /// With `race`, nothing else finds it.
    Explored { isa: IsaKind, theme: Theme, schedules: u32, race: bool },
    /// These programs have no operation that meets it; another test does.
    Elsewhere(&'static str),
}

const X86: IsaKind = IsaKind::X86_64;
const ARM: IsaKind = IsaKind::Aarch64;

fn race(isa: IsaKind, theme: Theme, schedules: u32) -> Search {
    Search::Explored { isa, theme, schedules, race: true }
}

/// Where each bug is to be found, and by which rules.
fn expected(plant: PlantedBug) -> (Vec<Search>, &'static [Rule]) {
    let both = |programs| vec![Search::Fast { isa: X86, programs }, Search::Fast { isa: ARM, programs }];
    let fast = |isa, programs| vec![Search::Fast { isa, programs }];
    let tables = |isa| Search::Explored { isa, theme: Theme::Tables, schedules: 4000, race: false };
    let races = |theme, schedules| vec![race(X86, theme, schedules), race(ARM, theme, schedules)];
    match plant {
        PlantedBug::NoFlush | PlantedBug::LocalOnly | PlantedBug::ProtectNoFlush | PlantedBug::CowNoFlush => {
            (both(3), &[Rule::Rights])
        }
        // Only where user mode has tags of its own.
        PlantedBug::UserTagForgotten => (both(40), &[Rule::Rights, Rule::Reuse, Rule::Memory]),
        PlantedBug::TagReused => (fast(X86, 10), &[Rule::Rights, Rule::Reuse]),
        PlantedBug::LazyNoCatchUp => (fast(X86, 40), &[Rule::Rights]),
        PlantedBug::RolloverNoFlush => (fast(ARM, 200), &[Rule::Memory, Rule::Reuse, Rule::Rights]),
        PlantedBug::RssDrift => (both(3), &[Rule::Counts]),
        PlantedBug::SwapSlotKept => (both(20), &[Rule::Counts]),
        PlantedBug::TableAsLeaf => (vec![tables(X86), tables(ARM)], &[Rule::Reuse]),
        PlantedBug::LazySkipped => (vec![tables(X86)], &[Rule::Reuse]),
        PlantedBug::FlushBeforeClear => (races(Theme::Hot, 1000), &[Rule::Rights]),
        PlantedBug::NoPublish => (vec![race(ARM, Theme::Hot, 2000)], &[Rule::Rights, Rule::Reuse]),
        // In fast mode the machine itself refuses to go on, so that says nothing.
        PlantedBug::NoComplete => {
            let search = Search::Explored { isa: ARM, theme: Theme::Hot, schedules: 500, race: false };
            (vec![search], &[Rule::Rights, Rule::Reuse])
        }
        PlantedBug::FreedInGather => (races(Theme::Hot, 2000), &[Rule::Reuse]),
        PlantedBug::AcknowledgedEarly => (vec![race(X86, Theme::Hot, 2000)], &[Rule::Rights, Rule::Reuse]),
        PlantedBug::MaskBeforeBump | PlantedBug::JoinAfterRead => {
            (vec![race(X86, Theme::Moving, 3000)], &[Rule::Rights])
        }
        PlantedBug::LazyWhileJoining => (vec![race(X86, Theme::Moving, 10_000)], &[Rule::Rights]),
        PlantedBug::ForkFlushLate => (races(Theme::Copies, 6000), &[Rule::Memory]),
        PlantedBug::CowFlushLate => (races(Theme::Copies, 6000), &[Rule::Memory]),
        PlantedBug::ProtectFlushLate | PlantedBug::ZapFlushLate => (races(Theme::Hot, 4000), &[Rule::Memory]),
        PlantedBug::MapcountLost | PlantedBug::PinKept => (vec![Search::Elsewhere("oracle_counts.rs")], &[]),
        PlantedBug::RemapFlushLate => (vec![Search::Elsewhere("remap_races.rs")], &[]),
        PlantedBug::PageOutWrittenEarly | PlantedBug::PageOutFreedEarly | PlantedBug::LazyFreeNoFlush => {
            (vec![Search::Elsewhere("swap.rs")], &[])
        }
        PlantedBug::PageOutReferenced => (vec![Search::Elsewhere("swap_shared.rs")], &[]),
        PlantedBug::ClearShort | PlantedBug::ClearNoFence | PlantedBug::ClearNoYield => {
            (vec![Search::Elsewhere("planted_clear.rs of the host")], &[])
        }
        PlantedBug::LateAdderCleared
        | PlantedBug::EpochStillOpen
        | PlantedBug::DeferredNotSeenAtInstall
        | PlantedBug::DeferredNotTakenAlong
        | PlantedBug::HotplugUnflushed
        | PlantedBug::PublishedLate => (vec![Search::Elsewhere("batch_races.rs")], &[]),
        PlantedBug::HoleNotSeen
        | PlantedBug::WriteBackNoProtect
        | PlantedBug::WrittenBeforeSettle
        | PlantedBug::DeferredNotSeen => (vec![Search::Elsewhere("file_races.rs")], &[]),
        PlantedBug::PinNotExclusive
        | PlantedBug::ForkIgnoresPin
        | PlantedBug::FastNoRecheck
        | PlantedBug::WalkersNotAwaited => (vec![Search::Elsewhere("gup_races.rs")], &[]),
        PlantedBug::PartialClock | PlantedBug::CompleteElsewhere => (vec![Search::Elsewhere("ledger_races.rs")], &[]),
    }
}

/// What one seed came to.
struct Hit {
    /// Programs or schedules tried.
    tried: u64,
    /// Programs tried.
    programs: u64,
    program: Program,
    token: Option<ReplayToken>,
    finding: CheckFinding,
}

fn fastly<I: Isa>(seed: u64, most: u64) -> Option<Hit> {
    (0..most).find_map(|number| {
        let program = fast_program(seed, None, number);
        let findings = fast::run::<I>(&program).expect("a possible machine").findings;
        let finding = findings.into_iter().next()?;
        Some(Hit { tried: number + 1, programs: number + 1, program, token: None, finding })
    })
}

fn explored<I: Isa>(seed: u64, theme: Theme, most: u32) -> Option<Hit> {
    let mut tried = 0;
    (0..u64::from(most.div_ceil(SCHEDULES))).find_map(|number| {
        let program = explored_program(seed, None, Some(theme), number);
        let plan = SearchPlan { seed: program.seed, schedules: SCHEDULES, max_shrink_runs: 0 };
        let search = Explored::new::<I>(&program).expect("a possible machine").search::<I>(&plan);
        tried += u64::from(search.schedules);
        let found = search.failing?;
        let finding = found.attempt.findings.into_iter().next()?;
        Some(Hit { tried, programs: number + 1, program, token: Some(found.token), finding })
    })
}

/// Looks for the chosen bug, and says how much it took.
fn look<I: Isa>(plant: PlantedBug, rules: &[Rule], search: impl Fn(u64) -> Option<Hit>) -> (String, u64) {
    let (mut tried, mut programs) = (Vec::new(), 0);
    for hit in (1..=SEEDS).filter_map(search) {
        let again = replay(I::KIND, &hit.program, hit.token.as_ref()).expect("its own token");
        let again = again.expect("what was found is found again");
        assert!(
            again.findings[0].is_like(&hit.finding),
            "{}: {} became {}",
            hit.program,
            hit.finding,
            again.findings[0]
        );
        if hit.finding.rule().is_some_and(|rule| rules.contains(&rule)) {
            tried.push(hit.tried);
            programs = programs.max(hit.programs);
        }
        if tried.len() == WANTED {
            break;
        }
    }
    assert!(
        tried.len() >= WANTED,
        "{} on {}: found by its rule from {} of {SEEDS} seeds",
        plant.name(),
        I::KIND,
        tried.len()
    );
    tried.sort_unstable();
    (format!("{:6}  {tried:?}", tried[WANTED / 2]), programs)
}

fn run<I: Isa>(plant: PlantedBug, rules: &[Rule], search: &Search) -> String {
    match *search {
        Search::Fast { programs, .. } => {
            let (figures, _) = look::<I>(plant, rules, |seed| fastly::<I>(seed, programs));
            format!("{figures} programs")
        }
        Search::Explored { theme, schedules, race, .. } => {
            let (figures, programs) = look::<I>(plant, rules, |seed| explored::<I>(seed, theme, schedules));
            if !race {
                return format!("{figures} schedules");
            }
            let without = fastly::<I>(1, programs.min(MOST_FAST));
            if let Some(hit) = without {
                panic!("{} needs no race: {} finds {}", plant.name(), hit.program, hit.finding);
            }
            format!("{figures} schedules, a race")
        }
        Search::Elsewhere(test) => format!("        in {test}"),
    }
}

#[test]
fn each_planted_bug_is_found_by_its_rule() {
    for bug in PlantedBug::ALL.iter().copied() {
        let (searches, rules) = expected(bug);
        for search in &searches {
            plant(Some(bug));
            let (isa, figures) = match search {
                Search::Fast { isa, .. } | Search::Explored { isa, .. } => {
                    let figures = match isa {
                        IsaKind::X86_64 => run::<X86_64>(bug, rules, search),
                        IsaKind::Aarch64 => run::<Aarch64>(bug, rules, search),
                    };
                    (isa.name(), figures)
                }
                Search::Elsewhere(_) => ("", run::<X86_64>(bug, rules, search)),
            };
            plant(None);
            println!("{:22} {isa:7} {figures}", bug.name());
        }
    }
}
