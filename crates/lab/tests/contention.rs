//! What many CPUs pay for the lines that they share while they fault.

use pagewright_arch::{Aarch64, Isa, X86_64};
use pagewright_lab::contention::{self, FaultContention, FaultWorkload};
use pagewright_mm::MmSettings;
use pagewright_sim::{BandEnd, MachineConfig, NodeConfig, SimLocks};
use pagewright_sync::{Backend, LineRef, LineUse};
use pagewright_types::CpuMask;

const PAGES: u64 = 512;

fn machine<I: Isa>(cpus: u16) -> MachineConfig {
    let mut config = MachineConfig::default_for(I::KIND).expect("a default profile");
    config.cpus = cpus;
    config.nodes = vec![NodeConfig { bytes: 16 << 30, cpus: CpuMask::EMPTY }];
    config
}

fn faults<I: Isa>(config: MachineConfig, workload: FaultWorkload) -> FaultContention {
    contention::run::<I>(config, MmSettings::default(), workload, PAGES, || {}).expect("a machine that is large enough")
}

/// INV-SIM-LINES.
#[test]
fn one_cpu_alone_pays_for_no_line() {
    for workload in FaultWorkload::ALL {
        assert_eq!(faults::<X86_64>(machine::<X86_64>(1), workload).lines, []);
        // On a machine with two CPUs, of which one works.
        let result = contention::run::<X86_64>(machine::<X86_64>(2), MmSettings::default(), workload, 1, || {})
            .expect("two CPUs");
        assert!(!result.lines.is_empty(), "two CPUs report their lines");
    }
}

/// INV-SIM-LINES.
#[test]
fn the_same_machine_pays_the_same_in_each_run() {
    for workload in FaultWorkload::ALL {
        let run = || {
            let result = faults::<Aarch64>(machine::<Aarch64>(8), workload);
            (result.time, result.lines)
        };
        let first = run();
        // Other addresses of the host's heap.
        let _other = vec![0u8; 12345];
        assert_eq!(run(), first);
    }
}

/// INV-LRU-BATCH: 64 CPUs that fault in spaces of their own pay at most a fifth more than one.
///
/// Also at both ends of the bands of the transfer times.
#[test]
fn faults_in_own_spaces_cost_at_most_a_fifth_more_on_64_cpus() {
    fn check<I: Isa>() {
        let alone = faults::<I>(machine::<I>(1), FaultWorkload::OwnSpaces).per_fault();
        for end in [BandEnd::Low, BandEnd::Given, BandEnd::High] {
            let mut config = machine::<I>(64);
            config.profile = config.profile.with_lines_at(end);
            let result = faults::<I>(config, FaultWorkload::OwnSpaces);
            let each = result.per_fault();
            assert!(each * 10 <= alone * 12, "{:?} at {end:?}: {each} ps, alone {alone} ps: {result:#?}", I::KIND);
        }
    }
    check::<X86_64>();
    check::<Aarch64>();
}

/// A counter that every fault stores to shows in the figure, so the test above can fail.
#[test]
fn a_counter_that_every_fault_stores_to_costs_more_than_a_fifth() {
    let alone = faults::<X86_64>(machine::<X86_64>(1), FaultWorkload::OwnSpaces).per_fault();
    let count = || SimLocks::line(LineRef::Word(0), "a shared counter", LineUse::Store);
    let (machine, settings) = (machine::<X86_64>(64), MmSettings::default());
    let result = contention::run::<X86_64>(machine, settings, FaultWorkload::OwnSpaces, PAGES, count)
        .expect("a machine that is large enough");
    assert!(result.per_fault() * 10 > alone * 12, "{result:#?}");
    assert_eq!(result.lines[0].name, "a shared counter");
}
