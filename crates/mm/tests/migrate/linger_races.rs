//! What ends translations that linger, while other CPUs use them.
//!
//! INV-LINGER-MAY, INV-LINGER-WHOLE, INV-LINGER-CONTENTS, INV-LINGER-COVERS, INV-LINGER-FILE,
//! INV-MIGRATE-COPY.
//!
//! CPU 0 moves a page, or reclaims it. CPU 2 has read it, and reads on. CPU 1 makes a call after
//! which no load may return what was there before.

use super::{FAR, NEAR};
use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::files::{DiskFile, KeepingFile};
use pagewright_lab::harness::race::{assert_holds, device_step, race_in_short_or_long_turns};
use pagewright_lab::harness::{ANON, CPU, FileHandle, GupCall, OTHER, THIRD, TestProcess, TestWorld, at};
use pagewright_lab::planted_bugs_are_found;
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_mm::space::FileMapping;
use pagewright_mm::{Advice, MapFlags, MapRequest, Mm, MmSetting};
use pagewright_sim::Sim;
use pagewright_sim::explore::CoroutineBody;
use pagewright_types::{Access, PAGE_SIZE, Rights, VirtAddr};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering;

const SCHEDULES: u64 = 600;

/// What the page has before the call, and after it.
const BEFORE: u64 = 10;
const AFTER: u64 = 20;

/// A call after which no load may return the old contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// A store to a page that was shared with a child: the page is reused.
    Store,
    /// `mprotect` gives the right to store, and CPU 0 stores as soon as it may.
    Protect,
    /// A debugger writes to a page that the program may only read.
    ForcedWrite,
    /// The page is discarded, and reads as zero.
    Discard,
    /// A file that is mapped is written to.
    WriteFile,
    /// A file that is mapped is truncated and extended.
    TruncateFile,
    /// The page is paged out, read again and stored to.
    PageOut,
}

impl Ending {
    const ALL: [Self; 7] = [
        Self::Store,
        Self::Protect,
        Self::ForcedWrite,
        Self::Discard,
        Self::WriteFile,
        Self::TruncateFile,
        Self::PageOut,
    ];

    /// What the page has afterwards.
    fn leaves(self) -> u64 {
        match self {
            Self::Discard => 0,
            // The disk keeps nothing, and its page has its index.
            Self::TruncateFile => 1,
            _ => AFTER,
        }
    }
}

/// A page that moves, and the process that uses it.
struct Scene<I: Isa> {
    process: TestProcess<I>,
    file: Option<FileHandle<I>>,
    base: VirtAddr,
    /// Whether the call has returned.
    is_over: Cell<bool>,
}

impl<I: Isa> Scene<I> {
    /// The second page of a mapping has [`BEFORE`], and no leaf of it allows stores.
    fn new(ending: Ending, setting: &str) -> Rc<Self> {
        let world = TestWorld::<I>::two_nodes(3, 2 << 20);
        world.set(MmSetting::CowPageTables, "never");
        world.set(MmSetting::TlbLinger, setting);
        let process = TestProcess::new(&world);
        let of_file = matches!(ending, Ending::WriteFile | Ending::TruncateFile);
        let file = of_file.then(|| match ending {
            Ending::WriteFile => world.file_of(KeepingFile::default(), 4),
            _ => world.file_of(DiskFile::default(), 4),
        });
        let base = match &file {
            Some(file) => process.map(4, Rights::READ, MapFlags::PRIVATE, Some(file)),
            None => process.map(4, Rights::RW, ANON, None),
        };
        if file.is_none() {
            process.write(CPU, at(base, 1), BEFORE);
        }
        match ending {
            Ending::Store | Ending::Discard | Ending::PageOut => process.fork().end(),
            Ending::Protect | Ending::ForcedWrite => process.protect(base, 4, Rights::READ),
            Ending::WriteFile | Ending::TruncateFile => {}
        }
        for cpu in [CPU, OTHER, THIRD] {
            world.lab.run(cpu, &process.space);
            process.read(cpu, at(base, 1));
        }
        Rc::new(Self { process, file, base, is_over: Cell::new(false) })
    }

    fn page(&self) -> VirtAddr {
        at(self.base, 1)
    }

    /// What the page has before the call.
    fn before(&self) -> u64 {
        if self.file.is_some() { 1 } else { BEFORE }
    }

    /// Makes the call, on CPU 1.
    fn end(&self, ending: Ending) {
        let (world, space, page) = (&self.process.world, &self.process.space, self.page());
        match ending {
            Ending::Store => world.store(OTHER, space, page, AFTER),
            Ending::Protect => {
                world.lab.on(OTHER, |mm| mm.mprotect(space, self.base, 4 * PAGE_SIZE, Rights::RW)).expect("mapped");
                return;
            }
            Ending::ForcedWrite => {
                let call = GupCall::Pin(GupFlags::WRITE | GupFlags::FORCE);
                let device = self.process.take(OTHER, page, 1, call).expect("a page");
                device.write(0, AFTER);
                device.release_on(OTHER, MakeDirty::Yes);
            }
            Ending::Discard => world.advise(OTHER, space, page, 1, Advice::DontNeed),
            Ending::WriteFile => {
                let file = self.file.as_ref().expect("a file");
                world.lab.on(OTHER, |mm| mm.write_at(file, PAGE_SIZE, &AFTER.to_le_bytes())).expect("memory");
            }
            Ending::TruncateFile => {
                let file = self.file.as_ref().expect("a file");
                for size in [PAGE_SIZE, 4 * PAGE_SIZE] {
                    world.lab.on(OTHER, |mm| mm.truncate(file, size)).expect("not sealed");
                }
            }
            Ending::PageOut => {
                (0..2).for_each(|_| world.advise(OTHER, space, page, 1, Advice::PageOut));
                world.store(OTHER, space, page, AFTER);
            }
        }
        self.is_over.set(true);
    }

    /// Stores to the page on CPU 0 as soon as the mapping allows it, if that is soon.
    fn store_when_allowed(&self) {
        let (world, space) = (&self.process.world, &self.process.space);
        let is_allowed = || world.lab.touch(CPU, space, self.page(), Access::Write, 1).is_ok();
        if (0..60).inspect(|_| device_step()).any(|_| is_allowed()) {
            world.store(CPU, space, self.page(), AFTER);
            self.is_over.set(true);
        }
    }

    /// Reads the page on CPU 2 a few times; returns whether each load is one that may be.
    fn read(&self, ending: Ending) -> bool {
        let (world, page) = (&self.process.world, self.page());
        (0..6).all(|_| {
            let is_over = self.is_over.get();
            // The page may be past the end for a moment.
            if world.lab.touch(THIRD, &self.process.space, page, Access::Read, 1).is_err() {
                return ending == Ending::TruncateFile;
            }
            let Some(word) = world.word_now(THIRD, page, Access::Read) else { return true };
            let value = word.load(Ordering::Relaxed);
            value == ending.leaves() || !is_over && value == self.before()
        })
    }
}

/// CPU 0 lets translations linger, twice; CPU 1 ends that; CPU 2 reads.
fn end_beside_a_reader<I: Isa>(seed: u64) -> bool {
    let ending = Ending::ALL[seed as usize % Ending::ALL.len()];
    let reclaims = seed / 7 % 3 == 2;
    let scene = Scene::<I>::new(ending, if reclaims { "unmap" } else { "migration" });
    let _slots = scene.process.world.swap_to(16);
    let more = scene.process.map(6, Rights::RW, ANON, None);
    let (mover, actor, reader) = (scene.clone(), scene.clone(), scene.clone());
    let reads: Rc<Cell<bool>> = Rc::new(Cell::new(true));
    let told = reads.clone();
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || {
            let (world, space) = (&mover.process.world, &mover.process.space);
            for node in [FAR, NEAR] {
                world.lab.on(CPU, |mm| {
                    if reclaims {
                        mm.reclaim(NEAR, 8);
                    } else {
                        mm.move_pages(space, &[(mover.page(), node)], true, |_, _| {}).expect("memory");
                    }
                });
            }
            if ending == Ending::Protect {
                mover.store_when_allowed();
            }
            // Frames that were freed are taken.
            (0..6).for_each(|page| world.store(CPU, space, at(more, page), AFTER));
        }),
        Box::new(move || actor.end(ending)),
        Box::new(move || told.set(reader.read(ending))),
    ];
    race_in_short_or_long_turns(&scene.process.world, seed, programs);
    let process = &scene.process;
    if !scene.is_over.get() {
        process.write(CPU, scene.page(), AFTER);
    }
    let kept = reads.get() && process.read(THIRD, scene.page()) == ending.leaves();
    process.world.recount(&[process]);
    process.world.at_rest(&[]);
    process.end();
    process.world.at_rest(&[]);
    kept
}

/// A page of a file moves that an own and a shared table map; its frame is taken.
fn move_a_page_of_an_own_and_a_shared_table<I: Isa>(seed: u64) -> bool {
    let world = TestWorld::<I>::two_nodes(3, 2 << 20);
    world.set(MmSetting::CowPageTables, "always");
    world.set(MmSetting::TlbLinger, "migration");
    let file = world.file_of(KeepingFile::default(), 4);
    let (process, other) = (TestProcess::new(&world), TestProcess::new(&world));
    let more = process.map(8, Rights::RW, ANON, None);
    let [base, elsewhere] = [&process, &other].map(|of| of.map(4, Rights::READ, MapFlags::PRIVATE, Some(&file)));
    for (cpu, of, base) in [(CPU, &process, base), (OTHER, &process, base), (THIRD, &other, elsewhere)] {
        world.lab.run(cpu, &of.space);
        assert_eq!(of.read(cpu, at(base, 1)), 1);
    }
    let child = other.fork();
    let (mover, reader) = (Rc::clone(&world), Rc::clone(&world));
    let (moved, read) = (process.space.clone(), process.space.clone());
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || {
            let page = [(at(base, 1), FAR)];
            mover.lab.on(CPU, |mm| mm.move_pages(&moved, &page, true, |_, _| {})).expect("memory");
            (0..8).for_each(|page| mover.store(CPU, &moved, at(more, page), AFTER));
        }),
        Box::new(move || {
            (0..6).for_each(|_| reader.lab.touch(OTHER, &read, at(base, 1), Access::Read, 1).expect("mapped"));
        }),
    ];
    race_in_short_or_long_turns(&world, seed, programs);
    let kept = process.read(OTHER, at(base, 1)) == 1 && other.read(THIRD, at(elsewhere, 1)) == 1;
    world.recount(&[&process, &other, &child]);
    world.at_rest(&[]);
    [&child, &other, &process].into_iter().for_each(TestProcess::end);
    world.at_rest(&[]);
    kept
}

/// Reclaim lets a page linger that its first writer maps meanwhile, so it stays; then it moves.
fn a_first_writer_maps_what_reclaim_lets_linger<I: Isa>(seed: u64) -> bool {
    const OTHERS: u64 = 24;
    let world = TestWorld::<I>::two_nodes(3, 2 << 20);
    world.set(MmSetting::CowPageTables, "never");
    world.set(MmSetting::TlbLinger, "unmap");
    let (file, rest) = (world.file_of(KeepingFile::default(), 1), world.file(OTHERS));
    let (reader, writer) = (TestProcess::new(&world), TestProcess::new(&world));
    let [base, others] =
        [(1, &file), (OTHERS, &rest)].map(|(pages, of)| reader.map(pages, Rights::READ, MapFlags::PRIVATE, Some(of)));
    world.lab.run(THIRD, &reader.space);
    world.lab.run(OTHER, &writer.space);
    assert_eq!(reader.read(THIRD, base), 0);
    (0..OTHERS).for_each(|page| assert_eq!(reader.read(THIRD, at(others, page)), page + 7));
    let mapped = Rc::new(Cell::new(VirtAddr::ZERO));
    let (reclaimer, storer, told) = (Rc::clone(&world), Rc::clone(&world), mapped.clone());
    let (watched, space) = (reader.space.clone(), writer.space.clone());
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || _ = reclaimer.lab.on(CPU, |mm| mm.reclaim(NEAR, 16))),
        Box::new(move || {
            // Until the entry of the page is cleared, which may never be.
            let is_mapped = |mm: &Mm<Sim<I>>| watched.map().read().tables(mm.tlb()).peek(base).leaf().is_some();
            (0..2000).take_while(|_| storer.lab.on(OTHER, is_mapped)).for_each(|_| device_step());
            let file = FileMapping { file: &file, offset: 0, opened: Rights::RW };
            let (len, flags) = (PAGE_SIZE, MapFlags::SHARED);
            let request = MapRequest { addr: VirtAddr::ZERO, len, rights: Rights::RW, flags, file: Some(file) };
            told.set(storer.lab.on(OTHER, |mm| mm.mmap(&space, &request)).expect("room"));
            storer.store(OTHER, &space, told.get(), BEFORE);
        }),
    ];
    race_in_short_or_long_turns(&world, seed, programs);
    let shared = mapped.get();
    world.lab.on(CPU, |mm| mm.move_pages(&writer.space, &[(shared, FAR)], true, |_, _| {})).expect("memory");
    world.store(OTHER, &writer.space, shared, AFTER);
    let kept = reader.read(THIRD, base) == AFTER;
    world.at_rest(&[]);
    [&reader, &writer].into_iter().for_each(TestProcess::end);
    world.at_rest(&[]);
    kept
}

/// A page that is stored to is scanned on one CPU and moved by another.
fn move_beside_a_scan<I: Isa>(seed: u64) -> bool {
    let world = TestWorld::<I>::two_nodes(3, 2 << 20);
    world.set(MmSetting::TlbLinger, "migration");
    world.set(MmSetting::NumaBalancing, "1");
    world.set(MmSetting::NumaScanDelayMs, "0");
    let process = TestProcess::new(&world);
    let base = process.map(4, Rights::RW, ANON, None);
    (0..4).for_each(|page| process.write(CPU, at(base, page), 0));
    for cpu in [CPU, OTHER, THIRD] {
        world.lab.run(cpu, &process.space);
        process.write(cpu, base, 0);
    }
    world.on(OTHER, |mm| mm.numa_tick(&process.space, 1));
    let (mover, scanner, storer) = (Rc::clone(&world), Rc::clone(&world), Rc::clone(&world));
    let [moved, scanned, stored] = [(); 3].map(|()| process.space.clone());
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || {
            for node in [FAR, NEAR] {
                mover.lab.on(CPU, |mm| mm.move_pages(&moved, &[(base, node)], true, |_, _| {})).expect("memory");
            }
        }),
        Box::new(move || {
            (1..4).for_each(|time| scanner.lab.on(OTHER, |mm| mm.numa_tick(&scanned, time * 100_000)));
        }),
        Box::new(move || (1..=6).for_each(|value| storer.store(THIRD, &stored, base, value))),
    ];
    race_in_short_or_long_turns(&world, seed, programs);
    let kept = process.read(CPU, base) == 6;
    world.at_rest(&[]);
    process.end();
    world.at_rest(&[]);
    kept
}

on_both! {
    what_lingers_ends_beside_a_reader:
        assert_holds(3 * SCHEDULES, end_beside_a_reader::<I>, "a load returned what was there before a call"),
    a_page_of_an_own_and_a_shared_table_moves:
        assert_holds(SCHEDULES / 2, move_a_page_of_an_own_and_a_shared_table::<I>, "a page has other contents"),
    a_page_with_a_first_writer_moves:
        assert_holds(SCHEDULES / 4, a_first_writer_maps_what_reclaim_lets_linger::<I>, "a load returned old contents"),
    a_page_moves_beside_a_scan:
        assert_holds(SCHEDULES, move_beside_a_scan::<I>, "a store is lost"),
}

planted_bugs_are_found! {
    20 * SCHEDULES;
    WritableLingers => move_beside_a_scan,
    StoredWhileLingering => end_beside_a_reader,
    ForcedWriteUnsettled => end_beside_a_reader,
    MovedFrameNotParked => end_beside_a_reader,
    CopyWithoutKey => end_beside_a_reader,
    LingersUnflushed => move_beside_a_scan,
}

/// On arm64 an invalidation is issued at once, so a translation lingers for a moment only.
#[cfg(feature = "planted")]
#[test]
fn bugs_that_need_a_translation_that_lingers_long_are_found_on_x86_64() {
    use pagewright_arch::X86_64;
    use pagewright_lab::harness::race::{PlantedRace, assert_planted_bugs_are_found};
    use pagewright_plant::PlantedBug;
    let by_reader = [PlantedBug::ProtectGivesUnsettledRight, PlantedBug::EvictedKeyLost];
    let by_reader = by_reader.map(|bug| (bug, end_beside_a_reader::<X86_64> as fn(u64) -> bool));
    let others: [PlantedRace; 2] = [
        (PlantedBug::FolioLingersInPart, move_a_page_of_an_own_and_a_shared_table::<X86_64>),
        (PlantedBug::MovesWritableUnsettled, a_first_writer_maps_what_reclaim_lets_linger::<X86_64>),
    ];
    assert_planted_bugs_are_found(20 * SCHEDULES, &[by_reader.as_slice(), &others].concat());
}
