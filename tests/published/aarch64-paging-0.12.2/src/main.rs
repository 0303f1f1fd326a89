//! Runs the correct version of the example `aarch64_paging` on version 0.12.2 of the crate.
//!
//! `compact_subtables` frees a table that a walk cache still leads to. The exit status is 0 if the
//! check finds that.

use pagewright_check::Rule;

#[path = "../../../../crates/check/examples/aarch64_paging.rs"]
#[expect(dead_code, reason = "an example has a main, and the other versions")]
mod aarch64_paging;

fn main() {
    let outcome = aarch64_paging::check(aarch64_paging::Version::Correct);
    println!("{outcome}");
    outcome.expect_violation(Rule::Reuse);
}

#[test]
fn the_mistake_is_found() {
    main();
}
