//! The examples that check published crates find the bugs that they claim to find.
#![allow(clippy::duplicate_mod, reason = "both examples have the same support")]

#[path = "../examples/aarch64_paging.rs"]
#[expect(dead_code, reason = "an example has a main")]
mod aarch64_paging;
#[path = "../examples/offset_page_table.rs"]
#[expect(dead_code, reason = "an example has a main")]
mod offset_page_table;

#[test]
fn the_bugs_of_a_kernel_around_x86_64_are_found() {
    assert!(offset_page_table::all_as_expected());
}

#[test]
fn the_bugs_of_a_regime_for_aarch64_paging_are_found() {
    assert!(aarch64_paging::all_as_expected());
}
