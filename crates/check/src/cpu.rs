//! One CPU of the machine: a method for each instruction that page-table code executes.
//!
//! Each method is a point at which the scheduler may switch to another CPU. [`Cpu::will_reduce`]
//! and [`Cpu::call`] also say which rights a call removes and when it returns.
//!
//! Neighbours: [`crate::harness`] has the machine, its frames and its memory.
//!
//! Not guaranteed: that a program which spins in a loop without calling the harness ends. A loop
//! that waits for another CPU must call [`Cpu::relax`] or take a [`crate::HarnessLock`].

use crate::harness::{Harness, IpiFunction, IpiRequest};
use pagewright_arch::{Effects, Invalidate, InvalidateScope, InvalidateTarget, Isa, Pte, PteSlot};
use pagewright_sim::{PageFault, Sim};
use pagewright_types::judge::Fact;
use pagewright_types::{Access, CpuId, CpuMask, IsaKind, Level, PageRange, Pfn, PhysAddr, Rights, Tag, VirtAddr};
use std::cell::Cell;
use std::fmt::Display;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

/// IPIs that were sent and may not have been acknowledged.
#[must_use = "an IPI that is not waited for may not have been taken"]
pub struct PendingIpis(Rc<Cell<u32>>);

impl PendingIpis {
    /// Waits until every target has run the function.
    #[track_caller]
    pub fn wait<I: Isa>(&self, cpu: &Cpu<I>) {
        while self.0.get() > 0 {
            cpu.relax();
        }
    }

    /// Drops the IPIs without waiting for them.
    pub fn ignore(self) {}
}

/// One CPU of the machine; it dereferences to the [`Harness`].
///
/// A program acts through the [`Cpu`] that it is given. Acting through another CPU's handle while
/// schedules are explored panics.
pub struct Cpu<I: Isa> {
    pub(crate) harness: Harness<I>,
    pub(crate) id: CpuId,
}

impl<I: Isa> Clone for Cpu<I> {
    fn clone(&self) -> Self {
        Self { harness: self.harness.clone(), id: self.id }
    }
}

impl<I: Isa> Deref for Cpu<I> {
    type Target = Harness<I>;

    fn deref(&self) -> &Harness<I> {
        &self.harness
    }
}

impl<I: Isa> Cpu<I> {
    /// The table and the index of the entry at physical address `at`.
    fn slot(&self, at: PhysAddr) -> PteSlot {
        assert!(at.is_aligned(8), "the entry address {at} is not a multiple of 8");
        PteSlot::containing(at, self.sim().config().granule)
    }

    /// The number of this CPU.
    pub fn id(&self) -> CpuId {
        self.id
    }

    /// All CPUs but this one.
    pub fn others(&self) -> CpuMask {
        let mut others = self.bench().cpus();
        others.remove(self.id);
        others
    }

    #[track_caller]
    pub(crate) fn on<R>(&self, body: impl FnOnce(&Sim<I>) -> R) -> R {
        self.called(self.id);
        self.sim().run_on(self.id, || body(self.sim()))
    }

    /// Adds a line to the drawing of a finding, such as `calls munmap`.
    #[track_caller]
    pub fn note(&self, text: impl Display) {
        self.called(self.id);
        self.bench().note(self.id, text);
    }

    /// Runs `body` as a kernel call (a system call or a fault).
    ///
    /// When the call returns, no CPU may still use a right that the call
    /// [declared](Cpu::will_reduce) to remove. Of nested calls, only the outermost counts.
    #[track_caller]
    pub fn call<R>(&self, name: &str, body: impl FnOnce(&Self) -> R) -> R {
        let calls = &self.harness.state().calls[self.id.index()];
        calls.set(calls.get() + 1);
        self.note(format_args!("calls {name}"));
        let result = body(self);
        calls.set(calls.get() - 1);
        if calls.get() == 0 {
            self.on(|sim| sim.declare(Fact::CallReturned));
        }
        result
    }

    /// Runs `body`, which the program can do without.
    ///
    /// When there is a finding, the check leaves out what the finding does not need, and says so
    /// (INV-CHECK-CUT). So the rest of the program must be valid without it: an unmap can be an
    /// operation, and a lock or a store that the next operation depends on cannot.
    pub fn operation(&self, body: impl FnOnce(&Self)) {
        if !self.harness.leaves_out_next(self.id) {
            body(self);
        }
    }

    /// Declares that the current call reduces the rights in `range` to `left`.
    ///
    /// The range is in the address space that is loaded on this CPU; on arm64, in the upper half of
    /// the root that [`Cpu::load_kernel_root`] has loaded. The declaration must come before the
    /// first entry is changed. `left` is empty for an unmap.
    ///
    /// # Panics
    /// When no root is loaded.
    #[track_caller]
    pub fn will_reduce(&self, range: PageRange, left: Rights) {
        let upper = I::KIND == IsaKind::Aarch64 && range.start().raw() >> 48 != 0;
        let root = match (upper, self.harness.state().kernel_roots[self.id.index()].get()) {
            (true, Some(root)) => root,
            (true, None) => panic!("no kernel root is loaded on CPU {}", self.id),
            (false, _) => self.loaded().0,
        };
        self.will_reduce_under(root, range, left);
    }

    /// Like [`Cpu::will_reduce`], for the address space of `root`.
    #[track_caller]
    pub fn will_reduce_under(&self, root: Pfn, range: PageRange, left: Rights) {
        self.on(|sim| sim.declare(Fact::RightReduced { root, range, left }));
    }

    #[track_caller]
    fn loaded(&self) -> (Pfn, Tag) {
        let Some(loaded) = self.harness.state().roots[self.id.index()].get() else {
            panic!("no root is loaded on CPU {}", self.id)
        };
        loaded
    }

    /// Loads `root` under `tag`: `MOV CR3` with a PCID, or a write of `TTBR0_EL1` with an ASID.
    ///
    /// Nothing is flushed, unless the machine is [`crate::Check::untagged`].
    #[track_caller]
    pub fn load_root(&self, root: Pfn, tag: Tag) {
        self.harness.state().roots[self.id.index()].set(Some((root, tag)));
        self.on(|sim| sim.install_root(root, tag, true));
    }

    /// Enters or leaves lazy TLB mode: a kernel thread runs on the root that is loaded.
    #[track_caller]
    pub fn set_lazy(&self, lazy: bool) {
        self.on(|sim| sim.set_lazy(lazy));
    }

    #[track_caller]
    fn access(&self, va: VirtAddr, access: Access) -> Result<&AtomicU64, PageFault> {
        assert!(va.is_aligned(8), "{access} of eight bytes at {va}, which is not a multiple of 8");
        self.called(self.id);
        let found = self.sim().access(self.id, va, access, 1)?;
        Ok(&self.sim().ram()[((found.pfn.base().raw() + va.page_offset()) / 8) as usize])
    }

    /// Reads the 64-bit word at `va` in user mode.
    ///
    /// In the [`Check::kernel_range`](crate::Check::kernel_range) it is an access of the kernel.
    ///
    /// # Errors
    /// [`PageFault`], which the caller handles as its kernel's fault handler would.
    ///
    /// # Panics
    /// When `va` is not a multiple of 8.
    #[track_caller]
    pub fn read(&self, va: VirtAddr) -> Result<u64, PageFault> {
        let value = self.access(va, Access::Read)?.load(Ordering::Acquire);
        self.bench().note_value(self.id, value);
        Ok(value)
    }

    /// Writes the 64-bit word at `va`, as [`Cpu::read`] reads.
    ///
    /// # Errors
    /// [`PageFault`]; nothing was written.
    ///
    /// # Panics
    /// When `va` is not a multiple of 8.
    #[track_caller]
    pub fn write(&self, va: VirtAddr, value: u64) -> Result<(), PageFault> {
        self.access(va, Access::Write)?.store(value, Ordering::Release);
        self.bench().note_value(self.id, value);
        Ok(())
    }

    /// Fetches an instruction at `va`, as [`Cpu::read`] reads, and returns the 64-bit word there.
    ///
    /// # Errors
    /// [`PageFault`].
    ///
    /// # Panics
    /// When `va` is not a multiple of 8.
    #[track_caller]
    pub fn fetch(&self, va: VirtAddr) -> Result<u64, PageFault> {
        Ok(self.access(va, Access::Exec)?.load(Ordering::Acquire))
    }

    /// Loads the entry at physical address `at`.
    ///
    /// # Panics
    /// When `at` is not a multiple of 8, or there is no memory there.
    #[track_caller]
    pub fn load(&self, at: PhysAddr) -> u64 {
        self.on(|sim| sim.load(self.slot(at)).raw())
    }

    /// Stores the entry at physical address `at`.
    ///
    /// Walkers may see the store late: on x86-64 in order, on arm64 in any order until
    /// [`Cpu::publish`].
    ///
    /// # Panics
    /// As [`Cpu::load`].
    #[track_caller]
    pub fn store(&self, at: PhysAddr, entry: u64) {
        self.on(|sim| sim.store(self.slot(at), Pte::from_raw(entry)));
    }

    /// Exchanges the entry at `at` atomically, and returns the old one.
    ///
    /// The exchange is also atomic against a walker that sets an accessed or dirty bit.
    ///
    /// # Panics
    /// As [`Cpu::load`].
    #[track_caller]
    pub fn swap(&self, at: PhysAddr, entry: u64) -> u64 {
        self.on(|sim| sim.swap(self.slot(at), Pte::from_raw(entry)).raw())
    }

    /// Replaces the entry at `at` by `new` if it still is `current`.
    ///
    /// # Errors
    /// The entry that is there instead.
    ///
    /// # Panics
    /// As [`Cpu::load`].
    #[track_caller]
    pub fn compare_exchange(&self, at: PhysAddr, current: u64, new: u64) -> Result<(), u64> {
        let (current, new) = (Pte::from_raw(current), Pte::from_raw(new));
        self.on(|sim| sim.compare_exchange(self.slot(at), current, new)).map_err(Pte::raw)
    }

    /// Makes the entry stores of this CPU visible to walkers (arm64 `DSB ISHST`).
    ///
    /// It does nothing on x86-64.
    #[track_caller]
    pub fn publish(&self) {
        self.on(|sim| sim.publish());
    }

    /// Waits until the broadcast invalidations of this CPU are complete (arm64 `DSB ISH`).
    ///
    /// On x86-64 it is `TLBSYNC` ([`crate::Check::invlpgb`]), and otherwise does nothing.
    #[track_caller]
    pub fn complete(&self) {
        self.on(|sim| sim.complete());
    }

    /// Invalidates the translation of `va` and its walk-cache entries, under the loaded tag.
    ///
    /// This is `INVLPG` or `TLBI VAE1`, and with `InvalidateScope::Broadcast` `TLBI VAE1IS`.
    ///
    /// # Panics
    /// When no root is loaded, and on x86-64 when `scope` is broadcast.
    #[track_caller]
    pub fn flush_page(&self, va: VirtAddr, scope: InvalidateScope) {
        let (_, tag) = self.loaded();
        self.invalidate(Invalidate {
            scope,
            target: InvalidateTarget::Page { tag, va, level: Level::PTE, last_level: false },
        });
    }

    /// Invalidates everything under the tag that is loaded, except global translations.
    ///
    /// This is `MOV CR3` or `TLBI ASIDE1`, and with `InvalidateScope::Broadcast` `TLBI ASIDE1IS`.
    ///
    /// # Panics
    /// As [`Cpu::flush_page`].
    #[track_caller]
    pub fn flush_all(&self, scope: InvalidateScope) {
        let (_, tag) = self.loaded();
        self.invalidate(Invalidate { scope, target: InvalidateTarget::Tag(tag) });
    }

    /// Issues the invalidation `op`, of any form that the architecture has.
    ///
    /// # Panics
    /// When the machine does not have the form.
    #[track_caller]
    pub fn invalidate(&self, op: Invalidate) {
        self.on(|sim| sim.invalidate(op));
    }

    /// Sends an IPI to `targets`, has each run `function`, and waits until all have.
    ///
    /// Linux: `smp_call_function_many` with `wait`.
    ///
    /// # Panics
    /// When this CPU is among `targets`, or has interrupts disabled.
    #[track_caller]
    pub fn shoot_down(&self, targets: CpuMask, function: impl Fn(&Self) + 'static) {
        self.send_ipi(targets, function).wait(self);
    }

    /// Sends an IPI to `targets` and has each run `function`.
    ///
    /// # Panics
    /// When this CPU is among `targets`.
    #[track_caller]
    pub fn send_ipi(&self, targets: CpuMask, function: impl Fn(&Self) + 'static) -> PendingIpis {
        let pending = Rc::new(Cell::new(targets.count()));
        let function: Rc<IpiFunction<I>> = Rc::new(function);
        for target in targets.iter() {
            let request = IpiRequest { function: Rc::clone(&function), pending: Rc::clone(&pending) };
            self.harness.state().ipis[target.index()].borrow_mut().push(request);
        }
        self.on(|sim| sim.send_ipi(&targets));
        PendingIpis(pending)
    }

    /// Runs `body` with interrupts disabled on this CPU.
    #[track_caller]
    pub fn without_interrupts<R>(&self, body: impl FnOnce(&Self) -> R) -> R {
        self.on(|sim| sim.without_interrupts(|| body(self)))
    }

    /// Lets the scheduler run other CPUs, in a loop that waits for one of them.
    ///
    /// Linux: `cpu_relax`.
    ///
    /// # Panics
    /// When this CPU has interrupts disabled.
    #[track_caller]
    pub fn relax(&self) {
        self.on(|sim| sim.relax());
    }
}
