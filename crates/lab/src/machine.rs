//! The memory manager on a simulated machine.
//!
//! [`Lab`] owns both and binds the machine's shootdown IPI to the memory manager. It makes a
//! program's accesses as a processor does: it translates; if that faults, the memory manager serves
//! the fault, and the access is tried again.
//!
//! The memory manager runs inside [`Lab::on`], which is one atomic operation of the machine's fast
//! mode.

use pagewright_arch::{Effects, Invalidate, InvalidateScope, InvalidateTarget, Isa};
use pagewright_mm::swap::{SwapBacking, SwapOps};
use pagewright_mm::{FaultError, Mm, MmError, MmSettings, MmSetupError, Space};
use pagewright_sim::{ConfigError, Cost, MachineConfig, ProfileError, Sim};
use pagewright_sync::Arc;
use pagewright_tlb::frames::{MemoryLayout, NodeSpec};
use pagewright_types::{Access, Counter, CpuId, Errno, FrameRange, VirtAddr};
use std::cell::Cell;
use std::rc::Rc;

/// Why a lab was not set up.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The configuration of the machine is invalid.
    #[error("{0}")]
    Machine(#[from] ConfigError),
    /// A built-in profile is unknown or malformed.
    #[error("{0}")]
    Profile(#[from] ProfileError),
    /// The memory manager cannot start on this machine.
    #[error("the machine is too small: {0}")]
    Memory(MmSetupError),
    /// The machine has no memory for what is to run on it.
    #[error("the machine is too small: {0}")]
    Start(MmError),
}

/// A machine with a memory manager.
pub struct Lab<I: Isa> {
    sim: Sim<I>,
    mm: Rc<Mm<Sim<I>>>,
    /// Whether operations are charged the time of page-outs and swap-ins.
    swaps: Cell<bool>,
}

/// A swap device outside the machine's memory.
///
/// It keeps no contents, because captures have none.
struct NullSwap;

impl SwapOps for NullSwap {
    fn write_page(&self, _slot: u32, _get: &mut dyn FnMut(u64, &mut [u8])) -> Result<(), Errno> {
        Ok(())
    }

    fn read_page(&self, _slot: u32, _put: &mut dyn FnMut(u64, &[u8])) -> Result<(), Errno> {
        Ok(())
    }

    fn discard(&self, _slot: u32) {}
}

/// Faults of one access at most.
///
/// Each operation is atomic here, so no other CPU takes the page away between the fault and the
/// next try.
const MAX_FAULTS: u32 = 8;

impl<I: Isa> Lab<I> {
    /// Makes a machine and starts the memory manager on its CPU 0.
    ///
    /// # Errors
    /// [`LabError`], if the configuration is invalid or the machine is too small.
    pub fn new(config: MachineConfig, settings: MmSettings) -> Result<Self, LabError> {
        Self::over(Sim::new(config)?, settings)
    }

    /// Starts the memory manager on CPU 0 of a machine that has not run yet.
    ///
    /// # Errors
    /// [`LabError::Memory`], if the machine is too small.
    pub fn over(sim: Sim<I>, settings: MmSettings) -> Result<Self, LabError> {
        let ranges: Vec<[FrameRange; 1]> = sim.nodes().iter().map(|node| [node.frames]).collect();
        let nodes: Vec<NodeSpec<'_>> = sim
            .nodes()
            .iter()
            .zip(&ranges)
            .map(|(node, ranges)| NodeSpec { id: node.id, ranges, cpus: node.cpus })
            .collect();
        let distances = sim.config().distance_matrix();
        let layout = MemoryLayout { distances: Some(&distances), ..MemoryLayout::new(&nodes) };
        let start = || Mm::try_new(sim.clone(), &layout, settings);
        let mm = Rc::new(sim.run_on(CpuId::new(0), start).map_err(LabError::Memory)?);
        let handler = Rc::downgrade(&mm);
        sim.bind_ipi_handler(Rc::new(move |_| {
            if let Some(mm) = handler.upgrade() {
                mm.tlb().handle_ipi();
            }
        }));
        Ok(Self { sim, mm, swaps: Cell::new(false) })
    }

    /// Adds a swap device of `slots` slots (`swapon`).
    ///
    /// The device keeps no contents. From now on [`Lab::on`] charges [`Cost::SwapOut`] and
    /// [`Cost::SwapIn`] for each page that it writes and reads.
    ///
    /// # Errors
    /// [`LabError::Start`], if there is no memory for the slots.
    pub fn swap_on(&self, slots: u32) -> Result<(), LabError> {
        let device = || SwapBacking::Device(Box::new(NullSwap));
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
    /// Call its methods inside [`Lab::on`].
    pub fn mm(&self) -> &Mm<Sim<I>> {
        &self.mm
    }

    /// Evicts all translations from the TLB of a CPU.
    ///
    /// On a real machine other programs would; the memory of a test fits into the TLB.
    pub fn evict_translations(&self, cpu: CpuId) {
        let all = Invalidate { scope: InvalidateScope::Local, target: InvalidateTarget::AllTags };
        self.on(cpu, |mm| {
            mm.tlb().fx().invalidate(all);
            mm.tlb().fx().complete();
        });
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

    /// Makes `cpu` idle: it enters lazy TLB mode (`enter_lazy_tlb`).
    pub fn idle(&self, cpu: CpuId) {
        self.on(cpu, |mm| mm.tlb().enter_lazy());
    }

    /// Makes `times` accesses to one page on `cpu`, which runs `space`.
    ///
    /// # Errors
    /// [`FaultError`], if the program would get a signal.
    ///
    /// # Panics
    /// If the access still faults after `MAX_FAULTS` faults were served: the memory manager and
    /// the machine interpret an entry differently.
    #[inline]
    pub fn touch(
        &self,
        cpu: CpuId,
        space: &Space<Sim<I>>,
        va: VirtAddr,
        access: Access,
        times: u64,
    ) -> Result<(), FaultError> {
        let mut faults = 0;
        while self.sim.access(cpu, va, access, times).is_err() {
            assert!(
                faults < MAX_FAULTS,
                "{access} at {va} on CPU {cpu} still faults after {faults} faults were served"
            );
            self.serve_fault(cpu, space, va, access)?;
            faults += 1;
        }
        Ok(())
    }

    #[cold]
    fn serve_fault(&self, cpu: CpuId, space: &Space<Sim<I>>, va: VirtAddr, access: Access) -> Result<(), FaultError> {
        self.sim.charge(cpu, Cost::MinorFault, 1);
        self.on(cpu, |mm| mm.fault(space, va, access)).map(drop)
    }
}

impl<I: Isa> Drop for Lab<I> {
    fn drop(&mut self) {
        self.sim.unbind_ipi_handler();
    }
}
