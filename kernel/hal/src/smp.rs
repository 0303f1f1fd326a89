//! The secondary CPUs from their start on, the same on both instruction sets.
//!
//! `arch::smp` starts one CPU after the other. Each calls [`join`] on its own stack.
//!
//! Not guaranteed: that a CPU goes offline.

use crate::arch;
use crate::report::ReportChannel;
use crate::time;
use core::fmt::Write;
use core::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use pagewright_types::CpuMask;

/// How long a start may take before the host is told, in ns.
const SLOW_START_NS: u64 = 10_000_000_000;

static STARTED: AtomicU16 = AtomicU16::new(1);
static RELEASED: AtomicBool = AtomicBool::new(false);

/// The CPUs that have started.
pub(crate) fn online() -> CpuMask {
    CpuMask::first(usize::from(STARTED.load(Ordering::Acquire)))
}

/// Whether a CPU has started; CPUs start in the order of their numbers.
pub(crate) fn has_started(cpu: usize) -> bool {
    usize::from(STARTED.load(Ordering::Acquire)) > cpu
}

/// Waits until a CPU has started.
///
/// It waits without a limit, because an emulated CPU starts when the host runs it. After
/// [`SLOW_START_NS`] the host is told, once, which CPU it waits for.
pub(crate) fn wait_for(cpu: usize) {
    let mut slow = Some(time::now_ns() + SLOW_START_NS);
    while !has_started(cpu) {
        if slow.is_some_and(|at| time::now_ns() >= at) {
            slow = None;
            let _ = writeln!(ReportChannel, "say CPU {cpu} has not started yet");
        }
        arch::pause();
    }
}

/// Lets the secondary CPUs run.
pub(crate) fn release_others() {
    RELEASED.store(true, Ordering::Release);
}

/// Marks the calling CPU as started, waits for [`release_others`], and runs the kernel.
pub(crate) fn join(cpu: u64) -> ! {
    STARTED.store(cpu as u16 + 1, Ordering::Release);
    while !RELEASED.load(Ordering::Acquire) {
        arch::pause();
    }
    crate::kernel::run()
}
