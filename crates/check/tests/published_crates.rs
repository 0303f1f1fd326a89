//! The examples that check published crates find the bugs that they claim to find.
#![allow(clippy::duplicate_mod, reason = "all examples have the same support")]

#[path = "../examples/aarch64_paging.rs"]
#[expect(dead_code, reason = "an example has a main")]
mod aarch64_paging;
#[path = "../examples/libkernel.rs"]
#[expect(dead_code, reason = "an example has a main")]
mod libkernel;
#[path = "../examples/offset_page_table.rs"]
#[expect(dead_code, reason = "an example has a main")]
mod offset_page_table;
#[path = "../examples/own_code.rs"]
#[expect(dead_code, reason = "an example has a main")]
mod own_code;
#[path = "../examples/page_table_generic.rs"]
#[expect(dead_code, reason = "an example has a main")]
mod page_table_generic;

#[test]
fn the_bugs_of_a_kernel_around_x86_64_are_found() {
    assert!(offset_page_table::all_as_expected());
}

#[test]
fn the_bugs_of_a_regime_for_aarch64_paging_are_found() {
    assert!(aarch64_paging::all_as_expected());
}

#[test]
fn a_live_entry_is_replaced_by_libkernel_0_1_3_and_not_by_0_2_0() {
    assert!(libkernel::all_as_expected());
}

#[test]
fn a_table_is_freed_before_its_flush_by_page_table_generic() {
    assert!(page_table_generic::all_as_expected());
}

#[test]
fn each_step_of_the_guide_has_the_result_that_it_states() {
    assert!(own_code::all_as_expected());
}
