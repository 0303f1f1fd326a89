//! The example on the `x86_64` crate finds what it claims to find.

#[path = "../examples/x86_64_crate.rs"]
#[expect(dead_code, reason = "an example has a main")]
mod example;

#[test]
fn a_flush_that_the_crate_executes_itself_is_judged() {
    assert!(example::all_as_expected());
}
