//! Calls that read a mapping, release the lock of the space, and act on what they have read.
//!
//! The mapping may be gone by then, with another one in its place. Each test runs under many
//! schedules.
//!
//! Not covered: page-outs and swapoff, which the tests of swap have.

use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::files::{DiskFile, TestDisk};
use pagewright_lab::harness::race::{assert_holds, race, race_in_long_turns, race_with_the_end_of_a_process};
use pagewright_lab::harness::{CPU, OTHER, TestProcess, TestWorld};
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_mm::space::FileMapping;
use pagewright_mm::{Advice, MapFlags, MapRequest};
use pagewright_sim::explore::CoroutineBody;
use pagewright_types::{PAGE_SIZE, PageRange, Rights, VirtAddr};
use std::sync::Arc;

const SCHEDULES: u64 = 200;
/// Where there is nothing else.
const STACK: u64 = 0x20_0000_0000;

fn interleave<I: Isa>(world: &TestWorld<I>, seed: u64, programs: Vec<CoroutineBody>) {
    if seed.is_multiple_of(4) { race_in_long_turns(world, seed, programs) } else { race(world, seed, programs) }
}

/// A page below a stack is unmapped while a call populates it; returns whether the stack stays.
fn bring_below_a_stack<I: Isa>(seed: u64) -> bool {
    let (world, process) = TestProcess::<I>::unjudged();
    let stack = VirtAddr::new(STACK);
    let below = VirtAddr::new(STACK - PAGE_SIZE);
    process.map_at(stack, 1, Rights::RW, MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::GROWSDOWN);
    process.map_at(below, 1, Rights::RW, MapFlags::PRIVATE | MapFlags::FIXED);
    world.lab.run(CPU, &process.space);
    let (brings, unmaps) = (world.clone(), world.clone());
    let [brought, unmapped] = [process.space.clone(), process.space.clone()];
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || match seed % 3 {
            0 => {
                let _ = brings.lab.on(CPU, |mm| mm.madvise(&brought, below, PAGE_SIZE, Advice::PopulateWrite));
            }
            1 => {
                let _ = brings.lab.on(CPU, |mm| mm.mlock(&brought, below, PAGE_SIZE));
            }
            _ => {
                let pages = |mm: &pagewright_mm::Mm<_>| {
                    mm.get_user_pages(&brought, PageRange::page(below), GupFlags::WRITE)
                        .map(|pages| mm.release_user_pages(pages, MakeDirty::No))
                };
                let _ = brings.lab.on(CPU, pages);
            }
        }),
        Box::new(move || unmaps.lab.on(OTHER, |mm| mm.munmap(&unmapped, below, PAGE_SIZE)).expect("a range of pages")),
    ];
    interleave(&world, seed, programs);
    process.space.map().read().find(below).is_none()
}

/// A debugger stores to memory, while a file that was opened to be read takes its place.
///
/// Returns whether the page of the file stays clean.
fn force_beside_a_file<I: Isa>(seed: u64) -> bool {
    let (world, process) = TestProcess::<I>::unjudged();
    let device = Arc::new(TestDisk::default());
    let file = world.file_of(DiskFile(device.clone()), 1);
    let base = VirtAddr::new(STACK);
    process.map_at(base, 1, Rights::RW, MapFlags::PRIVATE | MapFlags::FIXED);
    world.on(CPU, |mm| mm.mprotect(&process.space, base, PAGE_SIZE, Rights::READ)).expect("room");
    world.lab.run(CPU, &process.space);
    let (forces, maps, mapped) = (world.clone(), world.clone(), file.clone());
    let [forced, replaced] = [process.space.clone(), process.space.clone()];
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || {
            let flags = GupFlags::WRITE | GupFlags::FORCE;
            let pages = |mm: &pagewright_mm::Mm<_>| {
                mm.get_user_pages(&forced, PageRange::page(base), flags)
                    .map(|pages| mm.release_user_pages(pages, MakeDirty::No))
            };
            let _ = forces.lab.on(CPU, pages);
        }),
        Box::new(move || {
            let file = Some(FileMapping { file: &mapped, offset: 0, opened: Rights::READ });
            let flags = MapFlags::SHARED | MapFlags::FIXED;
            let request = MapRequest { addr: base, len: PAGE_SIZE, rights: Rights::READ, flags, file };
            maps.lab.on(OTHER, |mm| mm.mmap(&replaced, &request)).expect("room");
        }),
    ];
    interleave(&world, seed, programs);
    world.on(CPU, |mm| mm.write_back(&file, 0, PAGE_SIZE)).expect("a good device");
    device.written.lock().expect("unpoisoned").is_empty()
}

/// A copy from the memory of a process that ends, or advice to populate it.
fn copy_from_a_process_that_ends<I: Isa>(seed: u64) -> bool {
    race_with_the_end_of_a_process::<I>(seed, interleave, move |mm, space, base| {
        if seed.is_multiple_of(2) {
            // The process may have ended before.
            let _ = mm.madvise(space, base, PAGE_SIZE, Advice::PopulateRead);
            return;
        }
        let mut bytes = [0; 8];
        let left = mm.copy_from_user(space, base, &mut bytes);
        assert!(left == 8 || u64::from_le_bytes(bytes) == 1, "the bytes of another process");
    });
    true
}

on_both! {
    no_stack_grows_for_a_call_that_populates_pages:
        assert_holds(SCHEDULES, bring_below_a_stack::<I>, "a stack has grown without an access"),
    nothing_is_forced_on_a_file:
        assert_holds(SCHEDULES, force_beside_a_file::<I>, "a file was to be written that can only be read"),
    /// INV-TABLE-STABLE: the tables of an ended space are not walked.
    no_copy_walks_tables_that_are_gone:
        assert_holds(20 * SCHEDULES, copy_from_a_process_that_ends::<I>, "the tables of an ended space were walked"),
}
