//! `set_mempolicy`, `get_mempolicy` and `mbind`: what they change, report and refuse.

use super::{FAR, NEAR, bind, bind_to, mbind, modes, node, policy, two_nodes};
use core::ops::ControlFlow;
use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::{ANON, CPU, TestProcess, at};
use pagewright_mm::policy::{PolicyFlags, PolicyMode, PolicyQuery, PolicyReport, PolicyRequest};
use pagewright_mm::space::{BindFlags, BindRequest};
use pagewright_mm::{MapFlags, MmError, MmSetting, RemapFlags, RemapRequest};
use pagewright_types::{Access, Counter, Errno, NodeId, NodeMask, PAGE_SIZE, PageRange, Rights, VirtAddr};

on_both! {
    a_policy_covers_the_pages_that_the_call_named,
    a_policy_is_kept_through_fork_and_mremap,
    a_policy_of_a_mapping_breaks_the_tables_that_other_spaces_share,
    a_default_policy_without_an_end_changes_nothing_but_what_it_covers,
    a_default_policy_moves_pages_to_the_node_of_the_caller,
    strict_refuses_pages_on_other_nodes,
    a_misplaced_page_is_shared_if_another_space_reaches_it,
    mbind_refuses_what_linux_refuses_and_changes_nothing,
    get_mempolicy_reports_the_task_the_mapping_and_the_node_of_a_page,
}

const DEFAULT: (PolicyMode, u64) = (PolicyMode::Default, 0);
const ON_FAR: (PolicyMode, u64) = (PolicyMode::Bind, 0b10);
const ON_NEAR: (PolicyMode, u64) = (PolicyMode::Bind, 0b01);

/// INV-POLICY-VMA.
pub(super) fn a_policy_covers_the_pages_that_the_call_named<I: Isa>() {
    let (_world, process) = two_nodes::<I>();
    let base = process.anon(6);
    let before = process.mappings();
    bind(&process, at(base, 2), 2, bind_to(FAR));
    assert_eq!(modes(&process, base, 6), [DEFAULT, DEFAULT, ON_FAR, ON_FAR, DEFAULT, DEFAULT]);
    assert_eq!(process.mappings(), before + 2);
    bind(&process, at(base, 4), 1, bind_to(FAR));
    assert_eq!(process.mappings(), before + 2, "equal policies merge");
    bind(&process, at(base, 3), 1, bind_to(NEAR));
    assert_eq!(modes(&process, base, 6), [DEFAULT, DEFAULT, ON_FAR, ON_NEAR, ON_FAR, DEFAULT]);
    assert_eq!(process.mappings(), before + 4);
    // A new mapping beside one with a policy has none.
    let beside = process.map_at(at(base, 6), 1, Rights::RW, ANON | MapFlags::FIXED);
    assert_eq!(modes(&process, beside, 1), [DEFAULT]);
    bind(&process, base, 6, policy(PolicyMode::Default, &[]));
    assert_eq!((modes(&process, base, 7), process.mappings()), (vec![DEFAULT; 7], before));
    process.end();
}

fn a_policy_is_kept_through_fork_and_mremap<I: Isa>() {
    let (world, process) = two_nodes::<I>();
    let base = process.anon(4);
    bind(&process, at(base, 1), 2, bind_to(FAR));
    let child = process.fork();
    assert_eq!(modes(&child, base, 4), [DEFAULT, ON_FAR, ON_FAR, DEFAULT]);
    bind(&child, base, 4, bind_to(NEAR));
    assert_eq!(modes(&process, base, 4), [DEFAULT, ON_FAR, ON_FAR, DEFAULT], "the child's policy is its own");
    child.end();
    let request = RemapRequest {
        addr: at(base, 1),
        old_len: 2 * PAGE_SIZE,
        new_len: 4 * PAGE_SIZE,
        flags: RemapFlags::MAYMOVE,
        new_addr: VirtAddr::ZERO,
    };
    let moved = world.on(CPU, |mm| mm.mremap(&process.space, &request)).expect("room");
    assert_eq!(modes(&process, moved, 4), [ON_FAR; 4]);
    assert_eq!(node(&process, at(moved, 3), Access::Write), Some(FAR));
    process.end();
}

/// INV-POLICY-SHARED.
pub(super) fn a_policy_of_a_mapping_breaks_the_tables_that_other_spaces_share<I: Isa>() {
    let (world, process) = two_nodes::<I>();
    world.set(MmSetting::CowPageTables, "always");
    let base = process.map_at(VirtAddr::new(1 << 30), 4, Rights::RW, ANON | MapFlags::FIXED);
    process.write(CPU, base, 1);
    let child = process.fork();
    let broken = || world.count(Counter::PwTableBroken);
    let before = broken();
    assert!(world.count(Counter::PwTableShared) > 0, "the fork shares tables");
    bind(&child, base, 4, bind_to(FAR));
    assert!(broken() > before, "the policy is the child's, so its tables are too");
    let before = broken();
    bind(&child, base, 4, bind_to(FAR));
    assert_eq!(node(&child, at(base, 1), Access::Write), Some(FAR));
    assert_eq!(node(&process, at(base, 1), Access::Write), Some(NEAR));
    assert_eq!(broken(), before, "nothing was shared any more");
    child.end();
    process.end();
}

/// The range ends far beyond user memory, where addresses have no entries of their own.
fn a_default_policy_without_an_end_changes_nothing_but_what_it_covers<I: Isa>() {
    let (world, process) = two_nodes::<I>();
    world.set(MmSetting::CowPageTables, "always");
    let [below, base] = [1 << 30, 2 << 30].map(|at| {
        let base = process.map_at(VirtAddr::new(at), 4, Rights::RW, ANON | MapFlags::FIXED);
        process.write(CPU, base, 1);
        base
    });
    bind(&process, base, 1, bind_to(FAR));
    let broken = [4 * PAGE_SIZE, 1 << 48].map(|len| {
        let child = process.fork();
        let broken = world.count(Counter::PwTableBroken);
        let (policy, flags) = (policy(PolicyMode::Default, &[]), BindFlags::empty());
        let request = BindRequest { addr: base, len, policy, flags };
        assert_eq!(world.on(CPU, |mm| mm.mbind(&child.space, request, false)), Ok(()));
        assert_eq!((modes(&child, base, 4), modes(&process, base, 1)), (vec![DEFAULT; 4], vec![ON_FAR]));
        child.end();
        world.count(Counter::PwTableBroken) - broken
    });
    assert_eq!(broken[0], broken[1], "the table of {below} stays shared");
    process.end();
}

/// Linux: `queue_pages_range` with no node takes every page.
fn a_default_policy_moves_pages_to_the_node_of_the_caller<I: Isa>() {
    let (_world, process) = two_nodes::<I>();
    let base = process.anon(2);
    bind(&process, base, 2, bind_to(FAR));
    (0..2).for_each(|page| process.write(CPU, at(base, page), page + 1));
    let flags = BindFlags::MOVE | BindFlags::STRICT;
    assert_eq!(mbind(&process, base, 2, policy(PolicyMode::Default, &[]), flags), Ok(()));
    let nodes = [0, 1].map(|page| node(&process, at(base, page), Access::Read));
    assert_eq!((nodes, process.read(CPU, at(base, 1))), ([Some(NEAR); 2], 2));
    process.end();
}

fn strict_refuses_pages_on_other_nodes<I: Isa>() {
    let (world, process) = two_nodes::<I>();
    let base = process.anon(4);
    process.write(CPU, at(base, 2), 1);
    process.touch(CPU, at(base, 1), Access::Read).expect("the zero page");
    let strict = |policy| mbind(&process, base, 4, policy, BindFlags::STRICT);
    let misplaced = MmError::Misplaced { at: at(base, 2), node: NEAR };
    assert_eq!((strict(bind_to(FAR)), misplaced.errno()), (Err(misplaced), Errno::EIO));
    assert_eq!(modes(&process, base, 4), [DEFAULT; 4], "nothing has changed");
    assert_eq!(strict(policy(PolicyMode::Bind, &[NEAR, FAR])), Ok(()));
    // As in Linux, a policy that names no node misplaces every page.
    assert_eq!(strict(policy(PolicyMode::Preferred, &[])), Err(misplaced));
    assert_eq!(strict(policy(PolicyMode::Default, &[])), Ok(()));
    // A child sees the same pages through tables that it shares.
    world.set(MmSetting::CowPageTables, "always");
    let child = process.fork();
    assert_eq!(mbind(&child, base, 4, bind_to(FAR), BindFlags::STRICT), Err(misplaced));
    child.end();
    process.end();
}

/// The pages of four that are not on [`FAR`], each with its node and whether it is shared.
fn misplaced<I: Isa>(process: &TestProcess<I>, base: VirtAddr) -> Vec<(u64, NodeId, bool)> {
    let mut found = Vec::new();
    let map = process.space.map().read();
    process.world.on(CPU, |mm| {
        let range = PageRange::new(base, at(base, 4));
        let _ = mm.for_each_misplaced((&map, map.tables(mm.tlb())), range, NodeMask::of(FAR), |_, page| {
            assert_eq!(mm.tlb().frames().node_of(page.folio.pfn()), Some(page.node));
            found.push((page.va.since(base) / PAGE_SIZE, page.node, page.is_shared));
            ControlFlow::<()>::Continue(())
        });
    });
    found
}

/// Below a table that spaces share, a mapcount of 1 stands for all of them.
fn a_misplaced_page_is_shared_if_another_space_reaches_it<I: Isa>() {
    for setting in ["never", "always"] {
        let (world, process) = two_nodes::<I>();
        world.set(MmSetting::CowPageTables, setting);
        let base = process.map_at(VirtAddr::new(1 << 30), 4, Rights::RW, ANON | MapFlags::FIXED);
        process.write(CPU, base, 1);
        process.touch(CPU, at(base, 1), Access::Read).expect("the zero page");
        bind(&process, at(base, 2), 1, bind_to(FAR));
        process.write(CPU, at(base, 2), 1);
        process.write(CPU, at(base, 3), 1);
        let alone = [(0, NEAR, false), (3, NEAR, false)];
        assert_eq!(misplaced(&process, base), alone, "{setting}");
        let child = process.fork();
        let shared = [(0, NEAR, true), (3, NEAR, true)];
        assert_eq!(
            (misplaced(&process, base), misplaced(&child, base)),
            (shared.to_vec(), shared.to_vec()),
            "{setting}"
        );
        child.end();
        assert_eq!(misplaced(&process, base), alone, "{setting}");
        process.end();
    }
}

/// The order of checks in `kernel_mbind`, `do_mbind` and `queue_pages_test_walk`.
fn mbind_refuses_what_linux_refuses_and_changes_nothing<I: Isa>() {
    let (world, process) = two_nodes::<I>();
    let base = process.anon(8);
    process.unmap(at(base, 4), 1);
    let before = process.mappings();
    let none = BindFlags::empty();
    let unknown = BindFlags::from_bits_retain(8);
    let default = policy(PolicyMode::Default, &[]);
    let absent = policy(PolicyMode::Bind, &[NodeId::new(2)]);
    let off = base.add(1);
    let huge = u64::MAX - PAGE_SIZE;
    let rows = [
        ("unknown flags come first", off, PAGE_SIZE, absent, unknown | BindFlags::MOVE_ALL, Err(Errno::EINVAL)),
        ("MOVE_ALL needs a privilege", off, PAGE_SIZE, absent, BindFlags::MOVE_ALL, Err(Errno::EPERM)),
        ("misaligned", off, PAGE_SIZE, bind_to(FAR), none, Err(Errno::EINVAL)),
        ("the range wraps", base, huge, bind_to(FAR), none, Err(Errno::EINVAL)),
        ("an empty range precedes the nodes", base, 0, absent, none, Ok(())),
        ("a length that wraps to 0", base, u64::MAX, absent, none, Ok(())),
        ("no such node", base, PAGE_SIZE, absent, none, Err(Errno::EINVAL)),
        ("the default takes no nodes", base, PAGE_SIZE, policy(PolicyMode::Default, &[NEAR]), none, Err(Errno::EINVAL)),
        ("a hole", base, 8 * PAGE_SIZE, bind_to(FAR), none, Err(Errno::EFAULT)),
        ("a hole, strictly", base, 8 * PAGE_SIZE, bind_to(FAR), BindFlags::STRICT, Err(Errno::EFAULT)),
        ("a hole, for the default", base, 8 * PAGE_SIZE, default, BindFlags::STRICT, Ok(())),
        ("nothing but a hole", at(base, 4), PAGE_SIZE, default, none, Err(Errno::EFAULT)),
    ];
    for (what, addr, len, policy, flags, expected) in rows {
        let request = BindRequest { addr, len, policy, flags };
        let result = world.on(CPU, |mm| mm.mbind(&process.space, request, false));
        assert_eq!(result.map_err(MmError::errno), expected, "{what}");
        assert_eq!((modes(&process, base, 4), process.mappings()), (vec![DEFAULT; 4], before), "{what}");
    }
    let request = BindRequest { addr: base, len: PAGE_SIZE, policy: bind_to(FAR), flags: BindFlags::MOVE_ALL };
    let privileged = world.on(CPU, |mm| mm.mbind(&process.space, request, true));
    assert_eq!(privileged.map_err(MmError::errno), Ok(()));
    process.end();
}

fn report<I: Isa>(process: &TestProcess<I>, addr: VirtAddr, query: PolicyQuery) -> Result<(u32, u64), Errno> {
    let report = process.world.on(CPU, |mm| mm.get_mempolicy(&process.space, addr, query));
    report.map(|PolicyReport { value, nodes }| (value, nodes.word())).map_err(MmError::errno)
}

/// The order of checks in `do_get_mempolicy`.
fn get_mempolicy_reports_the_task_the_mapping_and_the_node_of_a_page<I: Isa>() {
    let (world, process) = two_nodes::<I>();
    let base = process.anon(3);
    let flags = PolicyFlags::STATIC_NODES;
    let request = PolicyRequest { mode: PolicyMode::Bind, flags, nodes: NodeMask::from_word(0b111) };
    world.on(CPU, |mm| mm.set_mempolicy(request)).expect("two nodes exist");
    bind(&process, at(base, 1), 1, policy(PolicyMode::Preferred, &[NEAR, FAR]));
    let (none, node, addr) = (PolicyQuery::empty(), PolicyQuery::NODE, PolicyQuery::ADDR);
    let zero = VirtAddr::ZERO;
    assert_eq!(report(&process, zero, none), Ok((2 | 1 << 15, 0b111)), "a static policy reports what the call named");
    assert_eq!(report(&process, zero, PolicyQuery::MEMS_ALLOWED), Ok((0, 0b11)));
    assert_eq!(report(&process, at(base, 1), addr), Ok((1, 0b01)));
    assert_eq!(report(&process, base, addr), Ok((0, 0)), "a mapping without a policy, whatever the task has");
    process.write(CPU, base, 1);
    bind(&process, at(base, 2), 1, bind_to(FAR));
    process.write(CPU, at(base, 2), 1);
    assert_eq!(report(&process, base.add(8), addr | node), Ok((0, 0)), "the node of the page");
    assert_eq!(report(&process, at(base, 2), addr | node), Ok((1, 0b10)));
    for (what, at, query, errno) in [
        ("unknown flags", zero, PolicyQuery::from_bits_retain(8), Errno::EINVAL),
        ("an address without its flag", base, none, Errno::EINVAL),
        ("two questions", zero, PolicyQuery::MEMS_ALLOWED | node, Errno::EINVAL),
        ("the next node of a policy that interleaves not", zero, node, Errno::EINVAL),
        ("a hole", zero, addr, Errno::EFAULT),
        ("a hole has no node", zero, addr | node, Errno::EFAULT),
    ] {
        assert_eq!(report(&process, at, query), Err(errno), "{what}");
    }
    process.protect(base, 1, Rights::empty());
    assert_eq!(report(&process, base, addr | node), Err(Errno::EFAULT), "a page that may not be read");
    let bad = PolicyRequest { mode: PolicyMode::Bind, flags: PolicyFlags::empty(), nodes: NodeMask::from_word(0b100) };
    assert_eq!(world.on(CPU, |mm| mm.set_mempolicy(bad)).map_err(MmError::errno), Err(Errno::EINVAL));
    assert_eq!(report(&process, zero, none), Ok((2 | 1 << 15, 0b111)), "a policy that is refused changes nothing");
    process.end();
}
