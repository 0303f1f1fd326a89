//! The corpus of named bugs: each is found as it was shipped, from any seed and by what was promised, and its fix is clean.

#[path = "../examples/bugs/corpus.rs"]
mod corpus;

use corpus::{BUGS, Budget, Bug, FoundBy, Version};

const SEEDS: [u64; 3] = [1, 2, 3];
const SCHEDULES: u32 = 3000;

/// Schedules until `bug` was found, from `seed`.
fn schedules_until_found(bug: &Bug, seed: u64) -> u32 {
    let outcome = (bug.check)(Version::Shipped, Budget { seed, schedules: SCHEDULES });
    let found = outcome.finding().is_some_and(|finding| bug.found_by.is(finding));
    assert!(found, "{}, seed {seed}: to be found by {}\n{outcome}", bug.name, bug.found_by);
    outcome.hunt().schedules
}

#[test]
fn what_was_shipped_is_found_from_each_seed() {
    for bug in BUGS {
        let mut schedules = SEEDS.map(|seed| schedules_until_found(bug, seed));
        schedules.sort_unstable();
        println!("{}: found in schedule {} (median of {})", bug.name, schedules[SEEDS.len() / 2], SEEDS.len());
    }
}

#[test]
fn what_was_fixed_is_clean_over_as_many_schedules() {
    for bug in BUGS {
        let outcome = (bug.check)(Version::Fixed, Budget { seed: SEEDS[0], schedules: SCHEDULES });
        assert!(outcome.hunt().found.is_none(), "{}\n{outcome}", bug.name);
        match bug.found_by {
            FoundBy::Rule(_) => assert!(!outcome.is_vacuous(), "{}\n{outcome}", bug.name),
            FoundBy::Value => {}
        }
    }
}

#[test]
fn the_page_lists_what_is_here() {
    assert_eq!(corpus::markdown(), include_str!("../../../docs/named-bugs.md"), "run the example bugs with --markdown");
}
