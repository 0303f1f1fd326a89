//! INV-SOFT-DIRTY, and what `pagemap` tells.

use pagewright_arch::Isa;
use pagewright_arch::on_both;
use pagewright_lab::harness::{ANON, CPU, GupCall, OTHER, TestProcess, TestWorld};
use pagewright_mm::MapFlags;
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_mm::space::ClearRefs;
use pagewright_mm::view::PagemapFlags;
use pagewright_tlb::frames::FolioFlags;
use pagewright_types::{Access, PAGE_SIZE, PageRange, Rights, VirtAddr};

on_both! {
    what_was_stored_to_is_told_until_it_is_cleared,
    clearing_reaches_the_other_cpus,
    every_way_of_storing_is_noticed,
    new_mappings_count_as_stored_to,
    rights_that_come_back_do_not_hide_stores,
    pinned_pages_stay_told,
    the_words_say_where_pages_are,
    used_pages_are_forgotten_by_kind,
}

fn states<I: Isa>(process: &TestProcess<I>, base: VirtAddr, pages: u64) -> Vec<PagemapFlags> {
    let range = PageRange::from_len(base, pages * PAGE_SIZE).expect("pages");
    let mut states = vec![PagemapFlags::empty(); pages as usize];
    let mut tell = |va: VirtAddr, word: pagewright_mm::view::PagemapEntry| {
        states[(va.since(base) / PAGE_SIZE) as usize] = word.flags();
    };
    process.world.on(CPU, |mm| mm.pagemap(&process.space, range, &mut tell));
    states
}

fn dirty<I: Isa>(process: &TestProcess<I>, base: VirtAddr, pages: u64) -> Vec<bool> {
    states(process, base, pages).iter().map(|state| state.contains(PagemapFlags::SOFT_DIRTY)).collect()
}

fn clear<I: Isa>(process: &TestProcess<I>) {
    process.world.on(CPU, |mm| mm.clear_refs(&process.space, ClearRefs::SoftDirty).expect("memory"));
}

fn what_was_stored_to_is_told_until_it_is_cleared<I: Isa>() {
    let process = TestProcess::new(&TestWorld::<I>::new(1));
    let base = process.anon(4);
    process.write(CPU, base, 1);
    process.write(CPU, base.add(PAGE_SIZE), 1);
    clear(&process);
    assert_eq!(dirty(&process, base, 4), [false; 4]);
    process.write(CPU, base.add(PAGE_SIZE), 2);
    process.read(CPU, base);
    process.write(CPU, base.add(2 * PAGE_SIZE), 1);
    assert_eq!(dirty(&process, base, 4), [false, true, true, false]);
    clear(&process);
    assert_eq!(dirty(&process, base, 4), [false; 4]);
    assert_eq!((process.read(CPU, base.add(PAGE_SIZE)), process.space.rss().pages()), (2, 3), "contents stay");
    TestProcess::end_all_at_rest(&[&process]);
}

fn clearing_reaches_the_other_cpus<I: Isa>() {
    let process = TestProcess::new(&TestWorld::<I>::new(2));
    let base = process.anon(1);
    for cpu in [CPU, OTHER] {
        process.write(cpu, base, 1);
    }
    clear(&process);
    let sim = process.world.lab.sim();
    for cpu in [CPU, OTHER] {
        assert!(sim.access(cpu, base, Access::Write, 1).is_err(), "CPU {cpu} stores unnoticed");
    }
    process.write(OTHER, base, 2);
    assert_eq!(dirty(&process, base, 1), [true]);
    TestProcess::end_all_at_rest(&[&process]);
}

fn every_way_of_storing_is_noticed<I: Isa>() {
    let (world, process) = TestProcess::<I>::judged(1);
    let file = world.file(6);
    let mappings = [
        process.anon(6),
        process.map(6, Rights::RW, MapFlags::SHARED, Some(&file)),
        process.map(6, Rights::RW, MapFlags::PRIVATE, Some(&file)),
        process.map(6, Rights::RW, MapFlags::SHARED | MapFlags::ANONYMOUS, None),
    ];
    for base in mappings {
        let page = |index: u64| base.add(index * PAGE_SIZE);
        (0..4).for_each(|index| process.write(CPU, page(index), 1));
        process.read(CPU, page(4));
        clear(&process);
        // Page 3 is left alone.
        process.write(CPU, page(0), 2);
        world.on(CPU, |mm| mm.put_user(&process.space, page(1), 3u64)).expect("mapped");
        let device = process.take(CPU, page(2), 1, GupCall::PinFast(GupFlags::WRITE)).expect("mapped");
        device.write(0, 4);
        device.release(MakeDirty::Yes);
        process.write(CPU, page(4), 5);
        process.write(CPU, page(5), 6);
        assert_eq!(dirty(&process, base, 6), [true, true, true, false, true, true], "{base}");
    }
    // After a fork the first store copies, or takes the page over.
    let base = mappings[0];
    clear(&process);
    let child = process.fork();
    assert_eq!(dirty(&child, base, 6), [false; 6], "a child has what its parent had");
    process.write(CPU, base, 7);
    child.write(CPU, base.add(PAGE_SIZE), 7);
    assert_eq!(dirty(&process, base, 2), [true, false]);
    assert_eq!(dirty(&child, base, 2), [false, true]);
    // A page that is unshared for a pin is told as before: only the first one was stored to.
    let sibling = process.fork();
    for index in [0, 2] {
        let pin = GupCall::Pin(GupFlags::empty());
        process.take(CPU, base.add(index * PAGE_SIZE), 1, pin).expect("there").release(MakeDirty::No);
    }
    assert_eq!(dirty(&process, base, 3), [true, false, false]);
    TestProcess::end_all_at_rest(&[&sibling, &child, &process]);
    world.on(CPU, |mm| mm.forget_file(&file));
}

fn new_mappings_count_as_stored_to<I: Isa>() {
    let process = TestProcess::new(&TestWorld::<I>::new(1));
    let base = process.anon(2);
    assert_eq!(dirty(&process, base, 2), [true; 2], "never touched, and new");
    clear(&process);
    assert_eq!(dirty(&process, base, 2), [false; 2]);
    // What was there before is gone.
    let flags = ANON | MapFlags::FIXED;
    let request = pagewright_mm::MapRequest { addr: base, len: PAGE_SIZE, rights: Rights::RW, flags, file: None };
    process.world.on(CPU, |mm| mm.mmap(&process.space, &request)).expect("room");
    assert!(dirty(&process, base, 1)[0]);
    // The heap grows by mappings, too.
    let heap = VirtAddr::new(1 << 30);
    process.world.on(CPU, |mm| {
        mm.set_brk_start(&process.space, heap);
        mm.brk(&process.space, heap.add(2 * PAGE_SIZE))
    });
    assert_eq!(dirty(&process, heap, 2), [true; 2]);
    TestProcess::end_all_at_rest(&[&process]);
}

fn rights_that_come_back_do_not_hide_stores<I: Isa>() {
    for flags in [ANON, MapFlags::SHARED | MapFlags::ANONYMOUS] {
        let process = TestProcess::new(&TestWorld::<I>::new(1));
        let base = process.map(2, Rights::RW, flags, None);
        process.write(CPU, base, 1);
        process.write(CPU, base.add(PAGE_SIZE), 1);
        clear(&process);
        process.protect(base, 2, Rights::READ);
        process.protect(base, 2, Rights::RW);
        process.write(CPU, base, 2);
        assert_eq!(dirty(&process, base, 2), [true, false], "{flags:?}");
        TestProcess::end_all_at_rest(&[&process]);
    }
}

/// `pte_is_pinned`: what a device may store to behind the mapping is told as stored to.
fn pinned_pages_stay_told<I: Isa>() {
    let process = TestProcess::new(&TestWorld::<I>::new(1));
    let base = process.anon(2);
    process.write(CPU, base, 1);
    process.write(CPU, base.add(PAGE_SIZE), 1);
    let device = process.take(CPU, base, 1, GupCall::Pin(GupFlags::WRITE)).expect("there");
    clear(&process);
    assert_eq!(dirty(&process, base, 2), [true, false]);
    device.agrees(&process, CPU, base, 5);
    device.release(MakeDirty::Yes);
    clear(&process);
    assert_eq!(dirty(&process, base, 2), [false; 2]);
    TestProcess::end_all_at_rest(&[&process]);
}

fn the_words_say_where_pages_are<I: Isa>() {
    let (world, process) = TestProcess::<I>::judged(1);
    let file = world.file(1);
    let base = process.anon(3);
    process.write(CPU, base, 1);
    process.read(CPU, base.add(PAGE_SIZE));
    let mapped = process.map(1, Rights::RW, MapFlags::SHARED, Some(&file));
    process.read(CPU, mapped);
    clear(&process);
    let (present, own) = (PagemapFlags::PRESENT, PagemapFlags::PRESENT | PagemapFlags::EXCLUSIVE);
    assert_eq!(states(&process, base, 3), [own, present, PagemapFlags::empty()], "a page, the zero page, nothing");
    assert_eq!(states(&process, mapped, 1), [own | PagemapFlags::FILE]);
    let child = process.fork();
    child.read(CPU, mapped);
    assert_eq!(states(&process, base, 1), [present]);
    assert_eq!(states(&child, mapped, 1), [present | PagemapFlags::FILE]);
    // The frame is the one that an access reaches, right or no right.
    process.protect(base, 1, Rights::empty());
    let frame = child.frame(CPU, base, Access::Read);
    let mut seen = None;
    world.on(CPU, |mm| mm.pagemap(&process.space, PageRange::page(base), |va, word| seen = Some((va, word))));
    let (va, word) = seen.expect("a word");
    assert_eq!((va, word.pfn(), word.raw()), (base, Some(frame), 1 << 63 | u64::from(frame.raw())));
    TestProcess::end_all_at_rest(&[&child, &process]);
    world.on(CPU, |mm| mm.forget_file(&file));
}

fn used_pages_are_forgotten_by_kind<I: Isa>() {
    let (world, process) = TestProcess::<I>::judged(1);
    let file = world.file(1);
    let anon = process.anon(1);
    let mapped = process.map(1, Rights::READ, MapFlags::SHARED, Some(&file));
    let referenced = || world.on(CPU, |mm| mm.mem_size_stats(&process.space).referenced);
    let touch_both = || (process.write(CPU, anon, 1), process.read(CPU, mapped));
    for (what, left) in [(ClearRefs::Anon, 1), (ClearRefs::Mapped, 1), (ClearRefs::All, 0), (ClearRefs::SoftDirty, 2)] {
        // What the TLB has is not marked again.
        world.on(CPU, |mm| mm.tlb().leave_space());
        process.protect(anon, 1, Rights::empty());
        process.protect(anon, 1, Rights::RW);
        touch_both();
        process.protect(mapped, 1, Rights::empty());
        process.protect(mapped, 1, Rights::READ);
        touch_both();
        assert_eq!(referenced(), 2 * PAGE_SIZE);
        world.on(CPU, |mm| mm.clear_refs(&process.space, what).expect("memory"));
        assert_eq!(referenced(), left * PAGE_SIZE, "{what:?}");
    }
    // Reclaim forgets that the page was used, too (`page_idle`'s `folio_clear_referenced`).
    let pfn = process.frame(CPU, anon, Access::Read);
    world.on(CPU, |mm| mm.tlb().frames().folio(pfn).set_flags(FolioFlags::REFERENCED));
    world.on(CPU, |mm| mm.clear_refs(&process.space, ClearRefs::All).expect("memory"));
    assert!(!world.on(CPU, |mm| mm.tlb().frames().folio(pfn).flags()).contains(FolioFlags::REFERENCED));
    let many = process.anon(8);
    (0..8).for_each(|page| process.write(CPU, many.add(page * PAGE_SIZE), 1));
    process.unmap(many, 8);
    assert_eq!(process.space.rss().peak_bytes(), 10 * PAGE_SIZE);
    world.on(CPU, |mm| mm.clear_refs(&process.space, ClearRefs::from_raw(5).expect("the peak")).expect("memory"));
    assert_eq!(process.space.rss().peak_bytes(), 2 * PAGE_SIZE);
    assert_eq!((ClearRefs::from_raw(0), ClearRefs::from_raw(6)), (None, None));
    TestProcess::end_all_at_rest(&[&process]);
    world.on(CPU, |mm| mm.forget_file(&file));
}
