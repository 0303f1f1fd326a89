//! The access of a program in explore mode.
//!
//! The walk is in flight, and the CPU stops before each of its steps. The access is made in the
//! step that found its translation, so no other agent acts between the two.

use super::in_flight::{TlbAnswer, WalkProgress};
use super::point::StopPoint;
use crate::access::{PageFault, Translation, drop_on_fault};
use crate::core::{Core, Root};
use crate::machine::Sim;
use crate::tlb::{Side, TlbHit};
use crate::walk::WalkerMemory;
use pagewright_arch::Isa;
use pagewright_types::{Access, CpuId, VirtAddr};

/// How a demanded walk ended.
enum WalkOutcome {
    Found(TlbHit),
    Refused {
        present: bool,
    },
    /// An invalidation cancelled it; the access starts again with the TLBs.
    Cancelled,
}

impl<I: Isa> Sim<I> {
    /// [`Sim::access`] in explore mode, with a stop before each step.
    ///
    /// # Panics
    /// When `cpu` is not the running CPU.
    pub(crate) fn access_in_steps(
        &self,
        cpu: CpuId,
        va: VirtAddr,
        access: Access,
        times: u64,
    ) -> Result<Translation, PageFault> {
        let here = self.0.current.get();
        assert!(cpu == here, "CPU {here} accesses memory as CPU {cpu} while schedules are explored");
        self.stop_before(StopPoint::Access(va, access));
        self.0.in_flight.note_access(va.align_down(self.0.config.granule.bytes()));
        let made = self.access_after_stop(cpu, va, access, times);
        self.0.in_flight.seen.returned();
        match &made {
            Ok(found) => {
                let at = found.pfn.base().add(va.align_down(8).page_offset());
                self.seen(at.raw());
                self.seen(self.0.ram.load_entry(at));
            }
            Err(fault) => self.seen(u64::from(fault.present) | u64::from(fault.conflict) << 1),
        }
        made
    }

    fn access_after_stop(
        &self,
        cpu: CpuId,
        va: VirtAddr,
        access: Access,
        times: u64,
    ) -> Result<Translation, PageFault> {
        let core = self.core(cpu);
        loop {
            let Some(root) = core.root_for(I::KIND, va) else {
                return Err(self.refused(core, va, access, false));
            };
            let answer = match self.tlb_lookup(core, Side::of(access), root, va) {
                TlbAnswer::Translation(found) => found,
                TlbAnswer::ConflictAbort => {
                    return Err(PageFault { conflict: true, ..self.refused(core, va, access, true) });
                }
            };
            if let Some(hit) = answer {
                if !hit.entry.rights().allow(access) {
                    self.touch_dropped_on_fault(va);
                    drop_on_fault(I::KIND, &mut core.tlbs.borrow_mut(), root.tag, va);
                    return Err(self.refused(core, va, access, true));
                }
                if access != Access::Write || hit.entry.dirty() {
                    return Ok(self.accessed_in_steps(cpu, va, access, times, (hit, true)));
                }
            }
            match self.walk_in_steps(cpu, core, root, va, access) {
                WalkOutcome::Found(hit) => return Ok(self.accessed_in_steps(cpu, va, access, times, (hit, false))),
                WalkOutcome::Refused { present } => {
                    self.touch_dropped_on_fault(va);
                    drop_on_fault(I::KIND, &mut core.tlbs.borrow_mut(), root.tag, va);
                    return Err(self.refused(core, va, access, present));
                }
                WalkOutcome::Cancelled => {}
            }
        }
    }

    /// Makes `times` accesses through `hit`; `cached` says whether a TLB had it.
    fn accessed_in_steps(
        &self,
        cpu: CpuId,
        va: VirtAddr,
        access: Access,
        times: u64,
        (hit, cached): (TlbHit, bool),
    ) -> Translation {
        let found = self.accessed(cpu, va, access, times, hit);
        self.touch_accessed(found.pfn.base().add(va.page_offset()), access);
        if self.0.judged.get() {
            self.judge_access(cpu, va, access, found, cached);
        }
        found
    }

    fn walk_in_steps(&self, cpu: CpuId, core: &Core, root: Root, va: VirtAddr, access: Access) -> WalkOutcome {
        let serial = self.start_walk(core, root, va, access, true);
        loop {
            let Some(point) = self.walk_point(core, serial) else { return WalkOutcome::Cancelled };
            self.stop_before(point);
            match self.step_walk(cpu, core, serial) {
                WalkProgress::More => {}
                WalkProgress::Filled(hit) => return WalkOutcome::Found(hit),
                WalkProgress::Refused { present } => return WalkOutcome::Refused { present },
                WalkProgress::Cancelled => return WalkOutcome::Cancelled,
            }
        }
    }
}
