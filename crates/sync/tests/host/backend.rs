//! Threads of the host as CPUs.

use pagewright_sync::Backend;
use pagewright_sync::host::{HostLocks, run_as};
use pagewright_types::CpuId;
use std::thread;

/// Runs `body` on `cpus` threads, each as the CPU of its number, and waits for all.
pub(crate) fn on_cpus(cpus: u16, body: impl Fn(CpuId) + Sync) {
    thread::scope(|scope| {
        for cpu in (0..cpus).map(CpuId::new) {
            let body = &body;
            scope.spawn(move || {
                run_as(cpu);
                body(cpu);
                assert!(HostLocks::held().is_empty(), "CPU {cpu} still records a lock");
            });
        }
    });
}
