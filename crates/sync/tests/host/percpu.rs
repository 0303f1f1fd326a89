//! Per-CPU values, and counters (INV-COUNT-OWN).

use crate::backend::on_cpus;
use nix::sys::pthread::{pthread_kill, pthread_self};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use pagewright_sync::{AllocError, Counters, PerCpu};
use pagewright_types::{Counter, CpuId};
use std::sync::OnceLock;
use std::thread;

#[test]
fn each_cpu_gets_its_own_value_on_cache_lines_of_its_own() {
    let ids = PerCpu::try_new(3, |cpu| cpu.raw()).expect("memory");
    assert_eq!(ids.cpus(), 3);
    assert!(ids.iter().copied().eq(0..3));
    let addresses: Vec<usize> = (0..3).map(|cpu| std::ptr::from_ref(ids.get(CpuId::new(cpu))).addr()).collect();
    for pair in addresses.windows(2) {
        assert!(pair[1] - pair[0] >= 128);
    }
}

#[test]
fn a_size_beyond_memory_is_refused_before_any_value_is_made() {
    let refused = PerCpu::try_new(usize::MAX / 128, |_| -> u8 { panic!("made before memory was reserved") });
    assert!(matches!(refused, Err(AllocError { bytes }) if bytes > isize::MAX as usize));
}

#[test]
fn a_sum_includes_all_cpus_and_one_counter() {
    let counters = Counters::try_new(4).expect("memory");
    on_cpus(4, |cpu| {
        for _ in 0..1_000 {
            counters.add(cpu, Counter::PgFault, 1);
            counters.add(cpu, Counter::PgAlloc, 2);
        }
    });
    assert_eq!(counters.sum(Counter::PgFault), 4_000);
    assert_eq!(counters.sum(Counter::PgAlloc), 8_000);
    assert_eq!(counters.sum(Counter::PgFree), 0);
    assert_eq!(counters.of(CpuId::new(3), Counter::PgAlloc), 2_000);
}

/// INV-COUNT-OWN.
///
/// A signal interrupts a thread as an interrupt does a CPU.
#[test]
#[cfg_attr(miri, ignore = "Miri delivers no signals")]
fn no_increment_is_lost_to_an_interrupt() {
    const INTERRUPTS: u64 = 5_000;
    const CPU: CpuId = CpuId::new(0);
    static COUNTERS: OnceLock<Counters> = OnceLock::new();
    extern "C" fn interrupt(_: i32) {
        if let Some(counters) = COUNTERS.get() {
            counters.add(CPU, Counter::PgFault, 1);
            counters.add(CPU, Counter::PgAlloc, 1);
        }
    }
    let counters = COUNTERS.get_or_init(|| Counters::try_new(1).expect("memory"));
    let action = SigAction::new(SigHandler::Handler(interrupt), SaFlags::SA_RESTART, SigSet::empty());
    // SAFETY: the handler only increments counters, which outlive it.
    unsafe { sigaction(Signal::SIGUSR1, &action) }.expect("a handler");
    let handled = || counters.of(CPU, Counter::PgAlloc);
    let interrupted = pthread_self();
    let counted = thread::scope(|scope| {
        scope.spawn(|| {
            for sent in 0..INTERRUPTS {
                pthread_kill(interrupted, Signal::SIGUSR1).expect("a thread that lives");
                while handled() == sent {
                    thread::yield_now();
                }
            }
        });
        let mut counted = 0;
        while handled() < INTERRUPTS {
            (0..1_000).for_each(|_| counters.add(CPU, Counter::PgFault, 1));
            counted += 1_000;
        }
        counted
    });
    assert_eq!(counters.sum(Counter::PgFault), counted + INTERRUPTS);
}
