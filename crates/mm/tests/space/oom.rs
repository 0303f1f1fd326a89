//! The choice of the process that ends when no memory is left (INV-MM-OOM).
//!
//! The scores are those that Linux 6.1 has for the same pages.

use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::{CPU, TestProcess, TestWorld, at};
use pagewright_mm::Advice;
use pagewright_mm::oom::{OOM_SCORE_ADJ_MIN, select_bad_process};
use std::rc::Rc;

/// Tables above one page: one of each level but the root, which Linux does not count either.
const TABLES: i64 = 3;

fn badness<I: Isa>(world: &TestWorld<I>, process: &TestProcess<I>, oom_score_adj: i32) -> Option<i64> {
    world.on(CPU, |mm| mm.oom_badness(&process.space, oom_score_adj))
}

fn process_with_pages<I: Isa>(pages: u64) -> (Rc<TestWorld<I>>, TestProcess<I>) {
    let (world, process) = TestProcess::<I>::judged(1);
    world.swap_to(1000);
    let base = process.anon(16);
    (0..pages).for_each(|page| process.write(CPU, at(base, page), page));
    process.advise(base, 4, Advice::PageOut);
    (world, process)
}

fn resident_pages_slots_and_tables_count_alike<I: Isa>() {
    let (world, process) = process_with_pages::<I>(10);
    assert_eq!((process.space.rss().pages(), process.space.rss().swapped()), (6, 4));
    assert_eq!(badness(&world, &process, 0), Some(6 + 4 + TABLES), "INV-MM-OOM");
    process.end();
}

fn the_adjustment_is_a_share_of_memory_and_swap<I: Isa>() {
    let (world, process) = process_with_pages::<I>(10);
    let all = world.on(CPU, |mm| mm.tlb().frames().managed()) + 1000;
    let thousandth = all as i64 / 1000;
    assert!(thousandth > 0, "a machine of less than 1000 pages shows nothing");
    let unadjusted = badness(&world, &process, 0).expect("it may be killed");
    assert_eq!(badness(&world, &process, 300), Some(unadjusted + 300 * thousandth));
    assert_eq!(badness(&world, &process, -999), Some(unadjusted - 999 * thousandth), "it may be killed still");
    assert_eq!(badness(&world, &process, OOM_SCORE_ADJ_MIN), None);
    process.end();
}

/// A parent and the children that have stored nothing are equal, so the newest ends.
///
/// That holds with shared tables and with copies of them. A child that has more ends before it.
fn of_equal_ones_the_newest_is_chosen<I: Isa>() {
    for shares in ["always", "never"] {
        let (world, parent) = process_with_pages::<I>(10);
        world.set(pagewright_mm::MmSetting::CowPageTables, shares);
        let children: Vec<_> = (0..3).map(|_| parent.fork()).collect();
        let processes: Vec<_> = [&parent].into_iter().chain(&children).collect();
        let scored = || (0..).zip(&processes).filter_map(|(age, of)| Some((badness(&world, of, 0)?, age)));
        assert!(scored().all(|(badness, _)| badness == 6 + 4 + TABLES), "{shares}: a fork copies what counts");
        assert_eq!(select_bad_process(scored()), Some(3), "INV-MM-OOM: {shares}: the newest of equal ones");
        let more = children[1].anon(1);
        children[1].write(CPU, more, 1);
        assert_eq!(select_bad_process(scored()), Some(2), "INV-MM-OOM: {shares}: the one with most");
        TestProcess::end_all_at_rest(&processes);
    }
    assert_eq!(select_bad_process::<u32>([]), None);
}

on_both! {
    resident_pages_slots_and_tables_count_alike,
    the_adjustment_is_a_share_of_memory_and_swap,
    of_equal_ones_the_newest_is_chosen,
}

#[cfg(feature = "planted")]
#[test]
fn planted_bugs_are_found() {
    use pagewright_arch::X86_64;
    use pagewright_plant::{PlantedBug, assert_found_by};
    assert_found_by(PlantedBug::OomOldestChosen, of_equal_ones_the_newest_is_chosen::<X86_64>);
    assert_found_by(PlantedBug::OomScoreIgnored, the_adjustment_is_a_share_of_memory_and_swap::<X86_64>);
}
