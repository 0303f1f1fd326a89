//! Pages that move while other CPUs work on them: each operation that can meet a migration entry.
//!
//! INV-MIGRATE-ALL, INV-MIGRATE-COPY, INV-MIGRATE-WAIT, INV-MIGRATE-COUNT, INV-MIGRATE-TRANSFER.
//!
//! One CPU moves the pages of a process to the other node and back, while two others make calls
//! that a seed chooses. By some seeds it also scans, so that the calls meet hints (INV-NUMA-HINT).
//! Each call has pages of its own, so that it is known what they have in the end; what any load
//! returns meanwhile is judged by the oracle (O3).

use super::{FAR, NEAR};
use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::files::DiskFile;
#[cfg(feature = "planted")]
use pagewright_lab::harness::race::assert_planted_bugs_are_found;
use pagewright_lab::harness::race::{assert_holds, race_in_short_or_long_turns, race_in_turns};
use pagewright_lab::harness::{
    ANON, CPU, FileHandle, GupCall, OTHER, THIRD, TestDevice, TestProcess, TestWorld, at, recount,
};
use pagewright_lab::planted_bugs_are_found;
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_mm::view::{PagemapEntry, PagemapFlags};
use pagewright_mm::{Advice, MapFlags, Mm, MmError, MmSetting, RemapFlags, RemapRequest};
use pagewright_sim::Sim;
use pagewright_sim::explore::CoroutineBody;
use pagewright_types::{Access, CpuId, NodeId, PAGE_SIZE, PageRange, Rights, VirtAddr};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const SCHEDULES: u64 = 500;
/// The pages of each of the two other CPUs.
const PAGES: u64 = 2;

/// A call beside the migration, on pages of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    /// Stores to the pages, twice.
    Store,
    /// Discards the first page and stores to it.
    Discard,
    Unmap,
    /// Takes the right to store away, and gives it back.
    Protect,
    /// Moves the mapping elsewhere, whose pages are read there.
    Remap,
    Lock,
    Guard,
    PageOut,
    /// Pins the first page, stores as the device would, and unpins it.
    Pin,
    /// Forks; the child stores to the pages, and ends.
    Fork,
    /// A child that was there before stores to the pages.
    ChildStores,
    /// A child that was there before ends.
    ChildEnds,
    /// Pages out, and removes the swap device.
    SwapOff,
    /// Asks `mincore`, pagemap and smaps for the pages.
    Look,
}

impl Deed {
    const ALL: [Self; 14] = [
        Self::Store,
        Self::Discard,
        Self::Unmap,
        Self::Protect,
        Self::Remap,
        Self::Lock,
        Self::Guard,
        Self::PageOut,
        Self::Pin,
        Self::Fork,
        Self::ChildStores,
        Self::ChildEnds,
        Self::SwapOff,
        Self::Look,
    ];
}

/// A process whose pages move, and its child.
struct Scene<I: Isa> {
    process: TestProcess<I>,
    child: RefCell<Option<TestProcess<I>>>,
}

impl<I: Isa> Scene<I> {
    /// Makes the call on `cpu`, on the pages at `base`; returns what the first page has then.
    ///
    /// `None` if the page is gone.
    fn act(&self, deed: Deed, cpu: CpuId, base: VirtAddr) -> Option<u64> {
        let (world, space) = (&self.process.world, &self.process.space);
        match deed {
            Deed::Store => {
                for value in [30, 31] {
                    (0..PAGES).for_each(|page| world.store(cpu, space, at(base, page), value));
                }
                Some(31)
            }
            Deed::Discard => {
                world.advise(cpu, space, base, 1, Advice::DontNeed);
                world.store(cpu, space, base.add(8), 1);
                Some(0)
            }
            Deed::Unmap | Deed::Protect | Deed::Remap | Deed::Lock | Deed::Guard => {
                self.change_mapping(deed, cpu, base)
            }
            Deed::PageOut => {
                (0..2).for_each(|_| world.advise(cpu, space, base, PAGES, Advice::PageOut));
                Some(10)
            }
            Deed::Pin => {
                let call = if cpu == OTHER { GupCall::PinFast(GupFlags::WRITE) } else { GupCall::Pin(GupFlags::WRITE) };
                let device: TestDevice<I> = self.process.take(cpu, base, 1, call).expect("a page");
                device.write(0, 33);
                device.release_on(cpu, MakeDirty::Yes);
                Some(33)
            }
            Deed::Fork => {
                let child = world.lab.on(cpu, |mm| mm.fork(space)).expect("memory");
                let child = TestProcess { world: Rc::clone(world), space: child };
                world.lab.run(cpu, &child.space);
                for page in 0..PAGES {
                    let word = world.word(cpu, &child.space, at(base, page), Access::Read).load(Ordering::Relaxed);
                    assert_eq!(word, 10, "a page of the child");
                    world.store(cpu, &child.space, at(base, page), 34);
                }
                world.lab.run(cpu, space);
                world.lab.on(cpu, |mm| mm.end_space(&child.space));
                Some(10)
            }
            Deed::ChildStores => {
                let child = self.child.borrow().as_ref().map(|child| child.space.clone());
                if let Some(child) = child {
                    world.lab.run(cpu, &child);
                    (0..PAGES).for_each(|page| world.store(cpu, &child, at(base, page), 35));
                    world.lab.run(cpu, space);
                }
                Some(10)
            }
            Deed::ChildEnds => {
                let child = self.child.take();
                if let Some(child) = child {
                    world.lab.on(cpu, |mm| mm.end_space(&child.space));
                }
                Some(10)
            }
            Deed::SwapOff => {
                (0..2).for_each(|_| world.advise(cpu, space, base, PAGES, Advice::PageOut));
                let off = world.lab.on(cpu, |mm| mm.swap_off(0));
                assert!(matches!(off, Ok(()) | Err(MmError::NoSuchSwapDevice { .. })), "swapoff: {off:?}");
                Some(10)
            }
            Deed::Look => {
                (0..3).for_each(|_| self.look(cpu, base));
                Some(10)
            }
        }
    }

    /// Asserts that pages which move are shown as pages in memory.
    fn look(&self, cpu: CpuId, base: VirtAddr) {
        let (world, space) = (&self.process.world, &self.process.space);
        let mut resident = [0; PAGES as usize];
        world.lab.on(cpu, |mm| mm.mincore(space, base, PAGES * PAGE_SIZE, &mut resident)).expect("mapped");
        assert_eq!(resident, [1; PAGES as usize], "mincore");
        let range = PageRange::new(base, at(base, PAGES));
        let mut present = 0;
        world.lab.on(cpu, |mm| {
            let seen = |_, entry: PagemapEntry| present += u64::from(entry.flags().contains(PagemapFlags::PRESENT));
            mm.pagemap(space, range, seen);
        });
        assert_eq!(present, PAGES, "pagemap");
        let mut text = String::new();
        world.lab.on(cpu, |mm| mm.show_smaps(space, &mut text)).expect("a string takes everything");
        let resident = |line: &&str| line.starts_with("Rss:");
        let kilobytes =
            text.lines().filter(resident).filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
        assert!(kilobytes.sum::<u64>() >= PAGES * PAGE_SIZE / 1024, "{text}");
    }

    /// The calls that hold the space for writing, and guards.
    fn change_mapping(&self, deed: Deed, cpu: CpuId, base: VirtAddr) -> Option<u64> {
        let (world, space) = (&self.process.world, &self.process.space);
        let len = PAGES * PAGE_SIZE;
        match deed {
            Deed::Unmap => {
                world.lab.on(cpu, |mm| mm.munmap(space, base, len)).expect("mapped");
                None
            }
            Deed::Protect => {
                for rights in [Rights::READ, Rights::RW] {
                    world.lab.on(cpu, |mm| mm.mprotect(space, base, len, rights)).expect("mapped");
                }
                world.store(cpu, space, base, 32);
                Some(32)
            }
            Deed::Remap => {
                let request = RemapRequest {
                    addr: base,
                    old_len: len,
                    new_len: 2 * len,
                    flags: RemapFlags::MAYMOVE,
                    new_addr: VirtAddr::ZERO,
                };
                let moved = world.lab.on(cpu, |mm| mm.mremap(space, &request)).expect("room");
                let value = world.word(cpu, space, moved, Access::Read).load(Ordering::Relaxed);
                assert_eq!(value, 10, "a page that was moved by both");
                None
            }
            Deed::Lock => {
                world.lab.on(cpu, |mm| mm.mlock(space, base, len)).expect("memory");
                match cpu {
                    OTHER => world.lab.on(cpu, |mm| mm.munlock(space, base, len)).expect("mapped"),
                    _ => world.lab.on(cpu, |mm| mm.munlockall(space)),
                }
                Some(10)
            }
            Deed::Guard => {
                world.advise(cpu, space, base, 1, Advice::GuardInstall);
                world.advise(cpu, space, base, 1, Advice::GuardRemove);
                Some(0)
            }
            other => unreachable!("{other:?} changes no mapping"),
        }
    }
}

/// Whether translations of the pages that move by this seed may linger.
fn lingers(seed: u64) -> bool {
    seed.wrapping_mul(0xd134_2543_de82_ef95) >> 63 == 1
}

/// Moves pages to the other node, back, and there again.
///
/// By some seeds it scans after each move, so that the other calls meet hints, and their faults
/// promote pages of the far node.
fn there_and_back<I: Isa>(process: &TestProcess<I>, base: VirtAddr, pages: u64, seed: u64) -> CoroutineBody {
    let (world, space) = (Rc::clone(&process.world), process.space.clone());
    if lingers(seed) {
        world.set(MmSetting::TlbLinger, "migration");
    }
    let scans = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 63 == 1;
    if scans {
        world.set(MmSetting::NumaBalancing, "2");
        world.set(MmSetting::NumaScanDelayMs, "0");
        world.on(CPU, |mm| mm.numa_tick(&space, 1));
    }
    Box::new(move || {
        for (time, node) in [FAR, NEAR, FAR].into_iter().enumerate() {
            let pages: Vec<(VirtAddr, NodeId)> = (0..pages).map(|page| (at(base, page), node)).collect();
            let mover = |mm: &Mm<Sim<I>>| mm.move_pages(&space, &pages, true, |_, _| {});
            world.lab.on(CPU, mover).expect("memory for the lists");
            if scans {
                world.lab.on(CPU, |mm| mm.numa_tick(&space, (time as u64 + 1) * 100_000));
            }
        }
    })
}

/// One CPU moves pages, two others make a call each; what is there in the end is what they left.
fn move_beside_two_calls<I: Isa>(seed: u64) -> bool {
    let world = TestWorld::<I>::two_nodes(3, 2 << 20);
    let _slots = world.swap_to(16);
    world.set(MmSetting::CowPageTables, if seed.is_multiple_of(2) { "always" } else { "never" });
    let process = TestProcess::new(&world);
    let base = process.map(2 * PAGES, Rights::RW, ANON, None);
    (0..2 * PAGES).for_each(|page| process.write(CPU, at(base, page), 10));
    let child = (!(seed / 2).is_multiple_of(3)).then(|| process.fork());
    for cpu in [CPU, OTHER, THIRD] {
        world.lab.run(cpu, &process.space);
        (0..2 * PAGES).for_each(|page| assert_eq!(process.read(cpu, at(base, page)), 10));
    }
    let deeds = Deed::ALL.len();
    let mut deeds = [Deed::ALL[seed as usize / 6 % deeds], Deed::ALL[seed as usize / 6 / deeds % deeds]];
    if deeds.contains(&Deed::ChildEnds) && deeds.contains(&Deed::ChildStores) {
        // No CPU runs a space that ends.
        deeds[1] = Deed::Store;
    }
    let scene = Rc::new(Scene { process, child: RefCell::new(child) });
    let left: Rc<RefCell<[Option<u64>; 2]>> = Rc::default();
    let act = |index: usize, cpu: CpuId| -> CoroutineBody {
        let (scene, left) = (scene.clone(), left.clone());
        Box::new(move || {
            let value = scene.act(deeds[index], cpu, at(base, index as u64 * PAGES));
            left.borrow_mut()[index] = value;
        })
    };
    let moves = there_and_back(&scene.process, base, 2 * PAGES, seed);
    let programs: Vec<CoroutineBody> = vec![moves, act(0, OTHER), act(1, THIRD)];
    race_in_short_or_long_turns(&world, seed, programs);
    let process = &scene.process;
    world.lab.run(CPU, &process.space);
    let kept = (0..2).all(|index| {
        let first = at(base, index as u64 * PAGES);
        left.borrow()[index].is_none_or(|value| process.read(CPU, first) == value)
    });
    let child = scene.child.take();
    let kept = kept
        && child.iter().all(|child| {
            (0..2).all(|index| {
                let wanted = if deeds[index] == Deed::ChildStores { 35 } else { 10 };
                child.read(OTHER, at(base, index as u64 * PAGES)) == wanted
            })
        });
    let spaces: Vec<_> = child.iter().chain([process]).map(|process| process.space.clone()).collect();
    world.on(CPU, |mm| recount::check(mm, &spaces));
    world.at_rest(&[]);
    child.iter().chain([process]).for_each(TestProcess::end);
    world.at_rest(&[]);
    kept
}

/// A call on a page of a file, beside the migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileDeed {
    /// Stores through the mapping.
    Store,
    /// Writes to the file.
    Write,
    /// Truncates the file and extends it again.
    Truncate,
    /// Writes the page back, or pages it out if it is shared memory.
    Clean,
    /// Discards the mapping's entry, and reads the page.
    Discard,
    /// Another process maps the file, reads it, and unmaps it.
    MapElsewhere,
}

impl FileDeed {
    const ALL: [Self; 6] = [Self::Store, Self::Write, Self::Truncate, Self::Clean, Self::Discard, Self::MapElsewhere];

    /// Makes the call; returns what the page has then.
    fn act<I: Isa>(self, scene: &FileScene<I>, cpu: CpuId, page: u64) -> u64 {
        let (world, space, file) = (&scene.process.world, &scene.process.space, &scene.file);
        let va = at(scene.base, page);
        match self {
            Self::Store => {
                [40, 41].iter().for_each(|value| world.store(cpu, space, va, *value));
                41
            }
            Self::Write => {
                for value in [50_u64, 51] {
                    world.lab.on(cpu, |mm| mm.write_at(file, page * PAGE_SIZE, &value.to_le_bytes())).expect("memory");
                }
                51
            }
            Self::Truncate => {
                // The page of the other call is the first.
                world.lab.on(cpu, |mm| mm.truncate(file, page * PAGE_SIZE)).expect("not sealed");
                world.lab.on(cpu, |mm| mm.truncate(file, 2 * PAGE_SIZE)).expect("not sealed");
                scene.truncated
            }
            Self::Clean => {
                world.lab.on(cpu, |mm| mm.write_back(file, 0, 2)).expect("a disk");
                // The disk does not keep what is written.
                if scene.truncated == 0 {
                    (0..2).for_each(|_| world.advise(cpu, space, va, 1, Advice::PageOut));
                }
                10
            }
            Self::Discard => {
                world.advise(cpu, space, va, 1, Advice::DontNeed);
                world.lab.touch(cpu, space, va, Access::Read, 1).expect("mapped");
                10
            }
            Self::MapElsewhere => {
                let other = &scene.other.space;
                world.lab.run(cpu, other);
                world.lab.touch(cpu, other, at(scene.elsewhere, page), Access::Read, 1).expect("mapped");
                world.advise(cpu, other, at(scene.elsewhere, page), 1, Advice::DontNeed);
                world.lab.run(cpu, space);
                10
            }
        }
    }
}

/// Two processes that map a file of two pages.
struct FileScene<I: Isa> {
    process: TestProcess<I>,
    other: TestProcess<I>,
    file: FileHandle<I>,
    base: VirtAddr,
    elsewhere: VirtAddr,
    /// What a page has after a truncation.
    truncated: u64,
}

/// One CPU moves the pages of a file, two others make a call each.
fn move_file_beside_two_calls<I: Isa>(seed: u64) -> bool {
    let world = TestWorld::<I>::two_nodes(3, 2 << 20);
    let _slots = world.swap_to(16);
    let shmem = seed.is_multiple_of(2);
    let file = if shmem { world.shmem(2) } else { world.file_of(DiskFile(Arc::default()), 2) };
    let (process, other) = (TestProcess::new(&world), TestProcess::new(&world));
    let base = process.map(2, Rights::RW, MapFlags::SHARED, Some(&file));
    let elsewhere = other.map(2, Rights::RW, MapFlags::SHARED, Some(&file));
    (0..2).for_each(|page| process.write(CPU, at(base, page), 10));
    if (seed / 2).is_multiple_of(2) {
        (0..2).for_each(|page| assert_eq!(other.read(OTHER, at(elsewhere, page)), 10));
    }
    [CPU, OTHER, THIRD].iter().for_each(|cpu| world.lab.run(*cpu, &process.space));
    // The bytes of a disk file that was truncated are those of the disk.
    let scene = Rc::new(FileScene { process, other, file, base, elsewhere, truncated: if shmem { 0 } else { 1 } });
    let first = match FileDeed::ALL[seed as usize / 4 % 6] {
        // It would truncate the page of the other call, too.
        FileDeed::Truncate => FileDeed::Store,
        deed => deed,
    };
    let deeds = [first, FileDeed::ALL[seed as usize / 24 % 6]];
    let left: Rc<RefCell<[u64; 2]>> = Rc::default();
    let act = |index: usize, cpu: CpuId| -> CoroutineBody {
        let (scene, left) = (scene.clone(), left.clone());
        Box::new(move || {
            let value = deeds[index].act(&scene, cpu, index as u64);
            left.borrow_mut()[index] = value;
        })
    };
    let moves = there_and_back(&scene.process, base, 2, seed);
    let programs: Vec<CoroutineBody> = vec![moves, act(0, OTHER), act(1, THIRD)];
    race_in_short_or_long_turns(&world, seed, programs);
    let process = &scene.process;
    world.lab.run(CPU, &process.space);
    let kept = (0..2).all(|index| process.read(CPU, at(base, index as u64)) == left.borrow()[index]);
    world.recount(&[process, &scene.other]);
    world.at_rest(&[]);
    [process, &scene.other].iter().for_each(|process| process.end());
    world.at_rest(&[]);
    kept
}

/// Pages of shared memory move, a truncation waits for them, and a sharer of their table ends.
fn truncate_beside_the_end_of_a_sharer<I: Isa>(seed: u64) -> bool {
    const SHARED: u64 = 4;
    let world = TestWorld::<I>::two_nodes(3, 2 << 20);
    world.set(MmSetting::CowPageTables, "always");
    let file = world.shmem(SHARED);
    let process = TestProcess::new(&world);
    let base = process.map(SHARED, Rights::RW, MapFlags::SHARED, Some(&file));
    (0..SHARED).for_each(|page| process.write(CPU, at(base, page), 10));
    let child = process.fork();
    [CPU, OTHER].iter().for_each(|cpu| world.lab.run(*cpu, &process.space));
    let (truncating, ending) = (Rc::clone(&world), Rc::clone(&world));
    let programs: Vec<CoroutineBody> = vec![
        there_and_back(&process, base, SHARED, seed),
        Box::new(move || {
            for pages in [1, SHARED] {
                truncating.lab.on(OTHER, |mm| mm.truncate(&file, pages * PAGE_SIZE)).expect("not sealed");
            }
        }),
        Box::new(move || ending.lab.on(THIRD, |mm| mm.end_space(&child.space))),
    ];
    if seed.is_multiple_of(2) {
        // The migrator stops between two pages; the others wait as long as they do.
        race_in_turns(&world, seed, &[(CPU, seed as u32), (OTHER, 3000), (THIRD, 3000)], programs);
    } else {
        race_in_short_or_long_turns(&world, seed, programs);
    }
    let kept = (0..SHARED).all(|page| process.read(CPU, at(base, page)) == if page == 0 { 10 } else { 0 });
    process.end();
    world.at_rest(&[]);
    kept
}

/// A page of code moves, and is executed there (INV-CODE-VISIBLE).
fn a_page_of_code_moves<I: Isa>(_seed: u64) -> bool {
    let world = TestWorld::<I>::two_nodes(2, 2 << 20);
    let process = TestProcess::new(&world);
    let base = process.map(1, Rights::RW | Rights::EXEC, ANON, None);
    process.write(CPU, base, 7);
    let executes = || process.touch(OTHER, base, Access::Exec).is_ok();
    let executed = executes();
    let moved = world.on(CPU, |mm| mm.move_pages(&process.space, &[(base, FAR)], false, |_, _| {}));
    let executed = executed && moved == Ok(0) && executes() && process.read(CPU, base) == 7;
    process.end();
    world.at_rest(&[]);
    executed
}

on_both! {
    a_page_of_code_is_executed_where_it_has_moved: assert!(a_page_of_code_moves::<I>(0)),
    pages_move_beside_two_calls:
        assert_holds(SCHEDULES, move_beside_two_calls::<I>, "a page has lost a store, or got one of another process"),
    pages_move_beside_a_truncation_and_the_end_of_a_sharer:
        assert_holds(SCHEDULES / 2, truncate_beside_the_end_of_a_sharer::<I>, "a page has other contents"),
    pages_of_files_move_beside_two_calls:
        assert_holds(3 * SCHEDULES / 2, move_file_beside_two_calls::<I>, "a page of a file has lost a store"),
}

planted_bugs_are_found! {
    30 * SCHEDULES;
    MigrateCopiesEarly => move_beside_two_calls,
    MigrateIgnoresPin => move_beside_two_calls,
    MigratedFlagsLost => move_beside_two_calls,
    BreakCopiesMigration => move_beside_two_calls,
    MigrationNotAwaited => move_beside_two_calls,
    ZapDropsMigration => move_beside_two_calls,
    MigrateIgnoresUnfound => move_beside_two_calls,
    MigrateStoreLost => move_file_beside_two_calls,
    MigratedRefLost => move_beside_two_calls,
}

/// On x86-64 instruction fetches see every store.
#[cfg(feature = "planted")]
#[test]
fn code_that_is_not_published_is_found_on_arm64() {
    use pagewright_plant::PlantedBug;
    assert_planted_bugs_are_found(
        1,
        &[(PlantedBug::CodeNotPublished, a_page_of_code_moves::<pagewright_arch::Aarch64>)],
    );
}
