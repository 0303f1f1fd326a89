//! The traits that an embedder implements beside [`Effects`]: how to wait, and which CPU runs.

use crate::line::{LineRef, LineState, LineUse};
use crate::linear_map::LinearMap;
use crate::rank::RankSet;
use pagewright_arch::Effects;
use pagewright_types::CpuId;

/// How locks wait.
///
/// The functions are static, because a lock has no handle to its machine. A kernel has one machine;
/// the lab keeps the current one per host thread.
pub trait Backend: 'static {
    /// What the machine keeps in each lock about its cache line; `()` if it prices no lines.
    type Line: LineState;

    /// Passes time while another CPU holds a lock (`cpu_relax`).
    ///
    /// Returns when the caller should check the lock again.
    fn pause();

    /// Marks a point where the interleaving with other CPUs matters, such as before a lock.
    ///
    /// A schedule explorer may switch CPUs here. Elsewhere it does nothing.
    #[inline]
    fn point() {}

    /// Reports that the running CPU has just used a line that other CPUs use, too.
    ///
    /// `name` is the rank of a lock, or says what the word counts. A release is reported before the
    /// lock is free. A machine that prices lines advances the CPU's clock here; elsewhere it does
    /// nothing.
    #[inline]
    fn line(line: LineRef<'_, Self::Line>, name: &'static str, used: LineUse) {
        let _ = (line, name, used);
    }

    /// The running CPU.
    fn cpu() -> CpuId;

    /// The ranks that the running CPU holds, or the running task if locks may sleep.
    ///
    /// Called in debug builds only.
    fn held() -> RankSet;

    /// Sets the value of [`Backend::held`] for this CPU or task.
    fn set_held(held: RankSet);
}

/// A machine and its locks, the type parameter of `frame`, `tlb`, `table` and `mm`.
pub trait Platform: Effects {
    /// How locks wait on the machine.
    type Locks: Backend;

    /// Where the machine's memory is mapped, so that the allocator can choose the clearing stores.
    ///
    /// With `None`, [`zero`](Effects::zero) clears frames.
    fn memory(&self) -> Option<&'static LinearMap> {
        None
    }
}
