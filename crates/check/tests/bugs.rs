//! The corpus of named bugs.
//!
//! Each bug is found from every seed, by the rule that the corpus names, and again from its token.
//! Each fix is clean.

use crate::corpus::{self, BUGS, Bug, FoundBy, RunMode, Version};

const SEEDS: [u64; 3] = [1, 2, 3];
const SCHEDULES: u32 = 1000;

/// The number of schedules until `bug` is found from `seed`; both of its tokens must find it again.
fn schedules_until_found(bug: &Bug, seed: u64) -> u32 {
    let outcome = (bug.check)(Version::Shipped, &RunMode::Search { seed, schedules: SCHEDULES });
    let found = outcome.search().failing.as_ref();
    let as_expected = found.filter(|_| outcome.finding().is_some_and(|finding| bug.found_by.is(finding)));
    let Some(found) = as_expected else {
        panic!("{}, seed {seed}: expected {}\n{outcome}", bug.name, bug.found_by);
    };
    for token in [&found.token, &found.shrunk] {
        let again = (bug.check)(Version::Shipped, &RunMode::Replay(token));
        assert!(again.finding().is_some_and(|finding| bug.found_by.is(finding)), "{}: {token}\n{again}", bug.name);
    }
    outcome.search().schedules
}

#[test]
fn shipped_versions_are_found_from_each_seed_and_from_their_tokens() {
    for bug in BUGS {
        let mut schedules = SEEDS.map(|seed| schedules_until_found(bug, seed));
        schedules.sort_unstable();
        println!("{}: found in schedule {} (median of {})", bug.name, schedules[SEEDS.len() / 2], SEEDS.len());
    }
}

#[test]
fn fixed_versions_are_clean_over_as_many_schedules() {
    for bug in BUGS {
        let outcome = (bug.check)(Version::Fixed, &RunMode::Search { seed: SEEDS[0], schedules: SCHEDULES });
        assert!(outcome.search().failing.is_none(), "{}\n{outcome}", bug.name);
        match bug.found_by {
            FoundBy::Rule(_) => assert!(outcome.vacuity().is_none(), "{}\n{outcome}", bug.name),
            FoundBy::Value => {}
        }
    }
}

/// Bugs that need no preemption and no act, or at most this many of them, and few schedules.
const EXHAUSTIVELY: [(&str, u32, u32); 5] = [
    ("LiteBox #848", 1, 0),
    ("OSv #1475", 1, 0),
    ("seL4 #107", 1, 0),
    ("Zephyr #98344", 2, 0),
    ("tgoskits #2009", 0, 1),
];

#[test]
fn an_exhaustive_search_finds_bugs_and_is_complete_and_clean_on_their_fixes() {
    for (name, preemptions, acts) in EXHAUSTIVELY {
        let Some(bug) = BUGS.iter().find(|bug| bug.name == name) else { panic!("no bug is called {name}") };
        let mode = RunMode::Exhaustive { preemptions, acts, schedules: 3000 };
        let shipped = (bug.check)(Version::Shipped, &mode);
        assert!(shipped.finding().is_some_and(|finding| bug.found_by.is(finding)), "{name}\n{shipped}");
        let fixed = (bug.check)(Version::Fixed, &mode);
        let complete = fixed.search().exhaustive.is_some_and(|(_, done)| done.complete);
        assert!(complete && fixed.search().failing.is_none(), "{name}\n{fixed}");
    }
}

#[test]
fn the_page_of_named_bugs_is_that_of_the_corpus() {
    assert_eq!(corpus::markdown(), include_str!("../../../docs/named-bugs.md"), "run the example bugs with --markdown");
}
