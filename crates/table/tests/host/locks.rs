//! What happens between a look without a lock and the lock.

use crate::space::{Space, special};
use crate::support::Delivery;
use pagewright_arch::on_both;
use pagewright_arch::{Entry, Isa};
use pagewright_table::TableReserve;
use pagewright_types::{Level, PAGE_SIZE, Pfn, VirtAddr};
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

on_both! {
    the_lock_is_that_of_the_table_that_holds_the_entry,
    two_cpus_that_ensure_the_same_tables_make_them_once,
    a_leaf_split_before_its_lock_was_acquired_is_not_edited,
}

const BASE: VirtAddr = VirtAddr::new(0x40_0000_0000);

fn the_lock_is_that_of_the_table_that_holds_the_entry<I: Isa>() {
    let space = Space::<I>::new(1, Delivery::AtOnce);
    assert!(space.table.lock(&space.tlb, BASE, Level::PTE).is_none(), "there is no table");
    space.map_special(BASE, Level::PMD, Pfn::new(512));
    let inside = BASE.add(5 * PAGE_SIZE);
    let locked = space.table.lock(&space.tlb, inside, Level::PTE).expect("a leaf above");
    assert_eq!((locked.level(), locked.leaf(inside).map(|leaf| leaf.pfn)), (Level::PMD, Some(Pfn::new(512))));
    assert!(locked.range().contains(BASE));
    drop(locked);
    let beside = BASE.add(Level::PMD.span());
    assert!(space.table.lock(&space.tlb, beside, Level::PTE).is_none(), "a table above, but no leaf");
    let locked = space.table.lock(&space.tlb, beside, Level::PMD).expect("the table asked for");
    assert_eq!(locked.entry(beside), Entry::Empty);
}

/// INV-TABLE-STABLE: tables come while others look, and none goes.
fn two_cpus_that_ensure_the_same_tables_make_them_once<I: Isa>() {
    const ROUNDS: u64 = 200;
    let space = Space::<I>::new(2, Delivery::Polled);
    let (start, made) = (Barrier::new(2), AtomicUsize::new(0));
    let free = space.tlb.frames().available();
    std::thread::scope(|scope| {
        for cpu in 0..2 {
            let (space, start, made) = (&space, &start, &made);
            scope.spawn(move || {
                space.host.start_cpu(cpu);
                for round in 0..ROUNDS {
                    let va = BASE.add(round * Level::PMD.span());
                    let mut reserve = TableReserve::new(&space.tlb);
                    reserve.fill(3).expect("memory is left");
                    start.wait();
                    space.table.ensure_tables(&space.tlb, va, Level::PTE, &mut reserve);
                    made.fetch_add(3 - reserve.len(), Ordering::Relaxed);
                    let locked = space.table.lock(&space.tlb, va, Level::PTE).expect("one of us made it");
                    let mine = va.add(u64::from(cpu) * PAGE_SIZE);
                    locked.install(mine, special(Pfn::new(7)));
                }
            });
        }
    });
    // One table for the top, one for the middle, and one for each round.
    assert_eq!(made.into_inner() as u64, ROUNDS + 2);
    assert_eq!(space.table.bytes(), (ROUNDS + 2) * PAGE_SIZE);
    assert_eq!(space.tlb.frames().available(), free - ROUNDS - 2);
    for round in 0..ROUNDS {
        let found = space.table.find(&space.tlb, BASE.add(round * Level::PMD.span()), Level::PTE);
        assert_eq!(space.tlb.frames().table(found.table).live(), 2);
    }
}

fn a_leaf_split_before_its_lock_was_acquired_is_not_edited<I: Isa>() {
    const ROUNDS: u64 = 300;
    let space = Space::<I>::new(2, Delivery::Polled);
    for round in 0..ROUNDS {
        space.map_special(BASE.add(round * Level::PMD.span()), Level::PMD, Pfn::new(512));
    }
    let start = Barrier::new(2);
    std::thread::scope(|scope| {
        let (space, start) = (&space, &start);
        scope.spawn(move || {
            space.host.start_cpu(0);
            for round in 0..ROUNDS {
                let mut reserve = TableReserve::new(&space.tlb);
                reserve.fill(1).expect("memory is left");
                start.wait();
                let va = BASE.add(round * Level::PMD.span());
                assert!(space.table.split_leaf(&space.tlb, va, Level::PMD, &mut reserve));
            }
        });
        scope.spawn(move || {
            space.host.start_cpu(1);
            for round in 0..ROUNDS {
                let va = BASE.add(round * Level::PMD.span() + 3 * PAGE_SIZE);
                start.wait();
                loop {
                    let locked = space.table.lock(&space.tlb, va, Level::PTE);
                    // Between break and make there is neither leaf nor table, for whoever looks
                    // without waiting for the lock.
                    let Some(locked) = locked else { continue };
                    let leaf = locked.leaf(va).expect("a leaf as long as the lock is held");
                    let part = if locked.level() == Level::PTE { 3 } else { 0 };
                    assert_eq!(leaf.pfn, Pfn::new(512 + part));
                    if part != 0 {
                        break;
                    }
                }
            }
        });
    });
}
