//! The machine as the memory manager sees it: [`Effects`] and [`Platform`].
//!
//! Entry loads, stores and barriers of a CPU all pass through this file, and nowhere else touch
//! memory. In fast mode a store reaches walkers at once. While schedules are explored, each effect
//! first stops the CPU ([`StopPoint`]), and a store waits in a buffer until something drains it: a
//! barrier (arm64), a locked or serialising instruction (x86-64), or the schedule.

use crate::backend::SimLocks;
use crate::core::Root;
use crate::cost::Cost;
use crate::event::MachineEvent;
use crate::explore::{InFlight, StopPoint};
use crate::machine::{AllocationFailure, Allocations, Sim};
use pagewright_arch::{Caps, Effects, Invalidate, Isa, Pte, PteSlot};
use pagewright_sync::Platform;
use pagewright_types::judge::Fact;
use pagewright_types::{CpuId, CpuMask, IsaKind, Order, Pfn, PhysAddr, Tag};
use std::sync::atomic::Ordering;

impl<I: Isa> Sim<I> {
    fn pay(&self, cost: Cost) {
        self.here().pay(&self.0.config.profile.costs, cost);
    }

    /// Puts `pte` into memory as an atomic exchange does, and returns what stood there.
    ///
    /// On x86-64 a locked instruction drains the store buffer and goes past it. On arm64 an
    /// exchange is as late as a store: atomic to whoever updates the word, and visible to a walk's
    /// read only from the next DSB on (Arm ARM D8.2, ordering of walks).
    fn exchange(&self, slot: PteSlot, pte: Pte) -> Pte {
        let word = self.0.ram.word(slot.addr());
        if self.0.exploring.get() {
            match I::KIND {
                IsaKind::X86_64 => {
                    self.drain_here();
                    self.before_write(slot.addr(), 8);
                }
                IsaKind::Aarch64 => {
                    let old = word.load(Ordering::Acquire);
                    self.store_later(slot, pte);
                    return Pte::from_raw(old);
                }
            }
        }
        Pte::from_raw(word.swap(pte.raw(), Ordering::AcqRel))
    }

    /// Stores `pte` for the kernel now and for walkers later.
    fn store_later(&self, slot: PteSlot, pte: Pte) {
        let InFlight { stores, step, .. } = &self.0.in_flight;
        stores.borrow_mut().store(&self.0.ram, self.cpu(), slot.addr(), pte.raw(), step.get());
    }

    fn pay_pages(&self, cost: Cost, order: Order) {
        self.here().spend(self.0.config.profile.cost(cost) * u64::from(order.frames()));
    }
}

impl<I: Isa> Effects for Sim<I> {
    type Isa = I;

    fn caps(&self) -> &Caps {
        &self.0.caps
    }

    #[inline]
    fn cpu(&self) -> CpuId {
        self.0.current.get()
    }

    fn online(&self) -> CpuMask {
        self.0.online.get()
    }

    #[inline]
    fn load(&self, slot: PteSlot) -> Pte {
        self.point(StopPoint::Load(slot));
        self.pay(Cost::EntryLoad);
        self.before_load(slot.addr());
        Pte::from_raw(self.0.ram.word(slot.addr()).load(Ordering::Acquire))
    }

    #[inline]
    fn store(&self, slot: PteSlot, pte: Pte) {
        self.point(StopPoint::Store(slot, pte));
        self.here().events.add(MachineEvent::EntryStores, 1);
        self.pay(Cost::EntryStore);
        if self.0.exploring.get() {
            self.store_later(slot, pte);
            return;
        }
        self.0.ram.word(slot.addr()).store(pte.raw(), Ordering::Release);
    }

    fn swap(&self, slot: PteSlot, pte: Pte) -> Pte {
        self.point(StopPoint::Swap(slot, pte));
        self.here().events.add(MachineEvent::EntryStores, 1);
        self.pay(Cost::EntrySwap);
        self.exchange(slot, pte)
    }

    fn compare_exchange(&self, slot: PteSlot, current: Pte, new: Pte) -> Result<(), Pte> {
        self.point(StopPoint::CompareExchange(slot, new));
        self.pay(Cost::EntrySwap);
        self.before_load(slot.addr());
        match Pte::from_raw(self.0.ram.word(slot.addr()).load(Ordering::Acquire)) {
            stands if stands == current => {
                self.here().events.add(MachineEvent::EntryStores, 1);
                self.exchange(slot, new);
                Ok(())
            }
            stands => Err(stands),
        }
    }

    fn publish(&self) {
        self.point(StopPoint::Publish);
        match I::KIND {
            // Stores become visible in program order, to walkers too (SDM vol. 3A §4.10.4).
            IsaKind::X86_64 => {}
            IsaKind::Aarch64 => {
                self.here().events.add(MachineEvent::Dsbs, 1);
                self.pay(Cost::DsbLocal);
                self.drain_here();
            }
        }
    }

    /// # Panics
    /// When the machine has no such instruction: a broadcast or a range on x86-64, a range where
    /// `caps` says that there is none.
    fn invalidate(&self, op: Invalidate) {
        self.point(StopPoint::Invalidate(op));
        self.carry_out(op);
    }

    fn complete(&self) {
        self.point(StopPoint::Complete);
        self.drain_here();
        match I::KIND {
            IsaKind::X86_64 => {}
            IsaKind::Aarch64 => {
                if self.0.exploring.get() {
                    self.complete_broadcasts(self.cpu());
                }
                let core = self.here();
                core.events.add(MachineEvent::Dsbs, 1);
                if core.outstanding.replace(0) == 0 {
                    self.pay(Cost::DsbLocal);
                } else {
                    let others = u64::from(self.0.online.get().count()) - 1;
                    let each = self.profile().cost(Cost::DsbWaitEach) * others;
                    core.events.add(MachineEvent::FlushWaits, 1);
                    core.wait_for_flush(core.clock() + self.profile().cost(Cost::DsbWait) + each);
                }
            }
        }
    }

    /// # Panics
    /// When the caller is among `targets`, when the machine has no such CPU, or when no handler was
    /// bound.
    fn send_ipi(&self, targets: &CpuMask) {
        self.interrupt(targets);
    }

    /// Joins the clock of this CPU with the latest answer to its interrupts.
    ///
    /// # Panics
    /// With interrupts closed, and when called over and over with nothing to wait for.
    fn relax(&self) {
        self.wait_for_answers();
    }

    fn install_root(&self, root: Pfn, tag: Tag, keep: bool) {
        let tag = self.tag_in_use(tag);
        self.point(StopPoint::InstallRoot(root, tag));
        self.pay(Cost::SwitchRoot);
        if I::KIND == IsaKind::X86_64 {
            // MOV CR3 serialises: what was stored is visible, and no walk goes on.
            self.drain_here();
            self.here().in_flight.walks.borrow_mut().clear();
        }
        // Without tags CR4.PCIDE is 0, and MOV CR3 flushes whatever bit 63 says.
        let user = self.0.caps.user_tag(tag);
        if !keep || !self.0.caps.tagged {
            self.drop_tag_here(tag);
            user.into_iter().for_each(|user| self.drop_tag_here(user));
        }
        let id = self.id_of_root(root);
        self.here().root.set(Some(Root { table: root, tag: user.unwrap_or(tag), kernel: tag, id }));
        self.judge_loaded();
    }

    fn without_interrupts<T>(&self, body: impl FnOnce() -> T) -> T {
        let core = self.here();
        core.closed.set(core.closed.get() + 1);
        let result = body();
        core.closed.set(core.closed.get() - 1);
        result
    }

    fn may_wait(&self) -> bool {
        self.here().closed.get() == 0
    }

    fn permit_allocation(&self) -> bool {
        match self.0.allocations.get() {
            Allocations::Permitted => true,
            Allocations::FailAfter(0, refusal) => {
                if refusal == AllocationFailure::One {
                    self.0.allocations.set(Allocations::Permitted);
                }
                self.0.refused.set(self.0.refused.get() + 1);
                false
            }
            Allocations::FailAfter(more, refusal) => {
                self.0.allocations.set(Allocations::FailAfter(more - 1, refusal));
                true
            }
        }
    }

    #[inline]
    fn declare(&self, fact: Fact) {
        self.point(StopPoint::Declare(fact));
        if self.0.judged.get() {
            self.judge_fact(fact);
        }
    }

    fn set_lazy(&self, lazy: bool) {
        self.point(StopPoint::Lazy(lazy));
        if self.here().lazy.replace(lazy) && !lazy {
            self.judge_loaded();
        }
    }

    fn zero(&self, pfn: Pfn, order: Order) {
        self.pay_pages(Cost::ZeroPage, order);
        self.before_write_of(pfn, order);
        self.0.ram.zero(pfn, order);
    }

    fn copy(&self, from: Pfn, to: Pfn, order: Order) {
        self.pay_pages(Cost::CopyPage, order);
        self.before_write_of(to, order);
        self.0.ram.copy(from, to, order);
    }

    fn read(&self, from: PhysAddr, to: &mut [u8]) {
        self.0.ram.read(from, to);
    }

    fn write(&self, to: PhysAddr, from: &[u8]) {
        let start = to.align_down(8);
        self.before_write(start, to.raw() + from.len() as u64 - start.raw());
        self.0.ram.write(to, from);
    }
}

impl<I: Isa> Platform for Sim<I> {
    type Locks = SimLocks;
}
