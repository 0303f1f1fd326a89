//! References, pins and user copies, while other CPUs fork, unmap and store.
//!
//! Each race runs under many schedules, and random programs run without races. Each planted bug of
//! that code must be found by a race or by the random programs (feature `planted`).
//!
//! Not covered: two races at once, which random programs under random schedules may find.

use pagewright_arch::{Aarch64, Isa, X86_64};
use pagewright_check::{Attempt, CheckFinding, Chooser, RunDetail, Search, SearchPlan, search};
use pagewright_lab::harness::race::schedules;
use pagewright_lab::harness::recount::Pins;
use pagewright_lab::harness::{ANON, CPU, GupCall, OTHER, TestDevice, TestProcess, TestWorld, paths};
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_mm::space::ClearRefs;
use pagewright_mm::view::PagemapFlags;
use pagewright_mm::{MapFlags, MapRequest, MmSetting};
use pagewright_sim::explore::{CoroutineBody, ExploreSettings, RunEnd};
use pagewright_types::{Access, Counter, PAGE_SIZE, PageRange, Rights, VirtAddr};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

const NONE: GupFlags = GupFlags::empty();
const OLD: u64 = 11;
const NEW: u64 = 22;

/// Two programs, and the check when both have ended.
struct Race {
    programs: Vec<CoroutineBody>,
    check: Box<dyn FnOnce() -> Result<(), String>>,
}

/// Sets up a race on a new machine.
type SetUp<I> = fn(&Rc<TestWorld<I>>) -> Race;

/// What the lockless walks did in all schedules of a race.
#[derive(Default)]
struct WalkCounts {
    taken: Cell<u64>,
    dropped: Cell<u64>,
}

fn run<I: Isa>(set_up: SetUp<I>, counts: &WalkCounts, chooser: &mut dyn Chooser, detail: RunDetail) -> Attempt {
    let world = TestWorld::<I>::new(2);
    let race = set_up(&world);
    let settings = ExploreSettings { max_steps: 200_000, ..ExploreSettings::default() };
    let report = world.bench.run(&settings, race.programs, detail, chooser);
    let completed = report.end == RunEnd::Completed;
    if completed && world.bench.finding_count() == 0 {
        let checked = catch_unwind(AssertUnwindSafe(race.check));
        if let Some(what) = checked.unwrap_or(Err("the check panicked".to_string())).err() {
            world.bench.report(CheckFinding::Reported(what));
        }
    } else {
        // Operations that were cut short would panic when they are dropped.
        std::mem::forget(race.check);
    }
    let count = |counter| world.lab.mm().counter(counter);
    counts.taken.set(counts.taken.get() + count(Counter::PwGupFast));
    counts.dropped.set(counts.dropped.get() + count(Counter::PwGupFastDropped));
    let attempt = world.bench.attempt(&settings, report);
    if !completed || !attempt.findings.is_empty() {
        std::mem::forget(world);
    }
    attempt
}

fn explore<I: Isa>(set_up: SetUp<I>, schedules: u32, counts: &WalkCounts) -> Search {
    let plan = SearchPlan { seed: 1, schedules, max_shrink_runs: 60 };
    search(&plan, &mut |chooser, detail| run(set_up, counts, chooser, detail))
}

/// What lockless walks must have done in a race.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Walks {
    /// They took a page.
    Took,
    /// They also dropped one.
    Dropped,
}

/// Checks that a race has no findings, and what lockless walks did.
///
/// In a soak it runs a hundred times as many schedules.
fn assert_clean<I: Isa>(set_up: SetUp<I>, usual: u64, walks: Walks) {
    let counts = WalkCounts::default();
    let search = explore::<I>(set_up, schedules(usual) as u32, &counts);
    if let Some(found) = &search.failing {
        panic!("{} in schedule {}, {}", found.attempt.findings[0], search.schedules, found.shrunk);
    }
    let (took, dropped) = (counts.taken.get(), counts.dropped.get());
    assert!(took > 0, "no lockless walk took a page in {} schedules", search.distinct);
    assert!(walks == Walks::Took || dropped > 0, "no lockless walk dropped a page in {} schedules", search.distinct);
}

/// Checks that a race finds a planted bug, with a finding that contains `expected`.
#[cfg(feature = "planted")]
fn assert_found<I: Isa>(plant: pagewright_plant::PlantedBug, set_up: SetUp<I>, expected: &str) {
    pagewright_plant::choose(Some(plant));
    let search = explore::<I>(set_up, 4000, &WalkCounts::default());
    pagewright_plant::choose(None);
    let found = search
        .failing
        .unwrap_or_else(|| panic!("{plant:?} is not found on {} in {} schedules", I::KIND, search.schedules));
    let finding = found.attempt.findings[0].to_string();
    assert!(finding.contains(expected), "{plant:?} is found as {finding}");
}

type Taken<I> = Rc<RefCell<Option<TestDevice<I>>>>;

/// A program on `OTHER` that takes the page at `at` of a process, if it can.
fn taker<I: Isa>(process: &Rc<TestProcess<I>>, at: VirtAddr, call: GupCall) -> (CoroutineBody, Taken<I>) {
    let (taken, process) = (Taken::<I>::default(), Rc::clone(process));
    let into = Rc::clone(&taken);
    (Box::new(move || *into.borrow_mut() = process.take(OTHER, at, 1, call).ok()), taken)
}

fn same<T: PartialEq + std::fmt::Debug>(one: T, other: T, what: &str) -> Result<(), String> {
    if one == other { Ok(()) } else { Err(format!("{what}: {one:?} and {other:?}")) }
}

fn differ<T: PartialEq + std::fmt::Debug>(one: T, other: T, what: &str) -> Result<(), String> {
    if one != other { Ok(()) } else { Err(format!("{what}: both {one:?}")) }
}

/// INV-GUP-EXCLUSIVE: the mapping still has the pinned page, for loads and stores.
///
/// `all` are all processes; in none of them is the page below a shared pointer.
fn pin_holds<I: Isa>(
    process: &TestProcess<I>,
    all: &[&TestProcess<I>],
    at: VirtAddr,
    device: TestDevice<I>,
) -> Result<(), String> {
    let pfn = device.pfn(0);
    let checked = pinned_by_an_own_path(all, &device).and_then(|()| {
        same(process.frame(CPU, at, Access::Read), pfn, "the mapped and the pinned page")?;
        same(process.frame(CPU, at, Access::Write), pfn, "the page that a store reaches and the pinned page")
    });
    if checked.is_ok() {
        device.release(MakeDirty::No);
    } else {
        std::mem::forget(device);
    }
    checked
}

/// INV-SHARE-PIN: no pointer on the way to the pinned page is shared, in any of the processes.
fn pinned_by_an_own_path<I: Isa>(processes: &[&TestProcess<I>], device: &TestDevice<I>) -> Result<(), String> {
    let spaces: Vec<_> = processes.iter().map(|process| process.space.clone()).collect();
    let pins = Pins::from([(device.pfn(0), 1)]);
    let check = || processes[0].world.on(CPU, |mm| paths::check(mm, &spaces, &pins));
    catch_unwind(AssertUnwindSafe(check)).map_err(|panic| *panic.downcast::<String>().expect("a message"))
}

/// A process with one page, whose space both CPUs run.
fn with_page<I: Isa>(world: &Rc<TestWorld<I>>) -> (Rc<TestProcess<I>>, VirtAddr) {
    let process = Rc::new(TestProcess::new(world));
    let base = process.anon(1);
    fill(process, base)
}

/// The same, with the page under the first entry of the root, which fork shares first.
fn with_low_page<I: Isa>(world: &Rc<TestWorld<I>>) -> (Rc<TestProcess<I>>, VirtAddr) {
    let process = Rc::new(TestProcess::new(world));
    let base = process.map_at(VirtAddr::new(1 << 30), 1, Rights::RW, ANON | MapFlags::FIXED);
    fill(process, base)
}

fn fill<I: Isa>(process: Rc<TestProcess<I>>, base: VirtAddr) -> (Rc<TestProcess<I>>, VirtAddr) {
    process.write(CPU, base, OLD);
    process.read(OTHER, base);
    (process, base)
}

/// `shares` is the value of the setting `cow_page_tables`.
fn fork_and_pin<I: Isa>(world: &Rc<TestWorld<I>>, flags: GupFlags, shares: &str) -> Race {
    world.set(MmSetting::CowPageTables, shares);
    let (process, base) = with_low_page(world);
    let child: Rc<RefCell<Option<TestProcess<I>>>> = Rc::default();
    let (forker, born) = (Rc::clone(&process), Rc::clone(&child));
    let (take, taken) = taker(&process, base, GupCall::PinFast(flags));
    let check = move || {
        let device = taken.take().ok_or("the page was not pinned")?;
        let child = child.take().ok_or("no child")?;
        let pfn = device.pfn(0);
        pin_holds(&process, &[&process, &child], base, device)?;
        process.write(CPU, base, NEW);
        same(child.read(OTHER, base), OLD, "what the child reads and the contents at the fork")?;
        differ(child.frame(OTHER, base, Access::Write), pfn, "the child's page and the pinned page")
    };
    Race { programs: vec![Box::new(move || *born.borrow_mut() = Some(forker.fork())), take], check: Box::new(check) }
}

fn fork_and_pin_for_writing<I: Isa>(world: &Rc<TestWorld<I>>) -> Race {
    fork_and_pin(world, GupFlags::WRITE, "never")
}

fn fork_and_pin_for_reading<I: Isa>(world: &Rc<TestWorld<I>>) -> Race {
    fork_and_pin(world, GupFlags::LONGTERM, "never")
}

/// INV-SHARE-PIN: fork shares the table of the page, or the pin is given up and taken later.
fn share_and_pin_for_writing<I: Isa>(world: &Rc<TestWorld<I>>) -> Race {
    fork_and_pin(world, GupFlags::WRITE, "always")
}

fn share_and_pin_for_reading<I: Isa>(world: &Rc<TestWorld<I>>) -> Race {
    fork_and_pin(world, GupFlags::LONGTERM, "always")
}

/// INV-SHARE-PIN: tables that a pin has marked, and that have no pin any more, are shared twice.
fn share_twice_and_pin<I: Isa>(world: &Rc<TestWorld<I>>) -> Race {
    world.set(MmSetting::CowPageTables, "always");
    let (process, base) = with_low_page(world);
    process.take(CPU, base, 1, GupCall::Pin(GupFlags::WRITE)).expect("a page").release(MakeDirty::No);
    let children = Rc::new(RefCell::new(Vec::new()));
    let (forker, born) = (Rc::clone(&process), Rc::clone(&children));
    let (take, taken) = taker(&process, base, GupCall::PinFast(GupFlags::WRITE));
    let check = move || {
        let (device, children) = (taken.take().ok_or("the page was not pinned")?, children.take());
        let all: Vec<_> = children.iter().chain([&*process]).collect();
        pin_holds(&process, &all, base, device)?;
        process.write(CPU, base, NEW);
        children.iter().try_for_each(|child| same(child.read(OTHER, base), OLD, "a child's page and its contents"))
    };
    let fork_twice = move || (0..2).for_each(|_| born.borrow_mut().push(forker.fork()));
    Race { programs: vec![Box::new(fork_twice), take], check: Box::new(check) }
}

/// What happens to tables that parent and child share, while the parent or the child pins a page.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SharedTableChange {
    /// The process that pins stores, and breaks them.
    Store,
    /// The other process stores, and the one that pins has the old tables alone.
    OtherStores,
    /// The other process ends, and the one that pins stores and takes the tables back.
    OtherEnds,
}

/// INV-SHARE-PIN, INV-SHARE-ORIGIN: the parent has taken a reference to the page before the fork.
fn change_and_pin<I: Isa>(
    world: &Rc<TestWorld<I>>,
    flags: GupFlags,
    by_child: bool,
    change: SharedTableChange,
) -> Race {
    world.set(MmSetting::CowPageTables, "always");
    let (process, base) = with_low_page(world);
    let lent = process.take(CPU, base, 1, GupCall::Get(NONE)).expect("a page");
    let child = Rc::new(process.fork());
    let (pins, other) = if by_child { (child, process) } else { (process, child) };
    pins.read(OTHER, base);
    // The first pin makes the path the process's own, so that later walks find the page.
    let (taken, takes) = (Taken::<I>::default(), Rc::clone(&pins));
    let into = Rc::clone(&taken);
    let take = move || {
        for _ in 0..3 {
            if let Some(device) = into.take() {
                device.release_on(OTHER, MakeDirty::No);
            }
            *into.borrow_mut() = takes.take(OTHER, base, 1, GupCall::PinFast(flags)).ok();
        }
    };
    let (stores, changes) = (Rc::clone(&pins), Rc::clone(&other));
    let program = move || match change {
        SharedTableChange::Store => stores.write(CPU, base, NEW),
        SharedTableChange::OtherStores => changes.write(CPU, base, NEW),
        SharedTableChange::OtherEnds => {
            changes.world.on(CPU, |mm| {
                mm.tlb().leave_space();
                mm.end_space(&changes.space);
            });
            stores.write(CPU, base, NEW);
        }
    };
    let check = move || {
        let device = taken.take().ok_or("the page was not pinned")?;
        let all = [&*pins, &*other];
        let alive = if change == SharedTableChange::OtherEnds { &all[..1] } else { &all };
        pin_holds(&pins, alive, base, device)?;
        pins.write(CPU, base, NEW + 1);
        // A store of the child is seen by no reference from before the fork.
        let seen = lent.read(0);
        lent.release(MakeDirty::No);
        if by_child && change != SharedTableChange::OtherStores {
            same(seen, OLD, "the page of the parent's reference and its contents at the fork")?;
        }
        let expected = if change == SharedTableChange::OtherStores { NEW } else { OLD };
        if alive.len() == 1 {
            Ok(())
        } else {
            same(other.read(OTHER, base), expected, "the other's page and its value")
        }
    };
    Race { programs: vec![Box::new(program), Box::new(take)], check: Box::new(check) }
}

fn break_and_pin_by_the_parent<I: Isa>(world: &Rc<TestWorld<I>>) -> Race {
    change_and_pin(world, NONE, false, SharedTableChange::Store)
}

fn break_and_pin_by_the_child<I: Isa>(world: &Rc<TestWorld<I>>) -> Race {
    change_and_pin(world, NONE, true, SharedTableChange::Store)
}

fn be_left_and_pin_by_the_parent<I: Isa>(world: &Rc<TestWorld<I>>) -> Race {
    change_and_pin(world, GupFlags::WRITE, false, SharedTableChange::OtherStores)
}

fn take_back_and_pin_by_the_parent<I: Isa>(world: &Rc<TestWorld<I>>) -> Race {
    change_and_pin(world, GupFlags::WRITE, false, SharedTableChange::OtherEnds)
}

fn take_back_and_pin_by_the_child<I: Isa>(world: &Rc<TestWorld<I>>) -> Race {
    change_and_pin(world, GupFlags::WRITE, true, SharedTableChange::OtherEnds)
}

/// A store copies a page that is shared with a child, while it is pinned for reading.
fn copy_on_write_and_pin<I: Isa>(world: &Rc<TestWorld<I>>) -> Race {
    world.set(MmSetting::CowPageTables, "never");
    let (process, base) = with_page(world);
    let child = process.fork();
    process.read(OTHER, base);
    let writer = Rc::clone(&process);
    let (take, taken) = taker(&process, base, GupCall::PinFast(NONE));
    let check = move || {
        let device = taken.take().ok_or("the page was not pinned")?;
        pin_holds(&process, &[&process, &child], base, device)?;
        same(child.read(OTHER, base), OLD, "what the child reads and the contents at the fork")
    };
    Race { programs: vec![Box::new(move || writer.write(CPU, base, NEW)), take], check: Box::new(check) }
}

/// INV-COW-REUSE: a page that one CPU has unshared for its pin stays when another CPU pins it, too.
fn pin_twice<I: Isa>(world: &Rc<TestWorld<I>>) -> Race {
    world.set(MmSetting::CowPageTables, "never");
    let (process, base) = with_page(world);
    let child = process.fork();
    process.read(OTHER, base);
    let (take, taken) = taker(&process, base, GupCall::PinFast(NONE));
    let (pins, first) = (Rc::clone(&process), Taken::<I>::default());
    let into = Rc::clone(&first);
    let pin = move || *into.borrow_mut() = pins.take(CPU, base, 1, GupCall::PinFast(NONE)).ok();
    let check = move || {
        for device in [first, taken] {
            pin_holds(&process, &[&process, &child], base, device.take().ok_or("the page was not pinned")?)?;
        }
        same(child.read(OTHER, base), OLD, "what the child reads and the contents at the fork")
    };
    Race { programs: vec![Box::new(pin), take], check: Box::new(check) }
}

/// INV-SOFT-DIRTY: a page pinned for writing is soft-dirty, also after a concurrent `clear_refs`.
fn clear_refs_and_pin<I: Isa>(world: &Rc<TestWorld<I>>) -> Race {
    let (process, base) = with_page(world);
    let (take, taken) = taker(&process, base, GupCall::PinFast(GupFlags::WRITE));
    let forgets = Rc::clone(&process);
    let forget =
        move || forgets.world.on(CPU, |mm| mm.clear_refs(&forgets.space, ClearRefs::SoftDirty).expect("memory"));
    let check = move || {
        let device = taken.take().ok_or("the page was not pinned")?;
        let mut soft_dirty = false;
        let range = PageRange::page(base);
        process.world.on(CPU, |mm| {
            mm.pagemap(&process.space, range, |_, word| soft_dirty = word.flags().contains(PagemapFlags::SOFT_DIRTY));
        });
        pin_holds(&process, &[&process], base, device)?;
        same(soft_dirty, true, "whether a page that a device may write is soft-dirty")
    };
    Race { programs: vec![Box::new(forget), take], check: Box::new(check) }
}

/// INV-GUP-RECHECK: a page is unmapped and its frame reused at once, during a lockless walk.
///
/// One of `mapped` pages is unmapped. If it is the only one, its tables are freed too.
fn unmap_and_get_of<I: Isa>(world: &Rc<TestWorld<I>>, mapped: u64) -> Race {
    let process = Rc::new(TestProcess::new(world));
    let elsewhere = process.anon(4);
    let flags = ANON | MapFlags::FIXED;
    let request =
        MapRequest { addr: VirtAddr::new(1 << 40), len: mapped * PAGE_SIZE, rights: Rights::RW, flags, file: None };
    let base = world.on(CPU, |mm| mm.mmap(&process.space, &request)).expect("room");
    process.write(CPU, base, OLD);
    process.write(CPU, elsewhere, NEW);
    process.read(OTHER, base);
    let unmaps = Rc::clone(&process);
    let pages = move || (0..4).map(move |page| elsewhere.add(page * PAGE_SIZE));
    let reuse = move || {
        unmaps.unmap(base, 1);
        pages().for_each(|at| unmaps.write(CPU, at, NEW));
    };
    let (take, taken) = taker(&process, base, GupCall::GetFast(NONE));
    let check = move || {
        let Some(device) = taken.take() else { return Ok(()) };
        let pfn = device.pfn(0);
        let content = same(device.read(0), OLD, "the contents of the referenced page and of the mapped one");
        let owners = pages().try_for_each(|at| {
            differ(process.frame(CPU, at, Access::Read), pfn, "a page mapped later and the referenced page")
        });
        if content.is_ok() && owners.is_ok() {
            device.release(MakeDirty::No);
        } else {
            std::mem::forget(device);
        }
        content.and(owners)
    };
    Race { programs: vec![Box::new(reuse), take], check: Box::new(check) }
}

fn unmap_and_get<I: Isa>(world: &Rc<TestWorld<I>>) -> Race {
    unmap_and_get_of(world, 1)
}

fn unmap_in_a_table_and_get<I: Isa>(world: &Rc<TestWorld<I>>) -> Race {
    unmap_and_get_of(world, 2)
}

/// INV-USER-COPY: a page is unmapped and its frame reused at once, while the kernel copies to it.
fn unmap_and_copy<I: Isa>(world: &Rc<TestWorld<I>>) -> Race {
    let (process, base) = with_page(world);
    let elsewhere = process.anon(4);
    let (unmaps, copies) = (Rc::clone(&process), Rc::clone(&process));
    let pages = move || (0..4).map(move |page| elsewhere.add(page * PAGE_SIZE));
    let reuse = move || {
        unmaps.unmap(base, 1);
        pages().for_each(|at| unmaps.write(CPU, at, NEW));
    };
    // A reference is taken first, so that the lockless walk races with the unmap too.
    let copy = move || {
        let world = &copies.world;
        if let Ok(device) = copies.take(OTHER, base, 1, GupCall::GetFast(GupFlags::WRITE)) {
            device.release_on(OTHER, MakeDirty::No);
        }
        let bytes = OLD.to_le_bytes();
        let left = world.on(OTHER, |mm| mm.copy_to_user(&copies.space, base, &bytes));
        assert!(left == 0 || left == bytes.len());
    };
    let check = move || {
        pages().try_for_each(|at| {
            same(process.read(CPU, at), NEW, "the contents of another page and the value stored there")
        })
    };
    Race { programs: vec![Box::new(reuse), Box::new(copy)], check: Box::new(check) }
}

macro_rules! races {
    ($($name:ident: $race:ident, $schedules:literal, $walks:ident;)*) => {
        mod x86_64 {
            use super::*;
            $(#[test] fn $name() { assert_clean::<X86_64>($race, $schedules, Walks::$walks); })*
        }
        mod aarch64 {
            use super::*;
            $(#[test] fn $name() { assert_clean::<Aarch64>($race, $schedules, Walks::$walks); })*
        }
    };
}

races! {
    a_pin_for_writing_survives_a_fork: fork_and_pin_for_writing, 1500, Dropped;
    a_pin_for_reading_survives_a_fork: fork_and_pin_for_reading, 250, Dropped;
    a_pin_for_writing_survives_a_fork_that_shares_tables: share_and_pin_for_writing, 250, Dropped;
    a_pin_for_reading_survives_a_fork_that_shares_tables: share_and_pin_for_reading, 250, Dropped;
    a_pin_survives_two_forks_after_an_earlier_pin: share_twice_and_pin, 250, Dropped;
    a_pin_of_the_parent_survives_a_break: break_and_pin_by_the_parent, 250, Took;
    a_pin_of_the_child_survives_a_break: break_and_pin_by_the_child, 250, Took;
    a_pin_survives_a_break_by_the_child: be_left_and_pin_by_the_parent, 250, Took;
    a_pin_of_the_parent_survives_a_table_taken_back: take_back_and_pin_by_the_parent, 250, Took;
    a_pin_of_the_child_survives_a_table_taken_back: take_back_and_pin_by_the_child, 250, Took;
    a_pin_for_writing_is_soft_dirty_after_clear_refs: clear_refs_and_pin, 1500, Dropped;
    a_pin_for_reading_survives_copy_on_write: copy_on_write_and_pin, 250, Dropped;
    a_pin_for_reading_survives_another: pin_twice, 250, Dropped;
    gup_survives_an_unmap_that_frees_tables: unmap_and_get, 250, Dropped;
    gup_survives_an_unmap: unmap_in_a_table_and_get, 250, Dropped;
    a_user_copy_survives_an_unmap: unmap_and_copy, 250, Dropped;
}

#[cfg(feature = "planted")]
mod plants {
    use super::*;
    use pagewright_plant::PlantedBug;

    /// Defines tests of planted bugs: a race on each instruction set, and what its finding says.
    macro_rules! found {
        ($($name:ident: $bug:ident by $x86_64:ident, $x86_64_says:literal and $aarch64:ident, $aarch64_says:literal;)*) => {
            $(#[test]
            fn $name() {
                assert_found::<X86_64>(PlantedBug::$bug, $x86_64, $x86_64_says);
                assert_found::<Aarch64>(PlantedBug::$bug, $aarch64, $aarch64_says);
            })*
        };
    }

    // On arm64 the flush does not wait for a lockless walk. On x86-64 it does, before the page is
    // freed. So on arm64 another race finds the walk without a recheck.
    found! {
        a_pin_of_a_shared_page_is_found:
            PinNotExclusive by copy_on_write_and_pin, "pinned" and copy_on_write_and_pin, "pinned";
        a_fork_that_shares_a_pinned_page_is_found:
            ForkIgnoresPin by fork_and_pin_for_writing, "pinned" and fork_and_pin_for_reading, "pinned";
        a_fork_that_shares_the_table_of_a_pinned_page_is_found:
            ForkSharesPinned by share_and_pin_for_writing, "shared pointer" and share_and_pin_for_reading, "shared pointer";
        a_walk_without_a_recheck_of_its_path_is_found:
            PathNotRechecked by share_and_pin_for_writing, "shared pointer" and share_and_pin_for_reading, "shared pointer";
        a_walk_that_marks_no_tables_is_found:
            FastPinUnmarked by share_and_pin_for_writing, "shared pointer" and share_and_pin_for_reading, "shared pointer";
        a_walk_without_a_recheck_is_found:
            FastNoRecheck by fork_and_pin_for_writing, "pinned" and unmap_in_a_table_and_get, "referenced";
        a_table_freed_during_a_walk_is_found:
            WalkersNotAwaited by unmap_and_get, "INV-TLB-WALKERS" and unmap_and_get, "INV-TLB-WALKERS";
    }
}
