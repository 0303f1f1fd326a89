//! Counting faults (`mm_account_fault`).
//!
//! Every fault counts once when it has ended, however often it started over: one of an access, one
//! of a copy to or from user memory, and one that a call takes to populate a mapping or to take a
//! page. `pgfault` includes faults that failed. An access that the mapping refuses is no fault
//! (`bad_area`, `check_vma_flags`).
//!
//! Linux counts for the task that takes the fault, also in the memory of another process.
//! [`Mm::faults_of_this_cpu`] tells the embedder, which knows the task.

use super::{FaultKind, FaultRequest};
use crate::error::FaultError;
use crate::mm::Mm;
use crate::space::Space;
use pagewright_sync::Platform;
use pagewright_types::Counter;

/// Faults that were served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Those that waited for no device (`min_flt`).
    pub minor: u64,
    /// Those that waited for a device (`maj_flt`).
    pub major: u64,
}

impl<P: Platform> Mm<P> {
    /// Returns the number of faults that this CPU has served since boot, in all spaces.
    ///
    /// The difference over the time that a task runs on the CPU is the task's (`ru_minflt`,
    /// `ru_majflt`).
    pub fn faults_of_this_cpu(&self) -> FaultCounts {
        let (counters, cpu) = (self.frames().counters(), self.fx().cpu());
        let of = |counter| counters.of(cpu, counter);
        let major = of(Counter::PgMajFault);
        FaultCounts { minor: of(Counter::PgFault) - of(Counter::PwFailedFault) - major, major }
    }

    /// Serves a fault within a call, and counts it.
    pub(crate) fn fault_counted(&self, space: &Space<P>, request: FaultRequest<'_>) -> Result<FaultKind, FaultError> {
        let served = self.fault_in(space, request);
        match &served {
            Ok(kind) => {
                self.tlb.count(Counter::PgFault, 1);
                space.count_fault(self.fx().cpu(), *kind);
                if *kind == FaultKind::Major {
                    self.tlb.count(Counter::PgMajFault, 1);
                }
            }
            Err(error) => self.count_failed_fault(error),
        }
        served
    }

    #[cold]
    fn count_failed_fault(&self, error: &FaultError) {
        match error {
            FaultError::NotMapped { .. } | FaultError::NotAllowed { .. } => return,
            FaultError::OutOfMemory(_) => self.tlb.count(Counter::OomKill, 1),
            FaultError::Guarded { .. }
            | FaultError::PastEnd { .. }
            | FaultError::Device { .. }
            | FaultError::TooManyHolders { .. } => {}
        }
        self.tlb.count(Counter::PgFault, 1);
        self.tlb.count(Counter::PwFailedFault, 1);
    }
}
