//! The nodes of the pages that faults, forks and files allocate.

use super::{FAR, FRAMES, NEAR, bind, bind_to, node, policy, two_nodes};
use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::{ANON, CPU, GupCall, TestProcess, TestWorld, at};
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_mm::policy::{MemPolicy, PolicyMode, PolicyRequest};
use pagewright_mm::{Advice, FaultError, MapFlags};
use pagewright_tlb::frames::NodeEvent;
use pagewright_types::{Access, Counter, LruList, NodeId, PAGE_SIZE, Rights, VirtAddr};

on_both! {
    pages_obey_the_policy_of_their_mapping,
    pages_obey_the_policy_of_the_task_where_their_mapping_has_none,
    pages_of_a_file_obey_the_task_and_shared_memory_its_mapping,
    a_copy_of_a_pinned_page_obeys_the_policy,
    a_bound_mapping_gets_no_page_of_another_node,
    a_preferred_node_is_followed_by_the_others,
    reclaim_for_a_bound_mapping_spares_the_other_nodes,
    a_full_node_keeps_its_pages_while_another_has_memory,
    allocations_are_counted_for_their_nodes,
}

fn set_task<I: Isa>(world: &TestWorld<I>, policy: PolicyRequest) {
    world.on(CPU, |mm| mm.set_mempolicy(policy)).expect("a policy of the machine's nodes");
}

/// Accesses that make a page of a private mapping, each after the steps that it needs.
fn private_pages<I: Isa>(process: &TestProcess<I>, base: VirtAddr) -> Vec<(&'static str, Option<NodeId>)> {
    let world = &process.world;
    let mut nodes = vec![("a store", node(process, at(base, 0), Access::Write))];
    process.touch(CPU, at(base, 1), Access::Read).expect("the zero page");
    nodes.push(("a store to the zero page", node(process, at(base, 1), Access::Write)));
    process.write(CPU, at(base, 2), 7);
    process.advise(at(base, 2), 1, Advice::PageOut);
    nodes.push(("a page from swap", node(process, at(base, 2), Access::Read)));
    process.advise(at(base, 3), 1, Advice::PopulateWrite);
    nodes.push(("a populated page", node(process, at(base, 3), Access::Read)));
    let child = process.fork();
    nodes.push(("a copy of a shared page", node(&child, at(base, 0), Access::Write)));
    let device = child.take(CPU, at(base, 3), 1, GupCall::Pin(GupFlags::empty())).expect("a page");
    nodes.push(("a page made exclusive", node(&child, at(base, 3), Access::Read)));
    device.release(MakeDirty::No);
    world.on(CPU, |_| ());
    child.end();
    nodes
}

/// INV-POLICY-OBEYED.
pub(super) fn pages_obey_the_policy_of_their_mapping<I: Isa>() {
    let (world, process) = two_nodes::<I>();
    let _device = world.swap_to(64);
    set_task(&world, bind_to(NEAR));
    for mode in [PolicyMode::Bind, PolicyMode::Preferred] {
        let base = process.anon(4);
        bind(&process, base, 4, policy(mode, &[FAR]));
        for (what, node) in private_pages(&process, base) {
            assert_eq!(node, Some(FAR), "{what}, {mode:?}");
        }
        process.unmap(base, 4);
    }
    let file = world.file(4);
    let base = process.map_file(&file, Rights::RW, MapFlags::PRIVATE);
    bind(&process, base, 4, bind_to(FAR));
    assert_eq!(node(&process, base, Access::Write), Some(FAR), "a copy of a file page");
    process.end();
}

/// INV-POLICY-OBEYED.
fn pages_obey_the_policy_of_the_task_where_their_mapping_has_none<I: Isa>() {
    let (world, process) = two_nodes::<I>();
    let _device = world.swap_to(64);
    for (request, expected) in [
        (policy(PolicyMode::Default, &[]), NEAR),
        (policy(PolicyMode::Preferred, &[]), NEAR),
        (policy(PolicyMode::Preferred, &[FAR]), FAR),
        (bind_to(FAR), FAR),
        (policy(PolicyMode::Bind, &[NEAR, FAR]), NEAR),
    ] {
        set_task(&world, request);
        let base = process.anon(4);
        for (what, node) in private_pages(&process, base) {
            assert_eq!(node, Some(expected), "{what}, {request:?}");
        }
        process.unmap(base, 4);
    }
    let last = world.on(CPU, |mm| mm.set_task_policy(MemPolicy::DEFAULT));
    assert_eq!(last.mode(), PolicyMode::Bind, "the embedder gets the policy of the task that leaves the CPU");
    let base = process.anon(1);
    assert_eq!(node(&process, base, Access::Write), Some(NEAR), "another task has no policy");
    process.end();
}

fn pages_of_a_file_obey_the_task_and_shared_memory_its_mapping<I: Isa>() {
    let (world, process) = two_nodes::<I>();
    let (file, shmem) = (world.file(1), world.shmem(2));
    let file_at = process.map_file(&file, Rights::READ, MapFlags::SHARED);
    let shmem_at = process.map_file(&shmem, Rights::RW, MapFlags::SHARED);
    bind(&process, file_at, 1, bind_to(NEAR));
    bind(&process, shmem_at, 2, bind_to(NEAR));
    set_task(&world, bind_to(FAR));
    assert_eq!(node(&process, file_at, Access::Read), Some(FAR), "a page of a file");
    assert_eq!(node(&process, shmem_at, Access::Write), Some(NEAR), "a page of shared memory");
    world.on(CPU, |mm| mm.write_at(&shmem, PAGE_SIZE, &[1])).expect("memory");
    assert_eq!(node(&process, at(shmem_at, 1), Access::Read), Some(FAR), "a page that a write has added");
    process.end();
}

fn a_copy_of_a_pinned_page_obeys_the_policy<I: Isa>() {
    let (_world, process) = two_nodes::<I>();
    let base = process.anon(1);
    process.write(CPU, base, 7);
    bind(&process, base, 1, bind_to(FAR));
    let device = process.take(CPU, base, 1, GupCall::Pin(GupFlags::WRITE)).expect("a page");
    let child = process.fork();
    assert_eq!((node(&process, base, Access::Read), node(&child, base, Access::Read)), (Some(NEAR), Some(FAR)));
    device.release(MakeDirty::No);
    child.end();
    process.end();
}

/// INV-POLICY-OBEYED: a task that may use one node runs out of memory while another node is free.
pub(super) fn a_bound_mapping_gets_no_page_of_another_node<I: Isa>() {
    let (_world, process) = two_nodes::<I>();
    let base = process.anon(2 * FRAMES);
    bind(&process, base, 2 * FRAMES, bind_to(FAR));
    let full = (0..2 * FRAMES).find(|page| match process.touch(CPU, at(base, *page), Access::Write) {
        Ok(()) => {
            assert_eq!(node(&process, at(base, *page), Access::Read), Some(FAR), "page {page}");
            false
        }
        Err(error) => {
            assert!(matches!(error, FaultError::OutOfMemory(_)), "{error}");
            true
        }
    });
    assert!(full.is_some_and(|page| page > FRAMES / 2), "refused at {full:?}");
    let other = process.anon(1);
    assert_eq!(node(&process, other, Access::Write), Some(NEAR), "the near node has memory");
    process.end();
}

fn a_preferred_node_is_followed_by_the_others<I: Isa>() {
    let (_world, process) = two_nodes::<I>();
    let pages = FRAMES * 5 / 4;
    let base = process.anon(pages);
    bind(&process, base, pages, policy(PolicyMode::Preferred, &[FAR]));
    let nodes: Vec<_> = (0..pages).map(|page| node(&process, at(base, page), Access::Write)).collect();
    let first = nodes.iter().position(|node| *node == Some(NEAR)).expect("more pages than the far node has");
    assert!(first as u64 > FRAMES / 2 && nodes[..first].iter().all(|node| *node == Some(FAR)), "{first}");
    process.end();
}

/// Linux: `ac->nodemask` of `shrink_zones`.
fn reclaim_for_a_bound_mapping_spares_the_other_nodes<I: Isa>() {
    const CACHED: u64 = 100;
    let (world, process) = two_nodes::<I>();
    let file = world.file(2 * CACHED);
    let read = |pages: core::ops::Range<u64>, node| {
        set_task(&world, bind_to(node));
        for page in pages {
            world.on(CPU, |mm| mm.read_at(&file, page * PAGE_SIZE, &mut [0; 8])).expect("a good device");
        }
    };
    read(0..CACHED, NEAR);
    read(CACHED..2 * CACHED, FAR);
    let cached = || {
        let of = |node| world.on(CPU, |mm| u64::from(mm.tlb().frames().lru_pages(node, LruList::InactiveFile)));
        (of(NEAR), of(FAR))
    };
    assert_eq!(cached(), (CACHED, CACHED));
    let base = process.anon(2 * FRAMES);
    bind(&process, base, 2 * FRAMES, bind_to(FAR));
    assert!((0..2 * FRAMES).any(|page| process.touch(CPU, at(base, page), Access::Write).is_err()));
    assert_eq!(cached(), (CACHED, 0));
    process.end();
}

/// INV-RECLAIM-WANTED.
pub(super) fn a_full_node_keeps_its_pages_while_another_has_memory<I: Isa>() {
    let (world, process) = two_nodes::<I>();
    let wanted = || [NEAR, FAR].map(|node| world.on(CPU, |mm| mm.needs_balance(node)));
    let base = process.anon(2 * FRAMES);
    let fell_back =
        (0..FRAMES).find(|page| node(&process, at(base, *page), Access::Write) == Some(FAR)).expect("a full node");
    for page in fell_back + 1..fell_back + FRAMES / 2 {
        process.write(CPU, at(base, page), 1);
        assert_eq!(wanted(), [false; 2], "page {page}");
    }
    let bound = process.anon(1);
    bind(&process, bound, 1, bind_to(NEAR));
    process.write(CPU, bound, 1);
    assert_eq!(wanted(), [true, false], "a request that the full node alone may serve");
    world.on(CPU, |mm| mm.balance(NEAR));
    assert_eq!(wanted(), [false; 2], "nothing could be freed, and no request has come since");
    while process.touch(CPU, at(base, 0), Access::Write).is_ok() && wanted() == [false; 2] {
        let more = process.anon(1);
        process.write(CPU, more, 1);
    }
    assert_eq!(wanted(), [true; 2], "every node is low");
    process.end();
}

/// Linux: `zone_statistics`.
fn allocations_are_counted_for_their_nodes<I: Isa>() {
    let (world, process) = two_nodes::<I>();
    let base = process.map_at(VirtAddr::new(1 << 30), 3 * FRAMES, Rights::RW, ANON | MapFlags::FIXED);
    // The tables come first.
    process.write(CPU, at(base, 9), 1);
    let counts = || {
        let of = |node| {
            let events = |at: usize| world.on(CPU, |mm| mm.tlb().frames().node_events(node, NodeEvent::ALL[at]));
            core::array::from_fn::<_, 6, _>(events)
        };
        (of(NEAR), of(FAR))
    };
    let change = |access: &dyn Fn()| {
        let (near, far) = counts();
        access();
        let (near_after, far_after) = counts();
        let less = |after: [u64; 6], before: [u64; 6]| core::array::from_fn::<_, 6, _>(|at| after[at] - before[at]);
        (less(near_after, near), less(far_after, far))
    };
    let [hit, miss, foreign, local, other] =
        [[1, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0], [0, 0, 0, 0, 1, 0], [0, 0, 0, 0, 0, 1]];
    let plus = |one: [u64; 6], two: [u64; 6]| core::array::from_fn::<_, 6, _>(|at| one[at] + two[at]);
    assert_eq!(change(&|| process.write(CPU, at(base, 0), 1)), (plus(hit, local), [0; 6]));
    bind(&process, at(base, 1), 1, bind_to(FAR));
    assert_eq!(change(&|| process.write(CPU, at(base, 1), 1)), ([0; 6], plus(hit, other)));
    let full =
        (2..FRAMES).find(|page| change(&|| process.write(CPU, at(base, *page), 1)) == (foreign, plus(miss, other)));
    assert!(full.is_some_and(|page| page > FRAMES / 2), "the near node is full at {full:?}");
    let sum = |event: NodeEvent| {
        let (near, far) = counts();
        (near[event as usize] + far[event as usize], world.count(event.counter()))
    };
    for event in NodeEvent::ALL.into_iter().take(6) {
        let (nodes, machine) = sum(event);
        assert_eq!(nodes, machine, "{}", event.counter().name());
    }
    assert_eq!(world.count(Counter::NumaMiss), world.count(Counter::NumaForeign));
    process.end();
}
