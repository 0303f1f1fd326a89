//! One CPU of the machine: its TLBs, its clock, its counts, and the registers that matter to
//! memory.
//!
//! The TLBs are borrowed for the length of one operation on them and never across a call out of
//! this crate; everything else is a plain cell. A clock moves by [`Core::spend`] and by waiting,
//! never otherwise (INV-SIM-CLOCK).

use crate::cost::Costs;
use crate::event::{Events, MachineEvent};
use crate::explore::CpuInFlight;
use crate::time::Picos;
use crate::tlb::{RootId, Tlbs};
use crate::{Cost, Profile};
use pagewright_sync::RankSet;
use pagewright_types::{Pfn, Tag};
use std::cell::{Cell, RefCell};

/// What the MMU translates with: CR3 and its PCID, or TTBR0_EL1 and its ASID.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Root {
    pub(crate) table: Pfn,
    /// The tag under which programs run.
    pub(crate) tag: Tag,
    /// The tag that is installed, and under which the kernel runs: the same, unless the machine is
    /// [`crate::MachineConfig::isolated`].
    pub(crate) kernel: Tag,
    pub(crate) id: RootId,
}

/// One CPU.
pub(crate) struct Core {
    pub(crate) tlbs: RefCell<Tlbs>,
    /// `None` until the first root is installed; an access before that finds nothing mapped.
    pub(crate) root: Cell<Option<Root>>,
    /// Whether a kernel thread runs here on whatever root is loaded, so that user mode makes no
    /// access. A judge alone asks.
    pub(crate) lazy: Cell<bool>,
    clock: Cell<Picos>,
    pub(crate) events: Events,
    /// When the last CPU that was interrupted answers; waited for in `relax`.
    pub(crate) answered_at: Cell<Picos>,
    /// `relax` calls since there was last something to wait for.
    pub(crate) idle_relaxes: Cell<u32>,
    /// Broadcast invalidations issued here and not completed.
    pub(crate) outstanding: Cell<u64>,
    /// Handlers running and sections without interrupts, one inside the other.
    pub(crate) closed: Cell<u32>,
    /// Ranks held while another CPU runs on the host thread.
    pub(crate) held: Cell<RankSet>,
    /// What is under way while schedules are explored.
    pub(crate) in_flight: CpuInFlight,
}

impl Core {
    pub(crate) fn new(profile: &Profile) -> Self {
        Self {
            tlbs: RefCell::new(Tlbs::new(&profile.geometry)),
            root: Cell::new(None),
            lazy: Cell::new(false),
            clock: Cell::new(Picos::ZERO),
            events: Events::new(),
            answered_at: Cell::new(Picos::ZERO),
            idle_relaxes: Cell::new(0),
            outstanding: Cell::new(0),
            closed: Cell::new(0),
            held: Cell::new(RankSet::EMPTY),
            in_flight: CpuInFlight::default(),
        }
    }

    #[inline]
    pub(crate) fn clock(&self) -> Picos {
        self.clock.get()
    }

    /// Passes `time`.
    #[inline]
    pub(crate) fn spend(&self, time: Picos) {
        self.clock.set(self.clock.get() + time);
    }

    /// Pays `cost` once.
    #[inline]
    pub(crate) fn pay(&self, costs: &Costs, cost: Cost) {
        self.spend(costs.of(cost));
    }

    /// Waits until `moment`, if it is still to come.
    pub(crate) fn wait_until(&self, moment: Picos) {
        self.clock.set(self.clock.get().max(moment));
    }

    /// Waits for other CPUs to drop translations, until `moment` if that is still to come.
    pub(crate) fn wait_for_flush(&self, moment: Picos) {
        self.events.add(MachineEvent::FlushWaitTime, moment.since(self.clock()).raw());
        self.wait_until(moment);
    }

    /// Counts one flush attempt, which reaches all TLBs of the CPU, and what it cost in entries.
    pub(crate) fn count_flush(&self, lost: u64) {
        self.events.add(MachineEvent::DtlbFlushes, 1);
        self.events.add(MachineEvent::StlbFlushes, 1);
        self.events.add(MachineEvent::ItlbFlushes, 1);
        self.events.add(MachineEvent::EntriesLost, lost);
    }
}
