//! Finds TLB maintenance bugs that kernels shipped.
//!
//! `cargo run -p pagewright-check --example bugs` runs both versions of each bug. With a part of a
//! name, it runs the bugs whose name contains it, and prints their reports. The last line is the
//! rate, of both versions; `PAGEWRIGHT_PROCESSES=2` searches in two processes.
//! `-- --exhaustive 2 2` searches all schedules with at most that many preemptions and acts of the
//! machine, and prints how many there are. `-- --markdown` writes `docs/named-bugs.md`. The exit
//! status is 1 if a bug is not found, if another rule finds it, or if its fix is not clean. An
//! exhaustive search may not find a bug, because the bounds are too small for it.

#[path = "corpus.rs"]
mod corpus;

use corpus::{BUGS, Bug, RunMode, Version};
use pagewright_check::CheckOutcome;
use std::process::ExitCode;
use std::time::Instant;

const SEARCH: RunMode<'_> = RunMode::Search { seed: 1, schedules: 3000 };

fn main() -> ExitCode {
    let wanted = std::env::args().nth(1);
    if wanted.as_deref() == Some("--markdown") {
        print!("{}", corpus::markdown());
        return ExitCode::SUCCESS;
    }
    if wanted.as_deref() == Some("--exhaustive") {
        return exhaustive();
    }
    let named = |bug: &&Bug| wanted.as_ref().is_none_or(|name| bug.name.contains(name.as_str()));
    let (mut all_as_expected, mut schedules, start) = (true, 0, Instant::now());
    for bug in BUGS.iter().filter(named) {
        all_as_expected &= run(bug, wanted.is_some(), &mut schedules);
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("{schedules} schedules in {seconds:.1} s: {:.0} schedules/s", f64::from(schedules) / seconds);
    if all_as_expected { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Schedules after which an exhaustive search gives up.
const MOST: u32 = 3_000_000;

/// Searches all schedules of each program within the bounds of the command line.
fn exhaustive() -> ExitCode {
    let number = |index| std::env::args().nth(index).and_then(|text: String| text.parse().ok());
    let (Some(preemptions), Some(acts)) = (number(2), number(3)) else {
        eprintln!("--exhaustive: two numbers are expected, of preemptions and of acts");
        return ExitCode::FAILURE;
    };
    let named = std::env::args().nth(4);
    let mode = RunMode::Exhaustive { preemptions, acts, schedules: MOST };
    let (mut all_clean, mut complete) = (true, 0);
    println!("{:42} {:>12} {:>14} {:>9} {:>9}", "bug", "found after", "fix: schedules", "", "seconds");
    for bug in BUGS.iter().filter(|bug| named.as_ref().is_none_or(|name| bug.name.contains(name.as_str()))) {
        let start = Instant::now();
        let shipped = (bug.check)(Version::Shipped, &mode);
        let found = shipped.finding().is_some_and(|finding| bug.found_by.is(finding));
        let fixed = (bug.check)(Version::Fixed, &mode);
        let clean = fixed.search().failing.is_none();
        let Some((_, done)) = fixed.search().exhaustive else { unreachable!("the mode is exhaustive") };
        let extent = if done.complete { "complete" } else { "cut off" };
        let result = if clean { extent } else { "NOT CLEAN" };
        let after = if found { shipped.search().schedules.to_string() } else { "NOT FOUND".to_owned() };
        let seconds = start.elapsed().as_secs_f64();
        println!("{:42} {after:>12} {:>14} {result:>9} {seconds:>9.1}", bug.name, done.runs);
        if !clean {
            println!("{fixed}");
        }
        all_clean &= clean;
        complete += u32::from(found && clean && done.complete && seconds < 60.0);
    }
    println!("{complete} found, with a fix that is clean over all schedules, within 60 seconds");
    if all_clean { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs both versions; returns whether both have the expected result, and counts the schedules.
fn run(bug: &Bug, show: bool, schedules: &mut u32) -> bool {
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
    *schedules += shipped.search().schedules + fixed.search().schedules;
    match clean {
        true => println!("  fixed: clean in {} distinct schedules", fixed.search().distinct),
        false => println!("  fixed: NOT CLEAN\n{fixed}"),
    }
    if show && again {
        println!("\n{shipped}\n");
    }
    again && clean
}
