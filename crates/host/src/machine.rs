//! A machine whose frames are host memory.
//!
//! Key type: [`HostMachine`]. Entries are words of the arena and change atomically. No TLB caches
//! them, so invalidations do nothing.
//!
//! Not guaranteed: that a program can run in the address spaces built on it.

use crate::memory::HostMemory;
use pagewright_arch::{Caps, Effects, X86_64};
use pagewright_sync::host::HostLocks;
use pagewright_sync::{FrameWords, LinearMap, Platform};
use pagewright_types::{CpuMask, IsaKind};

/// A machine whose frames are host memory.
#[derive(Clone, Debug)]
pub struct HostMachine {
    memory: HostMemory,
    words: FrameWords,
    online: CpuMask,
}

const CAPS: Caps = Caps::baseline(IsaKind::X86_64);

impl HostMachine {
    /// A machine of `cpus` CPUs; a thread becomes one by [`run_as`](crate::run_as).
    pub fn new(memory: HostMemory, cpus: usize) -> Self {
        Self { memory, words: memory.words(), online: CpuMask::first(cpus) }
    }

    /// The memory of the frames.
    pub fn arena(&self) -> &HostMemory {
        &self.memory
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

    pagewright_arch::entries_are_words!(words);

    /// Does nothing, because no CPU runs an address space here.
    fn send_ipi(&self, _: &CpuMask) {}

    pagewright_arch::no_tlb_and_no_interrupts!();

    pagewright_arch::pages_are_words!(words);
}

impl Platform for HostMachine {
    type Locks = HostLocks;

    fn memory(&self) -> Option<&'static LinearMap> {
        Some(self.memory.map())
    }
}
