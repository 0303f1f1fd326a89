//! The reduced and the plain enumeration of schedules have the same outcomes.
//!
//! The programs are small: two tables, and one block of 1 GiB, so that a walk reads two entries. An
//! outcome is what the oracle finds in the first step in which it finds anything, and every value
//! and fault that the programs see.
//! INV-CHECK-REDUCED, INV-CHECK-FACTS, INV-CHECK-MERGED, INV-CHECK-BOUNDS.

use pagewright_check::{
    Aarch64, ActReduction, Check, CheckOutcome, Cpu, CpuProgram, Enumerated, Footprint, FootprintPart, Harness,
    Invalidate, InvalidateScope, InvalidateTarget, Isa, IsaKind, Level, PageRange, Pfn, PhysAddr, Rights, Rule,
    RunState, Tag, VirtAddr, X86_64, program,
};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::rc::Rc;

const TAG: Tag = Tag::new(1);
const TABLE: Pfn = Pfn::new(2);
/// The frame of the page that programs access; the block maps all of memory.
const FRAME: Pfn = Pfn::new(9);
const PAGE: VirtAddr = VirtAddr::new((1 << 30) + (9 << 12));
const RANGE: PageRange = PageRange::page(PAGE);

/// One operation of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    /// Declares that the rights to the page are reduced to these.
    Reduce(Rights),
    Unmap,
    Protect,
    Map,
    /// Loads the entry, and logs it.
    Load,
    Publish,
    FlushHere,
    Broadcast,
    Complete,
    /// Has the other CPU flush, and waits.
    ShootDown,
    Return,
    Release,
    /// Declares that the table is free and that the flush comes later.
    ParkTable,
    ReleaseTable,
    Read,
    Write,
    /// Stores to memory that the machine cannot see.
    Tell,
    /// Loads from it, and logs what it has found.
    Look,
}
use Op::*;

/// The address of the entry of the block.
fn entry() -> PhysAddr {
    TABLE.base().add(Level::PUD.index_of(PAGE) as u64 * 8)
}

/// The entry of a block that maps all of memory.
fn block<I: Isa>(rights: Rights) -> u64 {
    let writable = rights.contains(Rights::WRITE);
    match I::KIND {
        // PS, D, A, U/S, R/W, P.
        IsaKind::X86_64 => 0b1110_0101 | u64::from(writable) << 1,
        // nG, AF, inner shareable, AP[2:1], block.
        IsaKind::Aarch64 => 0b1111 << 8 | u64::from(!writable) << 7 | 1 << 6 | 0b01,
    }
}

fn execute<I: Isa>(cpu: &Cpu<I>, op: Op, log: &RefCell<Vec<String>>, unseen: &Cell<bool>) {
    let page = InvalidateTarget::Page { tag: TAG, va: PAGE, level: Level::PTE, last_level: false };
    let all = Invalidate { scope: InvalidateScope::Broadcast, target: page };
    let note = |text: String| log.borrow_mut().push(format!("{} {op:?} {text}", cpu.id()));
    match op {
        Reduce(left) => cpu.will_reduce(RANGE, left),
        Unmap => cpu.store(entry(), 0),
        Protect => cpu.store(entry(), block::<I>(Rights::READ)),
        Map => cpu.store(entry(), block::<I>(Rights::RW)),
        Load => note(format!("{:#x}", cpu.load(entry()))),
        Publish => cpu.publish(),
        FlushHere => cpu.flush_page(PAGE, InvalidateScope::Local),
        Broadcast => cpu.invalidate(all),
        Complete => cpu.complete(),
        ShootDown => cpu.shoot_down(cpu.others(), |other| other.flush_page(PAGE, InvalidateScope::Local)),
        Return => cpu.call("a call", |_| ()),
        Release => cpu.free_frame(FRAME),
        ParkTable => cpu.park_frame(TABLE),
        ReleaseTable => cpu.free_frame(TABLE),
        Read => note(format!("{:?}", cpu.read(PAGE))),
        Write => note(format!("{:?}", cpu.write(PAGE, 1 + u64::from(cpu.id().raw())))),
        Tell => unseen.set(true),
        Look => note(unseen.get().to_string()),
    }
}

/// The programs of two CPUs, and the bounds of their search.
struct SmallProgram {
    cpus: [&'static [Op]; 2],
    /// Whether both CPUs have read the page before the programs start.
    ///
    /// If so, and the programs make no access, nothing is speculated.
    warm: bool,
    preemptions: u32,
    acts: u32,
}

fn setup<I: Isa>(small: &SmallProgram, log: &Rc<RefCell<Vec<String>>>, harness: &Harness<I>) -> Vec<CpuProgram<I>> {
    log.borrow_mut().clear();
    // All of memory is in use, as the block maps it.
    let mut frames = Vec::new();
    while frames.last() != Some(&FRAME) {
        frames.push(harness.alloc_frame());
    }
    let root = frames[0];
    let pointer = if I::KIND == IsaKind::X86_64 { 0b10_0111 } else { 0b11 };
    let first = harness.cpu(0);
    first.store(root.base().add(Level::PGD.index_of(PAGE) as u64 * 8), TABLE.base().raw() | pointer);
    first.store(entry(), block::<I>(Rights::RW));
    harness.cpus().for_each(|cpu| cpu.load_root(root, TAG));
    if small.warm {
        harness.cpus().for_each(|cpu| assert_eq!(cpu.read(PAGE), Ok(0)));
    }
    let unseen = Rc::new(Cell::new(false));
    let run = |ops: &'static [Op]| {
        let (log, unseen) = (Rc::clone(log), Rc::clone(&unseen));
        program(move |cpu: &Cpu<I>| ops.iter().for_each(|op| execute(cpu, *op, &log, &unseen)))
    };
    small.cpus.map(run).into()
}

/// The outcomes of all schedules, and how many runs they took.
fn outcomes<I: Isa>(small: &SmallProgram, reduction: ActReduction) -> (BTreeSet<String>, Enumerated) {
    let (log, mut seen) = (Rc::new(RefCell::new(Vec::new())), BTreeSet::new());
    let check = Check::<I>::new().cpus(2).memory("128K").exhaustive(small.preemptions, small.acts);
    let done = check.enumerate(reduction, |harness| setup(small, &log, harness), &mut |run| {
        // A walk that has found a leaf and the translation that it fills are told in other places.
        let findings: BTreeSet<String> = run.findings.iter().map(|finding| format!("{finding:?}")).collect();
        seen.insert(format!("{findings:?} {:?}", log.borrow()));
        ControlFlow::Continue(())
    });
    assert!(done.complete);
    (seen, done)
}

const NOTHING: Rights = Rights::empty();

/// The CPUs have cached nothing when the programs start.
const fn cold(cpus: [&'static [Op]; 2], preemptions: u32, acts: u32) -> SmallProgram {
    SmallProgram { cpus, warm: false, preemptions, acts }
}

const fn warm(cpus: [&'static [Op]; 2], preemptions: u32, acts: u32) -> SmallProgram {
    SmallProgram { cpus, warm: true, preemptions, acts }
}

const ON_X86_64: &[SmallProgram] = &[
    cold([&[Unmap], &[Read]], 1, 1),
    cold([&[Protect, FlushHere], &[Write]], 0, 1),
    cold([&[Unmap, Read], &[Read]], 0, 1),
    cold([&[Reduce(NOTHING), Unmap, Return], &[Read]], 1, 1),
    cold([&[Reduce(Rights::READ), Protect, FlushHere, Return], &[Write]], 0, 1),
    cold([&[Unmap, Release], &[Read]], 0, 1),
    cold([&[Unmap, FlushHere, Map], &[Read]], 0, 1),
    cold([&[Read, FlushHere], &[Unmap]], 0, 1),
    warm([&[Reduce(NOTHING), Unmap, Return], &[]], 0, 2),
    warm([&[Reduce(NOTHING), Unmap, FlushHere, ShootDown, Return], &[]], 0, 1),
    warm([&[Unmap, Release], &[FlushHere]], 1, 2),
    warm([&[Unmap, Load, Map], &[Load]], 1, 2),
    warm([&[Unmap, FlushHere], &[Read]], 0, 1),
    // The return of a call and the release of a frame, beside evictions and walks.
    warm([&[Reduce(NOTHING), Unmap, FlushHere], &[Return]], 1, 1),
    warm([&[Reduce(NOTHING), Unmap], &[Reduce(NOTHING), Return]], 1, 2),
    warm([&[Release], &[Unmap, FlushHere]], 1, 1),
    cold([&[Reduce(Rights::READ), Protect, Return, Release], &[Read]], 0, 1),
    // Memory that the machine cannot see.
    cold([&[Tell, Unmap], &[Look, Read]], 1, 1),
    warm([&[Load, Tell, Load], &[Load, Look, Load]], 2, 0),
    // What the judge remembers of a table that no walk was about to read when it was parked.
    cold([&[Read, FlushHere, ParkTable, Unmap, ReleaseTable], &[]], 0, 1),
    // Acts that leave nothing behind, beside those that do.
    warm([&[Unmap, FlushHere, Map, FlushHere], &[]], 0, 2),
];

const ON_ARM64: &[SmallProgram] = &[
    cold([&[Unmap, Publish], &[Read]], 0, 1),
    cold([&[Unmap, Broadcast, Complete], &[Read]], 0, 1),
    cold([&[Reduce(NOTHING), Unmap, Publish, Return], &[Read]], 0, 1),
    cold([&[Reduce(Rights::READ), Protect, Return], &[Write]], 0, 1),
    cold([&[Unmap, Publish, Map], &[Read]], 0, 1),
    cold([&[Read, Broadcast, Complete], &[Unmap]], 0, 1),
    warm([&[Reduce(NOTHING), Unmap, Broadcast, Complete, Return], &[]], 0, 2),
    warm([&[Reduce(NOTHING), Unmap, Publish, Broadcast, Complete, Return], &[]], 0, 2),
    warm([&[Unmap, Publish, Broadcast], &[Release]], 1, 2),
    warm([&[Unmap, Map], &[Reduce(NOTHING), Return]], 1, 1),
    warm([&[Reduce(NOTHING), Unmap, FlushHere, Return], &[Complete]], 1, 1),
    warm([&[Unmap, Publish], &[Read]], 0, 1),
    warm([&[Reduce(NOTHING), Unmap, Publish, Broadcast, Return], &[Complete]], 1, 1),
    warm([&[Unmap, Publish, Broadcast, Complete], &[Tell, Release, Look]], 1, 1),
];

/// Compares the enumerations; returns the runs of the reduced and of the plain one.
fn compare<I: Isa>(programs: &[SmallProgram]) -> (u64, u64) {
    let mut runs = (0, 0);
    for small in programs {
        let (reduced, some) = outcomes::<I>(small, ActReduction::Commuting);
        let (merged, few) = outcomes::<I>(small, ActReduction::Merging);
        let (plain, many) = outcomes::<I>(small, ActReduction::Plain);
        let (all, commuting, outcomes) = (many.runs, some.runs, plain.len());
        println!("{} {:?}: {all}, {commuting}, {} runs, {outcomes} outcomes", I::KIND, small.cpus, few.runs);
        for with_less in [&reduced, &merged] {
            let lost: Vec<&String> = plain.symmetric_difference(with_less).collect();
            assert!(lost.is_empty(), "{} {:?}: {lost:#?}", I::KIND, small.cpus);
        }
        runs = (runs.0 + few.runs, runs.1 + many.runs);
    }
    runs
}

#[test]
fn reduced_and_plain_enumerations_have_the_same_outcomes() {
    let x86_64 = compare::<X86_64>(ON_X86_64);
    let arm64 = compare::<Aarch64>(ON_ARM64);
    assert!(ON_X86_64.len() + ON_ARM64.len() >= 20);
    let (reduced, plain) = (x86_64.0 + arm64.0, x86_64.1 + arm64.1);
    assert!(reduced * 4 < plain, "{reduced} runs, and {plain} without reduction");
}

/// CPU 0 unmaps a page that both CPUs have read, and flushes its own TLB; CPU 1 does nothing.
fn unmap_without_shootdown(preemptions: u32, acts: u32, schedules: u32) -> CheckOutcome {
    let small = warm([&[Reduce(NOTHING), Unmap, FlushHere, Return], &[Read]], 0, 0);
    let log = Rc::default();
    let check = Check::<X86_64>::new().cpus(2).memory("128K").exhaustive(preemptions, acts);
    check.schedules(schedules).explore(|harness| setup(&small, &log, harness))
}

#[test]
fn a_search_says_whether_it_is_complete_and_for_which_bounds() {
    let small = warm([&[Reduce(NOTHING), Unmap, FlushHere, ShootDown, Return], &[]], 0, 0);
    let log = Rc::default();
    let check = Check::<X86_64>::new().cpus(2).memory("128K").exhaustive(1, 1);
    let outcome = check.explore(|harness| setup(&small, &log, harness));
    let text = outcome.to_string();
    assert!(text.starts_with("clean, complete for k = 1 preemptions and m = 1 acts ("), "{text}");
    assert!(text.contains("acts: late stores, speculative walks, evictions"), "{text}");
    let cut_off = check.schedules(3).explore(|harness| setup(&small, &log, harness)).to_string();
    assert!(cut_off.starts_with("clean so far, NOT COMPLETE for k = 1"), "{cut_off}");
}

#[test]
fn a_finding_of_an_exhaustive_search_replays_from_its_token() {
    let outcome = unmap_without_shootdown(0, 0, u32::MAX);
    let found = outcome.expect_violation(Rule::Rights);
    let small = warm([&[Reduce(NOTHING), Unmap, FlushHere, Return], &[Read]], 0, 0);
    let log = Rc::default();
    let check = Check::<X86_64>::new().cpus(2).memory("128K").exhaustive(0, 0);
    for token in [&found.token, &found.shrunk] {
        let again = check.replay(token, |harness| setup(&small, &log, harness)).expect("the same machine");
        again.expect_violation(Rule::Rights);
    }
}

/// The switches between CPUs and the acts of the schedules within the bounds, at most.
fn most(preemptions: u32, acts: u32) -> (usize, usize) {
    let small = cold([&[Unmap, Map], &[Read]], preemptions, acts);
    let (log, mut most) = (Rc::default(), (0, 0));
    let check = Check::<X86_64>::new().cpus(2).memory("128K").exhaustive(preemptions, acts);
    let done = check.enumerate(ActReduction::Commuting, |harness| setup(&small, &log, harness), &mut |run| {
        let choices = run.report.schedule.to_string();
        let acts = choices.split(',').filter(|choice| choice.starts_with(['s', 'e'])).count();
        most = (most.0.max(run.report.schedule.switches()), most.1.max(acts));
        ControlFlow::Continue(())
    });
    assert!(done.complete);
    most
}

#[test]
fn schedules_reach_their_bounds_and_do_not_exceed_them() {
    // One switch is free, where the first program ends.
    assert_eq!(most(0, 0), (1, 0));
    assert_eq!(most(1, 0), (2, 0));
    assert_eq!(most(2, 0), (3, 0));
    assert_eq!(most(0, 1).1, 1);
    assert_eq!(most(1, 1), (2, 1));
}

/// A mistake: what two steps touch of this kind is taken to commute.
fn conflict_without(part: FootprintPart, one: &Footprint, other: &Footprint) -> bool {
    one.without(part).conflicts(&other.without(part))
}

/// The number of outcomes that `wrong` loses, over all programs for x86-64.
fn lost(wrong: ActReduction) -> usize {
    let lost = |small: &SmallProgram| {
        let (wrong, _) = outcomes::<X86_64>(small, wrong);
        let (right, _) = outcomes::<X86_64>(small, ActReduction::Merging);
        right.difference(&wrong).count()
    };
    ON_X86_64.iter().map(lost).sum()
}

#[test]
fn acts_that_conflict_and_are_taken_to_commute_lose_outcomes() {
    let wrong: [fn(&Footprint, &Footprint) -> bool; 3] = [
        |one, other| conflict_without(FootprintPart::Translations, one, other),
        |one, other| conflict_without(FootprintPart::Held, one, other),
        |one, other| conflict_without(FootprintPart::Reached, one, other),
    ];
    for (index, wrong) in wrong.into_iter().enumerate() {
        assert!(lost(ActReduction::CommutingBy(wrong)) > 0, "no program needs conflict {index}");
    }
}

#[test]
fn states_that_differ_and_are_taken_for_equal_lose_outcomes() {
    let wrong: [fn(RunState) -> RunState; 3] = [
        |state| RunState { programs: 0, ..state },
        |state| RunState { machine: 0, ..state },
        |state| RunState { judge: 0, ..state },
    ];
    for (index, wrong) in wrong.into_iter().enumerate() {
        assert!(lost(ActReduction::MergingBy(wrong)) > 0, "no program needs part {index} of the state");
    }
}
