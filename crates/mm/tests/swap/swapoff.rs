//! Swap devices: the allocation order, what is reported of them, and swapoff.
//!
//! Not covered: which pages reclaim selects.

use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::files::DiskFile;
use pagewright_lab::harness::race::{assert_holds, race, race_in_long_turns};
use pagewright_lab::harness::{CPU, MemorySwap, OTHER, THIRD, TestProcess, TestWorld, at};
use pagewright_mm::counters::Gauge;
use pagewright_mm::swap::{SwapBacking, Zram};
use pagewright_mm::view::{PagemapFlags, Pss};
use pagewright_mm::{Advice, MapFlags, MmError, MmSetting};
use pagewright_sim::AllocationFailure;
use pagewright_sim::explore::CoroutineBody;
use pagewright_types::{Access, Errno, PAGE_SIZE, PageRange, Rights, SwapEntry, VirtAddr};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering;

const SCHEDULES: u64 = 150;
const PAGES: u64 = 20;

fn fill<I: Isa>(process: &TestProcess<I>, base: VirtAddr, pages: u64) {
    (0..pages).for_each(|page| process.write(CPU, at(base, page), page + 1));
}

fn holds<I: Isa>(process: &TestProcess<I>, base: VirtAddr, pages: u64) -> bool {
    (0..pages).all(|page| process.read(CPU, at(base, page)) == page + 1)
}

/// A parent and a child with swapped-out memory of every kind.
///
/// The ranges are shared by fork, inaccessible, shared memory, and private to the child.
struct SwapScene<I: Isa> {
    parent: TestProcess<I>,
    child: TestProcess<I>,
    bases: [VirtAddr; 4],
    device: MemorySwap,
}

impl<I: Isa> SwapScene<I> {
    fn new(world: &Rc<TestWorld<I>>) -> Self {
        let device = world.swap_to(1000);
        let parent = TestProcess::new(world);
        let (both, forbidden, shared) = (parent.anon(PAGES), parent.anon(PAGES), parent.map_shared(PAGES));
        for base in [both, forbidden, shared] {
            fill(&parent, base, PAGES);
        }
        world.on(CPU, |mm| mm.mprotect(&parent.space, forbidden, PAGES * PAGE_SIZE, Rights::empty())).expect("mapped");
        for base in [both, forbidden, shared] {
            parent.advise(base, PAGES, Advice::PageOut);
        }
        let child = parent.fork();
        let own = child.anon(PAGES);
        fill(&child, own, PAGES);
        child.advise(own, PAGES, Advice::PageOut);
        // The child swaps in half of the pages shared by fork; they stay in the swap cache.
        assert!((0..PAGES / 2).all(|page| child.read(CPU, at(both, page)) == page + 1));
        assert_eq!(device.used() as u64, 4 * PAGES);
        Self { parent, child, bases: [both, forbidden, shared, own], device }
    }

    fn is_intact(&self) -> bool {
        let [both, forbidden, shared, own] = self.bases;
        let Self { parent, child, .. } = self;
        let protect = |rights| {
            for process in [parent, child] {
                let call =
                    |mm: &pagewright_mm::Mm<_>| mm.mprotect(&process.space, forbidden, PAGES * PAGE_SIZE, rights);
                process.world.on(CPU, call).expect("mapped");
            }
        };
        protect(Rights::READ);
        let whole = [parent, child]
            .iter()
            .all(|process| [both, forbidden, shared].iter().all(|base| holds(process, *base, PAGES)));
        protect(Rights::empty());
        whole && holds(child, own, PAGES)
    }
}

fn swapoff_swaps_everything_in<I: Isa>() {
    let world = TestWorld::<I>::unjudged();
    let scene = SwapScene::new(&world);
    world.on(CPU, |mm| mm.swap_off(0)).expect("memory");
    assert_eq!((scene.device.used(), world.on(CPU, |mm| mm.swap_slots())), (0, (0, 0)));
    let swapped = |process: &TestProcess<I>| world.on(CPU, |mm| mm.rss(&process.space).swapped());
    assert_eq!((swapped(&scene.parent), swapped(&scene.child)), (0, 0));
    assert_eq!(world.on(CPU, |mm| mm.gauge(Gauge::SwapCached)), 0);
    assert!(scene.is_intact());
    // Nothing is swapped out any more until there is another device.
    scene.child.advise(scene.bases[3], PAGES, Advice::PageOut);
    assert_eq!(swapped(&scene.child), 0);
    let again = world.swap_to(100);
    scene.child.advise(scene.bases[3], PAGES, Advice::PageOut);
    assert_eq!((swapped(&scene.child), again.used() as u64), (PAGES, PAGES));
    assert!(scene.is_intact());
    for device in [1, 31, 32, 255] {
        assert_eq!(world.on(CPU, |mm| mm.swap_off(device)), Err(MmError::NoSuchSwapDevice { device }));
    }
    assert_eq!(MmError::NoSuchSwapDevice { device: 1 }.errno(), Errno::EINVAL);
}

/// Then memory has the only copy of them, although no store has made their entries dirty.
fn pages_that_lose_their_slots_are_dirty<I: Isa>() {
    let world = TestWorld::<I>::unjudged();
    world.swap_to(100);
    let process = TestProcess::new(&world);
    let base = process.anon(PAGES);
    fill(&process, base, PAGES);
    process.advise(base, PAGES, Advice::PageOut);
    assert!(holds(&process, base, PAGES));
    let usage = || {
        let usage = world.on(CPU, |mm| mm.mem_size_stats(&process.space));
        [usage.private_clean, usage.private_dirty].map(|bytes| bytes / PAGE_SIZE)
    };
    assert_eq!(usage(), [PAGES, 0]);
    world.on(CPU, |mm| mm.swap_off(0)).expect("memory");
    assert_eq!(usage(), [0, PAGES]);
}

/// One CPU discards a swapped-out private copy of a file page during swapoff.
///
/// Returns whether the page is neither in memory nor in swap in the end.
fn discard_during_swapoff<I: Isa>(seed: u64) -> bool {
    let world = TestWorld::<I>::unjudged();
    world.swap_to(8);
    let file = world.file_of(DiskFile::default(), 1);
    let process = TestProcess::new(&world);
    let base = process.map_file(&file, Rights::RW, MapFlags::PRIVATE);
    process.write(CPU, base, 1);
    process.advise(base, 1, Advice::PageOut);
    assert_eq!(process.space.rss().swapped(), 1);
    let (gives_up, empties, space) = (world.clone(), world.clone(), process.space.clone());
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || {
            gives_up.lab.on(CPU, |mm| mm.madvise(&space, base, PAGE_SIZE, Advice::DontNeed)).expect("mapped");
        }),
        Box::new(move || empties.lab.on(OTHER, |mm| mm.swap_off(0)).expect("memory")),
    ];
    race(&world, seed, programs);
    (process.space.rss().pages(), process.space.rss().swapped()) == (0, 0)
}

/// One CPU asks for a swapped-out page, while another discards it and removes the device.
///
/// Returns whether the page is not in memory by any answer.
fn mincore_while_the_device_is_removed<I: Isa>(seed: u64) -> bool {
    let (world, process) = TestProcess::<I>::unjudged();
    world.swap_to(8);
    let base = process.anon(1);
    process.write(CPU, base, 1);
    process.advise(base, 1, Advice::PageOut);
    let (asks, empties, asked, space) = (world.clone(), world.clone(), process.space.clone(), process.space.clone());
    let resident = Rc::new(Cell::new(9));
    let answer = Rc::clone(&resident);
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || {
            let mut bytes = [9];
            asks.lab.on(CPU, |mm| mm.mincore(&asked, base, PAGE_SIZE, &mut bytes)).expect("mapped");
            answer.set(bytes[0]);
        }),
        Box::new(move || {
            empties.lab.on(OTHER, |mm| mm.madvise(&space, base, PAGE_SIZE, Advice::DontNeed)).expect("mapped");
            empties.lab.on(OTHER, |mm| mm.swap_off(0)).expect("memory");
        }),
    ];
    race(&world, seed, programs);
    resident.get() == 0
}

/// INV-MM-COMMIT.
fn a_failed_swapoff_leaves_the_device_in_use<I: Isa>() {
    let world = TestWorld::<I>::unjudged();
    let scene = SwapScene::new(&world);
    let sim = world.lab.sim();
    for permitted in [0, 1, 3 * PAGES] {
        sim.fail_allocation_after(permitted, AllocationFailure::All);
        let refused = world.on(CPU, |mm| mm.swap_off(0)).map_err(|error| error.errno());
        sim.permit_allocations();
        assert_eq!(refused, Err(Errno::ENOMEM));
        assert_eq!(world.on(CPU, |mm| mm.swap_slots()).0, 1000);
        fill(&scene.child, scene.bases[3], PAGES);
        let swapped = scene.child.space.rss().swapped();
        scene.child.advise(scene.bases[3], PAGES, Advice::PageOut);
        assert_eq!(scene.child.space.rss().swapped(), swapped + PAGES, "the device is still in use");
    }
    scene.device.broken.store(true, Ordering::Relaxed);
    let broken = world.on(CPU, |mm| mm.swap_off(0)).map_err(|error| error.errno());
    scene.device.broken.store(false, Ordering::Relaxed);
    assert_eq!(broken, Err(Errno::EIO));
    assert!(scene.is_intact());
    // Commitments that need the device's slots.
    world.on(CPU, |mm| {
        mm.settings().set(MmSetting::OvercommitRatio, 0).expect("a ratio");
        mm.settings().set(MmSetting::OvercommitMemory, 2).expect("a policy");
        assert_eq!((mm.commit_limit(), mm.swap_off(0)), (1000, Err(MmError::CommitRefused { pages: 1000 })));
        mm.settings().set(MmSetting::OvercommitMemory, 0).expect("a policy");
        assert_eq!(mm.swap_off(0), Ok(()));
    });
    assert!(scene.is_intact());
}

fn slots_are_allocated_by_priority_then_in_turn<I: Isa>() {
    let world = TestWorld::<I>::unjudged();
    let device = |slots, priority| {
        let device = MemorySwap::default();
        let backing = SwapBacking::Device(Box::new(device.clone()));
        world.on(CPU, |mm| mm.swap_on_with(backing, slots, priority)).expect("memory");
        device
    };
    let (last, low, first, second) =
        (device(100, None), device(70, Some(1)), device(100, Some(5)), device(100, Some(5)));
    let after_all = device(100, None);
    let process = TestProcess::new(&world);
    let base = process.anon(400);
    let used = |slots: &MemorySwap| slots.used();
    let out = |from: u64, pages: u64| {
        (from..from + pages).for_each(|page| process.write(CPU, at(base, page), page + 1));
        process.advise(at(base, from), pages, Advice::PageOut);
        [&first, &second, &low, &last, &after_all].map(used)
    };
    assert_eq!(out(0, 80), [48, 32, 0, 0, 0], "equal priorities take turns of 32 slots");
    assert_eq!(out(80, 140), [100, 100, 20, 0, 0]);
    assert_eq!(out(220, 120), [100, 100, 70, 70, 0]);
    assert_eq!(out(340, 40), [100, 100, 70, 100, 10]);
    let mut text = String::new();
    world.on(CPU, |mm| mm.show_swaps(&mut text)).expect("a string");
    let line = |name: &str, size, used, priority| format!("{name:<40}partition\t{size}\t\t{used}\t\t{priority}\n");
    let expected = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n".to_owned()
        + &line("/dev/swap0", 400, 400, -2)
        + &line("/dev/swap1", 280, 280, 1)
        + &line("/dev/swap2", 400, 400, 5)
        + &line("/dev/swap3", 400, 400, 5)
        + &line("/dev/swap4", 400, 40, -3);
    assert_eq!(text, expected);
    // An automatic priority moves up when a device with a higher one is removed.
    world.on(CPU, |mm| mm.swap_off(0)).expect("memory");
    let mut reported = Vec::new();
    world.on(CPU, |mm| mm.for_each_swap(|device| reported.push((device.number, device.kind, device.priority))));
    assert_eq!(reported, [(1, "swap", 1), (2, "swap", 5), (3, "swap", 5), (4, "swap", -2)]);
    world.on(CPU, |mm| mm.swap_on(SwapBacking::Zram(Zram::try_new(mm, 8, None).expect("memory")), 8)).expect("memory");
    reported.clear();
    world.on(CPU, |mm| mm.for_each_swap(|device| reported.push((device.number, device.kind, device.priority))));
    assert_eq!(reported[0], (0, "zram", -3));
    // One with a priority of its own leaves the others theirs.
    let plain = world.on(CPU, |mm| {
        let backing = || SwapBacking::Device(Box::new(MemorySwap::default()));
        let own = mm.swap_on_with(backing(), 4, Some(0)).expect("memory");
        mm.swap_off(own).expect("nothing is there");
        mm.swap_on(backing(), 4).expect("memory")
    });
    reported.clear();
    world.on(CPU, |mm| mm.for_each_swap(|device| reported.push((device.number, device.kind, device.priority))));
    let priority = |number| reported.iter().find(|(of, ..)| *of == number).map(|(_, _, priority)| *priority);
    assert_eq!([0, 4, plain].map(priority), [-3, -2, -4].map(Some));
    assert!(holds(&process, base, 380));
    let refused =
        world.on(CPU, |mm| mm.swap_on_with(SwapBacking::Device(Box::new(MemorySwap::default())), 1, Some(-1)));
    assert_eq!(refused.map_err(|error| error.errno()), Err(Errno::EINVAL));
}

fn a_device_has_a_whole_turn_after_one_that_is_full<I: Isa>() {
    let world = TestWorld::<I>::unjudged();
    let devices = [10, 100, 100].map(|slots| {
        let device = MemorySwap::default();
        let backing = SwapBacking::Device(Box::new(device.clone()));
        world.on(CPU, |mm| mm.swap_on_with(backing, slots, Some(5))).expect("memory");
        device
    });
    let process = TestProcess::new(&world);
    let base = process.anon(60);
    (0..60).for_each(|page| process.write(CPU, at(base, page), page + 1));
    process.advise(base, 60, Advice::PageOut);
    assert_eq!(devices.map(|device| device.used()), [10, 32, 18]);
}

/// INV-VIEW-PATHS, of slots: a parent and ten children, of which one has stored to the first page.
///
/// With tables of their own, as on Linux, 63 slots have eleven entries and one has ten.
fn a_slot_in_tables_with_unequal_sharers_is_divided_by_its_users<I: Isa>() {
    let world = TestWorld::<I>::unjudged();
    world.swap_to(100);
    let parent = TestProcess::new(&world);
    let base = parent.anon(64);
    fill(&parent, base, 64);
    parent.advise(base, 64, Advice::PageOut);
    let children: Vec<_> = (0..10).map(|_| parent.fork()).collect();
    children[4].write(CPU, base, 7);
    let figures = |process: &TestProcess<I>| {
        let stats = world.on(CPU, |mm| mm.mem_size_stats(&process.space));
        (stats.swap / PAGE_SIZE, stats.swap_pss.parts())
    };
    let page = PAGE_SIZE * Pss::PARTS;
    assert_eq!(figures(&children[4]), (63, 63 * (page / 11)));
    for process in children.iter().take(4).chain(children.iter().skip(5)).chain([&parent]) {
        assert_eq!(figures(process), (64, 63 * (page / 11) + page / 10));
    }
}

/// The value of a line in kB.
fn figure(text: &str, name: &str) -> u64 {
    let line = text.lines().find(|line| line.starts_with(name)).expect("such a line");
    line.split_whitespace().nth(1).expect("a figure").parse().expect("a number")
}

fn swapped_pages_are_reported<I: Isa>() {
    let world = TestWorld::<I>::unjudged();
    let scene = SwapScene::new(&world);
    let SwapScene { parent, child, bases: [both, _, shared, own], .. } = &scene;
    let text = |write: &dyn Fn(&pagewright_mm::Mm<pagewright_sim::Sim<I>>, &mut String)| {
        let mut text = String::new();
        world.on(CPU, |mm| write(mm, &mut text));
        text
    };
    let status = text(&|mm, out| mm.show_status(&child.space, out).expect("a string"));
    // Ten of the pages shared by fork are in memory. Shared memory does not count in VmSwap.
    assert_eq!(figure(&status, "VmSwap:"), (3 * PAGES - PAGES / 2) * 4);
    let smaps = text(&|mm, out| mm.show_smaps_rollup(&child.space, out).expect("a string"));
    assert_eq!(figure(&smaps, "Swap:"), (4 * PAGES - PAGES / 2) * 4);
    // A slot with two entries is divided between them. Ten slots have only the parent's entry.
    assert_eq!(figure(&smaps, "SwapPss:"), (PAGES / 4 + PAGES / 2 + PAGES) * 4);
    let parents = text(&|mm, out| mm.show_smaps_rollup(&parent.space, out).expect("a string"));
    assert_eq!(figure(&parents, "SwapPss:"), (PAGES / 2 + PAGES / 4 + PAGES / 2) * 4);
    let meminfo = text(&|mm, out| mm.show_meminfo(out).expect("a string"));
    assert_eq!(figure(&meminfo, "SwapTotal:"), 4000);
    assert_eq!(figure(&meminfo, "SwapFree:"), 4000 - 4 * PAGES * 4);
    assert_eq!(figure(&meminfo, "SwapCached:"), PAGES / 2 * 4);
    let words = |process: &TestProcess<I>, va: VirtAddr, pages: u64| {
        let mut words = Vec::new();
        let range = PageRange::from_len(va, pages * PAGE_SIZE).expect("whole pages");
        world.on(CPU, |mm| mm.pagemap(&process.space, range, |_, word| words.push(word)));
        words
    };
    for (slot, word) in (0..).zip(words(parent, *both, PAGES)) {
        // The device in bits 0 to 4, the slot in bits 5 to 54, then soft-dirty and swapped.
        assert_eq!(word.raw(), u64::from(slot) << 5 | 1 << 55 | 1 << 62);
        assert_eq!((word.swap_entry(), word.pfn()), (Some(SwapEntry::new(0, slot)), None));
    }
    assert!(words(child, *own, PAGES).iter().all(|word| word.flags().contains(PagemapFlags::SWAP)));
    assert!(words(child, *shared, PAGES).iter().all(|word| word.swap_entry().is_none()));
    let mut resident = [2; PAGES as usize];
    world.on(CPU, |mm| mm.mincore(&child.space, *both, PAGES * PAGE_SIZE, &mut resident)).expect("mapped");
    assert!((0..PAGES).zip(resident).all(|(page, resident)| resident == u8::from(page < PAGES / 2)));
}

/// Swapoff, while other CPUs store to its pages, page them out and fork.
///
/// Returns whether all pages have the last values stored, and no slot is in use.
pub(crate) fn stores_and_forks_during_swapoff<I: Isa>(seed: u64) -> bool {
    let (world, process) = TestProcess::<I>::unjudged();
    // In every other schedule the child shares tables, which a walk may find after its end.
    let shares = if seed.is_multiple_of(2) { "never" } else { "always" };
    world.set(MmSetting::CowPageTables, shares);
    let device = world.swap_to(16);
    let (base, shared) = (process.anon(2), process.map_shared(1));
    for va in [base, at(base, 1), shared] {
        process.write(CPU, va, 1);
        process.advise(va, 1, Advice::PageOut);
    }
    world.lab.run(CPU, &process.space);
    let (stores, others, off) = (world.clone(), world.clone(), world.clone());
    let [stored, forked] = [process.space.clone(), process.space.clone()];
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || {
            for value in 2..4 {
                for va in [base, shared] {
                    stores.store(CPU, &stored, va, value);
                    stores.lab.on(CPU, |mm| mm.madvise(&stored, va, PAGE_SIZE, Advice::PageOut)).expect("mapped");
                }
            }
        }),
        Box::new(move || {
            let child = others.lab.on(OTHER, |mm| mm.fork(&forked)).expect("memory");
            others.lab.on(OTHER, |mm| mm.madvise(&child, base, 2 * PAGE_SIZE, Advice::PageOut)).expect("mapped");
            others.lab.on(OTHER, |mm| mm.end_space(&child));
        }),
        Box::new(move || off.lab.on(THIRD, |mm| mm.swap_off(0)).expect("memory")),
    ];
    race(&world, seed, programs);
    let free = world.on(CPU, |mm| (mm.swap_slots(), mm.gauge(Gauge::SwapCached)));
    world.recount(&[&process]);
    device.used() == 0
        && (free, process.space.rss().swapped()) == (((0, 0), 0), 0)
        && (process.read(CPU, base), process.read(CPU, at(base, 1)), process.read(CPU, shared)) == (3, 1, 3)
}

/// One CPU reads swapped-out pages, while another replaces their device by a smaller one.
///
/// Returns whether the pages have their contents.
fn fault_while_the_device_is_replaced<I: Isa>(seed: u64) -> bool {
    let (world, process) = TestProcess::<I>::unjudged();
    world.swap_to(1000);
    let base = process.anon(3);
    fill(&process, base, 3);
    process.advise(base, 3, Advice::PageOut);
    world.lab.run(CPU, &process.space);
    let (touches, changes, touched) = (world.clone(), world.clone(), process.space.clone());
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || {
            for page in [2, 1, 0] {
                touches.lab.touch(CPU, &touched, at(base, page), Access::Read, 1).expect("readable");
            }
        }),
        Box::new(move || {
            changes.lab.on(OTHER, |mm| mm.swap_off(0)).expect("memory");
            let small = SwapBacking::Device(Box::new(MemorySwap::default()));
            changes.lab.on(OTHER, |mm| mm.swap_on(small, 1)).expect("memory");
        }),
    ];
    race_in_long_turns(&world, seed, programs);
    holds(&process, base, 3)
}

on_both! {
    swapoff_swaps_everything_in,
    pages_that_lose_their_slots_are_dirty,
    a_failed_swapoff_leaves_the_device_in_use,
    slots_are_allocated_by_priority_then_in_turn,
    a_device_has_a_whole_turn_after_one_that_is_full,
    swapped_pages_are_reported,
    a_slot_in_tables_with_unequal_sharers_is_divided_by_its_users,
    swapoff_does_not_bring_back_a_discarded_page:
        assert_holds(10 * SCHEDULES, discard_during_swapoff::<I>, "a discarded page was brought back"),
    /// INV-SWAP-COUNT, INV-SWAP-CACHE.
    no_page_is_lost_during_swapoff:
        assert_holds(SCHEDULES, stores_and_forks_during_swapoff::<I>, "a page is lost or a slot leaked"),
    mincore_finds_no_discarded_page:
        assert_holds(SCHEDULES, mincore_while_the_device_is_removed::<I>, "a discarded page is in memory"),
    a_fault_tolerates_a_replaced_device:
        assert_holds(SCHEDULES, fault_while_the_device_is_replaced::<I>, "a page has lost its contents"),
}
