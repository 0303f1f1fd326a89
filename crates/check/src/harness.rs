//! The simulated machine as page-table code sees it: [`Harness`], and each [`Cpu`] of it.
//!
//! What a kernel does with instructions, a program here does with a method: [`Cpu::flush_page`] for
//! `INVLPG` or `TLBI VAE1`, [`Cpu::load_root`] for `MOV CR3`. What it tells the oracle:
//! [`Harness::alloc_frame`] and [`Harness::free_frame`] say who has a frame, [`Cpu::will_reduce`]
//! and [`Cpu::call`] which rights are taken and when the call that takes them returns.
//!
//! Each method is a point at which another CPU may go on. Memory can also be stored to through
//! [`Harness::ram`] or a pointer to it ([`Harness::host_address`]): then walkers see the store at
//! once, and nobody goes on in between. Stores that should be late where the architecture allows it
//! (arm64 without `DSB ISHST`) go through [`Cpu::store`].
//!
//! Not guaranteed: that a program which waits in a loop of its own ever sees another CPU act. It
//! must wait in [`Cpu::relax`] or a [`HarnessLock`].

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

/// What a CPU runs; see [`program`].
pub type CpuProgram<I> = Box<dyn FnOnce(&Cpu<I>)>;

/// Boxes what a CPU runs.
pub fn program<I: Isa>(body: impl FnOnce(&Cpu<I>) + 'static) -> CpuProgram<I> {
    Box::new(body)
}

/// The rank of every [`HarnessLock`]: they may be nested in any order.
#[derive(Debug)]
pub struct Unranked;

impl Rank for Unranked {
    const PLACE: u8 = 0;
    const NAME: &'static str = "Unranked";
    const NESTS: bool = true;
}

/// A spin lock whose waiters let other CPUs go on.
pub type HarnessLock<T> = SpinLock<T, Unranked, SimLocks>;

/// What an interrupted CPU is asked to do.
type Act<I> = dyn Fn(&Cpu<I>);

/// A question to one CPU, and how many of those that were asked have not answered.
struct Request<I: Isa> {
    act: Rc<Act<I>>,
    missing: Rc<Cell<u32>>,
}

struct State<I: Isa> {
    bench: Testbench<I>,
    /// Free frames; the one given back last is taken first.
    free: RefCell<Vec<Pfn>>,
    /// What each CPU translates by.
    roots: Vec<Cell<Option<(Pfn, Tag)>>>,
    /// Calls under way on each CPU, one inside the other.
    calls: Vec<Cell<u32>>,
    requests: Vec<RefCell<Vec<Request<I>>>>,
}

/// A handle to the machine; clones are handles to the same one.
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
            requests: (0..cpus).map(|_| RefCell::default()).collect(),
            bench,
        };
        let harness = Self(Rc::new(state));
        let weak = Rc::downgrade(&harness.0);
        harness.sim().bind_ipi_handler(Rc::new(move |cpu| answer(&weak, cpu)));
        harness
    }

    pub(crate) fn bench(&self) -> &Testbench<I> {
        &self.0.bench
    }

    /// The machine below, for what is not offered here.
    pub fn sim(&self) -> &Sim<I> {
        self.0.bench.sim()
    }

    /// CPU `index`.
    ///
    /// # Panics
    /// When there is none.
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

    /// Physical memory as words: word *n* is at physical address 8·*n*.
    pub fn ram(&self) -> &[AtomicU64] {
        self.sim().ram()
    }

    /// Where frame `pfn` lies on the host, aligned as a page: what physical address plus offset is
    /// in a kernel. A store through it is seen by walkers at once.
    pub fn host_address(&self, pfn: Pfn) -> *mut u8 {
        self.ram()[pfn.index() * Level::ENTRIES..].as_ptr().cast_mut().cast()
    }

    /// Takes a free frame, cleared, and declares that it is handed out.
    ///
    /// # Panics
    /// When none is left.
    pub fn alloc_frame(&self) -> Pfn {
        let Some(pfn) = self.0.free.borrow_mut().pop() else { panic!("no frame is left; give the check more memory") };
        self.sim().declare(Fact::FrameReused { pfn, order: Order::ZERO });
        self.sim().zero(pfn, Order::ZERO);
        pfn
    }

    /// Takes a naturally aligned block of frames that nobody has had, cleared.
    ///
    /// # Panics
    /// When none is left.
    pub fn alloc_block(&self, order: Order) -> Pfn {
        let first = |free: &[Pfn]| {
            let mut starts = free.iter().copied().filter(|pfn| pfn.is_aligned(order));
            let whole = |start: &Pfn| (0..order.frames()).all(|frame| free.contains(&start.add(frame)));
            starts.find(whole)
        };
        let Some(pfn) = first(&self.0.free.borrow()) else { panic!("no block of order {order} is left") };
        let block = pfn..pfn.add(order.frames());
        self.0.free.borrow_mut().retain(|free| !block.contains(free));
        self.sim().declare(Fact::FrameReused { pfn, order });
        self.sim().zero(pfn, order);
        pfn
    }

    /// Gives a frame back and declares it.
    ///
    /// The next [`Harness::alloc_frame`] has it.
    pub fn free_frame(&self, pfn: Pfn) {
        self.sim().declare(Fact::FrameFreed { pfn, order: Order::ZERO });
        self.0.free.borrow_mut().push(pfn);
    }

    /// Reports what the caller found out by itself.
    pub fn report(&self, what: impl Display) {
        self.0.bench.report(CheckFinding::Reported(what.to_string()));
    }
}

/// What an interrupted CPU runs.
fn answer<I: Isa>(state: &Weak<State<I>>, id: CpuId) {
    let Some(state) = state.upgrade() else { return };
    let cpu = Cpu { harness: Harness(state), id };
    loop {
        let requests = cpu.harness.0.requests[id.index()].take();
        if requests.is_empty() {
            return;
        }
        for Request { act, missing } in requests {
            act(&cpu);
            missing.set(missing.get() - 1);
        }
    }
}

/// Interrupts that were sent, and may not have been answered.
#[must_use = "an interrupt that nobody waits for proves nothing"]
pub struct PendingIpis(Rc<Cell<u32>>);

impl PendingIpis {
    /// Waits until all have answered.
    pub fn wait<I: Isa>(&self, cpu: &Cpu<I>) {
        while self.0.get() > 0 {
            cpu.relax();
        }
    }

    /// Goes on without waiting.
    pub fn ignore(self) {}
}

/// One CPU of a machine, and a handle to the machine.
///
/// Programs use the one they are given.
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

/// Where the entry at `at` stands.
fn slot(at: PhysAddr) -> PteSlot {
    assert!(at.is_aligned(8), "an entry at {at} is not aligned");
    PteSlot { table: Pfn::containing(at), index: (at.page_offset() / 8) as u16 }
}

impl<I: Isa> Cpu<I> {
    /// Its number.
    pub fn id(&self) -> CpuId {
        self.id
    }

    /// All other CPUs.
    pub fn others(&self) -> CpuMask {
        let mut others = self.bench().cpus();
        others.remove(self.id);
        others
    }

    fn on<R>(&self, body: impl FnOnce(&Sim<I>) -> R) -> R {
        self.sim().run_on(self.id, || body(self.sim()))
    }

    /// Notes what the program does, for whoever reads the interleaving.
    pub fn note(&self, text: impl Display) {
        self.bench().note(self.id, text);
    }

    /// Runs `body` as a call of the kernel: when it ends, the rights that it said it
    /// [reduces](Cpu::will_reduce) must be gone everywhere. Of calls inside one another the
    /// outermost counts.
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

    /// Declares that the call under way leaves `left` in `range` of the space whose root is loaded
    /// here; before the entries are changed.
    ///
    /// # Panics
    /// When no root is loaded.
    pub fn will_reduce(&self, range: PageRange, left: Rights) {
        let (root, _) = self.loaded();
        self.will_reduce_under(root, range, left);
    }

    /// As [`Cpu::will_reduce`], in the space of `root`.
    pub fn will_reduce_under(&self, root: Pfn, range: PageRange, left: Rights) {
        self.on(|sim| sim.declare(Fact::RightReduced { root, range, left }));
    }

    fn loaded(&self) -> (Pfn, Tag) {
        let Some(loaded) = self.harness.0.roots[self.id.index()].get() else { panic!("no root on CPU {}", self.id) };
        loaded
    }

    /// Translates by `root` under `tag` (PCID, ASID) from now on; nothing is flushed unless the
    /// machine is [`crate::Check::untagged`].
    pub fn load_root(&self, root: Pfn, tag: Tag) {
        self.harness.0.roots[self.id.index()].set(Some((root, tag)));
        self.on(|sim| sim.install_root(root, tag, true));
    }

    /// Runs a kernel thread on whatever root is loaded, or no longer.
    pub fn set_lazy(&self, lazy: bool) {
        self.on(|sim| sim.set_lazy(lazy));
    }

    fn access(&self, va: VirtAddr, access: Access) -> Result<&AtomicU64, PageFault> {
        assert!(va.is_aligned(8), "{access} of eight bytes at {va}, which is not aligned");
        let found = self.sim().access(self.id, va, access, 1)?;
        Ok(&self.ram()[((found.pfn.base().raw() + va.page_offset()) / 8) as usize])
    }

    /// Reads the word at `va` in user mode.
    ///
    /// # Errors
    /// [`PageFault`]; the caller is the handler.
    pub fn read(&self, va: VirtAddr) -> Result<u64, PageFault> {
        let value = self.access(va, Access::Read)?.load(Ordering::Acquire);
        self.bench().note_value(self.id, value);
        Ok(value)
    }

    /// Writes the word at `va` in user mode.
    ///
    /// # Errors
    /// [`PageFault`]; nothing was written.
    pub fn write(&self, va: VirtAddr, value: u64) -> Result<(), PageFault> {
        self.access(va, Access::Write)?.store(value, Ordering::Release);
        self.bench().note_value(self.id, value);
        Ok(())
    }

    /// Fetches an instruction at `va` in user mode, and returns its word.
    ///
    /// # Errors
    /// [`PageFault`].
    pub fn fetch(&self, va: VirtAddr) -> Result<u64, PageFault> {
        Ok(self.access(va, Access::Exec)?.load(Ordering::Acquire))
    }

    /// Loads an entry of a table.
    pub fn load(&self, at: PhysAddr) -> u64 {
        self.on(|sim| sim.load(slot(at)).raw())
    }

    /// Stores an entry of a table; walkers may see it late.
    pub fn store(&self, at: PhysAddr, entry: u64) {
        self.on(|sim| sim.store(slot(at), Pte::from_raw(entry)));
    }

    /// Exchanges an entry of a table, atomically against walkers that set accessed and dirty.
    pub fn swap(&self, at: PhysAddr, entry: u64) -> u64 {
        self.on(|sim| sim.swap(slot(at), Pte::from_raw(entry)).raw())
    }

    /// Replaces an entry of a table if it is still `current`.
    ///
    /// # Errors
    /// What stands there instead.
    pub fn compare_exchange(&self, at: PhysAddr, current: u64, new: u64) -> Result<(), u64> {
        let (current, new) = (Pte::from_raw(current), Pte::from_raw(new));
        self.on(|sim| sim.compare_exchange(slot(at), current, new)).map_err(Pte::raw)
    }

    /// Makes its stores to tables visible to walkers (arm64 `DSB ISHST`; nothing on x86-64).
    pub fn publish(&self) {
        self.on(|sim| sim.publish());
    }

    /// Waits until its broadcast invalidations are done everywhere (arm64 `DSB ISH`; nothing on
    /// x86-64).
    pub fn complete(&self) {
        self.on(|sim| sim.complete());
    }

    /// Forgets the translation of `va` under the tag in use, and how it was found (`INVLPG`,
    /// `TLBI VAE1`; broadcast `TLBI VAE1IS`).
    ///
    /// # Panics
    /// When no root is loaded; on x86-64 when `reach` is broadcast, which does not exist there.
    pub fn flush_page(&self, va: VirtAddr, scope: InvalidateScope) {
        let (_, tag) = self.loaded();
        self.invalidate(Invalidate {
            scope,
            target: InvalidateTarget::Page { tag, va, level: Level::PTE, last_level: false },
        });
    }

    /// Forgets everything under the tag in use but what is global (`MOV CR3`, `TLBI ASIDE1`;
    /// broadcast `TLBI ASIDE1IS`).
    ///
    /// # Panics
    /// As [`Cpu::flush_page`].
    pub fn flush_all(&self, scope: InvalidateScope) {
        let (_, tag) = self.loaded();
        self.invalidate(Invalidate { scope, target: InvalidateTarget::Tag(tag) });
    }

    /// Issues any invalidation.
    pub fn invalidate(&self, op: Invalidate) {
        self.on(|sim| sim.invalidate(op));
    }

    /// Interrupts `targets`, has each run `act`, and waits until all have.
    ///
    /// # Panics
    /// When the caller is among them, or runs in an interrupt itself.
    pub fn shoot_down(&self, targets: CpuMask, act: impl Fn(&Self) + 'static) {
        self.send_ipi(targets, act).wait(self);
    }

    /// Interrupts `targets` and has each run `act`.
    ///
    /// # Panics
    /// When the caller is among them.
    pub fn send_ipi(&self, targets: CpuMask, act: impl Fn(&Self) + 'static) -> PendingIpis {
        let missing = Rc::new(Cell::new(targets.count()));
        let act: Rc<Act<I>> = Rc::new(act);
        for target in targets.iter() {
            let request = Request { act: Rc::clone(&act), missing: Rc::clone(&missing) };
            self.harness.0.requests[target.index()].borrow_mut().push(request);
        }
        self.on(|sim| sim.send_ipi(&targets));
        PendingIpis(missing)
    }

    /// Runs `body` with interrupts closed.
    pub fn without_interrupts<R>(&self, body: impl FnOnce(&Self) -> R) -> R {
        self.on(|sim| sim.without_interrupts(|| body(self)))
    }

    /// Lets others go on because one of them must act first.
    pub fn relax(&self) {
        self.on(|sim| sim.relax());
    }
}
