//! The simulated machine as page-table code sees it: its frames, its memory and its CPUs.
//!
//! A program calls a method of [`Cpu`] where a kernel executes an instruction.
//! [`Harness::alloc_frame`] and [`Harness::free_frame`] declare to the oracle which frames are in
//! use.
//!
//! Memory can also be stored to through [`Harness::ram`] or a pointer ([`Harness::phys_offset`]):
//! no CPU is switched there, and the store is judged at the next point of its CPU.
//!
//! **INV-CHECK-FREED** A frame that `free_frame` frees is judged there, whether or not it is
//! allocated again; only `park_frame` defers the judgement.

use crate::control::first_cr4;
use crate::cpu::Cpu;
use crate::finding::CheckFinding;
use crate::testbench::Testbench;
use crate::trapping::{MapMemory, SecondMapping, TrappedSim, map_twice};
use pagewright_arch::{Effects, Isa};
use pagewright_sim::explore::ProgramPart;
use pagewright_sim::{PointerStores, Sim, SimLocks};
use pagewright_sync::{Rank, SpinLock};
use pagewright_types::judge::Fact;
use pagewright_types::{CpuId, Level, Order, Pfn, Tag};
use std::cell::{Cell, OnceCell, RefCell};
use std::fmt::Display;
use std::panic::Location;
use std::ptr;
use std::rc::{Rc, Weak};
use std::sync::atomic::AtomicU64;

/// The program of one CPU; [`program`] makes one.
pub type CpuProgram<I> = Box<dyn FnOnce(&Cpu<I>)>;

/// Makes the program of one CPU from a closure.
pub fn program<I: Isa>(body: impl FnOnce(&Cpu<I>) + 'static) -> CpuProgram<I> {
    Box::new(body)
}

/// Makes the program of one CPU from a list, of which a finding keeps what it needs.
///
/// See [`Cpu::operation`].
pub fn operations<I: Isa>(list: impl IntoIterator<Item = CpuProgram<I>> + 'static) -> CpuProgram<I> {
    Box::new(move |cpu| list.into_iter().for_each(|one| cpu.operation(one)))
}

/// The rank of every [`HarnessLock`]: harness locks may nest in any order.
#[derive(Debug)]
pub struct Unranked;

impl Rank for Unranked {
    const PLACE: u8 = 0;
    const NAME: &'static str = "Unranked";
    const NESTS: bool = true;
}

/// A spin lock; a CPU that waits for it lets the scheduler run other CPUs.
pub type HarnessLock<T> = SpinLock<T, Unranked, SimLocks>;

/// The function that a target CPU runs when it takes the IPI.
pub(crate) type IpiFunction<I> = dyn Fn(&Cpu<I>);

/// One IPI that its target has not taken.
pub(crate) struct IpiRequest<I: Isa> {
    pub(crate) function: Rc<IpiFunction<I>>,
    /// Targets of the same call that have not run the function.
    pub(crate) pending: Rc<Cell<u32>>,
}

pub(crate) struct State<I: Isa> {
    bench: Testbench<I>,
    /// Free frames; the frame freed last is allocated first.
    free: RefCell<Vec<Pfn>>,
    /// The root and the tag that each CPU has loaded.
    pub(crate) roots: Vec<Cell<Option<(Pfn, Tag)>>>,
    /// The root of the upper half that each CPU has loaded (arm64).
    pub(crate) kernel_roots: Vec<Cell<Option<Pfn>>>,
    /// CR4 of each CPU (x86-64).
    pub(crate) cr4: Vec<Cell<u64>>,
    /// Depth of nested calls on each CPU.
    pub(crate) calls: Vec<Cell<u32>>,
    pub(crate) ipis: Vec<RefCell<Vec<IpiRequest<I>>>>,
    /// Operations to which each CPU has come.
    operations: Vec<Cell<u32>>,
    /// The parts of the programs that this run leaves out.
    left_out: Vec<ProgramPart>,
    /// Where foreign code finds memory, if its stores trap.
    second_mapping: OnceCell<Rc<dyn SecondMapping>>,
}

/// A handle to the machine; every clone refers to the same machine.
pub struct Harness<I: Isa>(Rc<State<I>>);

impl<I: Isa> Clone for Harness<I> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<I: Isa> Harness<I> {
    pub(crate) fn new(bench: Testbench<I>, left_out: Vec<ProgramPart>) -> Self {
        let (cpus, frames) = (bench.cpus().count() as usize, bench.sim().ram().len() / 512);
        let page = bench.sim().config().granule.order().frames();
        let pages = 1..frames as u32 / page;
        let state = State {
            free: RefCell::new(pages.rev().map(|index| Pfn::new(index * page)).collect()),
            roots: (0..cpus).map(|_| Cell::new(None)).collect(),
            kernel_roots: (0..cpus).map(|_| Cell::new(None)).collect(),
            cr4: (0..cpus).map(|_| Cell::new(first_cr4(bench.sim().config()))).collect(),
            calls: (0..cpus).map(|_| Cell::new(0)).collect(),
            ipis: (0..cpus).map(|_| RefCell::default()).collect(),
            operations: (0..cpus).map(|_| Cell::new(0)).collect(),
            left_out,
            second_mapping: OnceCell::new(),
            bench,
        };
        let harness = Self(Rc::new(state));
        let weak = Rc::downgrade(&harness.0);
        harness.sim().bind_ipi_handler(Rc::new(move |cpu| handle_ipis(&weak, cpu)));
        harness
    }

    /// Maps memory a second time, for foreign code whose stores are to trap.
    pub(crate) fn map_twice(&self, map: MapMemory) {
        let machine = Rc::new(TrappedSim::new(self.sim().clone(), self.bench().journal().clone()));
        let mapping = self.0.second_mapping.get_or_init(|| map_twice(map, self.sim().ram(), machine));
        let mapping = Rc::downgrade(mapping);
        self.sim().trap_pointer_stores(Rc::new(move |frame, traps| {
            mapping.upgrade().into_iter().for_each(|mapping| mapping.set_trap(frame, traps));
        }));
    }

    pub(crate) fn state(&self) -> &State<I> {
        &self.0
    }

    pub(crate) fn bench(&self) -> &Testbench<I> {
        &self.0.bench
    }

    /// The operations to which CPUs have come.
    pub(crate) fn operations(&self) -> Vec<ProgramPart> {
        let of_cpu = |(cpu, count): (usize, &Cell<u32>)| {
            (1..=count.get()).map(move |number| ProgramPart::Operation(CpuId::new(cpu as u16), number))
        };
        self.0.operations.iter().enumerate().flat_map(of_cpu).collect()
    }

    /// Counts an operation of `cpu`; returns whether it is left out.
    pub(crate) fn leaves_out_next(&self, cpu: CpuId) -> bool {
        let count = &self.0.operations[cpu.index()];
        count.set(count.get() + 1);
        self.0.left_out.contains(&ProgramPart::Operation(cpu, count.get()))
    }

    /// Records where the code on `cpu` calls the harness, for the drawing of a finding.
    #[inline]
    #[track_caller]
    pub(crate) fn called(&self, cpu: CpuId) {
        self.0.bench.journal().called(cpu, Location::caller());
    }

    /// Declares `fact` on the CPU that runs now.
    #[track_caller]
    fn declare(&self, fact: Fact) {
        self.called(self.sim().cpu());
        self.sim().declare(fact);
    }

    /// The simulated machine, for operations that the harness does not offer.
    pub fn sim(&self) -> &Sim<I> {
        self.0.bench.sim()
    }

    /// CPU `index`.
    ///
    /// # Panics
    /// When the machine has no such CPU.
    pub fn cpu(&self, index: u16) -> Cpu<I> {
        let id = CpuId::new(index);
        assert!(self.0.bench.cpus().contains(id), "no CPU {index} in a machine of {}", self.0.roots.len());
        Cpu { harness: self.clone(), id }
    }

    /// All CPUs.
    pub fn cpus(&self) -> impl Iterator<Item = Cpu<I>> + use<I> {
        let harness = self.clone();
        self.0.bench.cpus().iter().collect::<Vec<_>>().into_iter().map(move |id| Cpu { harness: harness.clone(), id })
    }

    /// Physical memory as 64-bit words: word *n* is at physical address 8·*n*.
    ///
    /// From now on, stores to page tables that are made here or through a pointer are judged when
    /// their CPU reaches its next point. Walkers see them at once, unless
    /// [`Check::delay_pointer_stores`](crate::Check::delay_pointer_stores) is set.
    pub fn ram(&self) -> &[AtomicU64] {
        self.sim().watch_pointer_stores(PointerStores::Judged);
        self.sim().ram()
    }

    /// The host address of physical address 0: a kernel's direct map is at this offset.
    ///
    /// It is a multiple of a page, and all of memory follows. Stores are as in [`Harness::ram`].
    pub fn phys_offset(&self) -> usize {
        let own = self.ram().as_ptr().expose_provenance();
        self.0.second_mapping.get().map_or(own, |second| second.address())
    }

    /// The host address of frame `pfn`: [`Harness::phys_offset`] plus its physical address.
    ///
    /// # Panics
    /// When the machine has no such frame.
    pub fn host_address(&self, pfn: Pfn) -> *mut u8 {
        let own = self.ram()[pfn.index() * Level::ENTRIES..].as_ptr().cast_mut().cast();
        let second = self.0.second_mapping.get();
        second.map_or(own, |second| ptr::with_exposed_provenance_mut(second.address() + pfn.base().raw() as usize))
    }

    /// The size of a page, which is what the harness allocates and frees.
    fn page_order(&self) -> Order {
        self.sim().config().granule.order()
    }

    /// Allocates a zeroed frame and declares the allocation to the oracle.
    ///
    /// With a larger [granule](crate::Check::granule) it is a page of that size, named by its first
    /// frame.
    ///
    /// # Panics
    /// When no frame is free.
    #[track_caller]
    pub fn alloc_frame(&self) -> Pfn {
        let Some(pfn) = self.0.free.borrow_mut().pop() else {
            panic!("no frame is free; give the check more memory with `Check::memory`")
        };
        let order = self.page_order();
        self.declare(Fact::FrameReused { pfn, order });
        self.sim().zero(pfn, order);
        pfn
    }

    /// Allocates a zeroed, naturally aligned block of frames and declares the allocation.
    ///
    /// It is at least a page of the [granule](crate::Check::granule).
    ///
    /// # Panics
    /// When no block of `order` is free.
    #[track_caller]
    pub fn alloc_block(&self, order: Order) -> Pfn {
        let order = order.max(self.page_order());
        let first = |free: &[Pfn]| {
            let mut starts = free.iter().copied().filter(|pfn| pfn.is_aligned(order));
            let page = self.page_order().frames() as usize;
            let whole = |start: &Pfn| (0..order.frames()).step_by(page).all(|frame| free.contains(&start.add(frame)));
            starts.find(whole)
        };
        let Some(pfn) = first(&self.0.free.borrow()) else {
            panic!("no block of order {order} is free; give the check more memory with `Check::memory`")
        };
        let block = pfn..pfn.add(order.frames());
        self.0.free.borrow_mut().retain(|free| !block.contains(free));
        self.declare(Fact::FrameReused { pfn, order });
        self.sim().zero(pfn, order);
        pfn
    }

    /// Frees a frame, for which no flush is owed any more (INV-CHECK-FREED).
    ///
    /// The next [`Harness::alloc_frame`] on any CPU may return it. So no CPU may reach it now, by a
    /// translation, by a walk cache or by the tables of a loaded root, or it is a finding. A frame
    /// whose flush comes later is [parked](Harness::park_frame) before.
    ///
    /// # Panics
    /// When the frame is free, or does not begin a page of the granule.
    #[track_caller]
    pub fn free_frame(&self, pfn: Pfn) {
        self.assert_begins_page(pfn);
        self.declare(Fact::FrameReleased { pfn, order: self.page_order() });
        let mut free = self.0.free.borrow_mut();
        assert!(!free.contains(&pfn), "frame {pfn} is freed twice");
        free.push(pfn);
    }

    /// Declares that a frame is free and that the flush of what leads to it comes later.
    ///
    /// Programs may read it until then, and nothing may store to it. [`Harness::free_frame`] after
    /// the flush makes it available again. Linux: a page in an `mmu_gather`.
    ///
    /// # Panics
    /// When the frame does not begin a page of the granule.
    #[track_caller]
    pub fn park_frame(&self, pfn: Pfn) {
        self.assert_begins_page(pfn);
        self.declare(Fact::FrameFreed { pfn, order: self.page_order() });
    }

    #[track_caller]
    fn assert_begins_page(&self, pfn: Pfn) {
        let order = self.page_order();
        assert!(pfn.is_aligned(order), "INV-CHECK-GRANULE: {pfn} is inside a page of {} bytes", order.bytes());
    }

    /// Adds a finding of the caller, which ends the run.
    pub fn report(&self, message: impl Display) {
        self.0.bench.report(CheckFinding::Reported(message.to_string()));
    }
}

/// The IPI handler of CPU `id`: runs every function that was sent to it.
fn handle_ipis<I: Isa>(state: &Weak<State<I>>, id: CpuId) {
    let Some(state) = state.upgrade() else { return };
    let cpu = Cpu { harness: Harness(state), id };
    // The code that is interrupted goes on where it was.
    let journal = cpu.bench().journal();
    let interrupted = journal.is_on().then(|| (journal.location(id), journal.move_to(id, None)).0);
    loop {
        let requests = cpu.harness.0.ipis[id.index()].take();
        if requests.is_empty() {
            break;
        }
        for IpiRequest { function, pending } in requests {
            function(&cpu);
            pending.set(pending.get() - 1);
        }
    }
    interrupted.into_iter().for_each(|location| journal.move_to(id, location));
}
