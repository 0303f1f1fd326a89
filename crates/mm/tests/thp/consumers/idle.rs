//! Idle pages: a folio has one mark, which ends with the use of any of its pages.

use super::{ALL, BASE, end, frame};
use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::{ANON, CPU, TestProcess, TestWorld, at};
use pagewright_lab::planted_bugs_are_found;
use pagewright_mm::MapFlags;
use pagewright_mm::space::ClearRefs;
use pagewright_types::{Access, Counter, CpuId, NodeId, PAGE_SIZE, Pfn, Rights};
use std::rc::Rc;

on_both! {
    a_folio_is_idle_until_a_mapping_of_a_page_is_used,
    a_page_of_a_file_is_idle_until_a_call_reads_it,
    a_folio_that_is_split_leaves_idle_pages,
    a_frame_whose_folio_has_another_first_page_is_never_idle,
    /// INV-IDLE-YOUNG.
    reclaim_keeps_a_page_whose_use_idle_tracking_saw: assert!(kept::<I>(0)),
    clearing_accessed_bits_forgets_that_use,
}

planted_bugs_are_found! {
    1;
    IdleHidesUse => kept,
}

fn mark<I: Isa>(world: &Rc<TestWorld<I>>, pfn: Pfn) {
    world.on(CPU, |mm| mm.mark_page_idle(pfn));
}

fn is_idle<I: Isa>(world: &Rc<TestWorld<I>>, pfn: Pfn) -> bool {
    world.on(CPU, |mm| mm.page_is_idle(pfn))
}

/// Two processes map it, and each uses it on a CPU without a cached translation.
fn a_folio_is_idle_until_a_mapping_of_a_page_is_used<I: Isa>() {
    for mapped in ALL {
        let (world, process) = mapped.process::<I>();
        let (child, head) = (process.fork(), frame(&process, 0));
        assert!(!is_idle(&world, head), "{mapped:?}: it was never marked");
        for (cpu, by) in [(2, &process), (3, &child)] {
            mark(&world, head);
            assert!(is_idle(&world, head) && is_idle(&world, head), "{mapped:?}");
            assert_eq!(by.read(CpuId::new(cpu), at(BASE, 14)), 15);
            assert!(!is_idle(&world, head), "{mapped:?}, CPU {cpu}");
        }
        end(&world, &[&process, &child]);
    }
}

fn a_page_of_a_file_is_idle_until_a_call_reads_it<I: Isa>() {
    let world = TestWorld::<I>::sized(4, 16 << 20);
    let process = TestProcess::new(&world);
    let file = world.file(4);
    let base = process.map_file(&file, Rights::READ, MapFlags::SHARED);
    let pfn = process.frame(CPU, at(base, 1), Access::Read);
    mark(&world, pfn);
    assert!(is_idle(&world, pfn));
    let mut word = [0; 8];
    world.on(CPU, |mm| mm.read_at(&file, PAGE_SIZE, &mut word)).expect("in the file");
    assert!(!is_idle(&world, pfn));
    drop(file);
    TestProcess::end_all_at_rest(&[&process]);
}

fn a_folio_that_is_split_leaves_idle_pages<I: Isa>() {
    for mapped in ALL {
        let (world, process) = mapped.process::<I>();
        let head = frame(&process, 0);
        mark(&world, head);
        world.on(CPU, |mm| mm.split_all_huge_pages());
        assert!([0, 7, 15].iter().all(|page| is_idle(&world, head.add(*page))), "{mapped:?}");
        end(&world, &[&process]);
    }
}

fn a_frame_whose_folio_has_another_first_page_is_never_idle<I: Isa>() {
    for mapped in ALL {
        let (world, process) = mapped.process::<I>();
        let (head, tail) = (frame(&process, 0), frame(&process, 1));
        mark(&world, tail);
        assert!(!is_idle(&world, tail) && !is_idle(&world, head), "{mapped:?}");
        mark(&world, head);
        assert!(!is_idle(&world, tail) && is_idle(&world, head), "{mapped:?}");
        end(&world, &[&process]);
    }
}

/// A process with one page, and the frame.
fn small<I: Isa>() -> (Rc<TestWorld<I>>, TestProcess<I>, Pfn) {
    let world = TestWorld::<I>::sized(4, 16 << 20);
    let process = TestProcess::new(&world);
    process.map_at(BASE, 1, Rights::RW, ANON);
    process.write(CPU, BASE, 7);
    let pfn = process.frame(CPU, BASE, Access::Read);
    (world, process, pfn)
}

/// Pages that reclaim scans until it has taken the only page, which it keeps once if it was used.
fn scanned<I: Isa>(world: &Rc<TestWorld<I>>) -> u64 {
    assert_eq!(world.on(CPU, |mm| mm.reclaim(NodeId::new(0), 1)), 1);
    world.count(Counter::PgScanProactive)
}

fn kept<I: Isa>(_seed: u64) -> bool {
    let (world, process, pfn) = small::<I>();
    let _device = world.swap_to(8);
    mark(&world, pfn);
    let scanned = scanned(&world);
    TestProcess::end_all_at_rest(&[&process]);
    scanned == 2
}

fn clearing_accessed_bits_forgets_that_use<I: Isa>() {
    let (world, process, pfn) = small::<I>();
    let _device = world.swap_to(8);
    mark(&world, pfn);
    assert_eq!(process.smaps_field("Referenced:"), PAGE_SIZE / 1024);
    world.on(CPU, |mm| mm.clear_refs(&process.space, ClearRefs::All)).expect("no table is made");
    assert_eq!(process.smaps_field("Referenced:"), 0);
    assert_eq!(scanned(&world), 1);
    TestProcess::end_all_at_rest(&[&process]);
}
