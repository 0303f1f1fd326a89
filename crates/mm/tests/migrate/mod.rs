//! Pages that move to another node: what moves, what stays, and what the calls say.

mod beside;
mod linger;
mod linger_races;
mod objections;
mod tiers;

use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::files::DiskFile;
use pagewright_lab::harness::{ANON, CPU, GupCall, OTHER, TestProcess, TestWorld, at};
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_mm::policy::{PolicyFlags, PolicyMode, PolicyRequest};
use pagewright_mm::space::{BindFlags, BindRequest};
use pagewright_mm::{Advice, MapFlags, MmError, MmSetting};
use pagewright_sim::AllocationFailure;
use pagewright_types::{Counter, Errno, NodeId, NodeMask, PAGE_SIZE, Rights, VirtAddr};
use std::rc::Rc;

on_both! {
    private_pages_move_with_their_contents_and_rights,
    a_page_is_moved_only_for_its_single_process_or_with_all,
    a_page_of_a_shared_table_moves_by_one_edit,
    what_cannot_move_stays_as_it_was,
    pages_that_move_together_wait_once_for_the_other_cpus,
    a_full_node_refuses_pages_and_nothing_changes,
    a_copy_is_locked_listed_and_cached_as_its_page_was,
    a_migration_that_finds_no_memory_changes_nothing,
    mbind_moves_the_pages_of_its_range,
    all_pages_of_a_process_move_from_node_to_node,
}

pub(super) const NEAR: NodeId = NodeId::new(0);
pub(super) const FAR: NodeId = NodeId::new(1);

/// The status of each page, as `move_pages` without nodes tells.
pub(super) fn nodes<I: Isa>(process: &TestProcess<I>, pages: &[VirtAddr]) -> Vec<Result<NodeId, Errno>> {
    let mut list = vec![Err(Errno::EIO); pages.len()];
    process.world.on(CPU, |mm| mm.page_nodes(&process.space, pages, |index, status| list[index] = status));
    list
}

/// Moves pages to one node; returns how many stayed, and the status of each that has one.
pub(super) fn move_to<I: Isa>(
    process: &TestProcess<I>,
    pages: &[VirtAddr],
    node: NodeId,
    all: bool,
) -> (usize, Vec<Option<Result<NodeId, Errno>>>) {
    let mut list = vec![None; pages.len()];
    let wanted: Vec<_> = pages.iter().map(|va| (*va, node)).collect();
    let stayed = process
        .world
        .on(CPU, |mm| mm.move_pages(&process.space, &wanted, all, |index, status| list[index] = Some(status)))
        .expect("memory for the lists");
    (stayed, list)
}

fn world_of_two_nodes<I: Isa>() -> (Rc<TestWorld<I>>, TestProcess<I>) {
    let world = TestWorld::<I>::two_nodes(3, 4 << 20);
    let process = TestProcess::new(&world);
    (world, process)
}

fn private_pages_move_with_their_contents_and_rights<I: Isa>() {
    let (world, process) = world_of_two_nodes::<I>();
    let base = process.map(6, Rights::RW, ANON, None);
    (0..3).for_each(|page| process.write(CPU, at(base, page), 10 + page));
    process.read(CPU, at(base, 3));
    let pages: Vec<_> = (0..5).map(|page| at(base, page)).collect();
    assert_eq!(
        nodes(&process, &pages),
        [Ok(NEAR), Ok(NEAR), Ok(NEAR), Err(Errno::EFAULT), Err(Errno::ENOENT)],
        "the zero page is no page of the program, and the last was never touched"
    );
    let (stayed, statuses) = move_to(&process, &pages[..3], FAR, false);
    assert_eq!((stayed, statuses), (0, vec![Some(Ok(FAR)); 3]));
    assert_eq!(world.count(Counter::PgMigrateSuccess), 3);
    world.recount(&[&process]);
    world.at_rest(&[]);
    let faults = world.count(Counter::PgFault);
    for page in 0..3 {
        assert_eq!(process.read(CPU, at(base, page)), 10 + page);
        process.write(CPU, at(base, page), 20 + page);
    }
    assert_eq!(world.count(Counter::PgFault), faults, "the copies have the rights of the pages");
    assert_eq!(nodes(&process, &pages[..3]), [Ok(FAR); 3]);
    let again = move_to(&process, &[pages[0], pages[4], pages[3]], FAR, false);
    assert_eq!(again, (0, vec![Some(Ok(FAR)), Some(Err(Errno::ENOENT)), Some(Err(Errno::EFAULT))]));
    assert_eq!(move_to(&process, &[VirtAddr::new(PAGE_SIZE)], FAR, false).1, [Some(Err(Errno::EFAULT))]);
    process.end();
    world.assert_nothing_leaked();
}

fn a_page_is_moved_only_for_its_single_process_or_with_all<I: Isa>() {
    for policy in ["never", "always"] {
        let (world, process) = world_of_two_nodes::<I>();
        world.set(MmSetting::CowPageTables, policy);
        let base = process.map(1, Rights::RW, ANON, None);
        process.write(CPU, base, 7);
        let child = process.fork();
        assert_eq!(move_to(&process, &[base], FAR, false), (0, vec![Some(Err(Errno::EACCES))]), "{policy}");
        assert_eq!(move_to(&process, &[base], FAR, true), (0, vec![Some(Ok(FAR))]), "{policy}");
        world.recount(&[&process, &child]);
        assert_eq!((process.read(CPU, base), child.read(OTHER, base)), (7, 7));
        child.write(OTHER, base, 8);
        assert_eq!((process.read(CPU, base), child.read(OTHER, base)), (7, 8), "{policy}");
        world.at_rest(&[]);
        [&child, &process].iter().for_each(|process| process.end());
        world.assert_nothing_leaked();
    }
}

/// Once for all sharers, and with one wait for the other CPUs.
fn a_page_of_a_shared_table_moves_by_one_edit<I: Isa>() {
    const PAGES: u64 = 32;
    let (world, process) = world_of_two_nodes::<I>();
    world.bench.sim().unbind_judge();
    world.set(MmSetting::CowPageTables, "always");
    let base = process.map(PAGES, Rights::RW, ANON, None);
    let pages: Vec<_> = (0..PAGES).map(|page| at(base, page)).collect();
    pages.iter().for_each(|va| process.write(CPU, *va, va.raw()));
    let children: Vec<_> = (0..100).map(|_| process.fork()).collect();
    world.lab.run(OTHER, &children[0].space);
    let waits = world.count(Counter::NrTlbRemoteFlush);
    assert_eq!(move_to(&process, &pages, FAR, true).0, 0);
    assert_eq!(world.count(Counter::NrTlbRemoteFlush) - waits, 1, "32 pages of 101 processes");
    assert_eq!(world.count(Counter::PwTableBroken), 0);
    let read = |process: &TestProcess<I>| pages.iter().all(|va| process.read(OTHER, *va) == va.raw());
    assert!(children.iter().chain([&process]).all(read));
    let all: Vec<_> = children.iter().chain([&process]).collect();
    world.recount(&all);
    children.iter().chain([&process]).for_each(TestProcess::end);
    world.assert_nothing_leaked();
}

/// INV-MIGRATE-ALL.
fn what_cannot_move_stays_as_it_was<I: Isa>() {
    let (world, process) = world_of_two_nodes::<I>();
    let base = process.map(2, Rights::RW, ANON, None);
    (0..2).for_each(|page| process.write(CPU, at(base, page), 10 + page));
    let device = process.take(CPU, base, 1, GupCall::Pin(GupFlags::WRITE)).expect("a page");
    assert_eq!(move_to(&process, &[base, at(base, 1)], FAR, true).0, 1, "the pinned page stays");
    assert_eq!(nodes(&process, &[base, at(base, 1)]), [Ok(NEAR), Ok(FAR)]);
    device.write(0, 99);
    assert_eq!(process.read(CPU, base), 99, "the program sees what the device stores");
    world.at_rest(&[&device]);
    device.release(MakeDirty::Yes);
    assert_eq!(move_to(&process, &[base], FAR, true).0, 0);
    assert_eq!(process.read(CPU, base), 99);
    process.end();
    world.assert_nothing_leaked();
}

fn pages_that_move_together_wait_once_for_the_other_cpus<I: Isa>() {
    const PAGES: u64 = 32;
    let (world, process) = world_of_two_nodes::<I>();
    let base = process.map(PAGES, Rights::RW, ANON, None);
    let pages: Vec<_> = (0..PAGES).map(|page| at(base, page)).collect();
    pages.iter().for_each(|va| process.write(CPU, *va, va.raw()));
    pages.iter().for_each(|va| assert_eq!(process.read(OTHER, *va), va.raw()));
    let waits = world.count(Counter::NrTlbRemoteFlush);
    assert_eq!(move_to(&process, &pages, FAR, false).0, 0);
    assert_eq!(world.count(Counter::NrTlbRemoteFlush) - waits, 1);
    pages.iter().for_each(|va| assert_eq!(process.read(OTHER, *va), va.raw()));
    world.at_rest(&[]);
    process.end();
    world.assert_nothing_leaked();
}

fn a_full_node_refuses_pages_and_nothing_changes<I: Isa>() {
    let mut config = pagewright_lab::harness::one_node_machine::<I>(2, 8 << 20);
    config.nodes.push(pagewright_sim::NodeConfig { bytes: 256 << 10, cpus: pagewright_types::CpuMask::EMPTY });
    let world = TestWorld::<I>::on_machine(config);
    let process = TestProcess::new(&world);
    let base = process.map(128, Rights::RW, ANON, None);
    let pages: Vec<_> = (0..128).map(|page| at(base, page)).collect();
    pages.iter().for_each(|va| process.write(CPU, *va, va.raw()));
    let (stayed, _) = move_to(&process, &pages, FAR, false);
    assert!((64..128).contains(&stayed), "{stayed} of 128 pages stay, the node has 64 frames");
    let far = nodes(&process, &pages).iter().filter(|node| **node == Ok(FAR)).count();
    assert_eq!(far, 128 - stayed);
    assert_eq!(world.count(Counter::PgMigrateFail), stayed as u64);
    pages.iter().for_each(|va| assert_eq!(process.read(CPU, *va), va.raw()));
    world.recount(&[&process]);
    world.at_rest(&[]);
    process.end();
    world.assert_nothing_leaked();
}

/// INV-MIGRATE-TRANSFER, for locked memory, shared memory, a file, and the swap cache.
fn a_copy_is_locked_listed_and_cached_as_its_page_was<I: Isa>() {
    let (world, process) = world_of_two_nodes::<I>();
    let slots = world.swap_to(8);
    let (shmem, disk) = (world.shmem(1), world.file_of(DiskFile::default(), 1));
    let locked = process.anon(1);
    let swapped = process.anon(1);
    let shared = process.map(1, Rights::RW, MapFlags::SHARED, Some(&shmem));
    let written = process.map(1, Rights::RW, MapFlags::SHARED, Some(&disk));
    let pages = [locked, swapped, shared, written];
    (10..).zip(pages).for_each(|(value, va)| process.write(CPU, va, value));
    world.on(CPU, |mm| mm.mlock(&process.space, locked, PAGE_SIZE)).expect("memory");
    // A page that a child has read back is in the swap cache, with its slot.
    process.advise(swapped, 1, Advice::PageOut);
    let child = process.fork();
    assert_eq!(child.read(CPU, swapped), 11);
    let levels = world.levels();
    let spaces = [&process, &child];
    for node in [FAR, NEAR] {
        for va in pages {
            let mover = if va == swapped { &child } else { &process };
            assert_eq!(move_to(mover, &[va], node, true), (0, vec![Some(Ok(node))]), "{va}");
        }
        assert_eq!(world.levels(), levels, "gauges, lists and locked memory");
        world.recount(&spaces);
        world.at_rest(&[]);
    }
    assert_eq!((10..).zip(pages).find(|(value, va)| process.read(CPU, *va) != *value), None);
    assert_eq!(child.read(CPU, swapped), 11);
    world.on(CPU, |mm| mm.munlock(&process.space, locked, PAGE_SIZE)).expect("mapped");
    spaces.iter().rev().for_each(|process| process.end());
    assert_eq!(slots.used(), 0, "the slot is freed with its last entry");
}

/// Each allocation of the call fails in turn: of its lists, and of the copies.
fn a_migration_that_finds_no_memory_changes_nothing<I: Isa>() {
    let (world, process) = world_of_two_nodes::<I>();
    let base = process.map(3, Rights::RW, ANON, None);
    let pages: Vec<_> = (0..3).map(|page| (at(base, page), FAR)).collect();
    pages.iter().for_each(|(va, _)| process.write(CPU, *va, va.raw()));
    let mut failed = 0;
    for permitted in 0.. {
        world.bench.sim().fail_allocation_after(permitted, AllocationFailure::One);
        let stayed = world.on(CPU, |mm| mm.move_pages(&process.space, &pages, false, |_, _| {}));
        world.bench.sim().permit_allocations();
        world.recount(&[&process]);
        world.at_rest(&[]);
        pages.iter().for_each(|(va, _)| assert_eq!(process.read(CPU, *va), va.raw()));
        if stayed == Ok(0) {
            break;
        }
        failed += 1;
    }
    assert!(failed >= 2, "the lists, and a copy: {failed} allocations failed");
    process.end();
    world.assert_nothing_leaked();
}

fn bind<I: Isa>(process: &TestProcess<I>, base: VirtAddr, pages: u64, flags: BindFlags) -> Result<(), Errno> {
    let policy = PolicyRequest { mode: PolicyMode::Bind, flags: PolicyFlags::empty(), nodes: NodeMask::of(FAR) };
    let request = BindRequest { addr: base, len: pages * PAGE_SIZE, policy, flags };
    process.world.on(CPU, |mm| mm.mbind(&process.space, request, true)).map_err(MmError::errno)
}

/// `MPOL_MF_MOVE` moves what only the process maps, `MPOL_MF_MOVE_ALL` the rest.
///
/// With `MPOL_MF_STRICT`, a page that could not be moved is an error, and the policy is set. As in
/// Linux, a page that others map is none (`migrate_folio_add`).
fn mbind_moves_the_pages_of_its_range<I: Isa>() {
    let (world, process) = world_of_two_nodes::<I>();
    world.set(MmSetting::CowPageTables, "always");
    let base = process.map(200, Rights::RW, ANON, None);
    let pages: Vec<_> = (0..200).map(|page| at(base, page)).collect();
    pages.iter().for_each(|va| process.write(CPU, *va, va.raw()));
    let child = process.fork();
    process.write(CPU, pages[0], pages[0].raw());
    let device = process.take(CPU, pages[0], 1, GupCall::Pin(GupFlags::WRITE)).expect("a page");
    assert_eq!(bind(&process, base, 100, BindFlags::MOVE | BindFlags::STRICT), Err(Errno::EIO), "it is pinned");
    device.release(MakeDirty::No);
    assert_eq!(bind(&process, base, 100, BindFlags::MOVE | BindFlags::STRICT), Ok(()), "99 are shared");
    assert_eq!(nodes(&process, &pages[..2]), [Ok(FAR), Ok(NEAR)]);
    assert_eq!(bind(&process, base, 100, BindFlags::MOVE_ALL | BindFlags::STRICT), Ok(()));
    assert_eq!(nodes(&process, &pages[..100]), vec![Ok(FAR); 100]);
    assert_eq!(nodes(&process, &pages[100..]), vec![Ok(NEAR); 100], "pages behind the range");
    assert_eq!(nodes(&child, &pages[..2]), [Ok(NEAR), Ok(FAR)], "the child has its own first page");
    let same = |process: &TestProcess<I>| pages.iter().all(|va| process.read(CPU, *va) == va.raw());
    assert!(same(&process) && same(&child));
    world.recount(&[&process, &child]);
    world.at_rest(&[]);
    [&child, &process].iter().for_each(|process| process.end());
    world.assert_nothing_leaked();
}

fn all_pages_of_a_process_move_from_node_to_node<I: Isa>() {
    let (world, process) = world_of_two_nodes::<I>();
    let (base, other) = (process.anon(100), process.anon(30));
    let pages: Vec<_> = (0..100).map(|page| at(base, page)).chain((0..30).map(|page| at(other, page))).collect();
    pages.iter().for_each(|va| process.write(CPU, *va, va.raw()));
    let device = process.take(CPU, other, 1, GupCall::Pin(GupFlags::WRITE)).expect("a page");
    let moves = |from, to| {
        let (from, to) = (NodeMask::of(from), NodeMask::of(to));
        world.on(CPU, |mm| mm.migrate_pages(&process.space, from, to, false)).expect("memory for the lists")
    };
    assert_eq!((moves(FAR, NEAR), moves(NEAR, NEAR)), (0, 0), "nothing is there, and nothing is to move");
    assert_eq!(world.count(Counter::PgMigrateSuccess), 0);
    assert_eq!(moves(NEAR, FAR), 1, "one page is pinned");
    assert_eq!(nodes(&process, &pages).iter().filter(|node| **node == Ok(FAR)).count(), 129);
    device.release(MakeDirty::No);
    assert_eq!(moves(NEAR, FAR), 0);
    assert_eq!(nodes(&process, &pages), vec![Ok(FAR); 130]);
    // Two nodes to one: as in Linux, what is on that one stays.
    let both = NodeMask::first(2);
    assert_eq!(world.on(CPU, |mm| mm.migrate_pages(&process.space, both, NodeMask::of(FAR), false)), Ok(0));
    assert_eq!(world.on(CPU, |mm| mm.migrate_pages(&process.space, both, both, false)), Ok(0));
    assert_eq!(nodes(&process, &pages), vec![Ok(FAR); 130]);
    pages.iter().for_each(|va| assert_eq!(process.read(CPU, *va), va.raw()));
    world.recount(&[&process]);
    world.at_rest(&[]);
    process.end();
    world.assert_nothing_leaked();
}
