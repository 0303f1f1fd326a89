//! What happens between a look without a lock and the lock.

use crate::space::{Space, special};
use crate::support::Delivery;
use pagewright_arch::on_both;
use pagewright_arch::{Effects, Isa};
use pagewright_table::{EntryView, Mlocked, TableReserve};
use pagewright_types::{CpuId, CpuMask, Level, PAGE_SIZE, PageRange, Pfn, VirtAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

on_both! {
    the_lock_is_that_of_the_table_that_holds_the_entry,
    two_cpus_that_ensure_the_same_tables_make_them_once,
    a_leaf_split_before_its_lock_was_acquired_is_not_edited,
    a_leaf_split_before_its_lock_was_acquired_is_visited_in_parts,
}

const BASE: VirtAddr = VirtAddr::new(0x40_0000_0000);

fn the_lock_is_that_of_the_table_that_holds_the_entry<I: Isa>() {
    let space = Space::<I>::new(1, Delivery::AtOnce);
    assert!(space.locked(BASE, Level::PTE, |_| ()).is_none(), "there is no table");
    space.map_special(BASE, Level::PMD, Pfn::new(512));
    let inside = BASE.add(5 * PAGE_SIZE);
    let seen = space.locked(inside, Level::PTE, |locked| {
        assert!(locked.range().contains(BASE));
        let leaf = locked.leaf(inside).expect("a leaf above");
        (locked.level(), leaf.pfn(), leaf.page_at(inside))
    });
    assert_eq!(seen, Some((Level::PMD, Pfn::new(512), Pfn::new(517))));
    let beside = BASE.add(Level::PMD.span());
    assert!(space.locked(beside, Level::PTE, |_| ()).is_none(), "a table above, but no leaf");
    assert_eq!(space.locked(beside, Level::PMD, |locked| locked.entry(beside)), Some(EntryView::Empty));
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
                    space.ensure_from(va, Level::PTE, &mut reserve);
                    made.fetch_add(3 - reserve.len(), Ordering::Relaxed);
                    let mine = va.add(u64::from(cpu) * PAGE_SIZE);
                    space.edit(va, Level::PTE, |run| run.map(mine, special(Pfn::new(7)))).expect("one of us made it");
                }
            });
        }
    });
    // One table for the top, one for the middle, and one for each round.
    assert_eq!(made.into_inner() as u64, ROUNDS + 2);
    assert_eq!(space.table().bytes(), (ROUNDS + 2) * PAGE_SIZE);
    assert_eq!(space.tlb.frames().available(), free - ROUNDS - 2);
    for round in 0..ROUNDS {
        let table = space.table_at(BASE.add(round * Level::PMD.span()), Level::PTE).expect("made above");
        assert_eq!(space.tlb.frames().table(table).live(), 2);
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
                start.wait();
                let va = BASE.add(round * Level::PMD.span());
                assert!(space.split(va));
            }
        });
        scope.spawn(move || {
            space.host.start_cpu(1);
            for round in 0..ROUNDS {
                let va = BASE.add(round * Level::PMD.span() + 3 * PAGE_SIZE);
                start.wait();
                loop {
                    let seen = space.locked(va, Level::PTE, |locked| {
                        let leaf = locked.leaf(va).expect("a leaf as long as the lock is held");
                        assert_eq!(leaf.page_at(va), Pfn::new(512 + 3));
                        locked.level()
                    });
                    // Between break and make, a descent finds neither leaf nor table.
                    if seen == Some(Level::PTE) {
                        break;
                    }
                }
            }
        });
    });
}

/// The other CPU has found the leaf and waits for its lock when the split is about to clear it.
fn a_leaf_split_before_its_lock_was_acquired_is_visited_in_parts<I: Isa>() {
    let space = Space::<I>::new(2, Delivery::Polled);
    space.map_special(BASE, Level::PMD, Pfn::new(512));
    let block = PageRange::new(BASE, BASE.add(Level::PMD.span()));
    let start = Arc::new(Barrier::new(2));
    // It polls for the interrupt only while it waits.
    space.host.send_ipi(&CpuMask::of(CpuId::new(1)));
    let (host, started) = (space.host.clone(), start.clone());
    space.host.watch(move || {
        if host.is_interrupted(1) {
            started.wait();
            while host.is_interrupted(1) {
                std::thread::yield_now();
            }
        }
        0
    });
    std::thread::scope(|scope| {
        let space = &space;
        scope.spawn(move || {
            space.host.start_cpu(0);
            let (split, _) = space.host.log(|| space.split(BASE));
            assert!(split);
        });
        scope.spawn(move || {
            space.host.start_cpu(1);
            start.wait();
            let held = space.mmap.read();
            let locked = held.tables(&space.tlb).owned(block).locked(block, Mlocked(false));
            let visited: Vec<_> = locked.map(|(table, part)| (table.level(), part)).collect();
            assert_eq!(visited, [(Level::PTE, block)]);
        });
    });
    space.host.watch(|| 0);
}
