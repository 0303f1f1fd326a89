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
    /// Another test finds it; random programs do not trigger it.
    Elsewhere(&'static str),
}

impl Search {
    /// Whether this search is for a machine with this instruction set.
    fn is_on(&self, kind: IsaKind) -> bool {
        match self {
            Self::Fast { isa, .. } | Self::Explored { isa, .. } | Self::OnTwoNodes { isa, .. } => *isa == kind,
            Self::Elsewhere(_) => true,
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

fn elsewhere(test: &'static str) -> (Vec<Search>, &'static [Rule]) {
    (vec![Search::Elsewhere(test)], &[])
}

/// Where the tests of single calls and their races are.
const SPACE: &str = "mm/tests/space";

/// Any finding: of a rule, of the end of the program, or of a check inside the memory manager.
const ANY: &[Rule] = &[];

/// The programs that must find each bug, and the rules that may report it.
fn expected(plant: PlantedBug) -> (Vec<Search>, &'static [Rule]) {
    use PlantedBug as Bug;
    match plant {
        Bug::NoFlush | Bug::LocalOnly | Bug::ProtectNoFlush | Bug::CowNoFlush => (both(3), &[Rule::Rights]),
        // Needs page-table isolation, where user mode has tags of its own.
        Bug::UserTagForgotten => (both(40), &[Rule::Rights, Rule::Reuse, Rule::Memory]),
        Bug::TagReused => (fast(X86, 10), &[Rule::Rights, Rule::Reuse]),
        Bug::LazyNoCatchUp => (fast(X86, 40), &[Rule::Rights]),
        Bug::RolloverNoFlush => (fast(ARM, 200), &[Rule::Memory, Rule::Reuse, Rule::Rights]),
        Bug::RssDrift => (both(3), &[Rule::Counts]),
        Bug::SwapSlotKept => (both(20), &[Rule::Counts]),
        Bug::TableAsLeaf => (vec![tables(X86), tables(ARM)], &[Rule::Reuse]),
        Bug::LazySkipped => (vec![tables(X86)], &[Rule::Reuse]),
        Bug::FlushBeforeClear => (races(Theme::Hot, 1000), &[Rule::Rights]),
        Bug::NoPublish => (vec![race(ARM, Theme::Hot, 2000)], &[Rule::Rights, Rule::Reuse]),
        // In fast mode the machine itself panics, so `race` cannot be required.
        Bug::NoComplete => (vec![explored(ARM, Theme::Hot, 500)], &[Rule::Rights, Rule::Reuse]),
        Bug::FreedInGather => (races(Theme::Hot, 2000), &[Rule::Reuse]),
        Bug::AcknowledgedEarly => (vec![race(X86, Theme::Hot, 2000)], &[Rule::Rights, Rule::Reuse]),
        Bug::MaskBeforeBump | Bug::JoinAfterRead => (vec![race(X86, Theme::Moving, 3000)], &[Rule::Rights]),
        Bug::LazyWhileJoining => (vec![race(X86, Theme::Moving, 10_000)], &[Rule::Rights]),
        Bug::ForkFlushLate => (races(Theme::Copies, 6000), &[Rule::Memory]),
        // On arm64 the store of the new entry is reported: break-before-make is missing. On x86-64
        // it needs a race, or a translation that lingers at the address.
        Bug::CowFlushLate => {
            let searches = fast(ARM, 10).into_iter().chain([explored(X86, Theme::Copies, 6000)]);
            (searches.collect(), &[Rule::Memory, Rule::Rights])
        }
        Bug::ProtectFlushLate | Bug::ZapFlushLate => (races(Theme::Hot, 4000), &[Rule::Memory]),
        Bug::ReusedByMapcount => elsewhere("mm/tests/invariants"),
        Bug::WriterKeptOut => elsewhere("sync/tests/host/writer.rs"),
        Bug::MapcountLost | Bug::PinKept => elsewhere("lab/tests/oracle_counts.rs"),
        Bug::SplitLeavesGap
        | Bug::PieceTakenForWhole
        | Bug::PieceReusedByMapcount
        | Bug::DeferredKept
        | Bug::DeferredNever
        | Bug::DeferredDropped
        | Bug::DepositKept
        | Bug::SplitIgnoresRef
        | Bug::FreeCutsFolio
        | Bug::AgedByPiece
        | Bug::HintOnLarge
        | Bug::IdleHidesUse
        | Bug::FollowIgnoresSplit
        | Bug::MovedLeafTakenForPage
        | Bug::SplitLosesWhole
        | Bug::CutHugeLeafTaken
        | Bug::DepositLeftBehind
        | Bug::HugeUnmarked
        | Bug::HugeMovedUnmarked
        | Bug::HugeShared
        | Bug::HugeOverTable
        | Bug::SplitUndoneToFirst
        | Bug::FolioSplitNotFlushed
        | Bug::UpperEditUnannounced
        | Bug::UpperEditNotAwaited
        | Bug::SplitNotFlushed
        | Bug::SplitFlushesPage
        | Bug::SplitLosesExclusive
        | Bug::SplitLosesDirty
        | Bug::SplitLosesAccessed
        | Bug::SplitLosesSoftDirty
        | Bug::SplitLosesMayPin
        | Bug::SplitLosesLock
        | Bug::WholeUncountedFirst
        | Bug::ForkDepositsNothing
        | Bug::StoppedForkKeepsDeposits
        | Bug::HugeZeroFlushLate => elsewhere("mm/tests/thp"),
        Bug::LeaveNotFlushed
        | Bug::ShareNotFlushed
        | Bug::BreakNotFlushed
        | Bug::OldPointerWritable
        | Bug::SharedLeafRevisited
        | Bug::PendingTakenForLive
        | Bug::BreakJudgesPins
        | Bug::ZapForAllIgnoresPending
        | Bug::LastShareDropped
        | Bug::EditsFoldedFirst
        | Bug::FilledWritable
        | Bug::FailedBreakOwned
        | Bug::CopyReasonsSwapped
        | Bug::GrownOverShared
        | Bug::MappedOverShared
        | Bug::FamilyJoinedLate
        | Bug::BreakWalkersNotAwaited
        | Bug::TableMadeForOne
        | Bug::TableMadeUndeclared
        | Bug::MadeMarkKept
        | Bug::MadeTableLeft
        | Bug::MadeTableCopied
        | Bug::EndedSumKept
        | Bug::EditNotNoted
        | Bug::PathChangeNotCounted
        | Bug::BreakNotCounted
        | Bug::LeaveNotCounted
        | Bug::EndedSpaceSummed
        | Bug::ForkSharesPinned
        | Bug::PinMovedUnmarked
        | Bug::FailedCopyKept
        | Bug::CopiedBeforeGap
        | Bug::TakenBackByAnyone
        | Bug::OriginCopied
        | Bug::OriginLost
        | Bug::OriginGivenToChild
        | Bug::StripKeepsOrigin
        | Bug::PinMarkLost
        | Bug::SwapOffOwnOnly
        | Bug::SharingForgotten
        | Bug::FamilyForgotten => elsewhere("mm/tests/share"),
        Bug::SharedTableTakenForOwn => {
            let families = |isa| explored(isa, Theme::Families, 200);
            (vec![families(X86), families(ARM)], &[Rule::Counts])
        }
        Bug::CopyUncounted | Bug::MoveUncounted | Bug::SharedTableEdited | Bug::StrippedUnpublished => {
            elsewhere("table/tests/host")
        }
        // INV-ADVICE-ALONE.
        Bug::ColdIgnoresSharers | Bug::PageOutIgnoresSharers => elsewhere("mm/tests/share and mm/tests/space"),
        Bug::FreeIgnoresSharers => elsewhere("mm/tests/swap"),
        Bug::PageOutWrittenEarly | Bug::PageOutFreedEarly | Bug::LazyFreeNoFlush => elsewhere("mm/tests/swap"),
        Bug::PageOutReferenced | Bug::DirtyBitLost => elsewhere("mm/tests/swap"),
        Bug::ClearShort | Bug::ClearNoFence | Bug::ClearNoYield => elsewhere("host/tests/planted_clear.rs"),
        Bug::EndNotSeenAtSleep | Bug::SignalNotSeenAtSleep | Bug::StopNotCounted => {
            elsewhere("exec.c and signals.c on the kernel")
        }
        // INV-KERNEL-PINNED, INV-KERNEL-EPOLL.
        Bug::SocketCycleKept | Bug::EdgeReportedAgain => elsewhere("sockets.c on the kernel"),
        // INV-KERNEL-LOOK.
        Bug::StrangerMayLook => elsewhere("looks.c on the kernel"),
        // INV-VIEW-PATHS.
        Bug::PssByOnePath => (both(40), &[Rule::Counts]),
        // Pages in swap, of which one of three spaces has broken its path, are rare.
        Bug::SwapPssByOnePath => (fast(X86, 200), &[Rule::Counts]),
        // INV-VIEW-RESUME.
        Bug::RefusedRecordLost => elsewhere("mm/tests/view, and looks.c on the kernel"),
        // INV-KERNEL-MOUNT.
        Bug::MountFlagsIgnored => elsewhere("names.c on the kernel"),
        // INV-KERNEL-NODES.
        Bug::NodeOfCpuIgnored => elsewhere("nodes.c on the kernel"),
        // INV-KERNEL-THREADS.
        Bug::ThreadLimitIgnored => elsewhere("users.c on the kernel"),
        // INV-KERNEL-TEXT.
        Bug::ProgramWritten => elsewhere("hostile.c on the kernel"),
        // INV-KERNEL-KILL, INV-KERNEL-FATAL, INV-KERNEL-INIT, INV-KERNEL-OOM, INV-KERNEL-CALLS.
        Bug::KillNotSeen | Bug::FatalSignalWaits | Bug::InitKilled | Bug::OomInitKilled => {
            elsewhere("hostile.c on the kernel")
        }
        // INV-KERNEL-LOADER.
        Bug::EntryOfLoader => elsewhere("dynamic.c on the kernel"),
        // INV-KERNEL-WORDS, INV-KERNEL-LOCKED.
        Bug::WordIndexLost | Bug::SegmentLimitIgnored => elsewhere("seldom.c on the kernel"),
        // INV-KERNEL-DESCRIPTORS, INV-KERNEL-MESSAGES, INV-KERNEL-TAKEN, INV-KERNEL-REQUESTS.
        Bug::DescriptorLimitIgnored | Bug::MessagesSentAgain | Bug::UncopiedBytesTaken | Bug::UnknownRequestInvalid => {
            elsewhere("descriptors.c on the kernel")
        }
        // INV-KERNEL-LOCK, INV-KERNEL-TIMER, INV-KERNEL-RIGHTS, INV-KERNEL-ROBUST.
        Bug::FileLockKept | Bug::TimerNotRearmed | Bug::CapabilitiesKept | Bug::RobustListForgotten => {
            elsewhere("names.c, timers.c and users.c on the kernel")
        }
        // INV-MM-OOM, INV-KERNEL-OOM.
        Bug::OomScoreIgnored => elsewhere("mm/tests/space, and proc.c on the kernel"),
        Bug::OomOldestChosen => elsewhere(SPACE),
        Bug::LateAdderCleared
        | Bug::EpochStillOpen
        | Bug::DeferredNotSeenAtInstall
        | Bug::DeferredNotTakenAlong
        | Bug::FamilyKeyNotTakenAlong
        | Bug::HotplugUnflushed
        | Bug::PublishedLate
        | Bug::BatchMaskBeforeBump
        | Bug::LatestIssuerCompletes
        | Bug::LatestDeferralKept => elsewhere("batch_races.rs"),
        Bug::FaultAroundPastEnd | Bug::NestedNotSeen | Bug::ZapNotConcurrent => elsewhere("mm/tests/fault"),
        Bug::LostSwapInFreesSlot | Bug::SlotDiscardedLate | Bug::SwapOwnerNarrow | Bug::PageOutCleansLate => {
            elsewhere("mm/tests/swap")
        }
        // INV-RECLAIM-UNEVICTABLE.
        Bug::UnevictablePagedOut => elsewhere("mm/tests/reclaim, and seldom.c on the kernel"),
        Bug::TableMovedOver | Bug::MovedTableCached | Bug::MovedTableAsPage | Bug::PeakReadEarly => elsewhere(SPACE),
        Bug::RemapFlushLate
        | Bug::MergeIgnoresMaxRights
        | Bug::MergeWithInherited
        | Bug::PopulateNoResched
        | Bug::WalkLosesPlace => elsewhere(SPACE),
        Bug::OneWalkerAwaited
        | Bug::OverflowUnflushed
        | Bug::SplitLevelBelow
        | Bug::WeakenedTakenUnflushed
        | Bug::BulkDebtLost
        | Bug::ParkedMerges
        | Bug::UnparkedAtOnce
        | Bug::ParkedForAtomic
        | Bug::WaitsInAtomic
        | Bug::DeviceLingers
        | Bug::LingeringNotNoted
        | Bug::OneKeyPaid
        | Bug::ReserveNotKept
        | Bug::OtherBatchMissed
        | Bug::FloorNotPassedDown
        | Bug::OldKeysForgotten
        | Bug::NewestKeyIsFloor
        | Bug::ParkedNotSettled
        | Bug::SplitDebtLost
        | Bug::LastStoresDecide
        | Bug::PendingNotMarked
        | Bug::PendingMarkLost
        | Bug::UnpaidKeyReplaced
        | Bug::GatherNotRecorded
        | Bug::TableNotMet
        | Bug::LingerKeyKept
        | Bug::KeysNotTaken
        | Bug::ForkMeetsNoSpace
        | Bug::FamilyKeyOfSpace
        | Bug::MergedPaidBySpace
        | Bug::SequenceMovesEarly
        | Bug::LingeringNotMet
        | Bug::PublishPays
        | Bug::UntaggedSampledLate
        | Bug::SeenBeforeFlush
        | Bug::GenerationOfOtherSpace
        | Bug::SlotKeepsGeneration
        | Bug::GatherMarkCleared
        | Bug::LingeringNotSeenAtInstall
        | Bug::OtherKeyAsked
        | Bug::MovedOverPending
        | Bug::MergedKeyLost
        | Bug::OwnClockAsked
        | Bug::BlockDeferralPlaced
        | Bug::UnplacedNotTakenAlong
        | Bug::OrderNotKept => elsewhere("the tests of frame, tlb and table"),
        Bug::MigratedFlagsLost => (on_two_nodes(Theme::Families, 1500), &[Rule::Counts]),
        Bug::MigrateCopiesEarly => (on_two_nodes(Theme::Hot, 1500), &[Rule::Memory]),
        Bug::MigrationNotAwaited => (on_two_nodes(Theme::Copies, 1500), &[Rule::Memory]),
        Bug::HintNotFlushed => (on_two_nodes(Theme::Copies, 1500), &[Rule::Rights]),
        Bug::HintGivesEveryRight => (on_two_nodes(Theme::Copies, 2200), &[Rule::Memory, Rule::Counts]),
        Bug::MigratedRefLost => (on_two_nodes(Theme::Hot, 1500), ANY),
        Bug::MigrateIgnoresPin | Bug::BreakCopiesMigration => (on_two_nodes(Theme::Copies, 1500), ANY),
        Bug::MigrateIgnoresUnfound => (on_two_nodes(Theme::Families, 1500), ANY),
        Bug::MigrateStoreLost | Bug::ZapDropsMigration | Bug::CodeNotPublished => elsewhere("mm/tests/migrate"),
        Bug::HoleNotSeen
        | Bug::WriteBackNoProtect
        | Bug::WrittenBeforeSettle
        | Bug::DeferredNotSeen
        | Bug::FailedForkKeepsFiles
        | Bug::WriteBackCleansLate => elsewhere("mm/tests/file"),
        Bug::FastPinUnmarked
        | Bug::PathNotRechecked
        | Bug::PinNotExclusive
        | Bug::ForkIgnoresPin
        | Bug::FastNoRecheck
        | Bug::PageOutIgnoresPin
        | Bug::WalkersNotAwaited => elsewhere("mm/tests/gup"),
        Bug::WritableLingers
        | Bug::FolioLingersInPart
        | Bug::LingersUnflushed
        | Bug::StoredWhileLingering
        | Bug::ProtectGivesUnsettledRight
        | Bug::ForcedWriteUnsettled
        | Bug::MovedFrameNotParked
        | Bug::CopyWithoutKey
        | Bug::EvictedKeyLost
        | Bug::MovesWritableUnsettled => elsewhere("mm/tests/migrate"),
        Bug::ClocksBeforeGeneration | Bug::LingeringTakenForOwn => elsewhere("tlb/tests/host/linger.rs"),
        Bug::BindFallsBack | Bug::FaultIgnoresPolicy | Bug::MergeIgnoresPolicy | Bug::PolicyInSharedTable => {
            elsewhere("mm/tests/policy")
        }
        Bug::BatchIgnoresPolicy => elsewhere("host/tests/clear.rs"),
        Bug::PartialClock
        | Bug::CompleteElsewhere
        | Bug::DebtMaskBeforeBump
        | Bug::SampledAfterAct
        | Bug::DroppedRightsForgotten
        | Bug::CountDroppedFirst => elsewhere("ledger_races.rs"),
    }
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
        Search::Elsewhere(test) => format!("        in {test}"),
    }
}

fn each_planted_bug_is_found_by_its_rule<I: Isa>() {
    for bug in PlantedBug::ALL.iter().copied() {
        let (searches, rules) = expected(bug);
        for search in searches.iter().filter(|search| search.is_on(I::KIND)) {
            plant(Some(bug));
            let figures = run::<I>(bug, rules, search);
            plant(None);
            println!("{:22} {:7} {figures}", bug.name(), I::KIND.name());
        }
    }
}

on_both! { each_planted_bug_is_found_by_its_rule }
