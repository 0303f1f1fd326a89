//! What an unmap copies of shared tables: those in which its range ends, and no others.

use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::{ANON, CPU, TestProcess, TestWorld, at};
use pagewright_mm::{MapFlags, MmSetting};
use pagewright_types::{Counter, Level, PAGE_SIZE, Rights, VirtAddr};
use std::rc::Rc;

on_both! { an_unmap_copies_the_tables_in_which_its_range_ends }

/// Pages under a last-level table, and under the one above it.
const TABLE: u64 = 1 << 9;
const UPPER: u64 = 1 << 18;

/// The tables below the root that contain `page`, in part in `first..end`.
fn cut(page: u64, first: u64, end: u64) -> impl Iterator<Item = (Level, u64)> {
    let base = (1 << 30) / PAGE_SIZE;
    [Level::PUD, Level::PMD, Level::PTE].into_iter().filter_map(move |level| {
        let pages = level.table_span() / PAGE_SIZE;
        let start = (base + page) / pages * pages;
        (start < base + first || start + pages > base + end).then_some((level, start))
    })
}

fn an_unmap_copies_the_tables_in_which_its_range_ends<I: Isa>() {
    let world: Rc<TestWorld<I>> = TestWorld::unjudged();
    world.set(MmSetting::CowPageTables, "always");
    let process = TestProcess::new(&world);
    let flags = ANON | MapFlags::FIXED | MapFlags::NORESERVE;
    let base = process.map_at(VirtAddr::new(1 << 30), 3 * UPPER, Rights::RW, flags);
    // A page in each of the first and the last tables of three upper ones.
    let tables: Vec<u64> = (0..3).flat_map(|upper| [0, 1, 2, 510, 511].map(|table| upper * 512 + table)).collect();
    tables.iter().for_each(|table| process.write(CPU, at(base, table * TABLE), table + 1));
    for (first, end) in [
        (0, TABLE),
        (0, 1),
        (0, TABLE - 1),
        (0, TABLE + 1),
        (1, TABLE),
        (1, TABLE + 1),
        (TABLE - 1, TABLE),
        (TABLE, 2 * TABLE),
        (TABLE, 3 * TABLE),
        (TABLE + 1, 3 * TABLE - 1),
        (0, UPPER),
        (0, UPPER - TABLE),
        (0, UPPER + TABLE),
        (0, UPPER + 1),
        (UPPER - 1, UPPER + 1),
        (UPPER, 2 * UPPER),
        (UPPER + TABLE, 2 * UPPER),
        (1, 2 * UPPER),
        (1, 3 * UPPER - 1),
    ] {
        let child = process.fork();
        let before = world.count(Counter::PwTableBroken);
        child.unmap(at(base, first), end - first);
        let mut expected: Vec<_> = cut(first, first, end).chain(cut(end - 1, first, end)).collect();
        expected.sort_unstable();
        expected.dedup();
        let copied = world.count(Counter::PwTableBroken) - before;
        assert_eq!(copied, expected.len() as u64, "{first}..{end}: {expected:?}");
        world.recount(&[&process, &child]);
        for table in &tables {
            assert_eq!(process.read(CPU, at(base, table * TABLE)), table + 1);
            if !(first..end).contains(&(table * TABLE)) {
                assert_eq!(child.read(CPU, at(base, table * TABLE)), table + 1);
            }
        }
        child.end();
    }
    process.end();
    world.assert_nothing_leaked();
}
