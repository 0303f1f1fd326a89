//! `MADV_POPULATE_READ` and `MADV_POPULATE_WRITE` (`madvise_populate`, `faultin_page_range`).

use super::Advice;
use crate::error::{FaultError, MmError};
use crate::fault::{FaultRequest, PreclearedPages};
use crate::mm::Mm;
use crate::space::Space;
use pagewright_sync::Platform;
use pagewright_types::{Access, PageRange, Rights};

impl<P: Platform> Mm<P> {
    /// Faults in every page of `range`.
    ///
    /// Unlike an access, it does not grow stacks, and it requires the right itself, not one that
    /// implies it.
    ///
    /// # Errors
    /// [`MmError::NotMapped`] at an unmapped page, [`MmError::AdviceNotApplicable`] where the
    /// mapping lacks the right, [`MmError::Inaccessible`] where the program would get a signal. The
    /// pages before stay mapped.
    pub(super) fn madvise_populate(
        &self,
        space: &Space<P>,
        range: PageRange,
        advice: Advice,
        access: Access,
    ) -> Result<(), MmError> {
        let needed = if access == Access::Write { Rights::WRITE } else { Rights::READ };
        let precleared = PreclearedPages::for_pages(self, range.pages());
        for at in range.iter() {
            self.cond_resched();
            {
                let map = space.map().read();
                let Some((_, vma)) = map.find(at) else { return Err(MmError::NotMapped { at }) };
                if !vma.rights().contains(needed) {
                    return Err(MmError::AdviceNotApplicable { at, advice });
                }
                if self.is_populated(&map, at, access) {
                    continue;
                }
            }
            let request = FaultRequest::populate(at, access, PreclearedPages::as_source(&precleared));
            self.fault_counted(space, request).map_err(|error| match error {
                FaultError::NotMapped { .. } => MmError::NotMapped { at },
                FaultError::NotAllowed { .. } => MmError::AdviceNotApplicable { at, advice },
                FaultError::Guarded { .. } | FaultError::PastEnd { .. } | FaultError::Device { .. } => {
                    MmError::Inaccessible { va: at }
                }
                FaultError::TooManyHolders { .. } | FaultError::OutOfMemory(_) => error.into(),
            })?;
        }
        Ok(())
    }
}
