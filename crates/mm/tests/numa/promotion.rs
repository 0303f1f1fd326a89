//! Promotion: hot pages of the slow node go to the fast one, as far as limits and room allow.

use super::{Clock, FAR, NEAR, PERIOD, faults, node, slow_pages};
use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::{ANON, CPU, TestProcess, at};
use pagewright_mm::MmSetting;
use pagewright_sim::AllocationFailure;
use pagewright_types::{Access, Counter, Rights};

on_both! {
    a_page_that_is_used_soon_after_the_scan_is_promoted,
    a_page_that_is_used_late_stays,
    no_more_pages_are_promoted_than_the_rate_limit_lets_through,
    a_full_node_takes_no_page_and_wakes_reclaim,
    a_page_without_memory_for_its_move_is_served_where_it_is,
    a_node_with_ample_memory_takes_every_page,
}

fn candidates<I: Isa>(process: &TestProcess<I>) -> [u64; 2] {
    [Counter::PgPromoteCandidate, Counter::PgPromoteSuccess].map(|counter| process.world.count(counter))
}

fn a_page_that_is_used_soon_after_the_scan_is_promoted<I: Isa>() {
    let (world, process, base) = slow_pages::<I>(2);
    let clock = Clock::start(&process, "2");
    assert_eq!(clock.scan(&process), 2);
    clock.wait(&process, 999);
    process.write(CPU, base, 20);
    assert_eq!((node(&process, base), process.read(CPU, base)), (NEAR, 20));
    assert_eq!((faults(&world), candidates(&process)), ([1, 0, 1], [1, 1]));
    assert_eq!(clock.scan(&process), 0, "pages of the top tier are not scanned");
    world.recount(&[&process]);
    TestProcess::end_all_at_rest(&[&process]);
}

fn a_page_that_is_used_late_stays<I: Isa>() {
    let (world, process, base) = slow_pages::<I>(1);
    let clock = Clock::start(&process, "2");
    assert_eq!(clock.scan(&process), 1);
    // The first period without candidates has raised the threshold by a sixteenth of its greatest.
    clock.wait(&process, 1125);
    process.write(CPU, base, 20);
    assert_eq!((node(&process, base), process.read(CPU, base)), (FAR, 20));
    assert_eq!((faults(&world), candidates(&process)), ([1, 0, 0], [0, 0]));
    let used_after = |ms: u64| {
        assert_eq!(clock.scan(&process), 1);
        clock.wait(&process, ms);
        assert_eq!(process.read(CPU, base), 20);
        node(&process, base)
    };
    assert!((0..16).all(|_| used_after(2000) == FAR), "the threshold is at most twice the setting");
    assert_eq!(used_after(1999), NEAR);
    TestProcess::end_all_at_rest(&[&process]);
}

/// `numa_promotion_rate_limit`: MB in a second.
fn no_more_pages_are_promoted_than_the_rate_limit_lets_through<I: Isa>() {
    let (world, process, base) = slow_pages::<I>(300);
    world.set(MmSetting::NumaPromoteRateLimit, "1");
    let clock = Clock::start(&process, "2");
    assert_eq!(clock.scan(&process), 300);
    (0..300).for_each(|page| assert_eq!(process.read(CPU, at(base, page)), 10 + page));
    // The first of a second begins it.
    assert_eq!(candidates(&process), [300, 256]);
    TestProcess::end_all_at_rest(&[&process]);
}

/// INV-RECLAIM-WANTED; `migrate_balanced_pgdat`, `pgdat_balanced` with the promotion watermark.
fn a_full_node_takes_no_page_and_wakes_reclaim<I: Isa>() {
    let (world, process, base) = slow_pages::<I>(4);
    world.set(MmSetting::DemotionEnabled, "1");
    let clock = Clock::start(&process, "2");
    let zone = || {
        world.on(CPU, |mm| {
            let zone = mm.tlb().frames().zones().find(|zone| zone.node() == NEAR).expect("a zone");
            (zone.free(), zone.watermarks())
        })
    };
    while zone().0 > zone().1.high {
        let more = process.map(1, Rights::RW, ANON, None);
        process.write(CPU, more, 1);
    }
    assert!(zone().0 > zone().1.low, "allocations do not want reclaim");
    assert!(!world.on(CPU, |mm| mm.needs_balance(NEAR)));
    assert!(clock.scan(&process) >= 4);
    assert_eq!(process.read(CPU, base), 10);
    assert_eq!((node(&process, base), faults(&world)[2]), (FAR, 0));
    assert!(world.on(CPU, |mm| mm.needs_balance(NEAR)), "the promotion wants room");
    assert!(world.on(CPU, |mm| mm.balance(NEAR)) > 0);
    assert!(zone().0 >= zone().1.promo);
    assert!(world.count(Counter::PgDemoteKswapd) > 0);
    assert!(!world.on(CPU, |mm| mm.needs_balance(NEAR)));
    clock.scan(&process);
    assert_eq!((process.read(CPU, base), node(&process, base)), (10, NEAR));
    world.recount(&[&process]);
    TestProcess::end_all_at_rest(&[&process]);
}

/// Each allocation in turn.
fn a_page_without_memory_for_its_move_is_served_where_it_is<I: Isa>() {
    let (world, process, base) = slow_pages::<I>(1);
    let clock = Clock::start(&process, "2");
    let sim = world.bench.sim();
    let mut permitted = 0;
    loop {
        assert_eq!(clock.scan(&process), 1, "after {permitted} refusals");
        let refused = sim.refused_allocations();
        sim.fail_allocation_after(permitted, AllocationFailure::One);
        let served = process.touch(CPU, base, Access::Write);
        sim.permit_allocations();
        assert_eq!((served, process.read(CPU, base)), (Ok(()), 10));
        if sim.refused_allocations() == refused {
            break;
        }
        assert_eq!(node(&process, base), FAR, "the allocation after {permitted} others is refused");
        world.recount(&[&process]);
        permitted += 1;
    }
    assert!(permitted >= 2, "{permitted} allocations");
    assert_eq!((node(&process, base), faults(&world)[2]), (NEAR, 1));
    TestProcess::end_all_at_rest(&[&process]);
}

/// `pgdat_free_space_enough`.
fn a_node_with_ample_memory_takes_every_page<I: Isa>() {
    use pagewright_lab::harness::{TestWorld, one_node_machine};
    use pagewright_sim::NodeConfig;
    use pagewright_types::CpuMask;
    let mut config = one_node_machine::<I>(2, 1200 << 20);
    config.nodes.push(NodeConfig { bytes: 4 << 20, cpus: CpuMask::EMPTY });
    let world = TestWorld::<I>::on_machine(config);
    let process = TestProcess::new(&world);
    let base = process.map(1, Rights::RW, ANON, None);
    process.write(CPU, base, 10);
    super::move_to(&process, base, 1, FAR);
    let clock = Clock::start(&process, "2");
    assert_eq!(clock.scan(&process), 1);
    clock.wait(&process, PERIOD);
    process.read(CPU, base);
    assert_eq!((node(&process, base), candidates(&process)), (NEAR, [0, 1]));
    TestProcess::end_all_at_rest(&[&process]);
}
