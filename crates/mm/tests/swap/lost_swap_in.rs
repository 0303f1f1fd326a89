//! A swap-in beside calls that change its entry, its slot or its page meanwhile.
//!
//! INV-SWAP-COUNT, INV-SWAP-CACHE.
//!
//! Two processes name the same slots, by a fork or because they share memory. One CPU swaps in for
//! the one, a second makes a call in the same process, a third acts for the other or on the device.
//! The fault that loses leaves the slot to the entries that name it: the other process keeps its
//! contents, and in the end every slot is free. So it is if the device fails while the last entry
//! goes.
//!
//! Not covered: more losers than frames (`reclaim/lost_faults.rs`).

use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::race::{assert_holds, device_step, race, race_in_long_turns};
use pagewright_lab::harness::{CPU, FileHandle, MemorySwap, OTHER, THIRD, TestProcess, TestWorld, at};
use pagewright_lab::planted_bugs_are_found;
use pagewright_mm::file::MemfdFlags;
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_mm::{Advice, MapFlags, Mm, RemapFlags, RemapRequest};
use pagewright_sim::Sim;
use pagewright_sim::explore::CoroutineBody;
use pagewright_types::{Access, CpuId, NodeId, PAGE_SIZE, PageRange, Rights, VirtAddr};
use std::rc::Rc;
use std::sync::atomic::Ordering;

const SCHEDULES: u64 = 400;
const PAGES: u64 = 2;
const SLOTS: u32 = 8;
/// Where a call moves the first page.
const MOVED: u64 = 0x10_4000_0000;
/// What stores put into the second word of a page; its first word stays.
const STORED: u64 = 77;

/// What one CPU does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Load,
    Store,
    /// A page of user memory is pinned for writing, and released.
    Pin,
    PageOut,
    Reclaim,
    /// `MADV_DONTNEED` of the first page.
    Discard,
    /// The first page is discarded, stored to and paged out, so that it gets another slot.
    Replace,
    /// `MADV_REMOVE` of the first page: a hole in shared memory.
    PunchHole,
    /// `MADV_FREE` of the first page.
    FreeLazily,
    /// `munmap` of the first page.
    Unmap,
    /// The first page is moved elsewhere.
    Move,
    ForkAndEnd,
    SwapOff,
    /// The device fails for a while.
    Fail,
}

const SWAPS_IN: [Deed; 3] = [Deed::Load, Deed::Store, Deed::Pin];
/// Calls in the same process.
const BESIDE: [Deed; 10] = [
    Deed::Replace,
    Deed::PunchHole,
    Deed::Load,
    Deed::Store,
    Deed::PageOut,
    Deed::Discard,
    Deed::FreeLazily,
    Deed::Unmap,
    Deed::Move,
    Deed::ForkAndEnd,
];
/// Calls in the other process, or on the machine.
const ELSEWHERE: [Deed; 10] = [
    Deed::PunchHole,
    Deed::Load,
    Deed::Store,
    Deed::Pin,
    Deed::PageOut,
    Deed::Reclaim,
    Deed::Discard,
    Deed::SwapOff,
    Deed::Fail,
    Deed::ForkAndEnd,
];

impl Deed {
    /// Whether the first page may read as zero afterwards, or be gone.
    fn discards(self) -> bool {
        matches!(self, Self::Discard | Self::Replace | Self::FreeLazily | Self::Unmap | Self::Move)
    }

    fn act<I: Isa>(self, cpu: CpuId, process: &TestProcess<I>, base: VirtAddr, device: &MemorySwap) {
        let (world, space) = (&process.world, &process.space);
        let call = |call: &dyn Fn(&Mm<Sim<I>>)| world.lab.on(cpu, call);
        match self {
            // Another call may have unmapped the page, or the device may fail.
            Self::Load => (0..PAGES).for_each(|page| _ = world.lab.touch(cpu, space, at(base, page), Access::Read, 1)),
            Self::Store => (0..PAGES).for_each(|page| {
                let va = at(base, page).add(8);
                while world.lab.touch(cpu, space, va, Access::Write, 1).is_ok() {
                    if let Some(word) = world.word_now(cpu, va, Access::Write) {
                        return word.store(STORED, Ordering::Relaxed);
                    }
                }
            }),
            Self::Pin => (0..PAGES).for_each(|page| {
                call(&|mm| {
                    if let Ok(pages) = mm.pin_user_pages_fast(space, PageRange::page(at(base, page)), GupFlags::WRITE) {
                        mm.release_user_pages(pages, MakeDirty::No);
                    }
                });
            }),
            Self::PageOut => call(&|mm| _ = mm.madvise(space, base, PAGES * PAGE_SIZE, Advice::PageOut)),
            Self::Reclaim => call(&|mm| _ = mm.reclaim(NodeId::new(0), PAGES as u32)),
            Self::Discard => call(&|mm| _ = mm.madvise(space, base, PAGE_SIZE, Advice::DontNeed)),
            Self::Replace => {
                [Self::Discard, Self::Store, Self::PageOut]
                    .iter()
                    .for_each(|deed| deed.act(cpu, process, base, device));
            }
            // Only shared memory has holes.
            Self::PunchHole => call(&|mm| _ = mm.madvise(space, base, PAGE_SIZE, Advice::Remove)),
            Self::FreeLazily => call(&|mm| _ = mm.madvise(space, base, PAGE_SIZE, Advice::Free)),
            Self::Unmap => call(&|mm| mm.munmap(space, base, PAGE_SIZE).expect("mapped")),
            Self::Move => call(&|mm| {
                let flags = RemapFlags::MAYMOVE | RemapFlags::FIXED;
                let (old_len, new_len, new_addr) = (PAGE_SIZE, PAGE_SIZE, VirtAddr::new(MOVED));
                let request = RemapRequest { addr: base, old_len, new_len, flags, new_addr };
                mm.mremap(space, &request).expect("room");
            }),
            Self::ForkAndEnd => call(&|mm| {
                let child = mm.fork(space).expect("memory");
                mm.end_space(&child);
            }),
            // The device may fail.
            Self::SwapOff => call(&|mm| _ = mm.swap_off(0)),
            Self::Fail => {
                device.broken.store(true, Ordering::Relaxed);
                (0..20).for_each(|_| device_step());
                device.broken.store(false, Ordering::Relaxed);
            }
        }
    }
}

/// Two processes that name the same slots, and a file if they share memory by it.
fn sharers<I: Isa>(
    world: &Rc<TestWorld<I>>,
    shared: bool,
) -> (TestProcess<I>, TestProcess<I>, VirtAddr, Option<FileHandle<I>>) {
    let one = TestProcess::new(world);
    let file = shared.then(|| world.on(CPU, |mm| mm.memfd_create("shared", MemfdFlags::empty())).expect("memory"));
    if let Some(file) = &file {
        world.on(CPU, |mm| mm.truncate(file, PAGES * PAGE_SIZE)).expect("not sealed");
    }
    let base = match &file {
        Some(file) => one.map_file(file, Rights::RW, MapFlags::SHARED),
        None => one.anon(PAGES),
    };
    (0..PAGES).for_each(|page| one.write(CPU, at(base, page), page + 1));
    one.advise(base, PAGES, Advice::PageOut);
    let two = one.fork();
    (one, two, base, file)
}

/// Whether a machine at rest without processes has nothing in swap.
fn every_slot_is_free<I: Isa>(world: &TestWorld<I>, device: &MemorySwap) -> bool {
    world.at_rest(&[]);
    let (slots, free) = world.on(CPU, |mm| mm.swap_slots());
    device.used() == 0 && slots == free
}

/// One CPU swaps pages in, one makes a call in the same process, one elsewhere.
///
/// Returns whether the contents are right in both processes, and every slot is free in the end.
fn swap_in_beside_two_calls<I: Isa>(seed: u64) -> bool {
    let world = TestWorld::<I>::new(3);
    let device = world.swap_to(SLOTS);
    let is_shared = seed.is_multiple_of(2);
    let (one, two, base, file) = sharers(&world, is_shared);
    assert_eq!(device.used() as u64, PAGES);
    let deeds = [
        SWAPS_IN[seed as usize / 2 % SWAPS_IN.len()],
        BESIDE[seed as usize / 6 % BESIDE.len()],
        ELSEWHERE[seed as usize / 60 % ELSEWHERE.len()],
    ];
    let (one, two) = (Rc::new(one), Rc::new(two));
    [CPU, OTHER].iter().for_each(|cpu| world.lab.run(*cpu, &one.space));
    world.lab.run(THIRD, &two.space);
    let programs = [(CPU, &one), (OTHER, &one), (THIRD, &two)].into_iter().zip(deeds);
    let programs = programs.map(|((cpu, process), deed)| -> CoroutineBody {
        let (process, device) = (Rc::clone(process), device.clone());
        Box::new(move || deed.act(cpu, &process, base, &device))
    });
    let programs = programs.collect();
    if seed % 7 < 3 {
        race_in_long_turns(&world, seed, programs)
    } else {
        race(&world, seed, programs)
    }
    // A failed page-out or swapoff leaves the device in use.
    world.recount(&[&one, &two]);
    world.at_rest(&[]);
    let holds = |process: &TestProcess<I>, page: u64, moved: bool, stores: bool| {
        let from = if moved && page == 0 { VirtAddr::new(MOVED) } else { at(base, page) };
        let words = [process.read(CPU, from), process.read(CPU, from.add(8))];
        words[0] == page + 1 && (words[1] == 0 || stores && words[1] == STORED)
    };
    let stores = |deed: &Deed| matches!(deed, Deed::Store | Deed::Replace);
    let (ones, twos) = (deeds[..2].iter().any(stores), stores(&deeds[2]));
    let discards = [deeds[0].discards() || deeds[1].discards(), deeds[2].discards()];
    let (moved, unmapped) = (deeds[1] == Deed::Move, deeds[1] == Deed::Unmap);
    let intact = (0..PAGES).all(|page| {
        let any = is_shared && (ones || twos);
        // Shared memory keeps what is discarded, but not what was in a hole.
        let holed = is_shared && deeds.contains(&Deed::PunchHole);
        let kept = |discards: bool| page > 0 || !holed && (is_shared || !discards);
        let read_one = !(unmapped && page == 0) && (kept(discards[0]) || moved && !holed);
        // A store may be at the old place or at the new one.
        (!read_one || holds(&one, page, moved, any || ones))
            && (!kept(discards[1]) || holds(&two, page, false, any || twos))
    });
    one.end();
    two.end();
    file.iter().for_each(|file| world.on(CPU, |mm| mm.close_file(file)));
    world.assert_nothing_leaked();
    intact && every_slot_is_free(&world, &device)
}

/// The device fails; meanwhile the page is discarded and looked up.
///
/// Returns whether no slot is left.
fn swap_in_fails_beside_a_discard<I: Isa>(seed: u64) -> bool {
    let world = TestWorld::<I>::new(3);
    let device = world.swap_to(SLOTS);
    let process = Rc::new(TestProcess::new(&world));
    let base = process.anon(PAGES);
    (0..PAGES).for_each(|page| process.write(CPU, at(base, page), page + 1));
    process.advise(base, PAGES, Advice::PageOut);
    assert_eq!(device.used() as u64, PAGES);
    device.broken.store(true, Ordering::Relaxed);
    let beside = if seed.is_multiple_of(2) { Deed::Load } else { Deed::Reclaim };
    let programs = [(CPU, Deed::Load), (OTHER, Deed::Discard), (THIRD, beside)].map(|(cpu, deed)| -> CoroutineBody {
        let (process, device) = (Rc::clone(&process), device.clone());
        world.lab.run(cpu, &process.space);
        Box::new(move || deed.act(cpu, &process, base, &device))
    });
    race(&world, seed, programs.into());
    device.broken.store(false, Ordering::Relaxed);
    // The second page is still there.
    let kept = process.read(CPU, at(base, 1)) == 2;
    process.end();
    kept && every_slot_is_free(&world, &device)
}

on_both! {
    /// INV-SWAP-COUNT: the slot of a page that could not be read goes with its last entry.
    a_swap_in_that_fails_leaves_no_slot:
        assert_holds(SCHEDULES, swap_in_fails_beside_a_discard::<I>, "a page is lost, or a slot leaked"),
    /// INV-SWAP-COUNT, INV-SWAP-CACHE.
    a_swap_in_that_loses_leaves_the_slot:
        assert_holds(SCHEDULES, swap_in_beside_two_calls::<I>, "a page is lost, or a slot leaked"),
}

planted_bugs_are_found! {
    20 * SCHEDULES;
    LostSwapInFreesSlot => swap_in_beside_two_calls,
}
