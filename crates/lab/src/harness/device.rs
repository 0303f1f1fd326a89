//! A device that reaches pages of user memory by their frames.
//!
//! It reads and writes its pages as hardware does: no page table and no TLB is between.
//! [`Device::agrees`] is the promise of a pin: the mapping shows what the device has.

use super::process::Process;
use super::world::{CPU, World};
use pagewright_arch::Isa;
use pagewright_mm::gup::{GupFlags, MakeDirty, UserPages};
use pagewright_types::{CpuId, PAGE_SIZE, Pfn, VirtAddr};
use std::rc::Rc;

/// By which call a device gets its pages.
#[derive(Clone, Copy, Debug)]
pub enum TakeBy {
    /// `get_user_pages`.
    Get(GupFlags),
    /// `get_user_pages_fast`.
    GetFast(GupFlags),
    /// `pin_user_pages`.
    Pin(GupFlags),
    /// `pin_user_pages_fast`.
    PinFast(GupFlags),
}

/// A device, and the pages that it has.
pub struct Device<I: Isa> {
    pub(super) world: Rc<World<I>>,
    /// Its pages, each with a reference or a pin.
    pub pages: UserPages,
}

impl<I: Isa> Device<I> {
    /// The frame of one of its pages.
    ///
    /// # Panics
    /// When it has fewer pages.
    pub fn pfn(&self, page: usize) -> Pfn {
        self.pages.iter().nth(page).expect("one of its pages").pfn()
    }

    /// The first word of a page.
    pub fn read(&self, page: usize) -> u64 {
        self.world.peek(self.pfn(page))
    }

    /// Writes the first word of a page.
    pub fn write(&self, page: usize, value: u64) {
        self.world.poke(self.pfn(page), value);
    }

    /// INV-GUP-EXCLUSIVE: what `process` sees from `va` on is what the device has, both ways, after
    /// whatever happened.
    pub fn agrees(&self, process: &Process<I>, cpu: CpuId, va: VirtAddr, mut value: u64) {
        for page in 0..self.pages.len() {
            let at = va.add(page as u64 * PAGE_SIZE);
            assert_eq!(process.read(cpu, at), self.read(page), "page {page} before anything is stored");
            process.write(cpu, at, value);
            assert_eq!(self.read(page), value, "the device sees what is stored to page {page}");
            self.write(page, value + 1);
            assert_eq!(process.read(cpu, at), value + 1, "the mapping shows what the device stores to page {page}");
            value += 2;
        }
    }

    /// Gives its pages back.
    pub fn release(self, make_dirty: MakeDirty) {
        self.release_on(CPU, make_dirty);
    }

    /// Gives its pages back on a CPU.
    pub fn release_on(self, cpu: CpuId, make_dirty: MakeDirty) {
        self.world.on(cpu, |mm| mm.release_user_pages(self.pages, make_dirty));
    }
}
