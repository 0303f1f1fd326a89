//! `README.md` shows the code of the examples and what they print.

use pagewright_check::{Check, CheckOutcome, X86_64};

#[path = "../examples/missing_flush.rs"]
#[allow(dead_code, reason = "an example has a main function")]
mod example;

fn readme() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md");
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Joins all words by one space, so that layouts do not matter.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The code blocks of the README that are Rust.
fn rust_blocks() -> Vec<String> {
    let readme = readme();
    let blocks = readme.split("```rust\n").skip(1);
    blocks.map(|rest| words(rest.split_once("```").expect("the block ends").0)).collect()
}

#[test]
fn the_readme_shows_the_transcript_of_the_example() {
    let check = |flush| -> CheckOutcome { Check::<X86_64>::new().explore(|harness| example::programs(harness, flush)) };
    let printed = check(false).to_string();
    assert!(readme().contains(&printed), "README.md must contain\n{printed}");
    check(true).unwrap_clean();
}

#[test]
fn the_readme_shows_the_code_of_the_example() {
    let flush = "if flush { cpu.flush_page(PAGE, InvalidateScope::Local); \
                 cpu.shoot_down(cpu.others(), |cpu| cpu.flush_page(PAGE, InvalidateScope::Local)); } ";
    let unflushed = words(include_str!("../examples/missing_flush.rs")).replace(flush, "");
    assert!(unflushed.contains(&rust_blocks()[0]), "README.md shows other code than the example without\n{flush}");
}

#[test]
fn the_test_that_the_readme_shows_compiles_and_passes() {
    let test = words(include_str!("user_crate.rs"));
    assert!(test.contains(&rust_blocks()[1]), "README.md shows another test than crates/check/tests/user_crate.rs");
}
