//! Interrupts to other CPUs, and the wait for their answers.
//!
//! ```text
//!  sender   ──IpiSend, IpiSendEach──┬────────────── goes on ──────────────╌╌ relax ╌╌┐ clock joins the latest answer
//!  target                           └─IpiDelivery─▶ IpiHandler + its flushes ─IpiAck─┘
//! ```
//!
//! In fast mode the handler has run on every target when `send_ipi` returns. The target pays for it
//! from its own clock, as time stolen from what it was doing; the answer comes at a time counted
//! from the sender's clock, because a target takes an interrupt when it arrives, however far its
//! own turns have run ahead. What the sender does before it calls `relax` overlaps with the
//! targets' work.
//!
//! Whoever finds all answers there without ever calling `relax` has still to wait for them, at the
//! latest when its operation ends.
//!
//! While schedules are explored, an interrupt waits at its target, whose coroutine takes it at a
//! later stop of its own, when interrupts are open there; `relax` stops the sender until somebody
//! has acted.
//!
//! Not modelled: interrupts that queue up at one target. Nobody can be interrupted while it has
//! interrupts closed, because operations are atomic; it is checked.

use crate::core::Core;
use crate::cost::Cost;
use crate::event::MachineEvent;
use crate::explore::StopPoint;
use crate::machine::{Entered, Sim};
use pagewright_arch::Isa;
use pagewright_types::{CpuId, CpuMask, IsaKind};
use std::rc::Rc;

/// `relax` calls in a row with nothing to wait for after which it is a deadlock.
const IDLE_RELAXES: u32 = 1000;

impl<I: Isa> Sim<I> {
    /// Interrupts `targets` and has each run the handler.
    ///
    /// # Panics
    /// When the caller is among them, when the machine has no such CPU, or when no handler was
    /// bound.
    pub(crate) fn interrupt(&self, targets: &CpuMask) {
        self.point(StopPoint::SendIpi(*targets));
        let sender_cpu = self.0.current.get();
        let sender = self.here();
        assert!(!targets.contains(sender_cpu), "CPU {sender_cpu} interrupts itself");
        let count = u64::from(targets.count());
        if count == 0 {
            return;
        }
        let handler = self.0.handler.borrow().as_ref().map(Rc::clone);
        let Some(handler) = handler else { panic!("CPU {sender_cpu} interrupts {targets:?}, and no handler is bound") };
        let costs = &self.profile().costs;
        sender.events.add(MachineEvent::FlushWaits, 1);
        sender.wait_for_flush(sender.clock() + costs.of(Cost::IpiSend) + costs.of(Cost::IpiSendEach) * count);
        sender.events.add(MachineEvent::IpisSent, count);
        if self.0.exploring.get() {
            if I::KIND == IsaKind::X86_64 {
                self.drain_here();
            }
            self.interrupt_later(targets);
            return;
        }
        let arrival = sender.clock() + costs.of(Cost::IpiDelivery);
        for target in self.in_reach(targets) {
            let core = self.core(target);
            assert!(core.closed.get() == 0, "CPU {sender_cpu} interrupts CPU {target}, which has interrupts closed");
            let before = core.clock();
            core.events.add(MachineEvent::IpisReceived, 1);
            core.pay(costs, Cost::IpiHandler);
            self.handle_on(target, core, &*handler);
            let answer = arrival + core.clock().since(before) + costs.of(Cost::IpiAck);
            sender.answered_at.set(sender.answered_at.get().max(answer));
        }
        sender.idle_relaxes.set(0);
    }

    /// Those of `targets` that an interrupt reaches: one to a CPU that has gone is lost.
    ///
    /// # Panics
    /// When the machine has no such CPU.
    fn in_reach(&self, targets: &CpuMask) -> impl Iterator<Item = CpuId> {
        let (online, cpus) = (self.0.online.get(), self.0.cores.len());
        targets.iter().filter(move |target| {
            assert!(target.index() < cpus, "CPU {target} is interrupted and does not exist");
            online.contains(*target)
        })
    }

    /// Leaves an interrupt at each target, which takes it when its schedule says so.
    fn interrupt_later(&self, targets: &CpuMask) {
        for target in self.in_reach(targets) {
            let core = self.core(target);
            core.events.add(MachineEvent::IpisReceived, 1);
            core.in_flight.interrupted.set(true);
        }
    }

    /// The current CPU takes its interrupt.
    pub(crate) fn take_interrupt(&self) {
        let (cpu, core) = (self.0.current.get(), self.here());
        core.in_flight.interrupted.set(false);
        core.pay(&self.profile().costs, Cost::IpiHandler);
        let handler = self.0.handler.borrow().as_ref().map(Rc::clone);
        if let Some(handler) = handler {
            self.handle_on(cpu, core, &*handler);
        }
    }

    fn handle_on(&self, target: CpuId, core: &Core, handler: &dyn Fn(CpuId)) {
        let entered = Entered::new(&self.0, target);
        core.closed.set(core.closed.get() + 1);
        handler(target);
        core.closed.set(core.closed.get() - 1);
        drop(entered);
    }

    /// Waits for the answers to earlier interrupts.
    ///
    /// # Panics
    /// With interrupts closed, and when called over and over with nothing to wait for: in fast mode
    /// nobody else can act meanwhile.
    pub(crate) fn wait_for_answers(&self) {
        let core = self.here();
        let cpu = self.0.current.get();
        assert!(core.closed.get() == 0, "CPU {cpu} waits for others with interrupts closed");
        if self.0.exploring.get() {
            self.point(StopPoint::Relax);
            return;
        }
        let answered_at = core.answered_at.get();
        if core.clock() < answered_at {
            core.wait_for_flush(answered_at);
            core.idle_relaxes.set(0);
            return;
        }
        let idle = core.idle_relaxes.get() + 1;
        core.idle_relaxes.set(idle);
        assert!(idle < IDLE_RELAXES, "deadlock in fast mode: CPU {cpu} waits for others, and all have answered");
    }
}
