//! The memory manager on a simulated machine: where the subject and the machine meet.
//!
//! [`Lab`] owns both, binds the shootdown interrupt of one to the other, and makes a program's
//! accesses the way a processor does: translate, and on a fault let the memory manager serve it and
//! try again.
//!
//! Everything that the memory manager does on a CPU runs inside [`Lab::on`], which is one atomic
//! operation of the machine's fast mode.

use pagewright_arch::Isa;
use pagewright_mm::swap::{SwapBacking, SwapOps};
use pagewright_mm::{FaultError, Mm, MmError, MmSettings, MmSetupError, Space};
use pagewright_sim::{ConfigError, Cost, MachineConfig, ProfileError, Sim};
use pagewright_sync::Arc;
use pagewright_tlb::frames::{MemoryLayout, NodeSpec};
use pagewright_types::{Access, Counter, CpuId, Errno, FrameRange, VirtAddr};
use std::cell::Cell;
use std::rc::Rc;

/// Why a lab could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The machine is impossible.
    #[error("{0}")]
    Machine(#[from] ConfigError),
    /// The profile that is compiled in is broken.
    #[error("{0}")]
    Profile(#[from] ProfileError),
    /// The memory manager could not start on it.
    #[error("the machine is too small: {0}")]
    Memory(MmSetupError),
    /// There is no room for what is to run on it.
    #[error("the machine is too small: {0}")]
    Start(MmError),
}

/// A machine with a memory manager.
pub struct Lab<I: Isa> {
    sim: Sim<I>,
    mm: Rc<Mm<Sim<I>>>,
    /// Whether pages may go to swap and come back, which takes time.
    swaps: Cell<bool>,
}

/// A device for swap outside the machine's memory.
///
/// It keeps no contents, as captures have none.
struct Contentless;

impl SwapOps for Contentless {
    fn write_page(&self, _slot: u32, _get: &mut dyn FnMut(u64, &mut [u8])) -> Result<(), Errno> {
        Ok(())
    }

    fn read_page(&self, _slot: u32, _put: &mut dyn FnMut(u64, &[u8])) -> Result<(), Errno> {
        Ok(())
    }

    fn discard(&self, _slot: u32) {}
}

/// How often one access can fault: each time somebody else may take the page away again, but in an
/// operation that is atomic nobody does.
const TRIES: u32 = 8;

impl<I: Isa> Lab<I> {
    /// Switches a machine on and starts the memory manager on its CPU 0.
    ///
    /// # Errors
    /// [`LabError`].
    pub fn new(config: MachineConfig, settings: MmSettings) -> Result<Self, LabError> {
        Self::over(Sim::new(config)?, settings)
    }

    /// Starts the memory manager on CPU 0 of a machine that has not run yet.
    ///
    /// # Errors
    /// [`LabError::Memory`].
    pub fn over(sim: Sim<I>, settings: MmSettings) -> Result<Self, LabError> {
        let ranges: Vec<[FrameRange; 1]> = sim.nodes().iter().map(|node| [node.frames]).collect();
        let nodes: Vec<NodeSpec<'_>> = sim
            .nodes()
            .iter()
            .zip(&ranges)
            .map(|(node, ranges)| NodeSpec { id: node.id, ranges, cpus: node.cpus })
            .collect();
        let start = || Mm::try_new(sim.clone(), &MemoryLayout::new(&nodes), settings);
        let mm = Rc::new(sim.run_on(CpuId::new(0), start).map_err(LabError::Memory)?);
        let handler = Rc::downgrade(&mm);
        sim.bind_ipi_handler(Rc::new(move |_| {
            if let Some(mm) = handler.upgrade() {
                mm.tlb().handle_ipi();
            }
        }));
        Ok(Self { sim, mm, swaps: Cell::new(false) })
    }

    /// Swaps to a device of so many slots from now on.
    ///
    /// It keeps no contents; what a page takes on its way there and back is [`Cost::SwapOut`] and
    /// [`Cost::SwapIn`].
    ///
    /// # Errors
    /// [`LabError::Start`].
    pub fn swap_on(&self, slots: u32) -> Result<(), LabError> {
        let device = || SwapBacking::Device(Box::new(Contentless));
        self.on(CpuId::new(0), |mm| mm.swap_on(device(), slots)).map_err(LabError::Start)?;
        self.swaps.set(true);
        Ok(())
    }

    /// The machine.
    pub fn sim(&self) -> &Sim<I> {
        &self.sim
    }

    /// The memory manager.
    ///
    /// Use it inside [`Lab::on`].
    pub fn mm(&self) -> &Mm<Sim<I>> {
        &self.mm
    }

    /// Runs one operation of the memory manager on a CPU.
    pub fn on<T>(&self, cpu: CpuId, operation: impl FnOnce(&Mm<Sim<I>>) -> T) -> T {
        if !self.swaps.get() {
            return self.sim.run_on(cpu, || operation(&self.mm));
        }
        let swapped = || [Counter::PswpOut, Counter::PswpIn].map(|counter| self.mm.counter(counter));
        let before = swapped();
        let result = self.sim.run_on(cpu, || operation(&self.mm));
        let after = swapped();
        for (index, cost) in [Cost::SwapOut, Cost::SwapIn].into_iter().enumerate() {
            self.sim.charge(cpu, cost, after[index] - before[index]);
        }
        result
    }

    /// Makes `cpu` run `space`.
    pub fn run(&self, cpu: CpuId, space: &Arc<Space<Sim<I>>>) {
        self.on(cpu, |mm| mm.tlb().switch_to(space.table().context()));
    }

    /// Nothing is left to do on `cpu` for a while: it goes lazy.
    pub fn idle(&self, cpu: CpuId) {
        self.on(cpu, |mm| mm.tlb().enter_lazy());
    }

    /// Makes `times` accesses to one page on `cpu`, which runs `space`.
    ///
    /// # Errors
    /// [`FaultError`] when the program would get a signal.
    ///
    /// # Panics
    /// When an access keeps faulting although every fault was served: the memory manager and the
    /// machine disagree about an entry.
    #[inline]
    pub fn touch(
        &self,
        cpu: CpuId,
        space: &Space<Sim<I>>,
        va: VirtAddr,
        access: Access,
        times: u64,
    ) -> Result<(), FaultError> {
        match self.sim.access(cpu, va, access, times) {
            Ok(_) => Ok(()),
            Err(_) => self.fault(cpu, space, va, access, times),
        }
    }

    /// The first try faulted: serve it and try again.
    #[cold]
    fn fault(
        &self,
        cpu: CpuId,
        space: &Space<Sim<I>>,
        va: VirtAddr,
        access: Access,
        times: u64,
    ) -> Result<(), FaultError> {
        for _ in 0..TRIES {
            self.sim.charge(cpu, Cost::MinorFault, 1);
            self.on(cpu, |mm| mm.fault(space, va, access))?;
            if self.sim.access(cpu, va, access, times).is_ok() {
                return Ok(());
            }
        }
        panic!("{access} at {va} on CPU {cpu} still faults after {TRIES} faults were served");
    }
}

impl<I: Isa> Drop for Lab<I> {
    fn drop(&mut self) {
        self.sim.unbind_ipi_handler();
    }
}
