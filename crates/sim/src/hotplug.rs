//! CPU hotplug.
//!
//! An offline CPU is out of reach: no broadcast invalidation arrives there, and an IPI to it is
//! lost. It keeps the contents of its TLBs, as a core whose arrays are retained; the embedder must
//! flush them when it brings the CPU online again. The program of an offline CPU goes on, as
//! firmware would, but must make no access.
//!
//! Neighbours: [`crate::machine`] has the mask of online CPUs. The embedder of the memory manager
//! decides which CPU goes offline, and when.
//!
//! Not modelled: the time that a transition takes.

use crate::core::Core;
use crate::machine::Sim;
use pagewright_arch::Isa;
use pagewright_types::CpuId;

impl<I: Isa> Sim<I> {
    /// Takes `cpu` offline.
    ///
    /// First, its stores drain, broadcasts in flight to it arrive, and its walks are cancelled.
    ///
    /// # Panics
    /// When `cpu` is the last online CPU, or is offline.
    pub fn unplug(&self, cpu: CpuId) {
        let mut online = self.0.online.get();
        assert!(online.contains(cpu), "CPU {cpu} is offline");
        online.remove(cpu);
        assert!(!online.is_empty(), "CPU {cpu} is the last online CPU");
        if self.0.exploring.get() {
            self.0.in_flight.stores.borrow_mut().drain_all(cpu);
            while self.deliver_broadcast(cpu, 0).is_some() {}
            let here = &self.core(cpu).in_flight;
            here.walks.borrow_mut().clear();
            here.ipi_pending.set(false);
        }
        self.0.online.set(online);
    }

    /// Brings `cpu` online, with the contents of its TLBs.
    ///
    /// # Panics
    /// When `cpu` is online, or the machine has no such CPU.
    pub fn plug(&self, cpu: CpuId) {
        let mut online = self.0.online.get();
        assert!(!online.contains(cpu) && cpu.index() < self.0.cores.len(), "CPU {cpu} is not offline");
        online.insert(cpu);
        self.0.online.set(online);
    }

    /// The online CPUs, which broadcasts reach.
    pub(crate) fn online_cores(&self) -> impl Iterator<Item = &Core> {
        let online = self.0.online.get();
        self.0
            .cores
            .iter()
            .enumerate()
            .filter(move |(index, _)| online.contains(CpuId::new(*index as u16)))
            .map(|(_, core)| core)
    }
}
