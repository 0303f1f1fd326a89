//! Only `table` stores entries (INV-TABLE-COUNTS), because only it accounts for them.
//!
//! A store of an entry names its place, a `PteSlot`. The machines, which perform the stores, and
//! the judge's column, which has page tables of its own, are exempt. So is the mark of a pending
//! entry, which changes nothing that is counted.

use super::{Breach, Finding};
use crate::source::File;

/// The subject's sources above and below `table`.
const SUBJECT: [&str; 6] = [
    "crates/frame/src/",
    "crates/tlb/src/",
    "crates/mm/src/",
    "crates/syscall/src/",
    "crates/lab/src/",
    "kernel/linux/src/",
];

/// The methods of `Effects` that store an entry.
const STORES: [&str; 3] = [".store(", ".swap(", ".compare_exchange("];

/// The source that marks entries as pending.
const MARKS: &str = "crates/tlb/src/defer/table_key.rs";

/// Every store in a source of the subject that names the place of an entry.
pub(crate) fn check(file: &File) -> Vec<Finding> {
    let is_subject = |path: &str| SUBJECT.iter().any(|prefix| path.starts_with(prefix)) && path != MARKS;
    let is_subject = file.path.to_str().is_some_and(is_subject);
    if !is_subject || !file.code.contains("PteSlot") {
        return Vec::new();
    }
    let stores = STORES.iter().flat_map(|store| file.code.match_indices(store)).map(|(at, _)| at);
    stores.filter(|at| !is_atomic(&file.code[*at..])).map(|at| Finding::at(file, at, Breach::EntryStored)).collect()
}

/// Whether a call is one of an atomic, which names an ordering.
fn is_atomic(call: &str) -> bool {
    call.split_once(';').map_or(call, |(call, _)| call).contains("Ordering::")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<usize> {
        check(&File::new(path.into(), text.into())).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_store_of_an_entry_outside_the_table_crate_is_found() {
        let text = "use a::PteSlot;\nfn a() { fx.store(slot, pte); }\nfn b() { fx.load(slot); fx.swap(slot, pte); }\n";
        assert_eq!(found("crates/mm/src/fault/mod.rs", text), [2, 3]);
        assert_eq!(found("kernel/linux/src/report.rs", text), [2, 3]);
        assert!(found("crates/table/src/locked_table.rs", text).is_empty());
        assert!(found("crates/sim/src/effects.rs", text).is_empty(), "a machine");
        assert!(found(MARKS, text).is_empty(), "marks");
        assert_eq!(found("crates/tlb/src/defer/batch.rs", text), [2, 3]);
    }

    #[test]
    fn a_store_that_names_no_entry_is_none() {
        assert!(found("crates/mm/src/a.rs", "fn a() { count.store(0, Ordering::Relaxed); }\n").is_empty());
        let beside = "use a::PteSlot;\nfn a() { count.store(0, Ordering::Relaxed); }\n";
        assert!(found("crates/mm/src/a.rs", beside).is_empty(), "an atomic");
        assert!(found("crates/mm/src/a.rs", "// PteSlot\nfn a() { count.store(0, Ordering::Relaxed); }\n").is_empty());
    }
}
