//! Stacks that grow down when touched below (`expand_stack`).

use super::Space;
use super::vma::STACK_GUARD_PAGES;
use crate::mm::Mm;
use pagewright_sync::Platform;
use pagewright_types::{PAGE_SIZE, VirtAddr};

impl<P: Platform> Mm<P> {
    /// Sets how far a stack of the space may grow, in bytes (`RLIMIT_STACK`).
    pub fn set_stack_limit(&self, space: &Space<P>, bytes: u64) {
        space.map().write().stack_limit = bytes;
    }

    /// Grows the mapping above `va` down to it, if it is one that grows. Returns whether `va` is mapped now.
    pub(crate) fn grow_stack(&self, space: &Space<P>, va: VirtAddr) -> bool {
        let mut map = space.map().write();
        let page = va.page_index();
        let Some((start, vma)) = map.find_or_after(va) else { return false };
        if start <= page {
            // Somebody grew it meanwhile.
            return true;
        }
        let end = vma.end();
        if !vma.grows_down() || (end - page) * PAGE_SIZE > map.stack_limit {
            return false;
        }
        let too_near = map.before(start).is_some_and(|(_, below)| {
            // A stack may come down on another stack, or on a mapping without rights that was put there to stop it.
            page < below.end() + STACK_GUARD_PAGES && !below.grows_down() && !below.rights().is_empty()
                || page < below.end()
        });
        if too_near {
            return false;
        }
        map.grow_down(start, page);
        true
    }
}
