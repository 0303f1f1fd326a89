//! One value per CPU, and counters.

use crate::backend::on_cpus;
use pagewright_sync::{Counters, OutOfMemory, PerCpu};
use pagewright_types::{Counter, CpuId};

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
fn more_than_memory_holds_is_refused_and_nothing_is_made() {
    let refused = PerCpu::try_new(usize::MAX / 128, |_| -> u8 { panic!("made before the room was reserved") });
    assert!(matches!(refused, Err(OutOfMemory { bytes }) if bytes > isize::MAX as usize));
}

#[test]
fn counts_of_all_cpus_add_up_and_counters_do_not_mix() {
    let counters = Counters::try_new(4).expect("memory");
    on_cpus(4, |cpu| {
        for _ in 0..1_000 {
            counters.add(cpu, Counter::PgFault, 1);
            counters.add(CpuId::new(0), Counter::PgAlloc, 2);
        }
    });
    assert_eq!(counters.sum(Counter::PgFault), 4_000);
    assert_eq!(counters.sum(Counter::PgAlloc), 8_000);
    assert_eq!(counters.sum(Counter::PgFree), 0);
}
