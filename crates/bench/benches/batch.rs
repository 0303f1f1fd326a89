//! What a deferred flush costs, beside an atomic increment of the same run.
//!
//! The machine is host memory and nothing else: barriers, invalidations and the interrupts' way
//! cost nothing, because they are the hardware's (and the simulated machine's) to say. What is left
//! is what the engine does around them. An interrupt runs its handler at once, on the same host
//! thread, and its time is another CPU's.

#[path = "support/table.rs"]
mod table;

use pagewright_arch::{Aarch64, Caps, Effects, Isa, Pte, PteSlot, X86_64};
use pagewright_sync::host::{HostLocks, on_cpu};
use pagewright_sync::{Arc, Backend, Platform};
use pagewright_tlb::frames::{FrameAllocator, MemoryLayout, NodeSpec};
use pagewright_tlb::{Batch, BatchPolicy, Debt, OwedFlush, Tlb, TlbConfig, TlbContext};
use pagewright_types::{CpuId, CpuMask, FrameRange, Level, NodeId, Order, PAGE_SIZE, Pfn, PhysAddr, VirtAddr};
use std::cell::{Cell, OnceCell};
use std::marker::PhantomData;
use std::rc::{Rc, Weak};
use std::time::Duration;
use table::{Scenario, in_parts, measure, timed};

/// Entries that a batch takes, or batches that are settled, between two looks at the clock.
const PART: u64 = 1024;
const FRAMES: u32 = 1 << 14;

thread_local! {
    /// Spent in handlers, and how often they were started.
    static HANDLED: Cell<(Duration, u64)> = const { Cell::new((Duration::ZERO, 0)) };
}

/// The machine: `online` CPUs and no contents of memory.
struct Host<I: Isa>(Rc<Machine<I>>);

struct Machine<I: Isa> {
    online: CpuMask,
    caps: Caps,
    tlb: OnceCell<Weak<Tlb<Host<I>>>>,
    isa: PhantomData<I>,
}

impl<I: Isa> Clone for Host<I> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<I: Isa> Effects for Host<I> {
    type Isa = I;

    fn caps(&self) -> &Caps {
        &self.0.caps
    }

    fn cpu(&self) -> CpuId {
        HostLocks::cpu()
    }

    /// Nothing, because IPIs are handled where they are sent; to yield the CPU would be timed, too.
    fn relax(&self) {}

    fn online(&self) -> CpuMask {
        self.0.online
    }

    fn load(&self, _: PteSlot) -> Pte {
        Pte::EMPTY
    }

    fn store(&self, _: PteSlot, _: Pte) {}

    fn swap(&self, _: PteSlot, _: Pte) -> Pte {
        Pte::EMPTY
    }

    fn compare_exchange(&self, _: PteSlot, _: Pte, _: Pte) -> Result<(), Pte> {
        Ok(())
    }

    fn send_ipi(&self, targets: &CpuMask) {
        let tlb = self.0.tlb.get().and_then(Weak::upgrade).expect("the engine that sends");
        let handled = timed(|| targets.iter().for_each(|cpu| on_cpu(cpu, || tlb.handle_ipi())));
        let (before, ipis) = HANDLED.get();
        HANDLED.set((before + handled, ipis + 1));
    }

    pagewright_arch::no_tlb_and_no_interrupts!();

    fn zero(&self, _: Pfn, _: Order) {}

    fn copy(&self, _: Pfn, _: Pfn, _: Order) {}

    fn read(&self, _: PhysAddr, _: &mut [u8]) {}

    fn write(&self, _: PhysAddr, _: &[u8]) {}
}

impl<I: Isa> Platform for Host<I> {
    type Locks = HostLocks;
}

/// An engine, and two spaces of which the first runs on CPU 0 and the second on all others.
struct Bed<I: Isa> {
    tlb: Rc<Tlb<Host<I>>>,
    mine: Arc<TlbContext>,
    theirs: Arc<TlbContext>,
}

impl<I: Isa> Bed<I> {
    fn new(cpus: u16) -> Self {
        let caps = Caps { range_invalidate: true, ..Caps::baseline(I::KIND) };
        let online = CpuMask::first(usize::from(cpus));
        let host = Host(Rc::new(Machine { online, caps, tlb: OnceCell::new(), isa: PhantomData }));
        let ranges = [FrameRange::new(Pfn::new(1), Pfn::new(FRAMES))];
        let nodes = [NodeSpec { id: NodeId::new(0), ranges: &ranges, cpus: online }];
        let layout = MemoryLayout { min_free_kbytes: Some(0), watermark_scale_factor: 0, ..MemoryLayout::new(&nodes) };
        let frames = FrameAllocator::try_new(host.clone(), &layout).expect("a possible machine");
        let config = TlbConfig { batch: BatchPolicy::Always, ..TlbConfig::default() };
        let tlb = Rc::new(Tlb::try_new(host.clone(), frames, config).expect("a possible machine"));
        assert!(host.0.tlb.set(Rc::downgrade(&tlb)).is_ok());
        let space = || {
            let block = tlb.alloc(tlb.request(Order::ZERO)).expect("memory is left");
            let root = tlb.frames().new_table(block, Level::PGD, pagewright_types::SpaceId::new(1));
            tlb.open_context(root).expect("memory is left")
        };
        let (mine, theirs) = (space(), space());
        tlb.switch_to(&mine);
        online.iter().skip(1).for_each(|cpu| on_cpu(cpu, || tlb.switch_to(&theirs)));
        Self { tlb, mine, theirs }
    }

    /// The debt of one cleared entry.
    fn debt(&self, index: u64) -> Debt<'_, Host<I>, ()> {
        let va = VirtAddr::new((1 << 30) + index * PAGE_SIZE);
        Debt::new(&self.tlb, &self.theirs, va, OwedFlush::Leaf(Level::PTE), ())
    }

    /// A batch of one entry in each of two spaces, so that it is owed by all CPUs.
    fn batch(&self) -> Batch<'_, Host<I>> {
        let mut batch = Batch::new(&self.tlb);
        let va = VirtAddr::new(1 << 30);
        batch.absorb(&self.mine, Debt::new(&self.tlb, &self.mine, va, OwedFlush::Leaf(Level::PTE), ()));
        batch.absorb(&self.theirs, self.debt(0));
        batch
    }

    /// Every CPU has flushed everything.
    fn all_settle(&self) {
        self.tlb.ledger().open(CpuMask::EMPTY);
        let sampled = self.tlb.ledger().sample();
        self.tlb.fx().online().iter().for_each(|cpu| self.tlb.ledger().advance(cpu, sampled));
    }
}

fn queue<I: Isa>() -> Scenario<'static> {
    let bed = Bed::<I>::new(8);
    Scenario::new(format!("{}: defer an entry", I::KIND), move |times| {
        in_parts(times, PART, |part| {
            let mut batch = Batch::new(&bed.tlb);
            let time = timed(|| (0..part).for_each(|index| batch.absorb(&bed.theirs, bed.debt(index))));
            batch.settle();
            time
        })
    })
}

/// As a page that many spaces map is unmapped: one reference is kept for all.
fn queue_shared<I: Isa>() -> Scenario<'static> {
    let bed = Bed::<I>::new(8);
    let block = bed.tlb.alloc(bed.tlb.request(Order::ZERO)).expect("memory is left");
    let pfn = bed.tlb.frames().new_folio(block).into_raw();
    Scenario::new(format!("{}: defer an entry and keep its reference", I::KIND), move |times| {
        in_parts(times, PART, |part| {
            let frames = bed.tlb.frames();
            let references: Vec<_> = (0..part).map(|_| frames.folio(pfn).get()).collect();
            let mut batch = Batch::new(&bed.tlb);
            let va = VirtAddr::new(1 << 30);
            let time = timed(|| {
                for reference in references {
                    let debt = Debt::new(&bed.tlb, &bed.theirs, va, OwedFlush::Leaf(Level::PTE), reference);
                    batch.absorb(&bed.theirs, debt);
                }
            });
            batch.settle();
            time
        })
    })
}

/// Settles batches that `before` has prepared for: one unit each.
fn settle<I: Isa>(name: String, cpus: u16, before: impl Fn(&Bed<I>) + 'static) -> Scenario<'static> {
    let bed = Bed::<I>::new(cpus);
    Scenario::new(format!("{}: {name}", I::KIND), move |times| {
        in_parts(times, PART, |part| {
            let batches: Vec<_> = (0..part).map(|_| bed.batch()).collect();
            before(&bed);
            timed(|| batches.into_iter().for_each(Batch::settle))
        })
    })
}

/// What it takes to time something so often, beside what is timed.
fn timing(times: u64) -> Duration {
    let mut nothing = Duration::ZERO;
    let all = timed(|| (0..times).for_each(|_| nothing += timed(|| ())));
    all.saturating_sub(nothing)
}

/// Settles batches one after the other, so that none is settled by the one before.
///
/// What it takes to fill them is taken off, and so are handlers, which run on other CPUs, and the
/// clock that times them.
fn settle_each<I: Isa>(name: String, cpus: u16) -> Scenario<'static> {
    let bed = Bed::<I>::new(cpus);
    Scenario::new(format!("{}: {name}", I::KIND), move |times| {
        in_parts(times, PART, |part| {
            let mut batches = Vec::with_capacity(part as usize);
            let putting_off = timed(|| batches.extend((0..part).map(|_| bed.batch())));
            HANDLED.set((Duration::ZERO, 0));
            let both = timed(|| (0..part).for_each(|_| bed.batch().settle()));
            let (handled, ipis) = HANDLED.get();
            batches.into_iter().for_each(Batch::settle);
            both.saturating_sub(putting_off + handled + timing(ipis))
        })
    })
}

fn below_the_floor<I: Isa>(bed: &Bed<I>) {
    bed.all_settle();
    bed.tlb.ledger().raise_lowest_clock(&bed.tlb.fx().online());
}

fn scenarios_of<I: Isa>(into: &mut Vec<Scenario<'_>>) {
    into.push(queue::<I>());
    into.push(queue_shared::<I>());
    into.push(settle::<I>("settle a batch below the lowest clock".into(), 32, below_the_floor));
}

fn main() {
    let mut scenarios = Vec::new();
    scenarios_of::<X86_64>(&mut scenarios);
    for cpus in [2, 8, 32, 128] {
        scenarios.push(settle::<X86_64>(
            format!("settle a batch that all of {cpus} CPUs owe no more"),
            cpus,
            Bed::all_settle,
        ));
    }
    for cpus in [2, 8, 32, 128] {
        scenarios
            .push(settle_each::<X86_64>(format!("settle by IPIs to {} CPUs, without their handlers", cpus - 1), cpus));
    }
    scenarios_of::<Aarch64>(&mut scenarios);
    scenarios.push(settle::<Aarch64>("settle a batch that the issuer has completed".into(), 128, Bed::all_settle));
    scenarios.push(settle_each::<Aarch64>("settle by a barrier, 128 CPUs".into(), 128));
    measure(scenarios);
}
