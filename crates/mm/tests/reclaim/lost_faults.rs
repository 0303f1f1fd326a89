//! Faults that lose their race while they read from swap: what they read is in the swap cache, and
//! nobody's. It makes room like any other page.

use super::{NODE, check, fill, lists_agree, machine_of};
use pagewright_arch::Isa;
use pagewright_lab::harness::{CPU, MemorySwap, OTHER, TestProcess, at};
use pagewright_lab::on_both;
use pagewright_mm::Advice;
use pagewright_mm::counters::Gauge;
use pagewright_mm::swap::{SwapBacking, SwapOps};
use pagewright_types::{Access, Counter, Errno, PAGE_SIZE};
use std::cell::RefCell;
use std::rc::Rc;

/// Frames of the machine.
const FRAMES: u64 = 512;
/// Pages for which a fault loses, or nearly so many: more than the machine has frames, and fewer
/// than the times that it lets a CPU wait for nobody.
const PAGES: u64 = 900;

thread_local! {
    /// What somebody else does while a page is read.
    static MEANWHILE: RefCell<Option<Box<dyn FnOnce()>>> = RefCell::default();
}

/// A device that takes as long to read a page as something else takes to happen.
struct Slow(MemorySwap);

impl SwapOps for Slow {
    fn write_page(&self, slot: u32, get: &mut dyn FnMut(u64, &mut [u8])) -> Result<(), Errno> {
        self.0.write_page(slot, get)
    }

    fn read_page(&self, slot: u32, put: &mut dyn FnMut(u64, &[u8])) -> Result<(), Errno> {
        if let Some(happens) = MEANWHILE.take() {
            happens();
        }
        self.0.read_page(slot, put)
    }

    fn discard(&self, slot: u32) {
        self.0.discard(slot);
    }
}

/// A child's faults lose, more than there are frames: each time another of its threads gives the
/// page up. The parent has it in swap still.
fn what_a_fault_read_and_nobody_got_makes_room<I: Isa>() {
    let world = machine_of::<I>(2, FRAMES);
    let device = MemorySwap::default();
    let slow = SwapBacking::Device(Box::new(Slow(device.clone())));
    world.on(CPU, |mm| mm.swap_on(slow, 4096)).expect("memory for the slots");
    let parent = TestProcess::new(&world);
    let base = parent.anon(PAGES);
    fill(&parent, base, PAGES, 5);
    let child = Rc::new(parent.fork());
    let read = world.count(Counter::PswpIn);
    for page in 0..PAGES {
        let beside = Rc::clone(&child);
        MEANWHILE.set(Some(Box::new(move || {
            let given_up =
                |mm: &pagewright_mm::Mm<_>| mm.madvise(&beside.space, at(base, page), PAGE_SIZE, Advice::DontNeed);
            beside.world.on(OTHER, given_up).expect("mapped");
        })));
        child.touch(CPU, at(base, page), Access::Read).expect("what nobody maps has made room");
        if MEANWHILE.take().is_none() {
            assert_eq!(child.read(CPU, at(base, page)), 0, "it was given up");
        }
    }
    let lost = world.count(Counter::PswpIn) - read;
    assert!(lost > FRAMES, "{lost} faults have lost");
    lists_agree(&world);
    world.on(CPU, |mm| mm.reclaim(NODE, FRAMES as u32));
    assert_eq!(world.gauge(Gauge::SwapCached), 0, "nobody uses them");
    check(&parent, base, PAGES, 5);
    child.end();
    parent.end();
    world.at_rest(&[]);
    assert_eq!(device.used(), 0, "INV-SWAP-COUNT");
}

on_both!(what_a_fault_read_and_nobody_got_makes_room);
