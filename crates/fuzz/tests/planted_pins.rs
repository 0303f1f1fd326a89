//! Random programs that are mostly calls find the planted bugs of pins that need no race.
//!
//! A seed finds each bug within a budget, by the rule that it breaks. With `PAGEWRIGHT_SOAK` each
//! of three seeds does.
//! INV-GUP-EXCLUSIVE, INV-GUP-LINEAR, INV-SHARE-PIN, INV-ORACLE-O3, INV-ORACLE-O4.
//!
//! Not covered: planted bugs that need a race (`mm/tests/gup/races.rs`).

use pagewright_arch::{Isa, on_both};
use pagewright_check::Rule;
use pagewright_fuzz::random::{PlantedBug, calls_program, fast_mode, plant};

/// Programs of each seed.
const PROGRAMS: u64 = 200;

fn first_finding<I: Isa>(seed: u64, rules: &[Rule]) -> Option<u64> {
    (0..PROGRAMS).find(|number| {
        let program = calls_program(seed, None, *number);
        let ran = fast_mode::run::<I>(&program).expect("a possible machine");
        ran.findings.first().and_then(|finding| finding.rule()).is_some_and(|rule| rules.contains(&rule))
    })
}

fn programs_with_devices_find_planted_bugs_of_pins<I: Isa>() {
    let expected: [(PlantedBug, &[Rule]); 4] = [
        (PlantedBug::ForkIgnoresPin, &[Rule::Memory]),
        (PlantedBug::PinNotExclusive, &[Rule::Counts]),
        (PlantedBug::PinKept, &[Rule::Counts]),
        // At rest the pinned page is not exclusive, or before that the device has other values.
        (PlantedBug::PinMarkLost, &[Rule::Counts, Rule::Memory]),
    ];
    // Of the three, the second needs the fewest programs for all bugs together.
    let seeds = if std::env::var_os("PAGEWRIGHT_SOAK").is_some() { 1..=3 } else { 2..=2 };
    for (bug, rules) in expected {
        for seed in seeds.clone() {
            plant(Some(bug));
            let number = first_finding::<I>(seed, rules);
            plant(None);
            println!("{} on {}, seed {seed}: found by program {number:?}", bug.name(), I::KIND);
            assert!(number.is_some(), "{} on {}, seed {seed}", bug.name(), I::KIND);
        }
    }
}

on_both! { programs_with_devices_find_planted_bugs_of_pins }
