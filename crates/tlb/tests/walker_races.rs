//! Lockless walkers on several CPUs, beside the freeing of the table that they read.
//!
//! Each walker reads the entry that points to the last-level table, and stays in the table for a
//! while. The debt of the table is not settled before the walker ends its walk (INV-TLB-WALKERS).
//! The oracle cannot see that, because a walk in software leaves no trace in a TLB.

use crate::bare::{self, Bare, Shape, is_dropped, nothing_was_found, soaked};
use pagewright_arch::{Effects, Isa, on_both};
use pagewright_check::{Attempt, Chooser, RunDetail};
use pagewright_sim::explore::CoroutineBody;
use pagewright_tlb::BatchPolicy;
use std::cell::Cell;
use std::rc::Rc;

/// The walks of a schedule.
#[derive(Default)]
struct Walks {
    /// Walks that reached the table.
    reached: Cell<u32>,
    /// Walks in which it was freed.
    freed: Cell<u32>,
    /// Whether the debt of the table is settled.
    settled: Cell<bool>,
}

/// Walks a few times, and stays in the table for several scheduling points.
fn walks<I: Isa>(bare: &Rc<Bare<I>>, seen: &Rc<Walks>) -> CoroutineBody {
    let (bare, seen) = (Rc::clone(bare), Rc::clone(seen));
    Box::new(move || {
        for _ in 0..3 {
            bare.tlb.walk_lockless(&bare.context, || {
                if !bare.has_table() {
                    return;
                }
                seen.reached.set(seen.reached.get() + 1);
                for _ in 0..3 {
                    // Any effect is a scheduling point.
                    bare.has_table();
                    if seen.settled.get() {
                        seen.freed.set(seen.freed.get() + 1);
                        return;
                    }
                }
            });
            bare.tlb.fx().publish();
        }
    })
}

/// What becomes of the debt of the table.
#[derive(Clone, Copy)]
enum Ends {
    Settled,
    Dropped,
}

/// Unhooks the table and frees it.
fn frees<I: Isa>(bare: &Rc<Bare<I>>, seen: &Rc<Walks>, ends: Ends) -> CoroutineBody {
    let (bare, seen) = (Rc::clone(bare), Rc::clone(seen));
    Box::new(move || {
        let debt = bare.unhook();
        match ends {
            Ends::Settled => debt.settle(),
            Ends::Dropped => is_dropped(debt),
        }
        seen.settled.set(true);
    })
}

fn run<I: Isa>(walkers: u16, ends: Ends, total: &Walks, chooser: &mut dyn Chooser, detail: RunDetail) -> Attempt {
    let bare = Bare::<I>::new(Shape { cpus: walkers + 1, pages: 0, isolated: false, batch: BatchPolicy::Auto });
    let seen = Rc::<Walks>::default();
    let mut programs = vec![frees(&bare, &seen, ends)];
    programs.extend((0..walkers).map(|_| walks(&bare, &seen)));
    let attempt = bare.run(programs, &mut |_| {}, chooser, detail);
    total.reached.set(total.reached.get() + seen.reached.get());
    total.freed.set(total.freed.get() + seen.freed.get());
    attempt
}

/// INV-TLB-WALKERS.
fn explored<I: Isa>(ends: Ends) {
    for walkers in 1..=3 {
        let total = Walks::default();
        let search = bare::explore(1, soaked(400), |chooser, detail| run::<I>(walkers, ends, &total, chooser, detail));
        nothing_was_found(&search);
        assert!(total.reached.get() > 0, "no walk reached the table");
        assert_eq!(total.freed.get(), 0, "walks of {walkers} CPUs in which the table was freed");
    }
}

fn a_table_is_freed_after_every_walk_that_can_read_it<I: Isa>() {
    explored::<I>(Ends::Settled);
}

/// On x86-64 the allocation that takes the frames sends the IPI that waits.
#[test]
fn a_table_whose_debt_is_dropped_is_parked_after_every_walk_that_can_read_it() {
    explored::<pagewright_arch::Aarch64>(Ends::Dropped);
}

on_both! { a_table_is_freed_after_every_walk_that_can_read_it }

#[cfg(feature = "planted")]
mod planted {
    use super::*;
    use pagewright_arch::Aarch64;
    use pagewright_plant::{PlantedBug, choose};

    /// On x86-64 the shootdown IPI waits for every walk.
    #[test]
    fn a_freeing_cpu_that_waits_for_one_walker_is_found() {
        choose(Some(PlantedBug::OneWalkerAwaited));
        let total = Walks::default();
        let search =
            bare::explore(1, 2_000, |chooser, detail| run::<Aarch64>(2, Ends::Settled, &total, chooser, detail));
        choose(None);
        nothing_was_found(&search);
        assert!(total.freed.get() > 0, "no walk outlasted the table in {} schedules", search.schedules);
    }
}
