//! Bugs of pins that are planted are found by random programs of calls, operation by operation:
//! from three seeds, by the rule that each breaks, within a budget. INV-GUP-EXCLUSIVE,
//! INV-GUP-LINEAR, INV-ORACLE-O3, INV-ORACLE-O4.
//!
//! Not covered: those that need a race (`gup_races.rs`).
#![cfg(feature = "planted")]

use pagewright_arch::{Aarch64, Isa, X86_64};
use pagewright_check::Rule;
use pagewright_fuzz::random::{PlantedBug, calls_program, fast, plant};

/// Programs of each seed.
const PROGRAMS: u64 = 200;

fn found<I: Isa>(seed: u64, rule: Rule) -> Option<u64> {
    (0..PROGRAMS).find(|number| {
        let program = calls_program(seed, None, *number);
        let ran = fast::run::<I>(&program).expect("a possible machine");
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
            let numbers = [found::<X86_64>(seed, rule), found::<Aarch64>(seed, rule)];
            plant(None);
            println!("{}, seed {seed}: found by programs {numbers:?}", bug.name());
            assert!(numbers.iter().all(Option::is_some), "{}, seed {seed}: {numbers:?}", bug.name());
        }
    }
}
