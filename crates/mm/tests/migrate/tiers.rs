//! Demotion: reclaim moves pages to the slower node before it evicts them.

use super::{FAR, NEAR, nodes};
use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::{ANON, CPU, TestProcess, TestWorld, at, one_node_machine};
use pagewright_mm::MmSetting;
use pagewright_sim::NodeConfig;
use pagewright_types::{Counter, CpuMask, NodeId, Rights, VirtAddr};
use std::rc::Rc;

on_both! {
    pages_that_are_not_used_are_demoted_before_they_are_swapped_out,
    without_the_setting_no_page_is_demoted,
    pages_of_the_lowest_tier_are_swapped_out,
    pages_for_which_the_lower_tier_has_no_room_are_swapped_out,
    without_room_and_swap_pages_stay,
}

const PAGES: u64 = 32;

/// A process with pages on the fast node that no CPU has accessed since the last scan.
fn idle_pages<I: Isa>(far_bytes: u64, demotes: &str) -> (Rc<TestWorld<I>>, TestProcess<I>, Vec<VirtAddr>) {
    let mut config = one_node_machine::<I>(2, 4 << 20);
    config.nodes.push(NodeConfig { bytes: far_bytes, cpus: CpuMask::EMPTY });
    let world = TestWorld::on_machine(config);
    world.set(MmSetting::DemotionEnabled, demotes);
    let process = TestProcess::new(&world);
    let base = process.map(PAGES, Rights::RW, ANON, None);
    let pages: Vec<_> = (0..PAGES).map(|page| at(base, page)).collect();
    pages.iter().for_each(|va| process.write(CPU, *va, va.raw()));
    (world, process, pages)
}

/// Reclaims from a node until every page has been looked at twice; returns what was freed.
fn reclaim<I: Isa>(world: &TestWorld<I>, node: NodeId) -> u64 {
    (0..4).map(|_| world.on(CPU, |mm| mm.reclaim(node, PAGES as u32))).sum()
}

fn end<I: Isa>(world: &TestWorld<I>, process: &TestProcess<I>, pages: &[VirtAddr]) {
    pages.iter().for_each(|va| assert_eq!(process.read(CPU, *va), va.raw()));
    world.recount(&[process]);
    world.at_rest(&[]);
    process.end();
    world.at_rest(&[]);
}

fn pages_that_are_not_used_are_demoted_before_they_are_swapped_out<I: Isa>() {
    let (world, process, pages) = idle_pages::<I>(4 << 20, "1");
    world.swap_to(64);
    assert_eq!(reclaim(&world, NEAR), PAGES);
    assert_eq!(nodes(&process, &pages), vec![Ok(FAR); PAGES as usize]);
    assert_eq!(world.count(Counter::PgDemoteProactive), PAGES);
    assert_eq!((world.count(Counter::PgStealProactive), world.count(Counter::PswpOut)), (PAGES, 0));
    end(&world, &process, &pages);
}

fn without_the_setting_no_page_is_demoted<I: Isa>() {
    let (world, process, pages) = idle_pages::<I>(4 << 20, "0");
    world.swap_to(64);
    assert_eq!(reclaim(&world, NEAR), PAGES);
    assert_eq!((world.count(Counter::PgDemoteProactive), world.count(Counter::PswpOut)), (0, PAGES));
    end(&world, &process, &pages);
}

fn pages_of_the_lowest_tier_are_swapped_out<I: Isa>() {
    let (world, process, pages) = idle_pages::<I>(4 << 20, "1");
    world.swap_to(64);
    reclaim(&world, NEAR);
    assert_eq!(world.count(Counter::PswpOut), 0);
    assert_eq!(reclaim(&world, FAR), PAGES);
    assert_eq!(world.count(Counter::PswpOut), PAGES);
    end(&world, &process, &pages);
}

fn pages_for_which_the_lower_tier_has_no_room_are_swapped_out<I: Isa>() {
    let (world, process, pages) = idle_pages::<I>(64 << 10, "1");
    world.swap_to(64);
    assert_eq!(reclaim(&world, NEAR), PAGES);
    let demoted = world.count(Counter::PgDemoteProactive);
    assert!((1..=16).contains(&demoted), "{demoted} pages are demoted to a node of 16 frames");
    assert_eq!(world.count(Counter::PswpOut), PAGES - demoted);
    end(&world, &process, &pages);
}

fn without_room_and_swap_pages_stay<I: Isa>() {
    let (world, process, pages) = idle_pages::<I>(64 << 10, "1");
    let demoted = reclaim(&world, NEAR);
    assert!((1..=16).contains(&demoted), "{demoted} pages are demoted to a node of 16 frames");
    let near = nodes(&process, &pages).iter().filter(|node| **node == Ok(NEAR)).count() as u64;
    assert_eq!(near, PAGES - demoted);
    end(&world, &process, &pages);
}
