//! What processes do whose memory goes to swap.

use crate::support::{CPU, OTHER, Process};
use pagewright_arch::Isa;
use pagewright_mm::{Advice, MapFlags, MapRequest};
use pagewright_types::{CpuId, PAGE_SIZE, Rights, VirtAddr};

impl<I: Isa> Process<'_, I> {
    /// Private anonymous memory.
    pub(crate) fn map_anon(&self, pages: u64) -> VirtAddr {
        let (len, flags) = (pages * PAGE_SIZE, MapFlags::PRIVATE | MapFlags::ANONYMOUS);
        let request = MapRequest { addr: VirtAddr::ZERO, len, rights: Rights::RW, flags, file: None };
        self.world.on(|mm| mm.mmap(&self.space, &request)).expect("room for a mapping")
    }

    /// Shared anonymous memory.
    pub(crate) fn map_shared(&self, pages: u64) -> VirtAddr {
        let (len, flags) = (pages * PAGE_SIZE, MapFlags::SHARED | MapFlags::ANONYMOUS);
        let request = MapRequest { addr: VirtAddr::ZERO, len, rights: Rights::RW, flags, file: None };
        self.world.on(|mm| mm.mmap(&self.space, &request)).expect("room for a mapping")
    }

    pub(crate) fn advise(&self, va: VirtAddr, pages: u64, advice: Advice) {
        self.world.on(|mm| mm.madvise(&self.space, va, pages * PAGE_SIZE, advice)).expect("good advice");
    }

    pub(crate) fn fork(&self) -> Self {
        let space = self.world.on(|mm| mm.fork(&self.space)).expect("memory for a child");
        Self { world: self.world, space }
    }

    pub(crate) fn end(self) {
        for cpu in [CPU, OTHER, CpuId::new(2)] {
            self.world.lab.on(cpu, |mm| mm.tlb().leave());
        }
        self.world.on(|mm| mm.end_space(&self.space));
    }
}
