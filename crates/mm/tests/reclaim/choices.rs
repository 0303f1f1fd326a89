//! What reclaim chooses.
//!
//! From which type it takes pages, how much of a list it scans, and which refaults are soon. Each
//! cause of a choice is tried alone, beside the same memory without it.

use super::interrupted::{InterruptedSwap, Transfer};
use super::{FRAMES, NODE, TWICE, fill, machine};
use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::{
    ANON, CPU, FileHandle, GupCall, MemorySwap, OTHER, TestProcess, TestWorld, at, one_node_machine,
};
use pagewright_mm::counters::Gauge;
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_mm::space::ClearRefs;
use pagewright_mm::{Advice, LockFlags, MapFlags, MmSetting};
use pagewright_sim::NodeConfig;
use pagewright_tlb::frames::FolioOwner;
use pagewright_types::{Access, Counter, CpuMask, LruList, NodeId, PAGE_SIZE, Rights, VirtAddr};
use std::rc::Rc;
use std::sync::atomic::Ordering;

on_both! {
    reclaim_turns_away_from_the_type_that_costs,
    pages_activated_since_an_eviction_add_to_its_distance,
    a_pass_scans_its_part_of_a_list_and_the_last_all_of_it,
    reclaim_without_swap_looks_at_no_anonymous_page,
    a_page_that_many_children_share_is_paged_out,
    a_page_that_is_mapped_again_while_it_is_paged_out_is_activated,
    active_pages_are_reclaimed_if_no_inactive_page_can_be,
    active_pages_are_reclaimed_for_an_allocation_if_no_pending_page_can_be,
    a_scan_is_divided_between_the_lists_by_their_lengths,
    file_pages_are_spared_where_all_of_them_would_not_be_enough,
    a_file_page_that_two_processes_have_used_is_activated,
    deactivated_pages_are_counted,
    a_deactivated_page_was_of_the_workingset,
    a_refault_has_the_next_reclaim_deactivate_and_no_later_one,
    a_refault_has_the_next_direct_reclaim_deactivate_and_no_later_one,
    a_refault_on_another_node_has_the_reclaim_of_that_node_deactivate,
    many_inactive_file_pages_spare_the_anonymous_ones,
    an_active_page_is_kept_once_if_it_is_code_that_was_used,
    an_active_anonymous_page_is_not_kept_for_being_code,
    a_refault_as_far_as_the_workingset_is_large_activates,
    a_page_without_a_slot_is_activated,
}

/// A machine with swap, and a process on it.
struct Scene<I: Isa> {
    world: Rc<TestWorld<I>>,
    process: TestProcess<I>,
    device: MemorySwap,
}

impl<I: Isa> Scene<I> {
    fn new() -> Self {
        let world = machine::<I>(2);
        let device = world.swap_to(4096);
        let process = TestProcess::new(&world);
        Self { world, process, device }
    }

    /// Anonymous memory that was stored to, and that no CPU has used since.
    fn cold(&self, pages: u64) -> VirtAddr {
        let base = self.process.anon(pages);
        fill(&self.process, base, pages, 0);
        self.process.advise(base, pages, Advice::Cold);
        base
    }

    /// Reads the first `pages` pages of a file `times` times by a call; two reads activate a page.
    fn read_file(&self, file: &FileHandle<I>, pages: u64, times: u64) {
        for page in (0..times).flat_map(|_| 0..pages) {
            self.world.on(CPU, |mm| mm.read_at(file, page * PAGE_SIZE, &mut [0; 8])).expect("a good device");
        }
    }

    /// Maps a file of `pages` pages for reading and execution, and loads from each page.
    fn mapped_file(&self, pages: u64) -> VirtAddr {
        let base = self.process.map_file(&self.world.file(pages), Rights::RX, MapFlags::SHARED);
        (0..pages).for_each(|page| _ = self.process.read(CPU, at(base, page)));
        base
    }

    fn reclaim(&self, pages: u64) -> u64 {
        self.world.on(CPU, |mm| mm.reclaim(NODE, pages as u32))
    }

    /// Removes the pages of the file that is mapped at `base`.
    fn truncate(&self, base: VirtAddr) {
        let file = self.process.space.map().read().find(base).and_then(|(_, vma)| vma.file().cloned());
        self.world.on(CPU, |mm| mm.truncate(&file.expect("a file"), 0)).expect("not sealed");
    }
}

/// The pages of each cause.
const CAUSE: u64 = 24;

/// What reclaiming has cost before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cost {
    Nothing,
    /// Anonymous pages were written to swap.
    AnonWritten,
    /// Anonymous pages were scanned, and could not be reclaimed.
    AnonKept,
    /// Anonymous pages were unmapped, and could not be written.
    AnonNotWritten,
    /// File pages of the workingset were evicted and read again.
    FileRefaulted,
    /// Active file pages were executed, and stayed active.
    FileRotated,
}

impl Cost {
    /// Causes the cost with pages that are gone afterwards.
    fn cause<I: Isa>(self, scene: &Scene<I>) {
        let process = &scene.process;
        match self {
            Self::Nothing => {}
            Self::AnonWritten => {
                let base = scene.cold(CAUSE);
                assert_eq!(scene.reclaim(CAUSE), CAUSE);
                process.unmap(base, CAUSE);
            }
            Self::AnonKept => {
                let base = scene.cold(CAUSE);
                let device = process.take(CPU, base, CAUSE, GupCall::Pin(GupFlags::WRITE)).expect("they can be had");
                process.advise(base, CAUSE, Advice::Cold);
                assert_eq!(scene.reclaim(CAUSE), 0);
                device.release(MakeDirty::No);
                process.unmap(base, CAUSE);
            }
            Self::AnonNotWritten => {
                let base = scene.cold(CAUSE);
                scene.device.broken.store(true, Ordering::Relaxed);
                assert_eq!(scene.reclaim(CAUSE), 0);
                scene.device.broken.store(false, Ordering::Relaxed);
                process.unmap(base, CAUSE);
            }
            Self::FileRefaulted => {
                let beside = scene.cold(2 * CAUSE);
                let base = scene.mapped_file(CAUSE);
                for _ in 0..2 {
                    process.advise(base, CAUSE, Advice::Cold);
                    process.advise(base, CAUSE, Advice::PageOut);
                    (0..CAUSE).for_each(|page| _ = process.read(CPU, at(base, page)));
                }
                assert_eq!(scene.world.count(Counter::WorkingsetRestoreFile), CAUSE);
                process.unmap(beside, 2 * CAUSE);
                scene.truncate(base);
            }
            Self::FileRotated => {
                let base = scene.mapped_file(CAUSE);
                let file = process.space.map().read().find(base).and_then(|(_, vma)| vma.file().cloned());
                scene.read_file(&file.expect("a file"), CAUSE, 2);
                scene.reclaim(1);
                scene.truncate(base);
            }
        }
        assert_eq!(scene.world.gauge(Gauge::FilePages) + scene.world.gauge(Gauge::AnonPages), 0, "{self:?}");
    }
}

/// How many of 32 reclaimed pages are anonymous, once something has caused a cost.
///
/// Both types have many pages that no CPU uses; most file pages are active, so that reclaim does
/// not take inactive ones of files alone.
fn anonymous_of_32<I: Isa>(cost: Cost) -> u64 {
    let scene = Scene::<I>::new();
    scene.world.on(CPU, |mm| mm.settings().set(MmSetting::Swappiness, 100)).expect("a possible value");
    cost.cause(&scene);
    let active = scene.world.file(300);
    scene.read_file(&active, 300, 2);
    let inactive = scene.world.file(60);
    scene.read_file(&inactive, 60, 1);
    scene.cold(300);
    let before = scene.world.gauge(Gauge::AnonPages);
    assert_eq!(scene.reclaim(32), 32);
    before - scene.world.gauge(Gauge::AnonPages)
}

/// `lru_note_cost`: each cause shifts the scan to the other type.
fn reclaim_turns_away_from_the_type_that_costs<I: Isa>() {
    let without = anonymous_of_32::<I>(Cost::Nothing);
    for cost in [Cost::AnonWritten, Cost::AnonKept, Cost::AnonNotWritten] {
        let with = anonymous_of_32::<I>(cost);
        assert!(with < without, "{cost:?}: {with} anonymous pages, {without} without the cost");
    }
    for cost in [Cost::FileRefaulted, Cost::FileRotated] {
        let with = anonymous_of_32::<I>(cost);
        assert!(with > without, "{cost:?}: {with} anonymous pages, {without} without the cost");
    }
}

/// `workingset_age_nonresident`: a refault is soon only if few pages were activated meanwhile.
fn pages_activated_since_an_eviction_add_to_its_distance<I: Isa>() {
    const OTHERS: u64 = 20;
    const WORKINGSET: u64 = OTHERS / 2;
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Between {
        Nothing,
        Reads,
        Refaults,
    }
    for between in [Between::Nothing, Between::Reads, Between::Refaults] {
        let scene = Scene::<I>::new();
        let process = &scene.process;
        scene.mapped_file(WORKINGSET);
        let file = scene.world.file(OTHERS);
        let (page, others) = (scene.cold(1), scene.cold(OTHERS));
        let wide = scene.mapped_file(2 * OTHERS);
        process.advise(others, OTHERS, Advice::PageOut);
        process.advise(page, 1, Advice::PageOut);
        match between {
            Between::Nothing => {}
            Between::Reads => scene.read_file(&file, OTHERS, 2),
            Between::Refaults => (0..OTHERS).for_each(|page| _ = process.read(CPU, at(others, page))),
        }
        let activated = || scene.world.count(Counter::WorkingsetActivateAnon);
        assert_eq!(activated(), if between == Between::Refaults { OTHERS } else { 0 });
        // What was activated is gone: it would make the workingset larger.
        scene.truncate(wide);
        process.unmap(others, OTHERS);
        scene.world.on(CPU, |mm| mm.truncate(&file, 0)).expect("not sealed");
        let before = activated();
        process.read(CPU, page);
        assert_eq!(activated() - before, u64::from(between == Between::Nothing), "{between:?}");
    }
}

/// No page can be reclaimed, so a request scans at every priority before it gives up.
fn a_pass_scans_its_part_of_a_list_and_the_last_all_of_it<I: Isa>() {
    const PAGES: u64 = 400;
    /// `MAX_RECLAIM_RETRIES`.
    const ATTEMPTS: u64 = 16;
    let scene = Scene::<I>::new();
    let base = scene.cold(PAGES);
    let device = scene.process.take(CPU, base, PAGES, GupCall::Pin(GupFlags::WRITE)).expect("they can be had");
    scene.process.advise(base, PAGES, Advice::Cold);
    assert_eq!(scene.reclaim(1), 0);
    let scanned = scene.world.count(Counter::PgScanProactive);
    // The passes before the last scan a half, a quarter, … at most, each rounded up.
    let most = 2 * PAGES + u64::from(PAGES.ilog2());
    assert!((ATTEMPTS * PAGES..=ATTEMPTS * most).contains(&scanned), "{scanned} pages are scanned");
    device.release(MakeDirty::No);
}

fn reclaim_without_swap_looks_at_no_anonymous_page<I: Isa>() {
    let world = machine::<I>(1);
    let process = TestProcess::new(&world);
    let base = process.anon(TWICE);
    let refused = (0..TWICE).find(|page| process.touch(CPU, at(base, *page), Access::Write).is_err());
    assert!(refused.is_some_and(|page| page > FRAMES / 2), "refused at {refused:?}");
    world.on(CPU, |mm| mm.reclaim(NODE, 32) + mm.balance(NODE));
    let looked = [Counter::PgScanDirect, Counter::PgScanProactive, Counter::PgScanKswapd, Counter::PgRefill];
    assert_eq!(looked.map(|counter| world.count(counter)), [0; 4]);
}

/// The entries of a shared page are not exclusive, so none of its many references is a pin.
fn a_page_that_many_children_share_is_paged_out<I: Isa>() {
    /// A pin counts as this many references (`GUP_PIN_COUNTING_BIAS`).
    const PIN: usize = 1024;
    let world = TestWorld::<I>::unjudged();
    // Each child has an entry of its own, with a reference.
    world.set(MmSetting::CowPageTables, "never");
    world.swap_to(16);
    let process = TestProcess::new(&world);
    let base = process.anon(1);
    process.write(CPU, base, 7);
    let children: Vec<_> = (0..PIN).map(|_| process.fork()).collect();
    assert_eq!(world.on(CPU, |mm| mm.reclaim(NODE, 1)), 1);
    assert_eq!(world.gauge(Gauge::AnonPages), 0, "an entry still maps the page");
    assert_eq!((children[0].read(CPU, base), process.read(CPU, base)), (7, 7));
}

/// `shrink_folio_list`: a file page, while an anonymous page of its batch is written.
fn a_page_that_is_mapped_again_while_it_is_paged_out_is_activated<I: Isa>() {
    for used in [false, true] {
        let world = machine::<I>(2);
        InterruptedSwap::add(&world, Transfer::Write);
        let process = Rc::new(TestProcess::new(&world));
        let anon = process.anon(1);
        process.write(CPU, anon, 1);
        let file = process.map_file(&world.file(1), Rights::READ, MapFlags::SHARED);
        process.read(CPU, file);
        process.advise(anon, 1, Advice::Cold);
        process.advise(file, 1, Advice::Cold);
        let other = Rc::clone(&process);
        InterruptedSwap::act_once(move || _ = used.then(|| other.read(OTHER, file)));
        world.on(CPU, |mm| mm.reclaim(NODE, 2));
        assert!(InterruptedSwap::has_acted());
        assert_eq!(world.count(Counter::PgActivate), u64::from(used));
        process.end();
    }
}

fn deactivated_pages_are_counted<I: Isa>() {
    const PAGES: u64 = 40;
    let scene = Scene::<I>::new();
    scene.read_file(&scene.world.file(PAGES), PAGES, 2);
    assert_eq!(scene.world.gauge(Gauge::ActiveFile), PAGES);
    assert_eq!(scene.reclaim(1), 1);
    let active = scene.world.gauge(Gauge::ActiveFile);
    assert_eq!(
        (scene.world.count(Counter::PgDeactivate), scene.world.count(Counter::PgActivate)),
        (PAGES - active, PAGES)
    );
    assert!(active < PAGES);
}

/// `workingset_refault`: its refault restores the workingset, that of a page used once does not.
fn a_deactivated_page_was_of_the_workingset<I: Isa>() {
    const PAGES: u64 = 16;
    for uses in [1, 2] {
        let scene = Scene::<I>::new();
        scene.world.set(MmSetting::Swappiness, "0");
        scene.cold(4 * PAGES);
        let file = scene.world.file(PAGES);
        scene.read_file(&file, PAGES, uses);
        assert!(scene.reclaim(PAGES) >= PAGES);
        assert_eq!(scene.world.gauge(Gauge::FilePages), 0);
        let deactivated = scene.world.count(Counter::PgDeactivate);
        assert_eq!(deactivated, if uses == 2 { PAGES } else { 0 });
        scene.read_file(&file, PAGES, 1);
        let counts = [Counter::WorkingsetRefaultFile, Counter::WorkingsetRestoreFile];
        assert_eq!(counts.map(|counter| scene.world.count(counter)), [PAGES, deactivated]);
    }
}

/// The active pages of files before a refault.
const ACTIVE: u64 = 40;

/// A scene with active and `inactive` inactive pages of files; a file of one page, and its mapping.
fn before_a_refault<I: Isa>(inactive: u64) -> (Scene<I>, FileHandle<I>, VirtAddr) {
    let scene = Scene::<I>::new();
    scene.world.set(MmSetting::Swappiness, "0");
    scene.read_file(&scene.world.file(ACTIVE), ACTIVE, 2);
    let refaults = scene.world.file(1);
    let base = scene.process.map_file(&refaults, Rights::READ, MapFlags::SHARED);
    scene.read_file(&scene.world.file(inactive), inactive, 1);
    (scene, refaults, base)
}

/// `snapshot_refaults`: active pages are scanned if pages of the workingset came back since.
fn a_refault_has_the_next_reclaim_deactivate_and_no_later_one<I: Isa>() {
    let (scene, refaults, base) = before_a_refault::<I>(4 * ACTIVE);
    let scanned = || scene.world.count(Counter::PgRefill);
    assert!(scene.reclaim(ACTIVE / 2) > 0);
    assert_eq!(scanned(), 0, "enough pages are inactive");
    scene.process.read(CPU, base);
    scene.process.advise(base, 1, Advice::PageOut);
    scene.read_file(&refaults, 1, 1);
    assert_eq!(scene.world.count(Counter::WorkingsetActivateFile), 1);
    assert!(scene.reclaim(ACTIVE / 2) > 0);
    let after = scanned();
    assert!(after > 0, "the reclaim after the refault");
    assert!(scene.reclaim(ACTIVE / 2) > 0);
    assert_eq!(scanned(), after, "the one after that");
}

/// As above, where it is allocations that reclaim.
fn a_refault_has_the_next_direct_reclaim_deactivate_and_no_later_one<I: Isa>() {
    let (scene, refaults, base) = before_a_refault::<I>(8 * ACTIVE);
    let (scanned, stalls) = (|| scene.world.count(Counter::PgRefill), || scene.world.count(Counter::AllocStall));
    let anon = scene.process.anon(FRAMES);
    let mut pages = 0..FRAMES;
    let mut store_until_reclaim = || {
        let before = stalls();
        let mut store = |page| scene.process.write(CPU, at(anon, page), page);
        pages.by_ref().take_while(|_| stalls() == before).for_each(&mut store);
        assert_eq!(stalls(), before + 1, "an allocation has reclaimed");
    };
    store_until_reclaim();
    assert_eq!(scanned(), 0, "enough pages are inactive");
    scene.process.read(CPU, base);
    scene.process.advise(base, 1, Advice::PageOut);
    scene.read_file(&refaults, 1, 1);
    assert_eq!(scene.world.count(Counter::WorkingsetActivateFile), 1);
    store_until_reclaim();
    let after = scanned();
    assert!(after > 0, "the reclaim after the refault");
    store_until_reclaim();
    assert_eq!(scanned(), after, "the one after that");
}

/// `workingset_refault`: the node of the eviction only has the distance.
fn a_refault_on_another_node_has_the_reclaim_of_that_node_deactivate<I: Isa>() {
    let mut config = one_node_machine::<I>(2, FRAMES * PAGE_SIZE);
    config.nodes[0].cpus = CpuMask::of(CPU);
    config.nodes.push(NodeConfig { bytes: FRAMES * PAGE_SIZE, cpus: CpuMask::of(OTHER) });
    let world = TestWorld::<I>::on_machine(config);
    world.set(MmSetting::Swappiness, "0");
    // The node of the CPU that reads gets the pages.
    let read = |cpu, file: &FileHandle<I>, pages: u64| {
        for page in 0..pages {
            world.on(cpu, |mm| mm.read_at(file, page * PAGE_SIZE, &mut [0; 8])).expect("a good device");
        }
    };
    for cpu in [CPU, OTHER] {
        let active = world.file(ACTIVE);
        (0..2).for_each(|_| read(cpu, &active, ACTIVE));
        read(cpu, &world.file(4 * ACTIVE), 4 * ACTIVE);
    }
    let process = TestProcess::new(&world);
    let refaults = world.file(1);
    let base = process.map_file(&refaults, Rights::READ, MapFlags::SHARED);
    process.read(OTHER, base);
    process.advise(base, 1, Advice::PageOut);
    read(CPU, &refaults, 1);
    assert_eq!(world.count(Counter::WorkingsetActivateFile), 1);
    let scanned = |node| {
        let before = world.count(Counter::PgRefill);
        assert!(world.on(CPU, |mm| mm.reclaim(node, (ACTIVE / 2) as u32)) > 0);
        world.count(Counter::PgRefill) - before
    };
    assert_eq!(scanned(NodeId::new(1)), 0, "the node from which the page was evicted");
    assert!(scanned(NODE) > 0, "the node that has the page");
    process.end();
}

#[cfg(feature = "planted")]
#[test]
fn a_refault_that_another_node_counts_is_found() {
    use pagewright_arch::{Aarch64, X86_64};
    use pagewright_plant::{PlantedBug, assert_found_by};
    for test in [
        a_refault_on_another_node_has_the_reclaim_of_that_node_deactivate::<X86_64> as fn(),
        a_refault_on_another_node_has_the_reclaim_of_that_node_deactivate::<Aarch64>,
    ] {
        assert_found_by(PlantedBug::RefaultOnOldNode, test);
    }
}

/// Linux's `cache_trim_mode`, for which a scan at the first priority must find a file page.
fn many_inactive_file_pages_spare_the_anonymous_ones<I: Isa>() {
    const MANY: u64 = 1 << 12;
    for file_pages in [MANY / 2, MANY] {
        let world = super::machine_of::<I>(1, 3 * MANY);
        let device = world.swap_to(4096);
        let process = TestProcess::new(&world);
        let base = process.anon(MANY);
        fill(&process, base, MANY, 0);
        process.advise(base, MANY, Advice::Cold);
        let file = world.file(file_pages);
        for page in 0..file_pages {
            world.on(CPU, |mm| mm.read_at(&file, page * PAGE_SIZE, &mut [0; 8])).expect("a good device");
        }
        assert!(world.on(CPU, |mm| mm.reclaim(NODE, 1)) > 0);
        assert_eq!(device.used() == 0, file_pages == MANY, "{file_pages} file pages, {} to swap", device.used());
        process.end();
    }
}

/// `shrink_active_list`: the other active pages that are scanned become inactive.
fn an_active_page_is_kept_once_if_it_is_code_that_was_used<I: Isa>() {
    const PAGES: u64 = 40;
    for (rights, used) in [(Rights::RX, true), (Rights::RX, false), (Rights::READ, true), (Rights::READ, false)] {
        let scene = Scene::<I>::new();
        let file = scene.world.file(PAGES);
        scene.read_file(&file, PAGES, 2);
        let base = scene.process.map_file(&file, rights, MapFlags::SHARED);
        (0..PAGES).for_each(|page| _ = scene.process.read(CPU, at(base, page)));
        if !used {
            scene.world.on(CPU, |mm| mm.clear_refs(&scene.process.space, ClearRefs::All)).expect("memory");
        }
        assert_eq!(scene.world.gauge(Gauge::ActiveFile), PAGES);
        scene.reclaim(1);
        let [scanned, deactivated] = [Counter::PgRefill, Counter::PgDeactivate].map(|of| scene.world.count(of));
        let kept = rights == Rights::RX && used;
        assert!(scanned > 0 && (scanned > deactivated) == kept, "{rights:?}, used: {used}: {deactivated} of {scanned}");
    }
}

/// Only of files: anonymous memory that programs execute is not the code that all of them share.
fn an_active_anonymous_page_is_not_kept_for_being_code<I: Isa>() {
    const PAGES: u64 = 40;
    let scene = Scene::<I>::new();
    let base = scene.process.map(PAGES, Rights::RW | Rights::EXEC, ANON, None);
    (0..PAGES).for_each(|page| scene.process.write(CPU, at(base, page), page));
    // The first pass activates them, and later ones shrink the active list.
    for _ in 0..8 {
        scene.reclaim(1);
        scene.world.lab.evict_translations(CPU);
        (0..PAGES).for_each(|page| assert_eq!(scene.process.read(CPU, at(base, page)), page));
    }
    let [scanned, deactivated] = [Counter::PgRefill, Counter::PgDeactivate].map(|of| scene.world.count(of));
    assert!(scanned > 0);
    assert_eq!(deactivated, scanned);
}

/// `workingset_refault`: a distance of the workingset's size is the largest that activates.
fn a_refault_as_far_as_the_workingset_is_large_activates<I: Isa>() {
    const WORKINGSET: u64 = 8;
    for (beyond, swap) in [(false, true), (true, true), (false, false), (true, false)] {
        let scene = Scene::<I>::new();
        if !swap {
            scene.world.on(CPU, |mm| mm.swap_off(0)).expect("memory");
        }
        let process = &scene.process;
        let active = scene.world.file(WORKINGSET);
        scene.read_file(&active, WORKINGSET, 2);
        assert_eq!(scene.world.gauge(Gauge::ActiveFile), WORKINGSET);
        // The eviction of the page itself counts, too.
        let others = WORKINGSET - 1 + u64::from(beyond);
        let file = scene.world.file(1 + others);
        let base = process.map_file(&file, Rights::READ, MapFlags::SHARED);
        (0..=others).for_each(|page| _ = process.read(CPU, at(base, page)));
        process.advise(base, 1, Advice::PageOut);
        process.advise(at(base, 1), others, Advice::PageOut);
        assert_eq!(scene.world.gauge(Gauge::FilePages), WORKINGSET);
        // Not by a fault, which maps pages around it.
        scene.read_file(&file, 1, 1);
        assert_eq!(scene.world.count(Counter::WorkingsetRefaultFile), 1);
        assert_eq!(scene.world.count(Counter::WorkingsetActivateFile), u64::from(!beyond));
    }
}

/// `folio_check_references`: accesses by two processes make a page active, one access does not.
fn a_file_page_that_two_processes_have_used_is_activated<I: Isa>() {
    for users in [1, 2] {
        let scene = Scene::<I>::new();
        let file = scene.world.file(1);
        let processes: Vec<_> = (0..users).map(|_| TestProcess::new(&scene.world)).collect();
        for process in &processes {
            let base = process.map_file(&file, Rights::READ, MapFlags::SHARED);
            process.read(CPU, base);
        }
        scene.reclaim(1);
        assert_eq!(scene.world.count(Counter::PgActivate), u64::from(users == 2), "{users} processes");
        processes.iter().for_each(TestProcess::end);
    }
}

/// `force_deactivate`: although many inactive pages are left, of which none can be reclaimed.
fn active_pages_are_reclaimed_if_no_inactive_page_can_be<I: Isa>() {
    const PAGES: u64 = 40;
    let scene = Scene::<I>::new();
    let base = scene.mapped_file(PAGES);
    let device = scene.process.take(CPU, base, PAGES, GupCall::Pin(GupFlags::empty())).expect("they can be had");
    scene.process.advise(base, PAGES, Advice::Cold);
    let active = scene.world.file(PAGES / 2);
    scene.read_file(&active, PAGES / 2, 2);
    let gauges = || [Gauge::InactiveFile, Gauge::ActiveFile].map(|gauge| scene.world.gauge(gauge));
    assert_eq!(gauges(), [PAGES, PAGES / 2]);
    assert!(scene.reclaim(1) > 0);
    assert_eq!(scene.world.count(Counter::PgStealProactive), 1);
    device.release(MakeDirty::No);
}

/// The same where an allocation reclaims, and has one page left that it selected and cannot free.
fn active_pages_are_reclaimed_for_an_allocation_if_no_pending_page_can_be<I: Isa>() {
    const PAGES: u64 = 40;
    let scene = Scene::<I>::new();
    scene.world.on(CPU, |mm| mm.swap_off(0)).expect("no slot is in use");
    let base = scene.mapped_file(PAGES);
    let device = scene.process.take(CPU, base, PAGES, GupCall::Pin(GupFlags::empty())).expect("they can be had");
    scene.process.advise(base, PAGES, Advice::Cold);
    scene.read_file(&scene.world.file(PAGES / 2), PAGES / 2, 2);
    let locked = scene.world.file(1);
    scene.read_file(&locked, 1, 1);
    let gauges = || [Gauge::InactiveFile, Gauge::ActiveFile].map(|gauge| scene.world.gauge(gauge));
    assert_eq!(gauges(), [PAGES + 1, PAGES / 2]);
    let anon = scene.process.anon(TWICE);
    scene.world.on(OTHER, |mm| {
        let frames = mm.tlb().frames();
        let mut page = None;
        frames.for_each_listed(NODE, LruList::InactiveFile, |pfn| {
            page = page.or((frames.folio(pfn).owner() == FolioOwner::File(locked.id())).then_some(pfn));
        });
        let _lock = frames.folio(page.expect("a page in the cache")).try_lock().expect("no other CPU uses it");
        let refused = (0..TWICE).find(|page| scene.process.touch(CPU, at(anon, *page), Access::Write).is_err());
        assert!(refused.is_some_and(|page| page > FRAMES / 2), "refused at {refused:?}");
    });
    assert_eq!(gauges(), [PAGES + 1, 0], "the allocation failed while pages could be reclaimed");
    device.release(MakeDirty::No);
}

/// Both lists are scanned in full at the last priority, where neither type has a smaller share.
fn a_scan_is_divided_between_the_lists_by_their_lengths<I: Isa>() {
    const WANTED: u64 = 32;
    // Fewer than twice as many as wanted: the first pass is the last.
    const ALL: u64 = 60;
    for anon in [10, 20, 30, 40, 50] {
        let scene = Scene::<I>::new();
        scene.read_file(&scene.world.file(ALL - anon), ALL - anon, 1);
        scene.cold(anon);
        assert_eq!(scene.reclaim(WANTED), WANTED);
        let freed = anon - scene.world.gauge(Gauge::AnonPages);
        let part = WANTED * anon / ALL;
        assert!((part..=part + 1).contains(&freed), "{freed} of {anon} anonymous pages, of {ALL} pages");
    }
}

/// Linux's `file_is_tiny`, at the number of free frames from which on it holds.
fn file_pages_are_spared_where_all_of_them_would_not_be_enough<I: Isa>() {
    const FILE: u64 = 10;
    const COLD: u64 = 100;
    for more in [0, 1] {
        let scene = Scene::<I>::new();
        let (world, process) = (&scene.world, &scene.process);
        scene.read_file(&world.file(FILE), FILE, 1);
        scene.cold(COLD);
        // Memory that is not reclaimable fills the machine.
        let rest = process.anon(FRAMES);
        world
            .on(CPU, |mm| mm.mlock2(&process.space, rest, FRAMES * PAGE_SIZE, LockFlags::ONFAULT))
            .expect("within the limit");
        let above_high = || {
            world.on(CPU, |mm| {
                let zone = mm.tlb().frames().zones().next().expect("a zone");
                i64::from(zone.free()) - i64::from(zone.watermarks().high)
            })
        };
        let end = more - FILE as i64;
        (0..FRAMES).take_while(|_| above_high() > end).for_each(|page| process.write(CPU, at(rest, page), page));
        assert_eq!(above_high(), end);
        assert_eq!(scene.reclaim(32), 32);
        let spared = world.gauge(Gauge::FilePages) == FILE;
        assert_eq!(spared, more == 0, "{} file pages, {end} frames above the watermark", world.gauge(Gauge::FilePages));
        process.end();
    }
}

/// `shrink_folio_list`: a page for which swap has no room is not scanned again at once.
fn a_page_without_a_slot_is_activated<I: Isa>() {
    let world = machine::<I>(2);
    let device = world.swap_to(1);
    let process = TestProcess::new(&world);
    let base = process.anon(2);
    fill(&process, base, 2, 1);
    process.advise(base, 2, Advice::Cold);
    process.advise(base, 2, Advice::PageOut);
    assert_eq!(device.used(), 1);
    assert_eq!((world.count(Counter::PgActivate), world.gauge(Gauge::ActiveAnon)), (1, 1));
    process.end();
}
