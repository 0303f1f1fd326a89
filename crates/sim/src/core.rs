//! One CPU of the machine: TLBs, clock, counts, and the registers of its MMU.
//!
//! The TLBs are borrowed for one operation on them, and never across a call out of this crate.
//! Everything else is a plain cell. A clock advances only by [`Core::spend`] and by waiting
//! (INV-SIM-CLOCK).
//!
//! **INV-SIM-CLOCK** A clock advances by a cost of the profile or by waiting for another CPU's
//! clock, in whole picoseconds. The same seed gives the same figures, bit for bit.

use crate::Cost;
use crate::config::MachineConfig;
use crate::cost::Costs;
use crate::event::{Events, MachineEvent};
use crate::explore::CpuInFlight;
use crate::time::Picos;
use crate::tlb::{RootId, Tlbs};
use pagewright_sync::RankSet;
use pagewright_types::{IsaKind, Pfn, Tag, VirtAddr};
use std::cell::{Cell, RefCell};

/// The loaded root: CR3 and its PCID, or TTBR0_EL1 and its ASID.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Root {
    pub(crate) table: Pfn,
    /// The tag under which programs run.
    pub(crate) tag: Tag,
    /// The tag that is installed, and under which the kernel runs.
    ///
    /// It differs from `tag` only if the machine is [`crate::MachineConfig::isolated`].
    pub(crate) kernel_tag: Tag,
    pub(crate) id: RootId,
}

/// One CPU.
pub(crate) struct Core {
    pub(crate) tlbs: RefCell<Tlbs>,
    /// `None` until the first root is installed; until then every access faults.
    pub(crate) root: Cell<Option<Root>>,
    /// TTBR1_EL1: the root of the upper half (arm64); `None` until one is installed.
    pub(crate) kernel_root: Cell<Option<(Pfn, RootId)>>,
    /// Whether the CPU is in lazy TLB mode: a kernel thread runs on the loaded root.
    ///
    /// User mode makes no access then. Only judges read this.
    pub(crate) lazy: Cell<bool>,
    clock: Cell<Picos>,
    pub(crate) events: Events,
    /// When the last CPU acknowledges an IPI of this one; `relax` waits until then.
    pub(crate) acked_at: Cell<Picos>,
    /// The `relax` calls in a row with nothing to wait for.
    pub(crate) idle_relaxes: Cell<u32>,
    /// Broadcast invalidations that this CPU issued and has not completed.
    pub(crate) incomplete_tlbis: Cell<u64>,
    /// How many of them may stay so when the operation ends.
    pub(crate) deferred_tlbis: Cell<u64>,
    /// When the last broadcast invalidation of this CPU is complete at every CPU.
    pub(crate) tlbis_complete_at: Cell<Picos>,
    /// The depth of nested interrupt handlers and sections with interrupts disabled.
    pub(crate) interrupts_off: Cell<u32>,
    /// The tables of which the kernel has read entries here since interrupts were disabled.
    ///
    /// A lockless walk; recorded while a judge is bound.
    pub(crate) lockless_walk: RefCell<Vec<Pfn>>,
    /// The lock ranks that this CPU holds while another CPU runs on the host thread.
    pub(crate) held: Cell<RankSet>,
    /// What is in flight on this CPU in explore mode.
    pub(crate) in_flight: CpuInFlight,
    /// log2 of the addresses in the lower half of x86-64.
    half_bits: u32,
}

impl Core {
    /// The roots that are loaded.
    pub(crate) fn roots_of_tables(&self) -> impl Iterator<Item = Pfn> {
        let kernel = self.kernel_root.get().map(|(table, _)| table);
        self.root.get().map(|root| root.table).into_iter().chain(kernel)
    }

    /// The root that translates `va`, and the tag of what a walk for it fills.
    ///
    /// Addresses have 48 bits, or with five levels 57. On x86-64 a root translates both halves; on
    /// arm64 the lower one, and TTBR1_EL1 the upper one under the same ASID (TCR_EL1.A1 is 0; Arm
    /// ARM D8.2).
    #[inline]
    pub(crate) fn root_for(&self, isa: IsaKind, va: VirtAddr) -> Option<Root> {
        match (isa, va.raw() >> self.half_bits) {
            (_, 0) | (IsaKind::Aarch64, 1) => self.root.get(),
            _ => self.upper_root(isa, va),
        }
    }

    #[cold]
    fn upper_root(&self, isa: IsaKind, va: VirtAddr) -> Option<Root> {
        match isa {
            IsaKind::X86_64 if va.raw() >> self.half_bits == u64::MAX >> self.half_bits => self.root.get(),
            IsaKind::Aarch64 if va.raw() >> 48 == 0xffff => {
                let (table, id) = self.kernel_root.get()?;
                let tag = self.root.get().map_or(Tag::new(0), |root| root.kernel_tag);
                Some(Root { table, tag, kernel_tag: tag, id })
            }
            IsaKind::X86_64 | IsaKind::Aarch64 => None,
        }
    }

    pub(crate) fn new(config: &MachineConfig) -> Self {
        Self {
            tlbs: RefCell::new(Tlbs::new(&config.profile.geometry, config.top())),
            half_bits: if config.five_levels { 56 } else { 47 },
            root: Cell::new(None),
            kernel_root: Cell::new(None),
            lazy: Cell::new(false),
            clock: Cell::new(Picos::ZERO),
            events: Events::new(),
            acked_at: Cell::new(Picos::ZERO),
            idle_relaxes: Cell::new(0),
            incomplete_tlbis: Cell::new(0),
            deferred_tlbis: Cell::new(0),
            tlbis_complete_at: Cell::new(Picos::ZERO),
            interrupts_off: Cell::new(0),
            lockless_walk: RefCell::new(Vec::new()),
            held: Cell::new(RankSet::EMPTY),
            in_flight: CpuInFlight::default(),
        }
    }

    /// Begins a section with interrupts disabled, which may be in another one.
    #[inline]
    pub(crate) fn disable_interrupts(&self) {
        self.interrupts_off.set(self.interrupts_off.get() + 1);
    }

    /// Ends the innermost such section.
    #[inline]
    pub(crate) fn restore_interrupts(&self) {
        self.interrupts_off.set(self.interrupts_off.get() - 1);
        if self.interrupts_off.get() == 0 {
            self.lockless_walk.borrow_mut().clear();
        }
    }

    #[inline]
    pub(crate) fn clock(&self) -> Picos {
        self.clock.get()
    }

    /// Advances the clock by `time`.
    #[inline]
    pub(crate) fn spend(&self, time: Picos) {
        self.clock.set(self.clock.get() + time);
    }

    /// Advances the clock by `cost`.
    #[inline]
    pub(crate) fn pay(&self, costs: &Costs, cost: Cost) {
        self.spend(costs.of(cost));
    }

    /// Advances the clock to `moment`, unless it is past it.
    pub(crate) fn wait_until(&self, moment: Picos) {
        self.clock.set(self.clock.get().max(moment));
    }

    /// Waits until `moment` for other CPUs to flush.
    pub(crate) fn wait_for_flush(&self, moment: Picos) {
        self.events.add(MachineEvent::FlushWaitTime, moment.since(self.clock()).raw());
        self.wait_until(moment);
    }

    /// Counts one flush attempt on all TLBs of the CPU, and the entries that it dropped.
    pub(crate) fn count_flush(&self, lost: u64) {
        self.events.add(MachineEvent::DtlbFlushes, 1);
        self.events.add(MachineEvent::StlbFlushes, 1);
        self.events.add(MachineEvent::ItlbFlushes, 1);
        self.events.add(MachineEvent::EntriesLost, lost);
    }
}
