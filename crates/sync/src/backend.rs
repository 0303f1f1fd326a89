//! What an embedder supplies beside the effects on hardware: a way to wait, and the current CPU.

use crate::linear_map::LinearMap;
use crate::rank::RankSet;
use pagewright_arch::Effects;
use pagewright_types::CpuId;

/// How locks wait.
///
/// Static functions, because a lock has no handle to the machine it runs on: a kernel has one
/// machine, and the lab keeps the current one per host thread.
pub trait Backend: 'static {
    /// Passes time because a lock is held by another CPU.
    ///
    /// Returns when it is worth looking again.
    fn pause();

    /// Marks a moment at which another CPU's progress could matter: just before a lock is taken.
    ///
    /// A schedule explorer switches here; elsewhere it is nothing.
    #[inline]
    fn point() {}

    /// The CPU that runs.
    fn cpu() -> CpuId;

    /// The ranks that the running CPU (or task, where locks may sleep) holds.
    ///
    /// Asked in debug builds only.
    fn held() -> RankSet;

    /// Stores what [`Backend::held`] will return on this CPU or task.
    fn set_held(held: RankSet);
}

/// A machine and its locks: the type parameter of `frame`, `tlb`, `table` and `mm`.
pub trait Platform: Effects {
    /// How locks wait on this machine.
    type Locks: Backend;

    /// Where its memory is mapped, so that frames can be cleared by the stores that suit them.
    ///
    /// Without, they are cleared by [`zero`](Effects::zero).
    fn memory(&self) -> Option<LinearMap> {
        None
    }
}
