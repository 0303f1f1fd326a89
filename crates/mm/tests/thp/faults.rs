//! Which faults map large folios, of which size, and what is counted.

use super::{BASE, PAGES, end};
use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::race::{assert_holds, race};
use pagewright_lab::harness::{ANON, CPU, OTHER, TestProcess, TestWorld, at};
use pagewright_lab::planted_bugs_are_found;
use pagewright_mm::counters::Gauge;
use pagewright_mm::{Advice, MapFlags, MmSetting, ThpDisabled};
use pagewright_sim::AllocationFailure;
use pagewright_sim::explore::CoroutineBody;
use pagewright_types::{Access, Counter, Level, Rights};
use std::rc::Rc;

on_both! {
    a_store_maps_a_huge_page_where_the_setting_allows_it,
    a_process_and_a_mapping_refuse_huge_pages,
    a_mapping_that_does_not_cover_2_mib_gets_smaller_pages,
    the_largest_size_whose_entries_are_empty_is_taken,
    a_folio_that_cannot_be_had_is_replaced_by_a_smaller_one,
    a_table_that_cannot_be_had_fails_the_fault,
    a_store_below_a_shared_table_maps_a_huge_page_of_its_own,
    a_load_below_a_shared_table_maps_a_page,
    an_end_and_an_unmap_free_the_deposits,
    huge_pages_are_told_to_the_reader,
    a_load_maps_a_huge_page_of_zeroes_and_a_store_replaces_it,
    a_load_maps_a_huge_page_of_its_own_if_that_of_zeroes_is_off,
    a_huge_page_of_zeroes_is_split_if_no_folio_can_be_had,
    two_threads_fault_in_one_block: assert_holds(SCHEDULES, two_faults::<I>, "a store was lost"),
}

const SCHEDULES: u64 = 100;

fn world<I: Isa>(blocks: u64) -> (Rc<TestWorld<I>>, TestProcess<I>) {
    let world = TestWorld::sized(2, 16 << 20);
    let process = TestProcess::new(&world);
    process.map_at(BASE, blocks * PAGES, Rights::RW, ANON | MapFlags::FIXED | MapFlags::NORESERVE);
    (world, process)
}

fn a_store_maps_a_huge_page_where_the_setting_allows_it<I: Isa>() {
    let cases = [
        ("always", "inherit", false, true),
        ("always", "inherit", true, true),
        ("madvise", "inherit", false, false),
        ("madvise", "inherit", true, true),
        ("never", "inherit", true, false),
        ("never", "always", false, true),
        ("never", "madvise", true, true),
        ("always", "never", true, false),
    ];
    for (enabled, of_size, advised, huge) in cases {
        let (world, process) = world::<I>(2);
        world.set(MmSetting::ThpEnabled, enabled);
        world.set(MmSetting::ThpEnabled2048k, of_size);
        if advised {
            process.advise(BASE, 2 * PAGES, Advice::HugePage);
        }
        process.write(CPU, at(BASE, 7), 70);
        let level = if huge { Level::PMD } else { Level::PTE };
        assert_eq!(process.leaf_level(at(BASE, 7)), Some(level), "{enabled}, {of_size}, advised: {advised}");
        assert_eq!((process.read(OTHER, at(BASE, 7)), process.read(OTHER, at(BASE, 6))), (70, 0));
        assert_eq!(world.count(Counter::ThpFaultAlloc), u64::from(huge));
        assert_eq!(process.space.rss().pages(), if huge { PAGES } else { 1 });
        assert_eq!(process.leaf_level(at(BASE, PAGES)), None, "the next 2 MiB");
        end(&world, &[&process]);
    }
}

fn a_process_and_a_mapping_refuse_huge_pages<I: Isa>() {
    for (disabled, advice, huge) in [
        (ThpDisabled::Yes, None, false),
        (ThpDisabled::Yes, Some(Advice::HugePage), false),
        (ThpDisabled::ExceptAdvised, None, false),
        (ThpDisabled::ExceptAdvised, Some(Advice::HugePage), true),
        (ThpDisabled::No, Some(Advice::NoHugePage), false),
        (ThpDisabled::No, None, true),
    ] {
        let (world, parent) = world::<I>(1);
        world.set(MmSetting::ThpEnabled, "always");
        parent.space.set_thp_disabled(disabled);
        let process = parent.fork();
        if let Some(advice) = advice {
            process.advise(BASE, PAGES, advice);
        }
        process.write(CPU, BASE, 1);
        assert_eq!(process.leaf_level(BASE) == Some(Level::PMD), huge, "{disabled:?}, {advice:?}, in a child");
        end(&world, &[&process, &parent]);
    }
}

fn a_mapping_that_does_not_cover_2_mib_gets_smaller_pages<I: Isa>() {
    let (world, process) = world::<I>(3);
    world.set(MmSetting::ThpEnabled, "always");
    process.protect(at(BASE, PAGES - 1), 2, Rights::READ);
    [0, PAGES + 1].iter().for_each(|page| process.write(CPU, at(BASE, *page), 1));
    process.write(CPU, at(BASE, 2 * PAGES + 5), 1);
    let levels = [0, PAGES + 1, 2 * PAGES + 5].map(|page| process.leaf_level(at(BASE, page)));
    assert_eq!(levels, [Some(Level::PTE), Some(Level::PTE), Some(Level::PMD)]);
    assert_eq!((process.space.rss().pages(), world.count(Counter::ThpFaultFallback)), (2 + PAGES, 0));
    end(&world, &[&process]);
}

fn the_largest_size_whose_entries_are_empty_is_taken<I: Isa>() {
    let (world, process) = world::<I>(1);
    process.write(CPU, at(BASE, 37), 37);
    for setting in [MmSetting::ThpEnabled16k, MmSetting::ThpEnabled64k, MmSetting::ThpEnabled2048k] {
        world.set(setting, "always");
    }
    let resident = |page: u64| {
        let before = process.space.rss().pages();
        process.write(CPU, at(BASE, page), page);
        process.space.rss().pages() - before
    };
    // 16 pages where these are empty, 4 beside page 37, and a page alone in its block of 4.
    assert_eq!([resident(3), resident(33), resident(38), resident(47)], [16, 4, 1, 4]);
    assert_eq!((world.count(Counter::PwMthpFaultAlloc), world.count(Counter::ThpFaultAlloc)), (3, 0));
    for page in 0..64 {
        let written = if [3, 33, 37, 38, 47].contains(&page) { page } else { 0 };
        assert_eq!(process.read(OTHER, at(BASE, page)), written, "page {page}");
    }
    process.unmap(at(BASE, 2), 5);
    world.recount(&[&process]);
    assert_eq!(process.space.rss().pages(), 1 + 16 + 4 + 1 + 4 - 5);
    end(&world, &[&process]);
}

fn a_folio_that_cannot_be_had_is_replaced_by_a_smaller_one<I: Isa>() {
    let (world, process) = world::<I>(1);
    world.set(MmSetting::ThpEnabled, "always");
    world.set(MmSetting::ThpEnabled64k, "inherit");
    // No block of 2 MiB is free while every second page of another mapping is used.
    let singles = process.anon(4096);
    world.set(MmSetting::ThpEnabled, "never");
    let used = (0..4096).take_while(|page| process.touch(CPU, at(singles, *page), Access::Write).is_ok()).count();
    (0..used as u64 / 32).for_each(|run| process.unmap(at(singles, 32 * run), 16));
    world.set(MmSetting::ThpEnabled, "always");
    process.write(CPU, at(BASE, 3), 3);
    let counts = [Counter::ThpFaultFallback, Counter::ThpFaultAlloc, Counter::PwMthpFaultAlloc];
    assert_eq!(counts.map(|counter| world.count(counter)), [1, 0, 1]);
    assert_eq!((process.leaf_level(BASE), process.read(OTHER, at(BASE, 3))), (Some(Level::PTE), 3));
    end(&world, &[&process]);
}

/// INV-MM-COMMIT: each allocation of the fault in turn.
fn a_table_that_cannot_be_had_fails_the_fault<I: Isa>() {
    for allowed in 0..5 {
        let (world, process) = world::<I>(1);
        world.set(MmSetting::ThpEnabled, "always");
        world.lab.run(CPU, &process.space);
        let sim = world.lab.sim();
        sim.fail_allocation_after(allowed, AllocationFailure::One);
        let served = process.touch(CPU, BASE, Access::Write);
        sim.permit_allocations();
        // Two tables and the deposit, then the folio.
        assert_eq!(served.is_ok(), allowed > 2, "allocation {allowed}");
        let level = if allowed == 3 { Level::PTE } else { Level::PMD };
        assert_eq!(process.leaf_level(BASE), served.is_ok().then_some(level), "allocation {allowed}");
        assert_eq!(world.count(Counter::ThpFaultFallback), u64::from(allowed == 3));
        end(&world, &[&process]);
    }
}

/// INV-HUGE-OWN: it breaks the tables down to the level of its leaf.
fn a_store_below_a_shared_table_maps_a_huge_page_of_its_own<I: Isa>() {
    let (world, process) = world::<I>(2);
    world.set(MmSetting::CowPageTables, "always");
    process.write(CPU, BASE, 1);
    let child = process.fork();
    world.set(MmSetting::ThpEnabled, "always");
    child.write(OTHER, at(BASE, PAGES), 5);
    assert_eq!((child.leaf_level(at(BASE, PAGES)), process.leaf_level(at(BASE, PAGES))), (Some(Level::PMD), None));
    assert_eq!((child.read(OTHER, BASE), process.read(CPU, at(BASE, PAGES))), (1, 0));
    process.write(CPU, BASE, 2);
    assert_eq!((child.read(OTHER, BASE), child.read(OTHER, at(BASE, PAGES))), (1, 5));
    end(&world, &[&process, &child]);
}

fn a_load_below_a_shared_table_maps_a_page<I: Isa>() {
    let (world, process) = world::<I>(2);
    world.set(MmSetting::CowPageTables, "always");
    process.write(CPU, BASE, 1);
    let child = process.fork();
    world.set(MmSetting::ThpEnabled, "always");
    assert_eq!(child.read(OTHER, at(BASE, PAGES)), 0);
    assert_eq!([&child, &process].map(|one| one.leaf_level(at(BASE, PAGES))), [Some(Level::PTE); 2]);
    end(&world, &[&process, &child]);
}

/// INV-HUGE-DEPOSIT: `end` compares the gauges.
fn an_end_and_an_unmap_free_the_deposits<I: Isa>() {
    let (world, process) = world::<I>(3);
    world.set(MmSetting::ThpEnabled, "always");
    let tables = || world.gauge(Gauge::PageTablePages);
    (0..3).for_each(|block| process.write(CPU, at(BASE, block * PAGES), block));
    let before = tables();
    process.unmap(BASE, PAGES);
    assert_eq!((before - tables(), process.space.table().deposits()), (1, 2));
    process.advise(at(BASE, PAGES), PAGES, Advice::DontNeed);
    assert_eq!((before - tables(), process.space.table().deposits()), (2, 1));
    process.unmap(at(BASE, 2 * PAGES), 1);
    assert_eq!((before - tables(), process.space.table().deposits()), (2, 0), "it is hooked");
    assert_eq!(world.count(Counter::ThpSplitPmd), 1);
    end(&world, &[&process]);
}

fn huge_pages_are_told_to_the_reader<I: Isa>() {
    let (world, process) = world::<I>(3);
    world.set(MmSetting::ThpEnabled, "always");
    process.write(CPU, BASE, 1);
    process.write(CPU, at(BASE, PAGES), 1);
    let show = |what: &dyn Fn(&mut String)| {
        let mut text = String::new();
        what(&mut text);
        text
    };
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name} in {text}"));
        line.split_whitespace().nth(1).expect("a figure").to_owned()
    };
    let smaps = || process.smaps();
    let meminfo = || show(&|text| world.on(CPU, |mm| mm.show_meminfo(text)).expect("a string takes all"));
    let vmstat = || show(&|text| world.on(CPU, |mm| mm.show_vmstat(text)).expect("a string takes all"));
    assert_eq!(
        (field(&smaps(), "AnonHugePages:"), field(&meminfo(), "AnonHugePages:")),
        ("4096".into(), "4096".into())
    );
    assert_eq!(field(&vmstat(), "nr_anon_transparent_hugepages"), "2");
    assert_eq!(field(&smaps(), "THPeligible:"), "1");
    process.protect(at(BASE, 3), 1, Rights::READ);
    assert_eq!(field(&meminfo(), "AnonHugePages:"), "2048");
    let child = process.fork();
    assert_eq!(field(&meminfo(), "AnonHugePages:"), "2048", "a folio counts once");
    process.unmap(at(BASE, PAGES), PAGES);
    assert_eq!(field(&meminfo(), "AnonHugePages:"), "2048");
    child.unmap(at(BASE, PAGES), PAGES);
    assert_eq!(field(&meminfo(), "AnonHugePages:"), "0");
    process.advise(at(BASE, 2 * PAGES), PAGES, Advice::NoHugePage);
    let last = smaps();
    let last = last.rfind("THPeligible:").map_or("", |place| &last[place..]);
    assert_eq!(field(last, "THPeligible:"), "0");
    assert!(field(last, "VmFlags:").starts_with("rd") && last.contains(" nh "), "{last}");
    end(&world, &[&process, &child]);
}

/// The machine has one, which no process counts.
fn a_load_maps_a_huge_page_of_zeroes_and_a_store_replaces_it<I: Isa>() {
    let (world, process) = world::<I>(2);
    let tables = world.gauge(Gauge::PageTablePages);
    world.set(MmSetting::ThpEnabled, "always");
    let block = at(BASE, PAGES);
    assert_eq!(process.read(CPU, at(block, 9)), 0);
    assert_eq!((process.leaf_level(at(block, 9)), process.space.rss().pages()), (Some(Level::PMD), 0));
    let child = process.fork();
    assert_eq!(child.read(OTHER, at(block, 8)), 0);
    assert_eq!((child.leaf_level(block), world.count(Counter::ThpZeroPageAlloc)), (Some(Level::PMD), 1));
    child.write(OTHER, at(block, 9), 90);
    assert_eq!((child.leaf_level(block), child.space.rss().pages()), (Some(Level::PMD), PAGES));
    assert_eq!((child.read(OTHER, at(block, 9)), process.read(CPU, at(block, 9))), (90, 0));
    assert_eq!((world.count(Counter::ThpFaultAlloc), world.count(Counter::ThpSplitPmd)), (1, 0));
    process.protect(at(block, 3), 1, Rights::empty());
    assert_eq!((process.read(CPU, at(block, 9)), process.leaf_level(block)), (0, Some(Level::PTE)));
    world.recount(&[&process, &child]);
    TestProcess::end_all_at_rest(&[&process, &child]);
    assert!(world.gauge(Gauge::PageTablePages) < tables, "the root of the process was counted");
}

/// No smaller one: an entry of the last level maps the small page of zeroes.
fn a_load_maps_a_huge_page_of_its_own_if_that_of_zeroes_is_off<I: Isa>() {
    for (of_size, huge) in [("inherit", true), ("never", false)] {
        let (world, process) = world::<I>(1);
        world.set(MmSetting::ThpEnabled, "always");
        world.set(MmSetting::ThpEnabled2048k, of_size);
        world.set(MmSetting::ThpEnabled64k, "always");
        world.set(MmSetting::ThpUseZeroPage, "0");
        assert_eq!(process.read(CPU, at(BASE, 9)), 0);
        let (level, pages) = if huge { (Level::PMD, PAGES) } else { (Level::PTE, 0) };
        assert_eq!((process.leaf_level(at(BASE, 9)), process.space.rss().pages()), (Some(level), pages));
        process.write(OTHER, at(BASE, 8), 80);
        assert_eq!([8, 9].map(|page| process.read(CPU, at(BASE, page))), [80, 0]);
        let counters = [Counter::ThpFaultAlloc, Counter::PwMthpFaultAlloc, Counter::ThpZeroPageAlloc];
        assert_eq!(counters.map(|counter| world.count(counter)), [u64::from(huge), 0, 0], "{of_size}");
        end(&world, &[&process]);
    }
}

fn a_huge_page_of_zeroes_is_split_if_no_folio_can_be_had<I: Isa>() {
    let (world, process) = world::<I>(1);
    world.set(MmSetting::ThpEnabled, "always");
    assert_eq!(process.read(CPU, at(BASE, 9)), 0);
    world.lab.run(CPU, &process.space);
    // The deposit is there, and the folio is not.
    world.lab.sim().fail_allocation_after(1, AllocationFailure::One);
    process.write(CPU, at(BASE, 9), 90);
    world.lab.sim().permit_allocations();
    assert_eq!((process.leaf_level(BASE), process.space.rss().pages()), (Some(Level::PTE), 1));
    assert_eq!([8, 9].map(|page| process.read(OTHER, at(BASE, page))), [0, 90]);
    let counts = [Counter::ThpFaultFallback, Counter::ThpSplitPmd].map(|counter| world.count(counter));
    assert_eq!(counts, [1, 1]);
    world.recount(&[&process]);
    TestProcess::end_all_at_rest(&[&process]);
}

/// Two threads store to one empty range of 2 MiB.
fn two_faults<I: Isa>(seed: u64) -> bool {
    let (world, process) = world::<I>(1);
    world.set(MmSetting::ThpEnabled, "always");
    world.set(MmSetting::ThpEnabled64k, "always");
    if seed.is_multiple_of(3) {
        world.set(MmSetting::ThpEnabled2048k, "never");
    }
    if seed.is_multiple_of(5) {
        // The second thread finds a table, and the first may not have.
        world.lab.run(CPU, &process.space);
        world.set(MmSetting::ThpEnabled, "never");
    }
    let programs: Vec<CoroutineBody> = [(CPU, 3), (OTHER, 5)]
        .into_iter()
        .map(|(cpu, page)| {
            world.lab.run(cpu, &process.space);
            let (world, space) = (Rc::clone(&world), process.space.clone());
            Box::new(move || world.store(cpu, &space, at(BASE, page), page)) as CoroutineBody
        })
        .collect();
    race(&world, seed, programs);
    let sound = [3, 5, 6].map(|page| process.read(CPU, at(BASE, page))) == [3, 5, 0];
    end(&world, &[&process]);
    sound
}

planted_bugs_are_found! {
    20 * SCHEDULES;
    HugeOverTable => two_faults,
}
