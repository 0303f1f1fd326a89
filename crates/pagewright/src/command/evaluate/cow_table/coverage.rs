//! What the series touches, and the test of each row here.
//!
//! A row without a test is *not yet*: the mechanism is not built. The unit test of this file looks
//! for each test in the sources.

use super::super::{Figures, Grid};

/// A row: what the series handles, the file of its test, and what names the test there.
type Row = (&'static str, Option<(&'static str, &'static str)>);

const CALLS: &str = "crates/mm/tests/share/calls.rs";
const SHARE: &str = "crates/mm/tests/share/mod.rs";
const PINS: &str = "crates/mm/tests/share/pins.rs";
const FOR_ALL: &str = "crates/mm/tests/share/for_all.rs";
const PROGRAM: &str = "kernel/programs/tables.c";

const ROWS: [Row; 33] = [
    ("zap of a part of a table", Some((CALLS, "munmap of a page"))),
    ("zap of a whole table", Some((CALLS, "munmap of a whole table"))),
    ("truncation", Some((FOR_ALL, "a_file_is_truncated_for_all_sharers_of_its_tables"))),
    ("reverse map, swap-out", Some((FOR_ALL, "a_page_of_a_hundred_processes_is_swapped_out_by_one_edit"))),
    ("swap-in, swapoff", Some(("crates/mm/tests/swap/swapoff.rs", "swapoff_swaps_everything_in"))),
    ("madvise DONTNEED", Some((CALLS, "MADV_DONTNEED"))),
    ("madvise FREE", Some((CALLS, "MADV_FREE"))),
    ("madvise COLD", Some((CALLS, "MADV_COLD"))),
    ("madvise PAGEOUT", Some((CALLS, "MADV_PAGEOUT"))),
    ("madvise POPULATE_WRITE", Some((CALLS, "MADV_POPULATE_WRITE"))),
    ("GUP slow and fast", Some((PINS, "a_page_below_a_shared_pointer_is_pinned_by_an_own_path"))),
    ("GUP of a special entry", Some((PINS, "a_zero_page_below_a_shared_pointer_is_taken"))),
    ("a pinned page in a table", Some((PINS, "a_table_with_a_pinned_page_is_not_shared_until_it_is_unpinned"))),
    ("mprotect", Some((CALLS, "mprotect to none"))),
    ("mremap of a part, of a table", Some((CALLS, "mremap of a whole table"))),
    ("mlock", Some((CALLS, "mlock"))),
    ("VMA split and merge", Some((CALLS, "mprotect"))),
    ("soft-dirty clearing", Some((CALLS, "clear_refs of soft-dirty bits"))),
    ("process_vm_writev", Some((CALLS, "process_vm_writev into it"))),
    ("forced writes", Some((CALLS, "a forced write"))),
    ("exit, exec", Some((CALLS, "exit"))),
    ("vfork, OOM kill", Some((PROGRAM, "vfork and the end of memory"))),
    ("a second failed allocation", Some((SHARE, "a_store_that_finds_no_memory_for_a_table_changes_nothing"))),
    ("the cow selftest, cases 1 to 6", Some(("kernel/programs/splices.h", "vmsplice"))),
    ("the cow selftest, cases 7 to 14", Some(("crates/mm/tests/gup/cow_cases.rs", "fork_with_a_fixed_buffer"))),
    ("the cow selftest on huge pages", Some(("crates/mm/tests/thp/cow.rs", "whole"))),
    ("migration, hint faults", None),
    ("transparent huge pages, collapse", None),
    ("hugetlb", None),
    ("KSM", None),
    ("userfaultfd", None),
    ("uprobes", None),
    ("device pages", None),
];

pub(super) fn figures() -> Figures {
    Grid::of("What the series touches, and the tests here", &ROWS)
        .text("row", |(what, _)| *what)
        .text("test", |(_, test)| test.map_or_else(|| "not yet".to_owned(), |(file, name)| format!("{name} ({file})")))
        .table()
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn each_row_names_a_test_that_exists() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for (what, test) in ROWS {
            let Some((file, name)) = test else { continue };
            let source = std::fs::read_to_string(root.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
            let named = [format!("\"{name}\""), format!("fn {name}"), format!("    {name}: ")]
                .iter()
                .any(|named| source.contains(named));
            let is_there = named || file.starts_with("kernel/programs/") && source.contains(name);
            assert!(is_there, "{what}: {file} has no {name}");
        }
    }
}
