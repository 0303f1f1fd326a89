//! CPUs that go offline and come back (Linux's CPU hotplug; `idle_task_exit`,
//! `initialize_tlbstate_and_flush`).
//!
//! INV-TLB-HOTPLUG: nobody waits for a CPU that has gone, and what was flushed meanwhile it must
//! not use when it comes back. So it leaves its space, waits for what it has issued and answers who
//! has asked ([`Tlb::cpu_dying`]); before it runs anything again it forgets everything, and only
//! that lets its clock pass ([`Tlb::cpu_starting`]).
//!
//! On x86 a sender may have chosen it just before; INV-MAIL-ABSENT says how the two find out. What
//! it is asked then it answers and does not do: it has left its space, and what it holds it forgets
//! before it runs another.
//!
//! Not guaranteed: anything about its lists of free frames, which stay its own.

use crate::engine::Tlb;
use pagewright_arch::{InvalidateTarget, ShootdownKind};
use pagewright_plant::plant;
use pagewright_sync::Platform;

impl<P: Platform> Tlb<P> {
    /// Takes the calling CPU offline (Linux's `idle_task_exit`).
    ///
    /// It runs no space until [`Tlb::cpu_starting`]. Before or after, the embedder removes it from
    /// [`pagewright_arch::Effects::online`].
    pub fn cpu_dying(&self) {
        self.leave_space();
        match self.fx().caps().shootdown {
            ShootdownKind::Ipi => self.mailbox.leave(self.fx().cpu()),
            ShootdownKind::Broadcast => {
                // Nobody else's barrier can end what this CPU has issued; whatever was put off here
                // is older than this epoch.
                self.ledger().begin_epoch();
                self.complete();
            }
        }
    }

    /// Brings the calling CPU online: flushes everything (`initialize_tlbstate_and_flush`).
    ///
    /// Its TLB may hold anything. Call it before the CPU runs a space, and before the embedder adds
    /// it to [`pagewright_arch::Effects::online`].
    pub fn cpu_starting(&self) {
        let me = self.fx().cpu();
        let sampled = self.ledger().sample();
        plant!(HotplugUnflushed; (), self.invalidate_local(InvalidateTarget::AllTags));
        self.fx().complete();
        self.ledger().advance(me, sampled);
        self.fx().without_interrupts(|| self.mailbox.enter(me));
    }
}
