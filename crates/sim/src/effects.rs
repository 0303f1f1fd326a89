//! The machine as the memory manager sees it: [`Effects`] and [`Platform`].
//!
//! All entry loads, stores and barriers of the memory manager pass through this file. In fast mode
//! a store reaches walkers at once. In explore mode each effect first stops the CPU
//! ([`StopPoint`]), and a store stays in a buffer until it is drained by a barrier (arm64), by a
//! locked or serialising instruction (x86-64), or by the schedule.

use crate::backend::{SimLocks, running};
use crate::core::Root;
use crate::cost::Cost;
use crate::event::MachineEvent;
use crate::explore::footprint::{Touch, Touched};
use crate::explore::{InFlight, StopPoint};
use crate::machine::{AllocationFailure, Allocations, Sim};
use pagewright_arch::{Caps, Effects, Invalidate, Isa, Pte, PteSlot};
use pagewright_sync::{Platform, RankSet};
use pagewright_types::judge::Fact;
use pagewright_types::{CpuId, CpuMask, FrameRange, IsaKind, Order, Pfn, PhysAddr, Tag};
use std::sync::atomic::Ordering;

impl<I: Isa> Sim<I> {
    fn pay(&self, cost: Cost) {
        self.here().pay(&self.0.config.profile.costs, cost);
    }

    /// Exchanges an entry atomically, and returns the old one.
    ///
    /// On x86-64 a locked instruction drains the store buffer and bypasses it. On arm64 an exchange
    /// is buffered like a store: it is atomic against other updates of the word, and a walk need
    /// not read it before the next DSB (Arm ARM D8.2, ordering of walks).
    fn exchange(&self, slot: PteSlot, pte: Pte) -> Pte {
        let word = self.0.ram.word(slot.addr());
        if self.0.exploring.get() {
            self.touch_stored(slot, pte, Pte::from_raw(word.load(Ordering::Relaxed)));
            match I::KIND {
                IsaKind::X86_64 => {
                    self.drain_local_stores();
                    self.before_write(slot.addr(), 8);
                }
                IsaKind::Aarch64 => {
                    let old = word.load(Ordering::Acquire);
                    self.buffer_store(slot, pte);
                    return Pte::from_raw(old);
                }
            }
        }
        Pte::from_raw(word.swap(pte.raw(), Ordering::AcqRel))
    }

    /// Stores `pte` to memory, and buffers the store for walkers.
    fn buffer_store(&self, slot: PteSlot, pte: Pte) {
        let InFlight { stores, step, .. } = &self.0.in_flight;
        stores.borrow_mut().store(&self.0.ram, self.cpu(), slot.addr(), pte.raw(), step.get());
    }

    /// Puts a store that memory already has into the store buffer of the current CPU.
    pub(crate) fn buffer_found_store(&self, slot: PteSlot, old: u64, new: u64) {
        let InFlight { stores, step, .. } = &self.0.in_flight;
        stores.borrow_mut().hold_back(self.cpu(), slot.addr(), (old, new), step.get());
    }

    /// Stores `pte`: to memory in fast mode, for walkers later in explore mode.
    #[inline]
    fn store_word(&self, slot: PteSlot, pte: Pte) {
        if self.0.exploring.get() {
            let before = self.0.ram.word(slot.addr()).load(Ordering::Relaxed);
            self.touch_stored(slot, pte, Pte::from_raw(before));
            self.buffer_store(slot, pte);
        } else {
            self.0.ram.word(slot.addr()).store(pte.raw(), Ordering::Release);
        }
    }

    fn pay_pages(&self, cost: Cost, order: Order) {
        self.here().spend(self.0.config.profile.cost(cost) * u64::from(order.frames()));
    }
}

impl<I: Isa> Sim<I> {
    /// Makes walks of this CPU for the upper half start at `root` (arm64 TTBR1_EL1).
    ///
    /// Nothing is invalidated. What such a walk fills has the ASID of TTBR0_EL1, unless it is
    /// global.
    ///
    /// # Panics
    /// On x86-64, where the root of [`Effects::install_root`] translates both halves.
    pub fn install_kernel_root(&self, root: Pfn) {
        assert!(I::KIND == IsaKind::Aarch64, "x86-64 has one root for both halves");
        self.stop_before(StopPoint::InstallKernelRoot(root));
        self.touch_root_installed(false);
        self.pay(Cost::SwitchRoot);
        self.here().kernel_root.set(Some((root, self.id_of_root(root))));
        self.judge_kernel_loaded(root);
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
        self.stop_before(StopPoint::Load(slot));
        self.pay(Cost::EntryLoad);
        self.before_load(slot.addr());
        self.record_lockless(slot.table);
        let pte = Pte::from_raw(self.0.ram.word(slot.addr()).load(Ordering::Acquire));
        self.seen(pte.raw());
        pte
    }

    #[inline]
    fn store(&self, slot: PteSlot, pte: Pte) {
        self.stop_before(StopPoint::Store(slot, pte));
        self.here().events.add(MachineEvent::EntryStores, 1);
        self.pay(Cost::EntryStore);
        if self.0.judged.get() {
            let old = Pte::from_raw(self.0.ram.word(slot.addr()).load(Ordering::Acquire));
            self.store_word(slot, pte);
            self.judge_stored(slot, old, pte);
        } else {
            self.store_word(slot, pte);
        }
    }

    fn swap(&self, slot: PteSlot, pte: Pte) -> Pte {
        self.stop_before(StopPoint::Swap(slot, pte));
        self.here().events.add(MachineEvent::EntryStores, 1);
        self.pay(Cost::EntrySwap);
        let old = self.exchange(slot, pte);
        self.judge_stored(slot, old, pte);
        self.seen(old.raw());
        old
    }

    fn compare_exchange(&self, slot: PteSlot, current: Pte, new: Pte) -> Result<(), Pte> {
        self.stop_before(StopPoint::CompareExchange(slot, new));
        self.pay(Cost::EntrySwap);
        self.before_load(slot.addr());
        let found = Pte::from_raw(self.0.ram.word(slot.addr()).load(Ordering::Acquire));
        self.seen(found.raw());
        match found {
            old if old == current => {
                self.here().events.add(MachineEvent::EntryStores, 1);
                self.exchange(slot, new);
                self.judge_stored(slot, old, new);
                Ok(())
            }
            old => Err(old),
        }
    }

    fn publish(&self) {
        self.stop_before(StopPoint::Publish);
        match I::KIND {
            // Stores become visible in program order, to walkers too (SDM vol. 3A §4.10.4).
            IsaKind::X86_64 => {}
            IsaKind::Aarch64 => {
                self.here().events.add(MachineEvent::Dsbs, 1);
                self.pay(Cost::DsbLocal);
                self.drain_local_stores();
            }
        }
    }

    /// # Panics
    /// When the machine has no such instruction: on x86-64 a broadcast unless it has INVLPGB, and a
    /// local range; on arm64 a range unless `caps` has range invalidations.
    fn invalidate(&self, op: Invalidate) {
        let op = Invalidate { target: self.of_own_tree(op.target), ..op };
        self.stop_before(StopPoint::Invalidate(op));
        self.execute_invalidate(op);
    }

    fn complete(&self) {
        self.stop_before(StopPoint::Complete);
        self.drain_local_stores();
        if self.0.exploring.get() {
            self.complete_broadcasts(self.cpu());
        }
        match I::KIND {
            IsaKind::X86_64 => self.here().incomplete_tlbis.set(0),
            IsaKind::Aarch64 => {
                let core = self.here();
                core.events.add(MachineEvent::Dsbs, 1);
                core.deferred_tlbis.set(0);
                if core.incomplete_tlbis.replace(0) == 0 {
                    self.pay(Cost::DsbLocal);
                } else {
                    let others = u64::from(self.0.online.get().count()) - 1;
                    let each = self.profile().cost(Cost::DsbWaitEach) * others;
                    core.events.add(MachineEvent::FlushWaits, 1);
                    let completed = core.clock().max(core.tlbis_complete_at.get());
                    core.wait_for_flush(completed + self.profile().cost(Cost::DsbWait) + each);
                }
            }
        }
    }

    /// # Panics
    /// When the current CPU is among `targets`, when the machine has no such CPU, or when no
    /// handler is bound.
    fn send_ipi(&self, targets: &CpuMask) {
        self.send_ipis(targets);
    }

    /// Advances the clock of this CPU to the latest acknowledgement of its IPIs.
    ///
    /// # Panics
    /// When interrupts are disabled. In fast mode, after many calls in a row with nothing to wait
    /// for.
    fn relax(&self) {
        self.wait_for_acks();
    }

    fn install_root(&self, root: Pfn, tag: Tag, keep: bool) {
        let tag = self.tag_in_use(tag);
        self.stop_before(StopPoint::InstallRoot(root, tag));
        self.touch_root_installed(!keep || !self.0.caps.tagged);
        self.pay(Cost::SwitchRoot);
        if I::KIND == IsaKind::X86_64 {
            // MOV CR3 serialises: earlier stores are visible, and walks in flight end.
            self.drain_local_stores();
            self.here().in_flight.walks.borrow_mut().clear();
        }
        // Without tags CR4.PCIDE is 0, and MOV CR3 flushes whatever bit 63 says.
        let user = self.0.caps.user_tag(tag);
        if !keep || !self.0.caps.tagged {
            self.drop_tag_here(tag);
            user.into_iter().for_each(|user| self.drop_tag_here(user));
        }
        if self.0.judged.get() {
            self.0.walked.borrow_mut().install(root, tag, user.unwrap_or(tag));
        }
        let id = self.id_of_root(root);
        self.here().root.set(Some(Root { table: root, tag: user.unwrap_or(tag), kernel_tag: tag, id }));
        self.judge_loaded();
    }

    fn without_interrupts<T>(&self, body: impl FnOnce() -> T) -> T {
        let core = self.here();
        core.disable_interrupts();
        let result = body();
        core.restore_interrupts();
        result
    }

    fn may_wait(&self) -> bool {
        self.here().interrupts_off.get() == 0
    }

    /// Counts the offer; a CPU runs one program, so there is no other work.
    ///
    /// # Panics
    /// When this CPU holds a lock, or interrupts are disabled.
    fn cond_resched(&self) {
        let held = running().held;
        assert!(held == RankSet::EMPTY, "CPU {} offers to reschedule and holds {held:?}", self.cpu());
        assert!(self.may_wait(), "CPU {} offers to reschedule with interrupts disabled", self.cpu());
        self.here().events.add(MachineEvent::ReschedOffers, 1);
    }

    fn permit_allocation(&self) -> bool {
        match self.0.allocations.get() {
            Allocations::Permitted => true,
            Allocations::FailAfter(0, failure) => {
                if failure == AllocationFailure::One {
                    self.0.allocations.set(Allocations::Permitted);
                }
                self.0.refused.set(self.0.refused.get() + 1);
                false
            }
            Allocations::FailAfter(more, failure) => {
                self.0.allocations.set(Allocations::FailAfter(more - 1, failure));
                true
            }
        }
    }

    #[inline]
    fn declare(&self, fact: Fact) {
        self.stop_before(StopPoint::Declare(fact));
        self.touch_declared(fact);
        if let Fact::RightDeferred { .. } = fact {
            let deferred = &self.here().deferred_tlbis;
            deferred.set(deferred.get() + 1 + u64::from(self.caps().user_tag_bit.is_some()));
        }
        if self.0.judged.get() {
            self.judge_fact(fact);
        }
    }

    fn set_lazy(&self, lazy: bool) {
        self.stop_before(StopPoint::Lazy(lazy));
        self.touch_all_judged();
        if self.here().lazy.replace(lazy) && !lazy {
            self.judge_loaded();
        }
    }

    fn zero(&self, pfn: Pfn, order: Order) {
        self.pay_pages(Cost::ZeroPage, order);
        self.before_write_of(pfn, order);
        self.0.ram.zero(pfn, order);
        self.note_filled(pfn, order);
        self.judge_written(FrameRange::new(pfn, pfn.add(order.frames())));
    }

    fn copy(&self, from: Pfn, to: Pfn, order: Order) {
        self.pay_pages(Cost::CopyPage, order);
        self.before_write_of(to, order);
        self.0.ram.copy(from, to, order);
        self.note_filled(to, order);
        self.judge_written(FrameRange::new(to, to.add(order.frames())));
    }

    fn publish_code(&self, pfn: Pfn) {
        self.0.unfetchable.borrow_mut().remove(&pfn);
    }

    fn read(&self, from: PhysAddr, to: &mut [u8]) {
        self.touch(|| Touch::reads(Touched::Memory, (from.raw(), from.raw() + to.len() as u64)));
        self.0.ram.read(from, to);
        to.iter().for_each(|byte| self.seen(u64::from(*byte)));
    }

    fn write(&self, to: PhysAddr, from: &[u8]) {
        let start = to.align_down(8);
        self.before_write(start, to.raw() + from.len() as u64 - start.raw());
        self.0.ram.write(to, from);
        self.judge_written(FrameRange::new(Pfn::containing(to), Pfn::containing(to).add(1)));
    }
}

impl<I: Isa> Platform for Sim<I> {
    type Locks = SimLocks;
}
