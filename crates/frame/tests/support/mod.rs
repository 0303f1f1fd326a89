//! A machine on which the frame allocator runs on host threads.
//!
//! It has no translations, and contents of frames only if the test provides memory.

// Each test file uses only a part of this module.
#![allow(dead_code)]

use pagewright_arch::{Caps, Effects, Invalidate, Pte, PteSlot, X86_64};
use pagewright_frame::{Block, FolioRef, FolioRefs, FrameAllocator, FrameRequest, MemoryLayout, NodeSpec};
use pagewright_sync::host::{self, run_as};
use pagewright_sync::{Backend, LineRef, LineUse, LinearMap, Platform};
use pagewright_types::judge::Fact;
use pagewright_types::{CpuId, CpuMask, DebtFloor, FrameRange, IsaKind, NodeId, Order, Pfn, PhysAddr, Tag};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Makes the calling thread run on a CPU.
pub(crate) fn run_on(cpu: u16) {
    run_as(CpuId::new(cpu));
}

/// The value of `permitted` that limits nothing.
const UNLIMITED: u64 = u64::MAX;

/// A machine whose CPUs are host threads.
#[derive(Clone)]
pub(crate) struct Host {
    cpus: usize,
    /// The number of allocations still permitted.
    permitted: Arc<AtomicU64>,
    /// The contents of the frames, from frame 0 on, for tests that clear.
    memory: Option<&'static LinearMap>,
}

impl Host {
    pub(crate) fn new(cpus: usize) -> Self {
        Self { cpus, permitted: Arc::new(AtomicU64::new(UNLIMITED)), memory: None }
    }

    /// A machine with memory behind its frames, which begin at frame 0.
    pub(crate) fn with_memory(cpus: usize, memory: LinearMap) -> Self {
        Self { memory: Some(Box::leak(Box::new(memory))), ..Self::new(cpus) }
    }

    /// Permits `n` more allocations and refuses those after.
    pub(crate) fn permit(&self, n: u64) {
        self.permitted.store(n, Ordering::Relaxed);
    }
}

const CAPS: Caps = Caps::baseline(IsaKind::X86_64);

fn not_used() -> ! {
    unreachable!("the frame allocator touches neither contents nor translations")
}

impl Effects for Host {
    type Isa = X86_64;

    fn caps(&self) -> &Caps {
        &CAPS
    }

    pagewright_sync::cpus_are_threads!();

    fn online(&self) -> CpuMask {
        CpuMask::first(self.cpus)
    }

    fn load(&self, _: PteSlot) -> Pte {
        not_used()
    }

    fn store(&self, _: PteSlot, _: Pte) {
        not_used()
    }

    fn swap(&self, _: PteSlot, _: Pte) -> Pte {
        not_used()
    }

    fn compare_exchange(&self, _: PteSlot, _: Pte, _: Pte) -> Result<(), Pte> {
        not_used()
    }

    fn publish(&self) {
        not_used()
    }

    fn invalidate(&self, _: Invalidate) {
        not_used()
    }

    fn complete(&self) {
        not_used()
    }

    fn send_ipi(&self, _: &CpuMask) {
        not_used()
    }

    fn install_root(&self, _: Pfn, _: Tag, _: bool) {
        not_used()
    }

    fn without_interrupts<T>(&self, body: impl FnOnce() -> T) -> T {
        body()
    }

    fn may_wait(&self) -> bool {
        true
    }

    fn permit_allocation(&self) -> bool {
        self.permitted.load(Ordering::Relaxed) == UNLIMITED
            || self.permitted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }

    fn declare(&self, fact: Fact) {
        DECLARED.with_borrow_mut(|facts| facts.push(fact));
    }

    fn zero(&self, _: Pfn, _: Order) {
        not_used()
    }

    fn copy(&self, _: Pfn, _: Pfn, _: Order) {
        not_used()
    }

    fn read(&self, _: PhysAddr, _: &mut [u8]) {
        not_used()
    }

    fn write(&self, _: PhysAddr, _: &[u8]) {
        not_used()
    }
}

impl Platform for Host {
    type Locks = ReportingLocks;

    fn memory(&self) -> Option<&'static LinearMap> {
        self.memory
    }
}

thread_local! {
    static DECLARED: RefCell<Vec<Fact>> = const { RefCell::new(Vec::new()) };
}

/// The facts that this thread has declared in `body`.
pub(crate) fn declared(body: impl FnOnce()) -> Vec<Fact> {
    DECLARED.take();
    body();
    DECLARED.take()
}

/// Locks of host threads, whose lines can be looked at.
pub(crate) struct ReportingLocks;

impl Backend for ReportingLocks {
    type Line = ();

    fn pause() {
        std::thread::yield_now();
    }

    fn line(line: LineRef<'_, ()>, name: &'static str, used: LineUse) {
        host::keep_report(line, name, used);
    }

    pagewright_sync::locks_of_threads!();
}

pub(crate) const NODE0: NodeId = NodeId::new(0);

pub(crate) fn range(start: u32, end: u32) -> FrameRange {
    FrameRange::new(Pfn::new(start), Pfn::new(end))
}

/// The CPUs with these numbers.
pub(crate) fn cpus(numbers: impl IntoIterator<Item = u16>) -> CpuMask {
    numbers.into_iter().map(CpuId::new).collect()
}

/// A machine of one node with no watermarks.
pub(crate) fn one_node(host: &Host, start: u32, end: u32) -> FrameAllocator<Host> {
    let ranges = [range(start, end)];
    let nodes = [NodeSpec { id: NODE0, ranges: &ranges, cpus: CpuMask::first(host.cpus) }];
    let layout = MemoryLayout { min_free_kbytes: Some(0), watermark_scale_factor: 0, ..MemoryLayout::new(&nodes) };
    FrameAllocator::try_new(host.clone(), &layout).expect("a valid layout")
}

/// The floor of a ledger in which nothing is settled.
pub(crate) fn nothing_settled() -> DebtFloor {
    DebtFloor::NONE
}

/// Settles every debt.
pub(crate) fn settle_everything(frames: &FrameAllocator<Host>) {
    frames.unpark(DebtFloor::new(u64::MAX));
    assert_eq!(frames.parked(), 0);
}

/// Allocates a block that owes no debt.
pub(crate) fn take(frames: &FrameAllocator<Host>, order: u8) -> Block {
    let unsettled = frames.alloc(FrameRequest::new(Order::new(order), NODE0), nothing_settled).expect("memory is left");
    unsettled.settle(|key| panic!("the block owes {key}"))
}

/// The number of free blocks of each order, for each zone.
pub(crate) fn shape(frames: &FrameAllocator<Host>) -> Vec<[u32; Order::COUNT]> {
    frames.zones().map(|zone| std::array::from_fn(|raw| zone.blocks(Order::new(raw as u8)))).collect()
}

/// Takes back a reference that the test turned into a number, by any frame of its folio.
pub(crate) fn take_back(frames: &FrameAllocator<Host>, pfn: Pfn) -> FolioRef {
    // SAFETY: INV-FRAME-REFS – the test got the number from `into_raw` or `get_raw`.
    unsafe { frames.folio_ref_from_raw(pfn) }
}

/// As [`take_back`], for `n` references.
pub(crate) fn take_back_all(frames: &FrameAllocator<Host>, pfn: Pfn, n: u32) -> FolioRefs {
    // SAFETY: INV-FRAME-REFS – as there, of each.
    unsafe { frames.folio(pfn).refs_from_raw(n) }
}

/// Takes back a block that the test turned into a number.
pub(crate) fn block_at(frames: &FrameAllocator<Host>, pfn: Pfn) -> Block {
    // SAFETY: INV-FRAME-LINEAR – the test got the number from `into_raw`.
    unsafe { frames.block_from_raw(pfn) }
}

/// Retires a table to which the test has no pointer.
pub(crate) fn retire(frames: &FrameAllocator<Host>, table: Pfn) -> Block {
    // SAFETY: INV-FRAME-TABLE – no test of this crate hooks a table.
    unsafe { frames.retire(table) }
}
