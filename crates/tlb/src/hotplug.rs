//! CPUs that go offline and come back (Linux's CPU hotplug).
//!
//! Linux: `idle_task_exit`, `initialize_tlbstate_and_flush`.
//!
//! **INV-TLB-HOTPLUG** A CPU that goes offline leaves its space, completes what it has issued, and
//! acknowledges every request; no CPU waits for it afterwards. A CPU that comes online flushes
//! everything before it runs a space. Otherwise it would keep translations whose flush completed,
//! or was deferred, while it was offline.
//!
//! [`Tlb::cpu_dying`] does the first, [`Tlb::cpu_starting`] the second. Only `cpu_starting`
//! advances the clock of the CPU past what was deferred meanwhile.
//!
//! On x86 a sender may have chosen the CPU as a target just before it goes; INV-MAIL-ABSENT says
//! how the two find out. The CPU acknowledges such a request and flushes nothing: it has left its
//! space, and it flushes everything before it runs another.
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
                // Only this CPU's barrier completes what it has issued. Each flush that this CPU
                // has deferred is older than this epoch.
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
