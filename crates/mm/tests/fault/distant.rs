//! What the operations of one thread flush beside distant edits of another (INV-TLB-PLACE).
//!
//! Those edits are the `MADV_DONTNEED` of a distant range, and reclaim.
//!
//! The call clears entries of one table, and another table has those of the other thread. So the
//! flush of the call is the only one. Reclaim defers the flushes of its entries; threads fault
//! beside them in the same table, and map and unmap in others.
//!
//! Not covered: neighbours in one table, which flush (`cleared.rs`).

use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::race::{assert_holds, race, race_in_long_turns};
use pagewright_lab::harness::{CPU, OTHER, THIRD, TestProcess, TestWorld, at};
use pagewright_mm::{Advice, MapFlags, MapRequest};
use pagewright_sim::explore::CoroutineBody;
use pagewright_types::{Access, Counter, CpuId, Level, PAGE_SIZE, Rights, VirtAddr};
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

on_both! {
    a_madvise_flushes_once,
    deferral_causes_a_hundredth_of_the_flushes_that_it_spares,
    operations_beside_a_distant_madvise_flush_nothing:
        assert_holds(3 * SCHEDULES, flush_alone::<I>, "an operation flushes for the sake of a distant one"),
}

fn a_madvise_flushes_once<I: Isa>() {
    assert_eq!(flushes::<I>(Distant::Nothing, 0), 1);
}

/// Pages that a run pages out.
const RECLAIMED: u64 = 64;

/// One thread's memory is paged out, and three threads fault and map.
///
/// Returns the entries whose flush was deferred, and the flushes that this caused elsewhere.
fn reclaim_beside_threads<I: Isa>(seed: u64) -> (u64, u64) {
    let world = TestWorld::<I>::new(4);
    world.swap_to(2 * RECLAIMED as u32);
    let process = TestProcess::new(&world);
    let span = Level::PTE.table_span();
    let base = process.anon(1).align_down(span);
    let below = |tables: u64| VirtAddr::new(base.raw() - tables * span);
    let cold = process.map_at(below(2), RECLAIMED + 3 * PAGES, Rights::RW, MapFlags::PRIVATE);
    for page in 0..RECLAIMED {
        process.write(CPU, at(cold, page), page + 1);
    }
    let threads = [OTHER, THIRD, CpuId::new(3)];
    threads.into_iter().for_each(|cpu| assert_eq!(process.read(cpu, cold), 1));
    let reclaims = (world.clone(), process.space.clone());
    let mut programs: Vec<CoroutineBody> =
        vec![Box::new(move || reclaims.0.advise(CPU, &reclaims.1, cold, RECLAIMED, Advice::PageOut))];
    for (index, cpu) in (0..).zip(threads) {
        let (world, space) = (world.clone(), process.space.clone());
        let (fresh, own) = (at(cold, RECLAIMED + index * PAGES), below(4 + 2 * index));
        programs.push(Box::new(move || {
            for page in 0..PAGES {
                world.lab.touch(cpu, &space, at(fresh, page), Access::Write, 1).expect("memory is left");
                let (flags, len) = (MapFlags::PRIVATE | MapFlags::ANONYMOUS, PAGES * PAGE_SIZE);
                let request = MapRequest { addr: own, len, rights: Rights::RW, flags, file: None };
                let mapped = world.lab.on(cpu, |mm| mm.mmap(&space, &request)).expect("room for a mapping");
                world.lab.touch(cpu, &space, mapped, Access::Write, 1).expect("memory is left");
                world.lab.on(cpu, |mm| mm.munmap(&space, mapped, len)).expect("it is mapped");
            }
        }));
    }
    race(&world, seed, programs);
    let counts = [Counter::PwTlbBatchEntries, Counter::PwTlbBatchOvertaken].map(|counter| world.count(counter));
    for page in 0..RECLAIMED {
        assert_eq!(process.read(CPU, at(cold, page)), page + 1);
    }
    world.recount(&[&process]);
    process.end();
    world.at_rest(&[]);
    (counts[0], counts[1])
}

fn deferral_causes_a_hundredth_of_the_flushes_that_it_spares<I: Isa>() {
    let runs = (0..40).map(reclaim_beside_threads::<I>);
    let (deferred, caused) = runs.fold((0, 0), |sum, run| (sum.0 + run.0, sum.1 + run.1));
    println!("{}: {deferred} flushes deferred, {caused} caused", I::KIND);
    assert!(deferred > 5 * RECLAIMED, "reclaim defers");
    assert!(100 * caused <= deferred, "{caused} flushes are caused by the deferral of {deferred}");
}
