//! `README.md` shows a test that runs, and what an example prints.

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

/// The parts of the README's transcript; between two of them, lines of the output are left out.
fn transcript() -> Vec<String> {
    let readme = readme();
    let block = readme.split_once("--example missing_flush\n").and_then(|(_, rest)| rest.split_once("```"));
    let (block, _) = block.expect("the README has a transcript");
    block.split("…\n").map(str::to_owned).collect()
}

#[test]
fn the_readme_shows_a_part_of_the_transcript_of_the_example() {
    let check = |flush| -> CheckOutcome { Check::<X86_64>::new().explore(|harness| example::programs(harness, flush)) };
    let printed = check(false).to_string() + "\n";
    let mut rest = &printed[..];
    let parts = transcript();
    assert!(parts.len() > 1 && parts.iter().all(|part| part.lines().count() > 1), "{parts:?}");
    for part in parts {
        let found = rest.split_once(&part);
        rest = found.unwrap_or_else(|| panic!("README.md shows\n{part}which is not in\n{rest}")).1;
    }
    assert!(rest.trim().is_empty(), "README.md lacks the end of the output:\n{rest}");
    check(true).unwrap_clean();
}

#[test]
fn the_test_that_the_readme_shows_compiles_and_passes() {
    let test = words(include_str!("user_crate.rs"));
    assert!(test.contains(&rust_blocks()[0]), "README.md shows another test than crates/check/tests/user_crate.rs");
}
