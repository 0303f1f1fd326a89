//! Lockless walks of page tables (Linux's `gup_fast`), for which the freeing of tables waits.
//!
//! A walk runs with interrupts disabled, on a CPU that has the space loaded
//! ([`Tlb::walk_lockless`]). Another CPU may unhook the tables that it reads at any moment.
//!
//! **INV-TLB-WALKERS** A table that was unhooked is freed only after every lockless walk has ended
//! that may have found it hooked. Otherwise such a walk would read the entries of the frame's next
//! owner.
//! - By IPI (x86-64): before it frees tables, an operation sends an IPI to every CPU that has the
//!   space loaded, lazy or not, and waits for the acknowledgement. The walk delays it to its end,
//!   because interrupts are disabled. Nothing more is needed.
//! - By broadcast (arm64): no CPU is interrupted. Each CPU counts the beginnings and ends of its
//!   walks. An operation that frees tables waits until each count that was odd has moved. A walk
//!   that begins later finds the pointer gone. Linux has `tlb_remove_table_sync_rcu` here.
//!
//! Not guaranteed: anything about pages. A walk takes a speculative reference and looks again.

use crate::context::TlbContext;
use crate::engine::Tlb;
use core::sync::atomic::{AtomicU64, Ordering, fence};
use pagewright_arch::ShootdownKind;
use pagewright_plant::plant;
use pagewright_sync::{Backend, Platform};

/// A counted walk, for which the freeing of tables waits without an IPI.
///
/// It ends on drop.
struct Walking<'a>(&'a AtomicU64);

impl<'a> Walking<'a> {
    fn begin(walks: &'a AtomicU64) -> Self {
        // SeqCst, with the fence: the count is odd before the first entry is read. An operation
        // that frees a table has cleared the pointer before it reads the count. So one of the two
        // sees the other.
        walks.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        Self(walks)
    }
}

impl Drop for Walking<'_> {
    fn drop(&mut self) {
        // Release: what the walk read, it read before.
        self.0.fetch_add(1, Ordering::Release);
    }
}

impl<P: Platform> Tlb<P> {
    /// Runs `walk`, a lockless walk that may read the tables of `context`.
    ///
    /// `None` if this CPU does not run that space: the freeing of tables would not wait for it.
    ///
    /// `walk` must be short, and must neither wait nor acquire locks: interrupts are disabled, and
    /// the freeing of tables waits for it.
    #[inline]
    pub fn walk_lockless<T>(&self, context: &TlbContext, walk: impl FnOnce() -> T) -> Option<T> {
        let walk_here = || {
            let state = self.cpus.get(self.fx().cpu());
            if state.loaded.load(Ordering::SeqCst) != context.id().raw() {
                return None;
            }
            let _walking = match self.fx().caps().shootdown {
                ShootdownKind::Ipi => None,
                ShootdownKind::Broadcast => Some(Walking::begin(&state.walks)),
            };
            Some(walk())
        };
        plant!(WalkersNotAwaited; walk_here(), self.fx().without_interrupts(walk_here))
    }

    /// Runs `walk`, which may read tables that nothing keeps hooked.
    ///
    /// Unlike [`walk_lockless`](Self::walk_lockless), this CPU need not run the space. A caller
    /// that frees tables waits for such a walk by [`await_walkers`](Self::await_walkers), since the
    /// walk may be on a CPU that no flush reaches.
    ///
    /// `walk` must be short and must not wait: interrupts are disabled. It may try a lock.
    #[inline]
    pub fn walk_unheld<T>(&self, walk: impl FnOnce() -> T) -> T {
        self.fx().without_interrupts(|| {
            let _walking = Walking::begin(&self.cpus.get(self.fx().cpu()).walks);
            walk()
        })
    }

    /// Waits for the end of every counted walk that is in progress on another CPU.
    pub fn await_walkers(&self) {
        plant!(WalkersNotAwaited => return);
        fence(Ordering::SeqCst);
        let me = self.fx().cpu();
        for cpu in self.fx().online().iter().filter(|cpu| *cpu != me) {
            let walks = &self.cpus.get(cpu).walks;
            let seen = walks.load(Ordering::Acquire);
            while seen % 2 == 1 && walks.load(Ordering::Acquire) == seen {
                <P::Locks as Backend>::pause();
            }
            plant!(OneWalkerAwaited => if seen % 2 == 1 { return });
        }
    }
}
