//! Each planted bug of memory policies fails the test of the property that it breaks.

#[cfg(feature = "planted")]
#[test]
fn planted_bugs_are_found() {
    use super::calls::a_policy_covers_the_pages_that_the_call_named as covers;
    use super::calls::a_policy_of_a_mapping_breaks_the_tables_that_other_spaces_share as breaks;
    use super::placement::a_bound_mapping_gets_no_page_of_another_node as bound;
    use super::placement::pages_obey_the_policy_of_their_mapping as obeys;
    use pagewright_arch::{Aarch64, X86_64};
    use pagewright_plant::{PlantedBug, assert_found_by};

    type OnBoth = [fn(); 2];
    let cases: [(PlantedBug, OnBoth); 4] = [
        (PlantedBug::FaultIgnoresPolicy, [obeys::<X86_64>, obeys::<Aarch64>]),
        (PlantedBug::BindFallsBack, [bound::<X86_64>, bound::<Aarch64>]),
        (PlantedBug::MergeIgnoresPolicy, [covers::<X86_64>, covers::<Aarch64>]),
        (PlantedBug::PolicyInSharedTable, [breaks::<X86_64>, breaks::<Aarch64>]),
    ];
    for (bug, tests) in cases {
        tests.into_iter().for_each(|test| assert_found_by(bug, test));
    }
}
