//! Several CPUs swap to one compressed device that is too small for all of them (INV-ZRAM-KEPT).
//!
//! Each has a process of its own, whose pages it fills, pages out, reads back and discards in an
//! order that a seed chooses. Every page keeps all its bytes, and in the end the device holds no
//! frame.
//!
//! Not covered: the device call by call (`zram.rs`).

use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::race::{assert_holds, race, race_in_long_turns};
use pagewright_lab::harness::{CPU, OTHER, THIRD, TestProcess, TestWorld, at};
use pagewright_lab::planted_bugs_are_found;
use pagewright_mm::Advice;
use pagewright_mm::counters::Gauge;
use pagewright_mm::swap::{SwapBacking, Zram};
use pagewright_sim::explore::CoroutineBody;
use pagewright_types::{Access, Counter, CpuId, NodeId, PAGE_SIZE, VirtAddr};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

const SCHEDULES: u64 = 300;
/// Pages of each process.
const PAGES: u64 = 2;
/// Fewer than the pages of all processes, so that slots are reused at once.
const SLOTS: u32 = 4;
/// Frames of the device.
const LIMIT: u32 = 3;
const WORDS: usize = PAGE_SIZE as usize / 8;
const ROUNDS: u64 = 3;

/// Word `index` of the page that `salt` names.
///
/// A third of the pages repeat one word, a third can be compressed, a third cannot.
fn word(salt: u64, index: usize) -> u64 {
    let order = match salt % 3 {
        0 => 0,
        1 => index as u64 / 128,
        _ => index as u64,
    };
    (salt << 32 | order).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// All words of the page that an access reaches; no other CPU acts until the caller's next step.
fn page_words<I: Isa>(process: &TestProcess<I>, cpu: CpuId, va: VirtAddr, access: Access) -> &[AtomicU64] {
    let (world, sim) = (&process.world, process.world.lab.sim());
    loop {
        world.lab.touch(cpu, &process.space, va, access, 1).expect("memory and a working device");
        if let Ok(reached) = sim.access(cpu, va, access, 1) {
            return &sim.ram()[reached.pfn.base().raw() as usize / 8..][..WORDS];
        }
    }
}

/// Fills, pages out, reads back and discards pages; returns whether they kept their bytes.
fn use_pages<I: Isa>(process: &TestProcess<I>, cpu: CpuId, base: VirtAddr, seed: u64) -> bool {
    let (world, space) = (&process.world, &process.space);
    let mut whole = true;
    for round in 0..ROUNDS {
        let salt = |page: u64| seed.wrapping_mul(31) + u64::from(cpu.raw()) * 64 + round * PAGES + page;
        for page in 0..PAGES {
            let words = page_words(process, cpu, at(base, page), Access::Write);
            (0..WORDS).for_each(|index| words[index].store(word(salt(page), index), Ordering::Relaxed));
        }
        world.advise(cpu, space, base, PAGES, Advice::PageOut);
        if (seed + round).is_multiple_of(3) {
            world.lab.on(cpu, |mm| mm.reclaim(NodeId::new(0), 2));
        }
        if (seed / 3 + round).is_multiple_of(2) {
            world.advise(cpu, space, base, 1, Advice::DontNeed);
        }
        for page in 0..PAGES {
            let discarded = page == 0 && (seed / 3 + round).is_multiple_of(2);
            let words = page_words(process, cpu, at(base, page), Access::Read);
            let expected = |index| if discarded { 0 } else { word(salt(page), index) };
            whole &= (0..WORDS).all(|index| words[index].load(Ordering::Relaxed) == expected(index));
        }
    }
    whole
}

/// Three CPUs swap to one device.
///
/// Returns whether every page keeps its bytes, and nothing is left of them in the end.
fn three_programs_on_one_device<I: Isa>(seed: u64) -> bool {
    let world = TestWorld::<I>::new(3);
    let zram = world.on(CPU, |mm| {
        let zram = Zram::try_new(mm, SLOTS, Some(LIMIT)).expect("memory");
        mm.swap_on(SwapBacking::Zram(zram.clone()), SLOTS).expect("memory");
        zram
    });
    let cpus = [CPU, OTHER, THIRD];
    let processes = cpus.map(|cpu| {
        let process = Rc::new(TestProcess::new(&world));
        let base = process.anon(PAGES);
        // The frame is counted as used before the device is.
        (0..PAGES).for_each(|page| process.write(cpu, at(base, page), 1));
        (process, base)
    });
    let whole = Rc::new(Cell::new(true));
    let programs = cpus.iter().zip(&processes).map(|(cpu, (process, base))| -> CoroutineBody {
        let (process, base, whole, cpu) = (process.clone(), *base, whole.clone(), *cpu);
        Box::new(move || whole.set(use_pages(&process, cpu, base, seed) && whole.get()))
    });
    let programs = programs.collect();
    if seed.is_multiple_of(4) {
        race_in_long_turns(&world, seed, programs)
    } else {
        race(&world, seed, programs)
    }
    assert!(world.count(Counter::PswpOut) > 0, "nothing was swapped out");
    let held = zram.mm_stat();
    assert!(held.mem_used_max <= u64::from(LIMIT) * PAGE_SIZE, "{held:?}");
    let processes = processes.map(|(process, _)| process);
    world.recount(&processes.each_ref().map(|process| &**process));
    world.at_rest(&[]);
    processes.iter().for_each(|process| process.end());
    world.at_rest(&[]);
    let (slots, free) = world.on(CPU, |mm| mm.swap_slots());
    let left = zram.mm_stat();
    let empty = (left.mem_used_total, left.orig_data_size, world.gauge(Gauge::SwapCached)) == (0, 0, 0);
    whole.get() && slots == free && empty
}

on_both! {
    /// INV-ZRAM-KEPT, INV-SWAP-COUNT.
    pages_keep_their_bytes_while_cpus_share_a_device:
        assert_holds(SCHEDULES, three_programs_on_one_device::<I>,
            "a page has lost its bytes, or a frame or slot is leaked"),
}

planted_bugs_are_found! {
    20 * SCHEDULES;
    SlotDiscardedLate => three_programs_on_one_device,
}
