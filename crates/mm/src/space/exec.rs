//! Where the parts of the program lie: what `execve` knows, and only views ask for.

use crate::mm::Mm;
use crate::space::Space;
use pagewright_sync::Platform;
use pagewright_types::{PageRange, VirtAddr};

impl<P: Platform> Mm<P> {
    /// Sets where the program's own code lies (`mm->start_code`, `end_code`): what `VmExe` counts
    /// and `VmLib` does not.
    pub fn set_code(&self, space: &Space<P>, code: PageRange) {
        space.map().write().code = code;
    }

    /// Sets where the first stack began (`mm->start_stack`): the mapping around it is the one
    /// called `[stack]`.
    pub fn set_stack_start(&self, space: &Space<P>, start: VirtAddr) {
        space.map().write().stack_start = start;
    }
}
