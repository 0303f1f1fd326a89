//! A program's access to memory: the TLBs, then a walk, then a fault.
//!
//! This is the replayer's inner loop. A first-level hit costs two compares and a few additions;
//! `times` accesses to one page cost one lookup, because nothing could come between them.
//!
//! Rules that differ between instruction sets:
//! - A fault on x86-64 drops what the CPU remembers of the address (SDM vol. 3A §4.10.4.1), so a
//!   retry sees the tables. On arm64 only entries that cannot translate are never cached (Arm ARM
//!   D8.16.1); a translation whose *rights* refused the access stays until somebody invalidates it.
//! - perf's `…-misses` (see [`crate::event`]).

use crate::core::{Core, Root};
use crate::cost::{Cost, Costs};
use crate::event::MachineEvent;
use crate::machine::Sim;
use crate::tlb::{Depth, Hit, Side, Tlbs};
use crate::walk::{Walk, WalkStep};
use pagewright_arch::Isa;
use pagewright_types::{Access, CpuId, IsaKind, Level, Pfn, Tag, VirtAddr};
use std::fmt;

/// Where an access went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translation {
    /// The frame of the base page that was accessed.
    pub pfn: Pfn,
    /// Level of the entry that maps it.
    pub level: Level,
}

/// An access that the MMU refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageFault {
    /// The address (CR2, FAR_EL1).
    pub va: VirtAddr,
    /// What was tried.
    pub access: Access,
    /// Whether something was mapped there and refused the access, as far as the CPU knew (error
    /// code bit 0; a permission fault).
    pub present: bool,
}

impl fmt::Display for PageFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = if self.present { "not allowed" } else { "not mapped" };
        write!(f, "{} of {} {why}", self.access, self.va)
    }
}

/// Addresses are 48 bits wide. x86-64 has both halves under one root; on arm64 this machine has
/// TTBR0_EL1's half alone.
#[inline]
pub(crate) fn has_tables(isa: IsaKind, va: VirtAddr) -> bool {
    match isa {
        IsaKind::X86_64 => (va.raw() as i64) << 16 >> 16 == va.raw() as i64,
        IsaKind::Aarch64 => va.raw() >> 48 == 0,
    }
}

impl<I: Isa> Sim<I> {
    /// Makes `times` accesses in user mode to the page of `va` on `cpu`.
    ///
    /// # Errors
    /// [`PageFault`]; then none of them was made, and the CPU has paid for the walk and the
    /// exception. The caller is the handler.
    ///
    /// # Panics
    /// When there is no such CPU, or a table entry points where there is no memory.
    pub fn access(&self, cpu: CpuId, va: VirtAddr, access: Access, times: u64) -> Result<Translation, PageFault> {
        if self.0.watched.get() {
            return self.access_watched(cpu, va, access, times);
        }
        let core = self.core(cpu);
        let mut mmu = Mmu::new(self, core, va, access);
        match mmu.translate() {
            Ok(hit) => Ok(self.accessed(core, va, access, times, hit)),
            Err(present) => Err(self.refused(core, va, access, present)),
        }
    }

    /// [`Sim::access`] under a judge, or while schedules are explored.
    #[inline(never)]
    fn access_watched(&self, cpu: CpuId, va: VirtAddr, access: Access, times: u64) -> Result<Translation, PageFault> {
        debug_assert!(self.0.online.get().contains(cpu), "CPU {cpu} makes an access and has gone");
        if self.0.exploring.get() {
            return self.access_by_steps(cpu, va, access, times);
        }
        let core = self.core(cpu);
        let mut mmu = Mmu::new(self, core, va, access);
        match mmu.translate() {
            Ok(hit) => {
                let found = self.accessed(core, va, access, times, hit);
                self.judge_access(cpu, va, access, found, !mmu.walked);
                Ok(found)
            }
            Err(present) => Err(self.refused(core, va, access, present)),
        }
    }

    /// `times` accesses through `hit` are made.
    #[inline]
    pub(crate) fn accessed(&self, core: &Core, va: VirtAddr, access: Access, times: u64, hit: Hit) -> Translation {
        let count = match access {
            Access::Read => MachineEvent::DtlbLoads,
            Access::Write => MachineEvent::DtlbStores,
            Access::Exec => MachineEvent::ItlbLoads,
        };
        core.events.add(count, times);
        core.spend(self.0.config.profile.costs.of(Cost::Access) * times);
        let level = hit.key.level();
        let within = va.page_index() & (level.pages() - 1);
        Translation { pfn: hit.entry.pfn().add(within as u32), level }
    }

    /// The access faults.
    pub(crate) fn refused(&self, core: &Core, va: VirtAddr, access: Access, present: bool) -> PageFault {
        core.events.add(MachineEvent::FaultsRaised, 1);
        core.pay(&self.0.config.profile.costs, Cost::Exception);
        PageFault { va, access, present }
    }
}

/// One access on its way.
struct Mmu<'a, I> {
    sim: &'a Sim<I>,
    core: &'a Core,
    costs: &'a Costs,
    va: VirtAddr,
    access: Access,
    /// Whether the tables were asked.
    walked: bool,
}

/// Refused; whether the entry was present.
type Refused = bool;

impl<'a, I: Isa> Mmu<'a, I> {
    #[inline]
    fn new(sim: &'a Sim<I>, core: &'a Core, va: VirtAddr, access: Access) -> Self {
        Self { sim, core, costs: &sim.0.config.profile.costs, va, access, walked: false }
    }

    /// Inlined where it is used, twice: a call would cost a first-level hit a third of its time.
    #[inline(always)]
    fn translate(&mut self) -> Result<Hit, Refused> {
        let Some(root) = self.core.root.get() else { return Err(false) };
        if !has_tables(I::KIND, self.va) {
            return Err(false);
        }
        let mut tlbs = self.core.tlbs.borrow_mut();
        let hit = match tlbs.find(Depth::First, Side::of(self.access), root.tag, self.va) {
            Some(hit) => hit,
            None => self.miss(&mut tlbs, root)?,
        };
        if !hit.entry.rights().allow(self.access) {
            self.forget_refused(&mut tlbs, root.tag);
            return Err(true);
        }
        if self.access == Access::Write && !hit.entry.dirty() {
            self.core.events.add(MachineEvent::DirtyWalks, 1);
            return self.walk(&mut tlbs, root);
        }
        Ok(hit)
    }

    /// The first level has nothing: ask the second, then the tables.
    #[inline(never)]
    fn miss(&mut self, tlbs: &mut Tlbs, root: Root) -> Result<Hit, Refused> {
        let side = Side::of(self.access);
        if I::KIND == IsaKind::Aarch64 {
            self.count_miss();
        }
        if let Some(hit) = tlbs.find(Depth::Second, side, root.tag, self.va) {
            self.core.events.add(MachineEvent::L2TlbHits, 1);
            self.core.pay(self.costs, Cost::L2TlbHit);
            tlbs.fill(Depth::First, side, hit);
            return Ok(hit);
        }
        if I::KIND == IsaKind::X86_64 {
            self.count_miss();
        }
        self.walk(tlbs, root)
    }

    fn count_miss(&self) {
        let event = match self.access {
            Access::Read => MachineEvent::DtlbLoadMisses,
            Access::Write => MachineEvent::DtlbStoreMisses,
            Access::Exec => MachineEvent::ItlbLoadMisses,
        };
        self.core.events.add(event, 1);
    }

    /// Walks all levels at once and remembers what it found.
    #[inline(never)]
    fn walk(&mut self, tlbs: &mut Tlbs, root: Root) -> Result<Hit, Refused> {
        self.walked = true;
        self.sim.evict_by_chance(tlbs);
        let events = &self.core.events;
        events.add(MachineEvent::PageWalks, 1);
        let started = self.core.clock();
        self.core.pay(self.costs, Cost::WalkStart);
        let mut walk = match tlbs.start(root.tag, self.va) {
            Some(walk) => {
                self.core.pay(self.costs, Cost::WalkCacheHit);
                walk
            }
            None => Walk::from_root(root.table),
        };
        let outcome = loop {
            events.add(MachineEvent::WalkReads, 1);
            self.core.pay(self.costs, Cost::WalkRead);
            match walk.step(I::KIND, &self.sim.0.ram, self.va, self.access) {
                WalkStep::Down { next, updated } => {
                    self.pay_update(updated);
                    tlbs.remember_upper(root, self.va, walk.level, next);
                    walk = next;
                }
                WalkStep::Again => {}
                WalkStep::Arrived { found, updated } => {
                    self.pay_update(updated);
                    break Ok(tlbs.remember(Side::of(self.access), root, self.va, found));
                }
                WalkStep::Refused { present } => {
                    self.forget_refused(tlbs, root.tag);
                    break Err(present);
                }
            }
        };
        events.add(MachineEvent::WalkTime, self.core.clock().since(started).raw());
        outcome
    }

    fn pay_update(&self, updated: bool) {
        if updated {
            self.core.pay(self.costs, Cost::WalkUpdate);
        }
    }

    fn forget_refused(&self, tlbs: &mut Tlbs, tag: Tag) {
        forget_refused(I::KIND, tlbs, tag, self.va);
    }
}

/// What a fault does to what the CPU remembers.
pub(crate) fn forget_refused(isa: IsaKind, tlbs: &mut Tlbs, tag: Tag, va: VirtAddr) {
    match isa {
        IsaKind::X86_64 => {
            tlbs.drop_page(tag, va, None, true);
            tlbs.drop_uppers_of(tag, va);
        }
        IsaKind::Aarch64 => {}
    }
}
