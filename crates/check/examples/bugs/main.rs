//! Finds TLB maintenance bugs that kernels shipped.
//!
//! `cargo run -p pagewright-check --example bugs` runs both versions of each bug. With a part of a
//! name, it runs the bugs whose name contains it, and prints their reports. `-- --markdown` writes
//! `docs/named-bugs.md`. The exit status is 1 if a bug is not found, if another rule finds it, or
//! if its fix is not clean.

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
    let mut all_as_expected = true;
    for bug in BUGS.iter().filter(named) {
        all_as_expected &= run(bug, wanted.is_some());
    }
    if all_as_expected { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs both versions; returns whether both have the expected result.
fn run(bug: &Bug, show: bool) -> bool {
    println!("{}: {}\n  {}", bug.name, bug.what, bug.link);
    let shipped = (bug.check)(Version::Shipped, &SEARCH);
    let as_expected = |outcome: &CheckOutcome| outcome.finding().is_some_and(|finding| bug.found_by.is(finding));
    let found = shipped.search().failing.as_ref().filter(|_| as_expected(&shipped));
    let again = found.is_some_and(|found| as_expected(&(bug.check)(Version::Shipped, &RunMode::Replay(&found.shrunk))));
    match again {
        true => println!("  as shipped: found in schedule {}, by {}", shipped.search().schedules, bug.found_by),
        false => println!("  as shipped: NOT FOUND by {}, or not by replay\n{shipped}", bug.found_by),
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
