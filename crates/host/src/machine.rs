//! A machine whose frames are host memory.
//!
//! Key type: [`HostMachine`]. Entries are words of the arena and change atomically. No TLB caches
//! them, so invalidations do nothing.
//!
//! Not guaranteed: that a program can run in the address spaces built on it.

use crate::memory::HostMemory;
use pagewright_arch::{Caps, Effects, TableWords, X86_64};
use pagewright_sync::host::HostLocks;
use pagewright_sync::{LinearMap, Platform};
use pagewright_types::{CpuMask, IsaKind, Order, PAGE_SIZE, Pfn, PhysAddr};
use std::sync::atomic::{AtomicU64, Ordering};

/// A machine whose frames are host memory.
#[derive(Clone, Debug)]
pub struct HostMachine {
    memory: HostMemory,
    online: CpuMask,
}

const CAPS: Caps = Caps::baseline(IsaKind::X86_64);

impl HostMachine {
    /// A machine of `cpus` CPUs; a thread becomes one by [`run_as`](crate::run_as).
    pub fn new(memory: HostMemory, cpus: usize) -> Self {
        Self { memory, online: CpuMask::first(cpus) }
    }

    /// The memory of the frames.
    pub fn arena(&self) -> &HostMemory {
        &self.memory
    }

    fn table(&self, table: Pfn) -> TableWords<'_> {
        let words = self.memory.block(table, Order::ZERO);
        TableWords(words.first_chunk().expect("a frame has as many words as a table has entries"))
    }

    /// The word that contains the byte at `at`, and the shift of that byte in it.
    fn byte(&self, at: PhysAddr) -> (&AtomicU64, u32) {
        let page = self.memory.block(Pfn::new((at.raw() / PAGE_SIZE) as u32), Order::ZERO);
        (&page[at.page_offset() as usize / 8], (at.raw() % 8) as u32 * 8)
    }
}

impl Effects for HostMachine {
    type Isa = X86_64;

    fn caps(&self) -> &Caps {
        &CAPS
    }

    pagewright_sync::cpus_are_threads!();

    fn online(&self) -> CpuMask {
        self.online
    }

    pagewright_arch::entries_are_words!();

    /// Does nothing, because no CPU runs an address space here.
    fn send_ipi(&self, _: &CpuMask) {}

    pagewright_arch::no_tlb_and_no_interrupts!();

    fn zero(&self, pfn: Pfn, order: Order) {
        self.memory.fill(pfn, order, 0);
    }

    fn copy(&self, from: Pfn, to: Pfn, order: Order) {
        for (from, to) in self.memory.block(from, order).iter().zip(self.memory.block(to, order)) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    fn read(&self, from: PhysAddr, to: &mut [u8]) {
        for (offset, byte) in (0..).zip(to) {
            let (word, shift) = self.byte(from.add(offset));
            *byte = (word.load(Ordering::Relaxed) >> shift) as u8;
        }
    }

    fn write(&self, to: PhysAddr, from: &[u8]) {
        for (offset, byte) in (0..).zip(from) {
            let (word, shift) = self.byte(to.add(offset));
            let kept = word.load(Ordering::Relaxed) & !(u64::from(u8::MAX) << shift);
            word.store(kept | u64::from(*byte) << shift, Ordering::Relaxed);
        }
    }
}

impl Platform for HostMachine {
    type Locks = HostLocks;

    fn memory(&self) -> Option<&'static LinearMap> {
        Some(self.memory.map())
    }
}
