//! CPUs that go and come back (Linux's CPU hotplug).
//!
//! A CPU that has gone is out of reach: no broadcast invalidation arrives there, and an interrupt
//! sent to it is lost. What its TLBs hold stays, as in a core whose arrays are retained; whoever
//! brings it back must know that. Its program goes on, as firmware would, but makes no access.
//!
//! Neighbours: [`crate::machine`] has the mask; who goes and when is the memory manager's
//! embedder's to say.
//!
//! Not modelled: what it costs to go and come back.

use crate::core::Core;
use crate::machine::Sim;
use pagewright_arch::Isa;
use pagewright_types::CpuId;

impl<I: Isa> Sim<I> {
    /// Takes `cpu` out of the machine.
    ///
    /// What was on its way to it arrives before, its stores are seen, and its walks end.
    ///
    /// # Panics
    /// When it is the last one, or had gone before.
    pub fn unplug(&self, cpu: CpuId) {
        let mut online = self.0.online.get();
        assert!(online.contains(cpu), "CPU {cpu} has gone before");
        online.remove(cpu);
        assert!(!online.is_empty(), "CPU {cpu} is the last one");
        if self.0.exploring.get() {
            self.0.in_flight.stores.borrow_mut().drain_all(cpu);
            while self.deliver(cpu, 0).is_some() {}
            let here = &self.core(cpu).in_flight;
            here.walks.borrow_mut().clear();
            here.interrupted.set(false);
        }
        self.0.online.set(online);
    }

    /// Brings `cpu` back, with its TLBs as they were.
    ///
    /// # Panics
    /// When it is there.
    pub fn plug(&self, cpu: CpuId) {
        let mut online = self.0.online.get();
        assert!(!online.contains(cpu) && cpu.index() < self.0.cores.len(), "CPU {cpu} has not gone");
        online.insert(cpu);
        self.0.online.set(online);
    }

    /// The CPUs that broadcasts reach.
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
