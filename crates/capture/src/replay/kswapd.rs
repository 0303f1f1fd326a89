//! Background reclaim beside the program (`kswapd`).
//!
//! Each node has a thread. The engine checks the nodes before each item of the capture, when no CPU
//! is inside the memory manager. If a node needs reclaim (`Mm::needs_balance`), its thread runs: on
//! its previous CPU if that is idle, else on an idle CPU of its node, else on any idle CPU, else on
//! the CPU whose item woke it. It reclaims up to the high watermark. It is not woken again before
//! the clock of its CPU says that it is done. So a program that allocates faster than the thread
//! reclaims reaches the min watermark and reclaims directly.
//!
//! Not guaranteed: that memory is freed no earlier than the clocks say. A round of reclaim is one
//! operation of the machine, so the pages that it frees, a batch or two, are free from its start.
//! The interrupt that wakes an idle CPU is not modelled.

use super::engine::Engine;
use pagewright_arch::Isa;
use pagewright_mm::Space;
use pagewright_sim::{Cost, Picos, Sim};
use pagewright_sync::Arc;
use pagewright_types::{CpuId, CpuMask, NodeId};

/// The background reclaim thread of a node.
pub(super) struct Kswapd {
    node: NodeId,
    /// The node's CPUs.
    near: CpuMask,
    /// The CPU on which it last ran.
    last: Option<CpuId>,
    /// The time until which it is busy.
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
    /// Runs the background reclaim of each node that needs it.
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
        let mark = self.mark_settles(cpu);
        lab.on(cpu, |mm| mm.balance(node));
        self.note_settle(cpu, mark);
        self.over_time.note(lab, cpu);
        if cpu == waker {
            sim.charge(cpu, Cost::ContextSwitch, 1);
            lab.run(cpu, space);
        }
        let kswapd = &mut self.kswapd[index];
        (kswapd.last, kswapd.until) = (Some(cpu), sim.clock(cpu));
    }
}
