//! Host threads as CPUs.

use pagewright_sync::{Backend, RankSet};
use pagewright_types::CpuId;
use std::cell::Cell;
use std::thread;

std::thread_local! {
    static HELD: Cell<RankSet> = const { Cell::new(RankSet::EMPTY) };
    static CPU: Cell<CpuId> = const { Cell::new(CpuId::new(0)) };
}

/// Each host thread is a CPU.
pub(crate) struct Host;

impl Backend for Host {
    fn pause() {
        thread::yield_now();
    }

    fn cpu() -> CpuId {
        CPU.get()
    }

    fn held() -> RankSet {
        HELD.get()
    }

    fn set_held(held: RankSet) {
        HELD.set(held);
    }
}

/// Runs `body` on `cpus` threads, each as the CPU of its number, and waits for all.
pub(crate) fn on_cpus(cpus: u16, body: impl Fn(CpuId) + Sync) {
    thread::scope(|scope| {
        for cpu in (0..cpus).map(CpuId::new) {
            let body = &body;
            scope.spawn(move || {
                CPU.set(cpu);
                body(cpu);
                assert!(Host::held().is_empty(), "CPU {cpu} still records a lock");
            });
        }
    });
}
