//! The simulated machine as page-table code sees it: [`Harness`], and each [`Cpu`] of it.
//!
//! A program calls a method where a kernel executes an instruction: [`Cpu::flush_page`] for
//! `INVLPG` or `TLBI VAE1`, [`Cpu::load_root`] for `MOV CR3`. Some methods also declare facts to
//! the oracle: [`Harness::alloc_frame`] and [`Harness::free_frame`] say which frames are in use;
//! [`Cpu::will_reduce`] and [`Cpu::call`] say which rights a call removes and when it returns.
//!
//! Each method of [`Cpu`] is a point at which the scheduler may switch to another CPU. Memory can
//! also be stored to through [`Harness::ram`] or a pointer ([`Harness::host_address`]): walkers see
//! such a store at once, and no CPU is switched. An entry store that arm64 may delay until
//! `DSB ISHST` must go through [`Cpu::store`].
//!
//! Not guaranteed: that a program which spins in a loop without calling the harness ends. A loop
//! that waits for another CPU must call [`Cpu::relax`] or take a [`HarnessLock`].

use crate::finding::CheckFinding;
use crate::testbench::Testbench;
use pagewright_arch::{Effects, Invalidate, InvalidateScope, InvalidateTarget, Isa, Pte, PteSlot};
use pagewright_sim::{PageFault, Sim, SimLocks};
use pagewright_sync::{Rank, SpinLock};
use pagewright_types::judge::Fact;
use pagewright_types::{Access, CpuId, CpuMask, Level, Order, PageRange, Pfn, PhysAddr, Rights, Tag, VirtAddr};
use std::cell::{Cell, RefCell};
use std::fmt::Display;
use std::ops::Deref;
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicU64, Ordering};

/// The program of one CPU; [`program`] makes one.
pub type CpuProgram<I> = Box<dyn FnOnce(&Cpu<I>)>;

/// Makes the program of one CPU from a closure.
pub fn program<I: Isa>(body: impl FnOnce(&Cpu<I>) + 'static) -> CpuProgram<I> {
    Box::new(body)
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
type IpiFunction<I> = dyn Fn(&Cpu<I>);

/// One IPI that its target has not taken.
struct IpiRequest<I: Isa> {
    function: Rc<IpiFunction<I>>,
    /// Targets of the same call that have not run the function.
    pending: Rc<Cell<u32>>,
}

struct State<I: Isa> {
    bench: Testbench<I>,
    /// Free frames; the frame freed last is allocated first.
    free: RefCell<Vec<Pfn>>,
    /// The root and the tag that each CPU has loaded.
    roots: Vec<Cell<Option<(Pfn, Tag)>>>,
    /// Depth of nested calls on each CPU.
    calls: Vec<Cell<u32>>,
    ipis: Vec<RefCell<Vec<IpiRequest<I>>>>,
}

/// A handle to the machine; every clone refers to the same machine.
pub struct Harness<I: Isa>(Rc<State<I>>);

impl<I: Isa> Clone for Harness<I> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<I: Isa> Harness<I> {
    pub(crate) fn new(bench: Testbench<I>) -> Self {
        let (cpus, frames) = (bench.cpus().count() as usize, bench.sim().ram().len() / 512);
        let state = State {
            free: RefCell::new((1..frames as u32).rev().map(Pfn::new).collect()),
            roots: (0..cpus).map(|_| Cell::new(None)).collect(),
            calls: (0..cpus).map(|_| Cell::new(0)).collect(),
            ipis: (0..cpus).map(|_| RefCell::default()).collect(),
            bench,
        };
        let harness = Self(Rc::new(state));
        let weak = Rc::downgrade(&harness.0);
        harness.sim().bind_ipi_handler(Rc::new(move |cpu| handle_ipis(&weak, cpu)));
        harness
    }

    pub(crate) fn bench(&self) -> &Testbench<I> {
        &self.0.bench
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
    pub fn ram(&self) -> &[AtomicU64] {
        self.sim().ram()
    }

    /// The host address of frame `pfn`, aligned to a page.
    ///
    /// It stands for a kernel's direct map (physical address plus offset). Walkers see a store
    /// through it at once.
    ///
    /// # Panics
    /// When the machine has no such frame.
    pub fn host_address(&self, pfn: Pfn) -> *mut u8 {
        self.ram()[pfn.index() * Level::ENTRIES..].as_ptr().cast_mut().cast()
    }

    /// Allocates a zeroed frame and declares the allocation to the oracle.
    ///
    /// # Panics
    /// When no frame is free.
    pub fn alloc_frame(&self) -> Pfn {
        let Some(pfn) = self.0.free.borrow_mut().pop() else {
            panic!("no frame is free; give the check more memory with `Check::memory`")
        };
        self.sim().declare(Fact::FrameReused { pfn, order: Order::ZERO });
        self.sim().zero(pfn, Order::ZERO);
        pfn
    }

    /// Allocates a zeroed, naturally aligned block of frames and declares the allocation.
    ///
    /// # Panics
    /// When no block of `order` is free.
    pub fn alloc_block(&self, order: Order) -> Pfn {
        let first = |free: &[Pfn]| {
            let mut starts = free.iter().copied().filter(|pfn| pfn.is_aligned(order));
            let whole = |start: &Pfn| (0..order.frames()).all(|frame| free.contains(&start.add(frame)));
            starts.find(whole)
        };
        let Some(pfn) = first(&self.0.free.borrow()) else { panic!("no block of order {order} is free") };
        let block = pfn..pfn.add(order.frames());
        self.0.free.borrow_mut().retain(|free| !block.contains(free));
        self.sim().declare(Fact::FrameReused { pfn, order });
        self.sim().zero(pfn, order);
        pfn
    }

    /// Frees a frame and declares it to the oracle.
    ///
    /// The next [`Harness::alloc_frame`] returns the same frame.
    pub fn free_frame(&self, pfn: Pfn) {
        self.sim().declare(Fact::FrameFreed { pfn, order: Order::ZERO });
        self.0.free.borrow_mut().push(pfn);
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
    loop {
        let requests = cpu.harness.0.ipis[id.index()].take();
        if requests.is_empty() {
            return;
        }
        for IpiRequest { function, pending } in requests {
            function(&cpu);
            pending.set(pending.get() - 1);
        }
    }
}

/// IPIs that were sent and may not have been acknowledged.
#[must_use = "an IPI that is not waited for may not have been taken"]
pub struct PendingIpis(Rc<Cell<u32>>);

impl PendingIpis {
    /// Waits until every target has run the function.
    pub fn wait<I: Isa>(&self, cpu: &Cpu<I>) {
        while self.0.get() > 0 {
            cpu.relax();
        }
    }

    /// Drops the IPIs without waiting for them.
    pub fn ignore(self) {}
}

/// One CPU of the machine; it dereferences to the [`Harness`].
///
/// A program acts through the [`Cpu`] that it is given. Acting through another CPU's handle while
/// schedules are explored panics.
pub struct Cpu<I: Isa> {
    harness: Harness<I>,
    id: CpuId,
}

impl<I: Isa> Clone for Cpu<I> {
    fn clone(&self) -> Self {
        Self { harness: self.harness.clone(), id: self.id }
    }
}

impl<I: Isa> Deref for Cpu<I> {
    type Target = Harness<I>;

    fn deref(&self) -> &Harness<I> {
        &self.harness
    }
}

/// The table and the index of the entry at physical address `at`.
fn slot(at: PhysAddr) -> PteSlot {
    assert!(at.is_aligned(8), "the entry address {at} is not a multiple of 8");
    PteSlot { table: Pfn::containing(at), index: (at.page_offset() / 8) as u16 }
}

impl<I: Isa> Cpu<I> {
    /// The number of this CPU.
    pub fn id(&self) -> CpuId {
        self.id
    }

    /// All CPUs but this one.
    pub fn others(&self) -> CpuMask {
        let mut others = self.bench().cpus();
        others.remove(self.id);
        others
    }

    fn on<R>(&self, body: impl FnOnce(&Sim<I>) -> R) -> R {
        self.sim().run_on(self.id, || body(self.sim()))
    }

    /// Adds a line to the drawing of a finding, such as `calls munmap`.
    pub fn note(&self, text: impl Display) {
        self.bench().note(self.id, text);
    }

    /// Runs `body` as a kernel call (a system call or a fault).
    ///
    /// When the call returns, no CPU may still use a right that the call
    /// [declared](Cpu::will_reduce) to remove. Of nested calls, only the outermost counts.
    pub fn call<R>(&self, name: &str, body: impl FnOnce(&Self) -> R) -> R {
        let calls = &self.harness.0.calls[self.id.index()];
        calls.set(calls.get() + 1);
        self.note(format_args!("calls {name}"));
        let result = body(self);
        calls.set(calls.get() - 1);
        if calls.get() == 0 {
            self.on(|sim| sim.declare(Fact::CallReturned));
        }
        result
    }

    /// Declares that the current call reduces the rights in `range` to `left`.
    ///
    /// The range is in the address space that is loaded on this CPU. The declaration must come
    /// before the first entry is changed. `left` is empty for an unmap.
    ///
    /// # Panics
    /// When no root is loaded.
    pub fn will_reduce(&self, range: PageRange, left: Rights) {
        let (root, _) = self.loaded();
        self.will_reduce_under(root, range, left);
    }

    /// Like [`Cpu::will_reduce`], for the address space of `root`.
    pub fn will_reduce_under(&self, root: Pfn, range: PageRange, left: Rights) {
        self.on(|sim| sim.declare(Fact::RightReduced { root, range, left }));
    }

    fn loaded(&self) -> (Pfn, Tag) {
        let Some(loaded) = self.harness.0.roots[self.id.index()].get() else {
            panic!("no root is loaded on CPU {}", self.id)
        };
        loaded
    }

    /// Loads `root` under `tag`: `MOV CR3` with a PCID, or a write of `TTBR0_EL1` with an ASID.
    ///
    /// Nothing is flushed, unless the machine is [`crate::Check::untagged`].
    pub fn load_root(&self, root: Pfn, tag: Tag) {
        self.harness.0.roots[self.id.index()].set(Some((root, tag)));
        self.on(|sim| sim.install_root(root, tag, true));
    }

    /// Enters or leaves lazy TLB mode: a kernel thread runs on the root that is loaded.
    pub fn set_lazy(&self, lazy: bool) {
        self.on(|sim| sim.set_lazy(lazy));
    }

    fn access(&self, va: VirtAddr, access: Access) -> Result<&AtomicU64, PageFault> {
        assert!(va.is_aligned(8), "{access} of eight bytes at {va}, which is not a multiple of 8");
        let found = self.sim().access(self.id, va, access, 1)?;
        Ok(&self.ram()[((found.pfn.base().raw() + va.page_offset()) / 8) as usize])
    }

    /// Reads the 64-bit word at `va` in user mode.
    ///
    /// # Errors
    /// [`PageFault`], which the caller handles as its kernel's fault handler would.
    ///
    /// # Panics
    /// When `va` is not a multiple of 8.
    pub fn read(&self, va: VirtAddr) -> Result<u64, PageFault> {
        let value = self.access(va, Access::Read)?.load(Ordering::Acquire);
        self.bench().note_value(self.id, value);
        Ok(value)
    }

    /// Writes the 64-bit word at `va` in user mode.
    ///
    /// # Errors
    /// [`PageFault`]; nothing was written.
    ///
    /// # Panics
    /// When `va` is not a multiple of 8.
    pub fn write(&self, va: VirtAddr, value: u64) -> Result<(), PageFault> {
        self.access(va, Access::Write)?.store(value, Ordering::Release);
        self.bench().note_value(self.id, value);
        Ok(())
    }

    /// Fetches an instruction at `va` in user mode, and returns the 64-bit word there.
    ///
    /// # Errors
    /// [`PageFault`].
    ///
    /// # Panics
    /// When `va` is not a multiple of 8.
    pub fn fetch(&self, va: VirtAddr) -> Result<u64, PageFault> {
        Ok(self.access(va, Access::Exec)?.load(Ordering::Acquire))
    }

    /// Loads the entry at physical address `at`.
    ///
    /// # Panics
    /// When `at` is not a multiple of 8, or there is no memory there.
    pub fn load(&self, at: PhysAddr) -> u64 {
        self.on(|sim| sim.load(slot(at)).raw())
    }

    /// Stores the entry at physical address `at`.
    ///
    /// Walkers may see the store late: on x86-64 in order, on arm64 in any order until
    /// [`Cpu::publish`].
    ///
    /// # Panics
    /// As [`Cpu::load`].
    pub fn store(&self, at: PhysAddr, entry: u64) {
        self.on(|sim| sim.store(slot(at), Pte::from_raw(entry)));
    }

    /// Exchanges the entry at `at` atomically, and returns the old one.
    ///
    /// The exchange is also atomic against a walker that sets an accessed or dirty bit.
    ///
    /// # Panics
    /// As [`Cpu::load`].
    pub fn swap(&self, at: PhysAddr, entry: u64) -> u64 {
        self.on(|sim| sim.swap(slot(at), Pte::from_raw(entry)).raw())
    }

    /// Replaces the entry at `at` by `new` if it still is `current`.
    ///
    /// # Errors
    /// The entry that is there instead.
    ///
    /// # Panics
    /// As [`Cpu::load`].
    pub fn compare_exchange(&self, at: PhysAddr, current: u64, new: u64) -> Result<(), u64> {
        let (current, new) = (Pte::from_raw(current), Pte::from_raw(new));
        self.on(|sim| sim.compare_exchange(slot(at), current, new)).map_err(Pte::raw)
    }

    /// Makes the entry stores of this CPU visible to walkers (arm64 `DSB ISHST`).
    ///
    /// It does nothing on x86-64.
    pub fn publish(&self) {
        self.on(|sim| sim.publish());
    }

    /// Waits until the broadcast invalidations of this CPU are complete (arm64 `DSB ISH`).
    ///
    /// It does nothing on x86-64.
    pub fn complete(&self) {
        self.on(|sim| sim.complete());
    }

    /// Invalidates the translation of `va` and its walk-cache entries, under the loaded tag.
    ///
    /// This is `INVLPG` or `TLBI VAE1`, and with `InvalidateScope::Broadcast` `TLBI VAE1IS`.
    ///
    /// # Panics
    /// When no root is loaded, and on x86-64 when `scope` is broadcast.
    pub fn flush_page(&self, va: VirtAddr, scope: InvalidateScope) {
        let (_, tag) = self.loaded();
        self.invalidate(Invalidate {
            scope,
            target: InvalidateTarget::Page { tag, va, level: Level::PTE, last_level: false },
        });
    }

    /// Invalidates everything under the tag that is loaded, except global translations.
    ///
    /// This is `MOV CR3` or `TLBI ASIDE1`, and with `InvalidateScope::Broadcast` `TLBI ASIDE1IS`.
    ///
    /// # Panics
    /// As [`Cpu::flush_page`].
    pub fn flush_all(&self, scope: InvalidateScope) {
        let (_, tag) = self.loaded();
        self.invalidate(Invalidate { scope, target: InvalidateTarget::Tag(tag) });
    }

    /// Issues the invalidation `op`, of any form that the architecture has.
    ///
    /// # Panics
    /// When the machine does not have the form.
    pub fn invalidate(&self, op: Invalidate) {
        self.on(|sim| sim.invalidate(op));
    }

    /// Sends an IPI to `targets`, has each run `function`, and waits until all have.
    ///
    /// Linux: `smp_call_function_many` with `wait`.
    ///
    /// # Panics
    /// When this CPU is among `targets`, or has interrupts disabled.
    pub fn shoot_down(&self, targets: CpuMask, function: impl Fn(&Self) + 'static) {
        self.send_ipi(targets, function).wait(self);
    }

    /// Sends an IPI to `targets` and has each run `function`.
    ///
    /// # Panics
    /// When this CPU is among `targets`.
    pub fn send_ipi(&self, targets: CpuMask, function: impl Fn(&Self) + 'static) -> PendingIpis {
        let pending = Rc::new(Cell::new(targets.count()));
        let function: Rc<IpiFunction<I>> = Rc::new(function);
        for target in targets.iter() {
            let request = IpiRequest { function: Rc::clone(&function), pending: Rc::clone(&pending) };
            self.harness.0.ipis[target.index()].borrow_mut().push(request);
        }
        self.on(|sim| sim.send_ipi(&targets));
        PendingIpis(pending)
    }

    /// Runs `body` with interrupts disabled on this CPU.
    pub fn without_interrupts<R>(&self, body: impl FnOnce(&Self) -> R) -> R {
        self.on(|sim| sim.without_interrupts(|| body(self)))
    }

    /// Lets the scheduler run other CPUs, in a loop that waits for one of them.
    ///
    /// Linux: `cpu_relax`.
    ///
    /// # Panics
    /// When this CPU has interrupts disabled.
    pub fn relax(&self) {
        self.on(|sim| sim.relax());
    }
}
