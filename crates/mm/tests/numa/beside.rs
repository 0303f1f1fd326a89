//! Scans and hint faults while other CPUs work on the same pages.
//!
//! INV-NUMA-HINT, INV-NUMA-FLUSHED. One CPU scans twice. A second makes a call that a seed chooses,
//! on pages that every CPU has in its TLB. A third stores to pages of its own, whose hint faults
//! promote them. What a page has in the end is what was stored there last.

use super::{FAR, move_to};
use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::race::{assert_holds, race_in_short_or_long_turns};
use pagewright_lab::harness::{ANON, CPU, GupCall, OTHER, THIRD, TestDevice, TestProcess, TestWorld, at, recount};
use pagewright_lab::planted_bugs_are_found;
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_mm::{Advice, MmSetting};
use pagewright_sim::explore::CoroutineBody;
use pagewright_types::{PAGE_SIZE, Rights, VirtAddr};
use std::rc::Rc;

const SCHEDULES: u64 = 600;
/// The pages of the call, and those of the stores.
const PAGES: u64 = 2;

/// A call beside the scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    /// Discards the pages and stores to new ones, which may get their frames.
    Discard,
    /// Unmaps the pages, and stores to new ones.
    Unmap,
    /// Takes the right to store away and gives it back.
    Protect,
    PageOut,
    /// Pins the first page, stores as the device would, and unpins it.
    Pin,
    /// Forks; parent and child store to the pages, and the child ends.
    Fork,
    /// Moves the pages to the node where they are not.
    Move,
}

impl Deed {
    const ALL: [Self; 7] =
        [Self::Discard, Self::Unmap, Self::Protect, Self::PageOut, Self::Pin, Self::Fork, Self::Move];

    /// Makes the call on [`OTHER`]; returns what the first page has then, if it is still there.
    fn act<I: Isa>(self, process: &TestProcess<I>, base: VirtAddr, fresh: VirtAddr) -> Option<u64> {
        let (world, space) = (&process.world, &process.space);
        let store = |va: VirtAddr, value| (0..PAGES).for_each(|page| world.store(OTHER, space, at(va, page), value));
        match self {
            Self::Discard => {
                world.advise(OTHER, space, base, PAGES, Advice::DontNeed);
                store(fresh, 20);
                Some(0)
            }
            Self::Unmap => {
                world.lab.on(OTHER, |mm| mm.munmap(space, base, PAGES * PAGE_SIZE)).expect("mapped");
                store(fresh, 20);
                None
            }
            Self::Protect => {
                for rights in [Rights::READ, Rights::RW] {
                    world.lab.on(OTHER, |mm| mm.mprotect(space, base, PAGES * PAGE_SIZE, rights)).expect("mapped");
                }
                store(base, 21);
                Some(21)
            }
            Self::PageOut => {
                (0..2).for_each(|_| world.advise(OTHER, space, base, PAGES, Advice::PageOut));
                Some(10)
            }
            Self::Pin => {
                let device: TestDevice<I> =
                    process.take(OTHER, base, 1, GupCall::PinFast(GupFlags::WRITE)).expect("a page");
                device.write(0, 22);
                device.release_on(OTHER, MakeDirty::Yes);
                Some(22)
            }
            Self::Fork => {
                let child = world.lab.on(OTHER, |mm| mm.fork(space)).expect("memory");
                store(base, 23);
                world.lab.run(OTHER, &child);
                (0..PAGES).for_each(|page| {
                    let seen = world.word(OTHER, &child, at(base, page), pagewright_types::Access::Read);
                    assert_eq!(seen.load(std::sync::atomic::Ordering::Relaxed), 10, "a page of the child");
                    world.store(OTHER, &child, at(base, page), 24);
                });
                world.lab.run(OTHER, space);
                world.lab.on(OTHER, |mm| mm.end_space(&child));
                Some(23)
            }
            Self::Move => {
                for node in [super::NEAR, FAR] {
                    let pages: Vec<_> = (0..PAGES).map(|page| (at(base, page), node)).collect();
                    world.lab.on(OTHER, |mm| mm.move_pages(space, &pages, true, |_, _| {})).expect("memory");
                }
                Some(10)
            }
        }
    }
}

/// A scan, a call and stores at the same time.
fn scan_beside_a_call<I: Isa>(seed: u64) -> bool {
    let deed = Deed::ALL[seed as usize / 2 % Deed::ALL.len()];
    let world = TestWorld::<I>::two_nodes(3, 2 << 20);
    let _slots = world.swap_to(16);
    world.set(MmSetting::CowPageTables, if seed.is_multiple_of(2) { "always" } else { "never" });
    let process = Rc::new(TestProcess::new(&world));
    let base = process.map(2 * PAGES, Rights::RW, ANON, None);
    let fresh = process.map(PAGES, Rights::RW, ANON, None);
    (0..2 * PAGES).for_each(|page| process.write(CPU, at(base, page), 10));
    move_to(&process, base, 2 * PAGES, FAR);
    world.set(MmSetting::NumaBalancing, "2");
    world.set(MmSetting::NumaScanDelayMs, "0");
    world.on(CPU, |mm| mm.numa_tick(&process.space, 1));
    for cpu in [CPU, OTHER, THIRD] {
        (0..2 * PAGES).for_each(|page| assert_eq!(process.read(cpu, at(base, page)), 10));
    }
    let left = Rc::new(std::cell::Cell::new(None));
    let (scanner, actor, storer) = (Rc::clone(&process), Rc::clone(&process), Rc::clone(&process));
    let result = Rc::clone(&left);
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || {
            for time in [100_000, 200_000] {
                scanner.world.lab.on(CPU, |mm| mm.numa_tick(&scanner.space, time));
            }
        }),
        Box::new(move || result.set(deed.act(&actor, base, fresh))),
        Box::new(move || {
            for value in [30, 31, 32] {
                (PAGES..2 * PAGES).for_each(|page| storer.world.store(THIRD, &storer.space, at(base, page), value));
            }
        }),
    ];
    race_in_short_or_long_turns(&world, seed, programs);
    world.lab.run(CPU, &process.space);
    let kept = left.get().is_none_or(|value| process.read(CPU, base) == value)
        && (PAGES..2 * PAGES).all(|page| process.read(CPU, at(base, page)) == 32);
    world.on(CPU, |mm| recount::check(mm, std::slice::from_ref(&process.space)));
    world.at_rest(&[]);
    process.end();
    world.at_rest(&[]);
    kept
}

on_both! {
    a_scan_holds_beside_any_call:
        assert_holds(SCHEDULES, scan_beside_a_call::<I>, "a page has lost a store"),
}

planted_bugs_are_found! {
    10 * SCHEDULES;
    WeakenedTakenUnflushed => scan_beside_a_call,
    HintNotFlushed => scan_beside_a_call,
    HintGivesEveryRight => scan_beside_a_call,
}
