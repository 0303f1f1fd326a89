//! Advice that pages will not be missed.

use super::{Advice, Walk, check};
use crate::error::MmError;
use crate::mm::Mm;
use crate::space::Space;
use pagewright_sync::Platform;
use pagewright_types::PageRange;

impl<P: Platform> Mm<P> {
    /// `Cold` and `PageOut`, mapping by mapping.
    ///
    /// The space is let go in between, as pages are taken from all who map them.
    pub(in crate::space) fn advise_reclaim(
        &self,
        space: &Space<P>,
        range: PageRange,
        advice: Advice,
    ) -> Result<(), MmError> {
        let mut walk = Walk::over(range);
        loop {
            let part = {
                let map = space.map().read();
                let Some((vma, _, part)) = walk.next(&map) else { break };
                check(vma, part.start(), advice)?;
                part
            };
            if advice == Advice::Cold {
                self.deactivate_range(space, part);
            } else {
                self.page_out_range(space, part);
            }
        }
        walk.finish()
    }
}
