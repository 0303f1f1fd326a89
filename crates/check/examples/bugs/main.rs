//! Bugs of TLB maintenance that kernels had, looked for and found.
//!
//! `cargo run -p pagewright-check --example bugs` runs each in two versions; with part of a name it
//! runs those, and shows what was found. `-- --markdown` writes `docs/named-bugs.md`. The exit
//! status is 1 if one is not found, is found by something else, or its fix is not clean.

#[path = "corpus.rs"]
mod corpus;

use corpus::{BUGS, Bug, RunMode, Version};
use pagewright_check::CheckOutcome;
use std::process::ExitCode;

const SEARCH: RunMode<'_> = RunMode::Search { seed: 1, schedules: 3000 };

fn main() -> ExitCode {
    let wanted = std::env::args().nth(1);
    if wanted.as_deref() == Some("--markdown") {
        print!("{}", corpus::markdown());
        return ExitCode::SUCCESS;
    }
    let named = |bug: &&Bug| wanted.as_ref().is_none_or(|name| bug.name.contains(name.as_str()));
    let mut all_as_promised = true;
    for bug in BUGS.iter().filter(named) {
        all_as_promised &= run(bug, wanted.is_some());
    }
    if all_as_promised { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Whether both versions do as they should.
fn run(bug: &Bug, show: bool) -> bool {
    println!("{}: {}\n  {}", bug.name, bug.what, bug.link);
    let shipped = (bug.check)(Version::Shipped, &SEARCH);
    let as_promised = |outcome: &CheckOutcome| outcome.finding().is_some_and(|finding| bug.found_by.is(finding));
    let found = shipped.search().failing.as_ref().filter(|_| as_promised(&shipped));
    let again = found.is_some_and(|found| as_promised(&(bug.check)(Version::Shipped, &RunMode::Replay(&found.shrunk))));
    match again {
        true => println!("  as shipped: found in schedule {}, by {}", shipped.search().schedules, bug.found_by),
        false => println!("  as shipped: NOT FOUND by {}, or not again\n{shipped}", bug.found_by),
    }
    let fixed = (bug.check)(Version::Fixed, &SEARCH);
    let clean = fixed.search().failing.is_none();
    match clean {
        true => println!("  fixed: clean in {} distinct schedules", fixed.search().distinct),
        false => println!("  fixed: NOT CLEAN\n{fixed}"),
    }
    if show && again {
        println!("\n{shipped}\n");
    }
    again && clean
}
