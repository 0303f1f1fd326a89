//! IPIs, and the wait for their acknowledgements.
//!
//! ```text
//!  sender  ──IpiSend, IpiSendEach─┬────────── goes on ────────────╌╌ relax ╌╌┐ clock advances to the
//!  target                         └─IpiDelivery─▶ IpiHandler, flushes ─IpiAck─┘ latest acknowledgement
//! ```
//!
//! In fast mode the handler has run on every target when `send_ipi` returns. The clock of the
//! target advances by the handler, as time stolen from its program. The time of the acknowledgement
//! counts from the clock of the sender, because a target takes an IPI when it arrives, however far
//! its own turn has run ahead. The work of the sender before it calls `relax` overlaps with that of
//! the targets.
//!
//! A sender that never calls `relax` waits for the acknowledgements at the end of its operation.
//!
//! In explore mode an IPI is pending at its target, whose coroutine takes it at a later stop with
//! interrupts enabled. `relax` stops the sender until another CPU has acted.
//!
//! Not modelled: IPIs that queue at one target. In fast mode an IPI to a CPU with interrupts
//! disabled panics: operations are atomic, so the target could never take it.

use crate::core::Core;
use crate::cost::Cost;
use crate::event::MachineEvent;
use crate::explore::StopPoint;
use crate::machine::{Entered, Sim};
use pagewright_arch::Isa;
use pagewright_types::{CpuId, CpuMask, IsaKind};
use std::rc::Rc;

/// The `relax` calls in a row with nothing to wait for that count as a deadlock.
const IDLE_RELAXES: u32 = 1000;

impl<I: Isa> Sim<I> {
    /// Lets the current CPU take interrupts, or not, as `STI` and `CLI` do.
    ///
    /// It does nothing in an interrupt handler, or where the CPU is as asked.
    pub fn set_interrupts(&self, enabled: bool) {
        let core = self.here();
        match (enabled, core.interrupts_off.get()) {
            (true, 1) => core.restore_interrupts(),
            (false, 0) => core.disable_interrupts(),
            (true | false, _) => {}
        }
    }

    /// Sends an IPI to `targets`, which run the bound handler.
    ///
    /// # Panics
    /// When the current CPU is among them, when the machine has no such CPU, or when no handler is
    /// bound.
    pub(crate) fn send_ipis(&self, targets: &CpuMask) {
        self.stop_before(StopPoint::SendIpi(*targets));
        let sender_cpu = self.0.current.get();
        let sender = self.here();
        assert!(!targets.contains(sender_cpu), "CPU {sender_cpu} sends an IPI to itself");
        let count = u64::from(targets.count());
        if count == 0 {
            return;
        }
        let handler = self.0.handler.borrow().as_ref().map(Rc::clone);
        let Some(handler) = handler else {
            panic!("CPU {sender_cpu} sends an IPI to {targets:?}, and no handler is bound")
        };
        let costs = &self.profile().costs;
        sender.events.add(MachineEvent::FlushWaits, 1);
        sender.wait_for_flush(sender.clock() + costs.of(Cost::IpiSend) + costs.of(Cost::IpiSendEach) * count);
        sender.events.add(MachineEvent::IpisSent, count);
        if self.0.exploring.get() {
            if I::KIND == IsaKind::X86_64 {
                self.drain_local_stores();
            }
            self.leave_pending(targets);
            return;
        }
        let arrival = sender.clock() + costs.of(Cost::IpiDelivery);
        for target in self.in_reach(targets) {
            let core = self.core(target);
            assert!(
                core.interrupts_off.get() == 0,
                "CPU {sender_cpu} sends an IPI to CPU {target}, which has interrupts disabled"
            );
            let before = core.clock();
            core.events.add(MachineEvent::IpisReceived, 1);
            core.pay(costs, Cost::IpiHandler);
            self.handle_on(target, core, &*handler);
            let answer = arrival + core.clock().since(before) + costs.of(Cost::IpiAck);
            sender.acked_at.set(sender.acked_at.get().max(answer));
        }
        sender.idle_relaxes.set(0);
    }

    /// The online CPUs among `targets`: an IPI to an offline CPU is lost.
    ///
    /// # Panics
    /// When the machine has no such CPU.
    fn in_reach(&self, targets: &CpuMask) -> impl Iterator<Item = CpuId> {
        let (online, cpus) = (self.0.online.get(), self.0.cores.len());
        targets.iter().filter(move |target| {
            assert!(target.index() < cpus, "the machine has no CPU {target} to send an IPI to");
            online.contains(*target)
        })
    }

    /// Makes an IPI pending at each target; the schedule decides when the target takes it.
    fn leave_pending(&self, targets: &CpuMask) {
        for target in self.in_reach(targets) {
            let core = self.core(target);
            core.events.add(MachineEvent::IpisReceived, 1);
            core.in_flight.ipi_pending.set(true);
        }
    }

    /// Takes the pending IPI of the current CPU.
    pub(crate) fn take_interrupt(&self) {
        let (cpu, core) = (self.0.current.get(), self.here());
        core.in_flight.ipi_pending.set(false);
        core.pay(&self.profile().costs, Cost::IpiHandler);
        let handler = self.0.handler.borrow().as_ref().map(Rc::clone);
        if let Some(handler) = handler {
            self.handle_on(cpu, core, &*handler);
        }
    }

    fn handle_on(&self, target: CpuId, core: &Core, handler: &dyn Fn(CpuId)) {
        let entered = Entered::new(&self.0, target);
        core.disable_interrupts();
        handler(target);
        core.restore_interrupts();
        drop(entered);
    }

    /// Waits for the acknowledgements of earlier IPIs.
    ///
    /// # Panics
    /// When interrupts are disabled. In fast mode, after many calls in a row with nothing to wait
    /// for, because no other CPU can act meanwhile.
    pub(crate) fn wait_for_acks(&self) {
        let core = self.here();
        let cpu = self.0.current.get();
        assert!(core.interrupts_off.get() == 0, "CPU {cpu} waits for other CPUs with interrupts disabled");
        if self.0.exploring.get() {
            self.stop_before(StopPoint::Relax);
            return;
        }
        let acked_at = core.acked_at.get();
        if core.clock() < acked_at {
            core.wait_for_flush(acked_at);
            core.idle_relaxes.set(0);
            return;
        }
        let idle = core.idle_relaxes.get() + 1;
        core.idle_relaxes.set(idle);
        assert!(
            idle < IDLE_RELAXES,
            "deadlock in fast mode: CPU {cpu} waits for other CPUs, and all have acknowledged"
        );
    }
}
