//! `AtomicCpuMask` against `CpuMask`.

use crate::backend::on_cpus;
use pagewright_sync::AtomicCpuMask;
use pagewright_types::{CpuId, CpuMask};
use proptest::prelude::*;

proptest! {
    #[test]
    fn every_operation_matches_the_one_of_a_plain_mask(steps in prop::collection::vec((0u8..5, 0u16..256), 1..80)) {
        let (atomic, mut plain) = (AtomicCpuMask::new(), CpuMask::EMPTY);
        for (step, cpu) in steps {
            let cpu = CpuId::new(cpu);
            match step {
                0 => {
                    prop_assert_eq!(atomic.insert(cpu), plain.contains(cpu));
                    plain.insert(cpu);
                }
                1 => {
                    prop_assert_eq!(atomic.remove(cpu), plain.contains(cpu));
                    plain.remove(cpu);
                }
                2 => prop_assert_eq!(atomic.contains(cpu), plain.contains(cpu)),
                3 => {
                    let more = CpuMask::first(cpu.index());
                    atomic.insert_all(&more);
                    plain.insert_all(&more);
                }
                _ => {
                    prop_assert_eq!(atomic.take(), plain);
                    plain = CpuMask::EMPTY;
                }
            }
            prop_assert_eq!(atomic.load(), plain);
        }
    }
}

#[test]
fn take_beside_inserts_returns_each_insertion_once() {
    const ROUNDS: usize = if cfg!(miri) { 100 } else { 5_000 };
    let mask = AtomicCpuMask::new();
    let taken = std::sync::atomic::AtomicUsize::new(0);
    let inserted = std::sync::atomic::AtomicUsize::new(0);
    let relaxed = std::sync::atomic::Ordering::Relaxed;
    on_cpus(4, |cpu| {
        for _ in 0..ROUNDS {
            if cpu.raw() == 0 {
                taken.fetch_add(mask.take().count() as usize, relaxed);
            } else if !mask.insert(cpu) {
                inserted.fetch_add(1, relaxed);
            }
        }
    });
    taken.fetch_add(mask.take().count() as usize, relaxed);
    assert_eq!(taken.into_inner(), inserted.into_inner());
}
