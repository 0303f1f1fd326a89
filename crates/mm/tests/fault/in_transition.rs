//! A fault waits while the entry of a table is between break and make.
//!
//! A break leaves such an entry for a short time only, so the test stores one.

use pagewright_arch::{Effects, Isa, PteSlot, SoftEntry, SoftKind, on_both};
use pagewright_lab::harness::race::{race, schedules};
use pagewright_lab::harness::{CPU, OTHER, TestProcess};
use pagewright_sim::explore::CoroutineBody;
use pagewright_types::{Access, Level, PageRange};
use std::cell::Cell;
use std::rc::Rc;

const SCHEDULES: u64 = 20;

fn a_fault_waits_for_a_table_in_transition<I: Isa>() {
    for seed in 0..schedules(SCHEDULES) {
        let (world, process) = TestProcess::<I>::unjudged();
        let base = process.anon(1);
        process.write(CPU, base, 7);
        let map = process.space.map().read();
        let table = world.on(CPU, |mm| {
            map.tables(mm.tlb()).owned(PageRange::page(base)).lock_level(base, Level::PMD).map(|locked| locked.table())
        });
        drop(map);
        let slot = PteSlot { table: table.expect("just made"), index: Level::PMD.index_of(base) as u16 };
        let soft = I::soft(SoftEntry { kind: SoftKind::InTransition, exclusive: false, payload: 0 });
        let entry = world.on(CPU, |mm| mm.tlb().fx().swap(slot, soft));
        let made = Rc::new(Cell::new(false));
        let (faults, makes, space, seen) = (world.clone(), world.clone(), process.space.clone(), made.clone());
        let programs: Vec<CoroutineBody> = vec![
            Box::new(move || {
                faults.lab.on(CPU, |mm| mm.fault(&space, base, Access::Write)).expect("mapped");
                assert!(seen.get(), "the fault was served without the table");
            }),
            Box::new(move || {
                makes.lab.on(OTHER, |mm| {
                    (0..8).for_each(|_| mm.tlb().fx().relax());
                    made.set(true);
                    mm.tlb().fx().store(slot, entry);
                });
            }),
        ];
        race(&world, seed, programs);
        assert_eq!(process.read(CPU, base), 7);
    }
}

on_both! { a_fault_waits_for_a_table_in_transition }
