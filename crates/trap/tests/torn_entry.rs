//! The example on a torn entry finds what it claims to find.

#[path = "../examples/torn_entry.rs"]
#[expect(dead_code, reason = "an example has a main")]
mod example;

#[test]
fn an_entry_that_is_stored_in_two_halves_is_found_if_stores_trap() {
    assert!(example::all_as_expected(200));
}
