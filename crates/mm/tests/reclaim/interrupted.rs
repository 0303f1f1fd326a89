//! A swap device during whose transfers another CPU acts.

use pagewright_arch::Isa;
use pagewright_lab::harness::{CPU, MemorySwap, TestWorld};
use pagewright_mm::swap::{SwapBacking, SwapOps};
use pagewright_types::Errno;
use std::cell::RefCell;

thread_local! {
    /// What another CPU does during the next transfer.
    static ACT: RefCell<Option<Box<dyn FnOnce()>>> = RefCell::default();
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Transfer {
    Read,
    Write,
}

/// A device during whose reads, or writes, another CPU acts.
pub(super) struct InterruptedSwap {
    memory: MemorySwap,
    during: Transfer,
}

impl InterruptedSwap {
    /// Adds such a device of 4096 pages to a machine; returns its memory.
    pub(super) fn add<I: Isa>(world: &TestWorld<I>, during: Transfer) -> MemorySwap {
        let memory = MemorySwap::default();
        let device = SwapBacking::Device(Box::new(Self { memory: memory.clone(), during }));
        world.on(CPU, |mm| mm.swap_on(device, 4096)).expect("memory for the slots");
        memory
    }

    /// Has another CPU act during the next transfer.
    pub(super) fn act_once(act: impl FnOnce() + 'static) {
        ACT.set(Some(Box::new(act)));
    }

    /// Whether what was to happen has happened; otherwise it does not any more.
    pub(super) fn has_acted() -> bool {
        ACT.take().is_none()
    }

    fn transfers(&self, transfer: Transfer) {
        if transfer == self.during
            && let Some(act) = ACT.take()
        {
            act();
        }
    }
}

impl SwapOps for InterruptedSwap {
    fn write_page(&self, slot: u32, get: &mut dyn FnMut(u64, &mut [u8])) -> Result<(), Errno> {
        self.transfers(Transfer::Write);
        self.memory.write_page(slot, get)
    }

    fn read_page(&self, slot: u32, put: &mut dyn FnMut(u64, &[u8])) -> Result<(), Errno> {
        self.transfers(Transfer::Read);
        self.memory.read_page(slot, put)
    }

    fn discard(&self, slot: u32) {
        self.memory.discard(slot);
    }
}
