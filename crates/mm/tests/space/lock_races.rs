//! Races of calls that lock memory with calls and faults that change what is locked.
//!
//! Each page says how many entries of locked memory map it.
//!
//! Not covered: one call at a time, which is `memory`'s.

use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::race::{assert_holds, race};
use pagewright_lab::harness::recount;
use pagewright_lab::harness::{CPU, OTHER, THIRD, TestProcess, TestWorld, at};
use pagewright_mm::counters::Gauge;
use pagewright_mm::file::MemfdFlags;
use pagewright_mm::{Advice, LockFlags, MapFlags, MmError, RemapFlags, RemapRequest, Space};
use pagewright_sim::Sim;
use pagewright_sim::explore::CoroutineBody;
use pagewright_types::{Access, CpuId, LruList, NodeId, PAGE_SIZE, Rights, VirtAddr};

const SCHEDULES: u64 = 400;
const PAGES: u64 = 2;
/// What each CPU does, one after the other.
const DEEDS: usize = 3;

#[derive(Clone, Copy)]
enum Deed {
    Lock(LockFlags),
    Unlock,
    Touch(Access),
    Advise(Advice),
    Move,
    Unmap,
    Reclaim,
}

/// What one CPU may do.
const POSSIBLE: [Deed; 14] = [
    Deed::Lock(LockFlags::empty()),
    Deed::Lock(LockFlags::empty()),
    Deed::Lock(LockFlags::empty()),
    Deed::Lock(LockFlags::ONFAULT),
    Deed::Unlock,
    Deed::Unlock,
    Deed::Touch(Access::Read),
    Deed::Touch(Access::Write),
    Deed::Touch(Access::Write),
    Deed::Advise(Advice::PageOut),
    Deed::Advise(Advice::DontNeedLocked),
    Deed::Move,
    Deed::Unmap,
    Deed::Reclaim,
];

impl Deed {
    /// The deed of a CPU that a seed chooses.
    fn chosen(seed: u64, cpu: CpuId, number: usize) -> Self {
        let place = cpu.index() * DEEDS + number;
        let bits = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(7 * place as u32);
        POSSIBLE[bits as usize % POSSIBLE.len()]
    }

    /// Whether it is refused does not matter.
    fn done<I: Isa>(self, world: &TestWorld<I>, space: &Space<Sim<I>>, cpu: CpuId, at: VirtAddr) {
        let len = PAGES * PAGE_SIZE;
        world.lab.on(cpu, |mm| {
            let _: Result<(), MmError> = match self {
                Self::Lock(flags) => mm.mlock2(space, at, len, flags),
                Self::Unlock => mm.munlock(space, at, len),
                Self::Touch(access) => mm.fault(space, at, access).map(|_| ()).map_err(MmError::from),
                Self::Advise(advice) => mm.madvise(space, at, len, advice),
                Self::Move => {
                    let flags = RemapFlags::MAYMOVE | RemapFlags::DONTUNMAP;
                    let request =
                        RemapRequest { addr: at, old_len: len, new_len: len, flags, new_addr: VirtAddr::ZERO };
                    mm.mremap(space, &request).map(|_| ())
                }
                Self::Unmap => mm.munmap(space, at, PAGE_SIZE),
                Self::Reclaim => {
                    mm.reclaim(NodeId::new(0), 4);
                    Ok(())
                }
            };
        });
    }
}

/// Three CPUs lock, unlock and change pages that a parent and a child map.
///
/// Returns whether all is counted right, and pages can be reclaimed when nothing is locked.
fn locked_beside_others<I: Isa>(seed: u64) -> bool {
    let (world, parent) = TestProcess::<I>::unjudged();
    let _device = world.swap_to(64);
    // Pages of the child's own, once it stores to them; or of both.
    let flags = if seed.is_multiple_of(2) { MapFlags::PRIVATE } else { MapFlags::SHARED };
    let base = parent.map(PAGES, Rights::RW, flags | MapFlags::ANONYMOUS, None);
    (0..PAGES).for_each(|page| parent.write(CPU, at(base, page), page));
    let child = parent.fork();
    let spaces = [parent.space.clone(), child.space.clone()];
    let programs = [(CPU, 0), (OTHER, 1), (THIRD, seed as usize / 2 % 2)].map(|(cpu, whose)| -> CoroutineBody {
        let (world, space) = (world.clone(), spaces[whose].clone());
        Box::new(move || {
            (0..DEEDS).for_each(|number| Deed::chosen(seed, cpu, number).done(&world, &space, cpu, base));
        })
    });
    race(&world, seed, programs.into());
    world.on(CPU, |mm| {
        recount::check(mm, &spaces);
        spaces.iter().for_each(|space| {
            mm.munlockall(space);
            recount::check_merged(space);
        });
        recount::check(mm, &spaces);
        mm.tlb().frames().lru_pages(NodeId::new(0), LruList::Unevictable) == 0
    })
}

/// Two processes lock and unlock memory that they share, and store to it, beside reclaim.
///
/// Returns whether the pages stay while a process has them locked, with what was stored.
fn kept_beside_reclaim<I: Isa>(seed: u64) -> bool {
    const TOUCH: Deed = Deed::Touch(Access::Write);
    const LOCK: Deed = Deed::Lock(LockFlags::empty());
    let world = TestWorld::<I>::unjudged();
    let device = world.swap_to(64);
    let (stays, leaves) = (TestProcess::new(&world), TestProcess::new(&world));
    let file = world.on(CPU, |mm| mm.memfd_create("locked", MemfdFlags::empty())).expect("memory");
    world.on(CPU, |mm| mm.truncate(&file, PAGES * PAGE_SIZE)).expect("not sealed");
    let bases = [&stays, &leaves].map(|process| process.map_file(&file, Rights::RW, MapFlags::SHARED));
    (0..PAGES).for_each(|page| stays.write(CPU, at(bases[0], page), page + 1));
    let deeds: [&[Deed]; 3] = [
        &[LOCK, Deed::Unlock, TOUCH, LOCK],
        &[LOCK, Deed::Advise(Advice::DontNeedLocked), TOUCH, Deed::Unlock],
        &[Deed::Reclaim; 3],
    ];
    let programs = [(CPU, &stays, bases[0]), (OTHER, &leaves, bases[1]), (THIRD, &stays, bases[0])];
    let programs = programs.into_iter().zip(deeds).map(|((cpu, process, base), deeds)| -> CoroutineBody {
        let (world, space) = (world.clone(), process.space.clone());
        Box::new(move || deeds.iter().for_each(|deed| deed.done(&world, &space, cpu, base)))
    });
    race(&world, seed, programs.collect());
    let kept = (world.on(CPU, |mm| mm.gauge(Gauge::Unevictable)), stays.space.rss().pages(), device.used());
    kept == (PAGES, PAGES, 0) && (0..PAGES).all(|page| stays.read(CPU, at(bases[0], page)) == page + 1)
}

on_both! {
    /// INV-LRU-LOCKS.
    locked_pages_stay: assert_holds(SCHEDULES, kept_beside_reclaim::<I>, "a locked page went"),
    /// INV-LRU-LOCKS.
    pages_say_how_many_have_them_locked:
        assert_holds(SCHEDULES, locked_beside_others::<I>, "a page is unevictable, and nothing is locked"),
}
