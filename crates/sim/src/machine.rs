//! The machine as a whole, and the handle to it.
//!
//! [`Sim`] is a counted reference to one machine. To the memory manager it is
//! [`pagewright_arch::Effects`] and [`pagewright_sync::Platform`]. The replayer uses it to make the
//! accesses of programs ([`Sim::access`]), to run the kernel on a CPU ([`Sim::run_on`]) and to read
//! clocks and counts.
//!
//! **Fast mode.** An operation in `run_on` is atomic, and CPUs take turns between operations. So
//! every IPI is acknowledged before `send_ipi` returns, a broadcast invalidation reaches all CPUs
//! when it is issued, and a contended lock is a deadlock. Time is counted as if the CPUs ran in
//! parallel: each CPU has its own clock, and only a wait advances one clock to another.
//!
//! **Explore mode** ([`crate::explore`]). Every CPU is a coroutine, and operations are interleaved
//! at each effect.
//!
//! **INV-SIM-RANKS** The lock ranks that a CPU holds are its own: they are saved while another CPU
//! has the host thread, and restored.
//!
//! Not guaranteed: that fast mode finds a race, a missing barrier or a late flush.

use crate::backend::{self, Running};
use crate::config::{ConfigError, MachineConfig};
use crate::core::Core;
use crate::cost::Cost;
use crate::event::MachineEvent;
use crate::explore::InFlight;
use crate::judge::{BoundJudge, Roots};
use crate::lines::{self, LineCosts, Lines};
use crate::node_memory::{NodeAccesses, NodeMemory};
use crate::pointer_stores::WatchedTables;
use crate::profile::Profile;
use crate::ram::Ram;
use crate::time::Picos;
use crate::tlb::Tlbs;
use crate::walked::WalkedPlaces;
use pagewright_arch::{Caps, Isa, ShootdownKind};
use pagewright_types::{CpuId, CpuMask, FrameRange, IsaKind, NodeId, PAGE_SIZE, Pfn, Tag};
use rand_pcg::Pcg64;
use rand_pcg::rand_core::{Rng, SeedableRng};
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::rc::Rc;
use std::sync::atomic::AtomicU64;

/// A NUMA node of the machine: its memory and its CPUs.
///
/// A node without CPUs is a slower memory tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineNode {
    /// The number of the node.
    pub id: NodeId,
    /// Its memory, which starts at a multiple of 1 GiB.
    ///
    /// So no block of the buddy allocator lies on two nodes.
    pub frames: FrameRange,
    /// Its CPUs.
    pub cpus: CpuMask,
}

/// Which allocations fail once [`Sim::fail_allocation_after`] has counted down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AllocationFailure {
    /// The next one only.
    One,
    /// All, until [`Sim::permit_allocations`].
    All,
}

/// What `permit_allocation` returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Allocations {
    Permitted,
    FailAfter(u64, AllocationFailure),
}

/// The embedder's IPI handler; it is called with the CPU that takes the IPI.
pub type IpiHandler = Rc<dyn Fn(CpuId)>;

pub(crate) struct Machine<I> {
    pub(crate) config: MachineConfig,
    pub(crate) ram: Ram,
    pub(crate) cores: Rc<[Core]>,
    /// `None` if the machine has one CPU, which never pays for a line.
    lines: Option<Rc<Lines>>,
    pub(crate) nodes: Box<[MachineNode]>,
    /// `None` if the machine has one node, whose memory costs nothing beyond [`Cost::Access`].
    pub(crate) node_memory: Option<NodeMemory>,
    pub(crate) online: Cell<CpuMask>,
    pub(crate) caps: Caps,
    pub(crate) current: Cell<CpuId>,
    /// The depth of nested operations and interrupt handlers.
    pub(crate) depth: Cell<u32>,
    pub(crate) handler: RefCell<Option<IpiHandler>>,
    pub(crate) allocations: Cell<Allocations>,
    pub(crate) refused: Cell<u64>,
    /// Whether a judge is bound; hot paths check this cell.
    pub(crate) judged: Cell<bool>,
    /// Frames that the kernel has filled since they were last made visible to instruction fetches.
    ///
    /// Kept on arm64 while a judge is bound.
    pub(crate) unfetchable: RefCell<HashSet<Pfn>>,
    /// Whether accesses take the slow path: a judge is bound, or schedules are explored.
    pub(crate) watched: Cell<bool>,
    pub(crate) judge: RefCell<Option<BoundJudge>>,
    pub(crate) roots: RefCell<Roots>,
    pub(crate) walked: RefCell<WalkedPlaces>,
    pub(crate) pointer_stores: WatchedTables,
    evictions: RefCell<Option<Evictions>>,
    /// Whether schedules are explored, so that CPUs are coroutines.
    pub(crate) exploring: Cell<bool>,
    pub(crate) in_flight: InFlight,
    isa: PhantomData<fn() -> I>,
}

/// Random evictions from TLBs and walk caches.
struct Evictions {
    /// One walk in this many evicts an entry of its CPU.
    one_in: NonZeroU32,
    random: Pcg64,
}

/// A handle to a simulated machine of instruction set `I`; clones refer to the same machine.
pub struct Sim<I>(pub(crate) Rc<Machine<I>>);

impl<I> Clone for Sim<I> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<I: Isa> Sim<I> {
    /// Switches a machine on.
    ///
    /// Memory is zero, TLBs are empty, clocks are at zero, and all CPUs are online.
    ///
    /// # Errors
    /// [`ConfigError`], which names what is impossible about `config`.
    pub fn new(config: MachineConfig) -> Result<Self, ConfigError> {
        let nodes = config.nodes(I::KIND)?;
        let end = nodes.iter().map(|node| node.frames.end()).max().unwrap_or_default();
        let bytes = end.base().raw();
        // Where stores trap, the host maps a memory file over the block.
        let ram = if config.trapping_build.is_some() { Ram::try_mapped(bytes) } else { Ram::try_new(bytes) };
        let ram = ram.map_err(|_| ConfigError::HostMemory { bytes })?;
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
        let cores: Rc<[Core]> = (0..config.cpus).map(|_| Core::new(&config)).collect();
        let frames = (bytes / PAGE_SIZE) as usize;
        let lines = (config.cpus > 1).then(|| Rc::new(Lines::new(Rc::clone(&cores), &config.profile, frames)));
        let profile = &config.profile;
        let distances = config.distance_matrix();
        let node_memory = NodeMemory::new(&nodes, config.cpus, &distances, &profile.costs, |cost| profile.band(cost));
        Ok(Self(Rc::new(Machine {
            ram,
            cores,
            lines,
            node_memory,
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
            unfetchable: RefCell::default(),
            watched: Cell::new(false),
            judge: RefCell::new(None),
            roots: RefCell::new(Roots::default()),
            walked: RefCell::default(),
            pointer_stores: WatchedTables::default(),
            evictions: RefCell::new(None),
            exploring: Cell::new(false),
            in_flight: InFlight::default(),
            isa: PhantomData,
        })))
    }

    /// The configuration of the machine.
    pub fn config(&self) -> &MachineConfig {
        &self.0.config
    }

    /// The profile of the machine.
    pub fn profile(&self) -> &Profile {
        &self.0.config.profile
    }

    /// The nodes of the machine, node 0 first.
    pub fn nodes(&self) -> &[MachineNode] {
        &self.0.nodes
    }

    /// All physical memory as 64-bit words: word *n* is at physical address 8·*n*.
    ///
    /// Code outside of the memory manager may store here directly. The slice includes the holes
    /// between nodes, and begins at a multiple of 4096 on the host.
    pub fn ram(&self) -> &[AtomicU64] {
        self.0.ram.words()
    }

    #[inline]
    pub(crate) fn core(&self, cpu: CpuId) -> &Core {
        &self.0.cores[cpu.index()]
    }

    /// The running CPU.
    #[inline]
    pub(crate) fn here(&self) -> &Core {
        self.core(self.0.current.get())
    }

    /// The clock of `cpu`, in modelled time.
    pub fn clock(&self, cpu: CpuId) -> Picos {
        self.core(cpu).clock()
    }

    /// The latest clock of all CPUs: the modelled time since the machine was switched on.
    pub fn elapsed(&self) -> Picos {
        self.0.cores.iter().map(Core::clock).max().unwrap_or_default()
    }

    /// Adds `times` × `cost` to the clock of `cpu`.
    ///
    /// It is for software paths that the machine cannot see, such as a system call.
    pub fn charge(&self, cpu: CpuId, cost: Cost, times: u64) {
        self.core(cpu).spend(self.0.config.profile.cost(cost) * times);
    }

    /// Advances the clock of `cpu` to `moment`, unless it is past it.
    pub fn idle_until(&self, cpu: CpuId, moment: Picos) {
        self.core(cpu).wait_until(moment);
    }

    /// The count of `event` on `cpu`.
    pub fn count(&self, cpu: CpuId, event: MachineEvent) -> u64 {
        self.core(cpu).events.get(event)
    }

    /// The count of `event` on all CPUs together.
    pub fn total(&self, event: MachineEvent) -> u64 {
        self.0.cores.iter().map(|core| core.events.get(event)).sum()
    }

    /// The loads and stores of programs, for each node of CPUs and each node of memory.
    ///
    /// A machine with one node has none. No cache is modelled: each of them reaches memory.
    pub fn node_accesses(&self) -> Vec<NodeAccesses> {
        self.0.node_memory.as_ref().map(|memory| memory.accesses().collect()).unwrap_or_default()
    }

    /// The costs of shared cache lines since the machine was switched on, by name.
    ///
    /// A machine with one CPU has none.
    pub fn line_costs(&self) -> Vec<LineCosts> {
        self.0.lines.as_ref().map(|lines| lines.costs()).unwrap_or_default()
    }

    /// Binds the handler that a CPU runs when it takes an IPI.
    ///
    /// [`pagewright_arch::Effects::send_ipi`] sends IPIs. The machine owns the handler. A handler
    /// that owns a handle to the machine is a cycle, which [`Sim::unbind_ipi_handler`] breaks.
    pub fn bind_ipi_handler(&self, handler: IpiHandler) {
        *self.0.handler.borrow_mut() = Some(handler);
    }

    /// Drops the IPI handler.
    pub fn unbind_ipi_handler(&self) {
        *self.0.handler.borrow_mut() = None;
    }

    /// Makes one walk in `one_in` evict a random entry of its CPU's TLBs or walk caches.
    ///
    /// The seed of the machine determines which. With `None`, entries are evicted only by others
    /// that replace them.
    pub fn evict_at_random(&self, one_in: Option<NonZeroU32>) {
        let evictions = |one_in| Evictions { one_in, random: Pcg64::seed_from_u64(self.0.config.seed) };
        *self.0.evictions.borrow_mut() = one_in.map(evictions);
    }

    /// Before a walk, evicts an entry of `tlbs` at the rate of [`Sim::evict_at_random`].
    pub(crate) fn evict_at_random_rate(&self, tlbs: &mut Tlbs) {
        let mut evictions = self.0.evictions.borrow_mut();
        let Some(Evictions { one_in, random }) = &mut *evictions else { return };
        let held = tlbs.len() as u64;
        if random.next_u64().is_multiple_of(u64::from(one_in.get())) && held > 0 {
            tlbs.evict((random.next_u64() % held) as usize);
        }
    }

    /// Permits `permitted` more allocations, and then fails those that `failure` names.
    pub fn fail_allocation_after(&self, permitted: u64, failure: AllocationFailure) {
        self.0.allocations.set(Allocations::FailAfter(permitted, failure));
    }

    /// Permits all allocations from now on.
    pub fn permit_allocations(&self) {
        self.0.allocations.set(Allocations::Permitted);
    }

    /// The number of allocations that failed since the machine was switched on.
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

    /// Runs `operation` as the kernel on `cpu`: its locks and effects act on that CPU.
    ///
    /// # Panics
    /// When the machine has no such CPU. In fast mode, when the outermost operation ends with
    /// broadcast invalidations that are not complete, but for one of each right that was
    /// [deferred](pagewright_types::judge::Fact::RightDeferred); in explore mode the judge finds
    /// those. In explore mode, when `cpu` is not the running CPU.
    pub fn run_on<R>(&self, cpu: CpuId, operation: impl FnOnce() -> R) -> R {
        let here = self.0.current.get();
        assert!(!self.0.exploring.get() || cpu == here, "CPU {here} acts as CPU {cpu} while schedules are explored");
        let entered = Entered::new(&self.0, cpu);
        let result = operation();
        if self.0.depth.get() == 1 && !self.0.exploring.get() {
            let core = self.core(cpu);
            let (incomplete, deferred) = (core.incomplete_tlbis.get(), core.deferred_tlbis.get());
            assert!(
                incomplete <= deferred,
                "CPU {cpu} ended an operation with {incomplete} incomplete invalidations, of which {deferred} were deferred"
            );
            core.wait_for_flush(core.acked_at.get());
        }
        drop(entered);
        result
    }
}

/// Runs a CPU on the host thread until it is dropped; then the previous CPU goes on.
///
/// Each CPU keeps the lock ranks that it holds (INV-SIM-RANKS).
pub(crate) struct Entered<'a, I> {
    machine: &'a Machine<I>,
    cpu: CpuId,
    /// What the host thread ran before, which may be another machine.
    before: Running,
    /// The lines that the host thread priced before.
    lines_before: Option<Rc<Lines>>,
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
            // An IPI may enter that CPU again from here, and must find the ranks that it holds.
            machine.cores[cpu_before.index()].held.set(backend::running().held);
        }
        let before = backend::switch(Running { cpu, held: core.held.get() });
        machine.depth.set(machine.depth.get() + 1);
        let priced = if machine.exploring.get() { None } else { machine.lines.clone() };
        Self { machine, cpu, before, lines_before: lines::switch(priced), cpu_before }
    }
}

impl<I> Drop for Entered<'_, I> {
    fn drop(&mut self) {
        lines::switch(self.lines_before.take());
        let left = backend::switch(self.before);
        self.machine.cores[self.cpu.index()].held.set(left.held);
        self.machine.current.set(self.cpu_before);
        self.machine.depth.set(self.machine.depth.get() - 1);
    }
}
