//! Declarations of facts to a judge of the machine's translations (`pagewright_types::judge`).
//!
//! Two of the four facts are declared here; the allocator declares those about frames.
//!
//! - [`Mm::call`] wraps every public call and fault. It declares that the call returns on this CPU,
//!   successful or not. A call that needs another one (to populate, to drop shared memory, to end
//!   the child of a failed fork) uses the inner function without this wrapper, because only the
//!   outermost call returns to the caller.
//! - [`Mm::declare_reduced`] is called before an operation stores the first entry that loses a
//!   right. [`Mm::zap`] calls it for all that is unmapped or discarded. Operations that change
//!   single leaves call it themselves: copy-on-write, fork, `mprotect`, `mremap`, guards,
//!   `clear_refs`, writeback, reclaim.
//!
//! Neighbours: uses `space`; every operation that edits leaves uses this module.
//!
//! Not declared: the end of a space. Its root is freed when the call returns, so a judge cannot
//! read what its tables allow. Stale translations of its pages are found when the frames are
//! reused.

use crate::mm::Mm;
use crate::space::Space;
use pagewright_sync::Platform;
use pagewright_types::judge::Fact;
use pagewright_types::{PageRange, Rights};

impl<P: Platform> Mm<P> {
    /// Executes a call or a fault, and declares that it returns.
    #[inline]
    pub(crate) fn call<T>(&self, body: impl FnOnce() -> T) -> T {
        let result = body();
        self.fx().declare(Fact::CallReturned);
        result
    }

    /// Declares that `range` has only the rights `left` when the present call returns.
    #[inline]
    pub(crate) fn declare_reduced(&self, space: &Space<P>, range: PageRange, left: Rights) {
        self.fx().declare(Fact::RightReduced { root: space.table().root(), range, left });
    }
}
