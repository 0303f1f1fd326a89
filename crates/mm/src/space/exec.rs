//! The ranges of a program, which `execve` sets and `/proc` shows.

use crate::mm::Mm;
use crate::space::Space;
use pagewright_sync::Platform;
use pagewright_types::{PageRange, VirtAddr};

impl<P: Platform> Mm<P> {
    /// Sets the range of the program's own code (`mm->start_code`, `end_code`).
    ///
    /// `VmExe` counts this code, `VmLib` the rest.
    pub fn set_code(&self, space: &Space<P>, code: PageRange) {
        space.map().write().code = code;
    }

    /// Sets the initial stack pointer (`mm->start_stack`).
    ///
    /// `/proc/PID/maps` calls the mapping that contains it `[stack]`.
    pub fn set_stack_start(&self, space: &Space<P>, start: VirtAddr) {
        space.map().write().stack_start = start;
    }
}
