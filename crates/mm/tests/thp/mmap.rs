//! Where `mmap` and `mremap` place memory that may get huge pages, and `MAP_STACK`.

use super::{BASE, PAGES, SPAN, end};
use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::{ANON, CPU, TestProcess, TestWorld, at};
use pagewright_mm::{Advice, MapFlags, MmSetting, RemapFlags, RemapRequest};
use pagewright_types::{Level, PAGE_SIZE, Rights, VirtAddr};

on_both! {
    private_memory_of_whole_huge_pages_begins_at_one,
    other_mappings_are_placed_below_the_last,
    a_gap_without_room_to_align_is_used,
    a_moved_mapping_of_whole_huge_pages_begins_at_one,
    a_mapping_with_map_stack_gets_no_huge_pages,
}

/// A process with a page as the highest mapping, and the address of that page.
fn process<I: Isa>() -> (TestProcess<I>, VirtAddr) {
    let process = TestProcess::new(&TestWorld::new(1));
    let top = process.anon(1);
    (process, top)
}

fn below(top: VirtAddr, pages: u64) -> VirtAddr {
    VirtAddr::new(top.raw() - pages * PAGE_SIZE)
}

fn private_memory_of_whole_huge_pages_begins_at_one<I: Isa>() {
    let (process, top) = process::<I>();
    let first = process.map(2 * PAGES, Rights::RW, ANON | MapFlags::NORESERVE, None);
    assert_eq!(first, below(top, 2 * PAGES).align_down(SPAN));
    assert_eq!(process.anon(PAGES), below(first, PAGES), "directly below, although the gap has room for more");
    // The gap above the first has no huge page of room.
    assert_eq!(process.anon(1), below(top, 1));
    end(&process.world, &[&process]);
}

fn other_mappings_are_placed_below_the_last<I: Isa>() {
    let (process, mut top) = process::<I>();
    let mut check = |mapped: VirtAddr, pages: u64, what: &str| {
        assert_eq!(mapped, below(top, pages), "{what}");
        top = mapped;
    };
    check(process.anon(PAGES + 1), PAGES + 1, "another length");
    check(process.map_shared(PAGES), PAGES, "shared memory");
    let taken = process.map_at(BASE, PAGES, Rights::RW, MapFlags::PRIVATE);
    assert_eq!(taken, BASE);
    check(process.map_at(BASE, PAGES, Rights::RW, MapFlags::PRIVATE), PAGES, "a hint that is taken");
    end(&process.world, &[&process]);
}

fn a_gap_without_room_to_align_is_used<I: Isa>() {
    let (process, _) = process::<I>();
    let fill = |from: VirtAddr, to: VirtAddr| {
        let pages = to.page_index() - from.page_index();
        process.map_at(from, pages, Rights::empty(), MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE);
    };
    let gap = at(BASE, 3);
    fill(VirtAddr::new(65536), gap);
    fill(at(gap, 2 * PAGES), I::USER_END);
    assert_eq!(process.anon(PAGES), at(BASE, PAGES), "aligned, if the gap has a huge page more");
    process.unmap(at(BASE, PAGES), PAGES);
    fill(at(gap, 2 * PAGES - 1), at(gap, 2 * PAGES));
    assert_eq!(process.anon(PAGES), at(gap, PAGES - 1), "the end of the gap otherwise");
    end(&process.world, &[&process]);
}

fn a_moved_mapping_of_whole_huge_pages_begins_at_one<I: Isa>() {
    let (process, top) = process::<I>();
    for (shared, new, expected) in [
        (false, 2 * PAGES, below(top, 2 * PAGES).align_down(SPAN)),
        (false, 2 * PAGES + 1, below(top, 2 * PAGES + 1)),
        (true, 2 * PAGES, below(top, 2 * PAGES)),
    ] {
        let kind = if shared { MapFlags::SHARED } else { MapFlags::PRIVATE };
        process.map_at(at(BASE, 1), 4, Rights::RW, kind | MapFlags::FIXED);
        // It cannot grow in place.
        process.map_at(at(BASE, 5), 1, Rights::READ, MapFlags::PRIVATE | MapFlags::FIXED);
        let (old_len, new_len) = (4 * PAGE_SIZE, new * PAGE_SIZE);
        let flags = RemapFlags::MAYMOVE;
        let request = RemapRequest { addr: at(BASE, 1), old_len, new_len, flags, new_addr: VirtAddr::ZERO };
        let moved = process.world.on(CPU, |mm| mm.mremap(&process.space, &request)).expect("room");
        assert_eq!(moved, expected, "shared: {shared}, {new} pages");
        process.unmap(moved, new);
    }
    end(&process.world, &[&process]);
}

fn a_mapping_with_map_stack_gets_no_huge_pages<I: Isa>() {
    let process = TestProcess::<I>::new(&TestWorld::sized(2, 16 << 20));
    let world = &process.world;
    world.set(MmSetting::ThpEnabled, "always");
    let fixed = MapFlags::PRIVATE | MapFlags::FIXED;
    process.map_at(BASE, PAGES, Rights::RW, fixed | MapFlags::STACK);
    process.map_at(at(BASE, PAGES), PAGES, Rights::RW, fixed);
    assert_eq!(process.mappings(), 2, "the flag keeps the two apart");
    [0, PAGES].iter().for_each(|page| process.write(CPU, at(BASE, *page), 1));
    let level = |page| process.leaf_level(at(BASE, page));
    assert_eq!((level(0), level(PAGES)), (Some(Level::PTE), Some(Level::PMD)));
    process.advise(BASE, 1, Advice::DontNeed);
    process.advise(BASE, 2 * PAGES, Advice::HugePage);
    assert_eq!(process.mappings(), 1);
    process.write(CPU, BASE, 1);
    assert_eq!(level(0), Some(Level::PTE), "the table of the last level is there");
    end(world, &[&process]);
}
