//! A machine for measuring, which consists of host memory.
//!
//! Entries are loaded, exchanged and stored atomically, and pages are really cleared and copied.
//! Invalidations and root switches do nothing, because their cost is the hardware's or the
//! simulated machine's.

use pagewright_arch::{Caps, Effects, Isa};
use pagewright_mm::{Mm, MmSettings};
use pagewright_sync::host::HostLocks;
use pagewright_sync::{FrameWords, Platform};
use pagewright_tlb::frames::{MemoryLayout, NodeSpec};
use pagewright_types::{CpuId, CpuMask, FrameRange, IsaKind, NodeId, Order, PAGE_SIZE, Pfn};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const CPU: CpuId = CpuId::new(0);
const WORDS: usize = PAGE_SIZE as usize / 8;

/// The machine; its memory lives as long as the process.
pub(crate) struct Host<I> {
    words: FrameWords,
    clears: &'static AtomicBool,
    left: &'static AtomicU64,
    isa: PhantomData<I>,
}

impl<I> Clone for Host<I> {
    fn clone(&self) -> Self {
        Self { words: self.words, clears: self.clears, left: self.left, isa: PhantomData }
    }
}

impl<I: Isa> Host<I> {
    fn new(frames: u32) -> Self {
        // The host zeroes the memory on demand, so only touched frames cost memory.
        let words = bytemuck::zeroed_slice_box(frames as usize * WORDS);
        let (clears, left) = (Box::leak(Box::new(AtomicBool::new(true))), Box::leak(Box::default()));
        let words = FrameWords::new(Box::leak(words), Pfn::new(0));
        Self { words, clears, left, isa: PhantomData }
    }

    /// Does `work` without clearing any page, and returns how many were left as they were.
    ///
    /// Page tables need cleared pages, so `work` must not need a new one.
    pub(crate) fn without_clearing(&self, work: impl FnOnce()) -> u64 {
        let before = self.left.load(Ordering::Relaxed);
        self.clears.store(false, Ordering::Relaxed);
        work();
        self.clears.store(true, Ordering::Relaxed);
        self.left.load(Ordering::Relaxed) - before
    }
}

/// Boots the memory manager on a machine with `frames` frames, without watermarks.
///
/// If `slow` is not 0, a second node without a CPU has that many frames.
pub(crate) fn boot<I: Isa>(frames: u32, slow: u32, settings: MmSettings) -> Mm<Host<I>> {
    let fast = [FrameRange::new(Pfn::new(0), Pfn::new(frames))];
    let slower = [FrameRange::new(Pfn::new(frames), Pfn::new(frames + slow))];
    let nodes = [
        NodeSpec { id: NodeId::new(0), ranges: &fast, cpus: CpuMask::of(CPU) },
        NodeSpec { id: NodeId::new(1), ranges: &slower, cpus: CpuMask::EMPTY },
    ];
    let nodes = if slow > 0 { &nodes[..] } else { &nodes[..1] };
    let layout = MemoryLayout { min_free_kbytes: Some(0), watermark_scale_factor: 0, ..MemoryLayout::new(nodes) };
    Mm::try_new(Host::new(frames + slow), &layout, settings).expect("a valid layout")
}

impl<I: Isa> Effects for Host<I> {
    type Isa = I;

    fn caps(&self) -> &Caps {
        match I::KIND {
            IsaKind::X86_64 => const { &Caps::baseline(IsaKind::X86_64) },
            IsaKind::Aarch64 => const { &Caps { range_invalidate: true, ..Caps::baseline(IsaKind::Aarch64) } },
        }
    }

    pagewright_arch::one_cpu!(CPU);

    pagewright_arch::entries_are_words!(words);

    pagewright_arch::no_tlb_and_no_interrupts!();

    fn zero(&self, pfn: Pfn, order: Order) {
        if !self.clears.load(Ordering::Relaxed) {
            // One CPU counts, so this needs no locked instruction.
            self.left.store(self.left.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            return;
        }
        self.words.fill(pfn, order, 0);
    }

    fn copy(&self, from: Pfn, to: Pfn, order: Order) {
        self.words.copy(from, to, order);
    }

    pagewright_arch::no_access_to_bytes!();
}

impl<I: Isa> Platform for Host<I> {
    type Locks = HostLocks;
}
