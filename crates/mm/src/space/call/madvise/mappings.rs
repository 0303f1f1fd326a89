//! Advice that sets flags of the mapping (`madvise_update_vma`).

use super::{Advice, Walk, check};
use crate::error::MmError;
use crate::mm::Mm;
use crate::space::{HeldMap, Space, VmFlags};
use pagewright_sync::Platform;
use pagewright_types::PageRange;

impl<P: Platform> Mm<P> {
    /// Gives each mapping of a range the flags that `flags` makes of its own.
    pub(super) fn advise_mappings(
        &self,
        space: &Space<P>,
        range: PageRange,
        advice: Advice,
        flags: impl Fn(VmFlags) -> VmFlags,
    ) -> Result<(), MmError> {
        let mut map = space.map().write();
        let mut walk = Walk::over(range);
        while let Some((vma, _, part)) = walk.next(&map) {
            check(vma, part.start(), advice)?;
            // Linux returns EAGAIN for a failed split, because ENOMEM means an unmapped page here.
            self.set_advised_flags(&mut map, part, &flags).map_err(|_| MmError::CannotSplit { at: part.start() })?;
        }
        walk.finish()
    }

    /// Sets the flags of `part`, which is in one mapping; splits the mapping and merges the part.
    fn set_advised_flags(
        &self,
        map: &mut HeldMap<'_, P>,
        part: PageRange,
        flags: impl Fn(VmFlags) -> VmFlags,
    ) -> Result<(), MmError> {
        let changes = map.find(part.start()).is_some_and(|(_, vma)| flags(vma.flags()) != vma.flags());
        if !changes {
            return Ok(());
        }
        self.reserve_splits(map, part, |_| true)?;
        map.update_flags(part, |vma| flags(vma.flags()));
        Ok(())
    }
}
