//! The machine as the memory manager sees it: [`Effects`] and [`Platform`] by instructions.
//!
//! Entries are words of the linear map. What differs between the instruction sets – invalidations,
//! barriers, base registers – is in `arch::mmu`.
//!
//! Not guaranteed: that a physical address is memory. The memory manager was given frames that are,
//! and passes those.

use crate::arch::{self, mmu};
use crate::counts::{self, Effect};
use crate::locks::KernelLocks;
use core::sync::atomic::{AtomicU64, Ordering};
use pagewright_arch::{Caps, Effects, Invalidate, Pte, PteSlot};
use pagewright_sync::{LinearMap, Platform};
use pagewright_tlb::frames::Block;
use pagewright_types::{CpuId, CpuMask, FrameRange, Order, PAGE_SIZE, Pfn, PhysAddr, Tag};

/// This machine.
///
/// There is one, so a handle is nothing.
#[derive(Clone, Copy, Debug)]
pub struct Machine;

/// Where the byte at `at` is mapped.
pub(crate) fn linear(at: PhysAddr) -> *mut u8 {
    core::ptr::with_exposed_provenance_mut((mmu::LINEAR + at.raw()) as usize)
}

impl Machine {
    /// A block of frames as memory, for good.
    ///
    /// It is never given back, so the slice stays the only way to reach it.
    pub fn keep(block: Block) -> &'static mut [u8] {
        let order = block.order();
        // SAFETY: INV-FRAME-SETTLED – who has the block has it alone, and gives it up here.
        unsafe { core::slice::from_raw_parts_mut(linear(block.into_raw().base()), bytes(order)) }
    }
}

fn word(slot: PteSlot) -> &'static AtomicU64 {
    // SAFETY: a slot lies in a frame that is a page table: memory, mapped for good, aligned to 8
    // bytes, and reached by nobody but through atomics (INV-FRAME-STATE).
    unsafe { &*linear(slot.addr()).cast::<AtomicU64>() }
}

fn bytes(order: Order) -> usize {
    (u64::from(order.frames()) * PAGE_SIZE) as usize
}

impl Effects for Machine {
    type Isa = mmu::Isa;

    fn caps(&self) -> &Caps {
        mmu::caps()
    }

    #[inline]
    fn cpu(&self) -> CpuId {
        arch::cpu()
    }

    fn online(&self) -> CpuMask {
        arch::smp::online()
    }

    #[inline]
    fn load(&self, slot: PteSlot) -> Pte {
        Pte::from_raw(word(slot).load(Ordering::Acquire))
    }

    #[inline]
    fn store(&self, slot: PteSlot, pte: Pte) {
        counts::add(Effect::EntryStores, 1);
        word(slot).store(pte.raw(), Ordering::Release);
    }

    #[inline]
    fn swap(&self, slot: PteSlot, pte: Pte) -> Pte {
        counts::add(Effect::EntryStores, 1);
        Pte::from_raw(word(slot).swap(pte.raw(), Ordering::AcqRel))
    }

    #[inline]
    fn compare_exchange(&self, slot: PteSlot, current: Pte, new: Pte) -> Result<(), Pte> {
        let exchanged = word(slot).compare_exchange(current.raw(), new.raw(), Ordering::AcqRel, Ordering::Acquire);
        exchanged.map(|_| counts::add(Effect::EntryStores, 1)).map_err(Pte::from_raw)
    }

    #[inline]
    fn publish(&self) {
        counts::barrier::<mmu::Isa>();
        mmu::publish();
    }

    fn invalidate(&self, op: Invalidate) {
        counts::invalidation::<mmu::Isa>(op);
        mmu::invalidate(op);
    }

    #[inline]
    fn complete(&self) {
        counts::barrier::<mmu::Isa>();
        mmu::complete();
    }

    fn send_ipi(&self, targets: &CpuMask) {
        counts::add(Effect::IpisSent, u64::from(targets.count()));
        for cpu in targets.iter() {
            arch::send_ipi(cpu);
        }
    }

    #[inline]
    fn relax(&self) {
        debug_assert!(self.may_wait(), "INV-TLB-WAIT: waiting with interrupts closed");
        arch::pause();
    }

    fn install_root(&self, root: Pfn, tag: Tag, keep: bool) {
        if !keep || !self.caps().tagged {
            counts::add(Effect::FullFlushes, 1);
        }
        mmu::install_root(root, tag, keep);
    }

    fn without_interrupts<T>(&self, body: impl FnOnce() -> T) -> T {
        without_interrupts(body)
    }

    #[inline]
    fn may_wait(&self) -> bool {
        arch::interrupts::are_open()
    }

    fn zero(&self, pfn: Pfn, order: Order) {
        // SAFETY: the caller owns the block, which is memory and mapped (INV-FRAME-SETTLED).
        unsafe { linear(pfn.base()).write_bytes(0, bytes(order)) }
    }

    fn copy(&self, from: Pfn, to: Pfn, order: Order) {
        // SAFETY: as for `zero`; user mode may store to `from` meanwhile, and gets a copy of some
        // moment of each byte, as from any kernel.
        unsafe { linear(to.base()).copy_from_nonoverlapping(linear(from.base()), bytes(order)) }
    }

    fn read(&self, from: PhysAddr, to: &mut [u8]) {
        // SAFETY: the range lies in one frame of memory.
        unsafe { to.as_mut_ptr().copy_from_nonoverlapping(linear(from), to.len()) }
    }

    fn write(&self, to: PhysAddr, from: &[u8]) {
        // SAFETY: the range lies in one frame of memory, which the caller owns.
        unsafe { linear(to).copy_from_nonoverlapping(from.as_ptr(), from.len()) }
    }
}

impl Platform for Machine {
    type Locks = KernelLocks;

    fn memory(&self) -> Option<LinearMap> {
        let first = core::ptr::NonNull::new(linear(PhysAddr::ZERO))?;
        // SAFETY: INV-LINEAR-MAP – boot maps all memory there, as Normal memory, before the
        // allocator is given any of it.
        Some(unsafe { LinearMap::new(first, FrameRange::new(Pfn::new(0), Pfn::new(u32::MAX))) })
    }
}

/// Runs `body` with interrupts closed, and leaves them as they were.
pub(crate) fn without_interrupts<T>(body: impl FnOnce() -> T) -> T {
    let open = arch::interrupts::are_open();
    if open {
        arch::interrupts::close();
    }
    let result = body();
    if open {
        arch::interrupts::open();
    }
    result
}
