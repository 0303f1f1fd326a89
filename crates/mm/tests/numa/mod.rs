//! Hint faults: which pages a scan makes inaccessible, which of them move, and what they get back.

mod beside;
mod promotion;
mod sharers;

use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::{ANON, CPU, GupCall, OTHER, TestProcess, TestWorld, at, one_node_machine};
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_mm::policy::{PolicyFlags, PolicyMode, PolicyRequest};
use pagewright_mm::space::{BindFlags, BindRequest, ClearRefs};
use pagewright_mm::view::{PagemapEntry, PagemapFlags};
use pagewright_mm::{MapFlags, MmSetting};
use pagewright_sim::NodeConfig;
use pagewright_types::{Access, Counter, CpuId, CpuMask, NodeId, NodeMask, PAGE_SIZE, PageRange, Rights, VirtAddr};
use std::rc::Rc;

on_both! {
    a_hint_gets_back_the_rights_of_its_mapping,
    a_mapping_without_rights_has_no_hints,
    nothing_is_scanned_without_a_tick_or_without_the_setting,
    a_page_follows_the_node_that_uses_it_twice,
    a_page_of_the_node_of_a_single_thread_is_left_alone,
    a_policy_that_binds_keeps_its_pages_unless_it_balances,
    a_page_that_is_pinned_is_left_alone,
    a_pin_takes_the_page_of_a_hint,
    a_scan_goes_on_where_the_last_one_ended,
    the_period_adapts_to_what_the_faults_find,
    a_hint_of_a_page_whose_stores_are_tracked_faults_for_the_first_store,
}

pub(super) const NEAR: NodeId = NodeId::new(0);
pub(super) const FAR: NodeId = NodeId::new(1);
/// A CPU of the second node, where that has one.
const FAR_CPU: CpuId = CpuId::new(2);
/// More than a scan period, in ms.
pub(super) const PERIOD: u64 = 100_000;

/// The steps of a test: scans at times that are far apart.
pub(super) struct Clock<I: Isa> {
    world: Rc<TestWorld<I>>,
    pub(super) now: std::cell::Cell<u64>,
}

impl<I: Isa> Clock<I> {
    /// Starts the clock of a process, whose first scan is due from now on.
    pub(super) fn start(process: &TestProcess<I>, mode: &str) -> Self {
        let world = Rc::clone(&process.world);
        world.set(MmSetting::NumaBalancing, mode);
        world.set(MmSetting::NumaScanDelayMs, "0");
        let clock = Self { world, now: std::cell::Cell::new(1) };
        clock.tick(process);
        clock
    }

    fn tick(&self, process: &TestProcess<I>) {
        self.world.lab.run(CPU, &process.space);
        self.world.on(CPU, |mm| mm.numa_tick(&process.space, self.now.get()));
    }

    /// Scans a part of the process; returns how many leaves became hints.
    pub(super) fn scan(&self, process: &TestProcess<I>) -> u64 {
        let before = self.world.count(Counter::NumaPteUpdates);
        self.now.set(self.now.get() + PERIOD);
        self.tick(process);
        self.world.count(Counter::NumaPteUpdates) - before
    }

    /// Lets time pass without a scan.
    pub(super) fn wait(&self, process: &TestProcess<I>, ms: u64) {
        self.world.set(MmSetting::NumaBalancing, "0");
        self.now.set(self.now.get() + ms);
        self.tick(process);
        self.world.set(MmSetting::NumaBalancing, "2");
    }
}

/// The node of a page.
pub(super) fn node<I: Isa>(process: &TestProcess<I>, va: VirtAddr) -> NodeId {
    let mut found = None;
    process.world.on(CPU, |mm| mm.page_nodes(&process.space, &[va], |_, status| found = status.ok()));
    found.expect("a page in memory")
}

/// Moves pages to a node.
pub(super) fn move_to<I: Isa>(process: &TestProcess<I>, base: VirtAddr, pages: u64, node: NodeId) {
    let wanted: Vec<_> = (0..pages).map(|page| (at(base, page), node)).collect();
    let moved = process.world.on(CPU, |mm| mm.move_pages(&process.space, &wanted, true, |_, _| {}));
    assert_eq!(moved, Ok(0));
}

/// A fast node with the CPUs, a slow one, and a process with written pages on the slow one.
pub(super) fn slow_pages<I: Isa>(pages: u64) -> (Rc<TestWorld<I>>, TestProcess<I>, VirtAddr) {
    let world = TestWorld::<I>::two_nodes(2, 4 << 20);
    let process = TestProcess::new(&world);
    let base = process.map(pages, Rights::RW, ANON, None);
    (0..pages).for_each(|page| process.write(CPU, at(base, page), 10 + page));
    move_to(&process, base, pages, FAR);
    (world, process, base)
}

/// Two nodes with CPUs: two of the first, and [`FAR_CPU`].
fn two_sockets<I: Isa>() -> (Rc<TestWorld<I>>, TestProcess<I>) {
    let mut config = one_node_machine::<I>(3, 4 << 20);
    config.nodes.push(NodeConfig { bytes: 4 << 20, cpus: CpuMask::of(FAR_CPU) });
    let world = TestWorld::on_machine(config);
    let process = TestProcess::new(&world);
    (world, process)
}

fn faults<I: Isa>(world: &TestWorld<I>) -> [u64; 3] {
    [Counter::NumaHintFaults, Counter::NumaHintFaultsLocal, Counter::NumaPagesMigrated].map(|count| world.count(count))
}

/// INV-NUMA-HINT.
fn a_hint_gets_back_the_rights_of_its_mapping<I: Isa>() {
    let (world, process, base) = slow_pages::<I>(3);
    process.protect(at(base, 2), 1, Rights::READ);
    let clock = Clock::start(&process, "2");
    assert_eq!(clock.scan(&process), 3);
    assert_eq!(clock.scan(&process), 0, "they are hints already");
    let pages = world.count(Counter::PgFault);
    assert_eq!(process.read(CPU, base), 10);
    process.write(CPU, base, 20);
    process.write(CPU, at(base, 1), 21);
    assert_eq!(process.read(CPU, at(base, 2)), 12);
    assert_eq!(world.count(Counter::PgFault) - pages, 3, "one fault for each page, also if it is only read first");
    assert!(process.touch(CPU, at(base, 2), Access::Write).is_err(), "the mapping is read-only");
    assert_eq!((process.read(CPU, base), process.read(CPU, at(base, 1))), (20, 21));
    assert_eq!(faults(&world)[..2], [3, 0]);
    world.recount(&[&process]);
    process.end();
    world.at_rest(&[]);
    world.assert_nothing_leaked();
}

fn a_mapping_without_rights_has_no_hints<I: Isa>() {
    let (world, process, base) = slow_pages::<I>(2);
    let clock = Clock::start(&process, "2");
    process.protect(base, 1, Rights::empty());
    assert_eq!(clock.scan(&process), 1);
    assert!(process.touch(CPU, base, Access::Read).is_err());
    assert_eq!(faults(&world), [0; 3], "a refused access is no hint fault");
    process.protect(at(base, 1), 1, Rights::empty());
    assert!(process.touch(CPU, at(base, 1), Access::Read).is_err(), "the hint has ended");
    process.protect(base, 2, Rights::RW);
    let before = world.count(Counter::PgFault);
    (0..2).for_each(|page| process.write(CPU, at(base, page), 30));
    assert_eq!((world.count(Counter::PgFault) - before, faults(&world)[0]), (0, 0));
    TestProcess::end_all_at_rest(&[&process]);
}

fn nothing_is_scanned_without_a_tick_or_without_the_setting<I: Isa>() {
    let (world, process, base) = slow_pages::<I>(1);
    world.set(MmSetting::NumaBalancing, "2");
    assert_eq!(process.read(CPU, base), 10);
    assert_eq!(world.count(Counter::NumaPteUpdates), 0, "no clock has told the time");
    let clock = Clock::start(&process, "0");
    assert_eq!(clock.scan(&process), 0);
    world.set(MmSetting::NumaBalancing, "2");
    world.set(MmSetting::NumaScanDelayMs, "1000");
    let tick = |ms: u64| world.on(CPU, |mm| mm.numa_tick(&process.space, clock.now.get() + ms));
    [1, 2, 1000].iter().for_each(|ms| tick(*ms));
    assert_eq!(world.count(Counter::NumaPteUpdates), 0, "the first scan is delayed");
    tick(1001);
    assert_eq!(world.count(Counter::NumaPteUpdates), 1);
    TestProcess::end_all_at_rest(&[&process]);
}

/// `should_numa_migrate_memory`.
fn a_page_follows_the_node_that_uses_it_twice<I: Isa>() {
    let (world, process) = two_sockets::<I>();
    let base = process.map(1, Rights::RW, ANON, None);
    process.write(CPU, base, 7);
    world.lab.run(FAR_CPU, &process.space);
    let clock = Clock::start(&process, "1");
    let used_by = |cpu: CpuId| {
        assert_eq!(clock.scan(&process), 1);
        assert_eq!(process.read(cpu, base), 7);
        node(&process, base)
    };
    assert_eq!(used_by(FAR_CPU), FAR, "nothing was known of its users");
    assert_eq!(used_by(CPU), FAR, "another node used it last");
    assert_eq!(used_by(CPU), NEAR);
    assert_eq!(used_by(FAR_CPU), NEAR, "nodes that take turns leave it where it is");
    assert_eq!(used_by(CPU), NEAR);
    assert_eq!(used_by(OTHER), NEAR);
    assert_eq!(used_by(FAR_CPU), FAR, "uses by the node of the page are not noted");
    assert_eq!(faults(&world), [7, 2, 3]);
    assert_eq!(world.count(Counter::PgPromoteSuccess), 0, "both nodes are of the top tier");
    world.recount(&[&process]);
    TestProcess::end_all_at_rest(&[&process]);
}

fn a_page_of_the_node_of_a_single_thread_is_left_alone<I: Isa>() {
    let (_, process) = two_sockets::<I>();
    let base = process.map(2, Rights::RW, ANON, None);
    (0..2).for_each(|page| process.write(CPU, at(base, page), 7));
    move_to(&process, base, 1, FAR);
    let clock = Clock::start(&process, "1");
    assert_eq!(clock.scan(&process), 1, "the page on the other node");
    TestProcess::end_all_at_rest(&[&process]);
}

/// `vma_policy_mof`.
fn a_policy_that_binds_keeps_its_pages_unless_it_balances<I: Isa>() {
    let (world, process, base) = slow_pages::<I>(2);
    for (page, flags) in [(0, PolicyFlags::empty()), (1, PolicyFlags::NUMA_BALANCING)] {
        let nodes = NodeMask::first(2);
        let policy = PolicyRequest { mode: PolicyMode::Bind, flags, nodes };
        let request = BindRequest { addr: at(base, page), len: PAGE_SIZE, policy, flags: BindFlags::empty() };
        world.on(CPU, |mm| mm.mbind(&process.space, request, false)).expect("mapped");
    }
    let clock = Clock::start(&process, "2");
    assert_eq!(clock.scan(&process), 1);
    (0..2).for_each(|page| assert_eq!(process.read(CPU, at(base, page)), 10 + page));
    assert_eq!([0, 1].map(|page| node(&process, at(base, page))), [FAR, NEAR]);
    TestProcess::end_all_at_rest(&[&process]);
}

/// `folio_maybe_dma_pinned` in `change_pte_range`; a reference keeps a page where it is.
fn a_page_that_is_pinned_is_left_alone<I: Isa>() {
    let (world, process, base) = slow_pages::<I>(2);
    let clock = Clock::start(&process, "2");
    let pin = |page| process.take(CPU, at(base, page), 1, GupCall::Pin(GupFlags::WRITE)).expect("a page");
    let device = pin(0);
    assert_eq!(clock.scan(&process), 1, "the page that no device has");
    device.agrees(&process, CPU, base, 10);
    let late = process.take(CPU, at(base, 1), 1, GupCall::Get(GupFlags::empty())).expect("a page");
    assert_eq!(process.read(CPU, at(base, 1)), 11);
    assert_eq!(node(&process, at(base, 1)), FAR, "a reference keeps it");
    assert_eq!(faults(&world)[2], 0);
    device.release(MakeDirty::Yes);
    late.release(MakeDirty::No);
    TestProcess::end_all_at_rest(&[&process]);
}

fn a_pin_takes_the_page_of_a_hint<I: Isa>() {
    for call in [
        GupCall::Pin(GupFlags::WRITE),
        GupCall::Pin(GupFlags::empty()),
        GupCall::PinFast(GupFlags::WRITE),
        GupCall::PinFast(GupFlags::empty()),
        GupCall::GetFast(GupFlags::empty()),
    ] {
        let (_, process, base) = slow_pages::<I>(1);
        let clock = Clock::start(&process, "2");
        assert_eq!(clock.scan(&process), 1);
        let device = process.take(CPU, base, 1, call).expect("a page");
        device.agrees(&process, CPU, base, 10);
        device.release(MakeDirty::No);
        TestProcess::end_all_at_rest(&[&process]);
    }
}

/// `mm->numa_scan_offset`.
fn a_scan_goes_on_where_the_last_one_ended<I: Isa>() {
    let world = TestWorld::<I>::two_nodes(2, 16 << 20);
    let process = TestProcess::new(&world);
    // Three tables, of one part each.
    let base = process.map_at(VirtAddr::new(1 << 30), 1536, Rights::RW, ANON | MapFlags::FIXED);
    (0..1536).step_by(2).for_each(|page| process.write(CPU, at(base, page), 1));
    (0..3).for_each(|part| {
        let pages: Vec<_> = (0..256).map(|page| (at(base, 512 * part + 2 * page), FAR)).collect();
        assert_eq!(world.on(CPU, |mm| mm.move_pages(&process.space, &pages, true, |_, _| {})), Ok(0));
    });
    let clock = Clock::start(&process, "2");
    world.set(MmSetting::NumaScanSizeMb, "2");
    assert_eq!([0; 5].map(|_| clock.scan(&process)), [256, 256, 256, 0, 0]);
    process.unmap(base, 1024);
    process.read(CPU, at(base, 1024));
    assert_eq!([0; 2].map(|_| clock.scan(&process)).iter().sum::<u64>(), 1);
    TestProcess::end_all_at_rest(&[&process]);
}

/// `update_task_scan_period`, with periods from 1,000 to 60,000 ms.
fn the_period_adapts_to_what_the_faults_find<I: Isa>() {
    let (world, process) = two_sockets::<I>();
    let base = process.map(20, Rights::RW, ANON, None);
    (0..20).for_each(|page| process.write(CPU, at(base, page), 7));
    world.lab.run(FAR_CPU, &process.space);
    let clock = Clock::start(&process, "1");
    let updates = || world.count(Counter::NumaPteUpdates);
    // The time until the next scan, in ms.
    let until_scan = || {
        let before = updates();
        (1..100_000).find(|_| {
            clock.now.set(clock.now.get() + 1);
            clock.tick(&process);
            updates() > before
        })
    };
    assert_eq!(until_scan(), Some(1));
    // Local faults by the CPU that allocated: nothing was known, so they count as private.
    let use_by = |cpu: CpuId, pages: std::ops::Range<u64>| {
        pages.for_each(|page| assert_eq!(process.read(cpu, at(base, page)), 7));
    };
    use_by(CPU, 0..20);
    // The first fault of the round decides alone: local and private, so the period grows by 30 %.
    assert_eq!(until_scan(), Some(1000), "this one was due already");
    use_by(CPU, 0..20);
    let grown = until_scan();
    assert_eq!(grown, Some(1300));
    // Pages that the other node uses now and then: remote and shared.
    use_by(FAR_CPU, 0..20);
    use_by(CPU, 0..20);
    let periods = [(); 6].map(|()| {
        let period = until_scan().expect("a scan");
        use_by(FAR_CPU, 0..10);
        use_by(CPU, 10..20);
        period
    });
    assert!(periods.iter().all(|period| (1000..=60_000).contains(period)), "{periods:?}");
    TestProcess::end_all_at_rest(&[&process]);
}

/// INV-SOFT-DIRTY.
fn a_hint_of_a_page_whose_stores_are_tracked_faults_for_the_first_store<I: Isa>() {
    let (world, process, base) = slow_pages::<I>(1);
    let clock = Clock::start(&process, "2");
    world.on(CPU, |mm| mm.clear_refs(&process.space, ClearRefs::SoftDirty)).expect("memory");
    assert_eq!(clock.scan(&process), 1);
    assert_eq!(process.read(CPU, base), 10);
    let is_dirty = || {
        let mut dirty = false;
        let seen = |_, entry: PagemapEntry| dirty = entry.flags().contains(PagemapFlags::SOFT_DIRTY);
        world.on(CPU, |mm| mm.pagemap(&process.space, PageRange::page(base), seen));
        dirty
    };
    assert!(!is_dirty(), "only a load has been served");
    process.write(CPU, base, 20);
    assert!(is_dirty());
    TestProcess::end_all_at_rest(&[&process]);
}
