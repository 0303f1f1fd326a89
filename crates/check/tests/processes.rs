//! A search has the same result in any number of processes (INV-CHECK-PROCESSES).

use crate::raw_tables::{Tables, flush_leaf, invalidate, leaf, page};
use pagewright_check::{Aarch64, Check, CheckOutcome, Cpu, Harness, IsaKind, PageRange, Rights, Rule, program};
use std::cell::Cell;
use std::process;
use std::rc::Rc;

/// Schedules that the first process runs by itself.
const FIRST: u32 = 16;

/// Checks an unmap by `flush` beside a reader; `set_up` is called in each run.
fn unmap(check: &Check<Aarch64>, flush: fn(&Cpu<Aarch64>), set_up: &dyn Fn(&Harness<Aarch64>)) -> CheckOutcome {
    check.explore(move |harness| {
        set_up(harness);
        let tables = Tables::run_everywhere(harness);
        harness.cpu(0).store(tables.leaf(0), leaf(IsaKind::Aarch64, harness.alloc_frame(), true));
        let unmaps = program(move |cpu: &Cpu<Aarch64>| {
            cpu.call("munmap", |cpu| {
                cpu.will_reduce(PageRange::page(page(0)), Rights::empty());
                cpu.swap(tables.leaf(0), 0);
                flush(cpu);
            });
        });
        let reads = program(|cpu: &Cpu<Aarch64>| (0..3).for_each(|_| _ = cpu.read(page(0))));
        vec![unmaps, reads]
    })
}

/// A flush without `DSB ISHST`, which few schedules find.
fn late(cpu: &Cpu<Aarch64>) {
    invalidate(cpu, 0, false);
    cpu.complete();
}

fn on(processes: u32) -> Check<Aarch64> {
    Check::new().schedules(400).processes(processes)
}

#[test]
fn the_same_schedule_is_found() {
    let alone = unmap(&on(1), late, &|_| {});
    alone.expect_violation(Rule::Rights);
    assert!(alone.search().schedules > 2 * FIRST, "{alone}");
    for processes in [2, 3] {
        let shared = unmap(&on(processes), late, &|_| {});
        assert_eq!(shared.to_string(), alone.to_string());
        assert_eq!(shared.search().steps, alone.search().steps);
        assert_eq!(shared.search().tally, alone.search().tally);
    }
}

#[test]
fn a_clean_search_counts_what_all_processes_judged() {
    let alone = unmap(&on(1), flush_leaf, &|_| {});
    alone.unwrap_clean();
    let own = Rc::new(Cell::new(0));
    let shared = unmap(&on(2), flush_leaf, &|_| own.set(own.get() + 1));
    assert_eq!(shared.to_string(), alone.to_string());
    assert_eq!(own.get(), FIRST, "runs of this process");
}

#[test]
fn the_runs_of_a_process_that_ends_are_made_here() {
    let (parent, own) = (process::id(), Rc::new(Cell::new(0)));
    let alone = unmap(&on(1), flush_leaf, &|_| {});
    let lost = Cell::new(0);
    let shared = unmap(&on(2), flush_leaf, &|_| {
        own.set(own.get() + 1);
        lost.set(lost.get() + 1);
        // Each process has its own count, which begins at that of the fork.
        if process::id() != parent && lost.get() == FIRST + 10 {
            let _ = kill_this_process();
        }
    });
    assert_eq!(shared.to_string(), alone.to_string());
    assert!(own.get() > FIRST, "runs of this process: {}", own.get());
}

/// Ends this process, as a crash of the code under test would.
fn kill_this_process() -> nix::Result<()> {
    nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL)
}

#[test]
#[should_panic(expected = "some state outlives a run")]
fn a_finding_that_this_process_cannot_repeat_is_not_hidden() {
    let parent = process::id();
    unmap(&on(2), flush_leaf, &|harness| {
        if process::id() != parent {
            harness.report("not in the first process");
        }
    });
}
