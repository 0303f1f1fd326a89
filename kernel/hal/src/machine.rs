//! The machine as the memory manager sees it: [`Effects`] and [`Platform`] by instructions.
//!
//! Entries are words of the linear map. The parts that differ between the instruction sets –
//! invalidations, barriers, base registers – are in `arch::mmu`.
//!
//! Each physical address is checked: it must be in a frame of the memory manager (`managed`).
//!
//! Not guaranteed: that the caller owns the frame, or that a table that it edits maps only frames
//! that it owns. The memory manager ensures that.

use crate::arch::{self, mmu};
use crate::counts::{self, EffectCounter};
use crate::locks::KernelLocks;
use crate::managed::{self, ManagedBytes};
use core::sync::atomic::AtomicU64;
use pagewright_arch::{Caps, Effects, Invalidate, Pte, PteSlot, TableWords};
use pagewright_sync::{LinearMap, Platform};
use pagewright_tlb::frames::Block;
use pagewright_types::{CpuId, CpuMask, Level, Order, PAGE_SIZE, Pfn, PhysAddr, Tag};

/// A handle to this machine; zero-sized, since there is only one.
#[derive(Clone, Copy, Debug)]
pub struct Machine;

/// The linear address of the byte at `at`.
#[inline]
pub(crate) fn linear(at: PhysAddr) -> *mut u8 {
    core::ptr::with_exposed_provenance_mut((mmu::LINEAR + at.raw()) as usize)
}

impl Machine {
    /// Leaks a block of frames and returns it as memory.
    ///
    /// The block is never freed, so the slice stays the only reference to it.
    ///
    /// # Panics
    /// If a frame of the block was leaked before, or is not one that was free at boot.
    pub fn leak_block(block: Block) -> &'static mut [u8] {
        let order = block.order();
        let memory = ManagedBytes::take_block(block.into_raw(), order);
        // SAFETY: INV-FRAME-LINEAR – the caller owned the block and gives it up; INV-HAL-MANAGED –
        // the block is taken once, and no address reaches it any more.
        unsafe { core::slice::from_raw_parts_mut(memory.as_ptr(), bytes(order)) }
    }
}

/// The entries of a table.
#[inline]
fn table(table: Pfn) -> TableWords<'static> {
    let frame = ManagedBytes::table(table);
    // SAFETY: INV-HAL-MANAGED – memory that stays mapped and is no Rust object; a frame is aligned
    // and holds a table's words.
    TableWords(unsafe { &*frame.as_ptr().cast::<[AtomicU64; Level::ENTRIES]>() })
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
        crate::smp::online()
    }

    #[inline]
    fn load(&self, slot: PteSlot) -> Pte {
        table(slot.table).load(usize::from(slot.index))
    }

    #[inline]
    fn store(&self, slot: PteSlot, pte: Pte) {
        self.note_stores(1);
        table(slot.table).store(usize::from(slot.index), pte);
    }

    #[inline]
    fn swap(&self, slot: PteSlot, pte: Pte) -> Pte {
        self.note_stores(1);
        table(slot.table).swap(usize::from(slot.index), pte)
    }

    #[inline]
    fn compare_exchange(&self, slot: PteSlot, current: Pte, new: Pte) -> Result<(), Pte> {
        let exchanged = table(slot.table).compare_exchange(usize::from(slot.index), current, new);
        exchanged.inspect(|()| self.note_stores(1))
    }

    #[inline]
    fn table_words(&self, frame: Pfn) -> Option<TableWords<'_>> {
        Some(table(frame))
    }

    #[inline]
    fn note_stores(&self, entries: u32) {
        counts::add(EffectCounter::EntryStores, u64::from(entries));
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
        counts::add(EffectCounter::IpisSent, u64::from(targets.count()));
        for cpu in targets.iter() {
            arch::send_ipi(cpu);
        }
    }

    #[inline]
    fn relax(&self) {
        debug_assert!(self.may_wait(), "INV-TLB-WAIT: waiting with interrupts disabled");
        arch::pause();
    }

    fn install_root(&self, root: Pfn, tag: Tag, keep: bool) {
        if !keep || !self.caps().tagged {
            counts::add(EffectCounter::FullFlushes, 1);
        }
        // A root of other memory would map it, and on x86-64 gets the kernel's entries.
        let _root = ManagedBytes::block(root, Order::ZERO);
        mmu::install_root(root, tag, keep);
    }

    fn without_interrupts<T>(&self, body: impl FnOnce() -> T) -> T {
        without_interrupts(body)
    }

    #[inline]
    fn may_wait(&self) -> bool {
        arch::interrupts::are_enabled()
    }

    fn zero(&self, pfn: Pfn, order: Order) {
        // SAFETY: INV-HAL-MANAGED – the block is memory, mapped, and no Rust object.
        unsafe { ManagedBytes::block(pfn, order).as_ptr().write_bytes(0, bytes(order)) }
    }

    fn copy(&self, from: Pfn, to: Pfn, order: Order) {
        assert_ne!(from, to, "a block is copied to itself");
        let (from, to) = (ManagedBytes::block(from, order), ManagedBytes::block(to, order));
        // SAFETY: as for `zero`; both are naturally aligned, so they do not overlap. User mode may
        // store to `from` meanwhile; each byte of the copy is then old or new, as in any kernel.
        unsafe { mmu::copy_pages(from.as_ptr(), to.as_ptr(), bytes(order)) }
    }

    fn publish_code(&self, pfn: Pfn) {
        let frame = ManagedBytes::block(pfn, Order::ZERO);
        // SAFETY: INV-HAL-MANAGED – the frame is memory that stays mapped.
        unsafe { mmu::publish_code(frame.as_ptr(), bytes(Order::ZERO)) }
    }

    fn read(&self, from: PhysAddr, to: &mut [u8]) {
        let from = ManagedBytes::new(from, to.len());
        // SAFETY: INV-HAL-MANAGED – the bytes are memory, and not those of `to`.
        unsafe { to.as_mut_ptr().copy_from_nonoverlapping(from.as_ptr(), to.len()) }
    }

    fn write(&self, to: PhysAddr, from: &[u8]) {
        let to = ManagedBytes::new(to, from.len());
        // SAFETY: INV-HAL-MANAGED – the bytes are memory, and not those of `from`.
        unsafe { to.as_ptr().copy_from_nonoverlapping(from.as_ptr(), from.len()) }
    }
}

impl Platform for Machine {
    type Locks = KernelLocks;

    fn memory(&self) -> Option<&'static LinearMap> {
        managed::map()
    }
}

/// Runs `body` with interrupts disabled, and restores their state.
pub(crate) fn without_interrupts<T>(body: impl FnOnce() -> T) -> T {
    let enabled = arch::interrupts::are_enabled();
    if enabled {
        arch::interrupts::disable();
    }
    let result = body();
    if enabled {
        arch::interrupts::enable();
    }
    result
}
