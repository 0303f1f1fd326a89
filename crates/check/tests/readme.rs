//! What `README.md` shows is what the example prints, and the code that it shows is the example's.

use pagewright_check::{Check, CheckOutcome, X86_64};

#[path = "../examples/missing_flush.rs"]
#[allow(dead_code, reason = "an example has a main function")]
mod example;

fn readme() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md");
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn the_transcript_is_what_is_printed() {
    let check = |flush| -> CheckOutcome { Check::<X86_64>::new().explore(|harness| example::programs(harness, flush)) };
    let printed = check(false).to_string();
    assert!(readme().contains(&printed), "README.md should show\n{printed}");
    check(true).unwrap_clean();
}

#[test]
fn the_code_is_the_example() {
    let example = include_str!("../examples/missing_flush.rs");
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let shown = readme();
    let (_, shown) = shown.split_once("```rust\n").expect("code in README.md");
    let (shown, _) = shown.split_once("```").expect("its end");
    let flush = "if flush { cpu.flush_page(PAGE, InvalidateScope::Local); \
                 cpu.shoot_down(cpu.others(), |cpu| cpu.flush_page(PAGE, InvalidateScope::Local)); } ";
    let unflushed = words(example).replace(flush, "");
    assert!(unflushed.contains(&words(shown)), "README.md shows other code than the example has without\n{flush}");
}
