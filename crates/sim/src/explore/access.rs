//! A program's access while schedules are explored: the walk is one of many things in flight, and
//! the CPU can be stopped before each of its steps.
//!
//! The access itself is made in the step that found its translation: nobody comes between the two.

use super::in_flight::Progress;
use super::point::StopPoint;
use crate::access::{PageFault, Translation, forget_refused, has_tables};
use crate::core::{Core, Root};
use crate::machine::Sim;
use crate::tlb::{Hit, Side};
use pagewright_arch::Isa;
use pagewright_types::{Access, CpuId, VirtAddr};

/// How a walk ended for the program that demanded it.
enum Walked {
    Found(Hit),
    Refused {
        present: bool,
    },
    /// Somebody invalidated what it held; ask the TLBs again.
    Cancelled,
}

impl<I: Isa> Sim<I> {
    /// [`Sim::access`], a step at a time.
    ///
    /// # Panics
    /// When `cpu` is not the CPU that runs.
    pub(crate) fn access_by_steps(
        &self,
        cpu: CpuId,
        va: VirtAddr,
        access: Access,
        times: u64,
    ) -> Result<Translation, PageFault> {
        let here = self.0.current.get();
        assert!(cpu == here, "CPU {here} makes an access for CPU {cpu} while schedules are explored");
        self.point(StopPoint::Access(va, access));
        self.0.in_flight.touched(va);
        let core = self.core(cpu);
        loop {
            let root = match core.root.get() {
                Some(root) if has_tables(I::KIND, va) => root,
                Some(_) | None => return Err(self.refused(core, va, access, false)),
            };
            if let Some(hit) = self.answer(core, Side::of(access), root, va) {
                if !hit.entry.rights().allow(access) {
                    forget_refused(I::KIND, &mut core.tlbs.borrow_mut(), root.tag, va);
                    return Err(self.refused(core, va, access, true));
                }
                if access != Access::Write || hit.entry.dirty() {
                    return Ok(self.accessed_by_steps(cpu, va, access, times, (hit, true)));
                }
            }
            match self.walk_by_steps(cpu, core, root, va, access) {
                Walked::Found(hit) => return Ok(self.accessed_by_steps(cpu, va, access, times, (hit, false))),
                Walked::Refused { present } => {
                    forget_refused(I::KIND, &mut core.tlbs.borrow_mut(), root.tag, va);
                    return Err(self.refused(core, va, access, present));
                }
                Walked::Cancelled => {}
            }
        }
    }

    /// Makes the accesses, through a translation that a TLB had or not.
    fn accessed_by_steps(
        &self,
        cpu: CpuId,
        va: VirtAddr,
        access: Access,
        times: u64,
        (hit, cached): (Hit, bool),
    ) -> Translation {
        let found = self.accessed(self.core(cpu), va, access, times, hit);
        if self.0.judged.get() {
            self.judge_access(cpu, va, access, found, cached);
        }
        found
    }

    fn walk_by_steps(&self, cpu: CpuId, core: &Core, root: Root, va: VirtAddr, access: Access) -> Walked {
        let serial = self.launch(core, root, va, access, true);
        loop {
            let Some(point) = self.point_of(core, serial) else { return Walked::Cancelled };
            self.point(point);
            match self.advance(cpu, core, serial) {
                Progress::More => {}
                Progress::Filled(hit) => return Walked::Found(hit),
                Progress::Refused { present } => return Walked::Refused { present },
                Progress::Cancelled => return Walked::Cancelled,
            }
        }
    }
}
