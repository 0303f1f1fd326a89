//! Background reclaim beside the program (`kswapd`).
//!
//! Whoever leaves a node with nothing above its low marks wakes the node's thread: after the item
//! of the capture that did it, which is the next moment at which nobody is within the memory
//! manager. The thread takes a CPU that nobody has, best one of its node, or for want of one the
//! CPU of who woke it. It reclaims up to the high mark and sleeps; by its CPU's clock that takes a
//! while, and until that has passed it is not woken again. So whoever allocates faster than it
//! reclaims comes to the marks' end and reclaims for himself.
//!
//! Key type: [`Kswapd`], one node's thread. Neighbours: `engine` asks before each item.
//!
//! Not guaranteed: that memory is free no sooner than the clocks say. A round is one operation of
//! the machine, so what it frees, a batch or two, is there from its beginning on. The interrupt by
//! which an idle CPU learns of it is not modelled.

use super::engine::Engine;
use pagewright_arch::Isa;
use pagewright_mm::Space;
use pagewright_sim::{Cost, Picos, Sim};
use pagewright_sync::Arc;
use pagewright_types::{CpuId, CpuMask, NodeId};

/// The background thread of a node.
pub(super) struct Kswapd {
    node: NodeId,
    /// The node's CPUs.
    near: CpuMask,
    /// Where it ran last.
    last: Option<CpuId>,
    /// Until when it is at work.
    until: Picos,
}

impl Kswapd {
    pub(super) fn all<I: Isa>(sim: &Sim<I>) -> Vec<Self> {
        let of = |node: &pagewright_sim::MachineNode| Self {
            node: node.id,
            near: node.cpus,
            last: None,
            until: Picos::ZERO,
        };
        sim.nodes().iter().map(of).collect()
    }
}

impl<I: Isa> Engine<'_, I> {
    /// Lets the background threads reclaim that are needed and have nothing to do.
    ///
    /// `cpu` runs `space` and is between two items.
    #[inline]
    pub(super) fn wake_kswapd(&mut self, cpu: CpuId, space: &Arc<Space<Sim<I>>>) {
        for index in 0..self.kswapd.len() {
            if self.lab.mm().needs_balance(self.kswapd[index].node) {
                self.run_kswapd(index, cpu, space);
            }
        }
    }

    #[cold]
    fn run_kswapd(&mut self, index: usize, waker: CpuId, space: &Arc<Space<Sim<I>>>) {
        let (lab, sim) = (self.lab, self.lab.sim());
        let now = sim.clock(waker);
        let Kswapd { node, near, last, until } = self.kswapd[index];
        if now < until {
            return;
        }
        let idle = || self.sched.idle_cpus().filter(|cpu| sim.clock(*cpu) <= now);
        let best = idle().min_by_key(|cpu| (Some(*cpu) != last, !near.contains(*cpu), sim.clock(*cpu)));
        let cpu = best.unwrap_or(waker);
        sim.idle_until(cpu, now);
        sim.charge(cpu, Cost::ContextSwitch, 1);
        if cpu == waker {
            lab.on(cpu, |mm| mm.tlb().enter_lazy());
        }
        lab.on(cpu, |mm| mm.balance(node));
        if cpu == waker {
            sim.charge(cpu, Cost::ContextSwitch, 1);
            lab.run(cpu, space);
        }
        let kswapd = &mut self.kswapd[index];
        (kswapd.last, kswapd.until) = (Some(cpu), sim.clock(cpu));
    }
}
