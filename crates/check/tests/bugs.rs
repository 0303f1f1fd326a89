//! The corpus of named bugs: each is found as it was shipped, from any seed and by what was
//! promised, again by its token, and its fix is clean.

#[path = "../examples/bugs/corpus.rs"]
mod corpus;

use corpus::{BUGS, Bug, FoundBy, RunMode, Version};

const SEEDS: [u64; 3] = [1, 2, 3];
const SCHEDULES: u32 = 3000;

/// Schedules until `bug` was found, from `seed`.
///
/// The token that was printed must find it again.
fn schedules_until_found(bug: &Bug, seed: u64) -> u32 {
    let outcome = (bug.check)(Version::Shipped, &RunMode::Search { seed, schedules: SCHEDULES });
    let found = outcome.search().failing.as_ref();
    let as_promised = found.filter(|_| outcome.finding().is_some_and(|finding| bug.found_by.is(finding)));
    let Some(found) = as_promised else {
        panic!("{}, seed {seed}: to be found by {}\n{outcome}", bug.name, bug.found_by);
    };
    for token in [&found.token, &found.shrunk] {
        let again = (bug.check)(Version::Shipped, &RunMode::Replay(token));
        assert!(again.finding().is_some_and(|finding| bug.found_by.is(finding)), "{}: {token}\n{again}", bug.name);
    }
    outcome.search().schedules
}

#[test]
fn what_was_shipped_is_found_from_each_seed_and_again_from_its_token() {
    for bug in BUGS {
        let mut schedules = SEEDS.map(|seed| schedules_until_found(bug, seed));
        schedules.sort_unstable();
        println!("{}: found in schedule {} (median of {})", bug.name, schedules[SEEDS.len() / 2], SEEDS.len());
    }
}

#[test]
fn what_was_fixed_is_clean_over_as_many_schedules() {
    for bug in BUGS {
        let outcome = (bug.check)(Version::Fixed, &RunMode::Search { seed: SEEDS[0], schedules: SCHEDULES });
        assert!(outcome.search().failing.is_none(), "{}\n{outcome}", bug.name);
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
