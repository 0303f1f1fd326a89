//! `brk`: each bound of the heap, on both sides.

use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::{ANON, CPU, TestProcess, TestWorld, at};
use pagewright_mm::space::Resource;
use pagewright_mm::{MapFlags, MmSetting};
use pagewright_types::{Access, Counter, PAGE_SIZE, Rights, VirtAddr};

on_both! {
    the_break_moves_up_to_each_bound_and_no_further,
    a_heap_grows_over_shared_tables_that_are_all_broken,
    the_break_keeps_the_gap_of_a_stack_and_a_page,
    the_break_moves_down_only_over_what_is_mapped,
}

const START: VirtAddr = VirtAddr::new(1 << 30);

fn heap<I: Isa>(start: VirtAddr) -> TestProcess<I> {
    let process = TestProcess::new(&TestWorld::<I>::new(1));
    process.world.on(CPU, |mm| mm.set_brk_start(&process.space, start));
    process
}

/// Whether the break moves to `to`; otherwise it stays.
fn moves<I: Isa>(process: &TestProcess<I>, to: VirtAddr) -> bool {
    let brk = |to| process.world.on(CPU, |mm| mm.brk(&process.space, to));
    let before = brk(VirtAddr::ZERO);
    let after = brk(to);
    assert!(after == to || after == before && brk(VirtAddr::ZERO) == before);
    after == to
}

fn the_break_moves_up_to_each_bound_and_no_further<I: Isa>() {
    // The start.
    let process = heap::<I>(START.add(5));
    assert!(moves(&process, START.add(3 * PAGE_SIZE)) && moves(&process, START.add(6)));
    assert!(moves(&process, START.add(5)), "an empty heap");
    assert!(!moves(&process, START.add(4)));
    // The limit of the data segment.
    let limits = process.space.map().read().limits().with(Resource::Data, 2 * PAGE_SIZE + 3);
    process.world.on(CPU, |mm| mm.set_limits(&process.space, limits));
    assert!(moves(&process, START.add(5 + 2 * PAGE_SIZE + 3)));
    assert!(!moves(&process, START.add(5 + 2 * PAGE_SIZE + 4)));
    TestProcess::end_all_at_rest(&[&process]);
    // The end of user memory.
    let process = heap::<I>(VirtAddr::new(I::USER_END.raw() - 2 * PAGE_SIZE));
    assert!(!moves(&process, I::USER_END.add(1)));
    assert!(moves(&process, I::USER_END));
    TestProcess::end_all_at_rest(&[&process]);
    // The number of mappings, which may be exceeded by one, as in Linux.
    for (others, limit, moved) in [(2, 2, true), (2, 1, false), (2, 3, true)] {
        let process = heap::<I>(START);
        for index in 0..others {
            process.map_at(at(START, 100 + 2 * index), 1, Rights::RW, ANON | MapFlags::FIXED);
        }
        process.world.set(MmSetting::MaxMapCount, &limit.to_string());
        assert_eq!(moves(&process, START.add(1)), moved, "{others} mappings of {limit}");
        TestProcess::end_all_at_rest(&[&process]);
    }
    // The next mapping, before which a page stays free.
    let process = heap::<I>(START);
    process.map_at(at(START, 4), 1, Rights::RW, ANON | MapFlags::FIXED);
    assert!(!moves(&process, at(START, 3).add(1)));
    assert!(moves(&process, at(START, 3)));
    TestProcess::end_all_at_rest(&[&process]);
}

/// Linux: `newbrk + PAGE_SIZE > vm_start_gap(next)`.
fn the_break_keeps_the_gap_of_a_stack_and_a_page<I: Isa>() {
    let process = heap::<I>(START);
    process.world.set(MmSetting::StackGuardGap, "4");
    process.map_at(at(START, 20), 1, Rights::RW, ANON | MapFlags::FIXED | MapFlags::GROWSDOWN);
    assert!(!moves(&process, at(START, 15).add(1)));
    assert!(moves(&process, at(START, 15)));
    TestProcess::end_all_at_rest(&[&process]);
}

/// Linux: `!brkvma || brkvma->vm_start >= oldbrk`.
pub(super) fn the_break_moves_down_only_over_what_is_mapped<I: Isa>() {
    let process = heap::<I>(START);
    assert!(moves(&process, at(START, 4)));
    process.unmap(at(START, 2), 2);
    assert!(!moves(&process, at(START, 2)), "nothing is mapped there");
    assert!(moves(&process, at(START, 1)), "a page is");
    TestProcess::end_all_at_rest(&[&process]);
}

#[cfg(feature = "planted")]
#[test]
fn a_break_that_moves_over_a_hole_is_found() {
    use pagewright_arch::{Aarch64, X86_64};
    use pagewright_plant::{PlantedBug, assert_found_by};
    let bug = PlantedBug::BreakMovesOverHole;
    assert_found_by(bug, the_break_moves_down_only_over_what_is_mapped::<X86_64>);
    assert_found_by(bug, the_break_moves_down_only_over_what_is_mapped::<Aarch64>);
}

/// INV-TABLE-OWN: a sharer that does not grow its heap has no page of another one's.
fn a_heap_grows_over_shared_tables_that_are_all_broken<I: Isa>() {
    const TABLE: u64 = 512;
    let process = heap::<I>(at(START, TABLE / 2));
    let world = process.world.clone();
    world.set(MmSetting::CowPageTables, "always");
    // A page in the first and the last table of the heap, which has the table between to itself.
    let places = [0, 2 * TABLE + 200].map(|page| at(START, page));
    for place in places {
        process.map_at(place, 1, Rights::RW, ANON | MapFlags::FIXED);
        process.write(CPU, place, 7);
    }
    let child = process.fork();
    let broken = world.count(Counter::PwTableBroken);
    assert!(!moves(&child, at(START, 2 * TABLE + 300)), "the next mapping is in the way");
    assert_eq!(world.count(Counter::PwTableBroken), broken, "a refused call copies nothing");
    assert!(moves(&child, at(START, 2 * TABLE + 100)));
    for page in [TABLE / 2, TABLE - 1, TABLE, 2 * TABLE - 1, 2 * TABLE, 2 * TABLE + 99] {
        assert_eq!(child.read(CPU, at(START, page)), 0);
        assert!(process.touch(CPU, at(START, page), Access::Read).is_err(), "it has no heap there");
        child.write(CPU, at(START, page), page);
    }
    assert_eq!([&process, &child].map(|process| process.read(CPU, places[1])), [7; 2]);
    world.recount(&[&process, &child]);
    TestProcess::end_all_at_rest(&[&child, &process]);
}
