//! Random programs under the oracle, a share of what the soak runs.

use pagewright_arch::{Aarch64, Isa, X86_64};
use pagewright_workload::random::{Mode, Program, Shape, fast};

const FAST: Shape = Shape { mode: Mode::Fast, cpus: 4, calm: 8, others: 240 };

fn run<I: Isa>(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let program = Program::new(FAST, seed);
        let ran = fast::run::<I>(&program).expect("a possible machine");
        if let Some(finding) = ran.findings.first() {
            panic!("{program} ({}, after {} operations): {finding}", I::KIND, ran.operations);
        }
    }
}

#[test]
fn nothing_is_found_in_fast_mode_on_x86_64() {
    run::<X86_64>(0..2);
}

#[test]
fn nothing_is_found_in_fast_mode_on_aarch64() {
    run::<Aarch64>(0..2);
}
