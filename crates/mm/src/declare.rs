//! What is declared to whoever judges this machine's translations (`pagewright_types::judge`).
//!
//! Two of the four facts come from here; frames are declared by the allocator.
//!
//! - [`Mm::call`] is around every public call and fault: when it has come to its end on this CPU,
//!   however it ended, it has returned. Calls that calls make of one another (populating,
//!   forgetting shared memory, ending the child of a fork that failed) go to the inner functions,
//!   which have no such frame: only the outermost returns to somebody.
//! - [`Mm::declare_reduced`] stands before the first entry that takes a right is stored. [`Mm::zap`] has it
//!   for everything that is unmapped or dropped; besides, whatever changes leaves one by one has
//!   its own: copy-on-write, fork, `mprotect`, `mremap`, guards, `clear_refs`, write-back, reclaim.
//!
//! Neighbours: uses `space`; used by everything that edits leaves.
//!
//! Not guaranteed: a word about the end of a space. When it returns its root is gone, so that
//! nobody could say what the tables still allow; who reaches what it had is asked when its frames
//! are handed out again.

use crate::mm::Mm;
use crate::space::Space;
use pagewright_sync::Platform;
use pagewright_types::judge::Fact;
use pagewright_types::{PageRange, Rights};

impl<P: Platform> Mm<P> {
    /// Does what a call or a fault does, and declares that it returns.
    #[inline]
    pub(crate) fn call<T>(&self, body: impl FnOnce() -> T) -> T {
        let answer = body();
        self.fx().declare(Fact::CallReturned);
        answer
    }

    /// Declares that the call under way leaves no more than `left` of `range`.
    #[inline]
    pub(crate) fn declare_reduced(&self, space: &Space<P>, range: PageRange, left: Rights) {
        self.fx().declare(Fact::RightReduced { root: space.table().root(), range, left });
    }
}
