//! What is refused about huge pages, and changes nothing.

use super::{BASE, Mapped, PAGES, end, holds};
use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::{ANON, CPU, TestProcess, TestWorld, at};
use pagewright_mm::space::VmFlags;
use pagewright_mm::{Advice, MapFlags, MmSetting};
use pagewright_sim::AllocationFailure;
use pagewright_types::{Access, Counter, Errno, Level, PAGE_SIZE, Rights, VirtAddr};

on_both! {
    unknown_words_and_sizes_are_refused,
    advice_about_huge_pages_is_refused_where_linux_refuses_it,
    each_allocation_of_a_fault_for_pieces_fails_in_turn,
    a_fault_without_any_frame_fails_and_maps_nothing,
}

const SETTINGS: [MmSetting; 4] =
    [MmSetting::ThpEnabled, MmSetting::ThpDefrag, MmSetting::ThpUseZeroPage, MmSetting::ThpEnabled2048k];

/// `enabled_store`, `thpsize_enabled_store`, `defrag_store`, `use_zero_page_store`: `EINVAL`.
fn unknown_words_and_sizes_are_refused<I: Isa>() {
    let world = TestWorld::<I>::new(1);
    for setting in SETTINGS {
        let before = world.on(CPU, |mm| mm.settings().get(setting));
        for text in ["", "sometimes", "Always", "always madvise", "[always]", "-1", "2M", "99"] {
            assert_eq!(setting.parse(text), None, "{setting:?}: {text:?}");
        }
        assert!(world.on(CPU, |mm| mm.settings().set(setting, 99)).is_err(), "{setting:?}");
        assert_eq!(world.on(CPU, |mm| mm.settings().get(setting)), before, "{setting:?}");
    }
    // Words of one file that another one does not have.
    assert_eq!((MmSetting::ThpEnabled.parse("inherit"), MmSetting::ThpEnabled.parse("defer")), (None, None));
    for size in ["4", "8", "24", "2047", "4096"] {
        let path = format!("/sys/kernel/mm/transparent_hugepage/hugepages-{size}kB/enabled");
        assert!(MmSetting::ALL.iter().all(|setting| setting.path() != path), "{path}");
    }
}

/// `madvise_behavior_valid` and `madvise_walk_vmas`; `hugepage_madvise` itself refuses nothing.
fn advice_about_huge_pages_is_refused_where_linux_refuses_it<I: Isa>() {
    for advice in [Advice::HugePage, Advice::NoHugePage] {
        let world = TestWorld::<I>::sized(1, 16 << 20);
        let process = TestProcess::new(&world);
        process.map_at(BASE, 4, Rights::RW, ANON | MapFlags::FIXED);
        process.map_at(at(BASE, 8), 4, Rights::RW, ANON | MapFlags::FIXED);
        let advise = |addr: VirtAddr, len: u64| {
            world.on(CPU, |mm| mm.madvise(&process.space, addr, len, advice)).map_err(|error| error.errno())
        };
        let flag = if advice == Advice::HugePage { VmFlags::HUGEPAGE } else { VmFlags::NOHUGEPAGE };
        let advised = || [BASE, at(BASE, 8)].map(|va| process.flags(va).contains(flag));
        assert_eq!(advise(BASE.add(1), PAGE_SIZE), Err(Errno::EINVAL), "{advice:?}");
        assert_eq!(advise(BASE, u64::MAX - 5), Err(Errno::EINVAL), "{advice:?}");
        assert_eq!(advise(at(BASE, 4), PAGE_SIZE), Err(Errno::ENOMEM), "{advice:?}");
        assert_eq!((advise(BASE, 0), advised()), (Ok(()), [false; 2]), "{advice:?}");
        // A gap does not keep the advice from the mappings around it.
        assert_eq!((advise(BASE, 12 * PAGE_SIZE), advised()), (Err(Errno::ENOMEM), [true; 2]), "{advice:?}");
        end(&world, &[&process]);
    }
}

/// INV-MM-COMMIT: two tables, the large folio, and a page in place of it.
fn each_allocation_of_a_fault_for_pieces_fails_in_turn<I: Isa>() {
    let mut outcomes = Vec::new();
    for allowed in 0..5 {
        let world = TestWorld::<I>::sized(2, 16 << 20);
        let process = TestProcess::new(&world);
        process.map_at(BASE, PAGES, Rights::RW, ANON | MapFlags::FIXED | MapFlags::NORESERVE);
        world.set(MmSetting::ThpEnabled64k, "always");
        world.lab.run(CPU, &process.space);
        world.lab.sim().fail_allocation_after(allowed, AllocationFailure::One);
        let served = process.touch(CPU, BASE, Access::Write).is_ok();
        world.lab.sim().permit_allocations();
        assert_eq!(process.leaf_level(BASE), served.then_some(Level::PTE), "allocation {allowed}");
        outcomes.push((served, process.space.rss().pages(), world.count(Counter::PwMthpFaultAlloc)));
        end(&world, &[&process]);
    }
    assert!(outcomes.iter().all(|(served, pages, _)| *served == (*pages > 0)), "{outcomes:?}");
    assert!(outcomes.contains(&(true, 1, 0)) && outcomes.contains(&(true, 16, 1)), "{outcomes:?}");
}

/// Orders 9 and 0 fail, and what was mapped stays.
fn a_fault_without_any_frame_fails_and_maps_nothing<I: Isa>() {
    for size in [MmSetting::ThpEnabled2048k, MmSetting::ThpEnabled64k] {
        let (world, process) = Mapped::Pieces16.process::<I>();
        world.set(size, "always");
        let tables = world.gauge(pagewright_mm::counters::Gauge::PageTablePages);
        world.lab.sim().fail_allocation_after(0, AllocationFailure::All);
        let served = process.touch(CPU, at(BASE, 40), Access::Write);
        world.lab.sim().permit_allocations();
        assert!(served.is_err() && process.leaf_level(at(BASE, 40)).is_none(), "{size:?}");
        assert_eq!(world.gauge(pagewright_mm::counters::Gauge::PageTablePages), tables);
        assert!(holds(&process, 0..0));
        end(&world, &[&process]);
    }
}
