//! Advice that the program will not access pages soon (`Cold`, `PageOut`).

use super::{Advice, Walk};
use crate::error::MmError;
use crate::mm::Mm;
use crate::space::Space;
use pagewright_sync::Platform;
use pagewright_types::PageRange;

impl<P: Platform> Mm<P> {
    /// Applies `Cold` or `PageOut`, mapping by mapping.
    ///
    /// The `map` lock is not held meanwhile, because reclaim acquires the locks of all spaces that
    /// map a page.
    pub(super) fn advise_reclaim(&self, space: &Space<P>, range: PageRange, advice: Advice) -> Result<(), MmError> {
        let mut walk = Walk::over(range);
        while let Some(part) = walk.next_unlocked(space, advice, |_, _, part| part)? {
            if advice == Advice::Cold {
                self.deactivate_range(space, part);
            } else {
                self.page_out_range(space, part);
            }
        }
        walk.finish()
    }
}
