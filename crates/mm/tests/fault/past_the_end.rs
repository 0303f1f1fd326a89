//! Pages past the end of a file that `FALLOC_FL_KEEP_SIZE` has allocated.
//!
//! No fault maps them, and fault-around does not either (INV-FILE-REMOVED).
//!
//! Every size of a small file with every extent past its end meets every window of fault-around,
//! from each page of mappings with several offsets. A race lets the end come nearer meanwhile.
//!
//! Not covered: files of a device, which have no pages past their end.

use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::race::{assert_holds, race, race_in_two_turns};
use pagewright_lab::harness::recount;
use pagewright_lab::harness::{CPU, FileHandle, OTHER, TestProcess, TestWorld, at};
use pagewright_mm::file::{FallocateFlags, MemfdFlags};
use pagewright_mm::space::FileMapping;
use pagewright_mm::{FaultError, MapFlags, MapRequest, MmSetting};
use pagewright_sim::explore::CoroutineBody;
use pagewright_types::{Access, PAGE_SIZE, Rights, VirtAddr};

const SCHEDULES: u64 = 300;
/// Pages of each mapping.
const PAGES: u64 = 8;
/// Where the file is mapped.
const BASE: u64 = 0x10_0000_0000;

/// Shared memory of `bytes` bytes, with its pages and `extra` pages past its end allocated.
fn allocated<I: Isa>(world: &TestWorld<I>, bytes: u64, extra: u64) -> FileHandle<I> {
    world.on(CPU, |mm| {
        let file = mm.memfd_create("long", MemfdFlags::empty()).expect("memory");
        mm.truncate(&file, bytes).expect("not sealed");
        let end = bytes.next_multiple_of(PAGE_SIZE) + extra * PAGE_SIZE;
        if end > 0 {
            mm.fallocate(&file, FallocateFlags::KEEP_SIZE, 0, end).expect("memory");
        }
        assert_eq!(file.size(), bytes);
        file
    })
}

/// Maps [`PAGES`] pages of a file from page `first` on.
fn map_from<I: Isa>(process: &TestProcess<I>, file: &FileHandle<I>, first: u64, flags: MapFlags) -> VirtAddr {
    let file = Some(FileMapping { file, offset: first * PAGE_SIZE, opened: Rights::RW });
    let (addr, len, flags) = (VirtAddr::new(BASE), PAGES * PAGE_SIZE, flags | MapFlags::FIXED);
    let request = MapRequest { addr, len, rights: Rights::RW, flags, file };
    process.world.on(CPU, |mm| mm.mmap(&process.space, &request)).expect("room")
}

/// Whether the entry of a page maps anything.
fn is_mapped<I: Isa>(process: &TestProcess<I>, va: VirtAddr) -> bool {
    process.world.on(CPU, |mm| recount::leaf(mm, &process.space, va)).is_some()
}

/// INV-FILE-REMOVED.
fn fault_around_maps_no_page_past_the_end<I: Isa>() {
    let world = TestWorld::<I>::new(1);
    let mut around = 0;
    for bytes in [1, PAGE_SIZE, PAGE_SIZE + 8, 3 * PAGE_SIZE, 5 * PAGE_SIZE - 1] {
        for extra in [0, 1, 3, PAGES] {
            let file = allocated(&world, bytes, extra);
            for window in [1, 4, 16] {
                world.on(CPU, |mm| mm.settings().set(MmSetting::FaultAroundBytes, window * PAGE_SIZE)).expect("valid");
                for (first, touched) in (0..2).flat_map(|first| (0..PAGES).map(move |touched| (first, touched))) {
                    for (flags, access) in [
                        (MapFlags::SHARED, Access::Read),
                        (MapFlags::SHARED, Access::Write),
                        (MapFlags::PRIVATE, Access::Read),
                        (MapFlags::PRIVATE, Access::Write),
                    ] {
                        let what = format!(
                            "{access} of page {touched} from page {first} on, {bytes} bytes and {extra} pages, \
                             a window of {window}"
                        );
                        let process = TestProcess::new(&world);
                        let base = map_from(&process, &file, first, flags);
                        let pages = file.pages().saturating_sub(first);
                        let va = at(base, touched);
                        let served = process.touch(CPU, va, access);
                        let expected = if touched < pages { Ok(()) } else { Err(FaultError::PastEnd { va }) };
                        assert_eq!(served, expected, "{what}");
                        let mapped: Vec<u64> = (0..PAGES).filter(|page| is_mapped(&process, at(base, *page))).collect();
                        assert!(mapped.iter().all(|page| *page < pages), "{what}: pages {mapped:?} are mapped");
                        around += mapped.len().saturating_sub(1);
                        process.end();
                    }
                }
            }
            world.on(CPU, |mm| mm.close_file(&file));
        }
    }
    assert!(around > 0, "fault-around has mapped nothing");
    world.at_rest(&[]);
}

/// One CPU accesses a file with pages past its end, another moves the end.
///
/// Returns whether no page past the end is mapped in the end, and the others have their contents.
fn access_while_the_end_moves<I: Isa>(seed: u64) -> bool {
    let world = TestWorld::<I>::new(2);
    let (before, after) = ([2, 4, 6][seed as usize % 3], [1, 3, 5][seed as usize / 3 % 3]);
    let file = allocated(&world, before * PAGE_SIZE, 2);
    (0..before).for_each(|page| {
        let word = (page + 1).to_le_bytes();
        world.on(CPU, |mm| mm.write_at(&file, page * PAGE_SIZE, &word)).expect("memory");
    });
    let process = TestProcess::new(&world);
    let (flags, access) =
        [(MapFlags::SHARED, Access::Read), (MapFlags::PRIVATE, Access::Write), (MapFlags::SHARED, Access::Write)]
            [seed as usize / 9 % 3];
    let base = map_from(&process, &file, 0, flags);
    world.lab.run(CPU, &process.space);
    let (accesses, moves, space, moved) = (world.clone(), world.clone(), process.space.clone(), file.clone());
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || {
            // The page may be past the end by now.
            let _ = accesses.lab.touch(CPU, &space, at(base, seed / 27 % before), access, 1);
        }),
        Box::new(move || {
            moves.lab.on(OTHER, |mm| mm.truncate(&moved, after * PAGE_SIZE + 8)).expect("not sealed");
            let (offset, len) = (after * PAGE_SIZE, 3 * PAGE_SIZE);
            moves.lab.on(OTHER, |mm| mm.fallocate(&moved, FallocateFlags::KEEP_SIZE, offset, len)).expect("memory");
        }),
    ];
    if seed.is_multiple_of(2) {
        race(&world, seed, programs)
    } else {
        race_in_two_turns(&world, seed, programs)
    }
    let pages = file.pages();
    let bounded = (0..PAGES).all(|page| page < pages || !is_mapped(&process, at(base, page)));
    let kept = |page| process.read(CPU, at(base, page)) == if page < before.min(after) { page + 1 } else { 0 };
    // The last page is cut after its first word.
    let whole = (0..pages).all(|page| page + 1 == pages || kept(page));
    let refused = (pages..PAGES).all(|page| process.touch(CPU, at(base, page), Access::Read).is_err());
    world.recount(&[&process]);
    process.end();
    world.on(CPU, |mm| mm.close_file(&file));
    world.at_rest(&[]);
    bounded && whole && refused
}

on_both! {
    fault_around_maps_no_page_past_the_end,
    /// INV-FILE-REMOVED.
    no_page_past_an_end_that_moves_is_mapped:
        assert_holds(SCHEDULES, access_while_the_end_moves::<I>, "a page past the end is mapped"),
}

#[cfg(feature = "planted")]
#[test]
fn planted_bugs_are_found() {
    use pagewright_plant::{PlantedBug, assert_found_by};
    assert_found_by(PlantedBug::FaultAroundPastEnd, fault_around_maps_no_page_past_the_end::<pagewright_arch::X86_64>);
    assert_found_by(PlantedBug::FaultAroundPastEnd, fault_around_maps_no_page_past_the_end::<pagewright_arch::Aarch64>);
}
