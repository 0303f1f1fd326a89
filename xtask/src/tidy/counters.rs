//! Generates `docs/counters.md` from the table of counters in `types`.

use super::{Finding, Generated};
use crate::cargo::Workspace;
use crate::error::Error;
use pagewright_types::Counter;

const PAGE: &str = "docs/counters.md";

const HEAD: &str = "\
# Counters

This page lists the counters of the memory manager; `replay` and `run` print them, and the kernel's
`/proc/vmstat` shows them. A name is Linux's where Linux counts the same thing; a name that begins
with `pw_` is our own. Each counter is the sum over all CPUs since boot.

`cargo xtask tidy --write` makes this page from the table in `crates/types/src/counter.rs`: edit the
table, not the page.

| name | what is counted |
| --- | --- |
";

/// Compares the page with the table, or writes the page.
pub(crate) fn run(workspace: &Workspace, generated: Generated) -> Result<Option<Finding>, Error> {
    generated.document(workspace, PAGE, &page())
}

fn page() -> String {
    let rows = Counter::ALL.iter().map(|counter| format!("| `{}` | {} |\n", counter.name(), counter.meaning()));
    std::iter::once(HEAD.to_owned()).chain(rows).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_has_a_row() {
        let page = page();
        assert_eq!(page.lines().count(), HEAD.lines().count() + Counter::COUNT);
        assert!(page.contains("| `nr_tlb_remote_flush` | "));
    }
}
