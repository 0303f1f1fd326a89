//! A device that holds pages of user memory and reaches them by their frames.
//!
//! It accesses memory without page table and TLB, as DMA does. [`TestDevice::agrees`] asserts what
//! a pin guarantees: the device and the mapping see the same bytes.

use super::test_process::TestProcess;
use super::test_world::{CPU, TestWorld};
use pagewright_arch::Isa;
use pagewright_mm::gup::{GupFlags, MakeDirty, UserPages};
use pagewright_types::{CpuId, PAGE_SIZE, Pfn, VirtAddr};
use std::rc::Rc;

/// The call that takes a device's pages, with its flags.
#[derive(Clone, Copy, Debug)]
pub enum GupCall {
    /// `get_user_pages`.
    Get(GupFlags),
    /// `get_user_pages_fast`.
    GetFast(GupFlags),
    /// `pin_user_pages`.
    Pin(GupFlags),
    /// `pin_user_pages_fast`.
    PinFast(GupFlags),
}

/// A device that holds pages of user memory.
pub struct TestDevice<I: Isa> {
    pub(super) world: Rc<TestWorld<I>>,
    /// The device's pages, each with a reference or a pin.
    pub pages: UserPages,
}

impl<I: Isa> TestDevice<I> {
    /// The frame of page `page`.
    ///
    /// # Panics
    /// If the device holds fewer pages.
    pub fn pfn(&self, page: usize) -> Pfn {
        self.pages.iter().nth(page).expect("the device holds this page").pfn()
    }

    /// Reads the first word of a page.
    pub fn read(&self, page: usize) -> u64 {
        self.world.peek(self.pfn(page))
    }

    /// Writes the first word of a page.
    pub fn write(&self, page: usize, value: u64) {
        self.world.poke(self.pfn(page), value);
    }

    /// Asserts that `process` from `va` on and the device see each other's stores.
    ///
    /// This is INV-GUP-EXCLUSIVE. The stored values are `value`, `value + 1` and so on.
    ///
    /// # Panics
    /// If one of the two reads another value than the other stored.
    pub fn agrees(&self, process: &TestProcess<I>, cpu: CpuId, va: VirtAddr, mut value: u64) {
        for page in 0..self.pages.len() {
            let at = va.add(page as u64 * PAGE_SIZE);
            assert_eq!(process.read(cpu, at), self.read(page), "page {page} before any store");
            process.write(cpu, at, value);
            assert_eq!(self.read(page), value, "the device reads what the process stored to page {page}");
            self.write(page, value + 1);
            assert_eq!(process.read(cpu, at), value + 1, "the process reads what the device stored to page {page}");
            value += 2;
        }
    }

    /// Releases the pages (`unpin_user_pages`, `put_page`).
    pub fn release(self, make_dirty: MakeDirty) {
        self.release_on(CPU, make_dirty);
    }

    /// Releases the pages on a CPU.
    pub fn release_on(self, cpu: CpuId, make_dirty: MakeDirty) {
        self.world.on(cpu, |mm| mm.release_user_pages(self.pages, make_dirty));
    }
}
