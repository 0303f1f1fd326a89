//! Walks of the reverse map: how many nodes they visit, and what they find beside forks and exits.
//!
//! INV-RMAP-CURSOR, INV-RMAP-SUPERSET.
//!
//! A page is shared by a process and its children, each with a node of the tree of forks. While one
//! CPU visits all mappings of the page, another ends children and forks others, so nodes become
//! free and are taken over.
//!
//! Not covered: pages of files, whose mappers are visited by id.

use pagewright_arch::Isa;
use pagewright_arch::on_both;
use pagewright_lab::harness::race::{assert_holds, race, race_in_long_turns};
use pagewright_lab::harness::{CPU, OTHER, TestProcess, TestWorld};
use pagewright_lab::planted_bugs_are_found;
use pagewright_sim::explore::CoroutineBody;
use pagewright_types::{Access, Counter, Pfn, SpaceId};
use std::cell::RefCell;
use std::ops::ControlFlow;
use std::rc::Rc;

const SCHEDULES: u64 = 300;
/// The processes that share a page in the test that counts.
const SHARERS: usize = 1000;
/// The children that share a page in a race.
const CHILDREN: usize = 5;

/// The spaces in which a walk finds a page.
fn visited<I: Isa>(world: &TestWorld<I>, pfn: Pfn) -> Vec<SpaceId> {
    let mut visited = Vec::new();
    world.on(CPU, |mm| {
        mm.for_each_mapping(pfn, |mapping| {
            visited.push(mapping.space.id());
            ControlFlow::Continue(())
        });
    });
    visited
}

/// A process, and the frame of a page that it has stored to.
fn with_page<I: Isa>() -> (Rc<TestWorld<I>>, TestProcess<I>, Pfn) {
    let (world, process) = TestProcess::<I>::unjudged();
    let base = process.anon(1);
    process.write(CPU, base, 1);
    let pfn = process.frame(CPU, base, Access::Read);
    (world, process, pfn)
}

fn a_walk_looks_at_each_node_once<I: Isa>() {
    let (world, process, pfn) = with_page::<I>();
    // Half of them are children, the others grandchildren.
    let mut sharers: Vec<TestProcess<I>> = (1..SHARERS / 2).map(|_| process.fork()).collect();
    let grandchildren: Vec<_> = sharers.iter().map(TestProcess::fork).collect();
    sharers.extend(grandchildren);
    sharers.push(process);
    let before = world.count(Counter::PwRmapNodes);
    let mut found = visited(&world, pfn);
    let nodes = world.count(Counter::PwRmapNodes) - before;
    assert_eq!(nodes, sharers.len() as u64, "each sharer has a node");
    let mut expected: Vec<_> = sharers.iter().map(|sharer| sharer.space.id()).collect();
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
    sharers.iter().for_each(TestProcess::end);
    world.assert_nothing_leaked();
}

/// The tree of forks is at most 64 generations deep below its root (`MAX_DEPTH` in `fork_tree`).
fn a_walk_down_a_chain_of_forks_looks_at_65_nodes<I: Isa>() {
    for (forks, nodes) in [(63, 64), (64, 65), (65, 65), (200, 65)] {
        let (world, mut process) = TestProcess::<I>::unjudged();
        let base = process.anon(1);
        process.write(CPU, base, 1);
        for _ in 0..forks {
            let child = process.fork();
            process.end();
            process = child;
        }
        let pfn = process.frame(CPU, base, Access::Read);
        let before = world.count(Counter::PwRmapNodes);
        assert_eq!(visited(&world, pfn), [process.space.id()]);
        assert_eq!(world.count(Counter::PwRmapNodes) - before, nodes, "{forks} forks");
    }
}

/// The last generations of a deep chain have one node together.
fn a_walk_finds_every_space_of_a_node<I: Isa>() {
    let (world, process, pfn) = with_page::<I>();
    let mut chain = vec![process];
    for _ in 0..70 {
        chain.push(chain[chain.len() - 1].fork());
    }
    let expected: Vec<_> = chain.iter().map(|process| process.space.id()).collect();
    let mut found = visited(&world, pfn);
    found.sort_unstable();
    assert_eq!(found, expected);
    chain.iter().for_each(TestProcess::end);
    world.assert_nothing_leaked();
}

/// It gives up the node that it is in, which goes with its space.
fn a_walk_that_stops_leaves_no_node<I: Isa>() {
    let (world, process, pfn) = with_page::<I>();
    let children = [(); 2].map(|()| process.fork());
    for stop_after in 1..=3 {
        let mut left = stop_after;
        world.on(CPU, |mm| {
            mm.for_each_mapping(pfn, |_| {
                left -= 1;
                if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
        });
        assert_eq!(left, 0);
    }
    children.iter().for_each(TestProcess::end);
    let before = world.count(Counter::PwRmapNodes);
    assert_eq!(visited(&world, pfn), [process.space.id()]);
    assert_eq!(world.count(Counter::PwRmapNodes) - before, 1, "those of the children are gone");
    process.end();
    world.assert_nothing_leaked();
}

/// In whichever order they end: a node that stays would be looked at by every later walk.
fn ended_children_leave_no_nodes<I: Isa>() {
    const CHILDREN: usize = 4;
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 2, 0, 3], [2, 0, 3, 1]] {
        let (world, process, pfn) = with_page::<I>();
        let mut left: Vec<_> = (0..CHILDREN).map(|_| Some(process.fork())).collect();
        for ends in order {
            left[ends].take().expect("a child").end();
            let before = world.count(Counter::PwRmapNodes);
            let mut found = visited(&world, pfn);
            let mut expected: Vec<_> =
                left.iter().flatten().chain([&process]).map(|sharer| sharer.space.id()).collect();
            found.sort_unstable();
            expected.sort_unstable();
            assert_eq!(found, expected, "after child {ends} of {order:?}");
            assert_eq!(world.count(Counter::PwRmapNodes) - before, expected.len() as u64);
        }
        process.end();
        world.assert_nothing_leaked();
    }
}

/// One CPU walks, and one ends two children and forks two of the others.
///
/// Returns whether the walk has found each space that mapped the page all the time.
fn walk_beside_forks<I: Isa>(seed: u64) -> bool {
    let world = TestWorld::<I>::new(2);
    let process = TestProcess::new(&world);
    let base = process.anon(1);
    process.write(CPU, base, 1);
    let pfn = process.frame(CPU, base, Access::Read);
    let children: Vec<_> = (0..CHILDREN).map(|_| process.fork()).collect();
    let pick = |round: u64| (seed / 5u64.pow(round as u32) % CHILDREN as u64) as usize;
    let ended = [pick(0), (pick(0) + 1 + pick(1) % (CHILDREN - 1)) % CHILDREN];
    let forks: Vec<usize> = [pick(2), pick(3)].into_iter().filter(|forks| !ended.contains(forks)).collect();

    let (found, new) = (Rc::new(RefCell::new(Vec::new())), Rc::new(RefCell::new(Vec::new())));
    let (walks, acts, into, made) = (world.clone(), world.clone(), found.clone(), new.clone());
    let spaces: Vec<_> = children.iter().map(|child| child.space.clone()).collect();
    let forked = forks.clone();
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || *into.borrow_mut() = visited(&walks, pfn)),
        Box::new(move || {
            for (round, end) in ended.into_iter().enumerate() {
                acts.on(OTHER, |mm| mm.end_space(&spaces[end]));
                if let Some(parent) = forked.get(round) {
                    let child = acts.on(OTHER, |mm| mm.fork(&spaces[*parent])).expect("memory");
                    made.borrow_mut().push(child);
                }
            }
        }),
    ];
    if seed.is_multiple_of(3) {
        race_in_long_turns(&world, seed, programs)
    } else {
        race(&world, seed, programs)
    }

    let stay = (0..CHILDREN).filter(|child| !ended.contains(child)).map(|child| children[child].space.id());
    let complete = stay.chain([process.space.id()]).all(|space| found.borrow().contains(&space));
    for space in new.take() {
        world.on(CPU, |mm| mm.end_space(&space));
    }
    let alive = (0..CHILDREN).filter(|child| !ended.contains(child));
    alive.for_each(|child| children[child].end());
    process.end();
    world.at_rest(&[]);
    complete
}

fn a_walk_finds_every_space_that_stays_beside_forks_and_exits<I: Isa>() {
    assert_holds(SCHEDULES, walk_beside_forks::<I>, "a walk of the reverse map has missed a space");
}

on_both! {
    a_walk_looks_at_each_node_once,
    a_walk_down_a_chain_of_forks_looks_at_65_nodes,
    a_walk_finds_every_space_of_a_node,
    a_walk_that_stops_leaves_no_node,
    ended_children_leave_no_nodes,
    a_walk_finds_every_space_that_stays_beside_forks_and_exits,
}

planted_bugs_are_found! {
    20 * SCHEDULES;
    WalkLosesPlace => walk_beside_forks,
}
