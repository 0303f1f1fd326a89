//! The machine as a whole, and the handle by which everyone else uses it.
//!
//! [`Sim`] is a counted reference to one machine. It is the memory manager's
//! [`pagewright_arch::Effects`] and [`pagewright_sync::Platform`], and the replayer's way to make
//! programs' accesses ([`Sim::access`]), to run the kernel on a CPU ([`Sim::run_on`]) and to read
//! clocks and counts.
//!
//! **Fast mode.** What runs inside `run_on` is atomic; CPUs take turns between such operations. So
//! every interrupt is answered before `send_ipi` returns, a broadcast invalidation has reached all CPUs
//! when it is issued, and a contended lock is a deadlock. Time is still counted as if they ran at
//! once: each CPU has a clock of its own, and only a wait joins two of them.
//!
//! **Explore mode** ([`crate::explore`]): every CPU is a coroutine, and the same operations are
//! interleaved at each effect.
//!
//! Not guaranteed: that a race would be seen in fast mode. It cannot find a missing barrier or a
//! late flush.

use crate::backend::{self, Running};
use crate::config::{ConfigError, MachineConfig};
use crate::core::Core;
use crate::cost::Cost;
use crate::event::MachineEvent;
use crate::explore::InFlight;
use crate::judge::{Binding, Roots};
use crate::profile::Profile;
use crate::ram::Ram;
use crate::time::Picos;
use crate::tlb::Tlbs;
use pagewright_arch::{Caps, Isa, ShootdownKind};
use pagewright_types::{CpuId, CpuMask, FrameRange, IsaKind, NodeId, Tag};
use rand_pcg::Pcg64;
use rand_pcg::rand_core::{Rng, SeedableRng};
use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::rc::Rc;
use std::sync::atomic::AtomicU64;

/// A node of the machine: where its memory is and which CPUs are near.
///
/// Without CPUs it is a slower tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineNode {
    /// Its number.
    pub id: NodeId,
    /// Its memory; starts at a multiple of 1 GiB, so that no block of the buddy allocator lies on
    /// two nodes.
    pub frames: FrameRange,
    /// Its CPUs.
    pub cpus: CpuMask,
}

/// Which allocations are refused once [`Sim::fail_allocation_after`] has counted down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocationFailure {
    /// The next one; then memory is back.
    One,
    /// All, until [`Sim::permit_allocations`].
    All,
}

/// What `permit_allocation` answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allocations {
    Permitted,
    FailAfter(u64, AllocationFailure),
}

/// What an embedder runs when a CPU is interrupted by another.
pub type IpiHandler = Rc<dyn Fn(CpuId)>;

pub(crate) struct Machine<I> {
    pub(crate) config: MachineConfig,
    pub(crate) ram: Ram,
    pub(crate) cores: Box<[Core]>,
    pub(crate) nodes: Box<[MachineNode]>,
    pub(crate) online: Cell<CpuMask>,
    pub(crate) caps: Caps,
    pub(crate) current: Cell<CpuId>,
    /// Operations and interrupt handlers under way, one inside the other.
    pub(crate) depth: Cell<u32>,
    pub(crate) handler: RefCell<Option<IpiHandler>>,
    pub(crate) allocations: Cell<Allocations>,
    pub(crate) refused: Cell<u64>,
    /// Whether a judge is bound: what hot paths ask.
    pub(crate) judged: Cell<bool>,
    /// Whether an access needs more than a look at the TLBs: judged or exploring.
    pub(crate) watched: Cell<bool>,
    pub(crate) judge: RefCell<Option<Binding>>,
    pub(crate) roots: RefCell<Roots>,
    evictions: RefCell<Option<Evictions>>,
    /// Whether schedules are explored, so that the CPU that runs is a coroutine.
    pub(crate) exploring: Cell<bool>,
    pub(crate) in_flight: InFlight,
    isa: PhantomData<fn() -> I>,
}

/// Entries that leave a TLB without a reason that a program could see.
struct Evictions {
    /// One walk in so many drops an entry of its CPU.
    one_in: NonZeroU32,
    random: Pcg64,
}

/// A handle to a simulated machine of instruction set `I`; cloning it is counting a reference.
pub struct Sim<I>(pub(crate) Rc<Machine<I>>);

impl<I> Clone for Sim<I> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<I: Isa> Sim<I> {
    /// A machine that was just switched on: memory is zero, TLBs are empty, clocks stand at zero,
    /// all CPUs are online.
    ///
    /// # Errors
    /// [`ConfigError`], naming what is impossible about `config`.
    pub fn new(config: MachineConfig) -> Result<Self, ConfigError> {
        let nodes = config.nodes(I::KIND)?;
        let end = nodes.iter().map(|node| node.frames.end()).max().unwrap_or_default();
        let bytes = end.base().raw();
        let ram = Ram::try_new(bytes).map_err(|_| ConfigError::HostMemory { bytes })?;
        let shootdown = match I::KIND {
            IsaKind::X86_64 => ShootdownKind::Ipi,
            IsaKind::Aarch64 => ShootdownKind::Broadcast,
        };
        let caps = Caps {
            shootdown,
            tagged: config.tagged,
            tags: if config.tagged { config.profile.tags } else { 1 },
            keeps_faulting_entry: I::KIND == IsaKind::Aarch64,
            range_invalidate: config.profile.range_invalidate,
            repeat_invalidate: config.repeat_invalidate && I::KIND == IsaKind::Aarch64,
            user_tag_bit: (config.isolated && config.tagged).then_some(match I::KIND {
                IsaKind::X86_64 => Tag::new(1 << 11),
                IsaKind::Aarch64 => Tag::new(1),
            }),
        };
        Ok(Self(Rc::new(Machine {
            ram,
            cores: (0..config.cpus).map(|_| Core::new(&config.profile)).collect(),
            nodes: nodes.into_boxed_slice(),
            online: Cell::new(CpuMask::first(usize::from(config.cpus))),
            caps,
            config,
            current: Cell::new(CpuId::new(0)),
            depth: Cell::new(0),
            handler: RefCell::new(None),
            allocations: Cell::new(Allocations::Permitted),
            refused: Cell::new(0),
            judged: Cell::new(false),
            watched: Cell::new(false),
            judge: RefCell::new(None),
            roots: RefCell::new(Roots::default()),
            evictions: RefCell::new(None),
            exploring: Cell::new(false),
            in_flight: InFlight::default(),
            isa: PhantomData,
        })))
    }

    /// What the machine was made of.
    pub fn config(&self) -> &MachineConfig {
        &self.0.config
    }

    /// Its profile.
    pub fn profile(&self) -> &Profile {
        &self.0.config.profile
    }

    /// Its nodes, node 0 first.
    pub fn nodes(&self) -> &[MachineNode] {
        &self.0.nodes
    }

    /// All physical memory as words, word *n* at physical address 8·*n*.
    ///
    /// Foreign code may store here, behind the kernel's back; holes between nodes are there too,
    /// and belong to nobody. The slice begins at a multiple of 4096 on the host.
    pub fn ram(&self) -> &[AtomicU64] {
        self.0.ram.words()
    }

    #[inline]
    pub(crate) fn core(&self, cpu: CpuId) -> &Core {
        &self.0.cores[cpu.index()]
    }

    /// The CPU that runs.
    #[inline]
    pub(crate) fn here(&self) -> &Core {
        self.core(self.0.current.get())
    }

    /// Modelled time on `cpu`.
    pub fn clock(&self, cpu: CpuId) -> Picos {
        self.core(cpu).clock()
    }

    /// The latest clock of the machine: how long everything took.
    pub fn elapsed(&self) -> Picos {
        self.0.cores.iter().map(Core::clock).max().unwrap_or_default()
    }

    /// Charges `cpu` with `times` × `cost`: software paths that the machine cannot see, such as a
    /// system call.
    pub fn charge(&self, cpu: CpuId, cost: Cost, times: u64) {
        self.core(cpu).spend(self.0.config.profile.cost(cost) * times);
    }

    /// Lets `cpu` idle until `moment`, if it is still to come there.
    pub fn idle_until(&self, cpu: CpuId, moment: Picos) {
        self.core(cpu).wait_until(moment);
    }

    /// What `cpu` counted.
    pub fn count(&self, cpu: CpuId, event: MachineEvent) -> u64 {
        self.core(cpu).events.get(event)
    }

    /// What all CPUs counted together.
    pub fn total(&self, event: MachineEvent) -> u64 {
        self.0.cores.iter().map(|core| core.events.get(event)).sum()
    }

    /// Binds what a CPU runs when [`pagewright_arch::Effects::send_ipi`] interrupts it.
    ///
    /// The machine keeps the handler, so one that keeps a handle to the machine keeps both alive
    /// until [`Sim::unbind_ipi_handler`].
    pub fn bind_ipi_handler(&self, handler: IpiHandler) {
        *self.0.handler.borrow_mut() = Some(handler);
    }

    /// Lets go of the handler.
    pub fn unbind_ipi_handler(&self) {
        *self.0.handler.borrow_mut() = None;
    }

    /// From now on one walk in `one_in` also drops some entry of its CPU's TLBs or walk caches, by
    /// the machine's seed; with `None`, entries leave only for others.
    pub fn evict_at_random(&self, one_in: Option<NonZeroU32>) {
        let evictions = |one_in| Evictions { one_in, random: Pcg64::seed_from_u64(self.0.config.seed) };
        *self.0.evictions.borrow_mut() = one_in.map(evictions);
    }

    /// A walk is about to be made with `tlbs`.
    pub(crate) fn evict_by_chance(&self, tlbs: &mut Tlbs) {
        let mut evictions = self.0.evictions.borrow_mut();
        let Some(Evictions { one_in, random }) = &mut *evictions else { return };
        let held = tlbs.len() as u64;
        if random.next_u64().is_multiple_of(u64::from(one_in.get())) && held > 0 {
            tlbs.evict((random.next_u64() % held) as usize);
        }
    }

    /// Lets `permitted` more allocations pass and refuses what `refusal` says.
    pub fn fail_allocation_after(&self, permitted: u64, refusal: AllocationFailure) {
        self.0.allocations.set(Allocations::FailAfter(permitted, refusal));
    }

    /// Refuses no allocation from now on.
    pub fn permit_allocations(&self) {
        self.0.allocations.set(Allocations::Permitted);
    }

    /// Allocations refused since the machine was switched on.
    pub fn refused_allocations(&self) -> u64 {
        self.0.refused.get()
    }

    pub(crate) fn set_judged(&self, judged: bool) {
        self.0.judged.set(judged);
        self.0.watched.set(judged || self.0.exploring.get());
    }

    pub(crate) fn set_exploring(&self, exploring: bool) {
        self.0.exploring.set(exploring);
        self.0.watched.set(exploring || self.0.judged.get());
    }

    /// Runs `operation` as the kernel on `cpu`: locks and effects inside act there.
    ///
    /// # Panics
    /// When there is no such CPU. In fast mode, when the outermost operation leaves broadcast
    /// invalidations without completing them; while schedules are explored that is for the judge to
    /// find, and a CPU that acts for another is what panics.
    pub fn run_on<R>(&self, cpu: CpuId, operation: impl FnOnce() -> R) -> R {
        let here = self.0.current.get();
        assert!(!self.0.exploring.get() || cpu == here, "CPU {here} acts for CPU {cpu} while schedules are explored");
        let entered = Entered::new(&self.0, cpu);
        let result = operation();
        if self.0.depth.get() == 1 && !self.0.exploring.get() {
            let outstanding = self.core(cpu).outstanding.get();
            assert!(outstanding == 0, "CPU {cpu} ended an operation with {outstanding} invalidations not completed");
            let core = self.core(cpu);
            core.wait_for_flush(core.answered_at.get());
        }
        drop(entered);
        result
    }
}

/// A CPU has the host thread until this is dropped; then the one that had it before goes on, each
/// with the ranks that it holds (INV-SIM-RANKS).
pub(crate) struct Entered<'a, I> {
    machine: &'a Machine<I>,
    cpu: CpuId,
    /// What the host thread ran before, perhaps another machine.
    before: Running,
    /// The CPU that this machine ran before.
    cpu_before: CpuId,
}

impl<'a, I> Entered<'a, I> {
    pub(crate) fn new(machine: &'a Machine<I>, cpu: CpuId) -> Self {
        let Some(core) = machine.cores.get(cpu.index()) else {
            panic!("no CPU {cpu} in a machine of {}", machine.cores.len());
        };
        let cpu_before = machine.current.replace(cpu);
        if machine.depth.get() > 0 {
            // What that CPU holds must be found again if it is entered from here, by an interrupt.
            machine.cores[cpu_before.index()].held.set(backend::running().held);
        }
        let before = backend::switch(Running { cpu, held: core.held.get() });
        machine.depth.set(machine.depth.get() + 1);
        Self { machine, cpu, before, cpu_before }
    }
}

impl<I> Drop for Entered<'_, I> {
    fn drop(&mut self) {
        let left = backend::switch(self.before);
        self.machine.cores[self.cpu.index()].held.set(left.held);
        self.machine.current.set(self.cpu_before);
        self.machine.depth.set(self.machine.depth.get() - 1);
    }
}
