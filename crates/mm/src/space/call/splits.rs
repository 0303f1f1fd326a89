//! What the calls that change mappings of a range do before the first change.
//!
//! `mprotect`, `mlock`, `mbind`, `mseal`, and advice that sets flags of a mapping may cut a mapping
//! at each end of their range, and edit entries of this space alone.

use crate::error::MmError;
use crate::mm::Mm;
use crate::settings::MmSetting;
use crate::space::{HeldMap, Vma};
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_types::{PageRange, VirtAddr};

impl<P: Platform> Mm<P> {
    /// Makes the two splits at the ends of `range` infallible, and breaks its shared tables.
    ///
    /// `changes` returns whether the caller will change a mapping; others are not split, and keep
    /// huge leaves that an end cuts. An empty range cuts nothing.
    ///
    /// # Errors
    /// [`MmError::TooManyMappings`], or the memory for splits.
    pub(in crate::space) fn reserve_splits(
        &self,
        map: &mut HeldMap<'_, P>,
        range: PageRange,
        changes: impl Fn(&Vma<P>) -> bool,
    ) -> Result<(), MmError> {
        if plant!(SplitsForNothing; false, range.is_empty()) {
            return Ok(());
        }
        let limit = self.settings.get(MmSetting::MaxMapCount);
        let cut = |at: VirtAddr| map.find(at).is_some_and(|(start, vma)| start != at.page_index() && changes(vma));
        let ends = [range.start(), range.end()].map(|at| cut(at).then_some(at));
        let splits = ends.iter().flatten().count();
        if splits > 0 && map.len() as u64 + splits as u64 > limit {
            return Err(MmError::TooManyMappings { limit });
        }
        map.reserve(self, 2)?;
        self.own_tables(map.tables(&self.tlb), range)?;
        ends.into_iter().flatten().for_each(|at| self.split_huge_leaf_across(map, map.tables(&self.tlb), at));
        Ok(())
    }
}
