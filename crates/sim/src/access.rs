//! A program's access to memory: the TLBs, then a walk, then a fault.
//!
//! This is the inner loop of a replay. A first-level hit costs the host two compares and a few
//! additions. `times` accesses to one page cost one lookup, because nothing happens between them.
//!
//! Rules that differ between instruction sets:
//! - A fault on x86-64 drops the entries cached for the address (SDM vol. 3A §4.10.4.1), so a retry
//!   reads the tables. On arm64 a fault drops nothing: an entry that cannot translate is never
//!   cached (Arm ARM D8.16.1), and a translation whose *rights* refuse the access stays until it is
//!   invalidated.
//! - perf's `…-misses` (see [`crate::event`]).

use crate::core::{Core, Root};
use crate::cost::{Cost, Costs};
use crate::event::MachineEvent;
use crate::machine::Sim;
use crate::node_memory::NodeMemory;
use crate::tlb::{Depth, Side, TlbHit, Tlbs};
use crate::walk::{WalkPosition, WalkStep};
use pagewright_arch::Isa;
use pagewright_types::{Access, CpuId, IsaKind, Level, Pfn, Tag, VirtAddr};
use std::fmt;

/// The page that an access reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translation {
    /// The frame of the base page that was accessed.
    pub pfn: Pfn,
    /// The level of the entry that maps it.
    pub level: Level,
}

/// An access that the MMU refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageFault {
    /// The address (CR2, FAR_EL1).
    pub va: VirtAddr,
    /// The access that was refused.
    pub access: Access,
    /// Whether a translation or an entry was present and refused the access.
    ///
    /// It is bit 0 of the x86-64 error code, or a permission fault on arm64.
    pub present: bool,
    /// Whether it is a TLB Conflict abort: the TLB held conflicting translations (arm64).
    pub conflict: bool,
}

impl fmt::Display for PageFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match (self.conflict, self.present) {
            (true, _) => "aborted by a TLB conflict",
            (false, true) => "not allowed",
            (false, false) => "not mapped",
        };
        write!(f, "{} of {} {why}", self.access, self.va)
    }
}

impl<I: Isa> Sim<I> {
    /// Makes `times` accesses to the page of `va` on `cpu`, in user mode.
    ///
    /// In the [`MachineConfig::kernel_range`](crate::MachineConfig::kernel_range) the kernel makes
    /// them.
    ///
    /// # Errors
    /// [`PageFault`]: no access was made, and the clock has advanced by the walk and the exception.
    /// The caller handles the fault.
    ///
    /// # Panics
    /// When the machine has no such CPU, or a table entry points to a frame without memory.
    pub fn access(&self, cpu: CpuId, va: VirtAddr, access: Access, times: u64) -> Result<Translation, PageFault> {
        if self.0.watched.get() {
            return self.access_watched(cpu, va, access, times);
        }
        let core = self.core(cpu);
        let mut mmu = Mmu::new(self, core, va, access);
        match mmu.translate() {
            Ok(hit) => Ok(self.accessed(cpu, va, access, times, hit)),
            Err(present) => Err(self.refused(core, va, access, present)),
        }
    }

    /// [`Sim::access`] under a judge, or while schedules are explored.
    #[inline(never)]
    fn access_watched(&self, cpu: CpuId, va: VirtAddr, access: Access, times: u64) -> Result<Translation, PageFault> {
        debug_assert!(self.0.online.get().contains(cpu), "CPU {cpu} accesses memory and is offline");
        if self.0.exploring.get() {
            return self.access_in_steps(cpu, va, access, times);
        }
        let core = self.core(cpu);
        let mut mmu = Mmu::new(self, core, va, access);
        match mmu.translate() {
            Ok(hit) => {
                let found = self.accessed(cpu, va, access, times, hit);
                self.judge_access(cpu, va, access, found, !mmu.walked);
                Ok(found)
            }
            Err(present) => Err(self.refused(core, va, access, present)),
        }
    }

    /// Makes `times` accesses through `hit`.
    #[inline]
    pub(crate) fn accessed(&self, cpu: CpuId, va: VirtAddr, access: Access, times: u64, hit: TlbHit) -> Translation {
        let core = self.core(cpu);
        let count = match access {
            Access::Read => MachineEvent::DtlbLoads,
            Access::Write => MachineEvent::DtlbStores,
            Access::Exec => MachineEvent::ItlbLoads,
        };
        core.events.add(count, times);
        core.spend(self.0.config.profile.costs.of(Cost::Access) * times);
        let level = hit.key.level();
        let within = va.page_index() & (level.pages() - 1);
        let pfn = hit.entry.pfn().add(within as u32);
        if let Some(memory) = &self.0.node_memory {
            self.reach_node(memory, cpu, pfn, access, times);
        }
        Translation { pfn, level }
    }

    /// Counts and charges the memory of `times` loads or stores on a machine with several nodes.
    fn reach_node(&self, memory: &NodeMemory, cpu: CpuId, pfn: Pfn, access: Access, times: u64) {
        let (all, misses) = match access {
            Access::Read => (MachineEvent::NodeLoads, MachineEvent::NodeLoadMisses),
            Access::Write => (MachineEvent::NodeStores, MachineEvent::NodeStoreMisses),
            // Instructions come from caches, which are not modelled, so nearly all fetches hit.
            Access::Exec => return,
        };
        let core = self.core(cpu);
        let (time, is_local) = memory.access(cpu, pfn, access == Access::Write, times);
        core.spend(time);
        core.events.add(all, times);
        core.events.add(misses, if is_local { 0 } else { times });
    }

    /// Counts and charges a fault, and returns it.
    pub(crate) fn refused(&self, core: &Core, va: VirtAddr, access: Access, present: bool) -> PageFault {
        core.events.add(MachineEvent::FaultsRaised, 1);
        core.pay(&self.0.config.profile.costs, Cost::Exception);
        PageFault { va, access, present, conflict: false }
    }
}

/// One access in progress.
struct Mmu<'a, I> {
    sim: &'a Sim<I>,
    core: &'a Core,
    costs: &'a Costs,
    va: VirtAddr,
    access: Access,
    /// Whether the tables were walked.
    walked: bool,
}

/// The access was refused; the value says whether the entry was present.
type Refused = bool;

impl<'a, I: Isa> Mmu<'a, I> {
    #[inline]
    fn new(sim: &'a Sim<I>, core: &'a Core, va: VirtAddr, access: Access) -> Self {
        Self { sim, core, costs: &sim.0.config.profile.costs, va, access, walked: false }
    }

    /// Translates the address.
    ///
    /// It is inlined into its two callers: a call would add a third to the time of a first-level
    /// hit.
    #[inline(always)]
    fn translate(&mut self) -> Result<TlbHit, Refused> {
        let Some(root) = self.core.root_for(I::KIND, self.va) else { return Err(false) };
        let mut tlbs = self.core.tlbs.borrow_mut();
        let hit = match tlbs.find(Depth::First, Side::of(self.access), root.tag, self.va) {
            Some(hit) => hit,
            None => self.miss(&mut tlbs, root)?,
        };
        if !hit.entry.rights().allow(self.access) {
            self.drop_on_fault(&mut tlbs, root.tag);
            return Err(true);
        }
        if self.access == Access::Write && !hit.entry.dirty() {
            self.core.events.add(MachineEvent::DirtyWalks, 1);
            return self.walk(&mut tlbs, root);
        }
        Ok(hit)
    }

    /// Handles a first-level miss: looks in the second level, and then walks the tables.
    #[inline(never)]
    fn miss(&mut self, tlbs: &mut Tlbs, root: Root) -> Result<TlbHit, Refused> {
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

    /// Walks all levels at once and fills the TLBs and walk caches.
    #[inline(never)]
    fn walk(&mut self, tlbs: &mut Tlbs, root: Root) -> Result<TlbHit, Refused> {
        self.walked = true;
        self.sim.evict_at_random_rate(tlbs);
        let events = &self.core.events;
        events.add(MachineEvent::PageWalks, 1);
        let started = self.core.clock();
        self.core.pay(self.costs, Cost::WalkStart);
        let mut walk = match tlbs.walk_start(root.tag, self.va) {
            Some(walk) => {
                self.core.pay(self.costs, Cost::WalkCacheHit);
                walk
            }
            None => WalkPosition::from_root(root.table, self.sim.0.config.top()),
        };
        let mode = (I::KIND, self.sim.0.config.privilege_at(self.va));
        let result = loop {
            events.add(MachineEvent::WalkReads, 1);
            self.core.pay(self.costs, Cost::WalkRead);
            let step = walk.step(mode, &self.sim.0.ram, self.va, self.access);
            self.sim.record_walked(root, self.va, walk, step);
            match step {
                WalkStep::Down { next, updated } => {
                    self.pay_update(updated);
                    tlbs.fill_walk_cache(root, self.va, walk.level, next);
                    walk = next;
                }
                WalkStep::Again => {}
                WalkStep::Arrived { found, updated } => {
                    self.pay_update(updated);
                    break Ok(tlbs.fill_from_walk(Side::of(self.access), root, self.va, found));
                }
                WalkStep::Refused { present } => {
                    self.drop_on_fault(tlbs, root.tag);
                    break Err(present);
                }
            }
        };
        events.add(MachineEvent::WalkTime, self.core.clock().since(started).raw());
        result
    }

    fn pay_update(&self, updated: bool) {
        if updated {
            self.core.pay(self.costs, Cost::WalkUpdate);
        }
    }

    fn drop_on_fault(&self, tlbs: &mut Tlbs, tag: Tag) {
        drop_on_fault(I::KIND, tlbs, tag, self.va);
    }
}

/// Drops the entries that a fault at `va` invalidates.
///
/// On x86-64 these are the entries cached for the address; on arm64 there are none.
pub(crate) fn drop_on_fault(isa: IsaKind, tlbs: &mut Tlbs, tag: Tag, va: VirtAddr) {
    match isa {
        IsaKind::X86_64 => {
            tlbs.drop_page(tag, va, None, true);
            tlbs.drop_walk_caches_of(tag, va);
        }
        IsaKind::Aarch64 => {}
    }
}
