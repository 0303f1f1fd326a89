//! Random programs that are mostly calls find the planted bugs of pins that need no race.
//!
//! Each of three seeds finds each bug within a budget, by the rule that it breaks.
//! INV-GUP-EXCLUSIVE, INV-GUP-LINEAR, INV-ORACLE-O3, INV-ORACLE-O4.
//!
//! Not covered: planted bugs that need a race (`mm/tests/gup/races.rs`).
#![cfg(feature = "planted")]

use pagewright_arch::{Aarch64, Isa, X86_64};
use pagewright_check::Rule;
use pagewright_fuzz::random::{PlantedBug, calls_program, fast_mode, plant};

/// Programs of each seed.
const PROGRAMS: u64 = 200;

fn first_finding<I: Isa>(seed: u64, rule: Rule) -> Option<u64> {
    (0..PROGRAMS).find(|number| {
        let program = calls_program(seed, None, *number);
        let ran = fast_mode::run::<I>(&program).expect("a possible machine");
        ran.findings.first().is_some_and(|finding| finding.rule() == Some(rule))
    })
}

#[test]
fn programs_with_devices_find_planted_bugs_of_pins() {
    let expected = [
        (PlantedBug::ForkIgnoresPin, Rule::Memory),
        (PlantedBug::PinNotExclusive, Rule::Counts),
        (PlantedBug::PinKept, Rule::Counts),
    ];
    for (bug, rule) in expected {
        for seed in 1..=3 {
            plant(Some(bug));
            let numbers = [first_finding::<X86_64>(seed, rule), first_finding::<Aarch64>(seed, rule)];
            plant(None);
            println!("{}, seed {seed}: found by programs {numbers:?}", bug.name());
            assert!(numbers.iter().all(Option::is_some), "{}, seed {seed}: {numbers:?}", bug.name());
        }
    }
}
