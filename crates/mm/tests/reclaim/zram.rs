//! Reclaim that swaps to compressed memory: a page-out needs frames when none are free.

use pagewright_arch::on_both;
use pagewright_lab::harness::{CPU, TestProcess, at};

use super::{FRAMES, TWICE, machine};
use pagewright_arch::Isa;
use pagewright_mm::counters::Gauge;
use pagewright_mm::swap::{SwapBacking, Zram};
use pagewright_types::{Access, Counter, PAGE_SIZE, VirtAddr};
use std::sync::atomic::{AtomicU64, Ordering};

const WORDS: usize = PAGE_SIZE as usize / 8;

/// The words of the page that an access reaches.
fn page_words<I: Isa>(process: &TestProcess<I>, va: VirtAddr, access: Access) -> Option<&[AtomicU64]> {
    let sim = process.world.lab.sim();
    loop {
        process.touch(CPU, va, access).ok()?;
        if let Ok(reached) = sim.access(CPU, va, access, 1) {
            return Some(&sim.ram()[reached.pfn.base().raw() as usize / 8..][..WORDS]);
        }
    }
}

/// Word `index` of page `page`; one page in `noisy` is incompressible, the others repeat words.
fn word(page: u64, index: usize, noisy: u64) -> u64 {
    let order = if page.is_multiple_of(noisy) { index as u64 } else { index as u64 / 64 };
    (page << 32 | order).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

fn fill(words: &[AtomicU64], page: u64, noisy: u64) {
    words.iter().enumerate().for_each(|(index, at)| at.store(word(page, index, noisy), Ordering::Relaxed));
}

fn holds(words: &[AtomicU64], page: u64, noisy: u64) -> bool {
    words.iter().enumerate().all(|(index, at)| at.load(Ordering::Relaxed) == word(page, index, noisy))
}

/// A program uses twice the memory there is, if seven of eight pages can be compressed.
fn compression_doubles_the_usable_memory<I: Isa>() {
    const NOISY: u64 = 8;
    let world = machine::<I>(1);
    world.on(CPU, |mm| {
        let zram = Zram::try_new(mm, TWICE as u32, None).expect("memory");
        mm.swap_on(SwapBacking::Zram(zram), TWICE as u32).expect("memory");
    });
    let process = TestProcess::new(&world);
    let base = process.anon(TWICE);
    let page = |page, access| page_words(&process, at(base, page), access).expect("memory can be reclaimed");
    for index in 0..TWICE {
        fill(page(index, Access::Write), index, NOISY);
    }
    for index in 0..TWICE {
        assert!(holds(page(index, Access::Read), index, NOISY), "page {index}");
    }
    assert!(world.count(Counter::PswpOut) >= TWICE - FRAMES && world.count(Counter::OomKill) == 0);
    world.at_rest(&[]);
    process.end();
    world.at_rest(&[]);
    assert_eq!(world.on(CPU, |mm| mm.swap_slots()), (TWICE, TWICE), "INV-SWAP-COUNT");
}

/// INV-ZRAM-KEPT: the device fills up, an allocation fails, and no page is lost.
fn incompressible_pages_fill_the_device<I: Isa>() {
    let world = machine::<I>(1);
    world.on(CPU, |mm| {
        let zram = Zram::try_new(mm, TWICE as u32, Some(64)).expect("memory");
        mm.swap_on(SwapBacking::Zram(zram), TWICE as u32).expect("memory");
    });
    let process = TestProcess::new(&world);
    let base = process.anon(TWICE);
    let mut stored = 0;
    while let Some(words) = page_words(&process, at(base, stored), Access::Write) {
        fill(words, stored, 1);
        stored += 1;
    }
    assert!(stored < FRAMES && world.count(Counter::OomKill) > 0, "{stored} pages");
    world.at_rest(&[]);
    let (slots, free) = world.on(CPU, |mm| mm.swap_slots());
    // A page that the device refused has a slot and is still in the swap cache.
    assert_eq!(slots - free - world.gauge(Gauge::SwapCached), 64, "one page in each of its frames");
    process.unmap(base, 100);
    for index in 100..stored {
        let words = page_words(&process, at(base, index), Access::Read).expect("memory was freed");
        assert!(holds(words, index, 1), "page {index}");
    }
    process.end();
    world.at_rest(&[]);
}

on_both!(compression_doubles_the_usable_memory, incompressible_pages_fill_the_device);
