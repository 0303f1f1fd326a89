//! Advice that the program will not access pages soon (`Cold`, `PageOut`).

use super::{Advice, Walk};
use crate::error::MmError;
use crate::mm::Mm;
use crate::space::Space;
use pagewright_sync::Platform;
use pagewright_types::PageRange;

impl<P: Platform> Mm<P> {
    /// Does `act` to each part of a range that is mapped.
    ///
    /// The `map` lock is not held meanwhile, because reclaim acquires the locks of all spaces that
    /// map a page.
    pub(super) fn advise_reclaim(
        &self,
        space: &Space<P>,
        range: PageRange,
        advice: Advice,
        act: impl Fn(PageRange),
    ) -> Result<(), MmError> {
        let mut walk = Walk::over(range);
        while let Some(part) = walk.next_unlocked(space, advice, |_, _, part| part)? {
            act(part);
        }
        walk.finish()
    }
}
