//! What the operations of one thread flush beside another's `MADV_DONTNEED` of a distant range
//! (INV-TLB-PLACE).
//!
//! The call clears entries of one table, and another table has those of the other thread. So the
//! flush of the call is the only one.
//!
//! Not covered: neighbours in one table, which flush (`cleared.rs`).

use pagewright_arch::{Isa, generic_tests, on_both};
use pagewright_lab::harness::race::{assert_holds, race, race_in_long_turns};
use pagewright_lab::harness::{CPU, OTHER, THIRD, TestProcess, TestWorld, at};
use pagewright_mm::{Advice, MapFlags};
use pagewright_sim::explore::CoroutineBody;
use pagewright_types::{Access, Counter, Level, Rights, VirtAddr};
use std::rc::Rc;

const SCHEDULES: u64 = 300;
/// Pages of each range.
const PAGES: u64 = 4;

/// What the other thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Distant {
    /// Nothing: the call alone.
    Nothing,
    /// Faults pages in, where there is a table.
    Fault,
    /// Faults a page in, where there is none.
    FaultWithoutTable,
    /// `MADV_DONTNEED` of pages that lost all rights and are flushed since.
    DiscardWeakened,
}

/// The flushes of a `MADV_DONTNEED`, and of what another thread does 2 MiB away and further.
fn flushes<I: Isa>(distant: Distant, seed: u64) -> u64 {
    let world = TestWorld::<I>::new(3);
    let process = TestProcess::new(&world);
    let span = Level::PTE.table_span();
    let tables = process.anon(1).align_down(span);
    let [near, far, weak, bare] = [2, 3, 4, 5].map(|table| {
        process.map_at(VirtAddr::new(tables.raw() - table * span), PAGES + 1, Rights::RW, MapFlags::PRIVATE)
    });
    for page in 0..PAGES {
        process.write(CPU, at(near, page), 1);
        process.write(CPU, at(weak, page), 1);
    }
    process.write(CPU, at(far, PAGES), 1);
    process.protect(weak, PAGES, Rights::empty());
    // Each flush waits for the CPUs that run the space.
    [CPU, OTHER, THIRD].into_iter().for_each(|cpu| assert_eq!(process.read(cpu, near), 1));
    let before = world.count(Counter::NrTlbRemoteFlush);
    let (clears, other) = (world.clone(), Rc::clone(&world));
    let [cleared, space] = [(); 2].map(|()| process.space.clone());
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || clears.advise(CPU, &cleared, near, PAGES, Advice::DontNeed)),
        Box::new(move || match distant {
            Distant::Nothing => {}
            Distant::Fault => {
                for page in 0..PAGES {
                    other.lab.touch(OTHER, &space, at(far, page), Access::Write, 1).expect("memory is left");
                }
            }
            Distant::FaultWithoutTable => {
                other.lab.touch(OTHER, &space, bare, Access::Write, 1).expect("memory is left");
            }
            Distant::DiscardWeakened => other.advise(OTHER, &space, weak, PAGES, Advice::DontNeed),
        }),
    ];
    if seed.is_multiple_of(2) {
        race(&world, seed, programs)
    } else {
        race_in_long_turns(&world, seed, programs)
    }
    let flushed = world.count(Counter::NrTlbRemoteFlush) - before;
    world.recount(&[&process]);
    process.end();
    world.at_rest(&[]);
    flushed
}

fn flush_alone<I: Isa>(seed: u64) -> bool {
    let distant = [Distant::Fault, Distant::FaultWithoutTable, Distant::DiscardWeakened][(seed % 3) as usize];
    flushes::<I>(distant, seed / 3) == flushes::<I>(Distant::Nothing, seed / 3)
}

generic_tests! {
    operations_beside_a_distant_madvise_flush_nothing:
        assert_holds(3 * SCHEDULES, flush_alone::<I>, "an operation flushes for the sake of a distant one");
}

on_both! { operations_beside_a_distant_madvise_flush_nothing, a_madvise_flushes_once }

fn a_madvise_flushes_once<I: Isa>() {
    assert_eq!(flushes::<I>(Distant::Nothing, 0), 1);
}
