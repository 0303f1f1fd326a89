//! What calls do with swapped-out pages: swap them in, move them, keep them, or free them.
//!
//! Random programs do all of this too, judged by the reference memory. Here each call has its case.

use pagewright_arch::Isa;
use pagewright_arch::on_both;
use pagewright_lab::harness::files::DiskFile;
use pagewright_lab::harness::{CPU, MemorySwap, TestProcess, TestWorld, at};
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_mm::space::ClearRefs;
use pagewright_mm::user::IoVec;
use pagewright_mm::view::PagemapFlags;
use pagewright_mm::{Advice, LockFlags, MapFlags, Mm, MmSetting, RemapFlags, RemapRequest};
use pagewright_sim::Sim;
use pagewright_types::{Access, Counter, NodeId, PAGE_SIZE, PageRange, Rights, VirtAddr};
use std::rc::Rc;

const PAGES: u64 = 6;
const BYTES: u64 = PAGES * PAGE_SIZE;

/// A process with all its pages swapped out, their address, and the swap device.
fn swapped<I: Isa>(world: &Rc<TestWorld<I>>) -> (TestProcess<I>, VirtAddr, MemorySwap) {
    let device = world.swap_to(100);
    let process = TestProcess::new(world);
    let base = process.anon(PAGES);
    (0..PAGES).for_each(|page| process.write(CPU, at(base, page), page + 1));
    process.advise(base, PAGES, Advice::PageOut);
    assert_eq!(in_swap(&process), PAGES);
    (process, base, device)
}

fn in_swap<I: Isa>(process: &TestProcess<I>) -> u64 {
    process.space.rss().swapped()
}

fn call<I: Isa, T>(process: &TestProcess<I>, call: impl FnOnce(&Mm<Sim<I>>) -> Result<T, pagewright_mm::MmError>) -> T {
    process.world.on(CPU, call).expect("a valid call")
}

fn holds<I: Isa>(process: &TestProcess<I>, base: VirtAddr) -> bool {
    (0..PAGES).all(|page| process.read(CPU, at(base, page)) == page + 1)
}

fn mlock_swaps_pages_in_and_keeps_them<I: Isa>() {
    let world = TestWorld::<I>::unjudged();
    let (process, base, device) = swapped(&world);
    call(&process, |mm| mm.mlock(&process.space, base, BYTES));
    // As in Linux, mlock populates by write faults, so the slots are freed.
    assert_eq!((in_swap(&process), device.used(), process.space.rss().pages()), (0, 0, PAGES));
    let refused = world.on(CPU, |mm| mm.madvise(&process.space, base, BYTES, Advice::PageOut));
    assert!(refused.is_err() && holds(&process, base));
    call(&process, |mm| mm.munlock(&process.space, base, BYTES));
    process.advise(base, PAGES, Advice::PageOut);
    assert_eq!(in_swap(&process), PAGES);
    assert!(holds(&process, base));
}

fn mremap_and_mprotect_leave_pages_in_swap<I: Isa>() {
    let world = TestWorld::<I>::unjudged();
    let (process, base, device) = swapped(&world);
    let flags = RemapFlags::MAYMOVE | RemapFlags::FIXED;
    let to = VirtAddr::new(1 << 40);
    let request = RemapRequest { addr: base, old_len: BYTES, new_len: BYTES, flags, new_addr: to };
    call(&process, |mm| mm.mremap(&process.space, &request));
    for rights in [Rights::empty(), Rights::READ, Rights::RW] {
        call(&process, |mm| mm.mprotect(&process.space, to, BYTES, rights));
    }
    assert_eq!((in_swap(&process), device.used() as u64), (PAGES, PAGES));
    assert!(holds(&process, to));
    // They can be paged out again at their new address.
    process.write(CPU, to, 1);
    process.advise(to, PAGES, Advice::PageOut);
    assert_eq!(in_swap(&process), PAGES);
    assert!(holds(&process, to));
}

/// For a private copy of a file page `mincore` consults the swap cache, not the file's page cache.
fn mincore_of_a_private_copy_consults_the_swap_cache<I: Isa>() {
    let (world, process) = TestProcess::<I>::unjudged();
    world.swap_to(100);
    let file = world.file_of(DiskFile::default(), 1);
    let base = process.map_file(&file, Rights::RW, MapFlags::PRIVATE);
    process.write(CPU, base, 7);
    let resident = |process: &TestProcess<I>| {
        let mut byte = [9];
        call(process, |mm| mm.mincore(&process.space, base, PAGE_SIZE, &mut byte));
        byte[0]
    };
    assert_eq!(resident(&process), 1);
    process.advise(base, 1, Advice::PageOut);
    assert_eq!((in_swap(&process), resident(&process)), (1, 0));
    let child = process.fork();
    assert_eq!((child.read(CPU, base), in_swap(&process)), (7, 1));
    assert_eq!((resident(&process), process.read(CPU, base), process.space.major_faults()), (1, 7, 0));
}

fn freeing_swapped_pages_frees_their_slots<I: Isa>() {
    let world = TestWorld::<I>::unjudged();
    let (process, base, device) = swapped(&world);
    for (page, advice) in [(0, Advice::DontNeed), (1, Advice::Free), (2, Advice::GuardInstall)] {
        process.advise(at(base, page), 1, advice);
    }
    call(&process, |mm| mm.munmap(&process.space, at(base, 3), PAGE_SIZE));
    assert_eq!((in_swap(&process), device.used()), (2, 2));
    assert_eq!((process.read(CPU, base), process.read(CPU, at(base, 1)), process.read(CPU, at(base, 4))), (0, 0, 5));
    process.advise(at(base, 5), 1, Advice::WipeOnFork);
    let child = process.fork();
    assert_eq!((in_swap(&child), child.read(CPU, at(base, 4)), child.read(CPU, at(base, 5))), (0, 5, 0));
    assert_eq!(process.read(CPU, at(base, 5)), 6);
}

fn gup_and_remote_access_swap_pages_in<I: Isa>() {
    let world = TestWorld::<I>::unjudged();
    let (process, base, _) = swapped(&world);
    let range = PageRange::from_len(base, 2 * PAGE_SIZE).expect("two pages");
    let pinned = call(&process, |mm| mm.pin_user_pages_fast(&process.space, range, GupFlags::WRITE));
    assert_eq!((pinned.len(), in_swap(&process)), (2, PAGES - 2));
    process.advise(base, PAGES, Advice::PageOut);
    assert_eq!(in_swap(&process), PAGES - 2, "pinned pages stay");
    world.on(CPU, |mm| mm.release_user_pages(pinned, MakeDirty::No));
    let other = TestProcess::new(&world);
    let to = other.anon(1);
    let (here, there) = ([IoVec { base: to, len: 8 }], [IoVec { base: at(base, 3), len: 8 }]);
    let moved = call(&process, |mm| mm.process_vm_readv((&*other.space, &here), (&*process.space, &there), 0));
    assert_eq!((moved, other.read(CPU, to), in_swap(&process)), (8, 4, PAGES - 3));
    assert!(holds(&process, base));
}

fn soft_dirty_bits_survive_swap<I: Isa>() {
    let world = TestWorld::<I>::unjudged();
    let (process, base, _) = swapped(&world);
    let soft_dirty = || {
        let mut soft_dirty = Vec::new();
        world.on(CPU, |mm| {
            mm.pagemap(&process.space, PageRange::from_len(base, BYTES).expect("whole pages"), |va, word| {
                if word.flags().contains(PagemapFlags::SOFT_DIRTY) {
                    soft_dirty.push(va.since(base) / PAGE_SIZE);
                }
            });
        });
        soft_dirty
    };
    assert_eq!(soft_dirty(), (0..PAGES).collect::<Vec<_>>());
    world.on(CPU, |mm| mm.clear_refs(&process.space, ClearRefs::SoftDirty).expect("memory"));
    assert!(soft_dirty().is_empty());
    process.write(CPU, at(base, 1), 2);
    assert_eq!(process.read(CPU, at(base, 2)), 3);
    assert_eq!(soft_dirty(), [1]);
    process.advise(base, PAGES, Advice::PageOut);
    assert_eq!((in_swap(&process), soft_dirty()), (PAGES, vec![1]));
    assert!(holds(&process, base));
    assert_eq!(soft_dirty(), [1]);
}

on_both! {
    mlock_swaps_pages_in_and_keeps_them,
    mremap_and_mprotect_leave_pages_in_swap,
    mincore_of_a_private_copy_consults_the_swap_cache,
    freeing_swapped_pages_frees_their_slots,
    gup_and_remote_access_swap_pages_in,
    soft_dirty_bits_survive_swap,
    a_page_that_is_read_back_is_as_exclusive_as_its_entry,
    a_locked_page_that_is_unmapped_gives_up_its_slot,
}

/// INV-SWAP-COUNT.
fn a_locked_page_that_is_unmapped_gives_up_its_slot<I: Isa>() {
    for discarded in [false, true] {
        let world = TestWorld::<I>::unjudged();
        let device = world.swap_to(100);
        let process = TestProcess::new(&world);
        let base = process.anon(1);
        process.write(CPU, base, 7);
        process.advise(base, 1, Advice::PageOut);
        assert_eq!((process.read(CPU, base), device.used()), (7, 1), "the slot is kept");
        call(&process, |mm| mm.mlock2(&process.space, base, PAGE_SIZE, LockFlags::ONFAULT));
        if discarded {
            process.advise(base, 1, Advice::DontNeedLocked);
        } else {
            process.unmap(base, 1);
        }
        assert_eq!(device.used(), 0, "{discarded}");
        process.end();
    }
}

/// INV-SWAP-OWNER: a page that only this process has is its own, and the next store copies nothing.
fn a_page_that_is_read_back_is_as_exclusive_as_its_entry<I: Isa>() {
    for shares in ["never", "always"] {
        let world = TestWorld::<I>::unjudged();
        world.set(MmSetting::CowPageTables, shares);
        let device = world.swap_to(100);
        let process = TestProcess::new(&world);
        let base = process.anon(2);
        (0..2).for_each(|page| process.write(CPU, at(base, page), page + 1));
        let child = process.fork();
        child.write(CPU, base, 10);
        let owner = |process: &TestProcess<I>, va| {
            let pfn = process.frame(CPU, va, Access::Read);
            world.on(CPU, |mm| mm.tlb().frames().folio(pfn).owner())
        };
        let [parents, childs] = [&process, &child].map(|process| {
            let new = process.anon(1);
            process.write(CPU, new, 1);
            let owner = owner(process, new);
            process.unmap(new, 1);
            owner
        });
        assert_ne!(parents, childs);
        (0..4).for_each(|_| _ = world.on(CPU, |mm| mm.reclaim(NodeId::new(0), 3)));
        assert_eq!(device.used(), 3);
        for (page, value, of, copies) in [(0, 10, childs, 0), (1, 2, parents, 1)] {
            let (va, before) = (at(base, page), world.count(Counter::PwCowCopy));
            assert_eq!(child.read(CPU, va), value);
            assert_eq!(owner(&child, va), of, "page {page}, {shares}");
            child.write(CPU, va, 70);
            assert_eq!(world.count(Counter::PwCowCopy) - before, copies, "page {page}, {shares}");
        }
        assert_eq!([0, 1].map(|page| process.read(CPU, at(base, page))), [1, 2]);
        world.recount(&[&process, &child]);
        TestProcess::end_all_at_rest(&[&process, &child]);
        assert_eq!(device.used(), 0);
    }
}
