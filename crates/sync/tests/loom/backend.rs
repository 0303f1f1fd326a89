//! Loom's threads as CPUs.

use pagewright_sync::{Backend, RankSet};
use pagewright_types::CpuId;
use std::cell::Cell;

loom::thread_local! {
    static HELD: Cell<RankSet> = Cell::new(RankSet::EMPTY);
}

/// Each loom thread is a CPU; a thread that waits for a lock lets loom run another.
pub(crate) struct Loom;

impl Backend for Loom {
    type Line = ();

    fn pause() {
        loom::thread::yield_now();
    }

    fn cpu() -> CpuId {
        CpuId::new(0)
    }

    fn held() -> RankSet {
        HELD.with(Cell::get)
    }

    fn set_held(held: RankSet) {
        HELD.with(|cell| cell.set(held));
    }
}
